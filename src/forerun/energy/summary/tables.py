"""What the result of a job records: its tables, ledgers and timeline."""

from __future__ import annotations

import heapq
import math
from collections.abc import Callable, Sequence
from operator import attrgetter
from typing import Final

import numpy as np

from forerun.core.result.ledger import Ledger
from forerun.core.result.tables import Column, Table, TableSchema
from forerun.core.result.timeline import Timeline
from forerun.energy.engine.simulation import Attempt, History
from forerun.energy.policy import Belief
from forerun.energy.policy.rules import KNOWN_BUGS
from forerun.energy.policy.view import AttemptOutcome, Expected, MeasuredLimits

ATTEMPTS: Final = TableSchema(
    "attempts",
    (
        Column("recurrence", "", "submission, from 0"),
        Column("attempt", "", "try of this submission, from 0"),
        Column("start_s", "s", "start; in a sequence runs follow each other, in a group as in its trace"),
        Column("end_s", "s", "end; in a group as in its trace"),
        Column("batch_size", "", "samples a step"),
        Column("power_limit_w", "W", "limit after profiling"),
        Column("epochs", "", "epochs run"),
        Column("energy_j", "J", "energy, times the runtime ratio in a group"),
        Column("time_s", "s", "training time, times the runtime ratio in a group"),
        Column("cost_j", "J", "eta * energy + (1 - eta) * max power * time, without the ratio"),
        Column("bound_j", "J", "cost above which it would have been stopped (nan: none)"),
        Column("reached", "", "whether the target was reached"),
        Column("ended_by", "", "reached, bound, max_epochs or never_ran"),
        Column("profiled", "", "whether its first epoch was split over limits"),
        Column("stage", "", "explore, sample, concurrent or retry"),
        Column("runtime_ratio", "", "length against the mean job of its data set"),
    ),
    "one run of the job, in the order in which the policy learned of it",
)
RECURRENCES: Final = TableSchema(
    "recurrences",
    (
        Column("recurrence", "", "submission, from 0"),
        Column("energy_j", "J", "energy of all its attempts"),
        Column("time_s", "s", "time of all its attempts"),
        Column("cost_j", "J", "cost of all its attempts"),
        Column("attempts", "", "runs it needed"),
        Column("batch_size", "", "batch size that reached"),
        Column("power_limit_w", "W", "limit that reached"),
        Column("regret_j", "J", "cost above the oracle's expected cost"),
        Column("regret_cum_j", "J", "regret so far"),
    ),
    "one submission of the job",
)
ARMS: Final = TableSchema(
    "arms",
    (
        Column("batch_size", "", "samples a step"),
        Column("mean_cost_j", "J", "mean of the belief about its cost"),
        Column("sd_j", "J", "standard deviation of that belief"),
        Column("observations", "", "costs it rests on"),
    ),
    "final beliefs of the batch size policy",
)
LIMITS: Final = TableSchema(
    "limits",
    (
        Column("batch_size", "", "samples a step"),
        Column("power_limit_w", "W", "limit profiled"),
        Column("power_w", "W", "average draw"),
        Column("epoch_s", "s", "time of an epoch"),
        Column("epoch_cost_j", "J", "cost of an epoch"),
        Column("kept", "", "whether this limit was chosen"),
    ),
    "what profiles have measured",
)
CONFIGURATIONS: Final = TableSchema(
    "configurations",
    (
        Column("batch_size", "", "samples a step"),
        Column("power_limit_w", "W", "limit"),
        Column("reach_share", "", "share of recorded paths that reach the target"),
        Column("time_s", "s", "expected time to the target"),
        Column("energy_j", "J", "expected energy to the target"),
        Column("cost_j", "J", "expected cost"),
    ),
    "what an oracle knows: every measured configuration",
)
MET: Final = TableSchema(
    "oddities",
    (
        Column("oddity", "", "its letter and number in the documentation"),
        Column("times", "", "how often the situation arose"),
        Column("meaning", "", "what it is"),
    ),
    "known bugs of the published simulator that this run met, whether reproduced or fixed",
)

CELLS: Final = ("profiling", "stopped early", "gave up", "exploration", "useful")
MEANINGS: Final = {
    "profiling": "first epochs that were split over power limits",
    "stopped early": "attempts stopped by their bound",
    "gave up": "attempts that ended at the epoch limit",
    "exploration": "attempts that reached the target at another batch size than the best known",
    "useful": "attempts that reached the target at the best batch size known",
}


def attempts_table(history: History) -> Table:
    """One row an attempt."""
    return Table.of_records(
        ATTEMPTS,
        history.attempts,
        batch_size="outcome.batch_size",
        power_limit_w="outcome.limit_w",
        epochs="outcome.epochs",
        energy_j=lambda line: line.outcome.energy_j * line.ratio,
        time_s=lambda line: line.outcome.time_s * line.ratio,
        cost_j="outcome.cost_j",
        bound_j=lambda line: line.outcome.bound_j if line.outcome.bound_j < math.inf else math.nan,
        reached="outcome.reached",
        ended_by="outcome.ended_by",
        profiled=lambda line: line.outcome.profiling_s > 0,
        runtime_ratio="ratio",
    )


def recurrences_table(attempts: Table, oracle_j: float) -> Table:
    """Sums over the attempts of each recurrence.

    attempts: the table of attempts. oracle_j: the oracle's expected cost [J], against which regret is counted (NaN:
    none).
    """
    of = attempts["recurrence"]
    n = int(of.max()) + 1 if len(of) else 0
    cost = np.bincount(of, attempts["cost_j"], n)
    reached = attempts["reached"].astype(bool)
    size, limit = np.zeros(n, np.int64), np.zeros(n)
    size[of[reached]] = attempts["batch_size"][reached]
    limit[of[reached]] = attempts["power_limit_w"][reached]
    return Table.of(
        RECURRENCES,
        recurrence=np.arange(n),
        energy_j=np.bincount(of, attempts["energy_j"], n),
        time_s=np.bincount(of, attempts["time_s"], n),
        cost_j=cost,
        attempts=np.bincount(of, minlength=n),
        batch_size=size,
        power_limit_w=limit,
        regret_j=cost - oracle_j,
        regret_cum_j=np.cumsum(cost - oracle_j),
    )


def configurations_table(points: tuple[Expected, ...]) -> Table:
    """Expected totals of every configuration."""
    return Table.of_records(CONFIGURATIONS, points, power_limit_w="limit_w", reach_share="reach")


def arms_table(beliefs: Sequence[Belief]) -> Table:
    """Final beliefs of a policy that has some; empty for others."""
    return Table.of_rows(ARMS, beliefs)


def limits_table(limits: Sequence[tuple[MeasuredLimits, float | None]], eta: float) -> Table:
    """What the policy's profiles measured, and which limit it chose; empty for policies that do not profile.

    limits: each profile with the limit chosen [W]. eta: weight of energy in costs.
    """
    return Table.of_parts(
        LIMITS,
        (
            {
                "batch_size": measured.batch_size,
                "power_limit_w": measured.limits_w,
                "power_w": measured.power_w,
                "epoch_s": measured.epoch_s,
                "epoch_cost_j": measured.epoch_cost_j(eta),
                "kept": [limit == chosen for limit in measured.limits_w],
            }
            for measured, chosen in limits
        ),
    )


def known_bugs_table(history: History) -> Table:
    """The known bugs that were met."""
    met = history.known_bugs
    return Table.of_rows(MET, [(name, met[name], text) for name, text in KNOWN_BUGS.items() if met[name]])


def ledgers(history: History) -> tuple[Ledger, Ledger]:
    """Where every joule and every second of every attempt went; first tries and retries apart."""
    names = [f"{cell} ({tried})" for tried in ("first try", "retry") for cell in CELLS]
    meanings = {name: MEANINGS[name.split(" (")[0]] for name in names}

    def ledger(name: str, unit: str, spent: Callable[[AttemptOutcome], tuple[float, float]]) -> Ledger:
        """A ledger of what all attempts took. spent: what one took in all, and in its profiling epoch."""
        parts: dict[str, list[float]] = {part: [] for part in names}
        whole = []
        for line in history.attempts:
            tried = "retry" if line.attempt else "first try"
            taken, first = (value * line.ratio for value in spent(line.outcome))
            parts[f"profiling ({tried})"].append(first)
            parts[f"{_cell(line)} ({tried})"].append(taken - first)
            whole.append(taken)
        sums = {part: math.fsum(values) for part, values in parts.items() if values}
        return Ledger(name, unit, math.fsum(whole), sums, meanings, tolerance=1e-12)

    return (
        ledger("energy", "J", attrgetter("energy_j", "profiling_j")),
        ledger("training time", "s", attrgetter("time_s", "profiling_s")),
    )


def _cell(line: Attempt) -> str:
    """The part of the ledgers that the epochs of an attempt belong to, profiling apart."""
    match line.outcome.ended_by:
        case "bound" | "never_ran":
            return "stopped early"
        case "max_epochs":
            return "gave up"
        case "reached":
            return "useful" if line.outcome.batch_size == line.incumbent else "exploration"


def slots_of(starts: Sequence[float], ends: Sequence[float]) -> list[int]:
    """The first slot that is free when a run starts, one a run; runs in any order."""
    order = sorted(range(len(starts)), key=lambda i: (starts[i], i))
    free: list[int] = []
    busy: list[tuple[float, int]] = []
    slot = [0] * len(order)
    slots = 0
    for i in order:
        while busy and busy[0][0] <= starts[i]:
            heapq.heappush(free, heapq.heappop(busy)[1])
        if free:
            slot[i] = heapq.heappop(free)
        else:
            slot[i], slots = slots, slots + 1
        heapq.heappush(busy, (ends[i], slot[i]))
    return slot


def timeline(history: History) -> Timeline:
    """One track a slot."""
    slot = slots_of([line.start_s for line in history.attempts], [line.end_s for line in history.attempts])
    states = ("explore", "sample", "concurrent", "retry")
    causes = ("reached", "bound", "max_epochs", "never_ran")
    lines = history.attempts
    return Timeline(
        entities=tuple(f"slot {number}" for number in range(max(slot, default=-1) + 1)),
        states=states,
        entity=np.array(slot, np.int64),
        state=np.array([states.index(line.stage) for line in lines], np.int64),
        from_s=np.array([line.start_s for line in lines]),
        to_s=np.array([line.end_s for line in lines]),
        causes=causes,
        cause=np.array([causes.index(line.outcome.ended_by) for line in lines], np.int64),
        label=np.array([f"b{line.outcome.batch_size} {line.outcome.limit_w:g} W" for line in lines], object),
    )
