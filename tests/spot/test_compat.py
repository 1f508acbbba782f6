"""The notebook's tick machine against its reference runs, and against the exact simulator."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from statistics import fmean
from typing import Any

import pytest

from forerun.replication.bamboo.generator import GeneratorBugs, GeneratorStopped, tick_rows
from forerun.replication.bamboo.published import RUN86
from forerun.replication.bamboo.tick_machine import CORRECTED, MEASURED, Switches, job_of, run_ticks
from forerun.spot.engine.job import TrainingJob
from forerun.spot.engine.membership import Membership
from forerun.spot.engine.outlook import Observed
from forerun.spot.engine.replay import replay
from forerun.spot.policies.immediate import Immediate
from forerun.spot.scenario.batches import Burst, Marks
from forerun.spot.scenario.processes import Tick, generate
from forerun.spot.traces.measured_run import read_run
from forerun.spot.traces.statistics import fleet_statistics


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
    golden: Callable[[str], Any], fleet_of: Callable[[str], Membership], rounded: TrainingJob
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


def test_the_measured_job_is_the_exact_simulators(
    golden: Callable[[str], Any], fleet_of: Callable[[str], Membership], rounded: TrainingJob
) -> None:
    """With the measured times and the stall, which fall between ticks, at most two steps are missing."""
    job = job_of(MEASURED)
    exact_job = replace(
        rounded, step_s=job.step_s, reconfig_s=job.reconfig_s, write_s=job.write_s, stall_s=job.stall_s
    )
    for seed in (1, 2, 3):
        fleet = generate(Tick(removals_per_min=0.25, adds_per_min=0.25), seed=seed, horizon_s=21_300.0)
        exact = replay(fleet, exact_job, Immediate(), Observed()).steps_completed
        assert 0 <= exact - run_ticks(fleet, 21_300.0, MEASURED).final_step <= 2


def test_the_measured_job_is_that_of_the_logs(data_folder: Path) -> None:
    assert read_run(data_folder / "bamboo/run-86").profile == RUN86


def test_the_generator_without_bugs_is_the_process() -> None:
    """The notebook's generator with only the stops corrected draws the fleets of the process `tick`."""
    process = Tick(
        removals_per_min=0.8, adds_per_min=1.2, add_batch=Marks(mean=2.0, std=2.0), start=8, cap=40
    )
    for seed in range(20):
        rows = tick_rows(process, seed, 7200.0)
        assert Membership.from_rows(rows) == generate(process, seed=seed, horizon_s=7200.0), seed


def test_generator_bugs_one_by_one() -> None:
    """What each does to a fleet that is small, full and often asked for more than it has."""
    process = Tick(
        removals_per_min=1.0,
        adds_per_min=1.0,
        removal_batch=Marks(mean=3.0, std=2.0),
        add_batch=Marks(mean=0.5, std=1.0),
        add_burst=Burst(probability=0.3, low=11, high=32),
        start=4,
        cap=6,
    )

    def fleets(**bugs: bool) -> list[Membership]:
        return [Membership.from_rows(tick_rows(process, s, 7200.0, GeneratorBugs(**bugs))) for s in range(30)]

    with pytest.raises(GeneratorStopped, match="TypeError"):
        fleets(sample_set=True)
    with pytest.raises(GeneratorStopped, match="ValueError"):
        fleets(over_ask=True)
    most = {
        hole: max(fleet_statistics(f).max_nodes for f in fleets(clamp_hole=hole)) for hole in (False, True)
    }
    assert most[False] == 6 < most[True]
    events = {
        twelfth: fmean(len(fleet_statistics(f).removal_batches) for f in fleets(rate_over_12=twelfth))
        for twelfth in (True, False)
    }
    assert events[True] > events[False]

    roomy = process.with_(start=400, cap=100_000, removal_batch=Marks(mean=2.4, std=2.1))
    sizes = {
        marks: fmean(
            size
            for s in range(20)
            for size in fleet_statistics(
                Membership.from_rows(tick_rows(roomy, s, 7200.0, GeneratorBugs(marks=marks)))
            ).removal_batches
        )
        for marks in (True, False)
    }
    assert sizes[False] == pytest.approx(2.4, abs=0.15) and sizes[True] > 2.6
    bursts = {
        share: max(
            size
            for s in range(20)
            for size in fleet_statistics(
                Membership.from_rows(tick_rows(roomy, s, 7200.0, GeneratorBugs(big_share=share)))
            ).add_batches
        )
        for share in (True, False)
    }
    assert bursts == {True: 31, False: 32}


def test_the_notebook_stops_below_one_pipeline(rounded: TrainingJob) -> None:
    fleet = Membership.from_rows(
        [(0.0, True, f"node{i}") for i in range(16)] + [(200.0, False, "node3"), (260.0, True, "node16")]
    )
    assert run_ticks(fleet, 900.0).error_world_size == 0
    assert run_ticks(fleet, 900.0, CORRECTED).error_world_size is None
