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

from ctta._adapter.checkpoint import read, serialised
from ctta.errors import CttaError
from ctta.serve.audit import STREAM_FILE, read_audit
from ctta.serve.history import snapshot_file
from ctta.serve.index import folder_name, read_index
from ctta.serve.replay import replay, same_state
from ctta.serve.service import Service
from dying import PACKAGE, Lines
from hostile.tally import Tally
from serve.engine import LIMITS, ask, classifier, images, same, tent

LONG = 50
STREAMS = ("a", "b")
_LIMITS = replace(LIMITS, save_every=2, learn_share=0.5)
_KILLS_PER_FOLDER = 5
#: A whole run executes about 12,000 lines of ctta.serve, and takes its snapshots in the second half of them.
_LAST_LINE = 16_000


def main(count: int, seed: int) -> None:
    """Kill ``count`` services, each at a random line; raise if a resumed stream differs from its replay."""
    run(count, seed).report("kill_serves")


def run(count: int, seed: int) -> Tally:
    """The same, but return the tally."""
    torch.set_num_threads(1)
    tally, draw = Tally(), random.Random(seed)
    number = 0
    while tally.counts["killed"] < count:
        wanted = min(count, tally.counts["killed"] + _KILLS_PER_FOLDER)
        with tempfile.TemporaryDirectory() as name:
            folder = Path(name)
            while tally.counts["killed"] < wanted:
                number += 1
                killed = _in_a_process(folder, number, draw.randint(1, _LAST_LINE))
                tally.saw("killed" if killed else "ended before its line")
                _check_resumed(folder, tally)
            number += 1
            _in_a_process(folder, number, None)
            _check_replay(folder, tally)
    return tally


def _in_a_process(folder: Path, number: int, line: int | None) -> bool:
    """Serve in a separate process; return whether it was killed."""
    process = multiprocessing.get_context("fork").Process(target=_serve, args=(folder, number, line))
    process.start()
    process.join()
    assert process.exitcode in (0, -9), f"the service ended with exit code {process.exitcode}"
    return process.exitcode == -9


def _serve(folder: Path, number: int, line: int | None) -> None:
    torch.set_num_threads(1)
    threading.settrace(Lines(PACKAGE / "serve", line))
    service = _service(folder)

    def send(client: int) -> None:
        for i in range(8):
            seed = 1000 * number + 100 * client + i
            ask(service, images(1 + seed % 5, seed), STREAMS[client % 2], id=str(seed))

    clients = [threading.Thread(target=send, args=(client,)) for client in range(4)]
    for thread in clients:
        thread.start()
    for thread in clients:
        thread.join()
    service.close()


def _service(folder: Path) -> Service:
    return Service(classifier(), tent, name="tiny", state=folder / "state", record=folder / "record", limits=_LIMITS)


def _folder(folder: Path, stream: str) -> Path:
    return folder / "state" / "streams" / folder_name(stream)


def _check_resumed(folder: Path, tally: Tally) -> None:
    """After a kill the next service has every stream's last snapshot, bit for bit."""
    saved = {stream: read_index(_folder(folder, stream)) for stream in STREAMS}
    service = _service(folder)
    try:
        for stream, index in saved.items():
            if index is None or not index.entries:
                tally.saw("streams killed before their first snapshot")
                continue
            last = index.entries[-1].info.name
            service.state(stream)
            resumed = [line.snapshot for line in read_audit(_folder(folder, stream) / STREAM_FILE)][-1]
            state = read(snapshot_file(_folder(folder, stream), last))[1]
            learner = service._lanes[stream]._keeper.learner
            if resumed != last or learner is None or not same_state(learner.adapter.state_dict(), state):
                tally.problem(f"stream {stream} resumed from {resumed} and not from its last snapshot {last}")
            tally.saw("streams resumed from their last snapshot")
    finally:
        service.close()


def _check_replay(folder: Path, tally: Tally) -> None:
    for stream in STREAMS:
        try:
            found = replay(folder / "state", folder / "record", stream, classifier(), tent)
        except CttaError as error:
            tally.problem(f"stream {stream} cannot be replayed: {error}")
            continue
        if found.different or not found.compared:
            tally.problem(f"snapshots {found.different} of stream {stream} differ from the replay")
        service = _service(folder)
        try:
            if same(service.state(stream), serialised(found.learner.adapter.inner)):
                tally.saw("streams equal to their replay")
            else:
                tally.problem(f"stream {stream} ends in another state than its replay")
        finally:
            service.close()


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else LONG, seed=0)
