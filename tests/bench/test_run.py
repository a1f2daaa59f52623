"""Runs: addressed by content, resumed bit for bit, recorded in full."""

from __future__ import annotations

import inspect
import json
import multiprocessing
import random
import signal
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import save_file
from typer.testing import CliRunner

from ctta import DMSE, Adapter, nets
from ctta.bench.arguments import build_adapter, method_arguments
from ctta.bench.compare import rows
from ctta.bench.defaults import batch_size
from ctta.bench.executors import run_jobs
from ctta.bench.folder import RunFolder, read_record, read_records
from ctta.bench.jobs import execute
from ctta.bench.record import SCHEMA, Record
from ctta.bench.workload import Inputs, Procedure, Workload
from ctta.cli import app
from ctta.datasets.digits import digits
from ctta.errors import (
    BadData,
    ConcurrentUse,
    MissingData,
    ParameterError,
    UnknownMethod,
    UnknownProtocol,
    UnknownStream,
)
from ctta.nets import classifier
from ctta.registry import methods
from dying import PACKAGE, Lines, traced
from jobs import change_job, make_job
from running import numbers

JOB = make_job(
    "dmse", "digits", "digits_resnet8", corruptions=("gaussian_noise", "fog", "contrast"), images=40, batch_size=10
)


class Interrupted(Exception):
    """Simulates Ctrl-C."""


def interrupt_after(count: int) -> Any:
    def listen(adapter: object, steps: int) -> Any:
        seen = []

        def progress(batch: object, log: object) -> None:
            seen.append(batch)
            if len(seen) == count:
                raise Interrupted

        return progress

    return listen


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> tuple[Record, Path]:
    folder = tmp_path_factory.mktemp("whole")
    return execute(JOB, folder), folder


def test_a_record_has_every_key_of_the_schema_and_its_numbers_add_up(whole: tuple[Record, Path]) -> None:
    record, folder = whole
    assert set(record.to_json()) == set(SCHEMA) and record == read_record(folder / record.address)
    steps = [json.loads(line) for line in RunFolder(folder / record.address).steps_file.read_text().splitlines()]
    assert [step["index"] for step in steps] == list(range(12))
    for domain, error in record.errors.items():
        mine = [step for step in steps if step["domain"] == domain]
        assert error == pytest.approx(100 * sum(s["wrong"] for s in mine) / sum(s["images"] for s in mine))
    assert record.mean == pytest.approx(sum(record.errors.values()) / 3)
    assert record.images == 120 and record.source_free and record.passes == (3, 2)
    assert record.settings["alpha_min"] == 0.99 and record.spec.data["origin"] == "generated"


@pytest.mark.parametrize("moment", [1, 5, 11])
def test_an_interrupted_run_ends_with_the_same_numbers(tmp_path: Path, whole: tuple[Record, Path], moment: int) -> None:
    with pytest.raises(Interrupted):
        execute(JOB, tmp_path, save_every=0.0, progress=interrupt_after(moment))
    assert numbers(execute(JOB, tmp_path), tmp_path) == numbers(*whole)


def test_a_run_that_goes_on_has_a_record_of_what_is_done(tmp_path: Path) -> None:
    with pytest.raises(Interrupted):
        execute(JOB, tmp_path, save_every=0.0, progress=interrupt_after(6))
    [place] = tmp_path.iterdir()
    record = read_record(place)
    # The sixth step was interrupted before its checkpoint.
    assert not record.complete and record.images == 50
    assert record.counts["gaussian_noise"].images == 40 and record.counts["fog"].images == 10
    with pytest.raises(BadData, match="no complete run record"):
        read_records(tmp_path)


def test_a_run_interrupted_again_and_again_ends_with_the_same_numbers(
    tmp_path: Path, whole: tuple[Record, Path]
) -> None:
    for _ in range(4):
        with pytest.raises(Interrupted):
            execute(JOB, tmp_path, save_every=0.0, progress=interrupt_after(2))
    assert numbers(execute(JOB, tmp_path), tmp_path) == numbers(*whole)


def test_steps_written_after_the_last_checkpoint_are_made_again(tmp_path: Path, whole: tuple[Record, Path]) -> None:
    with pytest.raises(Interrupted):
        execute(JOB, tmp_path, save_every=0.0, progress=interrupt_after(4))
    log = next(tmp_path.rglob("steps.jsonl"))
    log.write_bytes(log.read_bytes() + b'{"index": 4, "half a li')
    assert numbers(execute(JOB, tmp_path), tmp_path) == numbers(*whole)


def test_a_log_shorter_than_its_checkpoint_is_named(tmp_path: Path) -> None:
    with pytest.raises(Interrupted):
        execute(JOB, tmp_path, save_every=0.0, progress=interrupt_after(4))
    next(tmp_path.rglob("steps.jsonl")).write_bytes(b"")
    with pytest.raises(BadData, match="fewer than the"):
        execute(JOB, tmp_path)


def run_until_killed(folder: str, line: int) -> None:
    with traced(Lines(PACKAGE, line)):
        execute(change_job(JOB, method="tent"), Path(folder), save_every=0.0)


@pytest.mark.trial
@pytest.mark.slow
def test_a_killed_run_ends_with_the_same_numbers(tmp_path: Path) -> None:
    job, alone = change_job(JOB, method="tent"), tmp_path / "alone"
    with traced(Lines(PACKAGE)) as lines:
        record = execute(job, alone, save_every=0.0)
    context = multiprocessing.get_context("spawn")
    moments, folder = random.Random(0), tmp_path / "killed"
    line = moments.randint(lines.count // 6, lines.count // 3)
    process = context.Process(target=run_until_killed, args=(str(folder), line))
    process.start()
    process.join()
    assert process.exitcode == -signal.SIGKILL
    assert numbers(execute(job, folder), folder) == numbers(record, alone)


def test_a_finished_run_is_not_run_again(whole: tuple[Record, Path]) -> None:
    record, folder = whole
    assert execute(JOB, folder, progress=interrupt_after(1)) == record


def test_a_run_made_with_another_default_is_neither_reused_nor_resumed(
    whole: tuple[Record, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    record, folder = whole
    with pytest.raises(Interrupted):
        execute(JOB, tmp_path, save_every=0.0, progress=interrupt_after(4))
    defaults = inspect.unwrap(DMSE.__init__).__kwdefaults__
    assert defaults["beta"] == 0.01
    monkeypatch.setitem(defaults, "beta", 0.02)
    for place in (folder, tmp_path):
        before = {path: path.read_bytes() for path in (place / record.address).iterdir() if path.is_file()}
        with pytest.raises(BadData, match=r"beta of dmse was 0\.01 by default; now it is 0\.02\. Use another --out"):
            execute(JOB, place)
        assert {path: path.read_bytes() for path in before} == before
    assert execute(change_job(JOB, settings={"beta": 0.01}), tmp_path / "new").settings["beta"] == 0.01


def test_another_setting_seed_or_size_is_another_run(whole: tuple[Record, Path], tmp_path: Path) -> None:
    addresses = {whole[0].address}
    small = change_job(JOB, method="bn")
    for job in (small, small.with_seed(1), change_job(small, images=30), change_job(small, settings={"alpha": 0.5})):
        addresses.add(execute(job, tmp_path).address)
    assert len(addresses) == 5


def test_without_learning_a_run_answers_only(tmp_path: Path) -> None:
    learning = execute(change_job(JOB, method="bn"), tmp_path)
    asking = execute(change_job(JOB, method="tent", learn=False), tmp_path)
    assert asking.errors == learning.errors and asking.scored == "answers without learning"


@pytest.mark.parametrize("protocol", ["gradual", "mixed", "correlated", "recurring", "random-order", "clean"])
def test_every_protocol_runs(tmp_path: Path, protocol: str) -> None:
    job = change_job(JOB, method="source", protocol=protocol, times=2, corruptions=("fog", "contrast"), images=20)
    record = execute(job, tmp_path)
    images = {"gradual": 2 * 9 * 20, "recurring": 2 * 2 * 20, "clean": 20}.get(protocol, 2 * 20)
    assert record.images == images and record.spec.protocol_name == protocol


def test_streams_that_mix_other_domains_are_other_runs(tmp_path: Path) -> None:
    job = change_job(JOB, method="source", protocol="mixed", images=20)
    fog, rest = (execute(change_job(job, corruptions=names), tmp_path) for names in (("fog",), ("contrast", "snow")))
    assert fog.address != rest.address and rest.spec.corruptions == ("contrast", "snow")
    assert (fog.images, rest.images) == (20, 40)
    assert "one with seed 0" in rest.order


def test_the_same_images_in_another_file_are_the_same_run(tmp_path: Path) -> None:
    x = np.random.default_rng(0).integers(0, 256, (20, 32, 32, 3), dtype=np.uint8)
    np.savez(tmp_path / "a.npz", x=x, y=np.arange(20) % 10)
    np.savez_compressed(tmp_path / "b.npz", y=np.arange(20) % 10, x=x)
    np.savez(tmp_path / "c.npz", x=255 - x, y=np.arange(20) % 10)
    job = change_job(JOB, method="santa", stream="cifar10-c", images=20)
    files = [tmp_path / name for name in ("a.npz", "b.npz", "c.npz")]
    a, b, c = (execute(change_job(job, data=path, source_data=path), tmp_path) for path in files)
    assert a.address == b.address != c.address
    assert a.spec.source_data != c.spec.source_data and a.spec.data != c.spec.data


TAKES = {
    **dict.fromkeys(("dmse", "obao", "rmt", "santa", "trio"), ("prototypes",)),
    "eata": ("fisher",),
    "petal": ("prior_mean", "prior_var"),
    "petta": ("feature_mean", "feature_var"),
}


def test_each_method_that_takes_source_data_gets_its_own_arguments_from_them(tmp_path: Path) -> None:
    assert {name for name, method in methods().items() if method.from_source is not None} == set(TAKES)
    stream = digits().stream
    np.savez(tmp_path / "source.npz", x=stream.x[:120].numpy(), y=stream.y[:120].numpy())
    model = classifier("digits_resnet8")
    for name, arguments in TAKES.items():
        inputs = Inputs("digits", "digits_resnet8", source_data=tmp_path / "source.npz")
        adapter = build_adapter(Workload(Procedure(name), inputs), model)
        assert not adapter.source_free, name
        assert all(isinstance(value, torch.Tensor) for value in (getattr(adapter, what) for what in arguments)), name


def test_the_clean_images_of_made_files_come_from_their_own_file(tmp_path: Path) -> None:
    clean = digits().stream
    np.savez(tmp_path / "clean.npz", x=clean.x[:40].numpy(), y=clean.y[:40].numpy())
    made = ["corrupt", str(tmp_path / "clean.npz"), str(tmp_path / "made"), "--corruption", "fog", "--quiet"]
    assert CliRunner().invoke(app, made).exit_code == 0
    job = change_job(JOB, method="source", stream="cifar10-c", data=tmp_path / "made", corruptions=("fog",), images=40)
    with pytest.raises(MissingData, match="--clean"):
        execute(change_job(job, protocol="then-clean"), tmp_path)
    then = execute(change_job(job, protocol="then-clean", clean=tmp_path / "clean.npz"), tmp_path)
    alone = execute(change_job(job, protocol="clean", data=tmp_path / "clean.npz"), tmp_path)
    assert list(then.errors) == ["fog", "clean"] and then.errors["clean"] == alone.errors["clean"]


@pytest.mark.parametrize("method", ["roid", "cmf", "asr"])
@pytest.mark.parametrize(("size", "given", "expected"), [(None, {}, 200), (20, {}, 20), (20, {"batch_size": 64}, 64)])
def test_a_loss_is_divided_by_the_batch_size_of_the_run(
    method: str, size: int | None, given: dict[str, object], expected: int
) -> None:
    work = Workload(Procedure(method, given, batch_size=size), Inputs("cifar10-c", "cifar10_resnet20_ctta"))
    assert method_arguments(work)["batch_size"] == expected


def test_every_stream_has_the_batch_size_of_its_recipes() -> None:
    sizes = {"cifar10-c": 200, "cifar100-c": 200, "imagenet-c": 64, "domainnet-126": 128, "folder": 200, "digits": 50}
    assert {stream: batch_size(stream) for stream in sizes} == sizes


@pytest.mark.parametrize(
    ("change", "error", "words"),
    [
        ({"method": "dsme"}, UnknownMethod, "dmse"),
        ({"stream": "cifar10c"}, UnknownStream, "cifar10-c"),
        ({"stream": "cifar10-c"}, MissingData, "--data"),
        ({"settings": {"alpa": 1}}, ParameterError, "has no parameter 'alpa'"),
        ({"protocol": "continuous"}, UnknownProtocol, "Did you mean .continual."),
        ({"method": "tent", "source_data": Path("x.npz")}, ParameterError, "takes no source data"),
        ({"source_data": Path("x.npz")}, MissingData, "x.npz"),
        ({"settings": {"seed": 7}}, ParameterError, "--seed"),
    ],
)
def test_a_wrong_wish_is_named(tmp_path: Path, change: dict[str, Any], error: type, words: str) -> None:
    with pytest.raises(error, match=words):
        execute(change_job(JOB, **change), tmp_path)


def test_foreign_records_are_named(tmp_path: Path) -> None:
    with pytest.raises(BadData, match="no complete run record"):
        read_records(tmp_path)
    (tmp_path / "record.json").write_text("{}")
    with pytest.raises(BadData, match="not a run record"):
        read_records(tmp_path)


@pytest.mark.parametrize(
    "change",
    [
        lambda r: r.update(mean=0.0),
        lambda r: r.update(mean="low"),
        lambda r: r["errors"].update(fog=0.0),
        lambda r: r.update(counts=[]),
        lambda r: r["counts"]["fog"].update(images=0),
        lambda r: r["counts"]["fog"].pop("wrong"),
        lambda r: r["spec"].update(seed=99),
        lambda r: r.update(spec=None),
    ],
)
def test_a_record_that_was_changed_by_hand_is_named(
    tmp_path: Path, whole: tuple[Record, Path], change: Callable[[dict[str, Any]], object]
) -> None:
    record = whole[0].to_json() | {"format": 1}  # which has no digest
    (tmp_path / "record.json").write_text(json.dumps(record))
    assert read_record(tmp_path).to_json() == record
    change(record)
    (tmp_path / "record.json").write_text(json.dumps(record))
    with pytest.raises(BadData, match="changed or damaged"):
        read_record(tmp_path)


def test_ctrl_c_saves_between_two_steps_and_the_run_goes_on_from_there(
    tmp_path: Path, whole: tuple[Record, Path]
) -> None:
    def press(adapter: object, steps: int) -> Any:
        return lambda batch, log: signal.raise_signal(signal.SIGINT) if log["index"] == 5 else None

    outside = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        with pytest.raises(KeyboardInterrupt):
            execute(JOB, tmp_path, progress=press)
        assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
    finally:
        signal.signal(signal.SIGINT, outside)
    assert [path.name for path in tmp_path.rglob("step-*.ctta")] == ["step-00000006.ctta"]
    assert numbers(execute(JOB, tmp_path), tmp_path) == numbers(*whole)


def test_two_processes_at_one_run_are_refused(tmp_path: Path) -> None:
    def nested(adapter: object, steps: int) -> Any:
        return lambda batch, log: execute(JOB, tmp_path)

    with pytest.raises(ConcurrentUse, match="Another process is already working on this run"):
        execute(JOB, tmp_path, progress=nested)
    execute(JOB, tmp_path)


def test_a_whole_number_and_its_float_are_one_run(tmp_path: Path) -> None:
    job = change_job(JOB, method="bn", corruptions=("fog",))
    one = execute(change_job(job, settings={"alpha": 1}), tmp_path)
    assert execute(change_job(job, settings={"alpha": 1.0}, times=3), tmp_path).address == one.address


def test_a_mistake_in_a_worker_is_told_as_in_this_process(tmp_path: Path) -> None:
    jobs = [change_job(JOB, method="dsme").with_seed(seed) for seed in (0, 1)]
    with pytest.raises(UnknownMethod, match="Did you mean 'dmse'"):
        run_jobs(jobs, tmp_path, workers=2)


def test_random_orders_of_several_seeds_can_be_compared(tmp_path: Path) -> None:
    jobs = [change_job(JOB, method="bn", protocol="random-order").with_seed(seed) for seed in (0, 1)]
    assert len(rows(run_jobs(jobs, tmp_path))) == 1


def test_a_model_of_other_classes_is_refused(tmp_path: Path) -> None:
    save_file(nets.build("cifar100_resnet56").state_dict(), tmp_path / "w.safetensors")
    with pytest.raises(ParameterError, match="has 100 classes; digits has 10"):
        execute(change_job(JOB, model="cifar100_resnet56", weights=tmp_path / "w.safetensors"), tmp_path)


def test_a_run_goes_on_with_the_threads_it_began_with(tmp_path: Path) -> None:
    threads = []

    def listen(adapter: object, steps: int) -> Any:
        def progress(batch: object, log: dict[str, Any]) -> None:
            threads.append(torch.get_num_threads())
            if len(threads) == 2:
                raise Interrupted

        return progress

    job, usual = (
        change_job(JOB, method="source", corruptions=("fog",), images=12, batch_size=4),
        torch.get_num_threads(),
    )
    try:
        torch.set_num_threads(2)
        with pytest.raises(Interrupted):
            execute(job, tmp_path, save_every=0.0, progress=listen)
        assert torch.get_num_threads() == 2
        torch.set_num_threads(1)
        record = execute(job, tmp_path, progress=listen)
        assert torch.get_num_threads() == 1
        assert threads == [2] * 4  # the second step came after the last checkpoint, and is repeated
        assert record.environment["threads"] == 2
        assert execute(job, tmp_path / "other").environment["threads"] == 1
    finally:
        torch.set_num_threads(usual)
    assert {path.name for path in (tmp_path / record.address).iterdir()} == {"record.json", "steps.jsonl"}


def test_the_adapted_model_is_kept_where_asked_and_made_again_where_it_is_missing(tmp_path: Path) -> None:
    job = change_job(JOB, method="tent", images=10)
    record = execute(job, tmp_path)
    kept = tmp_path / record.address / "adapted.ctta"
    assert not kept.exists()
    files = {path.name: path.read_bytes() for path in kept.parent.iterdir()}
    with pytest.raises(Interrupted):
        execute(change_job(job, keep=True), tmp_path, save_every=0.0, progress=interrupt_after(2))
    assert {path.name: path.read_bytes() for path in kept.parent.iterdir()} == files
    assert execute(change_job(job, keep=True), tmp_path).errors == record.errors
    model = nets.classifier(job.work.inputs.model)
    adapter = Adapter.load(kept, model)
    # Three domains of one batch each, and weights that have moved.
    assert adapter.steps == 3
    assert any(not torch.equal(a, b) for a, b in zip(adapter.student.parameters(), model.parameters(), strict=True))
    assert list(tmp_path.iterdir()) == [kept.parent]


def test_a_run_whose_repetition_differs_keeps_no_model_beside_its_record(tmp_path: Path) -> None:
    job = change_job(JOB, method="bn", images=10)
    record = execute(job, tmp_path)
    folder = RunFolder(tmp_path / record.address)
    [*domains, last] = record.counts.items()
    name, count = last
    fewer = replace(count, wrong=count.wrong - 1)
    counts = dict(domains) | {name: fewer}
    errors = {domain: 100 * c.wrong / c.images for domain, c in counts.items()}
    folder.write_record(replace(record, counts=counts, errors=errors, mean=sum(errors.values()) / len(errors)))
    with pytest.raises(BadData, match="other code or another machine made it"):
        execute(change_job(job, keep=True), tmp_path)
    assert not folder.adapted_file.exists() and not folder.sibling.path.exists()


def test_a_repetition_that_was_killed_before_its_model_was_moved_is_made_again(tmp_path: Path) -> None:
    job = change_job(JOB, method="bn", images=10)
    record = execute(job, tmp_path)
    folder = RunFolder(tmp_path / record.address)
    folder.sibling.create()
    folder.sibling.write_record(record)
    assert execute(change_job(job, keep=True), tmp_path) == record
    assert folder.adapted_file.exists() and not folder.sibling.path.exists()


def test_a_domain_is_named_once(tmp_path: Path) -> None:
    with pytest.raises(ParameterError, match="fog is repeated"):
        execute(change_job(JOB, corruptions=("fog", "contrast", "fog")), tmp_path)


def test_images_of_double_precision_meet_a_model_of_single_precision(tmp_path: Path) -> None:
    images = digits().stream
    made = []
    for dtype in ("float32", "float64"):
        file = tmp_path / dtype / "some.npz"
        file.parent.mkdir()
        np.savez(file, x=images.floats()[:20].permute(0, 2, 3, 1).numpy().astype(dtype), y=images.y[:20].numpy())
        made.append(execute(make_job("bn", "folder", "digits_resnet8", data=file, batch_size=10), tmp_path / "runs"))
    assert made[0].counts == made[1].counts


def test_bundled_images_are_not_read_from_files(tmp_path: Path) -> None:
    with pytest.raises(ParameterError, match="digits is bundled and reads no files"):
        execute(change_job(JOB, data=tmp_path / "mine.npz"), tmp_path)
