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
            if (folder / path.name).exists():
                raise BadData(f"{folder / path.name} is already there: move it away before unpacking {archive.name}.")
        return [path.rename(folder / path.name) for path in found]
    finally:
        shutil.rmtree(place, ignore_errors=True)
