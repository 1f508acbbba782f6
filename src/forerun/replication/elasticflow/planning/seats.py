"""GPUs of jobs that belong on as few nodes as they need, and keep the very same ones while their number stays.

A job that fits on a node belongs on one; a larger one takes whole nodes and, for the rest, part of one. Only where it does
not fit do others move, as few as possible; where nobody may move, a job is spread over nodes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import combinations, islice
from typing import Final

import numpy as np

from forerun.cluster.inputs.arrays import I64
from forerun.live.seats import OnNodes, Seats, spread_out

#: sets of jobs that are tried before more of them move than perhaps must
MOST_TRIED: Final = 200

#: above the score of every node that a job fits on
NOWHERE: Final = 1 << 62


class SeatsTogether(Seats):
    """The job on each GPU, where others move so that a job is on as few nodes as it needs."""

    @property
    def _size(self) -> int:
        """GPUs of the largest node."""
        return int(np.diff(self.first).max())

    def nodes(self, row: int) -> int:
        """On how many nodes a job is."""
        return len(np.unique(self.node_of(self.of[row])))

    def spread(self) -> frozenset[int]:
        """Jobs on more nodes than they need."""
        several = (row for row, gpus in self.of.items() if len(gpus) > 1)
        return frozenset(row for row in several if self.nodes(row) > self._least_nodes(len(self.of[row])))

    def _least_nodes(self, gpus: int) -> int:
        return -(-gpus // self._size)

    def place(
        self,
        wanted: Mapping[int, int],
        coming: list[int],
        kept: Mapping[int, I64],
        free: I64,
        may_move: Callable[[int], bool],
    ) -> tuple[dict[int, OnNodes], frozenset[int]]:
        """Nodes for those that come, and who leaves its place for them and is among them then."""
        size = self._size
        near = {row: np.unique(self.node_of(gpus)).tolist() for row, gpus in self.of.items() if row in wanted}
        placed = self._together(wanted, coming, free.copy(), near, size)
        if placed is not None:
            return placed, frozenset()
        chosen = self._who_leaves(wanted, coming, kept, free.copy(), may_move)
        most = len(kept) if chosen is None else len(chosen[1])
        movable = [row for row in sorted(kept, key=lambda row: (len(kept[row]), row)) if may_move(row)]
        sets = (
            who for count in range(1, min(most, len(movable) + 1)) for who in combinations(movable, count)
        )
        for who in islice(sets, MOST_TRIED):
            spare = free.copy()
            for row in who:
                np.add.at(spare, self.node_of(kept[row]), 1)
            in_turn = sorted((*coming, *who), key=lambda row: -wanted[row])
            if (placed := self._together(wanted, in_turn, spare, near, size)) is not None:
                return placed, frozenset(who)
        if chosen is not None:
            return chosen
        placed = {}
        for row in coming:
            by_node = fit(free, wanted[row], (), size)
            if by_node is None:
                by_node = spread_out(free, wanted[row])
            else:
                _take(free, by_node)
            placed[row] = by_node
        return placed, frozenset()

    def _together(
        self,
        wanted: Mapping[int, int],
        rows: Iterable[int],
        free: I64,
        near: Mapping[int, list[int]],
        size: int,
    ) -> dict[int, OnNodes] | None:
        """Nodes for jobs, one after another, each on as few as it needs; None if one does not fit."""
        placed: dict[int, OnNodes] = {}
        for row in rows:
            by_node = fit(free, wanted[row], near.get(row, ()), size)
            if by_node is None:
                return None
            _take(free, by_node)
            placed[row] = by_node
        return placed

    def _who_leaves(
        self,
        wanted: Mapping[int, int],
        coming: list[int],
        kept: Mapping[int, I64],
        free: I64,
        may_move: Callable[[int], bool],
    ) -> tuple[dict[int, OnNodes], frozenset[int]] | None:
        """Largest first, each goes where fewest smaller jobs have to leave; None if one cannot."""
        nodes = {row: np.unique(self.node_of(gpus)) for row, gpus in kept.items()}
        on: dict[int, set[int]] = {}
        for row, where in nodes.items():
            for node in where.tolist():
                on.setdefault(node, set()).add(row)
        size = self._size
        pending, placed, left = list(coming), dict[int, OnNodes](), set[int]()
        while pending:
            row = pending.pop(0)
            gpus = wanted[row]
            while (by_node := fit(free, gpus, (), size)) is None:
                need = size if gpus >= size else gpus
                best: tuple[int, int, int] | None = None
                out: list[int] = []
                for node in np.flatnonzero(self.up & (free < need)).tolist():
                    there = [one for one in sorted(on.get(node, ())) if len(nodes[one]) == 1]
                    there = [one for one in there if len(kept[one]) < gpus and may_move(one)]
                    sizes = {one: len(kept[one]) for one in there}
                    go = fewest(sizes, need - int(free[node]))
                    if go is None:
                        continue
                    cost = (len(go), sum(len(kept[one]) for one in go), node)
                    if best is None or cost < best:
                        best, out = cost, go
                if best is None:
                    return None
                for one in out:
                    left.add(one)
                    np.add.at(free, self.node_of(kept[one]), 1)
                    for node in nodes[one].tolist():
                        on[node].discard(one)
                pending = sorted((*pending, *out), key=lambda one: -wanted[one])
            _take(free, by_node)
            placed[row] = by_node
        return placed, frozenset(left)


def fewest(sizes: Mapping[int, int], need: int) -> list[int] | None:
    """The fewest jobs that have at least `need` GPUs together, the last one as small as it may be; None if all have less.

    `sizes`: GPUs by job.
    """
    left = dict(sizes)
    chosen: list[int] = []
    while need > 0:
        if not left:
            return None
        enough = [row for row, gpus in left.items() if gpus >= need]
        row = min(enough, key=left.__getitem__) if enough else max(left, key=left.__getitem__)
        chosen.append(row)
        need -= left.pop(row)
    return chosen


def fit(free: I64, gpus: int, near: Sequence[int], size: int) -> OnNodes | None:
    """Nodes that a job fits on: the fullest that has enough, among equals one of those near; None if none has.

    Parameters
    ----------
    free : GPUs of each node.
    gpus : of the job.
    near : nodes that it is on now.
    size : GPUs of the largest node; a job with more takes such nodes whole, and part of one for the rest.
    """
    whole, rest = divmod(gpus, size)
    score = 2 * free
    if near:
        score[near] -= 1
    by_node: dict[int, int] = {}
    if whole:
        empty = np.flatnonzero(free == size)
        if len(empty) < whole:
            return None
        by_node = dict.fromkeys(empty[np.argsort(score[empty], kind="stable")][:whole].tolist(), size)
    if rest:
        score[free < rest] = NOWHERE
        score[list(by_node)] = NOWHERE
        best = int(score.argmin())
        if score[best] == NOWHERE:
            return None
        by_node[best] = rest
    return by_node


def _take(free: I64, by_node: OnNodes) -> None:
    for node, count in by_node.items():
        free[node] -= count
