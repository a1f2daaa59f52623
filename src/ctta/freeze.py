"""Get the adapted model out of an adapter: as a frozen module, or as weights in the user's own net."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Literal

import torch
from torch import Tensor, nn

from ctta._checks.model import check_model
from ctta._system.buffers import distinct, filled
from ctta.batch_norm import copy_statistics, revert
from ctta.classifier import Classifier, Precision, logits_of, normalised
from ctta.errors import ModelError, ParameterError
from ctta.norms import batch_norms, use_batch_statistics
from ctta.prototypes import source_images

LoadedStatistics = Literal["adapter", "source", "batch"]


class Frozen(nn.Module):
    """Predict as an adapter did when it was frozen, without ever changing; see `Adapter.freeze`.

    It is a plain module: it can be saved, exported with ``torch.export`` and to ONNX, and moved to any device. If the
    adapter's batch norms use the statistics of the batch, so do these, and a batch should come from one domain.

    Args:
        networks: The networks whose logits are combined.
        combine: Turns their logits into the prediction.
        mirrored: For each network, whether it looks at the mirrored batch. None is never.
    """

    def __init__(
        self,
        networks: Sequence[Classifier],
        combine: Callable[..., Tensor],
        mirrored: Sequence[bool] | None = None,
    ) -> None:
        super().__init__()
        mirrored = mirrored or [False] * len(networks)
        self.networks = nn.ModuleList(_Network(*given) for given in zip(networks, mirrored, strict=True))
        self.combine = combine
        self.requires_grad_(False).eval()

    def forward(self, x: Tensor) -> Tensor:
        """Return the logits (N, C) of a batch.

        Args:
            x: Images (N, 3, H, W) in [0, 1].
        """
        return self.combine(*(network(x) for network in self.networks))


class _Network(nn.Module):
    """A copy of a Classifier without the parts that only adaptation needs, such as features and checks."""

    mean: Tensor | None
    std: Tensor | None

    def __init__(self, source: Classifier, mirrored: bool) -> None:
        super().__init__()
        self.model = copy.deepcopy(source).model
        self.mirrored = mirrored
        self.precision: Precision = source.precision
        self.register_buffer("mean", None if source.mean is None else source.mean.clone())
        self.register_buffer("std", None if source.std is None else source.std.clone())

    def forward(self, x: Tensor) -> Tensor:
        if self.mirrored:
            x = x.flip(-1)
        if self.mean is not None and self.std is not None:
            x = normalised(x, self.mean, self.std)
        if self.precision == "fp32":
            return logits_of(self.model(x))
        with torch.autocast(x.device.type, torch.bfloat16):
            return logits_of(self.model(x))


def load_into(
    network: Classifier,
    net: nn.Module,
    *,
    statistics: LoadedStatistics | Tensor | Iterable[Tensor] = "adapter",
) -> None:
    """Copy an adapted network into the user's own net, in place.

    Args:
        network: The network of an adapter, such as ``adapter.student``.
        net: The user's own net, of the same architecture.
        statistics: What its batch norms normalise with in eval mode: "adapter" (the same as the adapter), "source" (the
            statistics it was trained with), "batch" (those of the current batch), or images in [0, 1], as one batch or
            several, from which new running statistics are estimated.

    Raises:
        ModelError: If the parameters of the net differ from those of the adapted network. Nothing is changed.
        ParameterError: If ``statistics`` is none of the above.
    """
    if isinstance(statistics, str) and statistics not in ("adapter", "source", "batch"):
        raise ParameterError(
            f"The 'statistics' parameter must be 'adapter', 'source', 'batch' or images. Got {statistics!r} instead."
        )
    check_model(net)
    adapted = network.model
    target = net.model if isinstance(net, Classifier) else getattr(net, "_orig_mod", net)
    values, targets = dict(adapted.named_parameters()), dict(target.named_parameters())
    if {n: v.shape for n, v in values.items()} != {n: p.shape for n, p in targets.items()}:
        odd = sorted(values.keys() ^ targets.keys()) or [n for n in values if values[n].shape != targets[n].shape]
        raise ModelError(
            f"The adapted {type(adapted).__name__} must go into a net of the same architecture; "
            f"{type(target).__name__} differs in {', '.join(odd[:3])}."
        )
    images = None if isinstance(statistics, str) else _batches(statistics)
    by_batch = any(hasattr(layer, "source_mean") for layer in batch_norms(adapted))
    with _unchanged_on_error(target), torch.no_grad():
        for layer in batch_norms(target):
            revert(layer)
        for name, parameter in targets.items():
            parameter.copy_(values[name])
        _copy_buffers(adapted, target, moving=images is None and statistics == "adapter")
        if images is not None:
            _estimate(target, images, network)
    if images is not None:
        return
    if statistics == "adapter" and by_batch:
        copy_statistics(adapted, target)
    elif statistics == "batch":
        use_batch_statistics(target)


def _batches(statistics: Tensor | Iterable[Tensor]) -> list[Tensor]:
    if not isinstance(statistics, Iterable):
        raise ParameterError(
            "The 'statistics' parameter must be 'adapter', 'source', 'batch' or images. "
            f"Got {type(statistics).__name__} instead."
        )
    batches = [statistics] if isinstance(statistics, Tensor) else statistics
    checked = [source_images(batch) for batch in batches]
    if not checked:
        raise ParameterError("New running statistics need at least one batch of images; got none.")
    return checked


@contextmanager
def _unchanged_on_error(target: nn.Module) -> Iterator[None]:
    """Undo every change to a net if an exception is raised, such as by its own forward pass."""
    tensors = [distinct(tensor) for tensor in (*target.parameters(), *target.buffers())]
    before = [tensor.detach().clone() for tensor in tensors]
    norms = [(layer, type(layer), _contents(layer)) for layer in batch_norms(target)]
    try:
        yield
    except BaseException:
        for layer, kind, contents in norms:
            layer.__class__ = kind
            vars(layer).clear()
            vars(layer).update(contents)
        with torch.no_grad():
            for tensor, value in zip(tensors, before, strict=True):
                tensor.copy_(value)
        raise


def _contents(layer: nn.Module) -> dict[str, object]:
    """The attributes of a layer, and its own tables of buffers and hooks."""
    return {name: value.copy() if isinstance(value, dict) else value for name, value in vars(layer).items()}


def _copy_buffers(adapted: nn.Module, target: nn.Module, *, moving: bool) -> None:
    """Copy the buffers of all layers; batch norms get the source statistics or, if ``moving``, the moving averages."""
    layers = dict(adapted.named_modules())
    for name, module in target.named_modules():
        layer = layers.get(name)
        for key, buffer in module._buffers.items():
            value = getattr(layer, key, None)
            if key in ("running_mean", "running_var"):
                kind = key.removeprefix("running_")
                value = getattr(layer, f"source_{kind}", value)
                value = getattr(layer, kind, value) if moving else value
            if buffer is not None and isinstance(value, Tensor) and value.shape == buffer.shape:
                module._buffers[key] = filled(buffer, value.to(buffer))


@torch.no_grad()
def _estimate(target: nn.Module, batches: Sequence[Tensor], like: Classifier) -> None:
    """Set the running statistics of every batch norm to the mean over these batches."""
    layers = [layer for layer in batch_norms(target) if layer.running_mean is not None]
    before = [(layer.momentum, layer.training) for layer in layers]
    view = Classifier(target)
    place = next(target.parameters(), batches[0])
    view.mean, view.std = (None if value is None else value.to(place) for value in (like.mean, like.std))
    for layer in layers:
        layer.reset_running_stats()
        layer.momentum = None  # the cumulative mean
        layer.train()
    try:
        for x in batches:
            view(x.to(place))
    finally:
        for layer, (momentum, training) in zip(layers, before, strict=True):
            layer.momentum = momentum
            layer.train(training)
