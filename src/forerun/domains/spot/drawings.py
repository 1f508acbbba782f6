"""What the report draws of this room's plan files."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from forerun.result.figures import Axis, Figure, Rule

#: candidates listed by name
MOST_LISTED = 24


def plan_figures(plan: Mapping[str, Any], scenario: Mapping[str, Any]) -> tuple[Figure, ...]:
    """Cost against finishing time of every candidate, and the cheapest with their intervals."""
    rows = [row for row in plan.get("candidates") or () if row.get("cost_usd") is not None]
    # What stands out lies on top: it comes last.
    order = ("beaten", "not beaten on both", "chosen")
    ended = sorted(
        (row for row in rows if row.get("finish_h") is not None), key=lambda row: order.index(_kind(row))
    )
    found = []
    if ended:
        goal = scenario.get("goal", {})
        deadline_s = float(goal.get("deadline_s") or 0.0)
        found.append(
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
        found.append(
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
        found.append(_intervals(plan["intervals"]))
    return tuple(found)


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
    """Useful time against the time between snapshots, the intervals with a name marked."""
    data: dict[str, list[Any]] = {"minutes": [], "useful": [], "low": [], "high": [], "of": []}
    marked: dict[float, list[str]] = {}
    for row in rows:
        minutes, useful = float(row["interval_s"]) / 60.0, float(row["useful"])
        half = float(row["useful_half95"])
        simulated = (minutes, useful, useful - half, useful + half, "simulated")
        closed = row.get("closed_form")
        told = [simulated] if closed is None else [simulated, (minutes, *[float(closed)] * 3, "closed form")]
        # Back to back is every so many steps but for the first: the curve is of the others.
        for point in told if "back to back" not in row["choice"] else ():
            for name, value in zip(data, point, strict=True):
                data[name].append(value)
        if row["choice"]:
            marked.setdefault(minutes, []).append(str(row["choice"]))
    return Figure(
        id="plan-intervals",
        title="Useful time against the time between snapshots",
        kind="line",
        x=Axis("minutes", "between snapshots", "min", log=True),
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
    found = [", ".join(words[name].format(row.get(name)) for name in varied) for row in rows]
    return found if len(set(found)) == len(rows) else [str(row["name"]) for row in rows]


def _kind(row: Mapping[str, Any]) -> str:
    if row.get("verdict") == "chosen":
        return "chosen"
    return "not beaten on both" if row.get("pareto") else "beaten"
