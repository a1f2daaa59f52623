"""A process that adapts and saves until it is killed."""

from __future__ import annotations

from multiprocessing.connection import Connection

import torch

import ctta
from reference import net, stream


def save_for_ever(path: str, ready: Connection) -> None:
    torch.set_num_threads(1)
    adapter, x = ctta.DMSE(net(), seed=5), stream()
    adapter.save(path)
    ready.send("ready")
    while True:
        adapter(x[adapter.steps % len(x)])
        adapter.save(path)
