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

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from forerun.core.domain import Domain, Units
from forerun.core.registry import Registry
from forerun.core.result.objective import Objective
from forerun.serving.llm.policy.scheduling import Scheduler, scheduler_policies
from forerun.serving.observer import Observer
from forerun.serving.policy.batching import Batching, batching_policies
from forerun.serving.policy.tuning import tuner_policies
from forerun.serving.scenario import Intervals, Scenario

if TYPE_CHECKING:
    from forerun.core.result.figures import Figure
    from forerun.core.result.run import Result, SavedRun
    from forerun.serving.engine.outcome import Outcome
    from forerun.serving.explain import ServingExplainer
    from forerun.serving.inputs.inputs import Inputs
    from forerun.serving.plan import ServingPlanner


class Serving(Domain[Scenario, "Inputs", "Outcome"]):
    """See the module's docstring."""

    name = "serving"
    scenario_type = Scenario
    observer_type = Observer
    policy_kinds: Mapping[str, Registry[Any]] = {
        "batching": batching_policies(),
        "tuner": tuner_policies(),
        "scheduler": scheduler_policies(),
    }
    objectives = (
        Objective("attainment", "higher", "share of queries that meet every stated objective", 0.0, 1.0),
        Objective("latency_p99_ms", "lower", "P99 latency in ms"),
        Objective("cost_usd_per_h", "lower", "cost in $/h"),
    )
    environment = ("trace", "prices_usd_per_h")
    counts = ("refused",)

    def prepare(self, scenario: Scenario) -> Inputs:
        """See `forerun.serving.inputs.prepare`."""
        from forerun.serving.inputs.prepare import prepare

        return prepare(scenario)

    def run(self, inputs: Inputs, *, observers: Sequence[Observer] = ()) -> Outcome:
        """See `forerun.serving.engine.run`."""
        from forerun.serving.engine import run

        return run(inputs, observers)

    def summarize(self, outcome: Outcome) -> Result:
        """See `forerun.serving.summary.summarize`."""
        from forerun.serving.summary.summarize import summarize

        return summarize(outcome)

    def not_observable(self, scenario: Scenario) -> str:
        """Some modes are simulated by engines that show observers nothing."""
        from forerun.serving.engine import engine_of

        return engine_of(scenario).not_observable

    def with_policy(self, scenario: Scenario, policy: object) -> Scenario:
        """The scenario with another batching policy in every stage, another scheduler in every stage that serves a language
        model, or another tuner."""
        if isinstance(policy, Scheduler):
            stages = {
                name: placed if placed.llm is None else placed.with_(llm=placed.llm.with_(scheduler=policy))
                for name, placed in scenario.configuration.items()
            }
        elif isinstance(policy, Batching):
            stages = {name: placed.with_(batching=policy) for name, placed in scenario.configuration.items()}
        else:
            return super().with_policy(scenario, policy)
        return scenario.with_(configuration=stages)

    def without_intervals(self, scenario: Scenario) -> Scenario:
        """The scenario without the replications that its intervals need."""
        return scenario.with_(intervals=Intervals(replications=0, confidence=scenario.intervals.confidence))

    def left_out(self, figure: str, summary: Mapping[str, Any]) -> tuple[float, str]:
        """The requests that are refused: latencies are of the others."""
        refused = float(summary.get("refused", 0)) if figure.endswith("_ms") else 0.0
        return refused, f"{refused:,.4g} requests refused"

    def units(self, result: Result) -> Units | None:
        """The queries that the figures of a run are made of, for intervals over blocks of its trace; None: not recorded."""
        import numpy as np

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

    def figures(self, run: Result | SavedRun) -> tuple[Figure, ...]:
        """The figures of a run."""
        from forerun.serving.figures import figures

        return figures(run)

    def plan_figures(self, plan: Mapping[str, Any], scenario: Mapping[str, Any]) -> tuple[Figure, ...]:
        """The figures of a plan file."""
        from forerun.serving.figures.saved import plan_figures

        return plan_figures(plan, scenario)

    def measured_figures(self, measured: Mapping[str, Any]) -> tuple[Figure, ...]:
        """The figures of a measurement file."""
        from forerun.serving.figures.saved import measured_figures

        return measured_figures(measured)

    @property
    def planner(self) -> ServingPlanner:
        """What finds the best configuration."""
        from forerun.serving.plan import ServingPlanner

        return ServingPlanner()

    @property
    def explainer(self) -> ServingExplainer:
        """What explains a run."""
        from forerun.serving.explain import ServingExplainer

        return ServingExplainer()


DOMAIN = Serving()
