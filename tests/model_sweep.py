"""Whether a model of another library can be adapted, saved, loaded and frozen."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

import ctta
from contract.variations import SETTINGS
from ctta import errors
from ctta.norms import norm_layers
from ctta.testing.compare import difference
from third_party import third_party
from timm_families import Family


def build(family: Family) -> nn.Module:
    """The architecture of a family with random weights, the same every time."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        timm = third_party("timm")
        module, _, cls = family.architecture.partition(":")
        if cls:
            model: nn.Module = getattr(third_party(f"timm.models.{module}"), cls)(num_classes=10, **family.sizes)
        else:
            model = timm.create_model(family.architecture, num_classes=10, **family.sizes)
    return model.eval()


def images(side: int, batches: int = 2) -> list[Tensor]:
    x = torch.rand(2 * batches, 3, side, side, generator=torch.Generator().manual_seed(1))
    return list(torch.split(x, 2))


# Settings under which two batches of two images reach every part of a method.
BUSY: dict[str, dict[str, Any]] = {
    "memo": {"views": 2},
    "note": {"update_every": 2, "memory_size": 4},
    "rotta": {"update_every": 2, "memory_size": 4},
}
# CoTTA and PETAL predict with the mean over random views, and LAME corrects the predictions of a batch.
# A frozen adapter does neither.
FROZEN_DIFFERS = ("cotta", "lame", "petal", "trio")


def goes_on(method: str, model: nn.Module, side: int, folder: Path) -> None:
    """Raise AssertionError unless an adapter learns, continues with equal bits from its file, and can be frozen."""
    first, second = images(side)
    adapter = ctta.method(method)(model, **BUSY.get(method, SETTINGS.get(method, {})))
    logits = adapter.step(first).logits
    assert logits.shape == (2, 10) and logits.isfinite().all()
    assert adapter.skipped == 0
    adapter.save(folder / "adapter")
    loaded = ctta.Adapter.load(folder / "adapter", copy.deepcopy(model))
    assert torch.equal(adapter.step(second).logits, loaded.step(second).logits)
    assert difference(adapter.state_dict(), loaded.state_dict()) is None
    frozen = adapter.freeze()(first)
    assert frozen.shape == (2, 10) and frozen.isfinite().all()
    if method not in FROZEN_DIFFERS:
        torch.testing.assert_close(frozen, adapter.predict(first), rtol=1e-3, atol=1e-4)


def first_that_goes_on(methods: Sequence[str], model: nn.Module, side: int, folder: Path) -> str:
    """The first of the methods that accepts a model and resumes; the ones before it refused it with a named error."""
    for method in methods:
        try:
            goes_on(method, model, side, folder)
        except errors.ModelError:
            continue
        return method
    raise AssertionError("every method refuses the model")


@torch.no_grad()
def recorded_order(model: nn.Module, side: int) -> list[str]:
    """Names of the norm layers in the order in which a forward pass first runs them."""
    order: dict[str, None] = {}
    hooks = [
        layer.register_forward_hook(lambda layer, args, output, name=name: order.setdefault(name))
        for name, layer in norm_layers(model).items()
    ]
    model(images(side)[0])
    for hook in hooks:
        hook.remove()
    return list(order)
