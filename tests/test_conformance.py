"""Float64 logits of every method against those of the public implementations (tests/data/vectors.npz)."""

from __future__ import annotations

from collections.abc import Callable
from itertools import count

import pytest
import torch
from torch import Tensor

import ctta
from ctta.methods.deyo import permute_patches
from reference import MaskedCoTTA, flip, four_views, net, projector, source_batches, stream, vector

SGD = {"optimizer": "sgd"}
HALF = {"sce_weight": 0.5}


def with_projector(cls: type[ctta.Adapter], **options: object) -> ctta.Adapter:
    return cls(net(), projection=projector(), view=flip, **options)


def dmse(**options: object) -> ctta.Adapter:
    return with_projector(ctta.DMSE, **options)


def deyo() -> ctta.Adapter:
    calls = count()

    def given_permutations(x: Tensor, generator: torch.Generator) -> Tensor:
        return permute_patches(x, vector(f"deyo_patch_adam/perm{next(calls)}"))

    return ctta.DeYO(net(), destroy=given_permutations)


def full_rmt() -> ctta.Adapter:
    adapter = with_projector(ctta.RMT, prototypes=vector("prototypes_src"), source=source_batches(), lambda_src=1.0)
    adapter.warm_up(5)
    return adapter


def eata() -> ctta.Adapter:
    fisher = ctta.fisher_from_source(net(), source_batches(), most=64)
    return ctta.EATA(net(), lr=1e-2, d_margin=0.4, fisher=fisher)


CASES: dict[str, Callable[[], ctta.Adapter]] = {
    "source": lambda: ctta.Source(net()),
    "bn_adapt": lambda: ctta.BN(net()),
    "tent_adam": lambda: ctta.Tent(net()),
    "tent_sgd_hot": lambda: ctta.Tent(net(), lr=0.05, **SGD),
    "eta_adam_hot": lambda: ctta.EATA(net(), lr=1e-2, d_margin=0.4),
    "eata_adam_hot": eata,
    "rdumb_adam_reset3": lambda: ctta.RDumb(net(), d_margin=0.4, reset_every=3),
    "rdumb_sgd_nonest": lambda: ctta.RDumb(net(), d_margin=0.4, lr=2.5e-4, nesterov=False, **SGD),
    "sar_hot": lambda: ctta.SAR(net(), lr=0.2),
    "deyo_patch_adam": deyo,
    "cotta_adam_aug": lambda: MaskedCoTTA("cotta_adam_aug", p_th=2.0),
    "cotta_imagenet_sgd": lambda: MaskedCoTTA(
        "cotta_imagenet_sgd", p_th=2.0, restore_p=0.001, lr=0.01, symmetric=True, **SGD
    ),
    "rmt_adam": lambda: with_projector(ctta.RMT, prototypes=vector("prototypes_src")),
    "rmt_full_adam": full_rmt,
    "rmt_star_adam": lambda: with_projector(ctta.RMT),
    "santa_adam": lambda: with_projector(ctta.SANTA, prototypes=vector("prototypes_src")),
    "santa_star_adam": lambda: with_projector(ctta.SANTA),
    "rotta_adam": lambda: ctta.RoTTA(net(), memory_size=16, update_every=16, view=four_views()),
    "roid_adam": lambda: ctta.ROID(net(), view=flip),
    "dmse_ref": lambda: dmse(**HALF),
    "dmse_ref_sce1": dmse,
    "dmse_ref_prev": lambda: dmse(**HALF, centre="dynamic"),
    "dmse_ref_nearest": lambda: dmse(**HALF, contrast_with="nearest"),
    "dmse_ref_p0empty": lambda: dmse(**HALF, empty_class="p_0"),
    "dmse_ref_logC": lambda: dmse(**HALF, entropy_unit="ln C"),
    "dmse_ref_ema": lambda: dmse(**HALF, reset_by="average"),
    "dmse_ref_emin05": lambda: dmse(**HALF, e_min=0.5),
}


@pytest.mark.parametrize("case", CASES)
def test_logits_equal_the_reference(case: str) -> None:
    adapter = CASES[case]()
    # The dmse_* vectors hold the sum of student and teacher; the prediction is their mean.
    scale = 2 if case.startswith("dmse") else 1
    logits = torch.stack([scale * adapter(x) for x in stream()])
    torch.testing.assert_close(logits, vector(f"logits/{case}"), rtol=0, atol=1e-9)


def test_cotta_without_views_equals_the_reference_until_rounding_noise_is_all_it_learns_from() -> None:
    # Student and teacher start equal, so the gradient is exactly zero and Adam, whose step ignores scale,
    # amplifies rounding by lr / eps = 1e5 a batch: 1e-15, 1e-13, 1e-7, then the size of an Adam step.
    adapter = MaskedCoTTA("cotta_adam_noaug", p_th=0.0)
    logits = torch.stack([adapter(x) for x in stream()])
    expected = vector("logits/cotta_adam_noaug")
    torch.testing.assert_close(logits[:2], expected[:2], rtol=0, atol=1e-9)
    torch.testing.assert_close(logits[2:], expected[2:], rtol=0, atol=4e-3)


@pytest.mark.parametrize("case", [case for case in CASES if case.startswith("dmse")])
def test_dmse_trace_and_final_prototypes_equal_the_reference(case: str) -> None:
    adapter = CASES[case]()
    steps = [adapter.step(x) for x in stream()]
    trace = vector(f"{case}/trace")  # entropy, alpha, reset, confident samples, loss
    entropy = torch.tensor([s.log["entropy"] for s in steps], dtype=torch.float64)
    if case == "dmse_ref_logC":
        entropy = entropy / torch.tensor(10.0, dtype=torch.float64).log()
    torch.testing.assert_close(entropy, trace[:, 0], rtol=0, atol=1e-9)
    for column, found in ((1, "alpha"), (2, "teacher_reset")):
        values = torch.tensor([s.log[found] for s in steps], dtype=torch.float64)
        torch.testing.assert_close(values, trace[:, column], rtol=0, atol=1e-9)
    confident = torch.tensor([16 * s.log["confident_share"] for s in steps], dtype=torch.float64)
    torch.testing.assert_close(confident, trace[:, 3], rtol=0, atol=1e-5)
    loss = torch.tensor([s.loss for s in steps], dtype=torch.float64)
    torch.testing.assert_close(loss, trace[:, 4], rtol=0, atol=1e-9)
    torch.testing.assert_close(adapter.p_t, vector(f"{case}/prototypes_final"), rtol=0, atol=1e-9)


def test_source_prototypes_equal_the_reference() -> None:
    prototypes = ctta.prototypes_from_source(net(), source_batches())
    torch.testing.assert_close(prototypes, vector("prototypes_src"), rtol=0, atol=1e-9)


def test_rmt_resets_to_the_state_after_its_warm_up() -> None:
    adapter = full_rmt()
    for x in stream():
        adapter(x)
    adapter.reset()
    logits = torch.stack([adapter(x) for x in stream()])
    torch.testing.assert_close(logits, vector("logits/rmt_full_adam"), rtol=0, atol=1e-9)
