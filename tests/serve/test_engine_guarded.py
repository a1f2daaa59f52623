"""A guarded adapter keeps the contract of adapters, and recovers from harm."""

from __future__ import annotations

import math
from collections import deque
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import ctta
from ctta.adapter import Adapter
from ctta.errors import CheckpointError, ConcurrentUse, MethodMismatch, ParameterError, SourceMismatch
from ctta.guard import DEFAULT_RULES, Compared, Rule, Signals, Watch, parse_rules
from ctta.guarded.confidence import Confidence, shifted
from ctta.guarded.pool import Pool
from ctta.testing import Subject, checks
from ctta.testing.compare import difference
from ctta.testing.contract import Check
from ctta.testing.models import bn_cnn
from ctta.testing.task import trained

#: Fires on the first batch.
ALARM: dict[str, Any] = {"rules": "entropy < 100: fallback", "patience": 1.0, "cooldown": 2}
FREEZE: dict[str, Any] = {"rules": "entropy < 100: freeze", "patience": 1.0}
#: Fires on the 21st batch that is compared.
COMPARE: dict[str, Any] = {"rules": "agreement < 100: freeze", "patience": 20.0 * 48}
#: Points that an alarm may change.
IN_ALARM = ("finite_logits", "reset_restores", "resume_bit_equal", "predict_leaves_no_trace", "ask_and_learn_is_step")
IN_ALARM += ("forget_leaves_no_trace", "predicts_before_learning", "batch_of_one", "accidents_do_not_reach_weights")

SHOWS: dict[str, Any] = {
    "rules": {"rules": "entropy < 100: fallback", "patience": 1.0},
    "patience": ({"rules": "entropy < 100: fallback"}, {"rules": "entropy < 100: fallback", "patience": 1.0}),
    "cooldown": ({**FREEZE, "cooldown": 2}, {**FREEZE, "cooldown": 9}),
    "every": ({**COMPARE, "every": 1}, {**COMPARE, "every": 3}),
}


@cache
def model() -> nn.Module:
    return trained(bn_cnn)


def guarded(model: nn.Module, **arguments: Any) -> ctta.Guarded:
    return ctta.Guarded(ctta.Tent(model, lr=0.01), **arguments)


def batches(count: int, size: int = 48) -> list[Tensor]:
    generator = torch.Generator().manual_seed(4)
    return [torch.rand(size, 3, 16, 16, generator=generator) for _ in range(count)]


@pytest.mark.parametrize("check", [pytest.param(check, id=name) for name, check in checks()])
def test_a_guarded_adapter_keeps_the_contract(check: Check) -> None:
    if check.__name__ == "every_argument_counts":
        pytest.skip("the arguments of the guard show after an alarm, which seven small batches do not make")
    check(Subject(guarded, model))


@pytest.mark.parametrize("check", [pytest.param(check, id=name) for name, check in checks() if name in IN_ALARM])
def test_a_guarded_adapter_in_alarm_keeps_the_contract(check: Check) -> None:
    check(Subject(lambda model: guarded(model, **ALARM), model))


@pytest.mark.parametrize("name", sorted(SHOWS))
def test_every_argument_of_the_guard_counts(name: str) -> None:
    usual, other = SHOWS[name] if isinstance(SHOWS[name], tuple) else ({}, SHOWS[name])
    one, two = guarded(model(), **usual), guarded(model(), **other)
    # The first 8 batches are all compared, whatever `every` is.
    assert any(difference(one.step(x).logits, two.step(x).logits) for x in batches(30 if name == "every" else 9))


def test_a_rollback_returns_to_the_last_state_that_stayed_without_an_alarm() -> None:
    adapter = guarded(model(), rules="skipped > 0.5: rollback", patience=1.0, keep_every=2)
    for x in batches(5):
        adapter.step(x)
    adapter.judge(Signals(48, 0.5, 0.5, finite=False), learnt=True)
    # Kept after two and after four steps; only the first was followed by two more without an alarm.
    assert adapter.steps == 2


@pytest.mark.parametrize(("method", "scale"), [(ctta.Tent, 1.0), (ctta.DMSE, 1.0), (ctta.RMT, 2.0), (ctta.ROID, 1.0)])
def test_a_method_that_adds_up_two_networks_is_not_taken_for_surer(method: type[Adapter], scale: float) -> None:
    adapter = ctta.Guarded(method(model()), every=1)
    x = batches(1)[0]
    unadapted = ctta.BN(model()).predict(x).double().softmax(1)
    entropy = -(unadapted * unadapted.log()).sum(1).mean().item() / math.log(10)
    first = adapter.reference.predict(x, 48)
    first[0] = first[0].roll(1)  # one of 48 predictions differs
    compared = adapter.pool.add(first, adapter.reference.predict(x, 48), adapter.reference.logit_scale)
    assert compared is not None
    assert adapter.reference.logit_scale == scale
    if method is not ctta.ROID:  # which corrects its predictions for the classes of the batch
        assert compared.drift == pytest.approx(1 / 48 / max(entropy, 0.05), rel=1e-4)


def test_regret_weighs_every_changed_prediction_by_how_sure_the_unadapted_network_was() -> None:
    beliefs = torch.tensor([[0.9, 0.08, 0.02], [0.5, 0.4, 0.1], [0.6, 0.3, 0.1], [0.2, 0.7, 0.1]]).repeat(12, 1)
    chosen = torch.tensor([1, 1, 0, 1]).repeat(12)
    compared = Pool().add(torch.eye(3)[chosen], beliefs.log())
    # 0.9 - 0.08 and 0.5 - 0.4 are lost; its own doubt is 0.1 + 0.5 + 0.4 + 0.3.
    assert compared is not None
    assert compared.regret == pytest.approx((0.82 + 0.1) / 1.3)
    sure = torch.tensor([[1.0, 0.0]]).repeat(48, 1)
    one_differs = torch.cat([torch.tensor([[0.0, 1.0]]), sure[1:]])
    compared = Pool().add(one_differs, (sure + 1e-30).log())
    # Nobody is without doubt: at least 2 % are assumed.
    assert compared is not None
    assert compared.regret == pytest.approx(1 / 48 / 0.02)


def test_a_network_whose_predictions_change_more_often_than_it_doubts_is_overconfident() -> None:
    beliefs = torch.tensor([[0.98, 0.01, 0.01], [0.9, 0.06, 0.04]]).repeat(50, 1)
    moved = beliefs.clone()
    moved[::4] = moved[::4].roll(1, 1)  # a quarter of the predictions changes
    confidence = Confidence()
    assert confidence.overconfidence == 1.0
    for _ in range(3):
        confidence.measure(beliefs.log(), moved.log())
    weights = 1 + 0.9 + 0.81
    doubted = weights * 50 * (0.02 + 0.1)
    assert confidence.overconfidence == pytest.approx((weights * 25 + 10) / (doubted + 10))
    for _ in range(30):
        confidence.measure(beliefs.log(), beliefs.roll(1, 1).log())
    assert confidence.overconfidence == 3.0  # it is not believed to be worse than that
    for _ in range(60):
        confidence.measure(beliefs.log(), beliefs.log())
    assert confidence.overconfidence == 1.0  # and never to doubt too much
    broken = beliefs.log()
    broken[3, 1] = torch.nan
    confidence.measure(broken, moved.log())
    assert math.isfinite(confidence.overconfidence)
    # Regret is measured against the errors that it makes, and not against those that it expects.
    chosen = torch.eye(3)[torch.tensor([0, 1]).repeat(24)]
    plain, scaled = (Pool().add(chosen, beliefs[:48].log(), overconfidence=factor) for factor in (1.0, 2.5))
    assert plain is not None and scaled is not None
    assert scaled.regret == pytest.approx(plain.regret / 2.5) and scaled.drift == plain.drift


def test_the_confidence_is_measured_on_the_first_comparisons_and_then_on_every_eighth() -> None:
    adapter = ctta.Guarded(ctta.Tent(model()), every=1)
    calls = []
    predict = adapter.reference.predict

    def counted(*args: Any) -> Tensor:
        calls.append(args[0])
        return predict(*args)

    adapter.reference.predict = counted  # type: ignore[method-assign]
    passes = []
    for x in batches(18):
        before = len(calls)
        adapter.step(x)
        passes.append(len(calls) - before)
    assert passes == [2] * 9 + [1] * 7 + [2, 1]
    assert adapter.confidence.comparisons == 18 and adapter.confidence.doubted > 0


def test_images_are_moved_by_a_sixteenth_of_their_side_and_their_edges_repeated() -> None:
    x = torch.rand(2, 3, 32, 20)
    found = shifted(x)
    for row in range(32):
        for column in range(20):
            assert torch.equal(found[..., row, column], x[..., max(0, row - 2), max(0, column - 1)])


def test_a_new_stream_is_watched_closely() -> None:
    watch = Watch(DEFAULT_RULES, every=4)
    asked = []
    for _ in range(24):
        asked.append(watch.asks_reference())
        watch.observe(seen(0.95))
    assert asked == [True] * 8 + [True, False, False, False] * 4


def test_regret_from_the_first_batch_on_is_an_alarm_and_one_that_grows_slowly_is_not() -> None:
    watch = Watch(DEFAULT_RULES, unadapted=True)
    # The excess over a usual regret of 0 is (0.6 - 0.3) / 0.3 = 1 of 50 images: 50 of the 150 that are tolerated.
    assert next(i for i in range(20) if watch.observe(seen(0.9, regret=0.6)).alarm) == 2
    watch = Watch(DEFAULT_RULES, unadapted=True)
    assert not any(watch.observe(seen(0.9, regret=0.003 * i)).alarm for i in range(200))


@pytest.mark.parametrize("method", [ctta.DMSE, ctta.RMT, ctta.OBAO])
def test_equal_networks_of_the_reference_are_run_once(method: type[Adapter]) -> None:
    adapter = ctta.Guarded(method(model()))
    x = batches(1)[0]
    expected = method(model()).predict(x)
    for y in batches(2):
        adapter.step(y)
    calls = []
    for network in (adapter.reference.adapter.student, adapter.reference.adapter.teacher):
        network.register_forward_pre_hook(lambda *_: calls.append(1))
    assert torch.equal(adapter.reference.predict(x, len(x)), expected)
    assert len(calls) == 1


def test_the_states_to_return_to_are_small() -> None:
    adapter = ctta.Guarded(ctta.Tent(model(), lr=0.01), keep_every=2)
    # The initial state is the adapter's own.
    assert adapter.footprint() == adapter.inner.footprint()
    for x in batches(2):
        adapter.step(x)
    learnt = sum(p.nbytes for p in adapter.trained)
    kept = adapter.footprint() - adapter.inner.footprint()
    # What learns and the generator: no moments, which would be twice what learns, and no buffer that never changed.
    assert kept == learnt + adapter.generator.get_state().nbytes


def test_an_adapter_that_has_learnt_before_returns_to_where_it_was_wrapped() -> None:
    inner = ctta.Tent(model(), lr=0.01)
    inner.step(batches(1)[0])
    before = inner.state_dict()
    adapter = ctta.Guarded(inner, rules="skipped > 0.5: rollback", patience=1.0)
    adapter.step(batches(2)[1])
    adapter.judge(Signals(48, 0.5, 0.5, finite=False), learnt=True)
    before["_extra_state"]["optimizer"]["state"] = {}
    assert difference(before, adapter.inner.state_dict()) is None


def test_without_an_alarm_a_guarded_adapter_is_its_adapter() -> None:
    alone, watched = ctta.Tent(model(), lr=0.01), guarded(model(), rules="")
    for x in batches(4):
        assert torch.equal(alone.step(x).logits, watched.step(x).logits)
    assert difference(alone.state_dict(), watched.inner.state_dict()) is None


def test_a_fallback_answers_as_the_unadapted_network_and_goes_back() -> None:
    adapter, unadapted = guarded(model(), **ALARM), ctta.BN(model())
    first, *rest = batches(4)
    fresh = adapter.inner.state_dict()
    assert adapter.step(first).log["alarm"] == 1.0
    assert difference(fresh, adapter.inner.state_dict()) is None
    for x in rest[:2]:
        torch.testing.assert_close(adapter.step(x).logits, unadapted.predict(x))
        assert adapter.steps == 0
    assert adapter.watch.phase == "probation"
    torch.testing.assert_close(adapter.predict(rest[2]), unadapted.predict(rest[2]))


def test_a_collapse_is_noticed_and_undone() -> None:
    adapter = ctta.Guarded(ctta.Tent(model(), lr=1.0), every=1)
    alarms = [i for i, x in enumerate(batches(30)) if "alarm" in adapter.step(x).log]
    assert alarms
    assert alarms[0] < 10


def test_a_saved_guarded_adapter_goes_on_bit_for_bit(tmp_path: Path) -> None:
    adapter = guarded(model(), **ALARM)
    for x in batches(2):
        adapter.step(x)
    adapter.save(tmp_path / "guarded.safetensors")
    again = ctta.Guarded.load(tmp_path / "guarded.safetensors", model())
    for x in batches(6):
        assert torch.equal(adapter.step(x).logits, again.step(x).logits)
    assert difference(adapter.state_dict(), again.state_dict()) is None


def test_a_guarded_adapter_refuses_other_files_and_states(tmp_path: Path) -> None:
    adapter, plain = guarded(model()), ctta.Tent(model(), lr=0.01)
    plain.save(tmp_path / "plain.safetensors")
    with pytest.raises(MethodMismatch):
        ctta.Guarded.load(tmp_path / "plain.safetensors", model())
    with pytest.raises(CheckpointError):
        adapter.load_state_dict(plain.state_dict())
    adapter.save(tmp_path / "guarded.safetensors")
    with pytest.raises(SourceMismatch):
        ctta.Guarded.load(tmp_path / "guarded.safetensors", bn_cnn())
    with pytest.raises(ParameterError):
        ctta.Guarded(adapter)


@pytest.mark.parametrize(
    "text",
    ["drift > usual + 0.75: fallback", "agreement < 0.5 * usual - 0.1: rollback", "skipped > 0.5: freeze"],
)
def test_a_rule_reads_what_it_writes(text: str) -> None:
    assert str(Rule.parse(text)) == text


@pytest.mark.parametrize("page", ["guard.md", "serving.md"])
def test_the_default_rules_are_those_that_the_documentation_tells(page: str) -> None:
    text = (Path(__file__).parents[2] / "docs" / page).read_text(encoding="utf-8")
    assert all(str(rule) in text for rule in DEFAULT_RULES)


@pytest.mark.parametrize("text", ["", "drift > usual", "mood < 1: freeze", "drift > 1: explode", "loss > x: freeze"])
def test_what_is_not_a_rule_is_refused(text: str) -> None:
    with pytest.raises(ParameterError, match="not a rule"):
        Rule.parse(text)


def seen(agreement: float, lost: float = 0.0, regret: float = 0.0) -> Signals:
    return Signals(50, 0.2, 0.9, 1.0, True, Compared(50, agreement, (1 - agreement) / 0.2, regret, lost))


def test_one_odd_batch_is_no_alarm_and_a_collapse_is_one_at_once() -> None:
    watch = Watch(DEFAULT_RULES)
    values = [*[0.95] * 20, 0.7, *[0.95] * 20]
    assert all(watch.observe(seen(value)).alarm is None for value in values)
    assert watch.observe(seen(0.1, 0.5)).restore == "good"


def test_harm_from_the_first_batch_on_does_not_pass_for_usual() -> None:
    harmed = [seen(0.6)] * 20  # a drift of 0.4 / 0.2 = 2 from the start
    assert all(Watch(DEFAULT_RULES).observe(signals).alarm is None for signals in harmed)
    watch = Watch(DEFAULT_RULES, unadapted=True)
    # The excess over a usual drift of 0 is (2 - 1) / 1 = 1 of 50 images: 50 of the 150 that are tolerated.
    assert next(i for i, signals in enumerate(harmed) if watch.observe(signals).alarm) == 2


@pytest.mark.parametrize(("images", "others"), [(50, 8), (200, 2), (1000, 1), (48, 8)])
def test_the_agreement_of_an_unadapted_adapter_counts_as_400_images(images: int, others: int) -> None:
    watch = Watch(DEFAULT_RULES, unadapted=True)
    for count in range(1, 12):
        watch.observe(Signals(images, 0.1, 0.9, compared=Compared(images, 0.9, 0.3, 0.2, 0.0)))
        assert list(watch.usual["regret"]) == [0.0] * others + [0.2] * count


def test_the_reference_looks_at_the_random_views_of_the_adapter() -> None:
    still = ctta.Trio(model(), lr=1e-12, alpha_min=1.0)
    adapter = ctta.Guarded(still, every=1)
    for x in batches(4):
        before = still.generator.get_state()
        adapter.step(x)
        assert adapter.signals is not None and adapter.signals.compared is not None
        assert adapter.signals.compared.agreement == 1 and adapter.signals.compared.regret == 0
        assert not torch.equal(still.generator.get_state(), before)


def test_an_adapter_that_moves_away_slowly_makes_the_new_distance_usual() -> None:
    watch = Watch(DEFAULT_RULES, unadapted=True)
    assert all(watch.observe(seen(1 - 0.0015 * i)).alarm is None for i in range(200))


def test_a_slow_loss_of_diversity_is_an_alarm_in_the_end() -> None:
    watch = Watch(DEFAULT_RULES)
    alarms = [i for i in range(40) if watch.observe(seen(0.95, 0.0561)).alarm]
    # The excess is (0.0561 - 0.035) / 0.035 = 0.603 of 50 images: 30.1 of the 150 that are tolerated.
    assert alarms[0] == 4


def test_cooldown_then_probation_then_ok_and_a_second_alarm_costs_more() -> None:
    watch = Watch(parse_rules("agreement < 0.5: fallback"), cooldown=3)
    watch.observe(seen(0.9))
    assert not watch.falls_back()
    while watch.observe(seen(0.0)).alarm is None:
        pass
    phases = []
    for _ in range(12):
        phases.append(watch.phase)
        assert watch.falls_back()
        watch.observe(seen(0.9))
    assert phases == ["cooldown"] * 3 + ["probation"] * 9
    assert watch.phase == "ok"
    while watch.observe(seen(0.0)).alarm is None:
        pass
    for _ in range(3):
        watch.observe(seen(0.9))
    verdict = watch.observe(seen(0.0))
    while verdict.alarm is None:
        verdict = watch.observe(seen(0.0))
    assert (verdict.restore, watch.left, watch.strikes) == ("source", 6, 3)
    for _ in range(6):
        watch.observe(seen(0.9))
    assert (watch.phase, watch.left) == ("probation", 3 * 3 * 6)


def test_the_probation_lasts_as_long_as_the_harm_took_to_show() -> None:
    lengths = []
    for healthy in (2, 100, 1000):
        watch = Watch(parse_rules("agreement < 0.5: fallback"), cooldown=3)
        for _ in range(healthy):
            watch.observe(seen(0.9))
        while watch.observe(seen(0.0)).alarm is None:
            pass
        taken = watch.batches
        while watch.phase == "cooldown":
            watch.observe(seen(0.9))
        lengths.append((taken, watch.left))
    # An excess of 1 over 50 images per batch: the third bad batch fires. Three cooldowns at least, 240 batches at most.
    assert lengths == [(5, 9), (103, 103), (1003, 240)]


def test_a_return_to_the_source_forgets_what_had_become_usual() -> None:
    watch = Watch(parse_rules("drift > usual + 1: fallback"), cooldown=3)
    for _ in range(30):
        watch.observe(seen(0.8))  # a usual drift of 0.2 / 0.2 = 1
    restored = []
    while "source" not in restored:
        restored.append(watch.observe(seen(0.0)).restore)
    assert restored.count("good") == 1
    while watch.phase == "cooldown":
        watch.observe(seen(1.0))
    # A drift of 1.8 is within the earlier limit of 2, and 0.8 of the new limit of 1 above it: 40 of 150 / (1 + 2).
    assert watch.observe(seen(0.64)).alarm is None
    assert watch.observe(seen(0.64)).alarm == "drift > usual + 1: fallback"


def test_the_state_of_a_guard_is_carried_over_whole() -> None:
    watch, other = Watch(DEFAULT_RULES), Watch(DEFAULT_RULES)
    for i in range(10):
        watch.observe(seen(0.9 - 0.05 * i, 0.01 * i))
    other.load(watch.state())
    assert other == watch
    assert isinstance(other.usual["drift"], deque)
    with pytest.raises(ValueError, match="rules"):
        Watch(()).load(watch.state())
    with pytest.raises(ValueError, match="unadapted"):
        other.load(Watch(DEFAULT_RULES, unadapted=True).state() | {"usual": {}})


@pytest.mark.parametrize("method", ["tent", "dmse", "rotta", "trio"])
def test_in_a_fallback_the_unadapted_network_is_exported(method: str) -> None:
    adapter = ctta.Guarded(ctta.get_method(method)(model(), lr=0.5), **ALARM)
    x, net = batches(3)[2], trained(bn_cnn)
    for images in batches(2):
        adapter.step(images)
    assert adapter.watch.falls_back()
    unadapted = ctta.get_method(method)(model())
    assert torch.equal(adapter.freeze()(x), unadapted.freeze()(x))
    adapter.load_into(net)
    expected = trained(bn_cnn)
    unadapted.load_into(expected)
    assert torch.equal(net.eval()(x), expected.eval()(x))


def test_a_guarded_adapter_goes_into_the_users_net_by_the_name_of_its_network() -> None:
    inner, x = ctta.RoTTA(model()), batches(1)[0]
    adapter, net = ctta.Guarded(inner), trained(bn_cnn)
    adapter.step(x)
    adapter.load_into(net, network="teacher")
    torch.testing.assert_close(net.eval()(x), inner.teacher(x), rtol=0, atol=1e-5)


def test_a_guarded_adapter_has_the_facts_of_its_method() -> None:
    prototypes = torch.rand(10, ctta.Classifier(model()).num_features)
    assert not ctta.Guarded(ctta.DMSE(model(), prototypes=prototypes)).source_free
    assert ctta.Guarded(ctta.DMSE(model())).source_free
    assert ctta.Guarded(ctta.get_method("lame")(model())).predicts_batch_together


def test_a_converted_guarded_adapter_is_loaded_in_its_own_precision(tmp_path: Path) -> None:
    adapter = guarded(model()).double()
    adapter.step(batches(1)[0])
    adapter.save(tmp_path / "adapter.ctta")
    loaded, x = ctta.Guarded.load(tmp_path / "adapter.ctta", model()), batches(2)[1]
    assert loaded.predict(x).dtype is torch.float64
    assert torch.equal(loaded.step(x).logits, adapter.step(x).logits)


def test_in_a_fallback_a_waiting_answer_locks_predictions_too() -> None:
    adapter, x = guarded(model(), **ALARM), batches(1)[0]
    adapter.step(x)
    assert adapter.watch.falls_back()
    answer = adapter.ask(x)
    with pytest.raises(ConcurrentUse):
        adapter.predict(x)
    answer.forget()
