"""The whole pipeline, stage by stage, one slice of time after another.

The law: cutting a run at any instants, or feeding its arrivals in any chunks, changes no byte of the result.
"""

from __future__ import annotations

import numpy as np

from forerun.domains.serving.kernels.draws import takes
from forerun.domains.serving.kernels.layout import (
    BEFORE,
    COUNT,
    FED,
    FIRST,
    ID_BASE,
    MERGED,
    MISSES,
    OPEN,
    RUNS,
    Floats,
    Plan,
    Record,
    State,
)
from forerun.domains.serving.kernels.serve import serve
from forerun.domains.serving.kernels.streams import gather, make_room, pass_ids
from forerun.kernels.jit import kernel


@kernel
def advance(
    plan: Plan, state: State, record: Record, arrivals_ms: Floats, taken: np.ndarray, until_ms: float
) -> bool:
    """Feed arrivals and handle every instant before `until_ms`; False, with nothing done, if arrays are too small.

    arrivals_ms: float64[n], ascending, no earlier than what was fed before; with it every arrival before `until_ms`
    has been fed. taken: bool[E, n], recorded routing, or bool[E, 0].
    """
    fresh = arrivals_ms.shape[0]
    window = state.window
    needed = window[FED] - window[OPEN] + fresh
    if not (make_room(needed, plan, state) and _window_room(fresh, state)):
        return False
    _feed(plan, state, arrivals_ms, taken)
    full = record.visits.shape[1] > 0
    for s in range(plan.input_of.shape[0]):
        first_run = state.streams[s + 1, RUNS]
        gather(s, plan, state, until_ms)
        serve(s, plan, state, record, until_ms, full)
        if not plan.ordered[s + 1]:
            pass_ids(s, first_run, plan, state)
        if plan.may_end[s] and not plan.sink_ordered:
            _end_at(s, first_run, plan, state)
    if plan.sink_ordered:
        _finish_ordered(plan, state, record)
    else:
        _finish(plan, state, record)
    return True


@kernel(inline=True)
def _window_room(fresh: int, state: State) -> bool:
    """Make room for `fresh` queries in the window of open ones."""
    window, room = state.window, state.arrival_ms.shape[0]
    if window[FED] - window[FIRST] + fresh > room:
        shift = window[OPEN] - window[FIRST]
        for i in range(window[FED] - window[OPEN]):
            state.arrival_ms[i] = state.arrival_ms[i + shift]
            state.finish_ms[i] = state.finish_ms[i + shift]
            state.left[i] = state.left[i + shift]
            state.taken[i] = state.taken[i + shift]
        for s in range(state.joining.shape[0]):
            for i in range(window[FED] - window[OPEN]):
                state.joining[s, i] = state.joining[s, i + shift]
        window[FIRST] = window[OPEN]
    return bool(window[FED] - window[FIRST] + fresh <= room)


@kernel(inline=True)
def _feed(plan: Plan, state: State, arrivals_ms: Floats, taken: np.ndarray) -> None:
    """New queries join the source's stream and the window, their ways through the pipeline decided."""
    row, window, times, stops = state.streams[0], state.window, state.times[0], state.stops[0]
    fresh, runs, count = arrivals_ms.shape[0], row[RUNS], row[COUNT]
    first = window[FED] - window[FIRST]
    ends = np.int32(0)
    for s in range(plan.may_end.shape[0]):
        ends += plan.may_end[s]
    # Views and one array a loop: so each loop compiles to a copy of whole words.
    _copy(arrivals_ms, times[runs : runs + fresh])
    _copy(arrivals_ms, state.arrival_ms[first : first + fresh])
    positions = stops[runs : runs + fresh]
    for i in range(fresh):
        positions[i] = count + i + 1
    if not plan.sink_ordered:
        _copy(arrivals_ms, state.finish_ms[first : first + fresh])
        left = state.left[first : first + fresh]
        for i in range(fresh):
            left[i] = ends
    row[RUNS], row[COUNT] = runs + fresh, count + fresh
    if plan.routed:
        for i in range(fresh):
            _route(first + i, window[FED] + i, i, plan, state, taken)
    else:
        for s in range(plan.may_end.shape[0]):
            if plan.input_kind[s] == MERGED:
                for i in range(fresh):
                    state.joining[s, first + i] = plan.edge_at[s + 1] - plan.edge_at[s]
    window[FED] += fresh


@kernel
def _copy(source: Floats, target: Floats) -> None:
    for i in range(source.shape[0]):
        target[i] = source[i]


@kernel(inline=True)
def _route(at: int, query: int, i: int, plan: Plan, state: State, taken: np.ndarray) -> None:
    """Decide which edges a query takes: those it draws, or is recorded to take, at stages it visits."""
    edges, ends, visited = np.uint64(0), 0, np.uint64(0)
    for s in range(plan.may_end.shape[0]):
        parents = 0
        for e in range(plan.edge_at[s], plan.edge_at[s + 1]):
            parent = plan.edge_from[e]
            if parent > 0 and not visited & (np.uint64(1) << np.uint64(parent - 1)):
                continue
            recorded = plan.edge_kind[e] == 1 and taken[e, i]
            if takes(plan.edge_kind[e], plan.edge_share[e], plan.edge_key[e], query, recorded):
                edges |= np.uint64(1) << np.uint64(e)
                parents += 1
        state.joining[s, at] = parents
        if parents > 0:
            visited |= np.uint64(1) << np.uint64(s)
            ends += plan.may_end[s]
    state.taken[at] = edges
    state.left[at] = ends


@kernel(inline=True)
def _end_at(s: int, first_run: int, plan: Plan, state: State) -> None:
    """Queries whose last stage may be `s` have ended there."""
    out, first = s + 1, state.window[FIRST]
    start = state.stops[out, first_run - 1] if first_run > 0 else state.streams[out, BEFORE]
    ids, base, known = state.ids[out], state.streams[out, ID_BASE], plan.ordered[out]
    finish_ms, left, times, stops = state.finish_ms, state.left, state.times[out], state.stops[out]
    for run in range(first_run, state.streams[out, RUNS]):
        end_ms, stop = times[run], stops[run]
        for position in range(start, stop):
            index = (position if known else np.int64(ids[position - base])) - first
            finish_ms[index] = max(finish_ms[index], end_ms)
            left[index] -= 1
        start = stop


@kernel(inline=True)
def _finish(plan: Plan, state: State, record: Record) -> None:
    """Write out, in order, the queries up to the oldest that is still open."""
    window, slo_ms, misses = state.window, plan.slo_ms, 0
    arrival_ms, finish_ms, left, found_ms = state.arrival_ms, state.finish_ms, state.left, record.finish_ms
    first, query, fed, base = window[FIRST], window[OPEN], window[FED], record.base
    write = found_ms.shape[0] > 0
    while query < fed and left[query - first] == 0:
        end_ms = finish_ms[query - first]
        misses += end_ms - arrival_ms[query - first] > slo_ms
        if write:
            found_ms[query - base] = end_ms
        query += 1
    window[OPEN] = query
    window[MISSES] += misses


@kernel(inline=True)
def _finish_ordered(plan: Plan, state: State, record: Record) -> None:
    """The same where all last stages emit in query order: runs are joined, and in a run that ends at one instant the
    queries that miss come first, because they arrived first."""
    window, slo_ms, misses = state.window, plan.slo_ms, 0
    arrival_ms, found_ms, ends = state.arrival_ms, record.finish_ms, plan.ends
    streams, all_times, all_stops, sink_run = state.streams, state.times, state.stops, state.sink_run
    first, query, base = window[FIRST], window[OPEN], record.base
    write = found_ms.shape[0] > 0
    while True:
        stop, end_ms = np.int64(2**62), -np.inf
        for k in range(ends.shape[0]):
            s = ends[k]
            run = sink_run[s]
            if run >= streams[s + 1, RUNS]:
                stop = np.int64(-1)
                break
            stop = min(stop, all_stops[s + 1, run])
            end_ms = max(end_ms, all_times[s + 1, run])
        if stop < 0:
            break
        if write:
            for i in range(query - base, stop - base):
                found_ms[i] = end_ms
        late = query
        while late < stop and end_ms - arrival_ms[late - first] > slo_ms:
            late += 1
        misses += late - query
        query = stop
        for k in range(ends.shape[0]):
            s = ends[k]
            sink_run[s] += all_stops[s + 1, sink_run[s]] == stop
    window[OPEN] = query
    window[MISSES] += misses
