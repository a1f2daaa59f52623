"""The pages of docs/methods match the code."""

from __future__ import annotations

import ast
import inspect
import re
from pathlib import Path

import pytest
import torch

import ctta
import method_docs as generator
from ctta.errors import CttaError
from ctta.registry import methods
from docgen.docstrings import parse
from docgen.errors import DocsError
from docgen.source import equations

ROOT = Path(__file__).resolve().parent.parent
DOCS = ROOT / "docs"
NAMES = sorted(name for name, cls in methods().items() if cls.__module__.startswith("ctta.methods."))
FENCE = re.compile(r"```(\w*)\n(.*?)```", re.DOTALL)


def page(name: str) -> str:
    return (DOCS / "methods" / f"{name}.md").read_text(encoding="utf-8")


def inline_code(text: str) -> list[str]:
    return re.findall(r"(?<!`)`([^`\n]+)`(?!`)", FENCE.sub("", text))


def test_every_method_has_a_fresh_page() -> None:
    assert generator.stale(generator.DOCS) == [], "run: python scripts/method_docs.py"


def test_check_writes_nothing_and_names_the_stale_page(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for path in (DOCS / "methods").glob("*.md"):
        (tmp_path / path.name).write_text(path.read_text(encoding="utf-8"), encoding="utf-8")
    old = page("tent").replace("entropy(logits).mean()", "entropy(logits).sum()")
    (tmp_path / "tent.md").write_text(old, encoding="utf-8")
    (tmp_path / "sar.md").unlink()
    monkeypatch.setattr(generator, "DOCS", tmp_path)
    assert generator.main(["--check"]) == 1
    assert set(capsys.readouterr().out.split()) >= {"tent.md", "sar.md"}
    assert (tmp_path / "tent.md").read_text(encoding="utf-8") == old


def test_a_region_the_code_cannot_fill_is_named(tmp_path: Path) -> None:
    path = tmp_path / "tent.md"
    path.write_text("<!-- generated: lines Eq. 99 -->\n<!-- end -->\n", encoding="utf-8")
    with pytest.raises(DocsError, match=r"tent\.md: nothing in tent\.py is tagged 'Eq\. 99'"):
        generator.fresh(path)


def test_tags_name_every_equation_of_a_list_or_range() -> None:
    assert equations("reliable: Eq. 3") == {3}
    assert equations("Eqs. 2, 8") == {2, 8}
    assert equations("Eqs. 3 to 5 and more") == {3, 4, 5}
    assert equations("Eqs. 7 and 8: give back") == {7, 8}
    assert equations("Sec. 3.1") == set()


@pytest.mark.parametrize("name", NAMES)
def test_a_page_has_its_parts(name: str) -> None:
    found = re.findall(r"<!-- generated: (\w+)", page(name))
    assert {"title", "about", "facts", "arguments", "recipes", "choices"} <= set(found)
    assert {"code", "lines"} & set(found)
    if methods()[name].learns:
        assert re.search(r"^\$\$\n.+\n\$\$$", generator.by_hand(page(name)), re.MULTILINE)


@pytest.mark.parametrize("name", NAMES)
def test_display_equations_are_on_lines_of_their_own_and_survive_markdown(name: str) -> None:
    text = generator.by_hand(page(name))
    assert text.count("$$") % 2 == 0
    for formula in re.findall(r"\$\$(.*?)\$\$", text, re.DOTALL):
        # A backslash before punctuation is a Markdown escape, so the backslash would be lost.
        assert not re.search(r"\\[^A-Za-z\s]", formula), formula
        assert formula.count("{") == formula.count("}")


@pytest.mark.parametrize("name", NAMES)
def test_the_docstring_explains_every_argument_and_invents_none(name: str) -> None:
    cls = methods()[name]
    explained = parse(cls.__doc__).arguments
    own = set(cls.arguments()) - set(ctta.Adapter.arguments())
    assert own <= set(explained) <= {"model", "shared", "options", *cls.arguments()}
    text = page(name)
    assert all(f"| `{argument}` |" in text for argument in own)


@pytest.mark.parametrize("name", NAMES)
def test_a_page_names_nothing_that_its_code_does_not_have(name: str) -> None:
    cls = methods()[name]
    for span in inline_code(generator.by_hand(page(name))):
        assigned = re.match(r"(\w+)=", span)
        if assigned:
            assert assigned[1] in cls.arguments(), f"{cls.__name__} has no argument {assigned[1]!r}"
        if span.isidentifier():
            assert span in known_names(name), f"{name}.md mentions `{span}`, which is nowhere in its code"
            assert span in cls.arguments() or span not in all_arguments(), f"{span!r} is another method's argument"


def known_names(name: str) -> set[str]:
    """Every word in the method's file and in the modules that all methods build on."""
    package = ROOT / "src" / "ctta"
    files = [
        *package.glob("*.py"),
        *package.glob("_adapter/*.py"),
        *package.glob(f"methods/*{name}*.py"),
        package / "methods" / "eata.py",
    ]
    words = {word for file in files for word in re.findall(r"\w+", file.read_text(encoding="utf-8"))}
    return words | set(dir(torch.nn))


def all_arguments() -> set[str]:
    return {argument for cls in methods().values() for argument in cls.arguments()}


@pytest.mark.parametrize("path", sorted(DOCS.rglob("*.md")), ids=lambda path: path.stem)
def test_relative_links_resolve(path: Path) -> None:
    text = FENCE.sub("", path.read_text(encoding="utf-8"))
    for target in re.findall(r"\]\(([^)\s]+)\)", text):
        if "://" in target:
            continue
        file, _, anchor = target.partition("#")
        place = (path.parent / file).resolve() if file else path
        assert place.exists(), f"{path.name} links to {target}"
        if anchor:
            headings = re.findall(r"^#+ (.+)$", place.read_text(encoding="utf-8"), re.MULTILINE)
            assert anchor in {re.sub(r"[^\w -]", "", h).lower().replace(" ", "-") for h in headings}


@pytest.mark.parametrize("path", sorted(DOCS.rglob("*.md")), ids=lambda path: path.stem)
def test_calls_in_the_text_name_parameters_that_exist(path: Path) -> None:
    text = generator.by_hand(path.read_text(encoding="utf-8"))
    pieces = inline_code(text) + [code for language, code in FENCE.findall(text) if language == "python"]
    for piece in pieces:
        try:
            tree = ast.parse(piece)
        except SyntaxError:
            continue
        for call in (node for node in ast.walk(tree) if isinstance(node, ast.Call)):
            parameters = parameters_of(ast.unparse(call.func).rpartition(".")[2])
            given = {keyword.arg for keyword in call.keywords if keyword.arg}
            assert parameters is None or given <= parameters, f"{path.name}: {piece}"


def parameters_of(name: str) -> set[str] | None:
    found = getattr(ctta, name, None) if name in ctta.__all__ else None
    if inspect.isclass(found) and issubclass(found, ctta.Adapter):
        return set(found.arguments())
    return set(inspect.signature(found).parameters) if callable(found) else None


def test_errors_named_in_the_footguns_exist() -> None:
    spans = inline_code((DOCS / "footguns.md").read_text(encoding="utf-8"))
    errors = {span for span in spans if re.fullmatch(r"(?:[A-Z][a-z]+)*(?:Mismatch|Range|Dtype|Small|Found|Use)", span)}
    assert errors
    for name in errors:
        assert issubclass(getattr(ctta.errors, name), CttaError)
