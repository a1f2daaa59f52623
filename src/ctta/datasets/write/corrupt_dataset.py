"""Write a corrupted ("-C") version of a user's own images in the published layouts; an interrupted call resumes."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any, Protocol

from ctta._checks.numbers import check_seed
from ctta._checks.sequences import names_of, numbers_of
from ctta._system.locks import hold_lock
from ctta.corruptions import CORRUPTIONS, constants, frost_source
from ctta.corruptions.constants import Scale
from ctta.datasets.manifest import NAME, read_manifest, write_manifest
from ctta.errors import BadData, ParameterError

Progress = Callable[[str, int, int], None]  # name of the part, images done, total
_LOCK = ".lock"


@dataclass(frozen=True)
class Recipe:
    """The corruptions to make.

    Args:
        corruptions: The names of the corruptions, each once.
        severities: The severities from 1 to 5, each once.
        seed: Seed of the random numbers.
        scale: "cifar" or "imagenet", whose published constants to use; None chooses or interpolates them by image size.
    """

    corruptions: tuple[str, ...] = CORRUPTIONS
    severities: tuple[int, ...] = (1, 2, 3, 4, 5)
    seed: int = 0
    scale: Scale | None = None

    def __post_init__(self) -> None:
        object.__setattr__(self, "corruptions", names_of(self.corruptions, "corruptions"))
        object.__setattr__(self, "severities", numbers_of(self.severities, "severities"))
        check_seed(self.seed)
        for name in self.corruptions:
            for severity in self.severities:
                constants(name, severity=severity, scale=self.scale)
        for given in (self.corruptions, self.severities):
            if not given or len(set(given)) != len(given):
                raise ParameterError(f"Corruptions and severities must be given once each. Got {given}.")


class Source(Protocol):
    """The images to corrupt, and the layout their corrupted versions are written in."""

    path: Path  # the file or folder that they are read from
    images: int
    side: int  # the shorter side in pixels

    def describe(self) -> dict[str, object]:
        """What the manifest says about the input and the format of the output."""

    def parts(self, recipe: Recipe) -> list[str]:
        """Return the files or folders to make, relative to the output folder.

        Args:
            recipe: The corruptions, severities, seed and scale.
        """

    def make(self, part: str, out: Path, recipe: Recipe, advance: Callable[[int], None]) -> None:
        """Make one part, completely or not at all.

        Args:
            part: One of `parts`.
            out: The output folder.
            recipe: The corruptions, severities, seed and scale.
            advance: Called with the number of images just made, after each batch of them.
        """

    def finish(self, out: Path, recipe: Recipe) -> None:
        """Complete the output folder after all parts are made.

        Args:
            out: The output folder.
            recipe: The corruptions, severities, seed and scale.
        """

    def digest(self, part: str, out: Path) -> str:
        """Return the SHA-256 of a finished part.

        Args:
            part: One of `parts`.
            out: The output folder.

        Raises:
            BadData: If a file of the part is missing or cannot be read.
        """

    def per_part(self, recipe: Recipe) -> int:
        """Return the number of images in each part.

        Args:
            recipe: The corruptions, severities, seed and scale.
        """


def corrupt_dataset(
    source: Source, out: Path, recipe: Recipe, *, progress: Progress | None = None
) -> tuple[list[str], list[str]]:
    """Make every part that is missing or damaged; return the parts made and those that were already there.

    Args:
        source: The images to corrupt.
        out: The output folder: missing, empty, or made earlier from the same images, severities, seed and scale.
        recipe: The corruptions, severities, seed and scale.
        progress: Called with the name of the part, the number of images done so far and the total; None reports
            nothing.

    Raises:
        ParameterError: If the output folder is inside the input, or was made from another input or recipe.
        BadData: If the output folder holds other files, or a file cannot be read.
        ConcurrentUse: If another process is writing to the output folder.
    """
    if out.resolve().is_relative_to(source.path.resolve()):
        raise ParameterError(f"The output must be outside the input {source.path}; got {out}. Choose another folder.")
    out.mkdir(parents=True, exist_ok=True)
    # The temporary files of a part have fixed names, so that the next call replaces what an interrupted one left.
    with hold_lock(out / _LOCK, f"Another process is writing to {out}. Wait for it, or choose another folder."):
        return _make_parts(source, out, recipe, progress)


def _make_parts(source: Source, out: Path, recipe: Recipe, progress: Progress | None) -> tuple[list[str], list[str]]:
    note = _continued(out, _manifest(source, recipe))
    parts: dict[str, str] = note["parts"]
    total = len(source.parts(recipe)) * source.per_part(recipe)
    made, kept = [], []
    done = 0

    def advance(count: int) -> None:
        nonlocal done
        done += count
        if progress is not None:
            progress(part, done, total)

    write_manifest(out, note)
    for part in source.parts(recipe):
        if part in parts and _is_intact(source, part, out, parts[part]):
            kept.append(part)
            advance(source.per_part(recipe))
            continue
        source.make(part, out, recipe, advance)
        parts[part] = source.digest(part, out)
        made.append(part)
        write_manifest(out, note)
    source.finish(out, recipe)
    return made, kept


def _is_intact(source: Source, part: str, out: Path, digest: str) -> bool:
    """Whether a part is as it was made; one that lost a file, or all of them, is not."""
    try:
        return source.digest(part, out) == digest
    except BadData:
        return False


def _manifest(source: Source, recipe: Recipe) -> dict[str, Any]:
    table = {
        name: {str(s): constants(name, severity=s, side=source.side, scale=recipe.scale) for s in recipe.severities}
        for name in recipe.corruptions
    }
    return {
        **source.describe(),
        "corruptions": list(recipe.corruptions),
        "severities": list(recipe.severities),
        "seed": recipe.seed,
        "scale": recipe.scale,
        "side": source.side,
        "constants": table,
        "frost": frost_source(),
        "versions": {package: version(package) for package in ("ctta", "numpy", "pillow", "torch")},
    }


def _continued(out: Path, asked: dict[str, Any]) -> dict[str, Any]:
    """Return the manifest with the parts that earlier runs made; refuse a folder that holds anything else."""
    found = read_manifest(out)
    if found is None:
        if any(path.name != _LOCK for path in out.iterdir()):
            raise BadData(f"{out} is not empty and was not made by ctta corrupt: choose another folder.")
        return {**asked, "parts": {}}
    may_differ = {"versions", "corruptions", "constants"}
    changed = [key for key, value in asked.items() if key not in may_differ and found.get(key) != value]
    if changed:
        raise ParameterError(
            f"{out} was made with another {', '.join(changed)} (see {NAME}): choose another folder, or delete it."
        )
    kinds = {"corruptions": list, "constants": dict, "parts": dict}
    wrong = [key for key, kind in kinds.items() if not isinstance(found.get(key), kind)]
    if wrong:
        raise BadData(f"{out / NAME} is damaged: it has no {wrong[0]}. Delete {out}, or choose another folder.")
    return {
        **asked,
        "corruptions": list(dict.fromkeys(found["corruptions"] + asked["corruptions"])),
        "constants": found["constants"] | asked["constants"],
        "parts": found["parts"],
    }
