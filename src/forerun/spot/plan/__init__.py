"""Which checkpoint interval, shape, growth rule, spares and on-demand share to run with.

`plan` races all candidates on the same generated fleets (`race`), and makes a `SpotPlan` of the finalists, with what other
checkpoint intervals would do to the chosen one (`checkpoint_intervals`).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Any, Final

import numpy as np

from forerun.core.errors import Infeasible, Problem, ScenarioError
from forerun.core.result.objective import pareto
from forerun.core.result.plan import Planner
from forerun.spot.engine.estimates import Estimate
from forerun.spot.plan.checkpoint_intervals import MOST_TRIALS as INTERVAL_TRIALS
from forerun.spot.plan.checkpoint_intervals import compared, costs_note
from forerun.spot.plan.race import Runner, candidate_trials, candidates, meet, race
from forerun.spot.plan.result import RecoveryChoice, SpotPlan, recoveries_note
from forerun.spot.policies.restart import Restart
from forerun.spot.reserved.scenario import Cluster
from forerun.spot.scenario import Scenario
from forerun.spot.scenario.processes import PerNode, Poisson


def plan(scenario: Scenario, objective: str = "") -> SpotPlan:
    """The best of the scenario's choices.

    Parameters
    ----------
    objective : `cost`, `time` or `throughput` (default: cost if there is a deadline, time if there is a budget, else
        throughput).

    Raises ScenarioError for scenarios that cannot be planned, Infeasible with the nearest relaxation if no candidate
    keeps the bounds.
    """
    goal = scenario.goal
    objective = objective or ("cost" if goal.deadline_s else "time" if goal.budget_usd else "throughput")
    _check_plannable(scenario, objective)
    runners = race(scenario, candidates(scenario), objective)
    return with_recoveries(with_intervals(conclude(scenario, runners, objective)))


def with_recoveries(made: SpotPlan) -> SpotPlan:
    """The plan with the best candidate of each recovery policy beside the chosen one, where there are several policies.

    Those that dropped out meet the chosen one's trials first.
    """
    chosen, scenario, objective = made.chosen, made.scenario, made.objective
    policies = dict.fromkeys(runner.candidate.recovery for runner in made.runners)
    if len(policies) < 2:
        return made
    rows = []
    for policy in policies:
        of_policy = [runner for runner in made.runners if runner.candidate.recovery == policy]
        # Who stayed longer in the race was better; who dropped out meets the trials that it missed.
        order = sorted(of_policy, key=lambda one: (not one.is_feasible, -one.count, one.score(objective)))
        near = [chosen] if chosen in of_policy else order[:NEAREST]
        met = [
            one if one.count == chosen.count else meet(one.candidate, scenario, chosen.count, 0)
            for one in near
        ]
        best = min(met, key=lambda one: (not one.is_feasible, one.score(objective)))
        behind = Estimate.of(best.values(objective) - chosen.values(objective))
        rows.append(RecoveryChoice(best, behind, best is chosen))
    rows.sort(key=lambda row: (not row.is_chosen, not row.best.is_feasible, row.behind.mean))
    return replace(made, recoveries=tuple(rows), notes=(*made.notes, recoveries_note(rows, objective)))


def with_intervals(made: SpotPlan) -> SpotPlan:
    """The plan with what other times between checkpoints would do to the chosen candidate."""
    chosen, scenario = made.chosen.candidate, made.scenario
    count = min(INTERVAL_TRIALS, scenario.choices.trials)
    rows = compared(
        scenario, chosen.job, lambda job: candidate_trials(replace(chosen, job=job), scenario, count, first=0)
    )
    if chosen.recovery.continuation() is not None:
        # The closed form is of jobs that roll back.
        rows = tuple(replace(row, closed_form=math.nan) for row in rows)
    return replace(made, intervals=rows, notes=(*made.notes, costs_note(rows))) if rows else made


def _check_plannable(scenario: Scenario, objective: str) -> None:
    """Raise ScenarioError for a scenario, or an objective, that cannot be planned."""
    is_cluster = isinstance(scenario.fleet, Cluster)
    if not isinstance(scenario.fleet, Poisson | PerNode | Cluster):
        what = (
            "a plan needs a poisson or per_node process: `forerun trace fit spot FILE -o fleet.yaml` finds one like a "
            "recording, to use as the fleet here"
        )
        raise ScenarioError.at("$.fleet", what)
    if not is_cluster and not isinstance(scenario.policy, Restart):
        what = (
            "a plan is made for `restart`, whose candidates are simulated by the thousand; others are compared by "
            "`forerun compare SCENARIO --policy NAME`"
        )
        raise ScenarioError.at("$.policy", what)
    if scenario.deadline is not None:
        raise ScenarioError.at("$.deadline", "decides by itself what to rent; a plan is made without it")
    if objective not in ("cost", "time", "throughput"):
        raise ScenarioError.at("--objective", f"{objective!r} is not cost, time or throughput")
    if objective != "throughput" and not scenario.goal.steps:
        what = f"planning for {objective} needs the number of steps to complete"
        raise ScenarioError.at("$.goal.steps", what)
    if objective == "cost" and is_cluster and not scenario.prices.on_demand_usd_per_h:
        raise ScenarioError.at("$.prices.on_demand_usd_per_h", "planning for cost needs the price of a node")
    if objective == "cost" and not is_cluster and not scenario.prices.known:
        raise ScenarioError.at("$.prices.spot_usd_per_h", "planning for cost needs the price of a spot node")


def conclude(scenario: Scenario, runners: Sequence[Runner], objective: str) -> SpotPlan:
    """Choose among those who met all trials.

    Parameters
    ----------
    runners : all candidates, with what they met.
    objective : `cost`, `time` or `throughput`.

    Raises Infeasible if none keeps the bounds.
    """
    finalists = [runner for runner in runners if not runner.out]
    fit = [runner for runner in finalists if runner.is_feasible]
    if not fit:
        raise _infeasible(scenario, runners)
    ranked = sorted(fit, key=lambda runner: runner.score(objective))
    chosen, second = ranked[0], ranked[1] if len(ranked) > 1 else None
    difference = None
    if second is not None:
        difference = Estimate.of(second.values(objective) - chosen.values(objective))
    met = f"{len(runners)} candidates met the same fleets; {len(finalists)} met all {chosen.count}"
    notes = [met if len(runners) > 1 else f"the one candidate met {chosen.count} fleets"]
    if scenario.goal.steps and chosen.done_share < 1 and not scenario.goal.deadline_s:
        notes.append("trials that do not finish count with the horizon")
    return SpotPlan(
        scenario, objective, chosen, second, difference, tuple(runners), _front(fit), tuple(notes)
    )


def _front(fit: Sequence[Runner]) -> tuple[Runner, ...]:
    """Finalists than which no other is both cheaper and sooner (faster, where nothing is to be finished)."""

    def pair(runner: Runner) -> tuple[float, float]:
        sooner = runner.finish_h if runner.scenario.goal.steps else -runner.rate
        return runner.mean_usd, math.inf if sooner is None else sooner

    return tuple(pareto((runner for runner in fit if pair(runner)[1] < math.inf), pair, ties=False))


NEAREST: Final = 4
"""Candidates next to each bound that are looked at once more if none meets all."""


def _infeasible(scenario: Scenario, runners: Sequence[Runner]) -> Infeasible:
    """Why nothing fits, and what would: a later deadline, nodes that never vanish, or more money."""
    goal, near = scenario.goal, _nearest(scenario, runners)
    by_then = f"done by {goal.deadline_s / 3600:.2f} h with probability {goal.certainty:g}"
    in_time = [runner for runner in near if runner.in_time]
    if in_time:
        cheapest = min(in_time, key=lambda runner: runner.mean_usd)
        what = (
            f"no candidate{' ' + by_then if goal.deadline_s else ''} costs at most {goal.budget_usd:g} usd; the cheapest, "
            f"{cheapest.candidate.name}, costs {_up(cheapest.mean_usd)}, and that budget would suffice"
        )
        return Infeasible(Problem("goal.budget_usd", what))
    nearest = max(near, key=lambda runner: runner.done_share)
    soonest = min(near, key=_earliest_deadline_s)
    later = ""
    if math.isfinite(deadline_s := _earliest_deadline_s(soonest)):
        by = "" if soonest is nearest else f", by {soonest.candidate.name}"
        later = f"; a deadline of {_up(deadline_s / 3600)} h would be met{by}"
    what = (
        f"no candidate is {by_then}; the nearest, {nearest.candidate.name}, is with {nearest.done_share:.4f}"
        f"{later}{_steadier(nearest)}"
    )
    return Infeasible(Problem("goal.deadline_s", what))


def _nearest(scenario: Scenario, runners: Sequence[Runner]) -> list[Runner]:
    """The candidates next to the bounds, those that dropped out with all their trials too.

    Their figures are then those that a plan with other bounds would have.
    """
    inside = [runner for runner in runners if runner.done_share >= scenario.goal.certainty]
    ranked = (
        sorted(runners, key=lambda runner: -runner.done_share),
        sorted(runners, key=_earliest_deadline_s),
        sorted(runners, key=lambda runner: runner.mean_usd),
        sorted(inside, key=lambda runner: runner.mean_usd),
    )
    near = {id(runner): runner for ranking in ranked for runner in ranking[:NEAREST]}
    count = scenario.choices.trials
    return [
        runner if runner.count == count else meet(runner.candidate, scenario, count, 0)
        for runner in near.values()
    ]


def _earliest_deadline_s(runner: Runner) -> float:
    """The earliest deadline that is met with the required certainty; infinite if none is."""
    at = math.ceil(runner.count * runner.scenario.goal.certainty - 1e-9) - 1
    return float(np.partition(runner.finish_s, at)[at])


def _up(value: float) -> str:
    """A bound rounded up, so that it is still met."""
    return f"{math.ceil(value * 100 - 1e-9) / 100:.2f}"


def _steadier(nearest: Runner) -> str:
    """The fewest on-demand nodes, pipeline by pipeline, with which the nearest candidate would meet the deadline."""
    candidate, scenario = nearest.candidate, nearest.scenario
    if isinstance(scenario.fleet, Cluster):
        return ""
    for pipelines in range(1, candidate.job.max_pipelines + 1):
        nodes = candidate.depth * pipelines
        if nodes <= candidate.on_demand_nodes:
            continue
        met = meet(replace(candidate, on_demand_nodes=nodes), scenario, scenario.choices.trials, 0)
        if met.in_time:
            return (
                f"; with {nodes} on-demand nodes (choices.on_demand_nodes) it would be done in time with "
                f"{met.done_share:.3f}, for {met.mean_usd:.4g} usd"
            )
    return ""


class SpotPlanner(Planner[Scenario]):
    """The planner of the spot domain."""

    options = ()

    def plan(self, scenario: Scenario, objective: str = "", **options: Any) -> Any:
        """See `plan`."""
        return plan(scenario, objective, **options)
