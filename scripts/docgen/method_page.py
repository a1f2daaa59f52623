"""The generated regions of a method's page."""

from __future__ import annotations

import ast
import inspect
import re
from collections.abc import Callable, Iterator
from importlib.util import find_spec

import torch
from torch import Tensor, nn

from ctta.adapter import Adapter
from ctta.options import SharedOptions
from docgen.choices import choices
from docgen.docstrings import parse
from docgen.errors import DocsError
from docgen.markdown import code, fenced, prose, table, value
from docgen.source import Source, equations, source_of

INDEX = "README"


class Page:
    """Everything that can be generated for one method.

    Args:
        name: The name of the method.
        cls: Its class.
    """

    def __init__(self, name: str, cls: type[Adapter]) -> None:
        self.name = name
        self.cls = cls
        self.source = source_of(cls.__module__)

    def render(self, what: str) -> str:
        """Return the content of a region.

        Args:
            what: The kind of the region and its argument, such as "lines Eq. 3".
        """
        kind, _, rest = what.partition(" ")
        plain: dict[str, Callable[[], str]] = {
            "title": self.title,
            "about": self.about,
            "facts": self.facts,
            "arguments": self.arguments,
            "recipes": self.recipes,
        }
        detailed: dict[str, Callable[[str], str]] = {"lines": self.tagged, "code": self.code, "choices": self.choices}
        if kind in plain:
            return plain[kind]()
        if kind in detailed:
            return detailed[kind](rest)
        raise DocsError(f"there is no generated region {kind!r}")

    def title(self) -> str:
        """Return the heading, the summary and the citation."""
        paragraphs = parse(ast.get_docstring(self.source.tree)).paragraphs
        return "\n\n".join([f"# {self.cls.__name__}", *map(prose, paragraphs)])

    def about(self) -> str:
        """Return the description in the class docstring."""
        return "\n\n".join(map(prose, parse(self.cls.__doc__).paragraphs))

    def facts(self) -> str:
        """Return a table of what the class declares."""
        rows = [
            ("in code", f"`ctta.{self.cls.__name__}`, {self.source.link()}"),
            ("by name", f'`ctta.get_method("{self.name}")`'),
            ("trains", self.trains),
            ("passes per step", self.passes),
            ("source-free", self.source_free),
            ("smallest batch", self.smallest_batch),
            *([] if self.cls.predicts_first else [("predicts", "after using the batch")]),
        ]
        if self.cls.logits_are is not None:
            rows.append(("softmax is a confidence", f"no: the logits are {self.cls.logits_are}"))
        return table(["", ""], rows)

    @property
    def trains(self) -> str:
        """What the method trains."""
        if not self.cls.learns:
            return "nothing"
        return self.cls.trains + (", and the projection" if hasattr(self.cls(_Probe()), "project") else "")

    @property
    def passes(self) -> str:
        """The number of forward and backward passes."""
        forward, backward = self.cls.passes
        return f"{forward} forward, {backward} backward"

    @property
    def source_free(self) -> str:
        """Whether source data is needed, and the arguments that supply it."""
        assigned = re.search(r"self\.source_free = (.+)", inspect.getsource(self.cls.__init__))
        given = re.findall(r"(\w+) is None", assigned[1]) if assigned else []
        unless = " or ".join(f"`{name}`" for name in given)
        return f"yes, unless {unless} is given" if unless else "yes"

    @property
    def smallest_batch(self) -> str:
        """The smallest number of images per step."""
        smallest = self.cls(_Probe()).smallest_batch
        return f"{smallest} with batch norm, 1 without" if smallest > 1 else "1"

    def arguments(self) -> str:
        """Return a table of the method's own arguments, and one of its defaults of the shared options."""
        every = self.cls.arguments()
        shared = {name: default for name, default in every.items() if name in SharedOptions.__annotations__}
        written = {
            argument.arg: (code(argument.annotation), code(default))
            for argument, default in keyword_only(self.source.function(f"{self.cls.__name__}.__init__"))
            if argument.arg not in shared
        }
        if set(written) != set(every) - set(shared):
            raise DocsError(f"the signature of {self.cls.__name__} and its arguments() differ")
        texts = parse(self.cls.__doc__).arguments
        if missing := sorted(set(written) - set(texts)):
            raise DocsError(f"the docstring of {self.cls.__name__} has no entry for {', '.join(missing)}")
        rows = [(f"`{name}`", kind, default, prose(texts[name])) for name, (kind, default) in written.items()]
        return "\n\n".join(
            [
                table(["argument", "type", "default", "meaning"], rows) if rows else "It has no arguments of its own.",
                f"[Shared options]({INDEX}.md#shared-options) and their defaults here:",
                table([f"`{name}`" for name in shared], [[value(default) for default in shared.values()]]),
            ]
        )

    def recipes(self) -> str:
        """Return a table with one row per benchmark."""
        recipes = self.cls.recipes
        columns = list(dict.fromkeys(key for recipe in recipes.values() for key in recipe))
        rows = [
            [f"`{name}`", *(value(recipe[c]) if c in recipe else "" for c in columns)]
            for name, recipe in recipes.items()
        ]
        use = f'`ctta.{self.cls.__name__}(model, **ctta.{self.cls.__name__}.recipe("cifar10-c"))` applies a row.'
        text = table(["benchmark", *(f"`{c}`" for c in columns)], rows) + "\n\n" + use
        if not self.cls.norm_recipes:
            return text
        layer, group = (self.cls.for_norm(norm, 64) for norm in self.cls.norm_recipes)
        return (
            f"{text}\n\nNetworks without batch norm have an optimizer of their own: "
            f'`ctta.{self.cls.__name__}.recipe("imagenet-c", norm="layer", batch_size=64)`, or `--norm layer`, is SGD '
            f"with `lr` {value(layer['lr'])} for 64 images, in proportion to the batch size, and `nesterov` off; "
            f'`norm="group"` has `lr` {value(group["lr"])}, in proportion to the batch size below 32 images.'
        )

    def tagged(self, tag: str) -> str:
        """Return the statements with a tag in their comment, and functions with it only in their docstring.

        Args:
            tag: Equations, such as "Eq. 3".
        """
        wanted = equations(tag)
        found = []
        for line, comment in self.source.comments.items():
            statement = self.source.statement_at(line)
            if wanted & equations(comment) and statement is not None:
                place = self.source.function_at(line) or self.cls.__name__
                found.append((place, self.source.text_of(statement)))
        for name, node in self.source.functions():
            if wanted & equations(ast.get_docstring(node) or "") and name not in [place for place, _ in found]:
                found.append((name, self.source.text_of(node)))
        if not found:
            raise DocsError(f"nothing in {self.source.path.name} is tagged {tag!r}")
        return _listing(found, self.source)

    def code(self, what: str) -> str:
        """Return a function, or some of its statements.

        Args:
            what: The name of the function; after ": " a part of the first statement and, after " | ", of the last.
        """
        name, _, span = what.partition(": ")
        source, name = self._find(name)
        node = source.function(name)
        if not span:
            return _listing([(name, source.text_of(node))], source)
        begin, _, end = span.partition(" | ")
        first = source.statement_with(node, begin)
        last = source.statement_with(node, end) if end else first
        return _listing([(name, source.text_of(first, last))], source)

    def choices(self, further: str) -> str:
        """Return the choices marked in the method's files.

        Args:
            further: Names of other modules to include, separated by spaces.
        """
        parts = [name for name in (f"ctta.methods._{self.name}_parts",) if find_spec(name)]
        modules = [self.cls.__module__, *parts, *further.split()]
        found = [item for module in modules for item in choices(source_of(module))]
        return "\n\n".join(found) if found else "None is marked in the code."

    def _find(self, name: str) -> tuple[Source, str]:
        """Find a name in the class, in the method's module, or by a dotted path from the package."""
        own = [found for found, _ in self.source.functions()]
        for candidate in (f"{self.cls.__name__}.{name}", name):
            if candidate in own:
                return self.source, candidate
        module, _, rest = name.partition(":")
        return source_of(f"ctta.{module}"), rest


def keyword_only(function: ast.FunctionDef) -> Iterator[tuple[ast.arg, ast.expr]]:
    """Yield the keyword-only arguments of a function with their defaults.

    Args:
        function: The function.
    """
    for argument, default in zip(function.args.kwonlyargs, function.args.kw_defaults, strict=True):
        if default is None:
            raise DocsError(f"the argument {argument.arg} of {function.name} has no default")
        yield argument, default


def _listing(blocks: list[tuple[str, str]], source: Source) -> str:
    names = ", ".join(dict.fromkeys(f"`{name}`" for name, _ in blocks))
    return "\n\n".join(fenced(text) for _, text in blocks) + f"\n\n{names} in {source.link()}"


class _Probe(nn.Module):
    """A model with a batch norm and a linear head, to build methods around."""

    def __init__(self) -> None:
        super().__init__()
        self.body = nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4))
        self.head = nn.Linear(4, 3)

    def forward(self, x: Tensor) -> Tensor:
        logits: Tensor = self.head(torch.mean(self.body(x), dim=(2, 3)))
        return logits
