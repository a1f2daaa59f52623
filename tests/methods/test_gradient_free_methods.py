"""LAME and T3A, which take no gradients, against naive loops."""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor, nn

import ctta
from ctta.errors import ParameterError
from ctta.methods.lame import assign
from ctta.testing.models import bn_cnn
from reference import net, stream


def unit_features(n: int) -> Tensor:
    g = torch.randn(n, 4, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    return g / g.norm(dim=1, keepdim=True)


@pytest.mark.parametrize("symmetric", [False, True])
def test_lame_takes_the_nearest_other_images_for_neighbours(symmetric: bool) -> None:
    g = unit_features(7)
    expected = torch.zeros(7, 7, dtype=torch.float64)
    for i in range(7):
        others = sorted((j for j in range(7) if j != i), key=lambda j: (g[i] - g[j]).norm().item())
        for j in others[:3]:
            expected[i, j] += 1
    if symmetric:
        expected = (expected + expected.T) / 2
    assert torch.equal(ctta.LAME(net(), k=3, symmetric=symmetric).affinities(g), expected)


def test_lame_scales_its_gaussian_by_the_distance_to_the_kth_image_counting_itself() -> None:
    g = unit_features(6)
    width = sum(sorted((g[i] - g[j]).norm().item() for j in range(6))[2] for i in range(6)) / 6
    w = ctta.LAME(net(), affinity="rbf", k=3).affinities(g)
    for i in range(6):
        for j in range(6):
            assert w[i, j].item() == pytest.approx(math.exp(-((g[i] - g[j]).norm().item() ** 2) / (2 * width**2)))


def test_lame_has_the_cosine_for_a_linear_affinity() -> None:
    g = unit_features(5)
    w = ctta.LAME(net(), affinity="linear").affinities(g)
    assert w[1, 3].item() == pytest.approx(sum(a * b for a, b in zip(g[1].tolist(), g[3].tolist(), strict=True)))


def test_lame_reaches_a_fixed_point_of_its_update() -> None:
    logits = torch.randn(6, 3, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    w = ctta.LAME(net(), affinity="rbf", k=2).affinities(unit_features(6))
    z = assign(logits, w, tolerance=1e-15).exp()
    torch.testing.assert_close(z, ((logits.softmax(1) + 1e-10).log() + w @ z).softmax(1), rtol=0, atol=1e-6)


@pytest.mark.parametrize("affinity", ["knn", "rbf"])
def test_lame_leaves_the_prediction_for_one_image_or_equal_images_in_order(affinity: str) -> None:
    adapter, source = ctta.LAME(bn_cnn(), affinity=affinity), ctta.Source(bn_cnn())
    x = torch.rand(1, 3, 16, 16, generator=torch.Generator().manual_seed(2))
    for images in (x, x.expand(4, -1, -1, -1)):
        logits = adapter(images)
        assert logits.isfinite().all()
        assert torch.equal(logits.argmax(1), source(images).argmax(1))


def test_lame_corrects_an_image_by_the_rest_of_its_window() -> None:
    x = torch.rand(4, 3, 16, 16, generator=torch.Generator().manual_seed(3))
    windowed = ctta.LAME(bn_cnn(), window=4)
    together = torch.cat([windowed(image) for image in x.split(1)])[-1]
    torch.testing.assert_close(together, ctta.LAME(bn_cnn())(x)[-1])
    assert not torch.allclose(together, ctta.LAME(bn_cnn())(x[-1:])[0])


def naive_t3a(k: int | None) -> list[Tensor]:
    """T3A with a separate list of supports for each class."""
    source = ctta.Classifier(net()).eval()
    weight, bias = source.weight, source.head.bias.detach()

    def entropy(z: Tensor) -> float:
        return -sum(p * math.log(p) for p in z.softmax(0).tolist() if p > 0)

    supports: list[list[tuple[float, Tensor]]] = [[] for _ in weight]
    for row in weight:
        z = weight @ row + bias
        supports[int(z.argmax())].append((entropy(z), row))
    answers = []
    for x in stream()[:3]:
        with torch.no_grad():
            logits, g = source.with_features(x)
        for z, row in zip(logits, g, strict=True):
            supports[int(z.argmax())].append((entropy(z), row))
        if k is not None:
            supports = [sorted(rows, key=lambda row: row[0])[:k] for rows in supports]
        sums = [sum((row / row.norm() for _, row in rows), torch.zeros_like(g[0])) for rows in supports]
        answers.append(torch.stack([g @ (c / c.norm() if c.norm() > 0 else c) for c in sums], 1))
    return answers


@pytest.mark.parametrize(("filter_k", "k"), [(2, 2), (-1, None)])
def test_t3a_equals_a_naive_version_and_minus_one_keeps_every_support(filter_k: int, k: int | None) -> None:
    adapter = ctta.T3A(net(), filter_k=filter_k)
    for x, expected in zip(stream(), naive_t3a(k), strict=False):
        torch.testing.assert_close(adapter(x), expected, rtol=0, atol=1e-9)
    assert filter_k > 0 or len(adapter.supports) == 10 + 3 * 16


def test_t3a_keeps_at_least_one_support_per_class() -> None:
    with pytest.raises(ParameterError, match="filter_k"):
        ctta.T3A(net(), filter_k=0)


class ConvHead(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.body = bn_cnn().body
        self.head = nn.Conv2d(32, 10, 1)
        self.pool = nn.AdaptiveAvgPool2d(1)

    def forward(self, x: Tensor) -> Tensor:
        return self.pool(self.head(self.body(x))).flatten(1)


def test_frozen_t3a_has_the_centroids_as_its_head_also_if_that_is_a_convolution() -> None:
    x = torch.rand(8, 3, 16, 16, generator=torch.Generator().manual_seed(4))
    adapter = ctta.T3A(ConvHead().eval())
    adapter(x)
    state = torch.get_rng_state()
    frozen = adapter.freeze()
    assert torch.equal(torch.get_rng_state(), state)
    torch.testing.assert_close(frozen(x), adapter.predict(x), rtol=0, atol=1e-5)
    assert adapter.student.head.bias is not None
