"""The choices marked in the code: "Paper silent" and "Differs from"."""

from __future__ import annotations

import ast
import re
import textwrap
from collections.abc import Iterator

from docgen.markdown import fenced, prose
from docgen.source import Source

_MARK = re.compile(r"Paper silent\b|Differs from\b")
_SENTENCE = re.compile(r"(?:Paper silent|Differs from)[^.]*\.(?!\w)")


def choices(source: Source) -> Iterator[str]:
    """Yield every marked choice of a module as a list item, with the statement that it explains.

    Args:
        source: The module.
    """
    done = -1
    for line, comment in sorted(source.comments.items()):
        if line <= done or not _MARK.search(comment):
            continue
        done = _last_line(source, line)
        text = " ".join(source.comments[at].lstrip("# ") for at in range(line, done + 1))
        mark = _MARK.search(text)
        statement = source.statement_at(done)
        if mark is not None and statement is not None:
            whole = not hasattr(statement, "body")
            code = source.text_of(statement) if whole else source.lines[statement.lineno - 1].strip()
            yield f"* {prose(text[mark.start() :])}\n\n{textwrap.indent(fenced(code), '  ')}"
    for name, node in source.functions():
        for sentence in _SENTENCE.findall(ast.get_docstring(node) or ""):
            yield f"* {prose(' '.join(sentence.split()))} (`{name}`)"


def _last_line(source: Source, line: int) -> int:
    """Find the end of a comment; a comment after a statement has a single line."""

    def stands_alone(at: int) -> bool:
        return at in source.comments and source.lines[at - 1].lstrip().startswith("#")

    while stands_alone(line) and stands_alone(line + 1):
        line += 1
    return line
