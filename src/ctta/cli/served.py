"""Shared by `ctta serve` and `ctta replay`: the source classifier, its adapters, and the guard."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ctta.cli import options
from ctta.cli.options import parse_settings

if TYPE_CHECKING:
    from ctta.adapter import Adapter
    from ctta.classifier import Classifier
    from ctta.guard import Rule

logger = logging.getLogger("ctta")

Setting = Annotated[
    list[str] | None,
    typer.Option("--set", metavar="NAME=VALUE", help="Set an argument of the method. May be repeated."),
]
Recipe = Annotated[
    str | None,
    typer.Option(
        metavar="DATASET", help="Start from the method's published settings for a dataset from ctta ls streams."
    ),
]
Guard = Annotated[
    list[str] | None,
    typer.Option(
        metavar="RULE",
        help="A rule that stops harmful learning, such as 'drift > usual + 1: fallback'; off for none. May be "
        "repeated.",
        show_default="the rules of ctta.Guarded",
    ),
]
Method = Annotated[
    str | None,
    typer.Argument(
        help=f"A method: a name from ctta ls methods, {options.OWN}.",
        show_default="what ctta.adapt recommends for the model",
    ),
]
Served = Annotated[
    str | None,
    typer.Option(
        help=f"Source model: a name from ctta ls models, timm:NAME, torchvision:NAME, hf:FOLDER, {options.OWN}."
    ),
]


class StreamMode(str, Enum):
    """The mode of new streams."""

    adapt = "adapt"
    frozen = "frozen"
    shadow = "shadow"


@dataclass(frozen=True)
class Source:
    """A source classifier and how adapters are built around it.

    Args:
        name: The model's name.
        classifier: The classifier, on its device.
        make: Builds an adapter.
    """

    name: str
    classifier: Classifier
    make: Callable[[Classifier], Adapter]


def load_source(
    method: str | None,
    model: str,
    weights: Path | None,
    settings: Sequence[str],
    device: str | None,
    recipe: str | None = None,
) -> Source:
    """Load a model and choose a method for it.

    Args:
        method: The method's name; None means what `ctta.adapt` recommends for the model, with its arguments.
        model: The model's name.
        weights: The weights file, if the model needs one.
        settings: Arguments of the method, as name=value.
        device: The device; None means the best.
        recipe: A dataset whose published settings the method starts from; None starts from the method's defaults.
    """
    from ctta._system.device import choose_device  # noqa: PLC0415 - help and usage errors must not import torch
    from ctta.bench.defaults import recipe as settings_for  # noqa: PLC0415
    from ctta.datasets import get_dataset  # noqa: PLC0415
    from ctta.nets.by_name import load_model  # noqa: PLC0415
    from ctta.recommend import cautions, recommend  # noqa: PLC0415
    from ctta.registry import get_method  # noqa: PLC0415

    loaded = load_model(model, weights)
    given: dict[str, Any] = {}
    if method is None:
        advice = recommend(loaded.classifier)
        method, given = advice.method, dict(advice.arguments)
        logger.info("method %s%s", method, "".join(f" --set {name}={value}" for name, value in given.items()))
    cls = get_method(method)
    given |= {} if recipe is None else settings_for(cls, get_dataset(recipe).name)
    given |= parse_settings(list(settings))
    for caution in cautions(method, loaded.classifier, given):
        logger.warning("%s", caution)
    classifier = loaded.classifier.to(choose_device(device))
    return Source(loaded.name, classifier, lambda source: cls(source, **given))


def parse_guard(texts: Sequence[str] | None) -> tuple[Rule, ...]:
    """Parse the values of --guard.

    Args:
        texts: The rules; None means the default ones, and "off" alone means none.
    """
    from ctta.guard import DEFAULT_RULES, Rule  # noqa: PLC0415 - imports torch through its package

    if not texts:
        return DEFAULT_RULES
    return () if list(texts) == ["off"] else tuple(Rule.parse(text) for text in texts)
