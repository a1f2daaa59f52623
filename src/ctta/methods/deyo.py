"""DeYO: learn from samples whose prediction depends on the shape of the object.

Lee et al., "Entropy is not enough for test-time adaptation: from the perspective of disentangled factors", ICLR 2024.
"""

from __future__ import annotations

import math
from typing import ClassVar, Literal

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from typing_extensions import Unpack

from ctta._adapter.last_stage import SparesLastStage
from ctta.adapter import Adapter, Learning, Step
from ctta.augment import AnyView
from ctta.errors import ParameterError
from ctta.functional import entropy
from ctta.norms import source_statistics_where_single, use_batch_statistics
from ctta.options import SharedOptions, check_bounds, with_defaults
from ctta.recipes import WITHOUT_BATCH_NORM, per_dataset
from ctta.registry import register


@register
class DeYO(SparesLastStage, Adapter):
    """Minimise the entropy of confident predictions that depend on the shape of the object.

    Low entropy alone does not mean that a prediction is based on the object. DeYO destroys the object's shape, for
    example by shuffling patches of the image, and measures the PLPD: how far the probability of the predicted class
    drops. It learns from samples that are confident and whose probability drops, and weights them by both. Like `SAR`,
    it does not train the last stage of the network.

    Args:
        model: The source model, or a `Classifier` around it.
        tau_ent: First filter, in units of ln C: keep samples whose entropy is below it. Lower keeps fewer.
        e_0: Level of the entropy weight, in units of ln C. It does not filter.
        tau_plpd: Second filter: keep samples whose PLPD is above it. The recipes use 0.2; the authors use 0.3 for
            ResNet-50 with batch norm in their mild setting.
        destroy: How to destroy the shape: "patch" (shuffle a 4x4 grid), "occlusion" (replace the central half by the
            mean colour), or a function of images and generator. Pass your own function if classes are not defined by
            shape, as with textures.
        last_stage: The modules that are not trained, by name and separated by commas, such as "layer4" or
            "blocks.11,norm"; "" trains all norm layers. None finds them by structure, as described above.
        shared: Options that every method takes; see `Adapter`.

    Example:
        >>> import torch, ctta
        >>> from ctta.testing.models import bn_cnn
        >>> model = ctta.DeYO(bn_cnn(), tau_plpd=0.1)
        >>> logits = model(torch.rand(8, 3, 16, 16))  # predicts, then learns from the batch
        >>> logits.shape
        torch.Size([8, 10])
    """

    trains = "the weights and biases of normalisation layers before the last stage"
    passes = (2, 1)
    defaults: ClassVar[SharedOptions] = {"nesterov": False}
    recipes = per_dataset()
    norm_recipes = WITHOUT_BATCH_NORM

    def __init__(
        self,
        model: nn.Module,
        *,
        tau_ent: float = 0.5,
        e_0: float = 0.4,
        tau_plpd: float = 0.2,
        destroy: Literal["patch", "occlusion"] | AnyView = "patch",
        last_stage: str | None = None,
        **shared: Unpack[SharedOptions],
    ) -> None:
        super().__init__(model, **with_defaults(self.defaults, shared))
        self.tau_ent = tau_ent
        self.e_0 = e_0
        self.tau_plpd = tau_plpd
        self.destroy = destroy
        check_bounds(self, tau_ent=(0, 1), e_0=(0, 1), tau_plpd=(-1, 1))
        views: dict[object, AnyView] = {"patch": shuffle_patches, "occlusion": occlude}
        if not callable(destroy) and destroy not in views:
            raise ParameterError(
                f"The 'destroy' parameter of DeYO must be 'patch', 'occlusion' or a function. Got {destroy!r} instead."
            )
        self._destroyed = destroy if callable(destroy) else views[destroy]
        use_batch_statistics(self.student)
        self.begin_before(last_stage)

    def adapt(self, x: Tensor) -> Learning:
        """Predict, then take one step on the samples that pass both filters, if there are any."""
        logits = self.student(x)
        h = entropy(logits)
        self.require_finite(h.detach().sum())
        yield logits.detach()
        log_c = math.log(logits.shape[1])
        certain = h.detach() < self.tau_ent * log_c
        if not certain.any():
            return Step(logits.detach(), None, {"kept": 0.0})
        # The destroyed images are normalised among themselves: only the certain ones are in that batch.
        with torch.no_grad(), source_statistics_where_single(self.student):
            destroyed = self.student(self._destroyed(x[certain], self.generator))
        label = logits.detach()[certain].argmax(1, keepdim=True)
        p, p_destroyed = logits.detach()[certain].softmax(1), destroyed.softmax(1)
        plpd = (p.gather(1, label) - p_destroyed.gather(1, label)).squeeze(1)
        keep = plpd > self.tau_plpd
        if not keep.any():
            return Step(logits.detach(), None, {"kept": 0.0})
        kept_h, plpd = h[certain][keep], plpd[keep]
        weight = (self.e_0 * log_c - kept_h.detach()).exp() + plpd.exp()  # Eq. 10
        loss = (weight * kept_h).mean()
        self.descend(loss)
        return Step(logits.detach(), loss.item(), {"kept": float(keep.sum()), "entropy": h.mean().item()})


def shuffle_patches(x: Tensor, generator: torch.Generator, *, grid: int = 4) -> Tensor:
    """Cut each image into patches and reassemble them in a random order, drawn for each image.

    Args:
        x: Images (N, C, H, W).
        generator: Draws the orders.
        grid: Patches per side.
    """
    order = torch.rand(len(x), grid * grid, generator=generator).argsort(1)
    return permute_patches(x, order, grid=grid)


def permute_patches(x: Tensor, order: Tensor, *, grid: int = 4) -> Tensor:
    """Put the patches of every image in a given order.

    Args:
        x: Images (N, C, H, W).
        order: For each image, the patch to put at each position, row by row: (N, grid^2).
        grid: Patches per side. Images are resized if their sides are not a multiple of it.
    """
    n, c, height, width = x.shape
    h, w = height // grid, width // grid
    fits = (
        F.interpolate(x, (h * grid, w * grid), mode="bilinear", antialias=True)
        if (h * grid, w * grid) != (height, width)
        else x
    )
    patches = fits.reshape(n, c, grid, h, grid, w).permute(0, 2, 4, 1, 3, 5).reshape(n, grid * grid, c, h, w)
    patches = patches[torch.arange(n, device=x.device).unsqueeze(1), order.to(x.device)]
    whole = patches.reshape(n, grid, grid, c, h, w).permute(0, 3, 1, 4, 2, 5).reshape(n, c, h * grid, w * grid)
    return whole if fits is x else F.interpolate(whole, (height, width), mode="bilinear", antialias=True)


def occlude(x: Tensor, generator: torch.Generator) -> Tensor:
    """Replace the central half of every image by its mean colour.

    Args:
        x: Images (N, C, H, W).
        generator: Not used; every view takes one.
    """
    height, width = x.shape[-2:]
    top, left = height // 4, width // 4
    x = x.clone()
    x[..., top : top + height // 2, left : left + width // 2] = x.mean(dim=(2, 3), keepdim=True)
    return x
