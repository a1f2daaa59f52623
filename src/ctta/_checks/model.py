"""Check models and what they return."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn.parameter import is_lazy

from ctta.errors import LogitsShape, ModelError, NotAModule, ScriptedModule

_TRAINABLE = (torch.float32, torch.float64, torch.bfloat16)


def check_model(model: object) -> None:
    """Check that a model can be copied and adapted.

    Args:
        model: The model.

    Raises:
        NotAModule: If it is not an nn.Module.
        ScriptedModule: If a TorchScript module holds some of its weights.
    """
    if isinstance(model, type) and issubclass(model, nn.Module):
        raise NotAModule(f"The model must be a torch.nn.Module; got the class {model.__name__}. Call it to build one.")
    if not isinstance(model, nn.Module):
        raise NotAModule(
            f"The model must be a torch.nn.Module; got {type(model).__name__}. Wrap a function in a module, and load "
            "a state_dict into the network it belongs to."
        )
    for name, module in model.named_modules():
        # A scripted part without weights, such as preprocessing, has nothing to adapt.
        if isinstance(module, torch.jit.ScriptModule) and next(module.parameters(), None) is not None:
            raise ScriptedModule(
                f"The layers of a TorchScript module cannot be copied and adapted; {name or 'the model'} is "
                f"{type(module).__name__}. Pass the nn.Module from which it was scripted or traced."
            )


def check_weights(model: nn.Module) -> None:
    """Check that the parameters of a model can be trained.

    Args:
        model: The model.

    Raises:
        ModelError: If they are of a type in which optimizer steps fail, or several elements share one place in memory.
    """
    for name, parameter in model.named_parameters():
        title = type(model).__name__
        if is_lazy(parameter):
            raise ModelError(f"{name} of {title} is not initialised. Run the model once before wrapping it.")
        refuse_half(parameter.dtype, title)
        if parameter.is_complex() or (parameter.is_floating_point() and parameter.dtype not in _TRAINABLE):
            raise ModelError(
                f"Weights must be float32, float64 or bfloat16; {name} of {title} is {parameter.dtype}. "
                "Use model.float()."
            )
        if parameter.layout is not torch.strided or parameter.is_meta:
            kind = "has no data (it is on the device 'meta')" if parameter.is_meta else f"is {parameter.layout}"
            raise ModelError(f"Weights must be dense tensors with data; {name} of {title} {kind}.")
        if any(step == 0 and size > 1 for step, size in zip(parameter.stride(), parameter.shape, strict=True)):
            raise ModelError(
                f"Every element of a weight must have its own place in memory; {name} of {title} is an expanded "
                "tensor. Make it nn.Parameter(value.clone())."
            )


def refuse_half(dtype: torch.dtype, model: str) -> None:
    """Refuse weights of half precision.

    Args:
        dtype: The type of the weights.
        model: The name of the model, for the message.

    Raises:
        ModelError: If they are float16.
    """
    if dtype == torch.float16:
        raise ModelError(
            f"{model} has float16 weights, in which optimizer steps underflow and overflow. "
            'Use model.float(), with precision="bf16" for speed.'
        )


def check_logits(logits: Tensor, images: int, model: str) -> Tensor:
    """Check that the output of a model is floating-point logits (N, C), and return it.

    Args:
        logits: What the model returned.
        images: The number N of images it was given.
        model: Its name, for the message.

    Raises:
        LogitsShape: If it is anything else.
    """
    if logits.dim() != 2 or len(logits) != images or not logits.shape[1] or not logits.is_floating_point():
        raise LogitsShape(
            f"A model must turn {images} images into floating-point logits ({images}, C); {model} returned "
            f"{tuple(logits.shape)} {logits.dtype}. Wrap it in a module that returns one logit per image and class."
        )
    return logits


#: What to do if a model's outputs look like probabilities.
REMOVE_SOFTMAX = (
    "seems to return probabilities. Every method applies a softmax itself and needs logits: remove the softmax at the "
    "end of the model."
)


def look_like_probabilities(outputs: Tensor) -> bool:
    """Return whether the outputs for every image are not negative and add up to one, as after a softmax.

    Args:
        outputs: The outputs of a model (N, C).
    """
    sums = outputs.sum(1)
    return bool((outputs >= 0).all() and torch.allclose(sums, torch.ones_like(sums), atol=1e-3))
