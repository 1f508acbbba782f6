"""When to run under a price or a carbon signal: at once, later, or in pieces.

A run draws constant power, so what it costs is power times the signal's integral over its time. Signals are
piecewise constant: without pausing the cost is piecewise linear in the start, and only starts at which the run begins
or ends on a step, or at the window's ends, can be the best. With pausing the window is cut at the steps and the best
pieces are found by dynamic programming.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from forerun.domains.energy.policy.view import Floats
from forerun.trace.signal import Signal

#: joules in a kilowatt-hour
KWH_J = 3.6e6


@dataclass(frozen=True)
class Slot:
    """A run without pause.

    amount: what it takes, in $ or g. start_s: when it starts. now: the amount if it starts at once.
    """

    amount: float
    start_s: float
    now: float


@dataclass(frozen=True)
class Pieces:
    """A run with pauses.

    amount: what it takes, checkpoints included, in $ or g. stretches: (from, to) in which it works [s]. lower_bound: what no
    schedule goes below.
    """

    amount: float
    stretches: tuple[tuple[float, float], ...]
    lower_bound: float


def amount(signal: Signal, start_s: float, seconds: float, watts: float) -> float:
    """What a run of constant power takes from a signal per kWh, over [start, start + seconds)."""
    return float(watts * float(signal.integral(start_s, start_s + seconds)) / KWH_J)


def best_start(
    signal: Signal, seconds: float, watts: float, *, deadline_s: float, from_s: float = 0.0
) -> Slot | None:
    """The start in [from, deadline - seconds] with the least amount; the earliest of equals; None if none fits."""
    last = deadline_s - seconds
    if last < from_s:
        return None
    steps = signal.times_s
    starts = np.concatenate([[from_s, last], steps, steps - seconds])
    starts = np.unique(starts[(starts >= from_s) & (starts <= last)])
    amounts = watts * signal.integral(starts, starts + seconds) / KWH_J
    # Among amounts equal to rounding the earliest start wins: waiting must save something.
    best = float(amounts.min())
    at = int(np.argmax(amounts <= best * (1 + 1e-12)))
    return Slot(float(amounts[at]), float(starts[at]), amount(signal, from_s, seconds, watts))


def best_pieces(
    signal: Signal,
    seconds: float,
    watts: float,
    *,
    deadline_s: float,
    from_s: float = 0.0,
    checkpoint_s: float = 0.0,
    checkpoint_j: float = 0.0,
    cells: int = 360,
) -> Pieces | None:
    """The cheapest set of stretches that adds up to `seconds` of work before the deadline; None if none fits.

    Each stretch after the first begins by reading a checkpoint back: `checkpoint_s` at the run's power, and
    `checkpoint_j` on top. Dynamic programming over about `cells` cells of time, laid so that regular steps of the
    signal fall between cells. The lower bound is the cheapest `seconds` of the window, taken anywhere, without
    checkpoints; the run without pause is always among the candidates.
    """
    one = best_start(signal, seconds, watts, deadline_s=deadline_s, from_s=from_s)
    if one is None:
        return None
    bound = _cheapest_seconds(signal, seconds, watts, from_s, deadline_s)
    best = Pieces(one.amount, ((one.start_s, one.start_s + seconds),), bound)
    cell = _cell_length(signal, from_s, deadline_s, seconds, cells)
    pieces = _by_cells(signal, seconds, watts, from_s, deadline_s, checkpoint_s, checkpoint_j, cell)
    if pieces is not None and pieces[0] < best.amount * (1 - 1e-12):
        return Pieces(pieces[0], pieces[1], bound)
    return best


def _cell_length(signal: Signal, from_s: float, to_s: float, seconds: float, cells: int) -> float:
    """A cell near (window / cells) of which the shortest step is a whole multiple."""
    edges, _ = _cells(signal, from_s, to_s)
    shortest = float(np.diff(edges)[1:-1].min()) if len(edges) > 3 else to_s - from_s
    wanted = min((to_s - from_s) / cells, seconds / 24)
    return shortest / math.ceil(shortest / wanted)


def _cheapest_seconds(signal: Signal, seconds: float, watts: float, from_s: float, to_s: float) -> float:
    """Amount of the cheapest `seconds` of a window, taken anywhere: a lower bound."""
    edges, values = _cells(signal, from_s, to_s)
    order = np.argsort(values, kind="stable")
    lengths = np.diff(edges)[order]
    before = np.cumsum(lengths) - lengths
    taken = np.clip(seconds - before, 0, lengths)
    return float(watts * float((taken * values[order]).sum()) / KWH_J)


def _cells(signal: Signal, from_s: float, to_s: float) -> tuple[Floats, Floats]:
    """Edges and values of the signal's steps within a window."""
    inside = signal.times_s[(signal.times_s > from_s) & (signal.times_s < to_s)]
    edges = np.concatenate([[from_s], inside, [to_s]])
    return edges, signal.sampled(edges[:-1])


def _by_cells(
    signal: Signal,
    seconds: float,
    watts: float,
    from_s: float,
    to_s: float,
    checkpoint_s: float,
    checkpoint_j: float,
    cell: float,
) -> tuple[float, tuple[tuple[float, float], ...]] | None:
    """Least amount over stretches made of whole cells; the excess over `seconds` is cut off at the dearer end.

    `busy[t, k]`, `idle[t, k]` float64[T + 1, K + 1]: least amount by which k cells of work are done before cell t, the
    run working in the cell before, or not. A resumption works `extra` cells for nothing.
    """
    owed = math.ceil(seconds / cell - 1e-9)
    slots = math.floor((to_s - from_s) / cell + 1e-9)
    extra = math.ceil(checkpoint_s / cell - 1e-9)
    if slots < owed:
        return None
    starts = from_s + cell * np.arange(slots)
    price = watts * signal.integral(starts, np.minimum(starts + cell, to_s)) / KWH_J
    paid = np.concatenate([[0.0], np.cumsum(price)])
    again = checkpoint_j / KWH_J * signal.sampled(starts)
    busy, idle = np.full((slots + 1, owed + 1), math.inf), np.full((slots + 1, owed + 1), math.inf)
    idle[0, 0] = 0.0
    for t in range(1, slots + 1):
        busy[t, 1:] = busy[t - 1, :-1] + price[t - 1]
        busy[t, 1] = min(busy[t, 1], idle[t - 1, 0] + price[t - 1])
        since = t - 1 - extra
        if since >= 0:
            resumed = idle[since, 1:-1] + (paid[t] - paid[since]) + again[since]
            busy[t, 2:] = np.minimum(busy[t, 2:], resumed)
        idle[t] = np.minimum(idle[t - 1], busy[t])
    if not math.isfinite(idle[slots, owed]):
        return None
    stretches = _stretches(busy, idle, price, extra, owed, slots)
    return _trimmed(signal, float(idle[slots, owed]), stretches, owed * cell - seconds, watts, from_s, cell)


def _stretches(
    busy: Floats, idle: Floats, price: Floats, extra: int, owed: int, slots: int
) -> list[list[int]]:
    """Follow the least amounts back: (first cell, cell after the last) of each stretch, in order."""
    stretches: list[list[int]] = []
    t, k = slots, owed
    while k:
        while idle[t - 1, k] <= busy[t, k]:
            t -= 1
        end = t
        while k > 1 and busy[t, k] == busy[t - 1, k - 1] + price[t - 1]:
            t, k = t - 1, k - 1
        first = t - 1 if k == 1 else t - 1 - extra
        stretches.append([first, end])
        t, k = first, k - 1
    return stretches[::-1]


def _trimmed(
    signal: Signal,
    total: float,
    cells: list[list[int]],
    excess: float,
    watts: float,
    from_s: float,
    cell: float,
) -> tuple[float, tuple[tuple[float, float], ...]]:
    """Stretches in seconds, shortened by `excess` at the beginning or at the end, whichever costs more."""
    stretches = [[from_s + cell * first, from_s + cell * last] for first, last in cells]
    head, tail = stretches[0][0], stretches[-1][1]
    cut_head = amount(signal, head, excess, watts)
    cut_tail = amount(signal, tail - excess, excess, watts)
    if cut_head > cut_tail:
        stretches[0][0] += excess
    else:
        stretches[-1][1] -= excess
    return total - max(cut_head, cut_tail), tuple((start, end) for start, end in stretches)
