"""Contract points 17 to 19: predict before learning; learn later, or not at all."""

from __future__ import annotations

from ctta.testing.compare import difference
from ctta.testing.subject import ContractBroken, Subject

# Relative to the largest logit: a pass with gradients may round differently from one without.
_ROUNDING = 1e-5


def predicts_before_learning(subject: Subject) -> None:
    """17: step returns the logits that predict would have returned just before it.

    A method that learns from the batch before it predicts declares ``predicts_first = False`` and is exempt.

    Args:
        subject: The adapter under test, with its model and images.
    """
    point = "17 predicts_before_learning"
    adapter = subject.build()
    if not adapter.predicts_first:
        return
    for x in subject.batches(4):
        expected = adapter.predict(x)
        found = adapter.step(x).logits
        gap = (found - expected).abs().max().item()
        if gap > _ROUNDING * (1 + expected.abs().max().item()):
            raise ContractBroken(point, "the prediction made before the step", f"logits that differ by up to {gap:.3g}")


def ask_and_learn_is_step(subject: Subject) -> None:
    """18: ask(x) followed by learn() equals step(x) bit for bit: logits, loss, log and state.

    Args:
        subject: The adapter under test, with its model and images.
    """
    point = "18 ask_and_learn_is_step"
    for arguments in subject.with_and_without_window():
        adapter, twin = subject.build(**arguments), subject.build(**arguments)
        for x in subject.batches(4):
            expected = adapter.step(x)
            answer = twin.ask(x)
            if found := difference(expected.logits, answer.logits, "logits"):
                raise ContractBroken(point, "the same logits from ask as from step", found)
            step = answer.learn()
            if found := difference(vars(expected), vars(step), "step"):
                raise ContractBroken(point, "learn() to return the same as step", found)
            if found := difference(adapter.state_dict(), twin.state_dict()):
                raise ContractBroken(point, "the same state after ask and learn as after step", found)


def forget_leaves_no_trace(subject: Subject) -> None:
    """19: ask(x) followed by forget() changes neither the state nor the predictions of the next step.

    Args:
        subject: The adapter under test, with its model and images.
    """
    point = "19 forget_leaves_no_trace"
    for arguments in subject.with_and_without_window():
        adapter, twin = subject.build(**arguments), subject.build(**arguments)
        for i, x in enumerate(subject.batches(4)):
            before = adapter.state_dict()
            adapter.ask(subject.batches(1, start=i + 2)[0]).forget()
            if found := difference(before, adapter.state_dict()):
                raise ContractBroken(point, "forget() to leave the state unchanged", found)
            if found := difference(twin.step(x).logits, adapter.step(x).logits, "logits"):
                raise ContractBroken(point, "ask() and forget() not to affect the next step", found)
