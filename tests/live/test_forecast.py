"""Forecasts of runs with intervals from earlier ones: how many these must be, what they promise, and what is refused."""

from __future__ import annotations

import json
import math
import shutil
from pathlib import Path

import numpy as np
import pytest
from tests.live.test_live_cli import folder, live
from tests.live.test_live_result import outcome, stays_like

from forerun.core.errors import UsageError
from forerun.live.compare import compare
from forerun.live.forecast import FIGURES, forecast, half_width, offs_of, runs_needed

__all__ = ["folder"]


def test_the_error_that_the_next_run_exceeds_as_rarely_as_said() -> None:
    """By rank: the largest of nine for 90 %, the second of nine for 20 %; over random worlds the share is the level."""
    offs = [0.03, 0.01, 0.09, 0.02, 0.05, 0.04, 0.07, 0.08, 0.06]
    assert half_width(offs, 0.9) == 0.09
    assert half_width(offs, 0.2) == 0.02
    worlds = np.random.default_rng(3).exponential(size=(4000, 10))
    inside = np.mean([row[9] <= half_width(row[:9].tolist(), 0.8) for row in worlds])
    assert inside == pytest.approx(0.8, abs=3 * math.sqrt(0.16 / 4000))


def test_too_few_runs_are_refused_with_the_number_that_is_needed() -> None:
    assert [runs_needed(level) for level in (0.5, 0.8, 0.9, 0.95)] == [1, 4, 9, 19]
    for level in (0.5, 0.8, 0.9, 0.95):
        needed = runs_needed(level)
        assert half_width([0.1] * needed, level) == 0.1
        with pytest.raises(UsageError, match=f"has {needed - 1} runs; an interval of .* needs {needed}"):
            half_width([0.1] * (needed - 1), level)


def test_errors_of_a_run_are_those_of_its_comparison() -> None:
    """A job that is half as long again is off by a half; a run that ends other jobs is off beyond any number."""
    ran = outcome()
    row = int(np.argmin(ran.record.end_s))
    taken_s = ran.record.end_s[row] - ran.record.setting.jobs.submit_s[row]
    ran.record.end_s[row] += 0.5 * taken_s
    offs = offs_of(compare(ran.inputs, ran.record, stays_like(ran)))
    assert offs["worst_jct"] == pytest.approx(0.5) and 0 < offs["mean_jct"] < 0.5
    ran.record.end_s[row] = -1
    assert set(offs_of(compare(ran.inputs, ran.record, stays_like(ran))).values()) == {math.inf}


def test_a_forecast_has_the_simulation_in_the_middle_of_its_intervals() -> None:
    """Every job, the last end and the mean: the simulated time, less and more by the share that earlier runs were off."""
    ran = outcome()
    expected = forecast(ran.inputs, [dict(zip(FIGURES, (0.1, 0.05, 0.2), strict=True))] * 9, 0.9)
    ends = ran.record.end_s.tolist()
    assert [job.end_s for job in expected.jobs] == ends
    for job in expected.jobs:
        taken_s = job.end_s - job.submit_s
        assert (job.low_s - job.submit_s, job.high_s - job.submit_s) == pytest.approx(
            (0.8 * taken_s, 1.2 * taken_s)
        )
    whole_s, low_s, high_s = expected.figures["makespan_s"]
    assert whole_s == max(ends) - min(job.submit_s for job in expected.jobs)
    assert (low_s, high_s) == pytest.approx((0.9 * whole_s, 1.1 * whole_s))
    mean_s, low_s, high_s = expected.figures["mean_jct_s"]
    assert (low_s, high_s) == pytest.approx((0.95 * mean_s, 1.05 * mean_s))


def test_runs_that_went_another_way_leave_no_interval() -> None:
    """Where the rank falls on a run that ended other jobs, the interval has no end, and a note says why."""
    fine, other = dict.fromkeys(FIGURES, 0.1), dict.fromkeys(FIGURES, math.inf)
    expected = forecast(outcome().inputs, [fine] * 8 + [other], 0.9)
    assert all(math.isinf(job.high_s) and job.low_s == job.submit_s for job in expected.jobs)
    assert "no interval is wide enough" in expected.notes[-1]
    assert json.loads(json.dumps(expected.data(), allow_nan=False))["jobs"][0]["high_s"] is None
    assert forecast(outcome().inputs, [fine] * 8 + [other], 0.8).notes == ()


def test_a_forecast_from_runs_that_ended(folder: Path) -> None:
    """The door: real runs, then the next one; too few, twice the same, or of another clock are refused in a line."""
    for run, clock in (("one", "compressed:10"), ("two", "compressed:10"), ("other", "compressed:5")):
        done = live(folder, "run", "machine.yaml", "--clock", clock, "--run", run, "-q")
        assert done.returncode == 0, done.stderr
    words = ("forecast", "machine.yaml", "--earlier", "one", "--earlier", "two")
    told = json.loads(live(folder, *words, "--level", "0.5", "--json").stdout)
    (job,) = told["jobs"]
    assert told["runs"] == 2 and job["low_s"] <= job["end_s"] <= job["high_s"]
    shown = live(folder, *words, "--level", "0.5")
    assert shown.returncode == 0 and "until the last job ends" in shown.stdout, shown.stderr
    shutil.copytree(folder / "one", folder / "copy")
    for changes, said in (
        (words, "an interval of 90 % needs 9"),
        (("forecast", "machine.yaml", "--earlier", "one", "--earlier", "one"), "twice"),
        (("forecast", "machine.yaml", "--earlier", "one", "--earlier", "copy"), "twice"),
        (("forecast", "machine.yaml", "--earlier", "one", "--earlier", "other"), "another engine or clock"),
        (("forecast", "machine.yaml", "--earlier", "none"), "none"),
    ):
        refused = live(folder, *changes)
        assert refused.returncode == 2 and said in refused.stderr, refused.stderr
        assert len(refused.stderr.splitlines()) == 1
    # What was elsewhere, or forecast otherwise, is no history of this.
    for change, said in (
        (
            "machines.nodes=[{name: box, count: 2, gpus: 2}]",
            "other machines than the scenario's: 1 x 4 GPUs; the scenario has 2 x 2 GPUs",
        ),
        ("costs.models.toy.restart=9", "was forecast with other costs than the scenario's"),
    ):
        refused = live(folder, *words, "--level", "0.5", "--set", change)
        assert refused.returncode == 2 and said in refused.stderr, refused.stderr
        assert len(refused.stderr.splitlines()) == 1
    renamed = live(folder, *words, "--level", "0.5", "--set", "machines.nodes=[{name: b, count: 1, gpus: 4}]")
    assert renamed.returncode == 0 and "note: earlier runs" not in renamed.stdout, renamed.stderr
    edf = live(folder, *words, "--level", "0.5", "--set", "policy=edf")
    assert "note: earlier runs had another policy than the scenario: nothing is promised" in edf.stdout
    for run, mixed in (("one", True), ("two", False)):
        saved = folder / run / "result" / "provenance.json"
        content = json.loads(saved.read_text())
        here = f"{content['host']['cores']} cores"
        saved.write_text(json.dumps(content | {"host": content["host"] | {"cores": 4096}}))
        elsewhere = live(folder, *words, "--level", "0.5")
        assert (elsewhere.returncode == 2) == mixed, elsewhere.stderr
        if mixed:
            assert f"ran on a host of {here}" in elsewhere.stderr and "one of 4096 cores" in elsewhere.stderr
        else:
            assert "note: the earlier runs were on a host of 4096 cores" in elsewhere.stdout
            assert f"and this is one of {here}" in elsewhere.stdout
