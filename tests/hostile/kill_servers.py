"""`ctta serve` killed under load over HTTP: the next one resumes from the last snapshots, and a replay equals it."""

from __future__ import annotations

import json
import os
import random
import re
import select
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from ctta.serve.audit import Line, read_stream
from ctta.serve.index import folder_name, read_index
from hostile.tally import Tally
from serve.test_serve_command import Client

LONG = 50
STREAM = "load"
#: Seconds after which a service is killed, at most; the first few go into its start.
_LAST_MOMENT = 12.0
_CTTA = [sys.executable, "-c", "from ctta.cli import main; main()"]
_METHOD = ("--model", "digits_resnet8", "--recipe", "digits")


def main(count: int, seed: int) -> None:
    """Kill ``count`` services, each at a random moment; raise if one does not resume, or differs from its replay."""
    tally, draw = Tally(), random.Random(seed)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        for _ in range(count):
            _serve(folder, tally, draw.uniform(0.5, _LAST_MOMENT))
        _serve(folder, tally, None)
        _check_replay(folder, tally)
    tally.report("kill_servers")


def _serve(folder: Path, tally: Tally, moment: float | None) -> None:
    """Serve until a moment, in seconds, or until an orderly end; then check from where it had resumed."""
    saved = _last_snapshot(folder)
    lines = _lines(folder)
    options = ("tent", *_METHOD, "--state", folder / "state", "--record", folder / "record", "--name", "digits")
    words = [*_CTTA, "serve", *map(str, options), "--save-every", "3", "--keep", "10000", "--listen", "127.0.0.1:0"]
    child = subprocess.Popen(words, stderr=subprocess.PIPE, text=True, env=os.environ | {"OMP_NUM_THREADS": "1"})
    dies = time.monotonic() + (moment or 60.0)
    try:
        if (port := _port(child, dies)) is None:
            tally.saw("killed while they started")
            return
        clients = [Client(port, number) for number in range(4)]
        for client in clients:
            client.start()
        if moment is None:
            for client in clients:
                assert client.busy.wait(60.0)
            child.send_signal(signal.SIGTERM)
            assert child.wait(60.0) == -signal.SIGTERM
        else:
            time.sleep(max(0.0, dies - time.monotonic()))
            tally.saw("killed under load" if any(client.answered for client in clients) else "killed when idle")
    finally:
        child.kill()
        child.wait()
        assert child.stderr is not None
        child.stderr.close()
    new = [line for line in _lines(folder)[len(lines) :] if line.do in ("start", "resume")]
    if new and new[0].snapshot != saved:
        tally.problem(f"resumed from {new[0].snapshot} and not from the last snapshot {saved}")
    tally.saw("resumed from their last snapshot" if new and saved else "had no snapshot, or no request")


def _port(child: subprocess.Popen[str], until: float) -> int | None:
    """The port that a service listens on; None if it is time to kill it first."""
    assert child.stderr is not None
    ready, _, _ = select.select([child.stderr], [], [], max(0.0, until - time.monotonic()))
    found = re.search(r" at http://127\.0\.0\.1:(\d+)$", child.stderr.readline().rstrip()) if ready else None
    return None if found is None else int(found[1])


def _folder(folder: Path) -> Path:
    return folder / "state" / "streams" / folder_name(STREAM)


def _last_snapshot(folder: Path) -> str | None:
    index = read_index(_folder(folder)) if _folder(folder).exists() else None
    return None if index is None or not index.entries else index.entries[-1].info.name


def _lines(folder: Path) -> list[Line]:
    return list(read_stream(_folder(folder))) if _folder(folder).exists() else []


def _check_replay(folder: Path, tally: Tally) -> None:
    words = [*_CTTA, "replay", str(_folder(folder)), str(folder / "record"), "--method", "tent", *_METHOD, "--json"]
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    if done.returncode:
        tally.problem(f"the stream cannot be replayed: {done.stdout} {done.stderr}")
        return
    found = json.loads(done.stdout)
    if found["different"] or not found["compared"]:
        tally.problem(f"snapshots {found['different']} differ from the replay")
    tally.saw("streams equal to their replay")


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else LONG, seed=0)
