"""Unpack a tar archive into a temporary folder, then move its content into place."""

from __future__ import annotations

import shutil
import tarfile
import tempfile
from pathlib import Path

from ctta.errors import BadData


def unpack(archive: Path, folder: Path) -> list[Path]:
    """Unpack an archive without overwriting anything.

    Args:
        archive: A tar file, compressed or not.
        folder: Where to put its content.

    Returns:
        The archive's top-level files and folders.

    Raises:
        BadData: If the archive is damaged, or another file of the same name exists.
    """
    folder.mkdir(parents=True, exist_ok=True)
    work = Path(tempfile.mkdtemp(dir=folder, prefix=f".{archive.name}.", suffix=".tmp"))
    try:
        try:
            with tarfile.open(archive) as tar:
                # The filter "data" rejects devices, and links and paths that lead out of the folder.
                tar.extractall(work, filter="data")
        except (tarfile.TarError, EOFError, OSError) as error:
            raise BadData(f"{archive} cannot be unpacked: {str(error).rstrip('.')}.") from error
        found = sorted(work.iterdir())
        for path in found:
            target = folder / path.name
            if target.exists() and not _same_files(path, target):
                raise BadData(f"{target} already exists and differs. Move it away before unpacking {archive.name}.")
        # Keep what an interrupted call has already moved.
        return [folder / p.name if (folder / p.name).exists() else p.rename(folder / p.name) for p in found]
    finally:
        shutil.rmtree(work, ignore_errors=True)


def _same_files(one: Path, other: Path) -> bool:
    """Return whether two files or folders have the same names and sizes."""
    return _sizes(one) == _sizes(other)


def _sizes(path: Path) -> dict[str, int]:
    files = [path] if path.is_file() else [p for p in path.rglob("*") if p.is_file()]
    return {str(p.relative_to(path)): p.stat().st_size for p in files}
