"""Repeat published runs with a guard: `python -m benchmarks.guard_runs docs/results`.

Each run in which a method learns is rebuilt from its record, checked to be the same run by its address, and repeated
with the guard around the adapter. If the adapter gains from the stream, compared with the unadapted network under the
same statistics, any alarm is a false alarm. Short runs come first. Runs that rest, that are reset by their protocol or
that use source data are left out. The precision is the default, whatever that of the record was.

With ``--json`` the outcomes are kept as they come, and those that are in the file already are not measured again.
"""

from __future__ import annotations

import argparse
import logging
import shlex
import sys
from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

from benchmarks.guard import Kept, Outcome, run
from benchmarks.guard_streams import Trial
from ctta.bench.arguments import method_arguments
from ctta.bench.compare import own_settings
from ctta.bench.folder import read_records
from ctta.bench.prepare import prepare
from ctta.bench.record import Record
from ctta.bench.workload import Inputs, Procedure, Workload
from ctta.errors import BadData, CttaError
from ctta.guard import DEFAULT_TEXT
from ctta.registry import get_method


def work_of(record: Record, root: Path) -> Workload:
    """Return what a record's run computed.

    Args:
        record: The record; paths and the method come from its command line, everything else from its specification.
        root: The folder that the paths of its command line start from.
    """
    spec, words = record.spec, shlex.split(record.command)
    given = {name: value for name, value in pairwise(words) if name.startswith("--")}
    protocol = spec.protocol
    options = protocol.get("options")
    order = protocol.get("order", "shuffled")
    return Workload(
        Procedure(
            method=_method(record),
            settings=spec.settings,
            protocol=spec.protocol_name,
            times=spec.times or 1,
            order="stored" if order == "stored" else "shuffled",
            options=options if isinstance(options, dict) else {},
            severity=spec.severity or 5,
            batch_size=spec.batch_size,
            seed=spec.seed,
        ),
        Inputs(
            stream=words[3] if words[1] == "run" else spec.data_name,
            model=given.get("--model", spec.model_name),
            weights=root / given["--weights"] if "--weights" in given else None,
            data=root / given["--data"] if "--data" in given else None,
            corruptions=spec.corruptions if "--corruptions" in given else None,
            images=spec.images,
            side=int(given["--side"]) if "--side" in given else None,
        ),
    )


def repeat(record: Record, root: Path, rules: str = DEFAULT_TEXT) -> Outcome:
    """Repeat the run of a record with a guard.

    Args:
        record: The record.
        root: The folder that the paths of its command line start from.
        rules: The guard's rules.

    Raises:
        BadData: If the rebuilt run is another one than the record's.
    """
    work = work_of(record, root)
    prepared = prepare(work)
    address = prepared.specification().address
    if address != record.address:
        raise BadData(f"The run rebuilt from record {record.address} is another one, {address}: its command differs.")
    options = {name: value for name, value in method_arguments(work).items() if name != "precision"}
    trial = Trial("healthy", [(batch.x, batch.y) for batch in prepared.stream], 0, options)
    return run(record.address, work.procedure.method, trial, prepared.source, rules=rules, compare=False)


def repeatable(record: Record) -> bool:
    """Whether the method of a record's run learns freely, without source data: a guard has something to do."""
    spec = record.spec
    alone = spec.learn and spec.source_data is None and not spec.rest_on and spec.resets == "never"
    return alone and get_method(_method(record)).learns


def _method(record: Record) -> str:
    """The name of the method; one from outside ctta is only found by the command line."""
    return shlex.split(record.command)[2] if "@" in record.spec.method else record.spec.method


def title_of(record: Record) -> str:
    """The stream and the method of a record in a few words."""
    spec = record.spec
    images = "all" if spec.images is None else spec.images
    where = f"{spec.data_name} {spec.model_name} {spec.protocol_name} {spec.severity} {spec.batch_size} {images}"
    own = "".join(f" {name}={value}" for name, value in sorted(own_settings(spec).items()))
    return f"{where} {spec.method.partition('@')[0]}{own} seed {spec.seed}"


def chosen(records: Sequence[Record], args: argparse.Namespace) -> list[Record]:
    """Return the records that were asked for, the shortest first."""
    found = [
        record
        for record in records
        if repeatable(record)
        and record.images <= args.most_images
        and (args.methods is None or record.spec.method.partition("@")[0] in args.methods)
        and (args.protocols is None or record.spec.protocol_name in args.protocols)
        and (args.seeds is None or record.spec.seed in args.seeds)
        and (args.models is None or record.spec.model_name in args.models)
    ]
    return sorted(found, key=lambda record: (record.images, title_of(record), record.address))


def main(arguments: list[str] | None = None) -> int:
    """Repeat the requested runs and print two lines for each; return 1 if one could not be repeated."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.guard_runs",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("runs", type=Path, help="folder of the records")
    parser.add_argument("--root", type=Path, default=Path(), help="folder that the paths in the records start from")
    parser.add_argument("--methods", nargs="+", metavar="NAME", help="only these methods")
    parser.add_argument("--protocols", nargs="+", metavar="NAME", help="only these protocols")
    parser.add_argument("--models", nargs="+", metavar="NAME", help="only these networks")
    parser.add_argument("--seeds", nargs="+", type=int, metavar="N", help="only these seeds")
    parser.add_argument("--most-images", type=int, default=30_000, metavar="N", help="leave out longer runs")
    parser.add_argument("--rules", default=DEFAULT_TEXT, help="the guard's rules")
    parser.add_argument("--json", type=Path, metavar="FILE")
    args = parser.parse_args(arguments)
    logging.getLogger("ctta").setLevel(logging.ERROR)
    kept = Kept(args.json, ("task", "rules"))
    failed = 0
    for record in chosen(read_records(args.runs), args):
        if (record.address, args.rules) in kept:
            continue
        try:
            outcome = repeat(record, args.root, args.rules)
        except (CttaError, OSError) as error:
            print(f"{title_of(record)}\n    not repeated: {error}", flush=True)
            failed += 1
            continue
        named = replace(outcome, method=outcome.method.rpartition(":")[2])
        kept.add(named, title=title_of(record))
        print(f"{title_of(record)}\n    {named}", flush=True)
    return int(failed > 0)


if __name__ == "__main__":
    sys.exit(main())
