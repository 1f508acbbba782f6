"""What the serving kernels share: starting and completing a batch, replicas' numbers, and counting ties."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from forerun.domains.serving.engine.kernels.layout import (
    BUSY,
    DIRECT,
    FIRST,
    HEAD_RUN,
    KIND,
    ONE,
    REPLICA,
    REPLICAS,
    SIZE,
    STANDING,
    STARTED,
    VISITED,
    VISITED_TO,
    WOKEN,
    Floats,
    Ints,
)
from forerun.kernels.jit import kernel


@kernel(inline=True)
def insert(
    end_ms: float,
    position: np.uint64,
    size: np.uint64,
    number: int,
    begin: np.uint64,
    busy: np.uint64,
    ends: Floats,
    ring: Ints,
    numbered: bool,
) -> None:
    """Put a batch that starts now into the ring, which stays sorted by (end, start order).

    position, size: its queries. number: its replica, where replicas have numbers (`numbered`). begin, busy: where the ring
    begins, and how many batches it holds.
    """
    # Unsigned, so that no access asks whether a position counts from the end.
    mask, one = np.uint64(ends.shape[0] - 1), np.uint64(1)
    place = begin + busy
    while place > begin and ends[(place - one) & mask] > end_ms:
        here, before = place & mask, (place - one) & mask
        ends[here] = ends[before]
        ring[here, FIRST], ring[here, SIZE] = ring[before, FIRST], ring[before, SIZE]
        if numbered:
            ring[here, REPLICA] = ring[before, REPLICA]
        place -= one
    here = place & mask
    ends[here] = end_ms
    ring[here, FIRST], ring[here, SIZE], ring[here, REPLICA] = position, size, number


@kernel(inline=True)
def take_number(ring: Ints) -> int:
    """The lowest-numbered idle replica, set to work."""
    number = 0
    while ring[number, STANDING] != 1:
        number += 1
    ring[number, STANDING] = 2
    return number


@kernel(inline=True)
def change_replicas(replicas: int, own: Ints, ring: Ints, numbered: bool) -> None:
    """From now on the stage has `replicas`. Up: retirements are cancelled before idle replicas are added, with the
    lowest free numbers. Down: idle ones go first, highest number first; the rest retire as they complete. `numbered`:
    replicas have numbers. own, ring: the stage's rows of the state."""
    working = own[BUSY] + own[WOKEN]
    idle = max(0, own[REPLICAS] - working)
    wanted = max(0, replicas - working)
    own[REPLICAS] = replicas
    if numbered:
        number = 0
        while idle < wanted:
            if ring[number, STANDING] == 0:
                ring[number, STANDING] = 1
                idle += 1
            number += 1
        number = ring.shape[0] - 1
        while idle > wanted:
            if ring[number, STANDING] == 1:
                ring[number, STANDING] = 0
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


@kernel
def visit(
    facts: Ints,
    own: Ints,
    in_ms: Floats,
    in_stops: Ints,
    runs: int,
    ids: NDArray[np.int32],
    id_base: int,
    known: int,
    base: int,
    routed: bool,
    batches_ms: Floats,
    batches: NDArray[np.int32],
    visits_ms: Floats,
    visits: NDArray[np.int32],
) -> None:
    """Record the visits of the queries whose batches have started since the last call.

    runs: of the input. ids, id_base: the queries at its positions, unless position p is known to be query p. base: the
    query of the record's row 0. Left out is when they entered where a parent's end tells, and the number of an only replica.
    """
    entered_ms, started_ms, left_ms, sizes, replicas = (
        visits_ms[0],
        visits_ms[1],
        visits_ms[2],
        visits[0],
        visits[1],
    )
    # Unsigned, so that no access asks whether a position counts from the end.
    one, row_base, first_id = np.uint64(1), np.uint64(base), np.uint64(id_base)
    position, numbered, together = (
        np.uint64(own[VISITED_TO]),
        routed or facts[ONE] == 0,
        facts[KIND] != DIRECT,
    )
    plain = known and not numbered and not together
    run, beyond = np.uint64(0), np.uint64(runs)
    while run < beyond:
        middle = (run + beyond) >> one
        if np.uint64(in_stops[middle]) <= position:
            run = middle + one
        else:
            beyond = middle
    for number in range(own[VISITED], own[STARTED]):
        start_ms, end_ms = batches_ms[number, 0], batches_ms[number, 1]
        size, replica = batches[number, 0], batches[number, 1]
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
            row = (position if known else np.uint64(ids[position - first_id])) - row_base
            started_ms[row], left_ms[row], sizes[row] = start_ms, end_ms, size
            if numbered:
                replicas[row] = replica
            if together:
                while np.uint64(in_stops[run]) <= position:
                    run += one
                entered_ms[row] = in_ms[run]
            position += one
    while run < np.uint64(runs) and np.uint64(in_stops[run]) <= position:
        run += one
    own[VISITED], own[VISITED_TO], own[HEAD_RUN] = own[STARTED], position, run
