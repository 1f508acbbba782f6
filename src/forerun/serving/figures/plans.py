"""What a plan's tables show, as data for figures."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import numpy as np

from forerun.core.result.figures import Axis, Columns, Figure, Rule
from forerun.core.result.tables import Table

COST: Final = Axis("cost_usd_per_h", "cost", "$/h")


def plan_figures(tables: Mapping[str, Table], slo_ms: float, rate_rps: float) -> tuple[Figure, ...]:
    """The pictures that a plan's tables allow: optimisers side by side; cost against the objective and the load.

    Parameters
    ----------
    slo_ms, rate_rps : the scenario's own objective and load, which are marked.
    """
    shown = []
    if "methods" in tables:
        methods = tables["methods"]
        shown.append(
            cost_bars(
                "plan-methods",
                "What each optimiser's plan costs",
                methods.rows(methods["feasible"].astype(bool)).columns,
                Axis("method", "optimiser"),
                "Only configurations that keep the objective; the exact search is proved cheapest.",
            )
        )
    if "frontier" in tables:
        shown.append(_frontier(tables["frontier"], Axis("slo_ms", "objective", "ms"), slo_ms))
        shown.append(_frontier(tables["frontier"], Axis("rate_rps", "load", "1/s"), rate_rps))
    return tuple(shown)


def cost_bars(name: str, title: str, columns: Columns, each: Axis, caption: str) -> Figure:
    """What each of some things costs.

    Parameters
    ----------
    name, title, caption : of the figure.
    columns : with `cost_usd_per_h`, $ per hour.
    each : the axis of the things.
    """
    return Figure.of("bar", name, title, columns, x=each, y=COST, caption=caption)


def _frontier(table: Table, varied: Axis, here: float) -> Figure:
    """The cheapest plan's cost where one thing is varied; gaps where there is no plan."""
    points = table.rows(table["varied"] == varied.label)
    lacking = int(np.isnan(points["cost_usd_per_h"].astype(float)).sum())
    more = f" {lacking} points have no plan at all." if lacking else ""
    return Figure.of(
        "points",
        f"plan-cost-by-{varied.label}",
        f"Cost of the cheapest plan against the {varied.label}",
        points,
        x=varied,
        y=Axis("cost_usd_per_h", "cost of the cheapest plan", "$/h"),
        caption=f"Each point is planned exactly; between two points the cost may step anywhere.{more}",
        rules=(Rule(here, "scenario"),),
    )
