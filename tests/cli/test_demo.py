import json
import subprocess
import sys

import pytest
from typer.testing import CliRunner

from ctta.cli import app
from ctta.registry import methods
from ctta.streams.corruptions import CORRUPTIONS
from ctta.version import __version__

SMALL = ("--domains", "2", "--images", "100", "--batch-size", "50", "--quiet")


def ctta(*arguments):
    return CliRunner().invoke(app, arguments)


def test_the_demo_prints_a_table_and_writes_a_plot_and_a_record(tmp_path):
    result = ctta("demo", *SMALL, "--out", str(tmp_path / "new" / "folder"))
    assert result.exit_code == 0, result.output
    out = tmp_path / "new" / "folder"
    record = json.loads((out / "demo.json").read_text())
    assert [report["method"] for report in record["reports"]] == [
        *("source", "bn", "tent", "rdumb", "sar", "deyo", "santa", "rmt", "roid", "dmse")
    ]
    assert record["domains"] == ["gaussian_noise", "shot_noise"]
    assert (out / "demo.png").read_bytes().startswith(b"\x89PNG")
    lines = {line.split()[0]: line.split()[1:] for line in result.stdout.splitlines() if line.split()}
    for domain in record["domains"]:
        assert lines[domain] == [f"{report['errors'][domain]:.1f}" for report in record["reports"]]
    assert lines["mean"] == [f"{report['mean']:.1f}" for report in record["reports"]]


def test_batch_statistics_help_under_noise_and_dmse_logs_its_teacher(tmp_path):
    result = ctta("demo", *SMALL, "--methods", "source,bn,tent,dmse", "--json", "--out", str(tmp_path))
    assert result.exit_code == 0, result.output
    source, bn, _, dmse = json.loads(result.stdout)["reports"]
    assert bn["mean"] < 0.5 * source["mean"]
    assert dmse["mean"] < 0.5 * source["mean"]
    assert len(dmse["steps"]) == 4
    for step in dmse["steps"]:
        assert step["alpha"] == pytest.approx(min(0.99 + 0.01 * step["entropy"], 1.0))
        assert bool(step["teacher_reset"]) == (step["entropy"] < 0.2)


def test_the_same_seed_gives_the_same_errors(tmp_path):
    def errors(seed):
        arguments = ("demo", *SMALL, "--methods", "dmse", "--json", "--seed", seed, "--out", str(tmp_path))
        (report,) = json.loads(ctta(*arguments).stdout)["reports"]
        return [(step["error"], step["loss"]) for step in report["steps"]]

    assert errors("1") == errors("1")
    assert errors("1") != errors("2")


def test_the_plot_does_without_dmse_and_a_method_named_twice_runs_once(tmp_path):
    result = ctta("demo", *SMALL, "--methods", "bn, source,bn", "--out", str(tmp_path))
    assert result.exit_code == 0, result.output
    assert (tmp_path / "demo.png").exists()
    record = json.loads((tmp_path / "demo.json").read_text())
    assert [report["method"] for report in record["reports"]] == ["bn", "source"]


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
        (("--images", "901"), 1, "ParameterError: The number of images must be in 1..900. Got 901"),
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


@pytest.mark.parametrize(("module", "package"), [("sklearn.datasets", "scikit-learn"), ("matplotlib", "matplotlib")])
def test_a_missing_extra_is_named(tmp_path, monkeypatch, module, package):
    monkeypatch.setitem(sys.modules, module, None)
    result = ctta("demo", *SMALL, "--out", str(tmp_path))
    assert result.exit_code == 1
    assert (
        result.stderr.strip()
        == f"MissingExtra: {package} is needed here and is not installed: pip install 'ctta[demo]'"
    )


def test_ls_names_every_method_and_corruption():
    assert [row["method"] for row in json.loads(ctta("ls", "methods", "--json").stdout)] == list(methods())
    streams = {row["stream"] for row in json.loads(ctta("ls", "streams", "--json").stdout)}
    assert streams >= {"digits", *CORRUPTIONS}
    for what in ("methods", "streams", "models"):
        result = ctta("ls", what)
        assert result.exit_code == 0
        assert result.stdout
    assert ctta("ls", "planets").exit_code == 2


def test_train_digits_writes_a_model_and_says_its_error(tmp_path):
    result = ctta("train", "digits", "--out", str(tmp_path / "m.safetensors"), "--passes", "1", "--json", "--quiet")
    assert result.exit_code == 0, result.output
    said = json.loads(result.stdout)
    assert said["file"] == str(tmp_path / "m.safetensors")
    assert 0 <= said["clean_error"] <= 100


def test_the_version_is_printed():
    assert ctta("--version").stdout == f"ctta {__version__}\n"


def test_help_is_answered_without_importing_torch():
    script = (
        "import sys\n"
        "from typer.testing import CliRunner\n"
        "from ctta.cli import app\n"
        "assert CliRunner().invoke(app, ['demo', '--help']).exit_code == 0\n"
        "sys.exit(sum(name in sys.modules for name in ('torch', 'sklearn', 'matplotlib')))"
    )
    assert subprocess.run([sys.executable, "-c", script], check=False).returncode == 0
