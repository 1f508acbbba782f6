"""The figures of plan files and measurements, as data."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from forerun.domains.energy.figures import CLOCKS, slowness
from forerun.result.figures import Axis, Figure


def plan_figures(plan: Mapping[str, Any], scenario: Mapping[str, Any]) -> tuple[Figure, ...]:
    """The frontier of time and energy with the plan, the knee and the default on it; the plan at each weight."""
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
            Figure(
                id="plan-frontier",
                title="Time and energy to the target",
                kind="points",
                x=Axis("time_s", "time to the target", "s"),
                y=Axis("energy_j", "energy to the target", "J"),
                data={
                    "time_s": [float(point["time_s"]) for _, point in rows],
                    "energy_j": [float(point["energy_j"]) for _, point in rows],
                    "kind": [name for name, _ in rows],
                },
                series="kind",
                order=("plan", "knee", "default", "frontier"),
                caption="No configuration is faster at less energy than the frontier; the knee is its sharpest bend.",
            )
        )
    weights = plan.get("by_eta") or ()
    if weights:
        figures.append(
            Figure(
                id="plan-by-eta",
                title="The plan's energy by its weight",
                kind="step",
                x=Axis("eta", "weight of energy against time"),
                y=Axis("energy_j", "energy to the target", "J"),
                data={
                    "eta": [float(point["eta"]) for point in weights],
                    "energy_j": [float(point["energy_j"]) for point in weights],
                },
                caption="Weight 0 counts time alone, 1 energy alone; the configuration changes at the steps.",
            )
        )
    return tuple(figures)


def _of_a_pipeline(plan: Mapping[str, Any]) -> tuple[Figure, ...]:
    """When each pass of the planned iteration runs, and the frontier with the plan on it."""
    summary = plan["summary"]
    operations = plan["operations"]
    top_mhz = max(float(op["frequency_mhz"]) for op in operations)
    points = [
        *(("frontier", point["makespan_s"], point["energy_j"]) for point in plan.get("frontier") or ()),
        ("every pass at its highest", summary["highest_makespan_s"], summary["highest_energy_j"]),
        ("plan", summary["makespan_s"], summary["energy_j"]),
    ]
    return (
        Figure(
            id="plan-passes",
            title="The iteration as planned",
            kind="gantt",
            x=Axis("start_s", "time", "s"),
            y=Axis("stage", "stage"),
            data={
                "start_s": [float(op["start_s"]) for op in operations],
                "end_s": [float(op["end_s"]) for op in operations],
                "stage": [f"stage {op['stage']}" for op in operations],
                "clock": [slowness(float(op["frequency_mhz"]) / top_mhz) for op in operations],
            },
            x2="end_s",
            series="clock",
            series_label="clock",
            order=CLOCKS,
            caption="One bar per pass of a microbatch; gaps are waiting time.",
        ),
        Figure(
            id="plan-pipeline-frontier",
            title="Time and energy of an iteration",
            kind="points",
            x=Axis("makespan_s", "time of an iteration", "s"),
            y=Axis("energy_j", "energy of an iteration", "J"),
            data={
                "makespan_s": [float(seconds) for _, seconds, _ in points],
                "energy_j": [float(joules) for _, _, joules in points],
                "kind": [name for name, _, _ in points],
            },
            series="kind",
            order=("plan", "every pass at its highest", "frontier"),
            caption="Plans that no other beats in both time and energy.",
        ),
    )


def measured_figures(measured: Mapping[str, Any]) -> tuple[Figure, ...]:
    """Seconds of an epoch by batch size, with intervals; watts where something read them."""
    points = measured.get("points") or []
    if not points:
        return ()
    limits = [
        f"{point['power_limit_w']:g} W" if point.get("power_limit_w") else "no limit" for point in points
    ]
    common = {"batch_size": [point["batch_size"] for point in points], "limit": limits}
    many = len(set(limits)) > 1
    sensor = measured.get("sensor", "none")
    figures = [
        Figure(
            id="measured-epochs",
            title="Seconds of an epoch",
            kind="points",
            x=Axis("batch_size", "batch size", log=True),
            y=Axis("epoch_s", "epoch", "s"),
            data={
                **common,
                "epoch_s": [point["epoch_s"] for point in points],
                "low": [point["epoch_s_interval"][0] for point in points],
                "high": [point["epoch_s_interval"][1] for point in points],
            },
            series="limit" if many else "",
            series_label="power limit",
            low="low",
            high="high",
            caption=f"Means over {points[0]['repeats']} repeats with their 95 % intervals (Student's t).",
        )
    ]
    watts = [point for point in points if point.get("power_w") is not None]
    if watts:
        figures.append(
            Figure(
                id="measured-watts",
                title="Mean watts of an epoch",
                kind="points",
                x=Axis("batch_size", "batch size", log=True),
                y=Axis("power_w", "power", "W"),
                data={
                    "batch_size": [point["batch_size"] for point in watts],
                    "power_w": [point["power_w"] for point in watts],
                },
                caption=f"Sensor: {sensor}.",
            )
        )
    return tuple(figures)
