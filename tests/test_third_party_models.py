"""Models of transformers, torchvision and timm work unchanged: ctta has no special case for them."""

from __future__ import annotations

import copy
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache, partial

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

import ctta
from ctta.norms import batch_norms, norm_affine, norm_layers
from ctta.testing import Subject, checks
from ctta.testing.contract import Check
from third_party import third_party

pytestmark = pytest.mark.models


@dataclass(frozen=True)
class Case:
    """How a model is built, and the facts about it that a reader can count in its definition."""

    build: Callable[[], nn.Module]
    head: str
    features: int
    norms: int
    has_batch_norm: bool = False
    classes: int = 10


def transformers_resnet() -> nn.Module:
    library = third_party("transformers")
    sizes = {"embedding_size": 8, "hidden_sizes": [8, 16], "depths": [1, 1]}
    return library.ResNetForImageClassification(library.ResNetConfig(**sizes, layer_type="basic", num_labels=10))


def transformers_vit() -> nn.Module:
    library = third_party("transformers")
    width = {"hidden_size": 24, "intermediate_size": 48, "num_hidden_layers": 2, "num_attention_heads": 2}
    return library.ViTForImageClassification(library.ViTConfig(**width, image_size=32, patch_size=8, num_labels=10))


def transformers_convnext() -> nn.Module:
    library = third_party("transformers")
    sizes = {"hidden_sizes": [8, 16], "depths": [1, 1], "num_stages": 2}
    return library.ConvNextForImageClassification(library.ConvNextConfig(**sizes, num_labels=10))


def torchvision_model(name: str, **arguments: object) -> nn.Module:
    return getattr(third_party("torchvision.models"), name)(**arguments)


def timm_model(name: str, **arguments: object) -> nn.Module:
    return third_party("timm").create_model(name, num_classes=10, **arguments)


SMALL_VIT = {"image_size": 32, "patch_size": 8, "num_layers": 2, "num_heads": 2, "hidden_dim": 24, "mlp_dim": 48}

CASES = {
    # stem 1, two convolutions per layer and, where the shape changes, a shortcut
    "transformers resnet": Case(transformers_resnet, "classifier.1", 16, 6, has_batch_norm=True),
    # two per block and one at the end
    "transformers vit": Case(transformers_vit, "classifier", 24, 5),
    # stem 1, one per layer, one before the second stage, one at the end
    "transformers convnext": Case(transformers_convnext, "classifier", 16, 5),
    "torchvision resnet18": Case(
        partial(torchvision_model, "resnet18", num_classes=10), "fc", 512, 20, has_batch_norm=True
    ),
    "torchvision small vit": Case(
        partial(torchvision_model, "VisionTransformer", num_classes=10, **SMALL_VIT), "heads.head", 24, 5
    ),
    # stem 1, 18 blocks, 3 downsamplings, 1 in the classifier
    "torchvision convnext_tiny": Case(
        partial(torchvision_model, "convnext_tiny", num_classes=10), "classifier.2", 768, 23
    ),
    "timm resnet18": Case(partial(timm_model, "resnet18"), "fc", 512, 20, has_batch_norm=True),
    # two in each of 12 blocks and one at the end
    "timm vit_tiny": Case(partial(timm_model, "vit_tiny_patch16_224", img_size=32), "head", 192, 25),
    # stem 1, three in each of 16 blocks, 4 shortcuts
    "timm resnet50_gn": Case(partial(timm_model, "resnet50_gn"), "fc", 2048, 53),
}


@cache
def _built(name: str) -> nn.Module:
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        model = CASES[name].build().eval()
        head = model.get_submodule(CASES[name].head)
        # Some libraries start the head at zero, which would make every comparison of logits vacuous.
        nn.init.normal_(head.weight, std=0.1)
        nn.init.normal_(head.bias, std=0.1)
    return model


@pytest.fixture(params=CASES)
def case(request) -> tuple[Case, nn.Module]:
    return CASES[request.param], copy.deepcopy(_built(request.param))


def images(count: int) -> Tensor:
    return torch.rand(count, 3, 32, 32, generator=torch.Generator().manual_seed(1))


def test_head_is_found_and_features_make_the_logits(case) -> None:
    facts, model = case
    classifier, x = ctta.Classifier(model), images(2)
    assert classifier.head_name == facts.head
    assert (classifier.num_classes, classifier.num_features) == (facts.classes, facts.features)
    output = model(x)
    logits, g = classifier.with_features(x)
    assert torch.equal(logits, output if isinstance(output, Tensor) else output.logits)
    assert logits.abs().max() > 0.01
    torch.testing.assert_close(F.linear(g, classifier.weight, classifier.head.bias), logits, rtol=1e-4, atol=1e-5)


def test_norm_layers_are_found(case) -> None:
    facts, model = case
    assert len(norm_layers(model)) == facts.norms
    assert len(norm_affine(model)) == 2 * facts.norms
    assert len(batch_norms(model)) == (facts.norms if facts.has_batch_norm else 0)
    assert ctta.Tent(model).smallest_batch == (2 if facts.has_batch_norm else 1)


def test_copy_captures_for_itself_and_double_and_state_round_trip(case) -> None:
    _, model = case
    classifier, x = ctta.Classifier(model), images(2)
    expected = classifier.with_features(x)
    twin = copy.deepcopy(classifier)
    with torch.no_grad():
        for p in classifier.parameters():
            p.mul_(0.5)
    assert torch.equal(twin.with_features(x)[1], expected[1])
    assert not torch.equal(classifier.with_features(x)[1], expected[1])
    classifier.load_state_dict(twin.state_dict())
    assert torch.equal(classifier.with_features(x)[1], expected[1])
    logits, g = twin.double().with_features(x.double())
    assert logits.dtype == g.dtype == torch.float64
    torch.testing.assert_close(logits.float(), expected[0], rtol=1e-3, atol=1e-4)


@pytest.mark.parametrize("method", ["tent", "dmse"])
def test_method_takes_a_step(case, method) -> None:
    facts, model = case
    adapter = ctta.method(method)(model)
    before = [p.detach().clone() for p in adapter.trained]
    step = adapter.step(images(4))
    assert step.logits.shape == (4, facts.classes)
    assert step.logits.isfinite().all()
    assert adapter.skipped == 0
    assert any(not torch.equal(a, b) for a, b in zip(before, adapter.trained, strict=True))
    assert adapter.predict(images(2)).isfinite().all()


def test_real_vit_b_16_has_its_head_found() -> None:
    classifier = ctta.Classifier(torchvision_model("vit_b_16").eval())
    assert classifier.head_name == "heads.head"
    assert (classifier.num_classes, classifier.num_features) == (1000, 768)
    # Two in each of 12 blocks and one at the end.
    assert len(norm_layers(classifier)) == 25


# Points whose subject is the method alone, or which bring their own models.
ELSEWHERE = {"any_norm", "memory_is_flat", "every_argument_counts", "clean_stream"}


@pytest.mark.parametrize("method", ["tent", "dmse"])
@pytest.mark.parametrize("name", ["transformers resnet", "transformers vit"])
@pytest.mark.parametrize("check", [pytest.param(c, id=n) for n, c in checks() if n not in ELSEWHERE])
def test_contract_holds_on_a_model_of_transformers(method: str, name: str, check: Check) -> None:
    check(Subject(ctta.method(method), partial(_built, name), images(40)))
