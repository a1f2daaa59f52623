"""Statistics of batch norms: values and gradients against loops, and how an adapter applies and stores the choice."""

from __future__ import annotations

import copy
import math
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

import ctta
from ctta._adapter.recent_classes import concentration, with_batch
from ctta._system.forward_pass import tell_concentration
from ctta.batch_norm import normalise_exactly
from ctta.errors import BatchTooSmall, ParameterError
from ctta.methods._parts.rotta import RobustBN
from ctta.norms import batch_norms, choose_statistics, use_batch_statistics
from ctta.statistics import Auto, Batch, Misfit, Moments, Moving, Prior, Seen, Share, Source, Statistics, as_statistics
from ctta.testing import Subject, checks
from ctta.testing.compare import difference
from ctta.testing.models import bn_cnn, gn_cnn
from ctta.testing.task import drifting_images, trained

BLENDS: list[Statistics] = [Source(), Prior(16), Share(0.4), Misfit(0.08), Moving(0.05), Auto(0.45)]
SHAPES = {
    "BatchNorm1d": (6, 3),
    "BatchNorm1d, positions": (6, 3, 4),
    "BatchNorm2d": (6, 3, 4, 5),
    "BatchNorm3d": (4, 3, 2, 3, 2),
}


class NormAct(nn.BatchNorm2d):
    """A batch norm with a built-in activation, as in some other libraries."""

    def forward(self, x: Tensor) -> Tensor:
        return super().forward(x).relu()


def layer_for(shape: tuple[int, ...], statistics: Statistics, kind: Any = None, **options: Any) -> nn.Module:
    """A layer with random weights and source statistics, in double precision."""
    kinds = {2: nn.BatchNorm1d, 3: nn.BatchNorm1d, 4: nn.BatchNorm2d, 5: nn.BatchNorm3d}
    generator = torch.Generator().manual_seed(1)
    layer = (kind or kinds[len(shape)])(shape[1], **options).double().eval()
    for tensor in layer.state_dict().values():
        if tensor.is_floating_point():
            tensor.copy_(torch.rand(tensor.shape, generator=generator, dtype=torch.float64) + 0.5)
    choose_statistics(layer, statistics)
    use_batch_statistics(layer)
    return layer


def images(shape: tuple[int, ...]) -> Tensor:
    x = 2 * torch.randn(shape, generator=torch.Generator().manual_seed(0), dtype=torch.float64) - 1
    return x.to(memory_format=torch.channels_last) if len(shape) == 4 else x


def naive_auto(divergences: list[float], images: int, layers: int) -> float:
    """The share of the batch in the last of some layers, from the divergences of these and the number of all."""
    total = 0.0
    for kl in divergences:
        total += math.sqrt(max(kl - 0.05 / images, 0.0))
    shift = (total / len(divergences)) ** 2
    gate = shift**3 / (shift**3 + 0.0144**3)
    doubt = 1 - images / (images + 16)
    left = math.exp(19 / layers * math.log(0.55))
    return (1 - left) * (1 - doubt + doubt * gate) * images / (images + 0.5)


def naive_moments(x: Tensor, source: list[tuple[float, float]], statistics: Statistics) -> list[tuple[float, float]]:
    """Mean and variance of every channel, by loops over its values."""
    found, divergences = [], []
    for c, (source_mean, source_var) in enumerate(source):
        values = x[:, c].flatten().tolist()
        mean = sum(values) / len(values)
        var = sum((v - mean) ** 2 for v in values) / len(values)
        found.append((mean, var))
        p, q = var + 1e-5, source_var + 1e-5
        divergences.append(0.5 * (math.log(q / p) + (p + (mean - source_mean) ** 2) / q - 1))
    kl = sum(divergences) / len(divergences)
    share = {
        "Source": 0.0,
        "Prior": len(x) / (len(x) + 16),
        "Share": 0.4,
        "Misfit": kl / (kl + 0.08),
        "Moving": 0.05,
        "Auto": naive_auto([kl], len(x), layers=1),
    }[type(statistics).__name__]
    var = naive_auto_var if isinstance(statistics, Auto) else naive_var
    return [
        (share * m + (1 - share) * source_m, var(share, v, source_v))
        for (m, v), (source_m, source_v) in zip(found, source, strict=True)
    ]


def naive_var(share: float, batch: float, source: float) -> float:
    return share * batch + (1 - share) * source


def naive_auto_var(share: float, batch: float, source: float) -> float:
    batch, source = batch + 1e-5, source + 1e-5
    if batch > source:
        return naive_var(share, batch, source) - 1e-5
    return math.exp(share * math.log(batch) + (1 - share) * math.log(source)) - 1e-5


def source_of(layer: Any) -> list[tuple[float, float]]:
    mean, var = (layer.source_mean, layer.source_var) if hasattr(layer, "source_mean") else (None, None)
    mean, var = (layer.running_mean, layer.running_var) if mean is None else (mean, var)
    return list(zip(mean.tolist(), var.tolist(), strict=True))


def naive_output(x: Tensor, layer: Any, moments: list[tuple[float, float]]) -> Tensor:
    out = torch.empty_like(x)
    for c, (mean, var) in enumerate(moments):
        weight, bias = (1.0, 0.0) if layer.weight is None else (layer.weight[c].item(), layer.bias[c].item())
        out[:, c] = (x[:, c] - mean) / math.sqrt(var + 1e-5) * weight + bias
    return out


@pytest.mark.parametrize("affine", [True, False], ids=["affine", "plain"])
@pytest.mark.parametrize("shape", SHAPES.values(), ids=SHAPES)
@pytest.mark.parametrize("statistics", BLENDS, ids=str)
def test_a_layer_normalises_as_a_loop_over_channels_does(
    statistics: Statistics, shape: tuple[int, ...], affine: bool
) -> None:
    layer, x = layer_for(shape, statistics, affine=affine), images(shape)
    expected = naive_output(x, layer, naive_moments(x, source_of(layer), statistics))
    torch.testing.assert_close(layer(x), expected, rtol=0, atol=1e-12)


@pytest.mark.parametrize("kind", [nn.BatchNorm2d, NormAct])
@pytest.mark.parametrize("statistics", BLENDS, ids=str)
def test_gradients_take_the_correction_of_the_batchs_normalisation_as_a_constant(
    statistics: Statistics, kind: type[nn.BatchNorm2d]
) -> None:
    layer: Any = layer_for((6, 3, 4, 5), statistics, kind)
    x = images((6, 3, 4, 5)).requires_grad_()
    upstream = images((6, 3, 4, 5)).cos()
    out = layer(x)
    out.backward(upstream)
    found = [x.grad, layer.weight.grad, layer.bias.grad]

    def view(values: Tensor) -> Tensor:
        return values.view(1, -1, 1, 1)

    y, weight, bias = x.detach().requires_grad_(), layer.weight.detach().clone(), layer.bias.detach().clone()
    weight.requires_grad_(), bias.requires_grad_()
    chosen = torch.tensor(naive_moments(x, source_of(layer), statistics), dtype=torch.float64)
    mean, std = chosen[:, 0], (chosen[:, 1] + 1e-5).sqrt()
    batch_mean = y.mean((0, 2, 3))
    batch_std = ((y - view(batch_mean)).square().mean((0, 2, 3)) + 1e-5).sqrt()
    r, d = (batch_std / std).detach(), ((batch_mean - mean) / std).detach()
    if isinstance(statistics, Source):  # the statistics do not depend on the batch
        normal = (y - view(mean)) / view(std)
    else:
        normal = (y - view(batch_mean)) / view(batch_std) * view(r) + view(d)
    expected = normal * view(weight) + view(bias)
    expected = expected.relu() if kind is NormAct else expected
    expected.backward(upstream)
    torch.testing.assert_close(out, expected, rtol=0, atol=1e-12)
    for ours, naive in zip(found, [y.grad, weight.grad, bias.grad], strict=True):
        torch.testing.assert_close(ours, naive, rtol=0, atol=1e-12)


def test_rottas_layer_sends_exact_gradients_through_its_moving_average() -> None:
    x, source = images((4, 2, 3, 2)), nn.BatchNorm2d(2).double()

    def normalise(x: Tensor) -> Tensor:
        layer = RobustBN(source, alpha=0.3)
        layer.updating = True
        out: Tensor = layer(x)
        return out

    assert torch.autograd.gradcheck(normalise, (x.clone().requires_grad_(),))
    naive = naive_output(x, source, [(0.3 * m, 0.3 * v + 0.7) for m, v in batch_moments(x)])
    torch.testing.assert_close(normalise(x), naive, rtol=0, atol=1e-12)


def batch_moments(x: Tensor) -> list[tuple[float, float]]:
    channels = [x[:, c].flatten().numpy() for c in range(x.shape[1])]
    return [(float(np.mean(values)), float(np.var(values))) for values in channels]


def test_a_single_value_in_an_exact_blend_has_no_variance() -> None:
    x = torch.tensor([[3.0, -1.0]], dtype=torch.float64)
    zero = torch.zeros(2, dtype=torch.float64)
    out = normalise_exactly(x, lambda batch: Moments(zero, zero + 1).towards(batch, 0.5), None, None, 1e-5)
    torch.testing.assert_close(out, 0.5 * x / math.sqrt(0.5 + 1e-5))


@pytest.mark.parametrize("kind", [nn.BatchNorm2d, NormAct])
@pytest.mark.parametrize("statistics", [Prior(16), Share(0.4), Misfit(), Moving(0.05)], ids=str)
def test_a_single_value_per_channel_is_normalised_with_the_source(statistics: Statistics, kind: type) -> None:
    layer, x = layer_for((1, 3, 1, 1), statistics, kind), images((1, 3, 1, 1))
    expected = naive_output(x, layer, source_of(layer))
    torch.testing.assert_close(layer(x), expected.relu() if kind is NormAct else expected, rtol=0, atol=1e-12)


def test_a_layer_without_source_statistics_uses_those_of_the_batch() -> None:
    layer = nn.BatchNorm2d(3, track_running_stats=False).double()
    choose_statistics(layer, Share(0.4))
    use_batch_statistics(layer)
    x = images((6, 3, 4, 5))
    torch.testing.assert_close(layer(x), naive_output(x, layer, batch_moments(x)), rtol=0, atol=1e-12)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("batch", Batch()),
        ("source", Source()),
        ("prior:16", Prior(16)),
        ("share:0.40", Share(0.4)),
        ("misfit", Misfit(0.08)),
        ("misfit:0.1", Misfit(0.1)),
        ("moving:5e-2", Moving(0.05)),
    ],
)
def test_short_forms_are_read_and_written(text: str, expected: Statistics) -> None:
    assert as_statistics(text) == expected
    assert as_statistics(str(expected)) == expected
    assert ctta.Tent(bn_cnn(), statistics=text).settings["statistics"] == str(expected)


@pytest.mark.parametrize(
    "text", ["", "automatic", "prior", "prior:", "prior:x", "prior:nan", "share:1.5", "batch:1", "Prior"]
)
def test_anything_else_is_refused_by_name(text: str) -> None:
    with pytest.raises(ParameterError):
        as_statistics(text)
    with pytest.raises(ParameterError, match=r"'statistics' parameter of Tent must be 'batch', 'source', 'prior:16'"):
        ctta.Tent(bn_cnn(), statistics=text)


def test_numbers_out_of_range_are_refused() -> None:
    for build in (lambda: Prior(-1), lambda: Share(1.1), lambda: Misfit(0), lambda: Moving(math.nan)):
        with pytest.raises(ParameterError, match="must be a number in"):
            build()


def test_methods_with_statistics_of_their_own_refuse_the_option() -> None:
    with pytest.raises(ParameterError, match="RoTTA has statistics of its own"):
        ctta.RoTTA(bn_cnn(), statistics="source")
    assert not {"statistics"} & (set(ctta.RoTTA.arguments()) | set(ctta.Source.arguments()))

    class Untouched(ctta.Adapter):
        """A method that never uses batch statistics but does not declare it."""

        learns = False
        passes = (1, 0)

        def __init__(self, model: nn.Module, **options: Any) -> None:
            super().__init__(model, **options)
            self.begin(())

    with pytest.raises(ParameterError, match="Untouched has statistics of its own"):
        Untouched(bn_cnn(), statistics="prior:16")


def test_bn_blends_by_one_argument() -> None:
    with pytest.raises(ParameterError, match="not by both"):
        ctta.BN(bn_cnn(), alpha=0.5, statistics="prior:16")


def test_a_model_without_batch_norm_ignores_the_option() -> None:
    x = drifting_images(8)
    assert torch.equal(ctta.Tent(gn_cnn(), statistics="prior:16")(x), ctta.Tent(gn_cnn())(x))


def test_with_source_statistics_bn_predicts_as_the_source() -> None:
    x = drifting_images(8)
    assert torch.equal(ctta.BN(trained(), statistics="source")(x), ctta.Source(trained())(x))


@pytest.mark.parametrize("method", [ctta.Tent, ctta.DMSE])
@pytest.mark.parametrize("statistics", BLENDS, ids=str)
def test_one_image_is_enough_unless_statistics_are_those_of_the_batch(
    method: Callable[..., ctta.Adapter], statistics: Statistics
) -> None:
    adapter = method(bn_cnn(), statistics=statistics)
    assert adapter.smallest_batch == 1
    assert adapter(drifting_images(1)).isfinite().all()
    with pytest.raises(BatchTooSmall, match=r'statistics="prior:16"'):
        method(bn_cnn())(drifting_images(1))


def test_a_window_gives_its_statistics_to_the_newest_image() -> None:
    x = drifting_images(4)
    one_by_one, together = (ctta.BN(trained(), statistics="prior:16", **o) for o in ({"window": 4}, {}))
    for image in x[:3]:
        one_by_one(image[None])
    torch.testing.assert_close(one_by_one(x[3:]), together(x)[3:])


@pytest.mark.parametrize("statistics", ["prior:16", "misfit", "moving:0.3"])
def test_teacher_and_student_start_alike(statistics: str) -> None:
    adapter, x = ctta.DMSE(trained(), statistics=statistics), drifting_images(8)
    assert torch.equal(adapter.teacher(x), adapter.student(x))
    assert not torch.equal(adapter.teacher(x), ctta.DMSE(trained()).teacher(x))


def test_a_moving_average_follows_the_batch_once_per_step_and_not_its_views() -> None:
    batches = torch.split(drifting_images(24), 8)
    adapter = ctta.DMSE(trained(), statistics="moving:0.3")
    first = batch_norms(adapter.student)[0]
    inputs: list[Tensor] = []
    handle = first.register_forward_pre_hook(lambda layer, args: inputs.append(args[0].detach()))
    mean, var = (value.clone() for value in (first.source_mean, first.source_var))
    for x in batches:
        inputs.clear()
        adapter(x)
        batch = torch.tensor(batch_moments(inputs[0]))  # the batch; the second pass is its view
        mean, var = 0.7 * mean + 0.3 * batch[:, 0], 0.7 * var + 0.3 * batch[:, 1]
        torch.testing.assert_close(first.moving_mean, mean)
        torch.testing.assert_close(first.moving_var, var)
    handle.remove()
    before = adapter.state_dict()
    adapter.predict(batches[0])
    assert difference(before, adapter.state_dict()) is None


def test_recomputing_the_view_changes_nothing_for_a_moving_average() -> None:
    batches = torch.split(drifting_images(16), 8)
    plain, recomputed = (ctta.DMSE(trained(), statistics="moving:0.3", recompute=r) for r in (False, True))
    for x in batches:
        assert torch.equal(plain(x), recomputed(x))


POINTS = [
    "reset_restores",
    "resume_bit_equal",
    "predict_leaves_no_trace",
    "batch_of_one",
    "accidents_do_not_reach_weights",
    "double_precision",
    "predicts_before_learning",
    "ask_and_learn_is_step",
    "forget_leaves_no_trace",
]


@pytest.mark.parametrize("point", POINTS)
@pytest.mark.parametrize("statistics", [pytest.param("prior:16", marks=pytest.mark.trial), "moving:0.3"])
def test_the_contract_holds_with_other_statistics(statistics: str, point: str) -> None:
    dict(checks())[point](Subject(lambda model, **more: ctta.DMSE(model, statistics=statistics, **more), trained))


@pytest.mark.parametrize("kind", [None, pytest.param(NormAct, marks=pytest.mark.trial)])
@pytest.mark.parametrize("statistics", BLENDS, ids=str)
def test_a_frozen_adapter_has_its_statistics_exports_and_goes_into_the_users_net(
    statistics: Statistics, kind: type | None
) -> None:
    def source() -> nn.Module:
        net = bn_cnn()
        for layer in batch_norms(net) if kind else ():
            layer.__class__ = kind
        return net

    adapter, x = ctta.Tent(source(), statistics=statistics), drifting_images(8)
    adapter(x)
    expected = adapter.predict(x)
    frozen = adapter.freeze()
    for _ in range(2):
        assert torch.equal(frozen(x), expected)
    count = torch.export.Dim("count", min=2, max=64)
    exported = torch.export.export(frozen, (x,), dynamic_shapes={"x": {0: count}}).module()
    for size in (2, 8):
        torch.testing.assert_close(exported(x[:size]), frozen(x[:size]), rtol=0, atol=1e-5)
    net = source()
    adapter.load_into(net)
    torch.testing.assert_close(net(x), expected)


def test_a_checkpoint_carries_the_choice_and_the_moving_average(tmp_path: Path) -> None:
    adapter, x = ctta.Tent(trained(), statistics=Moving(0.3)), drifting_images(16)
    adapter(x[:8])
    adapter.save(tmp_path / "tent.ctta")
    again = ctta.Tent.load(tmp_path / "tent.ctta", trained())
    assert again.statistics == "moving:0.3"
    assert torch.equal(again(x[8:]), adapter(x[8:]))


def test_statistics_of_ones_own_are_passed_again_when_a_checkpoint_is_loaded(tmp_path: Path) -> None:
    class Half(Statistics):
        def share(self, seen: Seen) -> float:
            return 0.5

    x = drifting_images(8)
    adapter = ctta.Tent(trained(), statistics=Half())
    assert torch.equal(adapter.predict(x), ctta.Tent(trained(), statistics="share:0.5").predict(x))
    adapter.save(tmp_path / "tent.ctta")
    with pytest.raises(ctta.errors.CheckpointError, match=r"statistics=.*Half"):
        ctta.Tent.load(tmp_path / "tent.ctta", trained())
    assert torch.equal(ctta.Tent.load(tmp_path / "tent.ctta", trained(), statistics=Half())(x), adapter(x))


def test_bf16_blends_in_the_precision_of_the_statistics() -> None:
    layer = layer_for((64, 3, 8, 8), Prior(16)).float()
    x = images((64, 3, 8, 8)).float()
    torch.testing.assert_close(layer(x.bfloat16()).float(), layer(x), rtol=0.02, atol=0.02)


class Chain(nn.Module):
    """Three batch norms in a row, which do not run in the order in which they are declared."""

    def __init__(self) -> None:
        super().__init__()
        self.last, self.first, self.second = nn.BatchNorm2d(3), nn.BatchNorm2d(3), nn.BatchNorm2d(3)

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = self.last(self.second(self.first(x)))
        return out


def automatic_chain() -> Chain:
    chain = Chain().double().eval()
    for scale, layer in enumerate((chain.first, chain.second, chain.last), 2):
        assert layer.running_var is not None
        layer.running_var.fill_(scale)
    choose_statistics(chain, Auto())
    use_batch_statistics(chain)
    return chain


def naive_chain(chain: Chain, x: Tensor) -> Tensor:
    """Run the layers one by one, with the share from the divergences of the layers so far."""
    divergences: list[float] = []
    for layer in (chain.first, chain.second, chain.last):
        kl = 0.0
        moments = []
        for c, (source_mean, source_var) in enumerate(source_of(layer)):
            values = x[:, c].flatten().tolist()
            mean = sum(values) / len(values)
            var = sum((v - mean) ** 2 for v in values) / len(values)
            p, q = var + 1e-5, source_var + 1e-5
            kl += 0.5 * (math.log(q / p) + (p + (mean - source_mean) ** 2) / q - 1) / x.shape[1]
            moments.append((mean, var, source_mean, source_var))
        divergences.append(kl)
        share = naive_auto(divergences, len(x), layers=3)
        x = naive_output(
            x, layer, [(share * m + (1 - share) * n, naive_auto_var(share, v, w)) for m, v, n, w in moments]
        )
    return x


def test_automatic_statistics_follow_the_mean_shift_of_the_layers_that_have_run() -> None:
    chain, x = automatic_chain(), images((6, 3, 4, 5))
    torch.testing.assert_close(chain(x), naive_chain(chain, x), rtol=0, atol=1e-12)


def test_every_pass_and_every_copy_of_a_network_measures_the_shift_anew() -> None:
    chain, x, other = automatic_chain(), images((6, 3, 4, 5)), 0.3 * images((6, 3, 4, 5)).cos()
    expected = chain(x)
    copied = copy.deepcopy(chain)
    chain(other)
    chain.first(other)  # a pass that ended early
    assert torch.equal(chain(x), expected)
    assert torch.equal(copied(x), expected)


# The divergence of a standard deviation of 1.3 is 0.0831; a single class of ten moves the gate from 0.0144 to 0.096.
FEW = 0.0831**3 / (0.0831**3 + 0.096**3)


@pytest.mark.parametrize(
    ("concentration", "gain", "expected"), [(1.0, 1.0, 0.8), (1.5, 1.0, 0.0), (1.5, 3.0, 1.0), (10.0, 1.3, FEW)]
)
def test_only_few_classes_without_a_shift_make_automatic_statistics_keep_to_the_source(
    concentration: float, gain: float, expected: float
) -> None:
    """64 of 80 count against doubt: 0.8 without a shift; under one, all of what a single layer needs."""
    layer: Any = nn.BatchNorm2d(4).double().eval()
    choose_statistics(layer, Auto())
    use_batch_statistics(layer)
    drawn = torch.randn(64, 4, 8, 8, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    var, mean = torch.var_mean(drawn, (0, 2, 3), keepdim=True, correction=0)
    # A mean of 0.05, which is no shift to speak of, and a standard deviation of 1 or 3.
    x = gain * (drawn - mean) / var.sqrt() + 0.05
    tell_concentration(layer, concentration)
    share = expected * 64 / 64.5
    wanted = (x - 0.05 * share) / math.sqrt(1 - share + share * gain**2 + 1e-5)
    torch.testing.assert_close(layer(x), wanted, rtol=0, atol=1e-3)


@pytest.mark.parametrize(("layers", "expected"), [(1, 1.0), (7, 0.8026), (19, 0.45), (53, 0.45)])
def test_a_network_with_few_batch_norms_takes_more_of_the_batch(layers: int, expected: float) -> None:
    """One layer leaves 0.55^19 of a shift to the source, seven leave 0.55^(19/7), and 19 leave 0.55."""
    batch = Moments(torch.tensor([3.0]), torch.tensor([2.0]))
    source = Moments(torch.zeros(1), torch.ones(1))
    seen = Seen(batch, source, 10_000, 10_000, 1e-5, measured=[torch.tensor(2.0)], layers=layers)
    assert float(Auto().share(seen)) == pytest.approx(expected, abs=1e-4)


def naive_concentration(batches: list[list[int]], classes: int) -> float:
    """From a list of predicted classes with a weight for each image, by a loop over all pairs."""
    weighted: list[tuple[int, float]] = []
    prior = 1.0
    for batch in batches:
        rate = len(batch) / (len(batch) + 16)
        weighted = [(c, (1 - rate) * w) for c, w in weighted] + [(c, rate / len(batch)) for c in batch]
        prior *= 1 - rate
    # The start counts as very many images with all classes equally often.
    same = pairs = 0.0
    for i, (c, w) in enumerate(weighted):
        for j, (d, v) in enumerate(weighted):
            pairs += w * v * (i != j)
            same += w * v * (i != j and c == d)
    same += (prior**2 + 2 * prior * (1 - prior)) / classes
    pairs += prior**2 + 2 * prior * (1 - prior)
    return classes * same / pairs


@pytest.mark.parametrize(
    ("batches", "expected"),
    [([[1]], None), ([[0, 1, 2, 3] * 8, [1] * 32], None), ([[0, 0, 1, 2, 3, 3, 0, 1] * 4, [2], [0]], None), ([], 1.5)],
)
def test_the_concentration_compares_pairs_of_recent_predictions(
    batches: list[list[int]], expected: float | None
) -> None:
    recent = None
    for batch in batches:
        recent = with_batch(recent, nn.functional.one_hot(torch.tensor(batch), 4).double())
    found = concentration(recent)
    assert found == pytest.approx(naive_concentration(batches, 4) if expected is None else expected, abs=1e-5)


def test_an_adapter_remembers_its_predictions_only_if_its_statistics_follow_them() -> None:
    x = drifting_images(8)
    automatic, fixed = ctta.Tent(bn_cnn(), statistics="auto"), ctta.Tent(bn_cnn(), statistics="share:0.4")
    for adapter in (automatic, fixed):
        adapter.predict(x)
        assert adapter.recent_classes is None
        adapter(x)
    assert fixed.recent_classes is None and automatic.recent_classes is not None
    automatic.reset()
    assert automatic.recent_classes is None


class Checkpointed(nn.Module):
    """A network that may drop the activations of its parts and compute them again in the backward pass."""

    def __init__(self, drops: bool, reentrant: bool) -> None:
        super().__init__()
        widths = (3, 8, 8, 8)
        self.parts = nn.ModuleList(
            nn.Sequential(nn.Conv2d(a, b, 3, padding=1), nn.BatchNorm2d(b), nn.ReLU()) for a, b in pairwise(widths)
        )
        self.head = nn.Linear(8, 10)
        self.drops = drops
        self.reentrant = reentrant

    def forward(self, x: Tensor) -> Tensor:
        for part in self.parts:  # reentrant checkpoints need an input with a gradient, which images do not have
            drops = self.drops and x.requires_grad
            x = checkpoint(part, x, use_reentrant=self.reentrant) if drops else part(x)
        return self.head(x.mean((2, 3)))


@pytest.mark.parametrize("reentrant", [False, True])
@pytest.mark.parametrize("method", ["tent", "rmt", "trio"])
def test_activations_that_are_computed_again_give_the_same_gradients(method: str, reentrant: bool) -> None:
    steps = []
    for drops in (False, True):
        torch.manual_seed(0)
        adapter = ctta.get_method(method)(Checkpointed(drops, reentrant), statistics="auto")
        steps.append([adapter.step(x).loss for x in drifting_images(32).split(8)])
        steps[-1].extend(p.sum().item() for p in adapter.trained)
    assert steps[0] == pytest.approx(steps[1], rel=1e-6)
