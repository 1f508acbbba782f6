"""The frontier of iteration time against energy over all settings of a pipeline's frequencies.

Small pipelines are enumerated. Larger ones are a linear program for each time: an operation's joules above what
waiting would draw are convex in its seconds, so mixtures of neighbouring frequencies give a lower bound on the energy
of every plan within that time (the continuous time-cost trade-off of Phillips and Dessouky, 1977, whose dual is their
minimum cut). Few operations of an optimal basis are mixtures; those are rounded to real frequencies, whatever slack is
left is spent on slower ones, and the plan is run again.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np

from forerun.core.highs import new_solver, solve
from forerun.core.result.objective import pareto
from forerun.core.result.plan import ShownPlan
from forerun.energy.inputs.pipeline import Choices, Frequencies, Pipeline, Timed
from forerun.energy.policy.view import Floats, Ints

#: pipelines with more plans than this are not enumerated
MOST_PLANS: Final = 1 << 17
#: times at which the program is solved, from the shortest to that of the least energy
TIMES: Final = 120
#: relative rounding that does not make a plan late
SAME: Final = 1e-9


@dataclass(frozen=True, repr=False)
class FrequencyPlan(ShownPlan):
    """A frequency for each operation of a pipeline.

    frequencies: index into each operation's choices. makespan_s, energy_j: what an iteration takes. at_least_j: lower
    bound on the energy of any plan within that time.
    """

    frequencies: Frequencies
    makespan_s: float
    energy_j: float
    at_least_j: float


def frontier(pipeline: Pipeline, times: int = TIMES) -> tuple[FrequencyPlan, ...]:
    """Plans of which none is better in both time and energy, ascending in time: exact for small pipelines.

    times: for how many times a larger pipeline is planned (default 120).
    """
    return enumerated(pipeline) if _few(pipeline) else Program(pipeline).frontier(times)


def undominated(plans: Sequence[FrequencyPlan]) -> tuple[FrequencyPlan, ...]:
    """The plans that no other beats in time and energy, ascending in time; of equal ones the first."""
    return tuple(pareto(plans, lambda plan: (plan.makespan_s, plan.energy_j), ties=False))


def best_within(pipeline: Pipeline, time_s: float) -> FrequencyPlan:
    """The cheapest plan computed for a time; exact for small pipelines.

    time_s: at least the shortest time of an iteration [s].
    """
    if not _few(pipeline):
        return Program(pipeline).within(time_s)
    return [plan for plan in enumerated(pipeline) if plan.makespan_s <= time_s * (1 + SAME)][-1]


def _few(pipeline: Pipeline) -> bool:
    """Whether the plans of a pipeline are few enough to be enumerated."""
    counts = [len(pipeline.of(place).time_s) for place in range(len(pipeline.operations))]
    return math.prod(counts) <= MOST_PLANS


def enumerated(pipeline: Pipeline) -> tuple[FrequencyPlan, ...]:
    """The exact frontier from all plans at once, `float64[plans]` an operation."""
    counts = [len(pipeline.of(place).time_s) for place in range(len(pipeline.operations))]
    combinations = math.prod(counts)
    end: dict[int, Floats] = {}
    joules, busy_s = np.zeros(combinations), np.zeros(combinations)
    for place in pipeline.topological:
        pick = _digit(np.arange(combinations), counts, place)
        begun: Floats = np.zeros(combinations)
        for other in pipeline.waits_for[place]:
            begun = np.maximum(begun, end[other])
        end[place] = begun + pipeline.of(place).time_s[pick]
        joules += pipeline.of(place).energy_j[pick]
        busy_s += pipeline.of(place).time_s[pick]
    makespan = np.max(list(end.values()), axis=0)
    energy = joules + pipeline.blocked_power_w * (pipeline.stages * makespan - busy_s)
    plans: list[FrequencyPlan] = []
    # Sums differ in their last bits with the order of summation: what is equal but for those counts as equal.
    for at in np.lexsort((energy, np.round(makespan, 12))).tolist():
        if plans and energy[at] >= plans[-1].energy_j * (1 - 1e-12):
            continue
        chosen = tuple(int(_digit(np.array([at]), counts, place)[0]) for place in range(len(counts)))
        done = pipeline.run(chosen)
        plans.append(FrequencyPlan(chosen, done.makespan_s, done.energy_j, done.energy_j))
    return tuple(plans)


def _digit(plan: Ints, counts: Sequence[int], place: int) -> Ints:
    """The frequency of one operation in the plans of these numbers.

    counts: frequencies of each operation, whose product is the number of plans.
    """
    digit: Ints = plan // math.prod(counts[place + 1 :]) % counts[place]
    return digit


class Program:
    """The linear program of one pipeline, solved again for each time from where it stood.

    Columns: the end of each operation, the iteration's time, and how far each operation goes along each piece of its
    convex curve of joules over seconds.
    """

    def __init__(self, pipeline: Pipeline) -> None:
        self._pipeline = pipeline
        self._curves = [_Curve(pipeline.of(place), pipeline.blocked_power_w) for place in range(self._count)]
        self._solver: Any = None
        fastest = pipeline.run([int(np.argmin(pipeline.of(place).time_s)) for place in range(self._count)])
        self.least_s = fastest.makespan_s

    @property
    def _count(self) -> int:
        """Number of operations."""
        return len(self._pipeline.operations)

    def frontier(self, times: int = TIMES) -> tuple[FrequencyPlan, ...]:
        """Plans at times from the shortest to that of the least energy, without those that others make pointless."""
        cheapest = self.within(math.inf)
        span = cheapest.makespan_s - self.least_s
        # Energy falls steeply at first: times lie closer together there.
        targets_s = self.least_s + span * (np.arange(times) / max(times - 1, 1)) ** 1.5
        return undominated([*(self.within(float(time_s)) for time_s in targets_s), cheapest])

    def within(self, time_s: float) -> FrequencyPlan:
        """The cheapest plan computed for a time of at least `least_s` [s], with a lower bound on its energy."""
        seconds, bound_j = self._solve(max(time_s, self.least_s))
        limit = min(time_s, 1e300) * (1 + SAME)
        at = [curve.faster(value) for curve, value in zip(self._curves, seconds)]
        at = self._slowed(at, limit)
        done = self._pipeline.run(at)
        return FrequencyPlan(tuple(at), done.makespan_s, done.energy_j, bound_j)

    def _solve(self, time_s: float) -> tuple[list[float], float]:
        """Seconds of each operation in the mixture of least energy, and that energy [J]."""
        solver = self._ready()
        solver.changeColBounds(self._count, self.least_s, time_s)
        import highspy

        status = solve(solver)
        if status != highspy.HighsModelStatus.kOptimal:
            raise AssertionError(f"the program of a pipeline within {time_s} s ended as {status}")
        values = solver.getSolution().col_value
        seconds, column = [], self._count + 1
        for curve in self._curves:
            pieces = len(curve.slope)
            seconds.append(float(curve.time_s[0]) + math.fsum(values[column : column + pieces]))
            column += pieces
        fixed = math.fsum(float(curve.extra_j[0]) for curve in self._curves)
        return seconds, fixed + float(solver.getInfo().objective_function_value)

    def _ready(self) -> Any:
        """The solver with the program in it; made once."""
        if self._solver is not None:
            return self._solver
        import highspy

        pipeline, count = self._pipeline, self._count
        cost = [0.0] * count + [pipeline.stages * pipeline.blocked_power_w]
        upper = [math.inf] * (count + 1)
        first = []
        for curve in self._curves:
            first.append(len(cost))
            cost += curve.slope
            upper += np.diff(curve.time_s).tolist()
        starts: list[int] = []
        index: list[int] = []
        value: list[float] = []
        lower: list[float] = []
        for place, curve in enumerate(self._curves):
            pieces = range(first[place], first[place] + len(curve.slope))
            for other in pipeline.waits_for[place] or (None,):
                starts.append(len(index))
                index += [place, *([] if other is None else [other]), *pieces]
                value += [1.0, *([] if other is None else [-1.0]), *([-1.0] * len(pieces))]
                lower.append(float(curve.time_s[0]))
            starts.append(len(index))
            index += [count, place]
            value += [1.0, -1.0]
            lower.append(0.0)
        starts.append(len(index))
        program = highspy.HighsLp()
        program.num_col_, program.num_row_ = len(cost), len(lower)
        program.col_cost_ = np.array(cost)
        program.col_lower_, program.col_upper_ = np.zeros(len(cost)), np.array(upper)
        program.row_lower_, program.row_upper_ = np.array(lower), np.full(len(lower), np.inf)
        program.a_matrix_.format_ = highspy.MatrixFormat.kRowwise
        program.a_matrix_.start_ = np.array(starts, np.int32)
        program.a_matrix_.index_ = np.array(index, np.int32)
        program.a_matrix_.value_ = np.array(value)
        self._solver = new_solver()
        self._solver.passModel(program)
        return self._solver

    def _slowed(self, at: list[int], limit_s: float) -> list[int]:
        """Spend the slack that is left on slower frequencies, the largest saving first.

        at: a frequency for each operation, changed in place. limit_s: by when the iteration must end [s].
        """
        pipeline = self._pipeline
        while True:
            done = pipeline.run(at)
            slack = self._slack(done, limit_s)
            best, saved = None, 0.0
            for place, curve in enumerate(self._curves):
                now_s, now_j = float(curve.choices.time_s[at[place]]), float(curve.all_extra_j[at[place]])
                affordable = curve.choices.time_s <= now_s + slack[place] + 1e-12 * now_s
                other = int(np.argmin(np.where(affordable, curve.all_extra_j, np.inf)))
                if now_j - float(curve.all_extra_j[other]) > saved + 1e-9:
                    best, saved = (place, other), now_j - float(curve.all_extra_j[other])
            if best is None:
                return at
            at[best[0]] = best[1]

    def _slack(self, done: Timed, limit_s: float) -> list[float]:
        """How much longer each operation may take without the iteration ending later than it may."""
        pipeline = self._pipeline
        latest = [min(limit_s, max(done.makespan_s, 0.0))] * self._count
        for place in reversed(pipeline.topological):
            begins = latest[place] - (done.end_s[place] - done.start_s[place])
            for other in pipeline.waits_for[place]:
                latest[other] = min(latest[other], begins)
        return [late - end for late, end in zip(latest, done.end_s)]


class _Curve:
    """Joules above waiting over seconds: the lower convex hull of the measured frequencies, fastest first."""

    def __init__(self, choices: Choices, blocked_power_w: float) -> None:
        self.choices = choices
        self.all_extra_j: Floats = choices.energy_j - blocked_power_w * choices.time_s
        hull: list[int] = []
        for at in np.lexsort((self.all_extra_j, choices.time_s)).tolist():
            if hull and self.all_extra_j[at] >= self.all_extra_j[hull[-1]]:
                continue
            while len(hull) > 1 and self._slope(hull[-2], hull[-1]) >= self._slope(hull[-1], at):
                hull.pop()
            hull.append(at)
        self.hull = hull
        self.time_s: Floats = choices.time_s[hull]
        self.extra_j: Floats = self.all_extra_j[hull]
        self.slope = [self._slope(one, other) for one, other in itertools.pairwise(hull)]

    def _slope(self, one: int, other: int) -> float:
        """Joules per second between two frequencies."""
        seconds = float(self.choices.time_s[other] - self.choices.time_s[one])
        return float(self.all_extra_j[other] - self.all_extra_j[one]) / seconds

    def faster(self, seconds: float) -> int:
        """The slowest frequency on the hull that takes no longer."""
        return self.hull[int(np.searchsorted(self.time_s, seconds * (1 + SAME), side="right")) - 1]
