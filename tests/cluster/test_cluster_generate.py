"""The published generator draw for draw; our own: streams, fits, block resampled, conversion of raw logs."""

from __future__ import annotations

import math
from pathlib import Path
from statistics import NormalDist
from typing import Any

import numpy as np
import pytest

from forerun.cluster.inputs.arrays import NO_DEADLINE_S, Jobs, ThroughputTable
from forerun.cluster.inputs.files import JobTable, jobs_of, read_jobs
from forerun.cluster.traces.fit import fit
from forerun.cluster.traces.generate import JobGenerator, LogNormalPart, generate, jobs_csv
from forerun.cluster.traces.published import TEMPLATES, PublishedGenerator, from_log, published
from forerun.cluster.traces.resample import resampled
from forerun.core.errors import ProfileError, ScenarioError, TraceError
from forerun.core.trace.reader import read_trace
from forerun.core.trace.repair import RepairLog
from forerun.core.trace.table import Trace

from .conftest import DATA, profile, shared_or_skip

PROVIDED = {
    "fig10_100jobs_1500lam_seed1.csv": (100, 1500, {"least_slack": 1.5, "seed": 1}),
    "fig9_1000job_1500lam_gseed9.csv": (1000, 1500, {"slack_seed": 9}),
    **{
        f"fig11_200jobs_900lam_{share}_gseed11.csv": (
            200,
            900,
            {"best_effort_share": share, "slack_seed": 11},
        )
        for share in (0.1, 0.7, 0.9)
    },
}


def drawn(jobs: int, gap_s: float, table: ThroughputTable, *, seed: int = 0, **options: Any) -> Jobs:
    """Jobs of the published generator."""
    return published(PublishedGenerator(jobs=jobs, mean_gap_s=gap_s, **options), table, seed)


@pytest.mark.parametrize("name", PROVIDED)
def test_the_published_generator_is_repeated_draw_for_draw(name: str) -> None:
    shared_or_skip()
    jobs, gap_s, options = PROVIDED[name]
    made = drawn(jobs, gap_s, profile("A100"), **options)
    assert (
        jobs_csv(JobTable("generated", made)).splitlines()
        == (DATA / "generated" / name).read_text().splitlines()
    )


def test_only_slack_and_coin_hang_on_the_unseeded_generator() -> None:
    shared_or_skip()
    one, two = (drawn(50, 900, profile("A100"), best_effort_share=0.5, slack_seed=s) for s in (1, 2))
    assert one.model == two.model and one.duration_s.tolist() == two.duration_s.tolist()
    assert one.deadline_s.tolist() != two.deadline_s.tolist()
    assert one.best_effort.tolist() != two.best_effort.tolist()


def flat_profile(levels: tuple[int, ...] = (1, 2, 4, 8, 16)) -> ThroughputTable:
    """Two kinds that scale perfectly, the second only up to 4 GPUs."""
    counts = np.array(levels, np.int64)
    rate = np.stack([2.0 * counts, np.where(counts <= 4, 1.0 * counts, 0.0)])
    return ThroughputTable("test", (("a", 64), ("b", 8)), counts, rate.astype(np.float64), np.array([16, 16]))


SPEC = JobGenerator(jobs=400, mean_gap_s=600.0, best_effort_share=0.25)


def test_fewer_jobs_are_the_first_of_more() -> None:
    few, many = (generate(SPEC.with_(jobs=n), flat_profile(), seed=3) for n in (150, 400))
    for name in ("submit_s", "duration_s", "gpus", "deadline_s", "best_effort", "iterations"):
        assert getattr(few, name).tolist() == getattr(many, name)[:150].tolist()


def test_a_change_of_slack_shifts_no_other_draw() -> None:
    tight, loose = (generate(SPEC.with_(most_slack=s), flat_profile(), seed=3) for s in (1.0, 2.0))
    assert tight.duration_s.tolist() == loose.duration_s.tolist() and tight.model == loose.model
    assert np.all(tight.deadline_s <= loose.deadline_s)


def test_templates_can_run_on_their_gpus() -> None:
    made = generate(SPEC, flat_profile(), seed=1)
    rate = flat_profile().rate_at()
    for model, batch, gpus in zip(made.model, made.batch, made.gpus):
        assert rate[flat_profile().kind_of(model, int(batch)), gpus] > 0
    assert {m for m, g in zip(made.model, made.gpus) if g > 4} == {"a"}


def test_mean_gap_and_hours_are_kept() -> None:
    """The mean gap has relative standard error 1/sqrt(n); hours at rate 0 get no job."""
    spec = JobGenerator(jobs=20_000, mean_gap_s=60.0, hourly_rates=(1.0,) * 12 + (0.0,) * 12)
    made = generate(spec, flat_profile(), seed=0)
    assert made.submit_s[-1] / 19_999 == pytest.approx(
        60.0, rel=4 / math.sqrt(20_000) + 86_400 / made.submit_s[-1]
    )
    assert set((made.submit_s // 3600 % 24).tolist()) <= set(range(13))


def test_durations_follow_the_mixture() -> None:
    """One hump: the log-duration is normal; its distance to the normal law is below the 0.1 % point, 1.95/sqrt(n)."""
    part = LogNormalPart(weight=1.0, median_s=1000.0, log_spread=0.7)
    spec = JobGenerator(
        jobs=5000, mean_gap_s=1.0, durations=(part,), least_duration_s=1.0, most_duration_s=1e9
    )
    made = generate(spec, flat_profile(), seed=5)
    z = np.sort((np.log(made.duration_s + 0.5) - math.log(1000.0)) / 0.7)
    law = np.array([NormalDist().cdf(value) for value in z])
    assert np.abs(law - np.arange(1, 5001) / 5000).max() < 1.95 / math.sqrt(5000)


def test_a_fit_finds_the_mixture_it_was_made_from() -> None:
    parts = (
        LogNormalPart(weight=0.7, median_s=500.0, log_spread=0.5),
        LogNormalPart(weight=0.3, median_s=50_000.0, log_spread=0.8),
    )
    spec = JobGenerator(
        jobs=8000, mean_gap_s=100.0, durations=parts, least_duration_s=1.0, most_duration_s=1e9
    )
    found = fit(as_trace(generate(spec, flat_profile(), seed=2)))
    for mine, theirs in zip(found.spec.durations, parts):
        assert mine.weight == pytest.approx(theirs.weight, abs=0.03)
        assert math.log(mine.median_s) == pytest.approx(math.log(theirs.median_s), abs=0.1)
        assert mine.log_spread == pytest.approx(theirs.log_spread, abs=0.1)
    assert found.duration_distance < 0.02
    assert found.spec.mean_gap_s == pytest.approx(100.0, rel=0.05)
    shares = {size.gpus: size.share for size in found.spec.sizes}
    assert shares[1] == pytest.approx(0.83, abs=0.02)


def as_trace(made: Jobs, **more: Any) -> Trace:
    from forerun.core.trace.table import Column, Provenance

    columns = {
        "job_id": [str(i) for i in range(len(made))],
        "submit_s": made.submit_s,
        "duration_s": made.duration_s,
        "gpus": made.gpus,
        **more,
    }
    schema = [Column(name) for name in columns]
    return Trace(
        "jobs", schema, columns, time="submit_s", provenance=Provenance(format="test", source="test")
    )


def test_public_logs_can_be_fitted() -> None:
    shared_or_skip()
    found = fit(read_trace(DATA / "elasticflow_traces" / "cluster01.csv"), humps=3)
    assert len(found.spec.hourly_rates) == 168
    assert found.duration_distance < 0.1
    again = generate(found.spec, profile("A100"), seed=1)
    assert again.submit_s[-1] == pytest.approx(2.95e6, rel=0.3)


def test_a_resampled_log_keeps_blocks_whole() -> None:
    made = generate(SPEC, flat_profile(), seed=4)
    table = JobTable("generated", made)
    again = resampled(table, block_s=86_400.0, blocks=5, seed=0).jobs
    block = ((made.submit_s - made.submit_s[0]) // 86_400).astype(int)
    inside = {tuple(made.duration_s[block == b].tolist()) for b in set(block.tolist())}
    offset = (again.submit_s // 86_400).astype(int)
    for k in set(offset.tolist()):
        assert tuple(again.duration_s[offset == k].tolist()) in inside
    same, other = (resampled(table, block_s=86_400.0, blocks=5, seed=seed).jobs for seed in (0, 1))
    assert np.array_equal(same.submit_s, again.submit_s) and same.id == again.id
    assert not np.array_equal(other.submit_s, again.submit_s)


def test_a_raw_log_gets_models_and_deadlines_and_what_is_left_out_is_counted() -> None:
    columns = {
        "job_id": list("abcdefg"),
        "submit_s": [0, 1, 2, 3, 4, 5, 6],
        "duration_s": [1000, 1000, 1000, 500, 1000, 2000, 1000],
        "gpus": [1.0, 3.0, 128.0, 1.0, 8.0, 0.5, 4.0],
        "state": ["Pass", "Pass", "Pass", "Pass", "FAILED", "Pass", "COMPLETED"],
    }
    from forerun.core.trace.table import Column, Provenance

    trace = Trace(
        "jobs",
        [Column(name) for name in columns],
        columns,
        time="submit_s",
        provenance=Provenance(format="t", source="t"),
    )
    log = RepairLog()
    made = from_log(trace, flat_profile(), seed=0, repairs=log)
    assert made.gpus.tolist() == [1, 4] and made.submit_s.tolist() == [0, 6]
    assert {r.rule.split(" left")[0]: r.count for r in log.repairs} == {
        "job that failed": 1,
        "job with 3, 5, 6, 7 or more than 64 GPUs": 2,
        "job shorter than 600 s": 1,
        "job with a number of GPUs without throughput": 1,
    }
    slack = (made.deadline_s - made.submit_s) / made.duration_s
    assert np.all((slack >= 0.49) & (slack <= 1.5))


def test_generated_jobs_become_the_jobs_of_a_run(tmp_path: Path) -> None:
    made = generate(SPEC, flat_profile(), seed=9)
    jobs = jobs_of(JobTable("generated", made), flat_profile())
    assert np.array_equal(jobs.deadline_s == NO_DEADLINE_S, made.best_effort == 1)
    path = tmp_path / "made.csv"
    path.write_text(jobs_csv(JobTable("generated", made)))
    again = jobs_of(read_jobs(path), flat_profile())
    assert (
        again.submit_s.tolist() == jobs.submit_s.tolist()
        and again.deadline_s.tolist() == jobs.deadline_s.tolist()
    )


def test_impossible_wishes_are_refused() -> None:
    with pytest.raises(ProfileError, match="nothing that runs on 16"):
        generate(SPEC, flat_profile((1, 2, 4, 8)), seed=0)
    with pytest.raises(ProfileError, match="no throughput of x"):
        generate(SPEC.with_(templates=(("x", 1),)), flat_profile(), seed=0)
    with pytest.raises(ProfileError, match="no throughput of"):
        drawn(10, 100, flat_profile())
    with pytest.raises(ScenarioError, match="24, 168 or none"):
        SPEC.with_(hourly_rates=(1.0, 2.0))
    with pytest.raises(TraceError, match="at least 10"):
        fit(as_trace(generate(SPEC.with_(jobs=3), flat_profile(), seed=0)))
    assert len(TEMPLATES) == 14
