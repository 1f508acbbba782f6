"""Training on preemptible instances: what preemptions cost, and what reduces the cost.

A job trains on pipelines of preemptible nodes, which vanish, return, and must be provisioned before they are usable. A
step is the same work on any number of pipelines; with more pipelines it is shorter. The job takes checkpoints, each of
which blocks training for a stall and becomes durable after a write. When a node in a pipeline vanishes, the job rolls back
to the last durable checkpoint, pauses to rebuild its pipelines from active and standby nodes, and continues; below one
pipeline it idles. Growing costs the same rollback and pause, so a growth rule decides when returning nodes join. Other
recovery policies (Bamboo's redundancy, Oobleck's templates, Varuna's checkpoints, Parcae's shapes) replace the rollback.
Every second of wall time and of node time is in a ledger that sums to the whole. One history is replayed event by event;
thousands of generated ones run in a compiled kernel with the same semantics. A planner chooses the checkpoint interval,
depth, growth rule, spares and on-demand nodes. Jobs with a deadline can rent spot nodes of several zones, on-demand nodes,
or nothing, as a deadline rule decides. On a reserved cluster nodes fail by classes and are repaired, failures may be noticed
late, and checkpoints may have several tiers; that has a kernel of its own.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from forerun.core.domain import Domain
from forerun.core.errors import UsageError
from forerun.core.registry import Registry
from forerun.core.result.objective import Objective
from forerun.spot.observer import Observer
from forerun.spot.policy import (
    DeadlineRule,
    deadline_rules,
    growth_rules,
    recovery_policies,
)
from forerun.spot.reserved.scenario import Cluster
from forerun.spot.scenario import Scenario

if TYPE_CHECKING:
    from forerun.core.result.figures import Figure
    from forerun.core.result.run import Result, SavedRun
    from forerun.core.trace.domain_traces import DomainTraces
    from forerun.spot.engine.run import Outcome
    from forerun.spot.explain import SpotExplainer
    from forerun.spot.inputs import Inputs
    from forerun.spot.plan import SpotPlanner


class Spot(Domain[Scenario, "Inputs", "Outcome"]):
    """The spot domain: see the module's docstring."""

    name = "spot"
    scenario_type = Scenario
    observer_type = Observer
    policy_kinds: Mapping[str, Registry[Any]] = {
        "recovery": recovery_policies(),
        "growth": growth_rules(),
        "deadline": deadline_rules(),
    }
    objectives = (
        Objective("samples_per_s", "higher", "throughput"),
        Objective("usd_per_million_samples", "lower", "cost of a million samples"),
        Objective("useful_share", "higher", "share of time that is useful", 0.0, 1.0),
    )
    environment = ("fleet", "prices")
    counts = ("finished_share",)

    def laws(self, policy: object) -> Sequence[Callable[[], None]]:
        """Those of recovery policies, growth rules and deadline rules."""
        from forerun.core.testing import laws_of
        from forerun.spot.testing import CONTRACTS

        return [
            law
            for base, contract in CONTRACTS.items()
            if isinstance(policy, base)
            for law in laws_of(contract, policy=policy)
        ]

    def prepare(self, scenario: Scenario) -> Inputs:
        """Read the fleets, the prices and the loader's profile."""
        from forerun.spot.inputs import prepare

        return prepare(scenario)

    def run(self, inputs: Inputs, *, observers: Sequence[Any] = ()) -> Outcome:
        """Simulate one history, many generated ones, or a job with a deadline."""
        from forerun.spot.engine.run import run

        return run(inputs, observers)

    def summarize(self, outcome: Outcome) -> Result:
        """The result, with its intervals where there are trials."""
        from forerun.spot.summary.summarize import summarize

        return summarize(outcome)

    def with_policy(self, scenario: Scenario, policy: object) -> Scenario:
        """The scenario under another recovery policy or growth rule, or with another deadline rule where it has one."""
        if isinstance(policy, DeadlineRule):
            if scenario.deadline is None:
                raise UsageError.at("policy", "a deadline rule needs a scenario with `deadline`")
            return scenario.with_(deadline=scenario.deadline.with_(rule=policy))
        return super().with_policy(scenario, policy)

    def left_out(self, figure: str, summary: Mapping[str, Any]) -> tuple[float, str]:
        """The trials that do not reach the goal: they cost what they cost until they are given up."""
        unfinished = 1.0 - summary.get("finished_share", 1.0) if figure == "cost_usd" else 0.0
        return unfinished, f"{100 * unfinished:.3g} % of the trials unfinished"

    def not_observable(self, scenario: Scenario) -> str:
        """Observers see one history replayed, not many trials or a run under a deadline."""
        if scenario.deadline is not None:
            return "a run under a deadline"
        if isinstance(scenario.fleet, Cluster):
            return "a run on a reserved cluster"
        return "a run of several random histories (`trials`)" if scenario.trials else ""

    def figures(self, run: Result | SavedRun) -> tuple[Figure, ...]:
        """The figures of a run."""
        from forerun.spot.figures import figures

        return figures(run)

    def plan_figures(self, plan: Mapping[str, Any], scenario: Mapping[str, Any]) -> tuple[Figure, ...]:
        """The figures of a plan file."""
        from forerun.spot.figures import plan_figures

        return plan_figures(plan, scenario)

    @property
    def planner(self) -> SpotPlanner:
        """What finds the best configuration."""
        from forerun.spot.plan import SpotPlanner

        return SpotPlanner()

    @property
    def explainer(self) -> SpotExplainer:
        """What explains a run."""
        from forerun.spot.explain import SpotExplainer

        return SpotExplainer()

    @property
    def traces(self) -> DomainTraces:
        """What generates, fits and describes traces."""
        from forerun.spot.traces.traces import TRACES

        return TRACES


DOMAIN = Spot()
