"""ctta.adapt and the recommendation behind it."""

from __future__ import annotations

import logging
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn

import ctta
from ctta.doctor import examine
from ctta.errors import MethodMismatch, ParameterError
from ctta.recommend import recommend
from ctta.testing.models import bn_cnn, ln_vit
from ctta.testing.task import drifting_images


class NoHead(nn.Module):
    """A network whose logits are the mean of a convolution: it has norm layers, but no linear head."""

    def __init__(self) -> None:
        super().__init__()
        self.norm, self.conv = nn.BatchNorm2d(3), nn.Conv2d(3, 10, 3)

    def forward(self, x: Tensor) -> Tensor:
        return self.conv(self.norm(x)).mean((2, 3))


@pytest.mark.parametrize("build", [bn_cnn, ln_vit])
@pytest.mark.parametrize("images", [1, 8])
def test_one_call_gives_an_adapter_that_predicts_and_learns_from_batches_of_any_size(build, images: int) -> None:  # type: ignore[no-untyped-def]
    net = build()
    before = {name: value.clone() for name, value in net.state_dict().items()}
    model = ctta.adapt(net)
    x = drifting_images(images)
    assert model(x).shape == (images, 10) and model.steps == 1
    assert isinstance(model, ctta.Guarded) and isinstance(model.inner, ctta.Trio)
    assert all(torch.equal(value, before[name]) for name, value in net.state_dict().items())


def test_mean_and_std_are_those_of_the_classifier() -> None:
    mean, std = [0.5, 0.4, 0.3], [0.2, 0.25, 0.3]
    net, x = bn_cnn(), drifting_images(4)
    expected = ctta.Guarded(ctta.Trio(ctta.Classifier(net, mean=mean, std=std)))(x)
    assert torch.equal(ctta.adapt(net, mean=mean, std=std)(x), expected)
    with pytest.raises(ParameterError, match="already has its mean and std"):
        ctta.adapt(ctta.Classifier(net, mean=mean, std=std), mean=mean, std=std)


def test_every_choice_can_be_overridden() -> None:
    model = ctta.adapt(bn_cnn(), guard=False, mirror=False, statistics="prior:16", lr=1e-4)
    assert isinstance(model, ctta.Trio)
    assert (model.mirror, model.statistics, model.lr) == (False, "prior:16", 1e-4)
    assert isinstance(ctta.adapt(bn_cnn(), method="bn"), ctta.BN)  # nothing to guard: it does not learn
    with pytest.raises(TypeError, match=r"'mirrow' is not a known argument\. Did you mean 'mirror'\?"):
        ctta.adapt(bn_cnn(), mirrow=False)


def test_another_method_gets_statistics_that_work_with_single_images() -> None:
    model = ctta.adapt(bn_cnn(), method="tent", guard=False)
    assert isinstance(model, ctta.Tent) and model.statistics == "auto:0.45"
    assert model(drifting_images(1)).shape == (1, 10)
    as_published = ctta.adapt(bn_cnn(), method="tent", guard=False, statistics="batch")
    assert isinstance(as_published, ctta.Tent) and as_published.statistics == ctta.Tent(bn_cnn()).statistics
    assert recommend(ln_vit(), "tent").arguments == {"lr": 1e-4}
    assert recommend(bn_cnn(), "rotta").arguments == {}  # it has statistics of its own


def test_an_adapter_is_not_adapted_again() -> None:
    with pytest.raises(ParameterError, match="Guarded is an adapter already"):
        ctta.adapt(ctta.adapt(bn_cnn(), mirror=True))


def test_that_images_are_mirrored_is_a_warning_unless_it_was_decided(caplog: pytest.LogCaptureFixture) -> None:
    ctta.adapt(bn_cnn(), mirror=False)
    ctta.adapt(bn_cnn(), method="tent")
    assert not caplog.records
    ctta.adapt(bn_cnn())
    (record,) = caplog.records
    assert record.levelno == logging.WARNING and "pass mirror=False" in record.getMessage()


def test_what_it_saves_is_loaded_as_any_adapter_is(tmp_path: Path) -> None:
    mean, std, x = [0.5] * 3, [0.25] * 3, drifting_images(4)
    model = ctta.adapt(bn_cnn(), mean=mean, std=std, mirror=False)
    model(x)
    model.save(tmp_path / "adapter.ctta")
    loaded = ctta.Adapter.load(tmp_path / "adapter.ctta", ctta.Classifier(bn_cnn(), mean=mean, std=std))
    assert isinstance(loaded, ctta.Guarded) and isinstance(loaded.inner, ctta.Trio)
    assert torch.equal(loaded(x), model(x))
    with pytest.raises(MethodMismatch, match=r"state of Guarded, not of Trio. Use Guarded.load or Adapter.load"):
        ctta.Trio.load(tmp_path / "adapter.ctta", bn_cnn())


def test_a_network_without_a_linear_head_gets_a_method_that_needs_none() -> None:
    advice = recommend(NoHead())
    assert advice.method == "tent" and "Classifier(net, head=...)" in advice.reasons["method"]
    model = ctta.adapt(NoHead(), guard=False)
    assert isinstance(model, ctta.Tent) and model.statistics == "auto:0.45"
    with pytest.raises(TypeError, match=r"'mirror' is not a known argument.* The method is Tent, because no linear"):
        ctta.adapt(NoHead(), mirror=False)


def test_a_network_without_batch_norm_learns_carefully() -> None:
    assert recommend(bn_cnn()).arguments == {}
    plain = nn.Sequential(nn.Flatten(), nn.Linear(768, 16), nn.ReLU(), nn.Linear(16, 10))
    assert recommend(ln_vit()).arguments == recommend(plain).arguments == {"lr": 1e-4}
    assert "Only the norm layers learn" in recommend(ln_vit()).reasons["learns_from"]
    model = ctta.adapt(ln_vit(), guard=False, lr=1e-3, mirror=True)
    assert isinstance(model, ctta.Trio) and model.lr == 1e-3


@pytest.mark.parametrize("norm", [nn.Identity(), nn.InstanceNorm2d(4), nn.GroupNorm(2, 4, affine=False)])
def test_what_is_said_to_learn_is_what_learns_where_no_norm_layer_has_weights(norm: nn.Module) -> None:
    net = nn.Sequential(nn.Conv2d(3, 4, 3), norm, nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(4, 10))
    advice = recommend(net)
    assert (advice.method, advice.arguments) == ("trio", {"lr": 1e-4})
    assert "not measured" in advice.reasons["method"] and "All parameters learn" in advice.reasons["learns_from"]
    model = ctta.adapt(net, guard=False, mirror=True)
    learnt = {id(parameter) for parameter in model.trained}
    assert {id(parameter) for parameter in model.student.parameters()} <= learnt


def test_the_log_says_why(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO, logger="ctta"):
        ctta.adapt(bn_cnn())
    for expected in ("Trio", 'statistics="auto"', "mirror=False", "fp32", "No window", "guard=False"):
        assert expected in caplog.text


def test_the_log_does_not_explain_what_was_overridden(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO, logger="ctta"):
        ctta.adapt(bn_cnn(), statistics="prior:16", window=4, mirror=True, guard=False)
        ctta.adapt(ln_vit(), learns_from="all", lr=1e-3, window=4, mirror=True, guard=False)
    reasons = ("auto", "norm layers learn", "no batch norm", "mirrored", "No window")
    assert all(reason not in caplog.text for reason in reasons)


def test_the_doctor_says_why_it_recommends_nothing() -> None:
    no_head_no_norm = nn.Sequential(nn.Conv2d(3, 10, 16), nn.Flatten())
    diagnosis = examine(no_head_no_norm, among={"source": ctta.Source})
    assert diagnosis.recommended is None and "HeadNotFound" in (diagnosis.not_recommended or "")
    assert examine(bn_cnn(), among={"source": ctta.Source}).not_recommended is None


def test_the_doctor_gives_the_same_recommendation_with_the_time_of_a_step() -> None:
    diagnosis = examine(bn_cnn(), image_size=16, among={"trio": ctta.Trio})
    assert diagnosis.recommended == recommend(bn_cnn())
    assert set(diagnosis.seconds) == {1, 16} and all(taken > 0 for taken in diagnosis.seconds.values())
    assert examine(bn_cnn(), among={"trio": ctta.Trio}).seconds == {}


@pytest.mark.parametrize("given", [{"mean": [0.5] * 3}, {"std": [0.2] * 3}])
def test_the_normalisation_of_a_classifier_is_not_given_twice(given: dict[str, list[float]]) -> None:
    with pytest.raises(ParameterError, match="already has its mean and std"):
        ctta.adapt(ctta.Classifier(bn_cnn()), **given)  # type: ignore[arg-type]
