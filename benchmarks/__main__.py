"""Run measurements, print tables, and optionally write JSON."""

from __future__ import annotations

import argparse
import json
import sys
from importlib import import_module
from pathlib import Path

from ctta._system.allocator import keep_freed_memory
from ctta._system.files import write_atomically

MEASUREMENTS = ("step", "guarded", "answer", "blend", "levers", "growth", "memory", "checkpoint", "start")
NETWORKS = ("resnet20", "resnet50", "head1000")
PRECISIONS = ("fp32", "bf16")


def main(arguments: list[str] | None = None) -> int:
    """Run the chosen measurements."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description="Measure costs as ratios to a baseline.")
    parser.add_argument("--only", nargs="+", choices=MEASUREMENTS, default=MEASUREMENTS, metavar="NAME")
    parser.add_argument("--networks", nargs="+", choices=NETWORKS, default=NETWORKS, metavar="NAME")
    parser.add_argument("--precisions", nargs="+", choices=PRECISIONS, default=PRECISIONS, metavar="NAME")
    parser.add_argument("--rounds", type=int, default=5, help="rounds to take the median of, after one warm-up round")
    parser.add_argument("--quick", action="store_true", help="one round on a tiny network, only to see that it runs")
    parser.add_argument("--keep-freed-memory", action="store_true", help="configure the C allocator as `ctta` does")
    parser.add_argument("--json", type=Path, metavar="FILE", help="also write the values to this file")
    args = parser.parse_args(arguments)
    if args.rounds < 1:
        parser.error("--rounds must be at least 1")
    kept = args.keep_freed_memory and keep_freed_memory()

    from benchmarks.machine import facts  # noqa: PLC0415 - torch must be imported after the allocator is configured
    from benchmarks.plan import Plan  # noqa: PLC0415

    plan = Plan(1 if args.quick else args.rounds, args.quick, tuple(args.networks), tuple(args.precisions))
    machine = facts() | {"freed memory kept": kept}
    print(", ".join(f"{name} {value}" for name, value in machine.items()))
    reports = []
    for name in args.only:
        for report in import_module(f"benchmarks.{name}").measure(plan):
            reports.append(report)
            print(f"\n{report.table()}", flush=True)
    if args.json is not None:
        record = {"machine": machine, "rounds": plan.rounds, "reports": [report.as_json() for report in reports]}
        write_atomically(args.json, (json.dumps(record, indent=2) + "\n").encode())
    return 0


if __name__ == "__main__":
    sys.exit(main())
