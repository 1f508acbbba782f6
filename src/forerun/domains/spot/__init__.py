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

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from forerun.domains.spot.policy import GrowthRule, RecoveryPolicy, recovery_policies
from forerun.domains.spot.scenario import Scenario

if TYPE_CHECKING:
    from forerun.registry import Registry
    from forerun.result.run import Result

__all__ = ["POLICIES", "Scenario", "simulate"]

POLICIES: Registry[RecoveryPolicy] = recovery_policies()


def simulate(
    scenario: Scenario, *, policy: RecoveryPolicy | GrowthRule | None = None, watch: Iterable[Any] = ()
) -> Result:
    """Run a scenario and return its result; `policy` replaces the scenario's recovery policy or growth rule.

    An observer in `watch` with a method `spell` is told of every stretch of the job's life, with `node_spell`
    of every stretch of a node's.  Raises TraceError for unusable traces.
    """
    from forerun.domains.spot.runs import run_scenario

    return run_scenario(scenario, policy=policy, watch=watch)
