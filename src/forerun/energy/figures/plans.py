"""The figures of plan files and measurements, as data."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from forerun.core.result.figures import Axis, Figure
from forerun.energy.figures import HIGHEST, frontier, passes


def _columns(rows: Sequence[Mapping[str, Any]], *names: str) -> dict[str, list[float]]:
    """Columns of numbers from plain records."""
    return {name: [float(row[name]) for row in rows] for name in names}


def plan_figures(plan: Mapping[str, Any], scenario: Mapping[str, Any]) -> tuple[Figure, ...]:
    """The figures of a plan file.

    plan: of a job or a pipeline, as plain data. Of a job: the frontier of time and energy with the plan, the knee and the
    default on it, and the plan at each weight of energy.
    """
    if plan.get("operations"):
        return _of_a_pipeline(plan)
    figures = []
    # Highlighted points are drawn last, on top of the others.
    marked = [
        *(("frontier", point) for point in plan.get("frontier") or ()),
        ("default", plan.get("default")),
        ("knee", plan.get("knee")),
        ("plan", plan["summary"]),
    ]
    rows = [(name, point) for name, point in marked if point and point.get("time_s") is not None]
    if rows:
        figures.append(
            Figure.of(
                "points",
                "plan-frontier",
                "Time and energy to the target",
                {
                    **_columns([point for _, point in rows], "time_s", "energy_j"),
                    "kind": [name for name, _ in rows],
                },
                x=Axis("time_s", "time to the target", "s"),
                y=Axis("energy_j", "energy to the target", "J"),
                series="kind",
                order=("plan", "knee", "default", "frontier"),
                caption="No configuration is faster at less energy than the frontier; the knee is its sharpest bend.",
            )
        )
    weights = plan.get("by_eta") or ()
    if weights:
        figures.append(
            Figure.of(
                "step",
                "plan-by-eta",
                "The plan's energy by its weight",
                _columns(weights, "eta", "energy_j"),
                x=Axis("eta", "weight of energy against time"),
                y=Axis("energy_j", "energy to the target", "J"),
                caption="Weight 0 counts time alone, 1 energy alone; the configuration changes at the steps.",
            )
        )
    return tuple(figures)


def _of_a_pipeline(plan: Mapping[str, Any]) -> tuple[Figure, Figure]:
    """When each pass of the planned iteration runs, and the frontier with the plan on it."""
    summary, operations = plan["summary"], plan["operations"]
    columns = _columns(operations, "start_s", "end_s", "frequency_mhz")
    top_mhz = max(columns["frequency_mhz"])
    stages = {"stage": [op["stage"] for op in operations]}
    points = [
        *(("frontier", point["makespan_s"], point["energy_j"]) for point in plan.get("frontier") or ()),
        (HIGHEST, summary["highest_makespan_s"], summary["highest_energy_j"]),
        ("plan", summary["makespan_s"], summary["energy_j"]),
    ]
    return (
        passes("plan-passes", "The iteration as planned", {**columns, **stages}, top_mhz),
        frontier(
            "plan-pipeline-frontier",
            points,
            order=("plan", HIGHEST, "frontier"),
            caption="Plans that no other beats in both time and energy.",
        ),
    )


def measured_figures(measured: Mapping[str, Any]) -> tuple[Figure, ...]:
    """Seconds of an epoch by batch size, with intervals; watts where something read them.

    measured: the content of a measurement file.
    """
    points = measured.get("points") or []
    if not points:
        return ()
    limits = [
        f"{point['power_limit_w']:g} W" if point.get("power_limit_w") else "no limit" for point in points
    ]
    low, high = zip(*(point["epoch_s_interval"] for point in points), strict=True)
    size = Axis("batch_size", "batch size", log=True)
    figures = [
        Figure.of(
            "points",
            "measured-epochs",
            "Seconds of an epoch",
            {**_columns(points, "batch_size", "epoch_s"), "limit": limits, "low": low, "high": high},
            x=size,
            y=Axis("epoch_s", "epoch", "s"),
            series="limit" if len(set(limits)) > 1 else "",
            series_label="power limit",
            caption=f"Means over {points[0]['repeats']} repeats with their 95 % intervals (Student's t).",
        )
    ]
    watts = [point for point in points if point.get("power_w") is not None]
    if watts:
        figures.append(
            Figure.of(
                "points",
                "measured-watts",
                "Mean watts of an epoch",
                _columns(watts, "batch_size", "power_w"),
                x=size,
                y=Axis("power_w", "power", "W"),
                caption=f"Sensor: {measured.get('sensor', 'none')}.",
            )
        )
    return tuple(figures)
