"""The whole pipeline, stage by stage, one slice of time after another.

The law: cutting a run at any instants, or feeding its arrivals in any chunks, changes no byte of the result.
"""

from __future__ import annotations

import numpy as np

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
from forerun.domains.serving.engine.kernels.streams import end_in_order, merge, pass_on, zip_ordered
from forerun.kernels.jit import kernel


@kernel
def advance(
    plan: Plan,
    state: State,
    record: Record,
    arrivals_ms: Floats,
    taken: np.ndarray,
    until_ms: float,
    step: int,
) -> int:
    """Feed arrivals and handle every instant before `until_ms`, from step `step` on: 0 feeds, 1 + s is stage s.

    arrivals_ms: float64[n], ascending, no earlier than what was fed before; with it every arrival before `until_ms`
    has been fed. taken: uint8[E, n], whether each query takes each edge; uint8[E, 0] if all take all.
    Returns NO_ROOM, with nothing done, if arrays are too small; or the number of a stage that wakes its replicas, which the
    caller serves before it goes on with the step behind it; or the number of stages: then everything is done.
    """
    window, streams, all_times, all_stops, all_ids = (
        state.streams[-1],
        state.streams,
        state.times,
        state.stops,
        state.ids,
    )
    plan_stages, edges, changes = plan.stages, plan.edges, plan.changes
    stages, ended_ms, joining, edge_run, firsts = (
        state.stages,
        state.ended_ms,
        state.joining,
        state.edge_run,
        state.firsts,
    )
    source_ms, source, fresh = all_times[0], streams[0], arrivals_ms.shape[0]
    finish_ms, base = record.finish_ms, record.base
    full = record.batches.shape[1] > 0

    if step == 0:
        room, open_queries = firsts.shape[0], source[COUNT] - window[OPEN]
        if source[RUNS] + fresh > room:
            return NO_ROOM
        for t in range(1, all_times.shape[0]):
            needed = open_queries + fresh
            if streams[t, RUNS] + needed > room or streams[t, COUNT] - streams[t, ID_BASE] + needed > room:
                return NO_ROOM
        # Views and one array a loop: so each loop compiles to a copy of whole words.
        runs, count = source[RUNS], source[COUNT]
        new_ms, positions = source_ms[runs : runs + fresh], all_stops[0, runs : runs + fresh]
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
        if plan.routed:
            for e in range(edges.shape[0]):
                known, new = state.taken[e, runs : runs + fresh], taken[e]
                for i in range(fresh):
                    known[i] = new[i]
        for s in range(stages.shape[0]):
            first, stop, end = plan_stages[s, EDGE_FIRST], plan_stages[s, EDGE_STOP], plan_stages[s, END]
            if end >= 0 and not streams[s + 1, ORDERED]:
                marks = ended_ms[end, runs : runs + fresh]
                for i in range(fresh):
                    marks[i] = -np.inf
            if plan.routed:
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

    for s in range(stages.shape[0]):
        if s < step - 1:
            continue
        facts, own, out = plan_stages[s], stages[s], streams[s + 1]
        into = facts[INPUT]
        in_ms, in_stops, row = all_times[into], all_stops[into], streams[into]
        out_ms, out_stops = all_times[s + 1], all_stops[s + 1]
        if s != step - 1:
            first, stop = facts[EDGE_FIRST], facts[EDGE_STOP]
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
                    joining[s],
                    state.taken,
                    plan.routed,
                    until_ms,
                )
            in_ms[row[RUNS]] = np.inf  # so that looking for later arrivals needs no bound
            own[EMITTED] = out[RUNS]
            begun, ties = own[NEXT_RUN], 0
            if facts[BATCHING] == WAKE:
                return s
            if facts[ONE]:
                ties = serve_one(
                    facts,
                    plan.spans[s],
                    plan.service_ms[s],
                    plan.measured_at[s],
                    plan.measured_ms,
                    in_ms,
                    in_stops,
                    out_ms,
                    out_stops,
                    out,
                    own,
                    state.ring_ms[s],
                    state.ring[s],
                    record.batches_ms[s],
                    record.batches[s],
                    until_ms,
                    full,
                )
            else:
                changing = True
                while changing:
                    changing = own[CHANGE] < facts[CHANGE_STOP] and changes[own[CHANGE], AT_MS] < until_ms
                    constant_ms = changes[own[CHANGE], AT_MS] if changing else until_ms
                    now_ms = changes[own[CHANGE] - 1, AT_MS] if own[CHANGE] > facts[CHANGE_FIRST] else -np.inf
                    ties += serve_many(
                        facts,
                        plan.spans[s],
                        plan.service_ms[s],
                        plan.measured_at[s],
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
                        state.ring_ms[s],
                        state.ring[s],
                        record.batches_ms[s],
                        record.batches[s],
                        constant_ms,
                        full,
                        own[EMITTED],
                    )
                    if changing:
                        change_replicas(int(changes[own[CHANGE], TO]), own, state.ring[s], full)
                        own[CHANGE] += 1
            if facts[STEADY]:
                window[TIES] += ties
                if into > 0 or window[TIED]:
                    window[TIES] += coinciding(in_ms, begun, own[NEXT_RUN])
        if not facts[STEADY]:
            tied = own[TIED_RUN]
            while in_ms[tied] < until_ms:
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
                all_ids[into],
                row[ID_BASE],
                row[ORDERED],
                base,
                plan.routed,
                record.batches_ms[s],
                record.batches[s],
                record.visits_ms[s],
                record.visits[s],
            )
        elif plan.spans[s, DELAY_MS] == 0.0 or facts[BATCHING] == WAKE:
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
                all_ids[into],
                row[ID_BASE],
                row[ORDERED],
                all_ids[s + 1],
                source[BEFORE],
                ended_ms,
            )

    # What has ended everywhere: as far as the least of the ordered streams, and as far as there is no mark in the others.
    first, query, stop = source[BEFORE], window[OPEN], source[COUNT]
    for s in range(stages.shape[0]):
        if plan_stages[s, END] >= 0 and streams[s + 1, ORDERED]:
            stop = min(stop, streams[s + 1, COUNT])
    for s in range(stages.shape[0]):
        if plan_stages[s, END] >= 0 and not streams[s + 1, ORDERED]:
            ended, at = ended_ms[plan_stages[s, END]], query - first
            while at < stop - first and ended[at] != -np.inf:
                at += 1
            stop = at + first
    done = stop - query
    if done > 0:
        came_ms, last_ms = source_ms[query - first : stop - first], ended_ms[0, query - first : stop - first]
        for k in range(1, ended_ms.shape[0]):
            other_ms = ended_ms[k, query - first : stop - first]
            for i in range(done):
                last_ms[i] = other_ms[i] if other_ms[i] > last_ms[i] else last_ms[i]
        misses, slo_ms = 0, plan.slo_ms
        for i in range(done):
            misses += last_ms[i] - came_ms[i] > slo_ms
        if finish_ms.shape[0] > 0:
            found_ms = finish_ms[query - base : stop - base]
            for i in range(done):
                found_ms[i] = last_ms[i]
        window[OPEN] = stop
        window[MISSES] += misses
    return stages.shape[0]  # type: ignore[no-any-return]


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
