"""`run`: from the inputs of a scenario to what happened.

A scenario is one of three kinds of run: one history replayed event by event; many generated histories (`trials`); or a
job that chooses what to rent by a `deadline`. Each has an outcome of its own.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from forerun.core.errors import ScenarioError
from forerun.spot.engine import trials
from forerun.spot.engine.history import Replay
from forerun.spot.engine.job import Continuation
from forerun.spot.engine.membership import Membership
from forerun.spot.engine.trials import Trials
from forerun.spot.engine.zones import ZoneRun, run_zones
from forerun.spot.inputs import Inputs
from forerun.spot.observer import JobObserver, NodeObserver
from forerun.spot.policies.lazy import Lazy
from forerun.spot.policies.on_demand import OnDemand
from forerun.spot.policies.restart import Restart
from forerun.spot.policy import GrowthRule, Setting
from forerun.spot.reserved.cluster import ClusterTrials, logged_trial, run_cluster
from forerun.spot.reserved.scenario import Cluster
from forerun.spot.scenario import Scenario
from forerun.spot.scenario.processes import PerNode, Poisson

BLOCK = 65_536
"""Trials whose rows are in memory at once; of more, only means and counts stay in memory."""
MOST_REPLAYS = 20_000
"""Trials that are replayed one by one at most, where the Monte Carlo kernel does not know the policy or the process."""


@dataclass(frozen=True, slots=True)
class HistoryOutcome:
    """One history.

    Parameters
    ----------
    inputs : of the run.
    fleet : the spot nodes.
    replay : what the job did on them and on the on-demand nodes.
    """

    inputs: Inputs
    fleet: Membership
    replay: Replay

    @property
    def nodes(self) -> Membership:
        """The spot nodes and the on-demand nodes beside them, as the replay numbers them."""
        return self.fleet.with_on_demand(self.inputs.scenario.on_demand_nodes)


@dataclass(frozen=True, slots=True)
class TrialsOutcome:
    """Many generated histories.

    Parameters
    ----------
    first : the first block of trials, with a row for each.
    shown : the history of trial 0, replayed event by event.
    """

    inputs: Inputs
    first: Trials
    shown: HistoryOutcome

    def blocks(self) -> Iterator[Trials]:
        """All trials, a block at a time; blocks after the first are simulated when they are asked for."""
        yield self.first
        count = self.inputs.scenario.trials
        for start in range(BLOCK, count, BLOCK):
            yield simulate_trials(self.inputs, start, min(BLOCK, count - start))


@dataclass(frozen=True, slots=True)
class DeadlineOutcome:
    """Histories of a job that chooses what to rent: one, or one a trial.

    Parameters
    ----------
    alone : the same job on on-demand nodes only, which needs no choice.
    """

    inputs: Inputs
    runs: tuple[ZoneRun, ...]
    alone: ZoneRun


@dataclass(frozen=True, slots=True)
class ClusterOutcome:
    """Histories of a job on a reserved cluster.

    Parameters
    ----------
    done : what happened in each of them.
    log : of trial 0: what failed, and what the job did.
    """

    inputs: Inputs
    done: ClusterTrials
    log: NDArray[np.float64]


Outcome: TypeAlias = HistoryOutcome | TrialsOutcome | DeadlineOutcome | ClusterOutcome


def run(inputs: Inputs, observers: Sequence[JobObserver | NodeObserver] = ()) -> Outcome:
    """Simulate what the scenario asks for: a job with a deadline, many trials, or one history.

    Parameters
    ----------
    inputs : the scenario, its files read.
    observers : of one history; called after it, in order of time (default: none).
    """
    scenario = inputs.scenario
    if isinstance(scenario.fleet, Cluster):
        growth, going_on = cluster_policy(scenario)
        _, _, log = logged_trial(
            inputs.job,
            scenario.fleet,
            growth,
            scenario.job.pause_parts_s,
            going_on=going_on,
            seed=scenario.seed,
            goal_steps=scenario.goal.steps or -1,
        )
        return ClusterOutcome(inputs, cluster_trials(inputs, max(1, scenario.trials)), log)
    if scenario.deadline is not None:
        runs = tuple(zone_run(inputs, trial) for trial in range(max(1, scenario.trials)))
        return DeadlineOutcome(inputs, runs, on_demand_alone(inputs))
    if scenario.trials:
        first = simulate_trials(inputs, 0, min(scenario.trials, BLOCK))
        return TrialsOutcome(inputs, first, run_history(inputs))
    done = run_history(inputs)
    for observer in observers:
        if isinstance(observer, JobObserver):
            for spell in done.replay.spells:
                observer.spell(spell)
        if isinstance(observer, NodeObserver):
            for node_spell in done.replay.node_spells:
                observer.node_spell(node_spell)
    return done


def cluster_policy(scenario: Scenario) -> tuple[GrowthRule, Continuation | None]:
    """When a job on a cluster grows, and whether its replicas go on after a failure.

    Where they do, the recovery policy says when returning nodes join.
    """
    going_on = scenario.policy.continuation()
    return scenario.growth if going_on is None else Lazy(), going_on


def cluster_trials(inputs: Inputs, count: int) -> ClusterTrials:
    """The first `count` trials of a job on a reserved cluster."""
    scenario = inputs.scenario
    assert isinstance(scenario.fleet, Cluster)
    growth, going_on = cluster_policy(scenario)
    return run_cluster(
        inputs.job,
        scenario.fleet,
        growth,
        scenario.job.pause_parts_s,
        trials=count,
        going_on=going_on,
        seed=scenario.seed,
        goal_steps=scenario.goal.steps or -1,
    )


# --------------------------------------------------------------------------- one history, or many


def run_history(inputs: Inputs, trial: int = 0) -> HistoryOutcome:
    """One history of the scenario's own fleet, with its on-demand nodes beside it.

    Parameters
    ----------
    trial : its number, which names the random streams of a generated fleet (default: 0).
    """
    scenario, fleet = inputs.scenario, inputs.history(trial)
    replay = scenario.policy.replay(
        Setting(
            fleet=fleet.with_on_demand(scenario.on_demand_nodes),
            job=inputs.job,
            growth=scenario.growth.build(),
            outlook=inputs.home.outlook,
            goal_steps=scenario.goal.steps or None,
            samples_per_step=scenario.job.samples_per_step,
        )
    )
    return HistoryOutcome(inputs, fleet, replay)


def in_kernel(scenario: Scenario) -> bool:
    """Whether the Monte Carlo kernel knows the process, the policy and the growth rule."""
    known = isinstance(scenario.fleet, Poisson | PerNode) and type(scenario.policy) is Restart
    return known and scenario.growth.kernel_code >= 0 and scenario.job.min_pipelines == 1


def simulate_trials(inputs: Inputs, first: int, count: int) -> Trials:
    """Trials first ... first + count - 1: in the kernel where it knows the process and the policy, else one by one.

    Parameters
    ----------
    first : number of the first trial, which names its random streams.

    Raises ScenarioError for more trials than are replayed one by one.
    """
    scenario = inputs.scenario
    if in_kernel(scenario):
        return trials.run_scenario(scenario, inputs.job, trials=count, first_trial=first)
    if scenario.trials > MOST_REPLAYS:
        raise ScenarioError.at(
            "$.trials",
            f"{scenario.trials} trials of this policy and process run one by one; at most {MOST_REPLAYS} are allowed",
        )
    rows = [run_history(inputs, trial).replay for trial in range(first, first + count)]
    return Trials.of_replays(rows, inputs.horizon_s, scenario.on_demand_nodes)


# --------------------------------------------------------------------------- under a deadline


def zone_run(inputs: Inputs, trial: int = 0) -> ZoneRun:
    """One history of every zone, and the job that chooses among them."""
    assert inputs.scenario.deadline is not None
    zones = [(market, market.history(trial, inputs.horizon_s)) for market in inputs.markets]
    return run_zones(inputs, inputs.job, inputs.scenario.deadline.rule, zones)


def on_demand_alone(inputs: Inputs) -> ZoneRun:
    """The job on on-demand nodes alone: the rule `on_demand`, with no zone to choose."""
    # Nothing is lost, so it ends; perhaps after the scenario's horizon.
    return run_zones(inputs, replace(inputs.job, horizon_s=math.inf), OnDemand(), ())
