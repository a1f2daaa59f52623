"""The small vision transformer: the published computation, with layer norm only, found by doctor and last stage."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn
from torch.nn.functional import gelu, layer_norm

import ctta
from ctta._adapter.last_stage import last_stage_norms
from ctta.doctor import examine
from ctta.errors import ParameterError
from ctta.nets.vit import CifarViT
from ctta.norms import norm_layers


def images(count: int = 3, side: int = 32) -> Tensor:
    return torch.randn(count, 3, side, side, generator=torch.Generator().manual_seed(1), dtype=torch.float64)


def vit(**options: int) -> CifarViT:
    torch.manual_seed(0)
    net = CifarViT(2, 5, **({"width": 12, "heads": 3, "hidden": 20, "stem": 4} | options)).double()
    for parameter in net.parameters():  # the norms start as the identity, which would hide mistakes
        nn.init.normal_(parameter, std=0.3)
    return net


def by_hand(net: CifarViT, image: Tensor, heads: int) -> Tensor:
    """The logits of one image, token by token and head by head."""
    weights = dict(net.named_parameters())

    def linear(name: str, x: Tensor) -> Tensor:
        return x @ weights[f"{name}.weight"].T + weights[f"{name}.bias"]

    def norm(name: str, x: Tensor) -> Tensor:
        return layer_norm(x, x.shape[-1:], weights[f"{name}.weight"], weights[f"{name}.bias"])

    maps = net.patch_embed(image[None])[0] + net.pos_embed[0]
    tokens = torch.stack([maps[:, row, column] for row in range(maps.shape[1]) for column in range(maps.shape[2])])
    for block in range(len(net.blocks)):
        name = f"blocks.{block}"
        qkv = linear(f"{name}.attn.qkv", norm(f"{name}.norm1", tokens))
        mixed = []
        for q, k, v in zip(*(part.chunk(heads, 1) for part in qkv.chunk(3, 1)), strict=True):
            rows = [torch.softmax((query * k).sum(1) / q.shape[1] ** 0.5, 0) for query in q]
            mixed.append(torch.stack([(row[:, None] * v).sum(0) for row in rows]))
        tokens = tokens + linear(f"{name}.attn.proj", torch.cat(mixed, 1))
        tokens = tokens + linear(f"{name}.mlp.2", gelu(linear(f"{name}.mlp.0", norm(f"{name}.norm2", tokens))))
    return linear("head", norm("norm", tokens).mean(0))


@torch.no_grad()
def test_logits_are_those_of_a_computation_token_by_token() -> None:
    net, x = vit(), images()
    expected = torch.stack([by_hand(net, image, heads=3) for image in x])
    torch.testing.assert_close(net(x), expected, rtol=1e-9, atol=1e-9)


@torch.no_grad()
def test_the_embedding_of_a_place_is_stretched_over_images_of_another_size() -> None:
    net = vit()
    constant = net.pos_embed.mean((2, 3), keepdim=True)
    net.pos_embed.copy_(constant.expand_as(net.pos_embed))
    small = images(side=24)
    tokens = net.blocks((net.patch_embed(small) + constant).flatten(2).mT)
    torch.testing.assert_close(net(small), net.head(net.norm(tokens).mean(1)))
    net.pos_embed[0, 0, :, 0] += 1  # the place of a token matters in small images too
    assert not torch.allclose(net(small), net.head(net.norm(tokens).mean(1)))


@torch.no_grad()
def test_a_prediction_does_not_depend_on_the_other_images() -> None:
    net, x = vit(), images(6)
    torch.testing.assert_close(net(x)[:1], net(x[:1]), rtol=1e-9, atol=1e-9)


def test_every_norm_is_a_layer_norm_and_the_last_of_four_blocks_is_the_last_stage() -> None:
    net = CifarViT(4, 10)
    assert {type(layer) for layer in norm_layers(net).values()} == {nn.LayerNorm}
    assert list(last_stage_norms(net)) == ["blocks.3.norm1", "blocks.3.norm2", "norm"]


def test_doctor_finds_the_head_and_methods_of_batch_norm_refuse() -> None:
    among = {name: ctta.get_method(name) for name in ("tent", "sar", "t3a", "bn")}
    diagnosis = examine(CifarViT(4, 10), image_size=32, among=among)
    reports = {report.name: report for report in diagnosis.methods}
    assert (diagnosis.head, diagnosis.num_classes, diagnosis.num_features) == ("head", 10, 128)
    assert diagnosis.norms == {"LayerNorm": 9}
    assert {name for name, report in reports.items() if report.refusal} == {"bn"}
    assert reports["tent"].trained == 9 * 2 * 128 and reports["sar"].trained == 6 * 2 * 128


@pytest.mark.parametrize("options", [{"heads": 5}, {"depth": 0}])
def test_sizes_that_do_not_fit_are_refused(options: dict[str, int]) -> None:
    with pytest.raises(ParameterError, match=next(iter(options))):
        CifarViT(options.pop("depth", 2), 10, **options)
