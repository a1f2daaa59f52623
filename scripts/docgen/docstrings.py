"""Read docstrings in Google style."""

from __future__ import annotations

import inspect
import re
from dataclasses import dataclass

_HEADER = re.compile(r"^(Args|Attributes|Returns|Yields|Raises|Example):$")
_ENTRY = re.compile(r"^    (\*{0,2}\w+)(?: \([^)]*\))?: (.*)$")


@dataclass(frozen=True)
class Docstring:
    """The parts of a docstring that the pages of the methods show.

    Args:
        paragraphs: The text outside of sections, each paragraph on one line.
        arguments: The text of every argument.
    """

    paragraphs: list[str]
    arguments: dict[str, str]

    @property
    def summary(self) -> str:
        """The first paragraph."""
        return self.paragraphs[0] if self.paragraphs else ""


def parse(docstring: str | None) -> Docstring:
    """Split a docstring into its parts.

    Args:
        docstring: The docstring, indented or not.
    """
    blocks: dict[str, list[str]] = {"": []}
    name = ""
    for line in inspect.cleandoc(docstring or "").splitlines():
        if header := _HEADER.match(line):
            name = header[1]
            blocks[name] = []
        elif name and line and not line.startswith(" "):
            name = ""
            blocks[""] += ["", line]
        else:
            blocks[name].append(line)
    paragraphs = [" ".join(part.split()) for part in "\n".join(blocks.pop("")).split("\n\n")]
    return Docstring([part for part in paragraphs if part], _entries(blocks.get("Args", [])))


def _entries(lines: list[str]) -> dict[str, str]:
    found: dict[str, str] = {}
    name = ""
    for line in lines:
        if entry := _ENTRY.match(line):
            name = entry[1].lstrip("*")
            found[name] = entry[2]
        elif name and line.strip():
            found[name] += " " + line.strip()
    return found
