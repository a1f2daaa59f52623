"""Escape text for a cell of a table, so that it reads the same there and changes nothing around it."""

from __future__ import annotations

import re

_LATEX = {
    "\\": r"\textbackslash{}",
    "^": r"\textasciicircum{}",
    "~": r"\textasciitilde{}",
    "<": r"\textless{}",
    ">": r"\textgreater{}",
    "|": r"\textbar{}",
    "†": r"\textdagger{}",
    "±": r"$\pm$",
    **{character: f"\\{character}" for character in "&%$#_{}"},
}
# The mark of methods that were given source data, at the end of a word: dmse^s.
_SOURCE_MARK = re.compile(r"(?<=\w)\^s(?!\w)")


def one_line(text: str) -> str:
    """Replace characters that break a line or control a terminal by their escape sequences.

    Args:
        text: Any text.
    """
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)


def latex_text(text: str) -> str:
    """Escape the special characters of LaTeX; the mark ^s becomes a superscript.

    Args:
        text: Any text.
    """
    parts = _SOURCE_MARK.split(one_line(text))
    return "$^s$".join("".join(_LATEX.get(c, c) for c in part) for part in parts)


def markdown_text(text: str) -> str:
    """Escape the special characters of Markdown and HTML: brackets only in links, underscores only outside words.

    Args:
        text: Any text.
    """
    text = re.sub(r"([\\`*|~$]|\](?=[(\[:]))", r"\\\1", one_line(text))
    text = re.sub(r"(?<![^\W_])_|_(?![^\W_])", r"\\_", text)
    return text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
