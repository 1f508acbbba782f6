"""Rigid priority policies: FIFO, SJF, SRTF, EDF. Whole runs in a kernel, or job by job on nodes.

The same order serves both ways. Without nodes, quotas or backfill the compiled queue plays the run; otherwise the
policy decides at every event through a view.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, ClassVar

import numpy as np

from forerun.domains.cluster.allocator import Allocation, Cook, OracleAllocator, OracleView, Terms
from forerun.domains.cluster.model import F64, I64, NO_DEADLINE_S, World
from forerun.domains.cluster.policy import QuietRules, Step
from forerun.domains.cluster.record import Record
from forerun.errors import ScenarioError


class PriorityPolicy(OracleAllocator, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Jobs at their requested counts in order of a priority.

    `backfill`: jobs behind one that does not fit may start. Subclasses say whether running jobs give way
    (`preemptive`) and what the priority is (`kernel_key`, a constant of `kernels.priority`, and `key`).
    """

    preemptive: ClassVar[bool] = False
    kernel_key: ClassVar[int] = 0
    backfill: bool = False

    @staticmethod
    def key(view: OracleView) -> F64:
        """Priority of the jobs of a view, least first."""
        raise AssertionError("a priority policy has a key")

    def build(self, rng: np.random.Generator) -> Cook:
        """A cook that sorts a view."""
        return PriorityCook(self.key, self.preemptive, self.backfill)


class PriorityCook:
    """Sorts the jobs of a view by priority and serves them in that order."""

    def __init__(self, key: Callable[[OracleView], F64], preemptive: bool, backfill: bool) -> None:
        self.key, self.preemptive, self.backfill = key, preemptive, backfill

    def allocate(self, view: OracleView) -> Allocation:
        """Who runs: the jobs in order of priority, running ones first where nobody gives way."""
        order: I64 = np.argsort(self.key(view), kind="stable")
        if not self.preemptive:
            order = order[np.argsort(view.held[order] == 0, kind="stable")]
        return view.take(order, skip=self.backfill)


class PriorityRules(QuietRules):
    """A whole run by the compiled queue, in stretches as long as its log, or instant by instant for observers."""

    order = (Step.DECIDE,)

    def __init__(self, world: World, record: Record, recipe: PriorityPolicy, terms: Terms) -> None:
        from forerun.domains.cluster.kernels import priority

        jobs = world.jobs
        too_large = np.flatnonzero(jobs.gpus > world.cluster.gpus)
        if len(too_large):
            row = int(too_large[0])
            more = f" (and {len(too_large) - 1} more)" if len(too_large) > 1 else ""
            raise ScenarioError.at(
                f"job {jobs.id[row]}",
                f"asks for {jobs.gpus[row]} GPUs, the cluster has {world.cluster.gpus}{more}",
            )
        self.world, self.record, self.recipe, self.terms = world, record, recipe, terms
        self.kernel = priority
        self.queue = build_queue(world, recipe.kernel_key, 1 << 16)
        self.coming_s = float(jobs.submit_s[0])
        self.each_instant = False

    def stop_at_each_instant(self) -> None:
        """Play one event at a time, and keep the record up to date with each."""
        self.each_instant = True

    def next_moment(self) -> float | None:
        """The next event; None when nothing is left."""
        return self.coming_s if np.isfinite(self.coming_s) else None

    def decide(self, now_s: float) -> None:
        """Play until the log is full or the run is over, or the one event of now; and write it down."""
        until_s = float(np.nextafter(now_s, np.inf)) if self.each_instant else np.inf
        self.coming_s = self.kernel.advance(
            self.queue, self.recipe.kernel_key, self.recipe.preemptive, self.terms.restart_s, until_s
        )
        if self.each_instant:
            self._note_jobs()
        self._take_log()
        if not np.isfinite(self.coming_s):
            self._close()

    def _note_jobs(self) -> None:
        """Who has come, given way or ended by now."""
        queue, record, jobs = self.queue, self.record, self.world.jobs
        touched = np.unique(queue.log_row[: queue.meta[self.kernel.LOGGED]])
        record.admitted[: queue.meta[self.kernel.ARRIVED]] = 1
        record.preempts[touched] = queue.preempts[touched]
        ended = touched[queue.end[touched] >= 0]
        timed = jobs.deadline_s[ended] < NO_DEADLINE_S
        late = timed & (queue.end[ended] > jobs.deadline_s[ended])
        record.finish_all(ended, queue.end[ended], late)
        record.accepted += int(np.count_nonzero(timed & ~late))
        record.useful_gpu_s[ended] = (jobs.duration_s * jobs.gpus).astype(np.float64)[ended]

    def _take_log(self) -> None:
        queue, meta = self.queue, self.queue.meta
        events, count = int(meta[self.kernel.EVENTS]), int(meta[self.kernel.LOGGED])
        self.record.block(
            queue.event_time[:events],
            queue.event_pending[:events],
            queue.event_first[: events + 1].copy(),
            queue.log_row[:count].copy(),
            queue.log_gpus[:count].copy(),
        )
        meta[self.kernel.EVENTS] = meta[self.kernel.LOGGED] = 0

    def _close(self) -> None:
        queue, record, jobs = self.queue, self.record, self.world.jobs
        record.admitted[:] = 1
        record.end_s[:] = queue.end
        record.logged_s[:] = queue.end
        record.completed = np.argsort(queue.end, kind="stable").tolist()
        has_deadline = jobs.deadline_s < NO_DEADLINE_S
        record.declined[:] = has_deadline & (queue.end > jobs.deadline_s)
        record.accepted = int(np.count_nonzero(has_deadline & ~record.declined))
        record.preempts[:] = queue.preempts
        record.useful_gpu_s[:] = (jobs.duration_s * jobs.gpus).astype(np.float64)


def build_queue(world: World, key: int, room: int) -> Any:
    """The compiled queue at the start of a run. `room`: entries of its log."""
    from forerun.domains.cluster.kernels import priority

    jobs, total = world.jobs, world.cluster.gpus
    count = len(jobs)
    work = jobs.duration_s.astype(np.float64)
    fixed = {
        priority.BY_SUBMISSION: jobs.submit_s,
        priority.BY_DURATION: work,
        priority.BY_AREA: work * jobs.gpus,
        priority.BY_REMAINING: work,
        priority.BY_DEADLINE: np.where(jobs.deadline_s < NO_DEADLINE_S, jobs.deadline_s, np.inf),
    }[key].astype(np.float64)
    meta = np.zeros(8, np.int64)
    meta[priority.FREE] = total
    room = max(room, 8 * total + 256)
    slots = np.zeros((7, total + 1), np.int64)
    slots[priority.SPARE] = np.arange(total + 1)
    return priority.Queue(
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
        log_row=np.zeros(room, np.int64),
        log_gpus=np.zeros(room, np.int64),
        event_time=np.zeros(room),
        event_pending=np.zeros(room, np.int64),
        event_first=np.zeros(room + 1, np.int64),
    )
