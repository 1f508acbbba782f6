"""Which checkpoint interval, shape, growth rule, spares and on-demand share to run with.

`plan` races all candidates on the same generated fleets (`race`), and makes a `SpotPlan` of the finalists, with what other
checkpoint intervals would do to the chosen one (`checkpoint_intervals`).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, Final

import numpy as np

from forerun.domains.spot.engine.estimates import Estimate
from forerun.domains.spot.plan.checkpoint_intervals import MOST_TRIALS as INTERVAL_TRIALS
from forerun.domains.spot.plan.checkpoint_intervals import compared, costs_note
from forerun.domains.spot.plan.race import (
    Runner,
    candidate_trials,
    candidates,
    done_share,
    finish_h,
    is_feasible,
    meet,
    race,
    values_of,
)
from forerun.domains.spot.plan.result import SpotPlan
from forerun.domains.spot.policies.restart import Restart
from forerun.domains.spot.scenario import Scenario
from forerun.domains.spot.scenario.processes import PerNode, Poisson
from forerun.errors import Infeasible, Problem, ScenarioError
from forerun.result.objective import pareto
from forerun.result.plan import Planner


def plan(scenario: Scenario, objective: str = "") -> SpotPlan:
    """The best of the scenario's choices for an objective: `cost`, `time` or `throughput`.

    Without one: cost if there is a deadline, time if there is a budget, else throughput.  Raises
    ScenarioError for scenarios that cannot be planned, Infeasible with the nearest relaxation if no candidate
    keeps the bounds.
    """
    goal = scenario.goal
    objective = objective or ("cost" if goal.deadline_s else "time" if goal.budget_usd else "throughput")
    _check_plannable(scenario, objective)
    runners = race(scenario, candidates(scenario), objective)
    return with_intervals(conclude(scenario, runners, objective))


def with_intervals(made: SpotPlan) -> SpotPlan:
    """The plan with what other times between checkpoints would do to the chosen candidate."""
    chosen, scenario = made.chosen.candidate, made.scenario
    count = min(INTERVAL_TRIALS, scenario.choices.trials)
    rows = compared(
        scenario, chosen.job, lambda job: candidate_trials(replace(chosen, job=job), scenario, count, first=0)
    )
    return replace(made, intervals=rows, notes=(*made.notes, costs_note(rows))) if rows else made


def _check_plannable(scenario: Scenario, objective: str) -> None:
    if not isinstance(scenario.fleet, Poisson | PerNode):
        raise ScenarioError.at(
            "$.fleet",
            "a plan needs a poisson or per_node process: `forerun trace fit spot FILE -o fleet.yaml` finds one "
            "like a recording, to use as the fleet here",
        )
    if not isinstance(scenario.policy, Restart):
        raise ScenarioError.at(
            "$.policy",
            "a plan is made for `restart`, whose candidates are simulated by the thousand; others are compared by "
            "`forerun compare SCENARIO --policy NAME`",
        )
    if scenario.deadline is not None:
        raise ScenarioError.at("$.deadline", "decides by itself what to rent; a plan is made without it")
    if objective not in ("cost", "time", "throughput"):
        raise ScenarioError.at("--objective", f"{objective!r} is not cost, time or throughput")
    if objective in ("cost", "time") and not scenario.goal.steps:
        raise ScenarioError.at(
            "$.goal.steps", f"planning for {objective} needs the number of steps to complete"
        )
    if objective == "cost" and not scenario.prices.known:
        raise ScenarioError.at("$.prices.spot_usd_per_h", "planning for cost needs the price of a spot node")


def conclude(scenario: Scenario, runners: Sequence[Runner], objective: str) -> SpotPlan:
    """Choose among those who met all trials. Raises Infeasible if none of them keeps the bounds."""
    finalists = [runner for runner in runners if not runner.out]
    fit = [runner for runner in finalists if is_feasible(runner, scenario)]
    if not fit:
        raise _infeasible(scenario, runners)
    ranked = sorted(fit, key=lambda runner: float(values_of(runner, objective, scenario).mean()))
    chosen, second = ranked[0], ranked[1] if len(ranked) > 1 else None
    difference = None
    if second is not None:
        gap = values_of(second, objective, scenario) - values_of(chosen, objective, scenario)
        difference = Estimate.of(gap)
    notes = [f"{len(runners)} candidates met the same fleets; {len(finalists)} met all {chosen.count}"]
    if scenario.goal.steps and done_share(chosen, scenario) < 1 and not scenario.goal.deadline_s:
        notes.append("trials that do not finish count with the horizon")
    return SpotPlan(
        scenario, objective, chosen, second, difference, tuple(runners), _front(fit, scenario), tuple(notes)
    )


def _front(fit: Sequence[Runner], scenario: Scenario) -> tuple[Runner, ...]:
    """Finalists than which no other is both cheaper and sooner (faster, where nothing is to be finished)."""

    def pair(runner: Runner) -> tuple[float, float]:
        sooner = finish_h(runner, scenario) if scenario.goal.steps else -float(runner.samples_per_s.mean())
        return float(runner.cost_usd.mean()), math.inf if sooner is None else sooner

    return tuple(pareto((runner for runner in fit if pair(runner)[1] < math.inf), pair, ties=False))


NEAREST: Final = 4
"""Candidates next to each bound that are looked at once more if none keeps all."""


def _infeasible(scenario: Scenario, runners: Sequence[Runner]) -> Infeasible:
    """Why nothing fits, and what would: a later deadline, nodes that never vanish, or more money."""
    goal, near = scenario.goal, _nearest(scenario, runners)
    in_time = [
        runner for runner in near if not goal.deadline_s or done_share(runner, scenario) >= goal.certainty
    ]
    if not in_time:
        nearest = max(near, key=lambda runner: done_share(runner, scenario))
        soonest = min(near, key=lambda runner: _kept_s(runner, scenario))
        later = ""
        if math.isfinite(kept_s := _kept_s(soonest, scenario)):
            by = "" if soonest is nearest else f", by {soonest.candidate.name}"
            later = f"; a deadline of {_up(kept_s / 3600)} h would be kept{by}"
        return Infeasible(
            Problem(
                "goal.deadline_s",
                f"no candidate is done by {goal.deadline_s / 3600:.2f} h with probability {goal.certainty:g}; "
                f"the nearest, {nearest.candidate.name}, is with {done_share(nearest, scenario):.4f}"
                f"{later}{_steadier(nearest, scenario)}",
            )
        )
    nearest = min(in_time, key=lambda runner: float(runner.cost_usd.mean()))
    those = (
        f"no candidate done by {goal.deadline_s / 3600:.2f} h with probability {goal.certainty:g}"
        if goal.deadline_s
        else "no candidate"
    )
    return Infeasible(
        Problem(
            "goal.budget_usd",
            f"{those} costs at most {goal.budget_usd:g} usd; the cheapest, {nearest.candidate.name}, costs "
            f"{_up(float(nearest.cost_usd.mean()))}, and a budget of that would be kept",
        )
    )


def _nearest(scenario: Scenario, runners: Sequence[Runner]) -> list[Runner]:
    """The candidates next to the bounds, those that dropped out with all their trials too.

    Their figures are then those that a plan with other bounds would have.
    """
    ranks: tuple[Callable[[Runner], float], ...] = (
        lambda runner: -done_share(runner, scenario),
        lambda runner: _kept_s(runner, scenario),
        lambda runner: float(runner.cost_usd.mean()),
    )
    near = {id(runner): runner for rank in ranks for runner in sorted(runners, key=rank)[:NEAREST]}
    inside = [r for r in runners if done_share(r, scenario) >= scenario.goal.certainty]
    near |= {id(r): r for r in sorted(inside, key=lambda r: float(r.cost_usd.mean()))[:NEAREST]}
    count = scenario.choices.trials
    return [
        runner if runner.count == count else meet(runner.candidate, scenario, count, 0)
        for runner in near.values()
    ]


def _kept_s(runner: Runner, scenario: Scenario) -> float:
    """The earliest deadline that is kept with the wanted certainty; infinite if none is."""
    at = math.ceil(runner.count * scenario.goal.certainty - 1e-9) - 1
    return float(np.partition(runner.finish_s, at)[at])


def _up(value: float) -> str:
    """A bound rounded so that it is kept."""
    return f"{math.ceil(value * 100 - 1e-9) / 100:.2f}"


def _steadier(nearest: Runner, scenario: Scenario) -> str:
    """The fewest on-demand nodes, pipeline by pipeline, with which the nearest candidate would keep the deadline."""
    candidate = nearest.candidate
    for pipelines in range(1, candidate.job.max_pipelines + 1):
        nodes = candidate.job.depth * pipelines
        if nodes <= candidate.on_demand_nodes:
            continue
        met = meet(replace(candidate, on_demand_nodes=nodes), scenario, scenario.choices.trials, 0)
        if done_share(met, scenario) >= scenario.goal.certainty:
            return (
                f"; with {nodes} on-demand nodes (choices.on_demand_nodes) it would be done in time with "
                f"{done_share(met, scenario):.3f}, for {float(met.cost_usd.mean()):.4g} usd"
            )
    return ""


class SpotPlanner(Planner[Scenario]):
    """The planner of the spot domain."""

    options = ()

    def plan(self, scenario: Scenario, objective: str = "", **options: Any) -> Any:
        """See `plan`."""
        return plan(scenario, objective, **options)
