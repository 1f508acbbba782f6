"""The event loop, compiled: one global order of instants, at each the four phases of every stage.

The twin of `events.py` in arrays, for pipelines that the stage-by-stage kernels do not take although every policy has a
compiled form. Completions wait in one binary heap by (instant, stage, start order).
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from forerun.domains.serving.engine.kernels.draws import varying_ms
from forerun.domains.serving.engine.kernels.layout import (
    AT_MS,
    BATCHING,
    CHANGE_STOP,
    DELAY_MS,
    EDGE_FIRST,
    EDGE_FROM,
    EDGE_STOP,
    LAW,
    MOST,
    TO,
    WAKE,
    Floats,
    Ints,
    Plan,
    Record,
)
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
    numbers: NDArray[np.uint8]
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
    """The whole trace; returns the tie count. taken: bool[E, n], or bool[E, 0] if every edge is always taken.

    The phases are closures over the arrays: reaching into a tuple of arrays, or taking a row of one, at each visit of a
    stage costs more than the visit.
    """
    order, entered, first, missing, counts = loop.order, loop.entered, loop.first, loop.missing, loop.counts
    ended, ending, numbers, dues_ms, dues = loop.ended, loop.ending, loop.numbers, loop.dues_ms, loop.dues
    next_ms, acts, child_at, child = loop.next_ms, loop.acts, loop.child_at, loop.child
    heap_ms, heap = loop.heap_ms, loop.heap
    facts, spans, changes = plan.stages, plan.spans, plan.changes
    edges, mean_ms, routed = plan.edges, plan.service_ms, taken.shape[1] > 0
    measured_at, measured_ms = plan.measured_at, plan.measured_ms
    batches, batches_ms, visits, visits_ms = (
        record.batches,
        record.batches_ms,
        record.visits,
        record.visits_ms,
    )
    stages, places = next_ms.shape[0], dues_ms.shape[1]

    def wake_children(parent: int) -> None:
        for place in range(child_at[parent], child_at[parent + 1]):
            acts[child[place]] = True

    def change(s: int, now_ms: float) -> None:
        """Phase 0: idle replicas come with the lowest free numbers and go with the highest."""
        while counts[s, CHANGE] < facts[s, CHANGE_STOP] and changes[counts[s, CHANGE], AT_MS] == now_ms:
            counts[s, REPLICAS] = np.int64(changes[counts[s, CHANGE], TO])
            counts[s, CHANGE] += 1
            wanted = max(0, counts[s, REPLICAS] - counts[s, BUSY] - counts[s, WOKEN])
            idle = 0
            for number in range(numbers.shape[1]):
                idle += numbers[s, number] == 1
            for number in range(numbers.shape[1]):
                if idle < wanted and numbers[s, number] == 0:
                    numbers[s, number] = 1
                    idle += 1
            for number in range(numbers.shape[1] - 1, -1, -1):
                if idle > wanted and numbers[s, number] == 1:
                    numbers[s, number] = 0
                    idle -= 1

    def complete(s: int) -> int:
        """Phase 1: batches end in start order; their replicas are idle, or retire."""
        for place in range(ended[s, 0], ended[s, 1]):
            retires = counts[s, BUSY] + counts[s, WOKEN] > counts[s, REPLICAS]
            numbers[s, batches[s, ending[place], 1]] = 0 if retires else 1
            counts[s, BUSY] -= 1
        return int(ended[s, 1] - ended[s, 0])

    def arrive(s: int, now_ms: float, sent: int, fed: int) -> int:
        """Phase 2: queries whose last taken parent ends now join the queue; from how many parents' batches they come."""
        groups, came = 0, counts[s, CAME]
        for e in range(facts[s, EDGE_FIRST], facts[s, EDGE_STOP]):
            parent = edges[e, EDGE_FROM] - 1
            # The source emits batches of one; a stage those that ended now.
            first_batch = sent if parent < 0 else ended[parent, 0]
            last_batch = fed if parent < 0 else ended[parent, 1]
            for batch in range(first_batch, last_batch):
                begin, size = batch, 1
                if parent >= 0:
                    number = ending[batch]
                    begin = first[parent, number]
                    # A batch reaches up to where the next one begins.
                    newest = number + 1 == counts[parent, BEGUN]
                    size = (counts[parent, TAKEN] if newest else first[parent, number + 1]) - begin
                before = came
                for position in range(begin, begin + size):
                    query = position if parent < 0 else np.int64(order[parent, position])
                    if not routed or taken[e, query]:
                        missing[s, query] -= 1
                        if missing[s, query] == 0:
                            order[s, came], entered[s, came] = query, now_ms
                            came += 1
                groups += came > before
        counts[s, CAME] = came
        return groups

    def take_number(s: int) -> int:
        number = 0
        while numbers[s, number] != 1:
            number += 1
        numbers[s, number] = 2
        return number

    def begin_batch(s: int, number: int, now_ms: float, waiting: int) -> int:
        """The oldest queries start on replica `number`."""
        taken_from, begun = counts[s, TAKEN], counts[s, BEGUN]
        size = min(facts[s, MOST], counts[s, CAME] - taken_from)
        end_ms = mean_ms[s, size]
        if facts[s, LAW] != 0:
            end_ms = varying_ms(facts[s], spans[s], end_ms, measured_at[s], measured_ms, size, begun)
        end_ms += now_ms
        first[s, begun] = taken_from
        batches_ms[s, begun, 0], batches_ms[s, begun, 1] = now_ms, end_ms
        batches[s, begun, 0], batches[s, begun, 1] = size, number
        for position in range(taken_from, taken_from + size):
            query = order[s, position]
            visits_ms[s, 0, query], visits_ms[s, 1, query] = entered[s, position], now_ms
            visits_ms[s, 2, query] = end_ms
            visits[s, 0, query], visits[s, 1, query] = size, number
        counts[s, TAKEN] += size
        counts[s, BEGUN] += 1
        counts[s, BUSY] += 1
        _push(heap_ms, heap, waiting, end_ms, s * STAGE + begun)
        return waiting + 1

    def start(s: int, now_ms: float, waiting: int) -> int:
        """Phase 3: takes that are due, then what the batching policy decides; the batches in service anywhere."""
        most, delay_ms = facts[s, MOST], spans[s, DELAY_MS]
        again_ms = np.inf if counts[s, CHANGE] == facts[s, CHANGE_STOP] else changes[counts[s, CHANGE], AT_MS]
        wakes = facts[s, BATCHING] == WAKE
        while wakes and counts[s, WOKEN] > 0 and dues_ms[s, counts[s, DUE] % places] == now_ms:
            number = dues[s, counts[s, DUE] % places]
            counts[s, DUE] += 1
            counts[s, WOKEN] -= 1
            if counts[s, CAME] > counts[s, TAKEN]:
                waiting = begin_batch(s, number, now_ms, waiting)
            else:
                numbers[s, number] = 0 if counts[s, BUSY] + counts[s, WOKEN] >= counts[s, REPLICAS] else 1
        while counts[s, BUSY] + counts[s, WOKEN] < counts[s, REPLICAS]:
            queued = counts[s, CAME] - counts[s, TAKEN]
            if queued <= counts[s, WOKEN] * most:
                break
            if wakes:
                place = (counts[s, DUE] + counts[s, WOKEN]) % places
                dues_ms[s, place], dues[s, place] = now_ms + delay_ms, take_number(s)
                counts[s, WOKEN] += 1
                continue
            over_ms = entered[s, counts[s, TAKEN]] + delay_ms
            if queued < most and now_ms < over_ms:
                again_ms = min(again_ms, over_ms)
                break
            waiting = begin_batch(s, take_number(s), now_ms, waiting)
        if counts[s, WOKEN] > 0:
            again_ms = min(again_ms, dues_ms[s, counts[s, DUE] % places])
        next_ms[s] = again_ms
        return waiting

    fed, waiting, ties = 0, 0, 0
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
            wake_children(0)
        while waiting > 0 and heap_ms[0] == now_ms:
            code = _pop(heap_ms, heap, waiting)
            waiting -= 1
            s = code // STAGE
            if ended[s, 1] == 0:
                ended[s, 0] = ends
                acts[s] = True
                wake_children(s + 1)
            ending[ends] = code % STAGE
            ends += 1
            ended[s, 1] = ends
        for s in range(stages):
            if acts[s]:
                if next_ms[s] == now_ms:
                    change(s, now_ms)
                completions = complete(s)
                groups = arrive(s, now_ms, sent, fed)
                ties += completions + groups > 1
                waiting = start(s, now_ms, waiting)


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
