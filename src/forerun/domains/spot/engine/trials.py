"""Many runs of one job on one random process: shares of time, time to finish and cost, each with an
interval.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from forerun.domains.spot.engine.model import Job
from forerun.domains.spot.engine.outlook import KnownHazard, KnownProcess
from forerun.domains.spot.policy import GrowthRule
from forerun.domains.spot.scenario.processes import PerNode, Poisson
from forerun.result.stats import normal_quantile, proportion_interval, quantile_interval, standard_error
from forerun.rng import stream_key

if TYPE_CHECKING:
    from numpy.typing import NDArray

BLOCK = 65_536
"""Trials whose rows are in memory at once; of more, their means and counts are kept (`runs`)."""


@dataclass(frozen=True, slots=True)
class Estimate:
    """A mean over independent trials and the half-width of its 95 % interval (normal approximation)."""

    mean: float
    half95: float
    trials: int

    @classmethod
    def of(cls, values: NDArray[np.float64]) -> Estimate:
        """The estimate from one value a trial."""
        half = normal_quantile(0.975) * standard_error(values)
        return cls(float(values.mean()), half, int(values.size))

    @classmethod
    def pooled(cls, parts: Sequence[Estimate]) -> Estimate:
        """The estimate of all trials together, from those of parts of them; that of the only part as it is."""
        if len(parts) == 1:
            return parts[0]
        count = sum(part.trials for part in parts)
        z = normal_quantile(0.975)
        mean = math.fsum(part.mean * part.trials for part in parts) / count
        within = math.fsum(
            (part.half95 / z) ** 2 * part.trials * (part.trials - 1) for part in parts if part.trials > 1
        )
        between = math.fsum(part.trials * (part.mean - mean) ** 2 for part in parts)
        return cls(mean, z * math.sqrt((within + between) / (count - 1) / count), count)

    def __str__(self) -> str:
        return f"{self.mean:.4g} ± {self.half95:.2g}"


@dataclass(frozen=True, slots=True)
class Quantile:
    """A quantile of the trials, with the 95 % interval that order statistics give; inf where censored."""

    share: float
    value: float
    low: float
    high: float


@dataclass(frozen=True, slots=True)
class Trials:
    """What happened in each of many trials.

    columns: float64[trials] by the names of `kernels.COLUMNS`.  spot_node_s, on_demand_node_s: node time paid
    for.
    """

    columns: dict[str, NDArray[np.float64]]
    horizon_s: float
    on_demand: int

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


def ratio_estimate(above: Any, below: Any) -> Estimate:
    """A ratio of means, with its interval by linearisation."""
    ratio = float(above.mean() / below.mean())
    rest = (above - ratio * below) / below.mean()
    return Estimate(ratio, Estimate.of(rest).half95, int(above.size))


def quantile(values: NDArray[np.float64], share: float) -> Quantile:
    """A quantile and its distribution-free 95 % interval: the order statistics that cover it."""
    ordered, n = np.sort(values), values.size
    interval = quantile_interval(ordered, share)
    at = (
        float(np.quantile(ordered, share))
        if np.isfinite(ordered[-1])
        else float(ordered[math.ceil(n * share) - 1])
    )
    return Quantile(share, at, interval.low, interval.high)


def job_numbers(job: Job, growth: GrowthRule, goal_steps: int = -1) -> Any:
    """The job as the kernel takes it."""
    from forerun.domains.spot.engine import kernels

    if growth.kernel_code < 0:
        raise ValueError(f"{type(growth).__name__} is a rule that only the exact simulator can follow")
    sizes = [pipelines * job.depth for pipelines in range(1, job.max_pipelines + 1)]
    sync = job.snapshot.write == "sync"
    stall_s = job.stall_s + (job.write_s if sync else 0.0)
    hidden_s = 0.0 if sync else job.write_s
    rule = job.snapshot
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
    for drawn, share in enumerate(removals[:cap]):
        left = np.maximum(alive - drawn, 1)
        spared = np.where(drawn < alive, spared * np.maximum(outside - drawn, 0) / left, spared)
        total += share * spared
    total += removals[cap:].sum() * spared
    rates[:] = process.removals_per_min / 60.0 * (1.0 - total)
    return rates


def outlook_of(process: Poisson | PerNode) -> KnownProcess | KnownHazard:
    """The same knowledge for the exact simulator."""
    if isinstance(process, PerNode):
        return KnownHazard(process.removal_per_node_h / 3600.0)
    sizes = process.removal_sizes()
    return KnownProcess(
        process.removals_per_min / 60.0, {n + 1: float(p) for n, p in enumerate(sizes) if p > 0}
    )


def run(
    job: Job,
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
