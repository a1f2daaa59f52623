"""Choose the device to compute on."""

from __future__ import annotations

import torch
from torch import Tensor

from ctta.errors import DeviceUnavailable


def choose_device(name: str | None = None) -> torch.device:
    """Return the named device, or the best one available.

    Args:
        name: "cpu", "cuda", "cuda:1", "mps" or another device type of torch. None chooses CUDA if available, then MPS,
            then the CPU.

    Raises:
        DeviceUnavailable: If torch does not know the device or cannot use it here.
    """
    if name is None:
        return torch.device(available_devices()[0])
    try:
        device = torch.device(name)
        # The only way to find out whether it works is to use it.
        torch.empty(1, device=device).cpu()
    except (RuntimeError, AssertionError, NotImplementedError) as error:
        reason = str(error).strip().split("\n")[0].rstrip(".")
        raise DeviceUnavailable(
            f"The device {name!r} cannot be used here: {reason}. Available: {', '.join(available_devices())}."
        ) from error
    return device


def available_devices() -> list[str]:
    """Return the devices that torch can use here, the fastest kind first."""
    cuda = [f"cuda:{index}" for index in range(torch.cuda.device_count())] if torch.cuda.is_available() else []
    mps = ["mps"] if torch.backends.mps.is_available() else []
    return [*cuda, *mps, "cpu"]


def to_device(x: Tensor, device: torch.device) -> Tensor:
    """Move images to a device, without waiting if their memory is pinned.

    Args:
        x: Images.
        device: The device.
    """
    return x.to(device, non_blocking=device.type == "cuda" and x.device.type == "cpu" and x.is_pinned())
