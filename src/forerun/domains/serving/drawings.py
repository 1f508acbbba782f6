"""What the report draws of this room's plan files."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from forerun.domains.serving.planning.figures import plan_figures as drawn
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


def _table(name: str, rows: list[Mapping[str, Any]]) -> Table:
    """Rows of a plan file as a table; what is null there is nan in a column of numbers."""
    columns = list(rows[0])
    values: dict[str, list[Any]] = {column: [row.get(column) for row in rows] for column in columns}
    for column, found in values.items():
        if any(isinstance(value, (int, float)) for value in found):
            values[column] = [float("nan") if value is None else value for value in found]
    return Table.of(TableSchema(name, tuple(Column(column) for column in columns)), **values)
