"""Histories played again: freely from an instant on, or decision by decision with history put in before each."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from forerun.domains.cluster.engine.backfill import build_queue
from forerun.domains.cluster.engine.kernels import backfill as bk
from forerun.domains.cluster.engine.kernels import history as hk
from forerun.domains.cluster.engine.kernels import priority as qk
from forerun.domains.cluster.policies.backfilling.base import BackfillPolicy
from forerun.domains.cluster.policies.conservative import Conservative
from forerun.domains.cluster.policies.easy import Easy
from forerun.domains.cluster.policies.first_fit import FirstFit
from forerun.domains.cluster.policies.orders.fcfs import Fcfs
from forerun.domains.cluster.policies.orders.sjf import ShortestRequest
from forerun.domains.cluster.policies.orders.wfp3 import Wfp3
from forerun.domains.cluster.replay.cases import Case
from forerun.domains.cluster.replay.history import F64, I64
from forerun.registry import member_name

#: the policies that are tried on a log
CANDIDATES: Final[tuple[BackfillPolicy, ...]] = tuple(
    kind(order=order)
    for kind in (Easy, Conservative, FirstFit)
    for order in (Fcfs(), ShortestRequest(), Wfp3())
)
#: how many launches and turnovers late a start may be and still count as the decision's
_LATE: Final = 3.0
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

    A job that is held comes back into the queue when it was last seen to be held.
    """
    ready_s = np.maximum(np.maximum(case.eligible_s, case.submit_s), case.released_s)
    decided_s = case.start_s - case.pool.launch_s
    runs = decided_s <= case.begin_s
    ready_s = np.where(runs, np.minimum(ready_s, decided_s), ready_s)
    order = np.argsort(ready_s, kind="stable")
    queue, allowed = _queue(case, order, ready_s, stepwise=False)
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
    would have started a job one after the other count once. Who is overtaken is not in the queue from then on.
    """
    pool, count = case.pool, len(case)
    ready_s = np.maximum(case.eligible_s, case.submit_s)
    decided_s = np.maximum(case.start_s - pool.launch_s, ready_s)
    order = np.argsort(ready_s, kind="stable")
    queue, allowed = _queue(case, order, ready_s, stepwise=True)
    start_s, end_s = decided_s[order], case.end_s[order] + pool.turnover_s
    held_s = case.doubted_s[order]
    begin_s = max(from_s, case.begin_s)
    asked = _Asked(start_s, _LATE * (pool.launch_s + pool.turnover_s))
    parameters, number, total = _parameters(case, policy), policy.order.number, pool.nodes
    meta, ready_s = queue.meta, queue.submit
    by_start, by_held = np.sort(start_s), np.sort(held_s)
    begun = int(np.searchsorted(by_start, begin_s, "right"))
    held = int(np.searchsorted(by_held, begin_s, "right"))
    by_start_at = np.argsort(start_s, kind="stable")
    open_jobs = np.zeros(count, np.int64)
    here = int(np.searchsorted(ready_s, begin_s, "right"))
    open_jobs[:here] = np.arange(here)
    meta[qk.ARRIVED] = here
    put_in = (number, policy.keeps_promises, total, policy.grace_s, start_s, end_s, open_jobs)
    here = hk.restore(queue, begin_s, *put_in, here, held_s, allowed)
    while True:
        due_s = float(by_start[begun]) if begun < count else np.inf
        # a decision, too, where something started
        queue.wake[0] = min(queue.wake[0], due_s) if policy.keeps_promises else due_s
        came = int(meta[qk.ARRIVED])
        meta[qk.LOGGED] = meta[qk.EVENTS] = 0
        bk.advance(queue, *parameters, min(float(np.nextafter(due_s, np.inf)), until_s))
        decides = meta[qk.EVENTS] == 1
        now = float(queue.event_time[0]) if decides else due_s
        if now >= until_s:
            break
        differs = not decides
        if decides:
            for job in range(came, int(meta[qk.ARRIVED])):
                open_jobs[here] = job
                here += 1
            logged = int(meta[qk.LOGGED])
            chosen = queue.log_row[:logged][queue.log_gpus[:logged] > 0].tolist()
            differs = asked.decided(now, chosen)
        while begun < count and by_start[begun] <= now:
            differs |= queue.first_start[by_start_at[begun]] != now
            begun += 1
        if held < count and by_held[held] <= now:
            held = int(np.searchsorted(by_held, now, "right"))
            differs = True
        if differs:
            here = hk.restore(queue, now, *put_in, here, held_s, allowed)
    counted = (start_s > begin_s) & (start_s < until_s) & ~(held_s < start_s)
    hits = len(asked.hits & set(np.flatnonzero(counted).tolist()))
    return OneStep(hits, asked.false_starts, int(counted.sum()) - hits)


class _Asked:
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

    def decided(self, now: float, jobs: Sequence[int]) -> bool:
        """Note what a decision starts; whether history differs from it."""
        differs = False
        for job in jobs:
            differs |= self.start_s[job] != now
            if self.start_s[job] <= now + self.late_s:
                if job in self._last and job not in self.hits:
                    self.false_starts -= 1
                self.hits.add(job)
            elif job not in self._last:
                self.false_starts += 1
        self._last = set(jobs)
        return differs


def _queue(case: Case, order: I64, ready_s: F64, *, stepwise: bool) -> tuple[bk.Backfill, I64]:
    """The queue of a pool in an order, and how many jobs each user may run."""
    pool = case.pool
    extra_s = pool.launch_s + pool.turnover_s
    allowed = np.full(case.users, pool.running_per_user or _NO_USER_LIMIT)
    allowed[0] = _NO_USER_LIMIT
    queue = build_queue(
        ready_s[order],
        case.nodes[order],
        (case.end_s - case.start_s)[order] + extra_s,
        case.request_s[order] + extra_s,
        pool.nodes,
        case.windows,
        1 << 16,
    )
    events = queue.event_time[:2] if stepwise else queue.event_time  # of which the last is never used
    queue = queue._replace(
        since=case.submit_s[order], user=case.user[order], allowed=allowed.copy(), event_time=events
    )
    return queue, allowed


def _parameters(case: Case, policy: BackfillPolicy) -> tuple[int, bool, int, int, float, float]:
    """Of `advance`, between the queue and the instant until which it plays."""
    return (
        policy.order.number,
        policy.keeps_promises,
        policy.promises,
        policy.examined or len(case),
        policy.window_s or np.inf,
        policy.grace_s,
    )
