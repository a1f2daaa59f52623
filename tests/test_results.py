"""The published results match the records next to them."""

from __future__ import annotations

import importlib.util
import re
from dataclasses import replace
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from ctta.bench.defaults import default_arguments
from ctta.bench.folder import RunFolder, read_records
from ctta.bench.record import Record
from ctta.corruption_names import CORRUPTIONS
from ctta.method_table import built_in
from ctta.paper import experiment
from ctta.registry import get_method
from run_folders import record_of, steps_of, write_run

DOCS = Path(__file__).resolve().parent.parent / "docs"
RECORDS = read_records(DOCS / "results")


def script(name: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(name, DOCS.parent / "scripts" / f"{name}.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="module")
def results() -> ModuleType:
    return script("results")


def test_the_tables_of_the_page_are_fresh(results: ModuleType) -> None:
    text = (DOCS / "results.md").read_text(encoding="utf-8")
    assert results.filled(text, RECORDS) == text, "run python scripts/results.py"


def test_a_changed_record_makes_the_page_stale(results: ModuleType) -> None:
    text = (DOCS / "results.md").read_text(encoding="utf-8")
    changed = [replace(record, mean=record.mean + 1) for record in RECORDS]
    assert results.filled(text, changed) != text


def test_every_record_counts_what_its_steps_counted() -> None:
    for record in RECORDS:
        wrong: dict[str, int] = {}
        for step in RunFolder(DOCS / "results" / record.address).read_steps():
            assert sum(step["entropy_wrong"]) == step["wrong"]
            assert sum(step["entropy_right"]) == step["images"] - step["wrong"]
            wrong[step["domain"]] = wrong.get(step["domain"], 0) + step["wrong"]
        assert wrong == {domain: count.wrong for domain, count in record.counts.items()}


def test_no_default_has_changed_since_a_record_that_relies_on_it() -> None:
    """An address holds only what differs from the defaults: a changed one would give old records another meaning."""
    plain = (bool, int, float, str, type(None))
    for record in RECORDS:
        if record.spec.method not in built_in():
            continue
        method = get_method(record.spec.method)
        defaults = default_arguments(method, record.spec.data_name, record.spec.batch_size)
        relied_on = set(defaults) & set(record.settings) - set(record.spec.settings) - {"seed", "view", "statistics"}
        relied_on -= set(method.from_source.names) if record.spec.source_data and method.from_source else set()
        relied_on -= {"momentum", "nesterov"} if record.settings.get("optimizer") == "adam" else set()
        if record.spec.method == "trio" and not re.search("_vit_|_gn_", record.spec.model_name):
            relied_on.discard("learns_from")  # "auto" is "all" on networks with batch norm
        for name in relied_on:
            if isinstance(defaults[name], plain) and isinstance(record.settings[name], plain):
                assert record.settings[name] == defaults[name], (record.address, name)


def test_every_figure_of_the_page_is_there() -> None:
    text = (DOCS / "results.md").read_text(encoding="utf-8")
    shown = [part.split(")")[0] for part in text.split("](") if part.split(")")[0].endswith(".svg")]
    assert shown and all((DOCS / path).is_file() for path in shown)


def test_records_name_no_place_of_the_machine_they_were_made_on() -> None:
    assert not [record.command for record in RECORDS if " /" in record.command or "=/" in record.command]


def test_rows_of_a_table_are_averaged_over_the_seeds_they_all_have(results: ModuleType) -> None:
    def run(seed: int) -> Record:
        return Record.from_json(record_of("tent", steps_of((4, 2, 1)), seed=seed))

    found = results.of_shared_seeds([[run(0), run(1), run(2)], [run(2), run(0)], [run(0), run(3)]])
    assert found == [[run(0)], [run(0)], [run(0)]]


def run_on(model: str, method: str, wrong: int, **changes: Any) -> Record:
    """A run on a network in which every batch of ten has this many errors."""
    steps = steps_of((wrong,) * len(CORRUPTIONS), CORRUPTIONS)
    like = {"batch_size": 200, "model": {"name": model, "digest": "07ae", "mean": [0.5], "std": [0.2]}} | changes
    return Record.from_json(record_of(method, steps, **like))


TENT_WITH_LAYER_NORM = {"optimizer": "sgd", "lr": 0.003125, "nesterov": False}  # 0.001 / 64 per image


def test_a_table_of_networks_shows_every_method_with_its_cost_and_gain_over_the_source(
    results: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(results, "costs_of_steps", lambda: {"source": 0.81, "lame": 0.99, "tent": 2.06})
    records = [
        run_on("bn", "source", 5),
        run_on("ln", "source", 6),
        run_on("bn", "tent", 3),
        run_on("ln", "tent", 7, settings={"optimizer": "adam", "lr": 0.001}),
        run_on("ln", "tent", 2, settings=TENT_WITH_LAYER_NORM),
        run_on("ln", "lame", 9, settings={"affinity": "rbf", "k": 5}),
        run_on("bn", "tent", 4, settings={"loss": "come"}),
        run_on("ln", "tent", 3, settings=TENT_WITH_LAYER_NORM | {"loss": "come"}),
        run_on("ln", "tent", 1, settings={"lr": 0.5}),  # other settings than a recipe's
        run_on("ln", "roid", 1, batch_size=10),
        run_on("ln", "roid", 1, severity=3),
        run_on("gn", "roid", 1),
    ]
    lines = results.network_lines(["cifar10-c", "40", "bn", "ln=layer"], records)
    assert lines[2 : lines.index("")] == [
        "| source | 0.8 | 50.0 | 60.0 |",
        "| lame† | 1.0 | – | 90.0 (+30.0) |",
        "| tent | 2.1 | **30.0** (-20.0) | 70.0 (+10.0) |",
        "| tent loss=come | – | 40.0 (-10.0) | – |",
        "| tent loss=come, `--norm` | – | – | 30.0 (-30.0) |",
        "| tent, `--norm` | 2.1 | – | **20.0** (-40.0) |",
    ]
    assert lines[-2] == "for method in source lame tent; do ctta run $method cifar10-c; done"
    with pytest.raises(SystemExit, match="no run of source"):
        results.network_lines(["cifar10-c", "40", "bn", "gn"], records)


def test_an_experiment_over_two_settings_is_a_grid(results: ModuleType) -> None:
    settings = {"optimizer": "adam", "lr": 0.001, "projection": "mlp"}
    records = [
        run_on("bn", "dmse", wrong, images=500, settings=settings | {"alpha_min": alpha, "e_min": e})
        for wrong, alpha, e in ((5, 0.98, 0.1), (6, 0.98, 0.3), (7, 0.999, 0.1), (4, 0.999, 0.3))
    ]
    assert results.lines(["alpha-e", "cifar10-c", "bn", "500", "grid"], records)[:4] == [
        "|  | e_min 0.1 | e_min 0.3 |",
        "|---|---|---|",
        "| alpha_min 0.98 | 50.00 | 60.00 |",
        "| alpha_min 0.999 | 70.00 | **40.00** |",
    ]


def test_a_table_of_runs_keeps_protocols_with_other_options_and_rounds_apart(
    results: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    clumps = {"name": "correlated", "options": {"concentration": 0.01}}
    again = {"name": "recurring", "times": 2}
    records = [
        replace(run_on("bn", "source", 5, protocol=again, severity=None), rounds=(60.0, 40.0)),
        run_on("bn", "source", 5, protocol={"name": "correlated"}),
        run_on("bn", "source", 6, protocol=clumps),
        run_on("bn", "tent", 3, protocol=clumps),
    ]
    for record, wrong in zip(records, (5, 5, 6, 3), strict=True):
        write_run(tmp_path / "results", record.to_json(), steps_of((wrong,) * len(CORRUPTIONS), CORRUPTIONS))
    monkeypatch.setattr(results, "DOCS", tmp_path)
    monkeypatch.setattr(results, "costs_of_steps", lambda: {"tent": 2.06})

    def rows(*what: str) -> list[str]:
        lines: list[str] = results.run_lines(["cifar10-c", "bn", *what], records)[0]
        return lines[2 : lines.index("")]

    assert rows("correlated", "5", "200", "40", "source") == ["| source | 50.00 |  | 1 |"]
    assert rows("correlated:concentration=0.01", "5", "200", "40", "source", "fog", "cost") == [
        "| tent | 30.00 | -30.00 ± 0.00 | 30.0 | 2.1 | 1 |",
        "| source | 60.00 |  | 60.0 | – | 1 |",
    ]
    rounds = rows("recurring:times=2", "-", "200", "40", "source", "rounds")
    assert rounds == ["| source | 50.00 |  | 60.0, 40.0 | 1 |"]


def test_a_table_of_runs_may_leave_out_rows_with_fewer_seeds(
    results: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = [("source", 5, 0), ("source", 7, 1), ("tent", 3, 0), ("tent", 4, 1), ("bn", 1, 0)]
    for method, wrong, seed in found:
        record = run_on("net", method, wrong, seed=seed)
        write_run(tmp_path / "results", record.to_json(), steps_of((wrong,) * len(CORRUPTIONS), CORRUPTIONS))
    monkeypatch.setattr(results, "DOCS", tmp_path)
    records = read_records(tmp_path / "results")

    def methods_and_seeds(extra: str) -> list[tuple[str, str]]:
        page = results.filled(f"<!-- runs: cifar10-c net continual 5 200 40 source{extra} -->\n<!-- end -->", records)
        return re.findall(r"^\| (\w+) \|.* (\d) \|$", page, re.MULTILINE)

    assert methods_and_seeds("") == [("bn", "1"), ("tent", "1"), ("source", "1")]
    assert methods_and_seeds(" @seeds=2") == [("tent", "2"), ("source", "2")]


def test_leads_are_the_differences_of_the_titled_tables(
    results: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for network, wrong in (("one", {"source": 10, "bn": 4}), ("two", {"source": 8, "tent": 2})):
        for method, count in wrong.items():
            record = run_on(network, method, count)
            write_run(tmp_path / "results", record.to_json(), steps_of((count,) * len(CORRUPTIONS), CORRUPTIONS))
    monkeypatch.setattr(results, "DOCS", tmp_path)
    records = read_records(tmp_path / "results")
    table = "<!-- runs: cifar10-c {} continual 5 200 40 source @title=stream_{} -->\n<!-- end -->\n"
    streams = table.format("one", 1) + table.format("two", 2)
    page = results.filled(streams + "<!-- leads: bn -> BN, tent -> Tent -->\n<!-- end -->", records)
    shown = page[page.index("<!-- leads") :].splitlines()[1:-1]
    # Of every ten images 4 are wrong instead of 10, and 2 instead of 8.
    assert shown[0] == "| stream | BN | Tent |"
    assert [line.split(" ± ")[0] for line in shown[2:]] == ["| stream 1 | -60.00", "| stream 2 | – | -60.00"]
    with pytest.raises(SystemExit, match="no titled table has a row 'sar'"):
        results.filled(streams + "<!-- leads: sar -> SAR -->\n<!-- end -->", records)


def test_runs_on_other_images_are_not_in_one_table(results: ModuleType) -> None:
    other = {"name": "cifar10-c", "origin": "generated", "digest": "b2c3", "corruption_seed": 0}
    gradual = {"protocol": {"name": "gradual"}, "severity": None}
    records = [
        run_on("bn", "source", 5, **gradual),
        run_on("bn", "source", 6, **gradual, data=other | {"digest": "b2c3"}),
    ]
    region = "<!-- table: gradual cifar10-c bn 40{} -->\n<!-- end -->"
    with pytest.raises(SystemExit, match=r"several data, .*b2c3.*: add @data="):
        results.filled(region.format(""), records)
    assert "60.00" in (shown := results.filled(region.format(" @data=b2"), records)) and "50.00" not in shown
    with pytest.raises(SystemExit, match="no run"):
        results.filled(region.format(" @domains=3"), records)


def test_the_figures_are_those_of_the_records() -> None:
    """Compare figures drawn without matplotlib only: its output depends on its version."""
    figures = script("figures")
    (drawing,) = experiment("teacher").drawings
    drawn = drawing.draw(figures.outcomes("teacher", RECORDS)).svg("Entropy")
    published = (DOCS / "results" / "figures" / "teacher_cifar10-c_cifar10_resnet20.svg").read_bytes()
    title = re.compile(rb"<title>.*?</title>")
    assert title.sub(b"", drawn) == title.sub(b"", published), "run python scripts/figures.py"
