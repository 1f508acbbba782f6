"""Leases: who may hold GPUs in which slice of the future, planned backwards from deadlines.

Leases are equal slices of time, numbered from the trace's origin. A claim wants a number of leases before its last
one, any of them; a plan says which. Planning backwards leaves the near future to those who come next.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from forerun.cluster.inputs.arrays import I64


@dataclass(frozen=True, slots=True)
class Claim:
    """A job's request for leases.

    Parameters
    ----------
    size : GPUs.
    needed : how many leases.
    within : among how many, from the one now beginning on.
    value : of having them (default: the same for all).
    """

    size: int
    needed: int
    within: int
    value: float = 10.0


class LeaseBook:
    """Free GPUs of every lease, by its number; grows as far as it is asked."""

    def __init__(self, total_gpus: int) -> None:
        self.total_gpus = total_gpus
        self._free: I64 = np.full(1024, total_gpus, np.int64)

    def free(self, first: int, count: int) -> I64:
        """Free GPUs of `count` leases from `first` on; a view."""
        while first + count > len(self._free):
            self._free = np.concatenate([self._free, np.full(len(self._free), self.total_gpus, np.int64)])
        return self._free[first : first + count]

    def take(self, leases: Sequence[int], gpus: int) -> None:
        """Reserve GPUs in some leases."""
        self._free[list(leases)] -= gpus

    def give(self, leases: Sequence[int], gpus: int) -> None:
        """Return GPUs of some leases."""
        self._free[list(leases)] += gpus


def fill_backwards(free: I64, size: int, needed: int) -> I64 | None:
    """The last `needed` leases with `size` GPUs free, ascending; None if there are fewer."""
    open_leases = np.flatnonzero(free >= size)
    if len(open_leases) < needed:
        return None
    return open_leases[len(open_leases) - needed :]


def packs(claims: Sequence[Claim], free: I64) -> bool:
    """Whether all claims fit when filled backwards: large first, then tight, then far. `free` is not changed."""
    from forerun.replication.chronus.kernels import fits

    rows = [(claim.size, claim.needed, claim.within) for claim in claims]
    rows.sort(key=lambda row: (-row[0], row[2] - row[1], -row[2]))
    longest = max((row[2] for row in rows), default=0)
    return bool(fits(np.array(rows, np.int64).reshape(-1, 3), free[: max(longest, 0)].copy()))
