"""Putting a stage's input together from what its parents emit."""

from __future__ import annotations

import numpy as np

from forerun.domains.serving.kernels.layout import (
    BEFORE,
    BUSY,
    COUNT,
    DIRECT,
    FIRST,
    HEAD,
    HEAD_RUN,
    ID_BASE,
    NEXT_RUN,
    RING,
    RUNS,
    TIED_RUN,
    ZIPPED,
    Plan,
    State,
)
from forerun.kernels.jit import kernel


@kernel(inline=True)
def gather(s: int, plan: Plan, state: State, until_ms: float) -> None:
    """Extend the input of stage `s` by everything its parents emit before `until_ms`."""
    kind = plan.input_kind[s]
    if kind == DIRECT:
        return
    if kind == ZIPPED:
        zip_ordered(s, plan, state, until_ms)
    else:
        merge(s, plan, state, until_ms)


@kernel(inline=True)
def zip_ordered(s: int, plan: Plan, state: State, until_ms: float) -> None:
    """Join ordered streams of all queries: each query enters when its last parent ends, so in query order.

    Runs are cut where any parent's run ends; pieces that the same batch of the last parent completes stay one run.
    """
    first, stop = plan.edge_at[s], plan.edge_at[s + 1]
    into, edge_from, edge_run = plan.input_of[s], plan.edge_from, state.edge_run
    streams, all_times, all_stops = state.streams, state.times, state.stops
    times, stops, row = all_times[into], all_stops[into], streams[into]
    runs, at = row[RUNS], row[COUNT]
    last_edge, last_run = -1, -1
    while True:
        end, time_ms, edge = np.int64(2**62), -np.inf, first
        for e in range(first, stop):
            parent, run = edge_from[e], edge_run[e]
            if run >= streams[parent, RUNS]:
                time_ms = np.inf
                break
            end = min(end, all_stops[parent, run])
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
            edge_run[e] += all_stops[edge_from[e], edge_run[e]] == end
    row[RUNS], row[COUNT] = runs, at


@kernel(inline=True)
def merge(s: int, plan: Plan, state: State, until_ms: float) -> None:
    """Join any streams: parents' batches in order of (time, declared index); a query enters with its last taken parent.

    So the queries that enter at one instant stand in the order (index of the last-finishing parent, order of emission).
    """
    into, edge_from, edge_run = plan.input_of[s], plan.edge_from, state.edge_run
    streams, all_times, all_stops, all_ids = state.streams, state.times, state.stops, state.ids
    times, stops, ids, row = all_times[into], all_stops[into], all_ids[into], streams[into]
    runs, count, base = row[RUNS], row[COUNT], row[ID_BASE]
    joining, taken, routed, window_first = state.joining[s], state.taken, plan.routed, state.window[FIRST]
    while True:
        chosen, time_ms = -1, until_ms
        for e in range(plan.edge_at[s], plan.edge_at[s + 1]):
            parent, run = edge_from[e], edge_run[e]
            if run < streams[parent, RUNS] and all_times[parent, run] < time_ms:
                chosen, time_ms = e, all_times[parent, run]
        if chosen < 0:
            break
        parent, run = edge_from[chosen], edge_run[chosen]
        known, parent_ids, parent_base = plan.ordered[parent], all_ids[parent], streams[parent, ID_BASE]
        start = all_stops[parent, run - 1] if run > 0 else streams[parent, BEFORE]
        entered = count
        bit = np.uint64(1) << np.uint64(chosen)
        for position in range(start, all_stops[parent, run]):
            query = position if known else np.int64(parent_ids[position - parent_base])
            index = query - window_first
            if routed and not taken[index] & bit:
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


@kernel(inline=True)
def pass_ids(s: int, first_run: int, plan: Plan, state: State) -> None:
    """Name the queries of the batches that stage `s` emitted from run `first_run` on, in order of emission."""
    source, out = plan.input_of[s], s + 1
    known, base = plan.ordered[source], state.streams[source, ID_BASE]
    ids, out_ids = state.ids[source], state.ids[out]
    start = state.stops[out, first_run - 1] if first_run > 0 else state.streams[out, BEFORE]
    place = start - state.streams[out, ID_BASE]
    for run in range(first_run, state.streams[out, RUNS]):
        stop = state.stops[out, run]
        position = state.firsts[run - first_run]
        for _ in range(start, stop):
            out_ids[place] = position if known else ids[position - base]
            place += 1
            position += 1
        start = stop


@kernel(inline=True)
def make_room(needed: int, plan: Plan, state: State) -> bool:
    """Drop what no one will read again where a row would overflow; False if even that leaves no room for `needed`."""
    room = state.ids.shape[1]
    for stream in range(state.streams.shape[0]):
        row = state.streams[stream]
        if row[RUNS] + needed > room or row[COUNT] - row[ID_BASE] + needed > room:
            _drop(stream, plan, state)
            if row[RUNS] + needed > room or row[COUNT] - row[ID_BASE] + needed > room:
                return False
    return True


@kernel(inline=True)
def _drop(stream: int, plan: Plan, state: State) -> None:
    """Forget the runs and ids of a stream that all of its readers have passed."""
    row, times, stops, ids = (
        state.streams[stream],
        state.times[stream],
        state.stops[stream],
        state.ids[stream],
    )
    run, position = row[RUNS], row[COUNT]
    for s in range(plan.input_of.shape[0]):
        own = state.stages[s]
        if plan.input_of[s] == stream:
            run = min(run, own[NEXT_RUN], own[HEAD_RUN])
            if not plan.steady[s]:
                run = min(run, own[TIED_RUN])
            position = min(position, own[HEAD])
            for k in range(own[BUSY]):
                position = min(position, state.ring[s, (own[RING] + k) & (state.ring.shape[1] - 1), 0])
        if plan.input_kind[s] != DIRECT:
            for e in range(plan.edge_at[s], plan.edge_at[s + 1]):
                if plan.edge_from[e] == stream:
                    run = min(run, state.edge_run[e])
    if plan.sink_ordered and 0 < stream <= plan.may_end.shape[0] and plan.may_end[stream - 1]:
        run = min(run, state.sink_run[stream - 1])
    before = stops[run - 1] if run > 0 else row[BEFORE]
    position = min(position, before)
    for r in range(row[RUNS] - run):
        times[r], stops[r] = times[r + run], stops[r + run]
    for p in range(row[COUNT] - position if not plan.ordered[stream] else 0):
        ids[p] = ids[p + position - row[ID_BASE]]
    row[RUNS] -= run
    row[BEFORE] = before
    row[ID_BASE] = position
    for s in range(plan.input_of.shape[0]):
        if plan.input_of[s] == stream:
            state.stages[s, NEXT_RUN] -= run
            state.stages[s, HEAD_RUN] -= run
            state.stages[s, TIED_RUN] -= run
        if plan.input_kind[s] != DIRECT:
            for e in range(plan.edge_at[s], plan.edge_at[s + 1]):
                if plan.edge_from[e] == stream:
                    state.edge_run[e] -= run
    if 0 < stream <= plan.may_end.shape[0]:
        state.sink_run[stream - 1] -= run
