"""ElasticFlow's planner against brute force over levels and segments: the smallest share that meets a deadline."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from forerun.cluster.inputs.arrays import Cluster
from forerun.replication.elasticflow.kernels.planner import Grid, Ladder, Task, plan
from forerun.replication.elasticflow.schedules.plan_ahead import PublishedElasticFlow

from ..cluster.conftest import Switched, play
from ..cluster.test_allocators import PROFILE, jobs
from ..conftest import cases

LEVELS = [1, 2, 4]
TOTAL = 4
FLOOR = np.searchsorted(LEVELS, np.arange(TOTAL + 1), side="right") - 1

ThroughputTable = list[tuple[int, int]]


def segments_of(free: ThroughputTable, now_s: int, deadline_s: int) -> list[tuple[int, int]]:
    """(seconds, free GPUs) of each stretch of a profile between now and a deadline."""
    ends = [at for at, _ in free[1:]] + [deadline_s]
    return [
        (min(until, deadline_s) - max(at, now_s), gpus)
        for (at, gpus), until in zip(free, ends, strict=True)
        if min(until, deadline_s) > max(at, now_s)
    ]


def least_share(free: ThroughputTable, now_s: int, deadline_s: int, left: float, rate: Any) -> int | None:
    """The smallest largest count with which some choice of a count in each segment does the work in time."""
    stretches = segments_of(free, now_s, deadline_s)
    choices = [[0, *(level for level in LEVELS if level <= gpus)] for _, gpus in stretches]
    speed = dict(zip([0, *LEVELS], [0.0, *rate], strict=True))
    feasible = [
        max(chosen, default=0)
        for chosen in itertools.product(*choices)
        if sum(speed[level] * seconds for level, (seconds, _) in zip(chosen, stretches, strict=True)) >= left
    ]
    return min(feasible, default=None)


def planned(
    free: ThroughputTable, now_s: int, deadline_s: int, left: float, rate: Any
) -> tuple[Any, ThroughputTable, ThroughputTable]:
    """The planner's answer, the job's plan, and the profile that remains."""
    profile = np.array([[at for at, _ in free], [gpus for _, gpus in free]], np.int64)
    out, new = np.zeros((2, 2, len(free) + 8), np.int64)
    task, ladder = Task(left, deadline_s, rate, len(LEVELS)), Ladder(np.array(LEVELS), FLOOR)
    found = plan(task, ladder, Grid(now_s, 60, -1), profile, len(free), -1, out, new)
    (out_t, out_g), (new_t, new_g) = out.tolist(), new.tolist()
    mine = list(zip(out_t[: found.entries], out_g[: found.entries], strict=True))
    return found, mine, list(zip(new_t[: found.keys], new_g[: found.keys], strict=True))


@st.composite
def job(draw: st.DrawFn) -> tuple[int, float, Any]:
    """(deadline, iterations, iterations/s at 1, 2 and 4 GPUs): faster with more GPUs, by any amount."""
    rate = np.cumprod([draw(st.floats(0.1, 2.0)), draw(st.floats(1.05, 2.4)), draw(st.floats(1.05, 2.4))])
    return draw(st.integers(30, 1500)), draw(st.floats(1.0, 2500.0)), rate


@given(st.lists(job(), min_size=1, max_size=4), st.integers(0, 500))
@settings(max_examples=cases(100), deadline=None)
def test_the_planners_share_is_the_least_that_any_choice_of_counts_needs(
    drawn: list[tuple[int, float, Any]], now_s: int
) -> None:
    """Up to four jobs in order of deadline, each on what the others left: the largest count that a plan uses is the least
    that brute force finds; if brute force finds none the planner says late, and the other way round."""
    free: ThroughputTable = [(now_s, TOTAL)]
    for slack_s, left, rate in sorted(drawn, key=lambda one: one[0]):
        deadline_s = now_s + slack_s
        wanted = least_share(free, now_s, deadline_s, left, rate)
        found, mine, after = planned(free, now_s, deadline_s, left, rate)
        assert found.in_time == (wanted is not None)
        if wanted is None:
            continue
        assert max(gpus for _, gpus in mine) == wanted
        assert_sound(found, mine, free, now_s, deadline_s, left, rate)
        free = after


def assert_sound(
    found: Any,
    mine: ThroughputTable,
    free: ThroughputTable,
    now_s: int,
    deadline_s: int,
    left: float,
    rate: Any,
) -> None:
    """The plan does the work by its end, which is in time, and never takes more than is free."""
    assert found.real_s <= deadline_s
    speed = dict(zip([0, *LEVELS], [0.0, *rate], strict=True))
    until = [at for at, _ in mine[1:]] + [found.real_s]
    done = sum(
        speed[gpus] * max(0, min(end, found.real_s) - at) for (at, gpus), end in zip(mine, until, strict=True)
    )
    assert done >= left * (1 - 1e-12)
    for at in {at for at, _ in (*mine, *free) if now_s <= at < found.real_s}:
        held = max((entry for entry in mine if entry[0] <= at), default=(0, 0))[1]
        there = max(entry for entry in free if entry[0] <= at)[1]
        assert held <= there


@pytest.mark.parametrize("late_s", [-60, -1, 0, 1, 60])
def test_a_job_alone_is_admitted_exactly_if_its_best_speed_suffices(late_s: int) -> None:
    """One job on an idle cluster: the least deadline that admits it is its length at its best count, to the second."""
    rate = PROFILE.rate_at()[0]
    work = jobs([0], [3000], [1], kind=[0])
    least_s = int(np.ceil(work.iterations[0] / rate[: TOTAL + 1].max()))
    made = jobs([0], [3000], [1], deadline=[least_s + late_s], kind=[0])
    switches = frozenset({"admission", "late_incumbent", "max_gpus_rule", "grid_anchor", "marginal_order"})
    record = play(
        PublishedElasticFlow(),
        Switched(made, Cluster.uniform(1, 1, TOTAL), PROFILE, 60, "A100", corrected=switches),
    )
    assert bool(record.admitted[0]) == (late_s >= 0)
