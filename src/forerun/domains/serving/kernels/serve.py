"""One stage: a stream of arrivals becomes a stream of batches.

Each kernel handles every instant before `until_ms` and leaves the rest for the next call. Within an instant:
completions in start order, arrivals, starts. Batches are contiguous ranges of the arrival order.
"""

from __future__ import annotations

import numpy as np

from forerun.domains.serving.kernels.draws import service_ms
from forerun.domains.serving.kernels.layout import (
    ADMITTED,
    BUSY,
    CHANGE,
    COUNT,
    DUE,
    FRESH,
    HEAD,
    HEAD_RUN,
    NEXT_RUN,
    REPLICAS,
    RING,
    RUNS,
    STARTED,
    TIED_RUN,
    TIES,
    WAKE,
    WOKEN,
    Floats,
    Ints,
    Plan,
    Record,
    State,
)
from forerun.domains.serving.kernels.stage import (
    change_replicas,
    close_stream,
    coinciding,
    insert,
    merged_ties,
    take_number,
    write_batch,
)
from forerun.kernels.jit import kernel


@kernel
def serve(s: int, plan: Plan, state: State, record: Record, until_ms: float, full: bool) -> None:
    """Stage `s` up to `until_ms`, whatever its replicas and batching policy."""
    if plan.one[s]:
        serve_one(s, plan, state, record, until_ms, full)
        return
    own, emitted = state.stages[s], state.streams[s + 1, RUNS]
    held = emitted
    changing = True
    while changing:
        changing = own[CHANGE] < plan.change_at[s + 1] and plan.change_ms[own[CHANGE]] < until_ms
        constant_ms = plan.change_ms[own[CHANGE]] if changing else until_ms
        if plan.batching[s] == WAKE:
            held = serve_woken(s, plan, state, record, constant_ms, full, emitted, held)
        else:
            held = serve_many(s, plan, state, record, constant_ms, full, emitted, held)
        if changing:
            numbered = full or plan.batching[s] == WAKE
            change_replicas(s, plan.change_to[own[CHANGE]], constant_ms, numbered, state)
            own[FRESH] = 1
            own[CHANGE] += 1
    close_stream(s + 1, held, state)
    if not plan.steady[s]:
        times = state.times[plan.input_of[s]]
        stop = own[TIED_RUN]
        while times[stop] < until_ms:
            stop += 1
        state.window[TIES] += merged_ties(times, own[TIED_RUN], stop, state.times[s + 1], emitted, held)
        own[TIED_RUN] = stop


@kernel
def serve_one(s: int, plan: Plan, state: State, record: Record, until_ms: float, full: bool) -> None:
    """One replica that starts whatever is queued as soon as it is free.

    The next batch starts at max(end of the last, next arrival). Ends come in start order, so there is no list of
    completions: at most one batch is in service.
    """
    source, out = plan.input_of[s], s + 1
    times, stops, own = state.times[source], state.stops[source], state.stages[s]
    out_times, out_stops, firsts = state.times[out], state.stops[out], state.firsts
    fixed, table, most = plan.law[s] == 0, plan.service_ms[s], plan.max_batch[s]
    begun, head, admitted, started = own[NEXT_RUN], own[HEAD], own[ADMITTED], own[STARTED]
    emitted = first_emitted = state.streams[out, RUNS]
    times[state.streams[source, RUNS]] = np.inf  # so that looking for later arrivals needs no bound
    run, ties = begun, 0
    only = int(np.int64(0))  # the one replica; as a literal it would have the callee compiled twice
    free_ms, size = -np.inf, 0
    if own[BUSY]:
        free_ms, size = state.ring_ms[s, 0], state.ring[s, 0, 1]
        if free_ms < until_ms:
            out_times[emitted], out_stops[emitted], firsts[0] = free_ms, head, head - size
            emitted += 1
    while True:
        start_ms = free_ms if head < admitted else max(free_ms, times[run])
        if not start_ms < until_ms:
            break
        seen = run
        while times[run] <= start_ms:
            run += 1
        if run > seen:
            admitted = stops[run - 1]
            if start_ms == free_ms and times[run - 1] == start_ms:
                # a completion meets one arrival; two arrivals at one instant are counted below
                ties += not (run - 1 > seen and times[run - 2] == start_ms)
        size = min(most, admitted - head)
        free_ms = start_ms + (table[size] if fixed else service_ms(plan, s, size, started))
        if full:
            write_batch(s, head, size, started, only, start_ms, free_ms, plan, state, record)
        started += 1
        head += size
        if not free_ms < until_ms:
            state.ring_ms[s, 0] = free_ms
            state.ring[s, 0, 0], state.ring[s, 0, 1], state.ring[s, 0, 2] = head - size, size, 0
            break
        out_times[emitted], out_stops[emitted], firsts[emitted - first_emitted] = free_ms, head, head - size
        emitted += 1
    own[BUSY] = 0 if free_ms < until_ms else 1
    own[NEXT_RUN], own[HEAD], own[ADMITTED], own[STARTED] = run, head, admitted, started
    if not full:
        own[HEAD_RUN] = run
    state.window[TIES] += ties + coinciding(times, begun, run)
    close_stream(out, emitted, state)


@kernel
def serve_many(
    s: int, plan: Plan, state: State, record: Record, until_ms: float, full: bool, emitted: int, held: int
) -> int:
    """Several replicas that start what is queued at once, or hold a batch that is not full for a while.

    Batches in service stand in a ring sorted by (end, start order). The next start is when the batching policy is
    ready and a replica idle; between starts there is nothing to do. Returns the runs emitted so far.
    """
    source, out, own = plan.input_of[s], s + 1, state.stages[s]
    times, stops, ends, ring = state.times[source], state.stops[source], state.ring_ms[s], state.ring[s]
    out_times, out_stops, firsts = state.times[out], state.stops[out], state.firsts
    fixed, table, most, patience_ms = (
        plan.law[s] == 0,
        plan.service_ms[s],
        plan.max_batch[s],
        plan.delay_ms[s],
    )
    replicas, now_ms, numbers = own[REPLICAS], state.now_ms[s], state.numbers[s]
    runs, mask = state.streams[source, RUNS], ends.shape[0] - 1
    times[runs] = np.inf
    begun, head, admitted, started = own[NEXT_RUN], own[HEAD], own[ADMITTED], own[STARTED]
    busy, first, count = own[BUSY], own[RING], state.streams[out, COUNT]
    run, ties = begun, 0
    while True:
        if patience_ms > 0.0:
            ready_ms = patience_ends_ms(head, most, patience_ms, times, stops, runs, own)
        else:
            ready_ms = -np.inf if head < admitted else times[run]
        start_ms = max(ready_ms, now_ms)
        if busy >= replicas:
            start_ms = max(start_ms, ends[(first + busy - replicas) & mask])
        coming, last_ms = 0, -np.inf
        while busy > 0 and ends[first & mask] <= start_ms and ends[first & mask] < until_ms:
            end_ms, here = ends[first & mask], first & mask
            coming = coming + 1 if end_ms == last_ms else 1
            ties += coming == 2
            last_ms = end_ms
            count += ring[here, 1]
            out_times[held], out_stops[held], firsts[held - emitted] = end_ms, count, ring[here, 0]
            if full:
                numbers[ring[here, 2]] = 0 if busy > replicas else 1
            held += 1
            first += 1
            busy -= 1
        if not start_ms < until_ms:
            break
        seen = run
        while times[run] <= start_ms:
            run += 1
        if run > seen:
            admitted = stops[run - 1]
            if last_ms == start_ms and times[run - 1] == start_ms:
                # once an instant: two completions are counted above, two arrivals below, one of each here
                two_arrive = run - 1 > seen and times[run - 2] == start_ms
                ties += int(coming == 1 and not two_arrive) - int(coming >= 2 and two_arrive)
        while busy < replicas and head < admitted:
            size = min(most, admitted - head)
            if (
                patience_ms > 0.0
                and size < most
                and start_ms < oldest_ms(head, times, stops, own) + patience_ms
            ):
                break
            end_ms = start_ms + (table[size] if fixed else service_ms(plan, s, size, started))
            number = take_number(numbers) if full else 0
            insert(end_ms, head, size, number, first, busy, ends, ring)
            if full:
                write_batch(s, head, size, started, number, start_ms, end_ms, plan, state, record)
            busy += 1
            started += 1
            head += size
    own[NEXT_RUN], own[HEAD], own[ADMITTED], own[STARTED] = run, head, admitted, started
    own[BUSY], own[RING], state.streams[out, COUNT] = busy, first, count
    if not full and patience_ms == 0.0:
        own[HEAD_RUN] = run
    if plan.steady[s]:
        state.window[TIES] += ties + coinciding(times, begun, run)
    return held


@kernel
def patience_ends_ms(
    head: int, most: int, patience_ms: float, times: Floats, stops: Ints, runs: int, own: Ints
) -> float:
    """When the queries from `head` on may start: the batch is full, or the oldest has waited `patience_ms`."""
    run = own[HEAD_RUN]
    while run < runs and stops[run] <= head:
        run += 1
    own[HEAD_RUN] = run
    over_ms = np.inf if run == runs else times[run] + patience_ms
    while run < runs and times[run] < over_ms:
        if stops[run] >= head + most:
            over_ms = times[run]
        run += 1
    return float(over_ms)


@kernel
def oldest_ms(head: int, times: Floats, stops: Ints, own: Ints) -> float:
    """When the query at position `head`, which has arrived, entered the queue."""
    while stops[own[HEAD_RUN]] <= head:
        own[HEAD_RUN] += 1
    return float(times[own[HEAD_RUN]])


@kernel
def serve_woken(
    s: int, plan: Plan, state: State, record: Record, until_ms: float, full: bool, emitted: int, held: int
) -> int:
    """Idle replicas are woken and take whatever is queued a fixed delay later; an empty take goes idle.

    Goes from instant to instant: completions, arrivals, takes that are due in the order of waking, then wakes while
    a replica is idle and more batches are queued than replicas woken. Returns the runs emitted so far.
    """
    source, out, own = plan.input_of[s], s + 1, state.stages[s]
    times, stops, ends, ring = state.times[source], state.stops[source], state.ring_ms[s], state.ring[s]
    most, delay_ms, replicas, numbers = plan.max_batch[s], plan.delay_ms[s], own[REPLICAS], state.numbers[s]
    dues, waking, mask = state.due_ms[s], state.due[s], ends.shape[0] - 1
    times[state.streams[source, RUNS]] = np.inf
    run, head, admitted, started = own[NEXT_RUN], own[HEAD], own[ADMITTED], own[STARTED]
    busy, first, count = own[BUSY], own[RING], state.streams[out, COUNT]
    woken, due, changed_ms = own[WOKEN], own[DUE], state.now_ms[s] if own[FRESH] else np.inf
    while True:
        at_ms = min(times[run], changed_ms)
        if busy > 0:
            at_ms = min(at_ms, ends[first & mask])
        if woken > 0:
            at_ms = min(at_ms, dues[due & mask])
        if not at_ms < until_ms:
            break
        changed_ms = np.inf
        while busy > 0 and ends[first & mask] == at_ms:
            here = first & mask
            count += ring[here, 1]
            state.times[out, held], state.stops[out, held], state.firsts[held - emitted] = (
                at_ms,
                count,
                ring[here, 0],
            )
            numbers[ring[here, 2]] = 0 if busy + woken > replicas else 1
            held += 1
            first += 1
            busy -= 1
        while times[run] == at_ms:
            admitted = stops[run]
            run += 1
        while woken > 0 and dues[due & mask] == at_ms:
            number, size = waking[due & mask], min(most, admitted - head)
            due += 1
            woken -= 1
            if size == 0:
                numbers[number] = 0 if busy + woken >= replicas else 1
                continue
            end_ms = at_ms + service_ms(plan, s, size, started)
            insert(end_ms, head, size, number, first, busy, ends, ring)
            if full:
                write_batch(s, head, size, started, number, at_ms, end_ms, plan, state, record)
            busy += 1
            started += 1
            head += size
        while busy + woken < replicas and (admitted - head + most - 1) // most > woken:
            dues[(due + woken) & mask], waking[(due + woken) & mask] = at_ms + delay_ms, take_number(numbers)
            woken += 1
    own[NEXT_RUN], own[HEAD], own[ADMITTED], own[STARTED] = run, head, admitted, started
    own[BUSY], own[RING], state.streams[out, COUNT] = busy, first, count
    own[WOKEN], own[DUE], own[FRESH] = woken, due, 0 if changed_ms == np.inf else 1
    if not full:
        own[HEAD_RUN] = run
    return held
