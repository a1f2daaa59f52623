"""Paired differences in error between runs that saw the same images, with their standard errors."""

from __future__ import annotations

import math
import re
import statistics
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import NamedTuple

from ctta.bench.compare import NONE, Row, differences, notes, write_table
from ctta.bench.record import Record
from ctta.bench.steps import StepFacts, wrong_in
from ctta.errors import UnlikeRuns
from ctta.method_table import AFTER
from ctta.protocol import protocol_of

#: Reads the step log of a run; None if the run has none.
ReadSteps = Callable[[Record], Sequence[StepFacts] | None]


class Paired(NamedTuple):
    """A difference in mean error.

    Args:
        points: The difference in percentage points.
        standard_error: Its standard error; None if every domain has a single batch.
    """

    points: float
    standard_error: float | None


@dataclass(frozen=True)
class Difference:
    """The error of one row minus that of the row it is compared with, on the same images.

    Args:
        label: Label of the row.
        seeds: The seeds that both rows have.
        points: Mean error of the row minus that of the other, over these seeds, in percentage points.
        standard_error: Standard error of the difference; None if there is one seed, and every domain has a single
            batch.
    """

    label: str
    seeds: tuple[int, ...]
    points: float
    standard_error: float | None

    def __str__(self) -> str:
        """The difference and its standard error, with their signs."""
        return f"{self.points:+.2f}" + ("" if self.standard_error is None else f" ± {self.standard_error:.2f}")

    def to_json(self) -> dict[str, object]:
        """The difference as a JSON object."""
        return asdict(self)


@dataclass(frozen=True)
class Pairing:
    """The differences of all rows from one of them.

    Args:
        against: Label of the row that the others are compared with.
        differences: One entry for each other row, in the order of the table.
        unpaired: Why a row is left out, by label.
        notes: What a reader must know about some of the rows, as below any table of them.
    """

    against: str
    differences: tuple[Difference, ...]
    unpaired: Mapping[str, str] = field(default_factory=dict)
    notes: tuple[str, ...] = ()

    def to_json(self) -> dict[str, object]:
        """The pairing as a JSON object."""
        return {"against": self.against, "differences": [found.to_json() for found in self.differences]}


def pair_rows(
    table: Sequence[Row], read_steps: ReadSteps, against: str | None = None, *, strict: bool = True
) -> Pairing:
    """Compare every row with one of them, on the images that both saw.

    All domains of a stream show the same images in the same order, so the predictions for one image are not
    independent. The n-th batches of all domains therefore count as one observation, and the standard error is that of
    the mean over these observations; see `combined` for several seeds.

    Args:
        table: Rows of comparable runs.
        read_steps: Returns the step log of a run.
        against: Label of the row to compare with; None means the row of lowest mean error.
        strict: Whether a row that cannot be paired is an error; otherwise it is left out.

    Raises:
        UnlikeRuns: No row has this label, two rows share no seed, their batches are not the same, or a run has no step
            log.
    """
    chosen = _chosen(table, against)
    found: list[Difference] = []
    unpaired: dict[str, str] = {}
    for row in table:
        if row.label == chosen.label:
            continue
        try:
            found.append(_difference(row, chosen, read_steps))
        except UnlikeRuns as error:
            if strict:
                raise
            unpaired[row.label] = str(error)
    shown = [row for row in table if row.label not in unpaired]
    return Pairing(chosen.label, tuple(found), unpaired, tuple(notes(shown)))


def paired_difference(
    first: Sequence[StepFacts], second: Sequence[StepFacts], *, rounds: int = 1, resumes: bool = False
) -> Paired:
    """The difference in mean error between two runs, and its standard error over batches of images.

    The difference is that of the means over domains. A domain that comes again counts its batches from the first one,
    because it shows the same images again, unless the stream resumes domains.

    Args:
        first: The steps of a run.
        second: The steps of a run on the same batches.
        rounds: How many times the stream repeats itself.
        resumes: Whether a domain that comes again, or at another severity, goes on with other images.

    Raises:
        UnlikeRuns: The batches of the two runs are not the same.

    Example:
        >>> fog = {"domain": "fog", "severity": 5, "images": 10}
        >>> one, other = [fog | {"wrong": wrong} for wrong in (5, 3)], [fog | {"wrong": wrong} for wrong in (3, 3)]
        >>> paired_difference(one, other)
        Paired(points=10.0, standard_error=10.0)
    """
    if [_batch(step) for step in first] != [_batch(step) for step in second]:
        raise UnlikeRuns("The two runs must have the same batches: domains, severities and images of every step.")
    images: dict[str, int] = {}
    for step in first:
        images[step["domain"]] = images.get(step["domain"], 0) + step["images"]
    # The contribution of each observation to the difference of the means over domains, and its share of the images.
    parts: dict[int, float] = {}
    shares: dict[int, float] = {}
    for index, mine, other in zip(_observations(first, rounds, resumes), first, second, strict=True):
        weight = 1 / (images[mine["domain"]] * len(images))
        parts[index] = parts.get(index, 0.0) + 100 * weight * (wrong_in(mine) - wrong_in(other))
        shares[index] = shares.get(index, 0.0) + weight * mine["images"]
    points, count = sum(parts.values()), len(parts)
    if count < 2:
        return Paired(points, None)
    # With batches of equal size this is the standard deviation of the observations divided by the root of their number.
    squares = sum((parts[number] - shares[number] * points) ** 2 for number in parts)
    return Paired(points, math.sqrt(count / (count - 1) * squares))


def _observations(steps: Sequence[StepFacts], rounds: int, resumes: bool) -> Iterator[int]:
    """For each step, the number of the batch of images that it shows."""
    per_round = len(steps) // rounds
    shown: dict[tuple[object, ...], int] = {}
    last: tuple[object, ...] | None = None
    for number, step in enumerate(steps):
        here = (step["domain"],) if resumes else (step["domain"], step.get("severity"))
        if number % per_round == 0:
            shown.clear()
        elif here != last and not resumes:
            shown[here] = 0
        last = here
        yield shown.setdefault(here, 0)
        shown[here] += 1


def combined(seeds: Sequence[Paired]) -> Paired:
    """The mean difference over seeds.

    A different seed may show the same images in a different order, so several seeds do not make the standard error
    smaller: it is the root mean square of theirs. If every domain has a single batch, no seed has one; then it is that
    over the seeds, which is rough for a few of them.

    Args:
        seeds: The difference with each seed.
    """
    points = [found.points for found in seeds]
    errors = [found.standard_error for found in seeds if found.standard_error is not None]
    standard_error = None
    if errors:
        standard_error = math.sqrt(statistics.fmean(error**2 for error in errors))
    elif len(points) > 1:
        standard_error = statistics.stdev(points) / math.sqrt(len(points))
    return Paired(statistics.fmean(points), standard_error)


def paired_table(pairing: Pairing, form: str = "text") -> str:
    """Write differences as a table.

    Args:
        pairing: The differences.
        form: "text", "markdown", "latex" or "csv". Labels are escaped for the form.
    """
    head = ["method", f"error minus {pairing.against}, points", "standard error", "seeds"]
    body = [
        [
            found.label,
            f"{found.points:+.2f}",
            NONE if found.standard_error is None else f"{found.standard_error:.2f}",
            str(len(found.seeds)),
        ]
        for found in pairing.differences
    ]
    return write_table([head, *body], form, notes=pairing.notes)


def _chosen(table: Sequence[Row], against: str | None) -> Row:
    if against is None:
        return min(table, key=lambda row: row.mean)
    # Neither † nor the digest of a method from outside ctta need be typed.
    found = [row for row in table if row.label == against]
    found = found or [row for row in table if re.sub(f"@[0-9a-f]+|{AFTER}", "", row.label) == against]
    if len(found) != 1:
        what = "No row has" if not found else "Several rows have"
        among = ", ".join(row.label for row in found or table)
        raise UnlikeRuns(f"{what} the label {against!r}. There are: {among}.")
    return found[0]


def _difference(row: Row, other: Row, read_steps: ReadSteps) -> Difference:
    mine = {record.spec.seed: record for record in row.records}
    theirs = {record.spec.seed: record for record in other.records}
    seeds = tuple(sorted(mine.keys() & theirs.keys()))
    if not seeds:
        raise UnlikeRuns(
            f"{row.label} and {other.label} have no seed in common, and another seed has other noise and another order "
            f"of images: {_listed(row.seeds)} and {_listed(other.seeds)}. Run both with the same seeds."
        )
    if unlike := differences([mine[seeds[0]], theirs[seeds[0]]]):
        raise UnlikeRuns(f"{row.label} and {other.label} are not on the same images: they differ in {_listed(unlike)}.")
    found = combined([_of_seed(mine[seed], theirs[seed], (row.label, other.label), read_steps) for seed in seeds])
    return Difference(row.label, seeds, found.points, found.standard_error)


def _of_seed(first: Record, second: Record, labels: tuple[str, str], read_steps: ReadSteps) -> Paired:
    steps = []
    for record, label in zip((first, second), labels, strict=True):
        read = read_steps(record)
        if not read:
            raise UnlikeRuns(f"{label} cannot be paired: its run with seed {record.spec.seed} has no step log.")
        steps.append(read)
    try:
        protocol = protocol_of(first.spec.protocol)
        resumes = protocol is not None and protocol.resumes_domains
        return paired_difference(*steps, rounds=first.spec.times or 1, resumes=resumes)
    except UnlikeRuns as error:
        raise UnlikeRuns(f"{labels[0]} and {labels[1]}, seed {first.spec.seed}: {error}") from error


def _batch(step: StepFacts) -> tuple[object, object, int]:
    return step["domain"], step.get("severity"), step["images"]


def _listed(values: Iterable[object]) -> str:
    return ", ".join(map(str, values))
