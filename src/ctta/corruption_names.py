"""The names of the corruptions, readable without importing torch."""

from __future__ import annotations

from typing import Final

#: The fifteen corruptions in the order of the paper.
CORRUPTIONS: Final[tuple[str, ...]] = (
    "gaussian_noise",
    "shot_noise",
    "impulse_noise",
    "defocus_blur",
    "glass_blur",
    "motion_blur",
    "zoom_blur",
    "snow",
    "frost",
    "fog",
    "brightness",
    "contrast",
    "elastic_transform",
    "pixelate",
    "jpeg_compression",
)

#: The four corruptions held out for tuning.
HELD_OUT: Final[tuple[str, ...]] = ("speckle_noise", "gaussian_blur", "spatter", "saturate")
