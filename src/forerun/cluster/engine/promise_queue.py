"""A compiled queue on named nodes: whole runs, single decisions of a view, and any state to go on from.

`queue_of` makes one of a setting; `kernels.node_queue.set_state` sets it to a state, from which `decide` says whom a policy
would start, and `advance` plays on.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from forerun.cluster.engine.allocator import PLACEMENTS, require_places, work_on_request_s
from forerun.cluster.engine.kernels import node_plan as npl
from forerun.cluster.engine.kernels import node_profile as pf
from forerun.cluster.engine.kernels import node_promises as pr
from forerun.cluster.engine.kernels import placement as pk
from forerun.cluster.engine.kernels import priority as qk
from forerun.cluster.engine.kernels import promise_queue as nq
from forerun.cluster.engine.kernels.node_queue import Ranks
from forerun.cluster.engine.node_queue import COUNT_S, Shares, pools_of, words_of
from forerun.cluster.engine.priority import QueueRules
from forerun.cluster.engine.record import Record
from forerun.cluster.inputs.arrays import BOOL, F64, I64
from forerun.cluster.inputs.limits import Limits
from forerun.cluster.inputs.reach import WHOLE_NODE, Reach, beside_nodes, entries_of, reach_of
from forerun.cluster.inputs.setting import Setting, Window
from forerun.cluster.policies.orders.multifactor import Multifactor
from forerun.cluster.policies.orders.sjf import ShortestRequest
from forerun.cluster.policy import Allocation, Order, View


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
    def of(cls, reach: Reach, types: I64, tries: Sequence[Sequence[int]]) -> _Classes:
        """The classes of a reach. types: of the nodes. tries: by job, the GPU types in their order; empty: any at once."""
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

        if len(tries):
            asks = [chain(kind, tuple(order)) for kind, order in zip(reach.kind.tolist(), tries, strict=True)]
        else:
            everything = tuple(range(int(types.max(initial=0)) + 1))
            first = {kind: chain(kind, everything) for kind in np.unique(reach.kind).tolist()}
            asks = [first[kind] for kind in reach.kind.tolist()]
        if not rows:
            rows, other, type_of = [np.ones(len(types), np.bool_)], [-1], [0]
        numbers = (np.array(column, np.int64) for column in (asks, other, type_of))
        return cls(np.array(rows), *numbers)


def blank_queue(
    size: I64,
    reach: Reach,
    gpus: I64,
    request_s: F64,
    windows: Sequence[Window],
    terms: nq.Terms,
    *,
    capacity: int = 0,
    types: I64 | None = None,
    tries: Sequence[Sequence[int]] = (),
    limits: Limits | None = None,
) -> nq.Queue:
    """A queue before its first arrival, in which nothing ranks jobs but their submission.

    Parameters
    ----------
    size : int64[nodes], GPUs of each node.
    reach : which nodes each job may use, and how it spreads over them.
    gpus, request_s : of the jobs.
    windows : maintenance.
    terms : by which it is played.
    capacity : entries of the log, at least.
    types : int64[nodes], the number of the GPU type of each node (default: all of one).
    tries : by job, the GPU types in the order in which it tries them (default: by number). Slurm's plans do not ask.
    limits : of the jobs, by row (default: none).
    """
    size, gpus, request_s = np.array(size), np.array(gpus), np.array(request_s)  # not read-only
    jobs, total = len(gpus), int(size.sum())
    types = np.zeros(len(size), np.int64) if types is None else types
    classes = _Classes.of(reach, types, tries)
    per_node = size if terms.placement == pk.BUDDY else np.ones(len(size), np.int64)
    unit_first = np.concatenate(([0], np.cumsum(per_node))).astype(np.int64)
    units = np.ones(total, np.int64) if len(per_node) < unit_first[-1] else size
    nodes = np.repeat(classes.nodes, per_node, axis=1)
    levels = words_of(units[None, :] >= np.arange(int(units.max()) + 3)[:, None])
    levels[-1] = levels[0]
    words = levels.shape[1]
    pool = pools_of(nodes)
    pools, sets = int(pool.max(initial=0)) + 1, words_of(nodes)
    capacity = max(capacity, 4 * total + jobs + 256)
    windows = sorted(windows, key=lambda each: each.announced_s)
    marks = {at_s for each in windows for at_s in (each.announced_s, each.from_s, each.to_s)}
    many, groups_of = _limits(limits, classes, jobs)
    away = np.array([_away(each, size, types) for each in windows], np.int64).reshape(-1, len(size))
    free = npl.Nodes(
        size=units,
        free=units.copy(),
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
        runs=np.zeros(total + 1, np.int64),
        run_end=np.zeros(total + 1),
        pool_runs=np.zeros((pools, total + 1), np.int64),
        pool_count=np.zeros(pools, np.int64),
        place=np.zeros(jobs, np.int64),
        seat_first=np.zeros(jobs, np.int64),
        seat_count=np.zeros(jobs, np.int64),
        seat_node=np.zeros(2 * total + 2 * len(units), np.int64),
        seat_gpus=np.zeros(2 * total + 2 * len(units), np.int64),
        starts=np.zeros(total + 1, np.int64),
        horizon=np.full(1, np.inf),
        slots=np.ones(pools, np.int64),
        slot_s=np.zeros((pools, 1)),
        slot_busy=np.zeros((pools, 1, words), np.int64),
        beyond=np.zeros(words, np.int64),
        later_free=units.copy(),
        usable=np.zeros(words, np.int64),
        ready=np.zeros(words, np.int64),
        chosen=np.zeros(words, np.int64),
        meta=np.zeros(npl.META, np.int64),
    )
    columns = {name: np.zeros(jobs) for name in ("fixed", "since", "priority")}
    places: I64 = np.zeros(0, np.int64) if limits is None else limits.gpus
    return nq.Queue(
        submit=np.zeros(jobs),
        work=np.zeros(jobs),
        gpus=gpus,
        first_start=np.full(jobs, -1.0),
        end=np.full(jobs, -1.0),
        nodes=free,
        promises=_promises(terms, reach, classes, size, unit_first, groups_of, places, free, len(windows)),
        limits=many,
        ranks=Ranks(
            tier=np.zeros(jobs, np.int64),
            owner=np.zeros(jobs, np.int64),
            fair=np.zeros(1),
            usage=np.zeros(1),
            usage_gpus=np.zeros(1),
            usage_s=np.zeros(1),
            **columns,
        ),
        ending=np.zeros(total + 1, np.int64),
        end_key=np.zeros(total + 1),
        waiting=np.zeros(jobs + 1, np.int64),
        window_from=np.array([each.from_s for each in windows], np.float64),
        window_to=np.array([each.to_s for each in windows], np.float64),
        window_announced=np.array([each.announced_s for each in windows], np.float64),
        window_gpus=_window_gpus(windows, away, per_node, units, len(places)),
        marks=np.array(sorted(marks), np.float64),
        clock=np.array([np.inf, -np.inf]),
        meta=np.zeros(nq.PLACES, np.int64),
        log_row=np.zeros(capacity, np.int64),
        log_gpus=np.zeros(capacity, np.int64),
        log_seats=np.zeros(capacity, np.int64),
        log_node=np.zeros(capacity + len(units), np.int64),
        log_share=np.zeros(capacity + len(units), np.int64),
        event_time=np.zeros(capacity),
        event_pending=np.zeros(capacity, np.int64),
        event_first=np.zeros(capacity + 1, np.int64),
    )


def _promises(
    terms: nq.Terms,
    reach: Reach,
    classes: _Classes,
    size: I64,
    unit_first: I64,
    groups_of: Sequence[Sequence[int]],
    places: I64,
    free: npl.Nodes,
    windows: int,
) -> pr.Promises:
    """The arrays of promises, none of which is made. groups_of: the planned groups of each job. places: GPUs by group."""
    jobs, units, total = len(reach.kind), len(free.size), int(size.sum())
    largest = np.array([int(size[mine].max(initial=0)) for mine in classes.nodes], np.int64)
    fewest = int(largest[largest > 0].min(initial=total or 1))
    wide = np.where(reach.said > 0, reach.said, -(-free.gpus // fewest))
    if terms.placement in (pk.CONSOLIDATED, pk.BUDDY):
        alone = (reach.each == WHOLE_NODE) * reach.count * int(largest.max(initial=0))
        wide = np.minimum(np.maximum(free.gpus, alone), units)
    promised = jobs if terms.rule == nq.KEPT else min(terms.promises, jobs)
    seats = int(wide.sum()) if terms.rule == nq.KEPT else promised * int(wide.max(initial=1))
    most = max(map(len, groups_of), default=0)
    steps = 2 * (total + seats + windows * (units + len(places)) + most * (total + promised)) + 8
    steps += units + len(places)
    group_first = np.cumsum([0, *map(len, groups_of)]).astype(np.int64)
    groups = np.array([units + group for of_job in groups_of for group in of_job], np.int64)
    first = np.argmax(classes.nodes, axis=1).astype(np.int64)
    last = classes.nodes.shape[1] - np.argmax(classes.nodes[:, ::-1], axis=1)
    whole = np.concatenate((free.size, places))
    made = pr.Promises(
        profile=pf.Profile(
            head=np.zeros(len(whole), np.int64),
            time=np.zeros(steps),
            free=np.zeros(steps, np.int64),
            after=np.zeros(steps, np.int64),
            meta=np.zeros(2, np.int64),
        ),
        whole=whole,
        held=np.zeros(units, np.int64),
        unit_first=unit_first,
        node_size=size,
        largest=largest,
        other=classes.other,
        from_node=first,
        to_node=last.astype(np.int64),
        asks=classes.asks,
        said=reach.said,
        group_first=group_first,
        groups=groups,
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


def _limits(
    limits: Limits | None, classes: _Classes, jobs: int
) -> tuple[nq.Limits, tuple[tuple[int, ...], ...]]:
    """Limits as arrays, and the groups of each job that are promised GPUs of as nodes are: the planned ones of all types."""
    types = int(classes.type_of.max(initial=0)) + 1
    none: I64 = np.zeros(0, np.int64)
    if limits is None:
        first = np.zeros((types, jobs + 1), np.int64)
        return nq.Limits(classes.type_of, first, *([none] * 9)), ((),) * jobs
    planned: list[tuple[int, ...]] = [()] * jobs
    if limits.planned:
        of_types = zip(*limits.planned_of, strict=True)
        planned = [tuple(sorted(frozenset(one[0]).intersection(*one[1:]))) for one in of_types]
    counted = [
        [[group for group in groups if group not in planned[job]] for job, groups in enumerate(of_type)]
        for of_type in limits.groups_of[:types]
    ]
    lengths = np.array([[len(groups) for groups in of_type] for of_type in counted], np.int64)
    ends = np.cumsum(lengths).reshape(lengths.shape)
    first = np.concatenate((ends[:, :1] - lengths[:, :1], ends), axis=1)
    groups = np.array([group for of_type in counted for of_job in of_type for group in of_job], np.int64)
    used = np.zeros(len(limits.gpus), np.int64)
    many = nq.Limits(
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
    )
    return many, tuple(planned)


def _away(window: Window, size: I64, types: I64) -> I64:
    """int64[nodes]: the GPUs that a window takes of each node: those of the nodes that it names, else the last ones."""
    away = np.zeros(len(size), np.int64)
    if window.nodes:
        away[list(window.nodes)] = size[list(window.nodes)]
        return away
    for number, gpus in enumerate(window.of_types or (window.gpus,)):
        mine = types == number if window.of_types else np.ones(len(size), np.bool_)
        behind = np.cumsum(size[mine][::-1])[::-1] - size[mine]
        away[mine] = np.clip(gpus - behind, 0, size[mine])
    return away


def _window_gpus(windows: Sequence[Window], away: I64, per_node: I64, units: I64, groups: int) -> I64:
    """int64[windows, units and groups], what windows take. away: int64[windows, nodes]."""
    taken = np.zeros((len(windows), len(units) + groups), np.int64)
    place = np.arange(len(units)) - np.repeat(np.cumsum(per_node) - per_node, per_node)
    for at, window in enumerate(windows):
        of_node = np.repeat(away[at], per_node)
        alone = len(units) > len(per_node)  # each GPU is a unit, and the last ones of a node go first
        taken[at, : len(units)] = np.repeat(per_node, per_node) - place <= of_node if alone else of_node
        for group, gpus in window.of_groups if groups else ():
            taken[at, len(units) + group] += gpus
    return taken


class PromiseRules(QueueRules):
    """A whole run in a queue on named nodes.

    Parameters
    ----------
    setting, record : what is run; written: what happens.
    terms : the rule by which jobs start.
    order : of the queue: by submission, by the requested time, WFP3, or multifactor.
    """

    is_rigid = True

    def __init__(self, setting: Setting, record: Record, terms: nq.Terms, order: Order) -> None:
        jobs, cluster = setting.jobs, setting.cluster
        size, reach, names = cluster.node_gpus(), reach_of(jobs, cluster), cluster.node_types()
        limits = None if setting.limits is None else beside_nodes(setting.limits, jobs, cluster)
        numbers = {name: number for number, name in enumerate(dict.fromkeys(names))}
        queue = blank_queue(
            size,
            reach,
            jobs.gpus,
            np.maximum(jobs.request_s, 1.0),
            setting.maintenance,
            terms,
            capacity=1 << 16,
            types=np.array([numbers[name] for name in names], np.int64),
            limits=limits,
        )
        require_places(jobs, reach, PLACEMENTS[terms.placement], lambda row: _has_place(queue, terms, row))
        self.terms, self.shares, record.names_gpus = terms, None, True
        queue.ranks.since[:] = jobs.submit_s
        if isinstance(order, ShortestRequest):
            queue.ranks.fixed[:] = -jobs.request_s
        elif isinstance(order, Multifactor):
            queue = self._ranked(queue, order, setting)
        work_s = work_on_request_s(setting)
        self.queue = queue._replace(submit=jobs.submit_s.astype(np.float64), work=work_s)
        self.owner: I64 = np.full(int(size.sum()), -1, np.int64)
        self.first_gpu = np.concatenate(([0], np.cumsum(self.queue.nodes.size)))
        super().__init__(setting, record, self.queue, work_s)

    def _ranked(self, queue: nq.Queue, order: Multifactor, setting: Setting) -> nq.Queue:
        """The queue with the priorities of an order."""
        weights, ranks = order.weights, queue.ranks
        decay_per_s = math.log(2.0) / order.half_life_s if order.half_life_s else 0.0
        entries = entries_of(setting.jobs, setting.cluster)
        for column, values in zip(
            (ranks.tier, ranks.fixed), order.standing(setting.jobs, setting.cluster, entries)
        ):
            column[:] = np.maximum.reduceat(values, entries.first[:-1])
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
        queue, count, events = self.queue, int(self.queue.meta[qk.LOGGED]), int(self.queue.meta[qk.EVENTS])
        times_s = np.repeat(queue.event_time[:events], np.diff(queue.event_first[: events + 1])).tolist()
        seats = np.append(queue.log_seats[:count], queue.meta[nq.SEATED]).tolist()
        rows, gpus = queue.log_row[:count].tolist(), queue.log_gpus[:count].tolist()
        for at, (row, given) in enumerate(zip(rows, gpus, strict=True)):
            if not given:
                self.owner[self.owner == row] = -1
                continue
            mine: list[int] = []
            on = slice(seats[at], seats[at + 1])
            for unit, share in zip(queue.log_node[on].tolist(), queue.log_share[on].tolist(), strict=True):
                begin, end = int(self.first_gpu[unit]), int(self.first_gpu[unit + 1])
                mine += (begin + np.flatnonzero(self.owner[begin:end] < 0))[:share].tolist()
            self.owner[mine] = row
            self.record.seat(times_s[at], row, np.sort(np.array(mine, np.int64)))
        queue.meta[nq.SEATED] = 0
        super()._take_log()


def _has_place(queue: nq.Queue, terms: nq.Terms, row: int) -> bool:
    return bool(pr.could_ever(queue.nodes, queue.promises, row, terms.placement, terms.seed))


@dataclass(frozen=True, slots=True)
class Promise:
    """A start that a waiting job is promised: when, and how many GPUs of which units (see `kernels.node_promises`)."""

    start_s: float
    on: tuple[tuple[int, int], ...]


def decided(
    view: View,
    terms: nq.Terms,
    waiting: I64,
    clock: F64,
    news: bool,
    promised: Mapping[int, Promise],
) -> tuple[Allocation, dict[int, Promise]]:
    """What the scheduler answers to a view, and what it has promised, by job number.

    Parameters
    ----------
    view : who runs and waits, and where.
    terms : the rule by which jobs start.
    waiting : positions of the waiting jobs, in their order.
    clock : as of `node_queue.Queue`, changed in place.
    news : whether a job came or ended.
    promised : what it had promised before.
    """
    queue, terms = _of_view(view, terms)
    nodes, p, jobs = queue.nodes, queue.promises, view.job
    tracked, alone = len(view.owner) > 0, len(nodes.size) > len(p.node_size)
    running = np.flatnonzero(view.held > 0)
    on = [
        [(gpu, 1) for gpu in np.flatnonzero(view.owner == jobs[at]).tolist()]
        if alone
        else sorted(view.on_nodes(at).items())
        if tracked
        else [(int(view.gpu_type[at]), int(view.held[at]))]
        for at in running.tolist()
    ]
    seats = np.array([seat for mine in on for seat in mine], np.int64).reshape(-1, 2).T.copy()
    begin = np.cumsum([0, *map(len, on)]).astype(np.int64)
    nq.set_state(
        queue, terms, view.now_s, running, view.changed_s[running], begin, seats[0], seats[1], waiting
    )
    queue.waiting[: len(waiting)] = waiting  # in the order of the view
    for at in waiting.tolist():
        if (had := promised.get(int(jobs[at]))) is not None:
            p.pick_unit[: len(had.on)], p.pick_gpus[: len(had.on)] = np.array(had.on, np.int64).T
            p.meta[pr.PICKED] = len(had.on)
            kind = int(p.asks[at])
            while p.other[kind] >= 0 and not nodes.reach[kind, had.on[0][0] >> 6] >> (had.on[0][0] & 63) & 1:
                kind = int(p.other[kind])
            nodes.kind[at] = kind
            pr.promise(nodes, p, at, had.start_s)
    queue.clock[:] = clock
    nq.decide(queue, terms, view.now_s, news)
    given, types = view.held.copy(), view.gpu_type.copy()
    named, chosen = dict[int, dict[int, int]](), dict[int, I64]()
    for at in nodes.starts[: nodes.meta[npl.STARTS]].tolist():
        first, count = int(nodes.seat_first[at]), int(nodes.seat_count[at])
        given[at] = left = int(view.gpus[at])
        units, share = nodes.seat_node[first : first + count], nodes.seat_gpus[first : first + count]
        types[at] = queue.limits.type_of[nodes.kind[at]]
        if alone:
            chosen[at] = np.sort(units)
        elif tracked:
            named[at] = {}
            for turn, (node, gpus) in enumerate(zip(units.tolist(), share.tolist(), strict=True)):
                named[at][node] = (
                    min(gpus, -(-left // (count - turn))) if nodes.each[at] == npl.WHOLE else gpus
                )
                left -= named[at][node]
    clock[:] = queue.clock
    answer = Allocation(given, types, nodes=named, seats=chosen, wake_s=float(clock[nq.WAKE_S]))
    kept = dict[int, Promise]()
    for at in queue.waiting[: queue.meta[nq.WAITING]].tolist() if terms.rule == nq.KEPT else ():
        if p.at[at] != pr.NO_PROMISE:
            pr.picks_promised(p, at)
            picked = int(p.meta[pr.PICKED])
            on_units = zip(p.pick_unit[:picked].tolist(), p.pick_gpus[:picked].tolist(), strict=True)
            kept[int(jobs[at])] = Promise(float(p.at[at]), tuple(on_units))
    return answer, kept


def _of_view(view: View, terms: nq.Terms) -> tuple[nq.Queue, nq.Terms]:
    """A queue of the jobs of a view; where nodes are not tracked, all GPUs of a type are a node."""
    jobs, several = view.job, len(view.type_total) > 1
    placement, seed = (PLACEMENTS.index(view.placement), view.seed) if len(view.owner) else (pk.FIRST_FIT, 0)
    terms = terms._replace(placement=placement, seed=seed)
    windows: Sequence[Window] = view.windows
    if view.reach is not None:
        size, types, reach = view.node_gpus, view.node_type, view.reach.of(jobs)
    else:
        size, types, one = view.type_total, np.arange(len(view.type_total)), np.ones(view.count, np.int64)
        everywhere = np.ones((1, len(size)), np.bool_)
        reach = Reach(everywhere, 0 * one, one, one, view.gpus.copy(), 0 * one, everywhere)
        windows = [replace(each, nodes=()) for each in windows]
    tries = [view.types_for(at, int(view.gpus[at])) for at in range(view.count)] if several else ()
    queue = blank_queue(
        size,
        reach,
        view.gpus,
        view.requested_s,
        windows,
        terms,
        types=types,
        tries=tries,
        limits=_limits_of(view),
    )
    return queue, terms


def _limits_of(view: View) -> Limits | None:
    """The limits and quotas of the jobs of a view, by position."""
    limits, jobs = view.limits, view.job.tolist()
    if limits is not None:
        groups_of, planned_of = (
            tuple(tuple(of_type[job] for job in jobs) for of_type in column)
            for column in (limits.groups_of, limits.planned_of)
        )
        return replace(limits, groups_of=groups_of, planned_of=planned_of)
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
        planned=frozenset(),
        planned_of=(((),) * view.count,) * types,
    )
