"""One small world on which every policy answers differently.

Six jobs on four GPUs of one node (throughput: an invented model that scales well up to two GPUs and poorly to four):

    job  submit  deadline  work(s)  GPUs
    0       0      900       600      1      long, some slack
    1      10      400       300      2      tight
    2      20     2000       900      4      large, loose
    3      30      150       100      1      short and tight
    4      40        -       200      2      best effort
    5      50     1200       700      1      long, looser
"""

from __future__ import annotations

import numpy as np
import pytest

from forerun.domains.cluster.model import NO_DEADLINE_S, World
from forerun.domains.cluster.policy import Schedule, schedulers
from forerun.domains.cluster.record import Record

from .test_room import PROFILE, cluster_of, jobs, play

NONE = NO_DEADLINE_S
SCENE = World(
    jobs(
        [0, 10, 20, 30, 40, 50],
        [600, 300, 900, 100, 200, 700],
        [1, 2, 4, 1, 2, 1],
        [900, 400, 2000, 150, NONE, 1200],
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


NAMES = (
    "fifo", "fifo-backfill", "sjf", "srtf", "las", "edf-rigid", "edf", "edf-accessctrl", "ef", "ef-accessctrl",
    "dlas-gpu", "gandiva", "themis", "chronus",
)  # fmt: skip


def test_no_two_policies_answer_alike() -> None:
    fates = {name: fate(name) for name in NAMES}
    assert len(set(fates.values())) == len(NAMES), fates


BY_HAND = {
    # 2 waits for 0, and holds back all behind it
    "fifo": (600, 310, 1500, 1600, 1700, 2200),
    # at 40 s 4 (200 left) stops 1 (270 left) and, behind it, 0; from 240 s on 1, 0 and 5 run; 2 is last
    "srtf": (800, 400, 1840, 130, 240, 940),
    # deadlines 150, 400, 900, 1200, 2000, none: 5 takes the GPU of 3 at 130 s, 2 waits for all four until 830 s
    "edf-rigid": (600, 310, 1730, 130, 1930, 830),
}


@pytest.mark.parametrize("name", BY_HAND)
def test_fates_worked_out_by_hand(name: str) -> None:
    assert fate(name) == BY_HAND[name]


def test_schedules_and_allocators_are_both_here() -> None:
    kinds = {issubclass(schedulers().get(name), Schedule) for name in NAMES}
    assert kinds == {True, False}
