"""What a user gives at the start (prototypes, Fisher weights, source images) survives a reset and a checkpoint."""

from __future__ import annotations

from functools import cache, partial

import pytest

from contract.variations import SETTINGS, features, fisher, posterior, replay
from ctta import Classifier
from ctta.registry import methods
from ctta.testing import Subject, checks
from ctta.testing.compare import difference
from ctta.testing.task import trained


@cache
def given(method: str) -> dict:
    source = Classifier(trained())
    prototypes = {"prototypes": source.weight.roll(1, 1)}
    table = {
        "dmse": prototypes,
        "santa": prototypes,
        "rmt": prototypes | replay(8),
        "eata": fisher(source),
        "obao": prototypes,
        "petal": posterior(source),
        "petta": features(source),
    }
    return table[method]


@pytest.mark.parametrize("point", ["reset_restores", "resume_bit_equal", "predict_leaves_no_trace"])
@pytest.mark.parametrize("method", ["dmse", "santa", "rmt", "eata", "obao", "petal", "petta"])
def test_given_state_keeps(method: str, point: str) -> None:
    dict(checks())[point](Subject(partial(methods()[method], **SETTINGS.get(method, {}), **given(method))))


def test_warmed_up_rmt_returns_to_its_warm_state_after_a_checkpoint(tmp_path) -> None:
    build = methods()["rmt"]
    adapter = build(trained(), **replay(8))
    adapter.warm_up(3)
    warm = adapter.state_dict()
    adapter.save(tmp_path / "warm")
    loaded = build.load(tmp_path / "warm", trained(), source=replay(8)["source"])
    for returned in (adapter, loaded):
        returned.reset()
        assert (
            difference(
                {k: v for k, v in warm.items() if k != "_extra_state"},
                {k: v for k, v in returned.state_dict().items() if k != "_extra_state"},
            )
            is None
        )
