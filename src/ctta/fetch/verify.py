"""Compare files with their published digests."""

from __future__ import annotations

from pathlib import Path

from ctta._system.digests import md5_of, sha256_of
from ctta._system.files import foreign, size
from ctta.datasets.manifest import NAME, read_manifest
from ctta.errors import BadData, MissingData
from ctta.fetch.catalogue import Archive


def verify(path: Path, *, md5: str | None = None, sha256: str | None = None, called: str = "") -> None:
    """Compare a file with its digest: SHA-256 if given, else MD5.

    Args:
        path: The file.
        md5: Its MD5 digest.
        sha256: Its SHA-256 digest.
        called: What to call the file in an error. Default: its path.

    Raises:
        BadData: If the digest differs.
    """
    called = called or str(path)
    with path.open("rb") as file:
        what = foreign(file.read(512))
    if what:
        raise BadData(f"{called} is {what} ({size(path.stat().st_size)}), not the published file.")
    for kind, expected, digest in (("sha256", sha256, sha256_of), ("md5", md5, md5_of)):
        if expected is not None:
            found = digest(path)
            if found != expected:
                raise BadData(
                    f"{called} is not the published file: {kind} {found}, not {expected} ({size(path.stat().st_size)})."
                )
            return


def check(archive: Archive, path: Path) -> str:
    """Verify a local copy of an archive.

    Args:
        archive: The published archive.
        path: The file, the folder that holds it, or the folder it was unpacked to.

    Returns:
        A sentence that says what was verified.

    Raises:
        MissingData: If a file is missing.
        BadData: If a file is not the published one.
    """
    if path.is_file():
        verify(path, md5=archive.md5, sha256=archive.sha256)
        return f"{path} is {archive.file} as published."
    if not path.is_dir():
        raise MissingData(f"{path.absolute()} does not exist. Download it with: ctta fetch {archive.name} --to DIR")
    if (path / archive.file).is_file():
        return check(archive, path / archive.file)
    inside = path / archive.inside[0]
    folder = inside if inside.is_dir() else path
    if not archive.digests:
        raise MissingData(
            f"{archive.file} is not in {path.absolute()}, and no digests are published for the files inside it."
        )
    if read_manifest(folder) is not None:
        raise BadData(f"{folder} was made by ctta corrupt (see its {NAME}); it is not the published dataset.")
    for name, digest in archive.digests:
        if not (folder / name).is_file():
            raise MissingData(
                f"{name} is not in {folder.absolute()}. Download it with: ctta fetch {archive.name} --to DIR"
            )
        verify(folder / name, md5=digest)
    return f"{folder} holds the {len(archive.digests)} files of {archive.file} as published."
