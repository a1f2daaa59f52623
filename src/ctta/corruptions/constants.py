"""The published constants of every corruption, and their interpolation to other image sizes and severities."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Literal, NamedTuple

from ctta.corruptions.zero import ZERO, Row

Scale = Literal["cifar", "imagenet"]
Constants = dict[str, float]

#: Images up to the first side use the CIFAR constants, images from the second on those of ImageNet.
CIFAR_SIDE, IMAGENET_SIDE = 64, 160


def _linear(a: float, b: float, t: float) -> float:
    return a + (b - a) * t


def _power(a: float, b: float, t: float) -> float:
    """Interpolate linearly in log(side) and log(value), which suits lengths in pixels."""
    return float(a * (b / a) ** t) if a > 0 and b > 0 else _linear(a, b, t)


def _whole(a: float, b: float, t: float) -> float:
    return float(round(_power(a, b, t)))


_Blend = Callable[[float, float, float], float]
_Rows = tuple[Row, ...]


class _Entry(NamedTuple):
    fields: tuple[tuple[str, _Blend], ...]
    cifar: _Rows
    imagenet: _Rows


def _single(*values: float) -> _Rows:
    return tuple((value,) for value in values)


# fmt: off
_TABLE: dict[str, _Entry] = {
    "gaussian_noise": _Entry(
        (("sd", _linear),),
        _single(.04, .06, .08, .09, .10), _single(.08, .12, .18, .26, .38)),
    "shot_noise": _Entry(
        (("photons", _power),),
        _single(500, 250, 100, 75, 50), _single(60, 25, 12, 5, 3)),
    "impulse_noise": _Entry(
        (("share", _linear),),
        _single(.01, .02, .03, .05, .07), _single(.03, .06, .09, .17, .27)),
    "defocus_blur": _Entry(
        (("radius", _power), ("sigma", _linear)),
        ((.3, .4), (.4, .5), (.5, .6), (1, .2), (1.5, .1)),
        ((3, .1), (4, .5), (6, .5), (8, .5), (10, .5))),
    "glass_blur": _Entry(
        (("sigma", _power), ("reach", _whole), ("rounds", _whole)),
        ((.05, 1, 1), (.25, 1, 1), (.4, 1, 1), (.25, 1, 2), (.4, 1, 2)),
        ((.7, 1, 2), (.9, 2, 1), (1, 2, 3), (1.1, 3, 2), (1.5, 4, 2))),
    "motion_blur": _Entry(
        (("radius", _whole), ("sigma", _power)),
        ((6, 1), (6, 1.5), (6, 2), (8, 2), (9, 2.5)),
        ((10, 3), (15, 5), (15, 8), (15, 12), (20, 15))),
    "zoom_blur": _Entry(
        (("end", _linear), ("step", _linear)),
        ((1.06, .01), (1.11, .01), (1.16, .01), (1.21, .01), (1.26, .01)),
        ((1.11, .01), (1.16, .01), (1.21, .02), (1.26, .02), (1.31, .03))),
    "snow": _Entry(
        (("mean", _linear), ("sd", _linear), ("zoom", _power), ("threshold", _linear),
         ("radius", _whole), ("sigma", _power), ("keep", _linear)),
        ((.1, .2, 1, .6, 8, 3, .95), (.1, .2, 1, .5, 10, 4, .9), (.15, .3, 1.75, .55, 10, 4, .9),
         (.25, .3, 2.25, .6, 12, 6, .85), (.3, .3, 1.25, .65, 14, 12, .8)),
        ((.1, .3, 3, .5, 10, 4, .8), (.2, .3, 2, .5, 12, 4, .7), (.55, .3, 4, .9, 12, 8, .7),
         (.55, .3, 4.5, .85, 12, 8, .65), (.55, .3, 2.5, .85, 12, 12, .55))),
    "frost": _Entry(
        (("image", _linear), ("frost", _linear), ("zoom", _power)),
        ((1, .2, .2), (1, .3, .2), (.9, .4, .2), (.85, .4, .2), (.75, .45, .2)),
        ((1, .4, 1), (.8, .6, 1), (.7, .7, 1), (.65, .7, 1), (.6, .75, 1))),
    "fog": _Entry(
        (("strength", _linear), ("decay", _linear)),
        ((.2, 3), (.5, 3), (.75, 2.5), (1, 2), (1.5, 1.75)),
        ((1.5, 2), (2, 2), (2.5, 1.7), (2.5, 1.5), (3, 1.4))),
    "brightness": _Entry(
        (("shift", _linear),),
        _single(.05, .1, .15, .2, .3), _single(.1, .2, .3, .4, .5)),
    "contrast": _Entry(
        (("factor", _linear),),
        _single(.75, .5, .4, .3, .15), _single(.4, .3, .2, .1, .05)),
    "elastic_transform": _Entry(  # fractions of the image side
        (("magnitude", _linear), ("sigma", _linear), ("affine", _linear)),
        ((0, 0, .08), (.05, .2, .07), (.08, .06, .06), (.1, .04, .05), (.1, .03, .03)),
        ((2, .7, .1), (2, .08, .2), (.05, .01, .02), (.07, .01, .02), (.12, .01, .02))),
    "pixelate": _Entry(
        (("factor", _linear),),
        _single(.95, .9, .85, .75, .65), _single(.6, .5, .4, .3, .25)),
    "jpeg_compression": _Entry(
        (("quality", _whole),),
        _single(80, 65, 58, 50, 40), _single(25, 18, 15, 10, 7)),
    "speckle_noise": _Entry(
        (("sd", _linear),),
        _single(.06, .1, .12, .16, .2), _single(.15, .2, .35, .45, .6)),
    "gaussian_blur": _Entry(
        (("sigma", _power),),
        _single(.4, .6, .7, .8, 1), _single(1, 2, 3, 4, 6)),
    "spatter": _Entry(
        (("mean", _linear), ("sd", _linear), ("sigma", _power), ("threshold", _linear),
         ("strength", _linear), ("mud", _whole)),
        ((.62, .1, .7, .7, .5, 0), (.65, .1, .8, .7, .5, 0), (.65, .3, 1, .69, .5, 0),
         (.65, .1, .7, .69, .6, 1), (.65, .1, .5, .68, .6, 1)),
        ((.65, .3, 4, .69, .6, 0), (.65, .3, 3, .68, .6, 0), (.65, .3, 2, .68, .5, 0),
         (.65, .3, 1, .65, 1.5, 1), (.67, .4, 1, .65, 1.5, 1))),
    "saturate": _Entry(
        (("factor", _linear), ("shift", _linear)),
        ((.3, 0), (.1, 0), (1.5, 0), (2, .1), (2.5, .2)),
        ((.3, 0), (.1, 0), (2, 0), (5, .1), (20, .2))),
}
# fmt: on


def blend_at(side: int, scale: Scale | None) -> float:
    """Return the interpolation weight for an image side: 0 is CIFAR, 1 is ImageNet.

    Args:
        side: The shorter side of the images, in pixels.
        scale: Overrides `side` if given.
    """
    if scale is not None:
        return float(scale == "imagenet")
    t = math.log(side / CIFAR_SIDE) / math.log(IMAGENET_SIDE / CIFAR_SIDE)
    return min(max(t, 0.0), 1.0)


def constants_at(name: str, severity: float, side: int, scale: Scale | None) -> Constants:
    """Return the constants of a corruption by name.

    Args:
        name: The corruption.
        severity: 0 to 5; fractions are interpolated between the published severities.
        side: The shorter side of the images, in pixels.
        scale: Overrides `side` if given.
    """
    entry, t = _TABLE[name], blend_at(side, scale)
    cifar, imagenet = _row(name, entry.cifar, severity, 0), _row(name, entry.imagenet, severity, 1)
    pairs = zip(entry.fields, cifar, imagenet, strict=True)
    values = {field: blend(a, b, t) for (field, blend), a, b in pairs}
    if name == "elastic_transform":
        # The published values are fractions of 32 px for CIFAR and of 244 px, for images of 224 px, for ImageNet.
        values = {field: v * side * _linear(1.0, 244 / 224, t) for field, v in values.items()}
    return values


def _row(name: str, rows: _Rows, severity: float, dataset: int) -> Row:
    """The constants of one dataset at a severity: those published at whole severities, linear in between."""
    below = math.floor(severity)
    levels = (ZERO[name][dataset], *rows)
    if below == severity:
        return levels[below]
    t = severity - below
    pairs = zip(levels[below], levels[below + 1], strict=True)
    if name == "shot_noise":
        # Linear in 1 / photons, which is proportional to the variance of the noise.
        return tuple(1 / _linear(1 / a, 1 / b, t) for a, b in pairs)
    return tuple(_linear(a, b, t) for a, b in pairs)
