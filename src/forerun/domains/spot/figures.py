"""The figures of a run and of a plan, as data."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from forerun.domains.spot.summary.tables import LINES
from forerun.result.figures import Axis, Figure, Rule
from forerun.result.run import Result, SavedRun
from forerun.result.tables import Table

POINTS = 300
MOST_TRACKS = 40
"""Nodes that a picture of states shows; of more, only the job."""
STATES = ("training", "reconfiguring", "idle", "active", "standby", "prepping")


def figures(run: Result | SavedRun) -> tuple[Figure, ...]:
    """The figures that the run's tables allow, the most informative first."""
    pictures = [where_the_time_went(run.tables["ledger"])]
    if "fleet" in run.tables:
        pictures.append(fleet_over_time(run.tables["fleet"], _end_s(run)))
    if "spells" in run.tables and len(run.tables["spells"]):
        pictures.append(states_over_time(run.tables["spells"], run.tables.get("lives")))
    if "price" in run.tables:
        pictures.append(price_over_time(run.tables["price"], _end_s(run)))
    if "holdings" in run.tables:
        pictures.append(holdings(run.tables["holdings"]))
    if "spells" in run.tables:
        pictures.append(progress(run.tables["spells"]))
    if "sensitivity" in run.tables:
        pictures.append(what_matters(run.tables["sensitivity"]))
    if "trials" in run.tables:
        # Where most finish, most complete the goal's steps.
        if float(np.mean(run.tables["trials"]["finished"])) < 0.5:
            pictures.append(step_distribution(run.tables["trials"]))
        if bool(np.any(run.tables["trials"]["finished"])):
            pictures.append(time_to_finish(run.tables["trials"], _deadline_s(run)))
    return tuple(pictures)


def _deadline_s(run: Result | SavedRun) -> float:
    """The deadline of a run, fresh or read back; 0 without one."""
    if isinstance(run, Result):
        return float(run.scenario.goal.deadline_s)
    return float(run.scenario.get("goal", {}).get("deadline_s", 0.0))


def _end_s(run: Result | SavedRun) -> float:
    """When the history that is shown ends."""
    ends = run.tables["spells"]["end_s"] if "spells" in run.tables else np.empty(0)
    return float(ends.max()) if len(ends) else 0.0


def where_the_time_went(ledger: Table) -> Figure:
    """Shares of wall time and of node time, stacked."""
    names = [str(line) for line in ledger["line"]]
    wall, nodes = ledger["wall_s"], ledger["node_s"]
    data: dict[str, list[object]] = {"of": [], "line": [], "share": []}
    for label, values in (("wall time", wall), ("node time", nodes)):
        whole = float(values.sum()) or 1.0
        for name, value in zip(names, values.tolist(), strict=True):
            data["of"].append(label)
            data["line"].append(name)
            data["share"].append(value / whole)
    return Figure(
        id="where-the-time-went",
        title="Where the time went",
        kind="stacked_bar",
        x=Axis("of", "whole"),
        y=Axis("share", "share"),
        data=data,
        series="line",
        series_label="line",
        order=LINES,
        caption="Every second of the run, and every second of every node, is in exactly one part.",
    )


def fleet_over_time(fleet: Table, end_s: float) -> Figure:
    """Nodes by state over time, the last of them until the end."""
    data: dict[str, list[object]] = {"t_h": [], "nodes": [], "state": []}
    for state in ("active", "standby", "prepping"):
        times, nodes = (fleet["t_s"] / 3600.0).tolist(), fleet[state].tolist()
        if nodes and end_s / 3600.0 > times[-1]:
            times, nodes = [*times, end_s / 3600.0], [*nodes, nodes[-1]]
        data["t_h"] += times
        data["nodes"] += nodes
        data["state"] += [state] * len(nodes)
    return Figure(
        id="fleet",
        title="The fleet",
        kind="step",
        x=Axis("t_h", "time", "h"),
        y=Axis("nodes", "nodes"),
        data=data,
        series="state",
        series_label="state",
        caption="Nodes in pipelines, usable nodes standing by, and nodes being prepared.",
    )


def states_over_time(spells: Table, lives: Table | None) -> Figure:
    """What the job did when, and below it each node, if there are not too many for a picture."""
    data: dict[str, list[object]] = {
        "track": ["job"] * len(spells),
        "from_h": (spells["start_s"] / 3600.0).tolist(),
        "to_h": (spells["end_s"] / 3600.0).tolist(),
        "state": [str(state) for state in spells["state"]],
    }
    nodes = 0 if lives is None else len(set(lives["node"].tolist()))
    if lives is not None and nodes <= MOST_TRACKS:
        data["track"] += [str(node) for node in lives["node"]]
        data["from_h"] += (lives["start_s"] / 3600.0).tolist()
        data["to_h"] += (lives["end_s"] / 3600.0).tolist()
        data["state"] += [str(state) for state in lives["state"]]
    alone = data["track"][-1] == "job"
    return Figure(
        id="states",
        title="Who did what when",
        kind="gantt",
        x=Axis("from_h", "time", "h"),
        y=Axis("track", "job" if alone else "job and nodes"),
        data=data,
        x2="to_h",
        series="state",
        order=tuple(state for state in STATES if state in data["state"]),
        caption="What the job did; the timeline file has every node too."
        if alone
        else "The job on the first track, each node on one of its own.",
    )


def price_over_time(price: Table, end_s: float) -> Figure:
    """What a spot node costs, as it changes."""
    times, values = (price["t_s"] / 3600.0).tolist(), price["usd_per_h"].tolist()
    return Figure(
        id="price",
        title="What a spot node costs",
        kind="step",
        x=Axis("t_h", "time", "h"),
        y=Axis("usd_per_h", "price of a spot node", "$/h"),
        data={"t_h": [*times, end_s / 3600.0], "usd_per_h": [*values, values[-1]]},
        caption="The price in the history that is shown.",
    )


def what_matters(elasticities: Table) -> Figure:
    """Elasticities of throughput, the largest first."""
    return Figure(
        id="what-matters",
        title="How much each assumption matters",
        kind="bar",
        x=Axis("assumption", "assumption"),
        y=Axis("elasticity", "percent of samples a second for a percent of it"),
        data={name: elasticities[name].tolist() for name in ("assumption", "elasticity", "low", "high")},
        low="low",
        high="high",
        order=tuple(str(name) for name in elasticities["assumption"]),
        caption="Each is moved by a tenth, down and up, on the same fleets; -0.3: one percent more costs 0.3 percent.",
    )


def holdings(held: Table) -> Figure:
    """What was held, hour by hour and market by market."""
    markets = [zone or str(kind) for kind, zone in zip(held["held"], held["zone"], strict=True)]
    hours = ((held["end_s"] - held["start_s"]) / 3600.0).tolist()
    return Figure(
        id="holdings",
        title="What was held",
        kind="stacked_bar",
        x=Axis("of", "stretch"),
        y=Axis("hours", "time", "h"),
        data={
            "of": [f"{i + 1}" for i in range(len(markets))],
            "hours": hours,
            "market": [str(market) for market in markets],
        },
        series="market",
        series_label="held",
        order=tuple(dict.fromkeys(markets)),
        caption="One bar a stretch, in order; zones by name, on_demand, or none.",
    )


def progress(spells: Table) -> Figure:
    """The step that the job has reached, over time; falls are rollbacks."""
    times: list[float] = []
    steps: list[int] = []
    training = spells["state"] == "training"
    for first, executed, retained, start_s, end_s in zip(
        spells["first_step"][training].tolist(),
        spells["steps_executed"][training].tolist(),
        spells["steps_retained"][training].tolist(),
        spells["start_s"][training].tolist(),
        spells["end_s"][training].tolist(),
        strict=True,
    ):
        times += [start_s / 3600.0, end_s / 3600.0, end_s / 3600.0]
        steps += [first, first + executed, first + retained]
    return Figure(
        id="progress",
        title="Progress",
        kind="line",
        x=Axis("t_h", "time", "h"),
        y=Axis("step", "step"),
        data={"t_h": times, "step": steps},
        caption="The step that the job has reached; every fall is work that was rolled back.",
    )


def step_distribution(trials: Table) -> Figure:
    """Share of trials that complete at most so many steps."""
    shares = np.linspace(0.0, 1.0, POINTS)
    return Figure(
        id="steps-completed",
        title="Steps completed, over all trials",
        kind="cdf",
        x=Axis("steps", "steps completed"),
        y=Axis("share", "share of trials"),
        data={"steps": np.quantile(trials["steps_completed"], shares).tolist(), "share": shares.tolist()},
        caption="Read across at 0.05, 0.5 and 0.95 for the range to expect.",
    )


def time_to_finish(trials: Table, deadline_s: float) -> Figure:
    """Share of trials finished by a time; trials that did not finish keep the curve below 1."""
    finished = np.sort(trials["end_s"][trials["finished"].astype(bool)]) / 3600.0
    at = np.unique(np.linspace(0, len(finished) - 1, min(POINTS, len(finished))).astype(int))
    rules = (Rule(deadline_s / 3600.0, "deadline"),) if deadline_s else ()
    return Figure(
        id="time-to-finish",
        title="Time to finish",
        kind="cdf",
        x=Axis("t_h", "time", "h"),
        y=Axis("share", "share of trials finished"),
        data={"t_h": finished[at].tolist(), "share": ((at + 1) / len(trials)).tolist()},
        rules=rules,
        caption=f"{len(finished):,} of {len(trials):,} trials finished before the horizon.",
    )


# --------------------------------------------------------------------------- plan files

#: candidates listed by name
MOST_LISTED = 24


def plan_figures(plan: Mapping[str, Any], scenario: Mapping[str, Any]) -> tuple[Figure, ...]:
    """Cost against finishing time of every candidate, and the cheapest with their intervals."""
    rows = [row for row in plan.get("candidates") or () if row.get("cost_usd") is not None]
    # The candidates that matter are drawn last, on top of the others.
    order = ("beaten", "not beaten on both", "chosen")
    ended = sorted(
        (row for row in rows if row.get("finish_h") is not None), key=lambda row: order.index(_kind(row))
    )
    pictures = []
    if ended:
        goal = scenario.get("goal", {})
        deadline_s = float(goal.get("deadline_s") or 0.0)
        pictures.append(
            Figure(
                id="plan-candidates",
                title="Cost and finishing time of every candidate",
                kind="points",
                x=Axis("finish_h", "done, at the certainty wanted", "h"),
                y=Axis("cost_usd", "mean cost", "$"),
                data={
                    "finish_h": [float(row["finish_h"]) for row in ended],
                    "kind": [_kind(row) for row in ended],
                    **_cost_intervals(ended),
                },
                low="low",
                high="high",
                series="kind",
                order=order[::-1],
                rules=(Rule(deadline_s / 3600.0, "deadline"),) if deadline_s else (),
                caption="With 95 % intervals of the mean cost; all met the same fleets, those dropped early met fewer.",
            )
        )
    listed = sorted(rows, key=lambda row: float(row["cost_usd"]))[:MOST_LISTED]
    if listed:
        infeasible = sum(row.get("verdict") == "infeasible" for row in listed)
        pictures.append(
            Figure(
                id="plan-cost",
                title="Cost of the cheapest candidates",
                kind="points",
                x=Axis("name", "candidate"),
                y=Axis("cost_usd", "mean cost", "$"),
                data={"name": _short(listed), **_cost_intervals(listed)},
                low="low",
                high="high",
                caption=f"The {len(listed)} cheapest of {len(rows)}, each with its 95 % interval; {infeasible} of them "
                "do not keep the goal.",
            )
        )
    if plan.get("intervals"):
        pictures.append(_intervals(plan["intervals"]))
    return tuple(pictures)


def _cost_intervals(rows: list[Mapping[str, Any]]) -> dict[str, list[float]]:
    """Mean costs and the ends of their 95 % intervals."""
    means = [float(row["cost_usd"]) for row in rows]
    halves = [float(row["cost_half95_usd"]) for row in rows]
    return {
        "cost_usd": means,
        "low": [mean - half for mean, half in zip(means, halves, strict=True)],
        "high": [mean + half for mean, half in zip(means, halves, strict=True)],
    }


def _intervals(rows: list[Mapping[str, Any]]) -> Figure:
    """Useful time against the time between checkpoints, the intervals with a name marked."""
    data: dict[str, list[Any]] = {"minutes": [], "useful": [], "low": [], "high": [], "of": []}
    marked: dict[float, list[str]] = {}
    for row in rows:
        minutes, useful = float(row["interval_s"]) / 60.0, float(row["useful"])
        half = float(row["useful_half95"])
        simulated = (minutes, useful, useful - half, useful + half, "simulated")
        closed = row.get("closed_form")
        points = (
            [simulated] if closed is None else [simulated, (minutes, *[float(closed)] * 3, "closed form")]
        )
        # Back to back is every so many steps but for the first: the curve is of the others.
        for point in points if "back to back" not in row["choice"] else ():
            for name, value in zip(data, point, strict=True):
                data[name].append(value)
        if row["choice"]:
            marked.setdefault(minutes, []).append(str(row["choice"]))
    return Figure(
        id="plan-intervals",
        title="Useful time against the time between checkpoints",
        kind="line",
        x=Axis("minutes", "between checkpoints", "min", log=True),
        y=Axis("useful", "share of wall time that is useful"),
        data=data,
        series="of",
        low="low",
        high="high",
        order=("simulated", "closed form"),
        rules=tuple(Rule(minutes, ", ".join(names)) for minutes, names in sorted(marked.items())),
        caption="The chosen candidate with other intervals, on the same fleets; the band is the 95 % interval. The closed "
        "form has the fleet's first size throughout and no idle time.",
    )


def _short(rows: list[Mapping[str, Any]]) -> list[str]:
    """What tells the candidates apart; their full names where that is not enough."""
    words = {
        "depth": "depth {}",
        "snapshots": "{}",
        "growth": "{}",
        "spares": "+{}",
        "on_demand_nodes": "{} steady",
    }
    varied = [name for name in words if len({repr(row.get(name)) for row in rows}) > 1]
    names = [", ".join(words[name].format(row.get(name)) for name in varied) for row in rows]
    return names if len(set(names)) == len(rows) else [str(row["name"]) for row in rows]


def _kind(row: Mapping[str, Any]) -> str:
    if row.get("verdict") == "chosen":
        return "chosen"
    return "not beaten on both" if row.get("pareto") else "beaten"
