"""The whole pipeline, stage by stage, one slice of time after another.

The law: cutting a run at any instants, or feeding its arrivals in any chunks, changes no byte of the result.
"""

from __future__ import annotations

from typing import Final

import numpy as np
from numpy.typing import NDArray

from forerun.core.kernels.jit import kernel
from forerun.serving.engine.kernels.draws import takes
from forerun.serving.engine.kernels.layout import MERGED, Floats, KernelPlan, Record, State
from forerun.serving.engine.kernels.serve import serve_many, serve_one
from forerun.serving.engine.kernels.stage import coinciding, merged_ties, stage_arrays, visit
from forerun.serving.engine.kernels.streams import drop, end_in_order, gather, pass_on

#: what `advance` answers where arrays are too small
NO_ROOM: Final = -1


@kernel(allocates=False)
def advance(
    plan: KernelPlan,
    state: State,
    record: Record,
    arrivals_ms: Floats,
    first: int,
    taken: NDArray[np.uint8],
    until_ms: float,
    step: int,
    slice_size: int,
    most_misses: int,
) -> int:
    """Feed arrivals and handle every instant before `until_ms`, one slice of the arrivals after the other.

    arrivals_ms: float64[n], ascending, no earlier than what was fed before; with it every arrival before `until_ms` has been
    fed. first: number of its first query; how many of them have been fed is what the state says. taken: uint8[E, n], whether
    each query takes each edge; uint8[E, 0] if all take all. step: within a slice, where to go on: 0 feeds it, 1 + s is stage
    s. slice_size: arrivals in a slice, chosen so that its arrays stay in the processor's cache. most_misses: ends once more
    queries than that have missed.

    Returns NO_ROOM, with nothing done, if arrays are too small for the next slice; or the number of a stage that wakes its
    replicas, which the caller serves before it goes on with the step behind it; or the number of stages: then everything is
    done.
    """
    whole, source, arrivals = state.whole[0], state.streams[0], arrivals_ms.shape[0]
    full, more = record.batches.shape[1] > 0, True
    while more:
        if step == 0:
            fed = source.count - first
            fresh = min(slice_size, arrivals - fed)
            if not drop(plan, state, source.count - whole.open + fresh, fresh):
                return NO_ROOM
            feed(
                plan,
                state,
                arrivals_ms[fed : fed + fresh],
                taken[:, fed : fed + fresh] if plan.routed else taken,
            )
        fed = source.count - first
        more = fed < arrivals
        slice_ms = until_ms
        if more and arrivals_ms[fed] < until_ms:
            slice_ms = arrivals_ms[fed]
        for s in range(max(0, step - 1), plan.stages.shape[0]):
            stage = stage_arrays(plan, state, record, s)
            facts, own, out, in_ms = stage.facts, stage.own, stage.out, stage.in_ms
            if s != step - 1:
                gather(plan, state, s, slice_ms)
                in_ms[stage.into.runs] = np.inf  # so that looking for later arrivals needs no bound
                own.emitted = out.runs
                begun = own.next_run
                if facts.wakes:
                    return s
                if facts.one:
                    ties = serve_one(stage, slice_ms)
                else:
                    ties = serve_many(stage, plan.changes, slice_ms)
                if facts.steady:
                    whole.ties += ties
                    if facts.input > 0 or whole.tied:
                        whole.ties += coinciding(in_ms, begun, own.next_run)
            if not facts.steady:
                tied = own.tied_run
                while in_ms[tied] < slice_ms:
                    tied += 1
                whole.ties += merged_ties(in_ms, own.tied_run, tied, stage.out_ms, own.emitted, out.runs)
                own.tied_run = tied
            if full:
                visit(stage, record, s, plan.routed)
            elif facts.delay_ms == 0.0 or facts.wakes:
                own.head_run = own.next_run
            if not out.ordered:
                pass_on(stage, state.ids[s + 1], source.before, state.ended_ms)
            elif facts.end >= 0:
                end_in_order(stage, source.before, state.ended_ms[facts.end])
        settle(plan, state, record)
        step = 0
        if whole.misses > most_misses:
            more = False
    return plan.stages.shape[0]  # type: ignore[no-any-return]


@kernel(allocates=False)
def feed(plan: KernelPlan, state: State, arrivals_ms: Floats, taken: NDArray[np.uint8]) -> None:
    """Append a slice of arrivals to the source's stream, with what is stored of each open query.

    taken: uint8[E, n], the edges that they take, if some are conditional.
    """
    source, whole, fresh = state.streams[0], state.whole[0], arrivals_ms.shape[0]
    # Views and one array a loop: so each loop compiles to a copy of whole words.
    runs, count, source_ms = source.runs, source.count, state.times[0]
    new_ms, positions = source_ms[runs : runs + fresh], state.stops[0, runs : runs + fresh]
    for i in range(fresh):
        new_ms[i] = arrivals_ms[i]
    for i in range(fresh):
        positions[i] = count + i + 1
    if not whole.tied:
        tied = 0
        if fresh > 0 and runs > 0:
            tied += source_ms[runs - 1] == arrivals_ms[0]
        before, after = arrivals_ms[: fresh - 1], arrivals_ms[1:fresh]
        for i in range(fresh - 1):
            tied += before[i] == after[i]
        whole.tied = tied > 0
    source.runs, source.count = runs + fresh, count + fresh
    for e in range(taken.shape[0] if plan.routed else 0):
        known, new = state.taken[e, runs : runs + fresh], taken[e]
        for i in range(fresh):
            known[i] = new[i]
    for s in range(plan.stages.shape[0]):
        facts = plan.stages[s]
        first, stop, end = facts.edge_first, facts.edge_stop, facts.end
        if end >= 0 and not state.streams[s + 1].ordered:
            marks = state.ended_ms[end, runs : runs + fresh]
            for i in range(fresh):
                marks[i] = -np.inf
        if plan.routed:
            for i in range(fresh):
                parents = 0
                for e in range(first, stop):
                    parents += taken[e, i]
                state.joining[s, runs + i] = parents
                if parents == 0 and end >= 0:
                    state.ended_ms[end, runs + i] = arrivals_ms[i]
        elif facts.kind == MERGED:
            for i in range(fresh):
                state.joining[s, runs + i] = stop - first


@kernel(allocates=False)
def settle(plan: KernelPlan, state: State, record: Record) -> None:
    """Close the queries that have ended everywhere: when the last of their stages ended, and whether they miss."""
    source, whole, ended_ms, slo_ms = state.streams[0], state.whole[0], state.ended_ms, plan.slo_ms
    # As far as the least of the ordered streams, and as far as there is no mark in the others.
    first, query, stop = source.before, whole.open, source.count
    for s in range(plan.stages.shape[0]):
        if plan.stages[s].end >= 0 and state.streams[s + 1].ordered:
            stop = min(stop, state.streams[s + 1].count)
    for s in range(plan.stages.shape[0]):
        if plan.stages[s].end >= 0 and not state.streams[s + 1].ordered:
            ended, at = ended_ms[plan.stages[s].end], query - first
            while at < stop - first and ended[at] != -np.inf:
                at += 1
            stop = at + first
    done, misses, ends = stop - query, 0, ended_ms.shape[0]
    if done <= 0:
        return
    came_ms, last_ms = state.times[0, query - first : stop - first], ended_ms[0, query - first : stop - first]
    for k in range(1, ends - 1):
        other_ms = ended_ms[k, query - first : stop - first]
        for i in range(done):
            last_ms[i] = other_ms[i] if other_ms[i] > last_ms[i] else last_ms[i]
    # The last maximum, the misses and the record in one pass; a pipeline with one end is its own other.
    other_ms = ended_ms[ends - 1, query - first : stop - first]
    if record.finish_ms.shape[0] > 0:
        finish_ms = record.finish_ms[query - record.base : stop - record.base]
        for i in range(done):
            end_ms = other_ms[i] if other_ms[i] > last_ms[i] else last_ms[i]
            misses += end_ms - came_ms[i] > slo_ms
            finish_ms[i] = end_ms
    else:
        for i in range(done):
            end_ms = other_ms[i] if other_ms[i] > last_ms[i] else last_ms[i]
            misses += end_ms - came_ms[i] > slo_ms
    whole.open = stop
    whole.misses += misses


@kernel
def route(plan: KernelPlan, recorded: np.ndarray, first: int, taken: np.ndarray) -> None:
    """Decide which edges the queries from number `first` on take: those they draw, or are recorded to take, at stages that
    they visit. recorded: bool[E, n]. taken: uint8[E, n], written."""
    visited = np.zeros(plan.stages.shape[0] + 1, dtype=np.uint8)
    visited[0] = 1  # everybody comes from the source
    for i in range(taken.shape[1]):
        for s in range(plan.stages.shape[0]):
            visited[s + 1] = 0
            for e in range(plan.stages[s].edge_first, plan.stages[s].edge_stop):
                edge = plan.edges[e]
                as_recorded = edge.kind == 1 and recorded[e, i]
                if visited[edge.parent] and takes(
                    edge.kind, edge.share, np.uint64(edge.key), first + i, as_recorded
                ):
                    taken[e, i] = visited[s + 1] = 1
                else:
                    taken[e, i] = 0
