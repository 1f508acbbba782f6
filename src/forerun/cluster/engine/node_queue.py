"""A whole run in a compiled queue on named nodes: its priorities, restarts, and what the record has of it."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Final

import numpy as np

from forerun.cluster.engine.allocator import PLACEMENTS, require_places, require_room, work_on_request_s
from forerun.cluster.engine.kernels import node_promises as pr
from forerun.cluster.engine.kernels import node_queue as nq
from forerun.cluster.engine.kernels import placement as pk
from forerun.cluster.engine.kernels import queue_state as qs
from forerun.cluster.engine.priority import QueueRules
from forerun.cluster.engine.queue_arrays import anywhere, blank_queue, one_entry, restarts_of
from forerun.cluster.engine.record import Record
from forerun.cluster.inputs.arrays import BOOL, F64, I64, JobLabels, Jobs
from forerun.cluster.inputs.reach import entries_of, reach_of
from forerun.cluster.inputs.setting import Setting
from forerun.cluster.policies.backfilling.preemption import Preemption
from forerun.cluster.policies.orders.fcfs import Fcfs
from forerun.cluster.policies.orders.multifactor import Multifactor, ShareTree
from forerun.cluster.policies.orders.sjf import ShortestRequest
from forerun.cluster.policy import Order, PriorityOrder

#: between two counts of priorities, where the order does not say it: Slurm's default
COUNT_S: Final = 300.0


class Shares:
    """What fair shares add to priorities, counted anew every few minutes.

    Parameters
    ----------
    order : weights and shares.
    jobs : of the run.
    ranks : have the usage, of each owner at each rate at which its jobs are charged.
    """

    def __init__(self, order: Multifactor, jobs: Jobs, ranks: qs.Ranks, decay_per_s: float) -> None:
        self.order, self.decay_per_s = order, decay_per_s
        self.tree = ShareTree(order.accounts)
        accounts = jobs.labels.account if jobs.labels is not None else ("",) * len(jobs)
        node = [self.tree.user(account, user) for account, user in zip(accounts, jobs.user, strict=True)]
        rate = order.charges(jobs.gpus, jobs.labels or JobLabels.of(len(jobs)))
        charged, owner = np.unique(np.array([node, rate]), axis=1, return_inverse=True)
        self.node, self.rate = charged[0].astype(np.int64), charged[1]
        fair, usage, usage_gpus, usage_s = np.zeros((4, len(self.rate)))
        self.ranks = ranks._replace(
            owner=owner.reshape(-1), fair=fair, usage=usage, usage_gpus=usage_gpus, usage_s=usage_s
        )
        self.due_s = -np.inf

    def count(self, now_s: float) -> None:
        """Charge everybody until an instant since which nothing has changed, and count what their shares add."""
        order, ranks = self.order, self.ranks
        for owner in np.flatnonzero(ranks.usage_gpus).tolist():
            qs.settle(ranks, owner, now_s, self.decay_per_s)
        idle = ranks.usage_gpus == 0
        gone = np.exp(-self.decay_per_s * np.maximum(now_s - ranks.usage_s, 0.0))
        gpu_s = np.where(idle, ranks.usage * gone, ranks.usage)
        tree = self.tree
        gpu_s = np.bincount(self.node, gpu_s * self.rate, len(tree)).astype(np.float64)
        factor = tree.fair_tree(gpu_s) if order.fairshare == "tree" else tree.classic(gpu_s, order.damping)
        ranks.fair[:] = order.weights.fairshare * factor[self.node]
        self.due_s = now_s + (order.count_s or COUNT_S)


class NodeQueueRules(QueueRules):
    """A whole run in a queue on named nodes; all GPUs of a type are one where the placement is `anywhere`.

    Parameters
    ----------
    setting, record : what is run; written: what happens.
    terms : the rule by which jobs start.
    order : of the queue: by submission, by the requested time, WFP3, multifactor, or by what a priority policy goes.
    preemption : which jobs may stop others (default: none may).
    request_s : float64[jobs], for how long each asks (default: as the jobs say).
    at_once : how many jobs run at once, at most (default: as many as there are GPUs).
    """

    is_rigid = True

    def __init__(
        self,
        setting: Setting,
        record: Record,
        terms: qs.Terms,
        order: Order | PriorityOrder,
        *,
        preemption: Preemption | None = None,
        request_s: F64 | None = None,
        at_once: int = 0,
    ) -> None:
        jobs, cluster, names = setting.jobs, setting.cluster, setting.cluster.node_types()
        numbers = {name: number for number, name in enumerate(dict.fromkeys(names))}
        types = np.array([numbers[name] for name in names], np.int64)
        size, limits, windows = cluster.node_gpus(), setting.limits, setting.maintenance
        self.first_gpu = np.concatenate(([0], np.cumsum(size)))
        self.counted = terms.placement == pk.ANYWHERE and terms.rule != qs.PLAN
        if self.counted:
            terms, alike = _counted(terms, len(numbers)), len(numbers) == 1
            size, types = np.bincount(types, size).astype(np.int64), np.arange(len(numbers))
            require_room(
                jobs, int(size.max()), f"the cluster has {size.max()}{'' if alike else ' of one type'}"
            )
            entries, windows = anywhere(jobs.gpus, size), tuple(replace(each, nodes=()) for each in windows)
            self.first_gpu = self.first_gpu[[names.index(name) for name in numbers]]
        elif terms.rule == qs.PLAN:
            entries = entries_of(jobs, cluster)
        else:
            entries = one_entry(reach_of(jobs, cluster))
        apart = isinstance(order, PriorityOrder) or (limits is not None and limits.by_type)
        queue = blank_queue(
            size,
            entries,
            jobs.gpus,
            np.maximum(jobs.request_s, 1.0) if request_s is None else request_s,
            windows,
            terms,
            capacity=1 << 16,
            at_once=at_once,
            types=types,
            tries=[range(len(numbers))] * len(jobs) if apart and terms.rule != qs.PLAN else None,
            limits=limits,
            origin_s=setting.origin_s,
        )
        if terms.rule <= qs.KEPT and not self.counted:
            placement = PLACEMENTS[terms.placement]
            require_places(jobs, entries.reach, placement, lambda row: _has_place(queue, terms, row))
        self.terms, self.shares, record.names_gpus = terms, None, not self.counted
        work_s = work_on_request_s(setting)
        queue.ranks.since[:] = jobs.submit_s - (0 if jobs.labels is None else jobs.labels.waited_s)
        if isinstance(order, PriorityOrder):
            queue.ranks.fixed[:] = -keys_of(order, jobs, work_s)
        elif isinstance(order, ShortestRequest):
            queue.ranks.fixed[:] = -jobs.request_s[queue.entry_job]
        elif isinstance(order, Multifactor):
            queue = self._ranked(queue, order, setting)
        if isinstance(order, Multifactor) or terms.rule == qs.PLAN:
            queue.ranks.asked[:] = asked_s(jobs)[queue.entry_job]
        by_submission = order is PriorityOrder.SUBMISSION or isinstance(order, Fcfs)
        restarts = restarts_of(
            setting,
            queue.promises.unit_first,
            by_submission=by_submission,
            preempts=preemption is not None,
        )
        if by_submission and len(restarts.follower):
            queue.ranks.fixed[:] = -jobs.submit_s[queue.entry_job]
        came_s, begins = came(jobs, setting.origin_s, self.terms.latency_s)
        self.queue = queue._replace(
            submit=came_s,
            begins=begins,
            work=work_s.copy(),
            leaves=np.where(jobs.censored, jobs.leaves_s, np.inf),
            leavers=leavers_of(jobs),
            restarts=restarts,
        )
        if preemption is not None:
            arrays = preemption.arrays(jobs.labels, np.arange(len(jobs)), len(size), len(queue.ending))
            self.queue = self.queue._replace(preemption=arrays)
        self.owner: I64 = np.full(cluster.gpus, -1, np.int64)
        if not self.counted:
            self.first_gpu = np.concatenate(([0], np.cumsum(self.queue.nodes.size)))
        super().__init__(setting, record, self.queue, work_s)

    def _ranked(self, queue: qs.Queue, order: Multifactor, setting: Setting) -> qs.Queue:
        """The queue with the priorities of an order."""
        weights, ranks, jobs, cluster = order.weights, queue.ranks, setting.jobs, setting.cluster
        decay_per_s = math.log(2.0) / order.half_life_s if order.half_life_s else 0.0
        entries = entries_of(jobs, cluster)
        apart = len(ranks.tier) == len(entries.job)  # else a job waits once
        ranks.tier[:], ranks.fixed[:] = (
            order.standing(jobs, cluster, entries) if apart else order.best_standing(jobs, cluster)
        )
        self.terms = self.terms._replace(
            age_per_s=weights.age / order.max_age_s,
            most_age=float(weights.age),
            decay_per_s=decay_per_s,
            count_s=float(order.count_s or COUNT_S),
        )
        if not weights.fairshare:
            return queue
        self.shares = Shares(order, setting.jobs, ranks, decay_per_s)
        return queue._replace(ranks=self.shares.ranks)

    shares: Shares | None

    def note(self, rows: I64) -> None:
        """Also how often jobs were stopped, and when those came that follow others."""
        super().note(rows)
        self._note_restarts()

    def close(self) -> None:
        """Also how often jobs were stopped, and when those came that follow others."""
        super().close()
        self._note_restarts()

    def _note_restarts(self) -> None:
        restarts, record = self.queue.restarts, self.record
        if not len(restarts.coming):
            return
        record.preempts[:], record.lost_gpu_s[:] = restarts.stops, restarts.lost_gpu_s
        ended, gone = self.queue.end >= 0, np.zeros(len(restarts.stops), np.bool_)
        gone[list(record.cancelled)] = True
        gone &= restarts.stops > 0
        worked = np.where(ended, self.useful_gpu_s, 0.0) + restarts.lost_gpu_s
        record.useful_gpu_s[:] = np.where(ended | gone, worked, record.useful_gpu_s)
        if not len(restarts.follower):
            return
        late, came = restarts.delay_s >= 0, restarts.came_s >= 0
        record.moved_s[late] = np.where(came, restarts.came_s, np.inf)[late]
        record.admitted[late] = np.where(came, 1, -1)[late]

    def advance_to(self, until_s: float) -> float:
        """Play on, with shares that are counted in between."""
        shares, next_s, every_s = self.shares, self.coming_s, self.terms.count_s
        if shares is None:
            return float(nq.advance(self.queue, self.terms, until_s))
        on_grid, phase_s = self.terms.rule == qs.PLAN, float(self.queue.nodes.phase[0])
        while True:
            if shares.due_s <= next_s < math.inf:
                shares.count((next_s + phase_s) // every_s * every_s - phase_s if on_grid else next_s)
                self.queue.clock[qs.RANKED_S] = -np.inf
            next_s = float(nq.advance(self.queue, self.terms, min(until_s, shares.due_s)))
            if not shares.due_s <= next_s < until_s:
                return next_s

    def _take_log(self) -> None:
        """Hand changes to the record, with the GPUs of those who start."""
        queue, meta = self.queue, self.queue.meta
        count = int(meta[qs.LOGGED])
        if not self.counted:
            most = int(queue.log_share[: meta[qs.SEATED]].sum())
            row, event, first, given = np.zeros((4, most), np.int64)
            runs = int(nq.name_gpus(queue, self.first_gpu, self.owner, row, event, first, given))
            times_s = queue.event_time[event[:runs]]
            self.record.seat_all(times_s, row[:runs].copy(), first[:runs].copy(), given[:runs].copy())
        elif len(self.first_gpu) > 1:  # all that matters is of which type they are
            starts = np.flatnonzero(queue.log_gpus[:count])
            event = np.repeat(np.arange(meta[qs.EVENTS]), np.diff(queue.event_first[: meta[qs.EVENTS] + 1]))
            self.record.seat_all(
                queue.event_time[event[starts]],
                queue.log_row[starts],
                self.first_gpu[queue.log_node[queue.log_seats[starts]]],
                queue.log_gpus[starts],
            )
        meta[qs.SEATED] = 0
        if len(queue.restarts.coming):
            stopped = np.flatnonzero(~np.isnan(queue.log_back[:count]))
            at_s = queue.event_time[
                np.searchsorted(queue.event_first[: meta[qs.EVENTS] + 1], stopped, "right") - 1
            ]
            for row, from_s, to_s in zip(
                queue.log_row[stopped].tolist(), at_s.tolist(), queue.log_back[stopped].tolist(), strict=True
            ):
                if to_s < math.inf:
                    self.record.away.append((row, from_s, to_s))
                else:
                    self.record.cancel(row, from_s)
        super()._take_log()


def _counted(terms: qs.Terms, types: int) -> qs.Terms:
    """The terms where GPUs may be anywhere."""
    if types > 1:
        return terms._replace(placement=pk.FIRST_FIT)
    return terms._replace(rule=qs.COUNTED) if terms.rule == qs.KEPT else terms


def leavers_of(jobs: Jobs) -> I64:
    """The jobs that leave the queue if they have not started, in order."""
    some = np.flatnonzero(jobs.censored)
    return some[np.argsort(jobs.leaves_s[some], kind="stable")]


def came(jobs: Jobs, origin_s: float, latency_s: float) -> tuple[F64, BOOL]:
    """When jobs come, and whether each waits for its begin time, which is a minute or whole minutes after its submission.

    One that waits for other jobs becomes eligible when the scheduler looks, so it came before that.
    """
    came_s, labels = jobs.submit_s.astype(np.float64), jobs.labels
    if labels is None:
        return came_s, np.zeros(len(jobs), np.bool_)
    later = (labels.eligible_after_s > 0) & (jobs.predecessor() < 0)
    begins: BOOL = later & ((labels.eligible_after_s % 60 == 0) | ((came_s + origin_s) % 60 == 0))
    return np.maximum(came_s - latency_s * (later & ~begins), 0.0), begins


def asked_s(jobs: Jobs) -> F64:
    """float64[jobs], when each was submitted, even if it comes later. A restart was so when it came again."""
    since = jobs.submit_s.astype(np.float64)
    return since if jobs.labels is None else since - jobs.labels.eligible_after_s


def keys_of(order: PriorityOrder, jobs: Jobs, work_s: F64) -> F64:
    """float64[jobs], by which an order that does not change puts jobs, least first."""
    return {
        PriorityOrder.SUBMISSION: np.zeros(len(jobs)),
        PriorityOrder.DURATION: work_s,
        PriorityOrder.AREA: work_s * jobs.gpus,
        PriorityOrder.DEADLINE: jobs.deadline_s.astype(np.float64),
    }[order]


def _has_place(queue: qs.Queue, terms: qs.Terms, row: int) -> bool:
    return bool(pr.could_ever(queue.nodes, queue.promises, row, terms.placement, terms.seed))
