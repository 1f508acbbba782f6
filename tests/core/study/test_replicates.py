"""Seeds that resample one log: their spread is the interval, their number is not, and a rule says where there is none."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import forerun
from forerun.core.cli.main import run as command_line
from forerun.core.result.objective import Objective
from forerun.core.result.stats import RESAMPLE_FARTHER, mean_interval, resample_interval, resample_p
from forerun.core.rng import stream
from forerun.core.study.compared import Comparison
from forerun.core.study.replicates import INDEPENDENT, LEAST_BLOCKS, LEAST_LOAD, Replicates


def resampled_days(rng: np.random.Generator, days: int, seeds: int) -> np.ndarray[Any, Any]:
    """A queue's figure, which grows with the cube of the load, on resamples of the days of one log with heavy tails."""
    log = rng.lognormal(-0.5, 1.0, days)
    return log[rng.integers(0, days, (seeds, days))].mean(axis=1) ** 3


def test_more_seeds_do_not_narrow_the_interval_of_one_log() -> None:
    """Student's t says a third of the width with ten times the seeds; the spread of the resamples stays."""
    draws = resampled_days(stream(1, "log"), 20, 4000)
    ours, student = (
        [one(draws[:seeds]) for seeds in (40, 400, 4000)]
        for one in (lambda values: resample_interval(values, 20), mean_interval)
    )
    widths = [one.high - one.low for one in ours if one is not None]
    assert len(widths) == 3 and max(widths) < 1.6 * min(widths)
    assert student[2].high - student[2].low < 0.15 * (student[0].high - student[0].low)


@pytest.mark.parametrize("side", [1.0, -1.0])
def test_the_interval_is_the_spread_of_the_resamples(side: float) -> None:
    """The end near 0 is the bootstrap's quantile, the other one lies farther by what samples with heavy tails lack."""
    drawn = side * np.exp(stream(2, "draws").normal(8.0, 1.0, 40_000))
    interval = resample_interval(drawn, 10**6)
    assert interval is not None and "resamples of one log" in interval.method
    near, far = (interval.low, interval.high) if side > 0 else (interval.high, interval.low)
    low, high = np.quantile(np.abs(drawn), [0.025, 0.975])
    assert abs(near) == pytest.approx(low, rel=0.1)
    expected = math.exp(8.0) * (high / math.exp(8.0)) ** RESAMPLE_FARTHER
    assert abs(far) == pytest.approx(expected, rel=0.1)


def test_intervals_of_one_log_hold_the_truth_where_students_does_not() -> None:
    """200 logs of 20 days with heavy tails: at least 85 % hold the mean over all logs; Student's t over 40 seeds a third."""
    truth = float(np.mean([stream(3, n).lognormal(-0.5, 1.0, 20).mean() ** 3 for n in range(20_000)]))
    ours = student = 0
    for log in range(200):
        draws = resampled_days(stream(4, log), 20, 40)
        interval, other = resample_interval(draws, 20), mean_interval(draws)
        ours += interval is not None and interval.low <= truth <= interval.high
        student += other.low <= truth <= other.high
    assert ours >= 170 and student <= 100


@given(st.lists(st.floats(-1e6, 1e6), min_size=2, max_size=30), st.integers(2, 60))
def test_p_and_interval_agree(values: list[float], blocks: int) -> None:
    """An interval leaves out 0 exactly where p is below 5 %, and turns with the sign of the values."""
    interval, p = resample_interval(values, blocks), resample_p(values, blocks)
    assert (interval is None) == (p is None)
    if interval is None or p is None:
        return
    if abs(p - 0.05) > 1e-6 and max(map(abs, values)) > 1e-9:
        assert (p < 0.05) == (not interval.low <= 0 <= interval.high)
    turned = resample_interval([-one for one in values], blocks)
    assert turned is not None
    assert (turned.low, turned.high) == pytest.approx((-interval.high, -interval.low), rel=1e-9, abs=1e-9)


def test_what_is_rare_in_the_log_has_no_interval() -> None:
    assert resample_interval([0.0] * 15 + [1e6] * 5, 20) is None
    assert resample_interval([5.0], 20) is None and resample_interval([5.0, 6.0], 1) is None


@pytest.mark.parametrize(
    ("summary", "why"),
    [
        ({"resampled_blocks": LEAST_BLOCKS - 1, "resampled_load": 0.9}, "13 blocks, and at least 14 are required"),
        ({"resampled_blocks": 30, "resampled_load": LEAST_LOAD - 0.01}, "64 % of the GPUs"),
        ({"resampled_blocks": 30}, "logs of jobs only"),
        ({"resampled_blocks": LEAST_BLOCKS, "resampled_load": LEAST_LOAD}, ""),
        ({"jct_mean_s": 3.0}, ""),
    ],
)  # fmt: skip
def test_the_rule_that_refuses(summary: dict[str, Any], why: str) -> None:
    one = Replicates.of([summary, summary])
    assert why in one.why_not and bool(one.why_not) == bool(why)
    refused = one.mean([3.0, 4.0, 5.0]), one.difference([3.0, 4.0, 5.0]), one.p([3.0, 4.0, 5.0])
    assert all((part is None) == bool(why) for part in refused)
    assert bool(one.caution) == ("resampled_blocks" in summary)


@pytest.mark.parametrize("end", [0.0, 1.0])
def test_a_share_that_all_seeds_agree_on_has_the_exact_bound(end: float) -> None:
    """Each of ten seeds is a trial; where no pair of shares differs, the difference is bounded by as much."""
    met, most = Objective("met", "higher", "", 0.0, 1.0), 1 - 0.025**0.1
    one, gap = INDEPENDENT.mean([end] * 10, met), INDEPENDENT.difference([0.0] * 10, met)
    assert one is not None and gap is not None
    assert (one.low, one.high) == pytest.approx((1 - most, 1.0) if end else (0.0, most))
    assert (gap.low, gap.high) == pytest.approx((-most, most)) and "exact" in gap.method


def write_log(folder: Path, days: int, duration_s: int) -> Path:
    """A log of eight jobs a day, each longer than the one before, and a scenario that resamples it."""
    rows = [
        f"j{day}-{at},{day * 86_400 + at * 9_000},2,{duration_s * (1 + (day * 8 + at) % 5)}"
        for day in range(days)
        for at in range(8)
    ]
    (folder / "log.csv").write_text("\n".join(["job_id,submit_time,num_gpu,duration", *rows]))
    scenario = folder / "s.yaml"
    text = "domain: cluster\ntrace: {resample: {file: log.csv}}\nmachines: {nodes: [{count: 1, gpus: 4}]}\npolicy: fifo\n"
    scenario.write_text(text)
    return scenario


def compared(scenario: Path) -> Comparison:
    return forerun.compare(forerun.load(scenario), ["fifo", "sjf"], objective="jct_mean_s", seeds=6)


def test_comparisons_and_studies_of_one_log(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A busy log has the spread of its resamples; a calm or a short one has no interval and no p value, and says why."""
    monkeypatch.chdir(tmp_path)
    found = compared(write_log(tmp_path, 20, 6_000))
    other = next(one for one in found.standings if one.difference is not None)
    assert other.difference_interval is not None and other.p is not None and other.interval is not None
    assert "resamples of one log in 20 blocks" in found.method and "Student" not in found.method
    for days, duration_s, why in ((10, 6_000, "10 blocks"), (20, 3_000, "of the GPUs")):
        found = compared(write_log(tmp_path, days, duration_s))
        assert all(one.p is None and one.interval is None for one in found.standings)
        assert all(one.difference_interval is None for one in found.standings)
        assert "no interval and no p value, as the log" in found.method and why in found.method
    (tmp_path / "study.yaml").write_text(
        "base: s.yaml\naxes: {policy: [fifo, sjf]}\nseeds: 3\nobjective: jct_mean_s\n"
    )
    assert command_line(["study", "study.yaml"]) == 0
    shown = " ".join(capsys.readouterr().out.split())
    assert "no interval and no p value" in shown and "±:" not in shown and "significant" not in shown
    assert command_line(["study", "study.yaml", "--json"]) == 0
    data = json.loads(capsys.readouterr().out)
    assert "no interval" in data["notes"][0] and all(not point["intervals"] for point in data["points"])


def test_a_fit_says_what_intervals_leave_out() -> None:
    scenario = forerun.loads(
        "domain: cluster\ntrace: {generate: {jobs: 20, mean_gap_s: 900}}\n"
        "machines: {nodes: [{count: 8, gpus: 8}]}\nprofile: [{analytic: balanced}]\npolicy: fifo\n"
    )
    found = forerun.compare(scenario, ["fifo", "sjf"], objective="jct_mean_s", seeds=3)
    assert "trace.generate describes" in found.method and "how far the fit is off is left out" in found.method
