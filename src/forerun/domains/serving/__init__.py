"""Inference pipelines: models as queues, batching replicas on some hardware, and a latency objective.

A *query* arrives from outside and passes through several models, the *stages* of a feed-forward graph. It enters a stage
when the last of the parents it takes has finished, so joins and merges of exclusive branches are one rule; edges may be
conditional, drawn with a probability or recorded. A stage is one first-in-first-out queue, R identical replicas and a
largest batch B; a batch of n takes s[n], measured. When a replica is idle the stage's *batching policy* decides whether
what is queued starts now. A query ends when its last stage ends; its latency is that instant minus its arrival, and it
*misses* if that is above the objective.

Time is float64 milliseconds. At one instant the order is: changes of the number of replicas, completions, arrivals,
starts; so results do not depend on how events are scheduled. The number of replicas changes as the scenario lists it, or
as a *tuner* decides, which is asked every control period and sees arrivals, and queues if it asks for them. The pipeline
is simulated stage by stage by compiled kernels, or event by event by a plain loop; where both apply they agree bit for
bit. `mode: compat` instead reproduces the semantics of an early InferLine notebook query by query. Not modelled: the
network between stages, failures, models that share a device.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from forerun.domains.serving.policy import batching_policies, tuner_policies
from forerun.domains.serving.scenario import Intervals, Scenario
from forerun.domains.serving.simulate import simulate
from forerun.registry import Registry
from forerun.study.objective import Objective

if TYPE_CHECKING:
    from forerun.result.run import Result
    from forerun.study.blocks import Units

__all__ = ["GIVEN", "OBJECTIVES", "POLICIES", "Scenario", "simulate", "units_of", "without_intervals"]

#: kinds of policy in this room
POLICIES: Final[dict[str, Registry[Any]]] = {"batching": batching_policies(), "tuner": tuner_policies()}

#: by what runs of this room are ranked, first the default
OBJECTIVES: Final = (
    Objective("attainment", "higher", "share of queries that meet every stated objective", 0.0, 1.0),
    Objective("latency_p99_ms", "lower", "P99 latency in ms"),
    Objective("cost_usd_per_h", "lower", "cost in $/h"),
)

#: the sections of a scenario that describe the environment: axes of a study in them are no choices
GIVEN: Final = ("trace", "prices_usd_per_h")


def without_intervals(scenario: Scenario) -> Scenario:
    """The scenario without the replications that its intervals need."""
    return scenario.with_(intervals=Intervals(replications=0, confidence=scenario.intervals.confidence))


def units_of(result: Result) -> Units | None:
    """The queries that the figures of a run are made of, for intervals over blocks of its trace; None if not kept."""
    import numpy as np

    from forerun.study.blocks import Units

    queries = result.tables.get("queries")
    if queries is None or not {"arrival_ms", "latency_ms", "missed"} <= set(queries.columns):
        return None
    missed, latency_ms = np.asarray(queries["missed"], np.float64), queries["latency_ms"]
    return Units(
        "queries",
        np.asarray(queries["arrival_ms"], np.float64) / 1e3,
        means={"attainment": 1.0 - missed, "latency_mean_ms": latency_ms},
        quantiles={f"latency_p{share}_ms": (latency_ms, share / 100) for share in (50, 95, 99)},
        totals={"misses": missed},
    )
