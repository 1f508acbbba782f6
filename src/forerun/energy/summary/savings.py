"""What a run saves against the default configuration and costs over the oracle's."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Final

from forerun.energy.engine.batch import Attempts
from forerun.energy.inputs.workload import Workload
from forerun.energy.policy.view import Expected, Floats

#: recurrences at the end of a run, when a policy has learned
LAST: Final = 5
#: the summary figures of what is saved against the default, and which saving each is
SAVED: Final = {
    "energy_saved_percent": "energy",
    "time_saved_percent": "time",
    "energy_saved_last5_percent": "energy_last",
    "time_saved_last5_percent": "time_last",
}


@dataclass(frozen=True)
class Reference:
    """What a run is compared with: the default configuration and the oracle's, None where there is none."""

    default: Expected | None
    oracle: Expected | None


def reference(workload: Workload, eta: float) -> Reference:
    """What a run is compared with: the default configuration at its top limit, and the cheapest one that always reaches.

    eta: weight of energy against time.
    """
    points = workload.expected(eta)
    mine = [point for point in points if point.batch_size == workload.job.default_batch_size]
    certain = [point for point in points if point.reach == 1]
    default = max(mine, key=lambda point: point.limit_w) if mine else None
    if default is not None and default.reach == 0:
        default = None
    return Reference(default, min(certain, key=lambda point: point.cost_j) if certain else None)


@dataclass(frozen=True)
class Savings:
    """What a run saves and costs.

    energy, time: saved against the default configuration [%]; energy_last, time_last: in the last five recurrences.
    cost_ratio: cost over the oracle's. NaN where there is nothing to compare with.
    """

    energy: float
    time: float
    energy_last: float
    time_last: float
    cost_ratio: float


def savings(energy_j: Floats, time_s: Floats, cost_j: Floats, against: Reference) -> Savings:
    """Savings of a run.

    energy_j, time_s, cost_j: float64[recurrences], totals of each. against: what the run is compared with.
    """
    e0 = against.default.energy_j if against.default else math.nan
    t0 = against.default.time_s if against.default else math.nan
    c0 = against.oracle.cost_j if against.oracle else math.nan

    def saved(values: Floats, base: float) -> float:
        """Mean saving against a total of the default [%]."""
        return 100 * (1 - float(values.mean()) / base)

    return Savings(
        saved(energy_j, e0),
        saved(time_s, t0),
        saved(energy_j[-LAST:], e0),
        saved(time_s[-LAST:], t0),
        float(cost_j.mean()) / c0,
    )


def of_attempts(log: Attempts, recurrences: int, against: Reference) -> Savings:
    """Savings of one run given as columns. recurrences: how many there were."""
    totals = [log.per_recurrence(values, recurrences) for values in (log.energy_j, log.time_s, log.cost_j)]
    return savings(totals[0], totals[1], totals[2], against)
