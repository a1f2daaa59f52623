"""The example runs as a user would run it."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

EXAMPLE = Path(__file__).parents[1] / "examples" / "adapt_my_model.py"


def test_the_example_runs_and_resumes_bit_for_bit() -> None:
    run = subprocess.run([sys.executable, str(EXAMPLE)], capture_output=True, text=True, check=False)
    assert run.returncode == 0, run.stderr
    assert "the predictions are the same, bit for bit" in run.stdout
    assert run.stdout.count("alpha") == 3
