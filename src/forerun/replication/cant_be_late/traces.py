"""The traces of "Can't be late", and what deadline rules do on them."""

from __future__ import annotations

import math
from collections.abc import Iterator
from random import Random

from forerun.spot.engine.deadline import DeadlineRun, run_deadline
from forerun.spot.policy import DeadlineJob, DeadlineRule


def hourly_rate_trace(rate_per_h: float, ticks: int, tick_s: float, seed: int) -> list[bool]:
    """Whether spot is there, tick by tick, if it is preempted with a given probability an hour.

    Draws from Python's generator, so that trace number `seed` is the one of the paper's study.

    Parameters
    ----------
    rate_per_h : probability of a preemption within an hour, 0 ... 1.
    ticks : length of the trace.
    tick_s : length of a tick [s].
    seed : number of the trace.
    """
    random = Random(seed)
    preempted = 1 - (1 - rate_per_h) ** (tick_s / 3600)
    return [random.random() >= preempted for _ in range(ticks)]


def runs(
    job: DeadlineJob, rule: DeadlineRule, rate_per_h: float, traces: int, until_s: float | None = None
) -> Iterator[DeadlineRun]:
    """What a rule does on the paper's traces 0, 1, ..., one run after another.

    Parameters
    ----------
    job : work, deadline, tick, change-over and prices.
    rule : which kind of instance to rent.
    rate_per_h : probability of a preemption within an hour.
    traces : how many.
    until_s : length of the traces [s] (default: the deadline); two ticks more are drawn.
    """
    ticks = math.ceil((until_s or job.deadline_s) / job.tick_s) + 2
    for seed in range(traces):
        yield run_deadline(job, rule, hourly_rate_trace(rate_per_h, ticks, job.tick_s, seed))
