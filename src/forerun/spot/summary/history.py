"""The result of one history."""

from __future__ import annotations

from typing import Any

from forerun.core.result.run import Result
from forerun.core.result.tables import Table
from forerun.spot.engine.run import HistoryOutcome
from forerun.spot.summary import tables
from forerun.spot.summary.costs import all_on_demand_usd_per_million_samples, history_usd
from forerun.spot.summary.words import NOT_MODELLED, SHARES, headline, next_steps, why


def summarize_history(outcome: HistoryOutcome) -> Result:
    """The result of one history."""
    scenario, done, price = outcome.inputs.scenario, outcome.replay, outcome.inputs.home.usd_per_h
    spot_usd, on_demand_usd = history_usd(outcome)
    cost_usd = spot_usd + on_demand_usd
    wall, nodes = dict(done.wall_s), dict(done.node_s)
    shown = {
        "ledger": tables.ledger_table(wall, nodes, done.end_s, cost_usd),
        "spells": tables.spell_table(done),
        **node_tables(outcome),
    }
    if scenario.prices.changes:
        shown["price"] = tables.price_table(price, done.end_s)
    return Result(
        scenario=scenario,
        summary=_figures(outcome, cost_usd, on_demand_usd),
        tables=shown,
        ledgers=tables.ledgers(wall, nodes, done.end_s, done.alive_node_s, scenario.job.load_share),
        timeline=tables.timeline(done, outcome.nodes),
        why=why({line: done.wall_s.get(line, 0.0) / done.end_s for line in SHARES}, scenario),
        notes=(*outcome.inputs.home.notes, NOT_MODELLED),
        headline=headline(scenario),
        next_steps=next_steps(scenario),
    )


def node_tables(outcome: HistoryOutcome) -> dict[str, Table]:
    """How many nodes were in which state, and what each of them was when; nothing for a fleet without nodes."""
    done = outcome.replay
    if not done.node_spells:
        return {}
    return {"fleet": tables.fleet_table(done), "lives": tables.life_table(done, outcome.nodes)}


def _figures(outcome: HistoryOutcome, cost_usd: float, on_demand_usd: float) -> dict[str, Any]:
    """Flat figures of the history, names with units."""
    scenario, done = outcome.inputs.scenario, outcome.replay
    samples = done.steps_completed * scenario.job.samples_per_step
    figures: dict[str, Any] = {
        "steps_completed": done.steps_completed,
        "steps_durable": done.steps_durable,
        "samples_per_s": samples / done.end_s,
        "cost_usd": cost_usd,
        "on_demand_cost_usd": on_demand_usd,
        "usd_per_million_samples": cost_usd / samples * 1e6 if samples else None,
        "all_on_demand_usd_per_million_samples": all_on_demand_usd_per_million_samples(outcome.inputs),
    }
    figures |= {f"{line}_share": done.wall_s.get(line, 0.0) / done.end_s for line in SHARES}
    figures["mean_nodes"] = done.alive_node_s / done.end_s
    for name in ("rollbacks", "reconfigs", "reconfig_restarts", "steps_lost"):
        figures[name] = getattr(done.counts, name)
    figures["idle_spells"] = sum(spell.state == "idle" for spell in done.spells)
    figures["end_s"] = done.end_s
    if scenario.goal.steps:
        figures["finish_h"] = done.finished_s / 3600.0 if done.finished_s is not None else None
    return figures
