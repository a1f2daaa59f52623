"""DMSE as research code is commonly written, as a baseline for the library's implementation.

It uses contiguous layout, a loop over the parameters for the moving average, prototypes repeated for every image, and a
view computed on the whole padded image. With the same view, it computes the same steps as ``ctta.DMSE``.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ctta.augment import AnyView
from ctta.classifier import Classifier
from ctta.projection import projection_of


class StraightforwardDMSE:
    """DMSE with the paper's constants.

    Args:
        model: The source model.
        view: The augmentation. Default: `full_size_view`.
        optimizer: "adam" or "sgd".
        lr: Learning rate.
        ignored: Other arguments of ``ctta.DMSE``, which are fixed here.
    """

    alpha_min, beta, e_min, gamma, tau, lambda_cl = 0.99, 0.01, 0.2, 0.3, 0.1, 0.5

    def __init__(
        self,
        model: Classifier,
        *,
        view: AnyView | None = None,
        optimizer: str = "adam",
        lr: float = 1e-3,
        **ignored: Any,
    ) -> None:
        self.student = copy.deepcopy(model).train()
        for module in self.student.modules():
            if isinstance(module, nn.BatchNorm2d):
                module.track_running_stats = False
                module.running_mean = module.running_var = None
        self.teacher = copy.deepcopy(self.student)
        for parameter in self.teacher.parameters():
            parameter.detach_()
        self.source = copy.deepcopy(self.teacher.state_dict())
        self.p_0 = model.weight.clone()
        self.p_t = self.p_0.clone()
        _, self.project = projection_of("mlp", self.student, seed=0)
        self.view = full_size_view if view is None else view
        self.generator = torch.Generator().manual_seed(0)
        trained = [*self.student.parameters(), *self.project.parameters()]
        self.optimizer: torch.optim.Optimizer = torch.optim.Adam(trained, lr=lr)
        if optimizer == "sgd":
            self.optimizer = torch.optim.SGD(trained, lr=lr, momentum=0.9, nesterov=True)

    def __call__(self, x: Tensor) -> Tensor:
        """Predict a batch, then learn from it."""
        logits, g = self.student.with_features(x)
        logits_aug, g_aug = self.student.with_features(self.view(x, self.generator))
        target = self.teacher(x)

        similarity, nearest = nearest_prototype(g.detach(), self.p_0)
        confident = (1 - similarity) / 2 < self.gamma
        for c in nearest.unique():  # type: ignore[no-untyped-call]
            chosen = confident & (nearest == c)
            if chosen.sum() > 0:
                self.p_t[c] = g.detach()[chosen].mean(0)

        loss_st = 0.5 * (symmetric_cross_entropy(logits, target) + symmetric_cross_entropy(logits_aug, target)).mean()
        features = torch.cat([self.p_t[nearest].unsqueeze(1), g.unsqueeze(1), g_aug.unsqueeze(1)], dim=1)  # (N, 3, d)
        loss_cl = contrastive(self.project(features), self.tau)
        loss = loss_st + self.lambda_cl * loss_cl
        loss.backward()  # type: ignore[no-untyped-call]
        self.optimizer.step()
        self.optimizer.zero_grad()

        e = -(logits.softmax(1) * logits.log_softmax(1)).sum(1).mean().item()
        if e < self.e_min:
            self.teacher.load_state_dict(self.source)
        else:
            alpha = min(self.alpha_min + self.beta * e, 1)
            for average, parameter in zip(self.teacher.parameters(), self.student.parameters(), strict=True):
                average.data[:] = alpha * average.data[:] + (1 - alpha) * parameter.data[:]
        return (0.5 * (logits + target)).detach()


def nearest_prototype(g: Tensor, p: Tensor) -> tuple[Tensor, Tensor]:
    """Return the similarity to the nearest prototype and its index, through tensors (C, N, d)."""
    prototypes = p.unsqueeze(1).repeat(1, len(g), 1)
    features = g.unsqueeze(0).repeat(len(p), 1, 1)
    similarity, index = F.cosine_similarity(prototypes, features, dim=-1).max(0)
    return similarity, index


def symmetric_cross_entropy(logits: Tensor, target: Tensor) -> Tensor:
    """Compute both directions, each with its own softmax."""
    forward = -(target.softmax(1) * logits.log_softmax(1)).sum(1)
    return forward - (logits.softmax(1) * target.log_softmax(1)).sum(1)


def contrastive(features: Tensor, tau: float) -> Tensor:
    """Contrast every view of an image with all others, through masks over all pairs."""
    n, views, _ = features.shape
    rows = F.normalize(torch.cat(features.unbind(1), dim=0), dim=-1)  # (3N, d)
    logits = rows @ rows.T / tau
    logits = logits - logits.max(dim=1, keepdim=True).values.detach()
    others = 1 - torch.eye(n * views, dtype=rows.dtype, device=rows.device)
    positives = torch.eye(n, dtype=rows.dtype, device=rows.device).repeat(views, views) * others
    log_probability = logits - (logits.exp() * others).sum(1, keepdim=True).log()
    return -((positives * log_probability).sum(1) / positives.sum(1)).mean()


def full_size_view(x: Tensor, generator: torch.Generator) -> Tensor:
    """Compute the same as ``ctta.augment.View()``, from the same random numbers, on images padded to twice the side."""

    def draw(low: float, high: float) -> float:
        return torch.empty(1).uniform_(low, high, generator=generator).item()

    x = x.clamp(0, 1)
    for i in torch.randperm(len(_COLOURS), generator=generator).tolist():
        adjust, low, high = _COLOURS[i]
        x = adjust(x, draw(low, high))
    height, width = x.shape[-2:]
    x = F.pad(x, [width // 2, width // 2, height // 2, height // 2], mode="replicate")
    angle = math.radians(draw(-15, 15))
    shift_x, shift_y = (round(draw(-side / 16, side / 16)) for side in (x.shape[-1], x.shape[-2]))
    x = affine(x, angle, shift_x, shift_y, draw(0.9, 1.1))
    x = blur(x, draw(0.001, 0.5))
    x = x[..., height // 2 : height // 2 + height, width // 2 : width // 2 + width]
    if torch.rand(1, generator=generator).item() < 0.5:
        x = x.flip(-1)
    x = x + 0.005 * torch.randn(x.shape, generator=generator)
    return x.clamp(0, 1)


def affine(x: Tensor, angle: float, shift_x: float, shift_y: float, scale: float) -> Tensor:
    """Rotate, shift by pixels and scale about the centre."""
    height, width = x.shape[-2:]
    cos, sin = math.cos(angle) / scale, math.sin(angle) / scale
    rows = [
        [cos, sin * height / width, -(cos * shift_x + sin * shift_y) * 2 / width],
        [-sin * width / height, cos, (sin * shift_x - cos * shift_y) * 2 / height],
    ]
    grid = F.affine_grid(torch.tensor([rows]).expand(len(x), -1, -1), list(x.shape), align_corners=False)
    return F.grid_sample(x, grid.to(x), mode="bilinear", padding_mode="zeros", align_corners=False)


def blur(x: Tensor, sigma: float) -> Tensor:
    """Convolve with a Gaussian of 5 x 5 pixels."""
    at = torch.arange(-2, 3, dtype=x.dtype)
    line = (-0.5 * (at / sigma) ** 2).exp()
    line = line / line.sum()
    kernel = (line[:, None] * line[None, :]).expand(x.shape[1], 1, 5, 5)
    return F.conv2d(F.pad(x, [2, 2, 2, 2], mode="reflect"), kernel, groups=x.shape[1])


def grey(x: Tensor) -> Tensor:
    """Return the luminance, (N, 1, H, W)."""
    return 0.2989 * x[:, 0:1] + 0.587 * x[:, 1:2] + 0.114 * x[:, 2:3]


def brightness(x: Tensor, factor: float) -> Tensor:
    """Scale every value."""
    return (factor * x).clamp(0, 1)


def contrast(x: Tensor, factor: float) -> Tensor:
    """Blend with the mean luminance of each image."""
    return (factor * x + (1 - factor) * grey(x).mean((1, 2, 3), keepdim=True)).clamp(0, 1)


def saturation(x: Tensor, factor: float) -> Tensor:
    """Blend with the luminance."""
    return (factor * x + (1 - factor) * grey(x)).clamp(0, 1)


def hue(x: Tensor, turn: float) -> Tensor:
    """Rotate the hue through HSV."""
    r, g, b = x.unbind(1)
    value, darkest = x.max(1).values, x.min(1).values
    chroma = value - darkest
    safe = torch.where(chroma == 0, torch.ones_like(chroma), chroma)
    h = torch.where(value == r, (g - b) / safe, torch.where(value == g, 2 + (b - r) / safe, 4 + (r - g) / safe))
    h = (h / 6 + turn) % 1
    s = chroma / torch.where(value == 0, torch.ones_like(value), value)

    sextant = (h * 6).floor()
    part = h * 6 - sextant
    p = (value * (1 - s)).clamp(0, 1)
    q = (value * (1 - s * part)).clamp(0, 1)
    t = (value * (1 - s * (1 - part))).clamp(0, 1)
    which = (sextant.long() % 6).unsqueeze(1)
    red = torch.stack([value, q, p, p, t, value], dim=1)
    green = torch.stack([t, value, value, q, p, p], dim=1)
    blue = torch.stack([p, p, t, value, value, q], dim=1)
    return torch.cat([channel.gather(1, which) for channel in (red, green, blue)], dim=1)


def gamma(x: Tensor, power: float) -> Tensor:
    """Raise every value to a power."""
    return x.clamp(1e-8, 1).pow(power).clamp(0, 1)


_COLOURS: tuple[tuple[Callable[[Tensor, float], Tensor], float, float], ...] = (
    (brightness, 0.6, 1.4),
    (contrast, 0.7, 1.3),
    (saturation, 0.5, 1.5),
    (hue, -0.06, 0.06),
    (gamma, 0.7, 1.3),
)
