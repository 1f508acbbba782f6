"""A schedule at work: a clock, and one method for each step of an instant.

The same rules serve a simulation and real jobs. In a simulation they count work by their own model (`next_moment`, then
the steps of `order`). Over real jobs they are asked when they expect something (`expected_s`), are given what was
observed (`ended`, `observe`), and then take the same steps.
"""

from __future__ import annotations

import functools
import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Any, Final, Generic, Self, TypeVar

import numpy as np
import numpy.typing as npt

from forerun.cluster.inputs.arrays import BOOL, F64, I64
from forerun.cluster.inputs.setting import Setting

#: the type of a schedule's instants: whole seconds in schedules with an integer clock
InstantT = TypeVar("InstantT", int, float)
#: seconds that sums of work may be off by, through rounding
SLIP_S: Final = 1e-6


#: what has one element a job, along its last axis
Column = npt.NDArray[Any] | list[Any]


def longer(column: npt.NDArray[Any], count: int) -> npt.NDArray[Any]:
    """A copy with this many elements along its last axis, the new ones 0."""
    more = count - column.shape[-1]
    return np.pad(column, [(0, 0)] * (column.ndim - 1) + [(0, more)])


def whole_s(seconds: float) -> int:
    """The first whole second that is not before a time, but for rounding."""
    return math.ceil(seconds - SLIP_S)


class Step(Enum):
    """What can happen at one instant; each schedule has its own order of these steps."""

    ADVANCE = "work done since the last instant is counted"
    FINISH = "jobs that are done leave"
    ROUND = "a periodic slot, lease or tick begins"
    ARRIVE = "jobs are submitted"
    WAKE = "a wake-up that the policy asked for"
    DECIDE = "the policy decides, GPUs change hands, the event is recorded"
    CHARGE = "jobs pay for restarts and the clock looks ahead"


@dataclass(frozen=True, slots=True)
class Progress:
    """What has been observed of the jobs by an instant; arrays have one element a job of the setting.

    Parameters
    ----------
    left : float64[jobs], work left in the unit of `Rules.work`. A job that is faster or slower than its profile counts with
        what the profile would take for the time that it still needs.
    owed_s : float64[jobs], seconds that a job with GPUs is still expected to spend without working: a restart, or the time
        to its first step.
    ended_s : float64[jobs], when the job ended; nan while it has not.
    """

    left: F64
    owed_s: F64
    ended_s: F64

    def has_ended(self, rows: I64) -> np.ndarray[tuple[int], np.dtype[np.bool_]]:
        """Which of some jobs have ended."""
        return ~np.isnan(self.ended_s[rows])


class Rules(ABC, Generic[InstantT]):
    """A schedule at work in one run.

    A step here does nothing; a schedule defines those of the steps in its `order`. `now_s` is the instant in seconds.

    Attributes
    ----------
    order : the steps of an instant, in the order in which they happen.
    is_rigid : whether jobs have their GPUs for their durations.
    early_s : how much before its end a job may be noticed to have ended.
    credits_others : whether time that has passed counts as work of jobs that have GPUs now, not of those that had them.
    scales_in_slots : whether jobs work at the throughput of their GPUs, which change slot by slot.
    """

    order: tuple[Step, ...] = ()
    is_rigid: bool = False
    early_s: float = 0.0
    credits_others: bool = False
    scales_in_slots: bool = False

    @abstractmethod
    def next_moment(self) -> InstantT | None:
        """Go to the next instant at which anything happens; None when the run is over."""

    def play(self) -> InstantT | None:
        """Go to the next instant and take its steps; the instant, None when the run is over."""
        now_s = self.next_moment()
        if now_s is not None:
            for step in self.steps:
                step(now_s)
        return now_s

    def stop_at_each_instant(self) -> None:
        """Advance one instant at a time from now on; called before the run where it is observed."""

    def advance(self, now_s: InstantT) -> None:
        """Count the work done since the last instant."""

    def finish(self, now_s: InstantT) -> None:
        """Let jobs that are done leave."""

    def on_round(self, now_s: InstantT) -> None:
        """Begin a slot, lease or tick, if one is due."""

    def arrive(self, now_s: InstantT) -> None:
        """Admit or refuse the jobs submitted by now."""

    def wake(self, now_s: InstantT) -> None:
        """Serve a wake-up that was asked for."""

    def decide(self, now_s: InstantT) -> None:
        """Decide which job has which GPUs, and record it."""

    def charge(self, now_s: InstantT) -> None:
        """Charge restarts and look ahead."""

    def flush(self) -> None:
        """Hand everything gathered to the record, so that it shows the run up to now."""

    def close(self) -> None:
        """The run is over; called once, also where it ends in an error."""

    def faults(self) -> Sequence[str]:
        """What does not fit together in the rules' own account of GPUs; tests ask after every instant."""
        return ()

    @functools.cached_property
    def steps(self) -> list[Callable[[InstantT], None]]:
        """The methods of the steps of an instant, in their order."""
        named: dict[Step, Callable[[InstantT], None]] = {
            Step.ADVANCE: self.advance,
            Step.FINISH: self.finish,
            Step.ROUND: self.on_round,
            Step.ARRIVE: self.arrive,
            Step.WAKE: self.wake,
            Step.DECIDE: self.decide,
            Step.CHARGE: self.charge,
        }
        return [named[step] for step in self.order]


class ObservingRules(Rules[InstantT]):
    """Rules that also decide over real jobs, whose work they observe instead of counting it by their own model.

    Attributes
    ----------
    seen : what was observed by the present instant; None in a simulation.
    is_open : whether more jobs may always come, so that nothing rests on which are known to.
    """

    seen: Progress | None = None
    is_open: bool = False

    @abstractmethod
    def work(self) -> F64:
        """The work of each job as the schedule counts it: iterations, or seconds on the requested GPUs."""

    @abstractmethod
    def instant(self, now_s: float) -> InstantT:
        """The instant of the schedule's clock at a time in seconds."""

    @abstractmethod
    def pace(self, gpus: I64, now_s: float) -> tuple[F64, F64]:
        """What is expected of jobs with GPUs, just after the decision of an instant.

        Parameters
        ----------
        gpus : int64[jobs], GPUs of each job from now on.
        now_s : the instant.

        Returns
        -------
        Work a second in the unit of `work`, and seconds until the work begins, by job.
        """

    def planned_end_s(self, row: int) -> float | None:
        """When a job ends by the present plan; None where it has none."""
        return None

    def late_rows(self) -> Sequence[int]:
        """Jobs so far behind their plans that no plan is in time any more, of rules that promise ends."""
        return ()

    def slots(self, gpus: Mapping[int, int]) -> Mapping[int, tuple[int, ...]] | None:
        """The GPUs of each job that has some, by the rules' own placement (default None: they have none).

        Parameters
        ----------
        gpus : how many, by row.
        """
        return None

    @abstractmethod
    def expected_s(self) -> InstantT | None:
        """The next instant at which the rules expect anything, None if they expect nothing. Changes nothing."""

    @abstractmethod
    def ended(self, row: int, end_s: float) -> None:
        """Note that a job was observed to have ended, before the instant at which the rules act on it."""

    @abstractmethod
    def observe(self, now_s: InstantT, seen: Progress) -> None:
        """Go to an instant, in place of `next_moment`; the steps then take the work done from what was observed."""

    def open_up(self) -> None:
        """More jobs may always come; called before the run."""
        self.is_open = True

    @abstractmethod
    def columns(self) -> Sequence[Column]:
        """What the rules keep of each job."""

    @abstractmethod
    def grow(self, setting: Setting) -> None:
        """Grow the arrays for more jobs: a setting with more spare rows takes the place of the present one."""

    def take_in(self, row: int, alone: Self, setting: Setting) -> None:
        """A job takes a spare row, the first of them; it comes at its submission.

        Parameters
        ----------
        row : its row.
        alone : rules of this job alone, before their first instant.
        setting : with the job.
        """
        for mine, its in zip(self.columns(), alone.columns(), strict=True):
            if isinstance(mine, list):
                mine[row] = its[0]
            else:
                assert isinstance(its, np.ndarray)
                mine[..., row] = its[..., 0]

    def cancel(self, row: int, now_s: float) -> None:
        """A job is taken back: from the next decision on it has ended, whether it waits or runs."""
        self.ended(row, now_s)

    @abstractmethod
    def resize(self, setting: Setting, up: BOOL, lost: Sequence[int], now_s: float) -> None:
        """Other nodes offer GPUs from now on; the rules expect an instant as soon as they may act.

        Parameters
        ----------
        setting : with the nodes that are there now.
        up : which of them offer GPUs.
        lost : jobs that have lost theirs, and start again where they get others.
        now_s : when.
        """

    def act(self, now_s: float, seen: Progress) -> None:
        """Take the steps of an instant over real jobs, and bring the record up to date."""
        instant = self.instant(now_s)
        self.observe(instant, seen)
        for step in self.steps:
            step(instant)
        self.flush()


class WholeSecondRules(ObservingRules[int]):
    """Rules whose clock goes by whole seconds."""

    def instant(self, now_s: float) -> int:
        """The first whole second that is not before a time."""
        return whole_s(now_s)


#: rules with either kind of clock
AnyRules = Rules[int] | Rules[float]
#: of these, the ones that also decide over real jobs
AnyObservingRules = ObservingRules[int] | ObservingRules[float]
