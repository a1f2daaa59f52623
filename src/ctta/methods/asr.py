"""ASR: reset the later layers when the predictions concentrate on few classes, and keep what mattered.

Lim, Hwang, Lee, "When and where to reset matters for long-term test-time adaptation", ICLR 2026. It wraps ETA or ROID.
"""

from __future__ import annotations

import math
from typing import Literal

import torch
from torch import Tensor, nn
from typing_extensions import Unpack

from ctta.adapter import Adapter, Learning, Step
from ctta.augment import AnyView, View
from ctta.functional import entropy
from ctta.methods._parts.asr import Knowledge
from ctta.methods._parts.tensors import flat, parts
from ctta.methods.eata import select, weighted_entropy
from ctta.methods.roid import correct_prior, sample_weights, weighted_loss
from ctta.norms import norm_affine, use_batch_statistics
from ctta.options import SharedOptions, check_bounds
from ctta.recipes import per_dataset
from ctta.registry import register
from ctta.teacher import frozen_copy


@register
class ASR(Adapter):
    """Learn as ETA or ROID do, and reset the later layers when the predictions concentrate on few classes.

    The entropy of a batch's mean logits is compared with its own moving level. If it falls below that level, the model
    is collapsing, and the later trained tensors return to the source: the further it fell, the more of them. Before
    that, the mean of the weights since the last reset and their importance are remembered; a penalty then keeps
    important weights near that mean. The share of predictions on which the source disagrees controls the level and the
    penalty.

    Args:
        model: The source model, or a `Classifier` around it.
        base: The method that learns between resets: "eta" (`EATA` without Fisher weights) or "roid" (`ROID`).
        m_0: The momentum of the level is 1 - m_0 (1 - disagreement). At 0 the level stays where it starts.
        p_0: The weight of the penalty is p_0 disagreement^2.
        a_0: The level starts at ln(a_0 C), with C classes.
        r_0: The share of the tensors that keep their values if the entropy has just reached the level.
        r_1: How fast that share falls with the distance below the level. At 20 a drop of 0.025 nats resets all.
        e_margin: For ETA: E_0 in units of ln C: a sample is reliable if its entropy is below it.
        d_margin: For ETA: a sample is redundant if the cosine between its prediction and the mean prediction so far
            reaches this value.
        momentum_source: For ROID: the share of the student that is kept when its weights are averaged with the source.
        momentum_probs: For ROID: momentum of the mean prediction.
        temperature: For ROID: temperature of the sample weights.
        batch_size: For ROID: divides the loss. None divides by the size of the current batch.
        view: For ROID: the augmentation, a function of images and generator.
        shared: Options that every method takes; see `Adapter`.

    Example:
        >>> import torch, ctta
        >>> from ctta.testing.models import bn_cnn
        >>> model = ctta.ASR(bn_cnn(), base="roid")
        >>> logits = model(torch.rand(8, 3, 16, 16))  # predicts, then learns from the batch
        >>> logits.shape
        torch.Size([8, 10])
    """

    trains = "the weights and biases of normalisation layers"
    passes = (2, 1)
    logits_are = 'with base="roid" multiplied by the share of each class in the batch'
    recipes = per_dataset(
        d_margin={"cifar10-c": 0.4, "cifar100-c": 0.1, "imagenet-c": 0.05, "domainnet-126": 0.1},
        batch_size={"cifar10-c": 200, "cifar100-c": 200, "imagenet-c": 64, "domainnet-126": 128},
    )

    p_bar: Tensor | None
    level: Tensor | None
    strength: Tensor

    def __init__(
        self,
        model: nn.Module,
        *,
        base: Literal["eta", "roid"] = "eta",
        m_0: float = 0.15,
        p_0: float = 5.0,
        a_0: float = 0.5,
        r_0: float = 0.5,
        r_1: float = 20.0,
        e_margin: float = 0.4,
        d_margin: float = 0.05,
        momentum_source: float = 0.99,
        momentum_probs: float = 0.9,
        temperature: float = 1 / 3,
        batch_size: int | None = None,
        view: AnyView = View(border="reflect", blur=None, noise=0.0),  # noqa: B008, a frozen value
        **shared: Unpack[SharedOptions],
    ) -> None:
        super().__init__(model, **shared)
        self.base = base
        self.m_0 = m_0
        self.p_0 = p_0
        self.a_0 = a_0
        self.r_0 = r_0
        self.r_1 = r_1
        self.e_margin = e_margin
        self.d_margin = d_margin
        self.momentum_source = momentum_source
        self.momentum_probs = momentum_probs
        self.temperature = temperature
        self.batch_size = batch_size
        self.view = view
        check_bounds(self, m_0=(0, 1), p_0=(0, math.inf), a_0=(1e-6, 1), r_0=(0, 1), r_1=(0, math.inf))
        check_bounds(self, e_margin=(0, 1), d_margin=(0, 1), momentum_source=(0, 1), momentum_probs=(0, 1))
        check_bounds(self, temperature=(1e-6, math.inf), batch_size=(1, math.inf))
        if base == "roid":
            self.passes = (3, 2)
            self.combine = correct_prior  # type: ignore[method-assign, assignment]
        use_batch_statistics(self.student)
        self.anchor = frozen_copy(self.student)
        trained = norm_affine(self.student)
        self.require_trainable(trained)
        self.knowledge = Knowledge(trained)
        self.register_buffer("strength", trained[0].detach().new_zeros(()))
        self.register_buffer("p_bar", None)
        self.register_buffer("level", None)
        self.begin(trained)

    def adapt(self, x: Tensor) -> Learning:
        """Predict, take one step of the base with the penalty, then reset if the predictions concentrate."""
        logits = self.student(x)
        self.require_finite(logits.detach().sum())
        yield self.combine(logits.detach())
        anchor = self.anchor(x)  # frozen: no gradient
        self.require_finite(anchor.sum())
        disagree = (anchor.argmax(1) != logits.detach().argmax(1)).double().mean().item()
        loss, p_bar, kept = self.base_loss(x, logits)
        theta = flat(self.trained).detach()
        squares = torch.zeros_like(theta)
        if loss is not None:
            squares, loss = self.step_with_penalty(loss, theta)
        self.p_bar = p_bar
        self.knowledge.add(squares, theta)
        if self.base == "roid":  # weight ensembling
            with torch.no_grad():
                torch._foreach_lerp_(list[Tensor](self.trained), self.source_of_trained(), 1 - self.momentum_source)
        log = {"kept": float(kept), "disagreement": disagree} | self.reset_selectively(logits.detach(), disagree)
        return Step(self.combine(logits.detach()), None if loss is None else loss.item(), log)

    def base_loss(self, x: Tensor, logits: Tensor) -> tuple[Tensor | None, Tensor | None, int]:
        """Return the loss (None if ETA keeps no sample), the new mean prediction, and how many samples were kept.

        Args:
            x: Images (N, C, H, W) in [0, 1].
            logits: Their logits (N, C).
        """
        z = logits.detach()
        if self.base == "eta":
            h, e_0 = entropy(logits), self.e_margin * math.log(logits.shape[1])
            keep, p_bar = select(z, h.detach() < e_0, self.p_bar, self.d_margin)
            return (weighted_entropy(h[keep], e_0) if keep.any() else None), p_bar, int(keep.sum())
        p = z.softmax(1)
        before = torch.full_like(p[0], 1 / p.shape[1]) if self.p_bar is None else self.p_bar
        keep, weight = sample_weights(z, before, self.temperature)
        total = weighted_loss(self.student, logits[keep], self.view(x[keep], self.generator), weight)
        loss = total / (self.batch_size or len(x))
        return loss, self.momentum_probs * before + (1 - self.momentum_probs) * p.mean(0), int(keep.sum())

    def step_with_penalty(self, loss: Tensor, theta: Tensor) -> tuple[Tensor, Tensor]:
        """Step on loss + strength sum F (theta - mu)^2; return the squared gradient of the loss alone, and that sum.

        Args:
            loss: The loss of the base.
            theta: The trained parameters, flat.
        """
        self.require_gradient(loss.requires_grad)
        gradient = flat(torch.autograd.grad(self.require_finite(loss), self.trained, materialize_grads=True))
        penalty, slope = self.knowledge.penalty(theta)
        whole = gradient + self.strength * slope
        for parameter, part in zip(self.trained, parts(whole, self.trained), strict=True):
            parameter.grad = part
        self.apply_gradients()
        return gradient**2, loss.detach() + self.strength * penalty

    @torch.no_grad()
    def reset_selectively(self, logits: Tensor, disagree: float) -> dict[str, float]:
        """Compare the concentration of the predictions with its level; reset, or move the level. Return the log.

        Args:
            logits: Logits (N, C) of the batch, before the step.
            disagree: The share of predictions on which source and student disagree.
        """
        # The entropy of the mean logits, not that of the mean prediction.
        e = entropy(logits.mean(0, keepdim=True)).item()
        start = math.log(logits.shape[1] * self.a_0)
        level = start if self.level is None else self.level.item()
        momentum = 1 - self.m_0 * (1 - disagree)
        self.strength = self.strength.new_tensor(self.p_0 * disagree**2)
        reset = e < level
        if reset:
            self.knowledge.consolidate()
            self.reset_later_layers(max(self.r_0 - self.r_1 * (level - e), 0.0))
            self.level = None
        else:
            self.level = self.strength.new_tensor(momentum * level + (1 - momentum) * e)
        return {"concentration": e, "level": level, "reset": float(reset)}

    def reset_later_layers(self, share: float) -> None:
        """Return all but the first tensors to the source, and restart the optimizer and the mean prediction.

        Differs from the authors' code, where around ROID the reset reaches a copy of the source instead of the student.

        Args:
            share: The share of the tensors that keep their values.
        """
        pairs = list(zip(self.trained, self.source_of_trained(), strict=True))
        for i, (parameter, source) in enumerate(pairs):
            if i >= share * len(pairs):
                parameter.copy_(source)
        self.restart_optimizer()
        self.p_bar = None
