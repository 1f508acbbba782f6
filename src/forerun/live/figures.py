"""The figures of a live run, beside those that it shares with a simulation, and of a profiled training program."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Final

import numpy as np

from forerun.core.result.figures import Axis, Figure
from forerun.core.result.run import Result, SavedRun
from forerun.core.result.tables import Table

#: slots beyond which a picture of each is left to the timeline file
MOST_TRACKS: Final = 64


def figures(run: Result | SavedRun) -> tuple[Figure, ...]:
    """Measured beside simulated, and what each slot did; none of a run that is simulated."""
    made: list[Figure] = []
    if "predictions" in run.tables:
        made += _beside_simulated(run.tables["predictions"])
    if "slots" in run.tables and len(run.tables["slots"]):
        made.append(_slots(run.tables["slots"]))
    return tuple(made)


def _slots(slots: Table) -> Figure:
    """What each slot of a live run did, for the first 64 slots."""
    names = list(dict.fromkeys(sorted(slots["slot"].tolist(), key=_natural)))
    shown = slots.rows(np.flatnonzero(np.isin(slots["slot"].astype(str), names[:MOST_TRACKS])))
    order = [
        state for state in ("starting", "useful", "lost", "draining") if state in set(shown["state"].tolist())
    ]
    left_out = f" The first {MOST_TRACKS} of {len(names)} slots." if len(names) > MOST_TRACKS else ""
    return Figure.of(
        "gantt",
        "slots-by-state",
        "What each slot did",
        shown,
        x=Axis("from_s", "time", "s"),
        x2="to_s",
        y="slot",
        series="state",
        order=order,
        caption="Each slot as it was observed: a job starts on it, works, loses work to a failure, or leaves. Blank: free."
        f"{left_out}",
    )


def _natural(name: str) -> list[tuple[int, str]]:
    """The key that sorts names with numbers as people do: slot 2 before slot 10."""
    return [(int(part), "") if part.isdigit() else (0, part) for part in re.split(r"(\d+)", name)]


def _beside_simulated(predictions: Table) -> list[Figure]:
    """Each job of a live run from its first start to its end, measured and simulated, and its time against the forecast."""
    spans = [
        (f"{job}{'' if which == 'measured' else ', simulated'}", start, end, which)
        for job, *instants in zip(
            *(
                predictions[name].tolist()
                for name in ("job", "first_start_s", "end_s", "predicted_first_start_s", "predicted_end_s")
            ),
            strict=True,
        )
        for which, start, end in (("measured", *instants[:2]), ("simulated", *instants[2:]))
        if np.isfinite(end - start)
    ][: 2 * MOST_TRACKS]
    figures = []
    if spans:
        track, from_s, to_s, which = zip(*spans, strict=True)
        figures.append(
            Figure.of(
                "gantt",
                "jobs-beside-simulated",
                "Jobs, measured and simulated",
                {"job": track, "from_s": from_s, "to_s": to_s, "which": which},
                x=Axis("from_s", "time", "s"),
                x2="to_s",
                y="job",
                series="which",
                order=("measured", "simulated"),
                caption="Each job from its first start to its end: in this run, and below it in the simulation.",
            )
        )
    jct_s, predicted_s = (
        predictions[name] - predictions["submit_s"] for name in ("end_s", "predicted_end_s")
    )
    both = np.isfinite(jct_s - predicted_s)
    if both.any():
        figures.append(
            Figure.of(
                "points",
                "completion-beside-simulated",
                "Completion times, measured and simulated",
                {"predicted_s": predicted_s[both], "measured_s": jct_s[both]},
                x=Axis("predicted_s", "simulated", "s"),
                y=Axis("measured_s", "measured", "s"),
                caption="Time from submission to end of each job. Above the line the job took longer than simulated.",
                equal=True,
            )
        )
    return figures


def measured_figures(measured: Mapping[str, Any]) -> tuple[Figure, ...]:
    """Of a profiled training program: throughput by slots, seconds of each change, and seconds of profiling.

    Parameters
    ----------
    measured : the content of a measurement file.
    """
    made = []
    if rows := measured["throughput"]:
        made.append(
            Figure.of(
                "points",
                "measured-throughput",
                "Throughput by slots",
                {
                    "slots": [row["slots"] for row in rows],
                    "iterations_per_s": [row["iterations_per_s"] for row in rows],
                    "batch": [str(row["batch"]) for row in rows],
                },
                x=Axis("slots", "slots", log=True),
                y=Axis("iterations_per_s", "throughput", "iterations/s"),
                series="batch",
                series_label="global batch",
                caption=f"Iterations a second of {measured['model']}, by its own reports, after the first of them.",
            )
        )
    if rows := measured["changes"]:
        made.append(
            Figure.of(
                "points",
                "measured-changes",
                "Seconds of a change",
                {
                    "change": [row["change"] for row in rows],
                    "median_s": [row["median_s"] for row in rows],
                    "low": [row["least_s"] for row in rows],
                    "high": [row["most_s"] for row in rows],
                    "start": [row["start"] for row in rows],
                },
                x=Axis("change", "change of slots"),
                y=Axis("median_s", "from the command to the first step", "s"),
                series="start",
                series_label="processes start",
                caption=(
                    f"Medians of {measured['model']}, with the least and the most. Warm processes are forked from one that "
                    "has the libraries; `drain` lasts until the slots are free."
                ),
            )
        )
    if rows := measured["profiling"]:
        made.append(
            Figure.of(
                "bar",
                "measured-profiling",
                "Seconds of profiling",
                {"model": [row["model"] for row in rows], "seconds": [row["seconds"] for row in rows]},
                x=Axis("model", "program"),
                y=Axis("seconds", "profiling", "s"),
                caption="Wall seconds that all throughputs took, with the starts that they needed.",
            )
        )
    return tuple(made)
