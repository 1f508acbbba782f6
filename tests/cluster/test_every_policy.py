"""One small setting on which every policy answers differently.

Six jobs on four GPUs of one node (throughput: an invented model that scales well up to two GPUs and poorly to four):

    job  submit  deadline  work(s)  GPUs
    0       0      1500       600      1      long, loose
    1      10       400       300      2      tight
    2      20      2000       900      4      large, loose
    3      30       150       100      1      short and tight
    4      40         -       200      4      best effort, wants all GPUs
    5      50      1200       500      1      long, some slack
"""

from __future__ import annotations

import numpy as np
import pytest

from forerun.domains.cluster.engine.record import Record
from forerun.domains.cluster.inputs.setting import NO_DEADLINE_S, Setting
from forerun.domains.cluster.policy import Schedule, schedulers

from .test_allocators import PROFILE, cluster_of, jobs, play

NONE = NO_DEADLINE_S
SCENE = Setting(
    jobs(
        [0, 10, 20, 30, 40, 50],
        [600, 300, 900, 100, 200, 500],
        [1, 2, 4, 1, 4, 1],
        [1500, 400, 2000, 150, NONE, 1200],
        [0, 1, 0, 1, 0, 1],
    ),
    cluster_of(1, 4),
    PROFILE,
    30,
    "A100",
)


def fate(name: str) -> tuple[int, ...]:
    """When each job ended, in whole seconds; -1: never (refused)."""
    record: Record = play(schedulers().get(name)(), SCENE)
    return tuple(round(end) for end in np.where(record.end_s >= 0, record.end_s, -1).tolist())


NAMES = schedulers().names()


def test_no_two_policies_decide_alike() -> None:
    assert len(NAMES) >= 19
    fates = {name: fate(name) for name in NAMES}
    assert len(set(fates.values())) == len(NAMES), fates


BY_HAND = {
    # 2 waits for 0 and then takes all; 3 follows, 4 waits for all four again
    "fifo": (600, 310, 1500, 1600, 1800, 2300),
    # at 40 s 4 (200 left, all GPUs) ranks before 1 and 0 and stops both, runs when 3 ends; 1, 5, 0 follow, 2 is last
    "srtf": (890, 600, 1790, 130, 330, 830),
    # at 130 s 4 is shortest and holds back all until 0 ends; then 5, then 2
    "sjf": (600, 310, 2200, 130, 800, 1300),
    # 5 (500 GPU-seconds) goes before 4 (800): it takes the GPU of 3 at 130 s
    "sjf-area": (600, 310, 1730, 130, 830, 630),
    # deadlines 150, 400, 1200, 1500, 2000, none: 5 takes the GPU of 0 at 50 s, 0 that of 3 at 130 s; then 2, then 4
    "edf-rigid": (680, 310, 1580, 130, 1780, 550),
}


@pytest.mark.parametrize("name", BY_HAND)
def test_outcomes_worked_out_by_hand(name: str) -> None:
    assert fate(name) == BY_HAND[name]


def test_schedules_and_allocators_are_both_here() -> None:
    kinds = {issubclass(schedulers().get(name), Schedule) for name in NAMES}
    assert kinds == {True, False}
