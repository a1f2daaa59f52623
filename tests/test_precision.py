"""bf16 changes the speed, not the result: predictions and errors stay close to those in fp32."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from torch import Tensor

from ctta._system import processor
from ctta.bench.demo import prepare_demo
from ctta.bench.prequential import evaluate
from ctta.classifier import Precision
from ctta.datasets.digits import digits
from ctta.errors import ParameterError
from ctta.nets import classifier
from ctta.registry import method
from ctta.testing import Subject
from ctta.testing.models import bn_cnn
from ctta.testing.parameters import every_argument_counts

METHODS = ["bn", "tent", "dmse"]


@pytest.mark.parametrize("name", METHODS)
def test_bf16_rounds_the_logits_and_no_more(name: str) -> None:
    x = digits().stream.floats()[:32]
    batches = [0.5 * x[:16], 0.5 * x[16:]]

    def logits(precision: Precision) -> Tensor:
        adapter = method(name)(classifier("digits_resnet8"), precision=precision)
        return torch.cat([adapter(batch) for batch in batches])

    fp32, bf16 = logits("fp32"), logits("bf16")
    assert bf16.dtype is torch.float32
    assert not torch.equal(fp32, bf16), "nothing was rounded: bf16 had no effect"
    # bf16 keeps eight bits: about 0.4 % per operation, over the nine layers of this network.
    assert (fp32 - bf16).abs().max() < 0.036 * fp32.abs().max()


@pytest.mark.trial
@pytest.mark.slow
@pytest.mark.skipif(
    not torch.ops.mkldnn._is_mkldnn_bf16_supported(),
    reason="bf16 is many times slower than fp32 on this processor: oneDNN has no kernels for it",
)
@pytest.mark.parametrize("name", METHODS)
def test_bf16_moves_the_mean_error_on_the_digits_by_less_than_a_point(name: str) -> None:
    # Learning amplifies rounding: about 45 of the 2,250 predictions differ, which is 0.3 points of chance.
    stream, _ = prepare_demo(["source"], images=150)

    def error(precision: Precision) -> float:
        options = method(name).recipe("cifar10-c") | {"precision": precision}
        return evaluate(method(name)(classifier("digits_resnet8"), **options), stream).mean

    assert abs(error("bf16") - error("fp32")) < 1


def test_bf16_is_refused_where_it_would_end_the_process(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ctta.adapter.bf16_crashes", lambda: True)
    with pytest.raises(ParameterError, match="ONEDNN_MAX_CPU_ISA=AVX512_CORE_FP16"):
        method("tent")(classifier("digits_resnet8"), precision="bf16")
    assert method("tent")(classifier("digits_resnet8")).precision == "fp32"


def test_the_contract_holds_where_bf16_would_end_the_process(monkeypatch: pytest.MonkeyPatch) -> None:
    for place in ("ctta.adapter", "ctta.testing.parameters"):
        monkeypatch.setattr(f"{place}.bf16_crashes", lambda: True)
    every_argument_counts(Subject(method("rpl"), bn_cnn))


def test_a_child_process_that_dies_of_a_product_tells(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    cpu = tmp_path / "cpuinfo"
    cpu.write_text("flags : amx_tile\n")
    monkeypatch.setattr(processor, "_CPU", cpu)
    monkeypatch.delenv("ONEDNN_MAX_CPU_ISA", raising=False)
    monkeypatch.setattr(processor, "_PRODUCT", "import os; os.abort()")
    assert processor.bf16_crashes.__wrapped__()
    monkeypatch.setattr(processor, "_PRODUCT", "")
    assert not processor.bf16_crashes.__wrapped__()
