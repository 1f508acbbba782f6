"""The plan of a pipeline: the frequencies of least cost for the goal, and what they save."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

import numpy as np

from forerun.core.errors import CheckFailed, Infeasible, Problem
from forerun.core.result.plan import ShownPlan
from forerun.core.result.tables import Column, Table, TableSchema
from forerun.energy.inputs import PipelineInputs
from forerun.energy.inputs.pipeline import KINDS, Frequencies, Pipeline, Timed
from forerun.energy.plan.frontier import FrequencyPlan, best_within, frontier, undominated
from forerun.energy.scenario import Scenario

STAGES: Final = TableSchema(
    "stages",
    (
        Column("stage", "", "stage, from 0"),
        Column("forward_mhz", "MHz", "mean frequency of its forward passes"),
        Column("backward_mhz", "MHz", "mean frequency of its backward passes"),
        Column("busy_s", "s", "time it computes"),
        Column("blocked_s", "s", "time it waits"),
        Column("energy_j", "J", "energy, waiting included"),
        Column("highest_energy_j", "J", "energy with every pass at its highest frequency"),
    ),
    "one stage of the pipeline",
)
FRONTIER: Final = TableSchema(
    "frontier",
    (
        Column("makespan_s", "s", "time of an iteration"),
        Column("energy_j", "J", "energy of an iteration"),
        Column("at_least_j", "J", "what no plan within that time goes below"),
        Column("chosen", "", "whether the goal chose it"),
    ),
    "plans of which none is better in time and energy, by time",
)
OPERATIONS: Final = TableSchema(
    "operations",
    (
        Column("plan", "", "highest (every pass at its highest frequency) or chosen"),
        Column("stage", "", "stage, from 0"),
        Column("instruction", "", "forward or backward"),
        Column("microbatch", "", "microbatch, from 0"),
        Column("frequency_mhz", "MHz", "clock it runs at"),
        Column("start_s", "s", "when it begins"),
        Column("end_s", "s", "when it ends"),
        Column("energy_j", "J", "energy it draws"),
    ),
    "one pass of one microbatch through one stage",
)


@dataclass(frozen=True, repr=False)
class PipelinePlan(ShownPlan):
    """The plan of a pipeline.

    scenario: with the goal that was planned. pipeline: what was measured. frontier: ascending in time. chosen: the answer.
    highest: the iteration with every pass at its highest frequency. notes: repairs of the profile.
    """

    scenario: Scenario
    pipeline: Pipeline
    frontier: tuple[FrequencyPlan, ...]
    chosen: FrequencyPlan
    highest: Timed
    notes: tuple[str, ...] = ()

    @property
    def why(self) -> str:
        """One sentence: what the plan saves, and how far below it no plan can go."""
        slower = 100 * (self.chosen.makespan_s / self.highest.makespan_s - 1)
        saved = 100 * (1 - self.chosen.energy_j / self.highest.energy_j)
        left = 100 * (1 - self.chosen.at_least_j / self.chosen.energy_j)
        proved = (
            "no plan within its time draws less"
            if left < 1e-7
            else f"none within its time draws more than {left:.2f} % less"
        )
        return (
            f"slower passes save {saved:.1f} % of the energy at the highest frequencies for {slower:.1f} % more time; "
            f"{proved}"
        )

    @property
    def summary(self) -> dict[str, Any]:
        """Flat figures, names with units."""
        shortest, cheapest = self.frontier[0], self.frontier[-1]
        return {
            "makespan_s": self.chosen.makespan_s,
            "energy_j": self.chosen.energy_j,
            "energy_at_least_j": self.chosen.at_least_j,
            "energy_saved_percent": 100 * (1 - self.chosen.energy_j / self.highest.energy_j),
            "time_saved_percent": 100 * (1 - self.chosen.makespan_s / self.highest.makespan_s),
            "highest_makespan_s": self.highest.makespan_s,
            "highest_energy_j": self.highest.energy_j,
            "shortest_makespan_s": shortest.makespan_s,
            "shortest_energy_j": shortest.energy_j,
            "least_energy_j": cheapest.energy_j,
            "least_energy_makespan_s": cheapest.makespan_s,
            "frontier_points": len(self.frontier),
        }

    @property
    def tables(self) -> dict[str, Table]:
        """Stages, frontier, and each operation before and after."""
        return {
            "stages": Table.of_rows(STAGES, map(self._stage, range(self.pipeline.stages))),
            "frontier": Table.of_records(FRONTIER, self.frontier, chosen=lambda plan: plan == self.chosen),
            "operations": self._operations(highest=self.pipeline.all_highest, chosen=self.chosen.frequencies),
        }

    def _stage(self, stage: int) -> tuple[float, ...]:
        """A row of the table of stages."""
        pipeline, at = self.pipeline, self.chosen.frequencies
        mine = [place for place, op in enumerate(pipeline.operations) if op.stage == stage]
        clocks: dict[str, list[float]] = {kind: [] for kind in KINDS}
        for place in mine:
            clocks[pipeline.operations[place].kind].append(pipeline.of(place).frequency_mhz[at[place]])
        busy, joules = pipeline.sums(mine, at)
        top_busy, top_joules = pipeline.sums(mine, pipeline.all_highest)
        blocked = self.chosen.makespan_s - busy
        energy = joules + pipeline.blocked_power_w * blocked
        top = top_joules + pipeline.blocked_power_w * (self.highest.makespan_s - top_busy)
        means = (float(np.mean(clocks[kind])) for kind in KINDS)
        return (stage, *means, busy, blocked, energy, top)

    def _operations(self, **plans: Frequencies) -> Table:
        """Each pass of an iteration under each of the plans, by their names."""
        pipeline, parts = self.pipeline, []
        for name, at in plans.items():
            done = pipeline.run(at)
            choices = [(pipeline.of(place), chosen) for place, chosen in enumerate(at)]
            part: dict[str, Any] = {"plan": name, "start_s": done.start_s, "end_s": done.end_s}
            for column, attribute in (
                ("stage", "stage"),
                ("instruction", "kind"),
                ("microbatch", "microbatch"),
            ):
                part[column] = [getattr(op, attribute) for op in pipeline.operations]
            for column in ("frequency_mhz", "energy_j"):
                part[column] = [float(getattr(of, column)[chosen]) for of, chosen in choices]
            parts.append(part)
        return Table.of_parts(OPERATIONS, parts)

    def check(self) -> PipelinePlan:
        """Run every stated plan again, and compare all pairs; returns self. Raises CheckFailed."""
        for point in self.frontier:
            done = self.pipeline.run(point.frequencies)
            for what, stated, run_again in (
                ("time", point.makespan_s, done.makespan_s),
                ("energy", point.energy_j, done.energy_j),
            ):
                if not math.isclose(stated, run_again, rel_tol=1e-9):
                    wrong = f"states {what} {stated!r}, run again it is {run_again!r}"
                    raise CheckFailed.at("frontier", wrong)
            if point.energy_j < point.at_least_j * (1 - 1e-6):
                wrong = f"{point.energy_j!r} J is below its bound {point.at_least_j!r} J"
                raise CheckFailed.at("frontier", wrong)
        for one, other in itertools.pairwise(self.frontier):
            if not (one.makespan_s < other.makespan_s and one.energy_j > other.energy_j):
                raise CheckFailed.at("frontier", f"the plan of {other.makespan_s!r} s is dominated")
        for name, figure, limit in _bounds(self.scenario, self.highest):
            if getattr(self.chosen, figure) > limit * (1 + 1e-9):
                raise CheckFailed.at(f"goal.{name}", "the chosen plan breaks it")
        return self

    def data(self) -> dict[str, Any]:
        """As plain data (`--json`)."""
        operations = self._operations(chosen=self.chosen.frequencies).records()
        return {
            "domain": "energy",
            "summary": self.summary,
            "why": self.why,
            "notes": list(self.notes),
            "frontier": [
                {"makespan_s": p.makespan_s, "energy_j": p.energy_j, "at_least_j": p.at_least_j}
                for p in self.frontier
            ],
            "operations": [
                {name: value for name, value in row.items() if name != "plan"} for row in operations
            ],
        }


def plan_pipeline(inputs: PipelineInputs) -> PipelinePlan:
    """The plan of a pipeline's goal. Raises Infeasible naming the bound that cannot be met."""
    scenario, pipeline = inputs.scenario, inputs.pipeline
    highest = pipeline.run(pipeline.all_highest)
    points = frontier(pipeline)
    bounds = _bounds(scenario, highest)
    _feasible(scenario, pipeline, points, bounds)
    longest = min((limit for _, figure, limit in bounds if figure == "makespan_s"), default=math.inf)
    # The longest time that the bounds allow is itself a point worth having: the program is solved there too.
    if points[0].makespan_s < longest < points[-1].makespan_s:
        points = undominated([*points, best_within(pipeline, longest)])
    value = _figure(scenario, pipeline)
    inside = [
        p for p in points if all(getattr(p, figure) <= limit * (1 + 1e-9) for _, figure, limit in bounds)
    ]
    chosen = min(inside, key=value)
    return PipelinePlan(scenario, pipeline, points, chosen, highest, inputs.repairs).check()


def _bounds(scenario: Scenario, highest: Timed) -> list[tuple[str, str, float]]:
    """The goal's bounds: name, figure of a point, limit."""
    goal, bounds = scenario.goal, []
    if goal.max_time_s:
        bounds.append(("max_time_s", "makespan_s", goal.max_time_s))
    if goal.max_slowdown:
        bounds.append(("max_slowdown", "makespan_s", goal.max_slowdown * highest.makespan_s))
    if goal.max_energy_j:
        bounds.append(("max_energy_j", "energy_j", goal.max_energy_j))
    return bounds


def _feasible(
    scenario: Scenario,
    pipeline: Pipeline,
    points: tuple[FrequencyPlan, ...],
    bounds: list[tuple[str, str, float]],
) -> None:
    """Raise Infeasible naming the bounds that no plan meets, or meets together.

    points: the frontier. bounds: as `_bounds` returns them.
    """
    problems = []
    for name, figure, limit in bounds:
        least = min(getattr(point, figure) for point in points)
        if least > limit * (1 + 1e-9):
            what = f"no plan keeps {figure} <= {limit:g}; the least is {least:.6g}"
            problems.append(Problem(f"goal.{name}", what))
    longest = min((limit for _, figure, limit in bounds if figure == "makespan_s"), default=math.inf)
    dearest = min((limit for _, figure, limit in bounds if figure == "energy_j"), default=math.inf)
    if not problems and dearest < math.inf and longest < math.inf:
        inside = [point.energy_j for point in points if point.makespan_s <= longest * (1 + 1e-9)]
        least_j = min([best_within(pipeline, longest).energy_j, *inside])
        if least_j > dearest * (1 + 1e-9):
            what = f"within {longest:g} s every plan tried draws at least {least_j:.6g} J, {dearest:g} J is the bound"
            problems.append(Problem("goal", what))
    if problems:
        raise Infeasible(*problems)


def _figure(scenario: Scenario, pipeline: Pipeline) -> Callable[[FrequencyPlan], float]:
    """What the goal minimises; in costs a second of all stages is priced at the highest draw, as in recurring jobs."""
    if scenario.goal.minimise == "time":
        return lambda point: point.makespan_s
    if scenario.goal.minimise == "energy":
        return lambda point: point.energy_j
    draws = [float((c.energy_j / c.time_s).max()) for stage in pipeline.choices for c in stage.values()]
    top = pipeline.stages * (scenario.max_power_w or max(draws))
    return lambda point: scenario.eta * point.energy_j + (1 - scenario.eta) * top * point.makespan_s
