"""Unpacking a tar beside its place, then moving what it holds there."""

from __future__ import annotations

import shutil
import tarfile
import tempfile
from pathlib import Path

from ctta.errors import BadData


def unpack(archive: Path, folder: Path) -> list[Path]:
    """Unpack into a folder, without overwriting anything there; gives the paths at its top."""
    folder.mkdir(parents=True, exist_ok=True)
    place = Path(tempfile.mkdtemp(dir=folder, prefix=f".{archive.name}.", suffix=".tmp"))
    try:
        try:
            with tarfile.open(archive) as tar:
                # "data" refuses links and paths that lead out of the folder, and devices.
                tar.extractall(place, filter="data")
        except (tarfile.TarError, EOFError, OSError) as error:
            raise BadData(f"{archive} cannot be unpacked: {str(error).rstrip('.')}.") from error
        found = sorted(place.iterdir())
        for path in found:
            target = folder / path.name
            if target.exists() and not _same_files(path, target):
                raise BadData(f"{target} is already there: move it away before unpacking {archive.name}.")
        # What an interrupted unpacking has moved already stays.
        return [folder / p.name if (folder / p.name).exists() else p.rename(folder / p.name) for p in found]
    finally:
        shutil.rmtree(place, ignore_errors=True)


def _same_files(one: Path, other: Path) -> bool:
    """Whether two files or folders hold the same names and sizes."""
    return _sizes(one) == _sizes(other)


def _sizes(path: Path) -> dict[str, int]:
    files = [path] if path.is_file() else [p for p in path.rglob("*") if p.is_file()]
    return {str(p.relative_to(path)): p.stat().st_size for p in files}
