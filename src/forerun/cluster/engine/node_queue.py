"""A compiled queue on named nodes: whole runs, single decisions of a view, and any state to go on from.

`blank_queue` makes one; `kernels.node_queue.set_state` sets it to a state, from which `decide` says whom a policy would
start, and `advance` plays on.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final, NamedTuple

import numpy as np

from forerun.cluster.engine.allocator import PLACEMENTS, require_places, require_room, work_on_request_s
from forerun.cluster.engine.kernels import linked_profile as lp
from forerun.cluster.engine.kernels import node_plan as npl
from forerun.cluster.engine.kernels import node_profile as pf
from forerun.cluster.engine.kernels import node_promises as pr
from forerun.cluster.engine.kernels import node_queue as nq
from forerun.cluster.engine.kernels import placement as pk
from forerun.cluster.engine.kernels import preemption as pre
from forerun.cluster.engine.kernels import queue_state as qs
from forerun.cluster.engine.kernels import slurm_rule
from forerun.cluster.engine.priority import QueueRules
from forerun.cluster.engine.record import Record
from forerun.cluster.inputs.arrays import BOOL, F64, I64, JobLabels, Jobs
from forerun.cluster.inputs.limits import Limits
from forerun.cluster.inputs.reach import WHOLE_NODE, Entries, Reach, entries_of, reach_of
from forerun.cluster.inputs.setting import Setting, Window
from forerun.cluster.policies.backfilling.preemption import Preemption
from forerun.cluster.policies.orders.fcfs import Fcfs
from forerun.cluster.policies.orders.multifactor import Multifactor, ShareTree
from forerun.cluster.policies.orders.sjf import ShortestRequest
from forerun.cluster.policy import Allocation, Order, PriorityOrder, View

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
    clock = np.full(qs.CLOCK, np.inf)
    clock[[qs.PLANNED_S, qs.RANKED_S, qs.TRIED_S]] = -np.inf
    clock[qs.NEWS] = 0.0
    return clock


def one_entry(reach: Reach) -> Entries:
    """Entries of jobs that wait once each, whatever their partitions."""
    return Entries(np.arange(len(reach.kind) + 1), reach, ())


def anywhere(gpus: I64, of_types: I64) -> Entries:
    """Entries of jobs whose GPUs may be anywhere: all GPUs of a type are a node. of_types: how many these are."""
    one, everywhere = np.ones(len(gpus), np.int64), np.ones((1, len(of_types)), np.bool_)
    return one_entry(Reach(everywhere, 0 * one, one, one, gpus.copy(), 0 * one, everywhere))


@dataclass(frozen=True, slots=True)
class _Classes:
    """Which nodes jobs may use, by the GPU types that they try one after another.

    nodes : bool[classes, nodes]. asks : int64[jobs], the class that each job tries first. other, type_of : int64[classes],
    the class that is tried next (-1: none), and the GPU type of each.
    """

    nodes: BOOL
    asks: I64
    other: I64
    type_of: I64

    @classmethod
    def whole(cls, reach: Reach, first: I64) -> _Classes:
        """The classes of entries as they are, whatever the GPU types of nodes. first: the first entry of each job."""
        none = np.zeros(len(reach.nodes), np.int64)
        return cls(reach.nodes, reach.kind[first], none - 1, none)

    @classmethod
    def of(cls, reach: Reach, types: I64, tries: Sequence[Sequence[int]]) -> _Classes:
        """The classes of a reach. types: of the nodes. tries: by job, the GPU types in their order."""
        rows, other, type_of = list[BOOL](), list[int](), list[int]()
        known: dict[tuple[int, tuple[int, ...]], int] = {}

        def chain(kind: int, order: tuple[int, ...]) -> int:
            if (kind, order) not in known:
                following = chain(kind, order[1:]) if len(order) > 1 else -1
                mine = reach.nodes[kind]
                rows.append(mine & (types == order[0]) if order else mine)
                other.append(following)
                type_of.append(order[0] if order else int(types[mine].min(initial=0)))
                known[kind, order] = len(rows) - 1
            return known[kind, order]

        asks = [chain(kind, tuple(order)) for kind, order in zip(reach.kind.tolist(), tries, strict=True)]
        if not rows:
            rows, other, type_of = [np.ones(len(types), np.bool_)], [-1], [0]
        numbers = (np.array(column, np.int64) for column in (asks, other, type_of))
        return cls(np.array(rows), *numbers)


def blank_queue(
    size: I64,
    entries: Entries,
    gpus: I64,
    request_s: F64,
    windows: Sequence[Window],
    terms: qs.Terms,
    *,
    capacity: int = 0,
    at_once: int = 0,
    types: I64 | None = None,
    tries: Sequence[Sequence[int]] | None = None,
    limits: Limits | None = None,
    origin_s: float = 0.0,
) -> qs.Queue:
    """A queue before its first arrival, in which nothing ranks jobs but their submission.

    Parameters
    ----------
    size : int64[nodes], GPUs of each node.
    entries : which nodes each job may use, and how it spreads over them; by Slurm's rule in each of its partitions.
    gpus, request_s : of the jobs.
    windows : maintenance.
    terms : by which it is played.
    capacity : entries of the log, at least.
    at_once : how many jobs run at once, at most (default: as many as there are GPUs).
    types : int64[nodes], the number of the GPU type of each node (default: all of one).
    tries : by job, the GPU types that it tries one after another (default: nodes of all types may be one job's).
    limits : of the jobs, by row (default: none).
    origin_s : instant 0 on the clock to whose multiples Slurm's plans round (default: it is one).
    """
    size, gpus, request_s = np.array(size), np.array(gpus), np.array(request_s)  # not read-only
    jobs, total, plans = len(gpus), int(size.sum()), terms.rule == qs.PLAN
    at_once = max(at_once, total)
    types = np.zeros(len(size), np.int64) if types is None else types
    reach, begin = entries.reach.of(entries.first[:-1]), entries.first[:-1]
    classes = _Classes.whole(entries.reach, begin) if tries is None else _Classes.of(reach, types, tries)
    per_node = size if terms.placement == pk.BUDDY else np.ones(len(size), np.int64)
    unit_first = np.concatenate(([0], np.cumsum(per_node))).astype(np.int64)
    units = np.ones(total, np.int64) if len(per_node) < unit_first[-1] else size
    capacity = max(capacity, 4 * at_once + jobs + 256)
    windows = sorted(windows, key=lambda each: each.announced_s)
    by_end = sorted(range(len(windows)), key=lambda at: windows[at].to_s)
    marks = {at_s for each in windows for at_s in (each.announced_s, each.to_s)}
    if not plans:
        marks |= {each.from_s for each in windows}
    taken = np.array([away(each, size, None if plans else types) for each in windows], np.int64).reshape(
        -1, len(size)
    )
    mine = np.repeat(classes.nodes, per_node, axis=1)
    pool = pools_of(_partitions(entries.reach) if plans else mine)
    free = _nodes(units, mine, pool, classes, reach, gpus, request_s, at_once)
    if plans:
        free.phase[0] = origin_s % (60.0 * max(terms.resolution_s, 1.0))
        free = _with_plan(free, min(terms.tested, len(entries.reach.kind)) + len(windows))
    several = len(entries.reach.kind)
    everywhere = terms.rule == qs.IN_ORDER and reach.is_everywhere
    return qs.Queue(
        submit=np.zeros(jobs),
        work=np.zeros(jobs),
        gpus=gpus,
        begins=np.zeros(jobs, np.bool_),
        leaves=np.full(jobs, np.inf),
        leavers=np.zeros(0, np.int64),
        restarts=_no_restarts(jobs),
        preemption=_no_preemption(),
        first_start=np.full(jobs, -1.0),
        end=np.full(jobs, -1.0),
        first_promise=np.full(jobs, -1.0),
        entry_first=entries.first,
        entry_job=entries.job,
        entry_kind=entries.reach.kind,
        entry_wide=entries.reach.count,
        entry_each=entries.reach.each,
        line=0 * entries.reach.line if everywhere else entries.reach.line,
        nodes=free,
        promises=_promises(terms, reach, classes, size, unit_first, free, len(windows)),
        linked=_linked(gpus, request_s, len(windows), at_once, total if terms.rule == qs.COUNTED else 0),
        limits=_limits(limits, classes, gpus),
        ranks=qs.Ranks(
            tier=np.zeros(several, np.int64),
            fixed=np.zeros(several),
            asked=np.zeros(several),
            since=np.zeros(jobs),
            owner=np.zeros(jobs, np.int64),
            fair=np.zeros(1),
            usage=np.zeros(1),
            usage_gpus=np.zeros(1),
            usage_s=np.zeros(1),
            priority=np.zeros(several),
        ),
        ending=np.zeros(at_once + 1, np.int64),
        end_key=np.zeros(at_once + 1),
        waiting=np.zeros(several + 1, np.int64),
        held_up=np.zeros(len(reach.lines), np.bool_),
        line_nodes=words_of(reach.lines),
        shut=np.zeros(free.levels.shape[1], np.int64),
        window_from=np.array([each.from_s for each in windows], np.float64),
        window_to=np.array([each.to_s for each in windows], np.float64),
        window_announced=np.array([each.announced_s for each in windows], np.float64),
        window_until=np.array([math.inf if each.is_failure else each.to_s for each in windows], np.float64),
        window_nodes=words_of(taken > 0),
        window_gpus=_window_gpus(taken, per_node, units),
        failures=np.array([at for at in by_end if windows[at].is_failure], np.int64),
        marks=np.array(sorted(marks), np.float64),
        clock=fresh_clock(),
        meta=np.zeros(qs.PLACES, np.int64),
        log_row=np.zeros(capacity, np.int64),
        log_gpus=np.zeros(capacity, np.int64),
        log_back=np.zeros(capacity),
        log_seats=np.zeros(capacity, np.int64),
        log_node=np.zeros(capacity + len(units), np.int64),
        log_share=np.zeros(capacity + len(units), np.int64),
        event_time=np.zeros(capacity),
        event_pending=np.zeros(capacity, np.int64),
        event_first=np.zeros(capacity + 1, np.int64),
    )


def _no_restarts(jobs: int) -> qs.Restarts:
    """No job comes after another, and no node fails."""
    none, never = np.zeros(0, np.int64), np.zeros(0)
    return qs.Restarts(
        follower=none,
        sibling=none,
        delay_s=never,
        place=none,
        came_s=np.full(jobs, -1.0),
        done_s=np.zeros(jobs),
        lost_gpu_s=np.zeros(jobs),
        stops=np.zeros(jobs, np.int64),
        coming=none,
        coming_s=never,
        fails_s=never,
        again_s=never,
        fails_nodes=np.zeros((0, 1), np.int64),
    )


def _no_preemption() -> qs.Preemption:
    """No job stops another."""
    none, never = np.zeros(0, np.int64), np.zeros(0)
    return qs.Preemption(
        none, none, np.zeros((0, 0), np.int64), never, never, never, never, none, never, never, none, none
    )


def restarts_of(setting: Setting, unit_first: I64, *, by_submission: bool, preempts: bool) -> qs.Restarts:
    """Who comes after others, and what nodes fail.

    Parameters
    ----------
    setting : jobs and failures.
    unit_first : the first unit of each node, and one after the last; see `kernels.node_promises`.
    by_submission : whether the queue is in the order of submission.
    preempts : whether jobs stop others.
    """
    jobs, failures, before = setting.jobs, setting.failures, setting.jobs.predecessor()
    restarts, after = _no_restarts(len(jobs)), before >= 0
    if after.any() and jobs.labels is not None:
        follower, sibling = np.full((2, len(jobs)), -1)
        for row in np.flatnonzero(after)[::-1].tolist():
            sibling[row], follower[before[row]] = follower[before[row]], row
        place = np.where(jobs.labels.attempt > 1, before, qs.OWN)  # a restart keeps the place of its job
        restarts = restarts._replace(
            follower=follower,
            sibling=sibling,
            delay_s=np.where(after, jobs.labels.after_delay_s, -1.0),
            place=place if by_submission else np.full(len(jobs), qs.AS_IT_IS),
        )
    if failures:
        down = np.zeros((len(failures), len(unit_first) - 1), np.bool_)
        for at, failure in enumerate(failures):
            down[at, list(failure.nodes)] = True
        restarts = restarts._replace(
            fails_s=np.array([each.at_s for each in failures], np.float64),
            again_s=np.array([each.requeue_s for each in failures], np.float64),
            fails_nodes=words_of(np.repeat(down, np.diff(unit_first), axis=1)),
        )
    return _that_come(restarts) if failures or preempts or after.any() else restarts


def _that_come(restarts: qs.Restarts) -> qs.Restarts:
    """The same with space for jobs that come at another instant than their submission."""
    size = len(restarts.came_s) + 1
    return restarts._replace(coming=np.zeros(size, np.int64), coming_s=np.zeros(size))


def _partitions(reach: Reach) -> BOOL:
    """bool[classes, nodes], the nodes of the partition of each class, of whatever type."""
    nodes = reach.nodes.copy()
    nodes[reach.kind] = reach.lines[reach.line]
    return nodes


def _nodes(
    size: I64, mine: BOOL, pool: I64, classes: _Classes, reach: Reach, gpus: I64, request_s: F64, at_once: int
) -> npl.Nodes:
    """The nodes, or units, before anything runs. mine: bool[classes, units], those of each class; pool: of each."""
    jobs = len(gpus)
    levels = words_of(size[None, :] >= np.arange(int(size.max()) + 3)[:, None])  # but one: none has so many
    levels[-1] = levels[0]
    words, pools, sets = levels.shape[1], int(pool.max(initial=0)) + 1, words_of(mine)
    return npl.Nodes(
        size=size,
        free=size.copy(),
        levels=levels,
        reach=sets,
        pool=pool,
        from_word=np.argmax(sets != 0, axis=1).astype(np.int64),
        to_word=(words - np.argmax(sets[:, ::-1] != 0, axis=1)).astype(np.int64),
        kind=classes.asks.copy(),
        wide=reach.count,
        each=reach.each,
        gpus=gpus,
        request=request_s,
        runs=np.zeros(at_once + 1, np.int64),
        run_end=np.zeros(at_once + 1),
        pool_runs=np.zeros((pools, at_once + 1), np.int64),
        pool_count=np.zeros(pools, np.int64),
        place=np.zeros(jobs, np.int64),
        seat_first=np.zeros(jobs, np.int64),
        seat_count=np.zeros(jobs, np.int64),
        seat_node=np.zeros(2 * at_once + 2 * len(size), np.int64),
        seat_gpus=np.zeros(2 * at_once + 2 * len(size), np.int64),
        starts=np.zeros(at_once + 1, np.int64),
        horizon=np.full(1, np.inf),
        phase=np.zeros(1),
        slots=np.ones(pools, np.int64),
        slot_s=np.zeros((pools, 1)),
        slot_busy=np.zeros((pools, 1, words), np.int64),
        beyond=np.zeros(words, np.int64),
        later_free=size.copy(),
        usable=np.zeros(words, np.int64),
        ready=np.zeros(words, np.int64),
        chosen=np.zeros(words, np.int64),
        meta=np.zeros(npl.META, np.int64),
    )


def _with_plan(free: npl.Nodes, planned: int) -> npl.Nodes:
    """The nodes with arrays for a plan of so many jobs and windows."""
    pools, words = len(free.slots), free.levels.shape[1]
    slots = 2 * planned + 4
    return free._replace(slot_s=np.zeros((pools, slots)), slot_busy=np.zeros((pools, slots, words), np.int64))


def _promises(
    terms: qs.Terms,
    reach: Reach,
    classes: _Classes,
    size: I64,
    unit_first: I64,
    free: npl.Nodes,
    windows: int,
) -> pr.Promises:
    """The arrays of promises, none of which is made."""
    jobs, units, total = len(reach.kind), len(free.size), int(size.sum())
    largest = np.array([int(size[mine].max(initial=0)) for mine in classes.nodes], np.int64)
    fewest = int(largest[largest > 0].min(initial=total or 1))
    wide = np.where(reach.said > 0, reach.said, -(-free.gpus // fewest))
    if terms.placement in (pk.CONSOLIDATED, pk.BUDDY):
        alone = (reach.each == WHOLE_NODE) * reach.count * int(largest.max(initial=0))
        wide = np.minimum(np.maximum(free.gpus, alone), units)
    promised = jobs if terms.rule == qs.KEPT else min(terms.promises, jobs)
    seats = int(wide.sum()) if terms.rule == qs.KEPT else promised * int(wide.max(initial=1))
    run = len(free.runs) - 1  # at once, of a log perhaps more than there are GPUs
    steps = 2 * (run + seats + windows * units) + 8 + units
    first = np.argmax(classes.nodes, axis=1).astype(np.int64)
    last = classes.nodes.shape[1] - np.argmax(classes.nodes[:, ::-1], axis=1)
    made = pr.Promises(
        profile=pf.Profile(
            head=np.zeros(units, np.int64),
            time=np.zeros(steps),
            free=np.zeros(steps, np.int64),
            after=np.zeros(steps, np.int64),
            meta=np.zeros(2, np.int64),
        ),
        whole=free.size.copy(),
        held=np.zeros(units, np.int64),
        unit_first=unit_first,
        node_size=size,
        largest=largest,
        other=classes.other,
        from_node=first,
        to_node=last.astype(np.int64),
        asks=classes.asks,
        said=reach.said,
        at=np.full(jobs, pr.NO_PROMISE),
        belief=np.zeros(jobs),
        first=np.full(jobs, pf.NONE),
        unit=np.zeros(seats, np.int64),
        gpus=np.zeros(seats, np.int64),
        after=np.zeros(seats, np.int64),
        given=np.ones(len(free.slots), np.int64),
        raised=np.ones(len(free.slots), np.int64),
        closed=np.zeros(len(largest), np.int64),
        class_free=np.zeros(len(largest), np.int64),
        chosen=np.zeros(promised + 1, np.int64),
        pick_unit=np.zeros(units, np.int64),
        pick_gpus=np.zeros(units, np.int64),
        free=np.zeros(len(size), np.int64),
        size=np.zeros(len(size), np.int64),
        owner=np.zeros(units, np.int64),
        node=np.zeros(len(size) + 1, np.int64),
        share=np.zeros(len(size) + 1, np.int64),
        key=np.zeros(len(size)),
        draws=np.zeros(1, np.int64),
        meta=np.zeros(3, np.int64),
    )
    pr.clear_promises(free, made)
    return made


def _linked(gpus: I64, request_s: F64, windows: int, at_once: int, total: int) -> lp.Linked:
    """The profile of so many GPUs that are alike, all of them free; 0: it is not used."""
    jobs = len(gpus) if total else 0
    # each running job ends once, each promise and window begins and ends
    steps = at_once + 2 * jobs + 2 * windows + 17 if total else 2
    # of the counts that jobs ask for, some between which equally many jobs are
    some = np.quantile(gpus, np.linspace(0, 1, lp.MOST_LEVELS), method="lower") if jobs else np.ones(1)
    levels = np.unique(some).astype(np.int64)
    level = (np.searchsorted(levels, np.arange(levels[-1] + 1), "right") - 1).astype(np.int64)
    bits = (request_s if jobs else np.ones(1)).view(np.int64)  # greater where the number is
    fine = max(int(bits.max() - bits.min()).bit_length() - lp.CLASSES.bit_length() + 1, 0)
    kind = np.minimum((bits >> fine) - (bits.min() >> fine), lp.CLASSES - 1)
    linked = lp.Linked(
        time=np.zeros(steps),
        free=np.zeros(steps, np.int64),
        before=np.zeros(steps, np.uint32),
        after=np.zeros(steps, np.uint32),
        refs=np.zeros(steps, np.uint32),
        begins=np.zeros(jobs, np.uint32),
        ends=np.zeros(jobs, np.uint32),
        slot=(level[gpus[:jobs]] * lp.WIDTH + kind[:jobs]).astype(np.uint32),
        level=level,
        gpus=levels,
        soonest=np.zeros(len(levels) * lp.WIDTH),
        link=np.zeros(lp.LINKS, np.uint32),
        meta=np.zeros(lp.PLACES, np.int64),
    )
    linked.meta[lp.FINE], linked.meta[lp.SHORT] = fine, bits.min() >> fine
    if total:
        lp.start_over(linked, -math.inf, total)
    return linked


def _limits(limits: Limits | None, classes: _Classes, gpus: I64) -> qs.Limits:
    """Limits as arrays. gpus: of each job."""
    jobs = len(gpus)
    types = int(classes.type_of.max(initial=0)) + 1
    none: I64 = np.zeros(0, np.int64)
    if limits is None:
        first = np.zeros((types, jobs + 1), np.int64)
        return qs.Limits(classes.type_of, first, *(*([none] * 9), gpus))
    counted = limits.groups_of[:types]
    lengths = np.array([[len(groups) for groups in of_type] for of_type in counted], np.int64)
    ends = np.cumsum(lengths).reshape(lengths.shape)
    first = np.concatenate((ends[:, :1] - lengths[:, :1], ends), axis=1)
    groups = np.array([group for of_type in counted for of_job in of_type for group in of_job], np.int64)
    used = np.zeros(len(limits.gpus), np.int64)
    return qs.Limits(
        type_of=classes.type_of,
        first=first,
        groups=groups,
        **{
            name: np.array(getattr(limits, field), np.int64)
            for name, field in (
                ("most_gpus", "gpus"),
                ("most_jobs", "jobs"),
                ("own_gpus", "own_gpus"),
                ("pool", "pool"),
                ("pool_gpus", "pool_gpus"),
            )
        },
        gpus=used,
        jobs=used.copy(),
        pooled=np.zeros(len(limits.pool_gpus), np.int64),
        asks=gpus if limits.asks is None else limits.asks,
    )


def away(window: Window, size: I64, types: I64 | None = None) -> I64:
    """int64[nodes]: the GPUs that a window takes of each node: those of the nodes that it names, else the last ones.

    types: int64[nodes], the GPU type of each, where a window says how many it takes of each type (default: any will do).
    """
    taken = np.zeros(len(size), np.int64)
    if window.nodes:
        taken[list(window.nodes)] = size[list(window.nodes)]
        return taken
    by_type = window.of_types if types is not None else ()
    for number, gpus in enumerate(by_type or (window.gpus,)):
        mine = types == number if by_type else np.ones(len(size), np.bool_)
        behind = np.cumsum(size[mine][::-1])[::-1] - size[mine]
        taken[mine] = np.clip(gpus - behind, 0, size[mine])
    return taken


def _window_gpus(away: I64, per_node: I64, units: I64) -> I64:
    """int64[windows, units], what windows take. away: int64[windows, nodes]."""
    place = np.arange(len(units)) - np.repeat(np.cumsum(per_node) - per_node, per_node)
    of_node = np.repeat(away, per_node, axis=1)
    alone = len(units) > len(per_node)  # each GPU is a unit, and the last ones of a node go first
    taken: I64 = (np.repeat(per_node, per_node) - place <= of_node if alone else of_node).astype(np.int64)
    return taken


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
        """Charge everybody until now, and count what their shares add."""
        order, ranks = self.order, self.ranks
        for owner in np.flatnonzero(ranks.usage_gpus).tolist():
            qs.settle(ranks, owner, now_s, self.decay_per_s)
        idle = ranks.usage_gpus == 0
        gone = np.exp(-self.decay_per_s * (now_s - ranks.usage_s))
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
    preemption : whose jobs stop whose (default: nobody's do).
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
        queue.ranks.since[:] = jobs.submit_s
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
        for column, values in zip(
            (ranks.tier, ranks.fixed), order.standing(jobs, cluster, entries), strict=True
        ):
            alike = len(column) == len(values)  # else a job waits once, by its best partition
            column[:] = values if alike else np.maximum.reduceat(values, entries.first[:-1])
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
        """Also who was stopped, and when those came who come after others."""
        super().note(rows)
        self._note_restarts()

    def close(self) -> None:
        """Also who was stopped, and when those came who come after others."""
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
        shares, next_s = self.shares, self.coming_s
        if shares is None:
            return float(nq.advance(self.queue, self.terms, until_s))
        while True:
            if next_s >= shares.due_s:
                shares.count(next_s)
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


class Ran(NamedTuple):
    """A job that runs: its number, what it asks for, since when and on which nodes it runs."""

    job: int
    gpus: int
    requested_s: float
    start_s: float
    nodes: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Promise:
    """A start that a waiting job is promised: when, and how many GPUs of which units (see `kernels.node_promises`)."""

    start_s: float
    on: tuple[tuple[int, int], ...]


def decided(
    view: View,
    terms: qs.Terms,
    waiting: I64,
    clock: F64,
    *,
    fresh: BOOL,
    ended: bool,
    gone: Sequence[Ran] = (),
    promised: Mapping[int, Promise],
    stopping: Stopping | None = None,
) -> tuple[Allocation, dict[int, Promise]]:
    """What the scheduler answers to a view, and what it has promised, by job number.

    Parameters
    ----------
    view : who runs and waits, and where.
    terms : the rule by which jobs start.
    waiting : positions of the waiting jobs, in their order.
    clock : as of `queue_state.Queue`, changed in place.
    fresh : bool[count], which jobs came now.
    ended : whether a job ended, or maintenance changed.
    gone : the jobs that ended now: what is due at a second comes before what happens within it.
    promised : what it had promised before.
    stopping : whose jobs stop whose, and whose grace has begun; changed in place (default: no job stops another).
    """
    delayed = terms.latency_s > 0
    gone = gone if delayed else ()
    queue, terms = _of_view(view, terms, gone)
    if stopping is not None:
        rows = np.append(view.job, np.array([one.job for one in gone], np.int64))
        arrays = stopping.rule.arrays(view.labels, rows, len(queue.nodes.size), len(queue.ending))
        queue = queue._replace(restarts=_that_come(queue.restarts), preemption=arrays)
    nodes, jobs = queue.nodes, view.job
    tracked, alone = len(view.owner) > 0, len(nodes.size) > len(queue.promises.node_size)
    running = np.flatnonzero(view.held > 0)
    on = [
        [(gpu, 1) for gpu in np.flatnonzero(view.owner == jobs[at]).tolist()]
        if alone
        else sorted(view.on_nodes(at).items())
        if tracked
        else [(int(view.gpu_type[at]), int(view.held[at]))]
        for at in running.tolist()
    ]
    on += [[(node, 0) for node in one.nodes] for one in gone]
    seats = np.array([seat for mine in on for seat in mine], np.int64).reshape(-1, 2).T.copy()
    begin = np.cumsum([0, *map(len, on)]).astype(np.int64)
    start_s = np.append(view.changed_s[running], [one.start_s for one in gone])
    running = np.append(running, view.count + np.arange(len(gone)))
    for job, mine in zip(running.tolist(), on, strict=True) if terms.rule == qs.PLAN else ():
        for kind in queue.entry_kind[slice(*queue.entry_first[[job, job + 1]].tolist())].tolist():
            if mine and queue.nodes.reach[kind, mine[0][0] >> 6] >> (mine[0][0] & 63) & 1:
                nodes.kind[job] = kind
    nq.set_state(queue, terms, view.now_s, running, start_s, begin, seats[0], seats[1], waiting)
    everybody = _entries_of(queue, waiting)
    if delayed:
        waiting = waiting[~fresh[waiting]]
    in_order = _entries_of(queue, waiting)
    queue.waiting[: len(in_order)] = in_order  # in the order of the view
    queue.meta[qs.WAITING], queue.meta[qs.QUEUED] = len(in_order), len(waiting)
    _promise_again(queue, view, waiting, promised)
    queue.clock[:] = clock
    news = qs.ENDED * ended | qs.CAME * bool(fresh.any())
    nq.decide(queue, terms, view.now_s, 0 if delayed else news)
    if delayed:
        slurm_rule.note(queue, terms, view.now_s, news)
    again_s, next_s = dict[int, float](), math.inf
    if stopping is not None:
        ending = queue.ending[: queue.meta[qs.RUNNING]]
        for at in ending[ending >= view.count].tolist():
            qs.stop(queue, terms, at, view.now_s, math.inf)
        queue.waiting[: len(everybody)] = everybody
        queue.meta[qs.WAITING], before = len(everybody), int(queue.meta[qs.LOGGED])
        stopping.put_in(queue, view)
        pre.act(queue, terms, view.now_s)
        stopping.take_from(queue, view)
        back_s = queue.log_back[before : queue.meta[qs.LOGGED]]
        stops = np.flatnonzero(~np.isnan(back_s))
        rows = queue.log_row[before + stops].tolist()
        again_s = dict(zip(rows, (back_s[stops] - view.now_s).tolist(), strict=True))
        next_s = float(queue.preemption.next_s[0])
    clock[:] = queue.clock
    wake_s = float(min(clock[qs.TRY_S], clock[qs.WAKE_S], next_s))
    answer = _allocation(queue, view, wake_s)
    if again_s:
        answer.gpus[list(again_s)] = 0
        answer = replace(answer, requeued=again_s)
    if terms.rule == qs.PLAN:
        answer = replace(answer, gpu_type=None)  # nodes of several types may be its
    return answer, _promises_of(queue, view, terms)


def _entries_of(queue: qs.Queue, jobs: I64) -> list[int]:
    """The entries of some jobs, in their order."""
    return [entry for at in jobs.tolist() for entry in range(*queue.entry_first[[at, at + 1]].tolist())]


class Stopping:
    """Whose jobs stop whose in a run that decides through views, and whose grace has begun.

    Parameters
    ----------
    rule : by which.

    Attributes
    ----------
    due : by number, running jobs that are to be stopped: when, and for whom.
    """

    def __init__(self, rule: Preemption) -> None:
        self.rule = rule
        self.due: dict[int, tuple[float, int]] = {}

    def put_in(self, queue: qs.Queue, view: View) -> None:
        """Let a queue of the jobs of a view know whose grace has begun."""
        place = {job: at for at, job in enumerate(view.job.tolist())}
        for job, (at_s, other) in self.due.items():
            if job in place and view.held[place[job]]:
                queue.preemption.due_s[place[job]] = at_s
                queue.preemption.due_for[place[job]] = place.get(other, place[job])

    def take_from(self, queue: qs.Queue, view: View) -> None:
        """Learn from the queue whose grace has begun, or is over."""
        e = queue.preemption
        due = np.flatnonzero(e.due_s[: view.count] < np.inf)
        others = view.job[e.due_for[due]]
        self.due = dict(
            zip(
                view.job[due].tolist(),
                zip(e.due_s[due].tolist(), others.tolist(), strict=True),
                strict=True,
            )
        )


def _promise_again(queue: qs.Queue, view: View, waiting: I64, promised: Mapping[int, Promise]) -> None:
    """Promise waiting jobs what they were promised before."""
    nodes, p = queue.nodes, queue.promises
    for at in waiting.tolist() if promised else ():
        if (had := promised.get(int(view.job[at]))) is not None:
            p.pick_unit[: len(had.on)], p.pick_gpus[: len(had.on)] = np.array(had.on, np.int64).T
            p.meta[pr.PICKED] = len(had.on)
            nodes.kind[at] = pr.class_on(nodes, p, at, had.on[0][0])
            pr.promise(nodes, p, at, had.start_s)


def _allocation(queue: qs.Queue, view: View, wake_s: float) -> Allocation:
    """The jobs that run, and those that a decision starts."""
    nodes, given, types = queue.nodes, view.held.copy(), view.gpu_type.copy()
    named, chosen = dict[int, dict[int, int]](), dict[int, I64]()
    for at in nodes.starts[: nodes.meta[npl.STARTS]].tolist():
        first, count = int(nodes.seat_first[at]), int(nodes.seat_count[at])
        given[at] = left = int(view.gpus[at])
        units, share = nodes.seat_node[first : first + count], nodes.seat_gpus[first : first + count]
        types[at] = queue.limits.type_of[nodes.kind[at]]
        if len(nodes.size) > len(queue.promises.node_size):
            chosen[at] = np.sort(units)
        elif len(view.owner):
            named[at] = {}
            for turn, (node, gpus) in enumerate(zip(units.tolist(), share.tolist(), strict=True)):
                named[at][node] = (
                    min(gpus, -(-left // (count - turn))) if nodes.each[at] == npl.WHOLE else gpus
                )
                left -= named[at][node]
    return Allocation(given, types, nodes=named, seats=chosen, wake_s=wake_s)


def _promises_of(queue: qs.Queue, view: View, terms: qs.Terms) -> dict[int, Promise]:
    """What waiting jobs are promised, by their numbers."""
    p, promised = queue.promises, dict[int, Promise]()
    for at in queue.waiting[: queue.meta[qs.WAITING]].tolist() if terms.rule == qs.KEPT else ():
        if p.at[at] != pr.NO_PROMISE:
            pr.picks_promised(p, at)
            picked = int(p.meta[pr.PICKED])
            on_units = zip(p.pick_unit[:picked].tolist(), p.pick_gpus[:picked].tolist(), strict=True)
            promised[int(view.job[at])] = Promise(float(p.at[at]), tuple(on_units))
    return promised


def _of_view(view: View, terms: qs.Terms, gone: Sequence[Ran]) -> tuple[qs.Queue, qs.Terms]:
    """A queue of the jobs of a view, and of some that have gone; GPUs of a type are a node where those are not tracked."""
    jobs, several = (
        np.append(view.job, np.array([one.job for one in gone], np.int64)),
        len(view.type_total) > 1,
    )
    placement, seed = (PLACEMENTS.index(view.placement), view.seed) if len(view.owner) else (pk.FIRST_FIT, 0)
    terms = terms._replace(placement=placement, seed=seed)
    windows: Sequence[Window] = view.windows
    plans, limits = terms.rule == qs.PLAN, _limits_of(view)
    if plans:
        assert view.entries is not None
        size, types, entries = view.node_gpus, view.node_type, view.entries.of(jobs)
        entries = entries.by_type(types) if several else entries
        terms = terms._replace(placement=pk.FIRST_FIT)
        limits = None if view.limits is None else view.limits.of(jobs)
    elif view.reach is not None:
        size, types, entries = view.node_gpus, view.node_type, one_entry(view.reach.of(jobs))
    else:
        size, types, entries = (
            view.type_total,
            np.arange(len(view.type_total)),
            anywhere(view.gpus, view.type_total),
        )
        windows = [replace(each, nodes=()) for each in windows]
    # a view has all GPUs of a job on one type
    tries = (
        [view.types_for(at, int(view.gpus[at])) for at in range(view.count)]
        if several and not plans
        else None
    )
    queue = blank_queue(
        size,
        entries,
        np.append(view.gpus, np.array([one.gpus for one in gone], np.int64)),
        np.append(view.requested_s, [one.requested_s for one in gone]),
        windows,
        terms,
        types=types,
        tries=tries,
        limits=limits,
    )
    return queue, terms


def _limits_of(view: View) -> Limits | None:
    """The limits and quotas of the jobs of a view, by position."""
    if view.limits is not None:
        return view.limits.of(view.job)
    if view.quota is None:
        return None
    quota, types = view.quota[:-1], len(view.type_total)
    none: I64 = np.full(len(quota), -1)
    return Limits(
        names=("",) * len(quota),
        gpus=quota,
        jobs=np.full(len(quota), np.iinfo(np.int64).max),
        job_gpus=quota,
        own_gpus=quota,
        pool=none,
        pool_gpus=none[:0],
        groups_of=tuple(tuple((int(user),) for user in view.user) for _ in range(types)),
    )
