"""Schedules that meet many deadlines: jobs are inserted one by one into the GPUs that are free over time.

A job takes the GPU time that is cheapest at some prices, counts and instants chosen together, until its work is done; what
does not fit is left out. Orders are tried (deadline, GPU-seconds needed, the linear program's), and repaired: a job that was
left out is put in first, jobs around it are taken out and inserted again, and what meets no fewer deadlines is kept.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from functools import cache
from typing import Final

import numpy as np

from forerun.cluster.bound.schedule import Piece, Schedule
from forerun.cluster.bound.world import World, curve_of
from forerun.cluster.inputs.arrays import F64, I64

#: instants at which a count changes within an interval are multiples of this [s], so that sums of them are exact
TICK_S: Final = 2.0**-20
#: jobs taken out in one repair
MOST_OUT: Final = 12
#: how often a job that a relaxation leaves out is tried, beside one that it does
LITTLE_HOPE: Final = 0.02


class FreeGpus:
    """GPUs that are free over time, as a step function.

    Parameters
    ----------
    edges_s : int or float, ascending; no job starts before the first edge or ends after the last.
    gpus : free everywhere.
    price : prices of GPU-seconds, float64[intervals], for the choice of instants.
    """

    def __init__(self, edges_s: F64, gpus: int, price: F64) -> None:
        self.edges_s = edges_s.copy()
        self.free: I64 = np.full(len(edges_s) - 1, gpus, np.int64)
        self.price = price.copy()

    def change(self, pieces: Iterable[Piece], sign: int) -> None:
        """Take GPUs (sign -1) or give them back (1)."""
        for piece in pieces:
            first, last = self._edge(piece.start_s), self._edge(piece.end_s)
            self.free[first:last] += sign * piece.gpus

    def _edge(self, at_s: float) -> int:
        """The number of the edge at an instant; a new one if there is none."""
        at = int(self.edges_s.searchsorted(at_s))
        if self.edges_s[at] != at_s:
            new = np.array([at_s])
            self.edges_s = np.concatenate((self.edges_s[:at], new, self.edges_s[at:]))
            # the new interval is like the one that it was a part of
            self.free = np.concatenate((self.free[:at], self.free[at - 1 :]))
            self.price = np.concatenate((self.price[:at], self.price[at - 1 :]))
        return at

    def fit(
        self, speed: tuple[tuple[int, int], ...], unit: int, work: float, start_s: float, end_s: float
    ) -> list[Piece]:
        """The cheapest pieces that do so much work within a window; empty if it does not fit."""
        first = int(self.edges_s.searchsorted(start_s, "right")) - 1
        last = int(self.edges_s.searchsorted(end_s))
        low = np.maximum(self.edges_s[first:last], start_s)
        length_s = np.minimum(self.edges_s[first + 1 : last + 1], end_s) - low
        counts, rates, gpu_s, tops = _hulls(speed, unit)
        hull = counts.searchsorted(self.free[first:last], "right")
        able = (length_s[:, None] * rates[hull]).ravel()
        order = np.argsort((self.price[first:last, None] * gpu_s[hull]).ravel(), kind="stable")
        done = np.cumsum(able[order])
        if not len(done) or done[-1] < work:
            return []
        stop = int(done.searchsorted(work))
        at, piece = np.divmod(order[: stop + 1], rates.shape[1])
        whole = np.bincount(at, able[order[: stop + 1]] > 0, len(length_s)).astype(np.int64)
        marginal, missing = int(at[stop]), work - (done[stop] - able[order[stop]])
        share_s = missing / rates[hull[marginal], piece[stop]]
        share_s = min(math.ceil(share_s / TICK_S + 1) * TICK_S, float(length_s[marginal]))
        used = np.flatnonzero(whole)
        from_s, to_s = low[used].tolist(), (low + length_s)[used].tolist()
        gpus = tops[hull[used], whole[used]].tolist()
        # the last piece that is needed is needed for a part of its interval
        split = int(used.searchsorted(marginal))
        from_s.insert(split + 1, from_s[split] + share_s)
        to_s.insert(split, from_s[split + 1])
        gpus.insert(split + 1, int(tops[hull[marginal], whole[marginal] - 1]))
        return _joined(zip(from_s, to_s, gpus, strict=True))

    def soonest(
        self, speed: tuple[tuple[int, int], ...], unit: int, work: float, start_s: float
    ) -> list[Piece]:
        """The pieces that do so much work the soonest, on the fastest count that is free at every instant."""
        first = int(np.searchsorted(self.edges_s, start_s, "right")) - 1
        low = np.maximum(self.edges_s[first:-1], start_s)
        counts, rates, _, tops = _hulls(speed, unit)
        hull = np.searchsorted(counts, self.free[first:], "right")
        rate = rates.sum(axis=1)[hull]
        done = np.cumsum((self.edges_s[first + 1 :] - low) * rate)
        stop = int(np.searchsorted(done, work))
        if stop == len(done):
            return []
        missing = work - (float(done[stop - 1]) if stop else 0.0)
        spans = []
        for at in range(stop + 1):
            end_s = float(self.edges_s[first + 1 + at])
            if at == stop:
                share_s = math.ceil(missing / float(rate[at]) / TICK_S + 1) * TICK_S
                end_s = min(end_s, float(low[at]) + share_s)
            spans.append((float(low[at]), end_s, int(tops[hull[at]].max())))
        return _joined(spans)


def insert_soonest(world: World, order: Sequence[int], thrift: float) -> Schedule:
    """All jobs in some order, each to end as soon as it can in what is free then.

    thrift: no job gets a count on which an iteration takes more than so many times the fewest GPU-seconds.
    """
    # One after the other, each on its slowest count: by then all have ended.
    slowest_s = sum(job.work * job.unit / min(speed for _, speed in job.speed) + 1 for job in world.jobs)
    release_s = [job.release for job in world.jobs]
    end_s = float(max(release_s) + math.ceil(slowest_s))
    free_gpus = FreeGpus(np.array([float(min(release_s)), end_s]), world.gpus, np.zeros(1))
    pieces: dict[int, list[Piece]] = {}
    for row in order:
        job = world.jobs[row]
        least = min(n / speed for n, speed in job.speed)
        some = tuple((n, speed) for n, speed in job.speed if n / speed <= thrift * least)
        pieces[row] = free_gpus.soonest(some, job.unit, float(job.work), float(job.release))
        free_gpus.change(pieces[row], -1)
    return Schedule({row: tuple(one) for row, one in sorted(pieces.items()) if one})


def _joined(spans: Iterable[tuple[float, float, int]]) -> list[Piece]:
    """Pieces from spans in order, each (start, end, GPUs); spans that go on with as many GPUs are one piece."""
    pieces: list[Piece] = []
    start_s, end_s, gpus = 0.0, 0.0, 0
    for from_s, to_s, count in spans:
        if not count or from_s >= to_s:
            continue
        if count == gpus and from_s == end_s:
            end_s = to_s
            continue
        if gpus:
            pieces.append(Piece(start_s, end_s, gpus))
        start_s, end_s, gpus = from_s, to_s, count
    return [*pieces, Piece(start_s, end_s, gpus)] if gpus else pieces


@cache
def _hulls(speed: tuple[tuple[int, int], ...], unit: int) -> tuple[I64, F64, F64, I64]:
    """The hulls of a job's speeds where only so many GPUs are free.

    Returns its counts, ascending; for 0, 1, 2, ... of them, the pieces' iterations per second, their GPU-seconds an
    iteration (infinite where there is no piece), and the counts at their ends, after 0.
    """
    known = sorted(speed)
    rates, gpu_s = np.zeros((len(known) + 1, len(known))), np.full((len(known) + 1, len(known)), np.inf)
    tops = np.zeros((len(known) + 1, len(known) + 1), np.int64)
    for some in range(1, len(known) + 1):
        curve = curve_of(tuple(known[:some]), unit)
        pieces = len(curve.rate)
        rates[some, :pieces], gpu_s[some, :pieces] = curve.rate, curve.gpu_s
        tops[some, 1 : pieces + 1] = np.rint(np.cumsum(curve.rate * curve.gpu_s))
    return np.array([count for count, _ in known], np.int64), rates, gpu_s, tops


class Insertion:
    """A schedule in the making, for deadlines.

    Parameters
    ----------
    world : the jobs.
    edges_s, price : prices of GPU-seconds by interval.
    until : by when each job is to end; jobs that are absent do not count.
    """

    def __init__(self, world: World, edges_s: F64, price: F64, until: dict[int, float]) -> None:
        low = min(float(job.release) for job in world.jobs)
        high = max(until.values(), default=low)
        inner = (edges_s > low) & (edges_s < max(high, low + 1))
        edges = np.concatenate(([low], edges_s[inner], [max(high, low + 1)]))
        at = np.clip(np.searchsorted(edges_s, edges[:-1], "right") - 1, 0, len(price) - 1)
        # Free time costs a little, so that jobs do not waste it.
        self.price = price[at] + max(float(price.max(initial=0.0)), 1e-12) * 1e-3
        self.world, self.until, self.edges_s = world, until, edges
        self.free_gpus = FreeGpus(edges, world.gpus, self.price)
        self.pieces: dict[int, list[Piece]] = {}

    def insert(self, row: int) -> bool:
        """Insert a job if it fits by its end."""
        job = self.world.jobs[row]
        pieces = self.free_gpus.fit(job.speed, job.unit, float(job.work), float(job.release), self.until[row])
        if pieces:
            self.free_gpus.change(pieces, -1)
            self.pieces[row] = pieces
        return bool(pieces)

    def remove(self, row: int) -> None:
        """Take a job out."""
        self.free_gpus.change(self.pieces.pop(row), 1)

    def schedule(self) -> Schedule:
        """What stands now."""
        return Schedule({row: tuple(pieces) for row, pieces in sorted(self.pieces.items())})

    def repair(
        self, rounds: int, enough: int, draw: np.random.Generator, share: F64 | None = None
    ) -> Iterator[int]:
        """Try to get jobs in that were left out; yields the number of jobs after every improvement.

        Parameters
        ----------
        rounds : attempts.
        enough : stop at this number.
        draw : what to try.
        share : float64[jobs], how much of each job a relaxation does; those with more are tried more often (default: all
            alike).
        """
        need = {row: least_gpu_s(self.world, row) for row in self.until}
        for _ in range(rounds):
            out = [row for row in self.until if row not in self.pieces]
            if not out or len(self.pieces) >= enough:
                return
            hope = None if share is None else share[out] + LITTLE_HOPE
            row = int(draw.choice(out, p=None if hope is None else hope / hope.sum()))
            before, kept = (
                dict(self.pieces),
                (self.free_gpus.edges_s, self.free_gpus.free, self.free_gpus.price),
            )
            self.free_gpus.free = self.free_gpus.free.copy()
            job = self.world.jobs[row]
            near = [
                other for other, pieces in self.pieces.items()
                if pieces[-1].end_s > job.release and pieces[0].start_s < self.until[row]
            ]  # fmt: skip
            taken = draw.permutation(near)[: int(draw.integers(1, MOST_OUT + 1))].tolist()
            for other in taken:
                self.remove(other)
            self.insert(row)
            again = [*taken, *(other for other in draw.permutation(out).tolist() if other != row)]
            match draw.integers(5):
                case 0 | 1:
                    again.sort(key=lambda other: self.until[other])
                case 2:
                    again.sort(key=lambda other: need[other])
                case 3:
                    again.sort(key=lambda other: -need[other])
            for other in again:
                self.insert(other)
            if len(self.pieces) < len(before):
                self.pieces, (self.free_gpus.edges_s, self.free_gpus.free, self.free_gpus.price) = (
                    before,
                    kept,
                )
            elif len(self.pieces) > len(before):
                yield len(self.pieces)


def insert_all(
    world: World, edges_s: F64, price: F64, until: dict[int, float], order: Sequence[int]
) -> Insertion:
    """Insert jobs in some order, as many as fit."""
    made = Insertion(world, edges_s, price, until)
    for row in order:
        made.insert(row)
    return made


def orders(world: World, until: dict[int, float], share: F64) -> list[list[int]]:
    """Orders worth trying: by deadline, by GPU-seconds needed, by how much of a job the linear program does."""
    rows = list(until)
    need = {row: least_gpu_s(world, row) for row in rows}
    return [
        sorted(rows, key=lambda row: until[row]),
        sorted(rows, key=lambda row: need[row]),
        sorted(rows, key=lambda row: (-round(float(share[row]), 3), need[row])),
        sorted(rows, key=lambda row: (share[row] < 0.5, until[row])),
    ]


def least_gpu_s(world: World, row: int) -> float:
    """The fewest GPU-seconds that a job needs."""
    job = world.jobs[row]
    return min(n * job.work * job.unit / speed for n, speed in job.speed)
