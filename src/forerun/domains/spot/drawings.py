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
                    "cost_usd": [float(row["cost_usd"]) for row in ended],
                    "kind": [_kind(row) for row in ended],
                },
                series="kind",
                order=order[::-1],
                rules=(Rule(deadline_s / 3600.0, "deadline"),) if deadline_s else (),
                caption="All candidates met the same fleets; those in few trials have wider intervals (see the table).",
            )
        )
    listed = sorted(rows, key=lambda row: float(row["cost_usd"]))[:MOST_LISTED]
    if listed:
        found.append(
            Figure(
                id="plan-cost",
                title="Cost of the cheapest candidates",
                kind="points",
                x=Axis("name", "candidate"),
                y=Axis("cost_usd", "mean cost", "$"),
                data={
                    "name": _short(listed),
                    "cost_usd": [float(row["cost_usd"]) for row in listed],
                    "low": [float(row["cost_usd"]) - float(row["cost_half95_usd"]) for row in listed],
                    "high": [float(row["cost_usd"]) + float(row["cost_half95_usd"]) for row in listed],
                },
                low="low",
                high="high",
                caption=f"The {len(listed)} cheapest of {len(rows)}, each with its 95 % interval; not all keep the goal.",
            )
        )
    return tuple(found)


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
