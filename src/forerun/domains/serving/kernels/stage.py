"""What the serving kernels share: starting and completing a batch, replicas' numbers, and counting ties."""

from __future__ import annotations

import numpy as np

from forerun.domains.serving.kernels.layout import (
    BEFORE,
    BUSY,
    COUNT,
    HEAD_RUN,
    ID_BASE,
    REPLICAS,
    RUNS,
    WOKEN,
    Bytes,
    Floats,
    Ints,
    Plan,
    Record,
    State,
)
from forerun.kernels.jit import kernel


@kernel
def insert(
    end_ms: float, first: int, size: int, number: int, begin: int, busy: int, ends: Floats, ring: Ints
) -> None:
    """Put a batch that starts now into the ring, which stays sorted by (end, start order)."""
    mask = ends.shape[0] - 1
    place = begin + busy
    while place > begin and ends[(place - 1) & mask] > end_ms:
        here, before = place & mask, (place - 1) & mask
        ends[here] = ends[before]
        ring[here, 0], ring[here, 1], ring[here, 2] = ring[before, 0], ring[before, 1], ring[before, 2]
        place -= 1
    here = place & mask
    ends[here] = end_ms
    ring[here, 0], ring[here, 1], ring[here, 2] = first, size, number


@kernel
def take_number(numbers: Bytes) -> int:
    """The lowest-numbered idle replica, set to work."""
    number = 0
    while numbers[number] != 1:
        number += 1
    numbers[number] = 2
    return number


@kernel(inline=True)
def change_replicas(s: int, replicas: int, at_ms: float, numbered: bool, state: State) -> None:
    """From `at_ms` the stage has `replicas`. Up: retirements are cancelled before idle replicas are added, with the
    lowest free numbers. Down: idle ones go first, highest number first; the rest retire as they complete. `numbered`:
    replicas are told apart."""
    own, numbers = state.stages[s], state.numbers[s]
    working = own[BUSY] + own[WOKEN]
    idle = max(0, own[REPLICAS] - working)
    own[REPLICAS] = replicas
    state.now_ms[s] = at_ms
    if not numbered:
        return
    wanted = max(0, replicas - working)
    number = 0
    while idle < wanted:
        if numbers[number] == 0:
            numbers[number] = 1
            idle += 1
        number += 1
    number = numbers.shape[0] - 1
    while idle > wanted:
        if numbers[number] == 1:
            numbers[number] = 0
            idle -= 1
        number -= 1


@kernel
def write_batch(
    s: int,
    head: int,
    size: int,
    started: int,
    number: int,
    start_ms: float,
    end_ms: float,
    plan: Plan,
    state: State,
    record: Record,
) -> None:
    """Record the batch of positions head..head+size-1, the `started`-th of the stage, and each query's visit."""
    own, source = state.stages[s], plan.input_of[s]
    times, stops, ids = state.times[source], state.stops[source], state.ids[source]
    record.batches_ms[s, started, 0], record.batches_ms[s, started, 1] = start_ms, end_ms
    record.batches[s, started, 0], record.batches[s, started, 1] = size, number
    run, known, base = own[HEAD_RUN], plan.ordered[source], state.streams[source, ID_BASE]
    for position in range(head, head + size):
        while stops[run] <= position:
            run += 1
        row = (position if known else np.int64(ids[position - base])) - record.base
        visit = record.visits_ms[s, row]
        visit[0], visit[1], visit[2] = times[run], start_ms, end_ms
        record.visits[s, row, 0], record.visits[s, row, 1] = size, number
    own[HEAD_RUN] = run


@kernel
def coinciding(times: Floats, first: int, stop: int) -> int:
    """Instants at which two or more of the runs first..stop-1 appear."""
    pairs = stop - first - 1
    if pairs < 1:
        return 0
    # Three views, so that the loop compiles to comparisons of whole words.
    before, here, after = times[first : stop - 2], times[first + 1 : stop - 1], times[first + 2 : stop]
    count = int(times[first + 1] == times[first])
    for i in range(pairs - 1):
        # the second run of an instant counts it, the third and later ones do not
        count += (after[i] == here[i]) & (here[i] != before[i])
    return count


@kernel
def merged_ties(arrivals: Floats, first: int, stop: int, ends: Floats, end_first: int, end_stop: int) -> int:
    """Instants at which two or more of the arrival runs and completions given appear; both are sorted."""
    count, last_ms, coming = 0, float("-inf"), 0
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


@kernel(inline=True)
def close_stream(stream: int, runs: int, state: State) -> None:
    """The stream now holds `runs` runs."""
    row = state.streams[stream]
    row[RUNS] = runs
    if runs > 0:
        row[COUNT] = state.stops[stream, runs - 1]
    else:
        row[COUNT] = row[BEFORE]
