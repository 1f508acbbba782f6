"""Time in which a job may not start whatever is free: before it is eligible, and while enough tasks of its array run."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import forerun
from forerun.core.result.run import Result
from forerun.core.scenarios import load

HEADER = "JobID|User|Partition|Submit|Eligible|Start|End|State|ElapsedRaw|AllocTRES|Timelimit"


def row(job: str, submit: str, eligible: str, start: str, end: str, seconds: int, gpus: int = 4) -> str:
    day = "2025-01-01T"
    at = "|".join(day + text for text in (submit, eligible, start, end))
    return f"{job}|u|p|{at}|COMPLETED|{seconds}|gres/gpu={gpus}|60"


def ran(folder: Path, rows: list[str], policy: str) -> Result:
    (folder / "jobs.txt").write_text("\n".join([HEADER, *rows, ""]))
    (folder / "slurm.conf").write_text("NodeName=n1 Gres=gpu:8\nPartitionName=p Nodes=ALL\n")
    text = "domain: cluster\ntrace: {file: jobs.txt, format: sacct}\nmachines: {file: slurm.conf}\n"
    (folder / "scenario.yaml").write_text(f"{text}policy: {policy}\n")
    return forerun.simulate(load(folder / "scenario.yaml"))


@pytest.mark.parametrize("policy", ["fifo", "easy", "slurm-backfill"])
def test_a_job_is_not_eligible_before_its_begin(tmp_path: Path, policy: str) -> None:
    rows = [
        row("1", "08:00:00", "08:00:00", "08:00:00", "09:00:00", 3600),
        row("2", "08:10:00", "08:30:00", "08:30:00", "08:40:00", 600),
        row("3", "08:20:00", "08:20:00", "08:20:00", "08:21:00", 60),
    ]
    result = ran(tmp_path, rows, policy)
    jobs = result.tables["jobs"]
    assert jobs["job"].tolist() == ["1", "3", "2"]
    assert jobs["wait_not_eligible_s"].tolist() == [0, 0, 1200]
    assert (jobs["first_start_s"] - [0, 1200, 1800]).max() <= 2, "it comes when it is eligible"
    assert jobs["wait_s"].max() <= 2, "and waits from then on"
    assert "not eligible" not in result.why, "nobody waited in the queue for it"


@pytest.mark.parametrize("policy", ["fifo", "easy", "slurm-backfill"])
def test_tasks_beyond_the_limit_of_their_array_are_not_eligible(tmp_path: Path, policy: str) -> None:
    """One task at once: the second one waits for the first, though half of the node is free."""
    rows = [
        row("7_1", "08:00:00", "08:00:00", "08:00:00", "08:10:00", 600),
        row("7_2", "08:00:00", "08:10:00", "08:10:00", "08:20:00", 600),
    ]
    rows.append("7_[3%1]|u|p|2025-01-01T08:00:00|Unknown|Unknown|Unknown|PENDING|0||60")
    rows[-1] = rows[-1].replace("|0||", "|0|gres/gpu=4|")
    jobs = ran(tmp_path, rows, policy).tables["jobs"]
    late = jobs["first_start_s"].argsort()[1:]
    assert np.abs(np.diff(jobs["first_start_s"][jobs["first_start_s"].argsort()]) - 600).max() <= 40
    assert (jobs["wait_limit_s"] == 0).all()
    assert (jobs["wait_not_eligible_s"][late] > 500).all()


def test_tasks_of_an_array_start_by_their_numbers(tmp_path: Path) -> None:
    """Whatever the order of their rows; the scheduler's first look at them a second late is their submission."""
    tasks = ["1", "10", "11", "2", "3"]
    rows = [
        row(f"7_{task}", "08:00:00", "08:00:01", f"08:{at}0:00", f"08:{at + 1}0:00", 600, gpus=8)
        for at, task in enumerate(tasks)
    ]
    jobs = ran(tmp_path, rows, "fifo").tables["jobs"]
    order = jobs["first_start_s"].argsort()
    assert jobs["job"][order].tolist() == ["7_1", "7_2", "7_3", "7_10", "7_11"]
    assert (jobs["wait_not_eligible_s"] == 0).all()
