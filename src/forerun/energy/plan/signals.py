"""When to run under a price or a carbon signal: at once, later, or in pieces.

A run draws constant power, so what it costs is power times the signal's integral over its time. Signals are
piecewise constant: without pausing the cost is piecewise linear in the start, and only starts at which the run begins
or ends on a step, or at the window's ends, can be the best. With pausing the window is cut at the steps and the best
pieces are computed by dynamic programming.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from forerun.core.trace.signal import Signal
from forerun.energy.policy.view import Floats

#: joules in a kilowatt-hour
KWH_J = 3.6e6


@dataclass(frozen=True)
class WorkSchedule:
    """When a run works. amount: what it takes, checkpoints included, in $ or g. stretches: (from, to) [s], in order."""

    amount: float
    stretches: tuple[tuple[float, float], ...]

    @property
    def start_s(self) -> float:
        """When it starts [s]."""
        return self.stretches[0][0]


def amount(signal: Signal, start_s: float, seconds: float, watts: float) -> float:
    """What a run of constant power takes from a signal over [start_s, start_s + seconds), in $ or g.

    signal: per kWh. watts: draw of the run.
    """
    return float(watts * float(signal.integral(start_s, start_s + seconds)) / KWH_J)


def best_start(signal: Signal, seconds: float, watts: float, *, deadline_s: float) -> WorkSchedule | None:
    """The cheapest run without pause before the deadline; of equals the earliest; None if none fits.

    signal: per kWh. seconds, watts: length and draw of the run. deadline_s: by when it must end [s].
    """
    last = deadline_s - seconds
    if last < 0:
        return None
    steps = signal.times_s
    starts = np.concatenate([[0.0, last], steps, steps - seconds])
    starts = np.unique(starts[(starts >= 0) & (starts <= last)])
    amounts = watts * signal.integral(starts, starts + seconds) / KWH_J
    # Among amounts equal to rounding the earliest start wins: waiting must save something.
    at = int(np.argmax(amounts <= float(amounts.min()) * (1 + 1e-12)))
    start_s = float(starts[at])
    return WorkSchedule(float(amounts[at]), ((start_s, start_s + seconds),))


def best_pieces(
    signal: Signal,
    seconds: float,
    watts: float,
    *,
    deadline_s: float,
    checkpoint_s: float = 0.0,
    checkpoint_j: float = 0.0,
    cells: int = 360,
) -> WorkSchedule | None:
    """The cheapest set of stretches that adds up to `seconds` of work before the deadline; None if none fits.

    Each stretch after the first begins by reading a checkpoint back: `checkpoint_s` at the run's power, and
    `checkpoint_j` on top. Dynamic programming over about `cells` cells of time, laid so that regular steps of the
    signal fall between cells. The run without pause is always among the candidates.
    """
    one = best_start(signal, seconds, watts, deadline_s=deadline_s)
    if one is None:
        return None
    cell = _cell_length(signal, deadline_s, seconds, cells)
    pieces = _by_cells(signal, seconds, watts, deadline_s, checkpoint_s, checkpoint_j, cell)
    return pieces if pieces is not None and pieces.amount < one.amount * (1 - 1e-12) else one


def _cell_length(signal: Signal, to_s: float, seconds: float, cells: int) -> float:
    """A cell near (window / cells) of which the shortest step of the signal is a whole multiple [s].

    to_s: end of the window. seconds: of work.
    """
    edges = np.concatenate([[0.0], signal.times_s[(signal.times_s > 0) & (signal.times_s < to_s)], [to_s]])
    shortest = float(np.diff(edges)[1:-1].min()) if len(edges) > 3 else to_s
    target_s = min(to_s / cells, seconds / 24)
    return shortest / math.ceil(shortest / target_s)


def _by_cells(
    signal: Signal,
    seconds: float,
    watts: float,
    to_s: float,
    checkpoint_s: float,
    checkpoint_j: float,
    cell: float,
) -> WorkSchedule | None:
    """Least amount over stretches made of whole cells; the excess over `seconds` is cut off at the dearer end.

    `busy[t, k]`, `idle[t, k]` float64[T + 1, K + 1]: least amount by which k cells of work are done before cell t, the
    run working in the cell before, or not. A resumption works `extra` cells for nothing.
    """
    owed = math.ceil(seconds / cell - 1e-9)
    slots = math.floor(to_s / cell + 1e-9)
    extra = math.ceil(checkpoint_s / cell - 1e-9)
    if slots < owed:
        return None
    starts = cell * np.arange(slots)
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
    return _trimmed(signal, float(idle[slots, owed]), stretches, owed * cell - seconds, watts, cell)


def _stretches(
    busy: Floats, idle: Floats, price: Floats, extra: int, owed: int, slots: int
) -> list[list[int]]:
    """Follow the least amounts back: (first cell, cell after the last) of each stretch, in order.

    busy, idle, price: as in `_by_cells`. extra: cells that a resumption works for nothing. owed, slots: cells of work,
    and of time.
    """
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
    cell: float,
) -> WorkSchedule:
    """Stretches of cells as a schedule, shortened by `excess` seconds at the beginning or the end, whichever costs more.

    total: amount of the whole cells. cells: as `_stretches` returns them. cell: length of one [s].
    """
    stretches = [[cell * first, cell * last] for first, last in cells]
    head, tail = stretches[0][0], stretches[-1][1]
    cut_head = amount(signal, head, excess, watts)
    cut_tail = amount(signal, tail - excess, excess, watts)
    if cut_head > cut_tail:
        stretches[0][0] += excess
    else:
        stretches[-1][1] -= excess
    return WorkSchedule(total - max(cut_head, cut_tail), tuple((start, end) for start, end in stretches))
