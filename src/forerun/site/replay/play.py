"""Histories played again: freely from an instant on, or decision by decision with history put in before each."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final

import numpy as np

from forerun.cluster.engine.backfill import build_queue
from forerun.cluster.engine.kernels import backfill as bk
from forerun.cluster.engine.kernels import priority as qk
from forerun.cluster.policies.backfilling.base import BackfillPolicy
from forerun.cluster.policies.conservative import Conservative
from forerun.cluster.policies.easy import Easy
from forerun.cluster.policies.first_fit import FirstFit
from forerun.cluster.policies.orders.fcfs import Fcfs
from forerun.cluster.policies.orders.sjf import ShortestRequest
from forerun.cluster.policies.orders.wfp3 import Wfp3
from forerun.cluster.summary.spans import Spans
from forerun.core.registry import member_name
from forerun.site.cases import Case
from forerun.site.history import F64, I64
from forerun.site.kernels import restore as hk

#: the policies that are tried on a log
CANDIDATES: Final[tuple[BackfillPolicy, ...]] = tuple(
    kind(order=order)
    for kind in (Easy, Conservative, FirstFit)
    for order in (Fcfs(), ShortestRequest(), Wfp3())
)
#: how many launches and turnovers late a start may be and still count as the decision's
_LATE: Final = 3.0
#: a job that still waits so long after a policy would have started it is not asked about again
_DOUBTED_S: Final = 4 * 3600.0
#: a job that a policy would have started in vain is asked about again after so long
_AGAIN_S: Final = 6 * 3600.0
_NO_USER_LIMIT: Final = 1 << 40


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
    """

    ready_s: F64
    decided_s: F64
    start_s: F64
    promise_s: F64


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
    queue, allowed = _queue(case, order, ready_s, case.since_s, stepwise=False)
    here = np.arange(np.searchsorted(queue.submit, case.begin_s, "right"))
    queue.meta[qk.ARRIVED] = len(here)
    never = np.full(len(case), np.inf)
    start_s = np.where(runs[order], decided_s[order], np.inf)
    end_s = np.where(runs[order], case.end_s[order] + case.pool.turnover_s, np.inf)
    known = (policy.order.number, policy.keeps_promises, case.pool.nodes, policy.grace_s, start_s, end_s)
    hk.restore(queue, case.begin_s, *known, here, len(here), never, allowed)
    next_s = case.begin_s
    while next_s < np.inf:
        queue.meta[qk.LOGGED] = queue.meta[qk.EVENTS] = 0
        next_s = bk.advance(queue, *_parameters(case, policy), np.inf)
    begun = queue.first_start >= 0
    promises = (queue.first_promise != bk.NO_PROMISE) & np.isfinite(queue.first_promise)
    gone = case.end_s + case.pool.turnover_s <= case.begin_s
    chosen_s, started_s, promise_s = np.full((3, len(case)), np.nan)
    chosen_s[order] = np.where(begun, queue.first_start, np.inf)
    chosen_s[gone] = np.inf
    started_s[order] = np.where(begun, queue.first_start + case.pool.launch_s, np.nan)
    started_s[runs] = case.start_s[runs]
    started_s[gone] = np.nan
    promise_s[order] = np.where(promises, queue.first_promise + case.pool.launch_s, np.nan)
    return Played(ready_s, chosen_s, started_s, promise_s)


@dataclass(frozen=True, slots=True)
class OneStep:
    """What a policy would have started at each decision, beside what started. Jobs once overtaken count neither way.

    Parameters
    ----------
    hits : starts that the policy would have made.
    false_starts : what it would have started and did not start then.
    missed : starts that it would not have made.
    """

    hits: int
    false_starts: int
    missed: int

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
        return 2 * self.hits / max(2 * self.hits + self.false_starts + self.missed, 1)


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
    return OneStep(hits, asked.false_starts, int(counted.sum()) - hits)


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
    held = beside.start_s > wanted_s + after_s
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
        self.late_s = _LATE * (pool.launch_s + pool.turnover_s)
        self.start_s = np.maximum(case.start_s - pool.launch_s, ready_s)[self.order]
        self.withheld_s = withheld_s[self.order]
        self.chosen: list[int] = []
        self._queue, self._allowed = _queue(case, self.order, ready_s, case.submit_s, stepwise=True)
        self._parameters, self._keeps = _parameters(case, policy), policy.keeps_promises
        self._put_in = (
            *(policy.order.number, policy.keeps_promises, pool.nodes, policy.grace_s),
            *(self.start_s, case.end_s[self.order] + pool.turnover_s, np.zeros(len(case), np.int64)),
        )
        self._open = self._put_in[-1]
        self._by_start = np.argsort(self.start_s, kind="stable")
        self._starts_s = self.start_s[self._by_start]
        self._begun = int(np.searchsorted(self._starts_s, begin_s, "right"))
        self._here = int(np.searchsorted(self._queue.submit, begin_s, "right"))
        self._open[: self._here] = np.arange(self._here)
        self._queue.meta[qk.ARRIVED] = self._here
        self._differs = False
        self._restore(begin_s)

    def decide(self, until_s: float) -> float:
        """Play to the next decision, or to the next start in history; when that is. At `until_s` or later: there is none."""
        queue, meta = self._queue, self._queue.meta
        due_s = float(self._starts_s[self._begun]) if self._begun < len(self.order) else np.inf
        # a decision, too, where something started
        queue.wake[0] = min(queue.wake[0], due_s) if self._keeps else due_s
        came = int(meta[qk.ARRIVED])
        meta[qk.LOGGED] = meta[qk.EVENTS] = 0
        bk.advance(queue, *self._parameters, min(float(np.nextafter(due_s, np.inf)), until_s))
        decides = meta[qk.EVENTS] == 1
        now = float(queue.event_time[0]) if decides else due_s
        self.chosen = []
        if decides:
            arrived = int(meta[qk.ARRIVED])
            self._open[self._here : self._here + arrived - came] = np.arange(came, arrived)
            self._here += arrived - came
            logged = int(meta[qk.LOGGED])
            self.chosen = queue.log_row[:logged][queue.log_gpus[:logged] > 0].tolist()
        self._differs = not decides or bool((self.start_s[self.chosen] != now).any())
        return now

    def correct(self, now: float, changed: bool) -> None:
        """Put history in where it differs from the decision, or where jobs were withheld or came back."""
        differs = self._differs or changed
        while self._begun < len(self.order) and self._starts_s[self._begun] <= now:
            differs |= bool(self._queue.first_start[self._by_start[self._begun]] != now)
            self._begun += 1
        if differs:
            self._restore(now)

    def _restore(self, now: float) -> None:
        self._here = hk.restore(self._queue, now, *self._put_in, self._here, self.withheld_s, self._allowed)


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
    """

    def __init__(self, start_s: F64, late_s: float) -> None:
        self.start_s, self.late_s = start_s.tolist(), late_s
        self.hits: set[int] = set()
        self.false_starts = 0
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
        self._last = set(jobs)


def _queue(case: Case, order: I64, ready_s: F64, since_s: F64, *, stepwise: bool) -> tuple[bk.Backfill, I64]:
    """The queue of a pool in an order, and how many jobs each user may run."""
    pool = case.pool
    allowed = np.full(case.users, pool.running_per_user or _NO_USER_LIMIT)
    allowed[0] = _NO_USER_LIMIT
    queue = build_queue(
        ready_s[order],
        case.nodes[order],
        case.run_s[order] + case.extra_s,
        case.request_s[order] + case.extra_s,
        pool.nodes,
        case.windows,
        1 << 16,
        at_once=min(max(_at_once(case), pool.nodes), len(case)),
    )
    events = queue.event_time[:2] if stepwise else queue.event_time  # of which the last is never used
    queue = queue._replace(
        since=since_s[order],
        user=case.user[order].astype(np.uint32),
        allowed=allowed.copy(),
        event_time=events,
    )
    return queue, allowed


def _at_once(case: Case) -> int:
    """How many jobs of a history run at once at most; more than there are nodes, where rows overlap."""
    begun_s, ended_s = case.start_s - case.pool.launch_s, case.end_s + case.pool.turnover_s
    return int(Spans(begun_s, ended_s, np.ones(len(case), np.int64)).levels()[1].max(initial=0))


def _parameters(case: Case, policy: BackfillPolicy) -> tuple[int, bool, int, int, float, float]:
    """Of `advance`, between the queue and the instant until which it plays."""
    return (
        policy.order.number,
        policy.keeps_promises,
        policy.promises,
        policy.examined or len(case),
        float(policy.window_s or np.inf),
        float(policy.grace_s),
    )
