"""What the compiled queue would decide on a view: whom it starts and stops, and what it promises."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np

from forerun.cluster.engine.allocator import PLACEMENTS
from forerun.cluster.engine.kernels import node_plan as npl
from forerun.cluster.engine.kernels import node_promises as pr
from forerun.cluster.engine.kernels import node_queue as nq
from forerun.cluster.engine.kernels import placement as pk
from forerun.cluster.engine.kernels import preemption as pre
from forerun.cluster.engine.kernels import queue_state as qs
from forerun.cluster.engine.kernels import slurm_rule
from forerun.cluster.engine.queue_arrays import anywhere, blank_queue, one_entry, that_come
from forerun.cluster.inputs.arrays import BOOL, F64, I64
from forerun.cluster.inputs.limits import Limits, of_quotas
from forerun.cluster.inputs.setting import Window
from forerun.cluster.policies.backfilling.preemption import Preemption
from forerun.cluster.policy import Allocation, View


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
        queue = queue._replace(restarts=that_come(queue.restarts), preemption=arrays)
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
        answer = replace(answer, gpu_type=None)  # a job may have nodes of several types
    return answer, _promises_of(queue, view, terms)


def _entries_of(queue: qs.Queue, jobs: I64) -> list[int]:
    """The entries of some jobs, in their order."""
    return [entry for at in jobs.tolist() for entry in range(*queue.entry_first[[at, at + 1]].tolist())]


class Stopping:
    """Which jobs may stop others in a run that decides through views, and whose grace has begun.

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
    """The limits or quotas of the jobs of a view, by position."""
    if view.limits is not None:
        return view.limits.of(view.job)
    if view.quota is None:
        return None
    quota = view.quota[:-1]
    return of_quotas(quota, view.user.tolist(), len(view.type_total), ("",) * len(quota))
