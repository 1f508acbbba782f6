"""One stage by itself, as searches need it: from the queue's entries to the order of completions, and who is late.

The same rules as in serve.py for greedy batching and a fixed number of replicas, on plain arrays: within an instant
completions in start order, arrivals, starts. A search runs one stage hundreds of times on the same input, stops as soon
as too many queries are late, and keeps what it needs to recognise runs that cannot differ. It is a loop
of its own because most runs are cut short: to make and fill the streams of serve.py for each makes exact plans slower.
"""

from __future__ import annotations

import numpy as np

from forerun.core.kernels.jit import kernel


@kernel
def run_stage(
    enter_ms: np.ndarray,
    query: np.ndarray,
    table_ms: np.ndarray,
    most: int,
    replicas: int,
    arrival_ms: np.ndarray,
    tail_ms: np.ndarray,
    slo_ms: float,
    slack_ms: float,
    allowed: int,
) -> tuple[np.ndarray, np.ndarray, np.ndarray, int, int, int]:
    """Run one stage; stop once more than `allowed` queries are late.

    enter_ms: float64[m], ascending; query: int32[m], who enters. table_ms: service of a batch of n at index n.
    arrival_ms, tail_ms: float64[n] by query: when it came, and the least time it still takes behind this stage. Late
    is end + tail - arrival > slo; where a tail is added, `slack_ms` more, so that rounding condemns nobody.
    Returns completion instants and queries in the order of completion, uint8[n] late by query, how many are late, the
    largest batch taken and the most replicas ever busy.
    """
    entered = enter_ms.shape[0]
    done_ms = np.empty(entered)
    done = np.empty(entered, dtype=np.int32)
    late = np.zeros(arrival_ms.shape[0], dtype=np.uint8)
    places = 1
    while places < min(replicas, entered) + 1:
        places *= 2
    mask = places - 1
    ends, starts_at, sizes = np.empty(places), np.empty(places, np.int64), np.empty(places, np.int64)
    first, busy, peak, largest, lates, out = 0, 0, 0, 0, 0, 0
    head, admitted = 0, 0
    while head < entered:
        start_ms = enter_ms[head]
        if busy == replicas:
            start_ms = max(start_ms, ends[first & mask])
        while busy > 0 and ends[first & mask] <= start_ms:
            here = first & mask
            for position in range(starts_at[here], starts_at[here] + sizes[here]):
                done_ms[out], done[out] = ends[here], query[position]
                out += 1
            first += 1
            busy -= 1
        while admitted < entered and enter_ms[admitted] <= start_ms:
            admitted += 1
        while busy < replicas and head < admitted:
            size = min(most, admitted - head)
            end_ms = start_ms + table_ms[size]
            for position in range(head, head + size):
                who = query[position]
                tail = tail_ms[who]
                if tail > 0.0:
                    is_late = end_ms + tail - arrival_ms[who] > slo_ms + slack_ms
                else:
                    is_late = end_ms - arrival_ms[who] > slo_ms
                if is_late:
                    late[who] = 1
                    lates += 1
            place = first + busy
            while place > first and ends[(place - 1) & mask] > end_ms:
                here, before = place & mask, (place - 1) & mask
                ends[here], starts_at[here], sizes[here] = ends[before], starts_at[before], sizes[before]
                place -= 1
            here = place & mask
            ends[here], starts_at[here], sizes[here] = end_ms, head, size
            busy += 1
            head += size
            peak, largest = max(peak, busy), max(largest, size)
        if lates > allowed:
            break
    while busy > 0:
        here = first & mask
        for position in range(starts_at[here], starts_at[here] + sizes[here]):
            done_ms[out], done[out] = ends[here], query[position]
            out += 1
        first += 1
        busy -= 1
    return done_ms[:out], done[:out], late, lates, largest, peak


@kernel
def join(
    times_ms: np.ndarray, queries: np.ndarray, parts: np.ndarray, awaited: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Several parents' completions become one queue: a query enters with the last parent that it waits for.

    times_ms, queries: the parents' streams one behind the other, parent p at parts[p]..parts[p + 1] - 1, in declared
    order; awaited: int64[n], how many of them each query takes. Entries of one instant stand in the order (index of
    the last parent, order of completion there).
    """
    left = awaited.copy()
    at = parts[:-1].copy()
    enter_ms = np.empty(awaited.shape[0])
    query = np.empty(awaited.shape[0], dtype=np.int32)
    count = 0
    for _ in range(times_ms.shape[0]):
        chosen = -1
        for p in range(at.shape[0]):
            if at[p] < parts[p + 1] and (chosen < 0 or times_ms[at[p]] < times_ms[at[chosen]]):
                chosen = p
        who = queries[at[chosen]]
        left[who] -= 1
        if left[who] == 0:
            enter_ms[count], query[count] = times_ms[at[chosen]], who
            count += 1
        at[chosen] += 1
    return enter_ms[:count], query[:count]
