import json
import subprocess
import sys

import numpy as np
import pytest
from PIL import Image

from cli.command import ctta


@pytest.fixture
def array(tmp_path):
    path = tmp_path / "mine.npz"
    x = np.random.default_rng(0).integers(0, 256, (4, 16, 16, 3), dtype=np.uint8)
    np.savez(path, x=x, y=np.arange(4))
    return path


def test_it_writes_the_published_layout_and_says_what_it_made(array, tmp_path):
    arguments = ("corrupt", array, tmp_path / "out", "--corruption", "fog", "--corruption", "snow", "--severity", 5)
    result = ctta(*arguments, "--json", "--quiet")
    assert result.exit_code == 0, result.output
    said = json.loads(result.stdout)
    assert said == {"out": str(tmp_path / "out"), "images": 4, "made": ["fog.npy", "snow.npy"], "kept": []}
    assert sorted(path.name for path in (tmp_path / "out").iterdir()) == [
        "ctta-corrupt.json",
        "fog.npy",
        "labels.npy",
        "snow.npy",
    ]
    again = ctta(*arguments)
    assert again.exit_code == 0
    assert "0 parts made, 2 already there and verified" in again.stdout
    assert "images" not in again.stdout  # the bar is on stderr


def test_a_folder_takes_a_format_and_a_side(tmp_path):
    (tmp_path / "in" / "cat").mkdir(parents=True)
    Image.new("RGB", (50, 40)).save(tmp_path / "in" / "cat" / "1.png")
    options = ("--corruption", "contrast", "--severity", 2, "--format", "png", "--side", 32, "--scale", "imagenet")
    result = ctta("corrupt", tmp_path / "in", tmp_path / "out", *options, "--quiet")
    assert result.exit_code == 0, result.output
    with Image.open(tmp_path / "out" / "contrast" / "2" / "cat" / "1.png") as found:
        assert found.size == (32, 32)
    note = json.loads((tmp_path / "out" / "ctta-corrupt.json").read_text())
    assert (note["format"], note["cropped_to"], note["scale"]) == ("png", 32, "imagenet")


@pytest.mark.parametrize(
    ("options", "code", "said"),
    [
        (("--corruption", "fogg"), 1, "UnknownStream: 'fogg' is not a known stream. Did you mean 'fog'?"),
        (("--severity", "6"), 1, "ParameterError"),
        (("--scale", "mars"), 2, "mars"),
        (("--format", "gif"), 2, "gif"),
    ],
)
def test_a_wrong_option_is_one_line(array, tmp_path, options, code, said):
    result = ctta("corrupt", array, tmp_path / "out", *options)
    assert result.exit_code == code
    assert said in result.stderr
    assert not (tmp_path / "out").exists()


def test_a_missing_input_is_one_line(tmp_path):
    result = ctta("corrupt", tmp_path / "no.npz", tmp_path / "out")
    assert result.exit_code == 1
    assert result.stderr.startswith("MissingData: no.npz is not in")
    assert len(result.stderr.splitlines()) == 1


def test_the_command_modules_load_no_torch():
    code = "import sys, ctta.cli.corrupt, ctta.cli.fetch, ctta.cli.train_cifar; print('torch' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "False"
