"""What users can reach after ``import ctta``: submodules, and every exception in one place."""

from __future__ import annotations

import ast
import importlib
import pickle
import re
import subprocess
import sys
from pathlib import Path

import pytest

import ctta
from ctta import errors

ROOT = Path(ctta.__file__).parent

PUBLIC = [
    "adapter",
    "augment",
    "bench",
    "classifier",
    "cli",
    "corruptions",
    "datasets",
    "doctor",
    "errors",
    "fetch",
    "freeze",
    "functional",
    "methods",
    "nets",
    "norms",
    "options",
    "paper",
    "plots",
    "protocol",
    "prototypes",
    "registry",
    "report",
    "streams",
    "teacher",
    "testing",
    "two_views",
    "version",
]


def exceptions_of(module: Path) -> list[str]:
    """Classes of a file that derive, by the name of a base, from an exception."""
    bases = re.compile(r"(Error|Exception|Unknown\w+|HeadNotFound)$")
    found = []
    for node in ast.walk(ast.parse(module.read_text(encoding="utf-8"))):
        if isinstance(node, ast.ClassDef) and any(bases.search(ast.unparse(base)) for base in node.bases):
            found.append(node.name)
    return found


@pytest.mark.parametrize("name", PUBLIC)
def test_a_submodule_is_an_attribute_that_needs_no_import(name: str) -> None:
    # __getattr__ resolves the name before anything has imported the submodule.
    assert ctta.__getattr__(name) is importlib.import_module(f"ctta.{name}")
    assert name in dir(ctta)


def test_submodules_are_reachable_in_a_fresh_interpreter_without_torch() -> None:
    program = (
        "import sys, ctta\n"
        "assert issubclass(ctta.errors.BatchTooSmall, ctta.CttaError)\n"
        "assert callable(ctta.registry.get_method) and ctta.nets.MODELS\n"
        "sys.exit('torch' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", program], check=False).returncode == 0


def test_every_module_is_listed_and_nothing_private_is() -> None:
    modules = {path.stem if path.suffix else path.name for path in ROOT.iterdir() if path.suffix in ("", ".py")}
    modules = {name for name in modules if (ROOT / f"{name}.py").exists() or (ROOT / name / "__init__.py").exists()}
    assert {name for name in modules if not name.startswith("_")} <= set(dir(ctta))
    assert set(ctta.__all__) <= set(dir(ctta))
    with pytest.raises(AttributeError, match="no attribute 'planets'"):
        _ = ctta.planets


def test_every_public_exception_is_defined_in_ctta_errors_and_nowhere_else() -> None:
    elsewhere = {
        f"{path.relative_to(ROOT)}: {name}"
        for path in ROOT.rglob("*.py")
        if path != ROOT / "errors.py"
        for name in exceptions_of(path)
        if not name.startswith("_")
    }
    assert elsewhere == set()
    assert set(exceptions_of(ROOT / "errors.py")) == {
        name for name, value in vars(errors).items() if isinstance(value, type) and issubclass(value, Exception)
    }


def test_the_tree_in_the_docstring_is_the_tree_of_classes() -> None:
    written: dict[str, str] = {}
    above: list[tuple[int, str]] = []
    for line in str(errors.__doc__).splitlines():
        if not (match := re.match(r"([│├└─ ]*)([A-Z]\w+)(?:  | \(|$)", line)):
            continue
        depth = len(match[1]) // 4
        above = [(d, name) for d, name in above if d < depth]
        written[match[2]] = above[-1][1] if above else "Exception"
        above.append((depth, match[2]))
    classes = {v for v in vars(errors).values() if isinstance(v, type) and issubclass(v, errors.CttaError)}
    assert written == {cls.__name__: cls.__bases__[0].__name__ for cls in classes}


def test_errors_survive_the_way_from_a_worker_process() -> None:
    for error in (
        errors.UnknownModel("resnet", ["resnet20"]),
        errors.ContractBroken("point", "this", "that"),
        errors.MissingExtra("timm", "models"),
        errors.DeviceUnavailable("no cuda"),
    ):
        again = pickle.loads(pickle.dumps(error))
        assert type(again) is type(error) and str(again) == str(error)


@pytest.mark.parametrize(
    ("home", "name"),
    [
        ("ctta.nets", "UnknownModel"),
        ("ctta.fetch", "UnknownData"),
        ("ctta.fetch.catalogue", "UnknownData"),
        ("ctta.cli.toml_file", "UnknownCommand"),
        ("ctta.cli.toml_file", "UnknownKey"),
        ("ctta.testing", "ContractBroken"),
        ("ctta.testing.subject", "ContractBroken"),
        ("ctta.testing.contract", "UnknownCheck"),
        ("ctta.bench.compare", "UnlikeRuns"),
    ],
)
def test_an_exception_can_still_be_imported_from_its_old_home(home: str, name: str) -> None:
    assert getattr(importlib.import_module(home), name) is getattr(errors, name)


def test_an_error_about_one_of_many_names_does_not_list_them_all() -> None:
    many = [f"model_{i:04d}" for i in range(1000)]
    assert len(str(errors.UnknownModel("zzz", many))) < 500 and "and 970 more" in str(errors.UnknownModel("zzz", many))
