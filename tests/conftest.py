"""What every test has around it."""

from __future__ import annotations

import faulthandler
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

_CPU = Path("/proc/cpuinfo")


def pytest_configure(config: pytest.Config) -> None:
    """Keep oneDNN from AMX where the processor announces it and traps its instructions, as in some virtual machines.

    There any bfloat16 product ends the process. Workers of pytest-xdist and child processes inherit the setting.
    """
    is_worker = hasattr(config, "workerinput")
    if is_worker or "ONEDNN_MAX_CPU_ISA" in os.environ or not _CPU.exists() or "amx_tile" not in _CPU.read_text():
        return
    if _dies_of_a_bfloat16_product():
        os.environ["ONEDNN_MAX_CPU_ISA"] = "AVX512_CORE_FP16"


def _dies_of_a_bfloat16_product() -> bool:
    import torch  # noqa: PLC0415 - only where it is needed

    child = os.fork()
    if child == 0:
        faulthandler.disable()
        torch.set_num_threads(1)
        a = torch.ones(512, 512, dtype=torch.bfloat16)
        a @ a
        os._exit(0)
    _, status = os.waitpid(child, 0)
    return os.WIFSIGNALED(status)


@pytest.fixture(scope="session", autouse=True)
def own_cache(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """A cache of its own for the session: tests neither use nor fill the user's."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("CTTA_CACHE", str(tmp_path_factory.mktemp("cache")))
        yield
