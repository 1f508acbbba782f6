"""Tiresias: discretised two-dimensional least attained service [Gu et al., NSDI'19, section 3.2].

Jobs are ranked by the GPU-seconds they have had (GPUs x time), in a few queues so that small differences do not
cause preemptions: a job starts in the first queue and falls into the next when it has had the queue's limit.
Durations need not be known.
"""

from __future__ import annotations

import math
from bisect import insort
from collections.abc import Sequence
from typing import ClassVar, Final, Self

import numpy as np

from forerun.cluster.engine.record import Record
from forerun.cluster.engine.rules import (
    AnyRules,
    Column,
    Progress,
    Step,
    WholeSecondRules,
    whole_s,
)
from forerun.cluster.inputs.arrays import BOOL, F64, I64
from forerun.cluster.inputs.setting import Setting
from forerun.replication.elasticflow.arrivals import Arrivals
from forerun.replication.elasticflow.costs import first_costs_s, restart_costs_s, uses_table
from forerun.replication.elasticflow.event_log import LoggedRules, lengthen
from forerun.replication.elasticflow.known_bugs import Corrections
from forerun.replication.elasticflow.schedule import PublishedSchedule
from forerun.replication.elasticflow.standstill import Standstill

_NEVER_S: Final = 1 << 62
_FITTED_SHARES: Final = (1 / 3, 2 / 3)
#: jobs that must have ended before the queues' limits are learned from them
LEAST_ENDED: Final = 12


class Tiresias(PublishedSchedule, frozen=True, kw_only=True, forbid_unknown_fields=True, tag="dlas-gpu"):
    """Discretised two-dimensional LAS: three queues by attained GPU-seconds, first come first served in each.

    `queue_limits_gpu_s`: what a job may have had before it leaves the first and the second queue (values of the
    published simulator). With the switch `queue_limits`, as soon as 12 jobs have ended, the limits part the jobs ended so
    far into three equal parts by their GPU-seconds. `promote_after`: with the switch `tiresias_promotion`, a job that has
    waited this many times as long as it has run returns to the first queue (the paper's PROMOTEKNOB).
    """

    queue_limits_gpu_s: tuple[float, float] = (3250.0, 7200.0)
    promote_after: float = 8.0

    paper: ClassVar[str] = "Tiresias: A GPU Cluster Manager for Distributed Deep Learning, NSDI'19"
    needs: ClassVar[tuple[str, ...]] = ("gpus", "duration")
    guarantees: ClassVar[str] = "none; favours jobs with little service, without knowing durations"
    cost: ClassVar[str] = "O(active jobs) per event"

    def problems(self) -> list[tuple[str, str]]:
        """Limits must rise, the promotion factor be positive."""
        first, second = self.queue_limits_gpu_s
        problems = []
        if not 0 < first < second:
            problems.append(("queue_limits_gpu_s", f"must rise from above 0, not {first:g}, {second:g}"))
        if not self.promote_after > 0:
            problems.append(("promote_after", f"must be positive, not {self.promote_after:g}"))
        return problems

    def played(self, setting: Setting, record: Record, corrected: Corrections) -> AnyRules:
        """The schedule at work on a setting."""
        return TiresiasRules(self, setting, record, corrected)


class TiresiasRules(LoggedRules, WholeSecondRules):
    """The clock stops at arrivals, at the earliest predicted end, and when a job is due to change queue."""

    is_rigid = True
    needs = frozenset({"tiresias_overhead_in_end", "overhead_when_unchanged", "restart_forgiven"})
    order: tuple[Step, ...] = (Step.FINISH, Step.ARRIVE, Step.ADVANCE, Step.DECIDE, Step.CHARGE)

    def __init__(self, policy: Tiresias, setting: Setting, record: Record, corrected: Corrections) -> None:
        jobs, total_gpus = setting.jobs, setting.cluster.gpus
        super().__init__(record)
        self.standstill = Standstill(record)
        self.slot_s, self.total_gpus = setting.slot_s, total_gpus
        self.limits = policy.queue_limits_gpu_s
        self.learns = "queue_limits" in corrected
        #: GPU-seconds of the jobs that have ended, ascending
        self.sizes_gpu_s: list[int] = []
        self.promote_after = policy.promote_after if "tiresias_promotion" in corrected else math.inf
        self.overhead_in_end = "tiresias_overhead_in_end" in corrected
        self.pays_changes_only = "overhead_when_unchanged" in corrected
        self.forgives = "restart_forgiven" not in corrected
        self.gpus: list[int] = jobs.gpus.tolist()
        self.duration_s: list[int] = jobs.duration_s.tolist()
        #: what a restart costs each job, on ordinary events and where all groups are rebuilt
        self.restart_s = restart_costs_s(setting, corrected)
        self.start_s, self.drain_s = first_costs_s(setting, corrected)
        self.by_table = uses_table(setting, corrected)
        count = len(jobs)
        self.arrivals = Arrivals(jobs.submit_s)
        self.runnable: list[int] = []
        self.queues: list[list[int]] = [[], [], []]
        self.queue_of = [0] * count
        self.running = [False] * count
        self.since_s = [0] * count  # when the job's account was last brought up to date
        self.waiting_since_s = [0] * count
        self.done_s = [0] * count
        self.attained_s = [0] * count  # since the last promotion; equal to done_s where nobody is promoted
        self.owed_s = [0] * count  # restart overhead still to be paid
        self.end_s = [0] * count
        self.ending: list[int] = []
        self.ending_s: int = _NEVER_S
        self.jump_s: int = _NEVER_S
        self.soonest_s = 0  # no end is acted on before
        self.due: list[int] = []
        self.changed: dict[int, int] = {}
        self.scheduled = 0

    def next_moment(self) -> int | None:
        """The next arrival or predicted end, unless a queue change comes first."""
        if not self.arrivals and self.standstill.check(min(self.jump_s, self.ending_s), self._done):
            self.flush()
            return None
        now_s = self.expected_s()
        if now_s is None:
            if self.runnable:
                self.record.ended_because = f"{len(self.runnable)} waiting jobs can never be placed"
            self.flush()
            return None
        # the last arrival of all may come between an end and the slot's, to which it is postponed
        over_s = now_s if self.overhead_in_end else -1
        self.due = [row for row in self.ending if self.ending_s == now_s or self.end_s[row] <= over_s]
        return now_s

    def work(self) -> F64:
        """Seconds on the requested GPUs."""
        return np.array(self.duration_s, np.float64)

    def pace(self, gpus: I64, now_s: float) -> tuple[F64, F64]:
        """Jobs work at the speed of their duration, once what they owe is paid."""
        holds = gpus > 0
        return holds.astype(np.float64), np.where(holds, self.owed_s, 0.0)

    def expected_s(self) -> int | None:
        """The next arrival, end or change of queue."""
        arrival_s = self.arrivals.next_s
        now_s = min(_NEVER_S if arrival_s is None else arrival_s, self.ending_s, self.jump_s)
        return None if now_s == _NEVER_S else now_s

    def ended(self, row: int, end_s: float) -> None:
        """A job ended: it leaves then, but not within a slot of the last instant."""
        self.ending_s = min(self.ending_s, max(whole_s(end_s), self.soonest_s))

    def observe(self, now_s: int, seen: Progress) -> None:
        """The jobs that were seen to end leave, whatever was predicted."""
        self.seen = seen
        rows = np.array(self.runnable, np.int64)
        self.due = rows[seen.has_ended(rows)].tolist()
        for row in self.due:
            self.end_s[row] = whole_s(seen.ended_s[row])

    def open_up(self) -> None:
        """More jobs may always come."""
        super().open_up()
        self.arrivals.is_open = True

    def columns(self) -> list[Column]:
        """What is kept of each job."""
        accounts = [self.since_s, self.waiting_since_s, self.done_s, self.attained_s, self.owed_s, self.end_s]
        return [
            self.gpus,
            self.duration_s,
            self.start_s,
            self.drain_s,
            *self.restart_s.values(),
            self.queue_of,
            self.running,
            *accounts,
        ]

    def grow(self, setting: Setting) -> None:
        """Grow the arrays for more jobs."""
        lengthen(self.columns(), len(setting.jobs))

    def take_in(self, row: int, alone: Self, setting: Setting) -> None:
        """A job takes a spare row."""
        super().take_in(row, alone, setting)
        self.arrivals.add(int(setting.jobs.submit_s[row]), row)

    def resize(self, setting: Setting, up: BOOL, lost: Sequence[int], now_s: float) -> None:
        """Other nodes offer GPUs from now on."""
        self.total_gpus = int(setting.cluster.node_gpus()[up].sum())
        for row in lost:
            if self.running[row]:
                self._stop(row, whole_s(now_s))
        self.jump_s = min(self.jump_s, max(whole_s(now_s), self.soonest_s))

    def _done(self) -> tuple[int, int]:
        return len(self.runnable), sum(self.done_s)

    def finish(self, now_s: int) -> None:
        """Jobs predicted to end now leave."""
        for row in self.due:
            self.runnable.remove(row)
            self.queues[self.queue_of[row]].remove(row)
            self.running[row] = False
            self.changed[row] = 0
            self.record.end(row, self.end_s[row])
            insort(self.sizes_gpu_s, self.gpus[row] * self.duration_s[row])
        if self.learns and self.due and len(self.sizes_gpu_s) >= LEAST_ENDED:
            first, second = (self.sizes_gpu_s[int(share * len(self.sizes_gpu_s))] for share in _FITTED_SHARES)
            self.limits = (float(first), float(max(second, first + 1)))

    def arrive(self, now_s: int) -> None:
        """New jobs join the first queue."""
        for row in self.arrivals.take(now_s):
            self.runnable.append(row)
            self.queues[0].append(row)
            self.since_s[row] = self.waiting_since_s[row] = now_s
            self.record.admit(row, now_s)

    def advance(self, now_s: int) -> None:
        """Service since the last event is counted; a job over its queue's limit falls into the next."""
        for row in self.runnable:
            if self.running[row]:
                passed_s = now_s - self.since_s[row]
                work_s = max(passed_s - self.owed_s[row], 0)
                self.record.overhead_s[row] += passed_s - work_s
                self.attained_s[row] += work_s
                if self.seen is None:
                    self.done_s[row] += work_s
                    self.owed_s[row] = 0 if self.forgives else self.owed_s[row] - (passed_s - work_s)
                else:
                    self.done_s[row] = self.duration_s[row] - whole_s(self.seen.left[row])
                    self.owed_s[row] = whole_s(self.seen.owed_s[row])
                level = self.queue_of[row]
                if level < 2 and self.attained_s[row] * self.gpus[row] >= self.limits[level]:
                    self._move(row, level + 1)
            else:
                if self.seen is not None:
                    self.done_s[row] = self.duration_s[row] - whole_s(self.seen.left[row])
                if now_s - self.waiting_since_s[row] > self.promote_after * max(self.done_s[row], 1):
                    self.attained_s[row] = 0
                    self.waiting_since_s[row] = now_s
                    self._move(row, 0)
            self.since_s[row] = now_s

    def decide(self, now_s: int) -> None:
        """Serve the queues in order; a job that does not fit waits, later ones may still fit."""
        tick = self._tick()
        free = self.total_gpus
        started, stopped = [], []
        for queue in self.queues:
            for row in queue:
                need = self.gpus[row]
                if need <= free:
                    free -= need
                    if not self.running[row]:
                        started.append(row)
                elif self.running[row]:
                    stopped.append(row)
        wait_s = 0
        for row in stopped:
            self._stop(row, now_s)
            wait_s = max(wait_s, self.drain_s[row])
        for row in started:
            self._start(row, tick)
            self.owed_s[row] += wait_s
        self._reorder()
        self._predict(now_s, tick and not self.pays_changes_only)
        waiting = len(self.runnable) - sum(map(self.running.__getitem__, self.runnable))
        self.log.add(now_s, list(self.changed), list(self.changed.values()), waiting)
        self.changed = {}

    def charge(self, now_s: int) -> None:
        """Arrivals within a slot are joined."""
        self.arrivals.merge(now_s, self.slot_s)

    def _tick(self) -> bool:
        """Whether the periodic rebuild of communication groups falls on this event."""
        tick = self.scheduled > 0 and self.scheduled % self.slot_s == 0 and not self.by_table
        self.scheduled += 1
        return tick

    def _move(self, row: int, level: int) -> None:
        if level != self.queue_of[row]:
            self.queues[self.queue_of[row]].remove(row)
            self.queues[level].append(row)
            self.queue_of[row] = level

    def _start(self, row: int, tick: bool) -> None:
        self.running[row] = True
        first = self.record.restarts[row] == 0
        self.owed_s[row] = self.start_s[row] if self.by_table and first else self.restart_s[tick][row]
        self.changed[row] = self.gpus[row]
        self.record.restarts[row] += 1

    def _stop(self, row: int, now_s: int) -> None:
        self.running[row] = False
        self.waiting_since_s[row] = now_s
        self.changed[row] = 0
        self.record.preempts[row] += 1

    def _reorder(self) -> None:
        """Large jobs first in the list of jobs, running jobs first in each queue; otherwise the order stays."""
        self.runnable.sort(key=lambda row: -self.gpus[row])
        running = self.running
        for level, queue in enumerate(self.queues):
            self.queues[level] = [row for row in queue if running[row]] + [
                row for row in queue if not running[row]
            ]

    def _predict(self, now_s: int, tick: bool) -> None:
        """Find the earliest predicted end, at least a slot away, and the earliest change of queue.

        A job's own end is refreshed only while it is the earliest so far, as published.
        """
        self.ending, self.ending_s, self.jump_s = [], _NEVER_S, _NEVER_S
        self.soonest_s = soonest_s = now_s + self.slot_s
        for row in self.runnable:
            if not self.running[row]:
                continue
            left_s = self.duration_s[row] - self.done_s[row]
            if tick:
                self.owed_s[row] = self.restart_s[True][row]
            if tick or self.overhead_in_end:
                left_s += self.owed_s[row]
            end_s = now_s + left_s
            event_s = max(soonest_s, end_s)
            if event_s < self.ending_s:
                self.ending, self.ending_s = [row], event_s
                self.end_s[row] = end_s
            elif event_s == self.ending_s:
                self.ending.append(row)
                self.end_s[row] = end_s
            if self.queue_of[row] < 2:
                # The published distance to the limit forgets to multiply the attained time by the GPUs.
                short = (self.limits[self.queue_of[row]] - self.attained_s[row]) / self.gpus[row]
                self.jump_s = min(self.jump_s, max(math.ceil(short) + now_s, soonest_s))
