"""Short forms of the long trials of checkpoints and interrupted steps."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from ctta._adapter.savepoint import Savepoint
from ctta.registry import methods
from hostile.checkpoints import DAMAGES, Damage, saved_files, survives
from hostile.interrupts import interrupted_step_is_whole


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    return saved_files(tmp_path_factory.mktemp("checkpoints"))


@pytest.mark.parametrize("damage", DAMAGES, ids=lambda damage: damage.__name__)
def test_a_damaged_checkpoint_is_refused_by_name_or_unchanged(files: list[Path], damage: Damage) -> None:
    chance = random.Random(1)
    for file in files:
        survives(file, damage, chance)


@pytest.mark.parametrize("method", sorted(methods()))
def test_a_step_interrupted_at_any_line_is_undone_or_finished(method: str) -> None:
    chance = random.Random(2)
    for _ in range(4):
        interrupted_step_is_whole(method, chance)


def test_the_trial_of_interrupts_finds_a_torn_state(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Savepoint, "put_back", lambda self: None)
    chance = random.Random(3)
    with pytest.raises(AssertionError, match="interrupted at line"):
        for _ in range(40):
            interrupted_step_is_whole("rotta", chance)
