"""What a policy sees and what it decides: view, knobs, profiles of limits, and how attempts ended.

A *recurrence* is one submission of the job that must reach its target; an *attempt* is one run of it, and a
recurrence may need several. A *path* is one recorded training run: the epochs it took to the target, or never. A
*bound* is the cost above which an attempt is stopped. The cost of an attempt in joules is
`eta * energy + (1 - eta) * max_power * time`: eta 1 counts energy alone, eta 0 time alone.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from forerun.core.scenario.numbers import Count, Whole
from forerun.core.scenario.spec import Spec

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]
EndedBy = Literal["reached", "bound", "max_epochs", "never_ran"]


class Job(Spec, frozen=True, kw_only=True):
    """A training job that recurs.

    dataset, network, optimizer, target_metric: which rows of files with several jobs are meant (default: files of one job,
    which need no such columns). max_epochs: epochs after which an attempt has failed. default_batch_size: the team's own
    choice (default 0: it has none).
    """

    dataset: str = ""
    network: str = ""
    optimizer: str = ""
    target_metric: float = 0.0
    max_epochs: Count
    default_batch_size: Whole = 0

    def __str__(self) -> str:
        size = f",bs{self.default_batch_size}" if self.default_batch_size else ""
        return f"Job({self.dataset},{self.network},{self.optimizer},{self.target_metric}{size}~{self.max_epochs})"

    @property
    def workload(self) -> tuple[str, str, str]:
        """What the traces are keyed by, beside the batch size: dataset, network, optimizer."""
        return self.dataset, self.network, self.optimizer


@dataclass(frozen=True, slots=True)
class ProfileLimits:
    """A decision: split the first epoch over power limits and measure what each draws.

    limits_w: the limits, in the order in which they are measured [W].
    """

    limits_w: tuple[float, ...]


@dataclass(frozen=True, slots=True)
class MeasuredLimits:
    """What a profile measured of one batch size: one entry a limit, the highest first.

    batch_size: samples a step. limits_w: the limits [W]. power_w: mean draw [W]. epoch_s: time of an epoch [s].
    max_power_w: what a second is priced at when limits are compared [W].
    """

    batch_size: int
    limits_w: tuple[float, ...]
    power_w: tuple[float, ...]
    epoch_s: tuple[float, ...]
    max_power_w: float

    def epoch_cost_j(self, eta: float) -> list[float]:
        """Cost of one epoch at each limit [J]. eta: weight of energy against time."""
        rate = [(eta * power + (1 - eta) * self.max_power_w) for power in self.power_w]
        return [r * seconds for r, seconds in zip(rate, self.epoch_s)]


@dataclass(frozen=True, slots=True)
class Knobs:
    """A decision: how the attempt that starts is to train.

    batch_size: samples a step. limit: the power limit [W], or a profile of several to run first. bound_j: the cost that
    stops the attempt [J] (default None: the simulator's bound). exploring: whether the choice was made to learn, for the
    records only (default no).
    """

    batch_size: int
    limit: float | ProfileLimits
    bound_j: float | None = None
    exploring: bool = False


@dataclass(frozen=True, slots=True)
class AttemptOutcome:
    """How an attempt ended.

    batch_size, limit_w: what it ran at; of a profile, the limit that was chosen [W]. epochs: epochs run, a profiling epoch
    included. energy_j, time_s: what it took. cost_j: what it cost. observed_j: the cost that a policy learns, which
    differs for an attempt that never ran. bound_j: the bound it ran under (infinite: none). ended_by: why it ended.
    measured: what its profile measured, if it ran one. profiling_j, profiling_s: share of the profiling epoch.
    """

    batch_size: int
    limit_w: float
    epochs: int
    energy_j: float
    time_s: float
    cost_j: float
    observed_j: float
    bound_j: float
    ended_by: EndedBy
    measured: MeasuredLimits | None = None
    profiling_j: float = 0.0
    profiling_s: float = 0.0

    @property
    def reached(self) -> bool:
        """Whether the target was reached."""
        return self.ended_by == "reached"


@dataclass(slots=True)
class Standing:
    """What finished attempts say about one batch size.

    reached, failed: how many did. spent_j: cost of all of them [J].
    """

    reached: int = 0
    failed: int = 0
    spent_j: float = 0.0

    @property
    def mean_j(self) -> float:
        """Cost of a success: the cost of all attempts, those that failed too, over the number that reached.

        Infinite before the first success. Counting failures keeps one lucky run, which stops the runs after it, from
        looking cheap for ever.
        """
        return self.spent_j / self.reached if self.reached else float("inf")


@dataclass(frozen=True, slots=True)
class View:
    """What a policy may know when a submission is to start: no recorded path, no epoch count of a size that never ran.

    job: the job. sizes: batch sizes on offer, ascending. limits_w: measured limits a size, highest first [W]. eta: weight
    of energy against time. max_power_w: price of a second in costs [W]. recurrence, attempt: which one starts, from 0.
    in_flight: batch sizes running now. bound_j: the simulator's bound [J]. best: the simulator's best batch size so far.
    standing: counts and mean costs a size. finished: all outcomes so far, in the order learned.
    """

    job: Job
    sizes: tuple[int, ...]
    limits_w: dict[int, tuple[float, ...]]
    eta: float
    max_power_w: float
    recurrence: int
    attempt: int
    in_flight: tuple[int, ...]
    bound_j: float
    best: int
    standing: dict[int, Standing]
    finished: Sequence[AttemptOutcome]


@dataclass(frozen=True, slots=True)
class Expected:
    """Expected totals of one configuration over the recorded paths.

    batch_size, limit_w: the configuration. reach: share of its paths that reach the target. time_s, energy_j, cost_j: to
    the target, retries included; infinite if no path reaches.
    """

    batch_size: int
    limit_w: float
    reach: float
    time_s: float
    energy_j: float
    cost_j: float


@dataclass(frozen=True, slots=True)
class OracleView:
    """What only an oracle may know: the expected totals of every configuration (default: none)."""

    configurations: tuple[Expected, ...] = ()
