"""Which checkpoint interval, shape, growth rule, spares and on-demand share to run with.

Every candidate meets the same generated fleets.  Candidates race: after each block of trials those drop out
that are infeasible, or beaten in the objective and on the other side of the trade-off of cost and time,
beyond four standard errors; who is left has met all trials.  The plan carries the
chosen candidate, the runner-up with the paired difference, the Pareto front of cost against time, and a
certificate that `SpotPlan.check` computes again.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final, Literal

import numpy as np
from numpy.typing import NDArray

from forerun.domains.spot.engine import trials
from forerun.domains.spot.engine.estimates import Estimate, quantile
from forerun.domains.spot.engine.trials import Trials
from forerun.domains.spot.inputs.prices import spot_price
from forerun.domains.spot.plan.checkpoint_intervals import MOST_TRIALS as INTERVAL_TRIALS
from forerun.domains.spot.plan.checkpoint_intervals import (
    CheckpointInterval,
    compared,
    costs_note,
    interval_table,
    suggested_steps,
)
from forerun.domains.spot.policies.restart import Restart
from forerun.domains.spot.policy import growth_rules
from forerun.domains.spot.scenario import Checkpoints, JobSpec, Scenario
from forerun.domains.spot.scenario.processes import PerNode, Poisson
from forerun.errors import CheckFailed, Infeasible, Problem, ScenarioError
from forerun.result.plan import Planner, ShownPlan
from forerun.result.tables import Column, Table, TableSchema

FIRST_BLOCK = 256
DROP_Z = 4.0

CANDIDATES = TableSchema(
    "candidates",
    (
        Column("name", "", "shape, checkpoints, growth rule, spares, on-demand nodes"),
        Column("depth", "nodes", "nodes in a pipeline"),
        Column("snapshots", "", "back to back, or steps between checkpoints"),
        Column("growth", "", "growth rule"),
        Column("spares", "nodes", "spot nodes beyond the fleet's own"),
        Column("on_demand_nodes", "nodes", "nodes that never vanish"),
        Column("trials", "", "trials it stayed in the race for"),
        Column("cost_usd", "usd", "mean cost"),
        Column("cost_half95_usd", "usd", "half-width of its 95 % interval"),
        Column("finish_h", "h", "time by which the wanted share of trials is done"),
        Column("samples_per_s", "1/s", "mean throughput"),
        Column("done_share", "share", "share of trials done by the deadline, or at all"),
        Column("pareto", "", "whether no other finalist is both cheaper and sooner"),
        Column("verdict", "", "chosen, runner-up, finalist, dropped or infeasible"),
    ),
    "one row a candidate, the chosen one first",
)
FRONT = TableSchema("front", CANDIDATES.columns, "candidates than which no other is both cheaper and sooner")


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


@dataclass(frozen=True, repr=False, slots=True)
class SpotPlan(ShownPlan):
    """What to run with, and why."""

    scenario: Scenario
    objective: str
    chosen: Runner
    runner_up: Runner | None
    difference: Estimate | None
    runners: tuple[Runner, ...]
    front: tuple[Runner, ...]
    notes: tuple[str, ...]
    intervals: tuple[CheckpointInterval, ...] = ()
    """Other times between checkpoints for the chosen candidate."""

    @property
    def told_apart(self) -> bool:
        """Whether the interval of the paired difference to the runner-up excludes 0."""
        return self.difference is not None and abs(self.difference.mean) > self.difference.half95

    @property
    def why(self) -> str:
        """The choice in a sentence."""
        text = f"{self.chosen.candidate.name}: {_said(self.chosen, self.scenario)}"
        if self.runner_up is None or self.difference is None:
            return f"{text}; nothing else is feasible"
        unit = {"cost": "usd", "time": "s", "throughput": "samples/s"}[self.objective]
        gap = f"{abs(self.difference.mean):.4g} ± {self.difference.half95:.2g} {unit}"
        verdict = (
            f"ahead by {gap}" if self.told_apart else f"cannot be distinguished from it (difference {gap})"
        )
        return f"{text}; next is {self.runner_up.candidate.name}, {verdict}"

    @property
    def summary(self) -> dict[str, Any]:
        """Flat figures of the choice."""
        candidate, rule = self.chosen.candidate, self.chosen.candidate.job.snapshots
        return {
            "objective": self.objective,
            "depth": candidate.job.depth,
            "snapshots": candidate.checkpoints,
            "every_steps": rule.steps if rule.rule == "every_steps" else 0,
            "growth": candidate.growth,
            "spares": candidate.spares,
            "on_demand_nodes": candidate.on_demand_nodes,
            "cost_usd": float(self.chosen.cost_usd.mean()),
            "finish_h": _finish_h(self.chosen, self.scenario),
            "samples_per_s": float(self.chosen.samples_per_s.mean()),
            "done_share": _done_share(self.chosen, self.scenario),
            "runner_up": self.runner_up.candidate.name if self.runner_up else None,
            "difference": self.difference.mean if self.difference else None,
            "difference_half95": self.difference.half95 if self.difference else None,
            "told_apart": self.told_apart,
            "candidates": len(self.runners),
            "trials": self.chosen.count,
        }

    @property
    def tables(self) -> dict[str, Table]:
        """All candidates, the Pareto front of them, and other times between checkpoints for the chosen one."""
        front = {id(runner) for runner in self.front}
        order = sorted(self.runners, key=lambda r: (r is not self.chosen, bool(r.out), _score(r, self)))
        rows = [_row(runner, self, id(runner) in front) for runner in order]
        tables = {
            "candidates": Table.of_rows(CANDIDATES, rows),
            "front": Table.of_rows(FRONT, [_row(runner, self, True) for runner in self.front]),
        }
        return tables | ({"intervals": interval_table(self.intervals)} if self.intervals else {})

    def data(self) -> dict[str, Any]:
        """As plain data."""
        tables = self.tables
        return {
            "summary": self.summary,
            "why": self.why,
            "notes": list(self.notes),
            "front": [runner.candidate.name for runner in self.front],
            "candidates": _records(tables["candidates"]),
            "intervals": _records(tables["intervals"]) if "intervals" in tables else [],
        }

    def check(self) -> SpotPlan:
        """Compute the certificate again: the chosen one's trials, its feasibility, and that no finalist is
        better.

        Raises CheckFailed.
        """
        again = meet(self.chosen.candidate, self.scenario, self.chosen.count, 0)
        if not np.array_equal(again.cost_usd, self.chosen.cost_usd) or not np.array_equal(
            again.finish_s, self.chosen.finish_s
        ):
            raise CheckFailed.at("plan", "the chosen candidate's trials differ when simulated again")
        if not _feasible(again, self.scenario):
            raise CheckFailed.at("plan", "the chosen candidate does not keep the bounds")
        for runner in self.runners:
            if (
                not runner.out
                and _feasible(runner, self.scenario)
                and _score(runner, self) < _score(again, self)
            ):
                raise CheckFailed.at("plan", f"{runner.candidate.name} is better than the chosen candidate")
        return self


def plan(scenario: Scenario, objective: str = "") -> SpotPlan:
    """The best of the scenario's choices for an objective: `cost`, `time` or `throughput`.

    Without one: cost if there is a deadline, time if there is a budget, else throughput.  Raises
    ScenarioError for scenarios that cannot be planned, Infeasible with the nearest relaxation if no candidate
    keeps the bounds.
    """
    goal = scenario.goal
    objective = objective or ("cost" if goal.deadline_s else "time" if goal.budget_usd else "throughput")
    _refuse(scenario, objective)
    runners = race(scenario, candidates(scenario), objective)
    return with_intervals(conclude(scenario, runners, objective))


def with_intervals(plan: SpotPlan) -> SpotPlan:
    """The plan with what other times between checkpoints would do to the chosen candidate."""
    chosen, scenario = plan.chosen.candidate, plan.scenario
    count = min(INTERVAL_TRIALS, scenario.choices.trials)
    rows = compared(
        scenario, chosen.job, lambda job: _trials(replace(chosen, job=job), scenario, count, first=0)
    )
    return replace(plan, intervals=rows, notes=(*plan.notes, costs_note(rows))) if rows else plan


def _refuse(scenario: Scenario, objective: str) -> None:
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


def candidates(scenario: Scenario) -> list[Candidate]:
    """Every combination of the scenario's choices."""
    choices = scenario.choices
    combinations = []
    for job in (scenario.job, *choices.jobs):
        for checkpoints in _checkpoints(scenario, job):
            for growth in dict.fromkeys((member_name(scenario), *choices.growth)):
                for spares in dict.fromkeys(choices.spares):
                    for nodes in dict.fromkeys((scenario.on_demand_nodes, *choices.on_demand_nodes)):
                        combinations.append(
                            Candidate(job.with_(snapshots=checkpoints), growth, spares, nodes)
                        )
    return combinations


def member_name(scenario: Scenario) -> str:
    """The name of the scenario's growth rule."""
    from forerun.registry import member_name as name_of

    return name_of(type(scenario.growth))


def _checkpoints(scenario: Scenario, job: JobSpec) -> list[Checkpoints]:
    """The scenario's rule, back to back, and intervals around the closed form's optimum."""
    write = job.snapshots.write
    rules = [job.snapshots, Checkpoints(rule="back_to_back", write=write)]
    steps = scenario.choices.every_steps or suggested_steps(scenario, job)
    rules += [Checkpoints(rule="every_steps", steps=n, write=write) for n in steps]
    return list(dict.fromkeys(rules))


# --------------------------------------------------------------------------- the race


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
    done = _trials(candidate, scenario, count, first)
    spot_usd_per_h = spot_price(scenario.prices).mean(0.0, scenario.horizon_s)
    cost = done.cost_usd(spot_usd_per_h, scenario.prices.on_demand_usd_per_h)
    rate = done.columns["steps_completed"] * candidate.job.samples_per_step / done.columns["end_s"]
    return Runner(candidate, cost, done.finish_s, rate)


def _trials(candidate: Candidate, scenario: Scenario, count: int, first: int) -> Trials:
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


def _values(runner: Runner, objective: str, scenario: Scenario) -> NDArray[np.float64]:
    """What is minimised, a trial; trials that do not finish count with the horizon."""
    if objective == "cost":
        return runner.cost_usd
    if objective == "time":
        return np.where(np.isfinite(runner.finish_s), runner.finish_s, scenario.horizon_s)
    return -runner.samples_per_s


def _done_share(runner: Runner, scenario: Scenario) -> float:
    goal = scenario.goal
    until_s = goal.deadline_s or scenario.horizon_s
    return float((runner.finish_s <= until_s).mean()) if goal.steps else 1.0


def _feasible(runner: Runner, scenario: Scenario) -> bool:
    """Whether the deadline is kept with the wanted certainty, and the budget in the mean."""
    goal = scenario.goal
    in_time = not goal.deadline_s or _done_share(runner, scenario) >= goal.certainty
    return in_time and (not goal.budget_usd or float(runner.cost_usd.mean()) <= goal.budget_usd)


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
    gap = _values(other, objective, scenario) - _values(one, objective, scenario)
    if gap.mean() <= 0 or gap.mean() <= DROP_Z * gap.std(ddof=1) / math.sqrt(gap.size):
        return False
    side = "cost" if objective != "cost" else "time" if scenario.goal.steps else "throughput"
    return float((_values(other, side, scenario) - _values(one, side, scenario)).mean()) >= 0


def _margins(runner: Runner, scenario: Scenario) -> list[tuple[float, float]]:
    """(how far inside, standard error) of each bound."""
    goal, margins = scenario.goal, []
    if goal.deadline_s:
        share = _done_share(runner, scenario)
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


# --------------------------------------------------------------------------- the verdict


def conclude(scenario: Scenario, runners: Sequence[Runner], objective: str) -> SpotPlan:
    """Choose among those who met all trials. Raises Infeasible if none of them keeps the bounds."""
    finalists = [runner for runner in runners if not runner.out]
    fit = [runner for runner in finalists if _feasible(runner, scenario)]
    if not fit:
        raise _infeasible(scenario, runners)
    ranked = sorted(fit, key=lambda runner: float(_values(runner, objective, scenario).mean()))
    chosen, second = ranked[0], ranked[1] if len(ranked) > 1 else None
    difference = None
    if second is not None:
        gap = _values(second, objective, scenario) - _values(chosen, objective, scenario)
        difference = Estimate.of(gap)
    notes = [f"{len(runners)} candidates met the same fleets; {len(finalists)} met all {chosen.count}"]
    if scenario.goal.steps and _done_share(chosen, scenario) < 1 and not scenario.goal.deadline_s:
        notes.append("trials that do not finish count with the horizon")
    return SpotPlan(
        scenario, objective, chosen, second, difference, tuple(runners), _front(fit, scenario), tuple(notes)
    )


def _front(fit: Sequence[Runner], scenario: Scenario) -> tuple[Runner, ...]:
    """Finalists than which no other is both cheaper and sooner (faster, where nothing is to be finished)."""

    def pair(runner: Runner) -> tuple[float, float]:
        sooner = _finish_h(runner, scenario) if scenario.goal.steps else -float(runner.samples_per_s.mean())
        return float(runner.cost_usd.mean()), math.inf if sooner is None else sooner

    front: list[Runner] = []
    best = math.inf
    for runner in sorted(fit, key=pair):
        if pair(runner)[1] < best:
            best = pair(runner)[1]
            front.append(runner)
    return tuple(front)


def _finish_h(runner: Runner, scenario: Scenario) -> float | None:
    """Hours by which the wanted share of trials is done; None if fewer get there."""
    if not scenario.goal.steps:
        return None
    at = quantile(runner.finish_s, scenario.goal.certainty).value
    return at / 3600.0 if math.isfinite(at) else None


NEAREST: Final = 4
"""Candidates next to each bound that are looked at once more if none keeps all."""


def _infeasible(scenario: Scenario, runners: Sequence[Runner]) -> Infeasible:
    """Why nothing fits, and what would: a later deadline, nodes that never vanish, or more money."""
    goal, near = scenario.goal, _nearest(scenario, runners)
    in_time = [
        runner for runner in near if not goal.deadline_s or _done_share(runner, scenario) >= goal.certainty
    ]
    if not in_time:
        nearest = max(near, key=lambda runner: _done_share(runner, scenario))
        soonest = min(near, key=lambda runner: _kept_s(runner, scenario))
        later = ""
        if math.isfinite(kept_s := _kept_s(soonest, scenario)):
            by = "" if soonest is nearest else f", by {soonest.candidate.name}"
            later = f"; a deadline of {_up(kept_s / 3600)} h would be kept{by}"
        return Infeasible(
            Problem(
                "goal.deadline_s",
                f"no candidate is done by {goal.deadline_s / 3600:.2f} h with probability {goal.certainty:g}; "
                f"the nearest, {nearest.candidate.name}, is with {_done_share(nearest, scenario):.4f}"
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
        lambda runner: -_done_share(runner, scenario),
        lambda runner: _kept_s(runner, scenario),
        lambda runner: float(runner.cost_usd.mean()),
    )
    near = {id(runner): runner for rank in ranks for runner in sorted(runners, key=rank)[:NEAREST]}
    inside = [r for r in runners if _done_share(r, scenario) >= scenario.goal.certainty]
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
        if _done_share(met, scenario) >= scenario.goal.certainty:
            return (
                f"; with {nodes} on-demand nodes (choices.on_demand_nodes) it would be done in time with "
                f"{_done_share(met, scenario):.3f}, for {float(met.cost_usd.mean()):.4g} usd"
            )
    return ""


def _score(runner: Runner, plan: SpotPlan) -> float:
    return float(_values(runner, plan.objective, plan.scenario).mean())


def _said(runner: Runner, scenario: Scenario) -> str:
    parts = [f"{float(runner.samples_per_s.mean()):.4g} samples/s"]
    if scenario.prices.known or scenario.prices.on_demand_usd_per_h:
        parts.append(f"{float(runner.cost_usd.mean()):.4g} usd")
    finish_h = _finish_h(runner, scenario)
    if finish_h is not None:
        parts.append(f"done by {finish_h:.2f} h with probability {scenario.goal.certainty:g}")
    return ", ".join(parts)


def _records(table: Table) -> list[dict[str, Any]]:
    """A table as plain data, a row a record."""
    names = [column.name for column in table.schema.columns]
    return [
        {name: _plain(value) for name, value in zip(names, values, strict=True)}
        for values in zip(*(table[name].tolist() for name in names), strict=True)
    ]


def _plain(value: Any) -> Any:
    """A cell as plain data: what does not exist is null."""
    return None if isinstance(value, float) and math.isnan(value) else value


def _row(runner: Runner, plan: SpotPlan, pareto: bool) -> tuple[Any, ...]:
    candidate, cost = runner.candidate, Estimate.of(runner.cost_usd)
    finish_h = _finish_h(runner, plan.scenario)
    verdict = {"worse": "dropped", "infeasible": "infeasible"}.get(runner.out, "finalist")
    if verdict == "finalist" and not _feasible(runner, plan.scenario):
        verdict = "infeasible"
    verdict = "chosen" if runner is plan.chosen else "runner-up" if runner is plan.runner_up else verdict
    figures: Mapping[str, Any] = {
        "name": candidate.name,
        "depth": candidate.job.depth,
        "snapshots": candidate.checkpoints,
        "growth": candidate.growth,
        "spares": candidate.spares,
        "on_demand_nodes": candidate.on_demand_nodes,
        "trials": runner.count,
        "cost_usd": cost.mean,
        "cost_half95_usd": cost.half95,
        "finish_h": math.nan if finish_h is None else finish_h,
        "samples_per_s": float(runner.samples_per_s.mean()),
        "done_share": _done_share(runner, plan.scenario),
        "pareto": pareto,
        "verdict": verdict,
    }
    return tuple(figures[column.name] for column in CANDIDATES.columns)


class SpotPlanner(Planner[Scenario]):
    """The planner of the spot domain."""

    options = ()

    def plan(self, scenario: Scenario, objective: str = "", **options: Any) -> Any:
        """See `plan`."""
        return plan(scenario, objective, **options)
