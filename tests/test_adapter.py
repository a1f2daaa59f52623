"""Behaviour of every adapter at its boundary: images, predictions, options, locking, windows."""

from __future__ import annotations

import copy
import logging
import threading
from typing import Any, Literal

import pytest
import torch
from torch import Tensor, nn

import ctta
from contract.variations import SETTINGS
from ctta import errors
from ctta.norms import batch_norms
from ctta.registry import methods
from ctta.testing.compare import difference
from ctta.testing.models import bn_cnn, gn_cnn
from ctta.testing.non_finite import Fault
from ctta.testing.task import drifting_images
from reference import net, stream


def x(i: int = 0) -> Tensor:
    return stream()[i]


@pytest.mark.parametrize(
    ("images", "error", "words"),
    [
        (torch.zeros(2, 3, 16, 16, dtype=torch.uint8), errors.ImageDtype, "Divide uint8 images by 255"),
        ([[0.0]], errors.ImageDtype, "got list"),
        (torch.zeros(3, 16, 16), errors.ImageShape, "unsqueeze"),
        (torch.zeros(0, 3, 16, 16), errors.ImageShape, "empty"),
        (torch.full((2, 3, 16, 16), 2.64), errors.ImageRange, r"\[2.64, 2.64\].*Divide grey levels by 255"),
        (torch.full((2, 3, 16, 16), -2.12), errors.ImageRange, "Do not normalise in the loader"),
        (torch.full((2, 3, 16, 16), float("nan")), errors.NonFiniteImages, "2 of 2"),
        (torch.full((2, 3, 16, 16), float("inf")), errors.NonFiniteImages, 'invalid="answer"'),
        (torch.zeros(1, 3, 16, 16), errors.BatchTooSmall, "at least 2 images; got 1. Use window=16"),
    ],
)
def test_a_bad_batch_gets_the_named_error_and_leaves_no_trace(images: Tensor, error: type, words: str) -> None:
    adapter = ctta.Tent(net())
    adapter(x())
    before = adapter.state_dict()
    with pytest.raises(error, match=words):
        adapter(images)
    after = adapter.state_dict()
    assert all(torch.equal(v, after[k]) for k, v in before.items() if isinstance(v, Tensor))
    adapter(x())


def test_rounding_beyond_the_range_is_forgiven() -> None:
    beyond = x() * (1.0005 / x().max())
    assert beyond.max() > 1
    # Images within the range that differ by a part in two thousand get nearly the same logits: nothing is clipped.
    torch.testing.assert_close(ctta.Tent(net())(beyond), ctta.Tent(net())(beyond / 1.0005), rtol=1e-2, atol=1e-2)


def test_broken_images_are_answered_as_unknown_and_the_sound_ones_as_without_them() -> None:
    adapter, twin = ctta.Tent(net(), invalid="answer"), ctta.Tent(net())
    batch = x().clone()
    batch[3, 0, 2, 2] = float("nan")
    step = adapter.step(batch)
    sound = [i for i in range(16) if i != 3]
    torch.testing.assert_close(step.logits[sound], twin.predict(x()[sound]))
    assert (step.logits[3] == 0).all() and step.log["invalid"] == 1
    assert adapter.steps == 0


def test_a_batch_of_broken_images_only_is_answered_too() -> None:
    adapter = ctta.Tent(net(), invalid="answer")
    logits = adapter(torch.full((2, 3, 16, 16), float("nan")))
    assert logits.shape == (2, 10) and (logits == 0).all()


class Fragile(nn.Module):
    """A model whose logits are NaN while ``broken``."""

    def __init__(self) -> None:
        super().__init__()
        self.inner, self.broken = net(), False

    def forward(self, x: Tensor) -> Tensor:
        logits = self.inner(x)
        return logits * float("nan") if self.broken else logits


@pytest.mark.parametrize("cls", [ctta.Tent, ctta.DMSE, ctta.CoTTA, ctta.RMT, ctta.SAR, ctta.ROID])
def test_a_loss_that_is_not_finite_is_skipped_counted_and_logged(cls: type, caplog: pytest.LogCaptureFixture) -> None:
    adapter = cls(Fragile())
    adapter(x())
    before = adapter.state_dict()
    parts = [m for m in adapter.modules() if isinstance(m, Fragile)]
    for part in parts:
        part.broken = True
    with caplog.at_level(logging.WARNING, "ctta"):
        adapter(x(1))
    for part in parts:
        part.broken = False
    assert adapter.skipped == 1 and adapter.steps == 2 and "not finite" in caplog.text
    after = adapter.state_dict()
    assert all(torch.equal(v, after[k]) for k, v in before.items() if isinstance(v, Tensor))
    assert adapter(x(2)).isfinite().all()


def test_a_second_thread_is_refused_and_the_first_one_finishes() -> None:
    entered, leave = threading.Event(), threading.Event()

    class Slow(ctta.Tent):
        def adapt(self, x: Tensor) -> ctta.Step:
            entered.set()
            leave.wait()
            return super().adapt(x)

    adapter, results = Slow(net()), []
    thread = threading.Thread(target=lambda: results.append(adapter(x())))
    thread.start()
    entered.wait()
    for call in (lambda: adapter(x()), lambda: adapter.predict(x()), adapter.reset, adapter.state_dict):
        with pytest.raises(errors.ConcurrentUse, match="one call at a time"):
            call()
    leave.set()
    thread.join()
    assert torch.equal(results[0], ctta.Tent(net())(x()))


def test_reset_every_restores_the_source_after_so_many_steps() -> None:
    adapter, fresh = ctta.Tent(net(), lr=0.01, reset_every=3), ctta.Tent(net(), lr=0.01)
    first = [adapter(x(i)) for i in range(3)]
    assert torch.equal(adapter(x(0)), fresh(x(0))) and adapter.restores == 1
    assert not torch.equal(first[2], adapter(x(2)))


def test_reset_starts_the_optimizers_moments_anew() -> None:
    adapter, fresh = ctta.Tent(net(), optimizer="sgd", lr=0.05), ctta.Tent(net(), optimizer="sgd", lr=0.05)
    for i in range(4):
        adapter(x(i))
    adapter.reset()
    for i in range(4):
        assert torch.equal(adapter(x(i)), fresh(x(i)))


def test_an_optimizer_of_ones_own_is_used() -> None:
    adapter = ctta.Tent(net(), optimizer=lambda parameters: torch.optim.AdamW(parameters, lr=0.02, weight_decay=0.5))
    other = ctta.Tent(net(), lr=0.02)
    for i in range(3):
        adapter(x(i)), other(x(i))
    assert not torch.equal(adapter(x(3)), other(x(3)))


def test_the_users_model_is_never_changed() -> None:
    model = net()
    before = copy.deepcopy(model.state_dict())
    adapter = ctta.DMSE(model)
    for i in range(3):
        adapter(x(i))
    assert all(torch.equal(v, before[k]) for k, v in model.state_dict().items())
    assert batch_norms(model)[0].running_mean is not None


def test_a_copy_goes_its_own_way() -> None:
    adapter = ctta.DMSE(net())
    adapter(x(0))
    twin = copy.deepcopy(adapter)
    assert torch.equal(adapter(x(1)), twin(x(1)))
    twin(x(2))
    assert adapter.steps == 2 and twin.steps == 3


def test_an_adapter_in_double_precision_after_steps_in_single_goes_on() -> None:
    adapter = ctta.DMSE(net().float())
    adapter(x(0).float())
    adapter.double()
    assert adapter(x(1)).dtype == torch.float64
    adapter.reset()
    assert adapter(x(0)).dtype == torch.float64


def test_bf16_runs_the_network_under_autocast_and_answers_in_float32() -> None:
    model = net().float()
    seen = []
    model.fc.register_forward_pre_hook(lambda module, args: seen.append(args[0].dtype))
    logits = ctta.Tent(model, precision="bf16")(x().float())
    assert set(seen) == {torch.bfloat16} and logits.dtype == torch.float32
    torch.testing.assert_close(logits, ctta.Tent(model)(x().float()), rtol=0, atol=0.2)


# The window.


def test_a_window_learns_when_every_image_in_it_is_new() -> None:
    adapter = ctta.Tent(net(), window=4)
    images = x()
    steps = []
    for i in range(12):
        adapter.step(images[i : i + 1])
        steps.append(adapter.steps)
    assert steps == [0, 0, 0, 1, 1, 1, 1, 2, 2, 2, 2, 3]


def test_a_window_answers_for_the_newest_image_among_the_held_ones() -> None:
    adapter, plain = ctta.Tent(net(), window=4), ctta.Tent(net())
    images = x()
    for i in range(4):
        answer = adapter(images[i : i + 1])
        if i > 0:
            expected = ctta.BN(net()).predict(images[: i + 1])[-1:]
            torch.testing.assert_close(answer, expected)
    plain(images[:4])
    # After the step the next images slide in one by one.
    torch.testing.assert_close(adapter(images[4:5]), plain.predict(images[1:5])[-1:])


def test_a_window_without_batch_norm_forwards_the_new_image_alone() -> None:
    model = nn.Sequential(nn.Flatten(), nn.LayerNorm(3 * 16 * 16), nn.Linear(3 * 16 * 16, 10)).double()
    adapter = ctta.Tent(model, window=4)
    for i in range(3):
        torch.testing.assert_close(adapter(x()[i : i + 1]), model(x()[i : i + 1]).detach())


class WithBatchNorm1d(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.conv, self.norm, self.fc = nn.Conv2d(3, 8, 3), nn.BatchNorm1d(8), nn.Linear(8, 10)
        self.norm.running_mean += torch.rand(8)

    def forward(self, x: Tensor) -> Tensor:
        return self.fc(self.norm(self.conv(x).mean((2, 3))))


def test_the_first_image_of_a_window_is_normalised_by_source_statistics_where_it_has_no_variance() -> None:
    model = WithBatchNorm1d().double().eval()
    adapter = ctta.Tent(model, window=4)
    torch.testing.assert_close(adapter(x()[:1]), model(x()[:1]).detach())


def test_predicting_in_a_window_does_not_fill_it() -> None:
    adapter, twin = ctta.Tent(net(), window=4), ctta.Tent(net(), window=4)
    for i in range(6):
        adapter.predict(x()[i : i + 1])
        assert torch.equal(adapter(x()[i : i + 1]), twin(x()[i : i + 1]))


def test_a_window_survives_a_checkpoint() -> None:
    adapter = ctta.Tent(net(), window=4)
    for i in range(6):
        adapter(x()[i : i + 1])
    twin = ctta.Tent(net(), window=4)
    twin.load_state_dict(adapter.state_dict())
    for i in range(6, 12):
        assert torch.equal(adapter(x()[i : i + 1]), twin(x()[i : i + 1]))


def test_a_batch_larger_than_the_window_is_learnt_from_whole() -> None:
    assert torch.equal(ctta.Tent(net(), window=4)(x()), ctta.Tent(net())(x()))


def test_settings_name_every_argument_and_its_value() -> None:
    adapter = ctta.SAR(net(), rho=0.1)
    assert adapter.settings["rho"] == 0.1 and adapter.settings["optimizer"] == "sgd"
    assert ctta.RDumb(net()).settings["reset_every"] == 1000
    assert set(adapter.settings) == set(ctta.SAR.arguments())


def test_an_unknown_method_gets_the_nearest_name() -> None:
    with pytest.raises(errors.UnknownMethod, match="Did you mean 'dmse'"):
        ctta.method("dsme")


def test_a_recipe_builds_the_method_and_an_unknown_benchmark_is_named() -> None:
    for benchmark in ("cifar10-c", "cifar100-c", "imagenet-c", "domainnet-126"):
        ctta.DMSE(net(), **ctta.DMSE.recipe(benchmark))
    with pytest.raises(errors.UnknownStream, match="cifar10-c"):
        ctta.DMSE.recipe("cifar10c")


@pytest.mark.parametrize("method", [ctta.Tent, ctta.EATA, ctta.SAR, ctta.DeYO])
@pytest.mark.parametrize(
    ("norm", "batch_size", "lr"),
    [
        # SAR's and DeYO's scripts: 0.001 / 64 per image for ViT-B; 0.00025 for ResNet-50 with group norm, and
        # 0.00025 / 64 * 2 per image in batches of fewer than 32.
        ("layer", 64, 0.001),
        ("layer", 200, 0.003125),
        ("layer", 1, 0.000015625),
        ("group", 64, 0.00025),
        ("group", 200, 0.00025),
        ("group", 1, 0.0000078125),
    ],
)
def test_networks_without_batch_norm_have_published_optimizers(
    method: type[ctta.Adapter], norm: Literal["layer", "group"], batch_size: int, lr: float
) -> None:
    found = method.recipe("cifar10-c", norm=norm, batch_size=batch_size)
    assert found["lr"] == pytest.approx(lr, rel=1e-12)
    assert (found["optimizer"], found["momentum"], found["nesterov"]) == ("sgd", 0.9, False)
    others = method.recipe("cifar10-c")
    assert {key: found[key] for key in others.keys() - {"optimizer", "lr"}} == {
        key: others[key] for key in others.keys() - {"optimizer", "lr"}
    }
    method(net(), **found)


def test_a_method_without_published_settings_for_a_norm_says_so() -> None:
    for method in (ctta.ROID, ctta.RDumb):
        with pytest.raises(errors.ParameterError, match=f"No settings of {method.__name__} were published"):
            method.recipe("cifar10-c", norm="layer")
    with pytest.raises(errors.ParameterError, match="'layer' or 'group'"):
        ctta.Tent.recipe("cifar10-c", norm="instance")  # type: ignore[arg-type]


def test_half_precision_weights_are_refused_by_name() -> None:
    with pytest.raises(errors.ModelError, match="float16 weights"):
        ctta.Tent(net().half())


def test_a_failed_backward_leaves_no_gradient_for_the_next_step() -> None:
    class Failing(ctta.Tent):
        def apply_gradients(self, *, rate: float = 1.0) -> None:
            if self.steps == 0 and not failed:
                failed.append(1)
                raise MemoryError
            super().apply_gradients(rate=rate)

    failed: list[int] = []
    adapter, twin = Failing(net(), lr=0.1), ctta.Tent(net(), lr=0.1)
    with pytest.raises(MemoryError):
        adapter(x(0))
    assert torch.equal(adapter(x(1)), twin(x(1))) and torch.equal(adapter(x(2)), twin(x(2)))


@pytest.mark.parametrize("name", ["Tent", "DMSE", "SAR", "ROID", "CoTTA", "RMT", "SANTA", "EATA"])
def test_a_model_without_gradients_is_refused_by_name(name: str) -> None:
    class Frozen(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.inner = net()

        @torch.no_grad()
        def forward(self, x: Tensor) -> Tensor:
            return self.inner(x)

    options = {"CoTTA": {"views": 2}, "EATA": {"e_margin": 1.0}}.get(name, {})
    with pytest.raises(errors.ModelError, match="learns by gradients; none reaches"):
        getattr(ctta, name)(Frozen(), **options)(x())


class WithUnusedNorm(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.inner, self.auxiliary = net(), nn.BatchNorm2d(8).double()

    def forward(self, x: Tensor) -> Tensor:
        return self.inner(x)


@pytest.mark.parametrize("name", sorted(ctta.registry.methods()))
def test_a_norm_layer_that_is_not_used_does_no_harm(name: str) -> None:
    adapter = ctta.method(name)(WithUnusedNorm(), **({"views": 2} if name in ("cotta", "memo", "petal") else {}))
    assert torch.isfinite(adapter(x())).all()


def test_fisher_weights_come_from_images_alone_even_inside_no_grad() -> None:
    batches = list(stream()[:2])
    with torch.no_grad():
        inside = ctta.fisher_from_source(WithUnusedNorm(), batches)
    assert torch.equal(inside, ctta.fisher_from_source(WithUnusedNorm(), batches)) and inside.max() > 0


@pytest.mark.parametrize(
    ("batch", "words"),
    [
        ((torch.zeros(4, 3, 16, 16, dtype=torch.uint8), torch.arange(4)), "Divide uint8"),
        ((torch.full((4, 3, 16, 16), float("nan")), torch.arange(4)), "must be finite"),
        ((torch.zeros(4, 3, 16, 16), torch.tensor([0, 1, 2, 10])), r"in 0\.\.9; got 0\.\.10"),
        ((torch.zeros(4, 3, 16, 16), torch.arange(3)), "need 4 integer labels"),
    ],
)
def test_bad_source_data_are_named(batch: tuple[Tensor, Tensor], words: str) -> None:
    with pytest.raises(errors.CttaError, match=words):
        ctta.prototypes_from_source(net(), [batch])


def test_batch_norms_without_statistics_and_bf16_go_with_a_source_prior() -> None:
    model = net().float()
    model.bn1 = nn.BatchNorm2d(8, track_running_stats=False)
    assert ctta.BN(model, alpha=0.5)(x().float()).isfinite().all()
    assert ctta.BN(net().float(), alpha=0.5, precision="bf16")(x().float()).isfinite().all()


def test_an_autocast_around_the_adapter_changes_nothing() -> None:
    model = net().float()
    with torch.autocast("cpu", torch.bfloat16):
        logits = ctta.Tent(model)(x().float())
    assert torch.equal(logits, ctta.Tent(model)(x().float()))


def test_a_window_refuses_images_of_another_size() -> None:
    adapter = ctta.Tent(net(), window=4)
    adapter(x()[:1])
    with pytest.raises(errors.ImageShape, match="one size"):
        adapter(torch.rand(1, 3, 20, 20))


@pytest.mark.parametrize(("cls", "options"), [(ctta.CoTTA, {"views": 2.5}), (ctta.RoTTA, {"memory_size": 2.5})])
def test_a_count_that_is_not_whole_is_refused(cls: type, options: dict[str, float]) -> None:
    with pytest.raises(errors.ParameterError, match="whole number"):
        cls(net(), **options)


def test_building_an_adapter_leaves_every_global_generator_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(seed: int) -> None:
        raise AssertionError("the global generator was seeded")

    model = net()
    monkeypatch.setattr(torch, "manual_seed", refuse)
    state = torch.get_rng_state()
    ctta.DMSE(model)
    assert torch.equal(torch.get_rng_state(), state)


def test_a_warm_up_on_a_broken_batch_is_counted_and_ends_at_the_full_learning_rate() -> None:
    bad = (torch.full((4, 3, 16, 16), 0.5), torch.arange(4))
    adapter = ctta.RMT(Fragile(), source=[bad])
    for part in (m for m in adapter.modules() if isinstance(m, Fragile)):
        part.broken = True
    adapter.warm_up(2)
    assert adapter.skipped == 2 and adapter._optimizer is not None
    assert adapter._optimizer.param_groups[0]["lr"] == 1e-3


def test_an_answer_holds_the_adapter_until_it_is_learnt_from_or_forgotten() -> None:
    adapter = ctta.DMSE(net())
    answer = adapter.ask(x())
    for call in (lambda: adapter(x()), lambda: adapter.predict(x()), adapter.reset, lambda: adapter.ask(x())):
        with pytest.raises(errors.ConcurrentUse):
            call()
    answer.learn()
    adapter.ask(x()).forget()
    assert adapter.steps == 1
    adapter(x())


def test_an_answer_is_used_once() -> None:
    answer = ctta.Tent(net()).ask(x())
    answer.learn()
    for call in (answer.learn, answer.forget):
        with pytest.raises(errors.AnswerFinished):
            call()


def test_an_answer_that_is_dropped_is_forgotten() -> None:
    adapter = ctta.Tent(net())
    before = adapter.state_dict()
    answer = adapter.ask(x())
    del answer
    assert difference(before, adapter.state_dict()) is None


def test_changing_the_logits_of_an_answer_does_not_change_what_is_learnt() -> None:
    one, two = ctta.Tent(net()), ctta.Tent(net())
    answer = one.ask(x())
    answer.logits.zero_()
    answer.learn()
    two(x())
    assert difference(one.state_dict(), two.state_dict()) is None


@pytest.mark.parametrize("arguments", [{"recompute": True}, {"window": 32}, {"reset_every": 2}, {"invalid": "answer"}])
def test_ask_and_learn_is_step_with_every_shared_option(arguments: dict[str, object]) -> None:
    one, two = ctta.DMSE(net(), **arguments), ctta.DMSE(net(), **arguments)
    for i in range(4):
        batch = x(i)
        if arguments.get("invalid") and i == 2:
            batch[0] = float("nan")
        expected, answer = one.step(batch), two.ask(batch)
        assert torch.equal(expected.logits, answer.logits)
        assert difference(vars(expected), vars(answer.learn())) is None
    assert difference(one.state_dict(), two.state_dict()) is None


@pytest.mark.parametrize("target", ["logits", "gradient"])
@pytest.mark.parametrize("name", sorted(methods()))
def test_ask_and_learn_is_step_in_every_method_also_if_a_pass_or_a_gradient_is_not_finite(
    name: str, target: Literal["logits", "gradient"]
) -> None:
    cls = ctta.get_method(name)
    options = dict(SETTINGS.get(name, {})) | ({"reset_every": 3} if "reset_every" in cls.arguments() else {})

    def built() -> tuple[ctta.Adapter, Fault]:
        fault, source = Fault(), ctta.Classifier(bn_cnn())
        source.register_forward_hook(fault.hook)
        return cls(source, **options), fault

    (one, first), (two, second), images = built(), built(), drifting_images(16 * 6)
    for i, calls in enumerate([set(), {0}, set(), {1}, None, set()]):
        batch = images[16 * i : 16 * (i + 1)]
        with first.at(calls, target):
            expected = one.step(batch)
        with second.at(calls, target):
            answer = two.ask(batch)
            found = answer.learn()
        # NaN is equal to NaN here.
        for logits in (answer.logits, found.logits):
            torch.testing.assert_close(logits, expected.logits, rtol=0, atol=0, equal_nan=True)
        assert str((found.loss, found.log)) == str((expected.loss, expected.log))
    assert one.skipped == two.skipped and difference(one.state_dict(), two.state_dict()) is None


def test_a_refused_batch_leaves_the_adapter_free() -> None:
    adapter = ctta.Tent(net())
    with pytest.raises(errors.ImageRange):
        adapter.ask(2 * x() + 1)
    assert torch.equal(adapter(x()), ctta.Tent(net())(x()))


@pytest.mark.parametrize(
    ("optimizer", "message"),
    [
        (lambda parameters: None, "must return a torch.optim.Optimizer.*NoneType"),
        (torch.optim.LBFGS, "LBFGS evaluates the loss several times"),
    ],
)
def test_an_optimizer_of_ones_own_that_cannot_take_a_step_is_refused(optimizer: Any, message: str) -> None:
    with pytest.raises(errors.ParameterError, match=message):
        ctta.Tent(net(), optimizer=optimizer)


@pytest.mark.parametrize("guard", [False, True])
def test_the_memory_of_a_batch_may_be_used_again_before_it_is_learnt(guard: bool) -> None:
    one, other = (ctta.adapt(gn_cnn(), mirror=False, guard=guard) for _ in range(2))
    batch = x(0)
    answer = one.ask(batch)
    batch.zero_()
    answer.learn()
    other.step(x(0))
    assert difference(one.state_dict(), other.state_dict()) is None


def test_half_precision_is_refused_after_construction_too() -> None:
    adapter = ctta.Tent(net())
    before = adapter.state_dict()
    for convert in (adapter.half, lambda: adapter.to(torch.float16)):
        with pytest.raises(errors.ModelError, match="float16"):
            convert()
    assert difference(before, adapter.state_dict()) is None
