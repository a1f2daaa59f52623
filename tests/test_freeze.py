"""Leaving the adapter: freezing, exporting, and loading the adapted weights into the user's own net."""

from __future__ import annotations

import copy
import io
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

import ctta
from contract.variations import SETTINGS
from ctta import errors
from ctta.norms import batch_norms
from ctta.registry import methods
from ctta.testing.compare import difference
from ctta.testing.models import bn_cnn
from ctta.testing.task import drifting_images, trained

# The mean over random views is not a fixed function: frozen, CoTTA and PETAL predict with the teacher on the images.
# LAME corrects the predictions of a batch until they converge: frozen, it predicts with the model alone.
FIXED = sorted(set(methods()) - {"cotta", "lame", "petal", "trio"})


def batches(count: int) -> tuple[Tensor, ...]:
    return torch.split(drifting_images(8 * count), 8)


def adapted(name: str, **options: str) -> ctta.Adapter:
    settings = {**SETTINGS.get(name, {}), **options}
    adapter = methods()[name](ctta.Classifier(trained(), mean=(0.4,) * 3, std=(0.5,) * 3), **settings)
    for x in batches(3):
        adapter(x)
    return adapter


@pytest.mark.parametrize("name", FIXED)
def test_a_frozen_adapter_predicts_as_the_adapter_did_and_never_changes(name: str) -> None:
    adapter, x = adapted(name), batches(4)[3]
    expected = adapter.predict(x)
    frozen = adapter.freeze()
    assert torch.equal(frozen(x), expected)
    adapter(x)
    assert torch.equal(frozen(x), expected)
    assert not any(p.requires_grad for p in frozen.parameters())


def test_frozen_cotta_predicts_with_its_teacher_on_the_images_themselves() -> None:
    adapter, x = adapted("cotta"), batches(1)[0]
    assert isinstance(adapter, ctta.CoTTA)
    assert torch.equal(adapter.freeze()(x), adapter.teacher(x))


def test_frozen_lame_predicts_with_the_model_alone() -> None:
    adapter, x = adapted("lame"), batches(1)[0]
    assert torch.equal(adapter.freeze()(x), adapter.student(x))


# One method for every kind of frozen module; the others freeze into the same layers with other weights.
EXPORTED = ["bnema", "dmse", "memo", "note", "rmt", "roid", "rotta", "source", "t3a", "tent", "trio"]


def kind_of(name: str) -> tuple[object, ...]:
    """What an export depends on: the layers, their tensors, and how logits are combined."""
    frozen = adapted(name).freeze()
    tensors = [(key, value.shape) for key, value in frozen.state_dict().items()]
    code = frozen.combine.__code__
    return repr(frozen), tensors, code.co_code, code.co_names


def test_every_method_freezes_into_a_kind_of_module_that_is_exported() -> None:
    kinds = [kind_of(name) for name in EXPORTED]
    assert [name for name in sorted(methods()) if kind_of(name) not in kinds] == []


@pytest.mark.parametrize("name", EXPORTED)
def test_a_frozen_adapter_exports_with_any_batch_size(name: str) -> None:
    frozen = adapted(name).freeze()
    count = torch.export.Dim("count", min=2, max=512)
    exported = torch.export.export(frozen, (batches(1)[0],), dynamic_shapes={"x": {0: count}}).module()
    for size in (2, 8, 24):
        x = drifting_images(size)
        torch.testing.assert_close(exported(x), frozen(x), rtol=0, atol=1e-5)


def test_a_frozen_adapter_is_saved_and_loaded_as_any_module() -> None:
    adapter, x = adapted("dmse"), batches(1)[0]
    frozen = adapter.freeze()
    file = io.BytesIO()
    torch.save(frozen.state_dict(), file)
    file.seek(0)
    fresh = ctta.DMSE(ctta.Classifier(bn_cnn(), mean=(0.0,) * 3, std=(1.0,) * 3)).freeze()
    fresh.load_state_dict(torch.load(file, weights_only=True))
    assert torch.equal(fresh(x), frozen(x))


@pytest.mark.models
@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::FutureWarning")  # torch's own
@pytest.mark.parametrize(
    ("name", "options"),
    [
        *((name, {}) for name in ("source", "tent", "dmse", "rotta", "roid")),
        *(("tent", {"statistics": chosen}) for chosen in ("prior:16", "misfit", "moving:0.05")),
    ],
)
def test_onnxruntime_predicts_as_the_frozen_adapter(name: str, options: dict[str, str], tmp_path: Path) -> None:
    onnxruntime = pytest.importorskip("onnxruntime", reason="needs the extra onnx")
    pytest.importorskip("onnxscript", reason="needs the extra onnx")
    frozen, x = adapted(name, **options).freeze(), batches(1)[0]
    path = tmp_path / "frozen.onnx"
    torch.onnx.export(frozen, (x,), path, dynamo=True, verbose=False, input_names=["images"], output_names=["logits"])
    session = onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])
    (logits,) = session.run(["logits"], {"images": x.numpy()})
    np.testing.assert_allclose(logits, frozen(x).numpy(), rtol=0, atol=1e-4)


@pytest.mark.parametrize("name", ["source", "tent", "dmse", "rotta"])
def test_adapted_weights_go_back_into_the_users_own_net_with_their_statistics(name: str) -> None:
    adapter, net, x = adapted(name), trained(), batches(1)[0]
    adapter.load_into(net)
    network = getattr(adapter, adapter.answers_with[0])
    torch.testing.assert_close(net.eval()((x - 0.4) / 0.5), network(x), rtol=0, atol=1e-5)


def test_adapted_weights_go_back_with_the_source_statistics() -> None:
    adapter, net = adapted("tent"), trained()
    adapter.load_into(net, statistics="source")
    for layer, source in zip(batch_norms(net), batch_norms(trained()), strict=True):
        assert torch.equal(layer.running_mean, source.running_mean) and torch.equal(
            layer.running_var, source.running_var
        )
        assert layer.track_running_stats
    assert not torch.equal(batch_norms(net)[0].weight, batch_norms(trained())[0].weight)


def test_adapted_weights_go_back_with_statistics_estimated_from_images() -> None:
    adapter, net = adapted("tent"), trained()
    images = batches(4)
    adapter.load_into(net, statistics=images)
    first = batch_norms(net)[0]
    inputs: list[Tensor] = []
    first.register_forward_pre_hook(lambda layer, args: inputs.append(args[0]))
    for x in images:
        net.eval()((x - 0.4) / 0.5)
    means = torch.stack([x.mean((0, 2, 3)) for x in inputs])
    torch.testing.assert_close(first.running_mean, means.mean(0), rtol=0, atol=1e-5)
    assert not first.training and first.momentum == 0.1


def test_images_that_the_net_refuses_leave_it_as_it_was() -> None:
    adapter, net = adapted("tent"), trained()
    before = copy.deepcopy(net.state_dict())
    for images in ([batches(1)[0], torch.rand(2, 1, 16, 16)], []):
        with pytest.raises((errors.ImageShape, errors.ParameterError)):
            adapter.load_into(net, statistics=images)
        assert difference(before, net.state_dict()) is None
    assert not any(layer.training or layer.momentum is None for layer in batch_norms(net))


def test_images_out_of_range_are_refused_as_statistics_before_the_net_changes() -> None:
    adapter, net = adapted("tent"), trained()
    before = copy.deepcopy(net.state_dict())
    for images in ((255 * batches(1)[0]).byte(), 3):
        with pytest.raises((errors.ImageDtype, errors.ParameterError)):
            adapter.load_into(net, statistics=images)  # type: ignore[arg-type]
        assert difference(before, net.state_dict()) is None


@pytest.mark.parametrize("earlier", ["batch", "share:0.5", "moving:0.05", "auto"])
@pytest.mark.parametrize("statistics", ["adapter", "source", "batch", "images"])
def test_adapted_weights_go_into_a_net_that_holds_those_of_another_adapter(earlier: str, statistics: str) -> None:
    adapter, net, fresh, x = adapted("tent", statistics="share:0.9"), trained(), trained(), batches(2)[1]
    adapted("tent", statistics=earlier).load_into(net)
    chosen: Any = batches(2) if statistics == "images" else statistics
    adapter.load_into(net, statistics=chosen)
    adapter.load_into(fresh, statistics=chosen)
    assert torch.equal(net.eval()(x), fresh.eval()(x))
    assert difference(net.state_dict(), fresh.state_dict()) is None


def test_a_failed_load_leaves_the_statistics_of_the_last_one() -> None:
    adapter, net, x = adapted("tent", statistics="auto"), trained(), batches(1)[0]
    adapter.load_into(net)
    before = net.eval()(x)
    with pytest.raises(errors.ImageShape):
        adapter.load_into(net, statistics=[x, torch.rand(2, 1, 16, 16)])
    assert torch.equal(net(x), before)


def test_a_layer_without_parameters_does_not_prevent_loading() -> None:
    adapter, x = adapted("tent"), batches(1)[0]
    net, other = trained(), trained()
    other.add_module("dropout", nn.Dropout())
    adapter.load_into(net)
    adapter.load_into(other)
    assert torch.equal(net.eval()(x), other.eval()(x))


def test_a_saved_adapter_is_frozen_and_copied_with_the_recent_classes_that_auto_follows(tmp_path: Path) -> None:
    source = ctta.Classifier(trained(), mean=(0.4,) * 3, std=(0.5,) * 3)
    adapter, one_class = ctta.Tent(source, statistics="auto"), torch.cat([batches(1)[0][:1]] * 16)
    for _ in range(4):
        adapter(one_class)
    adapter.save(tmp_path / "adapter.ctta")
    loaded, x, net = ctta.Tent.load(tmp_path / "adapter.ctta", source), batches(2)[1], trained()
    frozen = loaded.freeze()
    loaded.load_into(net)
    expected = adapter.predict(x)
    assert not torch.equal(expected, ctta.Tent(source, statistics="auto").predict(x))
    assert torch.equal(frozen(x), expected)
    torch.testing.assert_close(net.eval()((x - 0.4) / 0.5), expected, rtol=0, atol=1e-5)


def test_a_frozen_adapter_predicts_in_several_threads_at_once() -> None:
    frozen = adapted("tent", statistics="auto").freeze()
    streams = [list(batches(2)), [0.3 * x for x in batches(2)]]
    with torch.no_grad():
        expected = [[frozen(x) for x in stream] for stream in streams]

        def wrong(number: int) -> int:
            with torch.no_grad():
                rounds = [zip(streams[number], expected[number], strict=True) for _ in range(40)]
                return sum(not torch.equal(frozen(x), logits) for pairs in rounds for x, logits in pairs)

        with ThreadPoolExecutor(2) as pool:
            assert list(pool.map(wrong, [0, 1])) == [0, 0]


def test_a_net_of_another_architecture_is_refused_and_left_alone() -> None:
    net = nn.Sequential(nn.Flatten(), nn.Linear(768, 10))
    before = copy.deepcopy(net.state_dict())
    with pytest.raises(errors.ModelError, match="of the same architecture"):
        adapted("tent").load_into(net)
    assert difference(before, net.state_dict()) is None


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_tracing_and_exporting_an_adapter_is_refused_by_name() -> None:
    adapter, x = adapted("tent"), batches(1)[0]
    with pytest.raises(errors.NotTraceable, match=r"freeze\(\)"):
        torch.jit.trace(adapter, x)
    with pytest.raises(errors.NotTraceable, match=r"freeze\(\)"):
        torch.export.export(adapter, (x,))


def test_wrapping_leaves_no_hook_on_the_users_net() -> None:
    net = bn_cnn()
    for _ in range(5):
        classifier = ctta.Classifier(net)
        classifier.with_features(torch.rand(2, 3, 16, 16))
        ctta.DMSE(classifier)(torch.rand(4, 3, 16, 16))
    assert not any(m._forward_hooks or m._forward_pre_hooks for m in net.modules())


@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # torch's own
def test_a_compiled_net_is_wrapped_as_the_net_it_holds() -> None:
    net = trained()
    compiled = ctta.Classifier(torch.compile(net))
    assert compiled.digest() == ctta.Classifier(net).digest()
    x = batches(1)[0]
    assert torch.equal(ctta.DMSE(ctta.Classifier(net))(x), ctta.DMSE(compiled)(x))


def test_an_adapter_prints_as_one_line() -> None:
    adapter = ctta.Tent(bn_cnn(), lr=0.01)
    adapter(torch.rand(4, 3, 16, 16))
    text = repr(adapter)
    assert text.startswith("Tent(lr=0.01): ") and "\n" not in text
    assert "1 steps" in text and "cpu" in text and "parameters learn" in text
