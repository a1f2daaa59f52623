"""Check which methods work with a model, by building each of them around it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field

import torch
from torch import nn

from ctta._adapter.last_stage import norm_order, trained_later
from ctta._checks.model import REMOVE_SOFTMAX, look_like_probabilities
from ctta._system.imports import message_of
from ctta.adapter import Adapter
from ctta.classifier import Classifier
from ctta.errors import HeadNotFound
from ctta.norms import norm_layers
from ctta.recommend import Recommendation, build, how_it_computes, inner_of, recommend, seconds_per_step
from ctta.registry import methods
from ctta.trial import copy_to_try

#: Sizes of the batches that are timed.
TIMED = (1, 16)


@dataclass(frozen=True)
class MethodReport:
    """One method on a model: what it trains and needs, or why it cannot be used.

    Args:
        name: The name of the method.
        refusal: The error, if the method cannot be used with the model.
        trained: How many scalar parameters it trains.
        smallest_batch: The smallest number of images in a step.
        memory: Bytes that it holds between batches.
        passes: Forward and backward passes per step.
        source_free: Whether it needs no source data.
        left_out: Norm layers that are not trained although the method trains norm layers: the last stage for SAR and
            DeYO.
        trained_later: Norm layers that are trained although they run after one that is left out: the last stage was
            not found. Empty if no image size was given, because only a forward pass shows the order.
    """

    name: str
    refusal: str | None = None
    trained: int = 0
    smallest_batch: int = 0
    memory: int = 0
    passes: tuple[int, int] = (0, 0)
    source_free: bool = True
    left_out: tuple[str, ...] = ()
    trained_later: tuple[str, ...] = ()


@dataclass(frozen=True)
class Diagnosis:
    """What ctta finds in a model.

    Args:
        model: The name of its class.
        parameters: How many parameters it has.
        head: The name of its linear head, if it has one.
        num_classes: The number of classes, if it has a head.
        num_features: The size of the features, if it has a head.
        norms: How many norm layers of each type it has.
        recommended: The recommended method with its arguments, and why; None if it does not work with the model.
        computes: The precision, window, layout and guard of the recommended adapter, and why; it depends on the
            device and the process.
        not_recommended: Why nothing is recommended.
        seconds: How long a step of the recommended adapter takes on this machine without its guard, in seconds, by
            images in the batch. Empty if no image size was given.
        methods: A report for each method.
        warnings: What is probably wrong with the model. Empty if no image size was given.
    """

    model: str
    parameters: int
    head: str | None
    num_classes: int | None
    num_features: int | None
    norms: dict[str, int]
    recommended: Recommendation | None = None
    computes: tuple[str, ...] = field(default=(), compare=False)
    not_recommended: str | None = None
    seconds: dict[int, float] = field(default_factory=dict, compare=False)
    methods: list[MethodReport] = field(default_factory=list)
    warnings: tuple[str, ...] = ()


def examine(
    model: nn.Module,
    *,
    image_size: int | None = None,
    channels: int | None = None,
    among: Mapping[str, type[Adapter]] | None = None,
) -> Diagnosis:
    """Recommend an adapter for a model, and build every method around it.

    With an image size, also time the recommended adapter, and take one step of every method on two random images.

    Args:
        model: The model, or a Classifier.
        image_size: Height and width of the images.
        channels: Channels of the images. None takes those of the mean, or of the first convolution.
        among: The methods to build, by name. The default is every built-in or registered method.

    Example:
        >>> from ctta.doctor import examine
        >>> from ctta.testing.models import bn_cnn
        >>> diagnosis = examine(bn_cnn(), image_size=16)
        >>> diagnosis.num_classes, [report.name for report in diagnosis.methods if report.refusal]
        (10, [])
    """
    classifier = model if isinstance(model, Classifier) else Classifier(model)
    chosen = methods() if among is None else among
    kinds = Counter(type(layer).__name__ for layer in norm_layers(classifier.model).values())
    images = None
    if image_size is not None:
        channels = channels or _channels(classifier, image_size)
        images = torch.rand(2, channels, image_size, image_size, generator=torch.Generator().manual_seed(0))
    recommended, computes, seconds, failure = _recommend(classifier, images)
    found = classifier.head_name is not None and (images is None or _head_works(classifier, images))
    return Diagnosis(
        model=type(classifier.model).__name__,
        parameters=sum(p.numel() for p in classifier.model.parameters()),
        head=classifier.head_name if found else None,
        num_classes=classifier.num_classes if found else None,
        num_features=classifier.num_features if found else None,
        norms=dict(kinds),
        recommended=recommended,
        computes=computes,
        not_recommended=failure,
        seconds=seconds,
        methods=[_report(name, cls, classifier, images) for name, cls in sorted(chosen.items())],
        warnings=() if images is None else _warnings(classifier, images),
    )


def _channels(classifier: Classifier, image_size: int) -> int:
    """Return how many channels the images of a classifier have, as far as it shows; three otherwise."""
    found = classifier.channels or 3
    # The first convolution that is registered need not be the first that runs.
    works = (
        classifier.mean is not None or _outputs(classifier, torch.rand(2, found, image_size, image_size)) is not None
    )
    return found if works else 3


def _recommend(
    classifier: Classifier, images: torch.Tensor | None
) -> tuple[Recommendation | None, tuple[str, ...], dict[int, float], str | None]:
    """Return the recommendation, how it computes and how long its steps take; or why it fails."""
    advice = recommend(classifier)
    try:
        adapter = build(classifier, advice)
        seconds: dict[int, float] = {}
        if images is not None:
            for size in TIMED:
                # Without the guard, which compares the first batches much more often than later ones.
                seconds[size] = seconds_per_step(inner_of(adapter), images[:1].expand(size, -1, -1, -1), repeats=3)
    except KeyboardInterrupt:
        raise
    except BaseException as error:  # noqa: BLE001, the user's code may raise anything
        what = (
            f"{advice.method} suits this kind of network, but it failed: {type(error).__name__}: {message_of(error)}."
        )
        return None, (), {}, what
    return advice, tuple(how_it_computes(adapter, ())), seconds, None


def _warnings(classifier: Classifier, images: torch.Tensor) -> tuple[str, ...]:
    outputs = _outputs(classifier, images)
    return (f"the model {REMOVE_SOFTMAX}",) if outputs is not None and look_like_probabilities(outputs) else ()


def _outputs(classifier: Classifier, images: torch.Tensor) -> torch.Tensor | None:
    """Return what the model makes of the images, or None if it fails; errors are reported per method."""
    try:
        copied, x = copy_to_try(classifier, images)
        with torch.no_grad():
            return copied(x)
    except KeyboardInterrupt:
        raise
    except BaseException:  # noqa: BLE001, the user's code may raise anything
        return None


def _head_works(classifier: Classifier, images: torch.Tensor) -> bool:
    """Check that the layer found as the head produces the logits; other errors are reported per method."""
    try:
        copied, x = copy_to_try(classifier, images)
        with torch.no_grad():
            copied.with_features(x)
    except HeadNotFound:
        return False
    except KeyboardInterrupt:
        raise
    except BaseException:  # noqa: BLE001, the user's code may raise anything
        return True
    return True


def _report(name: str, cls: type[Adapter], classifier: Classifier, images: torch.Tensor | None) -> MethodReport:
    try:
        adapter = cls(classifier)
        if images is not None:
            adapter.step(images)
    except KeyboardInterrupt:
        raise
    except BaseException as error:  # noqa: BLE001, the user's code may raise anything
        return MethodReport(name, refusal=f"{type(error).__name__}: {message_of(error)}")
    return MethodReport(
        name,
        trained=sum(p.numel() for p in adapter.trained),
        smallest_batch=adapter.smallest_batch,
        memory=adapter.footprint(),
        passes=cls.passes,
        source_free=adapter.source_free,
        left_out=(left_out := _norms_left_out(adapter)),
        trained_later=() if images is None or not left_out else _trained_later(adapter, set(left_out), images),
    )


def _trained_later(adapter: Adapter, left_out: set[str], images: torch.Tensor) -> tuple[str, ...]:
    """Return the norm layers that run after a layer that is left out, and are not left out."""
    copied, x = copy_to_try(adapter.student, images)
    with torch.no_grad(), norm_order(copied.model) as order:
        copied(x)
    return trained_later(order, left_out)


def _norms_left_out(adapter: Adapter) -> tuple[str, ...]:
    learning = {id(parameter) for parameter in adapter.trained}
    trained: dict[str, bool] = {}
    for name, layer in norm_layers(adapter.student.model).items():
        if own := list(layer.parameters(recurse=False)):
            trained[name] = any(id(parameter) in learning for parameter in own)
    return tuple(name for name, learns in trained.items() if not learns) if any(trained.values()) else ()
