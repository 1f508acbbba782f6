"""Gandiva: affinity classes, packing and time slicing [Xiao et al., OSDI'18, section 3], as published for comparison.

Nodes are lent to classes of jobs of equal size, in proportion to the classes' demand. A set of nodes runs as many
jobs at once as fit; more jobs than that take turns. No job is refused, and no duration need be known.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field
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
from forerun.cluster.inputs.arrays import BOOL, F64, I64, NO_DEADLINE_S
from forerun.cluster.inputs.setting import Setting
from forerun.replication.elasticflow.arrivals import Arrivals
from forerun.replication.elasticflow.costs import first_costs_s, restart_costs_s, uses_table
from forerun.replication.elasticflow.event_log import LoggedRules, lengthen
from forerun.replication.elasticflow.known_bugs import Corrections
from forerun.replication.elasticflow.schedule import PublishedSchedule
from forerun.replication.elasticflow.standstill import Standstill

_TURN_S: Final = 60


class Gandiva(PublishedSchedule, frozen=True, kw_only=True, forbid_unknown_fields=True, tag="gandiva"):
    """Node sets per job size, shared out by demand; jobs beyond a set's capacity take turns of a minute."""

    paper: ClassVar[str] = "Gandiva: Introspective Cluster Scheduling for Deep Learning, OSDI'18"
    needs: ClassVar[tuple[str, ...]] = ("gpus", "duration")
    guarantees: ClassVar[str] = "none; early feedback to every job by time slicing"
    cost: ClassVar[str] = "O(active jobs) per event"

    def played(self, setting: Setting, record: Record, corrected: Corrections) -> AnyRules:
        """The schedule at work on a setting."""
        return GandivaRules(setting, record, corrected)


@dataclass(slots=True, eq=False)
class GpuSet:
    """Whole nodes lent to jobs of one size: the first `capacity` of `jobs` run, the rest wait for their turn.

    `added` counts the jobs ever put here: the published measure of how busy a set is.
    """

    nodes: int
    capacity: int
    added: int = 0
    jobs: list[int] = field(default_factory=list)


class GandivaRules(LoggedRules, WholeSecondRules):
    """Rebalance the classes, run until now, take in arrivals, look ahead.

    As published the clock goes from arrival to arrival and frees GPUs only there; after the last arrival it goes slot
    by slot; and the time gone by is credited to the jobs that have a turn after the rebalancing, not to those that had
    the GPUs. Acting in between fixes that too: work is counted first. `free_nodes` plus the nodes of all sets is the
    cluster, always.
    """

    is_rigid = True
    needs = frozenset({"gandiva_between_arrivals", "overhead_when_unchanged", "restart_forgiven"})
    order: tuple[Step, ...] = (Step.ROUND, Step.ADVANCE, Step.ARRIVE, Step.WAKE, Step.DECIDE, Step.CHARGE)

    def __init__(self, setting: Setting, record: Record, corrected: Corrections) -> None:
        jobs, cluster = setting.jobs, setting.cluster
        super().__init__(record)
        self.standstill = Standstill(record)
        self.slot_s, self.total_gpus, self.node_gpus = setting.slot_s, cluster.gpus, cluster.gpus_per_node
        self.free_nodes = cluster.gpus // cluster.gpus_per_node
        self.full_capacity = "gandiva_strict" in corrected
        self.rank_present = "gandiva_util" in corrected
        self.acts_between = "gandiva_between_arrivals" in corrected
        self.credits_others = not self.acts_between
        if self.acts_between:
            self.order = (Step.ADVANCE, Step.ROUND, *self.order[2:])
        self.counts_growth = "gandiva_loop_variable" in corrected
        self.scans_all = "gandiva_pending_scan" in corrected
        self.pays_changes_only = "overhead_when_unchanged" in corrected
        self.forgives = "restart_forgiven" not in corrected
        self.gpus: list[int] = jobs.gpus.tolist()
        self.duration_s: list[int] = jobs.duration_s.tolist()
        self.deadline_s: list[int] = jobs.deadline_s.tolist()
        #: what a restart costs each job, on ordinary events and where all groups are rebuilt
        self.restart_s = restart_costs_s(setting, corrected)
        self.start_s, self.drain_s = first_costs_s(setting, corrected)
        self.by_table = uses_table(setting, corrected)
        self.arrivals = Arrivals(jobs.submit_s)
        self.sets: defaultdict[int, list[GpuSet]] = defaultdict(list)
        self.running: dict[int, None] = {}  # placed in a set, whether or not it is their turn
        self.pending: list[int] = []
        self.once_pending: set[int] = set()
        self.done_s = [0] * len(jobs)
        self.owed_s = [0] * len(jobs)
        self.held: dict[int, int] = {}
        self.returned = False
        self.returned_nodes = False
        self.placed = False
        #: until GPUs that were taken away at this instant are free
        self.wait_s = 0
        self.scheduled = 0
        self.now_s = self.last_s = self.arrivals.next_s or 0
        self.passed_s = 0

    def next_moment(self) -> int | None:
        """The instant the last one chose; None once no job is left or nothing can change any more."""
        if self.pending and not (self.arrivals or self.running or self.placed):
            self.record.ended_because = f"{len(self.pending)} waiting jobs can never be placed"
        elif self.arrivals or (
            (self.pending or self.running) and not self.standstill.check(self.now_s, self._done)
        ):
            return self.now_s
        self.flush()
        return None

    def work(self) -> F64:
        """Seconds on the requested GPUs."""
        return np.array(self.duration_s, np.float64)

    def pace(self, gpus: I64, now_s: float) -> tuple[F64, F64]:
        """Jobs work at the speed of their duration, once what they owe is paid."""
        holds = gpus > 0
        return holds.astype(np.float64), np.where(holds, self.owed_s, 0.0)

    def expected_s(self) -> int | None:
        """The next arrival, end, slot or turn; None once no job is left or none can be placed."""
        anything = self.arrivals or self.running or (self.pending and self.placed)
        return self.now_s if anything else None

    def ended(self, row: int, end_s: float) -> None:
        """A job ended: it leaves then."""
        self.now_s = min(self.now_s, max(whole_s(end_s), self.last_s + 1))

    def observe(self, now_s: int, seen: Progress) -> None:
        """Jobs end when they are seen to."""
        self.seen = seen
        self.passed_s, self.now_s = now_s - self.last_s, now_s
        for row in (*self.running, *self.pending):
            self.done_s[row] = self.duration_s[row] - whole_s(seen.left[row])

    def open_up(self) -> None:
        """More jobs may always come."""
        super().open_up()
        self.arrivals.is_open = True

    def columns(self) -> list[Column]:
        """What is kept of each job."""
        fixed = [
            self.gpus,
            self.duration_s,
            self.deadline_s,
            self.start_s,
            self.drain_s,
            *self.restart_s.values(),
        ]
        return [*fixed, self.done_s, self.owed_s]

    def grow(self, setting: Setting) -> None:
        """Grow the arrays for more jobs."""
        lengthen(self.columns(), len(setting.jobs))

    def take_in(self, row: int, alone: Self, setting: Setting) -> None:
        """A job takes a spare row; where nobody runs, the clock waits for it."""
        super().take_in(row, alone, setting)
        submit_s = int(setting.jobs.submit_s[row])
        self.arrivals.add(submit_s, row)
        soon_s = max(submit_s, self.last_s + 1) if self.scheduled else submit_s
        self.now_s = min(self.now_s, soon_s) if self.running else soon_s

    def cancel(self, row: int, now_s: float) -> None:
        """A job is taken back: one that has no turn is gone at once, one that works at the next instant."""
        if row in self.pending:
            self.pending.remove(row)
            return
        self.record.accepted -= self.deadline_s[row] < NO_DEADLINE_S
        self.deadline_s[row] = NO_DEADLINE_S
        for s in self.sets[self.gpus[row]]:
            if row in s.jobs[s.capacity :]:
                s.jobs.remove(row)
                del self.running[row]
                return
        self.ended(row, now_s)

    def resize(self, setting: Setting, up: BOOL, lost: Sequence[int], now_s: float) -> None:
        """Other nodes offer GPUs from now on; sets close where nodes are lacking, and their jobs wait."""
        nodes = int(up.sum())
        self.free_nodes += nodes - self.total_gpus // self.node_gpus
        self.total_gpus = nodes * self.node_gpus
        while self.free_nodes < 0:
            gpus, closed = min(
                ((gpus, s) for gpus, sets in self.sets.items() for s in sets),
                key=lambda one: (len(one[1].jobs), one[0]),
            )
            self.sets[gpus].remove(closed)
            self.free_nodes += closed.nodes
            for row in closed.jobs:
                del self.running[row]
                self.record.accepted -= self.deadline_s[row] < NO_DEADLINE_S
                self.pending.append(row)
                self.once_pending.add(row)
        stopped = [row for row in lost if self.held.pop(row, 0)]  # they start again, and pay
        self.log.add(whole_s(now_s), stopped, [0] * len(stopped), len(self.running) + len(self.pending))
        self.placed = True
        self.returned_nodes = True
        self.now_s = min(self.now_s, max(whole_s(now_s), self.last_s + 1))

    def _done(self) -> tuple[int, int, int]:
        return len(self.pending), len(self.running), sum(self.done_s)

    def on_round(self, now_s: int) -> None:
        """Nodes follow demand: each class is due its share of all demanded GPUs."""
        demand = {gpus: gpus * sum(len(s.jobs) for s in sets) for gpus, sets in self.sets.items()}
        total = sum(demand.values())
        for gpus in sorted(gpus for gpus, demanded in demand.items() if demanded):
            held = self.node_gpus * sum(s.nodes for s in self.sets[gpus])
            due = min(math.floor(demand[gpus] / total * self.total_gpus), demand[gpus])
            if due > held:
                self._grow(gpus, due - held)
            elif due < held:
                self._shrink(gpus, held - due)

    def advance(self, now_s: int) -> None:
        """Jobs whose turn it is work; those done leave, turns change on the minute, empty sets give nodes back."""
        self.returned, self.returned_nodes = self.returned_nodes, False
        self.placed = False
        if self.seen is not None:
            self._let_go(self.seen)
        for gpus, sets in self.sets.items():
            emptied = False
            for s in sets:
                turn = s.jobs[: s.capacity]
                done = [row for row in turn if self._work(row, now_s)]
                if len(s.jobs) > s.capacity and now_s % _TURN_S == 0:
                    s.jobs = s.jobs[s.capacity :] + turn
                for row in done:
                    s.jobs.remove(row)
                if not s.jobs:
                    self.free_nodes += s.nodes
                    emptied = True
            if emptied:
                self.sets[gpus] = [s for s in sets if s.jobs]
                self.returned = True
        for row in self.running if self.forgives else ():
            if row in self.once_pending:
                self.owed_s[row] = 0

    def arrive(self, now_s: int) -> None:
        """New jobs are placed if any set or free node takes them, else they wait."""
        for row in self.arrivals.take(now_s):
            self.record.admit(row, now_s)
            if not self._start(row):
                self.pending.append(row)
                self.once_pending.add(row)

    def wake(self, now_s: int) -> None:
        """Nodes came back: waiting jobs try again.

        As published the list shrinks under the scan, so the job after each one that starts is passed over.
        """
        if not self.returned:
            return
        if self.scans_all:
            self.pending = [row for row in self.pending if not self._start(row)]
            return
        at = 0
        while at < len(self.pending):
            if self._start(self.pending[at]):
                del self.pending[at]
            at += 1

    def decide(self, now_s: int) -> None:
        """Record who is having a turn."""
        gpus = self.gpus
        held = {row: gpus[row] for sets in self.sets.values() for s in sets for row in s.jobs[: s.capacity]}
        before = self.held
        self.fresh = [row for row in held if row not in before]
        gone = [row for row in before if row not in held]
        rows = self.fresh + gone
        waiting = len(self.running) + len(self.pending) - len(held)
        self.log.add(now_s, rows, [held.get(row, 0) for row in rows], waiting)
        self.wait_s = 0
        for row in gone:
            if row in self.running:
                self.record.preempts[row] += 1
                self.wait_s = max(self.wait_s, self.drain_s[row])
        for row in self.fresh:
            self.record.restarts[row] += 1
        self.held = held

    def charge(self, now_s: int) -> None:
        """Everybody placed owes a restart at each event (as published, while arrivals remain); choose the next instant."""
        if self.arrivals or self.acts_between:
            tick = self.scheduled > 0 and self.scheduled % self.slot_s == 0 and not self.by_table
            self.scheduled += 1
            for row in self.fresh if self.pays_changes_only or self.by_table else self.running:
                first = self.by_table and self.record.restarts[row] == 1
                self.owed_s[row] = (self.start_s[row] if first else self.restart_s[tick][row]) + self.wait_s
        if self.acts_between:
            next_s = self._next_change_s(now_s)
        elif self.arrivals:
            self.arrivals.merge(now_s, self.slot_s)
            next_s = self.arrivals.next_s or now_s
        else:
            next_s = now_s + self.slot_s
        self.passed_s, self.last_s, self.now_s = next_s - now_s, now_s, next_s

    def _let_go(self, seen: Progress) -> None:
        """Jobs that ended after they had lost their turn leave."""
        for row in [row for row in self.pending if not math.isnan(seen.ended_s[row])]:
            self.pending.remove(row)
            self.record.end(row, whole_s(seen.ended_s[row]))
        for s in (s for sets in self.sets.values() for s in sets):
            for row in [row for row in s.jobs[s.capacity :] if not math.isnan(seen.ended_s[row])]:
                s.jobs.remove(row)
                del self.running[row]
                self.record.accepted -= self.deadline_s[row] < NO_DEADLINE_S
                self.record.end(row, whole_s(seen.ended_s[row]))

    def _work(self, row: int, now_s: int) -> bool:
        """Let a job work since the last event; whether it is done."""
        work_s = max(self.passed_s - self.owed_s[row], 0)
        self.record.overhead_s[row] += self.passed_s - work_s
        if self.seen is None:
            self.done_s[row] += work_s
            self.owed_s[row] = 0 if self.forgives else self.owed_s[row] - (self.passed_s - work_s)
            over_s = self.done_s[row] - self.duration_s[row]
            if over_s < 0:
                return False
            end_s = now_s - over_s
        else:
            self.done_s[row] = self.duration_s[row] - whole_s(self.seen.left[row])
            self.owed_s[row] = whole_s(self.seen.owed_s[row])
            if math.isnan(self.seen.ended_s[row]):
                return False
            end_s = whole_s(self.seen.ended_s[row])
        late = end_s > self.deadline_s[row]
        self.record.accepted -= late
        self.record.finish(row, end_s, declined=late, log_time_s=now_s)
        del self.running[row]
        return True

    def _start(self, row: int) -> bool:
        """Place a job, if it can be; whether it could."""
        if not self._place(row):
            return False
        self.placed = True
        self.running[row] = None
        self.record.accepted += self.deadline_s[row] < NO_DEADLINE_S
        return True

    def _place(self, row: int) -> bool:
        """Into the next set with free capacity, else onto free nodes, else into a set to take turns."""
        gpus = self.gpus[row]
        sets = self.sets[gpus]
        if sets:
            first = sets.pop(0)
            sets.append(first)
            if self._load(first) + (not self.full_capacity) < first.capacity:
                return self._add(sets, first, row)
        if self._nodes_of(gpus) <= self.free_nodes:
            return self._add(sets, self._open(gpus), row)
        if sets:
            first = sets.pop(0)
            sets.append(first)
            return self._add(sets, first, row)
        return False

    def _load(self, s: GpuSet) -> int:
        return len(s.jobs) if self.rank_present else s.added

    def _add(self, sets: list[GpuSet], chosen: GpuSet, row: int) -> bool:
        chosen.added += 1
        chosen.jobs.append(row)
        sets.sort(key=self._load)
        return True

    def _nodes_of(self, gpus: int) -> int:
        return -(-gpus // self.node_gpus)

    def _open(self, gpus: int) -> GpuSet:
        nodes = self._nodes_of(gpus)
        opened = GpuSet(nodes=nodes, capacity=nodes * self.node_gpus // gpus)
        self.free_nodes -= nodes
        self.sets[gpus].append(opened)
        return opened

    def _grow(self, gpus: int, missing_gpus: int) -> None:
        """Open sets while nodes are free, then spread the class's jobs over all its sets.

        As published a loop variable is reused: the spreading is left out when the last round opened a single node.
        """
        nodes = self._nodes_of(gpus)
        if self.counts_growth:
            opened = min(-(-missing_gpus // (nodes * self.node_gpus)), self.free_nodes // nodes)
            for _ in range(opened):
                self._open(gpus)
            spread = opened > 0
        else:
            spread = True
            for _ in range(math.ceil(missing_gpus / gpus)):
                fits = nodes <= self.free_nodes
                if fits:
                    self._open(gpus)
                spread = not fits or nodes > 1
        if spread:
            sets = self.sets[gpus]
            jobs = [row for s in sets for row in s.jobs]
            for s in sets:
                s.jobs, s.added = [], 0
            # Each job goes to the least busy set, of equally busy ones to that which got a job last.
            for at in range(0, len(jobs), len(sets)):
                some = jobs[at : at + len(sets)]
                for s, row in zip(sets, some, strict=False):
                    s.jobs.append(row)
                    s.added += 1
                sets[:] = sets[len(some) :] + sets[: len(some)][::-1]

    def _shrink(self, gpus: int, spare_gpus: int) -> None:
        """Give the first sets back, all but one at most; their jobs join the least busy sets."""
        sets = self.sets[gpus]
        moved = []
        for _ in range(min(math.ceil(spare_gpus / gpus), len(sets) - 1)):
            closed = sets.pop(0)
            self.free_nodes += closed.nodes
            moved += closed.jobs
        for row in moved:
            self._add(sets, sets[0], row)

    def _next_change_s(self, now_s: int) -> int:
        """The next arrival, slot or end of a job having its turn, whichever comes first."""
        arrival_s = self.arrivals.next_s
        if not self.running and arrival_s is not None:
            return arrival_s
        candidates = [now_s + self.slot_s - now_s % self.slot_s]
        if arrival_s is not None:
            candidates.append(arrival_s)
        candidates += [
            now_s + self.duration_s[row] - self.done_s[row] + self.owed_s[row] for row in self.held
        ]
        return max(min(candidates), now_s + 1)
