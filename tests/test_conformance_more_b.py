"""Float64 logits of further methods against those of the public implementations (tests/data/more_b.npz)."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor

import ctta
from reference import DATA, four_views, net, stream, vectors_of

VECTORS = vectors_of(DATA / "more_b.npz")


def vector(name: str) -> Tensor:
    return torch.from_numpy(VECTORS[name])


CASES: dict[str, Callable[[], ctta.Adapter]] = {
    "dua": lambda: ctta.DUA(net()),
    "memo_sgd": lambda: ctta.MEMO(net(), views=4, view=four_views()),
}


@pytest.mark.parametrize("case", CASES)
def test_logits_equal_the_reference(case: str) -> None:
    adapter = CASES[case]()
    logits = torch.stack([adapter(x) for x in stream()])
    torch.testing.assert_close(logits, vector(f"logits/{case}"), rtol=0, atol=1e-9)


def test_dua_decays_its_momentum_as_the_reference() -> None:
    adapter = ctta.DUA(net())
    momentum = torch.tensor([adapter.step(x).log["momentum"] for x in stream()], dtype=torch.float64)
    torch.testing.assert_close(momentum, vector("dua/momentum"), rtol=0, atol=1e-12)


@pytest.mark.parametrize("alpha", [0.1, 0.6])
def test_bnema_is_torch_in_train_mode_and_then_in_eval_mode(alpha: float) -> None:
    adapter, model = ctta.BNEMA(net(), alpha=alpha), net()
    for layer in model.modules():
        if isinstance(layer, torch.nn.BatchNorm2d):
            layer.momentum = alpha
    for x in stream()[:4]:
        with torch.no_grad():
            model.train()(x)
            expected = model.eval()(x)
        torch.testing.assert_close(adapter(x), expected, rtol=0, atol=1e-9)
