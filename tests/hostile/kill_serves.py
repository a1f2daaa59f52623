"""Services killed under load: the next one resumes from the last snapshot, and a replay of the audit equals it."""

from __future__ import annotations

import multiprocessing
import random
import sys
import tempfile
import threading
from dataclasses import replace
from pathlib import Path

import torch

from ctta._adapter.checkpoint import serialised
from ctta.errors import CttaError
from ctta.serve.replay import replay
from ctta.serve.service import Service
from dying import PACKAGE, Lines
from hostile.tally import Tally
from serve.engine import LIMITS, ask, classifier, images, same, tent

LONG = 50
STREAMS = ("a", "b")
_LIMITS = replace(LIMITS, save_every=2, learn_share=0.5)
_KILLS_PER_FOLDER = 5
_LAST_LINE = 4000


def main(count: int, seed: int) -> None:
    """Kill ``count`` services, each at a random line; raise if a resumed stream differs from its replay."""
    run(count, seed).report("kill_serves")


def run(count: int, seed: int) -> Tally:
    """The same, with what was found."""
    torch.set_num_threads(1)
    tally, draw = Tally(), random.Random(seed)
    context = multiprocessing.get_context("fork")
    for first in range(0, count, _KILLS_PER_FOLDER):
        with tempfile.TemporaryDirectory() as name:
            folder = Path(name)
            for i in range(first, min(first + _KILLS_PER_FOLDER, count)):
                process = context.Process(target=_serve, args=(folder, i, draw.randint(1, _LAST_LINE)))
                process.start()
                process.join()
                tally.saw("killed" if process.exitcode == -9 else f"ended with exit code {process.exitcode}")
            process = context.Process(target=_serve, args=(folder, count + first, None))
            process.start()
            process.join()
            _check(folder, tally)
    return tally


def _serve(folder: Path, seed: int, line: int | None) -> None:
    torch.set_num_threads(1)
    threading.settrace(Lines(PACKAGE / "serve", line))
    service = Service(classifier(), tent, name="tiny", state=folder / "state", record=folder / "record", limits=_LIMITS)

    def send(client: int) -> None:
        for i in range(8):
            number = 1000 * seed + 100 * client + i
            ask(service, images(1 + number % 5, number), STREAMS[client % 2], id=str(number))

    clients = [threading.Thread(target=send, args=(client,)) for client in range(4)]
    for thread in clients:
        thread.start()
    for thread in clients:
        thread.join()
    service.close()


def _check(folder: Path, tally: Tally) -> None:
    for stream in STREAMS:
        try:
            found = replay(folder / "state", folder / "record", stream, classifier(), tent)
        except CttaError as error:
            tally.problem(f"stream {stream} cannot be replayed: {error}")
            continue
        if found.different:
            tally.problem(f"snapshots {found.different} of stream {stream} differ from the replay")
        service = Service(classifier(), tent, name="tiny", state=folder / "state", limits=_LIMITS)
        try:
            if same(service.state(stream), serialised(found.learner.adapter.inner)):
                tally.saw("streams equal to their replay")
            else:
                tally.problem(f"stream {stream} ends in another state than its replay")
        finally:
            service.close()


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else LONG, seed=0)
