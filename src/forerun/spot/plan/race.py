"""The race of candidates: each has the same generated fleets, in growing blocks of trials.

After each block those drop out that are infeasible, or worse in the objective and on the other side of the trade-off of cost
and time, by more than four standard errors. The finalists have had all trials.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, Literal

import msgspec
import numpy as np
from numpy.typing import NDArray

from forerun.core.registry import member_name
from forerun.spot.engine import trials
from forerun.spot.engine.estimates import quantile
from forerun.spot.engine.job import Checkpoints
from forerun.spot.engine.trials import Trials
from forerun.spot.inputs.prices import spot_price
from forerun.spot.plan.checkpoint_intervals import suggested_steps
from forerun.spot.policies.lazy import Lazy
from forerun.spot.policies.restart import Restart
from forerun.spot.policy import RecoveryPolicy, growth_rules
from forerun.spot.reserved.cluster import ClusterTrials, run_cluster
from forerun.spot.reserved.scenario import Cluster
from forerun.spot.scenario import Scenario
from forerun.spot.scenario.job import JobSpec
from forerun.spot.scenario.processes import PerNode, Poisson

FIRST_BLOCK: Final = 256
"""Trials of the first block of the race; later blocks are three times as long as all before."""
DROP_Z: Final = 4.0
"""A candidate drops out if it is worse by this many standard errors."""


@dataclass(frozen=True, slots=True)
class Candidate:
    """One configuration of the job and its nodes.

    Parameters
    ----------
    job : its shape and checkpoints.
    growth : name of the growth rule.
    spares : spot nodes beyond the fleet's own.
    on_demand_nodes : nodes that never vanish.
    recovery : what a loss costs.
    """

    job: JobSpec
    growth: str
    spares: int
    on_demand_nodes: int
    recovery: RecoveryPolicy

    @property
    def depth(self) -> int:
        """Nodes in a pipeline."""
        return self.job.depth

    @property
    def snapshots(self) -> str:
        """The checkpoint rule in words."""
        rule = self.job.snapshots
        steps = f"every {rule.steps} steps" if rule.rule == "every_steps" else rule.rule.replace("_", " ")
        return steps if rule.write == "async" else f"{steps}, sync"

    @property
    def name(self) -> str:
        """All choices in a line."""
        nodes = f"+{self.spares} spares, {self.on_demand_nodes} on-demand"
        tiers = "".join(f" and in {tier.name}" for tier in self.job.tiers)
        recovery = "" if self.recovery == Restart() else f"{recovery_words(self.recovery)}, "
        return f"depth {self.depth}, {self.snapshots}{tiers}, {recovery}{self.growth}, {nodes}"


def recovery_words(policy: RecoveryPolicy) -> str:
    """A recovery policy with its parameters, such as `oobleck pause_s 30`."""
    values = (f"{name} {getattr(policy, name):g}" for name in policy.__struct_fields__)
    return " ".join((member_name(type(policy)), *values))


@dataclass(slots=True)
class Runner:
    """A candidate in the race: what it met so far.

    Parameters
    ----------
    candidate : how it runs.
    scenario : with the goal that it must meet.
    cost_usd, finish_s, samples_per_s : float64[trials], finish_s infinite where the goal was not reached.
    out : why it dropped out (default: it did not).
    """

    candidate: Candidate
    scenario: Scenario
    cost_usd: NDArray[np.float64]
    finish_s: NDArray[np.float64]
    samples_per_s: NDArray[np.float64]
    out: Literal["", "worse", "infeasible"] = ""

    @property
    def count(self) -> int:
        """Trials met."""
        return int(self.cost_usd.size)

    @property
    def mean_usd(self) -> float:
        """Mean cost of a trial."""
        return float(self.cost_usd.mean())

    @property
    def rate(self) -> float:
        """Mean samples a second."""
        return float(self.samples_per_s.mean())

    @property
    def done_share(self) -> float:
        """Share of trials done by the deadline, or by the horizon; 1 if there is nothing to be done."""
        goal = self.scenario.goal
        until_s = goal.deadline_s or self.scenario.horizon_s
        return float((self.finish_s <= until_s).mean()) if goal.steps else 1.0

    @property
    def in_time(self) -> bool:
        """Whether the deadline, if there is one, is met with the required certainty."""
        goal = self.scenario.goal
        return not goal.deadline_s or self.done_share >= goal.certainty

    @property
    def is_feasible(self) -> bool:
        """Whether the deadline is met with the required certainty, and the budget in the mean."""
        budget_usd = self.scenario.goal.budget_usd
        return self.in_time and (not budget_usd or self.mean_usd <= budget_usd)

    @property
    def finish_h(self) -> float | None:
        """Hours by which the required share of trials is done; None if fewer get there."""
        goal = self.scenario.goal
        at = quantile(self.finish_s, goal.certainty).value if goal.steps else math.inf
        return at / 3600.0 if math.isfinite(at) else None

    def values(self, objective: str) -> NDArray[np.float64]:
        """float64[trials]: what is minimised; trials that do not finish count with the horizon."""
        if objective == "cost":
            return self.cost_usd
        if objective == "time":
            return np.where(np.isfinite(self.finish_s), self.finish_s, self.scenario.horizon_s)
        return -self.samples_per_s

    def score(self, objective: str) -> float:
        """The mean of what is minimised."""
        return float(self.values(objective).mean())

    def beats(self, other: Runner, objective: str) -> bool:
        """Whether it is clearly better in the objective, and not worse on the other side of the trade-off.

        Parameters
        ----------
        other : a candidate that has met the same trials.
        objective : `cost`, `time` or `throughput`.
        """
        gap = other.values(objective) - self.values(objective)
        if gap.mean() <= 0 or gap.mean() <= DROP_Z * gap.std(ddof=1) / math.sqrt(gap.size):
            return False
        side = "cost" if objective != "cost" else "time" if self.scenario.goal.steps else "throughput"
        return float((other.values(side) - self.values(side)).mean()) >= 0

    def margins(self) -> list[tuple[float, float]]:
        """How far inside each bound it is, with the standard error of that."""
        goal, margins = self.scenario.goal, []
        if goal.deadline_s:
            # A share of 0 or 1 has no spread of its own: one more success and one more failure give it some.
            smooth = (self.done_share * self.count + 1) / (self.count + 2)
            error = math.sqrt(smooth * (1 - smooth) / self.count)
            margins.append((self.done_share - goal.certainty, error))
        if goal.budget_usd:
            error = float(self.cost_usd.std(ddof=1)) / math.sqrt(self.count)
            margins.append((goal.budget_usd - self.mean_usd, error))
        return margins


def candidates(scenario: Scenario) -> list[Candidate]:
    """Every combination of the scenario's choices."""
    choices, own = scenario.choices, scenario.job
    # Without each fast tier, and without any: whether they pay is part of the plan.
    fewer = [own.with_(tiers=tuple(other for other in own.tiers if other is not tier)) for tier in own.tiers]
    shapes = [
        job.with_(snapshots=rule)
        for job in _distinct([own, *fewer, *([own.with_(tiers=())] if fewer else []), *choices.jobs])
        for rule in _checkpoints(scenario, job)
    ]
    growth = dict.fromkeys((member_name(type(scenario.growth)), *_growth_choices(scenario)))
    nodes = dict.fromkeys((scenario.on_demand_nodes, *choices.on_demand_nodes))
    field = []
    for recovery in dict.fromkeys((scenario.policy, *(choices.recovery or ()))):
        # Replicas that go on say themselves when others join, and there must be another one.
        going_on = recovery.continuation() is not None
        fit = [job for job in shapes if job.max_pipelines > 1] if going_on else shapes
        grown = [member_name(Lazy)] if going_on else growth
        combined = itertools.product(fit, grown, dict.fromkeys(choices.spares), nodes)
        field += [Candidate(job, growth, spares, nodes, recovery) for job, growth, spares, nodes in combined]
    return field


def _distinct(jobs: Sequence[JobSpec]) -> list[JobSpec]:
    """Jobs without repetition, in order; they hold tables, so they are compared and not hashed."""
    seen: list[JobSpec] = []
    for job in jobs:
        if job not in seen:
            seen.append(job)
    return seen


def _growth_choices(scenario: Scenario) -> tuple[str, ...]:
    """Growth rules to try; on a reserved cluster those of its kernel, and none where the job has one size."""
    if not isinstance(scenario.fleet, Cluster):
        return scenario.choices.growth
    if scenario.job.min_pipelines == scenario.job.max_pipelines:
        return ()
    return tuple(name for name in scenario.choices.growth if name in ("immediate", "lazy"))


def _checkpoints(scenario: Scenario, job: JobSpec) -> list[Checkpoints]:
    """The scenario's rule, back to back, and intervals around the closed form's optimum."""
    write = job.snapshots.write
    rules = [job.snapshots, Checkpoints(rule="back_to_back", write=write)]
    steps = scenario.choices.every_steps or suggested_steps(scenario, job)
    rules += [Checkpoints(rule="every_steps", steps=n, write=write) for n in steps]
    return list(dict.fromkeys(rules))


def race(scenario: Scenario, field: Sequence[Candidate], objective: str) -> list[Runner]:
    """Run all candidates in growing blocks of trials, dropping those that have clearly lost.

    Parameters
    ----------
    field : the candidates.
    objective : by which they are compared.

    Returns them in order, with what they met.
    """
    nothing = np.empty(0)
    runners = [Runner(candidate, scenario, nothing, nothing, nothing) for candidate in field]
    met, block = 0, FIRST_BLOCK
    while met < scenario.choices.trials:
        block = min(block, scenario.choices.trials - met)
        for runner in runners:
            if not runner.out:
                more = meet(runner.candidate, scenario, block, met)
                for name in ("cost_usd", "finish_s", "samples_per_s"):
                    setattr(runner, name, np.concatenate([getattr(runner, name), getattr(more, name)]))
        met += block
        block = met * 3
        if met < scenario.choices.trials:
            _drop(runners, objective)
    return runners


def meet(candidate: Candidate, scenario: Scenario, count: int, first: int) -> Runner:
    """Simulate some of a candidate's trials; the same numbers are the same fleets for all candidates.

    Parameters
    ----------
    candidate : how it runs.
    scenario : prices, goal and horizon.
    count : how many trials.
    first : number of the first of them.
    """
    done = candidate_trials(candidate, scenario, count, first)
    rate = done.columns["steps_completed"] * candidate.job.samples_per_step / done.columns["end_s"]
    if isinstance(done, ClusterTrials):
        assert isinstance(scenario.fleet, Cluster)
        node_h = done.columns["end_s"] * (scenario.fleet.nodes + candidate.spares) / 3600.0
        return Runner(candidate, scenario, node_h * scenario.prices.on_demand_usd_per_h, done.finish_s, rate)
    spot_usd_per_h = spot_price(scenario.prices).mean(0.0, scenario.horizon_s)
    cost = done.cost_usd(spot_usd_per_h, scenario.prices.on_demand_usd_per_h)
    return Runner(candidate, scenario, cost, done.finish_s, rate)


def candidate_trials(
    candidate: Candidate, scenario: Scenario, count: int, first: int
) -> Trials | ClusterTrials:
    """What happens in some of a candidate's trials.

    Parameters
    ----------
    candidate : how it runs; its spares are added to the fleet's start and cap.
    scenario : with a Poisson fleet, one of single nodes, or a reserved cluster.
    count : how many trials.
    first : number of the first of them, which names its random streams.
    """
    process = scenario.fleet
    job = candidate.job.built(scenario.horizon_s, candidate.job.read_supply())
    if isinstance(process, Cluster):
        return run_cluster(
            job,
            msgspec.structs.replace(process, spares=process.spares + candidate.spares),
            growth_rules().get(candidate.growth)(),
            candidate.job.pause_parts_s,
            trials=count,
            going_on=candidate.recovery.continuation(),
            seed=scenario.seed,
            goal_steps=scenario.goal.steps or -1,
            first_trial=first,
        )
    assert isinstance(process, Poisson | PerNode)
    # What a candidate changes need not be checked as a file is.
    changed = msgspec.structs.replace(
        scenario,
        fleet=process.with_(start=process.start + candidate.spares, cap=process.cap + candidate.spares),
        growth=growth_rules().get(candidate.growth)(),
        on_demand_nodes=candidate.on_demand_nodes,
    )
    return trials.run_scenario(changed, job, trials=count, first_trial=first)


def _drop(runners: Sequence[Runner], objective: str) -> None:
    """Take out who is infeasible, or worse than a clearly feasible one, beyond four standard errors."""
    racing = [runner for runner in runners if not runner.out]
    for runner in racing:
        if any(inside < -DROP_Z * error for inside, error in runner.margins()):
            runner.out = "infeasible"
    safe = [
        runner
        for runner in racing
        if not runner.out and all(inside > DROP_Z * error for inside, error in runner.margins())
    ]
    for runner in racing:
        if not runner.out and any(other.beats(runner, objective) for other in safe):
            runner.out = "worse"
