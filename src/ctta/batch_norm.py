"""Batch norm with chosen statistics: how a layer normalises with a blend of batch and source statistics.

With batch moments mu_b, sigma_b and chosen ones mu, sigma, a layer returns weight * (x - mu) / sigma + bias, which is
weight * (r * x_b + d) + bias with x_b = (x - mu_b) / sigma_b, r = sigma_b / sigma and d = (mu_b - mu) / sigma.
Gradients treat r and d as constants, as in batch renormalisation (Ioffe, 2017): they are those of a batch norm with the
batch's statistics and the weight r * weight, from the same fused kernels.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.autograd.function import once_differentiable
from torch.nn.modules.batchnorm import _BatchNorm

from ctta._system.forward_pass import Pass, is_traced, share_pass, told_concentration
from ctta.statistics import Batch, Moments, Seen, Source, Statistics


def statistics_of(layer: nn.Module) -> Statistics:
    """Return the statistics chosen for a batch norm.

    Args:
        layer: The layer.
    """
    chosen = getattr(layer, "statistics", None)
    return chosen if isinstance(chosen, Statistics) else Batch()


def convert(layer: _BatchNorm) -> None:
    """Make a batch norm use the statistics chosen for it, in train and eval mode.

    Args:
        layer: The layer, changed in place. If it has no source statistics, it always uses those of the batch.
    """
    statistics = statistics_of(layer)
    if layer.running_mean is None or layer.running_var is None or isinstance(statistics, Source):
        return
    layer.register_buffer("source_mean", layer.running_mean)
    layer.register_buffer("source_var", layer.running_var)
    vars(layer)["batches_of_source"] = layer.num_batches_tracked
    # Without running statistics torch uses the batch's (biased variance) in either mode and stores nothing.
    layer.running_mean = layer.running_var = layer.num_batches_tracked = None
    layer.track_running_stats = False
    if isinstance(statistics, Batch):
        return
    for name, tensor in statistics.initial_state(_source(layer)).items():
        layer.register_buffer(name, tensor)
    if type(layer) in _FUSED:
        layer.__class__ = _FUSED[type(layer)]
    else:  # A class of another library, such as a batch norm with an activation: its own forward pass must run.
        layer.register_forward_pre_hook(_lend_blend)
        layer.register_forward_hook(take_back)


def revert(layer: _BatchNorm) -> None:
    """Make a converted batch norm a plain one again, with its source statistics as running statistics.

    Args:
        layer: The layer, changed in place. One that was not converted stays as it is.
    """
    if "source_mean" not in layer._buffers:
        return
    for name in _state(layer):
        delattr(layer, name)
    for hooks, own in ((layer._forward_pre_hooks, _lend_blend), (layer._forward_hooks, take_back)):
        for key in [key for key, hook in hooks.items() if hook is own]:
            del hooks[key]
    layer.__class__ = _PLAIN.get(type(layer), type(layer))
    layer.running_mean, layer.running_var = _source(layer)
    batches = vars(layer).pop("batches_of_source")
    layer.num_batches_tracked = None if batches is None else batches.to(layer.source_mean.device)
    layer.track_running_stats = True
    del layer.source_mean, layer.source_var
    for name in ("statistics", "current_pass", "position"):
        vars(layer).pop(name, None)


def copy_statistics(network: nn.Module, target: nn.Module) -> None:
    """Make the batch norms of a network use the same statistics as those of another one.

    Args:
        network: The network whose layers were converted.
        target: A network of the same architecture, changed in place.
    """
    layers = dict(network.named_modules())
    for name, place in target.named_modules():
        layer = layers.get(name)
        if isinstance(place, _BatchNorm) and layer is not None and hasattr(layer, "source_mean"):
            vars(place)["statistics"] = statistics_of(layer)
            convert(place)
            for key, value in _state(layer).items():
                place.register_buffer(key, value.clone())
    targets = (place for place in target.modules() if isinstance(place, _BatchNorm))
    share_pass(targets, told_concentration(network))


def normalise_exactly(
    x: Tensor,
    blend: Callable[[Moments], Moments],
    weight: Tensor | None,
    bias: Tensor | None,
    eps: float,
) -> Tensor:
    """Normalise with a blend of the batch's statistics, through which gradients flow exactly.

    Args:
        x: The input of a batch norm.
        blend: Turns the moments of the batch into those to normalise with.
        weight: The layer's weight.
        bias: The layer's bias.
        eps: The constant that the layer adds to a variance.
    """
    var, mean = torch.var_mean(x if weight is None else x.to(weight.dtype), _all_but_channels(x), correction=0)
    batch = Moments(mean, var)
    r, d = _correction(batch, blend(batch), eps)
    scale, shift = (r, d) if weight is None else (weight * r, weight * d)
    # torch's functional form refuses a single value per channel, whose variance of 0 is fine in a blend.
    return torch.batch_norm(x, scale, shift if bias is None else bias + shift, None, None, True, 0.0, eps, False)


def lend_source_if_single(layer: Any, args: tuple[Tensor, ...]) -> None:
    """Forward pre-hook: lend the source statistics to a layer that gets a single value per channel, without variance.

    Args:
        layer: A converted layer.
        args: Its input.
    """
    if _is_single(args[0]):
        layer.running_mean, layer.running_var = _source(layer)


def take_back(layer: Any, args: tuple[Tensor, ...], output: Tensor) -> None:
    """Forward hook: take back statistics that were lent for one pass.

    Args:
        layer: A converted layer.
        args: Its input.
        output: Its output.
    """
    layer.running_mean = layer.running_var = None


class noting:  # noqa: N801, used as a context manager
    """Context of a learning step: layers record their input, and update their state at the end unless it fails.

    Only the first pass of each layer counts: that of the batch itself, before views of it. It is a class because a
    generator that is interrupted while it exits would run its last lines when it is garbage collected.

    Args:
        network: The network, or a module that contains several.
    """

    def __init__(self, network: nn.Module) -> None:
        self._layers = [layer for layer in network.modules() if statistics_of(layer).keeps_state]

    def __enter__(self) -> None:
        for layer in self._layers:
            vars(layer)["noting"] = True

    def __exit__(self, kind: object, *exc: object) -> None:
        for layer in self._layers:
            noted = vars(layer).pop("noted", {})
            vars(layer).pop("noting", None)
            for name, value in noted.items() if kind is None else ():
                setattr(layer, name, value)


@contextmanager
def unnoted(network: nn.Module) -> Iterator[None]:
    """Context in which layers do not record their input.

    Args:
        network: The network.
    """
    noting = [layer for layer in network.modules() if vars(layer).pop("noting", False)]
    try:
        yield
    finally:
        for layer in noting:
            vars(layer)["noting"] = True


class _Blended(_BatchNorm):
    """A batch norm that normalises with the statistics chosen for it."""

    source_mean: Tensor

    def forward(self, x: Tensor) -> Tensor:
        self._check_input_dim(x)  # type: ignore[no-untyped-call]
        if _is_single(x):
            mean, var = _reference(self)
            return F.batch_norm(x, mean, var, self.weight, self.bias, training=False, eps=self.eps)
        if is_traced():
            return normalise_exactly(x, lambda batch: _blend(self, x, batch), self.weight, self.bias, self.eps)
        batch = moments_of(x, self.source_mean)
        mean, var = _blend(self, x, batch)
        out: Tensor = _Normalise.apply(x, self.weight, self.bias, *batch, mean, var, self.eps)  # type: ignore[no-untyped-call]
        return out


class BlendedBatchNorm1d(_Blended, nn.BatchNorm1d):
    """A BatchNorm1d that normalises with chosen statistics."""


class BlendedBatchNorm2d(_Blended, nn.BatchNorm2d):
    """A BatchNorm2d that normalises with chosen statistics."""


class BlendedBatchNorm3d(_Blended, nn.BatchNorm3d):
    """A BatchNorm3d that normalises with chosen statistics."""


_FUSED: dict[type, type] = {
    nn.BatchNorm1d: BlendedBatchNorm1d,
    nn.BatchNorm2d: BlendedBatchNorm2d,
    nn.BatchNorm3d: BlendedBatchNorm3d,
}
_PLAIN: dict[type, type] = {fused: plain for plain, fused in _FUSED.items()}


class _Normalise(torch.autograd.Function):
    """weight * (x - mean) / sqrt(var + eps) + bias, with the gradient of batch renormalisation."""

    @staticmethod
    def forward(
        ctx: Any,
        x: Tensor,
        weight: Tensor | None,
        bias: Tensor | None,
        batch_mean: Tensor,
        batch_var: Tensor,
        mean: Tensor,
        var: Tensor,
        eps: float,
    ) -> Tensor:
        ctx.save_for_backward(x, weight, batch_mean, batch_var, mean, var)
        ctx.eps = eps
        return F.batch_norm(x, mean, var, weight, bias, training=False, eps=eps)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
        x, weight, *moments = ctx.saved_tensors
        batch, chosen = Moments(*moments[:2]), Moments(*moments[2:])
        r, d = _correction(batch, chosen, ctx.eps)
        needs_x, needs_weight, needs_bias = ctx.needs_input_grad[:3]
        affine = needs_weight or needs_bias
        by_x, by_weight, by_bias = torch.ops.aten.native_batch_norm_backward(
            gradient,
            x,
            r if weight is None else weight * r,
            None,
            None,
            batch.mean,
            (batch.var + ctx.eps).rsqrt(),
            True,
            ctx.eps,
            [needs_x, affine, affine],
        )
        return (
            by_x if needs_x else None,
            r * by_weight + d * by_bias if needs_weight else None,
            by_bias if needs_bias else None,
            *[None] * 5,
        )


class _Renormalise(torch.autograd.Function):
    """Identity in front of a layer that treats lent statistics as constants: corrects the gradient of its input."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, batch_mean: Tensor, batch_var: Tensor, eps: float) -> Tensor:
        ctx.save_for_backward(x, batch_mean, batch_var)
        ctx.eps = eps
        return x.view_as(x)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
        x, mean, var = ctx.saved_tensors
        std = (var + ctx.eps).sqrt()
        # The layer has already multiplied by weight / sigma, and this weight cancels the division by sigma_b.
        by_x, _, _ = torch.ops.aten.native_batch_norm_backward(
            gradient, x, std, None, None, mean, std.reciprocal(), True, ctx.eps, [True, False, False]
        )
        return by_x, None, None, None


def _lend_blend(layer: Any, args: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
    x, *rest = args
    if _is_single(x):
        layer.running_mean, layer.running_var = _reference(layer)
        return args
    batch = moments_of(x, layer.source_mean)
    layer.running_mean, layer.running_var = _blend(layer, x, batch)
    if not (torch.is_grad_enabled() and x.requires_grad):
        return args
    return (_Renormalise.apply(x, *batch, layer.eps), *rest)  # type: ignore[no-untyped-call]


def _blend(layer: Any, x: Tensor, batch: Moments) -> Moments:
    """Choose the statistics for a pass, and record the layer's state after the step."""
    statistics, values = statistics_of(layer), x.numel() // x.shape[1]
    seen = Seen(batch, _source(layer), x.shape[0], values, layer.eps, _state(layer))
    own = statistics.measure(seen)
    if own is not None:
        current: Pass = layer.current_pass
        measured = current.add(layer.position, own.detach())
        seen = replace(seen, measured=measured, concentration=current.concentration, layers=current.layers)
    if vars(layer).get("noting", False) and "noted" not in vars(layer):
        vars(layer)["noted"] = {name: value.detach() for name, value in statistics.next_state(seen).items()}
    return statistics.blend(seen)


def moments_of(x: Tensor, like: Tensor) -> Moments:
    """Compute the moments of a batch in one fused pass, which no gradient flows through.

    Args:
        x: The input of a batch norm.
        like: Statistics of the layer, whose dtype the moments get.
    """
    x = x.detach()
    if not is_traced():
        try:
            # The kernel of batch norm itself. It also updates running statistics, and takes its precision from them.
            return Moments(*torch.batch_norm_update_stats(x, torch.zeros_like(like), torch.zeros_like(like), 0.0))
        except NotImplementedError:  # CPUs and CUDA have it, other devices may not
            pass
    var, mean = torch.var_mean(x.to(like.dtype), _all_but_channels(x), correction=0)
    return Moments(mean, var)


def _correction(batch: Moments, chosen: Moments, eps: float) -> tuple[Tensor, Tensor]:
    """Return r and d."""
    scale = (chosen.var + eps).rsqrt()
    return (batch.var + eps).sqrt() * scale, (batch.mean - chosen.mean) * scale


def _source(layer: Any) -> Moments:
    return Moments(layer.source_mean, layer.source_var)


def _state(layer: Any) -> dict[str, Tensor]:
    own = ("source_mean", "source_var")
    return {name: value for name, value in layer._buffers.items() if value is not None and name not in own}


def _reference(layer: Any) -> Moments:
    return statistics_of(layer).reference(_source(layer), _state(layer))


def _is_single(x: Tensor) -> bool:
    return x.numel() == x.shape[1]


def _all_but_channels(x: Tensor) -> list[int]:
    return [0, *range(2, x.dim())]
