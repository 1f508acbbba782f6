"""One small setting on which every policy answers differently.

Seven jobs on four GPUs of one node (throughput: an invented model that scales well up to two GPUs and poorly to four):

    job  submit  deadline  work(s)  requested(s)  GPUs
    0       0      1500       600        600        1      long, loose
    1      10       400       300        600        2      tight
    2      15      1000       150        200        3      short, wants three GPUs
    3      20      2000       900        900        4      large, loose
    4      30       500       350        900        1      tight, requests far more than it takes
    5      40         -       200        300        4      best effort, wants all GPUs
    6      50      1200       500        700        1      long, some slack
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import forerun
from forerun.cluster.engine.record import Record
from forerun.cluster.inputs.arrays import NO_DEADLINE_S
from forerun.cluster.inputs.setting import Setting
from forerun.cluster.policy import Schedule, schedulers

from .test_allocators import PROFILE, cluster_of, jobs, play

NONE = NO_DEADLINE_S
SCENE = Setting(
    replace(
        jobs(
            [0, 10, 15, 20, 30, 40, 50],
            [600, 300, 150, 900, 350, 200, 500],
            [1, 2, 3, 4, 1, 4, 1],
            [1500, 400, 1000, 2000, 500, NONE, 1200],
            [0, 1, 1, 0, 1, 0, 1],
        ),
        requested_s=np.array([600, 600, 200, 900, 900, 300, 700]),
    ),
    cluster_of(1, 4),
    PROFILE,
    30,
    "A100",
)
#: the same with five times the work and four times as long to do it
LONG = Setting(
    replace(
        jobs(
            [0, 10, 15, 20, 30, 40, 50],
            [3000, 1500, 750, 4500, 1750, 1000, 2500],
            [1, 2, 3, 4, 1, 4, 1],
            [6000, 1600, 4000, 8000, 2000, NONE, 4800],
            [0, 1, 1, 0, 1, 0, 1],
        ),
        requested_s=np.array([3000, 3000, 1000, 4500, 4500, 1500, 3500]),
    ),
    cluster_of(1, 4),
    PROFILE,
    30,
    "A100",
)


def fate(name: str, scene: Setting = SCENE) -> tuple[int, ...]:
    """When each job ended, in whole seconds; -1: never (refused)."""
    record: Record = play(schedulers().get(name)(), scene)
    return tuple(round(end) for end in np.where(record.end_s >= 0, record.end_s, -1).tolist())


#: without ClusterQueues `kueue` has one queue, which is `fifo-backfill-unreserved`; see test_kueue.py
NAMES = tuple(name for name in schedulers().names() if name != "kueue")


def test_a_job_that_ends_at_its_deadline_has_met_it(tmp_path: Path) -> None:
    """Three jobs on a GPU each; the deadline of one is its end, of the others a second before or after."""
    rows = "".join(f"{name},0,1,60,{deadline_s}\n" for name, deadline_s in zip("abc", (59, 60, 61)))
    (tmp_path / "jobs.csv").write_text("job_id,submit_s,gpus,duration_s,deadline_s\n" + rows)
    (tmp_path / "s.yaml").write_text(
        "domain: cluster\ntrace: jobs.csv\nmachines: {nodes: [{count: 1, gpus: 4}]}\npolicy: fifo\n"
    )
    result = forerun.simulate(forerun.load(tmp_path / "s.yaml"))
    assert result.tables["jobs"]["end_s"].tolist() == [60.0] * 3
    assert result.summary["deadlines_met"] == 2
    assert result.tables["jobs"]["met"].astype(bool).tolist() == [False, True, True]


def test_no_two_policies_decide_alike() -> None:
    assert len(NAMES) >= 22
    fates = {name: fate(name) + fate(name, LONG) for name in NAMES}
    assert len(set(fates.values())) == len(NAMES), fates


BY_HAND = {
    # 2 starts when 1 ends; 3 waits for 0 and then takes all; 4 follows, 5 waits for all four again
    "fifo": (600, 310, 460, 1500, 1850, 2050, 2550),
    # at 15 s 2 (150 left) stops both and runs alone, then 5 (200, all GPUs); 1, 4 and 6 together, 0 when 1 ends, 3 last
    "srtf": (1245, 660, 165, 2145, 715, 365, 865),
    # 2 holds back all until 1 ends, 5 until 0 ends; then 4 and 6, and 3 after both
    "sjf": (600, 310, 460, 2200, 1150, 800, 1300),
    # 4 (350 GPU-seconds) passes 2 (450), and 6 (500) takes the GPU that 2 leaves, before 5 (800)
    "sjf-area": (600, 310, 530, 2130, 380, 1230, 1030),
    # 2 (due 1000) needs more than 0 (due 1500) has, and stops it all the same; 4 takes that GPU, 6 follows, 0 when 2 ends
    "edf-rigid": (1045, 310, 460, 1945, 380, 2145, 880),
    # 2 is due at 610 (1 as requested), with one GPU to spare, which 4 takes; at 310 s it is due at 600, and 6 may not start
    "easy": (600, 310, 530, 1500, 380, 1700, 2200),
    # 4 would be in the way of 3, promised 810, so it waits; 6 is not; at 550 s 2 moves to the front, and all others with it
    "conservative": (600, 310, 700, 1600, 1950, 2150, 550),
    # 2 waits for the whole node, and none passes it; in the plan of 1501 s 6 does not delay 5, which waits for 4 until 2400
    "slurm-backfill": (601, 311, 461, 1501, 1851, 2201, 2001),
    # 6 starts as soon as it fits, at 310 s, and keeps 2 waiting until 600; at 810 s 5 has waited longest for what it asks
    "first-fit": (600, 310, 750, 1910, 380, 1010, 810),
    # the same, but 3 came before 5
    "fifo-backfill-unreserved": (600, 310, 750, 1710, 380, 1910, 810),
}


@pytest.mark.parametrize("name", BY_HAND)
def test_outcomes_worked_out_by_hand(name: str) -> None:
    assert fate(name) == BY_HAND[name]


def test_schedules_and_allocators_are_both_here() -> None:
    kinds = {issubclass(schedulers().get(name), Schedule) for name in NAMES}
    assert kinds == {True, False}
