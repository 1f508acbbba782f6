"""Many runs of one job on one random process: shares of time, time to finish and cost, each with an interval."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from forerun.core.rng import stream_key
from forerun.spot.engine.estimates import Estimate
from forerun.spot.engine.history import WALL_LINES, Replay
from forerun.spot.engine.job import TrainingJob
from forerun.spot.policy import GrowthRule
from forerun.spot.scenario.processes import PerNode, Poisson, of_trial

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from forerun.spot.scenario import Scenario


@dataclass(frozen=True, slots=True)
class Trials:
    """What happened in each of many trials.

    Parameters
    ----------
    columns : float64[trials] by the names of `kernels.COLUMNS`.
    horizon_s : at which a trial ends at the latest.
    on_demand : number of on-demand nodes.
    """

    columns: dict[str, NDArray[np.float64]]
    horizon_s: float
    on_demand: int

    @classmethod
    def of_replays(cls, rows: Sequence[Replay], horizon_s: float, on_demand: int) -> Trials:
        """Histories replayed one by one, as the columns that the kernel would report.

        Parameters
        ----------
        rows : a history a trial.
        horizon_s, on_demand : as of `Trials`.
        """
        values: dict[str, list[float]] = {
            f"{line}_s": [row.wall_s.get(line, 0.0) for row in rows] for line in WALL_LINES
        }
        for line in (*WALL_LINES, "standby", "prepping"):
            values[f"{line}_node_s"] = [row.node_s.get(line, 0.0) for row in rows]
        for name in ("steps_completed", "steps_durable", "end_s"):
            values[name] = [getattr(row, name) for row in rows]
        for name in ("reconfigs", "reconfig_restarts", "rollbacks", "adds"):
            values[name] = [getattr(row.counts, name) for row in rows]
        values["removals"] = [row.counts.removed for row in rows]
        values["finished"] = [row.finished_s is not None for row in rows]
        columns = {name: np.array(column, dtype=np.float64) for name, column in values.items()}
        return cls(columns, horizon_s, on_demand)

    @property
    def count(self) -> int:
        """Number of trials."""
        return int(self.columns["end_s"].size)

    def share(self, line: str) -> Estimate:
        """Share of wall time in a ledger line: useful, stall, lost, reconfig, idle or inflight."""
        return Estimate.of(self.columns[f"{line}_s"] / self.columns["end_s"])

    @property
    def steps(self) -> Estimate:
        """Steps complete at the end."""
        return Estimate.of(self.columns["steps_completed"])

    @property
    def steps_per_s(self) -> NDArray[np.float64]:
        """float64[trials]: steps complete at the end, a second."""
        return self.columns["steps_completed"] / self.columns["end_s"]

    @property
    def active_node_s(self) -> NDArray[np.float64]:
        """float64[trials]: node time in pipelines."""
        lines = ("useful", "stall", "lost", "reconfig", "inflight")
        total: NDArray[np.float64] = sum(
            (self.columns[f"{line}_node_s"] for line in lines), np.zeros(self.count)
        )
        return total

    @property
    def alive_node_s(self) -> NDArray[np.float64]:
        """float64[trials]: node time paid for."""
        return self.active_node_s + self.columns["standby_node_s"] + self.columns["prepping_node_s"]

    def cost_usd(self, spot_usd_per_h: float, on_demand_usd_per_h: float) -> NDArray[np.float64]:
        """float64[trials]: what the nodes cost until the end of each trial."""
        steady_s = self.on_demand * self.columns["end_s"]
        spot_s = self.alive_node_s - steady_s
        return (spot_s * spot_usd_per_h + steady_s * on_demand_usd_per_h) / 3600.0

    @property
    def finish_s(self) -> NDArray[np.float64]:
        """float64[trials]: when the goal was reached; inf where it was not (censored, never dropped)."""
        return np.where(self.columns["finished"] > 0, self.columns["end_s"], np.inf)


def job_numbers(job: TrainingJob, growth: GrowthRule, goal_steps: int = -1, *, fewest: int = 1) -> Any:
    """The job as the kernel takes it.

    Parameters
    ----------
    growth : when returning nodes join.
    goal_steps : steps to complete (default: -1: no goal).
    fewest : pipelines below which the job waits; smaller sizes do not occur, and get the time of a step of this one
        (default 1).

    Raises ValueError for a growth rule that the kernel does not know.
    """
    from forerun.spot.engine import kernels

    if growth.kernel_code < 0:
        raise ValueError(f"{type(growth).__name__} is a rule that only the exact simulator can follow")
    sizes = [max(fewest, pipelines) * job.depth for pipelines in range(1, job.max_pipelines + 1)]
    steps_s = [job.step_s[size] for size in sizes]
    rule, (stall_s, hidden_s) = job.checkpoint, job.checkpoint_s
    return kernels.JobNumbers(
        depth=job.depth,
        max_pipelines=job.max_pipelines,
        step_s=np.array([1.0, *steps_s]),
        first_steps=np.array([1, *(rule.first_steps(step_s) for step_s in steps_s)]),
        spacing_steps=np.array([1, *(rule.spacing_steps(step_s, stall_s, hidden_s) for step_s in steps_s)]),
        stall_s=stall_s,
        hidden_write_s=hidden_s,
        write_s=float(job.write_s),
        reconfig_s=float(job.reconfig_s),
        prep_s=float(job.prep_s),
        extend=job.reconfig_rule == "extend",
        initial_saved=job.initial_saved,
        horizon_s=float(job.horizon_s),
        goal_steps=goal_steps,
        growth=growth.kernel_code,
    )


def fleet_numbers(process: Poisson | PerNode, on_demand: int = 0) -> Any:
    """The process as the kernel takes it.

    Parameters
    ----------
    process : with rates of the whole fleet, or of each node.
    on_demand : nodes that never vanish (default: 0).
    """
    from forerun.spot.engine import kernels

    if isinstance(process, PerNode):
        removal_per_s, add_per_s = process.removal_per_node_h / 3600.0, process.return_per_node_h / 3600.0
        removals = adds = np.array([1.0])
    else:
        removal_per_s, add_per_s = process.removals_per_min / 60.0, process.adds_per_min / 60.0
        removals, adds = process.removal_sizes(), process.add_sizes()
    return kernels.FleetNumbers(
        removal_per_s=removal_per_s,
        add_per_s=add_per_s,
        per_node=isinstance(process, PerNode),
        removal_cdf=np.cumsum(removals),
        add_cdf=np.cumsum(adds),
        start=process.start,
        cap=process.cap,
        on_demand=on_demand,
        hit_rate_per_s=hit_rates(process, removals),
    )


def _fleet_of_trial(fleet: Any, process: Poisson | PerNode, seed: int, trial: int) -> Any:
    """The numbers of a fleet with a trial's own rates. Growth rules know the fitted ones: these are as they were."""
    drawn = of_trial(process, seed, trial)
    if isinstance(drawn, PerNode):
        return fleet._replace(
            removal_per_s=drawn.removal_per_node_h / 3600.0, add_per_s=drawn.return_per_node_h / 3600.0
        )
    assert isinstance(drawn, Poisson)
    return fleet._replace(
        removal_per_s=drawn.removals_per_min / 60.0,
        add_per_s=drawn.adds_per_min / 60.0,
        removal_cdf=np.cumsum(drawn.removal_sizes()),
        add_cdf=np.cumsum(drawn.add_sizes()),
    )


def hit_rates(process: Poisson | PerNode, removals: NDArray[np.float64]) -> NDArray[np.float64]:
    """Rate of removals that hit an active node, by nodes alive and active: float64[cap + 1, cap + 1] a second.

    Nodes that fail on their own need one row only: a table of 12,500 nodes squared would be 1.2 GB.

    Parameters
    ----------
    removals : float64[k], probability that a removal takes 1 ... k nodes.
    """
    cap = process.cap
    if isinstance(process, PerNode):
        of_nodes: NDArray[np.float64] = np.arange(cap + 1.0)[None, :] * process.removal_per_node_h / 3600.0
        return of_nodes
    alive, active = np.arange(cap + 1)[:, None], np.arange(cap + 1)[None, :]
    outside = np.maximum(alive - active, 0)
    # spared(k): none of k victims is active; a batch that exceeds the fleet takes all of it.
    spared, total = np.ones((cap + 1, cap + 1)), np.zeros((cap + 1, cap + 1))
    for victims, share in enumerate(removals[:cap]):
        left = np.maximum(alive - victims, 1)
        spared = np.where(victims < alive, spared * np.maximum(outside - victims, 0) / left, spared)
        total += share * spared
    total += removals[cap:].sum() * spared
    rates: NDArray[np.float64] = process.removals_per_min / 60.0 * (1.0 - total)
    return rates


def run(
    job: TrainingJob,
    process: Poisson | PerNode,
    growth: GrowthRule,
    *,
    trials: int,
    seed: int = 0,
    goal_steps: int = -1,
    on_demand: int = 0,
    first_trial: int = 0,
) -> Trials:
    """Simulate independent histories in the kernel. Trial numbers name their random streams.

    Parameters
    ----------
    job, process, growth : what trains, on which fleet, and when it grows.
    trials : how many.
    seed : of all streams (default: 0); two runs with the same seed meet the same fleets, whatever their jobs and
        policies.
    goal_steps : steps to complete (default: -1: no goal).
    on_demand : nodes that never vanish (default: 0).
    first_trial : number of the first (default: 0).
    """
    from forerun.spot.engine import kernels

    key = np.uint64(stream_key(seed, "spot trials") & 0xFFFF_FFFF_FFFF_FFFF)
    out = np.empty((trials, len(kernels.COLUMNS)))
    numbers, fleet = job_numbers(job, growth, goal_steps), fleet_numbers(process, on_demand)
    if process.stretches is None:
        kernels.run_trials(numbers, fleet, key, first_trial, out)
    else:
        no_log = np.empty((0, 3))
        for trial, row in enumerate(out, first_trial):
            own = _fleet_of_trial(fleet, process, seed, trial)
            kernels.run_one_logged(numbers, own, key, trial, row, no_log)
    columns = {name: out[:, i] for i, name in enumerate(kernels.COLUMNS)}
    return Trials(columns, job.horizon_s, on_demand)


def run_scenario(scenario: Scenario, job: TrainingJob, *, trials: int, first_trial: int = 0) -> Trials:
    """Simulate trials of a scenario whose process and growth rule the kernel knows.

    Parameters
    ----------
    job : what trains.
    trials, first_trial : as in `run`.
    """
    assert isinstance(scenario.fleet, Poisson | PerNode)
    return run(
        job,
        scenario.fleet,
        scenario.growth,
        trials=trials,
        seed=scenario.seed,
        goal_steps=scenario.goal.steps or -1,
        on_demand=scenario.on_demand_nodes,
        first_trial=first_trial,
    )
