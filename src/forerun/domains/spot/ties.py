"""Other orders of what happens at one instant: changes of the fleet before or after the job's own events."""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING

from forerun.domain import Orders, Untied
from forerun.domains.spot.engine.model import Instant, Membership
from forerun.domains.spot.scenario import Scenario
from forerun.rng import stream

if TYPE_CHECKING:
    from forerun.result.run import Result

#: a hair, in s: far below any step, far above the rounding of instants up to some years
HAIR_S = 1e-6


def orders(scenario: Scenario) -> Orders | Untied:
    """Changes of one history's fleet before or after steps and snapshots of their instant, losses and gains apart."""
    if scenario.trials:
        return Untied(
            "many drawn histories, whose instants coincide by chance only; `--set trials=0` has one, with other orders"
        )
    if scenario.deadline is not None:
        return Untied("the fleet is what the rule chose to hold, decided between the instants")
    what = "changes of the fleet come before or after what else is at their instant, losses and gains apart"
    return Orders(what, lambda number: simulate_in(scenario, number))


def simulate_in(scenario: Scenario, number: int) -> Result:
    """The scenario's one history with its ties broken in order `number`."""
    from forerun.domains.spot.engine.run import run_history

    return run_history(scenario, reorder=lambda fleet: permuted(fleet, scenario.seed, number))


def permuted(fleet: Membership, seed: int, number: int) -> Membership:
    """The fleet with each instant moved by a hair or not at all; what is lost and gained at one comes apart.

    The first instant stays: the fleet begins with it. In order 0 all gains follow their losses, in the others either
    may come first. A node that goes and comes at one instant keeps that order.
    """
    draws = stream(seed, "ties", number)
    moved: list[Instant] = []
    for at, instant in enumerate(fleet.instants):
        shift, gains_first = int(draws.integers(-1, 2)), bool(draws.random() < 0.5) and number > 0
        if at == 0:
            moved.append(instant)
            continue
        t_s = instant.t_s + shift * HAIR_S
        lost, gained = Instant(t_s, instant.removed, ()), Instant(t_s, (), instant.added)
        if not instant.removed or not instant.added:
            moved.append(Instant(t_s, instant.removed, instant.added))
        elif gains_first and not set(instant.removed) & set(instant.added):
            moved += [gained, Instant(t_s + HAIR_S, lost.removed, ())]
        else:
            moved += [lost, Instant(t_s + HAIR_S, (), gained.added)]
    if any(later.t_s <= earlier.t_s for earlier, later in itertools.pairwise(moved)):
        # Recorded instants closer than a few hairs have an order of their own, which is not ours to change.
        return fleet
    return Membership(tuple(moved), fleet.names)
