"""Classifier finds the linear head of a model, exposes its parts, and refuses layers that are not a head."""

from __future__ import annotations

import copy
from types import SimpleNamespace

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.nn.utils.parametrizations import weight_norm

from ctta import DMSE, Classifier, Tent
from ctta.errors import HeadNotFound, ImageShape, ParameterError, SharedHead
from head_models import (
    Answering,
    Body,
    C,
    D,
    Declared,
    HeadFirst,
    Hidden,
    Net,
    SqueezeLike,
    conv_head_after_pooling,
    conv_head_before_pooling,
)


@pytest.fixture(autouse=True)
def _seeded():
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        yield


@pytest.fixture
def x() -> Tensor:
    return torch.rand(4, 3, 9, 9, generator=torch.Generator().manual_seed(1))


FOUND = {
    "attribute": (Net, "fc"),
    "hidden layer before it": (Hidden, "fc"),
    "inside Sequential": (lambda: nn.Sequential(Body(), nn.Dropout(), nn.Linear(D, C)), "2"),
    "nested Sequential": (lambda: Net(nn.Sequential(nn.Linear(D, D), nn.ReLU(), nn.Linear(D, C))), "fc.2"),
    "get_classifier": (Declared, "fc"),
    "1x1 conv after pooling": (conv_head_after_pooling, "4"),
    "1x1 conv before pooling": (conv_head_before_pooling, "4"),
    "no bias": (lambda: Net(nn.Linear(D, C, bias=False)), "fc"),
    "weight norm": (lambda: Net(weight_norm(nn.Linear(D, C))), "fc"),
    "logits in an object": (lambda: Answering(lambda logits: SimpleNamespace(logits=logits)), "fc"),
    "logits in a dict": (lambda: Answering(lambda logits: {"logits": logits}), "fc"),
}


@pytest.fixture(params=FOUND)
def found(request) -> tuple[Classifier, str]:
    build, name = FOUND[request.param]
    return Classifier(build().eval()), name


def test_head_is_found(found) -> None:
    classifier, name = found
    assert classifier.head_name == name
    assert (classifier.num_classes, classifier.num_features) == (C, D)


def test_features_are_what_the_head_turns_into_logits(found, x) -> None:
    classifier, _ = found
    logits, g = classifier.with_features(x)
    assert g.shape == (len(x), D)
    bias = classifier.head.bias
    torch.testing.assert_close(F.linear(g, classifier.weight, bias), logits)
    torch.testing.assert_close(logits, classifier(x), rtol=0, atol=0)


def test_copy_captures_for_itself(found, x) -> None:
    classifier, _ = found
    expected = classifier.with_features(x)[1]
    twin = copy.deepcopy(classifier)
    with torch.no_grad():
        for p in classifier.parameters():
            p.zero_()
    torch.testing.assert_close(twin.with_features(x)[1], expected, rtol=0, atol=0)
    assert not torch.equal(classifier.with_features(x)[1], expected)


def test_double_gives_double_features(found, x) -> None:
    classifier, _ = found
    single = classifier.with_features(x)[1]
    g = classifier.double().with_features(x.double())[1]
    assert g.dtype == torch.float64
    torch.testing.assert_close(g.float(), single)


def test_state_of_one_classifier_loads_into_another(found, x) -> None:
    classifier, _ = found
    other = copy.deepcopy(classifier)
    with torch.no_grad():
        for p in other.parameters():
            p.add_(1)
    other.load_state_dict(classifier.state_dict())
    torch.testing.assert_close(other.with_features(x), classifier.with_features(x), rtol=0, atol=0)


def test_features_carry_the_gradient(x) -> None:
    classifier = Classifier(Net().eval())
    classifier.with_features(x)[1].sum().backward()
    assert classifier.model.body[0].weight.grad.abs().sum() > 0


@pytest.mark.parametrize("name", ["hidden", "fc"])
def test_named_head_is_taken(name, x) -> None:
    classifier = Classifier(Hidden().eval(), head=name)
    assert classifier.head_name == name
    seen = []
    classifier.head.register_forward_pre_hook(lambda module, args: seen.append(args[0]))
    _, g = classifier.with_features(x)
    torch.testing.assert_close(g, seen[0], rtol=0, atol=0)


@pytest.mark.parametrize(("name", "words"), [("fcc", "no such layer"), ("body.0", "Conv2d"), ("body", "Body")])
def test_wrong_name_says_what_is_there(name, words) -> None:
    with pytest.raises(HeadNotFound, match=words) as caught:
        Classifier(Hidden(), head=name)
    assert "hidden, fc" in str(caught.value) or "fc, hidden" in str(caught.value)


def test_model_without_a_head_serves_a_method_that_needs_none(x) -> None:
    classifier = Classifier(SqueezeLike())
    assert classifier.head_name is None
    with pytest.raises(HeadNotFound, match="SqueezeLike"):
        DMSE(classifier)
    assert Tent(classifier)(x).shape == (len(x), C)


def test_head_used_twice_is_refused(x) -> None:
    class Twice(Net):
        def forward(self, x: Tensor) -> Tensor:
            g = self.body(x)
            return self.fc(g) + self.fc(g.flip(1))

    classifier = Classifier(Twice().eval())
    assert classifier(x).shape == (len(x), C)
    with pytest.raises(SharedHead, match="2 times"):
        classifier.with_features(x)


def test_head_never_used_is_refused(x) -> None:
    class Unused(Net):
        def forward(self, x: Tensor) -> Tensor:
            return self.body(x)[:, :C]

    with pytest.raises(SharedHead, match="never uses"):
        Classifier(Unused().eval()).with_features(x)


class Tied(Hidden):
    def __init__(self) -> None:
        super().__init__()
        self.fc = nn.Linear(D, D)
        self.hidden.weight = self.fc.weight


def test_a_tied_head_is_refused_by_name() -> None:
    with pytest.raises(SharedHead, match="hidden"):
        Classifier(Tied(), head="fc")


def test_a_tied_head_that_nobody_named_is_refused_only_where_features_are_needed(x) -> None:
    net = Tied().eval()
    classifier = Classifier(net)
    assert torch.equal(classifier(x), net(x))
    with pytest.raises(SharedHead, match="hidden"):
        classifier.with_features(x)


def test_wrongly_guessed_head_is_caught_at_first_use(x) -> None:
    classifier = Classifier(HeadFirst().eval())
    assert classifier.head_name == "hidden"
    with pytest.raises(HeadNotFound, match=r"hidden.*Name the layer"):
        classifier.with_features(x)
    logits, g = Classifier(HeadFirst().eval(), head="fc").with_features(x)
    assert (logits.shape, g.shape) == ((len(x), C), (len(x), D))


def test_guessed_head_whose_output_is_changed_afterwards_is_caught(x) -> None:
    class Scaled(Net):
        def forward(self, x: Tensor) -> Tensor:
            return 3 * super().forward(x) + 1

    with pytest.raises(HeadNotFound, match="not the model's logits"):
        Classifier(Scaled().eval()).with_features(x)


def test_head_given_a_vector_per_position_is_refused(x) -> None:
    class Dense(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.conv, self.fc = nn.Conv2d(3, D, 3), nn.Linear(D, C)

        def forward(self, x: Tensor) -> Tensor:
            return self.fc(self.conv(x).flatten(2).mT).mean(1)

    with pytest.raises(HeadNotFound, match="one feature vector per image"):
        Classifier(Dense()).with_features(x)


def test_output_without_logits_is_refused(x) -> None:
    with pytest.raises(HeadNotFound, match="tuple"):
        Classifier(Answering(lambda logits: (logits,)))(x)


def test_mean_and_std_normalise_by_channel(x) -> None:
    net = Net().eval()
    mean, std = (0.1, 0.2, 0.3), (0.5, 0.6, 0.7)
    by_hand = torch.stack([(x[:, c] - mean[c]) / std[c] for c in range(3)], dim=1)
    torch.testing.assert_close(Classifier(net, mean=mean, std=std)(x), net(by_hand))


@pytest.mark.parametrize("arguments", [{"mean": (0, 0, 0)}, {"std": (1, 1, 1)}])
def test_mean_without_std_is_refused(arguments) -> None:
    with pytest.raises(ParameterError, match="both mean and std"):
        Classifier(Net(), **arguments)


def test_std_of_zero_is_refused() -> None:
    with pytest.raises(ParameterError, match="above 0"):
        Classifier(Net(), mean=(0, 0, 0), std=(1, 0, 1))


def test_mean_and_std_follow_a_change_of_type(x) -> None:
    classifier = Classifier(Net().eval(), mean=(0.1, 0.2, 0.3), std=(0.5, 0.6, 0.7))
    single = classifier(x)
    double = classifier.double()(x.double())
    assert double.dtype == torch.float64
    torch.testing.assert_close(double.float(), single)


def test_bf16_pass_gives_float32_logits_and_features(x) -> None:
    classifier = Classifier(Net().eval())
    expected = classifier(x)
    classifier.precision = "bf16"
    logits, g = classifier.with_features(x)
    assert logits.dtype == g.dtype == torch.float32
    assert not torch.equal(logits, expected)
    torch.testing.assert_close(logits, expected, rtol=0.1, atol=0.05)


def test_grey_images_are_refused_where_mean_and_std_have_three_channels() -> None:
    classifier = Classifier(nn.Conv2d(3, 5, 1), mean=(0.5,) * 3, std=(0.2,) * 3)
    with pytest.raises(ImageShape, match="3 channels of mean and std"):
        classifier(torch.rand(2, 1, 8, 8))


@pytest.mark.parametrize(
    ("mean", "std"),
    [
        ((0.5,) * 3, (0.2,)),
        ((0.5,), (0.2,) * 3),
        ((), ()),
        (0.5, 0.2),
        ("abc", (1.0,) * 3),
        ((float("nan"),) * 3, (1.0,) * 3),
    ],
)
def test_mean_and_std_that_do_not_fit_are_refused(mean, std) -> None:
    with pytest.raises(ParameterError, match="Classifier needs"):
        Classifier(Net(), mean=mean, std=std)


def test_a_head_may_be_called_by_keyword(x) -> None:
    class ByKeyword(Net):
        def forward(self, x):
            return self.fc(input=self.body(x))

    net = ByKeyword().eval()
    _, features = Classifier(net).with_features(x)
    torch.testing.assert_close(features, net.body(x))


def test_a_bfloat16_network_takes_normalised_images_and_its_logits_are_single_precision() -> None:
    net = nn.Sequential(nn.Flatten(), nn.Linear(12, 5)).bfloat16()
    logits = Classifier(net, mean=(0.5,) * 3, std=(0.2,) * 3)(torch.rand(2, 3, 2, 2).bfloat16())
    assert logits.dtype is torch.float32
