"""Figures of plan files and of measurement files."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from forerun.core.result.figures import Axis, Figure
from forerun.core.result.tables import Column, Table, TableSchema
from forerun.serving.figures import plans
from forerun.serving.llm.figures import llm_plans


def plan_figures(plan: Mapping[str, Any], scenario: Mapping[str, Any]) -> tuple[Figure, ...]:
    """Cost by stage, the optimisers side by side, cost against objective and load; those that the plan has."""
    tables = {name: _table(name, rows) for name, rows in plan.get("tables", {}).items() if rows}
    if "options" in tables:
        return llm_plans.plan_figures(tables)
    drawn = plans.plan_figures(
        tables, float(scenario["slo_ms"]), float(plan["summary"].get("rate_rps") or 0.0)
    )
    if "stages" not in tables:
        return drawn
    rows = plan["tables"]["stages"]
    stages = plans.cost_bars(
        "plan-stages",
        "What each stage of the plan costs",
        {
            "stage": [f"{row['stage']}: {row['replicas']} x {row['hardware']}" for row in rows],
            "cost_usd_per_h": tables["stages"]["cost_usd_per_h"],
        },
        Axis("stage", "stage"),
        "Replicas and hardware of each stage; the batch limits are in the table.",
    )
    return (stages, *drawn)


def measured_figures(content: Mapping[str, Any]) -> tuple[Figure, ...]:
    """Times of batches, in place and alone, if the measurement has them."""
    profile = content.get("batch_times") or []
    return (_batch_times(profile),) if profile else ()


def _batch_times(rows: Sequence[Mapping[str, Any]]) -> Figure:
    # A measurement that was stopped has sizes that were measured alone only.
    in_place = [row for row in rows if row["in_place_over_alone"] is not None]
    parts = [(row, "mean_ms", "in place") for row in in_place]
    parts += [(row, "alone_mean_ms", "alone") for row in rows]
    return Figure.of(
        "line",
        "batch-times",
        "What a batch takes, with all stages busy and alone",
        {
            "batch": [int(row["batch"]) for row, _, _ in parts],
            "mean_ms": [float(row[column]) for row, column, _ in parts],
            "where": [f"{row['model']} {where}" for row, _, where in parts],
        },
        x=Axis("batch", "batch size", "queries"),
        y=Axis("mean_ms", "mean time of a batch", "ms"),
        series="where",
        caption="From handing a batch over to having its answer, as a queue sees it.",
    )


def _table(name: str, rows: Sequence[Mapping[str, Any]]) -> Table:
    """Rows of a plan file as a table; what is null there is nan in a column of numbers."""
    values: dict[str, list[Any]] = {column: [row.get(column) for row in rows] for column in rows[0]}
    for column, cells in values.items():
        if any(isinstance(value, (int, float)) for value in cells):
            values[column] = [float("nan") if value is None else value for value in cells]
    return Table.of(TableSchema(name, tuple(map(Column, values))), **values)
