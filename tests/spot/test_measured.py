"""The measured 64-node run: what its logs say, and what the model says when driven by its real segments."""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from forerun.core.domain import simulate
from forerun.core.scenarios import loads
from forerun.replication.bamboo.published import ROUNDED
from forerun.spot.traces.measured_run import (
    START_DELAY_S,
    MeasuredProfile,
    MeasuredRun,
    MeasuredStep,
    Segment,
    model_run,
    read_run,
)

Golden = Callable[[str], Any]


def test_logs_give_the_reference_profile_and_ledger(golden: Golden, data_folder: Path) -> None:
    run, theirs = read_run(data_folder / "bamboo/run-86"), golden("run86.json")
    profile = theirs["profile"]
    for size, row in profile["step_s"].items():
        assert run.profile.step_s[int(size)] == pytest.approx(row["mean"], rel=1e-9)
    for name in ("reconfig_s", "write_s", "load_s"):
        assert getattr(run.profile, name) == pytest.approx(profile[name]["mean"], rel=1e-9), name
    assert run.profile.stall_s == pytest.approx(profile["stall_s"]["mean"], rel=1e-9)
    measured, ledger = theirs["measured"], run.ledger()
    assert run.total_s == pytest.approx(measured["total_s"], abs=1e-5)
    for line in ("useful", "stall", "lost", "reconfig", "other"):
        assert ledger[line] == pytest.approx(measured[f"{line}_s"], abs=0.5), line
    assert sum(ledger.values()) == pytest.approx(run.total_s, abs=1e-6)
    assert (run.executed, run.retained) == (
        measured["executed_steps"],
        measured["retained_through_last_reconfig"],
    )
    for row in theirs["segments"]:
        segment = run.segments[row["index"]]
        assert (segment.executed, len(segment.retained), segment.loaded_step) == (
            row["executed"],
            row["retained"],
            row["loaded_step"],
        )
        assert segment.train_start_s == pytest.approx(row["train_start_s"], abs=1e-5)


def test_models_of_the_run(golden: Golden, data_folder: Path) -> None:
    run, theirs = read_run(data_folder / "bamboo/run-86"), golden("run86.json")
    exact = MeasuredProfile(
        {int(size): row["mean"] for size, row in theirs["profile"]["step_s"].items()},
        87.87,
        theirs["profile"]["write_s"]["mean"],
        46.83,
        0.0,
    )
    full = MeasuredProfile(exact.step_s, exact.reconfig_s, exact.write_s, exact.load_s, 8.91)
    models = {
        "rounded_no_stall": model_run(run, ROUNDED),
        "exact_no_stall": model_run(run, exact),
        "full": model_run(run, full, delay_s=START_DELAY_S),
        "full_write_from_stall_start": model_run(
            run, full, delay_s=START_DELAY_S, write_from_stall_start=True
        ),
    }
    for name, row in theirs["model_totals"].items():
        model = models[name]
        assert (model.total_executed, model.total_retained) == (row["executed"], row["retained"]), name
    for row in theirs["segments"]:
        at = row["index"]
        assert models["full"].executed[at] == row["full_model"]["executed"]
        assert models["full"].retained[at] == row["full_model"]["retained"]


def test_the_model_predicts_the_run(data_folder: Path) -> None:
    """Executed within 1.5 %, retained within 5 %, every share within 3 points."""
    run = read_run(data_folder / "bamboo/run-86")
    model = model_run(run, run.profile, delay_s=START_DELAY_S)
    assert abs(model.total_executed / run.executed - 1) < 0.015
    assert abs(model.total_retained / run.retained - 1) < 0.05
    for line, seconds in run.ledger().items():
        assert abs(model.ledger_s[line] - seconds) / run.total_s < 0.03, line
    assert sum(model.ledger_s.values()) == pytest.approx(run.total_s, rel=1e-9)


def test_the_figures_of_the_page(data_folder: Path) -> None:
    """The page's figures of the run; by its counts a minute, most of its reconfigurations, not all."""
    folder = data_folder / "bamboo/run-86"
    run = read_run(folder)
    model, notebook = model_run(run, run.profile, delay_s=START_DELAY_S), model_run(run, ROUNDED)
    assert max(segment.world_size for segment in run.segments) == 64
    assert (len(run.segments), round(run.total_s / 3600, 2)) == (16, 2.66)
    assert (model.total_executed, run.executed) == (627, 623)
    assert (model.total_retained, run.retained) == (438, 421)
    assert (notebook.total_executed, notebook.total_retained) == (713, 519)
    for line, theirs, ours in (("useful", 0.591, 0.612), ("lost", 0.206, 0.178)):
        shares = (run.ledger()[line] / run.total_s, model.ledger_s[line] / run.total_s)
        assert shares == pytest.approx((theirs, ours), abs=5e-4), line
    text = (
        "domain: spot\ngrowth: immediate\n"
        f"fleet: {{name: trace, file: {folder / 'GroupInServiceInstances.csv'}}}\n"
        "job: {depth: 16, max_pipelines: 4, step_s: {16: 17.99, 32: 11.38, 48: 9.32, 64: 8.28}, samples_per_step: 288,\n"
        "      reconfig: 87.87s, load: 46.83s, prep: 3min, write: 89s, stall: 8.91s}\n"
    )
    seen = simulate(loads(text)).check().summary["reconfigs"]
    assert (seen - 1, len(run.segments) - 1) == (10, 15)  # the first of each forms the first pipeline


@pytest.mark.parametrize("first", [0, 500])
def test_steps_of_an_earlier_run_are_not_retained_by_this_one(first: int) -> None:
    """A run that begins with a checkpoint retains what its own segments do."""
    steps = tuple(MeasuredStep(first + number, 4, 10.0 * number, 9.0, 1.0) for number in range(1, 9))
    segments = (
        Segment(4, 0.0, 5.0, 60.0, first, steps[:5], first + 3),
        Segment(4, 60.0, 65.0, 100.0, first + 3, steps[5:], None),
    )
    run = MeasuredRun(segments, MeasuredProfile({4: 9.0}, math.nan, math.nan, math.nan, math.nan), 100.0)
    assert run.retained == sum(len(segment.retained) for segment in segments[:-1]) == 3
