"""Binary heaps over numbered jobs, by a key of the job's own.

A heap is three things: `order`, whose first `count` entries are the jobs in heap order (every entry's key is not above
its two successors'); `place`, where a job stands in `order` (-1: nowhere); `key`, by job. Ties go to the lower number,
so that a run does not depend on the history of the heap.
"""

from __future__ import annotations

from forerun.domains.cluster.kernels.arrays import F64, I64
from forerun.kernels.jit import kernel


@kernel
def before(key: F64, one: int, other: int) -> bool:
    """Whether a job stands before another."""
    return bool(key[one] < key[other] or (key[one] == key[other] and one < other))


@kernel
def push(order: I64, place: I64, key: F64, count: int, job: int) -> int:
    """Add a job; the new count."""
    _rise(order, place, key, count, job)
    return count + 1


@kernel
def remove(order: I64, place: I64, key: F64, count: int, job: int) -> int:
    """Take a job out, wherever it stands; the new count."""
    at = place[job]
    place[job] = -1
    last = order[count - 1]
    if last != job:
        if at > 0 and before(key, last, order[(at - 1) // 2]):
            _rise(order, place, key, at, last)
        else:
            _sink(order, place, key, count - 1, at, last)
    return count - 1


@kernel
def _rise(order: I64, place: I64, key: F64, at: int, job: int) -> None:
    while at > 0:
        above = (at - 1) // 2
        if not before(key, job, order[above]):
            break
        order[at] = order[above]
        place[order[at]] = at
        at = above
    order[at] = job
    place[job] = at


@kernel
def _sink(order: I64, place: I64, key: F64, count: int, at: int, job: int) -> None:
    while True:
        below = 2 * at + 1
        if below >= count:
            break
        if below + 1 < count and before(key, order[below + 1], order[below]):
            below += 1
        if not before(key, order[below], job):
            break
        order[at] = order[below]
        place[order[at]] = at
        at = below
    order[at] = job
    place[job] = at
