"""What a plan for language models shows, as data for figures."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from forerun.core.result.figures import Axis, Figure, Rule, by_series
from forerun.core.result.tables import Table

COST = Axis("cost_usd_per_h", "cost", "$/h")
RATE = Axis("rate_rps", "arrivals", "1/s")
TTFT = Axis("ttft_ms", "time to first token", "ms", log=True)


def plan_figures(tables: Mapping[str, Table]) -> tuple[Figure, ...]:
    """The pictures that a plan's tables allow: time to first token against the rate, what each hardware gives for its money,
    and the cells that keep the objectives by cost."""
    shown = []
    if "rates" in tables and not np.isnan(tables["rates"]["ttft_p99_ms"]).all():
        shown.append(_knee(tables["rates"]))
    if "hardware" in tables:
        shown.append(_goodput(tables["hardware"]))
    if "cells" in tables and not np.isnan(tables["cells"]["ttft_p99_ms"]).all():
        shown.append(_cells(tables["cells"]))
    return tuple(shown)


def _knee(rates: Table) -> Figure:
    """Time to first token of the plan by the rate of arrivals, up to where its queue grows."""
    known = rates.rows(~np.isnan(rates["ttft_p99_ms"]))
    curves = {
        name: {"rate_rps": known["rate_rps"], "ttft_ms": known[column]}
        for name, column in (("P50", "ttft_p50_ms"), ("P99", "ttft_p99_ms"))
    }
    carried = rates["rate_rps"][rates["met"].astype(bool)]
    most = float(carried.max()) if len(carried) else 0.0
    here = float(rates["rate_rps"][int(np.argmin(np.abs(rates["share"] - 1)))])
    says = (
        f"The objectives are kept up to {most:.3g}/s" if most else "The objectives are kept at no rate shown"
    )
    return Figure.of(
        "line",
        "plan-ttft-by-rate",
        "Time to first token of the plan by the rate of arrivals",
        by_series("percentile", curves),
        x=RATE,
        y=TTFT,
        series="percentile",
        series_label="percentile",
        caption=f"{says}; the scenario's own rate is {here:.3g}/s. The same requests at other rates, or numbers of clients.",
        rules=(Rule(here, "scenario"),)
        if most in (0.0, here)
        else (Rule(here, "scenario"), Rule(most, "knee")),
        order=curves,
    )


def _goodput(hardware: Table) -> Figure:
    """Requests that meet every limit for a dollar, on the cheapest cell of each hardware."""
    return Figure.of(
        "bar",
        "plan-goodput-per-dollar",
        "Requests in time for a dollar, by hardware",
        hardware.rows(~np.isnan(hardware["cost_usd_per_h"])),
        x=Axis("hardware", "hardware"),
        y=Axis("goodput_per_dollar", "requests that meet every limit", "1/$"),
        caption="Each on its cheapest cell that keeps the objectives on this traffic, at the highest rate at which it does.",
    )


def _cells(cells: Table) -> Figure:
    met = cells.rows(~np.isnan(cells["ttft_p99_ms"]))
    curves = {}
    for name in sorted(set(met["hardware"].tolist())):
        mine = met.rows(met["hardware"] == name)
        curves[name] = {"cost_usd_per_h": mine["cost_usd_per_h"], "ttft_ms": mine["ttft_p99_ms"]}
    return Figure.of(
        "points",
        "plan-cells",
        "Cells that keep the objectives",
        by_series("hardware", curves),
        x=COST,
        y=Axis("ttft_ms", "P99 of the time to first token", "ms"),
        series="hardware",
        series_label="hardware",
        caption="Of the cells that were looked at: with --frontier all up to twice the cost of the plan.",
        rules=(Rule(float(met["cost_usd_per_h"].min()), "cheapest"),),
        order=curves,
    )
