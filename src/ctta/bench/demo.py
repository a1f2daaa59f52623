"""The built-in benchmark: handwritten digits under the fifteen corruptions, without a download."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import torch

from ctta.adapter import Adapter
from ctta.bench.evaluate import Progress, Report, evaluate
from ctta.errors import ParameterError
from ctta.nets import classifier
from ctta.registry import method
from ctta.streams.corruptions import CORRUPTIONS
from ctta.streams.digits import digits
from ctta.streams.generated import corrupted
from ctta.streams.protocols import continual
from ctta.streams.stream import Stream


def demo_stream(*, images: int | None, batch_size: int, severity: int, seed: int, domains: int | None = None) -> Stream:
    """Digits the source model never saw, corrupted with the constants of ImageNet-C.

    The weaker constants of CIFAR-10-C suit photographs with detail in every pixel. A digit is 8 x 8 cells enlarged
    four times: at severity 5 they leave seven of the fifteen domains within two points of the clean error, and there is
    nothing to adapt to.
    """
    held_out = digits().stream.first(images)
    if batch_size > 1 and len(held_out) % batch_size == 1:
        raise ParameterError(
            f"{len(held_out)} images in batches of {batch_size} leave a last batch of one, which has no batch "
            "statistics. Choose another number of images or batch size."
        )
    made = corrupted(held_out, CORRUPTIONS[:domains], (severity,), seed=seed, scale="imagenet", keep=True)
    return continual(made, batch_size=batch_size, seed=seed)


def demo_adapters(names: Sequence[str], *, seed: int) -> list[Adapter]:
    """The named methods around the source model, with what their papers use for 32 x 32 images."""
    model = classifier("digits_resnet8")
    adapters = []
    for cls in [method(name) for name in dict.fromkeys(names)]:
        settings: dict[str, Any] = dict(cls.recipes.get("cifar10-c", {}))
        if "seed" in cls.arguments():
            settings["seed"] = seed
        adapters.append(cls(model, **settings))
    return adapters


def run_demo(
    adapters: Sequence[Adapter], stream: Stream, *, progress: Callable[[Adapter], Progress] | None = None
) -> list[Report]:
    """Run every method through the same stream, as many at once as there are cores, each on one thread.

    One thread per method keeps both cores busy where a small network cannot, holds its pace beside busy neighbours,
    and gives the same numbers whatever the number of cores. `progress` gives the listener for a method.
    """

    def run(adapter: Adapter) -> Report:
        return evaluate(adapter, stream, progress=progress(adapter) if progress else None)

    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        with ThreadPoolExecutor(threads) as pool:
            # The longest first, so that none is left to run alone at the end.
            running = {a: pool.submit(run, a) for a in sorted(adapters, key=cost, reverse=True)}
            try:
                return [running[adapter].result() for adapter in adapters]
            except BaseException:
                pool.shutdown(cancel_futures=True)
                raise
    finally:
        torch.set_num_threads(threads)


def cost(adapter: Adapter) -> int:
    """Work of a step in forward passes; a backward pass takes about two."""
    forward, backward = adapter.passes
    return forward + 2 * backward
