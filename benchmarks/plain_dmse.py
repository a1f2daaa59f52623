"""DMSE written in the straightforward way of research code, to compare with.

Contiguous layout, one optimizer update and one average per parameter, prototypes and features repeated to (C, N, d) for
the cosine, the contrastive loss by masks, and a view that pads the images to twice their size before it turns, blurs
and crops them. It computes what `ctta.DMSE` does with its defaults (tests/benchmarks/test_plain_dmse.py).
"""

from __future__ import annotations

import copy
import math
from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ctta import Classifier
from ctta.norms import use_batch_statistics
from ctta.projection import projection_of

AnyView = Callable[[Tensor, torch.Generator], Tensor]


class PlainDMSE:
    def __init__(
        self,
        model: Classifier,
        generator: torch.Generator,
        *,
        view: AnyView | None = None,
        projection: nn.Module | None = None,
    ) -> None:
        self.student = copy.deepcopy(model).eval()
        use_batch_statistics(self.student)
        self.teacher = copy.deepcopy(self.student)
        self.source = copy.deepcopy(self.student.state_dict())
        for parameter in self.teacher.parameters():
            parameter.requires_grad_(False)
        self.p_0 = self.student.weight.clone()
        self.p_t = self.p_0.clone()
        self.project = projection or projection_of("mlp", self.student, seed=0)[1]
        learning = [*self.student.parameters(), *self.project.parameters()]
        self.optimizer = torch.optim.Adam(learning, lr=1e-3, foreach=False)
        self.view, self.generator = view or plain_view, generator

    def step(self, x: Tensor) -> Tensor:
        logits, g = self.student.with_features(x)
        logits_aug, g_aug = self.student.with_features(self.view(x, self.generator))
        with torch.no_grad():
            target = self.teacher(x)
            distance = repeated_distances(g, self.p_0)
            nearest = distance.argmin(0)
            for c in nearest.unique().tolist():
                confident = (nearest == c) & (distance[c] < 0.3)
                if confident.any():
                    self.p_t[c] = g[confident].mean(0)
        loss_st = 0.5 * (sce(logits, target) + sce(logits_aug, target)).mean()
        z = torch.stack([self.p_t[nearest].clone(), g, g_aug], dim=1)
        loss = loss_st + 0.5 * masked_contrastive(self.project(z), tau=0.1)
        self.optimizer.zero_grad()
        loss.backward()
        self.optimizer.step()
        e = -(logits.detach().softmax(1) * logits.detach().log_softmax(1)).sum(1).mean().item()
        if e < 0.2:
            self.teacher.load_state_dict(self.source)
        else:
            alpha = min(0.99 + 0.01 * e, 1.0)
            for average, parameter in zip(self.teacher.parameters(), self.student.parameters(), strict=True):
                average.data[:] = alpha * average.data[:] + (1 - alpha) * parameter.data[:]
        return 0.5 * (logits.detach() + target)


def repeated_distances(g: Tensor, p: Tensor) -> Tensor:
    """Cosine distance of every prototype to every feature, (C, N), through two tensors of (C, N, d)."""
    prototypes = p.unsqueeze(1).repeat(1, len(g), 1)
    features = g.unsqueeze(0).repeat(len(p), 1, 1)
    return 0.5 * (1 - F.cosine_similarity(prototypes, features, dim=-1))


def sce(logits: Tensor, target: Tensor) -> Tensor:
    forward = -(target.softmax(1) * logits.log_softmax(1)).sum(1)
    backward = -(logits.softmax(1) * target.log_softmax(1)).sum(1)
    return forward + backward


def masked_contrastive(z: Tensor, tau: float) -> Tensor:
    """Of (N, V, d): every view is an anchor, and masks of (VN, VN) pick its positives and take out itself."""
    n, views = z.shape[:2]
    rows = F.normalize(torch.cat(z.unbind(1)), dim=1)
    similarity = rows @ rows.T / tau
    similarity = similarity - similarity.max(1, keepdim=True).values.detach()
    others = 1 - torch.eye(n * views, dtype=z.dtype)
    positives = torch.eye(n, dtype=z.dtype).repeat(views, views) * others
    log_p = similarity - (similarity.exp() * others).sum(1, keepdim=True).log()
    return -((positives * log_p).sum(1) / positives.sum(1)).mean()


def plain_view(x: Tensor, generator: torch.Generator) -> Tensor:
    """The chain of `ctta.augment.View()`, every operation on whole images."""

    def draw(low: float, high: float) -> float:
        return torch.empty(1).uniform_(low, high, generator=generator).item()

    colours = (
        (lambda x, f: blend(x, torch.zeros_like(x), f), (0.6, 1.4)),
        (lambda x, f: blend(x, grey(x).mean((1, 2, 3), keepdim=True), f), (0.7, 1.3)),
        (lambda x, f: blend(x, grey(x), f), (0.5, 1.5)),
        (turn_hue, (-0.06, 0.06)),
        (lambda x, gamma: x.clamp(1e-8, 1).pow(gamma).clamp(0, 1), (0.7, 1.3)),
    )
    x = x.clamp(0, 1)
    for i in torch.randperm(5, generator=generator).tolist():
        adjust, span = colours[i]
        x = adjust(x, draw(*span))

    height, width = x.shape[-2:]
    x = F.pad(x, [width // 2, width // 2, height // 2, height // 2], mode="replicate")
    full_height, full_width = x.shape[-2:]
    angle = math.radians(draw(-15, 15))
    shift_x, shift_y = (round(draw(-side / 16, side / 16)) for side in (full_width, full_height))
    scale = draw(0.9, 1.1)
    x = affine(x, angle, shift_x, shift_y, scale)
    x = blur(x, draw(0.001, 0.5))
    x = x[..., height // 2 : height // 2 + height, width // 2 : width // 2 + width]
    if torch.rand(1, generator=generator).item() < 0.5:
        x = x.flip(-1)
    x = x + 0.005 * torch.randn(x.shape, generator=generator)
    return x.clamp(0, 1)


def blend(x: Tensor, other: Tensor, factor: float) -> Tensor:
    return (factor * x + (1 - factor) * other).clamp(0, 1)


def grey(x: Tensor) -> Tensor:
    return (x * torch.tensor([0.2989, 0.587, 0.114]).view(1, 3, 1, 1)).sum(1, keepdim=True)


def turn_hue(x: Tensor, turn: float) -> Tensor:
    """To hue, saturation and value, and back by the six cases of the hue circle."""
    value, low = x.max(1).values, x.min(1).values
    chroma = value - low
    r, g, b = x.unbind(1)
    divisor = torch.where(chroma == 0, torch.ones_like(chroma), chroma)
    hue = (4 + (r - g) / divisor) * ((b == value) & (g != value) & (r != value))
    hue = hue + (2 + (b - r) / divisor) * ((g == value) & (r != value))
    hue = hue + ((g - b) / divisor) * (r == value)
    hue = (hue / 6 + turn) % 1
    saturation = chroma / torch.where(value == 0, torch.ones_like(value), value)
    sextant = (hue * 6).floor()
    rest = hue * 6 - sextant
    p = (value * (1 - saturation)).clamp(0, 1)
    q = (value * (1 - rest * saturation)).clamp(0, 1)
    t = (value * (1 - (1 - rest) * saturation)).clamp(0, 1)
    mask = (sextant.int() % 6).unsqueeze(1) == torch.arange(6).view(1, 6, 1, 1)  # (N, 6, H, W)
    red = torch.stack([value, q, p, p, t, value], 1)
    green = torch.stack([t, value, value, q, p, p], 1)
    blue = torch.stack([p, p, t, value, value, q], 1)
    return torch.einsum("nshw,ncshw->nchw", mask.to(x.dtype), torch.stack([red, green, blue], 1))


def affine(x: Tensor, angle: float, shift_x: int, shift_y: int, scale: float) -> Tensor:
    """Turn, shift and scale about the centre; outside there is black."""
    height, width = x.shape[-2:]
    cos, sin = math.cos(angle) / scale, math.sin(angle) / scale
    at_x = torch.arange(width) - (width - 1) / 2 - shift_x
    at_y = (torch.arange(height) - (height - 1) / 2 - shift_y).unsqueeze(1)
    grid = torch.stack([(cos * at_x + sin * at_y) * 2 / width, (cos * at_y - sin * at_x) * 2 / height], -1)
    return F.grid_sample(x, grid.to(x.dtype).expand(len(x), -1, -1, -1), align_corners=False)


def blur(x: Tensor, sigma: float) -> Tensor:
    at = torch.arange(-2, 3, dtype=x.dtype)
    kernel = (-0.5 * (at / sigma) ** 2).exp()
    kernel = kernel / kernel.sum()
    square = (kernel.unsqueeze(1) * kernel).expand(x.shape[1], 1, 5, 5)
    return F.conv2d(F.pad(x, [2] * 4, mode="reflect"), square, groups=x.shape[1])
