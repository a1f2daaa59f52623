"""Streams made to break a model, with and without the guard: `python -m benchmarks.guard`.

Every stream starts and ends with good digits. In between come images that teach nothing: one class only, noise, black
frames, sorted labels; or the learning rate is too high all along. The unadapted network under the batch's statistics is
the measure: how much worse is the guarded adapter over any 20 batches after its first alarm, and over the first 20 good
batches after the bad ones?
"""

from __future__ import annotations

import argparse
import copy
import json
import logging
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from ctta._system.files import write_atomically
from ctta.bench.demo import prepare_demo
from ctta.classifier import Classifier
from ctta.guarded import Guarded
from ctta.nets.by_name import load_model
from ctta.registry import get_method

Labelled = tuple[Tensor, Tensor]
SPAN = 20
#: Learning rates at which the method breaks on the digits.
TOO_HIGH = {"tent": 0.05, "rmt": 0.05, "dmse": 0.05}


@dataclass(frozen=True)
class Trial:
    """A stream, and where its last good part begins."""

    name: str
    batches: list[Labelled]
    good_again: int
    lr: float | None = None


@dataclass(frozen=True)
class Outcome:
    """Errors of one run in percent."""

    method: str
    trial: str
    guarded: float
    batch_statistics: float
    unguarded: float | None
    alarms: list[int]
    worst_after_alarm: float | None
    first_good: float


def trials(method: str, bad: int) -> Iterator[Trial]:
    """The streams of one method; `bad` is the length of the part that does harm, in batches."""
    stream, _ = prepare_demo(["bn"])
    good = [(batch.x, batch.y) for batch in stream]
    x, y = torch.cat([x for x, _ in good]), torch.cat([y for _, y in good])
    generator = torch.Generator().manual_seed(0)
    start, end = good[:36], good[108:168]
    size = len(good[0][0])
    no_labels = torch.full((size,), -1)
    of_class = (y == 3).nonzero()[:, 0]
    one_class = of_class[torch.randint(len(of_class), (bad * size,), generator=generator)]
    by_label = y.view(15, -1).argsort(dim=1, stable=True) + torch.arange(15).unsqueeze(1) * (len(y) // 15)
    parts: dict[str, list[Labelled]] = {
        "one class": [(x[rows], y[rows]) for rows in torch.split(one_class, size)],
        "noise": [(torch.rand(good[0][0].shape, generator=generator), no_labels) for _ in range(bad)],
        "black": [(torch.zeros_like(good[0][0]), no_labels)] * bad,
        "sorted": [(x[rows], y[rows]) for rows in torch.split(by_label.flatten()[: bad * size], size)],
    }
    yield Trial("healthy", good[:126], 0)
    yield Trial("learning rate", good[:126], 0, TOO_HIGH[method])
    for name, part in parts.items():
        yield Trial(name, [*start, *part, *end], len(start) + len(part))


def run(method: str, trial: Trial, source: Classifier, *, compare: bool) -> Outcome:
    """One run."""
    options: dict[str, Any] = {} if trial.lr is None else {"lr": trial.lr}
    guarded = Guarded(get_method(method)(copy.deepcopy(source), **options))
    plain = get_method(method)(copy.deepcopy(source), **options) if compare else None
    errors: list[float] = []
    base: list[float] = []
    alone: list[float] = []
    alarms = []
    for i, (x, y) in enumerate(trial.batches):
        base.append(_error(guarded.reference.predict(x, len(x)), y))
        step = guarded.step(x)
        errors.append(_error(step.logits, y))
        if "alarm" in step.log:
            alarms.append(i)
        if plain is not None:
            alone.append(_error(plain.step(x).logits, y))
    excess = torch.tensor(errors) - torch.tensor(base)
    after = excess[alarms[0] + 1 :] if alarms else excess[:0]
    worst = after.unfold(0, SPAN, 1).mean(1).max().item() if len(after) >= SPAN else None
    return Outcome(
        method,
        trial.name,
        sum(errors) / len(errors),
        sum(base) / len(base),
        sum(alone) / len(alone) if alone else None,
        alarms,
        worst,
        excess[trial.good_again : trial.good_again + SPAN].mean().item(),
    )


def _error(logits: Tensor, y: Tensor) -> float:
    return 100 * (logits.argmax(1) != y).double().mean().item()


def main() -> None:
    """Run what was asked for and print one line each."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.guard", description=__doc__)
    parser.add_argument("--methods", nargs="+", default=list(TOO_HIGH), choices=list(TOO_HIGH))
    parser.add_argument("--only", nargs="+", metavar="TRIAL", help="names of trials, such as 'one class'")
    parser.add_argument("--bad", type=int, default=500, help="batches that do harm")
    parser.add_argument("--unguarded", action="store_true", help="run the adapter without its guard as well")
    parser.add_argument("--json", type=Path, metavar="FILE")
    args = parser.parse_args()
    logging.getLogger("ctta").setLevel(logging.ERROR)
    source = load_model("digits_resnet8").classifier
    outcomes = []
    for method in args.methods:
        for trial in trials(method, args.bad):
            if args.only and trial.name not in args.only:
                continue
            found = run(method, trial, source, compare=args.unguarded)
            outcomes.append(vars(found))
            alone = "" if found.unguarded is None else f", unguarded {found.unguarded:.1f}"
            worst = "-" if found.worst_after_alarm is None else f"{found.worst_after_alarm:+.1f}"
            print(
                f"{method:5} {trial.name:14} guarded {found.guarded:.1f}, batch statistics {found.batch_statistics:.1f}"
                f"{alone}; alarms at {found.alarms}; worst {SPAN} after an alarm {worst}; "
                f"first {SPAN} good {found.first_good:+.1f}",
                flush=True,
            )
    if args.json is not None:
        write_atomically(args.json, json.dumps(outcomes, indent=1).encode())


if __name__ == "__main__":
    main()
