"""The vectorised kernels against the loops they replace, written here one pixel at a time."""

import io
import math

import numpy as np
import pytest
import torch
from PIL import Image
from torch.nn.functional import pad

from ctta.corruptions import corrupt, jpeg
from ctta.corruptions.bands import Band, _chosen, multiply_across, multiply_down
from ctta.corruptions.blur import _disk, _zoomed_by_matrices, zoom_blur
from ctta.corruptions.draws import Draws
from ctta.corruptions.edges import canny, distance
from ctta.corruptions.filters import _gaussian_matrix, _inverse, _whole_inverse, convolve, gaussian
from ctta.corruptions.glass import scan_sources
from ctta.corruptions.jpeg import _settings, jpeg_compression
from ctta.corruptions.motion import _accumulated, _extended, _gathered, motion
from ctta.corruptions.plasma import plasma
from ctta.corruptions.poisson import poisson
from ctta.corruptions.taps import pixel_taps


def images(count: int = 2, channels: int = 3, height: int = 20, width: int = 24) -> torch.Tensor:
    generator = torch.Generator().manual_seed(height)
    return torch.randint(0, 256, (count, channels, height, width), generator=generator, dtype=torch.uint8)


@pytest.mark.parametrize(("reach", "rounds"), [(1, 2), (2, 3), (3, 2), (4, 2)])
def test_glass_copies_in_scan_order(reach: int, rounds: int) -> None:
    height, width = 21, 26
    generator = torch.Generator().manual_seed(reach)
    choices = torch.randint(0, 4 * reach**2, (2, rounds, height, width), generator=generator)
    sources = scan_sources(choices, reach).view(2, height, width)
    for image in range(2):
        value = np.arange(height * width).reshape(height, width).copy()
        for turn in range(rounds):
            for h in range(height - reach, reach, -1):
                for w in range(width - reach, reach, -1):
                    dy, dx = divmod(int(choices[image, turn, h, w]), 2 * reach)
                    value[h, w] = value[h + dy - reach, w + dx - reach]
        assert np.array_equal(sources[image].numpy(), value)


@pytest.mark.parametrize("degrees", [-135.0, -90.0, -45.0, -17.3, 0.0, 31.0, 45.0])
def test_motion_is_a_weighted_walk_along_the_line(degrees: float) -> None:
    x, radius, sigma = images(1, 1).float(), 5, 3.0
    weights = [math.exp(-(i**2) / (2 * sigma**2)) for i in range(2 * radius + 1)]
    expected = np.zeros((20, 24))
    for h in range(20):
        for w in range(24):
            for i, weight in enumerate(weights):
                y = h + math.ceil(i * math.sin(math.radians(degrees)) - 0.5)
                z = w + math.ceil(i * math.cos(math.radians(degrees)) - 0.5)
                expected[h, w] += weight * float(x[0, 0, min(max(y, 0), 19), min(max(z, 0), 23)])
    result = motion(x, radius, sigma, torch.tensor([degrees]))[0, 0].numpy()
    assert np.abs(result - expected / sum(weights)).max() < 0.05


def test_motion_of_small_and_large_images_is_the_same() -> None:
    padded, weights = torch.rand(3, 3, 60, 70), torch.rand(9, dtype=torch.float64)
    tops, lefts = torch.randint(0, 9, (3, 9)), torch.randint(0, 9, (3, 9))
    small, large = torch.empty(2, 3, 3, 50, 60)
    _gathered(padded, tops, lefts, weights, small)
    _accumulated(padded, tops, lefts, weights, large)
    assert torch.allclose(small, large, atol=1e-4)


def test_extended_borders_are_those_of_replication() -> None:
    x = torch.rand(2, 3, 5, 7)
    for sides in ((0, 0, 0, 0), (2, 0, 0, 3), (1, 4, 6, 2)):
        assert torch.equal(_extended(x, *sides), pad(x, sides, mode="replicate"))


@pytest.mark.parametrize(("sigma", "truncate", "border"), [(1.3, 4, "nearest"), (9.0, 3, "reflect")])
def test_gaussian_against_a_padded_loop(sigma: float, truncate: float, border: str) -> None:
    x = images(1, 1).float()
    radius = int(truncate * sigma + 0.5)
    kernel = np.exp(-0.5 * (np.arange(-radius, radius + 1) / sigma) ** 2)
    mode = {"nearest": "edge", "reflect": "symmetric"}[border]
    padded = np.pad(x[0, 0].double().numpy(), radius, mode=mode)  # type: ignore[call-overload]
    rows = np.stack([np.convolve(row, kernel / kernel.sum(), "valid") for row in padded])
    both = np.stack([np.convolve(column, kernel / kernel.sum(), "valid") for column in rows.T]).T
    result = gaussian(x, sigma, truncate=truncate, border=border)[0, 0]  # type: ignore[arg-type]
    assert np.abs(result.numpy() - both).max() < 1e-3


@pytest.mark.parametrize(("radius", "sigma"), [(1.0, 0.2), (3.0, 0.1), (8.0, 0.5), (10.0, 0.5)])
def test_defocus_against_a_loop(radius: float, sigma: float) -> None:
    reach, s = (8, 1) if radius <= 8 else (int(radius), 2)
    size = 2 * reach + 1
    disk = np.zeros((size, size))
    for i in range(size):
        for j in range(size):
            disk[i, j] = float((i - reach) ** 2 + (j - reach) ** 2 <= radius**2)
    disk /= disk.sum()
    taps = np.exp(-0.5 * (np.arange(-s, s + 1) / sigma) ** 2)
    taps /= taps.sum()
    padded = np.pad(disk, s, mode="reflect")
    smooth = sum(
        taps[i] * taps[j] * padded[i : i + size, j : j + size] for i in range(2 * s + 1) for j in range(2 * s + 1)
    )
    kernel = _disk(radius, sigma).numpy()
    cut = (size - len(kernel)) // 2
    assert np.allclose(kernel, smooth[cut : size - cut, cut : size - cut], atol=1e-7)

    x = images(1, 1).float()
    field = np.pad(x[0, 0].numpy(), reach, mode="reflect")
    expected = [[(field[h : h + size, w : w + size] * smooth).sum() for w in range(24)] for h in range(20)]
    assert np.abs(convolve(x, _disk(radius, sigma))[0, 0].numpy() - expected).max() < 1e-2


def bilinear(image: np.ndarray, y: float, x: float) -> float:
    top, left = min(int(y), image.shape[0] - 2), min(int(x), image.shape[1] - 2)
    fy, fx = y - top, x - left
    upper = image[top, left] * (1 - fx) + image[top, left + 1] * fx
    lower = image[top + 1, left] * (1 - fx) + image[top + 1, left + 1] * fx
    return float(upper * (1 - fy) + lower * fy)


def test_zoom_blur_against_a_loop() -> None:
    x, size = images(1, 1, 32, 32), 32
    factors = np.arange(1, 1.16, 0.01)
    total = x[0, 0].double().numpy().copy()
    clean = x[0, 0].double().numpy()
    for factor in factors:
        crop = math.ceil(size / factor)
        top = (size - crop) // 2
        part = clean[top : top + crop, top : top + crop]
        zoomed = round(crop * factor)
        trim, step = (zoomed - size) // 2, (crop - 1) / (zoomed - 1)
        for h in range(size):
            for w in range(size):
                total[h, w] += bilinear(part, (h + trim) * step, (w + trim) * step)
    expected = np.floor(total / (len(factors) + 1) + 1e-6)
    result = corrupt(x, "zoom_blur", severity=3)[0, 0].numpy()
    assert np.abs(result - expected).max() <= 1
    assert (result == expected).mean() > 0.98


@pytest.mark.parametrize("severity", [1, 3, 5])
@pytest.mark.parametrize("side", [32, 224])
def test_pixelate_is_pillows_box_filter(severity: int, side: int) -> None:
    x = images(1, 3, side, side + 5)  # 37 px put a pixel on the edge of a box
    scale = "cifar" if side == 32 else "imagenet"
    factor = {"cifar": (0.95, 0.9, 0.85, 0.75, 0.65), "imagenet": (0.6, 0.5, 0.4, 0.3, 0.25)}[scale][severity - 1]
    picture = Image.fromarray(x[0].permute(1, 2, 0).contiguous().numpy())
    small = picture.resize((int((side + 5) * factor), int(side * factor)), Image.Resampling.BOX)
    expected = np.array(small.resize(picture.size, Image.Resampling.BOX))
    result = corrupt(x, "pixelate", severity=severity, scale=scale)[0].permute(1, 2, 0).numpy()
    assert np.abs(result.astype(int) - expected).max() <= 1
    assert (result == expected).mean() > 0.999


def test_jpeg_is_pillows() -> None:
    x = images(2, 3, 40, 56)
    for image, result in zip(x, corrupt(x, "jpeg_compression", severity=2), strict=True):
        file = io.BytesIO()
        Image.fromarray(image.permute(1, 2, 0).contiguous().numpy()).save(file, "JPEG", quality=65)
        assert np.array_equal(result.permute(1, 2, 0).numpy(), np.array(Image.open(file)))


def test_contrast_against_float64() -> None:
    x = images()
    levels = x.double()
    mean = levels.mean((2, 3), keepdim=True)
    expected = ((levels - mean) * 0.15 + mean).floor()
    assert float((corrupt(x, "contrast").double() - expected).abs().max()) <= 1


@pytest.mark.parametrize("name", ["brightness", "saturate"])
def test_hsv_against_colorsys(name: str) -> None:
    import colorsys  # noqa: PLC0415

    x = images(1, 3, 16, 16)
    x[0, :, 0, :4] = torch.tensor([0, 255, 90, 1], dtype=torch.uint8)  # greys, black among them
    result = corrupt(x, name, severity=5)
    for h in range(16):
        for w in range(16):
            hue, saturation, value = colorsys.rgb_to_hsv(*(x[0, :, h, w].double() / 255).tolist())
            if name == "brightness":
                value = min(value + 0.3, 1)
            else:
                saturation = min(saturation * 2.5 + 0.2, 1)
            expected = torch.tensor(colorsys.hsv_to_rgb(hue, saturation, value)) * 255
            assert float((result[0, :, h, w].double() - expected.floor()).abs().max()) <= 1


@pytest.mark.parametrize("photons", [3.0, 50.0, 500.0])
def test_poisson_has_its_mean_variance_and_distribution(photons: float) -> None:
    generator = torch.Generator().manual_seed(0)
    for level in (0, 1, 40, 255):
        rate = level * photons / 255
        uniform = torch.rand(1, 1, 200, 500, generator=generator)
        counts = poisson(torch.full((1, 1, 200, 500), level, dtype=torch.uint8), photons, uniform)
        assert float(counts.mean()) == pytest.approx(rate, abs=5 * math.sqrt(max(rate, 1e-9) / 1e5) + 1e-9)
        assert float(counts.var()) == pytest.approx(rate, rel=0.03, abs=0.02)
        for k in range(max(0, int(rate) - 2), int(rate) + 3):
            expected = math.exp(k * math.log(rate) - rate - math.lgamma(k + 1)) if rate else float(k == 0)
            assert float((counts == k).float().mean()) == pytest.approx(expected, abs=0.008)


def test_plasma_against_a_loop() -> None:
    size, decay = 16, 1.75
    noise = torch.rand(2, size, size, generator=torch.Generator().manual_seed(1)) * 2 - 1
    for field, result in zip(noise.double().numpy(), plasma(noise, decay), strict=True):
        heights = np.zeros((size, size))
        step, wibble = size, 100.0
        while step >= 2:
            half = step // 2

            def mean(points: list[tuple[int, int]], heights: np.ndarray = heights) -> float:
                return sum(heights[y % size, x % size] for y, x in points) / 4

            for y in range(0, size, step):
                for x in range(0, size, step):
                    corners = [(y, x), (y + step, x), (y, x + step), (y + step, x + step)]
                    centre = (y + half, x + half)
                    heights[centre] = mean(corners) + wibble**2 * field[centre]
            for y in range(0, size, half):
                for x in range(half if y % step == 0 else 0, size, step):
                    around = [(y - half, x), (y + half, x), (y, x - half), (y, x + half)]
                    heights[y, x] = mean(around) + wibble**2 * field[y, x]
            step, wibble = half, wibble / decay
        expected = (heights - heights.min()) / (heights.max() - heights.min())
        assert np.abs(result.numpy() - expected).max() < 1e-4


def test_impulse_flips_half_to_black_and_half_to_white() -> None:
    x = torch.full((20, 3, 64, 64), 100, dtype=torch.uint8)
    x[:, 0, 0, 0] = torch.arange(1, 21)  # equal images would draw equal noise
    result = corrupt(x, "impulse_noise", severity=5)
    assert float((result == 255).float().mean()) == pytest.approx(0.035, abs=0.001)
    assert float((result == 0).float().mean()) == pytest.approx(0.035, abs=0.001)
    assert float((result == 100).float().mean()) == pytest.approx(0.93, abs=0.002)


def test_canny_outlines_a_square_and_distance_counts_from_it() -> None:
    x = torch.zeros(1, 1, 32, 32)
    x[..., 8:24, 8:24] = 200
    edges = canny(x, low=50, high=150)
    assert not bool(edges[..., :7, :].any() or edges[..., 10:22, 10:22].any())
    assert bool(edges[0, 0, 7:9, 12:20].any(0).all())
    far = distance(edges, farthest=20.0)[0, 0]
    where = edges[0, 0].nonzero().double()
    for h in range(0, 32, 3):
        for w in range(0, 32, 3):
            exact = float((where - torch.tensor([h, w])).square().sum(1).sqrt().min())
            assert float(far[h, w]) == pytest.approx(exact, rel=0.03, abs=0.05)
    assert bool((distance(torch.zeros_like(edges), farthest=20.0) == 20).all())


@pytest.mark.parametrize("size", [128, 224, 331])
@pytest.mark.parametrize("sigma", [0.7, 2.4, 9.0])
def test_products_with_bands_have_the_bits_of_full_products(size: int, sigma: float) -> None:
    matrix = _gaussian_matrix(size, sigma, 4.0, "nearest")
    x = torch.rand(2, 96, size, generator=torch.Generator().manual_seed(size)) * 255
    assert torch.equal(multiply_across(x, matrix), torch.bmm(x, matrix.T.expand(2, -1, -1)))
    y = x.mT.contiguous()
    assert torch.equal(multiply_down(matrix, y), torch.bmm(matrix.expand(2, -1, -1), y))


def test_a_band_whose_bits_differ_is_computed_in_full() -> None:
    matrix = _gaussian_matrix(128, 1.0, 4.0, "nearest")
    columns = [band.columns for band in _chosen(matrix, lambda bands: torch.ones(128, dtype=torch.bool))]
    assert columns == [slice(0, 36), slice(28, 68), slice(60, 100), slice(92, 128)]

    def sum_of_row_40_is_split(bands: tuple[Band, ...]) -> torch.Tensor:
        return torch.arange(128).ne(40) | torch.tensor(bands[1].columns == slice(0, 128))

    chosen = _chosen(matrix, sum_of_row_40_is_split)
    assert [band.columns for band in chosen] == [columns[0], slice(0, 128), *columns[2:]]
    rebuilt = torch.zeros(128, 128)
    for band in chosen:
        rebuilt[band.rows, band.columns] = band.matrix
    assert torch.equal(rebuilt, matrix)

    (whole,) = _chosen(matrix, lambda bands: torch.zeros(128, dtype=torch.bool))
    assert whole.rows == whole.columns == slice(0, 128) and torch.equal(whole.matrix, matrix)


@pytest.mark.parametrize(("height", "width"), [(96, 130), (224, 224)])
def test_zoom_of_large_images_has_the_bits_of_the_products(height: int, width: int) -> None:
    x = images(2, 3, height, width)
    expected = _zoomed_by_matrices(x, np.arange(1, 1.31, 0.03).tolist()[1:]) / 12
    assert torch.equal(zoom_blur(x, {"end": 1.31, "step": 0.03}, Draws(x[:0])), expected)


@pytest.mark.parametrize(("count", "height", "width"), [(5, 32, 32), (3, 17, 30), (4, 96, 130), (8, 224, 224)])
def test_zoom_of_many_images_has_the_bits_of_the_products(count: int, height: int, width: int) -> None:
    x = images(count, 3, height, width)
    expected = _zoomed_by_matrices(x, np.arange(1, 1.26, 0.01).tolist()[1:]) / 27
    assert torch.equal(zoom_blur(x, {"end": 1.26, "step": 0.01}, Draws(x[:0])), expected)


def test_taps_round_the_terms_one_by_one_where_the_product_does() -> None:
    across, down = pixel_taps(3, 20, 24, 1.3) or pytest.fail("the taps are not the product")
    x = torch.rand(20 * 24, 5)
    first, second = (x[some] * weight[:, None] for some, weight in zip(across.sources.T, across.weights.T, strict=True))
    every = torch.arange(len(across.sources), dtype=torch.int32)
    assert torch.equal(across._replace(rounded_twice=every).apply(x), first + second)
    assert torch.allclose(across.apply(x), first + second, atol=1e-5)
    assert down.apply(across.apply(x)).shape == x.shape


def test_the_inverse_transform_of_some_rows_is_that_of_all() -> None:
    x = torch.rand(2, 3, 24, 30)
    spectrum = torch.fft.rfft2(x)
    for inverse in (_inverse, _whole_inverse):
        assert torch.allclose(inverse(spectrum, (24, 30), slice(5, 20)), x[..., 5:20, :], atol=1e-5)


@pytest.mark.parametrize("mode", ["RGB", "L"])
@pytest.mark.parametrize("size", [(32, 32), (48, 17), (40, 32), (33, 20)])
@pytest.mark.parametrize("restarts", [True, False])
def test_jpeg_of_a_batch_is_what_pillow_saves(
    mode: str, size: tuple[int, int], restarts: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    if not restarts:  # as with the first releases of Pillow 10
        monkeypatch.setattr(jpeg, "_settings", lambda mode, quality, rows=0: _settings(mode, quality))
    x = images(70, len(mode), *size)
    found = jpeg_compression(x, {"quality": 30}, Draws(x[:0]))
    for image, result in zip(x.permute(0, 2, 3, 1), found.permute(0, 2, 3, 1), strict=True):
        file = io.BytesIO()
        Image.fromarray(image.contiguous().numpy().squeeze()).save(file, "JPEG", quality=30)
        assert np.array_equal(result.numpy(), np.asarray(Image.open(file)).reshape(*size, len(mode)))


@pytest.mark.parametrize("mode", ["RGB", "L"])
def test_jpeg_of_a_large_noisy_image_is_what_pillow_saves(mode: str) -> None:
    channels = len(mode)
    x = torch.randint(0, 256, (1, channels, 400, 500), generator=torch.Generator().manual_seed(0), dtype=torch.uint8)
    file = io.BytesIO()
    Image.fromarray(x[0].permute(1, 2, 0).contiguous().numpy().squeeze()).save(file, "JPEG", quality=95)
    expected = np.asarray(Image.open(file)).reshape(400, 500, channels)
    found = jpeg_compression(x, {"quality": 95}, Draws(x[:0]))
    assert np.array_equal(found[0].permute(1, 2, 0).numpy(), expected)
