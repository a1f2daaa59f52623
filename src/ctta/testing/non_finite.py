"""Contract point 10: NaN and Inf in images, losses and gradients."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Literal

import torch
from torch import Tensor, nn

from ctta.adapter import Adapter
from ctta.classifier import Classifier
from ctta.errors import ContractBroken, NonFiniteImages
from ctta.testing.compare import difference
from ctta.testing.subject import Subject

_POINT = "10 accidents_do_not_reach_weights"
_MOST = 6


def accidents_do_not_reach_weights(subject: Subject) -> None:
    """10: NaN in an image, loss or gradient never reaches the weights; a dropped step is counted in ``skipped``.

    Buffers that the model's forward pass updates itself may change in a dropped step, in which it has run.

    Args:
        subject: The adapter under test, with its model and images.
    """
    with _quiet():
        _broken_images(subject)
        _broken_losses(subject)


def _broken_images(subject: Subject) -> None:
    good, other = subject.batches(2)
    some, every = other.clone(), torch.full_like(other, float("nan"))
    some[1, 0, 0, 0], some[2, 0, 1, 1] = float("nan"), float("inf")

    adapter = subject.build()
    adapter.step(good)
    before = adapter.state_dict()
    try:
        adapter.step(some)
    except NonFiniteImages:
        pass
    except Exception as error:
        raise ContractBroken(_POINT, "NonFiniteImages for NaN images", repr(error)) from error
    else:
        raise ContractBroken(_POINT, "NonFiniteImages for NaN images", "no error")
    if found := difference(before, adapter.state_dict()):
        raise ContractBroken(_POINT, "a rejected batch to leave the state unchanged", found)

    if not subject.takes("invalid"):
        return
    adapter = subject.build(invalid="answer")
    adapter.step(good)
    before = adapter.state_dict()
    for images in (some, every):
        logits = adapter.step(images).logits
        if len(logits) != len(images) or not logits.isfinite().all():
            raise ContractBroken(_POINT, 'finite logits for every image with invalid="answer"', f"{logits}")
        if found := difference(before, adapter.state_dict()):
            raise ContractBroken(_POINT, 'no learning from NaN images with invalid="answer"', found)


class Fault:
    """Injects NaN or Inf into chosen forward passes of a classifier and all its copies."""

    def __init__(self) -> None:
        self.target: Literal["logits", "gradient"] = "logits"
        self.faulty: set[int] | None = set()
        self.calls = 0

    def __deepcopy__(self, memo: dict[int, Any]) -> Fault:
        return self

    def hook(self, module: nn.Module, args: tuple[Any, ...], logits: Tensor) -> Tensor:
        """Inject the fault into this pass, if it is one of those that were chosen: a forward hook.

        Args:
            module: The classifier.
            args: Its inputs.
            logits: Its output.
        """
        now, self.calls = self.calls, self.calls + 1
        if self.faulty is not None and now not in self.faulty:
            return logits
        if self.target == "logits":
            return logits * float("nan")
        if logits.requires_grad:
            logits.register_hook(lambda gradient: gradient * float("inf"))  # type: ignore[no-untyped-call]
        return logits

    @contextmanager
    def at(self, calls: set[int] | None, target: Literal["logits", "gradient"]) -> Iterator[None]:
        """Inject the fault into some forward passes inside the context.

        Args:
            calls: The passes, counted from 0; None means all.
            target: What is not finite: the logits, or their gradient.
        """
        self.target, self.faulty, self.calls = target, calls, 0
        yield
        self.faulty, self.calls = set(), 0


def _broken_losses(subject: Subject) -> None:
    fault, source = Fault(), subject.classifier()
    source.register_forward_hook(fault.hook)
    adapter = subject.make(source)
    batches = subject.batches(8)
    # The first step also verifies a guessed head, so it must run without a fault.
    adapter.step(batches[0])
    with fault.at(set(), "logits"):
        adapter.step(batches[1])
        passes = fault.calls
    one_by_one = [{i} for i in sorted({*range(min(passes, _MOST)), passes - 1})]
    targets: tuple[Literal["logits", "gradient"], ...] = ("logits", "gradient")
    for target in targets:
        for number, calls in enumerate([None, *one_by_one]):
            where = f"{target} of {'every pass' if calls is None else f'pass {min(calls)}'}"
            _step_with_fault(adapter, fault, calls, target, batches[number % len(batches)], where, subject)
            if not adapter.step(batches[(number + 1) % len(batches)]).logits.isfinite().all():
                raise ContractBroken(_POINT, f"finite logits after NaN in the {where}", "NaN or Inf")


def _step_with_fault(
    adapter: Adapter,
    fault: Fault,
    calls: set[int] | None,
    target: Literal["logits", "gradient"],
    x: Tensor,
    where: str,
    subject: Subject,
) -> None:
    before, skipped = adapter.state_dict(), adapter.skipped
    with fault.at(calls, target):
        adapter.step(x)
    after = adapter.state_dict()
    broken = [name for name, v in after.items() if isinstance(v, Tensor) and _newly_broken(before.get(name), v)]
    if broken:
        raise ContractBroken(_POINT, f"NaN in the {where} not to reach the state", f"NaN in {broken[:5]}")
    # Compare networks, prototypes and optimizer only: a memory of images may have stored the batch.
    parts = [f"{name}." for name, module in adapter.named_modules() if isinstance(module, Classifier)]
    own = {name for name, _ in adapter.named_buffers(recurse=False)} | {name for name, _ in adapter.named_parameters()}
    ours = {name for name in before if name in own or name.startswith(tuple(parts))}
    ours -= {f"{part}{name}" for part in parts for name in subject.updated_by_forward}
    if adapter.skipped > skipped:
        found = difference({n: before[n] for n in ours if n in after}, {n: after[n] for n in ours if n in after})
        found = found or difference(_optimizer(before), _optimizer(after), "optimizer")
        if found:
            raise ContractBroken(_POINT, f"a step skipped for NaN in the {where} to leave the state unchanged", found)
    elif target == "logits" and calls is None:
        trained = {id(p) for p in adapter.trained}
        names = [name for name, p in adapter.named_parameters() if id(p) in trained]
        moved = difference({n: before[n] for n in names}, {n: after[n] for n in names})
        if moved:
            raise ContractBroken(_POINT, f"a step with NaN in the {where} to be skipped and counted", moved)


def _newly_broken(before: Tensor | None, after: Tensor) -> bool:
    """Return whether new NaN or Inf values appeared. A method may use Inf as a sentinel, so old ones are fine."""
    if before is None or before.shape != after.shape:
        return bool(after.isnan().any())
    return bool((~after.isfinite() & before.isfinite()).any())


def _optimizer(state: dict[str, Any]) -> Any:
    return state["_extra_state"]["optimizer"]


@contextmanager
def _quiet() -> Iterator[None]:
    """Silence the warnings about skipped steps, which this check causes on purpose."""
    logger = logging.getLogger("ctta")
    level = logger.level
    logger.setLevel(logging.ERROR)
    try:
        yield
    finally:
        logger.setLevel(level)
