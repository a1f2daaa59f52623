import sys

import numpy as np
import pytest
import torch
from sklearn.datasets import load_digits

from ctta.datasets.digits import enlarge
from ctta.errors import MissingExtra
from ctta.streams import digits


def test_every_digit_of_the_file_is_either_trained_on_or_streamed():
    train, stream = digits()
    assert (len(train), len(stream)) == (897, 900)
    target = load_digits().target
    assert torch.cat([train.y, stream.y]).tolist() == target.tolist()


def test_they_are_the_digits_of_scikit_learn_whether_or_not_its_file_is_found(monkeypatch):
    cells = torch.from_numpy(load_digits().images)
    from_file = torch.cat([part.x for part in digits()])
    assert torch.equal(from_file, enlarge(cells))
    monkeypatch.setattr("ctta.datasets.digits.Path.is_file", lambda path: False)
    assert torch.equal(torch.cat([part.x for part in digits()]), from_file)


def test_no_streamed_digit_is_a_training_digit():
    train, stream = digits()
    seen = {image.numpy().tobytes() for image in train.x}
    assert not any(image.numpy().tobytes() in seen for image in stream.x)


def test_both_parts_have_every_class_about_equally_often():
    for part in digits():
        share = torch.bincount(part.y, minlength=10) / len(part)
        assert share.min() > 0.09
        assert share.max() < 0.11


def test_digits_are_32_pixel_grey_images_in_three_channels():
    stream = digits().stream
    assert stream.x.shape == (900, 3, 32, 32)
    assert stream.x.dtype == torch.uint8
    assert torch.equal(stream.x[:, 0], stream.x[:, 2])


def test_enlarging_interpolates_between_the_centres_of_cells():
    rng = np.random.default_rng(0)
    cells = rng.integers(0, 17, (8, 8))
    expected = np.empty((32, 32))
    for row in range(32):
        for column in range(32):
            # The centre of a pixel in units of cells, held inside the outermost centres.
            v, u = (min(max((p + 0.5) / 4 - 0.5, 0), 7) for p in (row, column))
            i, j = min(int(v), 6), min(int(u), 6)
            a, b = v - i, u - j
            top = (1 - b) * cells[i, j] + b * cells[i, j + 1]
            bottom = (1 - b) * cells[i + 1, j] + b * cells[i + 1, j + 1]
            expected[row, column] = np.round(((1 - a) * top + a * bottom) * 255 / 16)
    assert np.array_equal(enlarge(torch.from_numpy(cells)[None])[0, 1].numpy(), expected)


def test_without_scikit_learn_the_extra_is_named(monkeypatch):
    monkeypatch.setitem(sys.modules, "sklearn", None)
    with pytest.raises(MissingExtra, match=r"scikit-learn .* pip install 'ctta\[demo\]'"):
        digits()
