"""CCC: continuously changing corruptions (Press et al., 2023), for any images and any source model."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from ctta._checks.numbers import check_seed, check_whole
from ctta._checks.sequences import names_of
from ctta.corruption_names import CORRUPTIONS
from ctta.corruptions import constants
from ctta.corruptions.constants import Scale
from ctta.datasets.corrupted_twice import At, CorruptedTwice
from ctta.datasets.domain import Labelled
from ctta.errors import ParameterError
from ctta.streams.ccc_accuracy import levels_of
from ctta.streams.ccc_path import transition
from ctta.streams.stream import Segment, Stream

#: Returns the accuracy in percent by the severities of two corruptions; called with their names and the number of steps
#: of the grid.
Grid = Callable[[str, str, int], Sequence[Sequence[float]]]

_HARD = ("gaussian_noise", "shot_noise", "impulse_noise", "contrast")


def usual_corruptions(target: float) -> tuple[str, ...]:
    """Return the corruptions of CCC-Easy (a target from 40 percent on), CCC-Medium (from 20 on) or CCC-Hard.

    Args:
        target: The accuracy to stay near, in percent.
    """
    if target < 20:
        return _HARD
    without = {"brightness"} if target >= 40 else {"brightness", "jpeg_compression"}
    return tuple(name for name in CORRUPTIONS if name not in without)


def ccc(
    images: Labelled,
    accuracy: Grid,
    corruptions: str | Sequence[str] | None = None,
    *,
    target: float = 40.0,
    speed: int = 1000,
    step: float = 0.25,
    length: int = 30_000,
    batch_size: int = 200,
    seed: int = 0,
    scale: Scale | None = None,
) -> Stream:
    """Return a stream in which one corruption changes into the next in small steps, at a target accuracy of the source.

    Every image has two corruptions, one on top of the other. A transition from one to the next is the path of
    `ctta.streams.ccc_path.transition`: the severity of the old one falls and that of the new one rises. At every point
    of the path ``speed`` images are drawn at random. Then the new corruption changes into another one, drawn at random.

    The stream is one domain, named "ccc", so that its error is that of all images; the severity of a segment is the sum
    of both severities. Differs from the published images: they are not cropped, flipped or stored as JPEG, because a
    flip would change the class of some data, such as digits.

    Args:
        images: The clean images.
        accuracy: Accuracy of the source by the severities of two corruptions, such as
            `ctta.streams.ccc_accuracy.SourceAccuracy(model, images).grid`.
        corruptions: The corruptions to choose from, at least two; by default `usual_corruptions` of the target.
        target: The accuracy to stay near, in percent: 40 is CCC-Easy, 20 CCC-Medium and 0 CCC-Hard.
        speed: Images at every point of a path; CCC uses 1000, 2000 and 5000.
        step: Change of a severity from one point to the next; it must divide 5.
        length: Number of images in the stream; the streams of CCC have 7.5 million.
        batch_size: Images per batch; the last batch of a point may be smaller.
        seed: Seed of the corruptions, of the images that are drawn and of their noise.
        scale: Whose published constants to use, "cifar" or "imagenet"; None chooses by image size.
    """
    levels = levels_of(step, "The step of the severities")
    check_seed(seed)
    check_whole(speed, "The 'speed' of a stream, in images,")
    check_whole(length, "The 'length' of a stream, in images,")
    if not isinstance(target, (int, float)) or not 0 <= target <= 100:
        raise ParameterError(f"The target must be an accuracy in percent, 0 to 100. Got {target!r} instead.")
    names = usual_corruptions(target) if corruptions is None else names_of(corruptions, "corruptions")
    for name in names:
        constants(name)  # an unknown name fails now
    if len(set(names)) < 2:
        raise ParameterError(f"One corruption must change into another: give at least two. Got {', '.join(names)}.")
    generator = torch.Generator().manual_seed(seed)
    first, second = "", _drawn(names, "", generator)
    segments: list[Segment] = []
    left = length
    while left:
        first, second = second, _drawn(names, second, generator)
        for a, b in transition(accuracy(first, second, levels), target)[: -(-left // speed)]:
            ends = At(first, 5 * a / levels), At(second, 5 * b / levels)
            noise = 1_000_003 * seed + len(segments)  # the same image must not have the same noise again
            made = CorruptedTwice(images, *ends, seed=noise, scale=scale, among=tuple(names))
            order = _some(len(images), min(speed, left), generator)
            segments.append(Segment("ccc", ends[0].severity + ends[1].severity, made, order))
            left -= len(order)
    return Stream(segments, batch_size=batch_size)


def _drawn(names: Sequence[str], without: str, generator: torch.Generator) -> str:
    """Draw one of the other names at random."""
    others = [name for name in dict.fromkeys(names) if name != without]
    return others[int(torch.randint(len(others), (1,), generator=generator))]


def _some(size: int, count: int, generator: torch.Generator) -> Tensor:
    """Draw random positions; none repeats before all have been drawn."""
    rounds = -(-count // size)
    return torch.cat([torch.randperm(size, generator=generator) for _ in range(rounds)])[:count]
