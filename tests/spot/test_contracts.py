"""Every registered recovery policy, growth rule and deadline rule obeys the laws of forerun.spot.testing; the laws catch
what breaks them.
"""

from __future__ import annotations

import zlib
from dataclasses import replace
from typing import Any

import pytest

from forerun.spot.engine.history import Replay
from forerun.spot.policies.restart import Restart
from forerun.spot.policy import (
    Absorb,
    DeadlineRule,
    DeadlineView,
    GrowthRule,
    GrowthView,
    Held,
    RecoveryPolicy,
    Setting,
    deadline_rules,
    growth_rules,
    recovery_policies,
)
from forerun.spot.testing import DeadlineContract, GrowthContract, RecoveryContract

from ..conftest import cases

#: random cases for each law; all that strangers' policies are tested on where FORERUN_CASES asks for as many
WORLDS = cases(20, 40)
IN_TIME = ("greedy", "on_demand", "uniform_progress")


def laws(contract: type[Any]) -> list[str]:
    return [name for name in dir(contract) if name.startswith("test_")]


def hold(contract: Any) -> None:
    for law in laws(type(contract)):
        getattr(contract, law)()


def broken(contract: Any) -> set[str]:
    """The laws that fail."""
    found = set()
    for law in laws(type(contract)):
        try:
            getattr(contract, law)()
        except AssertionError:
            found.add(law)
    return found


@pytest.mark.parametrize("name", recovery_policies().names())
def test_recovery_policies(name: str) -> None:
    class Laws(RecoveryContract):
        policy = recovery_policies().get(name)()
        worlds = WORLDS

    hold(Laws())


@pytest.mark.parametrize("name", growth_rules().names())
def test_growth_rules(name: str) -> None:
    class Laws(GrowthContract):
        policy = growth_rules().get(name)()
        worlds = WORLDS

    hold(Laws())


@pytest.mark.parametrize("name", deadline_rules().names())
def test_deadline_rules(name: str) -> None:
    class Laws(DeadlineContract):
        policy = deadline_rules().get(name)()
        keeps_deadlines = name in IN_TIME

    hold(Laws())


class Clairvoyant(RecoveryPolicy, frozen=True, kw_only=True, tag="clairvoyant"):
    """Takes nodes up by the number of changes to come: knows the future."""

    def replay(self, setting: Setting) -> Replay:
        even = len(setting.fleet.instants) % 2 == 0
        return Restart().replay(
            replace(setting, growth=growth_rules().get("immediate" if even else "lazy")())
        )


class Cook(RecoveryPolicy, frozen=True, kw_only=True, tag="cook"):
    """Calls lost time useful twice over."""

    def replay(self, setting: Setting) -> Replay:
        done = Restart().replay(setting)
        return replace(done, wall_s={**done.wall_s, "useful": done.wall_s["useful"] + done.wall_s["lost"]})


CALLS: list[float] = []


class Moody(GrowthRule, frozen=True, kw_only=True, tag="moody"):
    """Decides by how often it was ever asked."""

    def absorb(self, view: GrowthView) -> Absorb:
        CALLS.append(view.t_s)
        return Absorb.NOW if zlib.crc32(b"%d" % len(CALLS)) % 2 else Absorb.WAIT


class Late(DeadlineRule, frozen=True, kw_only=True, tag="late"):
    """Buys on-demand when half of the time to the deadline is gone."""

    def choose(self, view: DeadlineView) -> Held:
        if view.remaining_s <= 0:
            return Held.NONE
        return Held.ON_DEMAND if view.elapsed_s > view.job.deadline_s / 2 else Held.NONE


def test_contracts_catch_what_breaks_them() -> None:
    class Foresight(RecoveryContract):
        policy = Clairvoyant()
        worlds = WORLDS

    class Cooked(RecoveryContract):
        policy = Cook()
        worlds = WORLDS

    class Mood(GrowthContract):
        policy = Moody()
        worlds = WORLDS

    class TooLate(DeadlineContract):
        policy = Late()
        keeps_deadlines = True

    assert broken(Foresight()) == {"test_what_comes_later_changes_nothing_before"}
    assert broken(Cooked()) == {"test_the_ledgers_sum", "test_a_goal_ends_the_run_when_it_is_reached"}
    assert "test_the_same_case_gives_the_same_run" in broken(Mood())
    assert broken(TooLate()) == {"test_deadlines_are_kept_where_that_is_promised"}
