"""A double predicts as the learner that it follows, bit for bit, and takes no part in its learning."""

from __future__ import annotations

import pytest
import torch

import ctta
from ctta.adapter import Adapter
from ctta.serve.double import Double
from ctta.serve.learner import Learner
from ctta.testing.compare import difference
from serve.engine import classifier, images

METHODS = [ctta.Tent, ctta.DMSE, ctta.RoTTA, ctta.T3A, ctta.ROID, ctta.LAME, ctta.CoTTA]


def learner(method: type[Adapter], **options: object) -> Learner:
    return Learner(ctta.Guarded(method(classifier(), **options)))


@pytest.mark.parametrize("method", METHODS)
def test_it_predicts_as_the_learner_did_when_it_was_followed(method: type[Adapter]) -> None:
    original, double = learner(method), Double()
    double.follow(original)
    for i in range(3):
        x = images(8, 100 + i)
        expected = original.predict(x)
        before = original.adapter.state_dict()
        assert torch.equal(double.predict(x), expected)
        assert difference(original.adapter.state_dict(), before) is None
        original.learn(images(8, i))
        assert torch.equal(double.predict(x), expected)
        double.follow(original)


def test_it_follows_the_champion_in_shadow_mode() -> None:
    original, double = learner(ctta.Tent, lr=0.01), Double()
    original.learn(images(8))
    original.set_mode("shadow")
    double.follow(original)
    expected = original.predict(images(8, 1))
    original.learn(images(8, 2))
    double.follow(original)
    assert torch.equal(double.predict(images(8, 1)), expected)
    original.promote()
    double.follow(original)
    assert torch.equal(double.predict(images(8, 1)), original.predict(images(8, 1)))
    assert not torch.equal(double.predict(images(8, 1)), expected)


def test_it_lets_the_unadapted_network_predict_while_the_guard_does() -> None:
    guarded = ctta.Guarded(ctta.Tent(classifier(), lr=0.01, window=8), rules="entropy < 100: fallback", patience=1.0)
    original, double = Learner(guarded), Double()
    for i in range(3):
        original.learn(images(4, i))
    double.follow(original)
    assert guarded.watch.falls_back() and not double.will_learn(8)
    assert torch.equal(double.predict(images(4, 9)), original.predict(images(4, 9)))


def test_it_holds_a_copy_of_what_learns_and_no_moments() -> None:
    original, double = learner(ctta.Tent), Double()
    original.learn(images(8))
    double.follow(original)
    own = double._copy
    assert own is not None
    shared = {p.data_ptr() for name, p in original.adapter.inner.named_parameters() if name in own._frozen}
    assert shared and shared <= {p.data_ptr() for p in own.parameters()}
    assert own._optimizer is not None and not own._optimizer.state
