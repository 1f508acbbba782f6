"""Ties: which figures hang on the order of what happens at one instant."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

import forerun
from forerun.cli.main import run as command_line
from forerun.domains.serving import simulate
from forerun.domains.serving.ties import permuted
from forerun.study.ties import tie_sensitivity

#: two queries at one instant: together they take 12 ms, one after the other 10 and 20 ms
TWINS = """
domain: serving
trace: {arrivals_ms: [ARRIVALS]}
stages: [{name: a, parents: [source]}]
configuration: {a: {hardware: V100, max_batch: 2}}
service: {tables_ms: {a: [10, 12]}}
slo_ms: 15
prices_usd_per_h: {V100: 1}
intervals: {replications: 0}
"""


def twins(arrivals: str) -> Any:
    return forerun.loads(TWINS.replace("ARRIVALS", arrivals))


def test_twins_that_come_apart_by_hand() -> None:
    found = tie_sensitivity(twins("5, 5"), permuted, simulate, orders=1)
    assert found is not None
    moved = {one.figure: (one.given, one.low, one.high) for one in found.moved}
    assert moved["latency_mean_ms"] == pytest.approx((12, 12, 15), abs=1e-4)
    assert moved["latency_max_ms"] == pytest.approx((12, 12, 20), abs=1e-4)
    assert moved["misses"] == (0, 0, 1) and "queries" not in moved


def test_an_arrival_at_the_instant_of_a_completion() -> None:
    """A query comes when the first of two ends: before it, both that wait go together; after it, one went alone."""
    found = tie_sensitivity(twins("0, 3, 10"), permuted, simulate, orders=30)
    assert found is not None
    highest = {one.figure: (one.given, one.high) for one in found.moved}
    # Completions come first at one instant, but starts last: 3 and 10 go together, 3 waits 7 + 12 ms.
    given, high = highest["latency_mean_ms"]
    assert given == pytest.approx((10 + 19 + 12) / 3, abs=1e-4)
    # A hair late, 3 goes alone (17 ms) and 10 waits for it (20 ms).
    assert high == pytest.approx((10 + 17 + 20) / 3, abs=1e-4)


def test_without_ties_nothing_moves() -> None:
    found = tie_sensitivity(twins("0, 3.3, 31.7, 50.1"), permuted, simulate, orders=10)
    assert found is not None and found.moved == () and found.figures > 5


def test_orders_are_the_same_each_time_and_differ_from_each_other() -> None:
    scenario = twins("1, 1, 1, 1, 2, 2, 2")
    arrivals = [permuted(scenario, number).trace.arrivals_ms for number in (1, 1, 2)]  # type: ignore[union-attr]
    assert arrivals[0] == arrivals[1] != arrivals[2]
    assert all(len(one) == 7 and list(one) == sorted(one) for one in arrivals)


def test_what_moves_is_ranked_by_its_share() -> None:
    def run(scenario: int) -> Any:
        return SimpleNamespace(summary={"a": 10.0 + scenario, "b": 100.0 - scenario, "c": 1.0, "met": True})

    found = tie_sensitivity(0, lambda _, number: number, run, orders=3)
    assert found is not None and found.figures == 3
    assert [(one.figure, one.low, one.high, one.share) for one in found.moved] == [
        ("a", 10.0, 12.0, 0.2), ("b", 98.0, 100.0, 0.02),
    ]  # fmt: skip
    assert tie_sensitivity(0, lambda *_: None, run) is None


def test_the_verb(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    forerun.simulate(twins("5, 5")).save(tmp_path / "run")
    assert command_line(["explain", str(tmp_path / "run"), "--ties", "3"]) == 0
    shown = capsys.readouterr().out
    assert "figures move under 3 other orders" in shown and "latency_mean_ms" in shown
    forerun.simulate(forerun.loads("domain: toy")).save(tmp_path / "toy")
    assert command_line(["explain", str(tmp_path / "toy"), "--ties", "3"]) == 0
    assert "the toy room has no other order" in capsys.readouterr().out
