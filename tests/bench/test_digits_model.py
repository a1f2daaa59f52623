import json

import pytest
import torch
from safetensors import safe_open

from ctta.errors import ParameterError
from ctta.nets import MODELS, classifier
from ctta.nets import SHIPPED as FOLDER
from ctta.nets.train import Training, error, shifted, train
from ctta.nets.train_digits import train_digits
from ctta.nets.weights import read_weights
from ctta.streams import digits

SHIPPED = FOLDER / MODELS["digits_resnet8"].file


def test_the_shipped_model_reads_97_percent_of_the_digits_it_never_saw():
    stream = digits().stream
    clean = error(classifier("digits_resnet8"), stream.floats(), stream.y)
    assert clean <= 3.0
    with safe_open(str(SHIPPED), "pt") as file:
        facts = json.loads(file.metadata()["ctta"])
    # Another machine may round one borderline digit the other way.
    assert clean == pytest.approx(facts["clean_error"], abs=0.12)
    assert facts["command"].startswith("ctta train digits")


def test_the_shipped_model_is_small():
    assert len(SHIPPED.read_bytes()) < 400_000


@pytest.mark.trial
def test_training_again_gives_the_same_file(tmp_path):
    torch.manual_seed(1)
    before = torch.get_rng_state()
    for name in ("one", "two"):
        train_digits(tmp_path / name, Training(passes=1))
    assert (tmp_path / "one").read_bytes() == (tmp_path / "two").read_bytes()
    assert torch.equal(torch.get_rng_state(), before)
    assert read_weights(tmp_path / "one").keys() == read_weights(str(SHIPPED)).keys()


@pytest.mark.parametrize(("out", "words"), [("folder", "is a folder"), ("file/model", "cannot be written")])
def test_an_output_that_cannot_be_written_is_refused_before_training(tmp_path, out, words):
    (tmp_path / "folder").mkdir()
    (tmp_path / "file").touch()
    passes = []
    with pytest.raises(ParameterError, match=words):
        train_digits(tmp_path / out, Training(passes=1), progress=lambda number, loss: passes.append(number))
    assert not passes


def test_another_seed_gives_other_weights(tmp_path):
    x, y = torch.rand(8, 3, 8, 8, generator=torch.Generator().manual_seed(0)), torch.arange(8) % 2
    one, two = (
        train(lambda: torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(192, 2)), x, y, Training(2, seed=seed))
        for seed in (0, 1)
    )
    assert not torch.equal(one[1].weight, two[1].weight)


def test_training_tells_the_loss_of_every_pass():
    told = []
    x, y = torch.rand(32, 3, 8, 8, generator=torch.Generator().manual_seed(0)), torch.arange(32) % 2
    build = lambda: torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(192, 2))  # noqa: E731
    train(build, x, y, Training(passes=20, shift=0), progress=lambda number, loss: told.append((number, loss)))
    assert [number for number, _ in told] == list(range(1, 21))
    assert told[-1][1] < told[0][1]


def test_images_are_shifted_by_at_most_so_many_pixels_and_edges_repeated():
    x = torch.rand(20, 3, 6, 7, generator=torch.Generator().manual_seed(0))
    moved = shifted(x, 2, torch.Generator().manual_seed(1))
    for image, result in zip(x, moved, strict=True):
        candidates = []
        for down in range(-2, 3):
            for right in range(-2, 3):
                rows = [min(max(r + down, 0), 5) for r in range(6)]
                columns = [min(max(c + right, 0), 6) for c in range(7)]
                candidates.append(image[:, rows][:, :, columns])
        assert any(torch.equal(result, candidate) for candidate in candidates)
    assert not torch.equal(moved, x)
