"""A weight-normed head, by either of torch's two implementations, shows its effective weight."""

from __future__ import annotations

import copy

import pytest
import torch
from torch import Tensor, nn
from torch.nn.utils import weight_norm as old_weight_norm
from torch.nn.utils.parametrizations import weight_norm

from ctta import Classifier
from head_models import C, D, Net


@pytest.fixture
def x() -> Tensor:
    return torch.rand(4, 3, 9, 9, generator=torch.Generator().manual_seed(1))


@pytest.mark.parametrize("norm", [weight_norm, old_weight_norm])
@pytest.mark.filterwarnings("ignore:.*weight_norm.* is deprecated:FutureWarning")
class TestWeightNormedHead:
    def net(self, norm) -> Classifier:
        return Classifier(Net(norm(nn.Linear(D, C))).eval())

    def magnitude_and_direction(self, classifier: Classifier) -> tuple[Tensor, Tensor]:
        state = {name.rpartition(".")[2]: value for name, value in classifier.head.state_dict().items()}
        return (
            state["weight_g" if "weight_g" in state else "original0"],
            state["weight_v" if "weight_v" in state else "original1"],
        )

    def test_weight_is_the_product(self, norm) -> None:
        classifier = self.net(norm)
        g, v = self.magnitude_and_direction(classifier)
        torch.testing.assert_close(classifier.weight, g * v / v.norm(dim=1, keepdim=True))

    def test_weight_follows_a_loaded_state_without_a_forward_pass(self, norm, x) -> None:
        classifier, other = self.net(norm), self.net(norm)
        with torch.no_grad():
            for p in other.parameters():
                p.mul_(1.5)
        classifier(x)
        classifier.load_state_dict(other.state_dict())
        g, v = self.magnitude_and_direction(other)
        torch.testing.assert_close(classifier.weight, g * v / v.norm(dim=1, keepdim=True))

    def test_copy_after_a_forward_pass_is_a_copy(self, norm, x) -> None:
        classifier = self.net(norm)
        expected = classifier(x)
        twin = copy.deepcopy(classifier)
        torch.testing.assert_close(twin(x), expected, rtol=0, atol=0)
        twin.with_features(x)[0].sum().backward()
        assert all(p.grad is None for p in classifier.parameters())
        assert all(p.grad is not None for p in twin.head.parameters())
