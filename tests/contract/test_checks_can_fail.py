"""A check that cannot fail says nothing: each of these adapters breaks one point and is caught by it."""

from __future__ import annotations

import pytest

from contract import broken
from ctta.adapter import Adapter
from ctta.errors import CttaError, UnknownName
from ctta.testing import ContractBroken, Subject, check_adapter, checks
from ctta.testing.models import bn_cnn, gn_cnn, ln_vit, plain_cnn
from ctta.testing.task import fit, labelled_images, trained

CAUGHT = [
    (broken.AttachedLogits, "finite_logits", "detached"),
    (broken.WritesToImages, "finite_logits", "caller's images"),
    (broken.TrainsMore, "only_trained_move", "head.bias"),
    (broken.ChangesTheModel, "only_trained_move", "user's own model"),
    (broken.KeepsTheOptimizer, "reset_restores", "optimizer"),
    (broken.CountsInSecret, "reset_restores", "same predictions"),
    (broken.ForgetsInCheckpoints, "resume_bit_equal", "bit for bit"),
    (broken.DrawsFromTorch, "seeded", "generator.torch"),
    (broken.DrawsFromNumpy, "seeded", "generator.numpy"),
    (broken.DrawsFromPython, "seeded", "generator.random"),
    (broken.PredictCounts, "predict_leaves_no_trace", "called twice"),
    (broken.NeedsGrad, "grad_modes", "torch.no_grad"),
    (broken.AllowsInferenceMode, "grad_modes", "InferenceMode"),
    (broken.StumblesOverOne, "batch_of_one", "ValueError"),
    (broken.NeedsBatchNorm, "any_norm", "IndexError"),
    (broken.LearnsFromNan, "accidents_do_not_reach_weights", "not to reach the state"),
    (broken.LeavesATraceOfNan, "accidents_do_not_reach_weights", "seen"),
    (broken.KeepsTensors, "memory_is_flat", "tensors at"),
    (broken.KeepsNumbers, "memory_is_flat", "entries at"),
    (broken.KeepsGraphs, "memory_is_flat", "graph_nodes at"),
    (broken.GrowsABuffer, "memory_is_flat", "tensor_bytes at"),
    (broken.ListensToTrain, "modes_change_nothing", "mode"),
    (broken.IgnoresAnArgument, "every_argument_counts", "strength"),
    (broken.SingleOnly, "double_precision", "float64"),
    (broken.ReadsAFile, "constructor_reads_nothing", "broken.py"),
    (broken.AsksTheNetwork, "constructor_reads_nothing", "create_connection"),
    (broken.Collapses, "clean_stream", "error of at most"),
    (broken.PredictsAfterLearning, "predicts_before_learning", "logits that differ"),
    (broken.AsksTwice, "ask_and_learn_is_step", "same logits from ask"),
    (broken.RemembersWhatWasForgotten, "forget_leaves_no_trace", "not to affect the next step"),
]


CASES = [
    pytest.param(*case, id=case[0].__name__, marks=pytest.mark.trial if case[1] == "memory_is_flat" else ())
    for case in CAUGHT
]


@pytest.mark.parametrize(("adapter", "point", "words"), CASES)
def test_broken_adapter_is_caught_by(adapter: type[Adapter], point: str, words: str) -> None:
    with pytest.raises(ContractBroken) as caught:
        dict(checks())[point](Subject(adapter))
    assert point in caught.value.point
    assert words in str(caught.value)


GLOBAL = "generator.torch moved: draw from self.generator instead"
BUFFER = "state that is not a buffer, or a generator besides self.generator? Call self.register_buffer"


@pytest.mark.parametrize(
    ("adapter", "point", "hint"),
    [
        (broken.DrawsFromTorch, "reset_restores", GLOBAL),
        (broken.DrawsFromTorch, "resume_bit_equal", GLOBAL),
        (broken.DrawsFromTorch, "seeded", GLOBAL),
        (broken.CountsInSecret, "reset_restores", BUFFER),
        (broken.ForgetsInCheckpoints, "resume_bit_equal", BUFFER),
        (broken.SeedsItself, "seeded", BUFFER),
        (broken.RegistersLate, "reset_restores", "found state: keys ['late'] on one side only; is it registered after"),
        (broken.AttachedLogits, "finite_logits", "use .detach()"),
        (broken.NeverDescends, "every_argument_counts", "no parameter changed in 7 steps: self.descend(loss) was not"),
    ],
)
def test_a_broken_point_hints_at_the_likely_cause(adapter: type[Adapter], point: str, hint: str) -> None:
    with pytest.raises(ContractBroken) as caught:
        dict(checks())[point](Subject(adapter))
    assert hint in str(caught.value)


def test_an_argument_without_effect_is_no_sign_that_nothing_was_learned() -> None:
    with pytest.raises(ContractBroken) as caught:
        dict(checks())["every_argument_counts"](Subject(broken.IgnoresAnArgument))
    assert "descend" not in str(caught.value)


def test_every_point_is_seen_to_fail() -> None:
    assert {point for _, point, _ in CAUGHT} == {name for name, _ in checks()}


def test_an_infinite_sentinel_is_no_accident() -> None:
    dict(checks())["accidents_do_not_reach_weights"](Subject(broken.HasASentinel))


def test_there_are_nineteen_points_numbered_in_order() -> None:
    numbers = [int((check.__doc__ or "").split(":")[0]) for _, check in checks()]
    assert numbers == list(range(1, 20))


def test_sound_adapter_of_a_third_party_passes_unregistered() -> None:
    check_adapter(broken.Sound)


def test_adapter_may_refuse_a_family_by_a_named_error() -> None:
    dict(checks())["any_norm"](Subject(broken.RefusesFamilies))


def test_first_broken_point_is_raised_unless_skipped() -> None:
    later = {name for name, _ in checks()} - {"finite_logits", "only_trained_move"}
    with pytest.raises(ContractBroken, match="2 only_trained_move"):
        check_adapter(broken.TrainsMore, skip=later)
    check_adapter(broken.TrainsMore, skip=later | {"only_trained_move"})


def test_skipping_an_unknown_point_names_the_nearest() -> None:
    with pytest.raises(UnknownName, match="Did you mean 'memory_is_flat'"):
        check_adapter(broken.Sound, skip=["memory_flat"])


def test_last_point_uses_the_model_images_and_labels_given() -> None:
    x, y = labelled_images(128, seed=7)
    clean_stream = dict(checks())["clean_stream"]
    clean_stream(Subject(broken.Sound, lambda: trained(gn_cnn), images=x, labels=y))
    # Wrong labels make the source err as well: nothing rises.
    clean_stream(Subject(broken.Collapses, lambda: trained(gn_cnn), images=x, labels=(y + 1) % 10))


def test_broken_contract_is_both_an_assertion_and_an_error_of_ours() -> None:
    assert issubclass(ContractBroken, AssertionError)
    assert issubclass(ContractBroken, CttaError)


@pytest.mark.parametrize("build", [bn_cnn, ln_vit, gn_cnn, plain_cnn])
def test_tiny_networks_are_tiny_and_learn_their_images(build) -> None:
    model = trained(build)
    x, y = labelled_images(500, seed=11)
    assert sum(p.numel() for p in model.parameters()) < 20_000
    assert (model(x).argmax(1) != y).float().mean() < 0.1


def test_training_a_tiny_network_is_deterministic() -> None:
    first, second = fit(bn_cnn()).state_dict(), fit(bn_cnn()).state_dict()
    assert all(first[name].equal(second[name]) for name in first)
