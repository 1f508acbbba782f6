"""What a run's report shows, as data."""

from __future__ import annotations

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
    """The pictures that the run's tables allow, most telling first."""
    found = [where_the_time_went(run.tables["ledger"])]
    if "fleet" in run.tables:
        found.append(fleet_over_time(run.tables["fleet"], _end_s(run)))
    if "spells" in run.tables and len(run.tables["spells"]):
        found.append(states_over_time(run.tables["spells"], run.tables.get("lives")))
    if "price" in run.tables:
        found.append(price_over_time(run.tables["price"], _end_s(run)))
    if "holdings" in run.tables:
        found.append(holdings(run.tables["holdings"]))
    if "spells" in run.tables:
        found.append(progress(run.tables["spells"]))
    if "sensitivity" in run.tables:
        found.append(what_matters(run.tables["sensitivity"]))
    if "trials" in run.tables:
        # Where most finish, most complete the goal's steps.
        if float(np.mean(run.tables["trials"]["finished"])) < 0.5:
            found.append(step_distribution(run.tables["trials"]))
        if bool(np.any(run.tables["trials"]["finished"])):
            found.append(time_to_finish(run.tables["trials"], _deadline_s(run)))
    return tuple(found)


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
        caption="Every second of the run, and every second of every node, stands in exactly one part.",
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


def what_matters(found: Table) -> Figure:
    """Elasticities of throughput, the largest first."""
    return Figure(
        id="what-matters",
        title="How much each assumption matters",
        kind="bar",
        x=Axis("assumption", "assumption"),
        y=Axis("elasticity", "percent of samples a second for a percent of it"),
        data={name: found[name].tolist() for name in ("assumption", "elasticity", "low", "high")},
        low="low",
        high="high",
        order=tuple(str(name) for name in found["assumption"]),
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
    """The step the job stands at, over time; falls are rollbacks."""
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
        caption="The step at which the job stands; every fall is work that was rolled back.",
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
