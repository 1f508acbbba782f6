"""Figures of plan files and of measurement files."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from forerun.domains.serving.figures.plans import plan_figures as drawn
from forerun.result.figures import Axis, Figure
from forerun.result.tables import Column, Table, TableSchema


def plan_figures(plan: Mapping[str, Any], scenario: Mapping[str, Any]) -> tuple[Figure, ...]:
    """Cost by stage, the optimisers side by side, cost against objective and load; those that the plan has."""
    tables = {name: _table(name, rows) for name, rows in plan.get("tables", {}).items() if rows}
    rate_rps = float(plan["summary"].get("rate_rps") or 0.0)
    stages = [_stages(plan["tables"]["stages"])] if "stages" in tables else []
    return (*stages, *drawn(tables, float(scenario["slo_ms"]), rate_rps))


def _stages(rows: list[Mapping[str, Any]]) -> Figure:
    """What each stage of the plan costs."""
    return Figure(
        id="plan-stages",
        title="What each stage of the plan costs",
        kind="bar",
        x=Axis("stage", "stage"),
        y=Axis("cost_usd_per_h", "cost", "$/h"),
        data={
            "stage": [f"{row['stage']}: {row['replicas']} x {row['hardware']}" for row in rows],
            "cost_usd_per_h": [float(row["cost_usd_per_h"]) for row in rows],
        },
        caption="Replicas and hardware of each stage; the batch limits are in the table.",
    )


def measured_figures(content: Mapping[str, Any]) -> tuple[Figure, ...]:
    """Latency measured and predicted, by load; times of batches, in place and alone; those that the measurement has."""
    rows, profile = content.get("fidelity") or [], content.get("batch_times") or []
    found = [_predicted(rows, name) for name in ("p50", "p99")] if rows else []
    return (*found, _batch_times(profile)) if profile else tuple(found)


def _predicted(rows: list[Mapping[str, Any]], name: str) -> Figure:
    shown = name.upper()
    parts = [(row, kind) for kind in ("measured", "predicted") for row in rows]
    marked = sum(bool(row["marks"]) for row in rows)
    disturbed = f" {marked} of the {len(rows)} runs were disturbed (see the table)." if marked else ""
    return Figure(
        id=f"fidelity-{name}",
        title=f"{shown} latency, measured and predicted",
        kind="points",
        x=Axis("load", "load of the busiest stage"),
        y=Axis("latency_ms", f"{shown} latency", "ms", log=True),
        data={
            "load": [float(row["load"]) for row, _ in parts],
            "latency_ms": [float(row[f"{name}_{kind}_ms"]) for row, kind in parts],
            "what": [kind for _, kind in parts],
        },
        series="what",
        order=("measured", "predicted"),
        caption=f"The simulator is given the instants at which queries were sent.{disturbed}",
    )


def _batch_times(rows: list[Mapping[str, Any]]) -> Figure:
    parts = [
        (row, column, where)
        for column, where in (("mean_ms", "in place"), ("alone_mean_ms", "alone"))
        for row in rows
        # A measurement that was stopped has sizes that were measured alone only.
        if where == "alone" or row["in_place_over_alone"] is not None
    ]
    return Figure(
        id="batch-times",
        title="What a batch takes, with all stages busy and alone",
        kind="line",
        x=Axis("batch", "batch size", "queries"),
        y=Axis("mean_ms", "mean time of a batch", "ms"),
        data={
            "batch": [int(row["batch"]) for row, _, _ in parts],
            "mean_ms": [float(row[column]) for row, column, _ in parts],
            "where": [f"{row['model']} {where}" for row, _, where in parts],
        },
        series="where",
        caption="From handing a batch over to having its answer, as a queue sees it.",
    )


def _table(name: str, rows: list[Mapping[str, Any]]) -> Table:
    """Rows of a plan file as a table; what is null there is nan in a column of numbers."""
    columns = list(rows[0])
    values: dict[str, list[Any]] = {column: [row.get(column) for row in rows] for column in columns}
    for column, found in values.items():
        if any(isinstance(value, (int, float)) for value in found):
            values[column] = [float("nan") if value is None else value for value in found]
    return Table.of(TableSchema(name, tuple(Column(column) for column in columns)), **values)
