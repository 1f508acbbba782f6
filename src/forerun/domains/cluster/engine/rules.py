"""A schedule at work in one run: a clock, and one method for each step of an instant."""

from __future__ import annotations

from enum import Enum
from typing import Any


class Step(Enum):
    """What can happen at one instant; each schedule has its own order of these steps."""

    ADVANCE = "work done since the last instant is counted"
    FINISH = "jobs that are done leave"
    ROUND = "a periodic slot, lease or tick begins"
    ARRIVE = "jobs are submitted"
    WAKE = "a wake-up that the policy asked for"
    DECIDE = "the policy decides, GPUs change hands, the event is recorded"
    CHARGE = "jobs pay for restarts and the clock looks ahead"


class Rules:
    """A schedule at work in one run: a clock, and one method for each step of an instant.

    order: the steps of an instant, in the order in which they happen. A method here does nothing; a schedule defines those
    of the steps in its `order`. `now_s` is the instant in seconds, whole seconds in schedules with an integer clock.
    """

    order: tuple[Step, ...] = ()

    def next_moment(self) -> float | None:
        """The next instant at which anything happens, None when the run is over."""
        raise NotImplementedError

    def advance(self, now_s: Any) -> None:
        """Count the work done since the last instant."""

    def finish(self, now_s: Any) -> None:
        """Let jobs that are done leave."""

    def on_round(self, now_s: Any) -> None:
        """Begin a slot, lease or tick, if one is due."""

    def arrive(self, now_s: Any) -> None:
        """Admit or refuse the jobs submitted by now."""

    def wake(self, now_s: Any) -> None:
        """Serve a wake-up that was asked for."""

    def decide(self, now_s: Any) -> None:
        """Decide which job has which GPUs, and record it."""

    def charge(self, now_s: Any) -> None:
        """Charge restarts and look ahead."""

    def stop_at_each_instant(self) -> None:
        """Advance one instant at a time from now on; called before the run where it is observed."""

    def flush(self) -> None:
        """Hand everything gathered to the record, so that it shows the run up to now."""
