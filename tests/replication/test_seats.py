"""Which GPUs jobs get: every decision holds as many as it says, and no more move than must."""

from __future__ import annotations

from itertools import combinations

import numpy as np

from forerun.live.seats import Seats
from forerun.replication.elasticflow.planning.seats import SeatsTogether, fewest

from ..conftest import cases

#: random clusters in a run of the suite; FORERUN_CASES asks for more
CLUSTERS = cases(60, 2000)


def check(seats: Seats, wanted: dict[int, int]) -> None:
    """Each job has its number of GPUs, of nodes that are up; none is given twice."""
    assert set(seats.of) == set(wanted)
    for row, gpus in seats.of.items():
        assert len(gpus) == wanted[row] == len(set(gpus.tolist()))
        assert (seats.owner[gpus] == row).all() and seats.up[seats.node_of(gpus)].all()
    assert int((seats.owner >= 0).sum()) == sum(wanted.values())


def changed(
    rng: np.random.Generator, wanted: dict[int, int], room: int, sizes: list[int], new: int
) -> dict[int, int]:
    """Another decision: some jobs end, some change, some come; not more GPUs than there are."""
    out: dict[int, int] = {}
    rows = [row for row in wanted if rng.random() < 0.8]
    for row in [*rows, *range(new, new + int(rng.integers(0, 4)))]:
        gpus = wanted.get(row, 0) if rng.random() < 0.7 else 0
        gpus = gpus or int(rng.choice(sizes))
        if gpus <= room:
            out[row], room = gpus, room - gpus
    return out


def fits(sizes: list[int], free: list[int], node: int) -> bool:
    """Whether jobs fit on nodes with so many free GPUs, by trying everything; larger ones take whole nodes first."""
    if not sizes:
        return True
    gpus, *rest = sorted(sizes, reverse=True)
    whole, part = divmod(gpus, node)
    empty = [n for n, count in enumerate(free) if count == node]
    if len(empty) < whole:
        return False
    free = [0 if n in empty[:whole] else count for n, count in enumerate(free)]
    if not part:
        return fits(rest, free, node)
    return any(
        fits(rest, [*free[:n], count - part, *free[n + 1 :]], node)
        for n, count in enumerate(free)
        if count >= part
    )


def least_moves(before: Seats, wanted: dict[int, int], node: int) -> int:
    """The fewest jobs that must leave their places, by trying all sets of them."""
    kept = {row: gpus for row, gpus in before.of.items() if wanted.get(row) == len(gpus)}
    coming = [count for row, count in wanted.items() if row not in kept]
    for count in range(len(kept) + 1):
        for who in combinations(kept, count):
            free = [node] * (len(before.first) - 1)
            for row, gpus in kept.items():
                if row not in who:
                    for at in before.node_of(gpus).tolist():
                        free[at] -= 1
            if fits([*coming, *(wanted[row] for row in who)], free, node):
                return count
    raise AssertionError("nothing fits")


def test_no_more_jobs_move_than_must() -> None:
    """Against the least number by trying all: powers of two on nodes of eight, which always fit."""
    moves = 0
    for number in range(CLUSTERS):
        rng = np.random.default_rng([31, number])
        nodes = int(rng.integers(1, 5))
        seats, wanted = SeatsTogether(np.full(nodes, 8)), {}
        for turn in range(16):
            wanted = changed(rng, wanted, 8 * nodes, [1, 1, 2, 2, 4, 8, 16], 100 * (turn + 1))
            before = SeatsTogether(np.full(nodes, 8))
            before.of = {row: gpus.copy() for row, gpus in seats.of.items()}
            moved = seats.settle(wanted)
            check(seats, wanted)
            stayed = {row for row, gpus in before.of.items() if wanted.get(row) == len(gpus)}
            assert moved == {row for row in stayed if before.of[row].tolist() != seats.of[row].tolist()}, (
                f"cluster {number}"
            )
            assert not seats.spread(), f"cluster {number}"
            assert len(moved) == least_moves(before, wanted, 8), f"cluster {number}, decision {turn}"
            moves += len(moved)
    assert moves > CLUSTERS / 8


def test_who_may_not_move_stays_and_others_are_spread() -> None:
    spread = 0
    for number in range(CLUSTERS):
        rng = np.random.default_rng([32, number])
        node_gpus = rng.integers(1, 9, int(rng.integers(1, 6)))
        for together in (True, False):
            seats, wanted = (SeatsTogether if together else Seats)(node_gpus), {}
            for turn in range(12):
                stays = (
                    set(rng.permutation(list(wanted))[: len(wanted) // 2].tolist())
                    if together
                    else set(wanted)
                )
                wanted = changed(rng, wanted, seats.gpus, list(range(1, 9)), 100 * (turn + 1))
                before = dict(seats.of)
                moved = seats.settle(wanted, lambda row, stays=stays: row not in stays)
                check(seats, wanted)
                assert not moved & stays, f"cluster {number}"
                for row in before.keys() & wanted.keys() - moved:
                    if len(before[row]) == wanted[row]:
                        assert before[row].tolist() == seats.of[row].tolist(), f"cluster {number}"
                spread += len(seats.spread()) if together else 0
    assert spread > CLUSTERS


def test_the_fewest_jobs_that_have_enough() -> None:
    assert fewest({1: 4, 2: 2, 3: 1}, 2) == [2]
    assert fewest({1: 4, 2: 2, 3: 1}, 5) == [1, 3]
    assert fewest({1: 4, 2: 2}, 7) is None
    assert fewest({}, 0) == []
