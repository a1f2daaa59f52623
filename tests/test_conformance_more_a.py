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
from reference import DATA, flip, net, stream

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
    "cmf_adam": lambda: ctta.CMF(net(), view=flip),
    "cmf_adam_q": lambda: ctta.CMF(net(), q=0.7, view=flip),
    "asr_eta_sgd_hot": lambda: ctta.ASR(
        net(), a_0=0.8, r_0=0.7, r_1=0.3, m_0=0.6, p_0=50.0, d_margin=0.4, lr=0.05, optimizer="sgd"
    ),
    "asr_roid_sgd_hot": lambda: ctta.ASR(
        net(), base="roid", a_0=0.7, r_0=0.7, r_1=1.0, m_0=0.3, view=flip, lr=0.05, optimizer="sgd"
    ),
    "palm_adam": lambda: ctta.PALM(net(), view=flip),
    "palm_adam_mixed": lambda: ctta.PALM(net(), lr=2e-3, beta=0.3, eta=0.0022, lambda_ce=0.05, view=flip),
    "law_adam": lambda: ctta.LAW(net(), stale_gradient=True, view=flip),
    "law_adam_zeroed": lambda: ctta.LAW(net(), view=flip),
    "t3a_k1_batchstats": lambda: ctta.T3A(net(), filter_k=1, statistics="batch"),
}


# What a case traces in addition to its logits: (8, columns).
TRACES: dict[str, Callable[[ctta.Adapter, ctta.Step], Tensor]] = {
    "cmf": lambda adapter, step: torch.tensor([step.log["hidden_kept"], adapter.variance], dtype=torch.float64),
    "asr": lambda adapter, step: torch.tensor(
        [step.log[name] for name in ("concentration", "level", "disagreement", "reset")], dtype=torch.float64
    ),
    "palm": lambda adapter, step: adapter.lr * adapter.rates,
    "law": lambda adapter, step: adapter.lr * adapter.rates_of(adapter.fisher),
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
    traced = TRACES.get(case.partition("_")[0], lambda adapter, step: torch.empty(0))
    steps = [(step := adapter.step(x), traced(adapter, step)) for x in stream()]
    logits = torch.stack([step.logits for step, _ in steps])
    # The vectors of LAME hold probabilities; ours are their logarithms.
    found = logits.exp() if case.startswith("lame") else logits
    torch.testing.assert_close(found, vector(f"logits/{case}"), rtol=0, atol=1e-9)
    for kind in ("trace", "lr"):
        if f"{case}/{kind}" in vectors():
            trace = torch.stack([row for _, row in steps])
            torch.testing.assert_close(trace, vector(f"{case}/{kind}"), rtol=0, atol=1e-9)


def test_every_vector_is_used() -> None:
    assert {f"logits/{case}" for case in CASES} == {name for name in vectors() if name.startswith("logits/")}
