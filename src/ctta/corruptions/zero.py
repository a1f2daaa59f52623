"""The constants of every corruption at severity 0, from which fractions of severity 1 are interpolated.

The ImageNet values of the fifteen are those of CCC (Press et al., 2023). The CIFAR values are chosen in the same way:
constants that set the strength of a corruption are set to no effect, and those that only shape it are those of severity
1. JPEG starts at a quality of 95, as far from severity 1 as severity 2 is. The four held-out corruptions follow the
same rule.
"""

from __future__ import annotations

import math
from typing import Final

Row = tuple[float, ...]

#: The constants at severity 0 for CIFAR and for ImageNet, in the order of the fields of a corruption.
ZERO: Final[dict[str, tuple[Row, Row]]] = {
    "gaussian_noise": ((0,), (0,)),
    "shot_noise": ((math.inf,), (math.inf,)),
    "impulse_noise": ((0,), (0,)),
    "defocus_blur": ((0, 0), (0, 0)),
    "glass_blur": ((0, 0, 0), (0, 0, 0)),
    "motion_blur": ((0, 0), (0, 0)),
    "zoom_blur": ((1, 0.01), (1, 0.01)),
    "snow": ((0.1, 0.2, 1, 1, 8, 3, 1), (0.1, 0.3, 3, 1, 10, 4, 1)),
    "frost": ((1, 0, 0.2), (1, 0, 1)),
    "fog": ((0, 3), (0, 2)),
    "brightness": ((0,), (0,)),
    "contrast": ((1,), (1,)),
    "elastic_transform": ((0, 0, 0), (0, 999 / 244, 0)),
    "pixelate": ((1,), (1,)),
    "jpeg_compression": ((95,), (85,)),
    "speckle_noise": ((0,), (0,)),
    "gaussian_blur": ((0,), (0,)),
    "spatter": ((0.62, 0.1, 0.7, 0.7, 0, 0), (0.65, 0.3, 4, 0.69, 0, 0)),
    "saturate": ((1, 0), (1, 0)),
}
