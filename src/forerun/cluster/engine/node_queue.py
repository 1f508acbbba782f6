"""A compiled queue on named nodes: whole runs, single decisions of a view, and any state to go on from.

`blank_queue` makes one, `limited` adds limits, and `kernels.node_queue.set_state` sets it to a state.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Final, NamedTuple

import numpy as np

from forerun.cluster.engine.allocator import work_on_request_s
from forerun.cluster.engine.kernels import node_plan as npl
from forerun.cluster.engine.kernels import node_queue as nq
from forerun.cluster.engine.kernels import priority as qk
from forerun.cluster.engine.priority import QueueRules
from forerun.cluster.engine.record import Record
from forerun.cluster.inputs.arrays import BOOL, F64, I64, JobLabels, Jobs
from forerun.cluster.inputs.limits import Limits
from forerun.cluster.inputs.reach import Entries, entries_of
from forerun.cluster.inputs.setting import Setting, Window
from forerun.cluster.policies.orders.multifactor import Multifactor, ShareTree
from forerun.cluster.policies.orders.sjf import ShortestRequest
from forerun.cluster.policy import Allocation, Order, View

_WORD: Final = 64
#: between two counts of priorities, where the order does not say it: Slurm's default
COUNT_S: Final = 300.0


def words_of(sets: BOOL) -> I64:
    """Sets of nodes as rows of bits: int64[sets, words], from bool[sets, nodes]."""
    count, nodes = sets.shape
    padded = np.zeros((count, -(-max(nodes, 1) // _WORD) * _WORD), np.bool_)
    padded[:, :nodes] = sets
    return np.packbits(padded, axis=1, bitorder="little").view("<i8").astype(np.int64)


def pools_of(nodes: BOOL) -> I64:
    """int64[classes], the pool of each: classes that share nodes, directly or by others between them, are of one pool."""
    pool: I64 = np.arange(len(nodes))
    for mine in nodes.T:
        if len(sharing := np.unique(pool[mine])) > 1:
            pool[np.isin(pool, sharing)] = sharing[0]
    return np.unique(pool, return_inverse=True)[1].astype(np.int64)


def fresh_clock() -> F64:
    """The instants of a scheduler that has not decided anything."""
    clock = np.full(nq.CLOCK, np.inf)
    clock[[nq.PLANNED_S, nq.RANKED_S, nq.TRIED_S]] = -np.inf
    clock[nq.NEWS] = 0.0
    return clock


def blank_queue(
    size: I64,
    entries: Entries,
    gpus: I64,
    request_s: F64,
    windows: Sequence[Window],
    *,
    tested: int,
    capacity: int,
) -> nq.Queue:
    """A queue before its first arrival, in which nothing limits or ranks jobs but their submission.

    Parameters
    ----------
    size : int64[nodes], GPUs of each node.
    entries : which nodes each job may use in each of its partitions, and how it spreads over them.
    gpus, request_s : of the jobs.
    windows : maintenance.
    tested : how many waiting jobs a plan looks at, at most.
    capacity : entries of the log, at least.
    """
    jobs, total, reach = len(gpus), int(size.sum()), entries.reach
    several, begin = len(reach.kind), entries.first[:-1]
    levels = words_of(size[None, :] >= np.arange(int(size.max()) + 3)[:, None])  # but one: none has so many
    levels[-1] = levels[0]
    planned = min(tested, several)
    slots, words = 2 * (planned + len(windows)) + 4, levels.shape[1]
    pool = pools_of(reach.nodes)
    pools, sets = int(pool.max(initial=0)) + 1, words_of(reach.nodes)
    capacity = max(capacity, 4 * total + jobs + 256)
    marks = {at_s for each in windows for at_s in (each.announced_s, each.to_s)}
    none: I64 = np.zeros(0, np.int64)
    columns = {name: np.zeros(several) for name in ("fixed", "priority")}
    nodes = npl.Nodes(
        size=size,
        free=size.copy(),
        levels=levels,
        reach=sets,
        pool=pool,
        from_word=np.argmax(sets != 0, axis=1).astype(np.int64),
        to_word=(words - np.argmax(sets[:, ::-1] != 0, axis=1)).astype(np.int64),
        kind=reach.kind[begin],
        wide=reach.count[begin],
        each=reach.each[begin],
        gpus=gpus,
        request=request_s,
        runs=np.zeros(total + 1, np.int64),
        run_end=np.zeros(total + 1),
        pool_runs=np.zeros((pools, total + 1), np.int64),
        pool_count=np.zeros(pools, np.int64),
        place=np.zeros(jobs, np.int64),
        seat_first=np.zeros(jobs, np.int64),
        seat_count=np.zeros(jobs, np.int64),
        seat_node=np.zeros(2 * total + 2 * len(size), np.int64),
        seat_gpus=np.zeros(2 * total + 2 * len(size), np.int64),
        starts=np.zeros(total + 1, np.int64),
        horizon=np.full(1, np.inf),
        slots=np.ones(pools, np.int64),
        slot_s=np.zeros((pools, slots)),
        slot_busy=np.zeros((pools, slots, words), np.int64),
        beyond=np.zeros(words, np.int64),
        later_free=size.copy(),
        usable=np.zeros(words, np.int64),
        ready=np.zeros(words, np.int64),
        chosen=np.zeros(words, np.int64),
        meta=np.zeros(npl.META, np.int64),
    )
    return nq.Queue(
        submit=np.zeros(jobs),
        work=np.zeros(jobs),
        gpus=gpus,
        first_start=np.full(jobs, -1.0),
        end=np.full(jobs, -1.0),
        entry_first=entries.first,
        entry_job=entries.job,
        entry_kind=reach.kind,
        entry_wide=reach.count,
        entry_each=reach.each,
        line=reach.line,
        nodes=nodes,
        limits=nq.Limits(np.zeros(jobs + 1, np.int64), none, none, none, none.copy(), none.copy()),
        ranks=nq.Ranks(
            tier=np.zeros(several, np.int64),
            since=np.zeros(jobs),
            owner=np.zeros(jobs, np.int64),
            fair=np.zeros(1),
            usage=np.zeros(1),
            usage_gpus=np.zeros(1),
            usage_s=np.zeros(1),
            **columns,
        ),
        ending=np.zeros(total + 1, np.int64),
        end_key=np.zeros(total + 1),
        waiting=np.zeros(several + 1, np.int64),
        held_up=np.zeros(len(reach.lines), np.bool_),
        line_nodes=words_of(reach.lines),
        shut=np.zeros(words, np.int64),
        window_from=np.array([each.from_s for each in windows], np.float64),
        window_to=np.array([each.to_s for each in windows], np.float64),
        window_announced=np.array([each.announced_s for each in windows], np.float64),
        window_nodes=words_of(np.array([away(each, size) for each in windows]).reshape(-1, len(size))),
        marks=np.array(sorted(marks), np.float64),
        clock=fresh_clock(),
        meta=np.zeros(nq.PLACES, np.int64),
        log_row=np.zeros(capacity, np.int64),
        log_gpus=np.zeros(capacity, np.int64),
        log_seats=np.zeros(capacity, np.int64),
        log_node=np.zeros(capacity + len(size), np.int64),
        event_time=np.zeros(capacity),
        event_pending=np.zeros(capacity, np.int64),
        event_first=np.zeros(capacity + 1, np.int64),
    )


def limited(queue: nq.Queue, limits: Limits, rows: Sequence[int]) -> nq.Queue:
    """The queue with limits, except those that are the nodes of a partition, which count as nodes here.

    Where a job may run on several GPU types, the limits on the first of them count.

    Parameters
    ----------
    rows : the number of each job in the limits.
    """
    of_jobs = [[group for group in limits.groups_of[0][row] if group not in limits.planned] for row in rows]
    first = np.cumsum([0, *map(len, of_jobs)]).astype(np.int64)
    groups = np.array([group for of_job in of_jobs for group in of_job], np.int64)
    used = np.zeros(len(limits.gpus), np.int64)
    return queue._replace(limits=nq.Limits(first, groups, limits.gpus, limits.jobs, used, used.copy()))


def away(window: Window, size: I64) -> BOOL:
    """bool[nodes]: the nodes that a window takes: those that it names, else the last ones with so many GPUs."""
    named = np.zeros(len(size), np.bool_)
    if window.nodes:
        named[list(window.nodes)] = True
        return named
    behind = np.cumsum(size[::-1])[::-1] - size
    return behind < window.gpus


class Shares:
    """What fair shares add to priorities, counted anew every few minutes.

    Parameters
    ----------
    order : weights and shares.
    jobs : of the run.
    ranks : have the usage, of each owner at each rate at which its jobs are charged.
    """

    def __init__(self, order: Multifactor, jobs: Jobs, ranks: nq.Ranks, decay_per_s: float) -> None:
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
        """Charge everybody until now, and count what their shares add."""
        order, ranks = self.order, self.ranks
        for owner in np.flatnonzero(ranks.usage_gpus).tolist():
            nq.settle(ranks, owner, now_s, self.decay_per_s)
        idle = ranks.usage_gpus == 0
        gone = np.exp(-self.decay_per_s * (now_s - ranks.usage_s))
        gpu_s = np.where(idle, ranks.usage * gone, ranks.usage)
        tree = self.tree
        gpu_s = np.bincount(self.node, gpu_s * self.rate, len(tree)).astype(np.float64)
        factor = tree.fair_tree(gpu_s) if order.fairshare == "tree" else tree.classic(gpu_s, order.damping)
        ranks.fair[:] = order.weights.fairshare * factor[self.node]
        self.due_s = now_s + (order.count_s or COUNT_S)


class NodeQueueRules(QueueRules):
    """A whole run of Slurm's scheduler.

    Parameters
    ----------
    setting, record : what is run; written: what happens.
    terms : how far and how often it plans.
    order : of the queue: by submission, by the requested time, or multifactor.
    """

    is_rigid = True

    def __init__(self, setting: Setting, record: Record, terms: nq.Terms, order: Order) -> None:
        jobs, size = setting.jobs, setting.cluster.node_gpus()
        entries = entries_of(jobs, setting.cluster)
        queue = blank_queue(
            size,
            entries,
            jobs.gpus,
            np.maximum(jobs.request_s, 1.0),
            setting.maintenance,
            tested=terms.tested,
            capacity=1 << 16,
        )
        if setting.limits is not None:
            queue = limited(queue, setting.limits, range(len(jobs)))
        self.terms, self.shares, record.names_gpus = terms, None, True
        if isinstance(order, ShortestRequest):
            queue.ranks.fixed[:] = -jobs.request_s[entries.job]
        elif isinstance(order, Multifactor):
            queue = self._ranked(queue, order, setting, entries)
        work_s = work_on_request_s(setting)
        self.queue = queue._replace(submit=jobs.submit_s.astype(np.float64), work=work_s)
        self.owner: I64 = np.full(int(size.sum()), -1, np.int64)
        self.first_gpu = np.concatenate(([0], np.cumsum(size)))
        super().__init__(setting, record, self.queue, work_s)

    def _ranked(self, queue: nq.Queue, order: Multifactor, setting: Setting, entries: Entries) -> nq.Queue:
        """The queue with the priorities of an order."""
        weights, ranks = order.weights, queue.ranks
        decay_per_s = math.log(2.0) / order.half_life_s if order.half_life_s else 0.0
        ranks.tier[:], ranks.fixed[:] = order.standing(setting.jobs, setting.cluster, entries)
        ranks.since[:] = setting.jobs.submit_s
        self.terms = self.terms._replace(
            age_per_s=weights.age / order.max_age_s,
            most_age=float(weights.age),
            decay_per_s=decay_per_s,
            count_s=order.count_s or COUNT_S,
        )
        if not weights.fairshare:
            return queue
        self.shares = Shares(order, setting.jobs, ranks, decay_per_s)
        return queue._replace(ranks=self.shares.ranks)

    shares: Shares | None

    def advance_to(self, until_s: float) -> float:
        """Play on, with shares that are counted in between."""
        shares, next_s = self.shares, self.coming_s
        if shares is None:
            return float(nq.advance(self.queue, self.terms, until_s))
        while True:
            if next_s >= shares.due_s:
                shares.count(next_s)
                self.queue.clock[nq.RANKED_S] = -np.inf
            next_s = float(nq.advance(self.queue, self.terms, min(until_s, shares.due_s)))
            if not shares.due_s <= next_s < until_s:
                return next_s

    def _take_log(self) -> None:
        """Hand changes to the record, with the GPUs of those who start."""
        queue = self.queue
        most = int(queue.log_gpus[: queue.meta[qk.LOGGED]].sum()) + len(self.owner)
        row, event, first, count = np.zeros((4, most), np.int64)
        runs = int(nq.name_gpus(queue, self.first_gpu, self.owner, row, event, first, count))
        times_s = queue.event_time[event[:runs]]
        self.record.seat_all(times_s, row[:runs].copy(), first[:runs].copy(), count[:runs].copy())
        queue.meta[nq.SEATED] = 0
        super()._take_log()


class Ran(NamedTuple):
    """A job that runs: its number, what it asks for, since when and on which nodes it runs."""

    job: int
    gpus: int
    requested_s: float
    start_s: float
    nodes: tuple[int, ...]


def decided(
    view: View,
    terms: nq.Terms,
    waiting: I64,
    fresh: BOOL,
    clock: F64,
    *,
    ended: bool,
    gone: Sequence[Ran] = (),
) -> Allocation:
    """What the scheduler answers to a view.

    Parameters
    ----------
    view : who runs and waits, and where.
    terms : how far and how often it plans.
    waiting : positions of the waiting jobs, in their order.
    fresh : bool[count], which jobs came now.
    clock : as of `node_queue.Queue`, changed in place.
    ended : whether a job ended, or maintenance changed.
    gone : the jobs that ended now: what is due at a second comes before what happens within it.
    """
    assert view.entries is not None
    delayed = terms.latency_s > 0
    gone = gone if delayed else ()
    jobs = np.append(view.job, np.array([one.job for one in gone], np.int64))
    queue = blank_queue(
        view.node_gpus,
        view.entries.of(jobs),
        np.append(view.gpus, np.array([one.gpus for one in gone], np.int64)),
        np.append(view.requested_s, [one.requested_s for one in gone]),
        view.windows,
        tested=terms.tested,
        capacity=0,
    )
    if view.limits is not None:
        queue = limited(queue, view.limits, jobs.tolist())
    running = np.flatnonzero(view.held > 0)
    on = [sorted(view.on_nodes(at)) for at in running.tolist()] + [list(one.nodes) for one in gone]
    seats = np.array([node for nodes in on for node in nodes], np.int64)
    begin = np.cumsum([0, *map(len, on)]).astype(np.int64)
    start_s = np.append(view.changed_s[running], [one.start_s for one in gone])
    running = np.append(running, np.arange(view.count, len(jobs)))
    nq.set_state(queue, terms, view.now_s, running, start_s, begin, seats, waiting)
    if delayed:
        waiting = waiting[~fresh[waiting]]
    in_order = np.concatenate(
        [np.arange(*queue.entry_first[[at, at + 1]]) for at in waiting.tolist()] or [waiting]
    )
    queue.waiting[: len(in_order)] = in_order
    queue.meta[nq.WAITING], queue.meta[nq.QUEUED] = len(in_order), len(waiting)
    queue.clock[:] = clock
    news = nq.ENDED * ended | nq.CAME * bool(fresh.any())
    nq.decide(queue, terms, view.now_s, 0 if delayed else news)
    if delayed:
        nq.note(queue, terms, view.now_s, news)
    nodes, given, on_nodes = queue.nodes, view.held.copy(), dict[int, dict[int, int]]()
    for at in nodes.starts[: nodes.meta[npl.STARTS]].tolist():
        first, count = int(nodes.seat_first[at]), int(nodes.seat_count[at])
        given[at] = view.gpus[at]
        left = int(view.gpus[at])
        for turn, node in enumerate(nodes.seat_node[first : first + count].tolist()):
            each = int(nodes.each[at])
            on_nodes.setdefault(at, {})[node] = min(
                left, each if each != npl.WHOLE else -(-left // (count - turn))
            )
            left -= on_nodes[at][node]
    clock[:] = queue.clock
    return Allocation(given, nodes=on_nodes, wake_s=float(min(clock[nq.TRY_S], clock[nq.PLAN_S])))
