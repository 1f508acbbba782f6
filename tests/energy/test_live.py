"""The live limit profiler against recorded runs of its states."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from forerun.energy.policy.live import Done, LimitProfiler, Ready, Window


class Bench:
    """A device that writes down what it is asked; a window takes longer and less at lower limits."""

    def __init__(self) -> None:
        self.limits: list[float] = []
        self.opened = self.cancelled = 0

    def set_limit(self, limit_w: float) -> None:
        self.limits.append(limit_w)

    def open_window(self) -> None:
        self.opened += 1

    def close_window(self) -> tuple[float, float]:
        return self.limits[-1], 1000.0 / self.limits[-1]

    def cancel_window(self) -> None:
        self.cancelled += 1


def lowest(windows: Sequence[Window]) -> float:
    return min(windows, key=lambda window: window.energy_j).limit_w


def test_recorded_states(golden: Any) -> None:
    for case in golden("selectors.json")["live"]:
        bench = Bench()
        profiler = LimitProfiler(
            case["limits_w"],
            bench,
            lowest,
            wait_steps=case["wait_steps"],
            warmup_steps=case["warmup_steps"],
            measure_steps=case["measure_steps"],
        )
        for _ in range(case["epochs"]):
            for _ in range(case["steps_per_epoch"]):
                profiler.step_begins()
            profiler.epoch_ends()
        assert bench.limits == case["limits_set_w"]
        assert [window.limit_w for window in profiler.windows] == case["measured_w"]
        assert type(profiler.state).__name__.lower() == case["state"]
        assert bench.opened - bench.cancelled == len(profiler.windows)


def test_a_saved_profile_needs_no_measuring() -> None:
    bench = Bench()
    profiler = LimitProfiler([250, 200], bench, lowest, saved=[Window(250, 9.0, 1.0), Window(200, 8.0, 1.2)])
    assert profiler.state == Done(200)
    profiler.step_begins()
    assert bench.limits == [200] and bench.opened == 0


def test_the_top_limit_comes_back_whatever_happens() -> None:
    bench = Bench()
    with pytest.raises(KeyboardInterrupt), LimitProfiler([250, 200], bench, lowest, wait_steps=0) as profiler:
        for _ in range(60):
            profiler.step_begins()
        assert bench.limits[-1] == 200
        raise KeyboardInterrupt
    assert bench.limits[-1] == 250


def test_an_epoch_end_while_waiting_changes_nothing() -> None:
    profiler = LimitProfiler([250], Bench(), lowest, wait_steps=5)
    profiler.step_begins()
    profiler.epoch_ends()
    assert profiler.state == Ready(0, 5)
