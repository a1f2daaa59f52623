"""Docstrings explain every argument, and their examples run."""

from __future__ import annotations

import ast
import doctest
from importlib import import_module
from pathlib import Path

import pytest

import ctta
from docgen.coverage import PACKAGES, modules_of, undocumented
from docgen.docstrings import parse
from docgen.source import source_of

ROOT = Path(ctta.__file__).parent


def module_of(path: Path) -> str:
    return ".".join(["ctta", *path.relative_to(ROOT).with_suffix("").parts]).removesuffix(".__init__")


WITH_EXAMPLES = sorted(module_of(path) for path in ROOT.rglob("*.py") if ">>> " in path.read_text(encoding="utf-8"))


def test_every_argument_of_a_public_class_or_function_is_explained() -> None:
    assert undocumented() == []


def test_an_argument_without_an_entry_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    before = undocumented()
    monkeypatch.setattr(ctta.functional.entropy, "__doc__", "Return the entropy of logits.")
    monkeypatch.setattr(ctta.Tent, "__doc__", "Make predictions more confident.")
    expected = {f"ctta.methods.tent.Tent: {argument}" for argument in ("model", "loss", "come_mass", "shared")}
    expected |= {"ctta.functional.entropy: logits"}
    assert set(undocumented()) - set(before) == expected


@pytest.mark.parametrize("name", WITH_EXAMPLES)
def test_examples_run(name: str) -> None:
    result = doctest.testmod(import_module(name), optionflags=doctest.ELLIPSIS)
    assert result.attempted > 0 and result.failed == 0


def test_constructors_assign_one_attribute_per_line() -> None:
    several = []
    for name in [module.__name__ for package in PACKAGES for module in modules_of(package)]:
        for function, node in source_of(name).functions():
            for statement in ast.walk(node) if function.endswith(".__init__") else ():
                targets = statement.targets if isinstance(statement, ast.Assign) else []
                pairs = [t for t in targets if isinstance(t, ast.Tuple) and isinstance(statement.value, ast.Tuple)]
                several += [f"{name}:{statement.lineno}" for _ in pairs]
    assert several == []


def test_a_docstring_is_read_by_its_sections() -> None:
    found = parse(
        """Do it.

        Twice
        if needed.

        Args:
            x: The images,
                all of them.
            **options: The rest.

        Returns:
            Two
            lines.

        Raises:
            ValueError: If not.
        """
    )
    assert found.paragraphs == ["Do it.", "Twice if needed."] and found.summary == "Do it."
    assert found.arguments == {"x": "The images, all of them.", "options": "The rest."}
