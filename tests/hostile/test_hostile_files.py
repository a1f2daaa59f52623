"""Short forms of the long trials of data files, records and killed runs."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from hostile import data_files, records
from hostile.tally import Tally

pytestmark = pytest.mark.trial


def test_damaged_data_files_are_named_or_have_another_digest() -> None:
    tally = data_files.run(150, seed=1)
    tally.report("data_files")
    assert tally.counts["BadData"] > 50


def test_the_trial_of_data_files_sees_a_digest_that_does_not_change(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(data_files, "digest_of", lambda images: "constant")
    monkeypatch.setattr(data_files, "digest_of_domains", lambda domains: "constant")
    assert any("same digest" in problem for problem in data_files.run(150, seed=1).problems)


def test_damaged_records_and_logs_are_named_or_unchanged() -> None:
    tally = records.run(30, seed=1)
    tally.report("records")
    assert tally.counts["record: BadData"] and tally.counts["log: BadData"]


@pytest.mark.slow
def test_a_killed_run_loses_nothing() -> None:
    # In a process of its own, because it forks.
    places = os.pathsep.join([str(Path(__file__).parent.parent), os.environ.get("PYTHONPATH", "")])
    command = [sys.executable, "-m", "hostile", "kill_runs", "--count", "2", "--seed", "1"]
    done = subprocess.run(command, env=os.environ | {"PYTHONPATH": places}, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


def test_a_problem_fails_the_trial() -> None:
    tally = Tally()
    tally.problem("torn")
    with pytest.raises(AssertionError, match="torn"):
        tally.report("any")
