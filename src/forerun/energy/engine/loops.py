"""How attempts follow each other: recurrences one after another, and groups whose submissions overlap."""

from __future__ import annotations

import heapq
import itertools
import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Final

from forerun.core.errors import Problem
from forerun.energy.engine.simulation import MAX_TRIES, Attempt, History, Simulation
from forerun.energy.inputs.workload import Submission
from forerun.energy.policy.failures import DefaultMissing, Livelock

#: what the published simulator charges an attempt that never ran, in bounds (known bug B1)
NEVER_RAN_PENALTY: Final = 100.0


def sequence(simulation: Simulation, recurrences: int) -> History:
    """Recurrences one after another; each ends with its first attempt that reaches the target.

    Raises DefaultDidNotReach, TriesExhausted, or what the policy raises.
    """
    rules, history, clock_s = simulation.rules, simulation.history, 0.0
    default = simulation.workload.job.default_batch_size
    for recurrence in range(recurrences):
        spent_j = 0.0
        for attempt in range(MAX_TRIES):
            incumbent = simulation.incumbent
            outcome, stage = simulation.start(simulation.view(recurrence, attempt))
            if outcome.ended_by == "never_ran" and not rules.never_ran_censored:
                penalty_j = (NEVER_RAN_PENALTY * simulation.beta) * simulation.least_j
                outcome = replace(outcome, observed_j=penalty_j)
            spent_j += outcome.cost_j
            simulation.learn(outcome)
            line = Attempt(recurrence, attempt, outcome, stage, incumbent, clock_s, clock_s + outcome.time_s)
            history.attempts.append(line)
            clock_s += outcome.time_s
            if outcome.reached:
                break
            if recurrence == 0 and outcome.ended_by != "never_ran":
                history.known_bugs["B18"] += 1
                history.known_bugs["B16"] += outcome.batch_size != default
                if not rules.first_may_retry:
                    raise simulation.failed_at_first(outcome, recurrence)
        else:
            raise simulation.exhausted(recurrence)
        history.known_bugs["B19"] += attempt > 0 and spent_j < simulation.least_j
        simulation.least_j = min(simulation.least_j, outcome.cost_j if rules.least_by_attempt else spent_j)
        history.known_bugs["B5"] += outcome.cost_j < simulation.standing[outcome.batch_size].mean_j
    return history


def group(simulation: Simulation, rows: Sequence[Submission]) -> History:
    """Submissions at the instants of a group trace, sorted by start; those that overlap do not wait for each other.

    The knobs of an attempt are chosen when it is launched, and the policy learns of it when it ends; ends come from the
    trace alone. A failed attempt is launched again at its end, for the same length. Raises Livelock or TriesExhausted
    where retries do not end, or what the policy raises.
    """
    if any(later.start_s < earlier.start_s for earlier, later in itertools.pairwise(rows)):
        raise AssertionError("group rows are sorted by their reader")
    flights: list[tuple[float, int, Attempt]] = []  # (end, launch number, attempt): a heap
    launched = reaped = 0
    patience = 1_000 + 100 * len(rows)
    if not simulation.best:
        raise DefaultMissing(
            Problem("$.job.default_batch_size", "a group starts from a default batch size; none is given")
        )

    def launch(recurrence: int, attempt: int, start_s: float, end_s: float, ratio: float) -> None:
        """Start an attempt: its outcome is computed now and learned at its end.

        recurrence, attempt: which one, from 0. start_s, end_s: when it runs [s]. ratio: its length over the mean job's.
        """
        nonlocal launched
        in_flight = tuple(flight.outcome.batch_size for _, _, flight in flights)
        incumbent = simulation.incumbent
        outcome, stage = simulation.start(simulation.view(recurrence, attempt, in_flight))
        if outcome.ended_by == "never_ran" and not simulation.rules.never_ran_censored:
            outcome = replace(outcome, observed_j=outcome.cost_j)
        line = Attempt(recurrence, attempt, outcome, stage, incumbent, start_s, end_s, ratio)
        heapq.heappush(flights, (end_s, launched, line))
        launched += 1

    def reap(now_s: float) -> None:
        """Let the policy learn from every attempt that has ended by now, and launch the failed ones again."""
        nonlocal reaped
        while flights and flights[0][0] <= now_s:
            end_s, _, line = heapq.heappop(flights)
            reaped += 1
            if reaped > patience:
                raise _livelock(simulation, line, reaped)
            simulation.learn(line.outcome)
            simulation.history.attempts.append(line)
            if line.outcome.reached:
                if line.outcome.cost_j < simulation.least_j:
                    simulation.least_j, simulation.best = line.outcome.cost_j, line.outcome.batch_size
                continue
            if line.attempt + 1 == MAX_TRIES:
                simulation.history.known_bugs["B2"] += 1
                if simulation.rules.retries_limited:
                    raise simulation.exhausted(line.recurrence)
            launch(line.recurrence, line.attempt + 1, end_s, end_s + (end_s - line.start_s), line.ratio)

    for recurrence, row in enumerate(rows):
        reap(row.start_s)
        launch(recurrence, 0, row.start_s, row.end_s, row.runtime_ratio)
    reap(math.inf)
    return simulation.history


def _livelock(simulation: Simulation, line: Attempt, reaped: int) -> Livelock:
    """The error for a group whose retries do not end, naming the size and the bound."""
    able = (
        ", ".join(str(size) for size, standing in simulation.standing.items() if standing.reached) or "none"
    )
    what = (
        f"{reaped} attempts and no end: batch size {line.outcome.batch_size} is retried under a bound of "
        f"{line.outcome.bound_j:g} J that it cannot meet; sizes that have reached the target: {able}"
    )
    return Livelock(Problem(f"{simulation.workload.job} recurrence {line.recurrence}", what))
