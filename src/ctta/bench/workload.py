"""What a run computes, as plain values: the source model and the images, and what is done with them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

from ctta.datasets import get_dataset
from ctta.protocol import Order, get_protocol
from ctta.registry import absolute_target


@dataclass(frozen=True)
class Inputs:
    """The source model and the images of a run.

    ``stream`` and ``model`` may be the user's own code, as ``package.module:name`` or ``file.py:name``.

    Args:
        stream: Name of the dataset.
        model: Name of the source model.
        weights: Its weights file; None if it needs none.
        data: The files of the dataset.
        image_list: A text file that lists the images to use.
        clean: An npz with the clean images, for protocols that show them.
        source_data: An npz with labelled source images.
        corruptions: The corruptions or domains, in order; None means the dataset's default.
        images: Images per domain; None means all.
        side: The side in pixels to resize and crop image files to; None leaves them as they are.
    """

    stream: str
    model: str
    weights: Path | None = None
    data: Path | None = None
    image_list: Path | None = None
    clean: Path | None = None
    source_data: Path | None = None
    corruptions: tuple[str, ...] | None = None
    images: int | None = None
    side: int | None = None


@dataclass(frozen=True)
class Procedure:
    """A method, and how the images are shown to it.

    ``method`` and ``protocol`` may be the user's own code, as ``package.module:name`` or ``file.py:name``.

    Args:
        method: Name of the method.
        settings: Arguments of the method that the user set.
        protocol: Name of the protocol.
        times: Rounds, for protocols that repeat.
        order: Order of the images of a domain.
        options: Options of the protocol that the user set.
        severity: Severity of the corruptions.
        batch_size: Images per batch; None means the protocol's, or else the dataset's.
        seed: Seed of the run.
        learn: Whether to learn from the stream, or only predict.
    """

    method: str
    settings: Mapping[str, object] = field(default_factory=dict)
    protocol: str = "continual"
    times: int = 1
    order: Order = "shuffled"
    options: Mapping[str, object] = field(default_factory=dict)
    severity: int = 5
    batch_size: int | None = None
    seed: int = 0
    learn: bool = True


@dataclass(frozen=True)
class Workload:
    """What a run computes: everything that its address depends on.

    Args:
        procedure: The method, and how the images are shown to it.
        inputs: The source model and the images.
    """

    procedure: Procedure
    inputs: Inputs

    @property
    def batch_size(self) -> int:
        """Images per batch."""
        of_protocol = get_protocol(self.procedure.protocol).batch_size
        chosen = (self.procedure.batch_size, of_protocol, get_dataset(self.inputs.stream).batch_size)
        return next(size for size in chosen if size is not None)

    def with_seed(self, seed: int) -> Workload:
        """Return the same workload with another seed.

        Args:
            seed: The new seed.
        """
        return replace(self, procedure=replace(self.procedure, seed=seed))

    def with_absolute_paths(self) -> Workload:
        """Return the same workload for use in any working directory."""
        procedure, inputs = self.procedure, self.inputs
        return Workload(
            replace(procedure, method=absolute_target(procedure.method), protocol=absolute_target(procedure.protocol)),
            replace(
                inputs,
                stream=absolute_target(inputs.stream),
                model=absolute_target(inputs.model),
                weights=absolute(inputs.weights),
                data=absolute(inputs.data),
                image_list=absolute(inputs.image_list),
                clean=absolute(inputs.clean),
                source_data=absolute(inputs.source_data),
            ),
        )


def absolute(path: Path | None) -> Path | None:
    """Make a path absolute, if there is one.

    Args:
        path: The path, or None.
    """
    return None if path is None else path.absolute()
