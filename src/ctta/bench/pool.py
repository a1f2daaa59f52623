"""Earlier names of `ctta.bench.executors`."""

from ctta.bench.executors import run_jobs as do_all
from ctta.errors import WorkerLost

__all__ = ["WorkerLost", "do_all"]
