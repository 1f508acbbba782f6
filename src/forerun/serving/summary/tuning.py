"""What a tuner did, in a result: figures, decisions, traffic envelopes, and what every stage's replicas cost."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from forerun.core.result.ledger import Ledger
from forerun.core.result.run import Result
from forerun.serving.engine.outcome import Control, Outcome
from forerun.serving.scenario import Scenario
from forerun.serving.summary import tables
from forerun.serving.summary.totals import stage_costs_usd


def tuner_figures(scenario: Scenario, control: Control) -> dict[str, Any]:
    """Figures for the summary."""
    decisions, handover = control.schedule.decisions, control.handover
    planned = sum(price * count for price, count in zip(handover.prices_usd_per_h, handover.replicas))
    return {
        "tuner": scenario.tuner.__struct_config__.tag,
        "decisions": len(decisions),
        "decisions_up": sum(decision.action != "down" for decision in decisions),
        "planned_cost_usd_per_h": planned,
    }


def with_tuner(result: Result, outcome: Outcome) -> Result:
    """The result with decisions, envelopes, and what every stage's replicas cost."""
    inputs, control = outcome.inputs, outcome.control
    assert control is not None
    added = {"decisions": tables.decisions_table(inputs, control.schedule)}
    if len(control.handover.sample_ms):
        added["envelopes"] = tables.envelopes_table(control.handover, inputs.arrivals_ms)
    costs = dict(zip(inputs.pipeline.names, stage_costs_usd(outcome)))
    paid = Ledger("cost of replicas, from decision to decision", "usd", sum(costs.values()), costs)
    count, name = len(control.schedule.decisions), result.summary["tuner"]
    decided = f"the tuner {name} changed replicas {count} time{'s' * (count != 1)}"
    return replace(
        result,
        tables={**result.tables, **added},
        ledgers=(*result.ledgers, paid),
        why=f"{result.why}; {decided}" if result.why else decided,
        next_steps=("forerun compare {scenario} --with tuner=fixed --with tuner=" + str(name),),
    )
