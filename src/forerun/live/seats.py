"""Which GPUs each job has, from decision to decision: who keeps its number of GPUs keeps the very same ones.

GPUs are numbered through the cluster, in the order of its nodes. Jobs whose number changes, and new ones, are placed round
those that stay, on few nodes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Final

import numpy as np

from forerun.cluster.inputs.arrays import BOOL, I64

FREE: Final = -1

#: GPUs of a job, by node
OnNodes = Mapping[int, int]


def anybody(row: int) -> bool:
    """Every job may move."""
    return True


class Seats:
    """The job on each GPU.

    Parameters
    ----------
    node_gpus : GPUs of each node.

    Attributes
    ----------
    owner : int64[GPUs], the job on each, -1: none.
    first : the first GPU of each node, and one after the last.
    up : which nodes offer GPUs.
    of : the GPUs of each job that has any, ascending.
    """

    def __init__(self, node_gpus: I64) -> None:
        self.owner: I64 = np.full(int(node_gpus.sum()), FREE, np.int64)
        self.first: I64 = np.concatenate(([0], np.cumsum(node_gpus))).astype(np.int64)
        self.up: BOOL = np.ones(len(node_gpus), np.bool_)
        self.of: dict[int, I64] = {}

    @property
    def gpus(self) -> int:
        """GPUs of the nodes that are up."""
        return int(np.diff(self.first)[self.up].sum())

    def node_of(self, gpus: I64) -> I64:
        """The nodes of some GPUs."""
        nodes: I64 = np.searchsorted(self.first, gpus, side="right") - 1
        return nodes

    def offer(self, node_gpus: I64, up: BOOL, lost: Iterable[int]) -> None:
        """Have these nodes from now on, those of before first.

        Parameters
        ----------
        node_gpus : GPUs of each.
        up : which offer them.
        lost : jobs that have none any more.
        """
        for row in lost:
            if row in self.of:
                self.owner[self.of.pop(row)] = FREE
        self.first = np.concatenate(([0], np.cumsum(node_gpus))).astype(np.int64)
        self.owner = np.append(self.owner, np.full(int(node_gpus.sum()) - len(self.owner), FREE))
        self.up = up

    def settle(self, wanted: Mapping[int, int], may_move: Callable[[int], bool] = anybody) -> frozenset[int]:
        """Give jobs their GPUs; all others have none from now on. Jobs that have as many as before, but others.

        Parameters
        ----------
        wanted : GPUs by job, those that come first being placed first among equals; in all not more than are up.
        may_move : whether a job whose number stays may get other GPUs; asked only where a job does not fit otherwise.
        """
        kept = {
            row: gpus for row, gpus in self.of.items() if wanted.get(row) == len(gpus) and self._is_up(gpus)
        }
        coming = sorted((row for row in wanted if row not in kept), key=lambda row: -wanted[row])
        if not coming and len(kept) == len(self.of):
            return frozenset()
        free = np.where(self.up, np.diff(self.first), 0)
        for gpus in kept.values():
            np.subtract.at(free, self.node_of(gpus), 1)
        placed, leaving = self.place(wanted, coming, kept, free, may_move)
        before = self.of
        self.of = {row: gpus for row, gpus in kept.items() if row not in leaving}
        self.owner[:] = FREE
        for row, gpus in self.of.items():
            self.owner[gpus] = row
        for row, by_node in placed.items():
            self.of[row] = self._seize(row, by_node, before.get(row))
        stayed = (row for row, gpus in before.items() if wanted.get(row) == len(gpus))
        return frozenset(row for row in stayed if not np.array_equal(before[row], self.of[row]))

    def _is_up(self, gpus: I64) -> bool:
        return bool(self.up[self.node_of(gpus)].all())

    def place(
        self,
        wanted: Mapping[int, int],
        coming: list[int],
        kept: Mapping[int, I64],
        free: I64,
        may_move: Callable[[int], bool],
    ) -> tuple[dict[int, OnNodes], frozenset[int]]:
        """Nodes for those that come, and who leaves its place for them and is among them then; here none does."""
        return {row: spread_out(free, wanted[row]) for row in coming}, frozenset()

    def _seize(self, row: int, by_node: OnNodes, before: I64 | None) -> I64:
        """Take free GPUs of nodes for a job: those that it had first, then the lowest."""
        taken = []
        for node, count in by_node.items():
            begin = int(self.first[node])
            free = begin + np.flatnonzero(self.owner[begin : self.first[node + 1]] == FREE)
            if before is not None:
                free = np.concatenate((free[np.isin(free, before)], free[~np.isin(free, before)]))
            self.owner[free[:count]] = row
            taken.append(free[:count])
        return np.sort(np.concatenate(taken))


def spread_out(free: I64, gpus: int) -> OnNodes:
    """Nodes for a job wherever GPUs are free, few of them: the fullest that can take the rest, else the emptiest.

    `free`: GPUs by node, taken from in place.
    """
    by_node: dict[int, int] = {}
    left = gpus
    while left > 0:
        enough = np.flatnonzero(free >= left)
        node = int(enough[np.argmin(free[enough])]) if len(enough) else int(np.argmax(free))
        part = min(left, int(free[node]))
        assert part > 0, "more GPUs are wanted than there are"
        by_node[node] = by_node.get(node, 0) + part
        free[node] -= part
        left -= part
    return by_node
