"""Image files that are not what they seem, and names that are not UTF-8."""

from __future__ import annotations

import os
import resource
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from ctta.datasets.pictures import centre, read_picture
from ctta.errors import BadData
from ctta.streams.datasets import domainnet126, image_folder

POSTSCRIPT = b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 32 32\n%%EndComments\nshowpage\n%%EOF\n"


def picture(path: Path, level: int = 0, size: tuple[int, int] = (16, 16)) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.new("RGB", size, (level, 0, 0)).save(path, format="PNG")
    return path


def test_postscript_named_png_never_reaches_ghostscript(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def started(*_: object, **__: object) -> None:
        raise AssertionError("a program was started")

    monkeypatch.setattr(subprocess, "Popen", started)
    (tmp_path / "a.png").write_bytes(POSTSCRIPT)
    with pytest.raises(BadData, match="none of BMP, GIF, JPEG, PNG, PPM, TIFF, WEBP"):
        read_picture(tmp_path / "a.png")


def test_a_decompression_bomb_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    picture(tmp_path / "a.png", size=(100, 100))
    monkeypatch.setattr(Image, "MAX_IMAGE_PIXELS", 1000)
    with pytest.raises(BadData, match="decompression bomb"):
        read_picture(tmp_path / "a.png")


@pytest.mark.parametrize("size", [(1, 60_000), (60_000, 1), (2, 40_000)])
def test_a_strip_is_resized_in_the_part_that_is_kept(tmp_path: Path, size: tuple[int, int]) -> None:
    ramp = np.linspace(0, 255, max(size)).astype(np.uint8)
    pixels = np.broadcast_to(ramp[:, None] if size[0] < size[1] else ramp, size[::-1])
    path = tmp_path / "strip.png"
    Image.fromarray(np.repeat(pixels[..., None], 3, 2)).save(path)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    found = np.asarray(centre(224, resize=256)(read_picture(path), path))
    grown = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before
    assert found.shape == (224, 224, 3) and grown < 1_000_000  # kB; the whole strip would be 9 GB
    # A pixel of the middle, enlarged.
    assert np.abs(found.astype(int) - int(ramp[len(ramp) // 2])).max() <= 1


@pytest.mark.parametrize("size", [(300, 200), (200, 300), (256, 256), (640, 257), (40, 90)])
def test_ordinary_pictures_are_resized_whole_and_then_cropped(tmp_path: Path, size: tuple[int, int]) -> None:
    image = Image.fromarray(np.random.default_rng(0).integers(0, 256, (*size[::-1], 3), dtype=np.uint8))
    width, height = size
    shape = (256, int(256 * height / width)) if width <= height else (int(256 * width / height), 256)
    resized = np.asarray(image.resize(shape, Image.Resampling.BILINEAR))
    top, left = round((shape[1] - 224) / 2), round((shape[0] - 224) / 2)
    expected = resized[top : top + 224, left : left + 224]
    assert np.array_equal(np.asarray(centre(224, resize=256)(image, tmp_path)), expected)


def odd(folder: Path, name: bytes) -> Path:
    try:
        path = Path(os.fsdecode(os.fsencode(folder) + b"/" + name))
        path.mkdir(parents=True)
    except (OSError, UnicodeError):
        pytest.skip("this file system takes only names in UTF-8")
    return path


def test_names_that_are_not_utf_8_are_classes_and_domains(tmp_path: Path) -> None:
    domain = odd(tmp_path, b"t\xe9l\xe9")
    picture(domain / os.fsdecode(b"caf\xe9") / os.fsdecode(b"\xff.png"), 9)
    for names in (None, [r"t\xe9l\xe9"], [domain.name]):
        (found,) = image_folder(tmp_path, names)
        assert found.name == r"t\xe9l\xe9"
        assert found.images.take(slice(None)).x[0, 0].unique().tolist() == [9]


def test_a_list_names_files_that_are_not_utf_8(tmp_path: Path) -> None:
    folder = odd(tmp_path, b"clip\xe9")
    picture(folder / os.fsdecode(b"\xe9.png"), 7, (256, 256))
    (tmp_path / "clipart_list.txt").write_bytes(b"clip\xe9/\xe9.png 3\r\n")
    (found,) = domainnet126(tmp_path, ["clipart"])
    assert found.images.y.tolist() == [3] and found.images.take(slice(None)).x[0, 0].unique().tolist() == [7]


def test_the_command_line_prints_and_records_names_that_are_not_utf_8(tmp_path: Path) -> None:
    data = odd(tmp_path, b"d\xe9j\xe0")
    for domain in ("a", os.fsdecode(b"\xfe")):
        for number in range(4):
            picture(data / domain / "one" / f"{number}.png", 60 * number, (32, 32))
    (data / "classes.txt").write_text("one\n" + "".join(f"another{number}\n" for number in range(9)))
    code = "import sys; from ctta.cli import main; sys.exit(main())"
    words = ["run", "source", "folder", "--model", "digits_resnet8", "--data", str(data), "--batch-size", "4"]
    done = subprocess.run(
        [sys.executable, "-c", code, *words, "--quiet", "--out", str(tmp_path / "runs")],
        capture_output=True,
        check=False,
        env=os.environ | {"PYTHONUTF8": "1"},
    )
    assert done.returncode == 0, done.stderr
    assert rb"\xfe" in done.stdout
    [record] = (tmp_path / "runs").rglob("record.json")
    text = record.read_text(encoding="utf-8")
    assert r'"\\xfe"' in text and r"d\\xe9j\\xe0" in text
