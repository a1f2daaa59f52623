"""Runs on the same images are compared batch by batch, and the difference has a standard error."""

from __future__ import annotations

import math
import statistics
from typing import Any

import pytest

from ctta.bench.compare import Row, rows
from ctta.bench.paired import Difference, Paired, Pairing, combined, pair_rows, paired_difference, paired_table
from ctta.bench.record import Record
from ctta.bench.scores import Scores
from ctta.errors import UnlikeRuns
from run_folders import record_of

Steps = list[dict[str, Any]]


def steps_of(batches: list[tuple[str, int]], images: int = 10) -> Steps:
    """A step per batch, with its domain and number of errors."""
    step = {"severity": 5, "images": images, "seconds": 0.1, "entropy_right": [0] * 20, "entropy_wrong": [0] * 20}
    return [step | {"index": i, "domain": d, "wrong": w, "error": 0.0} for i, (d, w) in enumerate(batches)]


FIRST = [("fog", 5), ("fog", 3), ("snow", 6), ("snow", 2)]
SECOND = [("fog", 4), ("fog", 3), ("snow", 4), ("snow", 1)]


def test_the_batches_of_one_place_in_all_domains_are_one_observation() -> None:
    # Of 20 predictions each, 11 and 8 are incorrect in the first batches, 5 and 4 in the second.
    assert paired_difference(steps_of(FIRST), steps_of(SECOND)) == pytest.approx((10.0, 5.0))


def test_with_equal_batches_the_error_is_that_of_a_mean_of_observations() -> None:
    wrong, other = (5, 1, 7, 2, 4), (4, 4, 3, 1, 0)
    found = paired_difference(steps_of([("fog", w) for w in wrong]), steps_of([("fog", w) for w in other]))
    apart = [10 * (a - b) for a, b in zip(wrong, other, strict=True)]
    assert found == pytest.approx((statistics.fmean(apart), statistics.stdev(apart) / math.sqrt(5)))


def test_a_small_last_batch_weighs_as_many_images_as_it_has() -> None:
    batches = [("fog", 5), ("fog", 1), ("snow", 6), ("snow", 2), ("snow", 3)]
    sizes = [10, 4, 10, 10, 7]
    first = [step | {"images": n} for step, n in zip(steps_of(batches), sizes, strict=True)]
    second = [step | {"wrong": wrong} for step, wrong in zip(first, (4, 0, 6, 1, 1), strict=True)]
    found = paired_difference(first, second)
    assert found.points == pytest.approx(Scores.of_steps(first).mean - Scores.of_steps(second).mean)


def test_a_domain_that_comes_again_counts_its_batches_anew() -> None:
    first, second = (steps_of([*batches, ("fog", 1), ("fog", 2)]) for batches in (FIRST, SECOND))
    # Observations are the first and the second batches of three stretches; fog has 40 images, snow 20.
    parts = [50 * (1 / 40 + 2 / 20), 50 * (0 / 40 + 1 / 20)]
    points = sum(parts)
    error = math.sqrt(2 * sum((part - points / 2) ** 2 for part in parts))
    assert paired_difference(first, second) == pytest.approx((points, error))


def test_a_single_batch_has_no_standard_error() -> None:
    found = paired_difference(steps_of([("fog", 5), ("snow", 2)]), steps_of([("fog", 4), ("snow", 2)]))
    assert found == (pytest.approx(5.0), None)


def test_other_batches_cannot_be_paired() -> None:
    with pytest.raises(UnlikeRuns, match="same batches"):
        paired_difference(steps_of(FIRST), steps_of(SECOND[::-1]))
    with pytest.raises(UnlikeRuns, match="same batches"):
        paired_difference(steps_of(FIRST), steps_of(SECOND[:3]))


def test_seeds_are_averaged_and_do_not_make_the_error_smaller() -> None:
    found = combined([Paired(1.0, 0.3), Paired(2.0, 0.4), Paired(3.0, None)])
    assert found == pytest.approx((2.0, math.sqrt((0.09 + 0.16) / 2)))
    assert combined([Paired(1.0, None)]) == (1.0, None)


def test_the_standard_error_of_single_batches_is_that_over_the_seeds() -> None:
    # Deviations of -2, -1 and 3 from the mean of 3: a variance of 7, over three seeds.
    assert combined([Paired(1.0, None), Paired(2.0, None), Paired(6.0, None)]) == pytest.approx((3.0, math.sqrt(7 / 3)))


def table_of(runs: dict[tuple[str, int], Steps]) -> tuple[list[Row], dict[str, Steps]]:
    made = [(Record.from_json(record_of(method, steps, seed=seed)), steps) for (method, seed), steps in runs.items()]
    return rows([record for record, _ in made]), {record.address: steps for record, steps in made}


def test_rows_are_compared_over_the_seeds_they_share() -> None:
    table, logs = table_of(
        {
            ("tent", 0): steps_of(FIRST),
            ("tent", 1): steps_of([(domain, 10) for domain, _ in FIRST]),
            ("dmse", 0): steps_of(SECOND),
            ("dmse", 2): steps_of([(domain, 0) for domain, _ in FIRST]),
        }
    )
    found = pair_rows(table, lambda record: logs[record.address])
    assert found.against == "dmse"
    (difference,) = found.differences
    assert (difference.label, difference.seeds) == ("tent", (0,))
    assert (difference.points, difference.standard_error) == pytest.approx((10.0, 5.0))
    chosen = pair_rows(table, lambda record: logs[record.address], "tent")
    assert chosen.differences[0].points == pytest.approx(-10.0)


def test_what_cannot_be_paired_is_named_or_left_out() -> None:
    table, logs = table_of({("tent", 1): steps_of(FIRST), ("dmse", 0): steps_of(SECOND), ("bn", 0): steps_of(FIRST)})
    with pytest.raises(UnlikeRuns, match=r"No row has the label 'eata'\. There are: tent, dmse, bn"):
        pair_rows(table, lambda record: logs[record.address], "eata")
    with pytest.raises(UnlikeRuns, match=r"tent and dmse have no seed in common.*: 1 and 0"):
        pair_rows(table, lambda record: logs[record.address])
    with pytest.raises(UnlikeRuns, match="bn cannot be paired: its run with seed 0 has no step log"):
        pair_rows(table[1:], lambda record: None if record.spec.method == "bn" else logs[record.address])
    loose = pair_rows(table, lambda record: logs[record.address], strict=False)
    assert [found.label for found in loose.differences] == ["bn"] and list(loose.unpaired) == ["tent"]


def test_differences_are_written_in_every_form() -> None:
    pairing = Pairing("dmse_x", (Difference("tent", (0, 1), 1.234, 0.456), Difference("a_b|c", (0,), -0.5, None)))
    assert paired_table(pairing, "markdown").splitlines()[2:] == [
        "| tent | +1.23 | 0.46 | 2 |",
        r"| a_b\|c | -0.50 | – | 1 |",
    ]
    assert r"error minus dmse\_x, points" in paired_table(pairing, "latex")
    assert paired_table(pairing, "csv").splitlines()[-1] == "a_b|c,-0.50,,1"
    assert len({len(line) for line in paired_table(pairing).splitlines()}) == 1


def test_marks_need_not_be_typed_and_are_explained_below_the_table() -> None:
    table, logs = table_of({("lame", 0): steps_of(FIRST), ("bn", 0): steps_of(SECOND)})
    pairing = pair_rows(table, lambda record: logs[record.address], "lame")
    assert pairing.against == "lame†"
    assert paired_table(pairing).endswith("\n† predicts after using the batch, or a part of it\n")
    without, logs = table_of({("tent", 0): steps_of(FIRST), ("bn", 0): steps_of(SECOND)})
    assert "†" not in paired_table(pair_rows(without, lambda record: logs[record.address], "tent"))


def test_rounds_of_a_single_domain_show_the_same_batches_again() -> None:
    wrong, other = (5, 1, 7), (4, 4, 3)
    once = [steps_of([("fog", w) for w in some]) for some in (wrong, other)]
    twice = [steps_of([("fog", w) for w in some * 2]) for some in (wrong, other)]
    assert paired_difference(*twice, rounds=2) == pytest.approx(paired_difference(*once))


def test_a_domain_that_resumes_goes_on_with_its_next_batch() -> None:
    visits = [0, 2, 1, 3]  # fog, snow, fog, snow: each comes twice, with new images each time
    resumed = [steps_of([batches[i] for i in visits]) for batches in (FIRST, SECOND)]
    whole = paired_difference(steps_of(FIRST), steps_of(SECOND))
    assert paired_difference(*resumed, resumes=True) == pytest.approx(whole)


def test_a_label_that_several_rows_have_is_refused_with_their_names() -> None:
    table = [Row(label, (0,), {}, 1.0, None, 1.0, ()) for label in ("mine@0123456789ab", "mine@ba9876543210")]
    with pytest.raises(UnlikeRuns, match="Several rows have the label 'mine'"):
        pair_rows(table, lambda record: None, "mine")


def test_every_batch_of_a_stream_that_draws_its_images_anew_is_an_observation() -> None:
    wrong, other = (5, 1, 7, 2), (4, 4, 3, 1)
    runs = [steps_of([("ccc", w) for w in some]) for some in (wrong, other)]
    changing = [[step | {"severity": 0.25 * i} for i, step in enumerate(steps)] for steps in runs]
    apart = [10 * (a - b) for a, b in zip(wrong, other, strict=True)]
    expected = (statistics.fmean(apart), statistics.stdev(apart) / math.sqrt(4))
    assert paired_difference(*changing, resumes=True) == pytest.approx(expected)
