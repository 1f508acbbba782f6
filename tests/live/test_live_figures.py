"""Figures of a testbed from real, paced processes: what they showed equals the simulation of the same scenario."""

from __future__ import annotations

from typing import Any

import pytest

import forerun
from forerun.core.result.tables import Column, Table, TableSchema
from forerun.replication.elasticflow import live, overheads
from forerun.replication.reproduction import silent


def test_deadlines_met_live_are_those_of_the_simulation(monkeypatch: pytest.MonkeyPatch, shared: Any) -> None:
    monkeypatch.setenv("FORERUN_DATA_DIR", str(shared("data")))
    reproduced = forerun.reproduce("ef-fig6a-live", quick=True)
    assert [row.ok for row in reproduced.rows] == [True, True]
    assert all("paced, fast-forward" in row.name and 0 < (row.measured or 0) < 1 for row in reproduced.rows)
    (figure,) = reproduced.figures
    assert set(figure.data["which"]) == {"published, testbed", "simulated", "live, paced, fast-forward"}


def test_gpus_over_time_are_those_of_live_jobs(monkeypatch: pytest.MonkeyPatch, shared: Any) -> None:
    monkeypatch.setenv("FORERUN_DATA_DIR", str(shared("data")))
    reproduced = live.fig7(silent, first=4, nodes=2, schedules=("ef-accessctrl",))
    allocated, submitted, admitted = reproduced.rows
    # A simulated job gives its GPUs back at the end of a slot, a real one when its processes have ended.
    assert 0.8 * allocated.corrected <= allocated.measured <= 1.01 * allocated.corrected
    assert submitted.measured == 4 and 0 < admitted.measured == admitted.corrected
    over_time, jobs = reproduced.figures
    assert over_time.data["gpus"][-1] == 0 and 0 < max(over_time.data["gpus"]) <= 16
    assert list(jobs.data["which"]).count("admitted") == admitted.measured


def test_the_mean_of_gpus_is_an_area() -> None:
    """Against a sum over intervals, cut where the figure ends."""
    table = Table.of_rows(
        TableSchema("held", tuple(Column(name, "", "") for name in ("from_s", "to_s", "gpus")), ""),
        [(100.0, 3700.0, 4), (1900.0, 5500.0, 2), (1e5, 1e7, 8)],
    )
    area = 4 * 1.0 + 2 * 1.0 + 8 * (live.HOURS - (1e5 - 100.0) / 3600)
    time_h, gpus = live._allocated(table, "gpus", 100.0)
    assert live._mean(time_h, gpus) == pytest.approx(area / live.HOURS)


def test_our_seconds_and_the_published_ones_are_never_mixed() -> None:
    reproduced = overheads.fig12(silent, plan=overheads.QUICK_PLAN, programs=("numpy_job",))
    assert all((row.published is None) != (row.measured is None) for row in reproduced.rows)
    assert not any(row.ok is not None for row in reproduced.rows)
    ours = {row.name for row in reproduced.rows if row.measured is not None}
    assert {"numpy_job 1->2, warm (s)", "numpy_job 2->1, warm (s)", "numpy_job profiling (s)"} <= ours
    for figure in reproduced.figures:
        assert ("numpy_job" in str(figure.data["model"])) == figure.id.endswith("-ours")
