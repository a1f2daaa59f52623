"""Models of transformers and torchvision whose state or last stage used to be read incorrectly."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from ctta._adapter.last_stage import last_stage_norms
from ctta.norms import norm_layers
from model_sweep import goes_on
from third_party import third_party

pytestmark = pytest.mark.models

TOWER = {
    "hidden_size": 24,
    "intermediate_size": 48,
    "num_hidden_layers": 4,
    "num_attention_heads": 2,
    "image_size": 32,
    "patch_size": 8,
}


def swin() -> nn.Module:
    library = third_party("transformers")
    sizes = {"image_size": 32, "patch_size": 2, "embed_dim": 8, "depths": [1] * 4, "num_heads": [1] * 4}
    return library.SwinForImageClassification(library.SwinConfig(**sizes, window_size=2, num_labels=10))


def vision_tower(kind: str) -> nn.Module:
    library = third_party("transformers")
    config = getattr(library, f"{kind}Config")(vision_config=TOWER, num_labels=10)
    return getattr(library, f"{kind}ForImageClassification")(config)


def clip() -> nn.Module:
    return vision_tower("CLIP")


def siglip() -> nn.Module:
    return vision_tower("Siglip")


def torchvision_swin() -> nn.Module:
    sizes = {"patch_size": [2, 2], "embed_dim": 8, "depths": [1] * 4, "num_heads": [1] * 4, "window_size": [2, 2]}
    return third_party("torchvision.models").SwinTransformer(**sizes, num_classes=10)


@pytest.mark.parametrize("method", ["dmse", "sar"])
@pytest.mark.parametrize("model", [swin, clip, siglip, torchvision_swin])
def test_a_model_is_adapted_saved_and_continued_with_equal_bits(
    model: Callable[[], nn.Module], method: str, tmp_path: Path
) -> None:
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        built = model().eval()
    goes_on(method, built, 32, tmp_path)


def of_timm(name: str) -> Callable[[], nn.Module]:
    return lambda: third_party("timm").create_model(name)


def of_torchvision(name: str) -> Callable[[], nn.Module]:
    def build() -> nn.Module:
        return getattr(third_party("torchvision.models"), name)()

    return build


def of_transformers(name: str) -> Callable[[], nn.Module]:
    def build() -> Any:
        library = third_party("transformers")
        return getattr(library, f"{name}ForImageClassification")(getattr(library, f"{name}Config")())

    return build


# What the last stage of each network is called: a stage, or three of twelve blocks, and the norm that follows.
LAST_STAGE: dict[str, tuple[Callable[[], nn.Module], tuple[str, ...]]] = {
    # The networks of SAR and DeYO, with the published choice.
    "timm resnet50": (of_timm("resnet50"), ("layer4.",)),
    "timm resnet50_gn": (of_timm("resnet50_gn"), ("layer4.",)),
    "timm vit_base": (of_timm("vit_base_patch16_224"), ("blocks.9.", "blocks.10.", "blocks.11.", "norm")),
    "torchvision resnet50": (of_torchvision("resnet50"), ("layer4.",)),
    # Others, whose names are not in the published list.
    "torchvision vit_b_16": (
        of_torchvision("vit_b_16"),
        (*(f"encoder.layers.encoder_layer_{block}." for block in (9, 10, 11)), "encoder.ln"),
    ),
    "torchvision swin_t": (of_torchvision("swin_t"), ("features.6.", "features.7.", "norm")),
    "torchvision convnext_tiny": (of_torchvision("convnext_tiny"), ("features.6.", "features.7.", "classifier.0")),
    "timm swin_tiny": (of_timm("swin_tiny_patch4_window7_224"), ("layers.3.", "norm")),
    "timm convnext_tiny": (of_timm("convnext_tiny"), ("stages.3.", "head.norm")),
    "timm tiny_vit, 21,841 classes": (of_timm("tiny_vit_5m_224"), ("stages.3.", "head.norm")),
    "timm hybrid vit": (of_timm("vit_small_r26_s32_224"), ("blocks.9.", "blocks.10.", "blocks.11.", "norm")),
    "transformers vit": (
        of_transformers("ViT"),
        (*(f"vit.layers.{block}." for block in (9, 10, 11)), "vit.layernorm"),
    ),
    "transformers swin": (of_transformers("Swin"), ("swin.encoder.layers.3.", "swin.layernorm")),
    "transformers convnext": (of_transformers("ConvNext"), ("convnext.encoder.stages.3.", "convnext.layernorm")),
    "transformers resnet": (of_transformers("ResNet"), ("resnet.encoder.stages.3.",)),
}


@pytest.mark.parametrize("name", LAST_STAGE)
def test_the_last_stage_is_found(name: str) -> None:
    build, parts = LAST_STAGE[name]
    with torch.device("meta"):
        model = build()
    expected = [
        layer for layer in norm_layers(model) if any(f"{layer}.".startswith(f"{part.rstrip('.')}.") for part in parts)
    ]
    assert expected and list(last_stage_norms(model)) == expected
