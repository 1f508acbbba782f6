"""The arithmetic of the papers beside ours: a job that restarts whenever one of its nodes fails.

All of it is about N nodes that fail on their own, a job that needs all of them, an interval of work between checkpoints, a
write that blocks training, and a restart.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

from forerun.spot.engine import trials
from forerun.spot.engine.closed_forms import effective_share, sync_best
from forerun.spot.engine.estimates import Estimate
from forerun.spot.engine.job import Checkpoints, TrainingJob
from forerun.spot.policies.immediate import Immediate
from forerun.spot.scenario.processes import PerNode

DAY_MIN = 1440.0
STEPS = 60
"""Steps of an interval in the simulation: the work of a step that fails is lost, so they must not be long."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Setting:
    """A job on a cluster.

    Parameters
    ----------
    nodes : that the job needs.
    failures_per_1000_node_days : of each node, Poisson.
    interval_min : of work between two checkpoints.
    restart_min : after a failure, until training goes on.
    write_min : for which a checkpoint blocks training (default: 0).
    """

    nodes: float
    failures_per_1000_node_days: float
    interval_min: float
    restart_min: float
    write_min: float = 0.0

    @property
    def rate_per_min(self) -> float:
        """Failures of the job, a minute."""
        return self.nodes * self.failures_per_1000_node_days / 1000 / DAY_MIN

    @property
    def mttf_h(self) -> float:
        """Mean hours between failures of the job."""
        return 1 / self.rate_per_min / 60

    @property
    def first_order(self) -> float:
        """The effective training time ratio as published: half an interval and a restart are lost by each failure.

        (1 - lambda (u0 + dt/2)) / (1 + w/dt), below zero where a failure costs more than the time to the next.
        """
        lost = self.rate_per_min * (self.restart_min + self.interval_min / 2)
        return (1 - lost) / (1 + self.write_min / self.interval_min)

    @property
    def exact(self) -> float:
        """The same without approximation: failures come during restarts and writes too, and several in an interval."""
        return effective_share(self.rate_per_min, self.interval_min, self.write_min, self.restart_min)

    def simulated(self, *, spares: int, repair_h: float, days: float = 54.0, count: int = 200) -> Estimate:
        """The share of time in retained steps by the Monte Carlo kernel of the spot domain.

        Parameters
        ----------
        spares : nodes beyond those of the job; they fail as well.
        repair_h : mean of the exponential time until a failed node is back.
        days : length of a trial (default: 54).
        count : trials (default: 200).
        """
        nodes = round(self.nodes)
        job = TrainingJob(
            depth=nodes,
            max_pipelines=1,
            step_s={nodes: self.interval_min * 60 / STEPS},
            reconfig_s=self.restart_min * 60,
            prep_s=0.0,
            write_s=self.write_min * 60,
            stall_s=0.0,
            horizon_s=days * 86_400,
            checkpoint=Checkpoints(rule="every_steps", steps=STEPS, write="sync"),
        )
        process = PerNode(
            removal_per_node_h=self.failures_per_1000_node_days / 24_000,
            return_per_node_h=1 / repair_h if repair_h else 0.0,
            start=nodes + spares,
            cap=nodes + spares,
        )
        return trials.run(job, process, Immediate(), trials=count).share("useful")

    def ample_spares(self, repair_h: float) -> int:
        """So many spares that the job does not wait for one: ten standard deviations above the mean under repair."""
        down = self.nodes * self.failures_per_1000_node_days * repair_h / 24_000
        return math.ceil(down + 10 * math.sqrt(down) + 10)


def best_interval_min(rate_per_min: float, write_min: float) -> float:
    """The interval with the largest exact ratio, whatever the restart; 0 where writes cost nothing."""
    return sync_best(1 / rate_per_min, write_min) if write_min else 0.0


def intervals_above(
    least: float, rate_per_min: float, write_min: float, restart_min: float
) -> tuple[float, float] | None:
    """The shortest and the longest interval (in minutes) whose exact ratio is `least` or more; None if there is none.

    The ratio falls on both sides of the best interval, so each end is a bisection.
    """

    def ratio(interval_min: float) -> float:
        return effective_share(rate_per_min, interval_min, write_min, restart_min)

    best = max(best_interval_min(rate_per_min, write_min), 1e-9)
    if ratio(best) < least:
        return None
    return _edge(ratio, least, best, 0.0), _edge(ratio, least, best, 1 / rate_per_min)


def _edge(ratio: Callable[[float], float], least: float, inside: float, outside: float) -> float:
    """Where the ratio crosses `least`, between a point that has it and one that has not."""
    for _ in range(100):
        middle = (inside + outside) / 2
        if ratio(middle) >= least:
            inside = middle
        else:
            outside = middle
    return inside
