"""Envelopes: against counting every window, against the reference, and live against from scratch."""

from __future__ import annotations

import numpy as np
import pytest

from forerun.serving.policy.envelope import LiveEnvelope, doubling_windows_ms, envelope

from ..conftest import cases
from .conftest import golden, read_gaps, read_json


def counted(arrivals: np.ndarray, window_ms: float, half_open: bool) -> int:
    """Every window that begins at an arrival, every arrival looked at."""
    most = 0
    for first in arrivals.tolist():
        inside = [
            at
            for at in arrivals.tolist()
            if first <= at and (at < first + window_ms if half_open else at <= first + window_ms)
        ]
        most = max(most, len(inside))
    return most


def test_envelopes_equal_counting_every_window() -> None:
    """1,000 random traces, half of them on an integer clock where windows end on arrivals."""
    rng = np.random.default_rng(1)
    for case in range(cases(100, 1000)):
        n = int(rng.integers(0, 25))
        steps = rng.integers(0, 6, n).astype(float) if case % 2 else rng.exponential(3.0, n)
        arrivals = np.cumsum(steps)
        windows = (float(rng.integers(1, 9)), float(rng.uniform(0.1, 30.0)))
        for half_open in (False, True):
            wanted = [counted(arrivals, window, half_open) for window in windows]
            assert envelope(arrivals, windows, half_open=half_open).tolist() == wanted


def test_envelopes_equal_the_reference() -> None:
    for case in read_json(golden("tuner", "envelope_small.json")):
        arrivals = np.array(case["arrival_ms"])
        assert envelope(arrivals, case["windows_ms"]).tolist() == case["closed"]
        assert envelope(arrivals, case["windows_ms"], half_open=True).tolist() == case["halfopen"]


@pytest.mark.parametrize("name", ["g02_notebook_run", "g03_txp_smooth", "g07_optimum"])
def test_envelopes_of_long_traces_equal_the_reference(name: str) -> None:
    wanted = read_json(golden("tuner", "arithmetic.json"))["envelopes"][name]
    gaps = read_gaps(golden("compat", f"{name}.deltas.gz"))
    arrivals = np.concatenate([[0.0], np.cumsum(gaps)])[: wanted["n"]]
    assert len(arrivals) == wanted["n"]
    for kind, half_open in (("closed", False), ("halfopen", True)):
        windows = [window for window, _ in wanted[kind]]
        assert envelope(arrivals, windows, half_open=half_open).tolist() == [n for _, n in wanted[kind]]


def test_a_live_envelope_equals_one_made_from_scratch() -> None:
    """At random instants, on traces with and without ties, some instants falling on arrivals and on windows' ends."""
    rng = np.random.default_rng(2)
    for case in range(cases(20, 120)):
        whole = bool(case % 2)
        n = int(rng.integers(1, 300))
        gap = float(rng.choice([0.5, 3.0, 20.0]))
        steps = rng.integers(0, max(2, int(2 * gap)), n).astype(float) if whole else rng.exponential(gap, n)
        arrivals = np.cumsum(steps)
        history_ms = float(rng.choice([20.0, 60.0, 1e9]))
        windows = (1.0, 4.0, 7.5, 16.0, 60.0)
        live = LiveEnvelope(windows, history_ms)
        end = float(arrivals[-1]) + 80.0
        times = np.unique(
            rng.integers(0, int(end) + 1, 25).astype(float) if whole else rng.uniform(0, end, 25)
        )
        for now_ms in times.tolist():
            seen = arrivals[arrivals <= now_ms]
            lately = seen[seen > now_ms - history_ms]
            assert live.at(now_ms, seen).tolist() == envelope(lately, windows).tolist()


def test_windows_double_up_to_a_minute() -> None:
    assert doubling_windows_ms(8000.0) == (8000.0, 16000.0, 32000.0, 60000.0)
    assert doubling_windows_ms(30_000.0) == (30_000.0, 60_000.0)
    assert doubling_windows_ms(90_000.0) == (60_000.0,)
