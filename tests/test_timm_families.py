"""Every family of timm that builds in a few seconds can be adapted, saved, loaded and frozen."""

from __future__ import annotations

from pathlib import Path

import pytest

from ctta._adapter.last_stage import last_stage_norms
from model_sweep import build, goes_on, recorded_order
from third_party import third_party
from timm_families import FAMILIES, LONG_ONLY

pytestmark = pytest.mark.models

SHORT = [module for module in FAMILIES if module not in LONG_ONLY]


@pytest.mark.parametrize("module", SHORT)
def test_a_family_is_adapted_saved_and_continued_with_equal_bits(module: str, tmp_path: Path) -> None:
    family = FAMILIES[module]
    method, settings = ("dmse", {}) if family.one_head else ("cotta", {"views": 2})
    goes_on(method, build(family), family.side, tmp_path, **settings)


@pytest.mark.parametrize("module", ["swin_transformer", "tiny_vit", "vision_transformer", "convnext", "nfnet"])
def test_a_method_for_norm_layers_is_saved_and_continued_too(module: str, tmp_path: Path) -> None:
    goes_on("roid" if module != "nfnet" else "rmt", build(FAMILIES[module]), FAMILIES[module].side, tmp_path)


@pytest.mark.parametrize("module", SHORT)
def test_norms_of_the_last_stage_run_after_all_others(module: str) -> None:
    family = FAMILIES[module]
    model = build(family)
    left_out, order = set(last_stage_norms(model)), recorded_order(model, family.side)
    first = min((order.index(name) for name in left_out if name in order), default=len(order))
    assert set(order[first:]) <= left_out


def test_the_table_has_every_family_of_timm() -> None:
    assert set(third_party("timm").list_modules()) <= set(FAMILIES), "add a small architecture to timm_families.py"
