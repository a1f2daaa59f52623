"""Measure the guard on streams made to break a model, and on healthy ones: `python -m benchmarks.guard`.

A breaking stream starts and ends with good data. In between come images that teach nothing: one class only, noise,
black frames, sorted labels; or the learning rate is too high throughout. The baseline is the unadapted network with
batch statistics: by how many points of error is the guarded adapter worse until its first alarm, over any 20 batches
after it, and over the first 20 good batches after the bad ones? On a healthy stream that the adapter gains from, any
alarm is a false alarm.

With ``--json`` the outcomes are kept as they come, and those that are in the file already are not measured again.

Tasks: "digits"; "cifar10-first" and "cifar10-last", 600 of the first or last 5,000 test images under each corruption in
batches of 50; "results-first" and "results-last", healthy only, the same images in batches of 200 as in docs/results;
"results" and the tasks whose names begin with it, healthy only, the length of docs/results: 2,000 images under each
corruption in batches of 200, with ResNet-20, the bundled network, ResNet-56, and on CIFAR-100-C.
"""

from __future__ import annotations

import argparse
import copy
import json
import logging
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor

from benchmarks.guard_streams import Task, Trial, breaking, cifar, digits, healthy
from ctta._system.files import write_atomically
from ctta.adapter import Adapter
from ctta.classifier import Classifier
from ctta.guard import DEFAULT_TEXT
from ctta.guarded import Guarded, Reference
from ctta.registry import get_method

SPAN = 20
#: Points by which the error of the guarded adapter may exceed that of batch statistics.
ALLOWED = 2.0
#: What makes an outcome the same as an earlier one.
KEYS = ("task", "method", "trial", "rules", "batches")
METHODS = ("tent", "rmt", "dmse")
TASKS: dict[str, Callable[[Path], Task]] = {
    "digits": lambda data: digits(),
    "cifar10-first": lambda data: cifar(data, 0, 50, 600),
    "cifar10-last": lambda data: cifar(data, 5000, 50, 600),
    "results-first": lambda data: cifar(data, 0, 200, 600),
    "results-last": lambda data: cifar(data, 5000, 200, 600),
    "results": lambda data: cifar(data, 0, 200, 2000),
    "results-bundled": lambda data: cifar(data, 0, 200, 2000, "cifar10_resnet20_ctta"),
    "results-resnet56": lambda data: cifar(data, 0, 200, 2000, "cifar10_resnet56"),
    "results-cifar100": lambda data: cifar(data, 0, 200, 2000, "cifar100_resnet56"),
}


@dataclass(frozen=True)
class Outcome:
    """Errors of one run in percent, and alarms as numbers of batches."""

    task: str
    method: str
    trial: str
    rules: str
    batches: int
    guarded: float
    batch_statistics: float
    unguarded: float | None
    alarms: list[int]
    until_alarm: float | None
    worst_after_alarm: float | None
    first_good: float

    def verdict(self) -> str:
        """Whether the guard did its job. An alarm is false if the adapter gains from the stream without its guard."""
        if self.trial == "healthy":
            gains = self.unguarded is None or self.unguarded < self.batch_statistics
            held = not (self.alarms and gains)
        else:
            held = (self.worst_after_alarm or 0.0) <= ALLOWED and self.first_good <= ALLOWED
        return "holds" if held else "FAILS"

    def __str__(self) -> str:
        alone = "" if self.unguarded is None else f", unguarded {self.unguarded:.1f}"
        return (
            f"{self.task:13} {self.method:5} {self.trial:14} {self.verdict()}: guarded {self.guarded:.1f}, batch "
            f"statistics {self.batch_statistics:.1f}{alone}; alarms at {self.alarms}; mean until the first "
            f"{_points(self.until_alarm)}, worst {SPAN} after it {_points(self.worst_after_alarm)}; "
            f"first {SPAN} good {_points(self.first_good)}"
        )


class Kept:
    """Outcomes that a JSON file keeps as they come; without a file nothing is kept.

    Args:
        path: The file, which may have outcomes of an earlier call; None for no file.
        keys: The fields by which an outcome is the same as an earlier one.
    """

    def __init__(self, path: Path | None, keys: Sequence[str]) -> None:
        self._path = path
        self._rows = json.loads(path.read_bytes()) if path is not None and path.exists() else []
        self._done = {tuple(row[key] for key in keys) for row in self._rows}

    def __contains__(self, values: tuple[object, ...]) -> bool:
        """Whether the file already had an outcome with these values of the keys."""
        return values in self._done

    def add(self, outcome: Outcome, **more: object) -> None:
        """Keep an outcome with its verdict.

        Args:
            outcome: The outcome.
            more: Further fields.
        """
        self._rows.append(vars(outcome) | {"verdict": outcome.verdict()} | more)
        if self._path is not None:
            write_atomically(self._path, json.dumps(self._rows, indent=1).encode())


class Remembering(Reference):
    """A reference that is asked twice for every batch, by the guard and for the baseline, and computes it once."""

    def __init__(self, adapter: Adapter) -> None:
        super().__init__(adapter)
        self._last: tuple[Tensor, Tensor] | None = None

    def predict(
        self, held: Tensor, newest: int, recent_classes: Tensor | None = None, draws: Tensor | None = None
    ) -> Tensor:
        """Predict for the newest of the images that an adapter holds."""
        if self._last is None or not torch.equal(self._last[0], held):
            self._last = held, super().predict(held, newest, recent_classes, draws)
        return self._last[1]


def run(task: str, method: str, trial: Trial, source: Classifier, *, rules: str, compare: bool) -> Outcome:
    """Run one trial.

    Args:
        task: The task's name.
        method: The method's name.
        trial: The stream.
        source: The network.
        rules: The guard's rules.
        compare: Whether to also run the adapter without its guard; a healthy trial with an alarm does so anyway.
    """
    adapter = get_method(method)(copy.deepcopy(source), **trial.options)
    guarded = Guarded(adapter, rules=rules, reference=Remembering.of(adapter))
    plain = get_method(method)(copy.deepcopy(source), **trial.options) if compare else None
    errors: list[float] = []
    base: list[float] = []
    alone: list[float] = []
    alarms = []
    for i, (x, y) in enumerate(trial.batches):
        draws = guarded.generator.get_state()
        base.append(_error(guarded.reference.predict(x, len(x), guarded.inner.recent_classes, draws), y))
        step = guarded.step(x)
        errors.append(_error(step.logits, y))
        if "alarm" in step.log:
            alarms.append(i)
        if plain is not None:
            alone.append(_error(plain.step(x).logits, y))
    if alarms and plain is None and trial.name == "healthy":
        plain = get_method(method)(copy.deepcopy(source), **trial.options)
        alone = [_error(plain.step(x).logits, y) for x, y in trial.batches]
    excess = torch.tensor(errors) - torch.tensor(base)
    after = excess[alarms[0] + 1 :] if alarms else excess[:0]
    return Outcome(
        task=task,
        method=method,
        trial=trial.name,
        rules=rules,
        batches=len(trial.batches),
        guarded=_mean(errors, trial),
        batch_statistics=_mean(base, trial),
        unguarded=_mean(alone, trial) if alone else None,
        alarms=alarms,
        until_alarm=excess[: alarms[0] + 1].mean().item() if alarms else None,
        worst_after_alarm=after.unfold(0, SPAN, 1).mean(1).max().item() if len(after) >= SPAN else None,
        first_good=excess[trial.good_again : trial.good_again + SPAN].mean().item(),
    )


def _mean(errors: Sequence[float], trial: Trial) -> float:
    """The error over all images: batches may differ in size."""
    sizes = [len(y) for _, y in trial.batches]
    return sum(error * size for error, size in zip(errors, sizes, strict=True)) / sum(sizes)


def _points(value: float | None) -> str:
    return "-" if value is None else f"{value:+.1f}"


def _error(logits: Tensor, y: Tensor) -> float:
    return 100 * (logits.argmax(1) != y).double().mean().item()


def _trials(name: str, task: Task, method: str, bad: int) -> Iterator[Trial]:
    yield healthy(task, method)
    if not name.startswith("results"):
        yield from breaking(task, method, bad)


def main(arguments: list[str] | None = None) -> None:
    """Run the requested trials and print one line for each."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.guard", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--tasks", nargs="+", default=["digits"], choices=list(TASKS))
    parser.add_argument("--methods", nargs="+", default=list(METHODS))
    parser.add_argument("--only", nargs="+", metavar="TRIAL", help="names of trials, such as 'one class'")
    parser.add_argument("--bad", type=int, default=500, help="number of harmful batches")
    parser.add_argument("--rules", default=DEFAULT_TEXT, help="the guard's rules")
    parser.add_argument("--unguarded", action="store_true", help="also run the adapter without its guard")
    parser.add_argument("--data", type=Path, default=Path("data"), help="folder with cifar10_test.npz and the weights")
    parser.add_argument("--json", type=Path, metavar="FILE")
    args = parser.parse_args(arguments)
    logging.getLogger("ctta").setLevel(logging.ERROR)
    kept = Kept(args.json, KEYS)
    for name in args.tasks:
        task = TASKS[name](args.data)
        for method in args.methods:
            for trial in _trials(name, task, method, args.bad):
                if args.only and trial.name not in args.only:
                    continue
                if (name, method, trial.name, args.rules, len(trial.batches)) in kept:
                    continue
                outcome = run(name, method, trial, task.source, rules=args.rules, compare=args.unguarded)
                kept.add(outcome)
                print(outcome, flush=True)


if __name__ == "__main__":
    main()
