"""Read docstrings in Google style."""

from __future__ import annotations

import inspect
import re
from dataclasses import dataclass, field

_HEADER = re.compile(r"^(Args|Attributes|Returns|Yields|Raises|Example):$")
_ENTRY = re.compile(r"^    (\*{0,2}\w+)(?: \([^)]*\))?: (.*)$")


@dataclass(frozen=True)
class Docstring:
    """The parts of a docstring.

    Args:
        paragraphs: The text before the first section, each paragraph on one line.
        entries: For each of the sections Args, Attributes and Raises, the text of every name.
        texts: Every other section as written, without its indentation.
    """

    paragraphs: list[str]
    entries: dict[str, dict[str, str]] = field(default_factory=dict)
    texts: dict[str, str] = field(default_factory=dict)

    @property
    def arguments(self) -> dict[str, str]:
        """The text of every argument."""
        return self.entries.get("Args", {})

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
    entries = {key: _entries(lines) for key, lines in blocks.items() if key in ("Args", "Attributes", "Raises")}
    texts = {key: inspect.cleandoc("\n".join(lines)) for key, lines in blocks.items() if key not in entries}
    return Docstring([part for part in paragraphs if part], entries, texts)


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
