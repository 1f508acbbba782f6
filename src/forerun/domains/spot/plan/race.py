"""The race of candidates: each has the same generated fleets, in growing blocks of trials.

After each block those drop out that are infeasible, or worse in the objective and on the other side of the trade-off of cost
and time, by more than four standard errors. The finalists have had all trials.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, Literal

import numpy as np
from numpy.typing import NDArray

from forerun.domains.spot.engine import trials
from forerun.domains.spot.engine.estimates import quantile
from forerun.domains.spot.engine.trials import Trials
from forerun.domains.spot.inputs.prices import spot_price
from forerun.domains.spot.plan.checkpoint_intervals import (
    suggested_steps,
)
from forerun.domains.spot.policy import growth_rules
from forerun.domains.spot.scenario import Scenario
from forerun.domains.spot.scenario.job import Checkpoints, JobSpec
from forerun.domains.spot.scenario.processes import PerNode, Poisson
from forerun.registry import member_name

FIRST_BLOCK: Final = 256
"""Trials of the first block of the race; later blocks are three times as long as all before."""


DROP_Z: Final = 4.0
"""A candidate drops out if it is worse by so many standard errors."""


@dataclass(frozen=True, slots=True)
class Candidate:
    """One way to run the job."""

    job: JobSpec
    growth: str
    spares: int
    on_demand_nodes: int

    @property
    def checkpoints(self) -> str:
        """The checkpoint rule in words."""
        rule = self.job.snapshots
        steps = f"every {rule.steps} steps" if rule.rule == "every_steps" else rule.rule.replace("_", " ")
        return steps if rule.write == "async" else f"{steps}, sync"

    @property
    def name(self) -> str:
        """All choices in a line."""
        nodes = f"+{self.spares} spares, {self.on_demand_nodes} on-demand"
        return f"depth {self.job.depth}, {self.checkpoints}, {self.growth}, {nodes}"


@dataclass(slots=True)
class Runner:
    """A candidate in the race: what it met so far."""

    candidate: Candidate
    cost_usd: NDArray[np.float64]
    finish_s: NDArray[np.float64]
    samples_per_s: NDArray[np.float64]
    out: Literal["", "worse", "infeasible"] = ""

    @property
    def count(self) -> int:
        """Trials met."""
        return int(self.cost_usd.size)


def candidates(scenario: Scenario) -> list[Candidate]:
    """Every combination of the scenario's choices."""
    choices = scenario.choices
    combinations = []
    for job in (scenario.job, *choices.jobs):
        for checkpoints in _checkpoints(scenario, job):
            for growth in dict.fromkeys((member_name(type(scenario.growth)), *choices.growth)):
                for spares in dict.fromkeys(choices.spares):
                    for nodes in dict.fromkeys((scenario.on_demand_nodes, *choices.on_demand_nodes)):
                        combinations.append(
                            Candidate(job.with_(snapshots=checkpoints), growth, spares, nodes)
                        )
    return combinations


def _checkpoints(scenario: Scenario, job: JobSpec) -> list[Checkpoints]:
    """The scenario's rule, back to back, and intervals around the closed form's optimum."""
    write = job.snapshots.write
    rules = [job.snapshots, Checkpoints(rule="back_to_back", write=write)]
    steps = scenario.choices.every_steps or suggested_steps(scenario, job)
    rules += [Checkpoints(rule="every_steps", steps=n, write=write) for n in steps]
    return list(dict.fromkeys(rules))


def race(scenario: Scenario, field: Sequence[Candidate], objective: str) -> list[Runner]:
    """Run all candidates in growing blocks of trials, dropping those that have clearly lost."""
    runners = [Runner(candidate, np.empty(0), np.empty(0), np.empty(0)) for candidate in field]
    met, block = 0, min(FIRST_BLOCK, scenario.choices.trials)
    while met < scenario.choices.trials:
        block = min(block, scenario.choices.trials - met)
        for runner in runners:
            if not runner.out:
                more = meet(runner.candidate, scenario, block, met)
                runner.cost_usd = np.concatenate([runner.cost_usd, more.cost_usd])
                runner.finish_s = np.concatenate([runner.finish_s, more.finish_s])
                runner.samples_per_s = np.concatenate([runner.samples_per_s, more.samples_per_s])
        met += block
        block = met * 3
        if met < scenario.choices.trials:
            _drop(runners, scenario, objective)
    return runners


def meet(candidate: Candidate, scenario: Scenario, count: int, first: int) -> Runner:
    """Simulate a candidate's trials first, first + 1, ...; the same numbers are the same fleets for all."""
    done = candidate_trials(candidate, scenario, count, first)
    spot_usd_per_h = spot_price(scenario.prices).mean(0.0, scenario.horizon_s)
    cost = done.cost_usd(spot_usd_per_h, scenario.prices.on_demand_usd_per_h)
    rate = done.columns["steps_completed"] * candidate.job.samples_per_step / done.columns["end_s"]
    return Runner(candidate, cost, done.finish_s, rate)


def candidate_trials(candidate: Candidate, scenario: Scenario, count: int, first: int) -> Trials:
    process = scenario.fleet
    assert isinstance(process, Poisson | PerNode)
    more = {"start": process.start + candidate.spares, "cap": process.cap + candidate.spares}
    return trials.run(
        candidate.job.built(scenario.horizon_s, candidate.job.read_supply()),
        process.with_(**more),
        growth_rules().get(candidate.growth)(),
        trials=count,
        seed=scenario.seed,
        goal_steps=scenario.goal.steps or -1,
        on_demand=candidate.on_demand_nodes,
        first_trial=first,
    )


def values_of(runner: Runner, objective: str, scenario: Scenario) -> NDArray[np.float64]:
    """What is minimised, a trial; trials that do not finish count with the horizon."""
    if objective == "cost":
        return runner.cost_usd
    if objective == "time":
        return np.where(np.isfinite(runner.finish_s), runner.finish_s, scenario.horizon_s)
    return -runner.samples_per_s


def done_share(runner: Runner, scenario: Scenario) -> float:
    goal = scenario.goal
    until_s = goal.deadline_s or scenario.horizon_s
    return float((runner.finish_s <= until_s).mean()) if goal.steps else 1.0


def is_feasible(runner: Runner, scenario: Scenario) -> bool:
    """Whether the deadline is kept with the wanted certainty, and the budget in the mean."""
    goal = scenario.goal
    in_time = not goal.deadline_s or done_share(runner, scenario) >= goal.certainty
    return in_time and (not goal.budget_usd or float(runner.cost_usd.mean()) <= goal.budget_usd)


def finish_h(runner: Runner, scenario: Scenario) -> float | None:
    """Hours by which the wanted share of trials is done; None if fewer get there."""
    if not scenario.goal.steps:
        return None
    at = quantile(runner.finish_s, scenario.goal.certainty).value
    return at / 3600.0 if math.isfinite(at) else None


def _drop(runners: Sequence[Runner], scenario: Scenario, objective: str) -> None:
    """Take out who is infeasible, or worse than a clearly feasible one, beyond four standard errors."""
    racing = [runner for runner in runners if not runner.out]
    for runner in racing:
        if _clearly_infeasible(runner, scenario):
            runner.out = "infeasible"
    safe = [runner for runner in racing if not runner.out and _clearly_feasible(runner, scenario)]
    for runner in racing:
        if not runner.out and any(_beats(other, runner, scenario, objective) for other in safe):
            runner.out = "worse"


def _beats(one: Runner, other: Runner, scenario: Scenario, objective: str) -> bool:
    """Whether `one` is clearly better in the objective, and not worse on the other side of the trade-off."""
    gap = values_of(other, objective, scenario) - values_of(one, objective, scenario)
    if gap.mean() <= 0 or gap.mean() <= DROP_Z * gap.std(ddof=1) / math.sqrt(gap.size):
        return False
    side = "cost" if objective != "cost" else "time" if scenario.goal.steps else "throughput"
    return float((values_of(other, side, scenario) - values_of(one, side, scenario)).mean()) >= 0


def _margins(runner: Runner, scenario: Scenario) -> list[tuple[float, float]]:
    """(how far inside, standard error) of each bound."""
    goal, margins = scenario.goal, []
    if goal.deadline_s:
        share = done_share(runner, scenario)
        # A share of 0 or 1 has no spread of its own: one more success and one more failure give it some.
        smooth = (share * runner.count + 1) / (runner.count + 2)
        margins.append((share - goal.certainty, math.sqrt(smooth * (1 - smooth) / runner.count)))
    if goal.budget_usd:
        error = float(runner.cost_usd.std(ddof=1)) / math.sqrt(runner.count)
        margins.append((goal.budget_usd - float(runner.cost_usd.mean()), error))
    return margins


def _clearly_infeasible(runner: Runner, scenario: Scenario) -> bool:
    return any(inside < -DROP_Z * error for inside, error in _margins(runner, scenario))


def _clearly_feasible(runner: Runner, scenario: Scenario) -> bool:
    return all(inside > DROP_Z * error for inside, error in _margins(runner, scenario))
