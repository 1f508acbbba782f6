"""Backfilling by requested times in a compiled queue, where nodes, quotas, costs and GPU types do not matter.

Elsewhere the same policies decide at every event through a view (`policies.backfilling`), with the same outcome.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from forerun.cluster.engine.allocator import require_room, work_on_request_s
from forerun.cluster.engine.kernels import backfill as bk
from forerun.cluster.engine.kernels import free_profile as fp
from forerun.cluster.engine.kernels import linked_profile as lp
from forerun.cluster.engine.kernels import priority as qk
from forerun.cluster.engine.priority import QueueRules
from forerun.cluster.engine.record import Record
from forerun.cluster.inputs.arrays import F64, I64
from forerun.cluster.inputs.setting import Setting, Window
from forerun.cluster.policies.backfilling.base import BackfillPolicy


class BackfillRules(QueueRules):
    """A whole run of a backfilling policy.

    Parameters
    ----------
    setting, record : what is run; written: what happens.
    policy : the order of the queue, and which jobs are promised a start.
    """

    def __init__(self, setting: Setting, record: Record, policy: BackfillPolicy) -> None:
        require_room(setting.jobs, setting.cluster.gpus, f"the cluster has {setting.cluster.gpus}")
        self.policy = policy
        self.queue = build_backfill(setting, 1 << 16)
        super().__init__(setting, record, self.queue, self.queue.work)

    def advance_to(self, until_s: float) -> float:
        """Play on by the policy's order and promises."""
        policy = self.policy
        return float(
            bk.advance(
                self.queue,
                policy.order.number,
                policy.keeps_promises,
                policy.promises,
                policy.examined or len(self.setting.jobs),
                float(policy.window_s or np.inf),
                float(policy.grace_s),
                until_s,
            )
        )


def build_backfill(setting: Setting, capacity: int) -> bk.Backfill:
    """The compiled queue at the start of a run. `capacity`: entries of its log."""
    jobs = setting.jobs
    request_s = np.maximum(jobs.request_s, 1.0)
    total = setting.cluster.gpus
    at_once = min(len(jobs.submit_s), total)
    work_s = work_on_request_s(setting)
    return build_queue(
        jobs.submit_s, jobs.gpus, work_s, request_s, total, setting.maintenance, capacity, at_once=at_once
    )


def build_queue(
    submit_s: F64 | I64,
    gpus: I64,
    work_s: F64,
    request_s: F64,
    total: int,
    windows: Sequence[Window],
    capacity: int,
    *,
    at_once: int,
) -> bk.Backfill:
    """The compiled queue of some jobs at their first submission.

    Parameters
    ----------
    submit_s, gpus, work_s, request_s : of the jobs, by submission: what they take and ask for.
    total : GPUs of the cluster.
    windows : maintenance.
    capacity : entries of its log, at least.
    at_once : how many of the jobs run at once at most.
    """
    count = len(submit_s)
    windows = sorted(windows, key=lambda window: window.announced_s)
    # of the counts that jobs ask for, some between which equally many jobs are
    some = np.quantile(gpus, np.linspace(0, 1, lp.MOST_LEVELS), method="lower")
    levels = np.unique(some).astype(np.int64)
    marks = {at_s for window in windows for at_s in (window.announced_s, window.from_s, window.to_s)}
    queue = blank_backfill(count, at_once + 1, levels, windows, sorted(marks), capacity)
    queue.submit[:], queue.gpus[:], queue.work[:], queue.request[:] = submit_s, gpus, work_s, request_s
    queue.meta[qk.FREE] = total
    linked = queue.linked
    linked.level[:] = np.searchsorted(levels, np.arange(len(linked.level)), "right") - 1
    linked.gpus[:] = levels
    bits = queue.request.view(np.int64)  # greater where the number is
    fine = max(int(bits.max() - bits.min()).bit_length() - lp.CLASSES.bit_length() + 1, 0)
    linked.meta[lp.FINE], linked.meta[lp.SHORT] = fine, bits.min() >> fine
    kind = np.minimum((bits >> fine) - (bits.min() >> fine), lp.CLASSES - 1)
    linked.slot[:] = linked.level[gpus] * lp.WIDTH + kind
    begin_s = float(submit_s[0]) if count else 0.0
    fp.start_over(queue.time, queue.free, queue.meta, begin_s, total)
    lp.start_over(linked, begin_s, total)
    return queue


def blank_backfill(
    jobs: int, running: int, levels: I64, windows: Sequence[Window], marks: Sequence[float], capacity: int
) -> bk.Backfill:
    """The arrays of a compiled queue, without its jobs.

    Parameters
    ----------
    jobs : how many.
    running : how many run at once at most, and one more.
    levels : int64[levels], numbers of GPUs by which promises are searched.
    windows : maintenance, by announcement.
    marks : the instants of `Backfill.marks`.
    capacity : entries of the log, at least.
    """
    # each running job ends once, each promise and window begins and ends
    steps = running + 2 * jobs + 2 * len(windows) + 16
    capacity = max(capacity, 8 * running + 256)
    submit_s = np.zeros(jobs)
    never = ("first_start", "end", "promise", "first_promise", "belief")
    windowed = (("from", "from_s"), ("to", "to_s"), ("gpus", "gpus"), ("announced", "announced_s"))
    columns: dict[str, Any] = {
        **{name: np.full(jobs, bk.NO_PROMISE) for name in never},
        **{name: np.zeros(jobs) for name in ("work", "request", "key")},
        **{name: np.zeros(jobs, np.int64) for name in ("gpus", "chosen")},
        **{name: np.zeros(jobs, np.uint32) for name in ("user", "queue")},
        **{name: np.zeros(running) for name in ("end_key", "believed_key")},
        **{name: np.zeros(running, np.int64) for name in ("ending", "believed", "late")},
        **{name: np.zeros(steps) for name in ("time", "down_s")},
        **{name: np.zeros(steps, np.int64) for name in ("free", "down_to")},
    }
    for name, field in windowed:
        kind = np.int64 if name == "gpus" else np.float64
        columns[f"window_{name}"] = np.array([getattr(window, field) for window in windows], kind)
    return bk.Backfill(
        **columns,
        submit=submit_s,
        since=submit_s,
        allowed=np.full(1, jobs),
        marks=np.array(marks, np.float64),
        linked=lp.Linked(
            time=np.zeros(steps),
            free=np.zeros(steps, np.int64),
            before=np.zeros(steps, np.uint32),
            after=np.zeros(steps, np.uint32),
            refs=np.zeros(steps, np.uint32),
            begins=np.zeros(jobs, np.uint32),
            ends=np.zeros(jobs, np.uint32),
            slot=np.zeros(jobs, np.uint32),
            level=np.zeros(levels[-1] + 1, np.int64),
            gpus=np.zeros(len(levels), np.int64),
            soonest=np.zeros(len(levels) * lp.WIDTH),
            link=np.zeros(lp.LINKS, np.uint32),
            meta=np.zeros(lp.PLACES, np.int64),
        ),
        wake=np.full(1, np.inf),
        meta=np.zeros(bk.PLACES, np.int64),
        log_row=np.zeros(capacity, np.int64),
        log_gpus=np.zeros(capacity, np.int64),
        event_time=np.zeros(capacity),
        event_pending=np.zeros(capacity, np.int64),
        event_first=np.zeros(capacity + 1, np.int64),
    )
