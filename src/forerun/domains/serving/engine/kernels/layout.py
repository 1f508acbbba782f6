"""What the kernels' arrays mean. (Part of the digest that names the compiled code's folder: forerun.kernels.)

A *stream* is a sorted sequence of runs: run r says that positions stops[r-1]..stops[r]-1 appear at times[r].
Stream 0 is the source, stream 1 + s what stage s emits, later ones are inputs put together from several parents.
On an *ordered* stream position p is query p; on the others `ids` tells.

Few and wide arrays, and no tuple handed from one compiled function to another: each array of an argument is some seven
numbers and two counted references, and a tuple of fifty of them made up most of what compiling cost.
"""

from __future__ import annotations

from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

#: fields of a stream's row in `State.streams`
RUNS: Final = 0  # runs in the row
BEFORE: Final = 1  # positions that came before the row's first run
COUNT: Final = 2  # positions appended since the beginning
ID_BASE: Final = 3  # the position that ids[0] belongs to
ORDERED: Final = 4  # 1 if position p is query p
STREAM_FIELDS: Final = 5

#: fields of the whole run in the last row of `State.streams`
OPEN: Final = 0  # oldest query that has not finished
MISSES: Final = 1
TIES: Final = 2
TIED: Final = 3  # 1 if two queries have come at one instant

#: fields of a stage's row in `Plan.stages`
INPUT: Final = 0  # stream that it consumes
KIND: Final = 1  # how that comes about, below
MOST: Final = 2  # largest batch
BATCHING: Final = 3
LAW: Final = 4  # of its service times
KEY: Final = 5  # of its draws, the bits of a word without sign
STEADY: Final = 6  # 1: never a change of replicas, no patience
ONE: Final = 7  # 1: steady, with one replica
EDGE_FIRST: Final = 8  # its edges, in declared order, are EDGE_FIRST..EDGE_STOP - 1
EDGE_STOP: Final = 9
CHANGE_FIRST: Final = 10  # its changes of replicas are CHANGE_FIRST..CHANGE_STOP - 1
CHANGE_STOP: Final = 11
END: Final = 12  # its row in `State.ended_ms`, -1 if queries never end here
LEADS_ON: Final = 13  # 1 if some stage has it for a parent
PLAN_FIELDS: Final = 14

#: fields of a stage's row in `Plan.spans`
DELAY_MS: Final = 0  # patience, or the delay of waking
SPREAD: Final = 1  # sigma of the log-normal law
SPANS: Final = 2

#: fields of an edge's row in `Plan.edges`
EDGE_FROM: Final = 0  # stream of the parent
EDGE_KIND: Final = 1  # 0 always, 1 recorded, 2 share
EDGE_KEY: Final = 2  # of its draws, the bits of a word without sign
EDGE_FIELDS: Final = 3

#: fields of a stage's row in `State.stages`
NEXT_RUN: Final = 0  # first run not yet admitted to the queue
HEAD_RUN: Final = 1  # run of the oldest queued position (or NEXT_RUN)
HEAD: Final = 2  # oldest queued position
ADMITTED: Final = 3  # positions admitted since the beginning
BUSY: Final = 4  # batches in service
REPLICAS: Final = 5  # replicas there should be; busy ones above retire as they complete
RING: Final = 6  # where the ring of batches in service begins
STARTED: Final = 7  # batches started since the beginning
WOKEN: Final = 8  # replicas woken and not yet at work
DUE: Final = 9  # where the ring of wake-ups begins
CHANGE: Final = 10  # next change of the number of replicas
TIED_RUN: Final = 11  # first run that ties have not been counted on
EMITTED: Final = 12  # first run that it emitted in this slice
VISITED: Final = 13  # batches whose visits are written
VISITED_TO: Final = 14  # position behind them
STAGE_FIELDS: Final = 15

#: fields of a place in `State.ring`; the first three of a batch in service, the last of the replica of that number
FIRST: Final = 0  # first position
SIZE: Final = 1
REPLICA: Final = 2
STANDING: Final = 3  # 0 no such replica, 1 idle, 2 at work
RING_FIELDS: Final = 4

#: fields of a row of `Plan.changes`
AT_MS: Final = 0
TO: Final = 1
CHANGE_FIELDS: Final = 2

#: kinds of batching
HOLD: Final = 0
WAKE: Final = 1

#: how a stage's input comes about
DIRECT: Final = 0  # the parent's stream as it is
ZIPPED: Final = 1  # ordered streams, every edge always taken
MERGED: Final = 2  # anything else

#: cells behind the last query of a row, that a run of equal values may spill over
SPILL: Final = 8

#: what `advance` answers where arrays are too small
NO_ROOM: Final = -1


class Plan(NamedTuple):
    """What does not change during a run. S stages, E edges (stage by stage, in declared order).

    stages: int64[S, PLAN_FIELDS]. edges: int64[E, EDGE_FIELDS]. spans: float64[S, SPANS]. service_ms: float64[S, B + 1].
    measured_at: int64[S, B + 2], where the values measured for a batch of n begin in measured_ms. changes: float64[n,
    CHANGE_FIELDS], the stages' changes of replicas, stage behind stage. routed: some edge is not always taken. slo_ms:
    latency above which a query misses.
    """

    stages: Ints
    edges: Ints
    spans: Floats
    service_ms: Floats
    measured_at: Ints
    measured_ms: Floats
    changes: Floats
    routed: bool
    slo_ms: float


class State(NamedTuple):
    """What a run carries from one slice to the next. T streams; C is the room for open queries and for runs, K for replicas.

    times: float64[T, C + 1]. stops: int64[T, C + 1]. ids: int32[T, C]. streams: int64[T + 1, STREAM_FIELDS].
    Run r of the source is the query BEFORE + r, and so is index r of what is kept of each open query: ended_ms:
    float64[k, C + SPILL], when it ended at each of the k stages in which queries end, -inf where it has not (ordered
    streams write it in order, without that mark); joining: int32[S, C], taken parents not yet ended; taken:
    uint8[E, C], whether it takes each edge.
    stages: int64[S, STAGE_FIELDS]. ring_ms: float64[S, K], ends of the batches in service, sorted by (end, start order).
    ring: int64[S, K, RING_FIELDS]. edge_run: int64[E], first run of the parent's stream not yet looked at by a put-together
    input. firsts: int64[C], scratch: first position of each batch emitted in this slice.
    """

    times: Floats
    stops: Ints
    ids: NDArray[np.int32]
    streams: Ints
    ended_ms: Floats
    joining: NDArray[np.int32]
    taken: NDArray[np.uint8]
    stages: Ints
    ring_ms: Floats
    ring: Ints
    edge_run: Ints
    firsts: Ints


class Record(NamedTuple):
    """Where results go; arrays of no length are not written.

    finish_ms: float64[n], of query `base` + i. visits_ms: float64[S, 3, n + SPILL], enqueue, start, end; visits: int32[S, 2,
    n + SPILL], batch size and replica. The stage-by-stage kernels leave out what is known: when queries enter that an only
    parent always sends on, and the number of an only replica. batches_ms: float64[S, n, 2], start and end in start order.
    batches: int32[S, n, 2], size and replica.
    """

    base: int
    finish_ms: Floats
    visits_ms: Floats
    visits: NDArray[np.int32]
    batches_ms: Floats
    batches: NDArray[np.int32]
