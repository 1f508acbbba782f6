"""The tables, ledgers and timeline of a result."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import numpy as np

from forerun.core.result.ledger import Ledger
from forerun.core.result.tables import Column, Table, TableSchema
from forerun.core.result.timeline import Timeline
from forerun.spot.engine.history import WALL_LINES, NodeSpell, Replay, Spell
from forerun.spot.engine.membership import Membership

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from forerun.core.trace.signal import Signal
    from forerun.spot.engine.trials import Trials
    from forerun.spot.engine.zones import ZoneRun
    from forerun.spot.summary.sensitivity import Elasticity

LINES = ("useful", "slowdown", "stall", "lost", "reconfig", "idle", "inflight", "standby", "prepping")
"""Ledger lines in the order in which they are shown; the last two are of nodes only."""

STATES = ("training", "reconfiguring", "idle", "active", "standby", "prepping")
"""States of the job, then of nodes, in the order in which they are shown."""

MEANINGS = {
    "useful": "time of steps that are not rolled back",
    "slowdown": "extra time of retained steps on doubled stages",
    "stall": "training blocked by checkpoints that are not rolled back",
    "lost": "time of work that was rolled back",
    "reconfig": "building pipelines, the load of the checkpoint included",
    "idle": "fewer usable nodes than one pipeline",
    "inflight": "the step that was running at the end",
    "standby": "usable nodes in no pipeline",
    "prepping": "nodes not yet usable",
}

GOODPUT_NAMES: Mapping[str, str] = {
    "useful": "PRODUCTIVE_TRAINING",
    "lost": "WASTED_PROGRESS_FROM_DISRUPTION",
    "reconfig": "INFRASTRUCTURE_RECOVERY_FROM_DISRUPTION",
    "load": "UNPRODUCTIVE_CHECKPOINT_RESTORE",
    "stall": "UNPRODUCTIVE_CHECKPOINT_SAVE",
}
"""Our ledger lines under the badput categories that Google's ML goodput library uses."""

LEDGER_COLUMNS = (
    Column("line", "", "where the time went"),
    Column("wall_s", "s", "wall time"),
    Column("share", "share", "share of wall time"),
    Column("node_s", "node_s", "node time"),
    Column("cost_usd", "usd", "what that node time cost"),
)
LEDGER = TableSchema(
    "ledger",
    (
        *LEDGER_COLUMNS,
        Column("goodput_name", "", "the same in the words of Google's ML goodput"),
    ),
    "where wall time, node time and money went",
)
SPELLS = TableSchema(
    "spells",
    (
        Column("state", "", "training, reconfiguring or idle"),
        Column("world_size", "nodes", "nodes in pipelines"),
        Column("start_s", "s", "start"),
        Column("end_s", "s", "end, not included"),
        Column("cause", "", "why it began"),
        Column("first_step", "", "index of its first step"),
        Column("steps_executed", "", "steps completed in it"),
        Column("steps_retained", "", "steps of it that were not rolled back"),
        Column("useful_s", "s", "time of retained steps"),
        Column("stall_s", "s", "time blocked by retained checkpoints"),
        Column("lost_s", "s", "time rolled back"),
    ),
    "what the job did, one row a stretch",
)
FLEET = TableSchema(
    "fleet",
    (
        Column("t_s", "s", "time of a change"),
        Column("active", "nodes", "in pipelines from then on"),
        Column("standby", "nodes", "usable, in no pipeline"),
        Column("prepping", "nodes", "not yet usable"),
    ),
    "how many nodes were in which state",
)
LIVES = TableSchema(
    "lives",
    (
        Column("node", "", "name of the node"),
        Column("state", "", "active, standby or prepping"),
        Column("start_s", "s", "start"),
        Column("end_s", "s", "end, not included"),
    ),
    "what each node was when, one row a stretch",
)
PRICE = TableSchema(
    "price",
    (
        Column("t_s", "s", "time of a change"),
        Column("usd_per_h", "usd/h", "price of a spot node from then on"),
    ),
    "what a spot node costs",
)
TRIALS = TableSchema(
    "trials",
    (
        Column("trial", "", "number of the trial"),
        Column("steps_completed", "", "steps complete at the end"),
        Column("end_s", "s", "end of the trial: the goal, or the horizon"),
        Column("finished", "", "whether the goal was reached"),
        Column("useful_share", "share", "share of wall time in retained steps"),
        Column("lost_share", "share", "share of wall time rolled back"),
        Column("reconfig_share", "share", "share of wall time in pauses"),
        Column("idle_share", "share", "share of wall time without a pipeline"),
        Column("cost_usd", "usd", "what the nodes cost"),
    ),
    "one row a trial",
)

LEVELS: Final = (0.5, 0.8, 0.9, 0.95)
"""Shares of trials between the ends of a row of `outcomes`."""

OUTCOMES = TableSchema(
    "outcomes",
    (
        Column("figure", "", "what of a trial"),
        Column("unit", "", "of the row"),
        Column("median", "", "half of the trials are below"),
        *(
            Column(f"{end}{100 * level:.0f}", "", f"{word} of the middle {100 * level:.0f} % of trials")
            for level in LEVELS
            for end, word in (("low", "lower end"), ("high", "upper end"))
        ),
    ),
    "one row a figure: how far single trials differ, and so what one run may bring",
)

SENSITIVITY = TableSchema(
    "sensitivity",
    (
        Column("assumption", "", "what is assumed"),
        Column("field", "", "where the scenario says it"),
        Column("value", "", "its value there (the smallest of several)"),
        Column("elasticity", "", "percent of samples a second for one percent of it"),
        Column("low", "", "lower end of the 95 % interval"),
        Column("high", "", "upper end"),
    ),
    "how much each assumption matters, by paired trials a tenth below and above",
)


HOLDINGS = TableSchema(
    "holdings",
    (
        Column("held", "", "spot, on_demand or none"),
        Column("zone", "", "where, for spot"),
        Column("start_s", "s", "start"),
        Column("end_s", "s", "end, not included"),
    ),
    "what was rented, one row a stretch",
)


def sensitivity_table(elasticities: Iterable[Elasticity]) -> Table:
    """Elasticities, the largest first."""
    return Table.of_records(
        SENSITIVITY,
        sorted(elasticities, key=lambda one: -abs(one.estimate.mean)),
        assumption="meaning",
        elasticity="estimate.mean",
        low="estimate.interval.low",
        high="estimate.interval.high",
    )


def ledgers(
    wall_s: Mapping[str, float],
    node_s: Mapping[str, float],
    end_s: float,
    alive_node_s: float,
    load_share: float,
) -> tuple[Ledger, Ledger, Ledger]:
    """Where wall time and node time went, and wall time under the names of Google's ML goodput.

    Parameters
    ----------
    wall_s, node_s : by line.
    end_s, alive_node_s : what they sum to.
    load_share : of pauses, which is loading the checkpoint.
    """
    split: dict[str, float] = {}
    for line, seconds in wall_s.items():
        if line == "reconfig":
            split["load"] = seconds * load_share
            seconds *= 1 - load_share
        split[line] = seconds
    goodput: dict[str, float] = {}
    for line, seconds in split.items():
        name = GOODPUT_NAMES.get(line, "OTHER")
        goodput[name] = goodput.get(name, 0.0) + seconds
    wall = {line: wall_s.get(line, 0.0) for line in LINES if line in WALL_LINES}
    nodes = {line: node_s.get(line, 0.0) for line in LINES if line != "idle"}
    return (
        Ledger("wall time", "s", end_s, wall, MEANINGS),
        Ledger("node time", "node_s", alive_node_s, nodes, MEANINGS),
        Ledger("goodput categories", "s", end_s, goodput),
    )


def ledger_table(
    wall_s: Mapping[str, float], node_s: Mapping[str, float], end_s: float, cost_usd: float
) -> Table:
    """The ledgers as a table, money split by node time.

    Parameters
    ----------
    wall_s, node_s : by line.
    end_s : to which the first sum.
    cost_usd : of all nodes.
    """
    wall, nodes = (np.array([spent.get(line, 0.0) for line in LINES]) for spent in (wall_s, node_s))
    alive = sum(node_s.values())
    return Table.of(
        LEDGER,
        line=np.array(LINES, object),
        wall_s=wall,
        share=wall / end_s if end_s else np.zeros(len(LINES)),
        node_s=nodes,
        cost_usd=cost_usd * nodes / alive if alive else np.zeros(len(LINES)),
        goodput_name=np.array([GOODPUT_NAMES.get(line, "OTHER") for line in LINES], object),
    )


def spell_table(done: Replay) -> Table:
    """What the job did."""
    return Table.of_records(
        SPELLS,
        done.spells,
        useful_s=lambda spell: spell.parts_s.get("useful", 0.0),
        stall_s=lambda spell: spell.parts_s.get("stall", 0.0),
        lost_s=lambda spell: spell.parts_s.get("lost", 0.0),
    )


def fleet_table(done: Replay) -> Table:
    """Nodes by state over time, a row for each instant at which a node changes its state."""
    changes: dict[float, list[int]] = {0.0: [0, 0, 0]}
    for spell in done.node_spells:
        at = STATES[3:].index(spell.state)
        changes.setdefault(spell.start_s, [0, 0, 0])[at] += 1
        changes.setdefault(spell.end_s, [0, 0, 0])[at] -= 1
    times = sorted(t_s for t_s in changes if t_s < done.end_s or t_s == 0.0)
    counts = np.cumsum([changes[t_s] for t_s in times], axis=0)
    return Table.of_rows(FLEET, [(t_s, *map(int, row)) for t_s, row in zip(times, counts, strict=True)])


def life_table(done: Replay, fleet: Membership) -> Table:
    """What each node was when; nodes in the order of their first stretch."""
    order = sorted(done.node_spells, key=lambda spell: (spell.start_s, spell.node))
    track = {node: i for i, node in enumerate(dict.fromkeys(spell.node for spell in order))}
    order.sort(key=lambda spell: (track[spell.node], spell.start_s))
    return Table.of_records(LIVES, order, node=lambda spell: fleet.names[spell.node])


def holdings_table(done: ZoneRun) -> Table:
    """What was rented, one row an interval of time."""
    return Table.of_records(HOLDINGS, done.holdings, held="held.value")


def price_table(price: Signal, end_s: float) -> Table:
    """The spot price from 0 to the end, one row a change."""
    seen = price.window(0.0, end_s)
    return Table.of(PRICE, t_s=seen.times_s, usd_per_h=seen.values)


def timeline(done: Replay, fleet: Membership) -> Timeline:
    """The job on the first track, then one track a node."""
    used = sorted({spell.node for spell in done.node_spells})
    track = {node: 1 + i for i, node in enumerate(used)}
    causes = tuple(sorted({spell.cause for spell in done.spells} | {""}))
    of_nodes = sorted(done.node_spells, key=lambda spell: (track[spell.node], spell.start_s))
    spells: list[Spell | NodeSpell] = [*done.spells, *of_nodes]
    return Timeline(
        entities=("job", *(fleet.names[node] for node in used)),
        states=STATES,
        entity=np.array([0] * len(done.spells) + [track[spell.node] for spell in of_nodes], dtype=np.int64),
        state=np.array([STATES.index(spell.state) for spell in spells], dtype=np.int64),
        from_s=np.array([spell.start_s for spell in spells], dtype=np.float64),
        to_s=np.array([spell.end_s for spell in spells], dtype=np.float64),
        causes=causes,
        cause=np.array(
            [causes.index(spell.cause) for spell in done.spells] + [causes.index("")] * len(of_nodes),
            dtype=np.int64,
        ),
        label=np.array(
            [f"{spell.world_size} nodes" for spell in done.spells] + [""] * len(of_nodes), dtype=object
        ),
        groups=("job", *("nodes" for _ in used)),
    )


def outcomes_table(done: Trials, samples_per_step: float, cost_usd: np.ndarray) -> Table:
    """Between which values the middle of the trials lies.

    Parameters
    ----------
    done : the trials.
    samples_per_step : of the job.
    cost_usd : float64[trials], what the nodes of each cost.
    """
    columns, end_s = done.columns, done.columns["end_s"]
    figures = {
        ("steps_completed", ""): columns["steps_completed"],
        ("samples_per_s", "1/s"): done.steps_per_s * samples_per_step,
        ("useful_share", "share"): columns["useful_s"] / end_s,
        ("mean_nodes", ""): done.alive_node_s / end_s,
        ("removals", ""): columns["removals"],
        ("cost_usd", "usd"): cost_usd,
    }
    at = {"median": 0.5} | {
        f"{end}{100 * level:.0f}": 0.5 + side * level / 2
        for level in LEVELS
        for end, side in (("low", -1), ("high", 1))
    }
    shares = list(at.values())
    values = np.array([np.quantile(each, shares, method="inverted_cdf") for each in figures.values()])
    return Table.of(
        OUTCOMES,
        figure=[figure for figure, _ in figures],
        unit=[unit for _, unit in figures],
        **dict(zip(at, values.T, strict=True)),
    )


def trial_table(done: Trials, cost_usd: np.ndarray) -> Table:
    """One row a trial.

    Parameters
    ----------
    done : the trials.
    cost_usd : float64[trials], what the nodes of each cost.
    """
    columns, end_s = done.columns, done.columns["end_s"]
    shares = {
        f"{line}_share": columns[f"{line}_s"] / end_s for line in ("useful", "lost", "reconfig", "idle")
    }
    return Table.of(
        TRIALS,
        trial=np.arange(done.count),
        steps_completed=columns["steps_completed"].astype(np.int64),
        end_s=end_s,
        finished=columns["finished"] > 0,
        cost_usd=cost_usd,
        **shares,
    )
