"""Protocols that reset the adapter, and streams that repeat: what runs and tables do with them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from ctta.bench.compare import rows, text_table
from ctta.bench.folder import RunFolder, read_record
from ctta.bench.jobs import execute
from ctta.bench.paired import pair_rows, paired_table
from ctta.bench.record import Record
from ctta.bench.scores import rounds_of
from jobs import change_job, make_job

JOB = make_job("tent", "digits", "digits_resnet8", images=30, batch_size=10, corruptions=("fog", "contrast"))


def run(tmp_path: Path, **changes: Any) -> Record:
    return execute(change_job(JOB, **changes), tmp_path)


def test_reset_at_shift_is_a_run_of_its_own_for_every_domain(tmp_path: Path) -> None:
    both = run(tmp_path, protocol="reset-at-shift")
    alone = [run(tmp_path, corruptions=(name,)) for name in ("fog", "contrast")]
    assert both.errors == alone[0].errors | alone[1].errors
    assert both.spec.resets == "shift" and both.spec.protocol["resets"] == "shift"


def test_an_episodic_run_answers_like_one_that_never_learns(tmp_path: Path) -> None:
    # Tent predicts before it learns, so a reset before every batch leaves nothing of what it learnt.
    episodic = run(tmp_path, protocol="episodic", settings={"lr": 0.5})
    assert episodic.errors == run(tmp_path, learn=False).errors != run(tmp_path, settings={"lr": 0.5}).errors


def test_a_run_that_resumes_within_a_domain_is_not_reset_there(tmp_path: Path, monkeypatch: Any) -> None:
    whole = run(tmp_path / "whole", protocol="reset-at-shift", settings={"lr": 0.05})

    def stop(adapter: Any, left: int) -> Any:
        def show(batch: Any, log: Any) -> None:
            if batch.index == 4:
                raise KeyboardInterrupt

        return show

    job = change_job(JOB, protocol="reset-at-shift", settings={"lr": 0.05})
    with pytest.raises(KeyboardInterrupt):
        execute(job, tmp_path / "again", save_every=0, progress=stop)
    again = execute(job, tmp_path / "again")
    assert (again.errors, again.counts) == (whole.errors, whole.counts)


def test_tables_say_that_the_method_knew_the_boundaries(tmp_path: Path) -> None:
    for protocol, note in (("reset-at-shift", "told where a domain begins"), ("episodic", "remembers nothing")):
        assert note in text_table(rows([run(tmp_path, method="source", protocol=protocol)]))
        two = rows([run(tmp_path, method=method, protocol=protocol) for method in ("source", "bn")])
        pairing = pair_rows(two, lambda record: RunFolder(tmp_path / record.address).read_steps())
        assert note in paired_table(pairing) and note in paired_table(pairing, "markdown")
    assert "reset" not in text_table(rows([run(tmp_path, method="source")]))


def test_a_stream_that_repeats_has_one_error_per_round(tmp_path: Path) -> None:
    record = run(tmp_path, protocol="recurring-correlated", times=3, method="source")
    # The source predicts each image alone: every round has the error of the whole, whatever its order.
    assert record.rounds == pytest.approx([record.mean] * 3)
    assert read_record(tmp_path / record.address / "record.json") == record
    assert record.spec.protocol["options"] == {"concentration": 0.1}
    table = text_table(rows([record]))
    assert f"error per round     1     2     3\nsource{record.mean:>15.1f}" in table
    assert "rounds" not in run(tmp_path, method="bn").to_json()


def test_the_error_of_a_round_is_the_mean_over_its_domains() -> None:
    wrong = [1, 3, 5, 0, 2, 4, 9]
    steps = [{"domain": "aab"[i % 3], "images": 10, "wrong": wrong[i]} for i in range(7)]
    first = (100 * (1 + 3) / 20 + 100 * 5 / 10) / 2
    second = (100 * (0 + 2) / 20 + 100 * 4 / 10) / 2
    assert rounds_of(steps, total=9, times=3) == (first, second)
    assert rounds_of(steps, total=9, times=None) is None


def test_one_image_at_a_time_is_what_wild_single_shows(tmp_path: Path) -> None:
    record = run(tmp_path, method="source", protocol="wild-single", batch_size=None, images=3)
    assert record.spec.batch_size == 1 and record.images == 6
