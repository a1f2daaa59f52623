"""Build jobs from keyword arguments, each assigned to the part of the job that has the field."""

from __future__ import annotations

from dataclasses import fields, replace
from typing import Any

from ctta.bench.jobs import Inputs, Job, Procedure, Workload


def make_job(method: str, stream: str, model: str, **others: Any) -> Job:
    """Make a job from fields of its procedure, inputs and options."""
    return change_job(Job(Workload(Procedure(method), Inputs(stream, model))), **others)


def change_job(job: Job, **changes: Any) -> Job:
    """Return the job with some fields of its procedure, inputs and options replaced."""

    def changed(part: Any) -> Any:
        return replace(part, **{f.name: changes.pop(f.name) for f in fields(part) if f.name in changes})

    made = Job(Workload(changed(job.work.procedure), changed(job.work.inputs)), changed(job.options))
    assert not changes, f"a job has no {', '.join(changes)}"
    return made
