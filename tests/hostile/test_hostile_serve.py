"""Short forms of the long trials of a service."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest


@pytest.mark.serve
@pytest.mark.parametrize(("trial", "count"), [("kill_serves", "3"), ("kill_servers", "2"), ("many_requests", "400")])
def test_a_trial_of_a_service_passes(trial: str, count: str) -> None:
    # In a process of its own, because it forks, or counts what the process holds.
    places = os.pathsep.join([str(Path(__file__).parent.parent), *sys.path])
    command = [sys.executable, "-m", "hostile", trial, "--count", count, "--seed", "5"]
    done = subprocess.run(command, env=os.environ | {"PYTHONPATH": places}, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
