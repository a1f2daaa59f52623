"""Contract points 1, 7, 8, 9 and 12: predictions in every mode, for small batches and any norm layer."""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor

from ctta.adapter import Adapter
from ctta.errors import BatchTooSmall, ContractBroken, CttaError, InferenceMode
from ctta.testing.compare import difference, same_bits
from ctta.testing.models import SIDE, gn_cnn, ln_vit, plain_cnn
from ctta.testing.subject import BATCH, Subject, run
from ctta.testing.task import drifting_images, trained


def finite_logits(subject: Subject) -> None:
    """1: logits are finite, detached and of shape (N, C); the caller's images are not modified.

    Args:
        subject: The adapter under test, with its model and images.
    """
    point = "1 finite_logits"
    with torch.no_grad():
        classes = subject.classifier()(subject.batches(1)[0]).shape[1]
    adapter = subject.build()
    for x in subject.batches(3):
        given = x.clone()
        step = adapter.step(x)
        for how, logits in (("step", step.logits), ("predict", adapter.predict(x)), ("call", adapter(x))):
            _check_logits(point, how, logits, (len(x), classes))
        if not same_bits(x, given):
            raise ContractBroken(point, "the caller's images to stay unchanged", "an adapter that wrote to them")
        if step.loss is not None and not (isinstance(step.loss, float) and math.isfinite(step.loss)):
            raise ContractBroken(point, "Step.loss to be a finite float or None", repr(step.loss))
        others = {name: value for name, value in step.log.items() if not isinstance(value, int | float)}
        if others:
            raise ContractBroken(point, "plain numbers in Step.log", repr(others))


def grad_modes(subject: Subject) -> None:
    """7: torch.no_grad changes nothing; inside inference_mode step raises InferenceMode and predict works.

    Args:
        subject: The adapter under test, with its model and images.
    """
    point = "7 grad_modes"
    batches = subject.batches(3)
    adapter, twin = subject.build(), subject.build()
    outside = run(twin, batches)
    try:
        with torch.no_grad():
            inside = run(adapter, batches)
    except Exception as error:
        raise ContractBroken(point, "a step inside torch.no_grad to work", repr(error)) from error
    if found := difference(outside, inside, "logits"):
        raise ContractBroken(point, "the same logits inside torch.no_grad as outside", found)
    before = adapter.state_dict()
    with torch.inference_mode():
        try:
            adapter.step(batches[0])
        except InferenceMode:
            pass
        except Exception as error:
            raise ContractBroken(point, "InferenceMode inside torch.inference_mode", repr(error)) from error
        else:
            raise ContractBroken(point, "InferenceMode inside torch.inference_mode", "no error")
        logits = adapter.predict(batches[0])
    if found := difference(before, adapter.state_dict()):
        raise ContractBroken(point, "step and predict in inference_mode to leave the state unchanged", found)
    if found := difference(adapter.predict(batches[0]), logits.clone(), "logits"):
        raise ContractBroken(point, "the same logits from predict inside torch.inference_mode as outside", found)


def batch_of_one(subject: Subject) -> None:
    """8: a batch of one image works or raises BatchTooSmall; with a window it always works.

    Args:
        subject: The adapter under test, with its model and images.
    """
    point = "8 batch_of_one"
    adapter = subject.build()
    classes = adapter.step(subject.batches(1)[0]).logits.shape[1]
    singles = subject.batches(2 * BATCH, 1)
    _one_by_one(point, adapter, singles[:3], classes, may_refuse=True)
    if subject.takes("window"):
        _one_by_one(point, subject.build(window=BATCH), singles, classes, may_refuse=False)


def any_norm(subject: Subject) -> None:
    """9: models with only layer norm, only group norm or no norm work, or raise a CttaError.

    Args:
        subject: The adapter under test; its own model and images are not used.
    """
    point = "9 any_norm"
    images = drifting_images(3 * BATCH).view(3, BATCH, 3, SIDE, SIDE)
    for build in (ln_vit, gn_cnn, plain_cnn):
        try:
            predictions = run(subject.make(trained(build)), list(images))
        except CttaError:
            continue
        except Exception as error:
            raise ContractBroken(point, f"{build.__name__} to work or a CttaError", repr(error)) from error
        for logits in predictions:
            _check_logits(point, f"step with {build.__name__}", logits, (BATCH, 10))


def modes_change_nothing(subject: Subject) -> None:
    """12: train() and eval() on the adapter change nothing.

    Args:
        subject: The adapter under test, with its model and images.
    """
    point = "12 modes_change_nothing"
    adapter, twin = subject.build(), subject.build()
    for i, x in enumerate(subject.batches(4)):
        changed = adapter.train() if i % 2 == 0 else adapter.eval()
        if changed is not adapter:
            raise ContractBroken(point, "train() and eval() to return the adapter", repr(changed))
        if found := difference(_modes(twin), _modes(adapter), "training"):
            raise ContractBroken(point, "train() and eval() not to change the mode of any layer", found)
        if found := difference(twin.step(x).logits, adapter.step(x).logits, "logits"):
            raise ContractBroken(point, "the same logits after train() and eval()", found)
    if found := difference(twin.state_dict(), adapter.state_dict()):
        raise ContractBroken(point, "the same state after train() and eval()", found)


def _check_logits(point: str, how: str, logits: Any, shape: tuple[int, int]) -> None:
    if not isinstance(logits, Tensor) or logits.shape != shape:
        found = tuple(logits.shape) if isinstance(logits, Tensor) else type(logits).__name__
        raise ContractBroken(point, f"logits {shape} from {how}", str(found))
    if logits.requires_grad or logits.grad_fn is not None:
        raise ContractBroken(point, f"detached logits from {how}", f"grad_fn {logits.grad_fn}: use .detach()")
    if not logits.isfinite().all():
        raise ContractBroken(point, f"finite logits from {how}", f"{int((~logits.isfinite()).sum())} NaN or Inf")


def _one_by_one(point: str, adapter: Adapter, singles: list[Tensor], classes: int, *, may_refuse: bool) -> None:
    window = "" if may_refuse else " with a window"
    for x in singles:
        try:
            logits = adapter.step(x).logits
        except BatchTooSmall as error:
            if may_refuse:
                continue
            raise ContractBroken(point, "a batch of one to work with a window", repr(error)) from error
        except Exception as error:
            expected = f"a batch of one to work{window}" + (" or raise BatchTooSmall" if may_refuse else "")
            raise ContractBroken(point, expected, repr(error)) from error
        _check_logits(point, f"a batch of one{window}", logits, (1, classes))


def _modes(adapter: Adapter) -> dict[str, bool]:
    return {name: module.training for name, module in adapter.named_modules() if name}
