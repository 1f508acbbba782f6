"""The event loop, compiled: one global order of instants, at each the four phases of every stage.

The twin of `events.py` in arrays, for pipelines that the stage-by-stage kernels do not take although every policy has a
compiled form. Completions wait in one binary heap by (instant, stage, start order).
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from forerun.domains.serving.kernels.draws import service_ms
from forerun.domains.serving.kernels.layout import WAKE, Bytes, Floats, Ints, Plan, Record
from forerun.domains.serving.kernels.stage import take_number
from forerun.kernels.jit import kernel

#: a heap entry's code is stage * STAGE + start number
STAGE = 2**40


class Loop(NamedTuple):
    """What is under way. S stages, n queries, K replicas.

    order: int32[S, n], queries in the order they came. entered: float64[S, n], when. first: int32[S, n], where each batch
    begins in `order`. missing: int32[S, n], taken parents not yet ended. counts: int64[S, 8], fields below.
    ended: int64[S, 2], the stage's part of `ending`, the batches that end at this instant, by number. numbers:
    uint8[S, K], 0 no such replica, 1 idle, 2 at work. dues_ms, dues: [S, K], rings of wake-ups. heap_ms, heap: [S * K].
    """

    order: NDArray[np.int32]
    entered: Floats
    first: NDArray[np.int32]
    missing: NDArray[np.int32]
    counts: Ints
    ended: Ints
    ending: Ints
    numbers: Bytes
    dues_ms: Floats
    dues: Ints
    alarm_ms: Floats
    heap_ms: Floats
    heap: Ints


CAME, TAKEN, BEGUN, BUSY, REPLICAS, CHANGE, WOKEN, DUE = range(8)


@kernel
def run_instants(
    plan: Plan, loop: Loop, record: Record, arrivals_ms: Floats, taken: NDArray[np.bool_]
) -> int:
    """The whole trace; returns the tie count. taken: bool[E, n], or bool[E, 0] if every edge is always taken."""
    fed, waiting, ties = 0, 0, 0
    while True:
        now_ms = arrivals_ms[fed] if fed < arrivals_ms.shape[0] else np.inf
        if waiting > 0:
            now_ms = min(now_ms, loop.heap_ms[0])
        for s in range(plan.input_of.shape[0]):
            now_ms = min(now_ms, _own_next_ms(s, plan, loop))
        if now_ms == np.inf:
            return ties
        sent = fed
        while fed < arrivals_ms.shape[0] and arrivals_ms[fed] == now_ms:
            fed += 1
        for s in range(plan.input_of.shape[0]):
            loop.ended[s, 0] = loop.ended[s, 1] = 0
        ending = 0
        while waiting > 0 and loop.heap_ms[0] == now_ms:
            code = _pop(loop.heap_ms, loop.heap, waiting)
            waiting -= 1
            s = code // STAGE
            if loop.ended[s, 1] == 0:
                loop.ended[s, 0] = ending
            loop.ending[ending] = code % STAGE
            ending += 1
            loop.ended[s, 1] = ending
        for s in range(plan.input_of.shape[0]):
            _change(s, now_ms, plan, loop)
            completions = _complete(s, loop, record)
            groups = _arrive(s, now_ms, sent, fed, plan, loop, taken)
            ties += completions + groups > 1
            waiting = _start(s, now_ms, waiting, plan, loop, record)


@kernel(inline=True)
def _own_next_ms(s: int, plan: Plan, loop: Loop) -> float:
    """The next instant that stage `s` sets itself: a change of replicas, the end of patience, a take that is due."""
    own, next_ms = loop.counts[s], loop.alarm_ms[s]
    if own[CHANGE] < plan.change_at[s + 1]:
        next_ms = min(next_ms, plan.change_ms[own[CHANGE]])
    if own[WOKEN] > 0:
        next_ms = min(next_ms, loop.dues_ms[s, own[DUE] % loop.dues_ms.shape[1]])
    return float(next_ms)


@kernel(inline=True)
def _change(s: int, now_ms: float, plan: Plan, loop: Loop) -> None:
    """Phase 0: idle replicas come with the lowest free numbers and go with the highest."""
    own, numbers = loop.counts[s], loop.numbers[s]
    while own[CHANGE] < plan.change_at[s + 1] and plan.change_ms[own[CHANGE]] == now_ms:
        own[REPLICAS] = plan.change_to[own[CHANGE]]
        own[CHANGE] += 1
        wanted = max(0, own[REPLICAS] - own[BUSY] - own[WOKEN])
        idle = 0
        for number in range(numbers.shape[0]):
            idle += numbers[number] == 1
        for number in range(numbers.shape[0]):
            if idle < wanted and numbers[number] == 0:
                numbers[number] = 1
                idle += 1
        for number in range(numbers.shape[0] - 1, -1, -1):
            if idle > wanted and numbers[number] == 1:
                numbers[number] = 0
                idle -= 1


@kernel(inline=True)
def _complete(s: int, loop: Loop, record: Record) -> int:
    """Phase 1: batches end in start order; their replicas are idle, or retire."""
    own = loop.counts[s]
    for place in range(loop.ended[s, 0], loop.ended[s, 1]):
        retires = own[BUSY] + own[WOKEN] > own[REPLICAS]
        loop.numbers[s, record.batches[s, loop.ending[place], 1]] = 0 if retires else 1
        own[BUSY] -= 1
    return int(loop.ended[s, 1] - loop.ended[s, 0])


@kernel(inline=True)
def _arrive(
    s: int, now_ms: float, sent: int, fed: int, plan: Plan, loop: Loop, taken: NDArray[np.bool_]
) -> int:
    """Phase 2: queries whose last taken parent ends now join the queue; from how many parents' batches they come."""
    groups = 0
    for e in range(plan.edge_at[s], plan.edge_at[s + 1]):
        parent = plan.edge_from[e] - 1
        if parent < 0:
            for query in range(sent, fed):
                groups += _join(s, e, query, now_ms, loop, taken)
            continue
        for place in range(loop.ended[parent, 0], loop.ended[parent, 1]):
            number, entered = loop.ending[place], 0
            begin = loop.first[parent, number]
            for position in range(begin, begin + _size(parent, number, loop)):
                entered += _join(s, e, loop.order[parent, position], now_ms, loop, taken)
            groups += entered > 0
    return groups


@kernel(inline=True)
def _size(s: int, number: int, loop: Loop) -> int:
    """How many queries batch `number` of a stage holds: up to where the next one begins."""
    own = loop.counts[s]
    stop = loop.first[s, number + 1] if number + 1 < own[BEGUN] else own[TAKEN]
    return int(stop - loop.first[s, number])


@kernel(inline=True)
def _join(s: int, edge: int, query: int, now_ms: float, loop: Loop, taken: NDArray[np.bool_]) -> int:
    """A parent of the query has ended; 1 if it was the last one, and the query joins the queue."""
    if taken.shape[1] > 0 and not taken[edge, query]:
        return 0
    loop.missing[s, query] -= 1
    if loop.missing[s, query] > 0:
        return 0
    own = loop.counts[s]
    loop.order[s, own[CAME]], loop.entered[s, own[CAME]] = query, now_ms
    own[CAME] += 1
    return 1


@kernel(inline=True)
def _start(s: int, now_ms: float, waiting: int, plan: Plan, loop: Loop, record: Record) -> int:
    """Phase 3: takes that are due, then what the batching policy decides; the number of batches in service anywhere."""
    own, most, delay_ms, places = loop.counts[s], plan.max_batch[s], plan.delay_ms[s], loop.dues_ms.shape[1]
    loop.alarm_ms[s] = np.inf
    if plan.batching[s] == WAKE:
        while own[WOKEN] > 0 and loop.dues_ms[s, own[DUE] % places] == now_ms:
            number = loop.dues[s, own[DUE] % places]
            own[DUE] += 1
            own[WOKEN] -= 1
            if own[CAME] > own[TAKEN]:
                waiting = _begin(s, number, now_ms, waiting, plan, loop, record)
            else:
                loop.numbers[s, number] = 0 if own[BUSY] + own[WOKEN] >= own[REPLICAS] else 1
        while own[BUSY] + own[WOKEN] < own[REPLICAS] and own[CAME] - own[TAKEN] > own[WOKEN] * most:
            place = (own[DUE] + own[WOKEN]) % places
            loop.dues_ms[s, place], loop.dues[s, place] = now_ms + delay_ms, take_number(loop.numbers[s])
            own[WOKEN] += 1
        return waiting
    while own[BUSY] < own[REPLICAS] and own[CAME] > own[TAKEN]:
        over_ms = loop.entered[s, own[TAKEN]] + delay_ms
        if own[CAME] - own[TAKEN] < most and now_ms < over_ms:
            loop.alarm_ms[s] = over_ms
            break
        waiting = _begin(s, take_number(loop.numbers[s]), now_ms, waiting, plan, loop, record)
    return waiting


@kernel(inline=True)
def _begin(s: int, number: int, now_ms: float, waiting: int, plan: Plan, loop: Loop, record: Record) -> int:
    """The oldest queries start on replica `number`."""
    own = loop.counts[s]
    size, begun = min(plan.max_batch[s], own[CAME] - own[TAKEN]), own[BEGUN]
    end_ms = now_ms + service_ms(plan, s, size, begun)
    loop.first[s, begun] = own[TAKEN]
    record.batches_ms[s, begun, 0], record.batches_ms[s, begun, 1] = now_ms, end_ms
    record.batches[s, begun, 0], record.batches[s, begun, 1] = size, number
    for position in range(own[TAKEN], own[TAKEN] + size):
        query = loop.order[s, position]
        visit = record.visits_ms[s, query]
        visit[0], visit[1], visit[2] = loop.entered[s, position], now_ms, end_ms
        record.visits[s, query, 0], record.visits[s, query, 1] = size, number
    own[TAKEN] += size
    own[BEGUN] += 1
    own[BUSY] += 1
    _push(loop.heap_ms, loop.heap, waiting, end_ms, s * STAGE + begun)
    return waiting + 1


@kernel
def _push(heap_ms: Floats, heap: Ints, count: int, at_ms: float, code: int) -> None:
    """Sift up by (instant, code)."""
    place = count
    while place > 0:
        up = (place - 1) // 2
        if heap_ms[up] < at_ms or (heap_ms[up] == at_ms and heap[up] < code):
            break
        heap_ms[place], heap[place] = heap_ms[up], heap[up]
        place = up
    heap_ms[place], heap[place] = at_ms, code


@kernel
def _pop(heap_ms: Floats, heap: Ints, count: int) -> int:
    """Take the first; the last sifts down into its place."""
    first, last = heap[0], count - 1
    at_ms, code = heap_ms[last], heap[last]
    place = 0
    while True:
        down = 2 * place + 1
        if down >= last:
            break
        right = down + 1
        if right < last and (
            heap_ms[right] < heap_ms[down] or (heap_ms[right] == heap_ms[down] and heap[right] < heap[down])
        ):
            down = right
        if at_ms < heap_ms[down] or (at_ms == heap_ms[down] and code < heap[down]):
            break
        heap_ms[place], heap[place] = heap_ms[down], heap[down]
        place = down
    heap_ms[place], heap[place] = at_ms, code
    return int(first)
