"""Records as values: they keep the JSON they were read from, including keys that a later version adds."""

from __future__ import annotations

import hashlib
import json
from dataclasses import fields
from pathlib import Path

import pytest

from ctta.bench import record as module
from ctta.bench.folder import RunFolder, read_record
from ctta.bench.record import OPTIONAL, SCHEMA, Record
from ctta.bench.scores import Count, Scores, SeedScores
from ctta.errors import BadData
from run_folders import make_run, record_of, steps_of

RESULTS = Path(__file__).resolve().parents[2] / "docs" / "results"


def test_every_published_record_is_written_as_it_was_read() -> None:
    for path in RESULTS.glob("*/record.json"):
        text = path.read_text(encoding="utf-8")
        record = Record.from_json(json.loads(text))
        assert json.dumps(record.to_json(), indent=1, ensure_ascii=False) == text.rstrip("\n")
        assert record.address == record.spec.address == path.parent.name


def test_the_schema_documents_every_field() -> None:
    assert [field.name for field in fields(Record)] == [*SCHEMA, *OPTIONAL, "extra"]
    assert all(SCHEMA.values()) and all(OPTIONAL.values())


def test_entries_that_this_version_does_not_know_survive(tmp_path: Path) -> None:
    entries = record_of("tent", steps_of((4, 2, 1)), temperature=[1.5])
    record = Record.from_json(entries | {"carbon": {"grams": 3}})
    assert record.extra == {"carbon": {"grams": 3}} and record.spec.extra == {"temperature": [1.5]}
    assert record.spec.address == record.address
    run = RunFolder(tmp_path / record.address)
    run.write_record(record)
    assert run.read_record() == record
    assert json.loads(run.record_file.read_text())["carbon"] == {"grams": 3}


@pytest.mark.parametrize("name", ["images", "source_data"])
def test_a_specification_without_a_field_is_refused_by_its_name(tmp_path: Path, name: str) -> None:
    path = make_run(tmp_path, "tent") / "record.json"
    entries = json.loads(path.read_text()) | {"format": 1}
    del entries["digest"], entries["spec"][name]
    text = json.dumps(entries["spec"], sort_keys=True, separators=(",", ":"))
    path.write_text(json.dumps(entries | {"address": hashlib.sha256(text.encode()).hexdigest()[:20]}))
    with pytest.raises(BadData, match=rf"spec\.{name}"):
        read_record(path)


def test_records_can_still_be_read_through_the_module_of_the_record() -> None:
    assert module.read_record is read_record
    with pytest.raises(AttributeError, match="has no attribute 'nothing'"):
        _ = module.nothing  # type: ignore[attr-defined]


def test_the_mean_counts_every_domain_once_whatever_its_size() -> None:
    steps = [
        {"domain": "fog", "images": 8, "wrong": 2},
        {"domain": "snow", "images": 2, "wrong": 2},
        {"domain": "fog", "images": 2, "wrong": 1},
    ]
    scores = Scores.of_steps(steps)
    assert scores.counts == {"fog": Count(10, 3), "snow": Count(2, 2)}
    assert scores.errors == {"fog": 30.0, "snow": 100.0} and scores.mean == 65.0 and scores.images == 12


def test_seeds_are_averaged_by_domain_and_one_seed_has_no_spread() -> None:
    # Sample standard deviation of 1, 2 and 6: sqrt((4 + 1 + 9) / 2).
    scores = SeedScores.of_runs([{"fog": 1.0, "snow": 3.0}, {"fog": 3.0, "snow": 5.0}, {"fog": 5.0}], [1.0, 2.0, 6.0])
    assert scores.errors["fog"] == 3.0 and scores.errors["snow"] != scores.errors["snow"]  # NaN
    assert scores.mean == 3.0 and scores.spread == pytest.approx(7**0.5)
    assert SeedScores.of_runs([{"fog": 1.0}], [1.0]).spread is None
