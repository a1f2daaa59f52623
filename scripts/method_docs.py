"""Fill the generated parts of docs/methods from the code.

python scripts/method_docs.py            write the pages
python scripts/method_docs.py --check    write nothing; name the stale pages and exit 1 if there are any

A page is written by hand but for its marked regions, ``<!-- generated: KIND -->`` to ``<!-- end -->``. Kinds:

title                 heading, summary and citation, from the module's docstring
about                 the class's docstring
facts                 what it trains, its passes, whether it is source-free, its smallest batch
arguments             the method's own arguments, then the shared options
recipes               the constructor arguments published per benchmark
lines Eq. 3           every statement or function tagged with that equation
code NAME             a function or method; "functional:entropy" is one of another module of the package
code NAME: a | b      of a function, the statements from the first that contains a to the first that contains b
choices [MODULE ...]  every "Paper silent" and "Differs from" of the method's file, and of further modules
index, shared         of README.md: one row per method; the options that methods share
"""

from __future__ import annotations

import argparse
import ast
import inspect
import io
import re
import sys
import textwrap
import tokenize
from collections.abc import Callable, Iterator
from functools import cache
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import Any

import torch
from torch import Tensor, nn

from ctta.adapter import Adapter
from ctta.options import AnswerOptions, SharedOptions
from ctta.registry import methods

ROOT = Path(__file__).resolve().parent.parent
DOCS = ROOT / "docs" / "methods"
INDEX = "README"

_REGION = re.compile(r"<!-- generated: (?P<what>.+?) -->\n.*?<!-- end -->", re.DOTALL)
_TAG = re.compile(r"\bEqs?\. (\d+(?:(?:, | and | to )\d+)*)")
_CHOICE = re.compile(r"Paper silent\b|Differs from\b")
_CITED = re.compile(r'[^";]+"[^"]+"(?:, [^.;]*?\d{4})?')
_ORDER = ["source", "bn", "tent", "eata", "rdumb", "sar", "deyo", "cotta", "rmt", "santa", "dmse", "rotta", "roid"]


class DocsError(Exception):
    """A marked region asks for something the code does not have."""


# The code as text.


class Source:
    """A module of the package: its text, its syntax tree and its comments."""

    def __init__(self, module: ModuleType) -> None:
        self.name = module.__name__
        self.path = Path(inspect.getfile(module))
        text = self.path.read_text(encoding="utf-8")
        self.lines = text.splitlines()
        self.tree = ast.parse(text)
        self.comments = dict(_comments(text))

    def text_of(self, first: ast.AST, last: ast.AST | None = None) -> str:
        """Whole lines of one node, or from one node to another, without their common indentation."""
        begin, end = _first_line(first), getattr(last or first, "end_lineno", 0)
        return textwrap.dedent("\n".join(self.lines[begin - 1 : end]))

    def functions(self) -> Iterator[tuple[str, ast.FunctionDef]]:
        """Every function and method with its name in the module."""
        for node in self.tree.body:
            if isinstance(node, ast.FunctionDef):
                yield node.name, node
            elif isinstance(node, ast.ClassDef):
                yield from ((f"{node.name}.{f.name}", f) for f in node.body if isinstance(f, ast.FunctionDef))

    def function(self, name: str) -> ast.FunctionDef:
        """A function by its name in the module."""
        for found, node in self.functions():
            if found == name:
                return node
        raise DocsError(f"{self.name} has no function {name!r}")

    def statement_at(self, line: int) -> ast.stmt | None:
        """The smallest statement on a line, or for a line of comment the next one."""
        simple = [node for node in ast.walk(self.tree) if isinstance(node, ast.stmt) and not hasattr(node, "body")]
        own = [node for node in simple if node.lineno <= line <= (node.end_lineno or 0)]
        if own:
            return own[-1]
        every = [node for node in ast.walk(self.tree) if isinstance(node, ast.stmt) and node.lineno > line]
        return min(every, key=lambda node: node.lineno, default=None)

    def link(self) -> str:
        """A link from a page to the file."""
        return f"[{self.path.name}](../../{self.path.relative_to(ROOT).as_posix()})"


@cache
def source_of(name: str) -> Source:
    """The source of a module."""
    return Source(import_module(name))


def _comments(text: str) -> Iterator[tuple[int, str]]:
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type == tokenize.COMMENT:
            yield token.start[0], token.string


def _first_line(node: ast.AST) -> int:
    decorators: list[ast.expr] = getattr(node, "decorator_list", [])
    return min([int(getattr(node, "lineno", 1)), *(decorator.lineno for decorator in decorators)])


def equations(text: str) -> set[int]:
    """The numbers of every equation a comment or docstring names: "Eqs. 3 to 5" are three."""
    found: set[int] = set()
    for match in _TAG.finditer(text):
        for part in re.split(r", | and ", match[1]):
            low, _, high = part.partition(" to ")
            found |= set(range(int(low), int(high or low) + 1))
    return found


# Regions of a method's page.


class Page:
    """What can be generated for one method."""

    def __init__(self, name: str, cls: type[Adapter]) -> None:
        self.name, self.cls = name, cls
        self.source = source_of(cls.__module__)

    def render(self, what: str) -> str:
        """The content of a region."""
        kind, _, rest = what.partition(" ")
        kinds: dict[str, Callable[[str], str]] = {
            "title": self.title,
            "about": self.about,
            "facts": self.facts,
            "arguments": self.arguments,
            "recipes": self.recipes,
            "lines": self.tagged,
            "code": self.code,
            "choices": self.choices,
        }
        if kind not in kinds:
            raise DocsError(f"there is no generated region {kind!r}")
        return kinds[kind](rest)

    def title(self, _: str) -> str:
        """Heading, summary, citation."""
        summary, *rest = _paragraphs(ast.get_docstring(self.source.tree))
        return "\n\n".join([f"# {self.cls.__name__}", summary, *rest])

    def about(self, _: str) -> str:
        """The class's docstring."""
        return "\n\n".join(_paragraphs(inspect.getdoc(self.cls)))

    def facts(self, _: str) -> str:
        """A table of what the class declares."""
        rows = [
            ("in code", f"`ctta.{self.cls.__name__}`, {self.source.link()}"),
            ("by name", f'`ctta.method("{self.name}")`'),
            ("trains", self.trains),
            ("passes per step", self.passes),
            ("source-free", self.source_free),
            ("smallest batch", self.smallest_batch),
        ]
        return _table(["", ""], rows)

    @property
    def trains(self) -> str:
        """What learns, found on a model with a parameter that is neither a weight nor a bias."""
        if not self.cls.learns:
            return "nothing"
        adapter = self.cls(_Probe())
        projection = " and of the projection" if hasattr(adapter, "project") else ""
        if self.cls.trains != "parameters":
            return self.cls.trains + (", and the projection" if projection else "")
        learning = {id(p) for p in adapter.trained}
        if all(id(p) in learning for p in adapter.student.parameters()):
            return f"every parameter of the student{projection}"
        return f"every parameter named `weight` or `bias` of the student{projection}"

    @property
    def passes(self) -> str:
        """Forward passes, and how many of them are differentiated."""
        forward, backward = self.cls.passes
        return f"{forward} forward, {backward} backward"

    @property
    def source_free(self) -> str:
        """Whether source data is needed, and by which arguments it may come in."""
        assigned = re.search(r"self\.source_free = (.+)", inspect.getsource(self.cls.__init__))
        given = re.findall(r"(\w+) is None", assigned[1]) if assigned else []
        unless = " or ".join(f"`{name}`" for name in given)
        return f"yes, unless {unless} is given" if unless else "yes"

    @property
    def smallest_batch(self) -> str:
        """The fewest images of a step."""
        smallest = self.cls(_Probe()).smallest_batch
        return f"{smallest} with batch norm, 1 without" if smallest > 1 else "1"

    def own_arguments(self) -> dict[str, tuple[str, str]]:
        """Type and default, as they are written, of the arguments that are not shared options."""
        return {
            argument.arg: (_code(argument.annotation), _code(default))
            for argument, default in _keyword_only(self.source.function(f"{self.cls.__name__}.__init__"))
            if argument.arg not in SharedOptions.__annotations__
        }

    def arguments(self, _: str) -> str:
        """Two tables."""
        own = self.own_arguments()
        every = self.cls.arguments()
        if set(own) != {name for name in every if name not in SharedOptions.__annotations__}:
            raise DocsError(f"the signature of {self.cls.__name__} and its arguments() differ")
        shared = {name: value for name, value in every.items() if name not in own}
        parts = []
        if own:
            parts.append(_table(["argument", "default", "type"], [(f"`{n}`", d, t) for n, (t, d) in own.items()]))
        else:
            parts.append("It has no arguments of its own.")
        parts.append(f"[Shared options]({INDEX}.md#shared-options) and their defaults here:")
        parts.append(_table([f"`{name}`" for name in shared], [[_value(value) for value in shared.values()]]))
        return "\n\n".join(parts)

    def recipes(self, _: str) -> str:
        """One row per benchmark."""
        table = self.cls.recipes
        if not table:
            return "There is no recipe: it has nothing to set."
        columns = list(dict.fromkeys(key for recipe in table.values() for key in recipe))
        rows = [
            [f"`{name}`", *(_value(recipe[c]) if c in recipe else "" for c in columns)]
            for name, recipe in table.items()
        ]
        use = f'`ctta.{self.cls.__name__}(model, **ctta.{self.cls.__name__}.recipe("cifar10-c"))` applies a row.'
        return _table(["benchmark", *(f"`{c}`" for c in columns)], rows) + "\n\n" + use

    def tagged(self, tag: str) -> str:
        """Statements with the tag in a comment, and functions with the tag in their docstring alone."""
        wanted = equations(tag)
        blocks = []
        for line, comment in self.source.comments.items():
            if wanted & equations(comment):
                statement = self.source.statement_at(line)
                if statement is not None:
                    blocks.append((self._place(line), self.source.text_of(statement)))
        for name, node in self.source.functions():
            if wanted & equations(ast.get_docstring(node) or "") and name not in [place for place, _ in blocks]:
                blocks.append((name, self.source.text_of(node)))
        if not blocks:
            raise DocsError(f"nothing in {self.source.path.name} is tagged {tag!r}")
        return _blocks(blocks, self.source.link())

    def code(self, what: str) -> str:
        """A function, or some of its statements."""
        name, _, span = what.partition(": ")
        source, name = self._find(name)
        node = source.function(name)
        if not span:
            return _blocks([(name, source.text_of(node))], source.link())
        begin, _, end = span.partition(" | ")
        first = _containing(source, node, begin)
        last = _containing(source, node, end) if end else first
        return _blocks([(name, source.text_of(first, last))], source.link())

    def choices(self, further: str) -> str:
        """Where the paper is silent and where we leave public code, each with the code it stands at."""
        rows = []
        parts = [name for name in (f"ctta.methods._{self.name}_parts",) if _exists(name)]
        for module in [self.cls.__module__, *parts, *further.split()]:
            source = source_of(module)
            rows += [*_choices(source)]
        if not rows:
            return "None is marked in the code."
        return "\n\n".join(rows)

    def _place(self, line: int) -> str:
        for name, node in self.source.functions():
            if _first_line(node) <= line <= (node.end_lineno or 0):
                return name
        return self.cls.__name__

    def _find(self, name: str) -> tuple[Source, str]:
        """A name in the class, in the method's module, or by a dotted path from the package."""
        own = [found for found, _ in self.source.functions()]
        for candidate in (f"{self.cls.__name__}.{name}", name):
            if candidate in own:
                return self.source, candidate
        module, _, rest = name.partition(":")
        return source_of(f"ctta.{module}"), rest


def _choices(source: Source) -> Iterator[str]:
    skip = -1
    for line, comment in sorted(source.comments.items()):
        if line <= skip or not _CHOICE.search(comment):
            continue
        words, skip = [comment.lstrip("# ")], line
        trailing = not source.lines[line - 1].lstrip().startswith("#")
        while not trailing and skip + 1 in source.comments and source.lines[skip].lstrip().startswith("#"):
            skip += 1
            words.append(source.comments[skip].lstrip("# "))
        statement = source.statement_at(skip)
        text = " ".join(words)
        text = text[_CHOICE.search(text).start() :]  # type: ignore[union-attr]
        if statement is not None:
            end = statement if not hasattr(statement, "body") else None
            code = source.text_of(statement) if end is not None else source.lines[statement.lineno - 1].strip()
            yield f"* {_prose(text)}\n\n{textwrap.indent(_fenced(code), '  ')}"
    for name, node in source.functions():
        for sentence in re.findall(r"(?:Paper silent|Differs from)[^.]*\.(?!\w)", ast.get_docstring(node) or ""):
            yield f"* {_prose(' '.join(sentence.split()))} (`{name}`)"


def _containing(source: Source, node: ast.FunctionDef, words: str) -> ast.stmt:
    statements = [s for s in ast.walk(node) if isinstance(s, ast.stmt) and s is not node]
    simple = [s for s in statements if not hasattr(s, "body")] + [s for s in statements if hasattr(s, "body")]
    for statement in sorted(simple, key=lambda s: (hasattr(s, "body"), s.lineno)):
        if words in source.text_of(statement):
            return statement
    raise DocsError(f"no statement of {node.name} in {source.path.name} contains {words!r}")


def _keyword_only(node: ast.FunctionDef) -> Iterator[tuple[ast.arg, ast.expr]]:
    for argument, default in zip(node.args.kwonlyargs, node.args.kw_defaults, strict=True):
        if default is None:
            raise DocsError(f"the argument {argument.arg} of {node.name} has no default")
        yield argument, default


# Regions of the index.


def index(_: str) -> str:
    """One row per method."""
    header = ["method", "paper", "in a sentence", "trains", "passes", "source-free", "smallest batch"]
    rows = []
    for name, cls in ordered_methods().items():
        page = Page(name, cls)
        summary, *rest = _paragraphs(ast.get_docstring(page.source.tree))
        cited = "; ".join(found.strip() for found in _CITED.findall(rest[0])) if rest else "none"
        sentence = re.sub(rf"^{cls.__name__}[^:]*: |^BN-adapt: ", "", summary)
        sentence = sentence[:1].upper() + sentence[1:]
        facts = [page.trains, page.passes, page.source_free, page.smallest_batch]
        rows.append([f"[{cls.__name__}]({name}.md)", cited, sentence, *facts])
    return _table(header, rows)


def shared(_: str) -> str:
    """The options of every adapter, as Adapter declares and describes them."""
    node = source_of("ctta.adapter").function("Adapter.__init__")
    rows = []
    for argument, default in _keyword_only(node):
        without = [cls for cls in ordered_methods().values() if argument.arg not in cls.arguments()]
        learners = all(not cls.learns for cls in without) and argument.arg not in AnswerOptions.__annotations__
        but = " but " + ", ".join(cls.__name__ for cls in without) if without else ""
        takers = "methods that learn" if learners else f"every method{but}"
        rows.append((f"`{argument.arg}`", _code(default), _code(argument.annotation), takers))
    described = _paragraphs(inspect.getdoc(Adapter))[2]
    return _table(["option", "default", "type", "taken by"], rows) + "\n\n" + described


def ordered_methods() -> dict[str, type[Adapter]]:
    """The registered methods of the package, simplest first; one that is not in the list comes last."""
    known = {name: cls for name, cls in methods().items() if cls.__module__.startswith("ctta.methods.")}
    return {name: known[name] for name in sorted(known, key=lambda n: (_ORDER.index(n) if n in _ORDER else 99, n))}


# Markdown.


def _paragraphs(docstring: str | None) -> list[str]:
    return [_prose(" ".join(part.split())) for part in (docstring or "").split("\n\n")]


def _prose(text: str) -> str:
    """A docstring's or comment's words as markdown."""
    text = text.replace("``", "`")
    pieces = re.split(r"(`[^`]*`)", text)
    return "".join(
        p if p.startswith("`") else p.replace("_", r"\_").replace("*", r"\*").replace("|", r"\|") for p in pieces
    )


def _code(node: ast.expr | None) -> str:
    return "" if node is None else "`" + ast.unparse(node).replace("'", '"').replace("|", r"\|") + "`"


def _value(value: Any) -> str:
    return "`" + repr(value).replace("'", '"') + "`"


def _fenced(code: str) -> str:
    return f"```python\n{code}\n```"


def _blocks(blocks: list[tuple[str, str]], link: str) -> str:
    names = ", ".join(dict.fromkeys(f"`{name}`" for name, _ in blocks))
    return "\n\n".join(_fenced(code) for _, code in blocks) + f"\n\n{names} in {link}"


def _table(header: Any, rows: Any) -> str:
    lines = ["| " + " | ".join(header) + " |", "|" + "---|" * len(header)]
    return "\n".join(lines + ["| " + " | ".join(row) + " |" for row in rows])


class _Probe(nn.Module):
    """A model with a batch norm, a linear head and a parameter of another name."""

    def __init__(self) -> None:
        super().__init__()
        self.token = nn.Parameter(torch.zeros(4))
        self.body = nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4))
        self.head = nn.Linear(4, 3)

    def forward(self, x: Tensor) -> Tensor:
        """Logits (N, 3)."""
        logits: Tensor = self.head(self.body(x).mean(dim=(2, 3)) + self.token)
        return logits


def _exists(module: str) -> bool:
    try:
        import_module(module)
    except ModuleNotFoundError:
        return False
    return True


# Files.


def fresh(path: Path) -> str:
    """The text a page should have: what is written by hand, with its regions filled."""
    known = ordered_methods()
    if path.stem == INDEX:
        kinds: dict[str, Callable[[str], str]] = {"index": index, "shared": shared}

        def render(what: str) -> str:
            if what not in kinds:
                raise DocsError(f"there is no generated region {what!r}")
            return kinds[what]("")
    elif path.stem in known:
        render = Page(path.stem, known[path.stem]).render
    else:
        raise DocsError(f"{path.name} is named after no method")

    def fill(match: re.Match[str]) -> str:
        what = match["what"]
        return f"<!-- generated: {what} -->\n{render(what)}\n<!-- end -->"

    try:
        return _REGION.sub(fill, path.read_text(encoding="utf-8"))
    except DocsError as error:
        raise DocsError(f"{path.name}: {error}") from error


def by_hand(text: str) -> str:
    """What of a page is written by hand."""
    return _REGION.sub("", text)


def stale(folder: Path) -> list[str]:
    """The pages of a folder that are missing or are not what the code says."""
    pages = {path.name: path for path in sorted(folder.glob("*.md"))}
    missing = [f"{name}.md" for name in [*ordered_methods(), INDEX] if f"{name}.md" not in pages]
    return missing + [name for name, path in pages.items() if path.read_text(encoding="utf-8") != fresh(path)]


def main(arguments: list[str] | None = None) -> int:
    """Write the pages, or with --check only name the stale ones."""
    parser = argparse.ArgumentParser(description="Fill the generated parts of docs/methods from the code.")
    parser.add_argument("--check", action="store_true", help="write nothing; exit 1 and name the stale pages")
    check = parser.parse_args(arguments).check
    try:
        names = stale(DOCS)
        for name in names:
            if not check and (path := DOCS / name).exists():
                path.write_text(fresh(path), encoding="utf-8")
            sys.stdout.write(f"{'stale' if check or not (DOCS / name).exists() else 'written'}: {name}\n")
    except DocsError as error:
        sys.stderr.write(f"{error}\n")
        return 1
    return int(bool(names)) if check else int(any(not (DOCS / name).exists() for name in names))


if __name__ == "__main__":
    sys.exit(main())
