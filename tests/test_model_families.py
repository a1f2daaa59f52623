"""Every method keeps the points about state on models that keep theirs in unusual ways."""

from __future__ import annotations

from functools import cache, partial

import pytest

from contract.variations import SETTINGS
from ctta.registry import methods
from ctta.testing import Subject, checks
from ctta.testing.families import FAMILIES
from ctta.testing.task import trained

POINTS = ("only_trained_move", "reset_restores", "resume_bit_equal", "predict_leaves_no_trace")


@cache
def subject_of(method: str, family: str) -> Subject:
    make = partial(methods()[method], **SETTINGS.get(method, {}))
    return Subject(make, partial(trained, FAMILIES[family]))


@pytest.mark.parametrize("point", POINTS)
@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("method", sorted(methods()))
def test_method_keeps(method: str, family: str, point: str) -> None:
    dict(checks())[point](subject_of(method, family))
