"""Rigid jobs in compiled queues that play whole runs: FIFO, SJF, SRTF, EDF here, others in `engine.node_queue`.

Without nodes, quotas, costs and backfill the queue runs the whole trace by the policy's `order`. Otherwise the policy
decides at every event through a view (`engine.allocator`), with the same order.
"""

from __future__ import annotations

from abc import abstractmethod
from typing import TYPE_CHECKING

import numpy as np

from forerun.cluster.engine.allocator import Terms, require_room
from forerun.cluster.engine.kernels import priority as qk
from forerun.cluster.engine.record import Record
from forerun.cluster.engine.rules import Rules, Step
from forerun.cluster.inputs.arrays import F64, I64, NO_DEADLINE_S
from forerun.cluster.inputs.setting import Setting
from forerun.cluster.policy import PriorityPolicy

if TYPE_CHECKING:
    from forerun.cluster.engine.kernels import queue_state as qs


class QueueRules(Rules[float]):
    """A whole run by a compiled queue, in stretches as long as its log, or instant by instant for observers.

    Parameters
    ----------
    setting, record : what is run; written: what happens.
    queue : the compiled queue.
    work_s : float64[jobs], seconds that each job takes.
    """

    order = (Step.DECIDE,)

    def __init__(
        self,
        setting: Setting,
        record: Record,
        queue: qk.Queue | qs.Queue,
        work_s: F64,
    ) -> None:
        self.setting, self.record, self.compiled = setting, record, queue
        self.useful_gpu_s = work_s * setting.jobs.gpus
        self.coming_s = float(setting.jobs.submit_s[0])
        self.each_instant = False

    @abstractmethod
    def advance_to(self, until_s: float) -> float:
        """Play until an instant (not included) or a full log; the instant of the next event."""

    def stop_at_each_instant(self) -> None:
        """Play one event at a time, and keep the record up to date with each."""
        self.each_instant = True

    def next_moment(self) -> float | None:
        """The next event; None when nothing is left."""
        return self.coming_s if np.isfinite(self.coming_s) else None

    def decide(self, now_s: float) -> None:
        """Play until the log is full or the run is over, or the one event of now; and write it down."""
        self.coming_s = self.advance_to(float(np.nextafter(now_s, np.inf)) if self.each_instant else np.inf)
        if self.each_instant:
            self.note(np.unique(self.compiled.log_row[: self.compiled.meta[qk.LOGGED]]))
        self._take_log()
        if not np.isfinite(self.coming_s):
            self.close()

    def note(self, rows: I64) -> None:
        """Write down who has come by now, and which of some jobs have ended."""
        queue, record = self.compiled, self.record
        record.admitted[: queue.meta[qk.ARRIVED]] = 1
        ended = rows[queue.end[rows] >= 0]
        record.end_all(ended, queue.end[ended])
        record.useful_gpu_s[ended] = self.useful_gpu_s[ended]

    def _take_log(self) -> None:
        """Hand the queue's changes and events to the record."""
        queue, meta = self.compiled, self.compiled.meta
        events, count = int(meta[qk.EVENTS]), int(meta[qk.LOGGED])
        self.record.add_events(
            queue.event_time[:events],
            queue.event_pending[:events],
            queue.event_first[: events + 1].copy(),
            queue.log_row[:count].copy(),
            queue.log_gpus[:count].copy(),
        )
        meta[qk.EVENTS] = meta[qk.LOGGED] = 0

    def close(self) -> None:
        """The run is over: write down the fate of every job."""
        queue, record = self.compiled, self.record
        record.admitted[:] = 1
        record.completed, record.accepted = [], 0
        by_end = np.argsort(queue.end, kind="stable")
        by_end = by_end[queue.end[by_end] >= 0]
        record.end_all(by_end, queue.end[by_end])
        record.useful_gpu_s[by_end] = self.useful_gpu_s[by_end]
        if waiting := int(np.count_nonzero(~np.isin(np.flatnonzero(queue.end < 0), list(record.cancelled)))):
            record.ended_because = (
                f"nothing runs, nothing arrives and the policy starts none of {waiting} waiting jobs"
            )


class PriorityRules(QueueRules):
    """Strict order of priority.

    Parameters
    ----------
    setting, record : what is run; written: what happens.
    policy : the order, and whether jobs give way.
    terms : the seconds of a restart; nothing else of them matters here.
    """

    is_rigid = True

    def __init__(self, setting: Setting, record: Record, policy: PriorityPolicy, terms: Terms) -> None:
        require_room(setting.jobs, setting.cluster.gpus, f"the cluster has {setting.cluster.gpus}")
        self.policy, self.terms = policy, terms
        self.queue = build_queue(setting, int(policy.order), 1 << 16)
        super().__init__(setting, record, self.queue, setting.jobs.duration_s.astype(np.float64))

    def advance_to(self, until_s: float) -> float:
        """Play on by the policy's order."""
        return float(
            qk.advance(
                self.queue, int(self.policy.order), self.policy.preemptive, self.terms.restart_s, until_s
            )
        )

    def note(self, rows: I64) -> None:
        """Also who gave way."""
        self.record.preempts[rows] = self.queue.preempts[rows]
        super().note(rows)

    def close(self) -> None:
        """Also who gave way."""
        self.record.preempts[:] = self.queue.preempts
        super().close()


def build_queue(setting: Setting, key: int, capacity: int) -> qk.Queue:
    """The compiled queue at the start of a run. `capacity`: entries of its log."""
    jobs, total = setting.jobs, setting.cluster.gpus
    count = len(jobs)
    work = jobs.duration_s.astype(np.float64)
    deadline_s = np.where(jobs.deadline_s < NO_DEADLINE_S, jobs.deadline_s, np.inf)
    fixed = (jobs.submit_s, work, work * jobs.gpus, work, deadline_s)[key].astype(np.float64)
    meta = np.zeros(8, np.int64)
    meta[qk.FREE] = total
    capacity = max(capacity, 8 * total + 256)
    slots = np.zeros((7, total + 1), np.int64)
    slots[qk.SPARE] = np.arange(total + 1)
    return qk.Queue(
        submit=jobs.submit_s.astype(np.float64),
        gpus=jobs.gpus.copy(),
        fixed=fixed,
        left=work,
        first_start=np.full(count, -1.0),
        end=np.full(count, -1.0),
        preempts=np.zeros(count, np.int64),
        waiting=np.zeros(count, np.int64),
        waiting_key=np.zeros(count),
        slots=slots,
        slot_times=np.zeros((4, total + 1)),
        meta=meta,
        log_row=np.zeros(capacity, np.int64),
        log_gpus=np.zeros(capacity, np.int64),
        event_time=np.zeros(capacity),
        event_pending=np.zeros(capacity, np.int64),
        event_first=np.zeros(capacity + 1, np.int64),
    )
