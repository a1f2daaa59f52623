"""The measurements run, count what they claim, and compare like with like."""

from __future__ import annotations

import copy
import json
import math
import re
import subprocess
from dataclasses import replace
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

import ctta
from contract.variations import SETTINGS
from ctta._system import allocator
from ctta.augment import View
from ctta.bench.jobs import Inputs, Job, Procedure, RunOptions, Workload
from ctta.errors import BadData
from ctta.registry import methods
from reference import flip, net, stream

pytestmark = pytest.mark.trial

ROOT = Path(__file__).resolve().parents[1]


@pytest.fixture(autouse=True)
def _measurements_importable(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(ROOT))


def part(name: str) -> Any:
    return import_module(f"benchmarks.{name}")


SLOW = [
    pytest.param(name, marks=pytest.mark.slow) for name in ("answer", "guarded", "levers", "memory", "start", "step")
]


@pytest.mark.parametrize("name", ["growth", "checkpoint", "blend", *SLOW])
def test_a_measurement_runs_and_writes_its_numbers(
    name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert part("__main__").main(["--quick", "--only", name, "--json", str(tmp_path / "bench.json")]) == 0
    record = json.loads((tmp_path / "bench.json").read_text())
    assert record["machine"]["torch"] == torch.__version__
    rows = [row for report in record["reports"] for row in report["rows"]]
    assert rows and all(math.isfinite(row["value"]) for row in rows)
    printed = capsys.readouterr().out
    assert all(report["title"] in printed for report in record["reports"])
    if name == "step":
        assert {row["name"] for row in rows} >= {f"{m} {p}" for m in methods() for p in ("fp32", "bf16")}


def test_a_service_is_measured_under_every_load(tmp_path: Path) -> None:
    options = ["--quick", "--seconds", "0.1", "--clients", "2", "--method", "tent", "--memory-of", "tent"]
    part("serve").main([*options, "--json", str(tmp_path / "serve.json")])
    found = json.loads((tmp_path / "serve.json").read_text())
    loads = {(load["load"], load["variant"]): load for load in found["loads"]}
    names = ("closed loop", "30% of capacity", "60% of capacity")
    assert list(loads) == [(name, variant) for name in names for variant in ("frozen", "after", "split")]
    for (_, variant), load in loads.items():
        assert load["requests"] > 0
        assert 0 < load["p50"] <= load["p99"]
        assert (load["learnt"] == 0) == (variant == "frozen")
    assert found["memory"][0]["in_the_long_run"] > found["memory"][0]["after_one_step"] > 0


def test_the_cost_of_the_protocol_is_measured_for_every_front_end(tmp_path: Path) -> None:
    pytest.importorskip("starlette", reason="needs the extra serve")
    pytest.importorskip("grpc", reason="needs the extra serve-grpc")
    options = ["--sides", "16", "--requests", "5", "--rounds", "1", "--json", str(tmp_path / "protocol.json")]
    part("serve_protocol").main(options)
    (times,) = json.loads((tmp_path / "protocol.json").read_text()).values()
    assert list(times) == ["in the process", "HTTP, JSON", "HTTP, binary", "gRPC"]
    assert times["in the process"] > 0 and all(math.isfinite(value) for value in times.values())


def guard_task() -> Any:
    generator = torch.Generator().manual_seed(0)
    good = [
        (torch.rand(4, 3, 8, 8, generator=generator), torch.randint(5, (4,), generator=generator)) for _ in range(180)
    ]
    return part("guard_streams").Task(small_model(), good, lambda method: {"lr": 0.01})


def test_a_breaking_stream_is_good_then_bad_then_good() -> None:
    streams = part("guard_streams")
    trials = {trial.name: trial for trial in streams.breaking(guard_task(), "tent", bad=10)}
    assert list(trials) == ["learning rate", "one class", "noise", "black", "sorted"]
    good = guard_task().good
    for name, trial in trials.items():
        if name == "learning rate":
            assert trial.options == {"lr": 0.05}
            continue
        assert trial.good_again == 46
        assert all(torch.equal(a, b) for (a, _), (b, _) in zip(trial.batches[:36], good[:36], strict=True))
        assert all(torch.equal(a, b) for (a, _), (b, _) in zip(trial.batches[46:], good[108:168], strict=True))
    bad = {name: trial.batches[36:46] for name, trial in trials.items()}
    assert {int(label) for _, y in bad["one class"] for label in y} == {3}
    assert all(x.eq(0).all() for x, _ in bad["black"])
    labels = torch.cat([y for _, y in bad["sorted"]])
    assert torch.equal(labels, labels.sort().values)


def test_a_fallback_is_never_worse_than_batch_statistics() -> None:
    guard, streams = part("guard"), part("guard_streams")
    task = guard_task()
    trial = next(trial for trial in streams.breaking(task, "tent", bad=2) if trial.name == "sorted")
    # Fires on the first batches and again in every probation.
    found = guard.run("own", "tent", trial, task.source, rules="entropy < 100: fallback", compare=False)
    assert found.alarms
    assert found.worst_after_alarm == 0
    assert found.first_good == 0
    assert found.verdict() == "holds"


def test_a_published_run_is_repeated_with_a_guard(tmp_path: Path) -> None:
    guard_runs = part("guard_runs")
    command = "ctta run tent digits --images 100 --corruptions fog,contrast --batch-size 40"
    inputs = Inputs("digits", "digits_resnet8", corruptions=("fog", "contrast"), images=100)
    job = Job(Workload(Procedure("tent", batch_size=40), inputs), RunOptions(command=command))
    record = job.execute(tmp_path)
    outcome = guard_runs.repeat(record, tmp_path)
    assert (outcome.batches, outcome.alarms) == (6, [])
    assert outcome.guarded == pytest.approx(record.mean)
    kept = tmp_path / "guard.json"
    command_line = [str(tmp_path), "--root", str(tmp_path), "--json", str(kept)]
    assert guard_runs.main(command_line) == guard_runs.main([*command_line, "--methods", "tent", "dmse"]) == 0
    (row,) = json.loads(kept.read_bytes())
    assert (row["task"], row["alarms"], row["title"][:6]) == (record.address, [], "digits")
    assert guard_runs.main([*command_line, "--seeds", "1"]) == 0
    longer = replace(record, spec=replace(record.spec, images=50))
    with pytest.raises(BadData, match="is another one"):
        guard_runs.repeat(longer, tmp_path)


def test_steps_with_and_without_freed_memory_are_timed_in_processes_of_their_own(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(ROOT)
    sizes = ["--images", "2", "--side", "32", "--steps", "1", "--rounds", "1"]
    monkeypatch.setattr("sys.argv", ["freed_memory", *sizes])
    if not allocator._is_glibc():  # no other C library can keep freed memory, and the process that should says so
        with pytest.raises(subprocess.CalledProcessError):
            part("freed_memory").main()
        return
    part("freed_memory").main()
    kept, given_back, ratio = capsys.readouterr().out.splitlines()
    assert re.fullmatch(r"kept: \d+\.\d\d s", kept) and re.fullmatch(r"given back: \d+\.\d\d s", given_back)
    assert float(ratio.rpartition(" ")[2]) > 0


def test_the_shares_of_overconfidence_are_those_of_a_plain_loop(monkeypatch: pytest.MonkeyPatch) -> None:
    task = part("guard_streams").digits()
    task = replace(task, good=task.good[:2])
    monkeypatch.setattr(part("overconfidence"), "cifar", lambda *given: task)
    found = part("overconfidence").measure(Path(), "digits_resnet8")
    network = copy.deepcopy(task.source).train()
    doubts, wrong, changed = [], [], []
    with torch.no_grad():
        for x, y in task.good:
            logits = network(x)
            moved = network(nn.functional.pad(x, (2, 0, 2, 0), mode="replicate")[:, :, :32, :32])
            doubts += [1 - max(row) for row in logits.softmax(1).tolist()]
            wrong += (logits.argmax(1) != y).tolist()
            changed += (logits.argmax(1) != moved.argmax(1)).tolist()
    assert found.expected == pytest.approx(sum(doubts) / len(doubts), abs=1e-5)
    assert found.wrong == pytest.approx(sum(wrong) / len(wrong))
    assert found.changed == pytest.approx(sum(changed) / len(changed))
    # Each batch counts 0.9 times the next, and ten images count as calibrated.
    half = len(doubts) // 2
    many = 0.9 * sum(changed[:half]) + sum(changed[half:]) + 10
    assert found.overconfidence == pytest.approx(max(many / (0.9 * sum(doubts[:half]) + sum(doubts[half:]) + 10), 1))


def test_every_target_belongs_to_a_row_that_is_measured() -> None:
    plan, targets = part("plan"), part("targets").TARGETS
    by_step = {f"step: {s.title}": s for s in plan.NETWORKS.values()}
    for title in targets:
        if title in by_step:
            names = {f"{m} {p}" for m in by_step[title].methods for p in ("fp32", "bf16")}
            names |= {f"dmse {p} / straightforward" for p in ("fp32", "bf16")}
            assert set(targets[title]) <= names
    others = set(targets) - set(by_step)
    assert others == {
        "start",
        "answer: ResNet-20, 32 px, batch 64",
        "split: ResNet-20, 32 px, batch 64",
        f"blend: {plan.RESNET20.title}",
        f"memory: DMSE beyond training, {plan.RESNET20.title}",
    }


def test_works_take_turns_and_the_first_round_does_not_count(monkeypatch: pytest.MonkeyPatch) -> None:
    timing, calls = part("timing"), []
    clock = iter(range(1000))
    monkeypatch.setattr(timing.time, "perf_counter", lambda: float(next(clock)))
    rounds = timing.interleave({"a": lambda: calls.append("a"), "b": lambda: calls.append("b")}, 2)
    assert calls == ["a", "b"] * 3
    assert [t.wall for t in rounds.times["a"]] == [1.0, 1.0]


def test_a_ratio_is_the_median_of_the_ratios_within_a_round() -> None:
    timing = part("timing")
    base = [timing.Seconds(1, 1), timing.Seconds(2, 4), timing.Seconds(10, 10)]
    work = [timing.Seconds(3, 1), timing.Seconds(4, 4), timing.Seconds(40, 10)]
    assert timing.Rounds({"base": base, "work": work}).ratio("work", "base") == (3, 1)


@pytest.mark.parametrize(("value", "passed", "word"), [(6.4, True, "pass"), (6.6, False, "FAIL")])
def test_a_value_stands_beside_its_target(value: float, passed: bool, word: str) -> None:
    report = part("report")
    made = report.Report("step: ResNet-20, 32 px, batch 200", "by CPU", [report.Row("dmse fp32", value)])
    assert made.as_json()["rows"][0] == {
        "name": "dmse fp32", "value": value, "details": {}, "at_most": 6.5, "passed": passed
    }  # fmt: skip
    assert made.table().splitlines()[-1].endswith(word)


def test_a_bf16_verdict_says_when_the_processor_has_no_such_instructions(monkeypatch: pytest.MonkeyPatch) -> None:
    report = part("report")
    made = report.Report("step: ResNet-20, 32 px, batch 200", "by CPU", [report.Row("dmse bf16", 9.0)])
    monkeypatch.setattr(report, "has_bf16", lambda: False)
    assert "no bf16 instructions" in made.table()
    monkeypatch.setattr(report, "has_bf16", lambda: True)
    assert "no bf16 instructions" not in made.table()


def test_live_bytes_are_exact() -> None:
    def work() -> object:
        first = torch.empty(1000, 1000)  # 4 MB
        second = torch.empty(500, 1000)  # 2 MB
        del first
        return second, torch.empty(250, 1000)  # 1 MB

    assert part("memory").live_bytes(work) == (6_000_000, 3_000_000)


def test_the_straightforward_dmse_computes_what_dmse_does() -> None:
    model = ctta.Classifier(net())
    plain, ours = part("straightforward").StraightforwardDMSE(model, view=flip), ctta.DMSE(model, view=flip)
    for x in stream()[:5]:
        torch.testing.assert_close(plain(x), ours(x), rtol=0, atol=1e-9)


@pytest.mark.parametrize("seed", range(4))
def test_the_full_size_view_is_the_same_view(seed: int) -> None:
    x = torch.rand(2, 3, 32, 32, generator=torch.Generator().manual_seed(seed))
    plain = part("straightforward").full_size_view(x, torch.Generator().manual_seed(seed))
    torch.testing.assert_close(View()(x, torch.Generator().manual_seed(seed)), plain, rtol=0, atol=1e-5)


def small_model() -> ctta.Classifier:
    torch.manual_seed(0)
    layers = (nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(4, 5))
    return ctta.Classifier(nn.Sequential(*layers))


# One method of each kind of state; tests/hostile/long_streams.py has all of them, and the contract counts what Python
# can see of every one.
@pytest.mark.slow
@pytest.mark.parametrize("name", ["asr", "cotta", "petal", "rdumb", "rotta", "santa", "trio"])
def test_sixty_steps_leave_no_tensor_behind(name: str) -> None:
    # RDumb resets among the last steps; ASR never does, because it has fewer tensors after a reset than before.
    options = {**SETTINGS, "asr": {"a_0": 1e-3, "m_0": 0.0}, "rdumb": {"reset_every": 58}}.get(name, {})
    adapter = methods()[name](small_model(), **options)
    batches = torch.rand(20, 4, 3, 8, 8, generator=torch.Generator().manual_seed(0))

    def steps(count: int) -> None:
        for i in range(count):
            adapter(batches[i % 20])

    # Methods that learn from a memory do so every few batches: all of these end right after they have.
    steps(40)
    # The profiler knows the size of what it has seen allocated: let it see the buffers that every step replaces.
    part("memory").live_bytes(lambda: steps(8))
    assert part("memory").live_bytes(lambda: steps(16)).left == 0


def test_dmse_differentiates_no_more_at_once_than_training_on_the_batch_and_its_view() -> None:
    """Beyond that: the teacher, the source copy, the prototypes, and the projection, which plain training lacks."""
    memory, plan = part("memory"), part("plan")
    subject = plan.TINY
    ours, training = memory._stepped(subject, "dmse"), memory._trained(subject, 2)
    adapter = subject.adapter("dmse")
    network, project = (sum(p.nbytes for p in m.parameters()) for m in (adapter.student, adapter.project))
    # A projection learns: its weights, source copy, gradient and two moments, and its activations for 3 x 8 features.
    activations = 3 * subject.batch * (adapter.student.num_features + 8 * 128) * 4
    allowed = 2 * network + 3 * adapter.p_0.nbytes + 5 * project + activations
    assert ours.peak - training.peak <= allowed


def test_with_recompute_the_activations_of_one_batch_live_at_a_time() -> None:
    x = torch.rand(64, 3, 16, 16, generator=torch.Generator().manual_seed(0))

    def peak(**options: Any) -> int:
        adapter = ctta.DMSE(net().float(), **options)
        adapter(x)  # the optimizer's moments are there
        return int(part("memory").live_bytes(lambda: adapter(x)).peak)

    activations = 64 * 16 * 16 * 8 * 4  # of one layer of the first stage, which has seven to keep
    assert peak() - peak(recompute=True) > 7 * activations


def same_images(x: torch.Tensor, generator: torch.Generator) -> torch.Tensor:
    """A view that changes nothing."""
    return x


@pytest.mark.parametrize(
    ("module", "name", "published", "second"),
    [("controls", "FreeRMT", ctta.RMT, "teacher"), ("control_santa", "FreeSANTA", ctta.SANTA, "anchor")],
)
def test_a_control_predicts_with_all_passes_and_learns_as_published(
    module: str, name: str, published: type[Any], second: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(part(module), "GEOMETRIC", same_images)
    control = getattr(part(module), name)(net(), statistics="source", projection=None)
    x = stream()[0]
    with torch.no_grad():
        student, other = control.student(x), getattr(control, second)(x.flip(-1))
    torch.testing.assert_close(control.step(x).logits, (2 * student + other) / 3, rtol=0, atol=1e-12)

    symmetric = torch.cat([x, x.flip(-1)], -1)  # the mirror image is the image itself
    control = getattr(part(module), name)(net(), statistics="source", projection=None)
    plain = published(net(), statistics="source", projection=None, view=same_images)
    assert control.step(symmetric).loss == pytest.approx(plain.step(symmetric).loss, rel=1e-9)
    for mine, theirs in zip(control.student.parameters(), plain.student.parameters(), strict=True):
        torch.testing.assert_close(mine, theirs, rtol=0, atol=1e-9)


def test_leaving_the_view_out_of_the_prediction_changes_nothing_that_trio_learns() -> None:
    x = stream()[0]
    whole = ctta.Trio(net(), statistics="source")
    two = part("parts_of_trio").TwoPredict(net(), statistics="source")
    with torch.no_grad():
        expected = (two.student(x) + two.teacher(x.flip(-1))) / 2
    step = two.step(x)
    torch.testing.assert_close(step.logits, expected, rtol=0, atol=1e-12)
    assert step.loss == whole.step(x).loss and not torch.equal(step.logits, whole.predict(x))
    for mine, theirs in zip(two.student.parameters(), whole.student.parameters(), strict=True):
        assert torch.equal(mine, theirs)
    with torch.no_grad():
        expected = (two.student(x) + two.teacher(x.flip(-1))) / 2
    torch.testing.assert_close(two.predict(x), expected, rtol=0, atol=1e-12)


def test_trio_with_the_colour_view_is_trio_with_the_published_view() -> None:
    x = stream()[0]
    step = part("parts_of_trio").ColourView(net(), lr=0.01).step(x)
    same, usual = ctta.Trio(net(), lr=0.01, view=View()).step(x), ctta.Trio(net(), lr=0.01).step(x)
    assert torch.equal(step.logits, same.logits) and step.loss == same.loss != usual.loss


def test_the_control_without_learning_averages_three_predictions(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(part("controls"), "GEOMETRIC", same_images)
    control, x = part("controls").FreeBN(net(), statistics="source"), stream()[0]
    with torch.no_grad():
        expected = (2 * control.student(x) + control.student(x.flip(-1))) / 3
    torch.testing.assert_close(control.step(x).logits, expected, rtol=0, atol=1e-12)
    torch.testing.assert_close(control.step(x).logits, expected, rtol=0, atol=1e-12)
