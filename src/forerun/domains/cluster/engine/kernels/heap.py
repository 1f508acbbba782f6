"""Binary heaps over numbered jobs.

A heap is three arrays: `order` and `keys`, whose first `count` entries are the jobs in heap order and their keys, side by
side (no entry's key is above its two successors'), and `place`, where a job stands in them (-1: nowhere). Ties go to the
lower number, so that a run does not depend on the history of the heap.
"""

from __future__ import annotations

from forerun.domains.cluster.engine.kernels.arrays import F64, I64
from forerun.kernels.jit import kernel


@kernel
def push(order: I64, keys: F64, place: I64, count: int, job: int, key: float) -> int:
    """Add a job; the new count."""
    _rise(order, keys, place, count, job, key)
    return count + 1


@kernel
def remove(order: I64, keys: F64, place: I64, count: int, job: int) -> int:
    """Take a job out, wherever it stands; the new count."""
    at = place[job]
    place[job] = -1
    last, key = order[count - 1], keys[count - 1]
    if last != job:
        above = (at - 1) // 2
        if at > 0 and (key < keys[above] or (key == keys[above] and last < order[above])):
            _rise(order, keys, place, at, last, key)
        else:
            _sink(order, keys, place, count - 1, at, last, key)
    return count - 1


@kernel
def _rise(order: I64, keys: F64, place: I64, at: int, job: int, key: float) -> None:
    while at > 0:
        above = (at - 1) // 2
        if keys[above] < key or (keys[above] == key and order[above] < job):
            break
        order[at] = order[above]
        keys[at] = keys[above]
        place[order[at]] = at
        at = above
    order[at] = job
    keys[at] = key
    place[job] = at


@kernel
def _sink(order: I64, keys: F64, place: I64, count: int, at: int, job: int, key: float) -> None:
    while True:
        below = 2 * at + 1
        if below >= count:
            break
        other = below + 1
        if other < count:
            one, two = keys[below], keys[other]
            below += two < one
            if one == two and order[other] < order[below]:
                below = other
        least = keys[below]
        if key < least or (key == least and job < order[below]):
            break
        order[at] = order[below]
        keys[at] = least
        place[order[at]] = at
        at = below
    order[at] = job
    keys[at] = key
    place[job] = at


# -- heaps of slots: ties go by a rank that the slot holds ---------------------------------------------------------


@kernel(inline=True)
def push_slot(order: I64, keys: F64, place: I64, rank: I64, count: int, slot: int, key: float) -> int:
    """Add a slot to a heap in which equal keys go by `rank`, lower first; the new count."""
    _rise_slot(order, keys, place, rank, count, slot, key)
    return count + 1


@kernel(inline=True)
def remove_slot(order: I64, keys: F64, place: I64, rank: I64, count: int, slot: int) -> int:
    """Take a slot out, wherever it stands; the new count."""
    at = place[slot]
    count -= 1
    last, key = order[count], keys[count]
    if at == count:
        return count
    mine = rank[last]
    while True:
        below = 2 * at + 1
        if below >= count:
            break
        other = below + 1
        if other < count:
            one, two = keys[below], keys[other]
            below += two < one
            if one == two and rank[order[other]] < rank[order[below]]:
                below = other
        least = keys[below]
        if key < least or (key == least and mine < rank[order[below]]):
            break
        order[at] = order[below]
        keys[at] = least
        place[order[at]] = at
        at = below
    _rise_slot(
        order, keys, place, rank, at, last, key
    )  # the last entry may be less than those above the hole
    return count


@kernel(inline=True)
def _rise_slot(order: I64, keys: F64, place: I64, rank: I64, at: int, slot: int, key: float) -> None:
    mine = rank[slot]
    while at > 0:
        above = (at - 1) >> 1
        if keys[above] < key or (keys[above] == key and rank[order[above]] < mine):
            break
        order[at] = order[above]
        keys[at] = keys[above]
        place[order[at]] = at
        at = above
    order[at] = slot
    keys[at] = key
    place[slot] = at


# -- heaps that are left at the top only ---------------------------------------------------------------------------


@kernel(inline=True)
def push_least(order: I64, keys: F64, count: int, job: int, key: float) -> int:
    """Add a job to a heap whose jobs leave at the top only; the new count."""
    at = count
    while at > 0:
        above = (at - 1) >> 1
        if keys[above] < key or (keys[above] == key and order[above] < job):
            break
        order[at] = order[above]
        keys[at] = keys[above]
        at = above
    order[at] = job
    keys[at] = key
    return count + 1


@kernel(inline=True)
def pop_least(order: I64, keys: F64, count: int) -> int:
    """Take the job at the top out; the new count."""
    count -= 1
    job, key = order[count], keys[count]
    at = 0
    while True:
        below = 2 * at + 1
        if below >= count:
            break
        other = below + 1
        if other < count:
            one, two = keys[below], keys[other]
            below += two < one
            if one == two and order[other] < order[below]:
                below = other
        least = keys[below]
        if key < least or (key == least and job < order[below]):
            break
        order[at] = order[below]
        keys[at] = least
        at = below
    order[at] = job
    keys[at] = key
    return count
