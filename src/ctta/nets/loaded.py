"""A model that is ready to be adapted, with the facts that go into records."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ctta.classifier import Classifier


@dataclass(frozen=True)
class Loaded:
    """A model ready to be adapted, with the facts that go into records.

    Args:
        name: Its name in records, which never holds a path.
        classifier: The model with its head and normalisation, in eval mode.
        mean: The mean per channel, or None if the model normalises its own input.
        std: The standard deviation per channel.
        input_size: The side in pixels that images are resized to, or None if they are not resized.
        code: Identifies code outside ctta: the digest of the user's file, or a plug-in's version.
    """

    name: str
    classifier: Classifier
    mean: tuple[float, ...] | None = None
    std: tuple[float, ...] | None = None
    input_size: int | None = None
    code: str | None = None

    def facts(self) -> dict[str, object]:
        """Return the entry for the specification of a run."""
        facts = {"name": self.name, "digest": self.classifier.digest(), "mean": self.mean, "std": self.std}
        more = {"input_size": self.input_size, "code": self.code}
        # Leave out keys without a value: older records do not have them, and their addresses must stay the same.
        return facts | {key: value for key, value in more.items() if value is not None}


@contextmanager
def same_random_weights() -> Iterator[None]:
    """Initialise with the same random weights every time, because a run is identified by the digest of its weights."""
    import torch  # noqa: PLC0415

    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        yield
