"""The figures of a run, as data."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from forerun.domains.energy.summary.tables import slots_of
from forerun.result.figures import Axis, Figure, Rule
from forerun.result.objective import pareto
from forerun.result.run import Result, SavedRun
from forerun.scenario.spec import to_data

ENDINGS = {"reached": "reached", "bound": "stopped", "max_epochs": "gave up", "never_ran": "never ran"}


def figures(run: Result | SavedRun) -> tuple[Figure, ...]:
    """The figures of one run, from its tables and summary."""
    scenario = to_data(run.scenario)
    if scenario.get("pipeline"):
        return (*_passes(run), _frontier(run))
    shown = [_plane(run, scenario), _choices(run), _regret(run), _costs(run)]
    savings = _savings(run)
    if savings is not None:
        shown.append(savings)
    if scenario.get("group"):
        shown.append(_slots(run))
    return tuple(shown)


def _plane(run: Result | SavedRun, scenario: dict[str, Any]) -> Figure:
    """Every configuration in the plane of time and energy."""
    table = run.tables["configurations"]
    certain = table["reach_share"] == 1
    time, energy = table["time_s"][certain], table["energy_j"][certain]
    size, limit = table["batch_size"][certain], table["power_limit_w"][certain]
    which = np.array(["dominated"] * len(time), object)
    which[pareto(range(len(time)), lambda at: (time[at], energy[at]))] = "frontier"
    mine = size == scenario["job"]["default_batch_size"]
    if mine.any():
        which[np.flatnonzero(mine)[np.argmax(limit[mine])]] = "default"
    if len(time):
        which[int(np.argmin(table["cost_j"][certain]))] = "least cost"
    return Figure(
        id="energy-plane",
        title="Time and energy to the target of every configuration",
        kind="points",
        x=Axis("time_s", "time to the target", "s", log=True),
        y=Axis("energy_j", "energy to the target", "J", log=True),
        data={
            "time_s": time.tolist(),
            "energy_j": energy.tolist(),
            "which": which.tolist(),
            "configuration": [f"{b} at {w:g} W" for b, w in zip(size, limit)],
        },
        series="which",
        series_label="configuration",
        order=("least cost", "default", "frontier", "dominated"),
        caption="Expectations over recorded runs; configurations whose runs do not all reach are left out.",
    )


def _choices(run: Result | SavedRun) -> Figure:
    """The batch size of every attempt, coloured by how it ended."""
    table = run.tables["attempts"]
    return Figure(
        id="energy-choices",
        title="Batch sizes tried",
        kind="points",
        x=Axis("recurrence", "recurrence"),
        y=Axis("batch_size", "batch size", log=True),
        data={
            "recurrence": table["recurrence"].tolist(),
            "batch_size": table["batch_size"].tolist(),
            "ended": [ENDINGS[str(end)] for end in table["ended_by"]],
        },
        series="ended",
        series_label="attempt",
        order=tuple(ENDINGS.values()),
        caption="One point per attempt.",
    )


def _regret(run: Result | SavedRun) -> Figure:
    """Cumulative cost above the oracle's, by recurrence."""
    table = run.tables["recurrences"]
    return Figure(
        id="energy-regret",
        title="Cumulative regret",
        kind="line",
        x=Axis("recurrence", "recurrence"),
        y=Axis("regret", "cumulative cost above the oracle's", "J"),
        data={"recurrence": table["recurrence"].tolist(), "regret": table["regret_cum_j"].tolist()},
        caption="The oracle runs the configuration with the least expected cost every time.",
    )


def _costs(run: Result | SavedRun) -> Figure:
    """Expected cost of each size at its best limit, and the cost of its attempts."""
    table, attempts = run.tables["configurations"], run.tables["attempts"]
    sizes, costs, kinds = [], [], []
    for size in sorted(set(table["batch_size"].tolist())):
        best = table["cost_j"][(table["batch_size"] == size) & (table["reach_share"] == 1)]
        if len(best):
            sizes.append(size)
            costs.append(float(best.min()))
            kinds.append("expected at its best limit")
    reached = attempts["reached"].astype(bool)
    sizes += attempts["batch_size"][reached].tolist()
    costs += attempts["cost_j"][reached].tolist()
    kinds += ["attempt that reached"] * int(reached.sum())
    return Figure(
        id="energy-cost-by-batch-size",
        title="Cost by batch size",
        kind="points",
        x=Axis("batch_size", "batch size", log=True),
        y=Axis("cost", "cost to the target", "J", log=True),
        data={"batch_size": sizes, "cost": costs, "kind": kinds},
        series="kind",
        series_label="cost",
        caption="Expected cost at each size's best limit, and every attempt that reached the target.",
    )


def _savings(run: Result | SavedRun) -> Figure | None:
    """What was saved against the default, with both intervals; None if there are none."""
    names = {
        "energy_saved_percent": "energy, all",
        "energy_saved_last5_percent": "energy, last five",
        "time_saved_percent": "time, all",
        "time_saved_last5_percent": "time, last five",
    }
    rows: dict[str, list[Any]] = {"what": [], "saved": [], "low": [], "high": [], "interval": []}
    for name, label in names.items():
        if name not in run.summary:
            return None
        for suffix, how in (("", "over seeds"), ("_two_level", "over recorded paths and seeds")):
            interval = run.intervals.get(name + suffix)
            rows["what"].append(label)
            shown = float(run.summary[name])
            rows["saved"].append(float(run.summary.get(name + "_two_level", shown)) if suffix else shown)
            rows["low"].append(interval.low if interval else math.nan)
            rows["high"].append(interval.high if interval else math.nan)
            rows["interval"].append(how)
    return Figure(
        id="energy-savings",
        title="Saved against the default configuration",
        kind="points",
        x=Axis("what", "what"),
        y=Axis("saved", "saved", "%"),
        data=rows,
        series="interval",
        series_label="interval",
        low="low",
        high="high",
        rules=(Rule(0.0, "default", "y"),),
        caption="The interval over seeds treats the recorded runs as exact; the one over paths and seeds resamples them.",
    )


def _slots(run: Result | SavedRun) -> Figure:
    """When each attempt of a group ran, one track a slot."""
    table = run.tables["attempts"]
    slots = slots_of(table["start_s"].tolist(), table["end_s"].tolist())
    return Figure(
        id="energy-slots",
        title="Submissions over time",
        kind="gantt",
        x=Axis("from_s", "time", "s"),
        y=Axis("slot", "slot"),
        data={
            "from_s": table["start_s"].tolist(),
            "to_s": table["end_s"].tolist(),
            "slot": [f"slot {slot}" for slot in slots],
            "stage": [str(stage) for stage in table["stage"]],
        },
        x2="to_s",
        series="stage",
        series_label="purpose",
        caption="Each attempt takes the first slot that is free when it starts.",
    )


def _passes(run: Result | SavedRun) -> tuple[Figure, Figure]:
    """What each stage does when, at the highest frequencies and as chosen; on the same axis of time."""
    table = run.tables["operations"]
    passes = []
    for which, title in (
        ("highest", "An iteration with every pass at its highest frequency"),
        ("chosen", "The iteration as planned"),
    ):
        mine = table["plan"] == which
        clock = table["frequency_mhz"][mine]
        top = float(table["frequency_mhz"].max())
        slowed = int(np.count_nonzero(clock < top))
        passes.append(
            Figure(
                id=f"energy-passes-{which}",
                title=title,
                kind="gantt",
                x=Axis("from_s", "time", "s"),
                y=Axis("stage", "stage"),
                data={
                    "from_s": table["start_s"][mine].tolist(),
                    "to_s": table["end_s"][mine].tolist(),
                    "stage": [f"stage {stage}" for stage in table["stage"][mine].tolist()],
                    "clock": [slowness(float(f) / top) for f in clock.tolist()],
                },
                x2="to_s",
                series="clock",
                series_label="clock",
                order=CLOCKS,
                caption="One bar per pass of a microbatch; gaps are waiting time. "
                f"{slowed} of {len(clock)} passes run below the highest frequency.",
                rules=(Rule(float(table["end_s"][mine].max()), "end"),),
            )
        )
    return passes[0], passes[1]


CLOCKS = ("highest", "90 % or more of it", "75 to 90 %", "below 75 %")


def slowness(share: float) -> str:
    """How far below the highest frequency a pass runs."""
    return CLOCKS[0 if share == 1 else 1 if share >= 0.9 else 2 if share >= 0.75 else 3]


def _frontier(run: Result | SavedRun) -> Figure:
    """Plans of a pipeline in the plane of time and energy."""
    table, summary = run.tables["frontier"], run.summary
    time, energy = table["makespan_s"].tolist(), table["energy_j"].tolist()
    chosen = table["chosen"].astype(bool)
    which = ["chosen" if yes else "frontier" for yes in chosen.tolist()]
    return Figure(
        id="energy-pipeline-frontier",
        title="Time and energy of an iteration",
        kind="points",
        x=Axis("makespan_s", "time of an iteration", "s"),
        y=Axis("energy_j", "energy of an iteration", "J"),
        data={
            "makespan_s": [*time, float(summary["highest_makespan_s"])],
            "energy_j": [*energy, float(summary["highest_energy_j"])],
            "which": [*which, "every pass at its highest"],
        },
        series="which",
        series_label="plan",
        order=("chosen", "every pass at its highest", "frontier"),
        caption=f"{len(time)} plans of which none is better in both; the slowest takes "
        f"{100 * (max(time) / min(time) - 1):.3g} % more time than the fastest and "
        f"{100 * (1 - min(energy) / max(energy)):.3g} % less energy.",
    )
