"""The compiled queue of a policy over the jobs of a case, which can be set to what history was at any instant.

Jobs are numbered in the order in which they come into the queue.
"""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np

from forerun.cluster.engine.allocator import PLACEMENTS
from forerun.cluster.engine.kernels import node_queue as nq
from forerun.cluster.engine.kernels import queue_state as qs
from forerun.cluster.engine.node_queue import NodeQueueRules
from forerun.cluster.engine.record import Record
from forerun.cluster.policies.backfilling.base import BackfillPolicy
from forerun.cluster.policies.orders.sjf import ShortestRequest
from forerun.cluster.policies.slurm_backfill import SlurmBackfill
from forerun.cluster.summary.spans import Spans
from forerun.site.cases import Case
from forerun.site.history import F64, I64


class Queue:
    """A queue in the middle of a run; where nodes are alike and have no names, by counts of GPUs.

    Parameters
    ----------
    case : the jobs.
    policy : the policy.
    order : of the jobs.
    ready_s : float64[jobs], when each comes, as in the case.
    latency_s : as of `queue_state.Terms` (default: the policy's).

    Attributes
    ----------
    first_start, first_promise : float64[jobs], when each started, and the first start that it was promised; below 0: not.
    submit : float64[jobs], when each comes.
    on_nodes : int64[nodes] by job, where it runs or ran last; empty: nowhere, or that does not matter.
    """

    def __init__(
        self,
        case: Case,
        policy: BackfillPolicy,
        order: I64,
        ready_s: F64,
        *,
        latency_s: float | None = None,
    ) -> None:
        setting, pool = case.setting, case.pool
        request_s = case.request_s[order] + case.extra_s
        jobs = setting.jobs.take(order)
        jobs = replace(jobs, submit_s=np.floor(ready_s[order]).astype(np.int64))
        limits = None if setting.limits is None else setting.limits.of(order)
        setting = replace(setting, jobs=jobs, limits=limits)
        self.counted = not pool.parts and not isinstance(policy, SlurmBackfill)
        terms = policy.terms(PLACEMENTS.index("anywhere" if self.counted else "first-fit"))
        if latency_s is not None:
            terms = terms._replace(latency_s=latency_s)
        begun_s, ended_s = case.start_s - pool.launch_s, case.end_s + pool.turnover_s
        # where rows overlap more than there are GPUs
        at_once = int(Spans(begun_s, ended_s, np.ones(len(case), np.int64)).levels()[1].max(initial=0))
        self.rules = NodeQueueRules(
            setting,
            Record(setting),
            terms,
            policy.order,
            request_s=request_s,
            at_once=at_once if self.counted else 0,
        )
        queue = self.rules.queue
        queue.ranks.since[:] = case.since_s[order]
        if isinstance(policy.order, ShortestRequest):
            queue.ranks.fixed[:] = -request_s[queue.entry_job]
        leaves_s = np.where(case.started, np.inf, case.end_s)[order]
        leavers = np.flatnonzero(np.isfinite(leaves_s))
        self.queue = self.rules.queue = queue._replace(
            submit=ready_s[order],
            work=case.run_s[order] + case.extra_s,
            leaves=leaves_s,
            leavers=leavers[np.argsort(leaves_s[leavers], kind="stable")],
        )
        self.submit, self.first_start = self.queue.submit, self.queue.first_start
        self.first_promise = self.queue.first_promise
        nowhere = np.zeros(0, np.int64)
        self.really_on = [nowhere if self.counted else case.on_nodes[row] for row in order.tolist()]
        self.on_nodes = [*self.really_on]
        self.begun = False

    def put_in(self, now: float, start_s: F64, end_s: F64, there: I64, withheld_s: F64) -> I64:
        """Set it to history at an instant; which of the jobs that were there have not ended.

        Parameters
        ----------
        now : the instant; who starts then runs, who ends then has gone.
        start_s, end_s : float64[jobs], when each really started and ended; infinite: not.
        there : those that had come and not ended.
        withheld_s : float64[jobs], from when on a waiting job is not in the queue.
        """
        queue, terms = self.queue, self.rules.terms
        if not self.begun:
            self._use(now, start_s, end_s)
        there = there[end_s[there] > now]
        runs = start_s[there] <= now
        running = there[runs]
        running = running[np.argsort(start_s[running], kind="stable")]
        waiting = there[~runs & (withheld_s[there] > now)]
        self.first_start[there] = -1.0
        queue.work[running] = end_s[running] - start_s[running]
        node = np.zeros(1, np.int64)
        on = [node if self.counted else self.really_on[job] for job in running.tolist()]
        first = np.cumsum([0, *map(len, on)]).astype(np.int64)
        seats = np.concatenate([*on, np.zeros(0, np.int64)])
        even = np.zeros(len(seats), np.int64)
        nq.set_state(queue, terms, now, running, start_s[running], first, seats, even, waiting)
        if terms.rule == qs.PLAN:
            queue.clock[qs.PLANNED_S] = now  # news brings the next plan, but for the first
        if len(waiting) and not self.begun and not self.counted:
            queue.clock[qs.WAKE_S] = now
        self.begun = True
        self.rules.coming_s = now
        nodes = queue.nodes
        for job in () if self.counted else running.tolist():
            begin = int(nodes.seat_first[job])
            self.on_nodes[job] = nodes.seat_node[begin : begin + int(nodes.seat_count[job])].copy()
        return there

    def _use(self, now: float, start_s: F64, end_s: F64) -> None:
        """Charge everybody for what they have used in history until an instant."""
        ranks, rate = self.queue.ranks, self.rules.terms.decay_per_s
        ran = np.flatnonzero(start_s < now)
        begin_s, until_s = now - start_s[ran], now - np.minimum(end_s[ran], now)
        used_s = (np.exp(-rate * until_s) - np.exp(-rate * begin_s)) / rate if rate else begin_s - until_s
        np.add.at(ranks.usage, ranks.owner[ran], self.queue.gpus[ran] * used_s)
        ranks.usage_s[:] = now

    def play(self, until_s: float) -> float:
        """Play on until an instant (not included), or a full log; the next event, infinite: there is none."""
        meta = self.queue.meta
        meta[qs.LOGGED] = meta[qs.EVENTS] = meta[qs.SEATED] = 0
        self.rules.coming_s = float(self.rules.advance_to(until_s))
        queue, count = self.queue, int(meta[qs.LOGGED])
        seats = np.append(queue.log_seats[:count], meta[qs.SEATED]).tolist()
        for at, job in enumerate(() if self.counted else queue.log_row[:count].tolist()):
            if queue.log_gpus[at]:
                self.on_nodes[job] = queue.log_node[seats[at] : seats[at + 1]].copy()
        return float(self.rules.coming_s)

    def decide(self, due_s: float, until_s: float) -> tuple[float, list[int] | None]:
        """Play to the next decision, or to an instant at which there is one; when it is, and what it starts.

        Nothing: the instant has come without a decision; at `until_s` or later: there is none.
        """
        queue, meta = self.queue, self.queue.meta
        terms = self.rules.terms
        if meta[qs.WAITING] and not (terms.rule == qs.PLAN and terms.interval_s == math.inf):
            queue.clock[qs.WAKE_S] = min(queue.clock[qs.WAKE_S], due_s)
        self.rules.queue = queue._replace(event_time=queue.event_time[:2])  # of which the last is never used
        self.play(min(float(np.nextafter(due_s, np.inf)), until_s))
        self.rules.queue = queue
        if meta[qs.EVENTS] != 1:
            return due_s, None
        logged = int(meta[qs.LOGGED])
        chosen: list[int] = queue.log_row[:logged][queue.log_gpus[:logged] > 0].tolist()
        return float(queue.event_time[0]), chosen
