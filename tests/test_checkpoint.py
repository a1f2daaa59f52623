"""Saving and loading: complete, exact, atomic, and clear about what does not fit."""

from __future__ import annotations

import copy
import json
import multiprocessing
import os
import signal
from pathlib import Path

import pytest
import torch
from safetensors import safe_open
from safetensors.torch import save_file

import ctta
from ctta import errors
from ctta.augment import View
from ctta.registry import methods
from ctta.testing.compare import difference
from ctta.version import __version__
from reference import flip, net, projector, stream, vector
from saver import save_twice


def test_a_loaded_adapter_continues_bit_for_bit(tmp_path: Path) -> None:
    first = ctta.DMSE(net(), seed=3)
    x = stream()
    for batch in x[:4]:
        first(batch)
    first.save(tmp_path / "a.ctta")
    second = ctta.Adapter.load(tmp_path / "a.ctta", net())
    assert isinstance(second, ctta.DMSE) and second.settings["seed"] == 3 and second.steps == 4
    for batch in x[4:]:
        assert torch.equal(first(batch), second(batch))


@pytest.mark.parametrize("method", sorted(methods()))
def test_a_copy_of_an_adapter_is_saved_and_loaded_like_the_original(method: str, tmp_path: Path) -> None:
    adapter = methods()[method](net())
    for name, each in {"plain": adapter, "guarded": ctta.Guarded(adapter)}.items():
        copy.deepcopy(each).save(tmp_path / name)
        loaded = ctta.Adapter.load(tmp_path / name, net())
        assert type(loaded) is type(each) and difference(loaded.state_dict(), each.state_dict()) is None


def test_a_view_that_differs_from_the_default_is_still_asked_for(tmp_path: Path) -> None:
    ctta.DMSE(net(), view=View(noise=0.0)).save(tmp_path / "a.ctta")
    with pytest.raises(errors.CheckpointError, match="view=View"):
        ctta.Adapter.load(tmp_path / "a.ctta", net())
    ctta.Adapter.load(tmp_path / "a.ctta", net(), view=View(noise=0.0))


def test_a_file_carries_method_settings_source_and_versions_as_json_and_no_pickle(tmp_path: Path) -> None:
    adapter = ctta.Tent(net(), lr=0.01)
    adapter(stream()[0])
    adapter.save(tmp_path / "a.ctta")
    with safe_open(tmp_path / "a.ctta", framework="pt") as file:
        header = json.loads(file.metadata()["ctta"])
    assert header["method"] == "tent" and header["settings"]["lr"] == 0.01 and header["steps"] == 1
    assert header["source"] == ctta.Classifier(net()).digest()
    assert header["versions"]["ctta"] == __version__


def test_two_files_of_one_state_are_equal_byte_for_byte(tmp_path: Path) -> None:
    adapter = ctta.DMSE(net())
    adapter(stream()[0])
    contents = set()
    for i in range(16):
        adapter.save(tmp_path / f"{i}.ctta")
        contents.add((tmp_path / f"{i}.ctta").read_bytes())
    assert len(contents) == 1


def test_given_prototypes_come_back_from_the_file(tmp_path: Path) -> None:
    ctta.DMSE(net(), prototypes=vector("prototypes_src")).save(tmp_path / "a.ctta")
    assert torch.equal(ctta.DMSE.load(tmp_path / "a.ctta", net()).p_0, vector("prototypes_src"))


def test_other_source_weights_are_refused(tmp_path: Path) -> None:
    ctta.Tent(net()).save(tmp_path / "a.ctta")
    other = net()
    with torch.no_grad():
        other.fc.bias[0] += 1e-9
    with pytest.raises(errors.SourceMismatch, match=r"adapted from weights"):
        ctta.Adapter.load(tmp_path / "a.ctta", other)


def test_another_methods_file_is_refused(tmp_path: Path) -> None:
    ctta.Tent(net()).save(tmp_path / "a.ctta")
    with pytest.raises(errors.MethodMismatch, match=r"Tent, not of DMSE"):
        ctta.DMSE.load(tmp_path / "a.ctta", net())


def test_a_function_that_no_file_can_carry_must_be_given_again(tmp_path: Path) -> None:
    ctta.DMSE(net(), view=flip, projection=projector()).save(tmp_path / "a.ctta")
    with pytest.raises(errors.CheckpointError, match=r"view=flip|projection=Sequential"):
        ctta.DMSE.load(tmp_path / "a.ctta", net())
    ctta.DMSE.load(tmp_path / "a.ctta", net(), view=flip, projection=projector())


@pytest.mark.parametrize("content", [b"", b"not a checkpoint", b"<!doctype html><html></html>", b"\x00" * 100])
def test_a_foreign_file_is_named(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "a.ctta"
    path.write_bytes(content)
    with pytest.raises(errors.NotACheckpoint, match=r"a\.ctta"):
        ctta.Adapter.load(path, net())


@pytest.mark.parametrize("kept", [0.01, 0.3, 0.999])
def test_a_truncated_file_is_named(tmp_path: Path, kept: float) -> None:
    path = tmp_path / "a.ctta"
    ctta.Tent(net()).save(path)
    data = path.read_bytes()
    path.write_bytes(data[: int(kept * len(data))])
    with pytest.raises(errors.NotACheckpoint, match=r"not a whole safetensors file"):
        ctta.Adapter.load(path, net())


def test_safetensors_of_somebody_else_are_named(tmp_path: Path) -> None:
    save_file({"weight": torch.zeros(2)}, tmp_path / "w.safetensors")
    with pytest.raises(errors.NotACheckpoint, match=r"ctta did not write"):
        ctta.Adapter.load(tmp_path / "w.safetensors", net())


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(errors.NotACheckpoint, match=r"no checkpoint at"):
        ctta.Adapter.load(tmp_path / "nothing", net())


def test_a_failed_write_leaves_the_old_file_and_no_litter(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "a.ctta"
    adapter = ctta.Tent(net())
    adapter.save(path)
    before = path.read_bytes()

    def full_disk(descriptor: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full_disk)
    adapter(stream()[0])
    with pytest.raises(OSError, match="No space"):
        adapter.save(path)
    assert path.read_bytes() == before
    assert [p.name for p in tmp_path.iterdir()] == ["a.ctta"]


def test_saving_does_not_disturb_the_stream(tmp_path: Path) -> None:
    one, two = ctta.DMSE(net()), ctta.DMSE(net())
    for i, batch in enumerate(stream()):
        one.save(tmp_path / f"{i}.ctta")
        assert torch.equal(one(batch), two(batch))


def test_an_overridden_learning_rate_is_used_and_another_optimizer_refused(tmp_path: Path) -> None:
    adapter = ctta.Tent(net(), lr=1e-3)
    adapter(stream()[0])
    adapter.save(tmp_path / "a.ctta")
    faster = ctta.Tent.load(tmp_path / "a.ctta", net(), lr=0.1)
    assert faster._optimizer is not None and faster._optimizer.param_groups[0]["lr"] == 0.1
    adapter(stream()[1]), faster(stream()[1])
    assert not torch.equal(adapter(stream()[2]), faster(stream()[2]))
    with pytest.raises(errors.CheckpointError, match="another optimizer: Adam, not SGD"):
        ctta.Tent.load(tmp_path / "a.ctta", net(), optimizer="sgd")


def test_prototypes_cannot_be_replaced_on_load(tmp_path: Path) -> None:
    ctta.DMSE(net()).save(tmp_path / "a.ctta")
    with pytest.raises(errors.CheckpointError, match="prototypes is part of the saved state"):
        ctta.DMSE.load(tmp_path / "a.ctta", net(), prototypes=vector("prototypes_src"))


@pytest.mark.parametrize(
    ("saved", "into"),
    [("Tent", "EATA"), ("Tent", "BN"), ("Tent", "SAR"), ("Tent", "DMSE"), ("DMSE", "RMT"), ("SANTA", "RMT")],
)
def test_a_state_of_another_method_changes_nothing(saved: str, into: str) -> None:
    donor, adapter = getattr(ctta, saved)(net()), getattr(ctta, into)(net())
    donor(stream()[0]), adapter(stream()[1])
    before = adapter.state_dict()
    with pytest.raises(errors.CheckpointError, match=f"another method: {saved}, not {into}"):
        adapter.load_state_dict(donor.state_dict())
    after = adapter.state_dict()
    assert all(torch.equal(v, after[k]) for k, v in before.items() if isinstance(v, torch.Tensor))
    assert adapter.steps == 1


def test_a_state_of_other_source_weights_or_with_a_missing_entry_is_refused() -> None:
    other = net()
    with torch.no_grad():
        other.conv1.weight[0] += 1
    with pytest.raises(errors.CheckpointError, match="another source weights"):
        ctta.Tent(net()).load_state_dict(ctta.Tent(other).state_dict())
    state = ctta.DMSE(net()).state_dict()
    del state["p_0"]
    with pytest.raises(errors.CheckpointError, match=r"Missing: \['p_0'\]"):
        ctta.DMSE(net()).load_state_dict(state)


def test_a_state_in_single_precision_fits_an_adapter_in_double() -> None:
    single = ctta.RoTTA(net().float(), memory_size=16, update_every=16)
    single(stream()[0].float())
    double = ctta.RoTTA(net().float(), memory_size=16, update_every=16).double()
    double.load_state_dict(single.state_dict())
    torch.testing.assert_close(double(stream()[1]).float(), single(stream()[1].float()), rtol=0, atol=1e-3)


def test_a_method_that_is_not_registered_loads_itself(tmp_path: Path) -> None:
    class Mine(ctta.Tent):
        pass

    Mine(net()).save(tmp_path / "a.ctta")
    assert isinstance(Mine.load(tmp_path / "a.ctta", net()), Mine)


@pytest.mark.parametrize("header", ["[1]", '{"format": 1}', '{"format": 99}', "nonsense"])
def test_a_header_that_is_not_ours_is_named(tmp_path: Path, header: str) -> None:
    save_file({"weight": torch.zeros(2)}, tmp_path / "w.safetensors", metadata={"ctta": header})
    with pytest.raises(errors.NotACheckpoint, match=r"w\.safetensors"):
        ctta.Adapter.load(tmp_path / "w.safetensors", net())


@pytest.mark.trial
@pytest.mark.slow
def test_a_process_killed_while_saving_leaves_a_complete_state(tmp_path: Path) -> None:
    """SIGKILL at every line that writes the file: it holds the state before or after, and resumes from there."""
    lines = save_twice(str(tmp_path / "whole.ctta"))
    x, truth = stream(), ctta.DMSE(net(), seed=5)
    answers = [truth(x[0]), truth(x[1])]
    # A fork server with torch imported starts the processes: each is ready in milliseconds and has one thread.
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["saver", "ctta.methods", "ctta._adapter.checkpoint", "torch._dynamo"])
    found = []
    for line in range(1, lines + 1):
        path = tmp_path / str(line) / "a.ctta"
        victim = context.Process(target=save_twice, args=(str(path), line))
        victim.start()
        victim.join()
        assert victim.exitcode == -signal.SIGKILL
        loaded = ctta.Adapter.load(path, net())
        steps = loaded.steps
        assert torch.equal(loaded(x[steps]), answers[steps])
        found.append(steps)
    assert found == sorted(found) and set(found) == {0, 1}


def test_a_file_of_the_first_format_is_still_read() -> None:
    expected = ctta.RoTTA(net(), memory_size=4, update_every=16, seed=3)
    for batch in stream()[:3]:
        expected(batch)
    loaded = ctta.Adapter.load(Path(__file__).parent / "data" / "format1_rotta.ctta", net())
    assert isinstance(loaded, ctta.RoTTA) and loaded.steps == 3
    for batch in stream()[3:]:
        torch.testing.assert_close(loaded(batch), expected(batch), rtol=0, atol=1e-9)


def test_a_flipped_bit_anywhere_in_the_tensors_is_named(tmp_path: Path) -> None:
    path = tmp_path / "a.ctta"
    ctta.Tent(net()).save(path)
    data = bytearray(path.read_bytes())
    data[-100] ^= 1
    path.write_bytes(data)
    with pytest.raises(errors.NotACheckpoint, match="does not match its digest"):
        ctta.Adapter.load(path, net())


@pytest.mark.parametrize(
    "damage",
    [
        {"generator": torch.zeros(3, dtype=torch.uint8)},
        {"steps": None, "optimizer": {"state": 3}},
        {"optimizer": {"state": {0: {"step": "x"}, 99: {}}}},
        {"initial": 5},
        {"transient": {"nothing": torch.zeros(1)}},
    ],
    ids=["generator", "optimizer", "moments", "initial", "transient"],
)
def test_a_damaged_state_changes_nothing_counters_included(damage: dict[str, object]) -> None:
    adapter, donor = ctta.DMSE(net()), ctta.DMSE(net())
    adapter(stream()[0])
    for batch in stream()[:3]:
        donor(batch)
    before, state = adapter.state_dict(), donor.state_dict()
    state["_extra_state"] |= damage
    with pytest.raises(errors.CheckpointError, match="does not fit DMSE, or is damaged"):
        adapter.load_state_dict(state)
    assert difference(before, adapter.state_dict()) is None


class _Odd(torch.nn.Module):
    """bf16 convolutions between float32 norms, a shared layer, buffers that are not saved, and extra state."""

    def __init__(self) -> None:
        super().__init__()
        generator = torch.Generator().manual_seed(0)
        self.conv = torch.nn.Conv2d(3, 8, 3, padding=1, bias=False).bfloat16()
        self.norm = torch.nn.BatchNorm2d(8)
        self.block = torch.nn.Conv2d(8, 8, 1)
        self.again = self.block
        self.head = torch.nn.Linear(8, 10)
        self.register_buffer("mask", torch.ones(8, 1, 1), persistent=False)
        self.register_buffer("written", torch.zeros(()), persistent=False)
        self.register_buffer("calls", torch.zeros((), dtype=torch.long))
        self.scale = 2.0
        for parameter in self.parameters():
            parameter.data = torch.randn(parameter.shape, generator=generator).to(parameter.dtype) / 3

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.calls += 1
        self.written = 0.5 * self.written + x.mean().detach()
        x = self.norm(self.conv(x.bfloat16()).float()) * self.mask
        x = self.again(self.block(x).relu()).relu().mean((2, 3)) * self.scale + self.written
        return self.head(x)

    def get_extra_state(self) -> dict[str, object]:
        return {"scale": self.scale, "table": torch.arange(3), "raw": b"\x00\x01"}

    def set_extra_state(self, state: dict[str, object]) -> None:
        assert isinstance(state["scale"], float) and state["raw"] == b"\x00\x01"
        self.scale = state["scale"]


def test_mixed_precision_shared_layers_unsaved_buffers_and_extra_state_come_back(tmp_path: Path) -> None:
    x = torch.rand(6, 8, 3, 8, 8, generator=torch.Generator().manual_seed(1))
    adapter = ctta.RMT(_Odd(), lr=0.01)
    for batch in x[:3]:
        adapter(batch)
    adapter.save(tmp_path / "a.ctta")
    loaded = ctta.Adapter.load(tmp_path / "a.ctta", _Odd())
    assert difference(adapter.state_dict(), loaded.state_dict()) is None
    assert loaded.student.model.conv.weight.dtype == torch.bfloat16
    for batch in x[3:]:
        assert torch.equal(loaded(batch), adapter(batch))


def test_predict_leaves_no_trace_in_buffers_that_the_forward_pass_writes() -> None:
    adapter = ctta.RMT(_Odd())
    x = torch.rand(8, 3, 8, 8, generator=torch.Generator().manual_seed(1))
    adapter(x)
    before = adapter.state_dict()
    assert torch.equal(adapter.predict(x), adapter.predict(x))
    assert difference(before, adapter.state_dict()) is None


def test_extra_state_that_no_file_can_carry_is_refused_before_anything_is_written(tmp_path: Path) -> None:
    class Opaque(_Odd):
        def get_extra_state(self) -> dict[str, object]:
            return {"function": flip}

    adapter = ctta.RMT(Opaque())
    with pytest.raises(errors.CheckpointError, match=r"holds a function, which could not be loaded again"):
        adapter.save(tmp_path / "a.ctta")
    assert list(tmp_path.iterdir()) == []
