"""A value that a model computes from its weights and caches is dropped when the weights change."""

from __future__ import annotations

import copy

import torch
from torch import Tensor, nn

import ctta
from ctta._system.module_caches import drop_caches
from ctta.testing.families import cached_tensors
from ctta.testing.task import drifting_images


def test_a_classifier_answers_with_the_present_weights() -> None:
    classifier, fresh, x = ctta.Classifier(cached_tensors()), cached_tensors(), drifting_images(4)
    before = classifier(x)
    with torch.no_grad():
        classifier.model.bias.add_(1)
        fresh.bias.add_(1)
    assert torch.equal(classifier(x), fresh(x)) and not torch.equal(classifier(x), before)


def test_a_net_that_was_used_with_gradients_can_be_wrapped() -> None:
    net, x = cached_tensors(), drifting_images(4)
    expected = net(x)
    assert net.cache["bias"].grad_fn is not None
    assert torch.equal(copy.deepcopy(ctta.Classifier(net))(x), expected)


def test_a_module_that_was_added_before_an_adapter_was_built_is_noticed() -> None:
    classifier, x = ctta.Classifier(nn.Sequential(cached_tensors())), drifting_images(4)
    classifier.model[0] = cached_tensors()
    copied, fresh = copy.deepcopy(classifier), cached_tensors()
    copied(x)
    with torch.no_grad():
        copied.model[0].bias.add_(1)
        fresh.bias.add_(1)
    assert torch.equal(copied(x), fresh(x))


def test_another_model_takes_the_place_of_the_first() -> None:
    classifier, fresh, x = ctta.Classifier(nn.Flatten()), cached_tensors(), drifting_images(4)
    classifier.model = cached_tensors()
    classifier(x)
    with torch.no_grad():
        classifier.model.bias.add_(1)
        fresh.bias.add_(1)
    assert torch.equal(classifier(x), fresh(x))


def test_a_method_that_trains_the_cached_parameter_takes_many_steps() -> None:
    adapter = ctta.DMSE(cached_tensors())
    start = adapter.student.model.bias.detach().clone()
    for x in drifting_images(24).split(8):
        adapter.step(x)
    assert adapter.steps == 3 and not torch.equal(adapter.student.model.bias, start)


def test_an_override_of_train_may_return_nothing() -> None:
    class Silent(type(cached_tensors())):  # type: ignore[misc]
        def train(self, mode: bool = True) -> None:
            super().train(mode)

    net = Silent()
    net.train(False)
    net(drifting_images(2))
    drop_caches(net)
    assert net.cache == {} and not net.training


def test_a_module_that_keeps_no_tensors_stays_in_eval_mode_untouched() -> None:
    modes: list[bool] = []

    class Merging(nn.Linear):
        """Folds a factor into its weight in eval mode, as LoRA layers do; unfolding and folding again would round."""

        def train(self, mode: bool = True) -> Merging:
            modes.append(mode)
            return super().train(mode)

    net = nn.Sequential(Merging(3, 3)).eval()
    modes.clear()
    drop_caches(net)
    assert modes == []


def test_a_net_in_train_mode_stays_in_it() -> None:
    net = cached_tensors().train()
    drop_caches(net)
    assert all(module.training for module in net.modules())


def test_every_module_is_in_eval_mode_after_a_pass() -> None:
    classifier = ctta.Classifier(cached_tensors())
    x: Tensor = drifting_images(4)
    classifier(x), classifier(x)
    assert not any(module.training for module in classifier.model.modules())
