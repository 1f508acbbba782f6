"""What the kernels' arrays mean. (Part of the digest that names the compiled code's folder: forerun.kernels.)

A *stream* is a sorted sequence of runs: run r says that positions stops[r-1]..stops[r]-1 appear at times[r].
Stream 0 is the source, stream 1 + s what stage s emits, later ones are inputs put together from several parents.
On an *ordered* stream position p is query p; on the others `ids` tells.

Kernels that are called from one place only are inlined: handing a plan and a state from one compiled function to another
costs more, in compiling and in calling, than most of them do.
"""

from __future__ import annotations

from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
Bytes = NDArray[np.uint8]

#: fields of a stream's row in `State.streams`
RUNS: Final = 0  # runs held in the row
BEFORE: Final = 1  # positions that came before the row's first run
COUNT: Final = 2  # positions appended since the beginning
ID_BASE: Final = 3  # the position that ids[0] belongs to
STREAM_FIELDS: Final = 4

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
FRESH: Final = 10  # 1 if the number of replicas has just changed
CHANGE: Final = 11  # next change of the number of replicas
TIED_RUN: Final = 12  # first run that ties have not been counted on
STAGE_FIELDS: Final = 13

#: fields of `State.window`
FIRST: Final = 0  # query at index 0 of the window
OPEN: Final = 1  # oldest query that has not finished
FED: Final = 2  # queries fed
MISSES: Final = 3
TIES: Final = 4
WINDOW_FIELDS: Final = 5

#: kinds of batching
HOLD: Final = 0
WAKE: Final = 1

#: how a stage's input comes about
DIRECT: Final = 0  # the parent's stream as it is
ZIPPED: Final = 1  # ordered streams, every edge always taken
MERGED: Final = 2  # anything else


class Plan(NamedTuple):
    """What does not change during a run. S stages, E edges (stage by stage, in declared order), T streams.

    input_of: int64[S], stream that a stage consumes. input_kind, max_batch, batching: int64[S].
    delay_ms: float64[S], patience of the batching policy. service_ms: float64[S, B + 1]. law: int64[S].
    spread: float64[S], sigma of the log-normal law. draw_key: uint64[S].
    measured_at: int64[S, B + 2], where the values measured for a batch of n begin in measured_ms.
    change_at: int64[S + 1], a stage's part of change_ms and change_to.
    steady: bool[S], never a change of replicas, no patience. one: bool[S], steady with one replica.
    edge_at: int64[S + 1], a stage's edges. edge_from: int64[E], stream of the parent.
    edge_kind: int64[E], 0 always, 1 recorded, 2 share. edge_key: uint64[E]. edge_share: float64[E].
    ordered: bool[T]. may_end: bool[S]. ends: int64[k], the stages of may_end. routed: some edge is not always taken.
    sink_ordered: the streams in which queries end are all ordered and every query is in each.
    slo_ms: latency above which a query misses.
    """

    input_of: Ints
    input_kind: Ints
    max_batch: Ints
    batching: Ints
    delay_ms: Floats
    service_ms: Floats
    law: Ints
    spread: Floats
    draw_key: NDArray[np.uint64]
    measured_at: Ints
    measured_ms: Floats
    change_at: Ints
    change_ms: Floats
    change_to: Ints
    steady: NDArray[np.bool_]
    one: NDArray[np.bool_]
    edge_at: Ints
    edge_from: Ints
    edge_kind: Ints
    edge_key: NDArray[np.uint64]
    edge_share: Floats
    ordered: NDArray[np.bool_]
    may_end: NDArray[np.bool_]
    ends: Ints
    sink_ordered: bool
    routed: bool
    slo_ms: float


class State(NamedTuple):
    """What a run carries from one slice to the next; W is the room for open queries, C for runs, K for replicas.

    times: float64[T, C + 1]. stops: int64[T, C + 1]. ids: int32[T, C]. streams: int64[T, STREAM_FIELDS].
    stages: int64[S, STAGE_FIELDS]. now_ms: float64[S], earliest instant the stage may act at.
    ring_ms: float64[S, K], ends of the batches in service, sorted by (end, start order). ring: int64[S, K, 3], their first
    position, size and replica. due_ms: float64[S, K], wake-ups. due: int64[S, K], replicas woken.
    numbers: uint8[S, K], 0 no such replica, 1 idle, 2 at work. edge_run: int64[E], first run of the parent's stream not
    yet looked at by a put-together input. sink_run: int64[S], the same for the end of the pipeline.
    window: int64[WINDOW_FIELDS]. arrival_ms, finish_ms: float64[W]. left: int32[W], last stages not yet ended.
    joining: int32[S, W], taken parents not yet ended. taken: uint64[W], a bit an edge.
    firsts: int64[C], scratch: first position of each batch emitted in this slice.
    """

    times: Floats
    stops: Ints
    ids: NDArray[np.int32]
    streams: Ints
    stages: Ints
    now_ms: Floats
    ring_ms: Floats
    ring: Ints
    due_ms: Floats
    due: Ints
    numbers: NDArray[np.uint8]
    edge_run: Ints
    sink_run: Ints
    window: Ints
    arrival_ms: Floats
    finish_ms: Floats
    left: NDArray[np.int32]
    joining: NDArray[np.int32]
    taken: NDArray[np.uint64]
    firsts: Ints


class Record(NamedTuple):
    """Where results go; arrays of no length are not written.

    finish_ms: float64[n], of query `base` + i. visits_ms: float64[S, n, 3], enqueue, start, end.
    visits: int32[S, n, 2], batch size and replica. batches_ms: float64[S, n, 2], start and end in start order.
    batches: int32[S, n, 2], size and replica.
    """

    base: int
    finish_ms: Floats
    visits_ms: Floats
    visits: NDArray[np.int32]
    batches_ms: Floats
    batches: NDArray[np.int32]
