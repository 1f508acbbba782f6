"""The scheduler of the InferLine comparison notebook: its order of events, its snapping of times, its wake rule.

A new event goes before every pending event whose time is not earlier, so among equals the last scheduled runs first. All
events within 1e-8 ms of a round's first run in that round, and see its time. Facts from the InferLine comparison
notebook; the code is ours.
"""

from __future__ import annotations

import heapq
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from enum import IntEnum
from typing import Final

import numpy as np
from numpy.typing import NDArray

from forerun.core.errors import PolicyError, Problem, ScenarioError
from forerun.serving.inputs.pipeline import SOURCE, Floats, Ints, Law, Pipeline, Stage

#: events closer than this to a round's first event run in that round
SNAP_MS: Final = 1e-8


class EmptyTake(PolicyError):
    """A woken replica found nothing to take; the notebook stops with an assertion here."""


class Kind(IntEnum):
    """What the scheduler can call."""

    SEND = 0  # a query leaves the source
    ARRIVE = 1  # a list of queries reaches a stage
    TAKE = 2  # a woken replica takes a batch
    RETURN = 3  # a replica has finished its batch
    JOIN = 4  # a list of queries reaches a join
    SINK = 5  # a list of queries leaves the pipeline


@dataclass(frozen=True)
class CompatVisits:
    """One stage's stamps, by query id.

    Parameters
    ----------
    enqueue_ms : float64[queries], when the query entered the queue [ms].
    dequeue_ms : float64[queries], when its batch left the queue [ms].
    service_ms : float64[queries], when its batch was completed [ms]; an instant, in spite of the notebook's name.
    batch : int64[queries], size of its batch.
    replica : int64[queries], which replica ran it, -1 where none did.
    """

    enqueue_ms: Floats
    dequeue_ms: Floats
    service_ms: Floats
    batch: Ints
    replica: Ints


@dataclass(frozen=True)
class CompatRun:
    """What the notebook's scheduler computes.

    Parameters
    ----------
    source_ms : float64[queries], when the query was sent [ms].
    sink_ms : float64[queries], when it was completed [ms].
    sink_rank : int64[queries], place in completion order.
    visits : the stamps of each stage.
    events : callbacks run.
    makespan_ms : time of the last event [ms].
    peak_pending : longest list of pending events.
    queue_series : per stage float64[k, 2], (time [ms], queue length before), once per query that arrives and once per
        take; only if asked for (default: none).
    """

    source_ms: Floats
    sink_ms: Floats
    sink_rank: Ints
    visits: tuple[CompatVisits, ...]
    events: int
    makespan_ms: float
    peak_pending: int
    queue_series: tuple[NDArray[np.float64], ...] = ()


class _Model:
    """A stage under way, its stamps in lists by query id.

    Parameters
    ----------
    stage : largest batch, replicas and service times.
    queries : how many there are.
    keep_series : whether to record the length of the queue.
    """

    def __init__(self, stage: Stage, queries: int, keep_series: bool) -> None:
        self.most = stage.max_batch
        self.service_ms: list[float] = stage.service.table_ms.tolist()
        self.queue: deque[int] = deque()
        self.busy = [False] * stage.replicas
        self.woken = 0
        self.to_stages: list[int] = []
        self.to_join = -1
        self.series: list[tuple[float, int]] | None = [] if keep_series else None
        self.enqueue = [float("nan")] * queries
        self.dequeue = [float("nan")] * queries
        self.service = [float("nan")] * queries
        self.batch = [0] * queries
        self.replica = [-1] * queries

    def arrive(self, ids: list[int], now_ms: float, wake_corrected: bool) -> list[int]:
        """Queries join the queue; returns the replicas that are woken."""
        if self.series is not None:
            self.series.extend([(now_ms, len(self.queue))] * len(ids))
        for query in ids:
            self.enqueue[query] = now_ms
        self.queue.extend(ids)
        to_wake = -(-len(self.queue) // self.most) - (self.woken if wake_corrected else 0)
        idle = [replica for replica, busy in enumerate(self.busy) if not busy][: max(0, to_wake)]
        for replica in idle:
            self.busy[replica] = True
        self.woken += len(idle)
        return idle

    def take(self, replica: int, now_ms: float) -> list[int]:
        """A woken replica takes a batch; it idles again if there is none."""
        self.woken -= 1
        if self.series is not None:
            self.series.append((now_ms, len(self.queue)))
        size = min(len(self.queue), self.most)
        self.busy[replica] = size > 0
        batch = [self.queue.popleft() for _ in range(size)]
        for query in batch:
            self.dequeue[query], self.batch[query], self.replica[query] = now_ms, size, replica
        return batch

    def visits(self) -> CompatVisits:
        """The stamps as arrays."""
        return CompatVisits(
            np.array(self.enqueue),
            np.array(self.dequeue),
            np.array(self.service),
            np.array(self.batch, dtype=np.int64),
            np.array(self.replica, dtype=np.int64),
        )


class _Join:
    """Waits for as many parts of a query as it has parents; then the query goes on to `stage`, or to the sink."""

    def __init__(self, parents: int, stage: int) -> None:
        self.parents = parents
        self.stage = stage
        self.parts: dict[int, int] = {}


def simulate_compat(
    pipeline: Pipeline,
    gaps_ms: Floats | Sequence[float],
    queries: int,
    *,
    batching_delay_ms: float = 0.0,
    wake_corrected: bool = False,
    keep_series: bool = False,
) -> CompatRun:
    """Run the notebook's scheduler: query 0 at 0, then one per gap.

    Parameters
    ----------
    pipeline : stages with greedy batching and a table of service times.
    gaps_ms : float64[queries - 1] between arrivals [ms].
    queries : how many in all.
    batching_delay_ms : from waking a replica until it takes a batch [ms] (default: 0).
    wake_corrected : count replicas that are woken already before waking more (default: as the notebook, which does not).
    keep_series : record the lengths of the queues (default: off).

    Raises
    ------
    ScenarioError : the pipeline uses something that the notebook does not know.
    EmptyTake : the notebook asserts here; it takes a delay, several replicas and the wake rule as written.
    """
    _refuse(pipeline)
    gaps = list(map(float, gaps_ms))
    models = [_Model(stage, queries, keep_series) for stage in pipeline.stages]
    joins, heads, first_stages = _wire(pipeline, models)
    source, sink, sink_rank = [0.0] * queries, [0.0] * queries, [0] * queries
    pending: list[tuple[float, int, Kind, int, list[int]]] = [(0.0, 0, Kind.SEND, 0, [])]
    order = done = events = 0
    # Millions of comparisons: members in variables of their own take half the time.
    send, arrive, take, give_back, join, leave = Kind
    peak = 1
    now_ms = 0.0

    def schedule(after_ms: float, kind: Kind, node: int, payload: list[int]) -> None:
        nonlocal order
        order -= 1
        heapq.heappush(pending, (now_ms + after_ms, order, kind, node, payload))

    def pass_on(node: int, ids: list[int]) -> None:
        """Schedule the arrival of a list at a stage, through its join if it has several parents."""
        if heads[node] < 0:
            schedule(0.0, arrive, node, ids)
        else:
            schedule(0.0, join, heads[node], ids)

    while pending:
        now_ms = pending[0][0]
        while pending and pending[0][0] - now_ms <= SNAP_MS:
            peak = max(peak, len(pending))
            _, _, kind, node, ids = heapq.heappop(pending)
            events += 1
            if kind is send:
                source[node] = now_ms
                for stage in first_stages:
                    pass_on(stage, [node])
                if node + 1 < queries:
                    schedule(gaps[node], send, node + 1, ids)
            elif kind is arrive:
                for replica in models[node].arrive(ids, now_ms, wake_corrected):
                    schedule(batching_delay_ms, take, node, [replica])
            elif kind is take:
                replica, batch = ids[0], models[node].take(ids[0], now_ms)
                if batch:
                    schedule(models[node].service_ms[len(batch)], give_back, node, [replica, *batch])
                elif not wake_corrected:
                    raise _empty_take(pipeline.stages[node], replica, now_ms)
            elif kind is give_back:
                model, replica, batch = models[node], ids[0], ids[1:]
                for query in batch:
                    model.service[query] = now_ms
                for stage in model.to_stages:
                    pass_on(stage, batch)
                if model.to_join >= 0:
                    schedule(0.0, join, model.to_join, batch)
                elif not model.to_stages:
                    schedule(0.0, leave, 0, batch)
                if model.queue:
                    model.woken += 1
                    schedule(batching_delay_ms, take, node, [replica])
                else:
                    model.busy[replica] = False
            elif kind is join:
                whole = _joined(joins[node], ids)
                if whole and joins[node].stage < 0:
                    schedule(0.0, leave, 0, whole)
                elif whole:
                    schedule(0.0, arrive, joins[node].stage, whole)
            else:
                for query in ids:
                    sink[query], sink_rank[query] = now_ms, done
                    done += 1
    return CompatRun(
        np.array(source),
        np.array(sink),
        np.array(sink_rank, dtype=np.int64),
        tuple(model.visits() for model in models),
        events,
        now_ms,
        peak,
        tuple(
            np.array(model.series, dtype=np.float64).reshape(-1, 2)
            for model in models
            if model.series is not None
        ),
    )


def _joined(join: _Join, ids: list[int]) -> list[int]:
    """Count one part of each query in; the queries that are now whole, in list order."""
    whole = []
    for query in ids:
        parts = join.parts.get(query, 0) + 1
        if parts == join.parents:
            join.parts.pop(query, None)
            whole.append(query)
        else:
            join.parts[query] = parts
    return whole


def _wire(pipeline: Pipeline, models: list[_Model]) -> tuple[list[_Join], list[int], list[int]]:
    """Connect the stages in wiring order.

    Returns
    -------
    The joins, for each stage the number of the join before it or -1, and the stages that the source feeds.
    """
    joins: list[_Join] = []
    heads: list[int] = []
    first_stages = []
    for number, stage in enumerate(pipeline.stages):
        heads.append(len(joins) if len(stage.edges) > 1 else -1)
        if len(stage.edges) > 1:
            joins.append(_Join(len(stage.edges), number))
        for edge in stage.edges:
            if edge.parent == SOURCE:
                first_stages.append(number)
            else:
                models[edge.parent].to_stages.append(number)
    last = [number for number, model in enumerate(models) if not model.to_stages]
    if len(last) > 1:
        for number in last:
            models[number].to_join = len(joins)
        joins.append(_Join(len(last), -1))
    return joins, heads, first_stages


def _refuse(pipeline: Pipeline) -> None:
    """Reject what the notebook does not know: conditional edges, drawn services, changes of replicas, other batching.

    Raises
    ------
    ScenarioError : with a problem for each such stage.
    """
    faults = []
    for number, stage in enumerate(pipeline.stages):
        where = f"$.stages[{number}]"
        if not all(edge.always for edge in stage.edges):
            faults.append(Problem(where, "mode compat knows no conditional edges"))
        if stage.service.law is not Law.TABLE:
            faults.append(Problem(where, "mode compat knows no drawn service times"))
        if stage.capacity:
            faults.append(Problem(where, "mode compat knows no changes of the number of replicas"))
        if stage.batching.compiled() != ("hold", 0.0):
            faults.append(
                Problem(where, "mode compat knows greedy batching and compat.batching_delay_ms only")
            )
    if faults:
        raise ScenarioError(*faults)


def _empty_take(stage: Stage, replica: int, now_ms: float) -> EmptyTake:
    """The error of a replica that was woken twice for the same queries."""
    what = f"replica {replica}, woken {now_ms} ms, found an empty queue; the wake rule forgot it was woken already"
    return EmptyTake(Problem(f"stage {stage.name!r}", f"{what} (choose compat.wake: corrected)"))
