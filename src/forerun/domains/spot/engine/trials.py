"""Many runs of one job on one random process: shares of time, time to finish and cost, each with an
interval.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from forerun.domains.spot.engine.estimates import Estimate, Quantile, quantile
from forerun.domains.spot.engine.history import WALL_LINES, Replay
from forerun.domains.spot.engine.job import TrainingJob
from forerun.domains.spot.policy import GrowthRule
from forerun.domains.spot.scenario.processes import PerNode, Poisson
from forerun.result.stats import proportion_interval
from forerun.rng import stream_key

if TYPE_CHECKING:
    from numpy.typing import NDArray


@dataclass(frozen=True, slots=True)
class Trials:
    """What happened in each of many trials.

    columns: float64[trials] by the names of `kernels.COLUMNS`.  spot_node_s, on_demand_node_s: node time paid
    for.
    """

    columns: dict[str, NDArray[np.float64]]
    horizon_s: float
    on_demand: int

    @classmethod
    def of_replays(cls, rows: Sequence[Replay], horizon_s: float, on_demand: int) -> Trials:
        """Histories replayed one by one, as the columns that the kernel would report."""
        columns: dict[str, Any] = {}
        for line in WALL_LINES:
            columns[f"{line}_s"] = np.array([row.wall_s.get(line, 0.0) for row in rows])
        for line in (*WALL_LINES, "standby", "prepping"):
            columns[f"{line}_node_s"] = np.array([row.node_s.get(line, 0.0) for row in rows])
        values: dict[str, list[float]] = {
            "steps_completed": [row.steps_completed for row in rows],
            "steps_durable": [row.steps_durable for row in rows],
            "reconfigs": [row.counts.reconfigs for row in rows],
            "reconfig_restarts": [row.counts.reconfig_restarts for row in rows],
            "rollbacks": [row.counts.rollbacks for row in rows],
            "removals": [row.counts.removed for row in rows],
            "adds": [row.counts.adds for row in rows],
            "end_s": [row.end_s for row in rows],
            "finished": [row.finished_s is not None for row in rows],
        }
        columns |= {name: np.array(column, dtype=np.float64) for name, column in values.items()}
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
        total: NDArray[np.float64] = (
            self.active_node_s + self.columns["standby_node_s"] + self.columns["prepping_node_s"]
        )
        return total

    def cost_usd(self, spot_usd_per_h: float, on_demand_usd_per_h: float) -> NDArray[np.float64]:
        """float64[trials]: what the nodes cost until the end of each trial."""
        steady_s = self.on_demand * self.columns["end_s"]
        cost: NDArray[np.float64] = (
            (self.alive_node_s - steady_s) * spot_usd_per_h + steady_s * on_demand_usd_per_h
        ) / 3600.0
        return cost

    @property
    def finish_s(self) -> NDArray[np.float64]:
        """float64[trials]: when the goal was reached; inf where it was not (censored, never dropped)."""
        return np.where(self.columns["finished"] > 0, self.columns["end_s"], np.inf)

    def quantile(self, values: NDArray[np.float64], share: float) -> Quantile:
        """The `share` quantile of one value a trial."""
        return quantile(values, share)

    def done_by(self, t_s: float) -> tuple[float, float, float]:
        """Probability that the goal is reached by `t_s`, with its 95 % Wilson interval."""
        hits = int((self.finish_s <= t_s).sum())
        interval = proportion_interval(hits, self.count)
        return hits / self.count, interval.low, interval.high


def job_numbers(job: TrainingJob, growth: GrowthRule, goal_steps: int = -1) -> Any:
    """The job as the kernel takes it."""
    from forerun.domains.spot.engine import kernels

    if growth.kernel_code < 0:
        raise ValueError(f"{type(growth).__name__} is a rule that only the exact simulator can follow")
    sizes = [pipelines * job.depth for pipelines in range(1, job.max_pipelines + 1)]
    sync = job.checkpoint.write == "sync"
    stall_s = job.stall_s + (job.write_s if sync else 0.0)
    hidden_s = 0.0 if sync else job.write_s
    rule = job.checkpoint
    return kernels.JobNumbers(
        depth=job.depth,
        max_pipelines=job.max_pipelines,
        step_s=np.array([1.0, *(job.step_s[size] for size in sizes)]),
        first_steps=np.array([1, *(rule.first_steps(job.step_s[size]) for size in sizes)]),
        spacing_steps=np.array(
            [1, *(rule.spacing_steps(job.step_s[size], stall_s, hidden_s) for size in sizes)]
        ),
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
    """The process as the kernel takes it."""
    from forerun.domains.spot.engine import kernels

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


def hit_rates(process: Poisson | PerNode, removals: NDArray[np.float64]) -> NDArray[np.float64]:
    """float64[cap + 1, cap + 1]: rate of removals that hit an active node, by nodes alive and active."""
    cap = process.cap
    rates = np.zeros((cap + 1, cap + 1))
    if isinstance(process, PerNode):
        return rates + np.arange(cap + 1)[None, :] * process.removal_per_node_h / 3600.0
    alive, active = np.arange(cap + 1)[:, None], np.arange(cap + 1)[None, :]
    outside = np.maximum(alive - active, 0)
    # spared(k): none of k victims is active; a batch that exceeds the fleet takes all of it.
    spared, total = np.ones((cap + 1, cap + 1)), np.zeros((cap + 1, cap + 1))
    for victims, share in enumerate(removals[:cap]):
        left = np.maximum(alive - victims, 1)
        spared = np.where(victims < alive, spared * np.maximum(outside - victims, 0) / left, spared)
        total += share * spared
    total += removals[cap:].sum() * spared
    rates[:] = process.removals_per_min / 60.0 * (1.0 - total)
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
    """Simulate `trials` independent histories; trial numbers name their random streams.

    Two runs with the same seed meet the same fleets, whatever their jobs and policies.
    """
    from forerun.domains.spot.engine import kernels

    key = np.uint64(stream_key(seed, "spot trials") & 0xFFFF_FFFF_FFFF_FFFF)
    out = np.empty((trials, len(kernels.COLUMNS)))
    kernels.run_trials(
        job_numbers(job, growth, goal_steps), fleet_numbers(process, on_demand), key, first_trial, out
    )
    columns = {name: out[:, i] for i, name in enumerate(kernels.COLUMNS)}
    return Trials(columns, job.horizon_s, on_demand)
