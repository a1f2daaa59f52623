"""What cannot work is refused by name, before torch fails on it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

import ctta
from ctta import errors
from ctta.bench import evaluate
from ctta.datasets.convert import images_tensor, labels_tensor
from ctta.datasets.folder import image_folder
from ctta.testing.models import bn_cnn


@pytest.mark.parametrize("dtype", ["uint16", "uint32", "uint64"])
def test_labels_of_any_unsigned_type_are_read(dtype: str) -> None:
    given = np.array([3, 0, 9], dtype=dtype)
    for labels in (given, torch.from_numpy(given)):
        assert labels_tensor(labels, 3).tolist() == [3, 0, 9]


def test_a_label_beyond_the_range_of_classes_is_refused() -> None:
    with pytest.raises(errors.LabelError, match=f"got {2**63 + 5}"):
        labels_tensor(np.array([2**63 + 5], dtype=np.uint64), 1)


def test_images_with_an_alpha_channel_behind_are_refused() -> None:
    with pytest.raises(errors.ImageShape, match=r"RGBA. Drop the alpha channel with x\[..., :3\]"):
        images_tensor(torch.zeros(2, 16, 16, 4))
    assert images_tensor(torch.zeros(2, 64, 4, 4)).shape == (2, 64, 4, 4)


@pytest.mark.parametrize(
    ("shape", "hint"),
    [
        ((4, 16, 16, 3), r"x\.permute\(0, 3, 1, 2\)"),
        ((4, 1, 16, 16), r"x\.expand\(-1, 3, -1, -1\)"),
        ((4, 4, 16, 16), r"alpha, with x\[:, :3\]"),
    ],
)
def test_wrong_channels_get_the_line_that_mends_them(shape: tuple[int, ...], hint: str) -> None:
    for model in (bn_cnn(), ctta.Classifier(bn_cnn(), mean=[0.5] * 3, std=[0.25] * 3)):
        with pytest.raises(errors.ImageShape, match=hint):
            ctta.Source(model).predict(torch.rand(shape))


def test_a_mean_of_grey_levels_is_refused() -> None:
    with pytest.raises(errors.ParameterError, match=r"images in \[0, 1\].*divide mean and std by 255"):
        ctta.Classifier(bn_cnn(), mean=[127.5] * 3, std=[64.0] * 3)


def test_an_array_and_a_pair_are_told_from_wrong_dtypes() -> None:
    for given in (np.zeros((2, 3, 16, 16), np.float32), (torch.zeros(2, 3, 16, 16), torch.zeros(2))):
        with pytest.raises(errors.ImageDtype, match=r"torch\.from_numpy, and pass the images only"):
            ctta.Source(bn_cnn()).step(given)  # type: ignore[arg-type]


@pytest.mark.parametrize("channels", [1, 4])
def test_images_with_other_channels_than_the_model_are_refused(channels: int) -> None:
    x = torch.rand(4, channels, 16, 16)
    for run in (ctta.Tent(bn_cnn()).step, ctta.Source(bn_cnn()).predict):
        with pytest.raises(errors.ImageShape, match=r"must have 3 channels; got \(4, "):
            run(x)
    with pytest.raises(errors.ImageShape, match="3 channels"):
        evaluate(ctta.Source(bn_cnn()), [(x, torch.zeros(4, dtype=torch.long))])


def test_colours_for_a_grey_model_are_to_be_averaged_and_one_channel_is_singular() -> None:
    net = nn.Sequential(nn.Conv2d(1, 4, 3), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(4, 10))
    for classifier in (ctta.Classifier(net), ctta.Classifier(net, mean=[0.5], std=[0.25])):
        with pytest.raises(errors.ImageShape, match=r"1 channel[; ].*x\.mean\(1, keepdim=True\)"):
            ctta.Source(classifier).predict(torch.rand(4, 3, 16, 16))
        with pytest.raises(errors.ImageShape, match=r"such as alpha, with x\[:, :1\]"):
            ctta.Source(classifier).predict(torch.rand(4, 2, 16, 16))


@pytest.mark.parametrize("value", [2**63, 2**64, -(2**70), 10**400])
def test_a_whole_number_too_large_for_torch_is_refused_in_place_of_a_float(value: int) -> None:
    with pytest.raises(errors.ParameterError, match=r"'tau' parameter of DMSE .* write a larger one as a float"):
        ctta.DMSE(bn_cnn(), tau=value)


@pytest.mark.parametrize("side", ["8", 0, -1, 2.5, True, 10**9])
def test_a_side_that_is_no_number_of_pixels_is_refused(side: Any, tmp_path: Path) -> None:
    with pytest.raises(errors.ParameterError, match=r"'side' of images must be a whole number of pixels in 1\.\.8192"):
        image_folder(tmp_path, side=side)


@pytest.mark.parametrize("path", [None, 3, b"a.ctta", True])
def test_what_is_no_path_is_refused(path: Any) -> None:
    for use in (
        lambda: image_folder(path),
        lambda: ctta.Adapter.load(path, bn_cnn()),
        lambda: ctta.Tent(bn_cnn()).save(path),
    ):
        with pytest.raises(errors.ParameterError, match="must be a path"):
            use()


def test_a_checkpoint_is_not_written_over_a_folder(tmp_path: Path) -> None:
    with pytest.raises(errors.CheckpointError, match=r"is a folder\. Name a file in it"):
        ctta.Tent(bn_cnn()).save(tmp_path)
    assert list(tmp_path.iterdir()) == []


def made(change: Callable[[nn.Module], object]) -> nn.Module:
    model = bn_cnn()
    change(model)
    return model


def head_of(model: nn.Module) -> nn.Linear:
    return next(layer for layer in model.modules() if isinstance(layer, nn.Linear))


def set_weight(value: Tensor) -> Callable[[nn.Module], object]:
    return lambda model: setattr(head_of(model), "weight", nn.Parameter(value, requires_grad=False))


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda model: model.to("meta"), "has no data"),
        (set_weight(torch.zeros(10, 32, dtype=torch.complex64)), "is torch.complex64"),
        (lambda model: model.to(torch.float8_e4m3fn), "is torch.float8_e4m3fn"),
        (lambda model: model.half(), "has float16 weights"),
        (set_weight(torch.eye(10).to_sparse()), "is torch.sparse_coo"),
        (set_weight(torch.zeros(1, 1).expand(10, 32)), "is an expanded tensor"),
        (lambda model: model.register_buffer("sparse", torch.eye(3).to_sparse()), "sparse of .* Make it a dense"),
    ],
    ids=["meta", "complex", "float8", "float16", "sparse", "expanded", "sparse buffer"],
)
def test_a_model_that_no_optimizer_can_train_is_refused(change: Callable[[nn.Module], object], words: str) -> None:
    with pytest.raises(errors.ModelError, match=words):
        ctta.Tent(made(change))


def test_a_buffer_of_small_floats_is_kept_beside_a_teacher() -> None:
    value = torch.tensor([0.5, -1.0]).to(torch.float8_e4m3fn)
    adapter = ctta.RoTTA(made(lambda model: model.register_buffer("small", value)))
    assert torch.equal(adapter.teacher.model.small.float(), value.float())
