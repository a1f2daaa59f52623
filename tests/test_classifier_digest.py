"""The digest tells one set of source weights from another."""

from __future__ import annotations

import copy

import torch

from ctta import Classifier
from head_models import Net


def test_digest_changes_with_one_bit_of_any_tensor() -> None:
    classifier = Classifier(Net(), mean=(0.1, 0.2, 0.3), std=(0.5, 0.6, 0.7))
    before, names = classifier.digest(), list(classifier.state_dict())
    for name in names:
        other = copy.deepcopy(classifier)
        value = other.state_dict()[name]
        value.view(-1).view(torch.uint8)[0] ^= 1
        assert other.digest() != before, name


def test_digest_does_not_change_with_the_layout() -> None:
    classifier = Classifier(Net())
    before = classifier.digest()
    assert classifier.to(memory_format=torch.channels_last).digest() == before


def test_digest_is_the_same_for_a_copy_and_for_a_loaded_state() -> None:
    classifier, other = Classifier(Net()), Classifier(Net())
    assert other.digest() != classifier.digest()
    assert copy.deepcopy(classifier).digest() == classifier.digest()
    other.load_state_dict(classifier.state_dict())
    assert other.digest() == classifier.digest()


def test_digest_tells_one_type_from_another() -> None:
    classifier = Classifier(Net())
    assert copy.deepcopy(classifier).double().digest() != classifier.digest()
