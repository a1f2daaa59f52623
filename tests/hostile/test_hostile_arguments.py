"""Short forms of the hostile runs about arguments and long streams; `make hostile` runs the long ones."""

from __future__ import annotations

import gc
from pathlib import Path

import pytest
import torch
from long_streams import SETTINGS, Use, follow, learnt, model, violations
from set_values import Case, cases, outcome
from torch import nn

from ctta.errors import ParameterError
from ctta.registry import methods

pytestmark = pytest.mark.trial


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("runs")


@pytest.mark.parametrize("case", cases(39, seed=5), ids=lambda case: ascii(f"{case.method} {case.pair[:30]}"))
def test_an_odd_value_of_set_runs_as_asked_or_is_refused_by_name(case: Case, folder: Path) -> None:
    outcome(case, folder)


def test_a_value_that_fits_is_used(folder: Path) -> None:
    assert outcome(Case("tent", "lr=0.25"), folder) == "accepted"


class Untouchable(nn.Module):
    """A model that must not be copied or read."""

    def __deepcopy__(self, memo: object) -> None:
        raise AssertionError("the model was copied")

    def state_dict(self, *args: object, **options: object) -> None:  # type: ignore[override]
        raise AssertionError("the model was read")


NUMBERS = (float("nan"), float("inf"), 1j, 10**400, -(10**400))
OTHERS = ("x", b"1", {1}, object(), ...)
MAY_BE_NONE = {"window", "reset_every", "alpha", "batch_size", "prototypes", "fisher", "source", "projection"}
MAY_BE_NONE |= {"come_mass", "feature_mean", "feature_var", "prior_mean", "prior_var", "last_stage"}
MAY_BE_LISTS = {"source"}
MAY_BE_ANY_TEXT = {"last_stage"}  # names of modules, which only the model can confirm


@pytest.mark.parametrize("name", sorted(methods()))
def test_every_argument_is_checked_before_the_model_is_touched(name: str) -> None:
    cls = methods()[name]
    for argument in cls.arguments():
        odd = [value for value in (*NUMBERS, *OTHERS) if not (isinstance(value, str) and argument in MAY_BE_ANY_TEXT)]
        odd += [] if argument in MAY_BE_NONE or (name, argument) == ("trio", "view") else [None]
        odd += [] if argument in MAY_BE_LISTS else [[1]]
        for value in odd:
            with pytest.raises(ParameterError, match=f"'{argument}' parameter of {cls.__name__}"):
                cls(Untouchable(), **{argument: value})


EXTREMES = (0.0, 1e38, 1e308, 2**31, 2**63 - 1)


@pytest.mark.parametrize("name", sorted(methods()))
def test_extreme_numbers_are_refused_by_name_or_survived(name: str) -> None:
    images = torch.rand(2, 4, 3, 8, 8, generator=torch.Generator().manual_seed(0))
    for argument, default in methods()[name].arguments().items():
        if isinstance(default, bool) or not isinstance(default, (int, float, type(None))):
            continue
        for value in EXTREMES:
            try:
                adapter = methods()[name](model(0), **(SETTINGS.get(name, {}) | {argument: value}))
            except ParameterError:
                continue
            for x in images:
                assert adapter.step(x).logits.isfinite().all(), (argument, value)


@pytest.mark.parametrize("name", ["cotta", "dmse", "eata", "rotta", "sar"])
def test_the_memory_of_a_stream_is_flat(name: str) -> None:
    # Count only objects created from here on: those of the whole session would take most of the time.
    gc.collect()
    gc.freeze()
    try:
        adapter = methods()[name](model(0), **SETTINGS.get(name, {}))
        uses = follow(adapter, 80, seed=0, marks=4)
    finally:
        gc.unfreeze()
    assert violations(name, uses, with_rss=False) == []
    assert learnt(adapter)


def test_growth_is_seen() -> None:
    flat = [Use(100, 1_000, 50 << 20)] * 20
    assert violations("flat", flat) == []
    for grows in ("tensor_bytes", "objects", "rss"):
        uses = [Use(**(vars(use) | {grows: getattr(use, grows) + i * (1 << 20)})) for i, use in enumerate(flat)]
        assert len(violations("leaky", uses)) == 1
