"""Pieces of markdown."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable, Sequence

_PAGE = re.compile(r"\bdocs/(\w+\.md)\b")


def prose(text: str) -> str:
    """Convert the text of a docstring or comment to markdown, for a page in docs/methods.

    Args:
        text: The text, with names in single or double backticks.
    """
    pieces = re.split(r"(`[^`]*`)", text.replace("``", "`"))
    plain = (
        piece if piece.startswith("`") else piece.replace("_", r"\_").replace("*", r"\*").replace("|", r"\|")
        for piece in pieces
    )
    return _PAGE.sub(r"[\1](../\1)", "".join(plain))


def code(node: ast.expr | None) -> str:
    """Show an expression as inline code.

    Args:
        node: The expression; None gives nothing.
    """
    return "" if node is None else "`" + ast.unparse(node).replace("'", '"').replace("|", r"\|") + "`"


def value(what: object) -> str:
    """Show a value as inline code.

    Args:
        what: The value.
    """
    return "`" + repr(what).replace("'", '"') + "`"


def fenced(text: str) -> str:
    """Show Python code as a block.

    Args:
        text: The code.
    """
    return f"```python\n{text}\n```"


def table(header: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Lay out a table.

    Args:
        header: The titles of the columns.
        rows: The cells of every row.
    """
    lines = ["| " + " | ".join(header) + " |", "|" + "---|" * len(header)]
    return "\n".join(lines + ["| " + " | ".join(row) + " |" for row in rows])
