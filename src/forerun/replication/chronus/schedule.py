"""Chronus: leases planned backwards from deadlines [Gao et al., SoCC'21], as published for comparison.

Time is cut into leases. A job with a deadline is admitted if the leases it needs can still be packed before it; it
then runs exactly in its leases, planned as late as possible. Everybody else fills what is left over, most urgent first.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from enum import IntEnum
from typing import Annotated, ClassVar, Final, Literal, Self

import msgspec
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
from forerun.cluster.inputs.arrays import BOOL, F64, I64, NEVER_S, NO_DEADLINE_S
from forerun.cluster.inputs.setting import Setting
from forerun.replication.chronus.leases import Claim, LeaseBook, fill_backwards, packs
from forerun.replication.elasticflow.event_log import LoggedRules, lengthen
from forerun.replication.elasticflow.known_bugs import Corrections
from forerun.replication.elasticflow.schedule import PublishedSchedule

_LEASE_S: Final = 240
_RESTART_S: Final = 0.5
_ESTIMATE: Final = 1.1


class Chronus(PublishedSchedule, frozen=True, kw_only=True, forbid_unknown_fields=True, tag="chronus"):
    """Deadline jobs get leases, admitted if they can be packed; others fill the rest.

    `lease_s`: length of a lease and of the backfill slot. `solver`: `greedy` plans newly admitted jobs around the old
    plans, as the original does when its solver fails; `highs` plans all of them again each lease, to optimality.
    `solver_nodes`, `solver_gap`, `solver_columns` (size of the program): when HiGHS gives up and the greedy plan is
    retained; never seconds of the host.
    """

    lease_s: Annotated[int, msgspec.Meta(ge=1)] = _LEASE_S
    solver: Literal["greedy", "highs"] = "greedy"
    solver_nodes: Annotated[int, msgspec.Meta(ge=1)] = 200
    solver_gap: Annotated[float, msgspec.Meta(ge=0)] = 1e-6
    solver_columns: Annotated[int, msgspec.Meta(ge=1)] = 600

    paper: ClassVar[str] = (
        "Chronus: A Novel Deadline-aware Scheduler for Deep Learning Training Jobs, SoCC'21"
    )
    needs: ClassVar[tuple[str, ...]] = ("gpus", "duration", "deadline")
    guarantees: ClassVar[str] = "an admitted job gets the leases its estimate needs before its deadline"
    cost: ClassVar[str] = "O(batch x horizon) per lease; an integer program per lease with solver: highs"

    def played(self, setting: Setting, record: Record, corrected: Corrections) -> AnyRules:
        """The schedule at work on a setting."""
        return ChronusRules(self, setting, record, corrected)


class Rank(IntEnum):
    """Where a job stands: `LATE` cannot meet its deadline, `LEASED` is admitted, `SPARE` fills, then best effort."""

    LATE = -1
    LEASED = 0
    SPARE = 1
    BEST_EFFORT = 2


@dataclass(slots=True, eq=False)
class LeaseJob:
    """A job as Chronus sees it.

    Parameters
    ----------
    row, submit_s, duration_s, gpus : of the job.
    expect_s : seconds from submission to its deadline.
    size : GPUs as the packing counts them.
    restart_s : what each restart costs.
    estimate_s : the duration that plans reckon with.
    still : leases that it still needs.
    rank : where it stands.
    plan, plan_end : numbers of the leases to come, ascending (None: no plan), and the lease of the deadline.
    promised_s : the deadline that the schedule works with, from submission.
    done_s, since_s : seconds of work without restarts, and when they were last counted.
    resumes : how often it was started.
    holds_lease : whether it runs in a lease now.
    may_lease : whether it may be planned.
    overran : 1: it ran beyond its estimate.
    urgency : the greater, the more urgent.
    """

    row: int
    submit_s: int
    expect_s: int
    duration_s: int
    gpus: int
    size: int
    restart_s: float
    estimate_s: int
    still: int
    rank: Rank = Rank.LEASED
    plan: list[int] | None = None
    plan_end: int = 0
    promised_s: int = 0
    done_s: int = 0
    since_s: int = 0
    resumes: int = 0
    holds_lease: bool = False
    may_lease: bool = True
    overran: int = 0
    urgency: int = 0


def bin_of(gpus: int) -> int:
    """GPUs as the packing counts them: 3 as 4, 5 to 7 as 8."""
    return 4 if gpus in (3, 4) else 8 if 5 <= gpus <= 7 else gpus


def _written_deadlines_s(setting: Setting) -> list[int]:
    """Deadlines as the trace gives them, also to best-effort jobs; without any, the generator's loosest.

    The published conversion forgets which jobs are best effort, so they compete with the deadline of their row.
    """
    jobs = setting.jobs
    written = jobs.written_deadline_s
    loosest = jobs.submit_s + 3 * jobs.duration_s // 2
    deadlines: list[int] = np.where(written < NO_DEADLINE_S, written, loosest).tolist()
    return deadlines


class ChronusRules(LoggedRules, WholeSecondRules):
    """A tick counts work; on a lease boundary all running jobs are put back and leases handed out; on a backfill slot
    newcomers are admitted and spare GPUs given away."""

    needs = frozenset({"chronus_waiting_counts", "overhead_when_unchanged"})
    order: tuple[Step, ...] = (Step.ADVANCE, Step.ROUND, Step.ARRIVE, Step.DECIDE, Step.CHARGE)

    def __init__(self, policy: Chronus, setting: Setting, record: Record, corrected: Corrections) -> None:
        from forerun.replication.chronus.lease_program import Limits

        super().__init__(record)
        self.policy, self.setting = policy, setting
        self.lease_s = policy.lease_s
        self.tick_s = math.gcd(setting.slot_s, policy.lease_s)
        self.slot_s = self.tick_s if "chronus_slot_constant" in corrected else policy.lease_s
        self.keeps_refused = "chronus_refused_stay" not in corrected
        self.waiting_counts = "chronus_waiting_counts" not in corrected
        self.pays_changes_only = "overhead_when_unchanged" in corrected
        self.knows_best_effort = "chronus_best_effort_lost" in corrected
        self.limits = Limits(policy.solver_nodes, policy.solver_gap, policy.solver_columns)
        self.submit_s: list[int] = setting.jobs.submit_s.tolist()
        self.deadline_s: list[int] = setting.jobs.deadline_s.tolist()
        self.written_deadline_s = _written_deadlines_s(setting)
        self.arrived = 0
        self.pending: list[LeaseJob] = []
        self.running: list[LeaseJob] = []
        self.book = LeaseBook(setting.cluster.gpus)
        self.lease = 0  # number of the next lease to be handed out
        self.now_s = 0
        self.last_s = -self.tick_s
        self.spare_waiting = False
        self.solved: dict[str, int] = {}
        self.touched: dict[int, int] = {}
        #: jobs that have lost their GPUs since the last instant
        self.lost: set[int] = set()
        self.held = [0] * len(self.submit_s)
        self._skip_idle()

    def next_moment(self) -> int | None:
        """The next tick; idle stretches are skipped on the grid."""
        now_s = self.expected_s()
        if now_s is not None:
            return now_s
        if self.pending:
            self.record.ended_because = f"{len(self.pending)} waiting jobs can never be placed"
        if self.solved:
            counts = ", ".join(f"{count} {proof.lower()}" for proof, count in sorted(self.solved.items()))
            self.record.notes.append(f"lease plans by outcome of the search: {counts}")
        self.flush()
        return None

    def work(self) -> F64:
        """Seconds on the requested GPUs."""
        return self.setting.jobs.duration_s.astype(np.float64)

    def pace(self, gpus: I64, now_s: float) -> tuple[F64, F64]:
        """Jobs work at the speed of their duration, after their restarts so far."""
        owed_s = np.zeros(len(gpus))
        for job in self.running:
            assert self.seen is not None
            needed_s = job.duration_s + job.resumes * job.restart_s
            owed_s[job.row] = max(needed_s - job.done_s - self.seen.left[job.row], 0.0)
        return (gpus > 0).astype(np.float64), owed_s

    def expected_s(self) -> int | None:
        """The next tick at which anything can happen."""
        placeable = any(job.gpus <= self.book.total_gpus for job in self.pending)
        return self.now_s if self._next_submit_s < NEVER_S or self.running or placeable else None

    @property
    def _next_submit_s(self) -> int:
        """When the next job comes, as far as that is known."""
        return self.submit_s[self.arrived] if self.arrived < len(self.submit_s) else NEVER_S

    def ended(self, row: int, end_s: float) -> None:
        """A job ended: it leaves at the next tick."""
        tick_s = -(-whole_s(end_s) // self.tick_s) * self.tick_s
        self.now_s = min(self.now_s, max(tick_s, self.last_s + self.tick_s))

    def observe(self, now_s: int, seen: Progress) -> None:
        """Jobs end when they are seen to. Leases that nobody handed out, because no tick came in time, are gone."""
        self.seen, self.now_s = seen, now_s
        lease = -(-now_s // self.lease_s)
        if lease > self.lease:
            for job in (*self.pending, *self.running):
                if job.plan and job.plan[0] < lease:
                    self._drop_plan(job)
            self.lease = lease

    def instant(self, now_s: float) -> int:
        """The last tick that is not after a time, but after the tick before."""
        return max(int(now_s // self.tick_s) * self.tick_s, self.last_s + self.tick_s)

    def columns(self) -> list[Column]:
        """What is kept of each job besides the jobs themselves."""
        return [self.submit_s, self.deadline_s, self.written_deadline_s, self.held]

    def grow(self, setting: Setting) -> None:
        """Grow the arrays for more jobs."""
        self.setting = setting
        lengthen(self.columns(), len(setting.jobs))
        self.submit_s[:] = setting.jobs.submit_s.tolist()

    def take_in(self, row: int, alone: Self, setting: Setting) -> None:
        """A job takes a spare row; where nobody is there, the clock goes on to it."""
        super().take_in(row, alone, setting)
        self.setting = setting
        self._skip_idle()

    def cancel(self, row: int, now_s: float) -> None:
        """A job is taken back: one that waits is gone at once, one that runs at the next tick."""
        waiting = [job for job in self.pending if job.row == row]
        for job in waiting:
            self._drop_plan(job)
            self.pending.remove(job)
        if not waiting:
            self.ended(row, now_s)

    def resize(self, setting: Setting, up: BOOL, lost: Sequence[int], now_s: float) -> None:
        """Other nodes offer GPUs from now on: all leases are planned again, for those that fit."""
        self.setting = setting
        planned = [job for job in (*self.pending, *self.running) if job.plan is not None]
        for job in planned:
            self._drop_plan(job)
        self.book = LeaseBook(int(setting.cluster.node_gpus()[up].sum()))
        for job in sorted(planned, key=self._plan_order):
            self._plan(job)
        free, stay = self.book.total_gpus, []
        for job in sorted(self.running, key=lambda job: not job.holds_lease):
            if job.row not in lost and job.gpus <= free:
                free -= job.gpus
                stay.append(job)
                continue
            self.record.preempts[job.row] += 1
            self.touched[job.row] = 0
            self.pending.append(job)
        self.lost.update(lost)
        self.running = stay
        tick_s = -(-whole_s(now_s) // self.tick_s) * self.tick_s
        self.now_s = min(self.now_s, max(tick_s, self.last_s + self.tick_s))

    def advance(self, now_s: int) -> None:
        """Running jobs work; those done leave, those beyond their estimate lose their lease for good."""
        if self.seen is not None:
            for job in [job for job in self.pending if not math.isnan(self.seen.ended_s[job.row])]:
                self.pending.remove(job)
                self._end(job, whole_s(self.seen.ended_s[job.row]), now_s)
            for job in self.pending:
                job.done_s = round(job.duration_s + job.resumes * job.restart_s - self.seen.left[job.row])
        still_running = []
        for job in self.running:
            needed_s = job.duration_s + job.resumes * job.restart_s
            done_s = job.done_s + now_s - job.since_s
            if self.seen is not None:
                done_s = round(needed_s - self.seen.left[job.row] - self.seen.owed_s[job.row])
                if not math.isnan(self.seen.ended_s[job.row]):
                    self._end(job, whole_s(self.seen.ended_s[job.row]), now_s)
                    continue
            elif done_s >= needed_s:
                self._end(job, job.since_s + needed_s - job.done_s, now_s)
                continue
            if done_s >= job.estimate_s and (now_s % self.lease_s == 0 or not job.holds_lease):
                self._drop_plan(job)
                job.rank = Rank.SPARE if job.rank is not Rank.BEST_EFFORT else job.rank
                job.overran, job.may_lease = 1, False
            job.done_s = done_s
            job.since_s = now_s
            still_running.append(job)
        self.running = still_running

    def on_round(self, now_s: int) -> None:
        """On a lease boundary: all jobs are put back, plans are renewed, holders of the new lease run."""
        if now_s % self.lease_s:
            return
        before = self.running
        self.pending += before
        for job in before:
            job.since_s = now_s
        self._renew_plans()
        runs = [job for job in self.pending if self._claims_lease(job)]
        for job in runs:
            job.still -= 1
            if not self.waiting_counts:
                job.since_s = now_s
        self._switch(before, runs, now_s)
        self.lease += 1

    def arrive(self, now_s: int) -> None:
        """On a backfill slot: admit those whose leases can be packed beside the others that came with them."""
        if now_s % self.slot_s or self._next_submit_s > now_s:
            return
        batch = [self._claim(job) for job in self.pending if self._wants_plan(job)]
        while self._next_submit_s <= now_s:
            job = self._newcomer(self.arrived)
            self.arrived += 1
            self.record.admit(job.row, now_s)
            if job.rank is Rank.LEASED:
                self._admit(job, batch)
            job.since_s = now_s
            self.pending.append(job)

    def decide(self, now_s: int) -> None:
        """On a backfill slot: jobs without a lease fill what is free, most urgent first."""
        if now_s % self.slot_s == 0:
            self._judge(now_s)
            self.pending.sort(key=lambda job: (job.rank, job.urgency, job.submit_s), reverse=True)
            free = self.book.total_gpus - sum(job.gpus for job in self.running)
            if free > 0:
                self._backfill(free, now_s)
            jobs = (*self.pending, *self.running)
            self.spare_waiting = any(job.rank is Rank.SPARE for job in jobs)
        if self.pays_changes_only:
            self._go_on()
        changed = {row: gpus for row, gpus in self.touched.items() if self.held[row] != gpus}
        if changed or now_s % self.lease_s == 0:
            self.log.add(now_s, list(changed), list(changed.values()), len(self.pending))
        for row, gpus in changed.items():
            self.held[row] = gpus
        self.touched = {}
        self.lost.clear()

    def _go_on(self) -> None:
        """Who was put back at this instant and fills spare GPUs again goes on with its own: that is no restart."""
        for job in self.running:
            if self.touched.get(job.row) == self.held[job.row] and job.row not in self.lost:
                self.record.preempts[job.row] -= 1
                for counts in (self.record.resumes, self.record.restarts):
                    counts[job.row] -= 1
                job.resumes -= 1

    def charge(self, now_s: int) -> None:
        """The clock goes on to the next tick at which anything can happen: a slot, a lease, an end, an overrun."""
        beat_s = math.gcd(self.lease_s, self.slot_s)
        ahead_s = float(now_s - now_s % beat_s + beat_s)
        for job in self.running:
            left_s = job.duration_s + job.resumes * job.restart_s - job.done_s
            if not job.holds_lease:
                left_s = min(left_s, job.estimate_s - job.done_s)
            ahead_s = min(ahead_s, job.since_s + max(left_s, 1))
        self.last_s = now_s
        self.now_s = max(-int(-ahead_s // self.tick_s) * self.tick_s, now_s + self.tick_s)
        self._skip_idle()

    def _skip_idle(self) -> None:
        """Without jobs, go to the tick at or before the next arrival, counting the leases passed over."""
        if self.pending or self.running or self._next_submit_s == NEVER_S:
            return
        ahead_s = self._next_submit_s // self.tick_s * self.tick_s
        if ahead_s > self.now_s:
            self.lease += -(-ahead_s // self.lease_s) + (-self.now_s // self.lease_s)
            self.now_s = ahead_s

    def _end(self, job: LeaseJob, end_s: float, now_s: int) -> None:
        self._drop_plan(job)
        self.touched[job.row] = 0
        self.record.overhead_s[job.row] = job.resumes * job.restart_s
        self.record.end(job.row, end_s, log_time_s=now_s)

    def _drop_plan(self, job: LeaseJob) -> None:
        if job.plan is not None:
            self.book.give(job.plan, job.gpus)
            job.plan = None

    def _within(self, job: LeaseJob) -> int:
        """Leases that end before the job's deadline, from the next one on."""
        return (job.submit_s + job.expect_s) // self.lease_s - self.lease

    def _claim(self, job: LeaseJob) -> Claim:
        return Claim(job.size, job.still, self._within(job))

    def _wants_plan(self, job: LeaseJob) -> bool:
        return job.rank is Rank.LEASED and job.may_lease and job.still > 0 and job.plan is None

    def _renew_plans(self) -> None:
        """Leases no longer needed are given back, first ones first; admitted jobs without a plan get one."""
        for job in self.pending:
            if job.rank is Rank.LEASED:
                needed = math.ceil((job.estimate_s - job.done_s) / self.lease_s)
                if needed < job.still:
                    if job.plan is not None:
                        self.book.give(job.plan[: job.still - needed], job.gpus)
                        del job.plan[: job.still - needed]
                    job.still = needed
        newly = [job for job in self.pending if self._wants_plan(job)]
        for job in sorted(newly, key=self._plan_order):
            self._plan(job)
        if self.policy.solver == "highs":
            self._solve()

    def _plan_order(self, job: LeaseJob) -> tuple[int, int, int]:
        """Large jobs first, then tight ones, then those with far deadlines; all values are equal."""
        within = self._within(job)
        return -job.size, within - job.still, -within

    def _plan(self, job: LeaseJob) -> None:
        """Give an admitted job its leases, as late as possible, if there are enough before its deadline."""
        within = self._within(job)
        if within <= 0:
            return
        leases = fill_backwards(self.book.free(self.lease, within), job.size, job.still)
        if leases is not None:
            self._set_plan(job, (leases + self.lease).tolist())

    def _set_plan(self, job: LeaseJob, plan: list[int]) -> None:
        self.book.take(plan, job.gpus)
        job.plan, job.plan_end = plan, self.lease + self._within(job)

    def _solve(self) -> None:
        """Plan all admitted jobs anew, starting from the plans they have."""
        from forerun.replication.chronus.lease_program import best_plan

        jobs = [job for job in self.pending if job.rank is Rank.LEASED and job.may_lease and job.still > 0]
        if not jobs:
            return
        incumbent = [job.plan for job in jobs]
        planned = best_plan(
            [self._claim(job) for job in jobs],
            self.book.total_gpus,
            use_now=not self.spare_waiting,
            incumbent=incumbent,
            limits=self.limits,
            now=self.lease,
        )
        self.solved[planned.proof.name] = self.solved.get(planned.proof.name, 0) + 1
        changed = [(job, new) for job, new in zip(jobs, planned.leases, strict=True) if new is not job.plan]
        for job, _ in changed:
            self._drop_plan(job)
        for job, leases in changed:
            if leases is not None:
                self._set_plan(job, list(leases))

    def _claims_lease(self, job: LeaseJob) -> bool:
        """Whether the job holds the lease now beginning; an admitted job without a plan loses its standing."""
        job.holds_lease = False
        if job.rank is Rank.LEASED:
            if job.plan is None:
                job.rank = Rank.SPARE
            elif job.plan and job.plan[0] == self.lease:
                self.book.give([self.lease], job.gpus)
                del job.plan[0]
                job.holds_lease = True
        return job.holds_lease

    def _switch(self, before: Sequence[LeaseJob], runs: list[LeaseJob], now_s: int) -> None:
        """The running jobs become `runs`; who was not running resumes, who no longer does is preempted."""
        were, are = {job.row for job in before}, {job.row for job in runs}
        for job in runs:
            if job.row not in were:
                self._resume(job)
        for job in before:
            if job.row not in are:
                self.record.preempts[job.row] += 1
                self.touched[job.row] = 0
        self.running = runs
        self.pending = [job for job in self.pending if job.row not in are]

    def _resume(self, job: LeaseJob) -> None:
        job.resumes += 1
        self.record.resumes[job.row] += 1
        self.record.restarts[job.row] += 1
        self.touched[job.row] = job.gpus

    def _newcomer(self, row: int) -> LeaseJob:
        """A job as it is at arrival: its estimate allows for a restart and a tenth more."""
        jobs = self.setting.jobs
        duration_s, gpus = int(jobs.duration_s[row]), int(jobs.gpus[row])
        weight = 1.0 + math.log2(gpus)
        estimate_s = int(duration_s * (1.0 + _RESTART_S * weight / self.lease_s) * _ESTIMATE)
        job = LeaseJob(
            row=row,
            submit_s=self.submit_s[row],
            expect_s=self._expected_s(row),
            duration_s=duration_s,
            gpus=gpus,
            size=bin_of(gpus),
            restart_s=_RESTART_S * weight,
            estimate_s=estimate_s,
            still=math.ceil(estimate_s / self.lease_s),
        )
        if self.knows_best_effort and self.deadline_s[row] == NO_DEADLINE_S:
            job.rank, job.may_lease = Rank.BEST_EFFORT, False
        return job

    def _expected_s(self, row: int) -> int:
        """Seconds from submission to the deadline; a best-effort job has the one written in its file."""
        return self.written_deadline_s[row] - self.submit_s[row]

    def _admit(self, job: LeaseJob, batch: list[Claim]) -> None:
        """Admit if all jobs of the batch still pack; as published, refused jobs still count in the batch on their batch."""
        claim = self._claim(job)
        horizon = max([claim.within, 0, *(other.within for other in batch)])
        if claim.needed <= claim.within and packs([*batch, claim], self.book.free(self.lease, horizon)):
            job.promised_s = self.lease_s * (claim.within + self.lease) - job.submit_s
            batch.append(claim)
            return
        job.rank, job.may_lease, job.promised_s = Rank.SPARE, False, job.expect_s
        if self.keeps_refused:
            batch.append(self._first_packing(claim, batch))

    def _first_packing(self, claim: Claim, batch: list[Claim]) -> Claim:
        """The refused claim with the earliest deadline at which it would pack, by bisection."""
        planned = (
            job.plan_end - self.lease for job in (*self.pending, *self.running) if job.plan is not None
        )
        low = max(claim.within, claim.needed)
        high = max([claim.within, *(other.within for other in batch), *planned, 0]) + claim.needed + 1
        free = self.book.free(self.lease, max(high, low))
        while low < high:
            middle = (low + high) // 2
            if packs([*batch, Claim(claim.size, claim.needed, middle)], free):
                high = middle
            else:
                low = middle + 1
        return Claim(claim.size, claim.needed, low)

    def _judge(self, now_s: int) -> None:
        """Who can no longer meet the deadline is late; how urgent everybody is."""
        for job in self.pending:
            hopeless = job.promised_s + job.submit_s < now_s + job.duration_s - job.done_s
            if job.rank in (Rank.LEASED, Rank.SPARE) and hopeless:
                job.rank = Rank.LATE
            job.since_s = now_s
            if job.rank in (Rank.SPARE, Rank.BEST_EFFORT):
                job.urgency = -(job.estimate_s - job.done_s) * job.gpus
            else:
                slack_s = job.promised_s + job.submit_s - now_s - job.estimate_s + job.done_s
                job.urgency = -slack_s * job.gpus

    def _backfill(self, free: int, now_s: int) -> None:
        """Give free GPUs to jobs without a lease, those that overran first."""
        self.pending.sort(
            key=lambda job: (job.overran, min(job.rank, Rank.SPARE), job.urgency, -job.submit_s), reverse=True
        )
        waiting = []
        for job in self.pending:
            if job.rank is not Rank.LEASED and job.gpus <= free:
                free -= job.gpus
                self.running.append(job)
                self._resume(job)
            else:
                waiting.append(job)
        self.pending = waiting
