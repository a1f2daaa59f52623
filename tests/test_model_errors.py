"""Models that cannot be used are refused by name, by every method."""

from __future__ import annotations

import warnings
from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn

import ctta
from ctta.errors import ImageShape, LogitsShape, NotAModule, ScriptedModule, TooFewClasses
from ctta.registry import methods
from ctta.testing.compare import difference

METHODS = sorted(methods())
FEW_VIEWS = {"cotta": {"views": 2}, "memo": {"views": 2}, "petal": {"views": 2}}


def network(classes: int = 5) -> nn.Sequential:
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        body = [nn.Conv2d(3, 8, 3, bias=False), nn.BatchNorm2d(8), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten()]
        return nn.Sequential(*body, nn.Linear(8, classes)).eval()


def images(side: int = 12, count: int = 8) -> Tensor:
    return torch.rand(count, 3, side, side, generator=torch.Generator().manual_seed(1))


class Returning(nn.Module):
    """A network whose logits pass through a function."""

    def __init__(self, change: Callable[[Tensor], Tensor]) -> None:
        super().__init__()
        self.network, self.change = network(), change

    def forward(self, x: Tensor) -> Tensor:
        return self.change(self.network(x))


OUTPUTS: dict[str, Callable[[Tensor], Tensor]] = {
    "one number per image": lambda logits: logits[:, 0],
    "one row per position": lambda logits: logits[:, None],
    "a row for half of the images": lambda logits: logits[::2],
    "predicted classes": lambda logits: logits.argmax(1),
    "integer logits": lambda logits: logits.long(),
    "no classes": lambda logits: logits[:, :0],
}


@pytest.mark.parametrize("output", OUTPUTS)
@pytest.mark.parametrize("method", METHODS)
def test_logits_that_are_not_one_row_per_image_are_refused(method: str, output: str) -> None:
    adapter = ctta.method(method)(Returning(OUTPUTS[output]), **FEW_VIEWS.get(method, {}))
    for use in (adapter.step, adapter.predict):
        with pytest.raises(LogitsShape, match=r"floating-point logits \(\d, C\); Returning returned"):
            use(images())
    assert adapter.steps == 0


@pytest.mark.parametrize("thing", [None, 3, "resnet50", network().state_dict(), torch.relu, [network()]])
@pytest.mark.parametrize("wrap", [ctta.Classifier, ctta.Tent, ctta.Source])
def test_a_thing_that_is_no_module_is_refused(wrap: type[nn.Module], thing: object) -> None:
    with pytest.raises(NotAModule, match=f"must be a torch.nn.Module; got {type(thing).__name__}"):
        wrap(thing)


def test_a_class_of_modules_must_be_called_first() -> None:
    with pytest.raises(NotAModule, match=r"the class Returning\. Call it"):
        ctta.Tent(Returning)  # type: ignore[arg-type]


@pytest.mark.parametrize("compile_", [torch.jit.script, lambda model: torch.jit.trace(model, images())])
@pytest.mark.parametrize("method", METHODS)
def test_a_torchscript_module_is_refused(method: str, compile_: Callable[[nn.Module], nn.Module]) -> None:
    with warnings.catch_warnings():
        # TorchScript is deprecated; people still have such files.
        warnings.simplefilter("ignore")
        scripted = compile_(network())
    for model, place in ((scripted, "the model"), (nn.Sequential(nn.Identity(), scripted), "1")):
        with pytest.raises(ScriptedModule, match=f"TorchScript module cannot be copied and adapted; {place} is"):
            ctta.method(method)(model)


def test_scripted_preprocessing_without_weights_is_accepted() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        scripted = torch.jit.script(nn.ReLU())
    assert ctta.Tent(nn.Sequential(scripted, network())).step(images()).logits.shape == (8, 5)


WITH_MEMORY = {
    "note": {"memory_size": 8, "update_every": 8},
    "obao": {"buffer_size": 8, "e_margin": 1.0},
    "petta": {"memory_size": 8},
    "rotta": {"memory_size": 8, "update_every": 8},
}


@pytest.mark.parametrize("method", WITH_MEMORY)
def test_a_memory_refuses_another_image_size_in_mid_stream_and_stays_as_it_was(method: str) -> None:
    adapter = ctta.method(method)(network(), **WITH_MEMORY[method])
    adapter.step(images())
    before = adapter.state_dict()
    with pytest.raises(ImageShape, match=r"holds \(3, 12, 12\) and got \(3, 16, 16\)"):
        adapter.step(images(16))
    assert difference(before, adapter.state_dict()) is None
    assert adapter.predict(images(16)).shape == (8, 5)
    adapter.reset()
    assert adapter.step(images(16)).logits.shape == (8, 5)


@pytest.mark.parametrize("method", ["petta", "rotta"])
def test_a_memory_divided_among_classes_refuses_a_model_with_one_class(method: str) -> None:
    adapter = ctta.method(method)(network(classes=1), **WITH_MEMORY[method])
    before = adapter.state_dict()
    with pytest.raises(TooFewClasses, match="needs at least 2; Sequential has 1"):
        adapter.step(images())
    assert difference(before, adapter.state_dict()) is None


@pytest.mark.parametrize("method", [name for name in METHODS if name not in ("petta", "rotta")])
def test_every_other_method_takes_a_model_with_one_class_and_images_of_any_size(method: str) -> None:
    adapter = ctta.method(method)(network(classes=1), **FEW_VIEWS.get(method, {}))
    for side in (12,) if method == "note" else (12, 16):
        assert adapter.step(images(side)).logits.shape == (8, 1)
