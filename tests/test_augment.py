"""The augmented view against the published chain's operations (tests/data/aug_ops.npz), and its own promises."""

from __future__ import annotations

import json
from functools import cache

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from ctta import augment
from ctta.augment import View, warp
from reference import DATA

COLOURS = ("brightness", "contrast", "saturation", "hue", "gamma")


@cache
def ops() -> dict[str, np.ndarray]:
    with np.load(DATA / "aug_ops.npz") as file:
        return dict(file)


def op(name: str) -> Tensor:
    return torch.from_numpy(ops()[name])


def close(found: Tensor, expected: Tensor) -> None:
    # The vectors are float32, and the published order of operations differs: a few units in the last place.
    torch.testing.assert_close(found, expected, rtol=0, atol=6e-6)


@pytest.mark.parametrize("name", [n for n in ops() if n.split("_")[0] in COLOURS])
def test_a_colour_operation_equals_the_published_one(name: str) -> None:
    colour, factor = name.split("_")
    close(getattr(augment, f"adjust_{colour}")(op("x"), float(factor)), op(name))


@pytest.mark.parametrize("name", [n for n in ops() if n.startswith("affine")])
def test_the_warp_equals_the_centre_of_the_published_affine_map(name: str) -> None:
    angle, tx, ty, scale = (float(v) for v in name.split("_")[1:])
    found = warp(op("x"), angle=angle, shift=(int(tx), int(ty)), scale=scale, sigma=None, flip=False)
    close(found, op(name)[..., 16:48, 16:48])


@pytest.mark.parametrize("name", [n for n in ops() if n.startswith("blur5")])
def test_the_blur_equals_the_published_one_inside(name: str) -> None:
    # An affine map by nothing leaves the edge-padded image, whose blur is in the vectors.
    still = {"angle": 0.0, "shift": (0, 0), "scale": 1.0, "flip": False}
    found = warp(op("x"), sigma=float(name.split("_")[1]), **still)
    close(found, F.pad(op(name), [-16] * 4))


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("chain", ["cotta", "roid"])
def test_a_seed_replays_the_published_chain(chain: str, seed: int) -> None:
    view = View() if chain == "cotta" else View(border="reflect", blur=None, noise=0.0)
    close(view(op("x"), torch.Generator().manual_seed(seed)), op(f"{chain}_chain{seed}"))


def test_the_published_parameters_are_what_the_generator_gives() -> None:
    # torch.randperm and torch.uniform in the order of the published code: checked on the first draw.
    parameters = json.loads(str(ops()["cotta_chain0_params"]))
    generator = torch.Generator().manual_seed(0)
    assert torch.randperm(5, generator=generator).tolist() == parameters["order"]


def test_one_draw_serves_the_whole_batch() -> None:
    x = torch.rand(1, 3, 32, 32).expand(5, -1, -1, -1)
    out = View(noise=0.0)(x, torch.Generator().manual_seed(7))
    torch.testing.assert_close(out, out[:1].expand_as(out), rtol=0, atol=1e-6)


def test_noise_differs_from_image_to_image() -> None:
    x = torch.full((2, 3, 32, 32), 0.5)
    out = View()(x, torch.Generator().manual_seed(7))
    assert not torch.equal(out[0], out[1])


@pytest.mark.parametrize("shape", [(2, 3, 32, 32), (2, 1, 28, 28), (1, 3, 33, 47), (2, 3, 8, 8)])
def test_a_view_keeps_shape_and_range_of_any_image(shape: tuple[int, ...]) -> None:
    out = View()(torch.rand(shape), torch.Generator().manual_seed(0))
    assert out.shape == shape
    assert out.min() >= 0 and out.max() <= 1


def test_a_view_leaves_the_global_generator_and_its_input_alone() -> None:
    x = torch.rand(2, 3, 16, 16)
    before, state = x.clone(), torch.get_rng_state()
    View()(x, torch.Generator().manual_seed(0))
    assert torch.equal(torch.get_rng_state(), state)
    assert torch.equal(x, before)


def test_a_grey_image_stays_grey_in_hue_and_saturation() -> None:
    x = torch.rand(2, 1, 8, 8).expand(-1, 3, -1, -1)
    torch.testing.assert_close(augment.adjust_hue(x, 0.3), x)
    torch.testing.assert_close(augment.adjust_saturation(x, 1.4), x, rtol=0, atol=2e-4)


@pytest.mark.parametrize("layout", [torch.contiguous_format, torch.channels_last])
@pytest.mark.parametrize("blur", [(0.001, 0.5), None])
def test_a_view_has_the_layout_of_its_images(layout, blur):
    x = torch.rand(4, 3, 16, 16).contiguous(memory_format=layout)
    assert View(blur=blur)(x, torch.Generator().manual_seed(0)).is_contiguous(memory_format=layout)
