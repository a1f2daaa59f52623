"""Float64 logits of the further methods against those of the public implementations (tests/data/more_a.npz)."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import cache

import numpy as np
import pytest
import torch
from torch import Tensor

import ctta
from reference import DATA, net, stream

# E_0 of the cases is 1.3 nats; the argument is in units of ln C.
COME = {"loss": "come", "come_mass": 10.0}
SGD = {"optimizer": "sgd", "nesterov": False}
MARGIN = {"e_margin": 1.3 / math.log(10)}

CASES: dict[str, Callable[[], ctta.Adapter]] = {
    "rpl_adam": lambda: ctta.RPL(net()),
    "come_tent_k10": lambda: ctta.Tent(net(), loss="come", lr=0.05, **SGD),
    "come_tent_adam_k1000": lambda: ctta.Tent(net(), loss="come", come_mass=1000.0),
    "come_eata_k10_m": lambda: ctta.EATA(net(), lr=0.05, d_margin=0.4, **MARGIN, **COME, **SGD),
    "come_sar_k10_m": lambda: ctta.SAR(net(), lr=0.2, **MARGIN, **COME),
    "shot_im": lambda: ctta.SHOT(net(), beta=0.0),
    "shot_beta1": lambda: ctta.SHOT(net(), beta=1.0),
    "shot_ttab_adam": lambda: ctta.SHOT(
        net(), labels="confident", layers="all", beta=0.3, threshold=0.8, eps=0.0, optimizer="adam", lr=1e-3
    ),
    "lame_rbf": lambda: ctta.LAME(net(), affinity="rbf"),
    "lame_knn": lambda: ctta.LAME(net()),
    "t3a_k5": lambda: ctta.T3A(net(), filter_k=5),
    "t3a_k1_batchstats": lambda: ctta.T3A(net(), filter_k=1, statistics="batch"),
}


@cache
def vectors() -> dict[str, np.ndarray]:
    with np.load(DATA / "more_a.npz") as file:
        return dict(file)


def vector(name: str) -> Tensor:
    return torch.from_numpy(vectors()[name])


@pytest.mark.parametrize("case", CASES)
def test_logits_equal_the_reference(case: str) -> None:
    adapter = CASES[case]()
    logits = torch.stack([adapter(x) for x in stream()])
    # The vectors of LAME hold probabilities; ours are their logarithms.
    found = logits.exp() if case.startswith("lame") else logits
    torch.testing.assert_close(found, vector(f"logits/{case}"), rtol=0, atol=1e-9)


def test_every_vector_is_used() -> None:
    assert {f"logits/{case}" for case in CASES} == {name for name in vectors() if name.startswith("logits/")}
