"""Every method keeps the contract's points about state on models that store state in unusual ways."""

from __future__ import annotations

from functools import cache, partial

import pytest

from contract.variations import SETTINGS
from ctta.registry import methods
from ctta.testing import Subject, checks
from ctta.testing.families import FAMILIES
from ctta.testing.task import trained

# The points that touch what is unusual in a family; resume_bit_equal ends with a reset.
POINTS = {
    "non_persistent_buffers": ("resume_bit_equal",),
    "shared_modules": ("only_trained_move", "reset_restores", "resume_bit_equal"),
    "mixed_precision": ("only_trained_move", "reset_restores", "resume_bit_equal"),
    "own_buffers": ("only_trained_move", "reset_restores", "resume_bit_equal", "predict_leaves_no_trace"),
    "shared_buffers": ("reset_restores", "resume_bit_equal", "predict_leaves_no_trace"),
    "grown_buffers": ("reset_restores", "resume_bit_equal", "predict_leaves_no_trace"),
    "cached_tensors": ("reset_restores", "resume_bit_equal"),
    "extra_state": ("reset_restores", "resume_bit_equal"),
}
# Every third pair of method and family, so that each method and each family has some of them; to resume, every second
# in the trials. tests/hostile/contract_points.py has all. MEMO takes many passes for every image.
CASES = [
    pytest.param(
        method,
        family,
        point,
        marks=pytest.mark.trial if point != "resume_bit_equal" or method == "memo" or (i + j) % 3 else (),
        id=f"{method}-{family}-{point}",
    )
    for i, method in enumerate(sorted(methods()))
    for j, family in enumerate(FAMILIES)
    for point in POINTS[family]
    if (i + j) % 3 == 0 or (point == "resume_bit_equal" and (i + j) % 2 == 0)
]


@cache
def subject_of(method: str, family: str) -> Subject:
    make = partial(methods()[method], **SETTINGS.get(method, {}))
    return Subject(make, partial(trained, FAMILIES[family]))


@pytest.mark.parametrize(("method", "family", "point"), CASES)
def test_method_keeps(method: str, family: str, point: str) -> None:
    dict(checks())[point](subject_of(method, family))
