"""Recommend an adapter for a network, and build it in one call."""

from __future__ import annotations

import logging
import time
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn

from ctta._system.allocator import could_keep_freed_memory
from ctta.adapter import Adapter
from ctta.classifier import Classifier
from ctta.errors import ParameterError, UnknownArgument
from ctta.guarded import Guarded
from ctta.norms import batch_norms, norm_affine
from ctta.registry import get_method

logger = logging.getLogger("ctta")


@dataclass(frozen=True)
class Recommendation:
    """A method with its arguments for one network, and why.

    Args:
        method: Name of the method.
        arguments: Its arguments, as far as they differ from the defaults.
        reasons: Why, by the name of the argument that would override the choice; "method" for the method itself.
    """

    method: str
    arguments: Mapping[str, Any] = field(default_factory=dict)
    reasons: Mapping[str, str] = field(default_factory=dict)


def recommend(model: nn.Module, method: str | None = None) -> Recommendation:
    """Recommend a method and its arguments for a network, by what the network consists of.

    Args:
        model: The source model, or a `Classifier` around it.
        method: Name of a method, if it is decided already: only its arguments are recommended.

    Example:
        >>> from ctta.recommend import recommend
        >>> from ctta.testing.models import bn_cnn
        >>> recommend(bn_cnn()).method
        'trio'
        >>> recommend(bn_cnn(), "tent").arguments
        {'statistics': 'auto'}
    """
    classifier = model if isinstance(model, Classifier) else Classifier(model)
    has_batch_norms, norms_can_learn = bool(batch_norms(classifier.model)), bool(norm_affine(classifier.model))
    arguments: dict[str, Any] = {}
    reasons: dict[str, str] = {}
    if method is None:
        method = "tent" if classifier.head_name is None and norms_can_learn else "trio"
        trio = _TRIO if has_batch_norms else _TRIO_WITHOUT_BATCH_NORM if norms_can_learn else _TRIO_WITHOUT_NORMS
        reasons["method"] = trio if method == "trio" else _TENT
    cls = get_method(method)
    if has_batch_norms and cls.uses_batch_statistics:
        reasons["statistics"] = _STATISTICS
        if cls.defaults.get("statistics") != "auto":
            arguments["statistics"] = "auto"
    elif not has_batch_norms and method in ("trio", "tent"):
        arguments["lr"] = 1e-4
        reasons["lr"] = _LOW_RATE
        if method == "trio":
            reasons["learns_from"] = _NORMS_ONLY if norms_can_learn else _EVERYTHING
    if "mirror" in cls.arguments():
        reasons["mirror"] = MIRROR
    return Recommendation(method, arguments, reasons)


_TRIO = (
    "Trio: with ResNets on CIFAR-10-C and CIFAR-100-C and an EfficientNet on ImageNet-C and PACS, no published method "
    "without source data had an error more than half a point lower where both were run (docs/results.md). On clean "
    "images the source itself may be better: by up to 3 points if classes are mixed, and by 3 to 7 if they are sorted "
    "(docs/statistics.md)."
)
_TRIO_WITHOUT_BATCH_NORM = (
    "Trio, which had a lower error than the source, Tent and SAR with a small vision transformer and a ResNet with "
    "group norm (docs/results.md)."
)
_TRIO_WITHOUT_NORMS = (
    "Trio, because most other methods train norm layers, and no norm layer here has weights. It was not measured on "
    "such networks: compare it with the source first."
)
_TENT = "Tent, because no linear head was found; name it with Classifier(net, head=...), and Trio can be used."
_NORMS_ONLY = (
    "Only the norm layers learn: with all parameters, networks without batch norm became worse than their source."
)
_EVERYTHING = "All parameters learn, because there are no weights of norm layers."
_LOW_RATE = (
    "There is no batch norm, so any batch size works. A low learning rate, because such networks break more easily."
)
MIRROR = "Trio assumes that a mirrored image keeps its class. If not (digits, letters, signs), pass mirror=False."
_STATISTICS = (
    'statistics="auto": batch norms blend batch and source statistics by the shift they see, so that small batches, '
    "batches of few classes and, without a window, single images work."
)


def adapt(
    net: nn.Module,
    *,
    mean: Sequence[float] | None = None,
    std: Sequence[float] | None = None,
    method: str | None = None,
    guard: bool = True,
    **arguments: Any,
) -> Adapter:
    """Return the recommended adapter for a network: it predicts for each batch, then learns from it.

    The choices and their reasons are logged with the logger "ctta" at level INFO, which Python does not show unless
    you call ``logging.basicConfig(level=logging.INFO)``. A choice that you override is not mentioned. That a mirrored
    image is taken to keep its class is a warning, unless ``mirror`` is given. ``ctta doctor`` shows the same
    recommendation.

    Args:
        net: The classifier, a module that maps images to logits, or a `Classifier` around it. It is not changed.
        mean: Mean of each channel, if the network expects normalised images.
        std: Standard deviation of each channel.
        method: Name of another method. The default is chosen by what the network consists of. Methods that use batch
            statistics get ``statistics="auto"``; pass ``statistics="batch"`` to use them as published.
        guard: Wrap the adapter in `Guarded`, which stops harmful learning.
        arguments: Arguments of the method, such as ``mirror=False``, ``lr`` or ``statistics``.

    Example:
        >>> import torch, ctta
        >>> from ctta.testing.models import bn_cnn
        >>> model = ctta.adapt(bn_cnn(), mean=[0.5] * 3, std=[0.25] * 3)
        >>> model(torch.rand(1, 3, 16, 16)).shape  # images in [0, 1], in batches of any size
        torch.Size([1, 10])
    """
    if isinstance(net, Adapter):
        raise ParameterError(f"{type(net).__name__} is an adapter already. Pass the network that it was built around.")
    if isinstance(net, Classifier) and not (mean is None and std is None):
        raise ParameterError("The Classifier already has its mean and std. Leave them out, or pass the network itself.")
    classifier = net if isinstance(net, Classifier) else Classifier(net, mean=mean, std=std)
    advice = recommend(classifier, method)
    adapter = build(classifier, advice, guard=guard, **arguments)
    for name, reason in advice.reasons.items():
        if name not in arguments:
            logger.log(logging.WARNING if name == "mirror" else logging.INFO, "%s", reason)
    for reason in how_it_computes(adapter, arguments):
        logger.info("%s", reason)
    return adapter


def how_it_computes(adapter: Adapter, given: Collection[str]) -> Iterator[str]:
    """Yield what `adapt` chose for an adapter besides the method and its arguments, and why.

    Args:
        adapter: The adapter, which may be guarded.
        given: Names of the arguments that are set.
    """
    if "precision" not in given:
        yield 'fp32: precision="bf16" is faster only on processors with bf16 instructions (docs/speed.md).'
    inner = inner_of(adapter)
    if inner.window is None and "window" not in given:
        yield "No window: every batch is learnt from as it comes."
    if inner._layout is torch.channels_last:
        yield "Memory layout channels_last, which is faster for convolutions."
    else:
        yield "Memory layout contiguous, because torch cannot train a layer of this network in channels_last."
    if next(inner.parameters()).device.type == "cpu" and could_keep_freed_memory():
        yield (
            "On the CPU. For large images, call ctta.keep_freed_memory() once at the start of the program: on some "
            "machines a step then takes less than half the time (docs/speed.md)."
        )
    if isinstance(adapter, Guarded):
        yield "Guarded against harmful learning; pass guard=False to switch it off."


def build(classifier: Classifier, advice: Recommendation, *, guard: bool = True, **arguments: Any) -> Adapter:
    """Build a recommended adapter.

    Args:
        classifier: The source model.
        advice: The recommendation.
        guard: Wrap the adapter in `Guarded`, if it learns.
        arguments: Further arguments of the method, which override the recommended ones.
    """
    cls = get_method(advice.method)
    for name in arguments.keys() - cls.arguments().keys():
        chosen = _TENT if advice.reasons.get("method") == _TENT else f"{cls.__name__}."
        known = [*cls.arguments(), "mean", "std", "method", "guard"]
        raise UnknownArgument(name, known, f"The method is {chosen}")
    adapter: Adapter = cls(classifier, **{**advice.arguments, **arguments})
    return Guarded(adapter) if guard and adapter.learns else adapter


def inner_of(adapter: Adapter) -> Adapter:
    """Return the adapter that learns, without its guard.

    Args:
        adapter: The adapter, which may be guarded.
    """
    return adapter.inner if isinstance(adapter, Guarded) else adapter


def cautions(method: str, model: nn.Module, given: Collection[str]) -> list[str]:
    """Say what to consider before a method adapts a network, because `adapt` would do or say it.

    Args:
        method: Name of the method.
        model: The source model, or a `Classifier` around it.
        given: Names of the arguments that are set.

    Returns:
        A sentence or two for each matter; nothing if there is none.
    """
    advice, found = recommend(model), []
    left = {name: value for name, value in advice.arguments.items() if name not in given}
    if method == advice.method and left:
        options = " ".join(f"--set {name}={value}" for name, value in left.items())
        why = " ".join(reason for name, reason in advice.reasons.items() if name in left)
        found.append(f"ctta.adapt builds {method} with {options} for a network of this kind. {why}".rstrip())
    if "mirror" in get_method(method).arguments() and "mirror" not in given:
        found.append(on_command_line(MIRROR))
    return found


def on_command_line(advice: str) -> str:
    """Return advice about an argument as a user of the command line can follow it.

    Args:
        advice: A sentence with "pass name=value".
    """
    return advice.replace("pass ", "add --set ")


def seconds_per_step(adapter: Adapter, x: Tensor, *, repeats: int = 1) -> float:
    """Measure how long a step takes on this machine: the median after one step to warm up.

    Args:
        adapter: The adapter, which learns from the batch.
        x: Images (N, C, H, W) in [0, 1].
        repeats: Number of steps to measure.
    """
    adapter.step(x)
    taken = []
    for _ in range(repeats):
        began = time.perf_counter()
        adapter.step(x)
        taken.append(time.perf_counter() - began)
    return sorted(taken)[len(taken) // 2]
