"""From a scenario that chooses what to hold by a deadline to its result: one history, or many with intervals."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from forerun.domains.spot import tables
from forerun.domains.spot.deadline import Held
from forerun.domains.spot.prices import spot_price
from forerun.domains.spot.runs import NOT_MODELLED, history, load_share, of_replays, outlook_of, why
from forerun.domains.spot.scenario import Recorded, Scenario
from forerun.domains.spot.trials import Estimate
from forerun.domains.spot.zones import Terms, Zone, ZoneRun, run_zones
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
    chosen, goal = scenario.deadline, scenario.goal
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
    terms = Terms(
        goal_steps=goal.steps,
        deadline_s=goal.deadline_s,
        tick_s=chosen.tick_s,
        on_demand_nodes=chosen.on_demand_nodes,
        on_demand_usd_per_h=scenario.prices.on_demand_usd_per_h,
        egress_usd=chosen.egress_usd,
        last_word=chosen.last_word,
        by_goodput=chosen.by_goodput,
    )
    done = run_zones(
        scenario.job.built(horizon_s),
        zones,
        terms,
        chosen.rule,
        scenario.growth.build(),
        outlook_of(scenario.fleet),
    )
    return done, notes


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


def all_on_demand_usd(scenario: Scenario) -> float:
    """What the job costs on on-demand nodes alone, without a loss."""
    job, chosen = scenario.job, scenario.deadline
    assert chosen is not None
    size = min(chosen.on_demand_nodes // job.depth, job.max_pipelines) * job.depth
    spacing = job.snapshots.built().spacing_steps(job.step_s[size], job.stall_s, job.write_s)
    seconds = scenario.goal.steps * (job.step_s[size] + job.stall_s / spacing)
    return seconds / 3600.0 * chosen.on_demand_nodes * scenario.prices.on_demand_usd_per_h


def _one(scenario: Scenario) -> Result:
    done, notes = zone_run(scenario)
    wall, nodes = dict(done.replay.wall_s), dict(done.replay.node_s)
    figures: dict[str, Any] = _figures(done, scenario)
    finished_s = done.replay.finished_s
    figures["met_deadline"] = bool(figures["met_deadline"])
    figures["finish_h"] = finished_s / 3600.0 if finished_s is not None else None
    figures["all_on_demand_cost_usd"] = all_on_demand_usd(scenario)
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
        why=why({line: wall.get(line, 0.0) / done.replay.end_s for line in wall}, scenario),
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
    summary |= {"all_on_demand_cost_usd": all_on_demand_usd(scenario), "trials": len(rows)}
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
        why=why({line: seconds / summary["end_s"] for line, seconds in wall.items()}, scenario),
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
