"""From a scenario that chooses what to hold by a deadline to its result: one history, or many with intervals."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from forerun.domains.spot.engine.deadline import Held
from forerun.domains.spot.engine.run import NOT_MODELLED, history, load_share, of_replays, outlook_of, why
from forerun.domains.spot.engine.trials import Estimate
from forerun.domains.spot.engine.zones import Terms, Zone, ZoneRun, run_zones
from forerun.domains.spot.inputs.prices import spot_price
from forerun.domains.spot.policies.on_demand import OnDemand
from forerun.domains.spot.scenario import Recorded, Scenario
from forerun.domains.spot.summary import tables
from forerun.result.run import Interval, Result
from forerun.result.stats import proportion_interval
from forerun.result.tables import Column, Table, TableSchema

HOME = "fleet"
"""The name of the scenario's own fleet among the zones."""

HOLDINGS = TableSchema(
    "holdings",
    (
        Column("held", "", "spot, on_demand or none"),
        Column("zone", "", "where, for spot"),
        Column("start_s", "s", "start"),
        Column("end_s", "s", "end, not included"),
    ),
    "what was held, one row a stretch",
)


def run_deadline_scenario(scenario: Scenario) -> Result:
    """Simulate a scenario with `deadline`."""
    return _many(scenario) if scenario.trials else _one(scenario)


def zone_run(scenario: Scenario, trial: int = 0) -> tuple[ZoneRun, list[str]]:
    """One history of every zone, and the job that chooses among them."""
    chosen = scenario.deadline
    assert chosen is not None
    record, horizon_s, notes = history(scenario, trial)
    zones = [Zone(HOME, record.fleet, spot_price(scenario.prices), outlook_of(scenario.fleet))]
    for i, zone in enumerate(scenario.zones):
        # Zones are independent: each draws from a seed of its own.
        beside = scenario.with_(fleet=zone.fleet, seed=scenario.seed + 1_000_003 * (i + 1))
        record, _, more = history(beside, trial)
        notes += [note for note in more if note not in notes]
        zones.append(Zone(zone.name, record.fleet, spot_price(zone), outlook_of(zone.fleet)))
    if all(isinstance(zone, Recorded) for zone in (scenario.fleet, *(z.fleet for z in scenario.zones))):
        notes.append("all zones are recordings on one clock, which begins with each file's own first row")
    done = run_zones(
        scenario.job.built(horizon_s),
        zones,
        _terms(scenario),
        chosen.rule,
        scenario.growth.build(),
        outlook_of(scenario.fleet),
    )
    return done, notes


def _terms(scenario: Scenario) -> Terms:
    """What a scenario wants, and what it can buy."""
    chosen, goal = scenario.deadline, scenario.goal
    assert chosen is not None
    return Terms(
        goal_steps=goal.steps,
        deadline_s=goal.deadline_s,
        tick_s=chosen.tick_s,
        on_demand_nodes=chosen.on_demand_nodes,
        on_demand_usd_per_h=scenario.prices.on_demand_usd_per_h,
        egress_usd=chosen.egress_usd,
        last_word=chosen.last_word,
        by_goodput=chosen.by_goodput,
    )


def _figures(done: ZoneRun, scenario: Scenario) -> dict[str, float]:
    """Flat figures of one run."""
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
        **{
            f"{line}_share": done.replay.wall_s[line] / end_s
            for line in ("useful", "stall", "lost", "reconfig", "idle", "inflight")
        },
    }


def on_demand_alone(scenario: Scenario) -> ZoneRun:
    """The job on on-demand nodes alone: the rule `on_demand`, with no zone to choose."""
    chosen = scenario.deadline
    assert chosen is not None
    return run_zones(
        # Nothing is lost, so it ends; perhaps after the scenario's horizon.
        scenario.job.built(math.inf),
        (),
        _terms(scenario),
        OnDemand(),
        scenario.growth.build(),
        outlook_of(scenario.fleet),
    )


def _against_on_demand(cost: Interval, alone: ZoneRun, scenario: Scenario) -> str:
    """Whether on-demand nodes alone would be cheaper, in a sentence; cost: of the run, low equal to high if exact."""
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


def _one(scenario: Scenario) -> Result:
    done, notes = zone_run(scenario)
    wall, nodes = dict(done.replay.wall_s), dict(done.replay.node_s)
    figures: dict[str, Any] = _figures(done, scenario)
    finished_s = done.replay.finished_s
    figures["met_deadline"] = bool(figures["met_deadline"])
    figures["finish_h"] = finished_s / 3600.0 if finished_s is not None else None
    alone = on_demand_alone(scenario)
    figures["all_on_demand_cost_usd"] = alone.cost_usd
    rows = [(h.held.value, h.zone, h.start_s, h.end_s) for h in done.holdings]
    return Result(
        scenario=scenario,
        summary=figures,
        tables={
            "ledger": tables.ledger_table(wall, nodes, done.replay.end_s, done.cost_usd),
            "spells": tables.spell_table(done.replay),
            "fleet": tables.fleet_table(done.replay),
            "holdings": Table.of_rows(HOLDINGS, rows),
        },
        ledgers=(
            tables.wall_ledger(wall, done.replay.end_s),
            tables.node_ledger(nodes, done.replay.alive_node_s),
            tables.goodput_ledger(wall, done.replay.end_s, load_share(scenario.job)),
        ),
        timeline=tables.timeline(done.replay, done.fleet),
        why=why({line: wall.get(line, 0.0) / done.replay.end_s for line in wall}, scenario)
        + _against_on_demand(Interval(done.cost_usd, done.cost_usd, method="exact"), alone, scenario),
        notes=(*notes, NOT_MODELLED),
        headline=(
            "finish_h",
            "met_deadline",
            "cost_usd",
            "all_on_demand_cost_usd",
            "spot_h",
            "on_demand_h",
            "moves",
        ),
        next_steps=("forerun simulate {scenario} --set trials=200",),
    )


def _many(scenario: Scenario) -> Result:
    runs = [zone_run(scenario, trial) for trial in range(scenario.trials)]
    rows = [_figures(done, scenario) for done, _ in runs]
    columns = {name: np.array([row[name] for row in rows], dtype=np.float64) for name in rows[0]}
    estimates = {name: Estimate.of(values) for name, values in columns.items()}
    summary: dict[str, Any] = {name: one.mean for name, one in estimates.items() if name != "met_deadline"}
    intervals = {
        name: Interval(one.mean - one.half95, one.mean + one.half95, method=f"normal, {one.trials} trials")
        for name, one in estimates.items()
        if name != "met_deadline" and one.trials > 1
    }
    in_time = int(columns["met_deadline"].sum())
    summary["done_by_deadline"] = in_time / len(rows)
    intervals["done_by_deadline"] = proportion_interval(in_time, len(rows), method="Wilson")
    alone = on_demand_alone(scenario)
    summary |= {"all_on_demand_cost_usd": alone.cost_usd, "trials": len(rows)}
    mean_usd = summary["cost_usd"]
    cost_usd = intervals.get("cost_usd", Interval(mean_usd, mean_usd, method="one history"))
    done = of_replays([one.replay for one, _ in runs], scenario)
    shown = runs[0][0]
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
        ledgers=(
            tables.wall_ledger(wall, summary["end_s"]),
            tables.node_ledger(nodes, sum(nodes.values())),
            tables.goodput_ledger(wall, summary["end_s"], load_share(scenario.job)),
        ),
        why=why({line: seconds / summary["end_s"] for line, seconds in wall.items()}, scenario)
        + _against_on_demand(cost_usd, alone, scenario),
        notes=(
            *runs[0][1],
            "the timeline, the fleet and the spells are of one generated history",
            NOT_MODELLED,
        ),
        intervals=intervals,
        headline=("done_by_deadline", "cost_usd", "all_on_demand_cost_usd", "spot_h", "on_demand_h", "moves"),
        next_steps=("forerun report RUN",),
    )


def _mean_lines(runs: Sequence[tuple[ZoneRun, list[str]]]) -> tuple[dict[str, float], dict[str, float]]:
    replays = [done.replay for done, _ in runs]
    wall = {line: float(np.mean([one.wall_s[line] for one in replays])) for line in replays[0].wall_s}
    nodes = {line: float(np.mean([one.node_s[line] for one in replays])) for line in replays[0].node_s}
    return wall, nodes
