"""Every method on every family of timm: each adapts, saves and continues with equal bits, or refuses by name."""

from __future__ import annotations

import random
import tempfile
import warnings
from importlib.util import find_spec
from pathlib import Path

from ctta import errors
from ctta.registry import methods
from model_sweep import build, goes_on
from timm_families import FAMILIES

LONG = 200  # of 1,261 pairs; all of them take some hours


def main(count: int, seed: int) -> None:
    """Try ``count`` pairs of family and method; fewer than all are drawn at random."""
    if find_spec("timm") is None:
        print("timm is not installed: make test-models installs it")
        return
    pairs = [(module, method) for module in FAMILIES for method in sorted(methods())]
    if count < len(pairs):
        pairs = sorted(random.Random(seed).sample(pairs, count))
    refused = []
    for module, method in pairs:
        with tempfile.TemporaryDirectory() as folder, warnings.catch_warnings():
            warnings.simplefilter("ignore")
            try:
                goes_on(method, build(FAMILIES[module]), FAMILIES[module].side, Path(folder))
            except errors.ModelError as error:
                refused.append(f"{module} with {method}: {type(error).__name__}")
            except Exception as error:
                raise AssertionError(f"{module} with {method}: {type(error).__name__}: {error}") from error
    print(f"{len(pairs)} pairs of timm family and method: {len(refused)} refused by name", *refused, sep="\n")
