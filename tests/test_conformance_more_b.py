"""Float64 logits of further methods against those of the public implementations (tests/data/more_b.npz)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import count

import pytest
import torch
from torch import Tensor

import ctta
from reference import DATA, Masked, flip, four_views, net, source_batches, stream, vectors_of

FILE = DATA / "more_b.npz"
VECTORS = vectors_of(FILE)


def vector(name: str) -> Tensor:
    return torch.from_numpy(VECTORS[name])


class GivenDraws(ctta.NOTE):
    """NOTE with the random numbers of a case: classes, indices and uniform numbers, in order."""

    def __init__(self, case: str, **options: object) -> None:
        super().__init__(net(), memory_size=16, update_every=16, **options)
        self.draws = iter(VECTORS[f"{case}/draws"].tolist())

    def choice(self, options: Sequence[int]) -> int:
        kind, value = next(self.draws)
        assert kind in (0, 1) and value in options
        return int(value)

    def uniform(self) -> float:
        kind, value = next(self.draws)
        assert kind == 2
        return value


class GivenSamples(ctta.OBAO):
    """OBAO with the replayed images of a case."""

    def __init__(self, case: str, **options: object) -> None:
        super().__init__(net(), buffer_size=24, replay=10, view=flip, **options)
        self.case, self.batches = case, count()

    def drawn(self) -> Tensor:
        given = f"{self.case}/sample{next(self.batches)}"
        if given in VECTORS:
            return vector(given)
        assert len(self.buffer) < self.replay
        return super().drawn()


class MaskedPETAL(Masked, ctta.PETAL):
    file = FILE


def petal(case: str, **options: object) -> ctta.Adapter:
    names = [name for name, _ in net().named_parameters()]
    mean, var = (torch.cat([vector(f"petal_{kind}/{n}").flatten() for n in names]) for kind in ("mean", "var"))
    return MaskedPETAL(case, prior_mean=mean, prior_var=var, prior_weight=1e-5, p_th=2.0, **options)


def petta(**options: object) -> ctta.Adapter:
    statistics = {"feature_mean": vector("petta_source_mean"), "feature_var": vector("petta_source_var")}
    return ctta.PeTTA(net(), memory_size=16, view=four_views(), **statistics, **options)


def note_ablated() -> ctta.Adapter:
    return GivenDraws("note_batch_sgd", optimizer="sgd", lr=0.05, k=3.0, learned_statistics=False, temperature=0.5)


CASES: dict[str, Callable[[], ctta.Adapter]] = {
    "dua": lambda: ctta.DUA(net()),
    "note_adam": lambda: GivenDraws("note_adam", lr=1e-3),
    "note_batch_sgd": note_ablated,
    "obao_weight_adam": lambda: GivenSamples("obao_weight_adam", lambda_relation=5.0, e_margin=0.3),
    "obao_weight_mse_sgd": lambda: GivenSamples(
        "obao_weight_mse_sgd", optimizer="sgd", lr=0.01, lambda_buffer=0.5, e_margin=0.5, relation_loss="squared"
    ),
    "petal_fim_adam": lambda: petal("petal_fim_adam"),
    "petal_sres_adam": lambda: petal("petal_sres_adam", restoration="random"),
    "petta_adam": petta,
    "petta_ce_adam": lambda: petta(lr=0.01, alpha_0=0.05, lambda_0=1.0, loss="ce"),
    "memo_sgd": lambda: ctta.MEMO(net(), views=4, view=four_views()),
}


@pytest.mark.parametrize("case", CASES)
def test_logits_equal_the_reference(case: str) -> None:
    adapter = CASES[case]()
    logits = torch.stack([adapter(x) for x in stream()])
    torch.testing.assert_close(logits, vector(f"logits/{case}"), rtol=0, atol=1e-9)


def test_dua_decays_its_momentum_as_the_reference() -> None:
    adapter = ctta.DUA(net())
    momentum = torch.tensor([adapter.step(x).log["momentum"] for x in stream()], dtype=torch.float64)
    torch.testing.assert_close(momentum, vector("dua/momentum"), rtol=0, atol=1e-12)


@pytest.mark.parametrize("alpha", [0.1, 0.6])
def test_bnema_is_torch_in_train_mode_and_then_in_eval_mode(alpha: float) -> None:
    adapter, model = ctta.BNEMA(net(), alpha=alpha), net()
    for layer in model.modules():
        if isinstance(layer, torch.nn.BatchNorm2d):
            layer.momentum = alpha
    for x in stream()[:4]:
        with torch.no_grad():
            model.train()(x)
            expected = model.eval()(x)
        torch.testing.assert_close(adapter(x), expected, rtol=0, atol=1e-9)


def test_feature_statistics_equal_the_reference_in_any_split_of_the_source() -> None:
    images = torch.cat([x for x, _ in source_batches()])
    for batches in (source_batches(), [images], images.split(7)):
        found = ctta.feature_statistics_from_source(net(), batches)
        torch.testing.assert_close(found.mean, vector("petta_source_mean"), rtol=0, atol=1e-9)
        torch.testing.assert_close(found.var, vector("petta_source_var"), rtol=0, atol=1e-9)


@pytest.mark.parametrize("case", ["petta_adam", "petta_ce_adam"])
def test_petta_slows_its_teacher_as_the_reference(case: str) -> None:
    adapter = CASES[case]()
    alpha = torch.tensor([adapter.step(x).log["alpha"] for x in stream()], dtype=torch.float64)
    torch.testing.assert_close(alpha, vector(f"{case}/trace")[:, 0], rtol=0, atol=1e-9)


def test_note_gives_the_same_answers_image_by_image() -> None:
    adapter = CASES["note_adam"]()
    logits = torch.cat([adapter(image) for x in stream() for image in x.split(1)])
    torch.testing.assert_close(logits, vector("logits/note_adam").flatten(0, 1), rtol=0, atol=1e-9)
