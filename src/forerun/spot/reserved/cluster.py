"""Many runs of one job on a reserved cluster, in the kernel, with what each class of failures did."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from forerun.core.rng import stream_key
from forerun.spot.engine.estimates import Estimate, ratio_estimate
from forerun.spot.engine.job import Continuation, TrainingJob, whole_steps
from forerun.spot.engine.trials import job_numbers
from forerun.spot.policy import GrowthRule
from forerun.spot.reserved.scenario import (
    Cluster,
    Constant,
    Exponential,
    Failures,
    Hawkes,
    ModulatedPoisson,
)

if TYPE_CHECKING:
    from numpy.typing import NDArray

RANKS = {"process": 0, "gpu": 1, "node": 1, "group": 2}
"""What a failure takes, and what a tier of checkpoints survives, in order."""
LOG_ROWS = 200_000
"""Rows of the log of the trial that is shown."""


@dataclass(frozen=True, slots=True)
class ClusterTrials:
    """What happened in each of many trials.

    Parameters
    ----------
    columns : float64[trials] by the names of `cluster_kernel.COLUMNS`.
    by_class : float64[trials, classes + 2, 4], as `cluster_kernel.CLASS_COLUMNS`; growth and maintenance last.
    full_step_s : time of a step on all nodes of the job.
    """

    columns: dict[str, NDArray[np.float64]]
    by_class: NDArray[np.float64]
    full_step_s: float

    @property
    def count(self) -> int:
        """Number of trials."""
        return int(self.columns["end_s"].size)

    @property
    def ettr(self) -> Estimate:
        """Effective training time ratio: retained steps at the full size's speed, by wall time."""
        return ratio_estimate(self.columns["steps_completed"] * self.full_step_s, self.columns["end_s"])

    @property
    def steps_per_s(self) -> NDArray[np.float64]:
        """float64[trials]: steps complete at the end, a second."""
        return self.columns["steps_completed"] / self.columns["end_s"]

    @property
    def effective(self) -> NDArray[np.float64]:
        """float64[trials]: the ratio of each trial."""
        return self.columns["steps_completed"] * self.full_step_s / self.columns["end_s"]

    @property
    def finish_s(self) -> NDArray[np.float64]:
        """float64[trials]: when the goal was reached; inf where it was not."""
        return np.where(self.columns["finished"] > 0, self.columns["end_s"], np.inf)


def cluster_numbers(
    cluster: Cluster,
    job: TrainingJob,
    numbers_of_job: Any,
    parts_s: tuple[float, ...],
    going_on: Continuation | None,
) -> Any:
    """The cluster as the kernel takes it.

    Parameters
    ----------
    job, numbers_of_job : what trains, and the same as `job_numbers` has it.
    parts_s : of a restart: schedule, start, communicator, load.
    going_on : how replicas that are left go on without a restart; None if they do not.
    """
    from forerun.spot.reserved import cluster_kernel as kernel
    from forerun.spot.reserved.arrival_kernel import LAW_NUMBERS

    classes, nodes = cluster.failures, cluster.nodes
    arrivals = [_arrivals(cluster, one) for one in classes]
    repairs = [_repair(one) for one in classes]
    # Lemons are spread evenly over the numbers of nodes, so that job, spares and groups have their share.
    numbers = np.arange(nodes)
    is_lemon = np.floor((numbers + 1) * cluster.lemon_share) > np.floor(numbers * cluster.lemon_share)
    weight = np.where(is_lemon, cluster.lemon_factor, 1.0)
    planned = cluster.maintenance
    fast = job.tiers
    # Replicas that go on are a tier in front of all others, which takes no checkpoints.
    none = [0.0] if going_on else []
    never = [np.full(numbers_of_job.step_s.size, np.inf) for _ in none]
    every = [[whole_steps(tier.every_s, step_s) for step_s in numbers_of_job.step_s] for tier in fast]
    return kernel.ClusterNumbers(
        nodes=nodes,
        min_pipelines=job.min_pipelines,
        law=np.array([law for law, _ in arrivals], np.int64),
        law_numbers=np.array([numbers for _, numbers in arrivals], np.float64).reshape(-1, LAW_NUMBERS),
        takes=np.array(
            [kernel.PROCESS if one.takes == "process" else kernel.NODES for one in classes], np.int64
        ),
        group_nodes=np.array([max(1, one.group_nodes) for one in classes], np.int64),
        detection_s=np.array([one.detection_s for one in classes], np.float64),
        check_s=np.array([one.check_s for one in classes], np.float64),
        repair_law=np.array([law for law, _, _ in repairs], np.int64),
        repair_a=np.array([a for _, a, _ in repairs], np.float64),
        repair_b=np.array([b for _, _, b in repairs], np.float64),
        lemons=numbers[is_lemon],
        others=numbers[~is_lemon],
        lemon_share=float(weight[is_lemon].sum() / weight.sum()),
        parts_s=np.array(parts_s, np.float64),
        maintenance_every_s=planned.every_s if planned else 0.0,
        maintenance_s=planned.lasts_s if planned else 0.0,
        rank=np.array([RANKS[one.takes] for one in classes], np.int64),
        tier_first_steps=np.array([*never, *every, numbers_of_job.first_steps], np.float64),
        tier_every_steps=np.array([*never, *every, numbers_of_job.spacing_steps], np.float64),
        tier_stall_s=np.array([*none, *(tier.stall_s for tier in fast), numbers_of_job.stall_s], np.float64),
        tier_write_s=np.array(
            [*none, *(tier.write_s for tier in fast), numbers_of_job.hidden_write_s], np.float64
        ),
        tier_survives=np.array(
            [*(RANKS["group"] for _ in none), *(RANKS[tier.survives] for tier in fast), RANKS["group"]],
            np.int64,
        ),
        tier_load_s=np.array(
            [*([going_on.pause_s] if going_on else []), *(tier.load_s for tier in fast), parts_s[3]],
            np.float64,
        ),
        live_tolerates=going_on.tolerates if going_on else 0,
        live_rejoin_s=-1.0 if going_on is None or going_on.rejoin_s is None else going_on.rejoin_s,
    )


def _arrivals(cluster: Cluster, one: Failures) -> tuple[int, tuple[float, float, float, float]]:
    """The law of a class's failures in the whole cluster, and its numbers; all have the mean rate of the class."""
    from forerun.spot.reserved import arrival_kernel as kernel

    rate_per_s = cluster.per_node_s(one) * cluster.nodes
    match one.arrivals:
        case Hawkes(branching=branching, decay_s=decay_s) as law:
            base_per_s = rate_per_s * (1 - branching)
            return kernel.HAWKES, (base_per_s, branching / decay_s, 1 / decay_s, law.settled_s)
        case ModulatedPoisson() as law:
            rates = law.rates_per_s(rate_per_s)
            return kernel.MODULATED, (*rates, 1 / law.mean_calm_s, 1 / law.mean_storm_s)
        case None:
            # The mean of Weibull gaps is scale gamma(1 + 1/shape).
            scale_s = 1 / rate_per_s / math.gamma(1 + 1 / one.gap_shape)
            return kernel.RENEWAL, (scale_s, one.gap_shape, 0.0, 0.0)


def _repair(one: Failures) -> tuple[int, float, float]:
    """The law of the repair and its two numbers."""
    from forerun.spot.reserved import cluster_kernel as kernel

    match one.repair:
        case None:
            return kernel.CONSTANT, 0.0, 0.0
        case Constant(mean_s=mean_s):
            return kernel.CONSTANT, mean_s, 0.0
        case Exponential(mean_s=mean_s):
            return kernel.EXPONENTIAL, mean_s, 0.0
        case law:
            return kernel.LOGNORMAL, math.log(law.median_s), law.sigma


def run_cluster(
    job: TrainingJob,
    cluster: Cluster,
    growth: GrowthRule,
    parts_s: tuple[float, ...],
    *,
    trials: int,
    going_on: Continuation | None = None,
    seed: int = 0,
    goal_steps: int = -1,
    first_trial: int = 0,
) -> ClusterTrials:
    """Simulate independent histories. Trial numbers name their random streams.

    Parameters
    ----------
    job, cluster, growth, parts_s : what trains, on what, when it grows, and the parts of a restart.
    trials : how many.
    going_on : how replicas that are left go on without a restart (default: they do not).
    seed : of all streams (default: 0); runs with the same seed meet the same failures, whatever their jobs.
    goal_steps : steps to complete (default: -1: no goal).
    first_trial : number of the first (default: 0).
    """
    from forerun.spot.reserved import cluster_kernel as kernel

    out = np.empty((trials, len(kernel.COLUMNS)))
    by_class = np.empty((trials, len(cluster.failures) + 2, len(kernel.CLASS_COLUMNS)))
    numbers = job_numbers(job, growth, goal_steps, fewest=job.min_pipelines)
    kernel.run_cluster_trials(
        numbers,
        cluster_numbers(cluster, job, numbers, parts_s, going_on),
        _key(seed),
        first_trial,
        out,
        by_class,
    )
    columns = {name: out[:, i] for i, name in enumerate(kernel.COLUMNS)}
    return ClusterTrials(columns, by_class, job.step_s[job.depth * job.max_pipelines])


def logged_trial(
    job: TrainingJob,
    cluster: Cluster,
    growth: GrowthRule,
    parts_s: tuple[float, ...],
    *,
    going_on: Continuation | None = None,
    seed: int = 0,
    goal_steps: int = -1,
    trial: int = 0,
) -> tuple[NDArray[np.float64], NDArray[np.float64], NDArray[np.float64]]:
    """One trial with its log: (row of `COLUMNS`, by class, log). The parameters are those of `run_cluster`."""
    from forerun.spot.reserved import cluster_kernel as kernel

    out, log = np.empty(len(kernel.COLUMNS)), np.empty((LOG_ROWS, 4))
    by_class = np.empty((len(cluster.failures) + 2, len(kernel.CLASS_COLUMNS)))
    numbers = job_numbers(job, growth, goal_steps, fewest=job.min_pipelines)
    rows = kernel.run_one_cluster_logged(
        numbers,
        cluster_numbers(cluster, job, numbers, parts_s, going_on),
        _key(seed),
        trial,
        out,
        by_class,
        log,
    )
    return out, by_class, log[:rows]


def _key(seed: int) -> np.uint64:
    return np.uint64(stream_key(seed, "cluster trials") & 0xFFFF_FFFF_FFFF_FFFF)
