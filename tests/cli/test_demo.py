import json
import re
import sys
from contextlib import contextmanager
from dataclasses import replace

import pytest
import torch

from cli.command import ctta
from ctta.bench.demo import prepare_demo, run_demo
from ctta.bench.folder import read_records
from ctta.bench.record import Record
from ctta.cli.tables import echo_errors
from run_folders import record_of, steps_of

SMALL = ("--domains", "2", "--images", "100", "--batch-size", "50", "--quiet")


def rows_of(stdout):
    return {line.split()[0]: line.split()[1:] for line in stdout.splitlines() if line.split()}


def test_the_demo_prints_a_table_and_ends_with_a_report_of_its_records(tmp_path):
    out = tmp_path / "new" / "folder"
    result = ctta("demo", *SMALL, "--out", str(out))
    assert result.exit_code == 0, result.output
    records = {record.spec.method: record for record in read_records(out / "runs")}
    names = ["source", "bn", "tent", "eata", "rdumb", "sar", "deyo", "rotta", "santa", "rmt", "roid", "dmse", "trio"]
    assert sorted(records) == sorted(names)
    rows = rows_of(result.stdout)
    assert rows["error,"] == ["%", *names]
    for domain in ("gaussian_noise", "shot_noise"):
        assert rows[domain] == [f"{records[name].errors[domain]:.1f}" for name in names]
    assert rows["mean"] == [f"{records[name].mean:.1f}" for name in names]
    page = (out / "report.html").read_text()
    assert "13 runs in 1 comparable group." in page and "The teacher of dmse" in page
    assert result.stdout.splitlines()[-1] == f"report  {out / 'report.html'}"


def test_a_record_of_the_demo_is_the_one_that_run_writes(tmp_path):
    assert ctta("demo", *SMALL, "--methods", "tent", "--out", str(tmp_path / "demo")).exit_code == 0
    size = ("--corruptions", "gaussian_noise,shot_noise", "--images", "100", "--batch-size", "50", "--quiet")
    with one_thread():
        assert ctta("run", "tent", "digits", *size, "--out", str(tmp_path / "run")).exit_code == 0
    (demo,), (run,) = read_records(tmp_path / "demo" / "runs"), read_records(tmp_path / "run")
    own = {"command", "seconds", "images_per_second", "peak_memory"}
    assert {k: v for k, v in demo.to_json().items() if k not in own} == {
        k: v for k, v in run.to_json().items() if k not in own
    }
    assert demo.command.startswith("ctta demo --domains 2")

    def steps(folder):
        lines = (folder / demo.address / "steps.jsonl").read_text().splitlines()
        return [json.loads(line) | {"seconds": None, "check": None} for line in lines]

    assert steps(tmp_path / "demo" / "runs") == steps(tmp_path / "run")


@contextmanager
def one_thread():
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(threads)


def test_batch_statistics_help_under_noise_and_dmse_logs_its_teacher(tmp_path):
    result = ctta("demo", *SMALL, "--methods", "source,bn,tent,dmse", "--json", "--out", str(tmp_path))
    assert result.exit_code == 0, result.output
    source, bn, _, dmse = json.loads(result.stdout)
    assert bn["mean"] < 0.5 * source["mean"]
    assert dmse["mean"] < 0.5 * source["mean"]
    steps = [
        json.loads(line) for line in (tmp_path / "runs" / dmse["address"] / "steps.jsonl").read_text().splitlines()
    ]
    assert len(steps) == 4
    for step in steps:
        assert step["alpha"] == pytest.approx(min(0.99 + 0.01 * step["entropy"], 1.0))
        assert bool(step["teacher_reset"]) == (step["entropy"] < 0.2)


def test_the_same_seed_gives_the_same_errors(tmp_path):
    def errors(seed, out):
        arguments = ("demo", *SMALL, "--methods", "dmse", "--json", "--seed", seed, "--out", str(out))
        (record,) = json.loads(ctta(*arguments).stdout)
        lines = (out / "runs" / record["address"] / "steps.jsonl").read_text().splitlines()
        return [(step["error"], step["loss"]) for step in map(json.loads, lines)]

    first = errors("1", tmp_path / "a")
    assert first == errors("1", tmp_path / "b")
    assert first != errors("2", tmp_path / "a")


def test_a_method_named_twice_runs_once(tmp_path):
    result = ctta("demo", *SMALL, "--methods", "bn, source,BN", "--json", "--out", str(tmp_path))
    assert result.exit_code == 0, result.output
    assert [record["spec"]["method"] for record in json.loads(result.stdout)] == ["bn", "source"]


def test_a_table_too_wide_for_the_terminal_becomes_several(capsys, monkeypatch):
    monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.setenv("COLUMNS", "60")
    names = [f"method{i}" for i in range(10)]
    echo_errors(
        [
            replace(
                Record.from_json(record_of(name, steps_of((4, 2, 1)))),
                errors={"elastic_transform": 10.0 + i},
                mean=9.0,
                images_per_second=1.0,
            )
            for i, name in enumerate(names)
        ]
    )
    shown = re.sub(r"\x1b\[\d*m", "", capsys.readouterr().out)
    assert max(len(line) for line in shown.splitlines()) <= 60
    assert [word for word in shown.split() if word.startswith("method")] == names
    assert [word for word in shown.split() if re.fullmatch(r"1\d\.0", word)] == [f"{10 + i}.0" for i in range(10)]


def test_a_demo_that_is_interrupted_ends_at_once_and_leaves_no_record(tmp_path):
    stream, entries = prepare_demo(["bn", "tent"], images=100)
    seen = []

    class Interrupting:
        def started(self, adapter, steps):
            def listen(batch, log):
                seen.append(batch.index)
                raise KeyboardInterrupt

            # The costlier method starts first, although it is listed last.
            return listen if type(adapter).__name__ == "Tent" else lambda batch, log: seen.append(batch.index)

        def finished(self, record):
            raise AssertionError("no run ends")

    with pytest.raises(KeyboardInterrupt):
        run_demo(entries, stream, tmp_path, progress=Interrupting())
    assert len(seen) < len(stream) and not list(tmp_path.rglob("record.json"))


def test_progress_goes_to_stderr_and_the_table_to_stdout(tmp_path):
    loud = tuple(argument for argument in SMALL if argument != "--quiet")
    result = ctta("demo", *loud, "--methods", "source", "--out", str(tmp_path))
    assert "images/s" in result.stderr
    assert "100 %" in result.stderr
    assert "100 %" not in result.stdout


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (("--methods", "dsme"), 1, "UnknownMethod: 'dsme' is not a known method. Did you mean 'dmse'?"),
        (("--images", "901"), 1, "ParameterError: The 'images' per domain must be in 1..900. Got 901"),
        (("--images", "101"), 1, "ParameterError: 101 images in batches of 50 leave a last batch of one"),
        (("--severity", "6"), 2, "Usage"),
        (("--methods", ","), 2, "Usage"),
        (("--nonsense",), 2, "Usage"),
    ],
)
def test_mistakes_are_one_line_and_an_exit_code(tmp_path, arguments, code, message):
    result = ctta("demo", *SMALL, "--out", str(tmp_path), *arguments)
    assert result.exit_code == code
    assert message in result.stderr
    assert result.stdout == ""
    assert code == 2 or len(result.stderr.strip().splitlines()) == 1


def test_a_folder_that_cannot_be_made_is_said_before_the_work(tmp_path):
    (tmp_path / "file").write_text("")
    result = ctta("demo", *SMALL, "--out", str(tmp_path / "file"))
    assert result.exit_code == 1
    assert result.stderr.startswith("FileExistsError")


@pytest.mark.parametrize(("module", "package"), [("sklearn", "scikit-learn"), ("jinja2", "jinja2")])
def test_a_missing_extra_is_named(tmp_path, monkeypatch, module, package):
    monkeypatch.setitem(sys.modules, module, None)
    result = ctta("demo", *SMALL, "--out", str(tmp_path))
    assert result.exit_code == 1
    assert (
        result.stderr.strip()
        == f"MissingExtra: {package} is needed here and is not installed: pip install 'ctta[demo]'"
    )


def test_a_second_demo_reuses_the_runs_of_the_first(tmp_path):
    loud = tuple(argument for argument in SMALL if argument != "--quiet")
    words = ("demo", *loud, "--methods", "source,bn", "--json", "--out", str(tmp_path))
    first, again = ctta(*words), ctta(*words)
    assert json.loads(again.stdout) == json.loads(first.stdout)
    assert "100 %" in again.stderr and "images/s" not in again.stderr
