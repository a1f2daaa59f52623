"""Guarantees that hold for every corruption."""

import math
from itertools import pairwise

import pytest
import torch

from ctta.corruptions import CORRUPTIONS, HELD_OUT, constants, corrupt, frost_source
from ctta.corruptions.constants import Scale
from ctta.errors import (
    ImageDtype,
    ImageRange,
    ImageShape,
    NonFiniteImages,
    ParameterError,
    UnknownStream,
)

EVERY = CORRUPTIONS + HELD_OUT
SCALES: tuple[Scale, ...] = ("cifar", "imagenet")
RANDOM = (
    *("gaussian_noise", "shot_noise", "impulse_noise", "glass_blur", "motion_blur", "snow", "frost"),
    *("fog", "elastic_transform", "speckle_noise", "spatter"),
)

KEEP_CONSTANT_IMAGES = {
    *("defocus_blur", "glass_blur", "motion_blur", "zoom_blur", "gaussian_blur"),
    *("contrast", "elastic_transform", "pixelate", "jpeg_compression"),
}


def pictures(count: int, channels: int, height: int, width: int) -> torch.Tensor:
    """Random images: noise summed over three scales, the finest of 3.7 pixels."""
    generator = torch.Generator().manual_seed(count * height + width)
    total = torch.zeros(count, channels, height, width)
    for rows, columns, weight in ((3, 3, 1.0), (7, 7, 0.6), (height * 10 // 37, width * 10 // 37, 0.4)):
        coarse = torch.rand(count, channels, rows, columns, generator=generator)
        total += weight * torch.nn.functional.interpolate(coarse, (height, width), mode="bilinear")
    return (total / 2 * 255).to(torch.uint8)


def psnr(a: torch.Tensor, b: torch.Tensor) -> float:
    return 10 * math.log10(255**2 / max(float((a.float() - b.float()).square().mean()), 1e-6))


@pytest.mark.parametrize("name", EVERY)
def test_same_pixels_whatever_the_batch(name: str) -> None:
    for side, scale in zip((33, 48), SCALES, strict=True):
        images = pictures(7, 3, side, side + 3)
        together = corrupt(images, name, seed=3, scale=scale)
        assert torch.equal(corrupt(images, name, seed=3, scale=scale), together)
        reordered = corrupt(images.flip(0), name, seed=3, scale=scale).flip(0)
        assert torch.equal(reordered, together)
        for part in (slice(0, 1), slice(4, 5), slice(2, 6)):
            assert torch.equal(corrupt(images[part], name, seed=3, scale=scale), together[part])


@pytest.mark.parametrize("name", EVERY)
def test_seed_and_severity_choose_the_randomness(name: str) -> None:
    images = pictures(2, 3, 32, 32)
    first, second = corrupt(images, name, seed=0), corrupt(images, name, seed=1)
    assert torch.equal(first, second) == (name not in RANDOM)


def test_equal_images_in_a_batch_are_corrupted_equally_and_others_differently() -> None:
    images = pictures(2, 3, 32, 32)[[0, 1, 0]]
    noise = corrupt(images, "gaussian_noise").int() - images.int()
    assert torch.equal(noise[0], noise[2])
    assert not torch.equal(noise[0], noise[1])


@pytest.mark.parametrize("name", EVERY)
def test_the_global_generator_is_left_alone(name: str) -> None:
    before = torch.get_rng_state()
    corrupt(pictures(2, 3, 32, 32), name)
    assert torch.equal(torch.get_rng_state(), before)


@pytest.mark.parametrize("name", EVERY)
def test_floats_and_bytes_agree_and_the_input_is_kept(name: str) -> None:
    images = pictures(3, 3, 32, 32)
    copy = images.clone()
    expected = corrupt(images, name)
    assert expected.dtype == torch.uint8
    for dtype in (torch.float32, torch.float64, torch.float16):
        result = corrupt(images.to(dtype) / 255, name)
        assert result.dtype == dtype
        assert torch.equal((result.double() * 255).round().to(torch.uint8), expected)
    assert torch.equal(images, copy)


@pytest.mark.parametrize("name", EVERY)
@pytest.mark.parametrize("channels", [1, 3])
def test_every_size(name: str, channels: int) -> None:
    for height, width in ((28, 28), (30, 97), (112, 64), (180, 160)):
        images = pictures(1, channels, height, width)
        result = corrupt(images, name)
        assert result.shape == images.shape
        if (name, channels) != ("saturate", 1):  # grey has no saturation to change
            assert not torch.equal(result, images)


@pytest.mark.parametrize("name", EVERY)
def test_512_pixels(name: str) -> None:
    images = pictures(1, 3, 512, 512)
    assert 3 < psnr(corrupt(images, name), images) < 45


@pytest.mark.parametrize("name", sorted({*EVERY} - {"saturate", "elastic_transform", "jpeg_compression"}))
def test_grey_is_what_colour_does_to_a_grey_image(name: str) -> None:
    grey = pictures(16, 1, 32, 32)
    one, three = corrupt(grey, name), corrupt(grey.expand(-1, 3, -1, -1), name)
    if name in RANDOM:
        assert abs(psnr(one, grey) - psnr(three, grey.expand_as(three))) < 1.5
    else:
        assert int((one.int() - three.int()).abs().max()) <= 1


#: The published constants of these do not order the severities by PSNR.
UNORDERED = {
    *(
        (name, scale)
        for name in ("saturate", "elastic_transform", "glass_blur", "frost", "spatter")
        for scale in SCALES
    ),
    *(("snow", "imagenet"), ("fog", "imagenet")),
}


@pytest.mark.parametrize(
    ("name", "scale"), [(name, scale) for name in EVERY for scale in SCALES if (name, scale) not in UNORDERED]
)
def test_each_severity_is_stronger_than_the_last(name: str, scale: Scale) -> None:
    side, count = (32, 48) if scale == "cifar" else (96, 8)
    images = pictures(count, 3, side, side)
    strengths = [psnr(corrupt(images, name, severity=s, scale=scale), images) for s in range(1, 6)]
    assert strengths == sorted(strengths, reverse=True)
    assert strengths[0] > strengths[4] + 1


@pytest.mark.parametrize(
    ("name", "scale"), sorted(pair for pair in UNORDERED if pair[0] not in {"saturate", "elastic_transform"})
)
def test_the_last_severity_of_the_others_is_no_weaker_than_the_first(name: str, scale: Scale) -> None:
    images = pictures(24, 3, 64, 64)
    first, last = (psnr(corrupt(images, name, severity=s, scale=scale), images) for s in (1, 5))
    assert last < first


def test_published_constants_at_their_own_sizes() -> None:
    assert constants("snow", severity=3, side=32) == {
        **{"mean": 0.15, "sd": 0.3, "zoom": 1.75, "threshold": 0.55},
        **{"radius": 10, "sigma": 4, "keep": 0.9},
    }
    assert constants("glass_blur", severity=5, side=224) == {"sigma": 1.5, "reach": 4, "rounds": 2}
    elastic = constants("elastic_transform", severity=5, side=224)
    assert elastic == pytest.approx({"magnitude": 244 * 0.12, "sigma": 244 * 0.01, "affine": 244 * 0.02})
    assert constants("jpeg_compression", severity=1, side=224, scale="cifar") == {"quality": 80}


def test_constants_of_fractional_severities_lie_on_the_line_between_the_published_ones() -> None:
    assert constants("gaussian_noise", severity=4.5, side=32) == pytest.approx({"sd": 0.095})
    assert constants("gaussian_noise", severity=0.5, side=32) == pytest.approx({"sd": 0.02})
    assert constants("gaussian_noise", severity=0, side=32) == {"sd": 0}
    assert constants("gaussian_noise", severity=5.0, side=32) == {"sd": 0.1}
    with pytest.raises(ParameterError, match="from 0 to 5"):
        constants("gaussian_noise", severity=5.5)


@pytest.mark.parametrize("name", EVERY)
@pytest.mark.parametrize("severity", [1, 5])
def test_constants_between_the_scales_lie_between_and_join_them(name: str, severity: int) -> None:
    cifar = constants(name, severity=severity, side=64, scale="cifar")
    imagenet = constants(name, severity=severity, side=160, scale="imagenet")
    assert constants(name, severity=severity, side=64) == cifar
    assert constants(name, severity=severity, side=160) == imagenet
    for side in (65, 96, 128, 159):
        cifar = constants(name, severity=severity, side=side, scale="cifar")
        imagenet = constants(name, severity=severity, side=side, scale="imagenet")
        for field, value in constants(name, severity=severity, side=side).items():
            low, high = sorted((cifar[field], imagenet[field]))
            assert low - 1e-9 <= value <= high + 1e-9


def test_a_length_follows_the_side_between_the_scales() -> None:
    sides = [64, 80, 100, 125, 160]  # equal ratios
    sigmas = [constants("gaussian_blur", side=side)["sigma"] for side in sides]
    ratios = [b / a for a, b in pairwise(sigmas)]
    assert ratios == pytest.approx([6 ** math.log(b / a, 2.5) for a, b in pairwise(sides)])


def test_the_frost_in_use_has_a_name() -> None:
    assert frost_source() in {"procedural", "imagecorruptions photographs"}


def test_names() -> None:
    assert len(CORRUPTIONS) == 15
    assert HELD_OUT == ("speckle_noise", "gaussian_blur", "spatter", "saturate")
    with pytest.raises(UnknownStream, match="Did you mean 'gaussian_noise'"):
        corrupt(pictures(1, 3, 32, 32), "gausian_noise")
    with pytest.raises(UnknownStream):
        constants("rain")


@pytest.mark.parametrize("severity", [0, 6, -1, 2.5, True, "3"])
def test_severity_outside_the_range(severity: object) -> None:
    with pytest.raises(ParameterError, match=r"1\.\.5"):
        corrupt(pictures(1, 3, 32, 32), "fog", severity=severity)  # type: ignore[arg-type]


def test_unknown_scale() -> None:
    with pytest.raises(ParameterError, match="'cifar', 'imagenet'"):
        corrupt(pictures(1, 3, 32, 32), "fog", scale="mnist")  # type: ignore[arg-type]


@pytest.mark.parametrize("shape", [(0, 3, 32, 32), (3, 32, 32), (1, 2, 32, 32), (1, 32, 32, 3), (1, 3, 8, 32)])
def test_wrong_shapes(shape: tuple[int, ...]) -> None:
    with pytest.raises(ImageShape, match="permute"):
        corrupt(torch.zeros(shape, dtype=torch.uint8), "fog")


def test_wrong_values() -> None:
    images = torch.rand(2, 3, 32, 32)
    with pytest.raises(ImageDtype, match="int64"):
        corrupt(torch.zeros(1, 3, 32, 32, dtype=torch.int64), "fog")
    for other, kind in ((images.numpy(), "ndarray"), (images.tolist(), "list")):
        with pytest.raises(ImageDtype, match=f"must be a tensor; got {kind}"):
            corrupt(other, "fog")
    with pytest.raises(ImageRange, match=r"normalising"):
        corrupt(images * 4 - 2, "fog")
    images[0, 0, 0, 0] = float("nan")
    with pytest.raises(NonFiniteImages):
        corrupt(images, "fog")
    images[0, 0, 0, 0] = float("inf")
    with pytest.raises(NonFiniteImages):
        corrupt(images, "fog")


@pytest.mark.parametrize("level", [0, 255])
@pytest.mark.parametrize("name", EVERY)
def test_black_and_white_images(name: str, level: int) -> None:
    images = torch.full((2, 3, 32, 32), level, dtype=torch.uint8)
    found = corrupt(images, name)
    assert found.dtype == torch.uint8 and found.shape == images.shape
    # A mean of equal pixels, their displacement and a lower contrast leave them as they are.
    if name in KEEP_CONSTANT_IMAGES:
        assert (found.int() - level).abs().max() <= 1
