"""The effective training time ratio of a job of other sizes, with the same failures of a node.

The closed form knows Poisson failures, spares enough, and one interval. The simulation has what the scenario has: spares
as a share of the nodes, repairs, classes, tiers, maintenance. A step lasts as long at any size.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Final

import msgspec
import numpy as np

from forerun.core.result.tables import Column, Table, TableSchema
from forerun.spot.engine.closed_forms import effective_share
from forerun.spot.engine.job import Checkpoints, Continuation, TrainingJob
from forerun.spot.engine.run import cluster_policy
from forerun.spot.inputs import Inputs
from forerun.spot.reserved.cluster import run_cluster
from forerun.spot.reserved.scenario import MOST_NODES, Cluster

SIZES = TableSchema(
    "sizes",
    (
        Column("gpus", "gpus", "GPUs of the job"),
        Column("setting", "", "interval between checkpoints, and restart"),
        Column("interval_s", "s", "between checkpoints"),
        Column("restart_s", "s", "from a failure until training goes on"),
        Column("ettr", "share", "effective training time ratio, by the closed form"),
    ),
    "the same failures of a node, other sizes: Poisson, spares enough",
)
SIMULATED_SIZES = TableSchema(
    "simulated_sizes",
    (
        Column("gpus", "gpus", "GPUs of the job"),
        Column("setting", "", "interval between checkpoints, and restart"),
        Column("spares", "nodes", "nodes that stand by, in proportion"),
        Column("trials", "", "histories"),
        Column("ettr", "share", "effective training time ratio, simulated"),
        Column("low", "share", "lower end of its 95 % interval"),
        Column("high", "share", "upper end"),
    ),
    "the same failures of a node, other sizes: with the scenario's spares, repairs, classes and tiers",
)
SETTINGS: Final = ((1.0, 1.0), (0.25, 1.0), (1.0, 0.25), (0.25, 0.25))
"""Shares of the scenario's interval and of its restart that the closed form has; the first and the last are simulated."""
SIMULATED: Final = 7
"""Sizes that are simulated, in geometric progression, beside the scenario's own."""
MOST_TRIALS, FEWEST_TRIALS = 100, 8
MOST_EVENTS: Final = 300_000
"""Failures, repairs and checkpoints of one simulated size over all trials: a tenth of a second or two."""


@dataclass(frozen=True, slots=True)
class _Setting:
    """An interval between checkpoints and a restart, as the closed form takes them.

    Parameters
    ----------
    interval, restart : shares of the scenario's.
    period_s : from checkpoint to checkpoint. restart_s: from a failure until training goes on, in the mean.
    """

    interval: float
    restart: float
    period_s: float
    restart_s: float

    @property
    def name(self) -> str:
        """In words."""
        return f"every {_minutes(self.period_s)}, restart {_minutes(self.restart_s)}"


def closed_form_sizes(inputs: Inputs) -> Table:
    """The ratio against the size, at the scenario's interval and restart and at a quarter of each, by the closed form.

    Silent corruption counts as a crash, a hang as a longer restart.
    """
    cluster, job = inputs.cluster, inputs.job
    step_s = job.step_s[job.depth * job.max_pipelines]
    blocked_s, hidden_s = job.checkpoint_s
    rate = cluster.job_failures_per_s / cluster.job_nodes
    rows = []
    for gpus in np.geomspace(*_range(cluster), 41):
        for setting in _settings(inputs):
            # Until it is durable, a write that runs beside training is as dangerous as a longer restart.
            ettr = effective_share(
                rate * gpus / cluster.gpus_per_node,
                max(step_s, setting.period_s - blocked_s),
                blocked_s,
                setting.restart_s + hidden_s,
            )
            rows.append((round(float(gpus)), setting.name, setting.period_s, setting.restart_s, ettr))
    return Table.of_rows(SIZES, rows)


def simulated_sizes(inputs: Inputs) -> Table:
    """The ratio at some sizes by Monte Carlo, with intervals; sizes that would take more than `MOST_EVENTS` are left out."""
    cluster, scenario = inputs.cluster, inputs.scenario
    rows: list[tuple[int, str, int, int, float, float, float]] = []
    if not cluster.failures:
        return Table.of_rows(SIMULATED_SIZES, rows)
    growth, going_on = cluster_policy(scenario)
    sizes = sorted(
        {cluster.gpus, *(round(float(gpus)) for gpus in np.geomspace(*_range(cluster), SIMULATED))}
    )
    settings = _settings(inputs)
    for setting in (settings[0], settings[-1]):
        for gpus in sizes:
            job = _job_of_size(inputs.job, gpus / cluster.gpus, setting.interval, setting.restart)
            other = _cluster_of_size(cluster, job, setting.restart)
            if other.nodes > MOST_NODES or any(one.group_nodes > other.nodes for one in other.failures):
                continue
            trials = min(MOST_TRIALS, int(MOST_EVENTS / (1 + _events(other, job))))
            if trials < FEWEST_TRIALS:
                continue
            ratio = run_cluster(
                job,
                other,
                growth,
                tuple(setting.restart * part for part in scenario.job.pause_parts_s),
                trials=trials,
                going_on=_shorter(going_on, setting.restart),
                seed=scenario.seed,
            ).ettr
            low, high = ratio.mean - ratio.half95, ratio.mean + ratio.half95
            rows.append((other.gpus, setting.name, other.spares, trials, ratio.mean, low, high))
    return Table.of_rows(SIMULATED_SIZES, rows)


def _range(cluster: Cluster) -> tuple[int, int]:
    """The fewest and the most GPUs that are drawn."""
    return max(cluster.gpus_per_node, 128), max(131_072, 2 * cluster.gpus)


def _settings(inputs: Inputs) -> tuple[_Setting, ...]:
    """The scenario's interval and restart, and a quarter of each; a hang is a longer restart."""
    cluster, job = inputs.cluster, inputs.job
    step_s = job.step_s[job.depth * job.max_pipelines]
    blocked_s, hidden_s = job.checkpoint_s
    interval_s = job.checkpoint.spacing_steps(step_s, blocked_s, hidden_s) * step_s
    rate = cluster.job_failures_per_s / cluster.job_nodes
    waited = math.fsum(cluster.per_node_s(one) * one.detection_s for one in cluster.failures)
    restart_s = job.reconfig_s + (waited / rate if rate else 0.0)
    return tuple(
        _Setting(interval, restart, interval * (interval_s + blocked_s), restart * restart_s)
        for interval, restart in SETTINGS
    )


def _job_of_size(job: TrainingJob, factor: float, interval: float, restart: float) -> TrainingJob:
    """The job with as many replicas, each of `factor` times the nodes, at shares of its interval and its restart."""
    depth = max(1, round(job.depth * factor))
    step_s = {
        depth * size // job.depth: seconds for size, seconds in job.step_s.items() if size % job.depth == 0
    }
    checkpoint = job.checkpoint
    if interval != 1:
        full_s = job.step_s[job.depth * job.max_pipelines]
        steps = checkpoint.spacing_steps(full_s, *job.checkpoint_s)
        rarer = max(1, round(steps * interval))
        checkpoint = Checkpoints(rule="every_steps", steps=rarer, write=checkpoint.write)
    tiers = tuple(
        msgspec.structs.replace(tier, load_s=restart * tier.load_s, every_s=interval * tier.every_s)
        for tier in job.tiers
    )
    return replace(
        job,
        depth=depth,
        step_s=step_s,
        checkpoint=checkpoint,
        reconfig_s=restart * job.reconfig_s,
        tiers=tiers,
    )


def _cluster_of_size(cluster: Cluster, job: TrainingJob, restart: float) -> Cluster:
    """The cluster of a job of another size: the same failures of a node, spares in proportion, detection `restart` times."""
    nodes = job.depth * job.max_pipelines
    failures = tuple(
        msgspec.structs.replace(
            one,
            detection_s=restart * one.detection_s,
            job_mtbf_s=one.job_mtbf_s * cluster.job_nodes / nodes,
        )
        for one in cluster.failures
    )
    return msgspec.structs.replace(
        cluster,
        gpus=nodes * cluster.gpus_per_node,
        spares=min(nodes, round(cluster.spares * nodes / cluster.job_nodes)),
        failures=failures,
    )


def _shorter(going_on: Continuation | None, restart: float) -> Continuation | None:
    """Replicas that go on after a share of their pause."""
    return None if going_on is None else replace(going_on, pause_s=restart * going_on.pause_s)


def _events(cluster: Cluster, job: TrainingJob) -> float:
    """What a trial costs: failures and repairs, and with tiers every checkpoint."""
    events = cluster.changes(job.horizon_s)
    if job.tiers:
        events += job.horizon_s / min(tier.every_s for tier in job.tiers)
    return events


def _minutes(seconds: float) -> str:
    return f"{seconds / 60:.3g} min"
