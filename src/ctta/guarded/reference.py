"""The reference: the unadapted network, with which a guarded adapter is compared and which predicts in a fallback."""

from __future__ import annotations

import copy
import math
from functools import partial

import torch
from torch import Tensor, nn

from ctta.adapter import Adapter


class Reference:
    """The unadapted network under the adapter's own choice of statistics.

    Args:
        adapter: An adapter in its initial state. It never learns.

    Attributes:
        logit_scale: The factor on the logits of one network in the prediction: a method that adds the logits of two
            networks looks more confident than one that averages them, but is not.
    """

    def __init__(self, adapter: Adapter) -> None:
        self.adapter = adapter
        # The images of the guarded adapter's window are given with every call.
        adapter._window = None
        self.logit_scale = _logit_scale(adapter)
        if _networks_are_equal(adapter):
            vars(adapter)["answer"] = partial(_answer_once, adapter)

    @classmethod
    def of(cls, adapter: Adapter) -> Reference:
        """Make the reference of an adapter, whatever it has learnt so far.

        Args:
            adapter: The adapter; the reference shares its frozen parameters and its initial state.
        """
        shared = {id(p): p for name, p in adapter.named_parameters() if name in adapter._frozen}
        initial = {id(value): value for value in adapter._initial.values()}
        new = copy.deepcopy(adapter, {**shared, **initial})
        new.reset()
        return cls(new)

    def predict(
        self, held: Tensor, newest: int, recent_classes: Tensor | None = None, draws: Tensor | None = None
    ) -> Tensor:
        """Predict for the newest of the images that an adapter holds.

        Args:
            held: The images of the window, or the batch.
            newest: How many of them to predict for.
            recent_classes: The adapter's own record of recent predictions, by which its statistics are chosen.
            draws: The state of the adapter's generator before it predicted, so that both look at the same random views.
        """
        self.adapter.recent_classes = recent_classes
        if draws is not None:
            self.adapter.generator.set_state(draws)
        return self.adapter.predict(held, allow_small=True)[-newest:]


def _networks_are_equal(adapter: Adapter) -> bool:
    """Whether the prediction combines several networks that are all the same, as before the first step."""
    if len(adapter.answers_with) == 1 or type(adapter).answer is not Adapter.answer:
        return False
    first, *others = (getattr(adapter, name) for name in adapter.answers_with)
    return all(_are_equal(first, other) for other in others)


def _are_equal(one: nn.Module, other: nn.Module) -> bool:
    values, others = ([*module.parameters(), *module.buffers()] for module in (one, other))
    return (
        repr(one) == repr(other)
        and len(values) == len(others)
        and all(a.shape == b.shape and torch.equal(a, b) for a, b in zip(values, others, strict=True))
    )


def _answer_once(adapter: Adapter, x: Tensor) -> Tensor:
    """Predict as the adapter does, with one forward pass for all of its equal networks."""
    logits = getattr(adapter, adapter.answers_with[0])(x)
    return adapter.combine(*[logits] * len(adapter.answers_with))


def _logit_scale(adapter: Adapter) -> float:
    networks = len(adapter.answers_with)
    if networks == 1:
        return 1.0
    # Before the first step the networks are equal.
    one_hot = torch.eye(1, max(2, adapter.student.num_classes))
    combined = adapter.combine(*[one_hot] * networks)[0]
    scale = (combined[0] - combined[1]).item()
    return scale if 0 < scale < math.inf else 1.0
