"""A scenario's run under its tuner: from the scenario to a schedule, and what a result tells of it."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from forerun.domains.serving import tables
from forerun.domains.serving.inputs import Inputs
from forerun.domains.serving.model import Run
from forerun.domains.serving.scenario import Scenario
from forerun.domains.serving.sizes import check_decisions
from forerun.domains.serving.summary import stage_costs_usd
from forerun.domains.serving.tuning.control import Schedule, run_sliced, schedule_first
from forerun.domains.serving.tuning.handover import Handover, handover_of
from forerun.errors import Problem, ScenarioError
from forerun.result.ledger import Ledger
from forerun.result.run import Result
from forerun.rng import stream


@dataclass(frozen=True)
class Control:
    """What a tuner did in a run, and the pipeline and sample that it was handed."""

    schedule: Schedule
    handover: Handover

    def figures(self, scenario: Scenario) -> dict[str, Any]:
        """Figures for the summary."""
        decisions = self.schedule.decisions
        planned = sum(p * k for p, k in zip(self.handover.prices_usd_per_h, self.handover.replicas))
        return {
            "tuner": scenario.tuner.__struct_config__.tag,
            "decisions": len(decisions),
            "decisions_up": sum(decision.action != "down" for decision in decisions),
            "planned_cost_usd_per_h": planned,
        }

    def presented(self, result: Result, inputs: Inputs, run: Run) -> Result:
        """The result with decisions, envelopes, and what every stage's replicas cost."""
        found = {"decisions": tables.decisions_table(inputs, self.schedule)}
        if len(self.handover.sample_ms):
            found["envelopes"] = tables.envelopes_table(self.handover, inputs.arrivals_ms)
        begin_ms, end_ms = float(inputs.arrivals_ms[0]), float(inputs.arrivals_ms[-1])
        costs = dict(zip(inputs.pipeline.names, stage_costs_usd(inputs, begin_ms, end_ms)))
        paid = Ledger("cost of replicas, from decision to decision", "usd", sum(costs.values()), costs)
        count, name = len(self.schedule.decisions), result.summary["tuner"]
        decided = f"the tuner {name} changed replicas {count} time{'s' * (count != 1)}"
        return replace(
            result,
            tables={**result.tables, **found},
            ledgers=(*result.ledgers, paid),
            why=f"{result.why}; {decided}" if result.why else decided,
            next_steps=("forerun compare {scenario} --with tuner=fixed --with tuner=" + str(name),),
        )


def controlled(scenario: Scenario, inputs: Inputs) -> tuple[Inputs, Control]:
    """Ask the scenario's tuner over the whole trace; the inputs with its changes of replicas.

    Raises ScenarioError where it must see queues that are known in an event loop only, PolicyError if it decides what is
    impossible.
    """
    tuner, handover = scenario.tuner, handover_of(scenario, inputs)
    check_decisions(float(inputs.arrivals_ms[-1]), tuner.period_s)
    policy = tuner.build(handover, stream(scenario.seed, "tuner"))
    if tuner.sees == "arrivals":
        schedule = schedule_first(tuner, policy, handover, inputs.arrivals_ms)
    else:
        from forerun.domains.serving.stagewise import reasons_against

        reasons = reasons_against(inputs.pipeline)
        if reasons:
            what = f"{tuner.__struct_config__.tag!r} sees queues, which are not known before the run here: {reasons[0]}"
            raise ScenarioError(Problem("$.tuner", what))
        schedule, _ = run_sliced(
            tuner, policy, handover, inputs.arrivals_ms, scenario.slo_ms, record="counts"
        )
    pipeline = schedule.applied(inputs.pipeline)
    return replace(inputs, pipeline=pipeline, paid=schedule.paid), Control(schedule, handover)
