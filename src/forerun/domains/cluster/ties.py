"""Other orders of what happens at one instant: jobs of the same second in another order of rows."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from forerun.domain import Orders, Untied
from forerun.domains.cluster.model import I64, Jobs
from forerun.domains.cluster.scenario import Scenario
from forerun.rng import stream

if TYPE_CHECKING:
    from forerun.result.run import Result


def orders(scenario: Scenario) -> Orders | Untied:
    """Jobs submitted in the same second, as a log could have listed them.

    Completions and arrivals of one second are no tie: every schedule says which it takes first.
    """
    from forerun.domains.cluster.simulate import prepare

    submit = prepare(scenario).world.jobs.submit_s
    tied = int(np.count_nonzero(np.diff(submit) == 0))
    if not tied:
        return Untied(
            "no two jobs are submitted in the same second; completions and arrivals of one second follow the policy's rule"
        )
    what = f"the rows of jobs submitted in the same second change places ({tied} jobs follow another of their second)"
    return Orders(what, lambda number: simulate_in(scenario, number))


def simulate_in(scenario: Scenario, number: int) -> Result:
    """The scenario's result with the rows of each second in order `number`."""
    from forerun.domains.cluster.loop import run
    from forerun.domains.cluster.outcome import result_of
    from forerun.domains.cluster.record import Record
    from forerun.domains.cluster.simulate import prepare, rules_of

    prepared = prepare(scenario)
    world = replace(prepared.world, jobs=permuted(prepared.world.jobs, scenario.seed, number))
    record = Record(world)
    run(rules_of(scenario, world, record))
    return result_of(scenario, record, (*prepared.notes, *record.notes))


def permuted(jobs: Jobs, seed: int, number: int) -> Jobs:
    """The jobs with those of each second in another order: reversed in order 0, drawn in the others.

    A job keeps its id and all that is known of it; row numbers follow the new order, as if the log had it.
    """
    draw = stream(seed, "ties", number).random(len(jobs))
    within: I64 | np.ndarray[tuple[int], np.dtype[np.float64]]
    within = -np.arange(len(jobs)) if number == 0 else draw
    moved = jobs.take(np.lexsort((within, jobs.submit_s)))
    return replace(moved, file_row=np.arange(len(jobs)))
