"""Time the corruptions against the PyPI package imagecorruptions-imaug, on one thread.

That package needs OpenCV, numba and scikit-image, so use a separate environment:

    python -m venv /tmp/side-by-side
    /tmp/side-by-side/bin/pip install torch imagecorruptions-imaug
    OMP_NUM_THREADS=1 PYTHONPATH=src /tmp/side-by-side/bin/python benchmarks/corruptions.py

The package has only the ImageNet constants. Ours are timed with the same constants, which is the ratio that counts, and
with those chosen by image size, which are CIFAR's at 32 px.
"""

from __future__ import annotations

import argparse
import contextlib
import io
import os
import sys
import time
import warnings
from collections.abc import Callable

os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("NUMBA_NUM_THREADS", "1")

import cv2
import imagecorruptions
import numpy as np
import torch

from ctta.corruptions import CORRUPTIONS, corrupt, frost_source

#: By image side: number of images, and the required speed-up over all fifteen corruptions.
SIZES = {32: (256, 20.0), 224: (64, 8.0)}


def smooth_images(count: int, side: int) -> torch.Tensor:
    """Generate random images with the 1/f spectrum of photographs, uint8 (N, 3, side, side)."""
    generator = torch.Generator().manual_seed(0)
    spectrum = torch.fft.rfft2(torch.randn(count, 3, side, side, generator=generator))
    frequency = torch.hypot(torch.fft.fftfreq(side)[:, None], torch.fft.rfftfreq(side)).clamp(min=1 / side)
    field: torch.Tensor = torch.fft.irfft2(spectrum / frequency, s=(side, side))
    field = field / field.std(dim=(1, 2, 3), keepdim=True)
    return (field * 55 + 120).clamp(0, 255).to(torch.uint8)


def seconds(work: Callable[[], object]) -> float:
    start = time.process_time()  # CPU time, so that other work on the machine does not count
    work()
    return time.process_time() - start


def compare(side: int, severity: int, repeats: int, at_most: int | None = None) -> bool:
    count, wanted = SIZES[side]
    count = min(count, at_most or count)
    images = smooth_images(count, side)
    arrays = [np.ascontiguousarray(image) for image in images.permute(0, 2, 3, 1).numpy()]

    def theirs(name: str, some: list[np.ndarray]) -> None:
        with contextlib.redirect_stdout(io.StringIO()):
            for array in some:
                imagecorruptions.corrupt(array, severity=severity, corruption_name=name)

    def ours(name: str, some: torch.Tensor, scale: str | None) -> None:
        corrupt(some, name, severity=severity, scale=scale)  # type: ignore[arg-type]

    print(f"\n{count} images, {side} px, severity {severity}, ms per image, median of {repeats}")
    print(f"{'':20}{'theirs':>9}{'ours':>9}{'ratio':>8}{'by size':>9}{'ratio':>8}")
    total = np.zeros(3)
    slow = []
    for name in CORRUPTIONS:
        theirs(name, arrays[:1])  # warm up compilation and caches
        ours(name, images[:1], "imagenet")
        ours(name, images[:1], None)
        times = [
            (
                seconds(lambda: theirs(name, arrays)),  # noqa: B023
                seconds(lambda: ours(name, images, "imagenet")),  # noqa: B023
                seconds(lambda: ours(name, images, None)),  # noqa: B023
            )
            for _ in range(repeats)  # interleaved, so that a busy machine slows down both
        ]
        median = np.median(times, axis=0) * 1e3 / count
        total += median
        if median[1] > median[0]:
            slow.append(name)
        print(row(name, median), flush=True)
    print(row("all fifteen", total))
    ratio = total[0] / total[1]
    passed = ratio >= wanted and not slow
    print(f"{'PASS' if passed else 'FAIL'}: {ratio:.1f}x (wanted {wanted:g}x); slower than theirs: {slow or 'none'}")
    return passed


def row(name: str, ms: np.ndarray) -> str:
    return f"{name:20}{ms[0]:9.3f}{ms[1]:9.3f}{ms[0] / ms[1]:7.1f}x{ms[2]:9.3f}{ms[0] / ms[2]:7.1f}x"


def main() -> int:
    parser = argparse.ArgumentParser(description="Time the corruptions against imagecorruptions-imaug.")
    parser.add_argument("--sides", type=int, nargs="+", choices=sorted(SIZES), default=sorted(SIZES))
    parser.add_argument("--severity", type=int, default=5)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--images", type=int, help="at most this many images, for a quick look")
    args = parser.parse_args()
    torch.set_num_threads(1)
    cv2.setNumThreads(1)
    warnings.simplefilter("ignore")
    print(f"torch {torch.__version__}, frost: {frost_source()}")
    passed = [compare(side, args.severity, args.repeats, args.images) for side in args.sides]
    return 0 if all(passed) else 1


if __name__ == "__main__":
    sys.exit(main())
