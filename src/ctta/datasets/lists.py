"""Text files that list images."""

from __future__ import annotations

from pathlib import Path

from ctta.errors import BadData


def read_lines(path: Path) -> list[str]:
    """Read the lines of a text file, without a byte order mark; bytes that are not UTF-8 are kept, as in file names.

    Args:
        path: The file.
    """
    try:
        # Split only at newlines: a name may contain other characters that str.splitlines treats as line ends.
        return path.read_text(encoding="utf-8-sig", errors="surrogateescape").split("\n")
    except OSError as error:
        raise BadData(f"{path} cannot be read: {error.strerror}.") from error
