"""What a policy is: two protocols.

A *schedule* is a published simulator's way of running the cluster, with its own clock and rules: it gives `Rules`.
An *allocator* is what a user writes: it sees a `View` and returns an `Allocation`; the room's own clock drives it.
Both are recipes: frozen parameters that a scenario names, building something fresh for each run.
"""

from __future__ import annotations

import functools
from enum import Enum
from typing import Any, ClassVar, Protocol

from forerun.domains.cluster.model import World
from forerun.domains.cluster.record import Record
from forerun.registry import Registry
from forerun.scenario.spec import Recipe


class Step(Enum):
    """Everything that can happen at one instant; each schedule has its own order of them."""

    ADVANCE = "work done since the last instant is counted"
    FINISH = "jobs that are done leave"
    ROUND = "a periodic slot, lease or tick begins"
    ARRIVE = "jobs are submitted"
    WAKE = "a wake-up that the policy asked for"
    DECIDE = "the policy decides, GPUs change hands, the event is recorded"
    CHARGE = "jobs pay for restarts and the clock looks ahead"


class Rules(Protocol):
    """A schedule at work: a clock and one method a step. `order` is data: the steps of an instant, as they come."""

    @property
    def order(self) -> tuple[Step, ...]:
        """The steps of an instant."""

    def next_moment(self) -> float | None:
        """The next instant at which anything happens, or None when the run is over."""

    def advance(self, now_s: Any) -> None:
        """Count the work done since the last instant."""

    def finish(self, now_s: Any) -> None:
        """Let jobs that are done leave."""

    def on_round(self, now_s: Any) -> None:
        """Begin a slot, lease or tick, if one is due."""

    def arrive(self, now_s: Any) -> None:
        """Take in or refuse the jobs submitted by now."""

    def wake(self, now_s: Any) -> None:
        """Serve a wake-up that was asked for."""

    def decide(self, now_s: Any) -> None:
        """Decide who holds what, and record it."""

    def charge(self, now_s: Any) -> None:
        """Charge restarts and look ahead."""


class QuietRules:
    """Steps that do nothing, for rules whose `order` leaves them out."""

    def advance(self, now_s: Any) -> None:
        """Nothing."""

    def finish(self, now_s: Any) -> None:
        """Nothing."""

    def on_round(self, now_s: Any) -> None:
        """Nothing."""

    def arrive(self, now_s: Any) -> None:
        """Nothing."""

    def wake(self, now_s: Any) -> None:
        """Nothing."""

    def decide(self, now_s: Any) -> None:
        """Nothing."""

    def charge(self, now_s: Any) -> None:
        """Nothing."""


class Policy(Recipe, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A scheduling policy by name. What it needs, promises and costs is told for the documentation."""

    paper: ClassVar[str] = ""
    needs: ClassVar[tuple[str, ...]] = ()
    guarantees: ClassVar[str] = ""
    cost: ClassVar[str] = ""


class Schedule(Policy, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A published schedule, with its own clock."""

    def rules(self, world: World, record: Record) -> Rules:
        """The schedule at work on a world, writing into a record."""
        raise AssertionError(f"{type(self).__name__} has no rules")


@functools.cache
def schedulers() -> Registry[Policy]:
    """All scheduling policies, built in and announced by plugins."""
    return Registry(
        "scheduling policy",
        package="forerun.domains.cluster.policies",
        base=Policy,
        group="forerun.cluster.policy",
    )
