"""Other orders of what happens at one instant: submissions of a group before or after the attempts that end there."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from forerun.domain import Orders, Untied
from forerun.domains.energy.model import GroupRow
from forerun.domains.energy.scenario import Scenario
from forerun.rng import stream

if TYPE_CHECKING:
    from forerun.result.run import Result

#: a hair, in s: far below any attempt, far above the rounding of instants up to some years
HAIR_S = 1e-6


def orders(scenario: Scenario) -> Orders | Untied:
    """Submissions of a group that start together in another order, before or after what ends at their instant."""
    if scenario.group is None:
        return Untied("recurrences follow one another, so no two things happen at one instant")
    what = "submissions of one instant change places, and come before or after the attempts that end at it"
    return Orders(what, lambda number: simulate_in(scenario, number))


def simulate_in(scenario: Scenario, number: int) -> Result:
    """The scenario's result with its submissions in order `number`."""
    from forerun.domains.energy.runs import run_world
    from forerun.domains.energy.world import read_world

    world = read_world(scenario)
    return run_world(scenario, replace(world, rows=permuted(world.rows, scenario.seed, number)))


def permuted(rows: tuple[GroupRow, ...], seed: int, number: int) -> tuple[GroupRow, ...]:
    """The rows with each start moved by a hair or not at all, and those of one instant in another order.

    A submission keeps its length, so its end moves as its start does.
    """
    starts = np.array([row.start_s for row in rows])
    draws = stream(seed, "ties", number)
    _, group = np.unique(starts, return_inverse=True)
    shift = draws.integers(-1, 2, size=len(rows))[group] * HAIR_S
    within = -np.arange(len(rows)) if number == 0 else draws.random(len(rows))
    order = np.lexsort((within, starts + shift))
    return tuple(
        GroupRow(rows[at].start_s + shift[at], rows[at].end_s + shift[at], rows[at].runtime_ratio)
        for at in order.tolist()
    )
