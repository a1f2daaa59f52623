"""Fill the tables of docs/results.md from the run records below docs/results.

python scripts/results.py            write the page
python scripts/results.py --check    write nothing; exit 1 if the page is stale

The page is written by hand, except for three kinds of regions, which end with ``<!-- end -->``:

``<!-- table: EXPERIMENT DATASET MODEL IMAGES -->`` is a table of the paper; IMAGES is the number per domain, or "all".
With `` by-domain`` at the end the table has one column per domain; with `` grid``, an experiment over two settings has
a row for each value of the first and a column for each of the second. Rows are averaged over the seeds that all of them
have.

``<!-- networks: DATASET IMAGES MODEL[=NORM] ... -->`` is a table of every method, and of forms that have papers of
their own, on several networks, with seed 0, and the cost of a step as docs/results/costs.json has it. Methods with an
optimizer published for networks with the norm layers NORM ("layer", "group") have a second row for it.

``<!-- runs: DATASET MODEL PROTOCOL SEVERITY BATCH IMAGES AGAINST [COLUMN ...] -->`` is a table of all runs on one
stream, with the difference of every row from the row AGAINST on the same images, and its standard error. PROTOCOL is
followed by its options and rounds, such as ``correlated:concentration=0.01`` or ``recurring:times=10``; SEVERITY or
IMAGES that a stream does not have is "-". A COLUMN is a domain, "rounds" for the error of each round, or "cost" for the
cost of a step.

If there are runs on several files or sets of domains, the region says which it shows: ``@data=DIGEST``, the first
digits of the digest of the data, and ``@domains=NUMBER``. ``@seeds=NUMBER`` leaves out rows of runs with fewer seeds.

``<!-- leads: LABEL -> HEADING, ... -->`` is a table of the differences of some rows, with a line for each stream whose
region has a title, ``@title=SOME_WORDS``.
"""

from __future__ import annotations

import argparse
import json
import re
import sys
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from statistics import mean

from ctta.bench.compare import Row, own_settings, rows
from ctta.bench.defaults import batch_size, default_arguments, recipe_named
from ctta.bench.folder import RunFolder, read_records
from ctta.bench.paired import pair_rows
from ctta.bench.record import Record
from ctta.corruption_names import CORRUPTIONS
from ctta.method_table import AFTER, AFTER_NOTE, after_mark, built_in
from ctta.paper import Cell, Outcome, experiment
from ctta.paper.numbers import SETTINGS
from ctta.protocol import protocol_of
from ctta.registry import method
from docgen.leads import Differences, leads
from docgen.markdown import table as markdown_table
from docgen.run_commands import commands_of

DOCS = Path(__file__).resolve().parent.parent / "docs"
COSTS = DOCS / "results" / "costs.json"
#: Forms of methods that have a paper of their own, by the label of their runs.
FORMS = ("asr base=roid", "eata loss=come", "lame affinity=knn", "sar loss=come", "tent loss=come")
REGION = re.compile(r"(<!-- (table|networks|runs): ([^>]*?) -->\n).*?(<!-- end -->)", re.DOTALL)
LEADS = re.compile(r"(<!-- leads: (.*?) -->\n).*?(<!-- end -->)", re.DOTALL)


def main() -> int:
    """Write the page, or check it."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--check", action="store_true", help="write nothing; exit 1 if the page is stale")
    check = parser.parse_args().check
    path = DOCS / "results.md"
    text = path.read_text(encoding="utf-8")
    if (fresh := filled(text, read_records(DOCS / "results"))) == text:
        return 0
    if check:
        print("docs/results.md is stale: run python scripts/results.py")  # noqa: T201
        return 1
    path.write_text(fresh, encoding="utf-8")
    return 0


def filled(text: str, records: Sequence[Record]) -> str:
    """Return the page with its tables filled in."""
    titled: dict[str, Differences] = {}

    def table(found: re.Match[str]) -> str:
        begin, kind, what, end = found.groups()
        words = [word for word in what.split() if word[0] != "@"]
        chosen = dict(word[1:].split("=") for word in what.split() if word[0] == "@")
        shown = [record for record in records if _chosen(record, chosen)]
        if kind == "runs":
            made, differences = run_lines(words, shown, least_seeds=int(chosen.get("seeds", 1)))
            if "title" in chosen:
                titled[chosen["title"].replace("_", " ")] = differences
        else:
            made = {"table": lines, "networks": network_lines}[kind](words, shown)
        return begin + "\n".join(made) + "\n" + end

    text = REGION.sub(table, text)
    return LEADS.sub(lambda found: f"{found[1]}{leads(found[2], titled)}\n{found[3]}", text)


def _chosen(record: Record, words: Mapping[str, str]) -> bool:
    """Whether a run is on the data and the number of domains that a region names, if it names any."""
    digest = str(record.spec.data.get("digest", ""))
    domains = len(record.errors)
    return digest.startswith(words.get("data", "")) and str(domains) == words.get("domains", str(domains))


def _refuse_other_data(what: Sequence[str], runs: Sequence[Record]) -> None:
    """Refuse a table whose runs are not on the same images."""
    digests = {str(run.spec.data.get("digest", ""))[:8] for run in runs}
    domains = {len(run.errors) for run in runs}
    if len(digests) > 1 or len(domains) > 1:
        raise SystemExit(
            f"the runs for {' '.join(what)} are on several data, {', '.join(sorted(digests))}, or numbers of domains, "
            f"{sorted(domains)}: add @data= or @domains= to the region"
        )


def lines(what: Sequence[str], records: Sequence[Record]) -> list[str]:
    """Return a table in Markdown, followed by the commands that made it."""
    name, dataset, model, images, *how = what
    size = None if images == "all" else int(images)
    pairs = [(cell, matching(cell, dataset, model, size, records)) for cell in experiment(name).cells(dataset)]
    pairs = [(cell, found) for cell, found in pairs if found]
    if not pairs:
        raise SystemExit(f"docs/results holds no run for {' '.join(what)}")
    _refuse_other_data(what, [run for _, found in pairs for run in found])
    shared = of_shared_seeds([found for _, found in pairs])
    outcomes = [Outcome(cell, found, Path()) for (cell, _), found in zip(pairs, shared, strict=True)]
    table = _grid(outcomes) if how == ["grid"] else _table(outcomes, by_domain=bool(how))
    return [*table, "", *_block(record for outcome in outcomes for record in outcome.records)]


def network_lines(what: Sequence[str], records: Sequence[Record]) -> list[str]:
    """Return a table of every method on several networks in Markdown, followed by the commands that made it."""
    dataset, images, *networks = what
    norms = {model: norm or None for model, _, norm in (network.partition("=") for network in networks)}
    runs = [r for r in records if r.spec.data_name == dataset and r.spec.images == int(images) and _plain(r)]
    rows: dict[str, list[Record | None]] = {}
    for label in (*built_in(), *FORMS):
        name, *changes = label.split()
        settings = dict(change.split("=") for change in changes)
        marked = " ".join([name + after_mark(name), *changes])
        rows[marked] = [_run_of(name, model, settings, runs) for model in norms]
        if method(name).norm_recipes:
            rows[f"{label}, `--norm`"] = [
                None
                if norm is None
                else _run_of(name, model, {**settings, **_norm_settings(name, norm, dataset)}, runs)
                for model, norm in norms.items()
            ]
    rows = {label: row for label, row in rows.items() if any(row)}
    source = [record for record in rows.pop("source", []) if record]
    if len(source) != len(norms):
        raise SystemExit(f"docs/results holds no run of source for {' '.join(what)}")
    first: dict[str, list[Record | None]] = {"source": [*source]}
    rows = first | dict(sorted(rows.items()))
    best = [min(record.mean for record in column if record) for column in zip(*rows.values(), strict=True)]
    costs = costs_of_steps()
    body = [[label, _cost(label, costs), *map(_against, row, source, best)] for label, row in rows.items()]
    note = ["", AFTER_NOTE] if any(AFTER in label for label in rows) else []
    head = ["", "cost of a step", *(f"`{model}`" for model in norms)]
    table = markdown_table(head, body).splitlines()
    return [*table, *note, "", *_block(record for row in rows.values() for record in row if record)]


def run_lines(what: Sequence[str], records: Sequence[Record], *, least_seeds: int = 1) -> tuple[list[str], Differences]:
    """Return a table of all runs on one stream in Markdown, followed by the commands that made it; and its differences.

    The differences are those from the row that the region names, by the labels shown.
    """
    *stream, against = what[:7]
    columns = what[7:]
    found = [record for record in records if _stream_of(record) == stream]
    if not found:
        raise SystemExit(f"docs/results holds no run for {' '.join(what)}")
    _refuse_other_data(what, found)
    found = [record for row in rows(found) if len(row.seeds) >= least_seeds for record in row.records]
    shared = set.intersection(*(set(row.seeds) for row in rows(found)))
    table = rows([record for record in found if record.spec.seed in shared])
    pairing = pair_rows(table, lambda record: RunFolder(DOCS / "results" / record.address).read_steps(), against)
    by_label = {difference.label: str(difference) for difference in pairing.differences}
    differences = {_short(row): by_label[row.label] for row in table if row.label in by_label}
    costs = costs_of_steps() if "cost" in columns else {}
    body = [
        [
            _short(row).replace("*", "\\*"),
            f"{row.mean:.2f}" + ("" if row.spread is None else f" ± {row.spread:.2f}"),
            differences.get(_short(row), ""),
            *(_cost(row.label, costs) if name == "cost" else _column(name, row.records) for name in columns),
            str(len(row.seeds)),
        ]
        for row in sorted(table, key=lambda row: row.mean)
    ]
    titles = ("cost of a step" if name == "cost" else name for name in columns)
    head = ["", "error", f"difference from {against}", *titles, "seeds"]
    lines = [
        *markdown_table(head, body).splitlines(),
        *(line for note in pairing.notes for line in ("", note)),
        "",
        *_block(record for row in table for record in row.records),
    ]
    return lines, differences


def _short(row: Row) -> str:
    """The label of a row; that of a method from benchmarks/ without the digest of its file and what it has of Trio."""
    spec = row.records[0].spec
    name, own, _ = spec.method.partition("@")
    if not own:
        return row.label
    recipe = recipe_named("trio", spec.data_name, spec.batch_size)
    return " ".join([name, *(f"{k}={v}" for k, v in sorted(spec.settings.items()) if recipe.get(k) != v)])


def _stream_of(record: Record) -> list[str]:
    """What a run has in common with those that it can stand beside, as the page writes it."""
    spec = record.spec
    protocol, options = protocol_of(spec.protocol), spec.protocol.get("options")
    usual = {} if protocol is None else protocol.options
    more = {k: v for k, v in options.items() if usual.get(k) != v} if isinstance(options, Mapping) else {}
    more |= {} if spec.times is None else {"times": spec.times}
    name = ":".join([spec.protocol_name, *(f"{option}={value}" for option, value in more.items())])
    numbers = (spec.severity, spec.batch_size, spec.images)
    return [spec.data_name, spec.model_name, name, *("-" if n is None else str(n) for n in numbers)]


def _column(name: str, runs: Sequence[Record]) -> str:
    """The error of a domain, or of every round, averaged over seeds."""
    if name != "rounds":
        return f"{mean(run.errors[name] for run in runs):.1f}"
    rounds = [run.rounds for run in runs if run.rounds]
    return ", ".join(f"{mean(values):.1f}" for values in zip(*rounds, strict=True))


def _plain(record: Record) -> bool:
    """Whether a run is one of the usual ones: continual, severity 5, seed 0, all fifteen corruptions."""
    spec = record.spec
    stream = (spec.protocol_name, spec.severity, spec.batch_size, spec.seed, len(record.errors))
    usual = ("continual", 5, batch_size(spec.data_name), 0, len(CORRUPTIONS))
    return stream == usual and spec.learn and spec.source_data is None


def costs_of_steps() -> dict[str, float]:
    """Return the measured cost of a step of every method, or form of one, in forward passes of the network."""
    (report,) = json.loads(COSTS.read_bytes())["reports"]
    return {row["name"].removesuffix(" fp32"): row["value"] for row in report["rows"]}


def _cost(label: str, costs: Mapping[str, float]) -> str:
    cost = costs.get(label.replace(AFTER, "").split(",")[0])
    return "–" if cost is None else f"{cost:.1f}"


def usual_runs(records: Sequence[Record], dataset: str, model: str, images: int) -> list[Record]:
    """The runs on the usual stream with one network, whatever the settings of their method."""
    fitting = ((r.spec.data_name, r.spec.model_name, r.spec.images) == (dataset, model, images) for r in records)
    return [record for record, fits in zip(records, fitting, strict=True) if fits and _plain(record)]


def _run_of(name: str, model: str, settings: Mapping[str, object], runs: Sequence[Record]) -> Record | None:
    alike = (r for r in runs if (r.spec.method, r.spec.model_name) == (name, model))
    return next((r for r in alike if own_settings(r.spec) == settings), None)


def _norm_settings(name: str, norm: str, dataset: str) -> dict[str, object]:
    """The settings of a run with ``--norm`` that differ from the recipe of the dataset."""
    cls = method(name)
    default, rates = default_arguments(cls, dataset), {str(norm): rate for norm, rate in cls.norm_recipes.items()}
    return {k: v for k, v in rates[norm].arguments(batch_size(dataset)).items() if v != default[k]}


def _against(record: Record | None, source: Record, best: float) -> str:
    """An error and its difference from the source model."""
    if record is None:
        return "–"
    mean = f"**{record.mean:.1f}**" if record.mean == best else f"{record.mean:.1f}"
    return mean if record is source else f"{mean} ({record.mean - source.mean:+.1f})"


def of_shared_seeds(rows: Sequence[Sequence[Record]]) -> list[list[Record]]:
    """Keep only runs whose seed every row has: a different seed means different noise in the images."""
    shared = set.intersection(*({record.spec.seed for record in row} for row in rows))
    return [[record for record in row if record.spec.seed in shared] for row in rows]


def matching(cell: Cell, dataset: str, model: str, images: int | None, records: Sequence[Record]) -> list[Record]:
    """The runs of a cell, one per seed."""

    def fits(record: Record) -> bool:
        spec, setting, asked = record.spec, SETTINGS[dataset], cell.procedure
        if spec.method != asked.method:
            return False
        unsaid = default_arguments(method(spec.method), spec.data_name, spec.batch_size)
        settings = {k: v for k, v in asked.settings.items() if v != unsaid.get(k)}
        return (
            (spec.model_name, spec.data_name) == (model, setting.stream)
            and (spec.source_data is not None) == cell.source_data
            and own_settings(spec) == settings
            and spec.protocol_name == asked.protocol
            and spec.protocol.get("times", 1) == asked.times
            and spec.severity in (asked.severity, None)
            and spec.images == (cell.images or images)
            and spec.batch_size == (asked.batch_size or setting.batch_size)
        )

    return [record for record in records if fits(record)]


def _table(outcomes: Sequence[Outcome], *, by_domain: bool) -> list[str]:
    domains = list(outcomes[0].records[0].errors) if by_domain else []
    published = any(outcome.published for outcome in outcomes)
    head = ["", *(d.replace("_", " ") for d in domains), "mean", *(["paper", "difference"] if published else [])]
    head += ["seeds"]
    best = min(outcome.mean for outcome in outcomes)
    body = []
    for outcome in outcomes:
        mean, told, errors = outcome.mean, outcome.published, outcome.domains
        spread = "" if outcome.spread is None else f" ± {outcome.spread:.2f}"
        line = [outcome.cell.label.replace("*", "\\*") + after_mark(outcome.cell.procedure.method)]
        line += [f"{errors[domain]:.1f}" for domain in domains]
        line += [f"**{mean:.2f}**{spread}" if mean == best else f"{mean:.2f}{spread}"]
        if published:
            line += ["–", "–"] if told is None else [f"{told.mean:.1f}", f"{mean - told.mean:+.1f}"]
        body.append([*line, str(len(outcome.records))])
    note = ["", AFTER_NOTE] if any(after_mark(outcome.cell.procedure.method) for outcome in outcomes) else []
    return [*markdown_table(head, body).splitlines(), *note]


def _grid(outcomes: Sequence[Outcome]) -> list[str]:
    """The mean errors of an experiment whose labels name two settings."""
    errors = {tuple(outcome.cell.label.split(", ")): outcome.mean for outcome in outcomes}
    rows, columns = (list(dict.fromkeys(label[part] for label in errors)) for part in (0, 1))
    best = min(errors.values())
    shown = {label: f"**{error:.2f}**" if error == best else f"{error:.2f}" for label, error in errors.items()}
    body = [[row, *(shown[row, column] for column in columns)] for row in rows]
    return markdown_table(["", *columns], body).splitlines()


def _block(runs: Iterable[Record]) -> list[str]:
    """The commands that repeat some runs, as a block of code."""
    return ["```sh", *commands_of(runs), "```"]


if __name__ == "__main__":
    sys.exit(main())
