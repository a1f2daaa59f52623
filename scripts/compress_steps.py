"""Shrink the step logs of published runs: keep what reports need, and compress it.

python scripts/compress_steps.py [FOLDER]    default: docs/results

Every steps.jsonl becomes a steps.jsonl.gz, which ctta reads in the same way. The same log always gives the same bytes.
"""

from __future__ import annotations

import argparse
import gzip
import json
from collections.abc import Iterable
from pathlib import Path

from ctta._system.files import write_atomically
from ctta.bench.folder import STEPS, RunFolder
from ctta.bench.steps import StepFacts

RESULTS = Path(__file__).resolve().parent.parent / "docs" / "results"
#: What the report and `ctta compare --paired` read.
KEPT = (
    "index",
    "domain",
    "severity",
    "images",
    "wrong",
    "entropy_right",
    "entropy_wrong",
    "entropy",
    "alpha",
    "teacher_reset",
)


def main() -> None:
    """Compress the logs below a folder."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("folder", type=Path, nargs="?", default=RESULTS)
    logs = sorted(parser.parse_args().folder.rglob(STEPS))
    before = sum(path.stat().st_size for path in logs)
    after = sum(compress(path.parent) for path in logs)
    print(f"{len(logs)} logs: {before / 1e6:.1f} MB -> {after / 1e6:.1f} MB")  # noqa: T201


def compress(folder: Path) -> int:
    """Replace the step log of a complete run by a compressed one.

    Args:
        folder: Folder of the run. An incomplete run is left alone: it would continue its log.

    Returns:
        The size of the log in bytes.
    """
    run = RunFolder(folder)
    if not run.read_record().complete:
        return run.steps_file.stat().st_size
    data = gzip.compress(lines(run.read_steps()), 9, mtime=0)
    write_atomically(run.compressed_steps_file, data)
    run.steps_file.unlink()
    return len(data)


def lines(steps: Iterable[StepFacts]) -> bytes:
    """Return the kept facts of steps as JSON lines.

    Args:
        steps: The steps of a run.
    """
    kept = ({name: step[name] for name in KEPT if name in step} for step in steps)
    return "".join(json.dumps(step, separators=(",", ":")) + "\n" for step in kept).encode()


if __name__ == "__main__":
    main()
