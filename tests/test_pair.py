"""A batch and its view: which activations may be discarded and recomputed, and what that costs."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import chain

import pytest
import torch
from torch import Tensor

import ctta
from ctta.adapter import Adapter
from ctta.classifier import Classifier
from ctta.errors import ParameterError
from reference import net, source_batches, stream

METHODS: dict[str, Callable[..., Adapter]] = {
    "dmse": ctta.DMSE,
    "santa": ctta.SANTA,
    "rmt": ctta.RMT,
    "rmt with replay": lambda model, **options: ctta.RMT(model, source=source_batches(), lambda_src=1.0, **options),
}


@pytest.mark.parametrize("name", ["dmse", "santa", "rmt"])
@pytest.mark.parametrize(
    ("precision", "dtype"), [("fp32", torch.float64), ("fp32", torch.float32), ("bf16", torch.float32)]
)
def test_making_the_view_again_changes_no_bit(name: str, precision: str, dtype: torch.dtype) -> None:
    kept, again = (METHODS[name](net().to(dtype), recompute=r, precision=precision) for r in (False, True))
    for x in stream()[:4].to(dtype):
        assert torch.equal(kept(x), again(x))
    for one, other in zip(_tensors(kept), _tensors(again), strict=True):
        assert torch.equal(one, other)


def _tensors(adapter: Adapter) -> Iterator[Tensor]:
    return chain(adapter.parameters(), adapter.buffers())


def test_with_replay_it_only_adds_the_gradients_in_another_order() -> None:
    kept, again = (METHODS["rmt with replay"](net(), recompute=recompute) for recompute in (False, True))
    for x in stream()[:4]:
        torch.testing.assert_close(kept(x), again(x), rtol=0, atol=1e-9)


@pytest.mark.parametrize("recompute", [False, True])
@pytest.mark.parametrize("name", METHODS)
def test_the_networks_run_as_often_as_passes_says(name: str, recompute: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    adapter, calls = METHODS[name](net(), recompute=recompute), []
    forward = Classifier.forward
    monkeypatch.setattr(Classifier, "forward", lambda self, x: calls.append(len(x)) or forward(self, x))
    adapter(stream()[0])
    assert len(calls) == adapter.passes[0]


def test_recomputing_leaves_torchs_generator_to_other_threads(monkeypatch: pytest.MonkeyPatch) -> None:
    adapter = ctta.DMSE(net(), recompute=True)
    monkeypatch.setattr(torch, "set_rng_state", lambda state: pytest.fail("rewound under everyone who draws"))
    adapter(stream()[0])


def test_recompute_is_yes_or_no() -> None:
    with pytest.raises(ParameterError, match="'recompute' parameter of DMSE"):
        ctta.DMSE(net(), recompute="view")  # type: ignore[arg-type]
