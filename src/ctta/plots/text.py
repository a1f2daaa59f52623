"""Text in plots: wrapping, and an estimate of its width."""

from __future__ import annotations

import textwrap
from html import escape

_NARROW, _WIDE = frozenset(" .,:;|'!()[]/ijlftI"), frozenset("mwMW%@±–")


def short(label: str, width: int = 22, lines: int = 3) -> str:
    """Wrap a label into a few short lines, without unprintable characters.

    Args:
        label: Any text.
        width: Maximum number of characters per line.
        lines: Maximum number of lines; longer labels end with an ellipsis.
    """
    drawn = "".join(c if c.isprintable() else " " for c in label)
    return "\n".join(textwrap.wrap(drawn, width, max_lines=lines, placeholder=" …")) or "?"


def domain_name(name: str) -> str:
    """A domain's name as written along an axis.

    Args:
        name: Name of the domain.
    """
    return short(name.replace("_", " "), lines=1)


def escaped(text: str) -> str:
    """A text for an SVG file, in which it is shown literally; control characters, which XML forbids, are removed.

    Args:
        text: Any text.
    """
    return escape("".join(c for c in text if c.isprintable()))


def text_width(text: str, size: float) -> float:
    """Width of the longest line of a text in points.

    Estimated for DejaVu Sans, which is wider than most fonts that may replace it.

    Args:
        text: The text.
        size: Font size in points.
    """
    return max(size * sum(map(_em, line)) for line in text.split("\n"))


def _em(character: str) -> float:
    if character in _NARROW:
        return 0.37
    return 0.93 if character in _WIDE else 0.70 if character.isupper() else 0.61
