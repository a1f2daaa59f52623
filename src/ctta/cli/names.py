"""Check the names that a user gives, before torch is imported."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from ctta.datasets import DATASETS
from ctta.errors import ParameterError
from ctta.registry import METHODS

if TYPE_CHECKING:
    from ctta.datasets import Dataset


def default_model(dataset: Dataset) -> str:
    """Return the source model that a dataset uses if the user names none."""
    if dataset.default_model is None:
        known = (entry.load() for entry in DATASETS.entries(plugins=False))
        bundled = [other.name for other in known if other.default_model is not None]
        raise ParameterError(
            f"{dataset.name} needs --model. Only {', '.join(bundled[:-1])} and {bundled[-1]} have a bundled model."
        )
    return dataset.default_model


def check_names(methods: Sequence[str], model: str | None) -> None:
    """Refuse unknown methods and models with the nearest known name, before torch is imported."""
    from ctta.nets.by_name import check_name  # noqa: PLC0415

    for name in methods:
        METHODS.check(name)
    if model is not None:
        check_name(model)
