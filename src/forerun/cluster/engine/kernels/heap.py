"""Binary heaps over numbered items, such as jobs or slots of running jobs.

A heap is arrays whose first `count` entries are in heap order: `order`, the items, and `keys`, their keys side by side (no
entry's key is above its two successors'). Ties go by a rank, so that a run does not depend on the history of the heap.
`place` says where an item stands in the arrays; heaps whose items leave at the top only need none.
"""

from __future__ import annotations

from forerun.cluster.engine.kernels.arrays import F64, I64
from forerun.core.kernels.jit import kernel


@kernel(inline=True)
def push(order: I64, keys: F64, place: I64, rank: I64, count: int, item: int, key: float) -> int:
    """Add an item to a heap in which equal keys go by `rank`, lower first; the new count."""
    _rise(order, keys, place, rank, count, item, key)
    return count + 1


@kernel(inline=True)
def remove(order: I64, keys: F64, place: I64, rank: I64, count: int, item: int) -> int:
    """Take an item out, wherever it stands; the new count."""
    at = place[item]
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
    # the last entry may be less than those above the hole
    _rise(order, keys, place, rank, at, last, key)
    return count


@kernel(inline=True)
def _rise(order: I64, keys: F64, place: I64, rank: I64, at: int, item: int, key: float) -> None:
    mine = rank[item]
    while at > 0:
        above = (at - 1) >> 1
        if keys[above] < key or (keys[above] == key and rank[order[above]] < mine):
            break
        order[at] = order[above]
        keys[at] = keys[above]
        place[order[at]] = at
        at = above
    order[at] = item
    keys[at] = key
    place[item] = at


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
    _sink(order, keys, 0, count - 1)
    return count - 1


@kernel(inline=True)
def remove_least(order: I64, keys: F64, count: int, job: int) -> int:
    """Take a job out of a heap that others leave at the top only, in time that grows with its size; the new count."""
    at = 0
    while order[at] != job:
        at += 1
    while at > 0:  # the job rises to the top
        above = (at - 1) >> 1
        order[at], keys[at] = order[above], keys[above]
        at = above
    _sink(order, keys, 0, count - 1)
    return count - 1


@kernel(inline=True)
def _sink(order: I64, keys: F64, at: int, count: int) -> None:
    """Fill the hole at a place with the entry behind the last."""
    job, key = order[count], keys[count]
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
