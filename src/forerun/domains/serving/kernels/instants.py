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
    ended: int64[S, 2], the stage's part of `ending`, the batches that end at this instant, by number.
    numbers: uint8[S, K], 0 no such replica, 1 idle, 2 at work. dues_ms, dues: [S, K], rings of wake-ups.
    next_ms: float64[S], the next instant that a stage sets itself: a change of replicas, the end of patience, a take that
    is due. acts: bool[S], it has something to do now. child_at: int64[S + 2], a part of `child` for the source and for
    each stage. heap_ms, heap: [S * K].
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
    next_ms: Floats
    acts: NDArray[np.bool_]
    child_at: Ints
    child: Ints
    heap_ms: Floats
    heap: Ints


CAME, TAKEN, BEGUN, BUSY, REPLICAS, CHANGE, WOKEN, DUE = range(8)


@kernel
def run_instants(
    plan: Plan, loop: Loop, record: Record, arrivals_ms: Floats, taken: NDArray[np.bool_]
) -> int:
    """The whole trace; returns the tie count. taken: bool[E, n], or bool[E, 0] if every edge is always taken."""
    fed, waiting, ties, stages = 0, 0, 0, loop.next_ms.shape[0]
    next_ms, acts, heap_ms, ended, ending = loop.next_ms, loop.acts, loop.heap_ms, loop.ended, loop.ending
    while True:
        now_ms = arrivals_ms[fed] if fed < arrivals_ms.shape[0] else np.inf
        if waiting > 0:
            now_ms = min(now_ms, heap_ms[0])
        for s in range(stages):
            now_ms = min(now_ms, next_ms[s])
        if now_ms == np.inf:
            return ties
        for s in range(stages):
            acts[s] = next_ms[s] == now_ms
            ended[s, 0] = ended[s, 1] = 0
        sent, ends = fed, 0
        while fed < arrivals_ms.shape[0] and arrivals_ms[fed] == now_ms:
            fed += 1
        if fed > sent:
            _wake_children(0, loop)
        while waiting > 0 and heap_ms[0] == now_ms:
            code = _pop(heap_ms, loop.heap, waiting)
            waiting -= 1
            s = code // STAGE
            if ended[s, 1] == 0:
                ended[s, 0] = ends
                acts[s] = True
                _wake_children(s + 1, loop)
            ending[ends] = code % STAGE
            ends += 1
            ended[s, 1] = ends
        for s in range(stages):
            if acts[s]:
                if next_ms[s] == now_ms:
                    _change(s, now_ms, plan, loop)
                completions = _complete(s, loop, record)
                groups = _arrive(s, now_ms, sent, fed, plan, loop, taken)
                ties += completions + groups > 1
                waiting = _start(s, now_ms, waiting, plan, loop, record)


@kernel
def _wake_children(parent: int, loop: Loop) -> None:
    for place in range(loop.child_at[parent], loop.child_at[parent + 1]):
        loop.acts[loop.child[place]] = True


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
    groups, came, routed = 0, loop.counts[s, CAME], taken.shape[1] > 0
    order, entered, missing = loop.order[s], loop.entered[s], loop.missing[s]
    for e in range(plan.edge_at[s], plan.edge_at[s + 1]):
        parent = plan.edge_from[e] - 1
        # The source emits batches of one; a stage those that ended now.
        first_batch = sent if parent < 0 else loop.ended[parent, 0]
        last_batch = fed if parent < 0 else loop.ended[parent, 1]
        for batch in range(first_batch, last_batch):
            begin, size = batch, 1
            if parent >= 0:
                number = loop.ending[batch]
                begin = loop.first[parent, number]
                size = _size(parent, number, loop)
            before = came
            for position in range(begin, begin + size):
                query = position if parent < 0 else np.int64(loop.order[parent, position])
                if not routed or taken[e, query]:
                    missing[query] -= 1
                    if missing[query] == 0:
                        order[came], entered[came] = query, now_ms
                        came += 1
            groups += came > before
    loop.counts[s, CAME] = came
    return groups


@kernel
def _size(s: int, number: int, loop: Loop) -> int:
    """How many queries batch `number` of a stage holds: up to where the next one begins."""
    last = number + 1 == loop.counts[s, BEGUN]
    return int((loop.counts[s, TAKEN] if last else loop.first[s, number + 1]) - loop.first[s, number])


@kernel(inline=True)
def _start(s: int, now_ms: float, waiting: int, plan: Plan, loop: Loop, record: Record) -> int:
    """Phase 3: takes that are due, then what the batching policy decides; the number of batches in service anywhere."""
    own, most, delay_ms, places = loop.counts[s], plan.max_batch[s], plan.delay_ms[s], loop.dues_ms.shape[1]
    next_ms = np.inf if own[CHANGE] == plan.change_at[s + 1] else plan.change_ms[own[CHANGE]]
    wakes = plan.batching[s] == WAKE
    while wakes and own[WOKEN] > 0 and loop.dues_ms[s, own[DUE] % places] == now_ms:
        number = loop.dues[s, own[DUE] % places]
        own[DUE] += 1
        own[WOKEN] -= 1
        if own[CAME] > own[TAKEN]:
            waiting = _begin(s, number, now_ms, waiting, plan, loop, record)
        else:
            loop.numbers[s, number] = 0 if own[BUSY] + own[WOKEN] >= own[REPLICAS] else 1
    while own[BUSY] + own[WOKEN] < own[REPLICAS] and own[CAME] - own[TAKEN] > own[WOKEN] * most:
        if wakes:
            place = (own[DUE] + own[WOKEN]) % places
            loop.dues_ms[s, place], loop.dues[s, place] = now_ms + delay_ms, take_number(loop.numbers[s])
            own[WOKEN] += 1
            continue
        over_ms = loop.entered[s, own[TAKEN]] + delay_ms
        if own[CAME] - own[TAKEN] < most and now_ms < over_ms:
            next_ms = min(next_ms, over_ms)
            break
        waiting = _begin(s, take_number(loop.numbers[s]), now_ms, waiting, plan, loop, record)
    if own[WOKEN] > 0:
        next_ms = min(next_ms, loop.dues_ms[s, own[DUE] % places])
    loop.next_ms[s] = next_ms
    return waiting


@kernel
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
