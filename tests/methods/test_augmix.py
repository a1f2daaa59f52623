"""The operations of AugMix against Pillow's, and how chains of them are mixed."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from PIL import Image, ImageOps
from torch import Tensor

from ctta.methods._parts import augmix
from ctta.methods._parts.augmix import AugMix


def image(seed: int = 0) -> Image.Image:
    smooth = torch.rand(1, 3, 4, 4, generator=torch.Generator().manual_seed(seed))
    x = torch.nn.functional.interpolate(smooth, size=(24, 32), mode="bilinear")[0]
    return Image.fromarray((x * 200 + 20).byte().permute(1, 2, 0).numpy())


def tensor(picture: Image.Image) -> Tensor:
    return torch.from_numpy(np.asarray(picture).copy()).permute(2, 0, 1).unsqueeze(0).double() / 255


@pytest.mark.parametrize(
    ("found", "expected", "levels"),
    [
        (lambda x: augmix.equalize(x, 0.1), ImageOps.equalize, 0),
        (lambda x: augmix.autocontrast(x, 0.1), ImageOps.autocontrast, 1),  # Pillow truncates fractions
        (lambda x: augmix.posterize(x, -0.1), lambda p: ImageOps.posterize(p, 4), 0),
        (lambda x: augmix.posterize(x, 0.5), lambda p: ImageOps.posterize(p, 2), 0),
        (lambda x: augmix.solarize(x, 0.3), lambda p: ImageOps.solarize(p, 256 - 76), 0),
    ],
    ids=["equalize", "autocontrast", "posterize", "posterize strongly", "solarize"],
)
def test_an_operation_on_values_is_that_of_pillow(found, expected, levels: int) -> None:
    for seed in range(3):
        picture = image(seed)
        gap = (found(tensor(picture)) - tensor(expected(picture))).abs().max()
        assert gap <= (levels + 1e-6) / 255


@pytest.mark.parametrize(
    ("found", "expected"),
    [
        (lambda x: augmix.rotate(x, 0.1), lambda p: p.rotate(3, Image.Resampling.BILINEAR)),
        (lambda x: augmix.rotate(x, -0.3), lambda p: p.rotate(-9, Image.Resampling.BILINEAR)),
        (lambda x: augmix.shear_x(x, 0.2), lambda p: affine(p, (1, 0.06, 0, 0, 1, 0))),
        (lambda x: augmix.shear_y(x, -0.2), lambda p: affine(p, (1, 0, 0, -0.06, 1, 0))),
        (lambda x: augmix.translate_x(x, 0.2), lambda p: affine(p, (1, 0, 2, 0, 1, 0))),
        (lambda x: augmix.translate_y(x, -0.4), lambda p: affine(p, (1, 0, 0, 0, 1, -3))),
    ],
    ids=["rotate", "rotate back", "shear_x", "shear_y", "translate_x", "translate_y"],
)
def test_an_operation_on_places_is_that_of_pillow_inside_the_image(found, expected) -> None:
    picture = image()
    inside = (..., slice(6, -6), slice(6, -6))
    gap = (found(tensor(picture)) - tensor(expected(picture)))[inside].abs().max()
    assert gap <= 1.01 / 255


def affine(picture: Image.Image, matrix: tuple[float, ...]) -> Image.Image:
    return picture.transform(picture.size, Image.Transform.AFFINE, matrix, resample=Image.Resampling.BILINEAR)


def test_an_image_of_one_colour_survives_every_operation() -> None:
    x = torch.full((2, 3, 8, 8), 0.25)
    for operation in augmix.OPERATIONS:
        assert operation(x, 0.05).isfinite().all()


def test_views_are_mixtures_in_range_that_differ_and_repeat_with_the_generator() -> None:
    x = tensor(image()).float()
    generator, again = (torch.Generator().manual_seed(1) for _ in range(2))
    views = [AugMix()(x, generator) for _ in range(4)]
    for view in views:
        assert view.shape == x.shape and view.min() >= 0 and view.max() <= 1
        assert torch.equal(view, AugMix()(x, again))
    assert not torch.equal(views[0], views[1])


def test_a_mixture_of_unchanged_chains_is_the_crop_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(augmix, "OPERATIONS", (lambda x, strength: x,))
    monkeypatch.setattr(augmix, "random_crop", lambda x, generator: x)
    x = torch.rand(2, 3, 8, 8)
    torch.testing.assert_close(AugMix()(x, torch.Generator().manual_seed(0)), x)
