"""Contract points 5 and 15: no use of global random generators, files or the network."""

from __future__ import annotations

import builtins
import io
import os
import random
import socket
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any
from unittest import mock

import numpy as np
import safetensors.torch
import torch

from ctta.errors import ContractBroken
from ctta.testing.compare import difference
from ctta.testing.hints import global_state, moved, other_logits
from ctta.testing.subject import Subject, run


def seeded(subject: Subject) -> None:
    """5: the same seed gives the same outputs, and the global random generators stay unchanged.

    Args:
        subject: The adapter under test, with its model and images.
    """
    point = "5 seeded"
    batches = subject.batches(4)
    arguments = {"seed": 3} if subject.takes("seed") else {}
    outputs = []
    for seed in (11, 12):
        with _global_seed(seed):
            before = global_state()
            adapter = subject.build(**arguments)
            _check_untouched(point, "the constructor", before)
            first = run(adapter, batches)
            _check_untouched(point, "step", before)
            first.append(adapter.predict(batches[0]))
            _check_untouched(point, "predict", before)
            adapter.reset()
            _check_untouched(point, "reset", before)
            outputs.append(first)
    if found := difference(outputs[0], outputs[1], "logits"):
        # The global generators did not move: this was checked after every call.
        raise ContractBroken(point, "the same outputs from the same seed", other_logits(found, global_state()))


def constructor_reads_nothing(subject: Subject) -> None:
    """15: the constructor opens no file and no network connection.

    Args:
        subject: The adapter under test, with its model and images.
    """
    point = "15 constructor_reads_nothing"
    model = subject.source()
    # Build an optimizer first: torch lazily imports modules, which opens files, when the first one is built.
    torch.optim.Adam([torch.zeros(1, requires_grad=True)]).zero_grad()
    with _watched() as opened:
        try:
            subject.make(model)
        except OSError as error:
            opened.append(repr(error))
    if opened:
        raise ContractBroken(point, "a constructor that opens nothing", f"it opened {', '.join(opened[:5])}")


@contextmanager
def _global_seed(seed: int) -> Iterator[None]:
    """Seed the global random generators inside the context, and restore them afterwards."""
    torch_state, numpy_state, python_state = torch.get_rng_state(), np.random.get_state(), random.getstate()  # noqa: NPY002
    try:
        torch.manual_seed(seed)
        np.random.seed(seed)  # noqa: NPY002 - this check is about the global generator
        random.seed(seed)
        yield
    finally:
        torch.set_rng_state(torch_state)
        np.random.set_state(numpy_state)  # noqa: NPY002
        random.setstate(python_state)


def _check_untouched(point: str, what: str, before: dict[str, Any]) -> None:
    if found := moved(before):
        raise ContractBroken(point, f"{what} not to touch the global random generators", found)


@contextmanager
def _watched() -> Iterator[list[str]]:
    """List the files and connections that Python code opens inside the context; connections are also refused."""
    opened: list[str] = []

    def listed(name: str, function: Callable[..., Any]) -> Callable[..., Any]:
        def call(*args: Any, **kwargs: Any) -> Any:
            opened.append(f"{args[0]!r} by {name}" if args else name)
            return function(*args, **kwargs)

        return call

    def refused(name: str) -> Callable[..., Any]:
        def call(*args: Any, **kwargs: Any) -> Any:
            opened.append(f"a connection by {name}")
            raise OSError("an adapter's constructor must not use the network")

        return call

    files: list[tuple[Any, str]] = [
        (builtins, "open"),
        (io, "open"),
        (os, "open"),
        (torch, "load"),
        (safetensors.torch, "load_file"),
    ]
    network: list[tuple[Any, str]] = [
        (socket.socket, "connect"),
        (socket, "create_connection"),
        (socket, "getaddrinfo"),
    ]
    with ExitStack() as stack:
        for owner, name in files:
            stack.enter_context(mock.patch.object(owner, name, listed(name, getattr(owner, name))))
        for owner, name in network:
            stack.enter_context(mock.patch.object(owner, name, refused(name)))
        yield opened
