"""The compiled queue of rigid jobs against a reference implementation that sorts plain lists at every event."""

from __future__ import annotations

import math

import numpy as np
import pytest

from forerun.cluster.engine.kernels import priority
from forerun.cluster.engine.priority import build_queue
from forerun.cluster.inputs.arrays import Cluster, Jobs
from forerun.cluster.inputs.setting import Setting
from forerun.cluster.policy import PriorityOrder

KINDS = {order.name.lower(): int(order) for order in PriorityOrder}


def drawn_world(rng: np.random.Generator) -> Setting:
    count, gpus = int(rng.integers(1, 40)), int(rng.choice([1, 3, 8, 32]))
    work = rng.integers(1, 60, count)
    submit = np.sort(rng.integers(0, 200, count))
    due = submit + rng.integers(1, 200, count)
    blank = ("",) * count
    jobs = Jobs(
        np.arange(count), tuple(range(count)), submit, due, np.zeros(count, np.int64), np.full(count, -1), blank,
        np.zeros(count, np.int64), rng.integers(1, gpus + 1, count), work, np.zeros(count, np.bool_), blank, due,
    )  # fmt: skip
    return Setting(jobs, Cluster.uniform(1, 1, gpus), None, 60)


def sorted_lists(
    setting: Setting, kind: int, preemptive: bool, restart_s: float
) -> tuple[list[float], list[int]]:
    """Ends and preemptions by the rule itself: the best waiting job takes the GPUs of the job that ends last among
    those worse than it (of the worst, where priorities are fixed), as long as it would rank behind it."""
    jobs = setting.jobs
    count, free = len(jobs), setting.cluster.gpus
    left = jobs.duration_s.astype(float).tolist()
    fixed = {
        PriorityOrder.SUBMISSION: jobs.submit_s,
        PriorityOrder.DURATION: jobs.duration_s,
        PriorityOrder.AREA: jobs.duration_s * jobs.gpus,
        PriorityOrder.REMAINING: jobs.duration_s,
        PriorityOrder.DEADLINE: jobs.deadline_s,
    }[kind].tolist()
    by_remaining = kind == PriorityOrder.REMAINING
    since: dict[int, float] = {}
    ends: dict[int, float] = {}
    waiting: list[int] = []
    arrived, end, stops, started = 0, [-1.0] * count, [0] * count, set()

    def rank(job: int, now: float) -> float:
        if not by_remaining:
            return float(fixed[job])
        return ends[job] - now if job in ends and now > since[job] else left[job]

    while arrived < count or ends:
        now = min([jobs.submit_s[arrived]] if arrived < count else [], default=math.inf)
        now = min([now, *ends.values()])
        for job in [job for job in ends if ends[job] <= now]:
            end[job] = now
            free += jobs.gpus[job]
            del ends[job]
        while arrived < count and jobs.submit_s[arrived] <= now:
            waiting.append(arrived)
            arrived += 1
        while waiting:
            best = min(waiting, key=lambda job: (rank(job, now), job))
            while jobs.gpus[best] > free and preemptive and ends:
                worst = max(ends, key=lambda job: (ends[job] if by_remaining else fixed[job], job))
                if (rank(best, now), best) > (rank(worst, now), worst):
                    break
                left[worst] = rank(worst, now) if by_remaining else left[worst] - max(0.0, now - since[worst])
                del ends[worst]
                free += jobs.gpus[worst]
                stops[worst] += 1
                waiting.append(worst)
            if jobs.gpus[best] > free:
                break
            waiting.remove(best)
            free -= jobs.gpus[best]
            since[best] = now + (restart_s if best in started else 0.0)
            ends[best] = since[best] + left[best]
            started.add(best)
    return end, stops


@pytest.mark.parametrize("name", list(KINDS))
def test_queue_equals_sorted_lists(name):
    """Same ends and preemptions, with and without restart costs, however often the run is cut or its log is full."""
    rng = np.random.default_rng(list(KINDS).index(name))
    for _ in range(120):
        setting = drawn_world(rng)
        preemptive, restart_s = bool(rng.integers(2)), float(rng.choice([0.0, 7.0]))
        queue = build_queue(setting, KINDS[name], 0)
        until_s, held = 0.0, np.zeros(len(setting.jobs), np.int64)
        while np.isfinite(coming_s := priority.advance(queue, KINDS[name], preemptive, restart_s, until_s)):
            until_s = max(until_s, coming_s) + float(rng.choice([0.5, 30.0, math.inf]))
            if rng.integers(2):
                held = emptied(queue, held, setting)
        emptied(queue, held, setting)
        ends, stops = sorted_lists(setting, KINDS[name], preemptive, restart_s)
        assert queue.end.tolist() == ends
        assert queue.preempts.tolist() == stops


def emptied(queue: priority.Queue, held: np.ndarray, setting: Setting) -> np.ndarray:
    """Replay the log, which never hands out more GPUs than there are, and empty it."""
    held = held.copy()
    for event in range(int(queue.meta[priority.EVENTS])):
        for at in range(int(queue.event_first[event]), int(queue.event_first[event + 1])):
            held[queue.log_row[at]] = queue.log_gpus[at]
        assert held.sum() <= setting.cluster.gpus
    queue.meta[priority.LOGGED] = queue.meta[priority.EVENTS] = 0
    return held


def test_a_restart_under_way_is_not_fought_over():
    """Two jobs whose order a restart would turn round do not take the GPU from each other for ever."""
    blank = ("",) * 3
    submit, work = np.array([0, 1, 6]), np.array([20, 4, 25])
    jobs = Jobs(
        np.arange(3), (0, 1, 2), submit, submit + 100, np.zeros(3, np.int64), np.full(3, -1), blank,
        np.zeros(3, np.int64), np.ones(3, np.int64), work, np.zeros(3, np.bool_), blank, submit + 100,
    )  # fmt: skip
    setting = Setting(jobs, Cluster.uniform(1, 1, 1), None, 60)
    queue = build_queue(setting, PriorityOrder.REMAINING, 0)
    assert priority.advance(queue, PriorityOrder.REMAINING, True, 30.0, math.inf) == math.inf
    # job 0 runs 1 s, gives way 4 s, restarts for 30 s with 19 s left: the 25 s of job 2 rank behind those
    assert queue.end.tolist() == [54.0, 5.0, 79.0]
