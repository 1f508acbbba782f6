"""Histories played again: freely from an instant on, or decision by decision with history put in before each."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Final

import numpy as np

from forerun.cluster.policies.backfilling.base import BackfillPolicy
from forerun.cluster.policies.conservative import Conservative
from forerun.cluster.policies.easy import Easy
from forerun.cluster.policies.first_fit import FirstFit
from forerun.cluster.policies.orders.fcfs import Fcfs
from forerun.cluster.policies.orders.multifactor import Multifactor, Weights
from forerun.cluster.policies.orders.sjf import ShortestRequest
from forerun.cluster.policies.orders.wfp3 import Wfp3
from forerun.cluster.policies.slurm_backfill import SlurmBackfill
from forerun.core.registry import member_name
from forerun.core.rng import stream
from forerun.site.cases import Case
from forerun.site.history import F64, I64
from forerun.site.machine import Declared, Pool, System
from forerun.site.replay.queues import Queue

#: the policies that are tried on a log whose nodes have names; priorities are those of users who share alike
ON_NODES: Final[tuple[BackfillPolicy, ...]] = (
    *(
        kind(order=order)
        for kind in (Easy, SlurmBackfill)
        for order in (
            Fcfs(),
            ShortestRequest(),
            Multifactor(weights=Weights(fairshare=1000.0)),
            Multifactor(weights=Weights(age=1000.0, fairshare=1000.0)),
        )
    ),
    Conservative(order=Fcfs()),
    FirstFit(order=Fcfs()),
)
#: the policies that are tried on other logs
CANDIDATES: Final[tuple[BackfillPolicy, ...]] = tuple(
    kind(order=order)
    for kind in (Easy, Conservative, FirstFit)
    for order in (Fcfs(), ShortestRequest(), Wfp3())
)


def candidates_of(system: System, pool: Pool) -> tuple[BackfillPolicy, ...]:
    """The policies that a pool may have: what the files of its site say, else those that are tried on its log."""
    if isinstance(system, Declared):
        return (system.policy,)
    if system.order is None:
        return ON_NODES if pool.parts else CANDIDATES
    return tuple(kind(order=system.order) for kind in (Easy, SlurmBackfill, Conservative, FirstFit))


#: replays that show how much they differ by chance, and by how much their submissions differ at most
REPLAYS: Final = 8
_SHAKE_S: Final = 120.0
#: how many launches and turnovers late a start may be and still count as the decision's
_LATE: Final = 3.0
#: a job that still waits so long after a policy would have started it is not asked about again
_DOUBTED_S: Final = 4 * 3600.0
#: a job that a policy would have started in vain is asked about again after so long
_AGAIN_S: Final = 6 * 3600.0
#: standard deviations by which wrong decisions of two policies differ by chance
_CHANCE: Final = 2.0


def policy_name(policy: BackfillPolicy) -> str:
    """Such as `easy wfp3`."""
    return f"{member_name(type(policy))} {member_name(type(policy.order))}"


@dataclass(frozen=True, slots=True)
class Played:
    """What a free replay makes of the jobs of a case. Times in seconds from the log's origin.

    Parameters
    ----------
    ready_s : from when on each stands in the queue.
    decided_s : when each is chosen to start, a launch before that; infinite: never.
    start_s : when each starts; nan: it ended before the replay begins.
    promise_s : the first start that each was promised, where promises are kept; nan: none.
    on_nodes : the nodes that each has, where they have names.
    """

    ready_s: F64
    decided_s: F64
    start_s: F64
    promise_s: F64
    on_nodes: tuple[I64, ...]


def replayed(case: Case, policy: BackfillPolicy) -> F64:
    """When each job starts under a policy: `start_s` of `played`."""
    return played(case, policy).start_s


def played(case: Case, policy: BackfillPolicy) -> Played:
    """Replay a case under a policy, from history at `case.begin_s` on without it.

    A job that is held comes back into the queue when it was last seen to be held, and gathers priority from then on.
    """
    ready_s = np.maximum(np.maximum(case.eligible_s, case.submit_s), case.released_s)
    decided_s = case.start_s - case.pool.launch_s
    runs = decided_s <= case.begin_s
    ready_s = np.where(runs, np.minimum(ready_s, decided_s), ready_s)
    order = np.argsort(ready_s, kind="stable")
    queue = Queue(case, policy, order, ready_s)
    here = np.arange(np.searchsorted(queue.submit, case.begin_s, "right"))
    never = np.full(len(case), np.inf)
    start_s = np.where(runs[order], decided_s[order], np.inf)
    known = (runs | ~case.started)[order]  # who left the queue left it then
    end_s = np.where(known, case.end_s[order] + case.pool.turnover_s, np.inf)
    queue.put_in(case.begin_s, start_s, end_s, here, never)
    while queue.play(np.inf) < np.inf:
        pass
    begun = queue.first_start >= 0
    promises = (queue.first_promise >= 0) & np.isfinite(queue.first_promise)
    gone = case.end_s + case.pool.turnover_s <= case.begin_s
    chosen_s, started_s, promise_s = np.full((3, len(case)), np.nan)
    chosen_s[order] = np.where(begun, queue.first_start, np.inf)
    chosen_s[gone] = np.inf
    started_s[order] = np.where(begun, queue.first_start + case.pool.launch_s, np.nan)
    started_s[runs] = case.start_s[runs]
    started_s[gone] = np.nan
    promise_s[order] = np.where(promises, queue.first_promise + case.pool.launch_s, np.nan)
    on_nodes = dict(zip(order.tolist(), queue.on_nodes, strict=True))
    return Played(ready_s, chosen_s, started_s, promise_s, tuple(on_nodes[row] for row in range(len(case))))


def shaken(case: Case) -> Iterator[Case]:
    """The case, and some whose jobs come up to two minutes later, though never after they started.

    A queue amplifies such differences, so that one replay is one of many that history might as well have been.
    """
    yield case
    for number in range(1, REPLAYS):
        later_s = stream(0, "replay", "submissions", str(number)).uniform(0, _SHAKE_S, len(case))
        submit_s = np.minimum(case.submit_s + later_s, case.start_s)
        yield replace(case, submit_s=submit_s, eligible_s=np.maximum(case.eligible_s, submit_s))


@dataclass(frozen=True, slots=True)
class OneStep:
    """What a policy would have started at each decision, beside what started. Jobs once overtaken count neither way.

    Parameters
    ----------
    hits : starts that the policy would have made.
    false_starts : what it would have started and did not start then.
    missed : starts that it would not have made.
    passed_over : jobs that it would have started and that did not start, and when, in seconds; by their place in the case.
    """

    hits: int
    false_starts: int
    missed: int
    passed_over: tuple[tuple[int, float], ...] = ()

    @property
    def precision(self) -> float:
        """The share of its starts that were real."""
        return self.hits / max(self.hits + self.false_starts, 1)

    @property
    def recall(self) -> float:
        """The share of real starts that it would have made."""
        return self.hits / max(self.hits + self.missed, 1)

    @property
    def f1(self) -> float:
        """The harmonic mean of both."""
        return 2 * self.hits / max(2 * self.hits + self.wrong, 1)

    @property
    def wrong(self) -> int:
        """Decisions that were not so."""
        return self.false_starts + self.missed

    def like(self, best: OneStep) -> bool:
        """Whether no more decisions are wrong than those of the best, but for chance: two standard deviations of counts."""
        return self.wrong - best.wrong <= _CHANCE * math.sqrt(self.wrong + best.wrong)


def one_step(case: Case, policy: BackfillPolicy, from_s: float, until_s: float) -> OneStep:
    """Ask a policy at every decision between two instants, with the machine and the queue as they were.

    A start counts as the policy's if it came within three launches and turnovers of the decision; times at which the policy
    would have started a job one after the other count once. Who is overtaken is not in the queue from then on, nor who still
    waits four hours after the policy would have started it.
    """
    beside = _Beside(case, policy, max(from_s, case.begin_s), case.doubted_s)
    start_s, doubted_s = beside.start_s, beside.withheld_s
    asked = _Decided(start_s, beside.late_s)
    doubts_s = np.sort(doubted_s)
    doubted = int(np.searchsorted(doubts_s, beside.begin_s, "right"))
    due_s: deque[float] = deque()
    while (now := beside.decide(until_s)) < until_s:
        asked.decided(now, beside.chosen)
        before, doubted = doubted, int(np.searchsorted(doubts_s, now, "right"))
        changed = doubted > before
        while due_s and due_s[0] <= now:
            changed = bool(due_s.popleft())
        for job in beside.chosen:
            if beside.start_s[job] > now + beside.late_s and doubted_s[job] > now + _DOUBTED_S:
                doubted_s[job] = now + _DOUBTED_S
                due_s.append(now + _DOUBTED_S)
        beside.correct(now, changed)
    counted = (start_s > beside.begin_s) & (start_s < until_s) & ~(doubted_s < start_s)
    hits = len(asked.hits & set(np.flatnonzero(counted).tolist()))
    passed_over = tuple((int(beside.order[job]), at_s) for job, at_s in asked.passed_over)
    return OneStep(hits, asked.false_starts, int(counted.sum()) - hits, passed_over)


def with_holds(case: Case, policy: BackfillPolicy, after_s: float) -> Case:
    """The case with the jobs that are held: a policy would have started them long before they did.

    The policy is asked at every decision, with the machine and the queue as they were. A job that it would have started and
    that did not start leaves the queue for a few hours, and is then asked about again. It is taken for held as soon as it
    still waits `after_s` after the policy would have started it first; when it starts in the end plays no part.

    Parameters
    ----------
    case : the jobs.
    policy : that is asked.
    after_s : how long after that; 0: nobody is held.
    """
    if not after_s:
        return case
    beside = _Beside(case, policy, case.begin_s, np.full(len(case), np.inf))
    wanted_s, seen_s = np.full(len(case), np.inf), np.full(len(case), -np.inf)
    away: deque[tuple[float, int]] = deque()
    while (now := beside.decide(np.inf)) < np.inf:
        changed = False
        while away and away[0][0] <= now:
            beside.withheld_s[away.popleft()[1]], changed = np.inf, True
        for job in beside.chosen:
            if beside.start_s[job] > now + beside.late_s:
                wanted_s[job], seen_s[job] = min(wanted_s[job], now), now
                beside.withheld_s[job], changed = now, True
                away.append((now + _AGAIN_S, job))
        beside.correct(now, changed)
    held = np.isfinite(beside.start_s) & (beside.start_s > wanted_s + after_s)
    held_s, released_s = np.empty((2, len(case)))
    held_s[beside.order] = np.where(held, wanted_s + after_s, np.inf)
    released_s[beside.order] = np.where(held, seen_s, -np.inf)
    return replace(case, held_s=held_s, released_s=released_s)


class _Beside:
    """A policy beside history. Before each decision, machine and queue are as they were. Jobs in order of the queue.

    Parameters
    ----------
    case : the jobs.
    policy : the policy.
    begin_s : from when on it is asked.
    withheld_s : of `case`, from when on each job is not in the queue.

    Attributes
    ----------
    order : int64[jobs], where each stands in the case.
    start_s : when it was really decided to start each.
    withheld_s : as above; may be changed between `decide` and `correct`.
    late_s : how much later than decided a start still counts as the decision's.
    chosen : what the last decision starts.
    """

    def __init__(self, case: Case, policy: BackfillPolicy, begin_s: float, withheld_s: F64) -> None:
        pool = case.pool
        ready_s = np.maximum(case.eligible_s, case.submit_s)
        self.order = np.argsort(ready_s, kind="stable")
        self.begin_s = begin_s
        self.late_s = _LATE * (pool.launch_s + pool.turnover_s) + policy.terms(0).latency_s
        self.start_s = np.maximum(case.start_s - pool.launch_s, ready_s)[self.order]
        self.withheld_s = withheld_s[self.order]
        self.chosen: list[int] = []
        # a log has whole seconds: who starts within one in which a job ends may have its nodes
        self._queue = Queue(case, policy, self.order, ready_s, latency_s=0.0)
        self._end_s = case.end_s[self.order] + pool.turnover_s
        self._by_start = np.argsort(self.start_s, kind="stable")
        self._starts_s = self.start_s[self._by_start]
        self._begun = int(np.searchsorted(self._starts_s, begin_s, "right"))
        self._came = int(np.searchsorted(self._queue.submit, begin_s, "right"))
        self._there = np.arange(self._came)
        self._differs = False
        self._put_in(begin_s)

    def decide(self, until_s: float) -> float:
        """Play to the next decision, or to the next start in history; when that is. At `until_s` or later: there is none."""
        due_s = float(self._starts_s[self._begun]) if self._begun < len(self.order) else np.inf
        now, chosen = self._queue.decide(due_s, until_s)
        self.chosen = chosen or []
        if chosen is not None:
            came = int(np.searchsorted(self._queue.submit, now, "right"))
            self._there = np.append(self._there, np.arange(self._came, came))
            self._came = came
        self._differs = chosen is None or bool((self.start_s[self.chosen] != now).any())
        return now

    def correct(self, now: float, changed: bool) -> None:
        """Put history in where it differs from the decision, or where jobs were withheld or came back."""
        differs = self._differs or changed
        while self._begun < len(self.order) and self._starts_s[self._begun] <= now:
            differs |= bool(self._queue.first_start[self._by_start[self._begun]] != now)
            self._begun += 1
        if differs:
            self._put_in(now)

    def _put_in(self, now: float) -> None:
        self._there = self._queue.put_in(now, self.start_s, self._end_s, self._there, self.withheld_s)


class _Decided:
    """What a policy would have started so far.

    Parameters
    ----------
    start_s : when each job really started.
    late_s : how much later than decided.

    Attributes
    ----------
    hits : jobs that it would have started when they started.
    false_starts : times at which it would have started a job that did not start; those on end count once.
    passed_over : those jobs and the times.
    """

    def __init__(self, start_s: F64, late_s: float) -> None:
        self.start_s, self.late_s = start_s.tolist(), late_s
        self.hits: set[int] = set()
        self.false_starts = 0
        self.passed_over: list[tuple[int, float]] = []
        self._last: set[int] = set()

    def decided(self, now: float, jobs: Sequence[int]) -> None:
        """Note what a decision starts."""
        for job in jobs:
            if self.start_s[job] <= now + self.late_s:
                if job in self._last and job not in self.hits:
                    self.false_starts -= 1
                self.hits.add(job)
            elif job not in self._last:
                self.false_starts += 1
                self.passed_over.append((job, now))
        self._last = set(jobs)
