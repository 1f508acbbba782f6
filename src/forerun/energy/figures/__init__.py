"""The figures of a run, as data."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

import numpy as np

from forerun.core.result.figures import Axis, Columns, Figure, Rule, by_series
from forerun.core.result.objective import pareto
from forerun.core.result.run import Result, SavedRun
from forerun.core.scenario.spec import to_data
from forerun.energy.summary.tables import slots_of

ENDINGS: Final = {
    "reached": "reached",
    "bound": "stopped",
    "max_epochs": "gave up",
    "never_ran": "never ran",
}
CLOCKS: Final = ("highest", "90 % or more of it", "75 to 90 %", "below 75 %")
HIGHEST: Final = "every pass at its highest"


def figures(run: Result | SavedRun) -> tuple[Figure, ...]:
    """The figures of one run, from its tables and summary.

    Of a job: configurations, choices, regret, costs and savings; of a pipeline: its passes and its frontier.
    """
    scenario = to_data(run.scenario)
    if scenario.get("pipeline"):
        return (*_passes(run), _frontier(run))
    shown = [_plane(run, scenario), _choices(run), _regret(run), _costs(run), *_savings(run)]
    return (*shown, _slots(run)) if scenario.get("group") else tuple(shown)


def _plane(run: Result | SavedRun, scenario: Mapping[str, Any]) -> Figure:
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
    return Figure.of(
        "points",
        "energy-plane",
        "Time and energy to the target of every configuration",
        {"time_s": time, "energy_j": energy, "which": which},
        x=Axis("time_s", "time to the target", "s", log=True),
        y=Axis("energy_j", "energy to the target", "J", log=True),
        series="which",
        series_label="configuration",
        order=("least cost", "default", "frontier", "dominated"),
        caption="Expectations over recorded runs; configurations whose runs do not all reach are left out.",
    )


def _choices(run: Result | SavedRun) -> Figure:
    """The batch size of every attempt, coloured by how it ended."""
    table = run.tables["attempts"]
    return Figure.of(
        "points",
        "energy-choices",
        "Batch sizes tried",
        {**table.columns, "ended": [ENDINGS[str(end)] for end in table["ended_by"]]},
        x="recurrence",
        y=Axis("batch_size", "batch size", log=True),
        series="ended",
        series_label="attempt",
        order=ENDINGS.values(),
        caption="One point per attempt.",
    )


def _regret(run: Result | SavedRun) -> Figure:
    """Cumulative cost above the oracle's, by recurrence."""
    return Figure.of(
        "line",
        "energy-regret",
        "Cumulative regret",
        run.tables["recurrences"],
        x="recurrence",
        y=Axis("regret_cum_j", "cumulative cost above the oracle's", "J"),
        caption="The oracle runs the configuration with the least expected cost every time.",
    )


def _costs(run: Result | SavedRun) -> Figure:
    """Expected cost of each size at its best limit, and the cost of its attempts."""
    table, attempts = run.tables["configurations"], run.tables["attempts"]
    certain = table["reach_share"] == 1
    sizes = np.unique(table["batch_size"][certain])
    least = [table["cost_j"][certain & (table["batch_size"] == size)].min() for size in sizes]
    reached = attempts["reached"].astype(bool)
    curves: dict[str, Columns] = {
        "expected at its best limit": {"batch_size": sizes, "cost_j": least},
        "attempt that reached": {name: attempts[name][reached] for name in ("batch_size", "cost_j")},
    }
    return Figure.of(
        "points",
        "energy-cost-by-batch-size",
        "Cost by batch size",
        by_series("kind", curves),
        x=Axis("batch_size", "batch size", log=True),
        y=Axis("cost_j", "cost to the target", "J", log=True),
        series="kind",
        series_label="cost",
        caption="Expected cost at each size's best limit, and every attempt that reached the target.",
    )


def _savings(run: Result | SavedRun) -> tuple[Figure, ...]:
    """What was saved against the default, with intervals; nothing if that is not known."""
    names = {
        "energy_saved_percent": "energy, all",
        "energy_saved_last5_percent": "energy, last five",
        "time_saved_percent": "time, all",
        "time_saved_last5_percent": "time, last five",
    }
    if not all(name in run.summary for name in names):
        return ()
    return (
        Figure.of(
            "points",
            "energy-savings",
            "Saved against the default configuration",
            {
                "what": list(names.values()),
                "saved": [float(run.summary[name]) for name in names],
            },
            intervals=[run.intervals.get(name) for name in names],
            x="what",
            y=Axis("saved", "saved", "%"),
            rules=[Rule(0.0, "default", "y")],
            caption="Intervals resample the recorded runs as well as the seeds, unless seeds alone vary more.",
        ),
    )


def _slots(run: Result | SavedRun) -> Figure:
    """When each attempt of a group ran, one track a slot."""
    table = run.tables["attempts"]
    slots = slots_of(table["start_s"].tolist(), table["end_s"].tolist())
    return Figure.of(
        "gantt",
        "energy-slots",
        "Submissions over time",
        {**table.columns, "slot": [f"slot {slot}" for slot in slots]},
        x=Axis("start_s", "time", "s"),
        x2="end_s",
        y="slot",
        series="stage",
        series_label="purpose",
        caption="Each attempt takes the first slot that is free when it starts.",
    )


# ------------------------------------------------------------------------------------------------ pipelines


def _passes(run: Result | SavedRun) -> tuple[Figure, ...]:
    """What each stage does when, at the highest frequencies and as chosen; on the same axis of time."""
    table, shown = run.tables["operations"], []
    top = float(table["frequency_mhz"].max())
    for which, title in (
        ("highest", "An iteration with every pass at its highest frequency"),
        ("chosen", "The iteration as planned"),
    ):
        mine = table["plan"] == which
        columns = {name: values[mine] for name, values in table.columns.items()}
        clock, end_s = columns["frequency_mhz"], columns["end_s"]
        caption = f" {np.count_nonzero(clock < top)} of {len(clock)} passes run below the highest frequency."
        shown.append(passes(f"energy-passes-{which}", title, columns, top, caption, float(end_s.max())))
    return tuple(shown)


def passes(
    id: str, title: str, operations: Columns, top_mhz: float, caption: str = "", end_s: float = 0.0
) -> Figure:
    """When each pass of an iteration runs, on a track a stage, coloured by its clock.

    operations: columns of the passes. top_mhz: the highest frequency [MHz]. caption: what to add to it. end_s: where to
    mark the end [s] (default 0: nowhere).
    """
    shares = [float(clock) / top_mhz for clock in operations["frequency_mhz"]]
    return Figure.of(
        "gantt",
        id,
        title,
        {
            **operations,
            "stage": [f"stage {stage}" for stage in operations["stage"]],
            "clock": [CLOCKS[(share < 1) + (share < 0.9) + (share < 0.75)] for share in shares],
        },
        x=Axis("start_s", "time", "s"),
        x2="end_s",
        y="stage",
        series="clock",
        series_label="clock",
        order=CLOCKS,
        rules=[Rule(end_s, "end")] if end_s else (),
        caption="One bar per pass of a microbatch; gaps are waiting time." + caption,
    )


def _frontier(run: Result | SavedRun) -> Figure:
    """Plans of a pipeline in the plane of time and energy."""
    table, summary = run.tables["frontier"], run.summary
    time, energy = table["makespan_s"].tolist(), table["energy_j"].tolist()
    which = ["chosen" if chosen else "frontier" for chosen in table["chosen"].astype(bool).tolist()]
    return frontier(
        "energy-pipeline-frontier",
        [
            *zip(which, time, energy, strict=True),
            (HIGHEST, summary["highest_makespan_s"], summary["highest_energy_j"]),
        ],
        order=("chosen", HIGHEST, "frontier"),
        series_label="plan",
        caption=f"{len(time)} plans of which none is better in both; the slowest takes "
        f"{100 * (max(time) / min(time) - 1):.3g} % more time than the fastest and "
        f"{100 * (1 - min(energy) / max(energy)):.3g} % less energy.",
    )


def frontier(
    id: str,
    points: Sequence[tuple[str, float, float]],
    *,
    order: Sequence[str],
    caption: str,
    series_label: str = "",
) -> Figure:
    """Plans of a pipeline in the plane of time and energy.

    points: (which, seconds, joules of an iteration). order: of the kinds of points. caption, series_label: as of a
    figure.
    """
    which, seconds, joules = zip(*points, strict=True)
    return Figure.of(
        "points",
        id,
        "Time and energy of an iteration",
        {"which": which, "makespan_s": list(map(float, seconds)), "energy_j": list(map(float, joules))},
        x=Axis("makespan_s", "time of an iteration", "s"),
        y=Axis("energy_j", "energy of an iteration", "J"),
        series="which",
        series_label=series_label,
        order=order,
        caption=caption,
    )
