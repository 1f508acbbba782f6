"""What a plan's tables show, as data for figures."""

from __future__ import annotations

import math
from collections.abc import Mapping

from forerun.result.figures import Axis, Figure, Rule
from forerun.result.tables import Table


def plan_figures(tables: Mapping[str, Table], slo_ms: float, rate_rps: float) -> tuple[Figure, ...]:
    """The pictures that a plan's tables allow: optimisers side by side; cost against the objective and the load."""
    found = []
    if "methods" in tables:
        found.append(methods(tables["methods"]))
    if "frontier" in tables:
        found.append(frontier(tables["frontier"], "objective", "slo_ms", "objective", "ms", slo_ms))
        found.append(frontier(tables["frontier"], "load", "rate_rps", "load", "1/s", rate_rps))
    return tuple(found)


def methods(table: Table) -> Figure:
    """What each optimiser's plan costs; only those that keep the objective."""
    rows = [
        (name, cost)
        for name, cost, kept in zip(table["method"], table["cost_usd_per_h"], table["feasible"])
        if kept
    ]
    return Figure(
        id="plan-methods",
        title="What each optimiser's plan costs",
        kind="bar",
        x=Axis("method", "optimiser"),
        y=Axis("cost_usd_per_h", "cost", "$/h"),
        data={"method": [name for name, _ in rows], "cost_usd_per_h": [float(cost) for _, cost in rows]},
        caption="Only configurations that keep the objective; the exact search is proved cheapest.",
    )


def frontier(table: Table, varied: str, column: str, label: str, unit: str, here: float) -> Figure:
    """The cheapest plan's cost where one thing is varied; gaps where there is no plan."""
    rows = [
        (float(at), float(cost))
        for which, at, cost in zip(table["varied"], table[column], table["cost_usd_per_h"])
        if which == varied
    ]
    lacking = sum(math.isnan(cost) for _, cost in rows)
    more = f" {lacking} points have no plan at all." if lacking else ""
    return Figure(
        id=f"plan-cost-by-{label}",
        title=f"Cost of the cheapest plan against the {label}",
        kind="points",
        x=Axis(column, label, unit),
        y=Axis("cost_usd_per_h", "cost of the cheapest plan", "$/h"),
        data={column: [at for at, _ in rows], "cost_usd_per_h": [cost for _, cost in rows]},
        caption=f"Each point is planned exactly; between two points the cost may step anywhere.{more}",
        rules=(Rule(here, "scenario"),),
    )
