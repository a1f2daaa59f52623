"""ctta train: the model file, and what is printed about it."""

from __future__ import annotations

import json
from pathlib import Path

from cli.command import ctta


def test_train_digits_writes_a_model_and_says_its_error(tmp_path: Path) -> None:
    result = ctta("train", "digits", "--out", str(tmp_path / "m.safetensors"), "--passes", "1", "--json", "--quiet")
    assert result.exit_code == 0, result.output
    said = json.loads(result.stdout)
    assert said["file"] == str(tmp_path / "m.safetensors")
    assert 0 <= said["clean_error"] <= 100
