"""One stage: a stream of arrivals becomes a stream of batches.

Each kernel handles every instant before `until_ms` and leaves the rest for the next call. Within an instant:
completions in start order, arrivals, starts. Batches are contiguous ranges of the arrival order.
"""

from __future__ import annotations

import numpy as np

from forerun.core.kernels.jit import kernel
from forerun.core.kernels.records import Rows
from forerun.serving.engine.kernels.draws import batch_ms
from forerun.serving.engine.kernels.layout import ABSENT, IDLE, KernelPlan, Record, StageArrays, State
from forerun.serving.engine.kernels.stage import (
    change_replicas,
    insert,
    note_batch,
    stage_arrays,
    take_number,
)


@kernel(allocates=False)
def serve_one(stage: StageArrays, until_ms: float) -> int:
    """One replica that starts whatever is queued as soon as it is free. Returns ties of a completion with one arrival.

    The next batch starts at max(end of the last, next arrival). Ends come in start order, so there is no list of
    completions: at most one batch is in service.
    """
    facts, own, out, place = stage.facts, stage.own, stage.out, stage.ring[0]
    in_ms, in_stops, out_ms, out_stops = stage.in_ms, stage.in_stops, stage.out_ms, stage.out_stops
    fixed, most, full = facts.law == 0, np.uint64(facts.most), stage.batches.shape[0] > 0
    # Unsigned, so that no access asks whether a position counts from the end.
    one, two = np.uint64(1), np.uint64(2)
    run, head = np.uint64(own.next_run), np.uint64(own.head)
    admitted, started = np.uint64(own.admitted), np.uint64(own.started)
    emitted, ties = np.uint64(out.runs), 0
    free_ms, size = -np.inf, np.uint64(0)
    if own.busy:
        free_ms, size = stage.ends_ms[0], np.uint64(place.queries)
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
        free_ms = start_ms + batch_ms(stage, fixed, size, started)
        if full:
            note_batch(stage.batches, started, start_ms, free_ms, size, 0)
        started += one
        head += size
        if free_ms < until_ms:
            out_ms[emitted], out_stops[emitted] = free_ms, head
            emitted += one
    own.busy, out.count = 0, head
    if not free_ms < until_ms:
        own.busy, out.count = 1, head - size
        stage.ends_ms[0], place.first, place.queries, place.replica = free_ms, head - size, size, 0
    own.next_run, own.head, own.admitted, own.started, out.runs = run, head, admitted, started, emitted
    return ties


@kernel(allocates=False)
def serve_many(stage: StageArrays, changes: Rows, until_ms: float) -> int:
    """Several replicas, whose number changes as `changes` say, from one change to the next.

    Returns ties of completions with each other and with one arrival.
    """
    facts, own, ties = stage.facts, stage.own, 0
    while True:
        changing = own.change < facts.change_stop and changes[own.change].at_ms < until_ms
        constant_ms = changes[own.change].at_ms if changing else until_ms
        now_ms = changes[own.change - 1].at_ms if own.change > facts.change_first else -np.inf
        ties += serve_constant(stage, now_ms, constant_ms)
        if not changing:
            return ties
        change_replicas(stage, changes[own.change].to, stage.batches.shape[0] > 0)


@kernel(allocates=False)
def serve_constant(stage: StageArrays, now_ms: float, until_ms: float) -> int:
    """Several replicas that start what is queued at once, or hold a batch that is not full for a while.

    Batches in service stand in a ring sorted by (end, start order). The next start is when the batching policy is
    ready and a replica idle, not before `now_ms`; between starts there is nothing to do. Returns ties of completions with
    each other and with one arrival.
    """
    facts, own, out, ends_ms, ring = stage.facts, stage.own, stage.out, stage.ends_ms, stage.ring
    in_ms, in_stops, out_ms, out_stops = stage.in_ms, stage.in_stops, stage.out_ms, stage.out_stops
    fixed, most, patience_ms = facts.law == 0, np.uint64(facts.most), facts.delay_ms
    full = stage.batches.shape[0] > 0
    # Unsigned, so that no access asks whether a position counts from the end.
    zero, one, two = np.uint64(0), np.uint64(1), np.uint64(2)
    replicas, mask = np.uint64(own.replicas), np.uint64(ends_ms.shape[0] - 1)
    run, head, oldest = np.uint64(own.next_run), np.uint64(own.head), np.uint64(own.head_run)
    admitted, started = np.uint64(own.admitted), np.uint64(own.started)
    busy, first = np.uint64(own.busy), np.uint64(own.ring)
    emitted, count = np.uint64(out.runs), np.uint64(out.count)
    beyond, begin = np.uint64(stage.into.runs), np.uint64(own.emitted)
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
            free_ms = ends_ms[(first + busy - replicas) & mask]
            start_ms = free_ms if free_ms > start_ms else start_ms
        coming, last_ms = 0, -np.inf
        while busy > zero:
            here = first & mask
            end_ms = ends_ms[here]
            if not (end_ms <= start_ms and end_ms < until_ms):
                break
            coming = coming + 1 if end_ms == last_ms else 1
            ties += coming == 2
            last_ms = end_ms
            count += np.uint64(ring[here].queries)
            out_ms[emitted], out_stops[emitted] = end_ms, count
            stage.firsts[emitted - begin] = ring[here].first
            if full:
                ring[ring[here].replica].standing = ABSENT if busy > replicas else IDLE
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
            end_ms = start_ms + batch_ms(stage, fixed, size, started)
            number = 0
            if full:
                number = take_number(ring)
                note_batch(stage.batches, started, start_ms, end_ms, size, number)
            insert(stage, end_ms, head, size, number, first, busy, full)
            busy += one
            started += one
            head += size
    own.next_run, own.head, own.admitted, own.started, own.head_run = run, head, admitted, started, oldest
    own.busy, own.ring, out.runs, out.count = busy, first, emitted, count
    return ties


@kernel(allocates=False)
def serve_woken(s: int, plan: KernelPlan, state: State, record: Record, until_ms: float) -> None:
    """Stage `s`, whose idle replicas are woken and take whatever is queued a fixed delay later; an empty take goes idle.

    Goes from instant to instant: changes of replicas, completions, arrivals, takes that are due in the order of waking, then
    wakes while a replica is idle and more batches are queued than replicas woken.
    """
    stage, changes, wakes = stage_arrays(plan, state, record, s), plan.changes, state.wakes[s]
    facts, own, out, ends_ms, ring = stage.facts, stage.own, stage.out, stage.ends_ms, stage.ring
    in_ms, in_stops, out_ms, out_stops = stage.in_ms, stage.in_stops, stage.out_ms, stage.out_stops
    fixed, most, mask, full = facts.law == 0, facts.most, ends_ms.shape[0] - 1, stage.batches.shape[0] > 0
    run, head, admitted, started, begin = own.next_run, own.head, own.admitted, own.started, out.runs
    while True:
        at_ms = in_ms[run]
        if own.change < facts.change_stop:
            at_ms = min(at_ms, changes[own.change].at_ms)
        if own.busy > 0:
            at_ms = min(at_ms, ends_ms[own.ring & mask])
        if own.woken > 0:
            at_ms = min(at_ms, wakes[own.due & mask].due_ms)
        if not at_ms < until_ms:
            break
        while own.change < facts.change_stop and changes[own.change].at_ms == at_ms:
            change_replicas(stage, changes[own.change].to, True)
        while own.busy > 0 and ends_ms[own.ring & mask] == at_ms:
            batch = ring[own.ring & mask]
            out.count += batch.queries
            out_ms[out.runs], out_stops[out.runs] = at_ms, out.count
            stage.firsts[out.runs - begin] = batch.first
            ring[batch.replica].standing = ABSENT if own.busy + own.woken > own.replicas else IDLE
            out.runs += 1
            own.ring += 1
            own.busy -= 1
        while in_ms[run] == at_ms:
            admitted = in_stops[run]
            run += 1
        while own.woken > 0 and wakes[own.due & mask].due_ms == at_ms:
            number, size = wakes[own.due & mask].replica, min(admitted - head, most)
            own.due += 1
            own.woken -= 1
            if size == 0:
                ring[number].standing = ABSENT if own.busy + own.woken >= own.replicas else IDLE
                continue
            end_ms = at_ms + batch_ms(stage, fixed, np.uint64(size), np.uint64(started))
            if full:
                note_batch(stage.batches, np.uint64(started), at_ms, end_ms, np.uint64(size), number)
            begins, busy = np.uint64(own.ring), np.uint64(own.busy)
            insert(stage, end_ms, np.uint64(head), np.uint64(size), number, begins, busy, True)
            own.busy += 1
            started += 1
            head += size
        while own.busy + own.woken < own.replicas and (admitted - head + most - 1) // most > own.woken:
            wake = wakes[(own.due + own.woken) & mask]
            wake.due_ms, wake.replica = at_ms + facts.delay_ms, take_number(ring)
            own.woken += 1
    own.next_run, own.head, own.admitted, own.started = run, head, admitted, started
