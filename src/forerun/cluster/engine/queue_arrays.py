"""The arrays of a compiled queue on named nodes before its first arrival (see `kernels.queue_state`)."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from forerun.cluster.engine.kernels import linked_profile as lp
from forerun.cluster.engine.kernels import node_plan as npl
from forerun.cluster.engine.kernels import node_profile as pf
from forerun.cluster.engine.kernels import node_promises as pr
from forerun.cluster.engine.kernels import placement as pk
from forerun.cluster.engine.kernels import queue_state as qs
from forerun.cluster.inputs.arrays import BOOL, F64, I64
from forerun.cluster.inputs.limits import Limits
from forerun.cluster.inputs.reach import WHOLE_NODE, Entries, Reach
from forerun.cluster.inputs.setting import Setting, Window

_WORD: Final = 64


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
    theirs = _partitions(entries.reach) if plans else mine
    free = _nodes(units, mine, theirs, classes, reach, gpus, request_s, at_once)
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
    return that_come(restarts) if failures or preempts or after.any() else restarts


def that_come(restarts: qs.Restarts) -> qs.Restarts:
    """The same with space for jobs that come at another instant than their submission."""
    size = len(restarts.came_s) + 1
    return restarts._replace(coming=np.zeros(size, np.int64), coming_s=np.zeros(size))


def _partitions(reach: Reach) -> BOOL:
    """bool[classes, nodes], the nodes of the partition of each class, of whatever type."""
    nodes = reach.nodes.copy()
    nodes[reach.kind] = reach.lines[reach.line]
    return nodes


def _nodes(
    size: I64,
    mine: BOOL,
    theirs: BOOL,
    classes: _Classes,
    reach: Reach,
    gpus: I64,
    request_s: F64,
    at_once: int,
) -> npl.Nodes:
    """The nodes, or units, before anything runs. mine, theirs: bool[classes, units], of each class and its pool."""
    jobs = len(gpus)
    levels = words_of(size[None, :] >= np.arange(int(size.max()) + 3)[:, None])  # but one: none has so many
    levels[-1] = levels[0]
    words, pool, sets = levels.shape[1], pools_of(theirs), words_of(mine)
    pools = int(pool.max(initial=0)) + 1
    shared = np.array([words_of(theirs[pool == each].any(0)[None, :])[0] != 0 for each in range(pools)])
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
        pool_from=np.argmax(shared, axis=1).astype(np.int64),
        pool_to=(words - np.argmax(shared[:, ::-1], axis=1)).astype(np.int64),
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
        last=np.zeros(pools, np.int64),
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
        given=np.full(free.levels.shape[1], -1),
        raised=np.full(free.levels.shape[1], -1),
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
