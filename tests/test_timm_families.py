"""Every family of timm can be adapted, saved, loaded and frozen, and every method works with some of them."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

from ctta._adapter.last_stage import last_stage_norms
from ctta.registry import methods
from model_sweep import build, first_that_goes_on, recorded_order
from third_party import third_party
from timm_families import FAMILIES

pytestmark = pytest.mark.models

METHODS = sorted(methods())
# One pass over one network: what a large network can afford in a test.
LIGHT = [name for name in METHODS if methods()[name].passes in ((1, 0), (1, 1))]


def turns() -> dict[str, list[str]]:
    """The methods to try on every family, in order: each family starts with the next method, so that all are tried."""
    found = {}
    for large in (False, True):
        names = LIGHT if large else METHODS
        families = [module for module, family in FAMILIES.items() if family.large == large]
        for i, module in enumerate(families):
            start = i % len(names)
            found[module] = [*names[start:], *names[:start]]
    return found


TURNS = turns()


@pytest.mark.parametrize("module", FAMILIES)
def test_a_family_is_adapted_saved_continued_with_equal_bits_and_frozen(module: str, tmp_path: Path) -> None:
    family = FAMILIES[module]
    first_that_goes_on(TURNS[module], build(family), family.side, tmp_path)


@pytest.mark.parametrize("module", FAMILIES)
def test_norms_of_the_last_stage_run_after_all_others(module: str) -> None:
    family = FAMILIES[module]
    model = build(family)
    left_out, order = set(last_stage_norms(model)), recorded_order(model, family.side)
    first = min((order.index(name) for name in left_out if name in order), default=len(order))
    assert set(order[first:]) <= left_out


def test_every_method_has_the_first_turn_at_several_families() -> None:
    first = Counter(names[0] for names in TURNS.values())
    assert set(first) == set(METHODS) and min(first.values()) >= 2


def test_the_table_has_every_family_of_timm() -> None:
    assert set(third_party("timm").list_modules()) <= set(FAMILIES), "add a small architecture to timm_families.py"
