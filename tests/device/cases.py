"""Methods with the settings under which a short stream reaches all of their parts."""

from __future__ import annotations

import copy
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn

from contract.variations import SETTINGS, features, fisher, posterior, replay
from ctta import Classifier
from ctta.adapter import Adapter, Step
from ctta.augment import View
from ctta.registry import methods
from ctta.testing.models import bn_cnn, gn_cnn, ln_vit
from ctta.testing.task import drifting_images, trained

MEAN, STD = (0.45, 0.5, 0.55), (0.9, 1.0, 1.1)
STEPS = 3


@dataclass(frozen=True)
class Case:
    method: str
    settings: dict[str, Any] = field(default_factory=dict)
    model: Callable[[], nn.Module] = bn_cnn
    given: Callable[[Classifier], dict[str, Any]] = lambda model: {}
    prepare: Callable[[Any], None] = lambda adapter: None

    def source(self) -> nn.Module:
        """The network on the CPU; only the default one is trained, because training takes time."""
        return trained() if self.model is bn_cnn else self.model()

    def classifier(self) -> Classifier:
        """The network with a normalisation, on the CPU."""
        return Classifier(self.source(), mean=MEAN, std=STD)

    def arguments(self) -> dict[str, Any]:
        """Constructor arguments, whose tensors are on the CPU as a loader or a file gives them."""
        return {**SETTINGS.get(self.method, {}), **self.settings, **self.given(self.classifier())}

    def build(self, model: nn.Module) -> Adapter:
        adapter = methods()[self.method](model, **self.arguments())
        self.prepare(adapter)
        return adapter

    def load(self, path: Any, model: nn.Module) -> Adapter:
        custom = {k: v for k, v in self.arguments().items() if callable(v) or k == "source"}
        return methods()[self.method].load(path, model, **custom)


def prototypes(model: Classifier) -> dict[str, Tensor]:
    return {"prototypes": model.weight.roll(1, 1)}


def sgd(parameters: list[nn.Parameter]) -> torch.optim.Optimizer:
    return torch.optim.SGD(parameters, lr=0.01, momentum=0.9)


CASES: dict[str, Case] = {
    **{name: Case(name) for name in sorted(methods())},
    "bn blended": Case("bn", {"alpha": 0.5}),
    "cotta always augmented": Case("cotta", {"p_th": 1.1, "restore_p": 0.5, "symmetric": True}),
    "cotta never augmented": Case("cotta", {"p_th": 0.0, "optimizer": "sgd"}),
    "deyo with occlusion": Case("deyo", {"destroy": "occlusion", "tau_ent": 1.0, "tau_plpd": -1.0}),
    "deyo with patches": Case("deyo", {"tau_ent": 1.0, "tau_plpd": -1.0}),
    "dmse with prototypes": Case("dmse", given=prototypes),
    "dmse recomputing": Case("dmse", {"recompute": True}),
    "dmse ablated": Case(
        "dmse", {"alpha": 0.9, "recalibrated": False, "centre": "dynamic", "projection": None, "loss": "ce"}
    ),
    "dmse resetting": Case("dmse", {"e_min": 5.0, "reset_by": "average", "entropy_unit": "ln C"}),
    "dmse averaging": Case("dmse", {"reset_by": "average", "empty_class": "p_0", "contrast_with": "nearest"}),
    "dmse without reset": Case("dmse", {"teacher_reset": False, "e_min": 5.0}),
    "dmse with a window": Case("dmse", {"window": 12}),
    "dmse with its own projection": Case("dmse", {"projection": nn.Linear(32, 8, bias=False).requires_grad_(False)}),
    "eata with fisher": Case("eata", given=fisher),
    "dua with copies of an image": Case("dua", {"copies": 4}),
    "memo keeping what it learns": Case("memo", {"episodic": False}),
    "note without learned statistics": Case("note", {"learned_statistics": False}),
    "obao with prototypes": Case("obao", {"restore_p": 0.5}, given=prototypes),
    "petal with a posterior": Case("petal", {"p_th": 1.1}, given=posterior),
    "petal restoring at random": Case("petal", {"restoration": "random", "restore_p": 0.5}),
    "petta with statistics": Case("petta", {"regularizer": "l2", "loss": "ce"}, given=features),
    "rdumb resetting": Case("rdumb", {"reset_every": 2, "e_margin": 1.0, "d_margin": 1.0}),
    "rmt recomputing, with prototypes": Case("rmt", {"recompute": True}, given=prototypes),
    "rmt replaying": Case("rmt", replay(8)),
    "rmt warmed up": Case("rmt", replay(8), prepare=lambda adapter: adapter.warm_up(2)),
    "roid with noise": Case("roid", {"view": View(noise=0.01)}),
    "rotta with a window": Case("rotta", {"window": 12}),
    "rotta with a full memory": Case("rotta", {"update_every": 4, "memory_size": 6}),
    "santa recomputing, with prototypes": Case("santa", {"recompute": True}, given=prototypes),
    "sar restoring": Case("sar", {"reset_constant": 9.0, "e_margin": 1.0}),
    "sar averaging": Case("sar", {"reset_constant": 0.0, "e_margin": 1.0}),
    "tent with a window": Case("tent", {"window": 12}),
    "tent by misfit": Case("tent", {"statistics": "misfit"}),
    "dmse with moving statistics": Case("dmse", {"statistics": "moving:0.3"}),
    "tent with its own optimizer": Case("tent", {"optimizer": sgd}),
    "tent on layer norm": Case("tent", model=ln_vit),
    "tent on group norm": Case("tent", model=gn_cnn),
    "dmse on layer norm": Case("dmse", model=ln_vit),
}

# One case for every kind of state that can move between devices; the others differ in what a step computes.
STATES = [
    *sorted(methods()),
    "dmse with prototypes",
    "dmse averaging",
    "dmse with a window",
    "dmse with moving statistics",
    "eata with fisher",
    "obao with prototypes",
    "petal with a posterior",
    "petta with statistics",
    "rmt warmed up",
    "rotta with a full memory",
    "sar averaging",
    "tent with a window",
]


def batches(count: int = STEPS) -> list[Tensor]:
    return list(torch.split(drifting_images(8 * count), 8))


def on_cpu(value: Any) -> Any:
    """A nested state with its tensors on the CPU."""
    if isinstance(value, Tensor):
        return value.detach().cpu()
    if isinstance(value, Step):
        return {"logits": value.logits.cpu(), "loss": value.loss, "log": value.log}
    if isinstance(value, dict):
        return {key: on_cpu(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [on_cpu(item) for item in value]
    return copy.copy(value)
