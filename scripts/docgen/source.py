"""Modules of the package as text: statements, functions and comments."""

from __future__ import annotations

import ast
import inspect
import io
import re
import textwrap
import tokenize
from collections.abc import Iterator
from functools import cache
from importlib import import_module
from pathlib import Path
from types import ModuleType

from docgen.docstrings import parse
from docgen.errors import DocsError

ROOT = Path(__file__).resolve().parents[2]

_TAG = re.compile(r"\bEqs?\. (\d+(?:(?:, | and | to )\d+)*)")


class Source:
    """A module: its text, its syntax tree and its comments by line.

    Args:
        module: The module.
    """

    def __init__(self, module: ModuleType) -> None:
        self.name = module.__name__
        self.path = Path(inspect.getfile(module))
        text = self.path.read_text(encoding="utf-8")
        self.lines = text.splitlines()
        self.tree = ast.parse(text)
        tokens = tokenize.generate_tokens(io.StringIO(text).readline)
        self.comments = {token.start[0]: token.string for token in tokens if token.type == tokenize.COMMENT}

    def text_of(self, first: ast.AST, last: ast.AST | None = None) -> str:
        """Return the lines of a node without their indentation; of a docstring only the first paragraph.

        Args:
            first: The node.
            last: Another node, to return everything from the first to this one.
        """
        begin, end = first_line(first), getattr(last or first, "end_lineno", 0)
        lines = self.lines[begin - 1 : end]
        if isinstance(first, ast.FunctionDef) and last is None and (docstring := ast.get_docstring(first)):
            node = first.body[0]
            short = " " * node.col_offset + f'"""{parse(docstring).summary}"""'
            lines[node.lineno - begin : (node.end_lineno or 0) - begin + 1] = [short]
        return textwrap.dedent("\n".join(lines))

    def functions(self) -> Iterator[tuple[str, ast.FunctionDef]]:
        """Yield every function and method with its name in the module."""
        for node in self.tree.body:
            if isinstance(node, ast.FunctionDef):
                yield node.name, node
            elif isinstance(node, ast.ClassDef):
                yield from ((f"{node.name}.{f.name}", f) for f in node.body if isinstance(f, ast.FunctionDef))

    def function(self, name: str) -> ast.FunctionDef:
        """Return a function.

        Args:
            name: Its name in the module, such as "DMSE.adapt".
        """
        for found, node in self.functions():
            if found == name:
                return node
        raise DocsError(f"{self.name} has no function {name!r}")

    def function_at(self, line: int) -> str | None:
        """Return the name of the function that contains a line, or None.

        Args:
            line: The line, counted from 1.
        """
        for name, node in self.functions():
            if first_line(node) <= line <= (node.end_lineno or 0):
                return name
        return None

    def statement_at(self, line: int) -> ast.stmt | None:
        """Return the smallest statement on a line; for a comment line, the next statement.

        Args:
            line: The line, counted from 1.
        """
        simple = [node for node in ast.walk(self.tree) if isinstance(node, ast.stmt) and not hasattr(node, "body")]
        own = [node for node in simple if node.lineno <= line <= (node.end_lineno or 0)]
        if own:
            return own[-1]
        every = [node for node in ast.walk(self.tree) if isinstance(node, ast.stmt) and node.lineno > line]
        return min(every, key=lambda node: node.lineno, default=None)

    def statement_with(self, function: ast.FunctionDef, words: str) -> ast.stmt:
        """Return the first statement of a function that contains some words, a simple one if possible.

        Args:
            function: The function.
            words: A part of the statement.
        """
        statements = [node for node in ast.walk(function) if isinstance(node, ast.stmt) and node is not function]
        for statement in sorted(statements, key=lambda node: (hasattr(node, "body"), node.lineno)):
            if words in self.text_of(statement):
                return statement
        raise DocsError(f"no statement of {function.name} in {self.path.name} contains {words!r}")

    def link(self) -> str:
        """Return a link from a page in docs/methods to the file."""
        return f"[{self.path.name}](../../{self.path.relative_to(ROOT).as_posix()})"


@cache
def source_of(name: str) -> Source:
    """Read the source of a module.

    Args:
        name: The name of the module.
    """
    return Source(import_module(name))


def first_line(node: ast.AST) -> int:
    """Return the line on which a node begins, including its decorators.

    Args:
        node: The node.
    """
    decorators: list[ast.expr] = getattr(node, "decorator_list", [])
    return min([int(getattr(node, "lineno", 1)), *(decorator.lineno for decorator in decorators)])


def equations(text: str) -> set[int]:
    """Find the numbers of the equations that a comment or docstring names: "Eqs. 3 to 5" names three.

    Args:
        text: The comment or docstring.
    """
    found: set[int] = set()
    for match in _TAG.finditer(text):
        for part in re.split(r", | and ", match[1]):
            low, _, high = part.partition(" to ")
            found |= set(range(int(low), int(high or low) + 1))
    return found
