"""Find the norm layers in the last stage of a network from its module tree.

SAR and DeYO do not train the last stage. Their code finds it with a list of layer names that fits a ResNet
(``layer4``) and timm's ViT-B (``blocks.9`` to ``blocks.11`` and ``norm``) and nothing else.
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from itertools import takewhile
from typing import Any

from torch import nn

from ctta._adapter.method import MethodPart
from ctta.errors import ParameterError
from ctta.norms import norm_affine, norm_layers

logger = logging.getLogger("ctta")

# Both published choices are the last quarter: one of a ResNet's four stages, three of a ViT-B's twelve blocks.
_PARTS = 4
# Two alike children are too common (a backbone and a neck, two branches) to be read as the stages of a network.
_FEWEST_STAGES = 3
_CONTAINERS = (nn.Sequential, nn.ModuleList, nn.ModuleDict)


class SparesLastStage(MethodPart):
    """A method that trains the norm layers before the last stage only."""

    last_stage: str | None
    _left_out: tuple[str, ...]

    def begin_before(self, last_stage: str | None) -> None:
        """Finish the construction: train the weights and biases of the norm layers before the last stage.

        Args:
            last_stage: The modules of the last stage, separated by commas. None finds them by structure.

        Raises:
            ParameterError: If the network has no module of such a name.
        """
        model = self.student.model
        self.last_stage = last_stage
        self._left_out = tuple(last_stage_norms(model) if last_stage is None else _norms_inside(model, last_stage))
        self.begin(norm_affine(model, keep=lambda layer_name: layer_name not in self._left_out))

    @contextmanager
    def first_pass(self) -> Iterator[None]:
        """Log a warning if the forward pass runs a layer that is trained after one of the last stage."""
        with norm_order(self.student.model) as order:
            yield
        if self.last_stage is None and (later := trained_later(order, self._left_out)):
            logger.warning(
                "%s does not train the last stage, and took %s for it, but %s runs later and is trained. Name the "
                'modules of the last stage, such as last_stage="layer4".',
                type(self).__name__,
                " to ".join(dict.fromkeys((self._left_out[0], self._left_out[-1]))),
                later[0],
            )


@contextmanager
def norm_order(model: nn.Module) -> Iterator[list[str]]:
    """Collect the names of the norm layers in the order in which the forward passes in this context run them.

    Norm layers of pooled features, which belong to the head, are left out.

    Args:
        model: The network, without a Classifier around it.
    """
    names: list[str] = []

    def note(name: str, given: tuple[Any, ...]) -> None:
        if name not in names and given and given[0].dim() > 2:
            names.append(name)

    handles = [
        layer.register_forward_pre_hook(lambda layer, given, name=name: note(name, given))
        for name, layer in norm_layers(model).items()
    ]
    try:
        yield names
    finally:
        for handle in handles:
            handle.remove()


def trained_later(order: list[str], left_out: Collection[str]) -> tuple[str, ...]:
    """Return the layers that run after the first one that is left out, and are not left out.

    Args:
        order: The names of the norm layers in the order of the forward pass.
        left_out: The names of those that are not trained.
    """
    first = next((index for index, name in enumerate(order) if name in left_out), len(order))
    return tuple(name for name in order[first:] if name not in left_out)


def _norms_inside(model: nn.Module, names: str) -> list[str]:
    """Return the names of the norm layers in some modules."""
    modules = dict(model.named_modules())
    wanted = [name.strip() for name in names.split(",") if name.strip()]
    for name in wanted:
        if name not in modules:
            children = ", ".join(child for child, _ in model.named_children())
            raise ParameterError(
                f"The 'last_stage' parameter must name modules of {type(model).__name__}, separated by commas; "
                f"{name!r} is none of them. It has: {children}."
            )
    inside = {id(part) for name in wanted for part in modules[name].modules()}
    return [name for name, layer in norm_layers(model).items() if id(layer) in inside]


def last_stage_norms(model: nn.Module) -> dict[str, nn.Module]:
    """Find the norm layers in the last quarter of a network, by name.

    The stages, or the blocks if the network has only one stage, are the longest row of similar modules nearest to the
    root. The last quarter of them, rounded down, is left out, and so is what follows up to the first linear layer, such
    as the final norm of a transformer. Modules are taken in the order in which they were registered: a constructor does
    not know the size of the images, without which it cannot run a forward pass. The first step compares this order with
    that of the forward pass, and so does `ctta.doctor`.

    Args:
        model: The network, without a Classifier around it.

    Returns:
        The norm layers to leave out; none if the network has fewer than four stages or blocks. The published list of
        names leaves out none in three-stage CIFAR networks either.
    """
    tree = _Tree(model)
    left_out = {id(part) for module in tree.last_quarter() for part in module.modules()}
    return {name: layer for name, layer in tree.norms.items() if id(layer) in left_out}


class _Tree:
    """A model as a tree of modules, some of which are norm layers."""

    def __init__(self, model: nn.Module) -> None:
        self.model = model
        self.norms = norm_layers(model)
        self._ids = {id(layer) for layer in self.norms.values()}

    def last_quarter(self) -> Iterator[nn.Module]:
        """Yield the last stages and what follows them; nothing if there are fewer than four."""
        path: list[tuple[nn.Module, nn.Module]] = []
        module = self.model
        while (inner := self._larger_than_its_siblings(module)) is not None:
            path.append((module, inner))
            module = inner
        stages = self._stages(module)
        last = stages[len(stages) - len(stages) // _PARTS :]
        if last:
            yield from last
            yield from _behind([*path, (module, last[-1])])

    def _stages(self, module: nn.Module) -> list[nn.Module]:
        """Return the largest group of similar children."""
        groups: dict[object, list[nn.Module]] = {}
        for child in self._with_norms(module):
            groups.setdefault(self._kind(child, module), []).append(child)
        return max((g for g in groups.values() if len(g) >= _FEWEST_STAGES), key=self._size, default=[])

    def _larger_than_its_siblings(self, module: nn.Module) -> nn.Module | None:
        """Return the child in which to look for the stages, if the children themselves are not the stages."""
        stages = self._stages(module)
        known = self._ids | {id(stage) for stage in stages}
        sizes = {child: self._size([child]) for child in self._with_norms(module) if id(child) not in known}
        largest = max(sizes.values(), default=0)
        if largest <= self._size(stages):
            return None
        # The last of the large ones: before a transformer, a convolutional stem may have more norms than the blocks.
        return [child for child, size in sizes.items() if 3 * size >= largest][-1]

    def _kind(self, child: nn.Module, parent: nn.Module) -> object:
        if id(child) in self._ids:
            return "norm"
        if type(parent) in _CONTAINERS:
            return "block"
        if type(child) in _CONTAINERS:
            return "stage" if any(id(part) not in self._ids for part in self._with_norms(child)) else "layers"
        return type(child)

    def _with_norms(self, module: nn.Module) -> list[nn.Module]:
        return [child for child in module.children() if any(id(part) in self._ids for part in child.modules())]

    def _size(self, modules: list[nn.Module]) -> int:
        return sum(id(part) in self._ids for module in modules for part in module.modules())


def _behind(path: list[tuple[nn.Module, nn.Module]]) -> Iterator[nn.Module]:
    """Yield the modules registered after the end of a path from the root, up to the first linear layer."""
    behind: list[nn.Module] = []
    for parent, child in reversed(path):
        siblings = list(parent.children())
        behind += siblings[siblings.index(child) + 1 :]
    # A norm behind a linear layer is the head's: AdaContrast's network has one, which the published code trains.
    return takewhile(lambda sibling: not isinstance(sibling, nn.Linear), behind)
