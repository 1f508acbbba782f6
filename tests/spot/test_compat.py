"""The notebook's tick machine against its reference runs, and against the exact simulator."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from forerun.domains.spot.compat import CORRECTED, Switches, run_ticks
from forerun.domains.spot.model import Job, Membership
from forerun.domains.spot.outlook import Observed
from forerun.domains.spot.policies.immediate import Immediate
from forerun.domains.spot.simulate import replay


def test_reference_runs(golden: Callable[[str], Any], fleet_of: Callable[[str], Membership]) -> None:
    """Every row of 154 runs under seven sets of switches, by digest."""
    cases = golden("compat_cases.json")
    assert len(cases) == 154
    for case in cases:
        named = case["switches"]
        switches = Switches(
            strict=named["strict"], extend=named["extend"], initial0=named["initial0"], tick_s=named["tick"]
        )
        done = run_ticks(fleet_of(case["trace"]), case["horizon_s"], switches)
        assert len(done.rows) == case["rows"], case["name"]
        assert done.digest() == case["rows_sha256"], case["name"]
        for name in (
            "error_world_size",
            "t_end_s",
            "step_counter",
            "last_saved",
            "steps_executed",
            "reconfig_rows",
        ):
            assert getattr(done, name) == case[name], (case["name"], name)


def test_corrected_ticks_are_the_exact_simulator(
    golden: Callable[[str], Any], fleet_of: Callable[[str], Membership], rounded: Job
) -> None:
    """With every defect off and a one-second tick, the machine ends where the exact simulator does.

    It never looks at the instant of the horizon itself, so it may be one step short there.
    """
    traces = sorted({case["trace"] for case in golden("compat_cases.json")})
    for trace in traces:
        fleet, horizon_s = (
            fleet_of(trace),
            next(case["horizon_s"] for case in golden("compat_cases.json") if case["trace"] == trace),
        )
        ticks = run_ticks(fleet, horizon_s, CORRECTED)
        exact = replay(fleet, replace(rounded, horizon_s=horizon_s), Immediate(), Observed())
        assert 0 <= exact.steps_completed - ticks.final_step <= 1, trace


def test_the_notebook_stops_below_one_pipeline(rounded: Job) -> None:
    fleet = Membership.from_rows(
        [(0.0, True, f"node{i}") for i in range(16)] + [(200.0, False, "node3"), (260.0, True, "node16")]
    )
    assert run_ticks(fleet, 900.0).error_world_size == 0
    assert run_ticks(fleet, 900.0, CORRECTED).error_world_size is None
