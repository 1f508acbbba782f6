"""The result of a job that chooses what to rent by a deadline: one history, or many with intervals."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import numpy as np

from forerun.core.result.run import Result
from forerun.core.result.stats import Interval, proportion_interval
from forerun.spot.engine.estimates import Estimate
from forerun.spot.engine.run import DeadlineOutcome
from forerun.spot.engine.trials import Trials
from forerun.spot.engine.zones import ZoneRun
from forerun.spot.inputs import Inputs
from forerun.spot.policy import Held
from forerun.spot.scenario import Recorded, Scenario
from forerun.spot.summary import tables
from forerun.spot.summary.words import NOT_MODELLED, SHARES, why

_HEADLINE: Final = ("cost_usd", "all_on_demand_cost_usd", "spot_h", "on_demand_h", "moves")


def summarize_deadline(outcome: DeadlineOutcome) -> Result:
    """The result of a run with `deadline`."""
    return _many(outcome) if outcome.inputs.scenario.trials else _one(outcome)


def _figures(done: ZoneRun, scenario: Scenario) -> dict[str, float]:
    """Flat figures of one history."""
    end_s, finished_s = done.replay.end_s, done.replay.finished_s
    hours = {
        held: sum(h.end_s - h.start_s for h in done.holdings if h.held is held) / 3600.0 for held in Held
    }
    samples = done.replay.steps_completed * scenario.job.samples_per_step
    return {
        "cost_usd": done.cost_usd,
        "spot_cost_usd": done.spot_usd,
        "on_demand_cost_usd": done.on_demand_usd,
        "egress_cost_usd": done.egress_usd,
        "steps_completed": done.replay.steps_completed,
        "samples_per_s": samples / end_s,
        "met_deadline": float(finished_s is not None and finished_s <= scenario.goal.deadline_s),
        "spot_h": hours[Held.SPOT],
        "on_demand_h": hours[Held.ON_DEMAND],
        "nothing_held_h": hours[Held.NONE],
        "moves": done.moves,
        "end_s": end_s,
        **{f"{line}_share": done.replay.wall_s[line] / end_s for line in SHARES if line != "slowdown"},
    }


def _against_on_demand(cost: Interval, outcome: DeadlineOutcome) -> str:
    """Whether on-demand nodes alone would be cheaper, in a sentence.

    Parameters
    ----------
    cost : of the run in dollars; low equal to high if it is exact.
    outcome : with the run on on-demand nodes alone.
    """
    scenario, alone = outcome.inputs.scenario, outcome.alone
    finished_s, deadline_s = alone.replay.finished_s, scenario.goal.deadline_s
    name = f"on-demand nodes alone (${alone.cost_usd:,.2f})"
    if not scenario.prices.on_demand_usd_per_h:
        return ""
    if finished_s is None or finished_s > deadline_s:
        return f"; {name} would miss the deadline"
    if cost.low <= alone.cost_usd <= cost.high:
        return f"; {name} cost as much, as far as {scenario.trials or 'the'} histories show"
    middle = (cost.low + cost.high) / 2
    if alone.cost_usd < middle:
        return f"; {name} would be cheaper, by ${middle - alone.cost_usd:,.2f}: deadline.rule=on_demand"
    return f"; {name} would cost ${alone.cost_usd - middle:,.2f} more"


def _notes(inputs: Inputs) -> tuple[str, ...]:
    """What to know about the recordings, each listed once."""
    notes = dict.fromkeys(note for market in inputs.markets for note in market.notes)
    if all(isinstance(market.source, Recorded) for market in inputs.markets):
        notes["all zones are recordings on one clock, which begins with each file's own first row"] = None
    return tuple(notes)


def _one(outcome: DeadlineOutcome) -> Result:
    """The result of one history."""
    scenario, done = outcome.inputs.scenario, outcome.runs[0]
    wall, nodes, end_s = dict(done.replay.wall_s), dict(done.replay.node_s), done.replay.end_s
    figures: dict[str, Any] = _figures(done, scenario)
    finished_s = done.replay.finished_s
    figures["met_deadline"] = bool(figures["met_deadline"])
    figures["finish_h"] = finished_s / 3600.0 if finished_s is not None else None
    figures["all_on_demand_cost_usd"] = outcome.alone.cost_usd
    exact = Interval(done.cost_usd, done.cost_usd, method="exact")
    return Result(
        scenario=scenario,
        summary=figures,
        tables={
            "ledger": tables.ledger_table(wall, nodes, end_s, done.cost_usd),
            "spells": tables.spell_table(done.replay),
            "fleet": tables.fleet_table(done.replay),
            "holdings": tables.holdings_table(done),
        },
        ledgers=tables.ledgers(wall, nodes, end_s, done.replay.alive_node_s, scenario.job.load_share),
        timeline=tables.timeline(done.replay, done.fleet),
        why=why({line: wall.get(line, 0.0) / end_s for line in wall}, scenario)
        + _against_on_demand(exact, outcome),
        notes=(*_notes(outcome.inputs), NOT_MODELLED),
        headline=("finish_h", "met_deadline", *_HEADLINE),
        next_steps=("forerun simulate {scenario} --set trials=200",),
    )


def _many(outcome: DeadlineOutcome) -> Result:
    """The result of many histories: means with their intervals."""
    inputs, runs = outcome.inputs, outcome.runs
    scenario = inputs.scenario
    rows = [_figures(done, scenario) for done in runs]
    columns = {name: np.array([row[name] for row in rows], dtype=np.float64) for name in rows[0]}
    estimates = {name: Estimate.of(values) for name, values in columns.items() if name != "met_deadline"}
    summary: dict[str, Any] = {name: one.mean for name, one in estimates.items()}
    intervals = {name: one.interval for name, one in estimates.items() if one.trials > 1}
    in_time = int(columns["met_deadline"].sum())
    summary["done_by_deadline"] = in_time / len(rows)
    intervals["done_by_deadline"] = proportion_interval(in_time, len(rows), over="over the histories")
    summary |= {"all_on_demand_cost_usd": outcome.alone.cost_usd, "trials": len(rows)}
    mean_usd = summary["cost_usd"]
    cost_usd = intervals.get("cost_usd", Interval(mean_usd, mean_usd, method="one history"))
    done = Trials.of_replays([one.replay for one in runs], inputs.horizon_s, scenario.on_demand_nodes)
    shown = runs[0]
    wall, nodes = _mean_lines(runs)
    return Result(
        scenario=scenario,
        summary=summary,
        tables={
            "ledger": tables.ledger_table(wall, nodes, sum(wall.values()), summary["cost_usd"]),
            "trials": tables.trial_table(done, columns["cost_usd"]),
            "spells": tables.spell_table(shown.replay),
            "fleet": tables.fleet_table(shown.replay),
        },
        timeline=tables.timeline(shown.replay, shown.fleet),
        ledgers=tables.ledgers(wall, nodes, summary["end_s"], sum(nodes.values()), scenario.job.load_share),
        why=why({line: seconds / summary["end_s"] for line, seconds in wall.items()}, scenario)
        + _against_on_demand(cost_usd, outcome),
        notes=(
            *_notes(inputs),
            "the timeline, the fleet and the spells are of one generated history",
            NOT_MODELLED,
        ),
        intervals=intervals,
        headline=("done_by_deadline", *_HEADLINE),
        next_steps=("forerun report RUN",),
    )


def _mean_lines(runs: Sequence[ZoneRun]) -> tuple[dict[str, float], dict[str, float]]:
    """Mean seconds, and mean node-seconds, by ledger line."""
    replays = [done.replay for done in runs]
    wall = {line: float(np.mean([one.wall_s[line] for one in replays])) for line in replays[0].wall_s}
    nodes = {line: float(np.mean([one.node_s[line] for one in replays])) for line in replays[0].node_s}
    return wall, nodes
