"""Corruptions at fractional severities."""

from __future__ import annotations

import math

import pytest
import torch

from ctta.corruptions import CORRUPTIONS, HELD_OUT, corrupt, corrupt_at
from ctta.corruptions.constants import Scale, constants_at
from ctta.errors import ParameterError, UnknownStream

EVERY = (*CORRUPTIONS, *HELD_OUT)
#: Smooth pictures, as photographs are: noise would hide what blurs and JPEG do.
PICTURES = torch.nn.functional.interpolate(
    torch.randint(256, (3, 3, 8, 8), generator=torch.Generator().manual_seed(0)).float(), 32, mode="bilinear"
).to(torch.uint8)


def change(name: str, severity: float, scale: Scale = "cifar") -> float:
    made = corrupt_at(PICTURES, name, severity, scale=scale)
    return float((made.float() - PICTURES.float()).abs().mean())


@pytest.mark.parametrize("name", EVERY)
def test_at_whole_severities_the_images_are_those_of_the_published_constants(name: str) -> None:
    for severity in (1, 4):
        for scale in ("cifar", "imagenet"):
            published = corrupt(PICTURES, name, severity=severity, seed=3, scale=scale)
            assert torch.equal(corrupt_at(PICTURES, name, float(severity), seed=3, scale=scale), published)


@pytest.mark.parametrize("name", EVERY)
def test_severity_0_returns_a_copy(name: str) -> None:
    for images in (PICTURES, PICTURES.double() / 254):
        made = corrupt_at(images.clamp(max=1) if images.is_floating_point() else images, name, 0)
        assert torch.equal(made, images.clamp(max=1) if images.is_floating_point() else images)
        assert made.data_ptr() != images.data_ptr() and made.dtype == images.dtype


@pytest.mark.parametrize("scale", ["cifar", "imagenet"])
@pytest.mark.parametrize("name", CORRUPTIONS)
def test_a_fraction_of_severity_1_changes_the_images_no_more_than_severity_1(name: str, scale: Scale) -> None:
    quarter, whole = change(name, 0.25, scale), change(name, 1, scale)
    assert quarter <= whole * 1.1 + 0.3
    # JPEG starts at a quality that leaves traces, and pixelate with one row and column less. The others start at
    # nothing, but their results are truncated to 8 bits, which takes up to a level.
    assert change(name, 1e-3, scale) <= (whole if name in ("jpeg_compression", "pixelate") else 1)


@pytest.mark.parametrize(
    ("name", "severity", "scale", "expected"),
    [
        ("gaussian_noise", 0.25, "imagenet", {"sd": 0.02}),
        ("gaussian_noise", 2.5, "cifar", {"sd": 0.07}),
        ("shot_noise", 0.5, "imagenet", {"photons": 120}),
        ("shot_noise", 1.5, "imagenet", {"photons": 2 / (1 / 60 + 1 / 25)}),
        ("defocus_blur", 0.5, "imagenet", {"radius": 1.5, "sigma": 0.05}),
        ("glass_blur", 0.75, "imagenet", {"sigma": 0.525, "reach": 1, "rounds": 2}),
        ("zoom_blur", 0.5, "imagenet", {"end": 1.055, "step": 0.01}),
        ("zoom_blur", 2.5, "imagenet", {"end": 1.185, "step": 0.015}),
        ("fog", 0.25, "imagenet", {"strength": 0.375, "decay": 2}),
        ("frost", 0.5, "imagenet", {"image": 1, "frost": 0.2, "zoom": 1}),
        ("frost", 1.5, "imagenet", {"image": 0.9, "frost": 0.5, "zoom": 1}),
        ("contrast", 0.5, "imagenet", {"factor": 0.7}),
        ("jpeg_compression", 0.5, "imagenet", {"quality": 55}),
        ("pixelate", 0.75, "imagenet", {"factor": 0.7}),
        ("motion_blur", 0.5, "imagenet", {"radius": 5, "sigma": 1.5}),
        ("elastic_transform", 0.5, "imagenet", {"magnitude": 244.0, "sigma": 584.9, "affine": 12.2}),
    ],
)
def test_constants_are_interpolated_linearly(
    name: str, severity: float, scale: Scale, expected: dict[str, float]
) -> None:
    assert constants_at(name, severity, 224, scale) == pytest.approx(expected)


def test_snow_starts_without_flakes_and_without_whitening() -> None:
    half = constants_at("snow", 0.5, 224, "imagenet")
    assert (half["threshold"], half["keep"]) == (0.75, 0.9)
    assert (half["mean"], half["sd"], half["zoom"], half["radius"], half["sigma"]) == (0.1, 0.3, 3, 10, 4)


def test_any_number_will_do_however_small() -> None:
    for name in EVERY:
        for severity in (1e-300, 1e-12, 0.1234567, math.pi, 4.999999):
            made = corrupt_at(PICTURES[:1], name, severity)
            assert made.shape == PICTURES[:1].shape
        if name not in ("jpeg_compression", "pixelate"):
            assert change(name, 1e-300) <= 1


def test_counts_of_many_photons_have_the_mean_and_the_variance_of_poisson_noise() -> None:
    grey = torch.full((8, 3, 32, 32), 128, dtype=torch.uint8)
    made = corrupt_at(grey, "shot_noise", 0.05, scale="imagenet").double()  # 1200 photons
    # Truncation to 8 bits lowers the mean by half a level and adds a variance of 1/12.
    assert float(made.mean()) == pytest.approx(127.5, abs=0.1)
    assert float(made.var()) == pytest.approx(128 * 255 / 1200 + 1 / 12, rel=0.05)


@pytest.mark.parametrize("wrong", [-0.1, 5.01, math.nan, math.inf, True, "3", None])
def test_what_is_no_severity_is_refused(wrong: float) -> None:
    with pytest.raises(ParameterError, match="from 0 to 5"):
        corrupt_at(PICTURES, "fog", wrong)
    with pytest.raises(UnknownStream):
        corrupt_at(PICTURES, "rain", 0)
