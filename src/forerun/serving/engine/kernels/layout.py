"""What the kernels' arrays mean. (Part of the digest that names the compiled code's folder: forerun.core.kernels.)

A *stream* is a sorted sequence of runs: run r says that positions stops[r-1]..stops[r]-1 appear at times[r].
Stream 0 is the source, stream 1 + s what stage s emits, later ones are inputs put together from several parents.
On an *ordered* stream position p is query p; on the others `ids` tells.

Arrays are handed on as few tuples: each array of an argument is some seven numbers, and many of them
would make up most of what compiling costs.
"""

from __future__ import annotations

from typing import Any, Final, NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

from forerun.core.kernels.records import Rows, record_type

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
#: a row of one of the types below
Row: TypeAlias = Any


STREAM: Final = record_type("runs before count id_base ordered")
"""A stream, in `State.streams`.

runs: in its arrays. before: positions that came before the first of them. count: positions appended since the beginning.
id_base: the position that ids[0] belongs to. ordered: 1 if position p is query p.
"""

WHOLE: Final = record_type("open misses ties tied")
"""The whole run, the only row of `State.whole`.

open: oldest query that has not finished. misses, ties: so far. tied: 1 if two queries have come at one instant.
"""

STAGE: Final = record_type(
    "input kind most wakes law steady one edge_first edge_stop change_first change_stop end leads_on key",
    "delay_ms spread",
)
"""What is fixed of a stage, in `KernelPlan.stages`.

input: stream that it consumes. kind: how that comes about, below. most: largest batch. wakes: 1: idle replicas are woken
`delay_ms` before they start; 0: a batch waits for this long. law: of its service times. steady: 1: never a change of
replicas, no patience. one: 1: steady, with one replica. edge_first, edge_stop: its edges, in declared order. change_first,
change_stop: its changes of replicas. end: its row in `State.ended_ms`, -1 if queries never end here. leads_on: 1 if some
stage has it for a parent. key: of its draws, the bits of a word without sign. delay_ms: patience, or the delay of waking.
spread: sigma of the log-normal law.
"""

EDGE: Final = record_type("parent kind key", "share")
"""An edge, in `KernelPlan.edges`.

parent: its stream. kind: 0 always, 1 recorded, 2 with probability `share`. key: of its draws, the bits of a word without
sign.
"""

CHANGE: Final = record_type("to", "at_ms")
"""A change of a stage's replicas, in `KernelPlan.changes`: `to` this many at `at_ms`."""

STAGE_STATE: Final = record_type(
    "next_run head_run head admitted busy replicas ring started woken due change tied_run emitted visited visited_to"
)
"""What a stage carries from one slice to the next, in `State.stages`.

next_run: first run not yet admitted to the queue. head_run: run of the oldest queued position (or next_run). head: oldest
queued position. admitted: positions admitted since the beginning. busy: batches in service. replicas: how many there should
be; busy ones above retire as they complete. ring: where the ring of batches in service begins. started: batches started
since the beginning. woken: replicas woken and not yet at work. due: where the ring of wake-ups begins. change: next change
of the number of replicas. tied_run: first run that ties have not been counted on. emitted: first run that it emitted in
this slice. visited: batches whose visits are written. visited_to: position behind them.
"""

PLACE: Final = record_type("first queries replica standing")
"""A place in a stage's ring, in `State.ring`.

first, queries, replica: of a batch in service: its first position, its size, who serves it. standing: of the replica whose
number is the place's.
"""

#: `standing` of a replica
ABSENT: Final = 0
IDLE: Final = 1
WORKING: Final = 2

WAKE: Final = record_type("replica", "due_ms")
"""A replica that is woken, in `State.wakes`, and when it starts."""

BATCH: Final = np.dtype([("start_ms", "f8"), ("end_ms", "f8"), ("queries", "i4"), ("replica", "i4")])
"""A batch, in `Record.batches`."""

#: how a stage's input comes about
DIRECT: Final = 0  # the parent's stream as it is
ZIPPED: Final = 1  # ordered streams, every edge always taken
MERGED: Final = 2  # anything else

#: cells behind the last query of a row, that a run of equal values may spill over
SPILL: Final = 8


class KernelPlan(NamedTuple):
    """What does not change during a run. S stages, E edges (stage by stage, in declared order).

    stages: STAGE[S]. edges: EDGE[E]. service_ms: float64[S, B + 1]. measured_at: int64[S, B + 2], where the values measured
    for a batch of n begin in measured_ms. changes: CHANGE[n], the stages' changes of replicas, stage behind stage. routed:
    some edge is not always taken. slo_ms: latency above which a query misses.
    """

    stages: Rows
    edges: Rows
    service_ms: Floats
    measured_at: Ints
    measured_ms: Floats
    changes: Rows
    routed: bool
    slo_ms: float


class State(NamedTuple):
    """What a run carries from one slice to the next. T streams; C: capacity for open queries and runs, K: for replicas.

    times: float64[T, C + 1]. stops: int64[T, C + 1]. ids: int32[T, C]. streams: STREAM[T]. whole: WHOLE[1].
    Run r of the source is the query `before` + r, and so is index r of what is stored of each open query: ended_ms:
    float64[k, C + SPILL], when it ended at each of the k stages in which queries end, -inf where it has not (ordered
    streams write it in order, without that mark); joining: int32[S, C], taken parents not yet ended; taken:
    uint8[E, C], whether it takes each edge.
    stages: STAGE_STATE[S]. ends_ms: float64[S, K], ends of the batches in service, sorted by (end, start order); ring:
    PLACE[S, K]. wakes: WAKE[S, K], a ring of wake-ups. edge_run: int64[E], first run of the parent's stream not yet looked
    at by a put-together input. firsts: int64[C], scratch: first position of each batch emitted in this slice.
    """

    times: Floats
    stops: Ints
    ids: NDArray[np.int32]
    streams: Rows
    whole: Rows
    ended_ms: Floats
    joining: NDArray[np.int32]
    taken: NDArray[np.uint8]
    stages: Rows
    ends_ms: Floats
    ring: Rows
    wakes: Rows
    edge_run: Ints
    firsts: Ints


class Record(NamedTuple):
    """Where results go; arrays of no length are not written.

    finish_ms: float64[n], of query `base` + i. visits_ms: float64[S, 3, n + SPILL], enqueue, start, end; visits: int32[S, 2,
    n + SPILL], batch size and replica. The stage-by-stage kernels leave out what is known: when queries enter that an only
    parent always sends on, and the number of an only replica. batches: BATCH[S, n], in start order.
    """

    base: int
    finish_ms: Floats
    visits_ms: Floats
    visits: NDArray[np.int32]
    batches: Rows


class StageArrays(NamedTuple):
    """One stage's part of the plan, the state and the record.

    facts, service_ms, measured_at: its rows of the plan, and all that was measured. own, ends_ms, ring: its rows of the
    state. into, in_ms, in_stops, ids: the stream that it consumes; out, out_ms, out_stops: the one that it emits. firsts:
    scratch, as in the state. batches: its row of the record.
    """

    facts: Row
    service_ms: Floats
    measured_at: Ints
    measured_ms: Floats
    own: Row
    ends_ms: Floats
    ring: Rows
    into: Row
    in_ms: Floats
    in_stops: Ints
    ids: NDArray[np.int32]
    out: Row
    out_ms: Floats
    out_stops: Ints
    firsts: Ints
    batches: Rows
