"""Short forms of the long trials of checkpoints and interrupted steps."""

from __future__ import annotations

import random
from pathlib import Path

import pytest
import torch

import ctta
from ctta._adapter.savepoint import Savepoint
from ctta.guard import Watch
from ctta.registry import methods
from ctta.testing.compare import difference
from ctta.testing.models import bn_cnn
from hostile.checkpoints import DAMAGES, Damage, saved_files, survives
from hostile.interrupts import ask_and_forget, ask_and_learn, interrupted_call_is_whole, step

pytestmark = pytest.mark.trial


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
    for call in (step, step, ask_and_learn, ask_and_forget):
        interrupted_call_is_whole(method, chance, call)


@pytest.mark.parametrize("method", ["dmse", "rotta", "tent"])
def test_an_interrupted_step_with_a_guard_is_undone_or_finished(method: str) -> None:
    chance = random.Random(4)
    for call in (step, step, ask_and_learn, ask_and_forget):
        interrupted_call_is_whole(method, chance, call, guarded=True)


def test_an_interrupt_while_the_guard_decides_undoes_the_learning_too(monkeypatch: pytest.MonkeyPatch) -> None:
    adapter = ctta.Guarded(ctta.Tent(bn_cnn(), lr=0.01))
    first, second = torch.rand(2, 4, 3, 16, 16, generator=torch.Generator().manual_seed(0))
    adapter.step(first)
    before = adapter.state_dict()

    def interrupt(*given: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(Watch, "observe", interrupt)
    with pytest.raises(KeyboardInterrupt):
        adapter.step(second)
    monkeypatch.undo()
    assert difference(before, adapter.state_dict()) is None
    adapter.step(second)
    assert difference(before, adapter.state_dict()) is not None


def test_the_trial_of_interrupts_finds_a_torn_state(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Savepoint, "put_back", lambda self: None)
    chance = random.Random(3)
    with pytest.raises(AssertionError, match="interrupted at line"):
        for _ in range(40):
            interrupted_call_is_whole("rotta", chance)
