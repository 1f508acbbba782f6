"""The figures of a run and of a plan, as data."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any, Final

import numpy as np

from forerun.core.result.figures import Axis, Columns, Figure, Rule, by_series
from forerun.core.result.run import Result, SavedRun
from forerun.core.result.tables import Table
from forerun.spot.summary.tables import LINES, STATES

POINTS: Final = 300
MOST_TRACKS: Final = 40
"""Nodes that a picture of states shows; of more, only the job."""
MOST_LISTED: Final = 24
"""Candidates of a plan that a picture lists by name."""
_HOURS: Final = Axis("t_h", "time", "h")


def figures(run: Result | SavedRun) -> tuple[Figure, ...]:
    """The figures that the run's tables allow, the most informative first.

    One history has its fleet, states and progress; trials have distributions too.

    Parameters
    ----------
    run : fresh or read back.
    """
    if "classes" in run.tables:
        return cluster_figures(run)
    tables, pictures = run.tables, [where_the_time_went(run.tables["ledger"])]
    spells, trials = tables.get("spells"), tables.get("trials")
    end_s = float(spells["end_s"].max()) if spells is not None and len(spells) else 0.0
    if "fleet" in tables:
        pictures.append(fleet_over_time(tables["fleet"], end_s))
    if spells is not None and len(spells):
        pictures.append(states_over_time(spells, tables.get("lives")))
    if "price" in tables:
        pictures.append(price_over_time(tables["price"], end_s))
    if "holdings" in tables:
        pictures.append(holdings(tables["holdings"]))
    if spells is not None:
        pictures.append(progress(spells))
    if "sensitivity" in tables:
        pictures.append(what_matters(tables["sensitivity"]))
    if trials is not None:
        # Where most finish, most complete the goal's steps.
        if float(np.mean(trials["finished"])) < 0.5:
            pictures.append(step_distribution(trials))
        if bool(np.any(trials["finished"])):
            pictures.append(time_to_finish(trials, _deadline_s(run)))
    return tuple(pictures)


def cluster_figures(run: Result | SavedRun) -> tuple[Figure, ...]:
    """The figures of a run on a reserved cluster: ledgers, the ratio by size, classes, what changes are worth, and time."""
    tables = run.tables
    stretches, trials, classes, worth = (tables[name] for name in ("stretches", "trials", "classes", "worth"))
    pictures = [
        where_the_time_went(tables["ledger"], tuple(tables["ledger"]["line"].tolist())),
        ettr_by_size(tables["sizes"], tables.get("simulated_sizes")),
    ]
    if len(classes):
        pictures.append(
            Figure.of(
                "bar",
                "classes",
                "What each class of failures costs",
                classes,
                x=Axis("failure", "class"),
                y=Axis("share", "share of wall time"),
                order=classes["failure"].tolist(),
                caption="Work rolled back, and time until training went on.",
            )
        )
    if len(worth):
        pictures.append(
            Figure.of(
                "bar",
                "worth",
                "What a change is worth",
                worth,
                x=Axis("change", "change"),
                y=Axis("ettr_change", "added to the effective training time ratio"),
                order=worth["change"].tolist(),
                caption="By paired trials with the same failures; below zero, the change costs.",
            )
        )
    if len(stretches):
        pictures.append(
            Figure.of(
                "gantt",
                "states",
                "What the job did",
                {
                    "track": np.array(["job"] * len(stretches), object),
                    "from_h": stretches["start_s"] / 3600.0,
                    "to_h": stretches["end_s"] / 3600.0,
                    "state": stretches["state"],
                },
                x=Axis("from_h", "time", "h"),
                x2="to_h",
                y=Axis("track", "job"),
                series="state",
                order=list(dict.fromkeys(stretches["state"].tolist())),
                caption="Trial 0.",
            )
        )
    if bool(np.any(trials["finished"])):
        pictures.append(time_to_finish(trials, _deadline_s(run)))
    return tuple(pictures)


def ettr_by_size(sizes: Table, simulated: Table | None) -> Figure:
    """The effective ratio against the size of the job.

    Parameters
    ----------
    sizes : by the closed form, a row a size and setting.
    simulated : the same with intervals, for some sizes; None for runs that were saved without.
    """
    curves: dict[str, Columns] = {}
    for name in dict.fromkeys(sizes["setting"].tolist()):
        rows = sizes["setting"] == name
        curves[name] = {
            "gpus": sizes["gpus"][rows],
            **dict.fromkeys(("ettr", "low", "high"), sizes["ettr"][rows]),
        }
    caption = (
        "The same failures of a node at other sizes, by the closed form: the scenario's interval and restart, and a quarter "
        "of each."
    )
    if simulated is not None and len(simulated):
        for name in dict.fromkeys(simulated["setting"].tolist()):
            rows = simulated["setting"] == name
            curves[f"simulated, {name}"] = {
                column: simulated[column][rows] for column in ("gpus", "ettr", "low", "high")
            }
        caption += " Simulated with the scenario's spares in proportion, repairs, classes and tiers, with 95 % intervals."
    return Figure.of(
        "line",
        "ettr-by-size",
        "Effective training time against the size of the job",
        by_series("setting", curves),
        x=Axis("gpus", "GPUs of the job", "GPU", log=True),
        y=Axis("ettr", "effective training time ratio"),
        series="setting",
        series_label="checkpoints",
        order=tuple(curves),
        caption=caption,
    )


def _deadline_s(run: Result | SavedRun) -> float:
    """The deadline of a run, fresh or read back; 0 without one."""
    if isinstance(run, Result):
        return float(run.scenario.goal.deadline_s)
    return float(run.scenario.get("goal", {}).get("deadline_s", 0.0))


def _deadline(deadline_s: float) -> tuple[Rule, ...]:
    """The line of a deadline across an axis of hours; none for 0."""
    return (Rule(deadline_s / 3600.0, "deadline"),) if deadline_s else ()


def where_the_time_went(ledger: Table, order: tuple[str, ...] = LINES) -> Figure:
    """Shares of wall time and of node time, stacked. order: of the lines."""
    wholes = {"wall time": ledger["wall_s"], "node time": ledger["node_s"]}
    shares: dict[str, Columns] = {
        name: {"line": ledger["line"], "share": seconds / (float(seconds.sum()) or 1.0)}
        for name, seconds in wholes.items()
    }
    return Figure.of(
        "stacked_bar",
        "where-the-time-went",
        "Where the time went",
        by_series("of", shares),
        x=Axis("of", "whole"),
        y=Axis("share", "share"),
        series="line",
        series_label="line",
        order=order,
        caption="Every second of the run, and every second of every node, is in exactly one part.",
    )


def fleet_over_time(fleet: Table, end_s: float) -> Figure:
    """Nodes by state over time.

    Parameters
    ----------
    fleet : the table of the fleet, a row a change.
    end_s : until when the last counts are drawn [s].
    """
    rows = np.arange(len(fleet))
    times = fleet["t_s"]
    if len(rows) and end_s / 3600.0 > times[-1] / 3600.0:
        rows, times = np.append(rows, rows[-1]), np.append(times, end_s)
    states: dict[str, Columns] = {
        state: {"t_h": times / 3600.0, "nodes": fleet[state][rows]} for state in STATES[3:]
    }
    return Figure.of(
        "step",
        "fleet",
        "The fleet",
        by_series("state", states),
        x=_HOURS,
        y="nodes",
        series="state",
        series_label="state",
        caption="Nodes in pipelines, usable nodes standing by, and nodes being prepared.",
    )


def states_over_time(spells: Table, lives: Table | None) -> Figure:
    """What the job did when, and below it each node, if there are not too many for a picture.

    Parameters
    ----------
    spells : intervals of the job.
    lives : intervals of the nodes; None for a fleet without nodes.
    """
    tables = {"track": np.array(["job"] * len(spells), object)}, spells
    alone = lives is None or not 0 < len(set(lives["node"].tolist())) <= MOST_TRACKS
    parts = [tables] if lives is None or alone else [tables, ({"track": lives["node"]}, lives)]
    data = {"track": np.concatenate([track["track"] for track, _ in parts])}
    for name, column in (("from_h", "start_s"), ("to_h", "end_s")):
        data[name] = np.concatenate([table[column] for _, table in parts]) / 3600.0
    data["state"] = np.concatenate([table["state"] for _, table in parts])
    return Figure.of(
        "gantt",
        "states",
        "Who did what when",
        data,
        x=Axis("from_h", "time", "h"),
        x2="to_h",
        y=Axis("track", "job" if alone else "job and nodes"),
        series="state",
        order=[state for state in STATES if state in data["state"]],
        caption="What the job did; the timeline file has every node too."
        if alone
        else "The job on the first track, each node on one of its own.",
    )


def price_over_time(price: Table, end_s: float) -> Figure:
    """What a spot node costs, as it changes.

    Parameters
    ----------
    price : a row a change.
    end_s : until when the last price is drawn [s].
    """
    usd_per_h = price["usd_per_h"]
    return Figure.of(
        "step",
        "price",
        "What a spot node costs",
        {
            "t_h": np.append(price["t_s"], end_s) / 3600.0,
            "usd_per_h": np.append(usd_per_h, usd_per_h[-1]),
        },
        x=_HOURS,
        y=Axis("usd_per_h", "price of a spot node", "$/h"),
        caption="The price in the history that is shown.",
    )


def what_matters(elasticities: Table) -> Figure:
    """Elasticities of throughput, the largest first."""
    return Figure.of(
        "bar",
        "what-matters",
        "How much each assumption matters",
        elasticities,
        x="assumption",
        y=Axis("elasticity", "percent of samples a second for a percent of it"),
        order=elasticities["assumption"].tolist(),
        caption="Each is moved by a tenth, down and up, on the same fleets; -0.3: one percent more costs 0.3 percent.",
    )


def holdings(rented: Table) -> Figure:
    """What was rented, hour by hour and market by market."""
    markets = [zone or str(kind) for kind, zone in zip(rented["held"], rented["zone"], strict=True)]
    return Figure.of(
        "stacked_bar",
        "holdings",
        "What was rented",
        {
            "of": [f"{i + 1}" for i in range(len(markets))],
            "hours": (rented["end_s"] - rented["start_s"]) / 3600.0,
            "market": markets,
        },
        x=Axis("of", "stretch"),
        y=Axis("hours", "time", "h"),
        series="market",
        series_label="rented",
        order=dict.fromkeys(markets),
        caption="Each bar is one stretch, in order; zones by name, on_demand, or none.",
    )


def progress(spells: Table) -> Figure:
    """The step that the job has reached, over time; falls are rollbacks."""
    training = spells["state"] == "training"
    start_s, end_s = spells["start_s"][training], spells["end_s"][training]
    first = spells["first_step"][training]
    reached = first + spells["steps_executed"][training], first + spells["steps_retained"][training]
    return Figure.of(
        "line",
        "progress",
        "Progress",
        {
            "t_h": np.stack([start_s, end_s, end_s], axis=1).ravel() / 3600.0,
            "step": np.stack([first, *reached], axis=1).ravel(),
        },
        x=_HOURS,
        y="step",
        caption="The step that the job has reached; every fall is work that was rolled back.",
    )


def step_distribution(trials: Table) -> Figure:
    """Share of trials that complete at most each number of steps."""
    shares = np.linspace(0.0, 1.0, POINTS)
    return Figure.of(
        "cdf",
        "steps-completed",
        "Steps completed, over all trials",
        {"steps": np.quantile(trials["steps_completed"], shares), "share": shares},
        x=Axis("steps", "steps completed"),
        y=Axis("share", "share of trials"),
        caption="Read across at 0.05, 0.5 and 0.95 for the range to expect.",
    )


def time_to_finish(trials: Table, deadline_s: float) -> Figure:
    """Share of trials finished by a time; trials that did not finish keep the curve below 1.

    Parameters
    ----------
    trials : a row a trial.
    deadline_s : where a line is drawn [s] (0: none).
    """
    finished = np.sort(trials["end_s"][trials["finished"].astype(bool)]) / 3600.0
    at = np.unique(np.linspace(0, len(finished) - 1, min(POINTS, len(finished))).astype(int))
    return Figure.of(
        "cdf",
        "time-to-finish",
        "Time to finish",
        {"t_h": finished[at], "share": (at + 1) / len(trials)},
        x=_HOURS,
        y=Axis("share", "share of trials finished"),
        rules=_deadline(deadline_s),
        caption=f"{len(finished):,} of {len(trials):,} trials finished before the horizon.",
    )


# --------------------------------------------------------------------------- plan files


def plan_figures(plan: Mapping[str, Any], scenario: Mapping[str, Any]) -> tuple[Figure, ...]:
    """Cost against finishing time of every candidate, and the cheapest with their intervals.

    Parameters
    ----------
    plan, scenario : the content of a plan file, and its scenario, as plain data.
    """
    rows = [row for row in plan.get("candidates") or () if row.get("cost_usd") is not None]
    # The candidates that matter are drawn last, on top of the others.
    order = ("beaten", "not beaten on both", "chosen")
    ended = [row for row in rows if row.get("finish_h") is not None]
    ended.sort(key=lambda row: order.index(_kind(row)))
    pictures = []
    if ended:
        hours = [float(row["finish_h"]) for row in ended]
        pictures.append(
            Figure.of(
                "points",
                "plan-candidates",
                "Cost and finishing time of every candidate",
                {"finish_h": hours, "kind": [_kind(row) for row in ended], **_cost_intervals(ended)},
                x=Axis("finish_h", "done, at the required certainty", "h"),
                y=Axis("cost_usd", "mean cost", "$"),
                series="kind",
                order=order[::-1],
                rules=_deadline(float(scenario.get("goal", {}).get("deadline_s") or 0.0)),
                caption="With 95 % intervals of the mean cost; all met the same fleets, those dropped early met fewer.",
            )
        )
    listed = sorted(rows, key=lambda row: float(row["cost_usd"]))[:MOST_LISTED]
    if listed:
        infeasible = sum(row.get("verdict") == "infeasible" for row in listed)
        pictures.append(
            Figure.of(
                "points",
                "plan-cost",
                "Cost of the cheapest candidates",
                {"name": _short(listed), **_cost_intervals(listed)},
                x=Axis("name", "candidate"),
                y=Axis("cost_usd", "mean cost", "$"),
                caption=f"The {len(listed)} cheapest of {len(rows)}, each with its 95 % interval; {infeasible} of them "
                "do not meet the goal.",
            )
        )
    if plan.get("intervals"):
        pictures.append(_intervals(plan["intervals"]))
    return tuple(pictures)


def _cost_intervals(rows: Sequence[Mapping[str, Any]]) -> dict[str, np.ndarray]:
    """Mean costs and the ends of their 95 % intervals."""
    means, halves = (np.array([float(row[name]) for row in rows]) for name in ("cost_usd", "cost_half95_usd"))
    return {"cost_usd": means, "low": means - halves, "high": means + halves}


def _intervals(rows: Sequence[Mapping[str, Any]]) -> Figure:
    """Useful time against the time between checkpoints, the intervals with a name marked.

    Back to back is only marked: after the first checkpoint its interval is a fixed number of steps.

    Parameters
    ----------
    rows : the intervals of a plan file.
    """
    marked: dict[float, list[str]] = {}
    for row in rows:
        if row["choice"]:
            marked.setdefault(float(row["interval_s"]) / 60.0, []).append(str(row["choice"]))
    # Back to back has fixed intervals but for the first: the curve is of the others.
    curve = [row for row in rows if "back to back" not in row["choice"]]
    minutes, useful, half, closed = (
        np.array([math.nan if row.get(name) is None else float(row[name]) for row in curve])
        for name in ("interval_s", "useful", "useful_half95", "closed_form")
    )
    minutes /= 60.0
    known = ~np.isnan(closed)
    curves: dict[str, Columns] = {
        "simulated": {"minutes": minutes, "useful": useful, "low": useful - half, "high": useful + half},
        "closed form": {"minutes": minutes[known], **dict.fromkeys(("useful", "low", "high"), closed[known])},
    }
    return Figure.of(
        "line",
        "plan-intervals",
        "Useful time against the time between checkpoints",
        by_series("of", curves),
        x=Axis("minutes", "between checkpoints", "min", log=True),
        y=Axis("useful", "share of wall time that is useful"),
        series="of",
        order=("simulated", "closed form"),
        rules=[Rule(minutes, ", ".join(names)) for minutes, names in sorted(marked.items())],
        caption="The chosen candidate with other intervals, on the same fleets; the band is the 95 % interval. The closed "
        "form has the fleet's first size throughout and no idle time.",
    )


def _short(rows: Sequence[Mapping[str, Any]]) -> list[str]:
    """What distinguishes the candidates; their full names where that is not enough."""
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
    """Whether a candidate was chosen, else whether it is on the Pareto front."""
    if row.get("verdict") == "chosen":
        return "chosen"
    return "not beaten on both" if row.get("pareto") else "beaten"
