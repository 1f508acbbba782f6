"""The nouns of the room: job, traces, rules, knobs, profile, outcome, view.

A *recurrence* is one submission of the job that must reach its target; an *attempt* is one run of it, and a
recurrence may need several. A *path* is one recorded training run: the epochs it took to the target, or never. A
*bound* is the cost above which an attempt is stopped. The cost of an attempt in joules is
`eta * energy + (1 - eta) * max_power * time`: eta 1 counts energy alone, eta 0 time alone.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final, Literal

import msgspec
import numpy as np
from numpy.typing import NDArray

from forerun.scenario.spec import Spec

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]
EndedBy = Literal["reached", "bound", "max_epochs", "never_ran"]
Mode = Literal["compat", "corrected"]

#: a submission may be attempted this often (the reference's limit)
MAX_TRIES: Final = 20


class Job(Spec, frozen=True, kw_only=True):
    """A training job that recurs. `default_batch_size` 0 means that the team has none.

    Of files with several jobs, `dataset`, `network`, `optimizer` and `target_metric` say which rows are meant; files of one
    job need no such columns.
    """

    dataset: str = ""
    network: str = ""
    optimizer: str = ""
    target_metric: float = 0.0
    max_epochs: int
    default_batch_size: int = 0

    def __str__(self) -> str:
        size = f",bs{self.default_batch_size}" if self.default_batch_size else ""
        return f"Job({self.dataset},{self.network},{self.optimizer},{self.target_metric}{size}~{self.max_epochs})"

    @property
    def workload(self) -> tuple[str, str, str]:
        """What the traces are keyed by, beside the batch size: dataset, network, optimizer."""
        return self.dataset, self.network, self.optimizer

    def problems(self) -> list[tuple[str, str]]:
        """Epochs and batch sizes are counts."""
        found = []
        if self.max_epochs < 1:
            found.append(
                ("max_epochs", f"{self.max_epochs} is below 1: an attempt must be allowed one epoch")
            )
        if self.default_batch_size < 0:
            found.append(("default_batch_size", f"{self.default_batch_size} is negative"))
        return found


def scaled_learning_rate(optimizer: str, rate: float, batch_size: int, reference_batch_size: int) -> float:
    """The learning rate for another batch size: square-root rule for adaptive methods, linear for SGD.

    Raises ValueError for an optimizer without a rule.
    """
    ratio = batch_size / reference_batch_size
    if optimizer in {"adam", "adamw", "adadelta"}:
        return rate * float(np.sqrt(ratio))
    if optimizer == "sgd":
        return rate * ratio
    raise ValueError(f"no learning rate rule for {optimizer!r}; known: adadelta, adam, adamw, sgd")


class Rules(Spec, frozen=True, kw_only=True):
    """Each oddity of the public reference simulator as a switch; true is the corrected behaviour.

    `Rules.of("compat")` has all off and replays the reference exactly, `Rules.of("corrected")` has all on.
    """

    never_ran_censored: bool = True  # B1
    retries_limited: bool = True  # B2
    best_by_mean: bool = True  # B3
    bound_tolerant: bool = True  # B4
    bound_by_mean: bool = True  # B5
    one_max_power: bool = True  # B6
    profiling_charged: bool = True  # B7
    window_pooled: bool = True  # B8
    duplicates_dropped: bool = True  # B14
    blame_what_ran: bool = True  # B16
    unmeasured_left_out: bool = True  # B17
    first_may_retry: bool = True  # B18
    least_by_attempt: bool = True  # B19
    censored_costs: bool = True  # B20
    profile_on_demand: bool = True  # B21
    pooled_variance: bool = True  # B22
    named_streams: bool = True  # paths and policies draw from streams of their own

    @classmethod
    def of(cls, mode: Mode) -> Rules:
        """All switches off (compat) or on (corrected)."""
        return cls(**dict.fromkeys(cls.__struct_fields__, mode == "corrected"))


#: what each oddity is, for the table of those that fired
ODDITIES: Final[dict[str, str]] = {
    "B1": "an attempt whose first epoch would have crossed its bound never ran",
    "B2": "a submission of a group used up 20 attempts",
    "B3": "the luckiest batch size differs from the one with the lowest mean cost, or was pruned",
    "B4": "a bound was an exact multiple of an epoch's cost, so that rounding decides one epoch",
    "B5": "the lowest single cost, not the lowest mean, bounds attempts",
    "B6": "the job's own top limit differs from the trace's",
    "B7": "a profiling epoch fell outside the bound, or was learned without having run",
    "B8": "a window left fewer than two observations for an arm",
    "B12": "a measured power exceeds its limit",
    "B14": "power rows are duplicated",
    "B16": "the first attempt failed at another batch size than the default",
    "B17": "a batch size has no rows for the target",
    "B18": "the first recurrence failed at first",
    "B19": "failed tries were added to the cost that sets the bound",
    "B20": "a stopped attempt's cost, which is only a lower limit, entered the beliefs",
    "B21": "a concurrent submission met a batch size without a known limit",
    "B22": "an arm's costs did not vary",
    "holes": "a batch size was not measured at all limits",
}


@dataclass(frozen=True, slots=True)
class Profile:
    """A decision: split the first epoch over these limits, in this order, and learn what each draws."""

    limits_w: tuple[float, ...]


@dataclass(frozen=True, slots=True)
class Measured:
    """What a profile found: mean power [W] and epoch time [s] of each limit, highest first.

    `max_power_w` is what a second is priced at when limits are compared.
    """

    batch_size: int
    limits_w: tuple[float, ...]
    power_w: tuple[float, ...]
    epoch_s: tuple[float, ...]
    max_power_w: float

    def epoch_cost_j(self, eta: float) -> list[float]:
        """Cost of one epoch at each limit [J]."""
        rate = [(eta * power + (1 - eta) * self.max_power_w) for power in self.power_w]
        return [r * seconds for r, seconds in zip(rate, self.epoch_s)]


@dataclass(frozen=True, slots=True)
class Knobs:
    """A decision: train at this batch size and limit, stopping above `bound_j` (None: the simulator's bound).

    `exploring` says that the choice was made to learn, for the records only.
    """

    batch_size: int
    limit: float | Profile
    bound_j: float | None = None
    exploring: bool = False


@dataclass(frozen=True, slots=True)
class Outcome:
    """How an attempt ended.

    `cost_j` is what it cost; `observed_j` what a learner is told, which differs for an attempt that never ran.
    `bound_j` is the bound it ran under (infinite without). `epochs` includes a profiling epoch, whose share of energy
    and time is `profiling_j`, `profiling_s`.
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
    measured: Measured | None = None
    profiling_j: float = 0.0
    profiling_s: float = 0.0

    @property
    def reached(self) -> bool:
        """Whether the target was reached."""
        return self.ended_by == "reached"


@dataclass(slots=True)
class Standing:
    """What finished attempts say about one batch size: how many reached and failed, and what all of them cost [J]."""

    reached: int = 0
    failed: int = 0
    spent_j: float = 0.0

    @property
    def mean_j(self) -> float:
        """Cost of a success: what all attempts have cost, those that failed too, over the number that reached.

        Infinite before the first success. Counting failures keeps one lucky run, which stops the runs after it, from
        looking cheap for ever.
        """
        return self.spent_j / self.reached if self.reached else float("inf")


@dataclass(frozen=True, slots=True)
class View:
    """What a policy may know when a submission is to start.

    `sizes` ascending; `limits_w` the limits on offer a size, highest first; `in_flight` batch sizes running now;
    `best` the simulator's idea of the best size; `standing` counts and mean costs a size; `finished` all outcomes so
    far in the order learned. It holds no recorded path and no epoch count of a size that was not run.
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
    finished: Sequence[Outcome]


@dataclass(frozen=True, slots=True)
class Expected:
    """Expected totals of one configuration over the recorded paths; `reach` is the share that reaches."""

    batch_size: int
    limit_w: float
    reach: float
    time_s: float
    energy_j: float
    cost_j: float


@dataclass(frozen=True, slots=True)
class OracleView:
    """What only an oracle may know: the expected totals of every configuration."""

    configurations: tuple[Expected, ...] = field(default=())


class GroupRow(msgspec.Struct, frozen=True):
    """One submission of a group: when it starts and ends in the trace, and its length against the mean job's."""

    start_s: float
    end_s: float
    runtime_ratio: float = 1.0
