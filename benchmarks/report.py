"""Measured values, the targets beside them, as a table and as JSON."""

from __future__ import annotations

import json
import os
import platform
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import torch

from benchmarks.targets import TARGETS

#: The instructions that make bf16 faster than fp32; without one of them torch converts back and forth.
BF16_FLAGS = {"avx512_bf16", "amx_bf16"}


@dataclass(frozen=True)
class Row:
    """One measured value. Its name, `measurement/workload/precision/what`, finds its target."""

    name: str
    value: float
    unit: str
    details: Mapping[str, float] = field(default_factory=dict)

    @property
    def target(self) -> float | None:
        return TARGETS.get(self.name)

    @property
    def verdict(self) -> str:
        if self.target is None:
            return ""
        if self.value <= self.target:
            return "pass"
        return "no bf16 here" if "/bf16/" in self.name and not has_bf16() else "FAIL"


def table(rows: Sequence[Row]) -> str:
    width = max((len(row.name) for row in rows), default=0)
    lines = []
    for row in rows:
        wanted = "" if row.target is None else f"<= {row.target:g}"
        details = "  ".join(f"{name} {value:.4g}" for name, value in row.details.items())
        lines.append(
            f"{row.name:{width}} {row.value:10.4g} {row.unit:9} {wanted:8} {row.verdict:13}{details}".rstrip()
        )
    return "\n".join(lines)


def write(rows: Sequence[Row], path: Path, **facts: Any) -> None:
    measured = [asdict(row) | {"target": row.target, "verdict": row.verdict} for row in rows]
    path.write_text(json.dumps({"machine": machine() | facts, "rows": measured}, indent=1) + "\n")


def machine() -> dict[str, Any]:
    """Facts that the numbers depend on."""
    return {
        "python": platform.python_version(),
        "torch": torch.__version__,
        "threads": torch.get_num_threads(),
        "cores": os.cpu_count(),
        "avx512": "avx512f" in cpu_flags(),
        "bf16_instructions": has_bf16(),
    }


def has_bf16() -> bool:
    return bool(BF16_FLAGS & cpu_flags())


def cpu_flags() -> frozenset[str]:
    """The processor's instruction sets; none where the system does not list them as Linux does."""
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return frozenset()
    return frozenset(next((line.partition(":")[2].split() for line in lines if line.startswith("flags")), ()))
