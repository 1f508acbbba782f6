"""The requests and iterations of a language model's replicas, as the arrays of a run; the same for both engines."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import fields, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from forerun.serving.engine.outcome import Batches, Guesses, Iterations, Requests, Transfers, Visits
from forerun.serving.inputs.pipeline import Floats, Ints
from forerun.serving.llm.engine.kernels.gaps import gap_cells
from forerun.serving.llm.engine.replica import ApartReplicas, Replicas

#: a column of values by its name
Columns = Callable[[str], NDArray[Any]]


def records_of(
    enqueue_ms: Floats,
    served: Ints,
    column: Columns,
    hit: Ints,
    gaps: Ints,
    iterations: int,
    recorded: Iterations | None,
    guesses: Guesses | None,
) -> tuple[Visits, Batches, Requests]:
    """The visits, iterations and requests of one stage.

    Parameters
    ----------
    enqueue_ms : float64[queries], NaN where nobody came.
    served : the queries that were served; the others that came were refused: they end as they enter, on no replica.
    column : what happened to the served, by the names of `kernels.requests.REQUEST`.
    hit : int64[served], tokens that they did not process because the prefix cache had them.
    gaps, iterations, recorded, guesses : as in `Requests`.
    """
    start_ms, end_ms = enqueue_ms.copy(), enqueue_ms.copy()
    start_ms[served], end_ms[served] = column("start_ms"), column("last_ms")
    queries = len(enqueue_ms)
    batch, replica = np.zeros(queries, dtype=np.int32), np.full(queries, -1, dtype=np.int32)
    preemptions, hit_tokens = np.zeros(queries, dtype=np.int64), np.zeros(queries, dtype=np.int64)
    hit_tokens[served] = hit
    batch[served], replica[served], preemptions[served] = 1, column("replica"), column("preempted")
    first_ms, gap_ms, stalled_ms, stalled_first_ms = (np.full(queries, np.nan) for _ in range(4))
    first_ms[served], gap_ms[served] = column("first_ms"), column("gap_ms")
    stalled_ms[served], stalled_first_ms[served] = column("stalled_ms"), column("stalled_first_ms")
    return (
        Visits(enqueue_ms, start_ms, end_ms, batch, replica),
        batches_of(recorded),
        Requests(
            first_ms,
            gap_ms,
            preemptions,
            stalled_ms,
            stalled_first_ms,
            gaps,
            iterations,
            hit_tokens,
            recorded,
            guesses=guesses,
        ),
    )


def together(
    first: tuple[Visits, Batches, Requests], second: tuple[Visits, Batches, Requests], replicas: int
) -> tuple[Visits, Batches, Requests]:
    """The record of a stage from those of its two pools.

    Parameters
    ----------
    first, second : of the pool that prefills and of the pool that decodes.
    replicas : of the first pool; those of the second are numbered behind them.
    """
    (came, _, prefilled), (there, _, decoded) = first, second
    sent = ~np.isnan(there.enqueue_ms)
    recorded = None
    if prefilled.recorded is not None and decoded.recorded is not None:
        behind = {"replica": decoded.recorded.replica + replicas}
        pools = [vars(prefilled.recorded), vars(decoded.recorded) | behind]
        columns = {name: np.concatenate([pool[name] for pool in pools]) for name in pools[0]}
        order = np.lexsort((columns["replica"], columns["start_ms"]))
        recorded = iterations_of(lambda name: columns[name][order])
    visits = replace(came, end_ms=np.where(sent, there.end_ms, came.end_ms))
    requests = Requests(
        first_ms=prefilled.first_ms,
        longest_gap_ms=np.where(sent, decoded.longest_gap_ms, prefilled.longest_gap_ms),
        preemptions=prefilled.preemptions + decoded.preemptions,
        stalled_ms=prefilled.stalled_ms + np.where(sent, decoded.stalled_ms, 0.0),
        stalled_first_ms=prefilled.stalled_first_ms,
        gaps=prefilled.gaps + decoded.gaps,
        iterations=prefilled.iterations + decoded.iterations,
        hit_tokens=prefilled.hit_tokens,
        recorded=recorded,
        transfers=Transfers(
            there.enqueue_ms, there.start_ms, np.where(sent, there.replica + replicas, -1).astype(np.int64)
        ),
        guesses=decoded.guesses,
    )
    return visits, batches_of(recorded), requests


def iterations_of(column: Columns) -> Iterations:
    """Iterations from their columns."""
    return Iterations(**{one.name: column(one.name) for one in fields(Iterations)})


def batches_of(recorded: Iterations | None) -> Batches:
    """The iterations as batches: who runs in them; empty if they were not recorded."""
    if recorded is None:
        return Batches(np.empty(0), np.empty(0), np.empty(0, dtype=np.int32), np.empty(0, dtype=np.int32))
    return Batches(
        recorded.start_ms,
        recorded.end_ms,
        recorded.running.astype(np.int32),
        recorded.replica.astype(np.int32),
    )


def requests_of(replicas: Replicas | ApartReplicas, enqueue_ms: Floats) -> tuple[Visits, Batches, Requests]:
    """The same of the plain replicas of the event loop.

    Parameters
    ----------
    replicas : those of one stage, at the end of the run.
    enqueue_ms : float64[queries], when each entered the stage; NaN where nobody came.
    """

    if isinstance(replicas, ApartReplicas):
        first, second = replicas.first, replicas.second
        sent_ms = np.full(len(enqueue_ms), np.nan)
        for query in second.requests:
            sent_ms[query] = first.requests[query].sent_ms
        return together(requests_of(first, enqueue_ms), requests_of(second, sent_ms), len(first.replicas))

    def columns(items: list[Any]) -> Columns:
        return lambda name: np.array(
            [getattr(item, name) for item in items], dtype=np.float64 if name.endswith("_ms") else np.int64
        )

    requests = list(replicas.requests.values())
    counted = [request for request in requests if request.query >= replicas.llm.warm_up]
    gaps = gap_cells(np.array([gap for request in counted for gap in request.gaps_ms]))
    served = np.array(list(replicas.requests), dtype=np.int64)
    recorded = iterations_of(columns(replicas.iterations))
    drafted = sum(one.drafted for one in replicas.replicas)
    accepted = sum(one.accepted for one in replicas.replicas)
    return records_of(
        enqueue_ms,
        served,
        columns(requests),
        columns(requests)("hit"),
        gaps,
        len(replicas.iterations),
        recorded,
        None if replicas.llm.speculation is None else Guesses(drafted, accepted),
    )
