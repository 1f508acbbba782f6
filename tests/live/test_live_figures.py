"""Figures of a testbed from real, paced processes: what they showed equals the simulation of the same scenario."""

from __future__ import annotations

from typing import Any

import pytest

import forerun


def test_deadlines_met_live_are_those_of_the_simulation(monkeypatch: pytest.MonkeyPatch, shared: Any) -> None:
    monkeypatch.setenv("FORERUN_DATA_DIR", str(shared("data")))
    reproduced = forerun.reproduce("ef-fig6a-live", quick=True)
    assert [row.ok for row in reproduced.rows] == [True, True]
    assert all("paced, fast-forward" in row.name and 0 < (row.measured or 0) < 1 for row in reproduced.rows)
    (figure,) = reproduced.figures
    assert set(figure.data["which"]) == {"published, testbed", "simulated", "live, paced, fast-forward"}
