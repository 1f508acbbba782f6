"""Every result on a log with starts says how its waits compare with the recorded ones."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import forerun
from forerun.core.cli.main import run as cli
from forerun.core.report import write_page
from forerun.core.report.stored import StoredComparison
from forerun.core.result.run import Result
from forerun.core.study.compared import comparison_of, save_comparison

from ..conftest import cases

DAY_S = 86_400
#: where the logs of these worlds begin, in seconds since 1970
ORIGIN_S = 1_700_000_000
#: drawn worlds of each kind
SEEDS = range(cases(2, 40))


@dataclass(frozen=True)
class Job:
    """A job of a drawn world; start_s and end_s: what happened to it, -1: nothing."""

    id: str
    submit_s: int
    duration_s: int
    gpus: int
    user: str
    partition: str = "gpu"
    start_s: int = -1
    end_s: int = -1
    state: str = "COMPLETED"

    @property
    def request_s(self) -> int:
        return 2 * self.duration_s


def drawn(
    seed: int, *, jobs: int = 220, load: float = 0.95, partition: str = "gpu", users: int = 3
) -> list[Job]:
    """Jobs of 1 to 8 GPUs that keep 16 GPUs as busy as `load` says."""
    draw = np.random.default_rng([seed, 36])
    gpus = draw.choice([1, 2, 4, 8], jobs, p=[0.4, 0.2, 0.2, 0.2])
    duration_s = np.clip(draw.lognormal(9.0, 0.8, jobs), 120, 60_000).astype(int)
    gap_s = float((gpus * duration_s).mean()) / (16 * load)
    submit_s = np.cumsum(draw.exponential(gap_s, jobs)).astype(int)
    names = [f"u{number}" for number in draw.integers(0, users, jobs)]
    return [
        Job(f"{partition}{at}", int(submit_s[at]), int(duration_s[at]), int(gpus[at]), names[at], partition)
        for at in range(jobs)
    ]


def written(jobs: Sequence[Job], path: Path) -> Path:
    """The jobs as a log, in order of submission."""
    lines = ["id,submit_s,start_s,end_s,gpus,requested_s,user,partition,state"]
    for job in sorted(jobs, key=lambda one: one.submit_s):
        times = [at + ORIGIN_S if at >= 0 else -1 for at in (job.submit_s, job.start_s, job.end_s)]
        lines.append(
            ",".join(map(str, [job.id, *times, job.gpus, job.request_s, job.user, job.partition, job.state]))
        )
    path.write_text("\n".join(lines) + "\n")
    return path


def simulated(jobs: Sequence[Job], folder: Path, policy: Any = "fifo", gpus: int = 16, **more: Any) -> Result:
    """A run of the jobs as their log has them."""
    path = written(jobs, folder / "jobs.csv")
    text = f"""
domain: cluster
trace: {{file: {path}, format: job_history}}
machines: {{nodes: [{{name: a, count: {gpus // 8}, gpus: 8}}]}}
"""
    scenario = folder / "scenario.yaml"
    scenario.write_text(text)
    settings = [f"policy={policy}", *(f"{name}={value}" for name, value in more.items())]
    return forerun.simulate(forerun.load(scenario, settings))


def happened(jobs: Sequence[Job], folder: Path, policy: Any = "fifo", gpus: int = 16) -> list[Job]:
    """The jobs with what happens to them under a policy."""
    submitted = [replace(job, start_s=job.submit_s, end_s=job.submit_s + job.duration_s) for job in jobs]
    table = simulated(submitted, folder, policy, gpus).tables["jobs"]
    first_s = min(job.submit_s for job in jobs)  # a run counts from the first submission
    start = dict(zip(table["job"].tolist(), table["first_start_s"].tolist(), strict=True))
    return [
        replace(
            job, start_s=int(start[job.id]) + first_s, end_s=int(start[job.id]) + first_s + job.duration_s
        )
        for job in jobs
    ]


def history(run: Result) -> dict[str, Any]:
    """What a run says of all jobs."""
    return dict(run.summary["history"]["all jobs"])


@pytest.mark.parametrize("seed", SEEDS)
def test_a_setting_that_reproduces_history_says_so(seed: int, tmp_path: Path) -> None:
    run = simulated(happened(drawn(seed), tmp_path), tmp_path)
    said = history(run)
    assert said["within_factor_2"] == 1 and said["first_difference"] == "never"
    assert said["recorded_mean_s"] == said["simulated_mean_s"] > 600
    assert "caution" not in run.summary and "reproduce" not in run.why
    assert run.summary["recorded_jct_mean_s"] == pytest.approx(run.summary["jct_mean_s"])


@pytest.mark.parametrize("seed", SEEDS)
def test_partitions_that_are_not_given_are_named(seed: int, tmp_path: Path) -> None:
    busy = happened(drawn(seed, partition="busy"), tmp_path)
    calm = happened(drawn(seed + 50, partition="calm", load=0.3, jobs=90), tmp_path)
    run = simulated([*busy, *calm], tmp_path, gpus=32)
    assert set(run.summary["history"]) == {"all jobs", "busy", "calm"}
    assert "largest known gap: partitions not given" in run.why
    assert run.why.startswith(run.summary["caution"])


@pytest.mark.parametrize("seed", SEEDS)
def test_fair_share_that_is_not_given_is_named(seed: int, tmp_path: Path) -> None:
    jobs = [  # one user has most of the jobs, short ones; the few of each other one are long and wide, and go first
        replace(job, user="heavy", duration_s=job.duration_s // 2, gpus=4)
        if number % 8
        else replace(job, duration_s=4 * job.duration_s, gpus=8)
        for number, job in enumerate(drawn(seed, load=1.5, users=12))
    ]
    shares = "{name: easy, order: {name: multifactor, weights: {fairshare: 100000}}}"
    past = happened(jobs, tmp_path, shares)
    assert "largest known gap: fair share not given" in simulated(past, tmp_path, "easy").why
    assert "caution" not in simulated(past, tmp_path, shares).summary


@pytest.mark.parametrize("seed", SEEDS)
def test_holds_are_named(seed: int, tmp_path: Path) -> None:
    jobs = drawn(seed, load=0.7)
    late = [
        replace(job, submit_s=job.submit_s + (DAY_S if at % 6 == 3 else 0)) for at, job in enumerate(jobs)
    ]
    past = [
        replace(one, submit_s=job.submit_s) for one, job in zip(happened(late, tmp_path), jobs, strict=True)
    ]
    assert "largest known gap: holds" in simulated(past, tmp_path).why


@pytest.mark.parametrize("seed", SEEDS)
def test_failures_are_named(seed: int, tmp_path: Path) -> None:
    jobs = drawn(seed, load=0.8)
    repair = Job("repair", jobs[110].submit_s, 3 * DAY_S, 8, "site")
    past = happened([*jobs, repair], tmp_path)
    away_s = past[-1].start_s
    failed = max((one for one in past[:-1] if one.end_s <= away_s), key=lambda one: one.end_s)
    log = [replace(one, state="NODE_FAIL") if one is failed else one for one in past[:-1]]
    assert "largest known gap: failures" in simulated(log, tmp_path).why


def test_jobs_that_cannot_be_scored_count_apart(tmp_path: Path) -> None:
    jobs = drawn(1)
    past = happened(jobs, tmp_path)
    at_s = past[150].submit_s
    own = next(one for one in past[151:] if one.user == past[150].user and one.gpus >= past[150].gpus)
    released_s = max(own.start_s, at_s) + 3 * DAY_S
    past[150] = replace(past[150], start_s=released_s, end_s=released_s + past[150].duration_s, duration_s=1)
    gone = [
        Job("gone", at_s, 60, 1, "u0", end_s=at_s + 99, state="CANCELLED by 12"),
        Job("gone too", at_s, 60, 1, "u0", start_s=at_s + 9, end_s=at_s + 9, state="CANCELLED"),
        Job("runs", at_s, 60, 1, "u0", start_s=at_s + 50, state="RUNNING"),
        Job("waits", at_s, 60, 1, "u0", state="PENDING"),
    ]
    run = simulated([*past, *gone], tmp_path)
    for count in ("2 cancelled while pending", "2 not ended", "1 held"):
        assert count in run.lead["history"]


def test_without_recorded_starts_there_is_one_line_and_no_comparison(tmp_path: Path) -> None:
    generated = forerun.load(forerun.demo("cluster").scenario, ["trace.generate.jobs=20", "policy=fifo"])
    path = tmp_path / "bare.csv"
    path.write_text("job_id,submit_time,duration,num_gpus\n1,0,100,1\n2,5,100,1\n")
    bare = ["domain: cluster", f"trace: {path}", "machines: {nodes: [{count: 1, gpus: 8}]}", "policy: fifo"]
    (tmp_path / "bare.yaml").write_text("\n".join(bare))
    log = written(happened(drawn(0, jobs=40), tmp_path), tmp_path / "log.csv")
    again = [
        *bare[:1],
        f"trace: {{resample: {{file: {log}, format: job_history}}}}",
        "machines: {nodes: [{count: 2, gpus: 8}]}",
        bare[3],
    ]
    (tmp_path / "again.yaml").write_text("\n".join(again))
    for scenario, why in (
        (generated, "the jobs are generated"),
        (forerun.load(tmp_path / "bare.yaml"), "the log has no starts"),
        (forerun.load(tmp_path / "again.yaml"), "the jobs are resampled from a log"),
    ):
        run = forerun.simulate(scenario)
        assert run.lead == {"history": f"not compared, {why}"}
        assert not [name for name in run.summary if name.startswith(("history", "recorded", "caution"))]


@pytest.mark.parametrize("seed", SEEDS)
def test_what_was_recorded_changes_no_simulated_number(seed: int, tmp_path: Path) -> None:
    past = happened(drawn(seed), tmp_path)
    later = np.random.default_rng(seed).integers(0, 2 * DAY_S, len(past)).tolist()
    other = [
        replace(job, start_s=job.start_s + s, end_s=job.end_s + s, state="NODE_FAIL" if s % 2 else job.state)
        for job, s in zip(past, later, strict=True)
    ]
    one, two = (simulated(jobs, tmp_path, "easy") for jobs in (past, other))
    assert history(one) != history(two)
    said = ("history", "recorded", "caution", "first_difference", "causes")
    assert [
        {name: value for name, value in run.summary.items() if not name.startswith(said)} for run in (one,)
    ] == [{name: value for name, value in run.summary.items() if not name.startswith(said)} for run in (two,)]
    for name, table in one.tables.items():
        assert table.frame().equals(two.tables[name].frame()), name


def test_a_saved_run_a_notebook_a_page_and_a_terminal_say_it_first(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = simulated(happened(drawn(0), tmp_path), tmp_path)
    saved = forerun.load_result(run.save(tmp_path / "run"))
    assert saved.lead == run.lead and saved.summary["history"] == run.summary["history"]
    assert run.data()["lead"] == run.lead
    shown = run._repr_html_()
    assert shown.index("recorded mean") < shown.index("JCT mean")
    assert cli(["simulate", str(tmp_path / "scenario.yaml"), "--set", "policy=fifo"]) == 0
    printed = capsys.readouterr().out
    assert printed.startswith("History\n") and "recorded mean" in printed
    page = write_page([saved], tmp_path / "page.html").read_text()
    assert page.index('id="history"') < page.index('id="headline"')


def test_a_comparison_has_history_as_a_row_and_carries_the_error_of_its_base(tmp_path: Path) -> None:
    past = happened(drawn(0), tmp_path)
    simulated(past, tmp_path)
    scenario = forerun.load(tmp_path / "scenario.yaml", ["policy=fifo"])
    right = forerun.compare(scenario, ["fifo", "easy"], seeds=2)
    rows = right.rows()[1]
    recorded = rows[-1]
    assert recorded[0] == "recorded history" and recorded[-1] is None and recorded[3] == pytest.approx(0.0)
    assert recorded[1] == pytest.approx(
        next(one.value for one in right.standings if one.variant.name == "fifo")
    )
    assert right.caution == "" and "reproduce" not in " ".join(
        [right.why, *(one.why for one in right.standings)]
    )
    base = forerun.load(tmp_path / "scenario.yaml", ["policy=easy"])
    for policies in (["easy", "fifo"], ["conservative", "fifo"]):  # its base among the variants, and not
        wrong = forerun.compare(base, policies, seeds=2)
        assert wrong.caution.startswith("the setting does not reproduce history")
        assert wrong.why.startswith(wrong.caution) and wrong.why.count("reproduce") == 1
        whys = {one.variant.name: one.why for one in wrong.standings}
        assert "reproduce" not in whys["fifo"] and ("reproduce" in whys[policies[0]]) == (
            policies[0] == "easy"
        )
    saved = comparison_of(json.loads(save_comparison(right, tmp_path / "c.json").read_text()), "c")
    assert "recorded history" in write_page([StoredComparison("c", saved)], tmp_path / "c.html").read_text()


def test_a_job_is_explained_beside_history(tmp_path: Path) -> None:
    past = happened(drawn(0), tmp_path)
    waited = max(past, key=lambda job: job.start_s - job.submit_s)
    story = forerun.explain_job(simulated(past, tmp_path), waited.id).story
    first_s = min(job.submit_s for job in past)
    assert story.recorded_s == (waited.start_s - waited.submit_s, waited.start_s - first_s)
    assert "in the log it waited" in story.why
    assert story.fate.start_s == story.recorded_s[1]


def test_a_policy_that_is_not_the_sites_own_is_not_judged(tmp_path: Path) -> None:
    jobs = written(happened(drawn(0), tmp_path), tmp_path / "log.csv")
    for plugin, own, other in (("builtin", "slurm-builtin", "easy"), ("backfill", "slurm-backfill", "fifo")):
        conf = tmp_path / "slurm.conf"
        conf.write_text(f"SchedulerType=sched/{plugin}\nNodeName=n[1-2] Gres=gpu:8\n")
        text = f"domain: cluster\ntrace: {{file: {jobs}, format: job_history}}\nmachines: {{file: {conf}}}\n"
        (tmp_path / "site.yaml").write_text(text)
        runs = [
            forerun.simulate(forerun.load(tmp_path / "site.yaml", [f"policy={name}"]))
            for name in (own, other)
        ]
        assert "site's" not in runs[0].lead["history"]
        assert f"not judged, as the site's policy is {own}, not {other}" in runs[1].lead["history"]
        assert "caution" not in runs[1].summary and "history" in runs[1].summary


@pytest.mark.parametrize("seed", SEEDS)
def test_groups_add_up_to_all_jobs_and_hours_are_those_of_the_log(seed: int, tmp_path: Path) -> None:
    half = [replace(job, partition="b") if at % 2 else job for at, job in enumerate(drawn(seed))]
    run = simulated(happened(half, tmp_path), tmp_path)
    jobs = run.tables["jobs"]
    for name, column in (("by_partition", "partition"), ("by_user", "user"), ("by_size", "gpus")):
        groups = run.summary[name]
        assert sum(one["jobs"] for one in groups.values()) == len(jobs) == 220
        assert sum(one["used_gpu_s"] for one in groups.values()) == pytest.approx(jobs["gpu_s"].sum())
        for group, one in groups.items():
            mine = jobs[column].astype(str) == group.split(" GPU")[0]
            assert one["wait_mean_s"] == pytest.approx(jobs["wait_s"][mine].mean())
            assert one["slowdown_mean"] >= 1
    assert run.summary["wait_mean_s"] == pytest.approx((jobs["first_start_s"] - jobs["submit_s"]).mean())
    assert list(run.lead) == ["history", "by_partition", "causes"]
    submitted = jobs["submitted"].tolist()
    first = datetime.fromtimestamp(ORIGIN_S + min(job.submit_s for job in half), UTC)
    assert submitted[0] == f"{first:%Y-%m-%dT%H:%M:%S}"
    grid = run.figures["waits-by-hour"].data
    cells: dict[tuple[int, str], list[float]] = {}
    for text, wait_s in zip(submitted, jobs["wait_s"].tolist(), strict=True):
        at = datetime.fromisoformat(text)
        cells.setdefault((at.hour, f"{at:%a}"), []).append(wait_s / 3600)
    shown = zip(*(list(grid[name]) for name in ("hour", "day", "wait_h")), strict=True)
    assert {(hour, day): pytest.approx(wait_h) for hour, day, wait_h in shown} == {
        cell: np.mean(waits) for cell, waits in cells.items()
    }


def test_a_calendar_is_that_of_the_logs_zone(tmp_path: Path) -> None:
    lines = [
        "JobID|User|Partition|Submit|Start|End|State|ElapsedRaw|AllocTRES",
        "1|a|g|2026-03-29T01:30:00|2026-03-29T01:30:00|2026-03-29T04:00:00|COMPLETED|5400|gres/gpu=1",
        "2|a|g|2026-03-29T03:30:00|2026-03-29T03:30:00|2026-03-29T04:00:00|COMPLETED|1800|gres/gpu=1",
    ]
    (tmp_path / "log.txt").write_text("\n".join(lines) + "\n")
    text = f"""
domain: cluster
trace: {{file: {tmp_path}/log.txt, format: sacct, options: {{timezone: Europe/Berlin}}}}
machines: {{nodes: [{{count: 1, gpus: 8}}]}}
policy: fifo
"""
    (tmp_path / "s.yaml").write_text(text)
    jobs = forerun.simulate(forerun.load(tmp_path / "s.yaml")).tables["jobs"]
    assert jobs["submitted"].tolist() == ["2026-03-29T01:30:00", "2026-03-29T03:30:00"]
    assert jobs["submit_s"].tolist() == [0, 3600]


def test_a_plan_carries_the_error_of_its_base(tmp_path: Path) -> None:
    past = happened(drawn(0, jobs=60), tmp_path)
    simulated(past, tmp_path)
    settings = ["policy=first-fit", "trace.slack=9"]
    scenario = forerun.load(tmp_path / "scenario.yaml", settings)
    said = forerun.simulate(scenario).summary["caution"]
    assert said in forerun.plan(scenario, share=0.5).notes
