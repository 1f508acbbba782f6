"""What the serving kernels share: starting and completing a batch, replicas' numbers, and counting ties."""

from __future__ import annotations

import math

import numpy as np

from forerun.core.kernels.jit import kernel
from forerun.core.kernels.records import Rows
from forerun.serving.engine.kernels.layout import (
    ABSENT,
    DIRECT,
    IDLE,
    WORKING,
    Floats,
    KernelPlan,
    Record,
    StageArrays,
    State,
)


@kernel(inline=True)
def stage_arrays(plan: KernelPlan, state: State, record: Record, s: int) -> StageArrays:
    """The arrays of stage `s`."""
    into, out = plan.stages[s].input, s + 1
    return StageArrays(
        plan.stages[s],
        plan.service_ms[s],
        plan.measured_at[s],
        plan.measured_ms,
        state.stages[s],
        state.ends_ms[s],
        state.ring[s],
        state.streams[into],
        state.times[into],
        state.stops[into],
        state.ids[into],
        state.streams[out],
        state.times[out],
        state.stops[out],
        state.firsts,
        record.batches[s],
    )


@kernel(inline=True)
def insert(
    stage: StageArrays,
    end_ms: float,
    position: np.uint64,
    size: np.uint64,
    number: int,
    begin: np.uint64,
    busy: np.uint64,
    numbered: bool,
) -> None:
    """Put a batch that starts now into the ring, which stays sorted by (end, start order).

    position, size: its queries. number: its replica, where replicas have numbers (`numbered`). begin, busy: where the ring
    begins, and how many batches it contains.
    """
    ends_ms, ring = stage.ends_ms, stage.ring
    # Unsigned, so that no access asks whether a position counts from the end.
    mask, one = np.uint64(ends_ms.shape[0] - 1), np.uint64(1)
    place = begin + busy
    while place > begin and ends_ms[(place - one) & mask] > end_ms:
        here, before = place & mask, (place - one) & mask
        ends_ms[here] = ends_ms[before]
        ring[here].first, ring[here].queries = ring[before].first, ring[before].queries
        if numbered:
            ring[here].replica = ring[before].replica
        place -= one
    here = place & mask
    ends_ms[here] = end_ms
    ring[here].first, ring[here].queries, ring[here].replica = position, size, number


@kernel(inline=True)
def note_batch(
    batches: Rows, number: np.uint64, start_ms: float, end_ms: float, size: np.uint64, replica: int
) -> None:
    """Record a batch that starts now, the `number`-th of its stage."""
    batch = batches[number]
    batch.start_ms, batch.end_ms, batch.queries, batch.replica = start_ms, end_ms, size, replica


@kernel(inline=True)
def take_number(ring: Rows) -> int:
    """The lowest-numbered idle replica, set to work."""
    number = 0
    while ring[number].standing != IDLE:
        number += 1
    ring[number].standing = WORKING
    return number


@kernel(inline=True)
def change_replicas(stage: StageArrays, replicas: int, numbered: bool) -> None:
    """From now on the stage has `replicas`. Up: retirements are cancelled before idle replicas are added, with the
    lowest free numbers. Down: idle ones go first, highest number first; the rest retire as they complete. `numbered`:
    replicas have numbers."""
    own, ring = stage.own, stage.ring
    working = own.busy + own.woken
    idle = max(0, own.replicas - working)
    needed = max(0, replicas - working)
    own.replicas = replicas
    own.change += 1
    if numbered:
        number = 0
        while idle < needed:
            if ring[number].standing == ABSENT:
                ring[number].standing = IDLE
                idle += 1
            number += 1
        number = ring.shape[0] - 1
        while idle > needed:
            if ring[number].standing == IDLE:
                ring[number].standing = ABSENT
                idle -= 1
            number -= 1


@kernel(inline=True)
def coinciding(times: Floats, first: int, stop: int) -> int:
    """Instants at which two or more of the runs first..stop-1 appear."""
    pairs, count = stop - first - 1, 0
    if pairs >= 1:
        # Three views, so that the loop compiles to comparisons of whole words.
        before, here, after = times[first : stop - 2], times[first + 1 : stop - 1], times[first + 2 : stop]
        count += times[first + 1] == times[first]
        for i in range(pairs - 1):
            # the second run of an instant counts it, the third and later ones do not
            count += (after[i] == here[i]) & (here[i] != before[i])
    return count


@kernel(inline=True)
def merged_ties(arrivals: Floats, first: int, stop: int, ends: Floats, end_first: int, end_stop: int) -> int:
    """Instants at which two or more of the arrival runs and completions given appear; both are sorted."""
    count, last_ms, coming = 0, -math.inf, 0
    a, e = first, end_first
    while a < stop or e < end_stop:
        if e == end_stop or (a < stop and arrivals[a] <= ends[e]):
            at_ms = arrivals[a]
            a += 1
        else:
            at_ms = ends[e]
            e += 1
        coming = coming + 1 if at_ms == last_ms else 1
        count += coming == 2
        last_ms = at_ms
    return count


@kernel(allocates=False)
def visit(stage: StageArrays, record: Record, s: int, routed: bool) -> None:
    """Record the visits of the queries whose batches at stage `s` have started since the last call.

    routed: some edge is not always taken. Left out is when queries entered where a parent's end tells, and the number of
    an only replica.
    """
    facts, own, in_ms, in_stops, batches = stage.facts, stage.own, stage.in_ms, stage.in_stops, stage.batches
    known, entered_ms, started_ms = stage.into.ordered, record.visits_ms[s, 0], record.visits_ms[s, 1]
    left_ms, sizes, replicas = record.visits_ms[s, 2], record.visits[s, 0], record.visits[s, 1]
    # Unsigned, so that no access asks whether a position counts from the end.
    one, row_base, first_id = np.uint64(1), np.uint64(record.base), np.uint64(stage.into.id_base)
    numbered, together = routed or facts.one == 0, facts.kind != DIRECT
    plain = known and not numbered and not together
    position, run, runs = np.uint64(own.visited_to), np.uint64(0), np.uint64(stage.into.runs)
    beyond = runs
    while run < beyond:
        middle = (run + beyond) >> one
        if np.uint64(in_stops[middle]) <= position:
            run = middle + one
        else:
            beyond = middle
    for number in range(own.visited, own.started):
        start_ms, end_ms = batches[number].start_ms, batches[number].end_ms
        size, replica = batches[number].queries, batches[number].replica
        stop = position + np.uint64(size)
        if plain:
            # Four queries at a time; what spills over is written again by the next batch.
            row, last = position - row_base, stop - row_base
            while True:
                for k in range(4):
                    at = row + np.uint64(k)
                    started_ms[at], left_ms[at], sizes[at] = start_ms, end_ms, size
                row += np.uint64(4)
                if row >= last:
                    break
            position = stop
        while position < stop:
            row = (position if known else np.uint64(stage.ids[position - first_id])) - row_base
            started_ms[row], left_ms[row], sizes[row] = start_ms, end_ms, size
            if numbered:
                replicas[row] = replica
            if together:
                while np.uint64(in_stops[run]) <= position:
                    run += one
                entered_ms[row] = in_ms[run]
            position += one
    while run < runs and np.uint64(in_stops[run]) <= position:
        run += one
    own.visited, own.visited_to, own.head_run = own.started, position, run
