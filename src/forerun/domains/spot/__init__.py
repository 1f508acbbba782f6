"""Training on instances that vanish: what preemptions cost, and what to do about them.

A job trains on pipelines of preemptible nodes, which vanish, return, and must be prepared before they are
usable. A step is the same work on any number of pipelines; more pipelines make it shorter. Every so often the
job snapshots itself: that blocks it for a stall, and becomes durable a write later. When a node in a pipeline
vanishes, the job rolls back to the last durable snapshot, pauses to rebuild its pipelines from active and
standby nodes, and goes on; below one pipeline it idles. Growing costs the same rollback and pause, so a
growth rule says when returning nodes are taken up. Other recoveries (Bamboo's redundancy, Oobleck's
templates, Varuna's checkpoints) replace the rollback. Every second of wall time and of node time stands in a
ledger that sums to the whole. One history is replayed exactly, event by event; thousands of generated ones
run through a compiled kernel with the same semantics. A planner chooses the snapshot interval, depth, growth
rule, spares and on-demand share; single jobs with a deadline have policies and a bound of their own.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from forerun.domains.spot.policy import deadline_rules, growth_rules, recovery_policies
from forerun.domains.spot.scenario import Scenario
from forerun.domains.spot.simulate import simulate
from forerun.study.objective import Objective

if TYPE_CHECKING:
    from forerun.registry import Registry

__all__ = ["GIVEN", "OBJECTIVES", "POLICIES", "Scenario", "simulate"]

POLICIES: dict[str, Registry[Any]] = {
    "recovery": recovery_policies(),
    "growth": growth_rules(),
    "deadline": deadline_rules(),
}
OBJECTIVES = (
    Objective("samples_per_s", "higher", "throughput"),
    Objective("usd_per_million_samples", "lower", "cost of a million samples"),
    Objective("useful_share", "higher", "share of time that is useful", 0.0, 1.0),
)

#: the sections of a scenario that describe the environment: axes of a study in them are no choices
GIVEN = ("fleet", "prices")
