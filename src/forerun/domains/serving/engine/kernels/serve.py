"""One stage: a stream of arrivals becomes a stream of batches.

Each kernel handles every instant before `until_ms` and leaves the rest for the next call. Within an instant:
completions in start order, arrivals, starts. Batches are contiguous ranges of the arrival order.

A stage's arrays: facts, spans, table, measured_at: its rows of the plan; in_ms, in_stops, out_ms, out_stops, out: runs and
rows of the streams it consumes and emits; own, ends, ring: its rows of the state; batches_ms, batches: its rows of the
record.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from forerun.domains.serving.engine.kernels.draws import varying_ms
from forerun.domains.serving.engine.kernels.layout import (
    ADMITTED,
    AT_MS,
    BUSY,
    CHANGE,
    CHANGE_STOP,
    COUNT,
    DELAY_MS,
    DUE,
    FIRST,
    HEAD,
    HEAD_RUN,
    INPUT,
    LAW,
    MOST,
    NEXT_RUN,
    REPLICA,
    REPLICAS,
    RING,
    RUNS,
    SIZE,
    STANDING,
    STARTED,
    TO,
    WOKEN,
    Floats,
    Ints,
    Plan,
    Record,
    State,
)
from forerun.domains.serving.engine.kernels.stage import change_replicas, insert, take_number
from forerun.kernels.jit import kernel


@kernel
def serve_one(
    facts: Ints,
    spans: Floats,
    table: Floats,
    measured_at: Ints,
    measured_ms: Floats,
    in_ms: Floats,
    in_stops: Ints,
    out_ms: Floats,
    out_stops: Ints,
    out: Ints,
    own: Ints,
    ends: Floats,
    ring: Ints,
    batches_ms: Floats,
    batches: NDArray[np.int32],
    until_ms: float,
    full: bool,
) -> int:
    """One replica that starts whatever is queued as soon as it is free. Returns ties of a completion with one arrival.

    The next batch starts at max(end of the last, next arrival). Ends come in start order, so there is no list of
    completions: at most one batch is in service.
    """
    fixed, most = facts[LAW] == 0, np.uint64(facts[MOST])
    # Unsigned, so that no access asks whether a position counts from the end.
    one, two = np.uint64(1), np.uint64(2)
    run, head, admitted, started = (
        np.uint64(own[NEXT_RUN]),
        np.uint64(own[HEAD]),
        np.uint64(own[ADMITTED]),
        np.uint64(own[STARTED]),
    )
    emitted, ties = np.uint64(out[RUNS]), 0
    free_ms, size = -np.inf, np.uint64(0)
    if own[BUSY]:
        free_ms, size = ends[0], np.uint64(ring[0, SIZE])
        if free_ms < until_ms:
            out_ms[emitted], out_stops[emitted] = free_ms, head
            emitted += one
    next_ms = in_ms[run]
    while free_ms < until_ms:
        start_ms = free_ms
        if head == admitted:
            if not next_ms < until_ms:
                break
            start_ms = next_ms if next_ms > free_ms else free_ms
        if next_ms <= start_ms:
            seen = run
            while next_ms <= start_ms:
                run += one
                next_ms = in_ms[run]
            admitted = np.uint64(in_stops[run - one])
            if start_ms == free_ms and in_ms[run - one] == start_ms:
                # two arrivals at one instant are counted by the caller
                ties += not (run - one > seen and in_ms[run - two] == start_ms)
        queued = admitted - head
        size = queued if queued < most else most
        free_ms = table[size]
        if not fixed:
            free_ms = varying_ms(
                facts, spans, free_ms, measured_at, measured_ms, int(np.int64(size)), int(np.int64(started))
            )
        free_ms += start_ms
        if full:
            batches_ms[started, 0], batches_ms[started, 1] = start_ms, free_ms
            batches[started, 0], batches[started, 1] = np.int32(size), 0
        started += one
        head += size
        if free_ms < until_ms:
            out_ms[emitted], out_stops[emitted] = free_ms, head
            emitted += one
    own[BUSY] = 0
    out[COUNT] = head
    if not free_ms < until_ms:
        own[BUSY] = 1
        ends[0], ring[0, FIRST], ring[0, SIZE], ring[0, REPLICA] = free_ms, head - size, size, 0
        out[COUNT] = head - size
    own[NEXT_RUN], own[HEAD], own[ADMITTED], own[STARTED], out[RUNS] = run, head, admitted, started, emitted
    return ties


@kernel
def serve_many(
    facts: Ints,
    spans: Floats,
    table: Floats,
    measured_at: Ints,
    measured_ms: Floats,
    in_ms: Floats,
    in_stops: Ints,
    runs: int,
    out_ms: Floats,
    out_stops: Ints,
    out: Ints,
    firsts: Ints,
    own: Ints,
    now_ms: float,
    ends: Floats,
    ring: Ints,
    batches_ms: Floats,
    batches: NDArray[np.int32],
    until_ms: float,
    full: bool,
    base: int,
) -> int:
    """Several replicas that start what is queued at once, or hold a batch that is not full for a while.

    Batches in service stand in a ring sorted by (end, start order). The next start is when the batching policy is
    ready and a replica idle, not before `now_ms`; between starts there is nothing to do. runs: of the input. base: the run
    that `firsts` begins with. Returns ties of completions with each other and with one arrival.
    """
    fixed, most, patience_ms = facts[LAW] == 0, np.uint64(facts[MOST]), spans[DELAY_MS]
    # Unsigned, so that no access asks whether a position counts from the end.
    zero, one, two = np.uint64(0), np.uint64(1), np.uint64(2)
    replicas, mask = np.uint64(own[REPLICAS]), np.uint64(ends.shape[0] - 1)
    run, head, admitted, started = (
        np.uint64(own[NEXT_RUN]),
        np.uint64(own[HEAD]),
        np.uint64(own[ADMITTED]),
        np.uint64(own[STARTED]),
    )
    busy, first, emitted, count, oldest = (
        np.uint64(own[BUSY]),
        np.uint64(own[RING]),
        np.uint64(out[RUNS]),
        np.uint64(out[COUNT]),
        np.uint64(own[HEAD_RUN]),
    )
    beyond, begin = np.uint64(runs), np.uint64(base)
    ties = 0
    while True:
        ready_ms = -np.inf if head < admitted else in_ms[run]
        if patience_ms > 0.0:
            # until the batch is full, or its oldest query has waited so long
            while oldest < beyond and np.uint64(in_stops[oldest]) <= head:
                oldest += one
            ready_ms = in_ms[oldest] + patience_ms if oldest < beyond else np.inf
            filling = oldest
            while filling < beyond and in_ms[filling] < ready_ms:
                if np.uint64(in_stops[filling]) >= head + most:
                    ready_ms = in_ms[filling]
                filling += one
        start_ms = ready_ms if ready_ms > now_ms else now_ms
        if busy >= replicas:
            free_ms = ends[(first + busy - replicas) & mask]
            start_ms = free_ms if free_ms > start_ms else start_ms
        coming, last_ms = 0, -np.inf
        while busy > zero:
            here = first & mask
            end_ms = ends[here]
            if not (end_ms <= start_ms and end_ms < until_ms):
                break
            coming = coming + 1 if end_ms == last_ms else 1
            ties += coming == 2
            last_ms = end_ms
            count += np.uint64(ring[here, SIZE])
            out_ms[emitted], out_stops[emitted], firsts[emitted - begin] = end_ms, count, ring[here, FIRST]
            if full:
                ring[ring[here, REPLICA], STANDING] = 0 if busy > replicas else 1
            emitted += one
            first += one
            busy -= one
        if not start_ms < until_ms:
            break
        seen = run
        while in_ms[run] <= start_ms:
            run += one
        if run > seen:
            admitted = np.uint64(in_stops[run - one])
            if last_ms == start_ms and in_ms[run - one] == start_ms:
                # once an instant: two completions are counted above, two arrivals by the caller, one of each here
                two_arrive = run - one > seen and in_ms[run - two] == start_ms
                if coming == 1 and not two_arrive:
                    ties += 1
                if coming >= 2 and two_arrive:
                    ties -= 1
        while busy < replicas and head < admitted:
            queued = admitted - head
            size = queued if queued < most else most
            if patience_ms > 0.0 and size < most:
                while np.uint64(in_stops[oldest]) <= head:
                    oldest += one
                if start_ms < in_ms[oldest] + patience_ms:
                    break
            end_ms = table[size]
            if not fixed:
                end_ms = varying_ms(
                    facts,
                    spans,
                    end_ms,
                    measured_at,
                    measured_ms,
                    int(np.int64(size)),
                    int(np.int64(started)),
                )
            end_ms += start_ms
            number = 0
            if full:
                number = take_number(ring)
                batches_ms[started, 0], batches_ms[started, 1] = start_ms, end_ms
                batches[started, 0], batches[started, 1] = np.int32(size), number
            insert(end_ms, head, size, number, first, busy, ends, ring, full)
            busy += one
            started += one
            head += size
    own[NEXT_RUN], own[HEAD], own[ADMITTED], own[STARTED], own[HEAD_RUN] = (
        run,
        head,
        admitted,
        started,
        oldest,
    )
    own[BUSY], own[RING], out[RUNS], out[COUNT] = busy, first, emitted, count
    return ties


@kernel
def serve_woken(
    s: int, plan: Plan, state: State, dues_ms: Floats, woken_replicas: Ints, record: Record, until_ms: float
) -> None:
    """Stage `s`, whose idle replicas are woken and take whatever is queued a fixed delay later; an empty take goes idle.

    Goes from instant to instant: changes of replicas, completions, arrivals, takes that are due in the order of waking, then
    wakes while a replica is idle and more batches are queued than replicas woken. dues_ms: float64[S, K], woken_replicas:
    int64[S, K], a ring of wake-ups of each stage.
    """
    facts, spans, table, own = plan.stages[s], plan.spans[s], plan.service_ms[s], state.stages[s]
    measured_at, measured_ms = plan.measured_at[s], plan.measured_ms
    changes = plan.changes
    in_ms, in_stops = state.times[facts[INPUT]], state.stops[facts[INPUT]]
    out_ms, out_stops, out, firsts = (
        state.times[s + 1],
        state.stops[s + 1],
        state.streams[s + 1],
        state.firsts,
    )
    ends, ring, dues, waking = state.ring_ms[s], state.ring[s], dues_ms[s], woken_replicas[s]
    batches_ms, batches = record.batches_ms[s], record.batches[s]
    full = batches.shape[0] > 0
    most, delay_ms, mask = facts[MOST], spans[DELAY_MS], ends.shape[0] - 1
    run, head, admitted, started = own[NEXT_RUN], own[HEAD], own[ADMITTED], own[STARTED]
    busy, first, emitted, count, base = own[BUSY], own[RING], out[RUNS], out[COUNT], out[RUNS]
    woken, due = own[WOKEN], own[DUE]
    while True:
        at_ms = in_ms[run]
        if own[CHANGE] < facts[CHANGE_STOP]:
            at_ms = min(at_ms, changes[own[CHANGE], AT_MS])
        if busy > 0:
            at_ms = min(at_ms, ends[first & mask])
        if woken > 0:
            at_ms = min(at_ms, dues[due & mask])
        if not at_ms < until_ms:
            break
        while own[CHANGE] < facts[CHANGE_STOP] and changes[own[CHANGE], AT_MS] == at_ms:
            own[BUSY], own[WOKEN] = busy, woken
            change_replicas(int(changes[own[CHANGE], TO]), own, ring, True)
            own[CHANGE] += 1
        replicas = own[REPLICAS]
        while busy > 0 and ends[first & mask] == at_ms:
            here = first & mask
            count += ring[here, SIZE]
            out_ms[emitted], out_stops[emitted], firsts[emitted - base] = at_ms, count, ring[here, FIRST]
            ring[ring[here, REPLICA], STANDING] = 0 if busy + woken > replicas else 1
            emitted += 1
            first += 1
            busy -= 1
        while in_ms[run] == at_ms:
            admitted = in_stops[run]
            run += 1
        while woken > 0 and dues[due & mask] == at_ms:
            number = waking[due & mask]
            queued = admitted - head
            size = queued if queued < most else most
            due += 1
            woken -= 1
            if size == 0:
                ring[number, STANDING] = 0 if busy + woken >= replicas else 1
                continue
            end_ms = table[size]
            if facts[LAW] != 0:
                end_ms = varying_ms(facts, spans, end_ms, measured_at, measured_ms, size, started)
            end_ms += at_ms
            if full:
                batches_ms[started, 0], batches_ms[started, 1] = at_ms, end_ms
                batches[started, 0], batches[started, 1] = size, number
            insert(
                end_ms,
                np.uint64(head),
                np.uint64(size),
                number,
                np.uint64(first),
                np.uint64(busy),
                ends,
                ring,
                True,
            )
            busy += 1
            started += 1
            head += size
        while busy + woken < replicas and (admitted - head + most - 1) // most > woken:
            dues[(due + woken) & mask], waking[(due + woken) & mask] = at_ms + delay_ms, take_number(ring)
            woken += 1
    own[NEXT_RUN], own[HEAD], own[ADMITTED], own[STARTED] = run, head, admitted, started
    own[BUSY], own[RING], own[WOKEN], own[DUE], out[RUNS], out[COUNT] = (
        busy,
        first,
        woken,
        due,
        emitted,
        count,
    )
