"""The test device keeps its tensors apart from the CPU's, so that a mistake cannot go unnoticed."""

from __future__ import annotations

import copy

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import nn


def numbers(*shape: int) -> torch.Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(0))


MIXTURES = {
    "add": lambda here, there: here + there,
    "add the other way": lambda here, there: there + here,
    "add in place": lambda here, there: here.add_(there),
    "add a scalar of the device to the CPU": lambda here, there: there + here[0, 0],
    "add to the CPU in place": lambda here, there: there[0, 0].add_(here[0, 0]),
    "matmul": lambda here, there: here @ there.mT,
    "cat": lambda here, there: torch.cat([here, there]),
    "stack": lambda here, there: torch.stack([there, here]),
    "where": lambda here, there: torch.where(there > 0, here, 0.0),
    "lerp": lambda here, there: here.lerp(there, 0.5),
    "equal": torch.equal,
    "compare": lambda here, there: here == there,
    "index_add": lambda here, there: here.index_add(0, torch.arange(3), here),
    "gather": lambda here, there: here.gather(1, torch.zeros(3, 1, dtype=torch.long)),
    "index the CPU": lambda here, there: there[torch.arange(2, device=here.device)],
    "mask the CPU": lambda here, there: there[here > 0],
    "put CPU values": lambda here, there: here.index_put_((torch.arange(3),), there),
    "foreach": lambda here, there: torch._foreach_lerp_([here], [there], 0.5),
    "linear": F.linear,
    "layer of the CPU": lambda here, there: nn.Linear(4, 2)(here),
    "batch norm of the CPU": lambda here, there: nn.BatchNorm1d(4)(here),
    "cross-entropy": lambda here, there: F.cross_entropy(here, torch.zeros(3, dtype=torch.long)),
}

READS = {
    "numpy": lambda here: here.numpy(),
    "numpy of a copy": lambda here: here.detach().clone().numpy(),
    "np.asarray": np.asarray,
    "data_ptr": lambda here: here.data_ptr(),
    "CPU generator, in place": lambda here: here.uniform_(generator=torch.Generator()),
    "CPU generator, factory": lambda here: torch.rand(3, device=here.device, generator=torch.Generator()),
    "no generator": torch.rand_like,
    "dropout": lambda here: F.dropout(here, 0.5),
}

ALLOWED = {
    "0-dim CPU tensor": lambda here, there: here + there[0, 0],
    "where with a 0-dim CPU tensor": lambda here, there: torch.where(here > 0, here, there[0, 0]),
    "CPU index": lambda here, there: here[torch.tensor([2, 0])],
    "CPU mask": lambda here, there: here[torch.tensor([True, False, True])],
    "put at a CPU index": lambda here, there: here.clone().index_put_((torch.arange(3),), here),
}


@pytest.mark.parametrize("mix", MIXTURES)
def test_it_refuses_tensors_of_both_devices(device: torch.device, mix: str) -> None:
    with pytest.raises(RuntimeError, match="same device"):
        MIXTURES[mix](numbers(3, 4).to(device), numbers(3, 4))


@pytest.mark.parametrize("read", READS)
def test_it_refuses_the_hosts_memory_and_generators(device: torch.device, read: str) -> None:
    with pytest.raises((RuntimeError, TypeError)):
        READS[read](numbers(3, 4).to(device))


@pytest.mark.parametrize("case", ALLOWED)
def test_it_allows_what_a_gpu_allows(device: torch.device, case: str) -> None:
    there = numbers(3, 4)
    found = ALLOWED[case](there.to(device), there)
    assert found.device == device
    assert torch.equal(found.cpu(), ALLOWED[case](there, there))


def test_a_mixture_deep_inside_a_network_is_found(device: torch.device) -> None:
    model = nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4)).to(device)
    x = torch.rand(2, 3, 8, 8).to(device)
    assert model(x).device == device
    model[1].running_mean = model[1].running_mean.cpu()
    with pytest.raises(RuntimeError, match="same device"):
        model(x)


def test_factories_copies_and_reads_go_where_they_are_told(device: torch.device) -> None:
    x = numbers(3, 4)
    here = x.to(device)
    assert here.to(device) is here
    assert torch.arange(3, device=device).device == here.new_zeros(2).device == device
    assert torch.tensor([1.0], device=device).device == here.new_tensor(2.0).device == device
    assert torch.zeros_like(here, device="cpu").device.type == here.cpu().device.type == "cpu"
    assert here.tolist() == x.tolist()
    assert here[1, 2].item() == x[1, 2].item()
    there = torch.zeros(3, 4)
    there.copy_(here)
    assert torch.equal(there, x)
    here[0] = torch.ones(4)
    assert here[0].tolist() == [1.0] * 4
    assert not torch.equal(here.cpu(), x)


def test_a_view_shares_its_memory(device: torch.device) -> None:
    here = torch.zeros(2, 3, device=device)
    here.view(-1)[4] = 1.0
    here.mT[0].add_(2.0)
    assert here.tolist() == [[2.0, 0.0, 0.0], [2.0, 1.0, 0.0]]


def test_training_gives_the_numbers_of_the_cpu(device: torch.device) -> None:
    build = lambda: nn.Sequential(nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8), nn.ReLU(), nn.Flatten(), nn.Linear(288, 5))  # noqa: E731
    there = build()
    here = copy.deepcopy(there)
    optimizers = [torch.optim.Adam(model.parameters(), foreach=True) for model in (there, here)]
    identity = [id(p) for p in here.parameters()]
    here.to(device)  # after the optimizer, which must keep using the same parameters
    assert [id(p) for p in here.parameters()] == identity
    x, y = torch.rand(4, 3, 8, 8), torch.arange(4)
    for _ in range(2):
        F.cross_entropy(there(x), y).backward()
        F.cross_entropy(here(x.to(device)), y.to(device)).backward()
        for optimizer in optimizers:
            optimizer.step()
            optimizer.zero_grad()
    for a, b in zip(there.parameters(), here.parameters(), strict=True):
        assert b.device == device
        assert torch.equal(a, b.cpu())
    here.to("cpu")
    assert [id(p) for p in here.parameters()] == identity
    assert all(type(p) is nn.Parameter for p in here.parameters())
