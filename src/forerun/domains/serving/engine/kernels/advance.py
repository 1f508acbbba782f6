"""The whole pipeline, stage by stage, one slice of time after another.

The law: cutting a run at any instants, or feeding its arrivals in any chunks, changes no byte of the result.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from forerun.domains.serving.engine.kernels.draws import takes
from forerun.domains.serving.engine.kernels.layout import (
    AT_MS,
    BATCHING,
    BEFORE,
    CHANGE,
    CHANGE_FIRST,
    CHANGE_STOP,
    COUNT,
    DELAY_MS,
    EDGE_FIRST,
    EDGE_FROM,
    EDGE_KEY,
    EDGE_KIND,
    EDGE_STOP,
    EMITTED,
    END,
    HEAD_RUN,
    ID_BASE,
    INPUT,
    KIND,
    MERGED,
    MISSES,
    NEXT_RUN,
    NO_ROOM,
    ONE,
    OPEN,
    ORDERED,
    RUNS,
    STEADY,
    TIED,
    TIED_RUN,
    TIES,
    TO,
    WAKE,
    ZIPPED,
    Floats,
    Ints,
    Plan,
    Record,
    State,
)
from forerun.domains.serving.engine.kernels.serve import serve_many, serve_one
from forerun.domains.serving.engine.kernels.stage import change_replicas, coinciding, merged_ties, visit
from forerun.domains.serving.engine.kernels.streams import drop, end_in_order, merge, pass_on, zip_ordered
from forerun.kernels.jit import kernel


@kernel
def advance(
    plan: Plan,
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
    s. slice_size: arrivals in a slice, so many that its arrays stay in the processor's cache. most_misses: ends once more
    queries than that have missed.

    Returns NO_ROOM, with nothing done, if arrays are too small for the next slice; or the number of a stage that wakes its
    replicas, which the caller serves before it goes on with the step behind it; or the number of stages: then everything is
    done.
    """
    # Each look into a tuple of arrays costs as much as a query, so the arrays are taken out once.
    window, streams, all_times, all_stops, all_ids = (
        state.streams[-1],
        state.streams,
        state.times,
        state.stops,
        state.ids,
    )
    plan_stages, edges, changes = plan.stages, plan.edges, plan.changes
    stages, ended_ms, joining, edge_run, firsts, known_taken = (
        state.stages,
        state.ended_ms,
        state.joining,
        state.edge_run,
        state.firsts,
        state.taken,
    )
    source, arrivals = streams[0], arrivals_ms.shape[0]
    base, full = record.base, record.batches.shape[1] > 0
    more = True
    while more:
        if step == 0:
            fed = source[COUNT] - first
            fresh = min(slice_size, arrivals - fed)
            needed = source[COUNT] - window[OPEN] + fresh
            if not drop(
                needed,
                fresh,
                plan_stages,
                edges,
                streams,
                stages,
                edge_run,
                state.ring,
                all_times,
                all_stops,
                all_ids,
                ended_ms,
                joining,
                known_taken,
            ):
                return NO_ROOM
            feed(
                arrivals_ms[fed : fed + fresh],
                taken[:, fed : fed + fresh] if plan.routed else taken,
                plan.routed,
                plan_stages,
                streams,
                all_times[0],
                all_stops[0],
                ended_ms,
                joining,
                known_taken,
            )
        fed = source[COUNT] - first
        more = fed < arrivals
        slice_ms = until_ms
        if more and arrivals_ms[fed] < until_ms:
            slice_ms = arrivals_ms[fed]

        for s in range(max(0, step - 1), stages.shape[0]):
            facts, own, out = plan_stages[s], stages[s], streams[s + 1]
            into = facts[INPUT]
            in_ms, in_stops, row = all_times[into], all_stops[into], streams[into]
            out_ms, out_stops = all_times[s + 1], all_stops[s + 1]
            spans, batches_ms, batches = plan.spans[s], record.batches_ms[s], record.batches[s]
            table, measured_at, ends, ring = (
                plan.service_ms[s],
                plan.measured_at[s],
                state.ring_ms[s],
                state.ring[s],
            )
            ids, id_base, known = all_ids[into], row[ID_BASE], row[ORDERED]
            if s != step - 1:
                gather(
                    facts,
                    edges,
                    edge_run,
                    streams,
                    all_times,
                    all_stops,
                    all_ids,
                    joining[s],
                    known_taken,
                    plan.routed,
                    slice_ms,
                )
                in_ms[row[RUNS]] = np.inf  # so that looking for later arrivals needs no bound
                own[EMITTED] = out[RUNS]
                begun, ties = own[NEXT_RUN], 0
                if facts[BATCHING] == WAKE:
                    return s
                if facts[ONE]:
                    ties = serve_one(
                        facts,
                        spans,
                        table,
                        measured_at,
                        plan.measured_ms,
                        in_ms,
                        in_stops,
                        out_ms,
                        out_stops,
                        out,
                        own,
                        ends,
                        ring,
                        batches_ms,
                        batches,
                        slice_ms,
                        full,
                    )
                else:
                    changing = True
                    while changing:
                        changing = own[CHANGE] < facts[CHANGE_STOP] and changes[own[CHANGE], AT_MS] < slice_ms
                        constant_ms = changes[own[CHANGE], AT_MS] if changing else slice_ms
                        now_ms = (
                            changes[own[CHANGE] - 1, AT_MS] if own[CHANGE] > facts[CHANGE_FIRST] else -np.inf
                        )
                        ties += serve_many(
                            facts,
                            spans,
                            table,
                            measured_at,
                            plan.measured_ms,
                            in_ms,
                            in_stops,
                            row[RUNS],
                            out_ms,
                            out_stops,
                            out,
                            firsts,
                            own,
                            now_ms,
                            ends,
                            ring,
                            batches_ms,
                            batches,
                            constant_ms,
                            full,
                            own[EMITTED],
                        )
                        if changing:
                            change_replicas(int(changes[own[CHANGE], TO]), own, ring, full)
                            own[CHANGE] += 1
                if facts[STEADY]:
                    window[TIES] += ties
                    if into > 0 or window[TIED]:
                        window[TIES] += coinciding(in_ms, begun, own[NEXT_RUN])
            if not facts[STEADY]:
                tied = own[TIED_RUN]
                while in_ms[tied] < slice_ms:
                    tied += 1
                window[TIES] += merged_ties(in_ms, own[TIED_RUN], tied, out_ms, own[EMITTED], out[RUNS])
                own[TIED_RUN] = tied
            if full:
                visit(
                    facts,
                    own,
                    in_ms,
                    in_stops,
                    row[RUNS],
                    ids,
                    id_base,
                    known,
                    base,
                    plan.routed,
                    batches_ms,
                    batches,
                    record.visits_ms[s],
                    record.visits[s],
                )
            elif spans[DELAY_MS] == 0.0 or facts[BATCHING] == WAKE:
                own[HEAD_RUN] = own[NEXT_RUN]
            if facts[END] >= 0 and out[ORDERED]:
                end_in_order(own[EMITTED], out, out_ms, out_stops, source[BEFORE], ended_ms[facts[END]])
            elif not out[ORDERED]:
                pass_on(
                    facts,
                    own[EMITTED],
                    out,
                    out_ms,
                    out_stops,
                    firsts,
                    ids,
                    id_base,
                    known,
                    all_ids[s + 1],
                    source[BEFORE],
                    ended_ms,
                )
        settle(plan_stages, streams, all_times[0], ended_ms, record.finish_ms, base, plan.slo_ms)
        step = 0
        if window[MISSES] > most_misses:
            more = False
    return stages.shape[0]  # type: ignore[no-any-return]


@kernel
def feed(
    arrivals_ms: Floats,
    taken: NDArray[np.uint8],
    routed: bool,
    plan_stages: Ints,
    streams: Ints,
    source_ms: Floats,
    source_stops: Ints,
    ended_ms: Floats,
    joining: NDArray[np.int32],
    known_taken: NDArray[np.uint8],
) -> None:
    """Append a slice of arrivals to the source's stream, with what is kept of each open query.

    taken: uint8[E, n], the edges that they take, if some are conditional (`routed`).
    """
    source, window, fresh = streams[0], streams[-1], arrivals_ms.shape[0]
    # Views and one array a loop: so each loop compiles to a copy of whole words.
    runs, count = source[RUNS], source[COUNT]
    new_ms, positions = source_ms[runs : runs + fresh], source_stops[runs : runs + fresh]
    for i in range(fresh):
        new_ms[i] = arrivals_ms[i]
    for i in range(fresh):
        positions[i] = count + i + 1
    if not window[TIED]:
        tied = 0
        if fresh > 0 and runs > 0:
            tied += source_ms[runs - 1] == arrivals_ms[0]
        before, after = arrivals_ms[: fresh - 1], arrivals_ms[1:fresh]
        for i in range(fresh - 1):
            tied += before[i] == after[i]
        window[TIED] = tied > 0
    source[RUNS], source[COUNT] = runs + fresh, count + fresh
    for e in range(taken.shape[0] if routed else 0):
        known, new = known_taken[e, runs : runs + fresh], taken[e]
        for i in range(fresh):
            known[i] = new[i]
    for s in range(plan_stages.shape[0]):
        first, stop, end = plan_stages[s, EDGE_FIRST], plan_stages[s, EDGE_STOP], plan_stages[s, END]
        if end >= 0 and not streams[s + 1, ORDERED]:
            marks = ended_ms[end, runs : runs + fresh]
            for i in range(fresh):
                marks[i] = -np.inf
        if routed:
            for i in range(fresh):
                parents = 0
                for e in range(first, stop):
                    parents += taken[e, i]
                joining[s, runs + i] = parents
                if parents == 0 and end >= 0:
                    ended_ms[end, runs + i] = arrivals_ms[i]
        elif plan_stages[s, KIND] == MERGED:
            for i in range(fresh):
                joining[s, runs + i] = stop - first


@kernel
def gather(
    facts: Ints,
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
    """Put a stage's input together from what its parents emitted before `until_ms`; a direct input is there already."""
    first, stop, into = facts[EDGE_FIRST], facts[EDGE_STOP], facts[INPUT]
    if facts[KIND] == ZIPPED:
        zip_ordered(first, stop, into, edges, edge_run, streams, all_times, all_stops, until_ms)
    elif facts[KIND] == MERGED:
        merge(
            first,
            stop,
            into,
            edges,
            edge_run,
            streams,
            all_times,
            all_stops,
            all_ids,
            joining,
            taken,
            routed,
            until_ms,
        )


@kernel
def settle(
    plan_stages: Ints,
    streams: Ints,
    source_ms: Floats,
    ended_ms: Floats,
    finish_ms: Floats,
    base: int,
    slo_ms: float,
) -> None:
    """Close the queries that have ended everywhere: when the last of their stages ended, and whether they miss.

    finish_ms: float64[n] of query `base` + i, or of no length: then only misses are counted.
    """
    source, window = streams[0], streams[-1]
    # As far as the least of the ordered streams, and as far as there is no mark in the others.
    first, query, stop = source[BEFORE], window[OPEN], source[COUNT]
    for s in range(plan_stages.shape[0]):
        if plan_stages[s, END] >= 0 and streams[s + 1, ORDERED]:
            stop = min(stop, streams[s + 1, COUNT])
    for s in range(plan_stages.shape[0]):
        if plan_stages[s, END] >= 0 and not streams[s + 1, ORDERED]:
            ended, at = ended_ms[plan_stages[s, END]], query - first
            while at < stop - first and ended[at] != -np.inf:
                at += 1
            stop = at + first
    done, misses, ways = stop - query, 0, ended_ms.shape[0]
    if done <= 0:
        return
    came_ms, last_ms = source_ms[query - first : stop - first], ended_ms[0, query - first : stop - first]
    for k in range(1, ways - 1):
        other_ms = ended_ms[k, query - first : stop - first]
        for i in range(done):
            last_ms[i] = other_ms[i] if other_ms[i] > last_ms[i] else last_ms[i]
    # The last maximum, the misses and the record in one pass; a pipeline with one end is its own other.
    other_ms = ended_ms[ways - 1, query - first : stop - first]
    if finish_ms.shape[0] > 0:
        found_ms = finish_ms[query - base : stop - base]
        for i in range(done):
            end_ms = other_ms[i] if other_ms[i] > last_ms[i] else last_ms[i]
            misses += end_ms - came_ms[i] > slo_ms
            found_ms[i] = end_ms
    else:
        for i in range(done):
            end_ms = other_ms[i] if other_ms[i] > last_ms[i] else last_ms[i]
            misses += end_ms - came_ms[i] > slo_ms
    window[OPEN] = stop
    window[MISSES] += misses


@kernel
def route(
    stages: Ints, edges: Ints, share: Floats, recorded: np.ndarray, first: int, taken: np.ndarray
) -> None:
    """Find which edges the queries from number `first` on take: those they draw, or are recorded to take, at stages that
    they visit. recorded: bool[E, n]. taken: uint8[E, n], written."""
    visited = np.zeros(stages.shape[0] + 1, dtype=np.uint8)
    visited[0] = 1  # everybody comes from the source
    for i in range(taken.shape[1]):
        for s in range(stages.shape[0]):
            visited[s + 1] = 0
            for e in range(stages[s, EDGE_FIRST], stages[s, EDGE_STOP]):
                kind = edges[e, EDGE_KIND]
                as_recorded = kind == 1 and recorded[e, i]
                if visited[edges[e, EDGE_FROM]] and takes(
                    kind, share[e], np.uint64(edges[e, EDGE_KEY]), first + i, as_recorded
                ):
                    taken[e, i] = visited[s + 1] = 1
                else:
                    taken[e, i] = 0
