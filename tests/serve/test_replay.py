"""Replays of streams with uploads and rollbacks, of streams that were killed early, and of the wrong ones."""

from __future__ import annotations

import copy
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
import torch

import ctta
from ctta._adapter.checkpoint import serialised
from ctta.adapter import Adapter
from ctta.errors import MethodMismatch, MissingData, SourceMismatch
from ctta.serve.index import folder_name, stream_of
from ctta.serve.replay import replay
from serve.engine import LIMITS, ask, classifier, images, same, serving, tent


def test_an_upload_is_replayed_after_its_snapshot_was_deleted(tmp_path: Path) -> None:
    state, record = tmp_path / "state", tmp_path / "record"
    uploaded = tent(classifier())
    uploaded.step(images(8, 9))
    with serving(state, record=record, limits=replace(LIMITS, keep=1)) as service:
        ask(service, images(8))
        service.put_state("cam", serialised(uploaded))
        for i in range(3):
            ask(service, images(8, i))
            service.snapshot("cam")
        kept = service.state("cam")
    found = replay(state, record, "cam", classifier(), tent)
    assert found.different == () and len(found.compared) == 1
    assert same(serialised(found.learner.adapter.inner), kept)
    (upload,) = (record / "cam").glob("*.safetensors")
    upload.unlink()
    with pytest.raises(MissingData, match="replaced the state with an uploaded one, which is needed"):
        replay(state, record, "cam", classifier(), tent)


def test_an_upload_to_a_stream_in_shadow_mode_is_replayed(tmp_path: Path) -> None:
    state, record = tmp_path / "state", tmp_path / "record"
    with serving(state, record=record) as service:
        ask(service, images(8))
        data = service.state("cam")
        ask(service, images(8, 1))
        service.set_mode("cam", "shadow")
        service.put_state("cam", data)
        ask(service, images(8, 2))
    assert replay(state, record, "cam", classifier(), tent).different == ()


def test_rollbacks_that_left_the_mode_are_replayed(tmp_path: Path) -> None:
    state, record = tmp_path / "state", tmp_path / "record"
    with serving(state, record=record) as service:
        ask(service, images(8))
        first = service.snapshot("cam").name
        service.set_mode("cam", "shadow")
        ask(service, images(8, 1))
        second = service.snapshot("cam").name
        for mode, name in (("frozen", first), ("shadow", first), ("adapt", second), ("frozen", second)):
            service.set_mode("cam", mode)  # type: ignore[arg-type]
            service.rollback("cam", name)
            ask(service, images(8, 2))
        service.set_mode("cam", "adapt")
        ask(service, images(8, 3))
    found = replay(state, record, "cam", classifier(), tent)
    assert found.different == () and len(found.compared) >= 8


@pytest.mark.parametrize("stream", ["cam", "é/" * 64])
@pytest.mark.parametrize("older", [False, True])
def test_a_stream_that_was_killed_before_its_first_snapshot_is_replayed_from_the_source(
    tmp_path: Path, stream: str, older: bool
) -> None:
    alone = tent(classifier())
    with serving(tmp_path / "state", record=tmp_path / "record") as service:
        for i in range(3):
            ask(service, images(8, i), stream)
            alone.step(images(8, i))
        service.state(stream)
        service._lanes[stream]._history.settle()
        # What a killed process leaves behind.
        shutil.copytree(tmp_path / "state", tmp_path / "killed")
    folder = tmp_path / "killed" / "streams" / folder_name(stream)
    if older:  # versions that wrote the index with the first snapshot
        (folder / "snapshots.json").unlink()
    assert stream_of(folder) == (None if older and stream != "cam" else stream)
    found = replay(tmp_path / "killed", tmp_path / "record", stream, classifier(), tent)
    assert (found.learnt, found.compared) == (3, ())
    assert same(serialised(found.learner.adapter.inner), serialised(alone))
    with serving(tmp_path / "killed") as service:
        assert [status.steps for status in service.streams()] == ([] if older else [0])


@pytest.mark.parametrize(("error", "make"), [(MethodMismatch, ctta.BN), (SourceMismatch, tent)])
def test_a_replay_with_another_method_or_source_is_refused(
    tmp_path: Path, error: type[Exception], make: Callable[[ctta.Classifier], Adapter]
) -> None:
    with serving(tmp_path / "state", record=tmp_path / "record") as service:
        ask(service, images(8))
    other = copy.deepcopy(classifier())
    if error is SourceMismatch:
        with torch.no_grad():
            next(other.parameters()).add_(1)
    with pytest.raises(error, match="Give the method, the model and the weights that the service had"):
        replay(tmp_path / "state", tmp_path / "record", "cam", other, make)
