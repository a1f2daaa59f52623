"""bf16 is a matter of speed: the error stays where it was."""

from __future__ import annotations

import pytest

from ctta.bench.demo import prepare_demo
from ctta.bench.prequential import evaluate
from ctta.classifier import Precision
from ctta.nets import classifier
from ctta.registry import method


@pytest.mark.slow
@pytest.mark.parametrize("name", ["bn", "tent", "dmse"])
def test_bf16_moves_the_mean_error_on_the_digits_by_less_than_a_third_of_a_point(name: str) -> None:
    stream, _ = prepare_demo(["source"])

    def error(precision: Precision) -> float:
        options = method(name).recipe("cifar10-c") | {"precision": precision}
        return evaluate(method(name)(classifier("digits_resnet8"), **options), stream).mean

    fp32, bf16 = error("fp32"), error("bf16")
    assert bf16 != fp32, "nothing was rounded: bf16 had no effect"
    assert abs(bf16 - fp32) < 0.3
