"""Reproductions of results about spot instances: their rows agree, and each can fail."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from forerun.core.errors import DataError
from forerun.replication.bamboo import published, reproduce
from forerun.replication.cant_be_late import published as deadline_published
from forerun.replication.cant_be_late.reproduce import cant_be_late
from forerun.replication.oobleck import published as elastic_published
from forerun.replication.reliability import reproduce as reliability
from forerun.replication.reproduction import silent
from forerun.replication.reproductions import reproduction


@pytest.fixture()
def mirror(data_folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FORERUN_DATA_DIR", str(data_folder.parent))


@pytest.mark.usefixtures("mirror")
def test_run86_and_oobleck_hold() -> None:
    for identifier in ("bamboo-run86", "oobleck-throughput"):
        found = reproduction(identifier).run(silent)
        assert not found.failed, [row.name for row in found.failed]
        assert sum(row.ok is True for row in found.rows) >= 7


@pytest.mark.usefixtures("mirror")
def test_the_notebooks_rows_hold(monkeypatch: pytest.MonkeyPatch) -> None:
    """With fewer trials and levels: the twelve values, the effect of the worst defect, the answered
    question.
    """
    monkeypatch.setattr(reproduce, "TRIALS", 300)
    monkeypatch.setattr(reproduce, "LEVELS", (0.05, 0.5))
    monkeypatch.setattr(reproduce, "DEFECT_LEVELS", (0.5,))
    monkeypatch.setattr(reproduce, "SEEDS", 4)
    monkeypatch.setattr(reproduce, "GENERATED", 12)
    monkeypatch.setattr(reproduce, "GROWTH_LEVELS", (0.5,))
    found = reproduce.bamboo_notebook(silent)
    assert not found.failed
    rows = {row.name: row for row in found.rows}
    assert sum(row.ok is True for row in found.rows) == 12
    effect = {
        name: (row.compat or 0.0) / (row.corrected or 1.0) - 1
        for name, row in rows.items()
        if name.endswith("steps at 0.5 events/min")
    }
    assert effect["extend: steps at 0.5 events/min"] < -0.2
    assert 0.02 < effect["rounded: steps at 0.5 events/min"] < 0.07
    assert 0.12 < effect["no_stall: steps at 0.5 events/min"] < 0.3
    assert abs(effect["none: steps at 0.5 events/min"]) < 0.003
    assert rows["sample_set: runs stopped by an error"].compat == 12
    drift = rows["marks: removals/min"]
    assert drift.compat is not None and drift.corrected is not None and drift.compat > 1.08 * drift.corrected
    hole = rows["clamp_hole: most nodes"]
    assert hole.compat is not None and hole.corrected is not None and hole.compat >= hole.corrected
    assert {figure.id for figure in found.figures} == {"sensitivity", "growth", "defects"}
    for rule in ("hazard", "hazard_drain", "lazy"):
        gain = rows[f"{rule} against immediate at 0.5 events/min, stall 0 s"].corrected
        assert gain is not None and gain > 0.2
    assert set(found.figures[0].data["line"]) == {"useful", "lost", "reconfig", "idle"}


def test_published_tables_are_the_reference(golden: Callable[[str], Any]) -> None:
    """The numbers in the package are those of the reference files."""
    table = golden("bamboo_table.json")
    for p, row in published.BAMBOO_TABLE.items():
        assert row == {name: value["mean"] for name, value in table[str(p)].items() if name != "n"}
    for case in golden("elastic_runs.json"):
        if case["system"] != "bamboo":
            assert (
                elastic_published.ELASTIC_RESULTS[case["system"]][case["model"]][case["trace"]]
                == case["average_performance"]
            )
    for name, cell in golden("deadline_costs.json")["cells"].items():
        policy, rate = name.split("/")
        assert deadline_published.DEADLINE_COSTS[policy][float(rate)] == (cell["mean"], cell["n"])
    assert golden("trace_stats.json")["notebook_printed"] == published.NOTEBOOK_PRINTED


def test_deadline_reproduction_on_a_few_traces(monkeypatch: pytest.MonkeyPatch) -> None:
    """The mean of few traces is not the published one, and the row says so: the comparison can fail."""
    costs = {
        "greedy": {0.3: (deadline_published.DEADLINE_COSTS["greedy"][0.3][0], 20)},
        "on_demand": {0.3: (147.39, 2)},
    }
    monkeypatch.setattr(deadline_published, "DEADLINE_COSTS", costs)
    found = cant_be_late(silent)
    assert [row.ok for row in found.rows] == [False, True, True]
    assert found.rows[1].name == "greedy at 0.3/h deadlines missed" and found.rows[1].compat == 0


def test_bamboo_reproduction_on_one_level(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(published, "BAMBOO_GOAL_STEPS", 300)
    monkeypatch.setattr(published, "BAMBOO_TABLE", {0.5: published.BAMBOO_TABLE[0.5]})
    found = reproduce.bamboo_table(silent)
    assert found.failed and all(row.corrected is not None for row in found.rows)


def test_times_to_failure_and_ratios_are_the_published_ones(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reliability, "COUNT", 20)
    found = reliability.meta_ettr(silent)
    assert not found.failed and sum(row.ok is True for row in found.rows) == 7
    rows = {row.name: row for row in found.rows}
    whole = rows["RSC-1, 100,000 GPUs, every 60 min, write 0, restart 5 min: ETTR"]
    assert (whole.compat, whole.corrected) == (
        pytest.approx(-0.975, abs=1e-3),
        pytest.approx(0.0895, abs=1e-4),
    )
    for row in found.rows:
        simulated = rows.get(f"{row.name}, simulated")
        if simulated is not None:
            # Five half-widths of the interval that the note states, and what a horizon of 54 days adds.
            half = float(re.findall(r"± ([0-9.]+)", simulated.note)[0])
            assert simulated.corrected == pytest.approx(row.corrected, abs=5 * half + 1e-3), row.name
    lines = found.figures[0].data
    at = [i for i, form in enumerate(lines["form"]) if form == "60 min, first order (published)"]
    assert min(lines["ettr"][i] for i in at) < -1 and max(lines["ettr"][i] for i in at) > 0.9


def test_the_table_of_interruptions_adds_up_but_for_its_misprint(
    data_folder: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(reliability, "COUNT", 20)
    monkeypatch.setenv("FORERUN_DATA_DIR", str(data_folder.parent))
    found = reliability.llama3_reliability(silent)
    assert not found.failed and sum(row.ok is True for row in found.rows) == 21
    ours = {row.name: row.corrected for row in found.rows}
    assert [row.name for row in found.rows if row.ok is None and row.published] == [
        "Faulty GPU: share percent",
        "effective training time percent, more than",
    ]
    longest = [ours[f"write 0 s, restart {m} min: longest interval min"] for m in (2, 5, 10, 15, 20)]
    assert longest[:4] == pytest.approx([34.6, 28.7, 18.9, 9.1], abs=0.06) and longest[4] is None
    best = [
        ours[f"write {w} s, restart {r} min: ETTR at the best interval"]
        for w, r in ((10, 10), (30, 5), (60, 2))
    ]
    assert best == pytest.approx([0.908, 0.904, 0.890], abs=5e-4)
    assert ours["InfiniteHBD log: faults per 1,000 node-days"] == pytest.approx(4.195, abs=1e-3)
    # Without the log everything else stands, and a note says how to get it.
    monkeypatch.setattr(reliability, "_kernel_rows", list)
    monkeypatch.setattr(reliability, "dataset", _absent)
    without = reliability.llama3_reliability(silent)
    assert not any(row.name.startswith("InfiniteHBD") for row in without.rows)
    assert "forerun data fetch infinitehbd" in without.notes[-1]


def _absent(name: str) -> Path:
    raise DataError.at(name, "is absent")
