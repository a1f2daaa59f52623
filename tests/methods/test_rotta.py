"""RoTTA on batch norms that do more than normalise."""

from __future__ import annotations

import copy

import torch
from torch import Tensor, nn

import ctta
from ctta.testing.models import bn_cnn
from ctta.testing.task import drifting_images


class NormAct(nn.BatchNorm2d):
    """A batch norm with a built-in activation, as in some other libraries."""

    def forward(self, x: Tensor) -> Tensor:
        return super().forward(x).relu()


def test_an_activation_inside_a_batch_norm_stays_there() -> None:
    plain = bn_cnn()
    fused = copy.deepcopy(plain)
    for name, layer in list(fused.named_modules()):
        if isinstance(layer, nn.BatchNorm2d):
            layer.__class__ = NormAct
        elif isinstance(layer, nn.ReLU):
            fused.set_submodule(name, nn.Identity())
    one, other = (ctta.RoTTA(net, memory_size=8, update_every=8, lr=0.01) for net in (plain, fused))
    source, again = bn_cnn(), copy.deepcopy(fused)
    for x in torch.split(drifting_images(32), 8):
        torch.testing.assert_close(other(x), one(x), rtol=0, atol=1e-4)
    one.load_into(source)
    other.load_into(again)
    torch.testing.assert_close(again(x), source(x), rtol=0, atol=1e-4)
