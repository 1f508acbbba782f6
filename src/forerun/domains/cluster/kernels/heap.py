"""Binary heaps over numbered jobs.

A heap is three arrays: `order` and `keys`, whose first `count` entries are the jobs in heap order and their keys, side by
side (no entry's key is above its two successors'), and `place`, where a job stands in them (-1: nowhere). Ties go to the
lower number, so that a run does not depend on the history of the heap.
"""

from __future__ import annotations

from forerun.domains.cluster.kernels.arrays import F64, I64
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
        if other < count and (
            keys[other] < keys[below] or (keys[other] == keys[below] and order[other] < order[below])
        ):
            below = other
        if key < keys[below] or (key == keys[below] and job < order[below]):
            break
        order[at] = order[below]
        keys[at] = keys[below]
        place[order[at]] = at
        at = below
    order[at] = job
    keys[at] = key
    place[job] = at
