"""Between the stages: putting an input together from what parents emit, naming queries, and forgetting what is past."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from forerun.domains.serving.engine.kernels.layout import (
    BEFORE,
    BUSY,
    COUNT,
    DIRECT,
    EDGE_FIRST,
    EDGE_FROM,
    EDGE_STOP,
    END,
    FIRST,
    HEAD,
    HEAD_RUN,
    ID_BASE,
    INPUT,
    KIND,
    LEADS_ON,
    NEXT_RUN,
    ONE,
    OPEN,
    ORDERED,
    RING,
    RUNS,
    STEADY,
    TIED_RUN,
    Floats,
    Ints,
)
from forerun.kernels.jit import kernel


@kernel
def zip_ordered(
    first: int,
    stop: int,
    into: int,
    edges: Ints,
    edge_run: Ints,
    streams: Ints,
    all_times: Floats,
    all_stops: Ints,
    until_ms: float,
) -> None:
    """Join ordered streams of all queries: each query enters when its last parent ends, so in query order.

    Runs are cut where any parent's run ends; pieces that the same batch of the last parent completes stay one run. The
    parents are those of edges first..stop-1.
    """
    times, stops, row = all_times[into], all_stops[into], streams[into]
    runs, at = row[RUNS], row[COUNT]
    last_edge, last_run = -1, -1
    while True:
        end, time_ms, edge = 2**62, -np.inf, first
        for e in range(first, stop):
            parent, run = edges[e, EDGE_FROM], edge_run[e]
            if run >= streams[parent, RUNS]:
                time_ms = np.inf
                break
            ends_at = all_stops[parent, run]
            end = ends_at if ends_at < end else end
            if all_times[parent, run] >= time_ms:
                time_ms, edge = all_times[parent, run], e
        if not time_ms < until_ms:
            break
        if edge == last_edge and edge_run[edge] == last_run:
            stops[runs - 1] = end
        else:
            last_edge, last_run = edge, edge_run[edge]
            times[runs], stops[runs] = time_ms, end
            runs += 1
        at = end
        for e in range(first, stop):
            edge_run[e] += all_stops[edges[e, EDGE_FROM], edge_run[e]] == end
    row[RUNS], row[COUNT] = runs, at


@kernel
def merge(
    first: int,
    stop: int,
    into: int,
    edges: Ints,
    edge_run: Ints,
    streams: Ints,
    all_times: Floats,
    all_stops: Ints,
    all_ids: NDArray[np.int32],
    joining: NDArray[np.int32],
    taken: NDArray[np.uint8],
    routed: bool,
    until_ms: float,
) -> None:
    """Join any streams: parents' batches in order of (time, declared index); a query enters with its last taken parent.

    So the queries that enter at one instant stand in the order (index of the last-finishing parent, order of emission).
    """
    times, stops, ids, row = all_times[into], all_stops[into], all_ids[into], streams[into]
    runs, count, base = row[RUNS], row[COUNT], row[ID_BASE]
    window_first = streams[0, BEFORE]
    while True:
        chosen, time_ms = -1, until_ms
        for e in range(first, stop):
            parent, run = edges[e, EDGE_FROM], edge_run[e]
            if run < streams[parent, RUNS] and all_times[parent, run] < time_ms:
                chosen, time_ms = e, all_times[parent, run]
        if chosen < 0:
            break
        parent, run = edges[chosen, EDGE_FROM], edge_run[chosen]
        known, parent_ids, parent_base = (
            streams[parent, ORDERED] > 0,
            all_ids[parent],
            streams[parent, ID_BASE],
        )
        start = all_stops[parent, run - 1] if run > 0 else streams[parent, BEFORE]
        entered = count
        takes = taken[chosen if routed else 0]
        for position in range(start, all_stops[parent, run]):
            query = position if known else np.int64(parent_ids[position - parent_base])
            index = query - window_first
            if routed and not takes[index]:
                continue
            joining[index] -= 1
            if joining[index] == 0:
                ids[count - base] = query
                count += 1
        if count > entered:
            times[runs], stops[runs] = time_ms, count
            runs += 1
        edge_run[chosen] += 1
    row[RUNS], row[COUNT] = runs, count


@kernel
def pass_on(
    facts: Ints,
    first_run: int,
    out: Ints,
    out_ms: Floats,
    out_stops: Ints,
    firsts: Ints,
    ids: NDArray[np.int32],
    id_base: int,
    known: int,
    out_ids: NDArray[np.int32],
    window_first: int,
    ended_ms: Floats,
) -> None:
    """Name the queries of the batches that a stage emitted from run `first_run` on, in order of emission, for the stages
    behind it, and note when those end that may end here.

    ids, id_base: the queries at the positions of the stage's input, unless position p is known to be query p.
    """
    # Unsigned, so that no access asks whether a position counts from the end.
    one, base, opened = np.uint64(1), np.uint64(id_base), np.uint64(window_first)
    start = np.uint64(out_stops[first_run - 1] if first_run > 0 else out[BEFORE])
    leads_on, end, in_order = facts[LEADS_ON] > 0, facts[END], facts[ONE] > 0
    ended = ended_ms[end if end >= 0 else 0]
    place = start - np.uint64(out[ID_BASE])
    for run in range(first_run, out[RUNS]):
        stop, end_ms = np.uint64(out_stops[run]), out_ms[run]
        position = start if in_order else np.uint64(firsts[run - first_run])
        while start < stop:
            query = position if known else np.uint64(ids[position - base])
            if leads_on:
                out_ids[place] = np.int32(query)
                place += one
            if end >= 0:
                ended[query - opened] = end_ms
            position += one
            start += one


@kernel
def end_in_order(
    first_run: int, out: Ints, out_ms: Floats, out_stops: Ints, window_first: int, ended: Floats
) -> None:
    """Note when the queries end that an ordered stream emitted from run `first_run` on.

    Four cells at a time, without asking where the run ends: what spills over is written again by the next run.
    """
    # Unsigned, so that no access asks whether a position counts from the end.
    before, width = np.uint64(window_first), np.uint64(8)
    at = np.uint64(out_stops[first_run - 1] if first_run > 0 else out[BEFORE]) - before
    for run in range(first_run, out[RUNS]):
        stop, end_ms = np.uint64(out_stops[run]) - before, out_ms[run]
        while True:
            for k in range(8):
                ended[at + np.uint64(k)] = end_ms
            at += width
            if at >= stop:
                break
        at = stop


@kernel
def drop(
    needed: int,
    fresh: int,
    stages: Ints,
    edges: Ints,
    streams: Ints,
    own: Ints,
    edge_run: Ints,
    rings: Ints,
    all_times: Floats,
    all_stops: Ints,
    all_ids: NDArray[np.int32],
    ended_ms: Floats,
    joining: NDArray[np.int32],
    taken: NDArray[np.uint8],
) -> bool:
    """Drop what no one will read again where a row would overflow; False if even that leaves no room.

    needed: runs and positions that any stream may get; fresh: what the source gets. stages, edges: the plan's. own: the
    stages of the state.
    """
    room = all_ids.shape[1]
    for stream in range(all_times.shape[0]):
        row = streams[stream]
        runs, count, more = row[RUNS], row[COUNT], needed if stream > 0 else fresh
        if runs + more <= room and count - row[ID_BASE] + more <= room:
            continue
        # What every reader has passed; of the source, open queries stay.
        passed, position = runs, count
        if stream == 0:
            passed = streams[-1, OPEN] - row[BEFORE]
        for s in range(own.shape[0]):
            if stages[s, INPUT] == stream:
                passed = min(passed, own[s, NEXT_RUN], own[s, HEAD_RUN])
                if not stages[s, STEADY]:
                    passed = min(passed, own[s, TIED_RUN])
                position = min(position, own[s, HEAD])
                for k in range(own[s, BUSY]):
                    position = min(position, rings[s, (own[s, RING] + k) & (rings.shape[1] - 1), FIRST])
            if stages[s, KIND] != DIRECT:
                for e in range(stages[s, EDGE_FIRST], stages[s, EDGE_STOP]):
                    if edges[e, EDGE_FROM] == stream:
                        passed = min(passed, edge_run[e])
        before = all_stops[stream, passed - 1] if passed > 0 else row[BEFORE]
        position = min(position, before)
        runs -= passed
        if runs + more > room or count - position + more > room:
            return False
        times, stops = all_times[stream], all_stops[stream]
        for r in range(runs):
            times[r], stops[r] = times[r + passed], stops[r + passed]
        if not row[ORDERED]:
            ids, gone = all_ids[stream], position - row[ID_BASE]
            for p in range(count - position):
                ids[p] = ids[p + gone]
        row[RUNS], row[BEFORE], row[ID_BASE] = runs, before, position
        for s in range(own.shape[0]):
            if stages[s, INPUT] == stream:
                own[s, NEXT_RUN] -= passed
                own[s, HEAD_RUN] -= passed
                own[s, TIED_RUN] -= passed
            if stages[s, KIND] != DIRECT:
                for e in range(stages[s, EDGE_FIRST], stages[s, EDGE_STOP]):
                    if edges[e, EDGE_FROM] == stream:
                        edge_run[e] -= passed
        if stream == 0:
            for k in range(ended_ms.shape[0]):
                for i in range(runs):
                    ended_ms[k, i] = ended_ms[k, i + passed]
            for s in range(joining.shape[0]):
                for i in range(runs if joining.shape[1] > 0 else 0):
                    joining[s, i] = joining[s, i + passed]
            for e in range(taken.shape[0]):
                for i in range(runs if taken.shape[1] > 0 else 0):
                    taken[e, i] = taken[e, i + passed]
    return True
