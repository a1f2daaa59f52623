from __future__ import annotations

from collections.abc import Iterator

import pytest
import torch

from device.other_device import other_device


@pytest.fixture
def device() -> Iterator[torch.device]:
    """The device of device.other_device, for one test."""
    with other_device() as found:
        yield found
