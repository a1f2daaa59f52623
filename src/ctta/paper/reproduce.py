"""Reproduce an experiment: its jobs, and our numbers next to the published ones."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from ctta._system.files import printable, write_atomically
from ctta.bench.inputs import open_inputs
from ctta.bench.jobs import Inputs, Job, RunOptions, Workload
from ctta.bench.record import Record
from ctta.corruption_names import CORRUPTIONS
from ctta.datasets import get_dataset
from ctta.datasets.catalog import OWN
from ctta.errors import MissingData, ParameterError
from ctta.method_table import built_in
from ctta.paper.experiment import Cell, Experiment, Outcome
from ctta.paper.numbers import SETTINGS, Setting
from ctta.plots.style import svg
from ctta.protocol import get_protocol
from ctta.registry import bare_target

#: The dataset of SETTINGS that stands in for the user's own data: it has every experiment and no published number.
_UNPUBLISHED = "digits"


@dataclass(frozen=True)
class Request:
    """What to reproduce, with which data and model, and how much of it.

    Args:
        dataset: A key of SETTINGS, or a name of `ctta.datasets.get_dataset` for data that the paper does not use.
        inputs: The source model and the images that the user has; each row uses what it needs.
        methods: Only rows of these methods; None means all.
        seeds: The seeds of each row.
        options: How to run; a row may keep its adapted model as well.
    """

    dataset: str
    inputs: Inputs
    methods: frozenset[str] | None = None
    seeds: tuple[int, ...] = (0,)
    options: RunOptions = field(default_factory=RunOptions)

    def __post_init__(self) -> None:
        if not self.inputs.model:
            raise ParameterError(f"{self.setting.name} needs --model; the paper has none for it.")

    @property
    def setting(self) -> Setting:
        """The paper's setting of the dataset, or one for data that the paper does not use."""
        return setting_of(self.dataset)


def setting_of(dataset: str) -> Setting:
    """Return the paper's setting of a dataset, or one for data that the paper does not use.

    Args:
        dataset: A key of SETTINGS, or a name of `ctta.datasets.get_dataset`.

    Raises:
        ParameterError: The paper uses this data under another name.
    """
    if dataset in SETTINGS:
        return SETTINGS[dataset]
    found = get_dataset(dataset)
    if names := [name for name, setting in SETTINGS.items() if setting.stream == found.name]:
        raise ParameterError(f"The paper has {found.name} as {' and '.join(names)}: name one of them.")
    return Setting(found.name, dataset, found.default_model or "", None, found.batch_size, other_data=found.name)


@dataclass(frozen=True)
class Plan:
    """The part of an experiment that can run as requested.

    Args:
        experiment: The experiment.
        request: The request.
        cells: The cells that can run.
        left_out: Labels of the other cells, with the reason.
    """

    experiment: Experiment
    request: Request
    cells: tuple[Cell, ...]
    left_out: dict[str, str]

    @property
    def jobs(self) -> list[Job]:
        """The jobs, cell by cell and seed by seed."""
        return [job_of(cell, self.request, seed) for cell in self.cells for seed in self.request.seeds]

    def outcomes(self, records: Sequence[Record], folder: Path) -> list[Outcome]:
        """Pair the cells with their records.

        Args:
            records: Records in the order of the jobs.
            folder: Folder of the runs.
        """
        n = len(self.request.seeds)
        return [Outcome(cell, records[i * n : (i + 1) * n], folder) for i, cell in enumerate(self.cells)]


def plan(experiment: Experiment, request: Request) -> Plan:
    """Find the cells of an experiment that can run as requested.

    Args:
        experiment: The experiment.
        request: The request.

    Raises:
        ParameterError: The experiment does not cover the dataset.
        MissingData: No cell can run; the message says why.
    """
    if _cells_of(request) not in experiment.datasets:
        where = ", ".join(experiment.datasets)
        raise ParameterError(f"The experiment {experiment.name} is about {where}. Got {request.dataset} instead.")
    request = _with_known_names(request)
    cells, left_out = [], dict.fromkeys(_without_row(experiment, request), "is no row of this experiment")
    named = [
        cell
        for cell in _with_own_methods(experiment, request)
        if request.methods is None or cell.procedure.method in request.methods
    ]
    most = _most_images(named, request)
    for cell in named:
        if cell.source_data and request.inputs.source_data is None:
            left_out[cell.label] = "needs --source-data"
        elif cell.images is not None and cell.images > most:
            left_out[cell.label] = f"needs more than {most} images per domain"
        else:
            cells.append(cell)
    if not cells:
        raise MissingData(
            f"No row of {experiment.name} is left: "
            + (", ".join(f"{label} {why}" for label, why in left_out.items()) or "no row has these methods")
            + "."
        )
    return Plan(experiment, request, tuple(cells), left_out)


def _with_known_names(request: Request) -> Request:
    """The request with the names of built-in methods in lower case, as cells have them."""
    if request.methods is None:
        return request
    lower = {name: name.lower() for name in request.methods}
    return replace(request, methods=frozenset(low if low in built_in() else name for name, low in lower.items()))


def _most_images(cells: Sequence[Cell], request: Request) -> int:
    """The most images per domain that the data and the request allow; 0 if no cell has a number of images."""
    sized = next((cell for cell in cells if cell.images is not None), None)
    if sized is None:
        return 0
    work = job_of(sized, request, seed=0).work
    smallest = min(map(len, open_inputs(work, get_dataset(work.inputs.stream)).domains))
    return min(smallest, request.inputs.images or smallest)


def _without_row(experiment: Experiment, request: Request) -> list[str]:
    """The built-in methods that the user named and the experiment does not have."""
    rows = {cell.procedure.method for cell in experiment.cells(_cells_of(request))}
    return sorted(name for name in request.methods or () if name in built_in() and name not in rows)


def _with_own_methods(experiment: Experiment, request: Request) -> list[Cell]:
    """The cells of an experiment, and a row per condition for every method the user named that is not built in."""
    cells = experiment.cells(_cells_of(request))
    own = sorted(name for name in request.methods or () if name not in built_in())
    if own and experiment.drawings:
        raise ParameterError(
            f"The experiment {experiment.name} draws figures of given methods; {own[0]} cannot be added to it. "
            "Use ctta run."
        )
    conditions: dict[str, Cell] = {}
    for cell in cells:
        conditions.setdefault(cell.condition, cell)
    return [*cells, *(_own_row(name, like) for name in own for like in conditions.values())]


def _own_row(method: str, like: Cell) -> Cell:
    """The row of a method that is not built in, under the condition of another row."""
    return replace(
        like,
        label=", ".join(filter(None, (bare_target(method), like.condition))),
        procedure=replace(like.procedure, method=method, settings={}),
        published=None,
        source_data=False,
        keep=False,
    )


def _cells_of(request: Request) -> str:
    """The dataset whose cells a request runs."""
    return request.dataset if request.dataset in SETTINGS else _UNPUBLISHED


def job_of(cell: Cell, request: Request, seed: int) -> Job:
    """The job of a cell.

    Args:
        cell: The cell.
        request: The request.
        seed: Seed of the run.
    """
    given = request.inputs
    inputs = replace(
        given,
        clean=given.clean if get_protocol(cell.procedure.protocol).needs_clean else None,
        source_data=given.source_data if cell.source_data else None,
        images=cell.images or given.images,
    )
    batch_size = cell.procedure.batch_size or request.setting.batch_size
    procedure = replace(cell.procedure, batch_size=batch_size, seed=seed)
    return Job(Workload(procedure, inputs), replace(request.options, keep=cell.keep))


@dataclass(frozen=True)
class Row:
    """A row of an experiment: our error and the published one, in percent.

    Args:
        row: Its label.
        ours: Our mean error over seeds.
        spread: Its standard deviation; None with one seed.
        paper: The published error, if any.
        paper_spread: Its standard deviation, if published.
        difference: Our error minus the published one.
        seeds: Number of seeds.
        domains: Our error in each domain.
        paper_domains: The published error in each domain; empty if the paper does not give them.
        runs: The addresses of our runs.
    """

    row: str
    ours: float
    spread: float | None
    paper: float | None
    paper_spread: float | None
    difference: float | None
    seeds: int
    domains: Mapping[str, float]
    paper_domains: Mapping[str, float]
    runs: list[str]


def rows(outcomes: Sequence[Outcome]) -> list[Row]:
    """Our error, the published one and the difference, for every cell, and per domain if published.

    Args:
        outcomes: The outcomes of an experiment.
    """
    return [_row(outcome) for outcome in outcomes]


def notes(plan: Plan, outcomes: Sequence[Outcome]) -> list[str]:
    """How the runs differ from the paper's experiment.

    Args:
        plan: What was planned.
        outcomes: Its outcomes.
    """
    record, setting = outcomes[0].records[0], plan.request.setting
    found = []
    if setting.other_data:
        found.append(f"OTHER DATA: {setting.other_data}, which the paper does not use.")
    elif plan.request.inputs.model != setting.backbone:
        found.append(f"ANOTHER BACKBONE: {bare_target(plan.request.inputs.model)}; the paper's is {setting.backbone}.")
    sizes = {_size(outcome) for outcome in outcomes if outcome.cell.images is None}
    if setting.images is not None and sizes - {setting.images}:
        shown = ", ".join(f"{size:,}" for size in sorted(sizes))
        found.append(f"ANOTHER SIZE: {shown} images per domain; the paper's is {setting.images:,}.")
    if (domains := plan.request.inputs.corruptions) is not None and domains != CORRUPTIONS:
        found.append(
            f"OTHER DOMAINS: {', '.join(domains)}; the paper's stream has all fifteen. Its mean is "
            "over these where it gives the error of each, and over all fifteen where it does not."
        )
    origin = record.spec.data["origin"]
    if not setting.other_data and origin == "generated":
        found.append("OTHER FILES: the corrupted images are generated, not the published ones.")
    elif not setting.other_data and origin == "unverified":
        found.append("UNVERIFIED FILES: not compared with published digests, as ctta fetch NAME --check FOLDER does.")
    for why in dict.fromkeys(plan.left_out.values()):
        labels = ", ".join(label for label, reason in plan.left_out.items() if reason == why)
        found.append(f"LEFT OUT, because it {why}: {labels}.")
    if plan.experiment.note:
        found.append(plan.experiment.note)
    return found


def draw(plan: Plan, outcomes: Sequence[Outcome], folder: Path) -> list[Path]:
    """Write the figures of an experiment as SVG files.

    Args:
        plan: What was planned.
        outcomes: Its outcomes.
        folder: The files go into ``figures`` below this folder.

    Returns:
        The files.
    """
    request, written = plan.request, []
    name, model = _data_title(request), bare_target(request.inputs.model)
    data = request.dataset if request.dataset in SETTINGS else name
    for drawing in plan.experiment.drawings:
        path = folder / "figures" / f"{drawing.name}_{_file_name(data)}_{_file_name(model)}.svg"
        path.parent.mkdir(parents=True, exist_ok=True)
        title = f"{drawing.title}: {name}, {model}"
        write_atomically(path, svg(drawing.draw(outcomes), title))
        written.append(path)
    return written


def _data_title(request: Request) -> str:
    """The name of the user's own folder or file, or that of the dataset."""
    # Not from the record: equal images in two folders are one run.
    path, name = request.inputs.data, request.setting.name
    return printable(path.absolute().name) if path is not None and name == OWN.name else name


def _file_name(name: str) -> str:
    """The name of a model or of data as part of a file's name."""
    return re.sub(r"[^\w.-]", "_", name)


def _size(outcome: Outcome) -> int:
    """Images of a domain per visit."""
    cell, record = outcome.cell, outcome.records[0]
    visits = get_protocol(cell.procedure.protocol).visits * cell.procedure.times
    return max(count.images for count in record.counts.values()) // visits


def _row(outcome: Outcome) -> Row:
    published = outcome.published
    return Row(
        row=outcome.cell.label,
        ours=outcome.mean,
        spread=outcome.spread,
        paper=None if published is None else published.mean,
        paper_spread=None if published is None else published.spread,
        difference=None if published is None else outcome.mean - published.mean,
        seeds=len(outcome.records),
        domains=outcome.domains,
        paper_domains={} if published is None else published.domains,
        runs=[record.address for record in outcome.records],
    )
