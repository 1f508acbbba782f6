"""Between the stages: putting an input together from what parents emit, naming queries, and forgetting what is past."""

from __future__ import annotations

import numpy as np

from forerun.core.kernels.jit import kernel
from forerun.serving.engine.kernels.layout import (
    DIRECT,
    MERGED,
    ZIPPED,
    Floats,
    KernelPlan,
    StageArrays,
    State,
)


@kernel(allocates=False)
def gather(plan: KernelPlan, state: State, s: int, until_ms: float) -> None:
    """Put a stage's input together from what its parents emitted before `until_ms`; a direct input is there already."""
    if plan.stages[s].kind == ZIPPED:
        zip_ordered(plan, state, s, until_ms)
    elif plan.stages[s].kind == MERGED:
        merge(plan, state, s, until_ms)


@kernel(allocates=False)
def zip_ordered(plan: KernelPlan, state: State, s: int, until_ms: float) -> None:
    """Join ordered streams of all queries: each query enters when its last parent ends, so in query order.

    Runs are cut where any parent's run ends; pieces that the same batch of the last parent completes stay one run.
    """
    facts, edges, edge_run, all_stops = plan.stages[s], plan.edges, state.edge_run, state.stops
    times, stops, row = state.times[facts.input], all_stops[facts.input], state.streams[facts.input]
    first, stop, runs, at = facts.edge_first, facts.edge_stop, row.runs, row.count
    last_edge, last_run = -1, -1
    while True:
        end, time_ms, edge = 2**62, -np.inf, first
        for e in range(first, stop):
            parent, run = edges[e].parent, edge_run[e]
            if run >= state.streams[parent].runs:
                time_ms = np.inf
                break
            ends_at = all_stops[parent, run]
            end = ends_at if ends_at < end else end
            if state.times[parent, run] >= time_ms:
                time_ms, edge = state.times[parent, run], e
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
            edge_run[e] += all_stops[edges[e].parent, edge_run[e]] == end
    row.runs, row.count = runs, at


@kernel(allocates=False)
def merge(plan: KernelPlan, state: State, s: int, until_ms: float) -> None:
    """Join any streams: parents' batches in order of (time, declared index); a query enters with its last taken parent.

    So the queries that enter at one instant stand in the order (index of the last-finishing parent, order of emission).
    """
    facts, edges, edge_run, streams = plan.stages[s], plan.edges, state.edge_run, state.streams
    times, stops, ids = state.times[facts.input], state.stops[facts.input], state.ids[facts.input]
    joining, row = state.joining[s], streams[facts.input]
    runs, count, base, window_first = row.runs, row.count, row.id_base, streams[0].before
    while True:
        chosen, time_ms = -1, until_ms
        for e in range(facts.edge_first, facts.edge_stop):
            parent, run = edges[e].parent, edge_run[e]
            if run < streams[parent].runs and state.times[parent, run] < time_ms:
                chosen, time_ms = e, state.times[parent, run]
        if chosen < 0:
            break
        parent, run = edges[chosen].parent, edge_run[chosen]
        known, parent_ids, parent_base = (
            streams[parent].ordered > 0,
            state.ids[parent],
            streams[parent].id_base,
        )
        start = state.stops[parent, run - 1] if run > 0 else streams[parent].before
        entered, takes = count, state.taken[chosen if plan.routed else 0]
        for position in range(start, state.stops[parent, run]):
            query = position if known else np.int64(parent_ids[position - parent_base])
            index = query - window_first
            if plan.routed and not takes[index]:
                continue
            joining[index] -= 1
            if joining[index] == 0:
                ids[count - base] = query
                count += 1
        if count > entered:
            times[runs], stops[runs] = time_ms, count
            runs += 1
        edge_run[chosen] += 1
    row.runs, row.count = runs, count


@kernel(allocates=False)
def pass_on(stage: StageArrays, out_ids: np.ndarray, window_first: int, ended_ms: Floats) -> None:
    """Name the queries of the batches that a stage emitted in this slice, in order of emission, for the stages behind it,
    and note when those end that may end here.

    out_ids: int32[C], of the stream that it emits. window_first: the query that the rows of ended_ms begin with.
    """
    facts, out, ids, known = stage.facts, stage.out, stage.ids, stage.into.ordered
    # Unsigned, so that no access asks whether a position counts from the end.
    one, base, opened = np.uint64(1), np.uint64(stage.into.id_base), np.uint64(window_first)
    first_run = stage.own.emitted
    start = np.uint64(stage.out_stops[first_run - 1] if first_run > 0 else out.before)
    leads_on, ends, in_order = facts.leads_on > 0, facts.end >= 0, facts.one > 0
    ended = ended_ms[facts.end if ends else 0]
    place = start - np.uint64(out.id_base)
    for run in range(first_run, out.runs):
        stop, end_ms = np.uint64(stage.out_stops[run]), stage.out_ms[run]
        position = start if in_order else np.uint64(stage.firsts[run - first_run])
        while start < stop:
            query = position if known else np.uint64(ids[position - base])
            if leads_on:
                out_ids[place] = np.int32(query)
                place += one
            if ends:
                ended[query - opened] = end_ms
            position += one
            start += one


@kernel(allocates=False)
def end_in_order(stage: StageArrays, window_first: int, ended: Floats) -> None:
    """Note when the queries end that a stage with an ordered stream emitted in this slice.

    Eight cells at a time, without asking where the run ends: what spills over is written again by the next run.
    """
    # Unsigned, so that no access asks whether a position counts from the end.
    before, width, first_run = np.uint64(window_first), np.uint64(8), stage.own.emitted
    at = np.uint64(stage.out_stops[first_run - 1] if first_run > 0 else stage.out.before) - before
    for run in range(first_run, stage.out.runs):
        stop, end_ms = np.uint64(stage.out_stops[run]) - before, stage.out_ms[run]
        while True:
            for k in range(8):
                ended[at + np.uint64(k)] = end_ms
            at += width
            if at >= stop:
                break
        at = stop


@kernel(allocates=False)
def drop(plan: KernelPlan, state: State, needed: int, fresh: int) -> bool:
    """Drop what no one will read again where a row would overflow; False if even that frees too little.

    needed: runs and positions that any stream may get; fresh: what the source gets.
    """
    stages, edges, edge_run, capacity = plan.stages, plan.edges, state.edge_run, state.ids.shape[1]
    for stream in range(state.streams.shape[0]):
        row, more = state.streams[stream], needed if stream > 0 else fresh
        if row.runs + more <= capacity and row.count - row.id_base + more <= capacity:
            continue
        # What every reader has passed; of the source, open queries stay.
        passed, position = row.runs, row.count
        if stream == 0:
            passed = state.whole[0].open - row.before
        for s in range(stages.shape[0]):
            own = state.stages[s]
            if stages[s].input == stream:
                passed = min(passed, own.next_run, own.head_run)
                if not stages[s].steady:
                    passed = min(passed, own.tied_run)
                position = min(position, own.head)
                for k in range(own.busy):
                    position = min(position, state.ring[s, (own.ring + k) & (state.ring.shape[1] - 1)].first)
            if stages[s].kind != DIRECT:
                for e in range(stages[s].edge_first, stages[s].edge_stop):
                    if edges[e].parent == stream:
                        passed = min(passed, edge_run[e])
        before = state.stops[stream, passed - 1] if passed > 0 else row.before
        position, runs = min(position, before), row.runs - passed
        if runs + more > capacity or row.count - position + more > capacity:
            return False
        if not row.ordered:
            shift(state.ids[stream], position - row.id_base, row.count - position)
        shift(state.times[stream], passed, runs)
        shift(state.stops[stream], passed, runs)
        row.runs, row.before, row.id_base = runs, before, position
        for s in range(stages.shape[0]):
            own = state.stages[s]
            if stages[s].input == stream:
                own.next_run -= passed
                own.head_run -= passed
                own.tied_run -= passed
            if stages[s].kind != DIRECT:
                for e in range(stages[s].edge_first, stages[s].edge_stop):
                    if edges[e].parent == stream:
                        edge_run[e] -= passed
        if stream == 0:
            for k in range(state.ended_ms.shape[0]):
                shift(state.ended_ms[k], passed, runs)
            for s in range(state.joining.shape[0]):
                shift(state.joining[s], passed, runs if state.joining.shape[1] > 0 else 0)
            for e in range(state.taken.shape[0]):
                shift(state.taken[e], passed, runs if state.taken.shape[1] > 0 else 0)
    return True


@kernel(inline=True)
def shift(cells: np.ndarray, by: int, count: int) -> None:
    """Move `count` cells to the front, from `by` places behind it."""
    for i in range(count):
        cells[i] = cells[i + by]
