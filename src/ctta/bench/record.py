"""The run record: plain JSON that holds every fact behind a number. ``SCHEMA`` documents each key."""

from __future__ import annotations

import json
import os
import platform
from contextlib import suppress
from importlib.metadata import version
from pathlib import Path
from typing import Any

from ctta.bench.record_checks import DIGEST, adds_up, digest_of, read_json, wrong_entry
from ctta.errors import BadData
from ctta.files import write_atomically
from ctta.version import __version__

SCHEMA = {
    "format": "version of this schema",
    "address": "digest of `spec`, and the name of the run's folder",
    "spec": "method, settings, model and data with digests, protocol, corruptions, severity, images, batch size, seed",
    "settings": "every constructor argument of the method, defaults included",
    "source_free": "whether the method was given no source data",
    "metric": "what `errors` and `mean` are",
    "direction": "whether lower or higher is better",
    "normalisation": "where images are normalised, with which mean and std",
    "order": "how the images of a domain are ordered",
    "scored": "which answer counts",
    "passes": "forward passes of a step, and how many of them are differentiated",
    "errors": "percent wrong in each domain, in order of first appearance",
    "mean": "unweighted mean of `errors`",
    "counts": "images and wrong answers in each domain",
    "images": "images answered",
    "images_per_second": "images by the seconds spent inside the method",
    "seconds": "seconds spent inside the method",
    "peak_memory": "largest resident size of the process in bytes, everything included; off Linux, earlier runs too",
    "skipped": "steps whose loss was not finite",
    "environment": "versions, threads, device, processor",
    "steps": "file beside this one with one JSON line per step",
    "command": "the command line that made the run",
    "complete": "true once the stream has ended",
}
FORMAT = 2
READABLE = (1, 2)  # 1 has no digest
NAME = "record.json"


def environment(device: str) -> dict[str, Any]:
    """Versions, threads, device and processor."""
    import numpy  # noqa: PLC0415
    import torch  # noqa: PLC0415

    return {
        "ctta": __version__,
        "torch": torch.__version__,
        "numpy": numpy.__version__,
        "pillow": version("pillow"),
        "python": platform.python_version(),
        "system": f"{platform.system()} {platform.machine()}",
        "threads": torch.get_num_threads(),
        "device": device,
        "processor": _processor(),
        "cores": os.cpu_count(),
    }


def _processor() -> str:
    """The name of the processor."""
    with suppress(OSError, StopIteration):
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace").splitlines()
        return next(line for line in lines if line.startswith("model name")).partition(":")[2].strip()
    return platform.processor() or platform.machine()


def write_record(folder: Path, record: dict[str, Any]) -> None:
    """Write a record into its folder, atomically; its keys must be those of the schema."""
    unknown = set(record) ^ set(SCHEMA)
    if unknown:
        raise ValueError(f"a record has the keys of SCHEMA; these are missing or unknown: {sorted(unknown)}")
    content = json.loads(json.dumps(record))
    if content["format"] == FORMAT:
        content[DIGEST] = digest_of(content)
    # Lone surrogates, from names that are not UTF-8, become the escapes that JSON has for them.
    text = json.dumps(content, indent=1, ensure_ascii=False) + "\n"
    write_atomically(folder / NAME, text.encode("utf-8", "backslashreplace"))


def read_record(path: Path) -> dict[str, Any]:
    """A record from its file or folder.

    Raises:
        BadData: if it is no record, has another format, or was changed since it was written.
    """
    file = path / NAME if path.is_dir() else path
    record = read_json(file)
    if not isinstance(record, dict) or "format" not in record:
        raise BadData(f"{file} is not a run record. Restore it from a copy, or delete it.")
    made = record["format"]
    if type(made) is not int or made not in READABLE:
        raise BadData(
            f"{file} is a run record of format {str(made)[:20]}; ctta {__version__} reads formats 1 to {FORMAT}. "
            "Use the version of ctta that wrote it, or delete it."
        )
    digest = record.pop(DIGEST, None) if made == FORMAT else None
    if set(record) != set(SCHEMA):
        raise BadData(f"{file} is not a run record of format {made}: it lacks entries, or has unknown ones.")
    wrong = wrong_entry(record)
    if wrong is not None or (made == FORMAT and digest != digest_of(record)) or not adds_up(record):
        raise BadData(
            f"{file} was changed or damaged: {f'its {wrong!r} cannot be right' if wrong else 'it does not add up'}. "
            f"Restore it from a copy, or delete {file.parent} to make the run again."
        )
    return record


def other_version(record: dict[str, Any]) -> str | None:
    """The versions that made a record, if their first number is not that of the ones installed here."""
    here = {"ctta": __version__, "torch": version("torch")}
    made = {name: str(record["environment"].get(name, here[name])) for name in here}
    other = [name for name in here if _major(made[name]) != _major(here[name])]
    return ", ".join(f"{name} {made[name]} (here {here[name]})" for name in other) or None


def _major(text: str) -> str:
    return text.partition(".")[0]


def read_records(folder: Path) -> list[dict[str, Any]]:
    """Every complete record below a folder, ordered by method, then by address."""
    if not folder.exists():
        raise BadData(f"There is no folder {folder.absolute()}.")
    files = [folder] if folder.is_file() else sorted(folder.rglob(NAME))
    records = [record for file in files if (record := read_record(file))["complete"]]
    if not records:
        raise BadData(f"There is no complete run record below {folder.absolute()}.")
    return sorted(records, key=lambda r: (r["spec"]["method"], r["spec"]["seed"], r["address"]))
