"""Jobs that start again: runs after the end of others, beside a slow reference and laws."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest

import forerun
from forerun.cluster.engine.record import Record
from forerun.cluster.inputs.arrays import Cluster, JobLabels, Jobs
from forerun.cluster.inputs.setting import Setting
from forerun.cluster.policies.conservative import Conservative
from forerun.cluster.policies.easy import Easy
from forerun.cluster.policies.first_fit import FirstFit
from forerun.cluster.policies.slurm_backfill import SlurmBackfill
from forerun.cluster.policies.time_slices import TimeSlices
from forerun.cluster.policy import Policy, schedulers
from forerun.core.scenarios import load

from .conftest import play

CASES = int(os.environ.get("FORERUN_CASES", "20"))


def drawn(number: int) -> Setting:
    """A small cluster, and jobs some of which come after the end of one before them."""
    rng = np.random.default_rng(number)
    count = 30
    submit_s = np.sort(rng.integers(0, 4_000, count))
    before = [int(rng.integers(0, at)) if at and rng.random() < 0.5 else -1 for at in range(count)]
    duration_s = rng.integers(1, 1_500, count)
    jobs = Jobs.of(
        submit_s,
        rng.integers(1, 9, count),
        duration_s,
        requested_s=duration_s + rng.integers(0, 900, count),
        labels=JobLabels.of(
            count,
            after=tuple(str(one) if one >= 0 else "" for one in before),
            after_delay_s=rng.choice([0, 0, 120, 7], count),
        ),
    )
    return Setting(jobs=jobs, cluster=Cluster.uniform(1, 2, 4), profile=None, slot_s=60)


def in_order(setting: Setting) -> list[float]:
    """Starts of a queue in which nobody passes anybody, second by second."""
    jobs, free, now_s = setting.jobs, setting.cluster.gpus, 0
    before, delay_s = jobs.predecessor().tolist(), jobs.labels.after_delay_s.tolist() if jobs.labels else []
    start_s, end_s = [-1] * len(jobs), [-1] * len(jobs)
    queue: list[int] = []
    while -1 in end_s:
        for row in range(len(jobs)):
            if start_s[row] >= 0 and start_s[row] + jobs.duration_s[row] == now_s:
                end_s[row], free = now_s, free + int(jobs.gpus[row])
        for row, one in enumerate(before):
            comes_s = (
                int(jobs.submit_s[row]) if one < 0 else end_s[one] + delay_s[row] if end_s[one] >= 0 else -1
            )
            if comes_s == now_s:
                queue.append(row)
        while queue and jobs.gpus[queue[0]] <= free:
            row = queue.pop(0)
            start_s[row], free = now_s, free - int(jobs.gpus[row])
        now_s += 1
    return [float(one) for one in start_s]


def test_a_queue_in_order_is_that_of_the_slow_reference() -> None:
    for number in range(CASES):
        setting = drawn(number)
        record = play(schedulers().get("fifo")(), setting)
        assert record.first_start_s.tolist() == in_order(setting), f"world {number}"


def check(setting: Setting, record: Record, what: str) -> None:
    """Nobody starts before the one before him has ended and the delay is over, and comes at that very instant."""
    before = setting.jobs.predecessor()
    assert setting.jobs.labels is not None
    after = before >= 0
    comes_s = record.end_s[before] + setting.jobs.labels.after_delay_s
    assert (record.end_s >= 0).all(), what
    np.testing.assert_allclose(record.came_s[after], comes_s[after], err_msg=what)
    np.testing.assert_array_equal(record.came_s[~after], setting.jobs.submit_s[~after], err_msg=what)
    assert (record.first_start_s >= record.came_s - 1e-6).all(), what


@pytest.mark.parametrize(
    "policy",
    [Easy(), Conservative(), FirstFit(), SlurmBackfill(), TimeSlices()],
    ids=lambda one: type(one).__name__,
)
def test_nobody_starts_before_the_one_before_him_has_ended(policy: Policy) -> None:
    for number in range(CASES // 4):
        setting = drawn(number)
        check(setting, play(policy, setting), f"world {number}")


def scenario(folder: Path, rows: Sequence[str], policy: str = "fifo", more: str = "") -> forerun.Result:
    """The run of a Slurm log on one node of four GPUs."""
    header = "JobID|User|Partition|Submit|Eligible|Start|End|State|ElapsedRaw|AllocTRES|Timelimit|NNodes"
    (folder / "jobs.txt").write_text("\n".join((header, *rows)) + "\n")
    (folder / "site.yaml").write_text(
        "domain: cluster\ntrace: {file: jobs.txt, format: sacct}\n"
        f"machines: {{nodes: [{{count: 1, gpus: 4}}]}}\npolicy: {{name: {policy}}}\n{more}"
    )
    return forerun.simulate(load(folder / "site.yaml"))


def row(
    job: str, submit: int, start: int, end: int, state: str = "COMPLETED", gpus: int = 4, eligible: int = -1
) -> str:
    """Of a log in minutes."""
    at = [
        "2026-03-02T{:02d}:{:02d}:00".format(*divmod(one, 60))
        for one in (submit, max(eligible, submit), start, end)
    ]
    return (
        f"{job}|ann|gpu|{'|'.join(at)}|{state}|{60 * (end - start)}|cpu=8,gres/gpu={gpus},node=1|08:00:00|1"
    )


def test_runs_of_a_requeued_job_follow_each_other_and_the_recorded_delay(tmp_path: Path) -> None:
    """The log had another order: the first run of 7 starts an hour earlier here, and so does the second."""
    jobs = scenario(
        tmp_path,
        [
            row("7", 0, 90, 120, "NODE_FAIL"),
            row("7", 120, 130, 190, eligible=122),
            row("8", 1, 30, 90),
        ],
    ).tables["jobs"]
    found = {
        name: (float(came), float(start), float(end))
        for name, came, start, end in zip(
            jobs["job"], jobs["submit_s"], jobs["first_start_s"], jobs["end_s"], strict=True
        )
    }
    assert found == {"7": (0, 0, 1800), "8": (60, 1800, 5400), "7#2": (1920, 5400, 9000)}


def test_history_judges_a_restart_by_its_wait_since_it_came(tmp_path: Path) -> None:
    rows = [
        row("6", 0, 0, 1),
        row("7", 120, 180, 210, "NODE_FAIL"),
        row("7", 210, 212, 272, eligible=212),
        row("8", 400, 400, 401),
    ]
    summary = scenario(tmp_path, rows).summary
    (everybody,) = [one for name, one in summary["history"].items() if name == "all jobs"]
    assert everybody["simulated_mean_s"] == 0 and everybody["recorded_mean_s"] == pytest.approx(1200)
