"""Intervals over blocks of a recorded log: they cover where blocks are independent, and say where they are not."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import pytest

import forerun
from forerun.cluster.domain import DOMAIN as CLUSTER
from forerun.core.cli.main import run as command_line
from forerun.core.report import html_page
from forerun.core.report.stored import open_stored
from forerun.core.rng import stream
from forerun.core.study.blocks import DAY_S, LEAST_UNITS, Units, block_difference

from ...conftest import cases
from .test_study_page import words

LOGS = cases(100, 400)
MARGIN = 3 * math.sqrt(0.95 * 0.05 / LOGS)


def days_of_jobs(rng: np.random.Generator, days: int, memory: float = 0.0) -> tuple[Units, Units]:
    """Two schedules of one log: jobs of a day share its delay, by which they differ; delays of days remember the last."""
    delay = np.zeros(days)
    for day in range(days):
        delay[day] = memory * delay[day - 1] + rng.normal() if day else rng.normal()
    day_of = np.repeat(np.arange(days), rng.poisson(20, days) + 1)
    at_s = (day_of + rng.random(len(day_of))) * DAY_S
    first = rng.exponential(5.0, len(day_of))
    second = first + delay[day_of] + rng.normal(size=len(day_of))
    return tuple(
        Units("jobs", at_s, means={"mean": values}, quantiles={"p90": (values, 0.9)}, totals={"sum": values})
        for values in (second, first)
    )  # type: ignore[return-value]


def figure_of(units: Units, figure: str) -> float:
    if figure == "p90":
        return float(np.quantile(units.quantiles["p90"][0], 0.9))
    values = units.means["mean"]
    return float(values.mean() if figure == "mean" else values.sum())


@pytest.mark.parametrize(("figure", "days"), [("mean", 14), ("mean", 60), ("sum", 14), ("p90", 30)])
def test_intervals_hold_the_difference_of_all_logs(figure: str, days: int) -> None:
    """Days are independent: 95 % within three standard errors (quantiles a little less)."""
    gaps, intervals = [], []
    for log in range(LOGS):
        one, other = days_of_jobs(stream(4, "log", log), days)
        gap = figure_of(one, figure) - figure_of(other, figure)
        found = block_difference(one, other, figure, gap)
        # By chance, a few logs of sixty days look correlated and get blocks of two.
        assert (
            found is not None
            and found.blocks * found.block_s == days * DAY_S
            and found.blocks in (days, days // 2)
        )
        gaps.append(gap)
        intervals.append(found.interval)
    truth = float(np.mean(gaps))
    held = sum(each.low <= truth <= each.high for each in intervals) / LOGS
    assert (0.90 if figure == "p90" else 0.95) - MARGIN <= held <= 0.95 + MARGIN


def test_days_that_remember_each_other_make_longer_blocks_or_are_said_to() -> None:
    one, other = days_of_jobs(stream(5, "log"), 200, memory=0.9)
    gap = figure_of(one, "mean") - figure_of(other, "mean")
    found = block_difference(one, other, "mean", gap)
    assert found is not None and (found.block_s > DAY_S or found.correlated)
    one, other = days_of_jobs(stream(5, "log"), 30, memory=0.9)
    short = block_difference(one, other, "mean", 0.0)
    assert short is not None and short.correlated


def test_a_short_log_is_cut_into_equal_blocks_and_a_tiny_one_has_none() -> None:
    rng = np.random.default_rng(2)
    units = Units("queries", np.sort(rng.random(LEAST_UNITS) * 50), means={"mean": rng.random(LEAST_UNITS)})
    found = block_difference(units, units, "mean", 0.0)
    assert (
        found is not None
        and found.blocks == 20
        and found.p == 1.0
        and found.interval.low == found.interval.high
    )
    few = Units("queries", units.at_s[1:], means={"mean": units.means["mean"][1:]})
    assert block_difference(few, few, "mean", 0.0) is None
    at_once = Units("queries", np.zeros(LEAST_UNITS), means=units.means)
    assert block_difference(at_once, at_once, "mean", 0.0) is None


def write_log(folder: Path, days: int) -> Path:
    rng = stream(6, "jobs")
    at_s = np.sort(rng.random(days * 20)) * days * DAY_S
    rows = (
        f"j{at},{int(when)},{1 + at % 4},{int(20_000 * rng.exponential()) + 60}"
        for at, when in enumerate(at_s)
    )
    (folder / "log.csv").write_text("\n".join(["job_id,submit_time,num_gpu,duration", *rows]) + "\n")
    text = (
        "domain: cluster\ntrace: {file: log.csv}\nmachines: {nodes: [{count: 4, gpus: 4}]}\n"
        "policy: fifo-backfill-unreserved\n"
    )
    (folder / "base.yaml").write_text(text)
    return folder / "base.yaml"


def test_the_units_of_a_cluster_run_make_its_figures(tmp_path: Path) -> None:
    scenario = forerun.load(write_log(tmp_path, 12), ["trace.slack=1.5", "policy=edf-accessctrl"])
    result = forerun.simulate(scenario)
    units, summary = CLUSTER.units(result), result.summary
    assert np.nanmean(units.means["jct_mean_s"]) == pytest.approx(summary["jct_mean_s"])
    assert np.nanmean(units.means["deadline_ratio"]) == pytest.approx(summary["deadline_ratio"])
    assert units.totals["refused_jobs"].sum() == summary["refused_jobs"] > 0
    values, share = units.quantiles["jct_p99_s"]
    assert np.nanquantile(values, share) == pytest.approx(summary["jct_p99_s"])


def test_the_units_of_a_serving_run_make_its_figures(tmp_path: Path) -> None:
    from forerun.serving.domain import DOMAIN as SERVING

    result = forerun.simulate(forerun.load(forerun.demo("serving").scenario, ["intervals.replications=0"]))
    units = SERVING.units(result)
    assert units is not None
    assert np.mean(units.means["attainment"]) == pytest.approx(result.summary["attainment"])
    assert np.mean(units.means["latency_mean_ms"]) == pytest.approx(result.summary["latency_mean_ms"])
    values, share = units.quantiles["latency_p99_ms"]
    assert np.quantile(values, share) == pytest.approx(result.summary["latency_p99_ms"])


def test_two_schedulers_on_one_log_have_an_interval(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    arguments = [
        "compare",
        str(write_log(tmp_path, 14)),
        "--policy",
        "fifo-backfill-unreserved",
        "--policy",
        "srtf",
        "--policy",
        "edf-rigid",
    ]
    assert command_line([*arguments, "-o", str(tmp_path / "c.json")]) == 0
    out = " ".join(capsys.readouterr().out.split())
    assert (
        "differences are exact for this log; intervals are for logs like this one: block bootstrap of its jobs"
        in out
    )
    assert "its interval: block bootstrap over 14 blocks of jobs;" in out and "interval: paired" not in out
    assert "over 14 blocks of 1 d" in out and "p values after Holm" in out and "not another load" in out
    kept = open_stored(tmp_path / "c.json").comparison  # type: ignore[union-attr]
    assert kept.exact and kept.seeds == 1
    for one in kept.standings:
        if one.difference is None:
            continue
        assert one.difference_interval is not None and one.p is not None
        assert one.difference_interval.low <= one.difference <= one.difference_interval.high
    assert "exact for this log" in words(html_page([open_stored(tmp_path / "c.json")]))


def test_a_figure_without_units_says_so(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    arguments = [
        "compare",
        str(write_log(tmp_path, 14)),
        "--policy",
        "fifo-backfill-unreserved",
        "--policy",
        "srtf",
    ]
    assert command_line([*arguments, "--objective", "makespan_s"]) == 0
    out = " ".join(capsys.readouterr().out.split())
    assert "is not made of jobs, so it has no interval over blocks" in out and "its interval: none;" in out
    assert command_line([*arguments, "--set", "trace.first=50"]) == 0
    assert "too short for an interval over blocks of it" in " ".join(capsys.readouterr().out.split())
