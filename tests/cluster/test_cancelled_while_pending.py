"""Jobs that leave the queue before they ran: their place in it counts until then, and no figure counts them."""

from __future__ import annotations

import random
from pathlib import Path

import numpy as np
import pytest

import forerun
from forerun.cluster.engine.allocator import Terms
from forerun.cluster.engine.record import Record
from forerun.cluster.engine.run import rules_for, run_rules
from forerun.cluster.inputs.arrays import NEVER_S, Cluster, Jobs, NodeGroup
from forerun.cluster.inputs.prepare import prepare
from forerun.cluster.inputs.setting import Setting
from forerun.cluster.policies.priority import Fifo
from forerun.core.result.run import Result
from forerun.core.scenarios import load

HEADER = "JobID|User|Partition|Submit|Start|End|State|ElapsedRaw|AllocTRES|Timelimit|Eligible"


def clock(at_s: int | None) -> str:
    if at_s is None:
        return "Unknown"
    return f"2025-01-01T{8 + at_s // 3600:02}:{at_s % 3600 // 60:02}:{at_s % 60:02}"


def row(
    name: str,
    gpus: int,
    submit: int,
    start: int | None,
    end: int,
    state: str = "COMPLETED",
    eligible: int | None = None,
) -> str:
    at = "|".join(map(clock, (submit, start, end)))
    ran_s = 0 if start is None else end - start
    eligible = submit if eligible is None else eligible
    return f"{name}|u|p|{at}|{state}|{ran_s}|gres/gpu={gpus}|00:20:00|{clock(eligible)}"


#: `wide` waits for all GPUs, holds up `small`, and is cancelled at 300
ROWS = [
    row("first", 4, 0, 0, 1000),
    row("wide", 8, 10, None, 300, "CANCELLED by 7"),
    row("small", 4, 20, 300, 500),
]


def ran(folder: Path, rows: list[str], policy: str, *sets: str) -> Result:
    (folder / "jobs.txt").write_text("\n".join([HEADER, *rows, ""]))
    text = "domain: cluster\nmachines: {nodes: [{count: 1, gpus: 8}]}\n"
    trace = "trace: {file: jobs.txt, format: sacct, options: {cancelled: true}}\n"
    (folder / "scenario.yaml").write_text(f"{text}{trace}policy: {policy}\n")
    return forerun.simulate(load(folder / "scenario.yaml", list(sets)))


@pytest.mark.parametrize(
    ("policy", "late_s"), [("fifo", 0), ("fifo-backfill-unreserved", -280), ("slurm-backfill", 5)]
)
def test_a_job_holds_up_others_until_it_is_cancelled(tmp_path: Path, policy: str, late_s: float) -> None:
    result = ran(tmp_path, ROWS, policy)
    jobs = result.tables["jobs"]
    assert jobs["job"].tolist() == ["first", "wide", "small"]
    at_s = jobs["first_start_s"][2]
    assert 300 <= at_s <= 300 + late_s or at_s == 300 + late_s
    assert np.isnan([jobs[name][1] for name in ("first_start_s", "end_s", "wait_s")]).all()
    assert (result.summary["cancelled_jobs"], result.summary["unfinished_jobs"]) == (1, 0)
    assert result.summary["wait_mean_s"] == pytest.approx(np.nanmean(jobs["wait_s"]))
    assert jobs["wait_nodes_in_use_s"][1] == pytest.approx(290, abs=2), "it waited until it left"


def test_one_that_starts_before_takes_nothing_and_is_not_scored(tmp_path: Path) -> None:
    """How long it would have run is not known."""
    result = ran(tmp_path, ROWS[1:], "fifo")
    jobs = result.tables["jobs"]
    assert jobs["first_start_s"].tolist() == [0, 10]
    assert jobs["gpu_s"].tolist() == [8, 800] and np.isnan(jobs["end_s"][0]) and np.isnan(jobs["wait_s"][0])
    assert result.summary["finished_jobs"] == 1 and result.summary["wait_mean_s"] == 0
    assert "1 cancelled while pending" in " ".join(result.lead.values())


def test_who_was_never_in_the_queue_is_dropped(tmp_path: Path) -> None:
    """One that was held until it was cancelled, and without the option all."""
    held = row("held", 8, 10, None, 300, "CANCELLED", eligible=2000)
    assert len(ran(tmp_path, [*ROWS, held], "fifo").tables["jobs"]) == 3
    plain = ran(tmp_path, ROWS, "fifo", "trace.options={cancelled: false}")
    assert (
        plain.tables["jobs"]["job"].tolist() == ["first", "small"] and "cancelled_jobs" not in plain.summary
    )


def test_drawn_queues_in_order_against_a_count_second_by_second() -> None:
    draw = random.Random(3)
    for _ in range(40):
        count, gpus = 12, 4
        submit = sorted(draw.randrange(60) for _ in range(count))
        asks = [draw.randint(1, gpus) for _ in range(count)]
        runs = [draw.randint(1, 30) for _ in range(count)]
        leaves = [at + draw.randint(1, 40) if draw.random() < 0.4 else NEVER_S for at in submit]
        runs = [1 if at < NEVER_S else run for run, at in zip(runs, leaves, strict=True)]
        jobs = Jobs.of(submit, asks, runs, leaves_s=leaves)
        setting = Setting(
            jobs=jobs,
            cluster=Cluster((NodeGroup("n", 1, gpus),)),
            profile=None,
            slot_s=60.0,
            gpu_type="",
            seed=1,
        )
        record = Record(setting)
        run_rules(rules_for(Fifo(), setting, record, Terms(), 1))
        starts, waiting, running = [-1] * count, list[int](), dict[int, int]()
        for now in range(600):
            running = {job: end for job, end in running.items() if end > now}
            waiting += [job for job in range(count) if submit[job] == now]
            waiting = [job for job in waiting if leaves[job] > now]
            while waiting and sum(asks[job] for job in running) + asks[waiting[0]] <= gpus:
                job = waiting.pop(0)
                starts[job], running[job] = now, now + runs[job]
        assert record.first_start_s.tolist() == starts


def test_edits_move_when_it_leaves(tmp_path: Path) -> None:
    ran(tmp_path, ROWS, "fifo")
    moved = prepare(load(tmp_path / "scenario.yaml", ["trace.edit={submit_s: {wide: 50}}"]))
    assert moved.setting.jobs.leaves_s[2] == 340
