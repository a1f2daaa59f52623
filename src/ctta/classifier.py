"""Any image model as h∘g: a linear head h on features g."""

from __future__ import annotations

import copy
import hashlib
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any, Literal

import torch
from torch import Tensor, nn
from torch.nn.utils.weight_norm import WeightNorm

from ctta._checks.images import channel_count, channel_hint
from ctta._checks.model import check_logits, check_model, look_like_probabilities
from ctta._checks.normalisation import check_normalisation
from ctta._system.module_caches import ModuleCaches, drop_caches
from ctta._system.module_copy import note_empty_tables
from ctta._system.tensor_digest import add_value
from ctta.errors import CttaError, HeadNotFound, ImageShape, ModelError, SharedHead

Precision = Literal["fp32", "bf16"]

# Layers behind a 1x1-conv head that leave the logits an affine map of the pooled features.
_AFTER_CONV_HEAD = (nn.Identity, nn.Flatten, nn.AvgPool2d, nn.AdaptiveAvgPool2d, nn.Dropout)


class Classifier(nn.Module):
    """Wrap a model that maps images to logits, and give access to the features in front of its head.

    The model is used, not copied, and wrapping does not change it. Adapters make their own copy.

    Args:
        model: The model. It may return logits, or an object or dict with ``logits``.
        head: The name of the final linear layer, such as "fc", if it cannot be found automatically.
        mean: Mean of each channel, subtracted from images in [0, 1]. Leave out ``mean`` and ``std`` if the model
            normalises its own input.
        std: Standard deviation of each channel, by which images are divided.

    Raises:
        NotAModule: If the model is not an nn.Module.
        HeadNotFound: If ``head`` names no linear layer. A head that cannot be found automatically raises only when
            features are used.
        ParameterError: If ``mean`` and ``std`` do not fit.

    Example:
        >>> import torch, ctta
        >>> from torch import nn
        >>> net = nn.Sequential(nn.Conv2d(3, 4, 3), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(4, 10))
        >>> model = ctta.Classifier(net, mean=[0.5] * 3, std=[0.2] * 3)
        >>> logits, features = model.with_features(torch.rand(2, 3, 8, 8))
        >>> model.head_name, logits.shape, features.shape
        ('3', torch.Size([2, 10]), torch.Size([2, 4]))
    """

    mean: Tensor | None
    std: Tensor | None

    def __init__(
        self,
        model: nn.Module,
        *,
        head: str | None = None,
        mean: Sequence[float] | None = None,
        std: Sequence[float] | None = None,
    ) -> None:
        check_model(model)
        super().__init__()
        check_normalisation(mean, std)
        # torch.compile wraps the user's net. Adapters copy the net itself, and their steps are not compiled.
        self.model: nn.Module = getattr(model, "_orig_mod", model)
        self.precision: Precision = "fp32"
        self._caches = ModuleCaches(self.model)
        device = next((p.device for p in model.parameters()), None)
        self.register_buffer("mean", None if mean is None else torch.tensor(mean, device=device).view(1, -1, 1, 1))
        self.register_buffer("std", None if std is None else torch.tensor(std, device=device).view(1, -1, 1, 1))
        self.head_name = _find_head(self.model, head)
        self._tied_to = None if self.head_name is None else _sharing_weight(self.model, self.head_name)
        if head is not None:
            self._refuse_tied()
        # A head named by the user is trusted; one found automatically is checked once against the model's logits.
        self._trusted = head is not None

    def forward(self, x: Tensor) -> Tensor:
        """Return the logits (N, C) of a batch.

        Args:
            x: Images (N, 3, H, W) in [0, 1].
        """
        if self._caches.model is not self.model:
            self._caches = ModuleCaches(self.model)
        self._caches.drop()
        if self.mean is not None and self.std is not None:
            if x.shape[1] != self.mean.shape[1]:
                wanted = self.mean.shape[1]
                raise ImageShape(
                    f"Images must have the {channel_count(wanted)} of mean and std; got {tuple(x.shape)}. "
                    + channel_hint(x, wanted)
                )
            x = normalised(x, self.mean, self.std)
        bf16 = self.precision == "bf16"
        # Entered even for fp32: an autocast around the adapter must not change what "fp32" means.
        with torch.autocast(x.device.type, torch.bfloat16, enabled=bf16):
            logits = logits_of(self._run(x))
        return check_logits(logits, len(x), self._title)

    def _run(self, x: Tensor) -> Any:
        """Run the model; if it fails on images with other channels than its first layer has, say so."""
        try:
            return self.model(x)
        except RuntimeError as error:
            first = next((layer for layer in self.model.modules() if isinstance(layer, nn.Conv2d)), None)
            if isinstance(error, CttaError) or first is None or first.in_channels == x.shape[1]:
                raise
            raise ImageShape(
                f"Images for {self._title} must have {channel_count(first.in_channels)}; got {tuple(x.shape)}. "
                + channel_hint(x, first.in_channels)
            ) from error

    if TYPE_CHECKING:

        def __call__(self, x: Tensor) -> Tensor:
            """Return the logits, as forward does."""

    def with_features(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """Return the logits (N, C) and the features (N, d) in front of the head, from one forward pass.

        Args:
            x: Images (N, 3, H, W) in [0, 1].
        """
        dtype = self.weight.dtype
        given: list[Tensor] = []
        # For this pass only: a permanent hook would modify the user's own net and be copied with it.
        hook = self.head.register_forward_pre_hook(
            lambda head, args, named: given.append(next(iter((*args, *named.values())))), with_kwargs=True
        )
        try:
            logits = self(x)
        finally:
            hook.remove()
        if len(given) != 1:
            raise SharedHead(
                f"The head must be used once per forward pass; {self._title} "
                f"{f'uses {self.head_name!r} {len(given)} times' if given else f'never uses {self.head_name!r}'}. "
                f"{self._advice}"
            )
        (g,) = given
        if isinstance(self.head, nn.Conv2d):
            g = g.mean(dim=(2, 3))
        if g.dim() != 2:
            raise HeadNotFound(
                f"The head must be given one feature vector per image; {self.head_name!r} of {self._title} is "
                f"given {tuple(g.shape)}. {self._advice}"
            )
        g = g.to(dtype)
        if not self._trusted:
            self._check_head(g, logits)
        return logits, g

    @property
    def channels(self) -> int | None:
        """The channels of its images: those of mean and std, or of the first convolution; None without either."""
        if self.mean is not None:
            return self.mean.shape[1]
        return next((layer.in_channels for layer in self.model.modules() if isinstance(layer, nn.Conv2d)), None)

    @property
    def head(self) -> nn.Module:
        """The layer h that turns features into logits."""
        if self.head_name is None:
            raise HeadNotFound(
                f"Features and class prototypes come from a final nn.Linear; {self._title} has none. {self._advice}"
            )
        self._refuse_tied()
        return self.model.get_submodule(self.head_name)

    def _refuse_tied(self) -> None:
        if self._tied_to is not None:
            raise SharedHead(
                f"The head must own its weight; {self.head_name!r} of {self._title} shares it with {self._tied_to!r}. "
                'Untie the two, or name another layer with Classifier(model, head="...").'
            )

    @property
    def weight(self) -> Tensor:
        """The head's effective weight W_h (C, d), detached; a weight-normed head gives the product."""
        head = self.head
        for hook in head._forward_pre_hooks.values():
            # torch.nn.utils.weight_norm refreshes `weight` only in a forward pass; g and v are what was loaded.
            if isinstance(hook, WeightNorm):
                return _detached(hook.compute_weight(head)).flatten(1)
        return _detached(head.weight).flatten(1)

    @property
    def num_classes(self) -> int:
        """The number of classes C."""
        return int(self.weight.shape[0])

    @property
    def num_features(self) -> int:
        """The size d of the features."""
        return int(self.weight.shape[1])

    def digest(self) -> str:
        """Return the SHA-256 of every parameter and buffer, which identifies the source weights."""
        sha = hashlib.sha256()
        for name, tensor in sorted(self.state_dict().items()):
            if isinstance(tensor, nn.UninitializedParameter):
                raise ModelError(f"{name} of {self._title} is not initialised. Run the model once before wrapping it.")
            try:
                add_value(sha, name, tensor)
            except (RuntimeError, TypeError, ValueError) as error:  # a sparse tensor, or one without data
                raise ModelError(
                    f"{name} of {self._title} cannot be read as numbers in memory ({_first_line(error)}), which "
                    "identifying the source weights and saving need. Make it a dense tensor."
                ) from error
        return sha.hexdigest()

    @torch.no_grad()  # a pass with this check and the same pass without it must keep the same tensors
    def _check_head(self, g: Tensor, logits: Tensor) -> None:
        if not logits.isfinite().all():
            return
        weight, bias = self.weight, self.head.bias
        made = g @ weight.mT + (0 if bias is None else _detached(bias))
        # A loose tolerance, because a bf16 pass rounds; the output of a wrong layer is off by as much as the logits.
        if made.shape != logits.shape or (made - logits).abs().max() > 0.05 * logits.abs().max() + 1e-3:
            advice = self._advice
            if look_like_probabilities(logits):
                advice = "The model seems to return probabilities: remove the softmax at its end."
            raise HeadNotFound(
                f"{self.head_name!r} was taken for the head of {self._title}, but its output "
                f"{tuple(made.shape)} is not the model's logits {tuple(logits.shape)}. {advice}"
            )
        self._trusted = True

    @property
    def _title(self) -> str:
        return type(self.model).__name__

    @property
    def _advice(self) -> str:
        linear = [name for name, module in self.model.named_modules() if isinstance(module, nn.Linear)]
        layers = f" It has: {', '.join(linear[-5:])}." if linear else ""
        return f'Name the layer with Classifier(model, head="...").{layers}'

    def __deepcopy__(self, memo: dict[int, Any]) -> Classifier:
        drop_caches(self.model)
        # torch.nn.utils.weight_norm leaves a tensor with a graph on the module, which deepcopy refuses.
        for module in self.modules():
            for name, value in list(vars(module).items()):
                if isinstance(value, Tensor) and value.grad_fn is not None:
                    vars(module)[name] = value.detach()
        new = type(self).__new__(type(self))
        memo[id(self)] = new
        note_empty_tables(self, memo)
        new.__dict__ = copy.deepcopy(self.__dict__, memo)
        new._caches = ModuleCaches(new.model)  # modules may have been added since this one was built
        return new


def _first_line(error: BaseException) -> str:
    return str(error).split("\n", maxsplit=1)[0].rstrip(".")


def _detached(value: Any) -> Tensor:
    if not isinstance(value, Tensor):
        raise HeadNotFound(f"A head needs a weight tensor; got {type(value).__name__}.")
    return value.detach()


def logits_of(output: Any) -> Tensor:
    """Return the logits in the output of a model, in at least single precision.

    Losses and thresholds on entropy need more digits than the three of bfloat16.

    Args:
        output: A tensor, or an object or dict with ``logits``.
    """
    logits = output if isinstance(output, Tensor) else getattr(output, "logits", None)
    if logits is None and isinstance(output, dict):
        logits = output.get("logits")
    if isinstance(logits, Tensor):
        return logits.float() if logits.dtype in (torch.float16, torch.bfloat16) else logits
    raise HeadNotFound(
        f"A model must return logits (a tensor, or an object with .logits); got {type(output).__name__}. "
        "Wrap it in a module that returns the logits alone."
    )


def normalised(x: Tensor, mean: Tensor, std: Tensor) -> Tensor:
    """Subtract the mean of each channel from images and divide by its standard deviation, in the images' dtype.

    Args:
        x: Images (N, C, H, W).
        mean: (1, C, 1, 1).
        std: (1, C, 1, 1).
    """
    return ((x - mean) / std).to(x.dtype)


def _is_linear(module: nn.Module) -> bool:
    return isinstance(module, nn.Linear) or (
        isinstance(module, nn.Conv2d) and module.kernel_size == (1, 1) and module.groups == 1
    )


def _find_head(model: nn.Module, wanted: str | None) -> str | None:
    modules = dict(model.named_modules())
    if wanted is not None:
        if wanted not in modules or not _is_linear(modules[wanted]):
            found = "no such layer" if wanted not in modules else type(modules[wanted]).__name__
            linear = ", ".join(name for name, module in modules.items() if isinstance(module, nn.Linear))
            raise HeadNotFound(
                f"head={wanted!r} must name an nn.Linear or 1x1 nn.Conv2d of {type(model).__name__}; "
                f"found {found}. Its linear layers: {linear or 'none'}."
            )
        return wanted
    return next(_candidates(model, modules), None)


def _candidates(model: nn.Module, modules: dict[str, nn.Module]) -> Iterator[str]:
    names = {id(module): name for name, module in modules.items()}
    get_classifier = getattr(model, "get_classifier", None)
    if callable(get_classifier) and isinstance(declared := get_classifier(), nn.Module):
        yield from (names[id(m)] for m in reversed(list(declared.modules())) if _is_linear(m) and id(m) in names)
    yield from (name for name, module in reversed(modules.items()) if isinstance(module, nn.Linear))
    for name, module in reversed(modules.items()):
        if "parametrizations" in name.split("."):
            continue
        if _is_linear(module):
            yield name
        if not isinstance(module, _AFTER_CONV_HEAD) and not any(module.children()):
            return


def _sharing_weight(model: nn.Module, name: str) -> str | None:
    """Return the name of another layer that has the same weight tensor as a layer, if there is one."""
    modules = dict(model.named_modules())
    weight = modules[name]._parameters.get("weight")
    if weight is None:
        return None
    others = (other for other, module in modules.items() if other != name)
    return next((other for other in others if any(p is weight for p in modules[other]._parameters.values())), None)
