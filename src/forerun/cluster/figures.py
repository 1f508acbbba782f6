"""The figures of a run."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final

import numpy as np

from forerun.core.result.figures import Axis, Figure, Rule, by_series
from forerun.core.result.run import Result, SavedRun
from forerun.core.result.tables import Table

_DAYS: Final = ("Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun")
#: GPUs beyond which a picture of each is left to the timeline file
MOST_TRACKS: Final = 64


def figures(run: Result | SavedRun) -> tuple[Figure, ...]:
    """GPUs in use over time, queue, submissions and admissions, waits, completion times, and the jobs on the GPUs."""
    events, jobs, allocations = run.tables["events"], run.tables["jobs"], run.tables["allocations"]
    gpus = float(run.summary["gpus"])
    made = [_gpus_over_time(events, gpus), *_job_counts(events), _waits(jobs)]
    if len(causes := run.summary.get("causes", {})) > 1:
        made.append(
            Figure.of(
                "stacked_bar",
                "waits-by-partition",
                "What jobs of each partition waited for",
                _by_cause("partition", causes),
                x=Axis("partition", "partition"),
                y=Axis("mean_s", "mean wait", "s"),
                series="cause",
                caption="Mean wait of the jobs of each partition by cause, in the run and, where recorded, in the log.",
            )
        )
    if "submitted" in jobs.columns and any(jobs["submitted"].tolist()):
        made.append(_by_hour(jobs))
    if np.isfinite(jobs["end_s"]).any():
        made.append(_completion(jobs))
    if len(allocations):
        made.append(_gantt(allocations))
        if any(allocations["gpu_numbers"].tolist()):
            made.append(_tracks(allocations, int(gpus)))
    return tuple(made)


def _gpus_over_time(events: Table, gpus: float) -> Figure:
    return Figure.of(
        "step",
        "gpus-over-time",
        "GPUs in use",
        {"time_s": events["time_s"], "used": gpus - events["free"]},
        x="time_s",
        y=Axis("used", "GPUs in use"),
        caption="GPUs in use over time. The line on top is the size of the cluster.",
        rules=[Rule(gpus, "all GPUs", "y")],
    )


def _job_counts(events: Table) -> tuple[Figure, Figure]:
    """Jobs waiting and running, and jobs submitted and admitted so far."""

    def curves(**columns: str) -> dict[str, np.ndarray[Any, Any]]:
        named = {
            name: {"time_s": events["time_s"], "jobs": events[column]} for name, column in columns.items()
        }
        return by_series("which", named)

    return (
        Figure.of(
            "step",
            "queue",
            "Jobs waiting and running",
            curves(waiting="pending", running="running"),
            x="time_s",
            y="jobs",
            series="which",
            caption="Jobs waiting and jobs running after each scheduling event.",
        ),
        Figure.of(
            "step",
            "admissions",
            "Submitted and admitted",
            curves(submitted="submitted", admitted="admitted"),
            x="time_s",
            y=Axis("jobs", "jobs so far"),
            series="which",
            caption="Jobs submitted so far, and those of them that were admitted.",
        ),
    )


def _by_hour(jobs: Table) -> Figure:
    """Mean wait by the weekday and hour of submission, by the calendar of the log."""
    at = np.array(jobs["submitted"].tolist(), "datetime64[h]").astype(np.int64)
    waited = np.isfinite(jobs["wait_s"])
    slot = ((at // 24 + 3) % 7 * 24 + at % 24)[waited]  # 1 January 1970 was a Thursday
    jobs_in, wait_s = np.bincount(slot), np.bincount(slot, jobs["wait_s"][waited])
    seen = np.flatnonzero(jobs_in)
    return Figure.of(
        "heatmap",
        "waits-by-hour",
        "Mean wait by hour and weekday",
        {
            "hour": seen % 24,
            "day": np.array(_DAYS)[seen // 24],
            "wait_h": wait_s[seen] / jobs_in[seen] / 3600,
        },
        x=Axis("hour", "hour of submission"),
        y="day",
        z=Axis("wait_h", "mean wait", "h"),
        order=_DAYS,
        caption="Mean wait of the jobs submitted in each hour of the week, by the calendar of the log. Blank: none was.",
    )


def _completion(jobs: Table) -> Figure:
    jct = np.sort((jobs["end_s"] - jobs["submit_s"])[np.isfinite(jobs["end_s"])])
    return Figure.of(
        "cdf",
        "completion-times",
        "Completion times",
        {"jct_s": np.maximum(jct, 1.0), "share": np.arange(1, len(jct) + 1) / len(jct)},
        x=Axis("jct_s", "end less submission", "s", log=True),
        y=Axis("share", "share of jobs"),
        caption="Share of the finished jobs whose time from submission to end is at most this.",
    )


def _waits(jobs: Table) -> Figure:
    """What jobs waited for, by size."""
    causes = [name for name in jobs.columns if name.startswith("wait_") and name != "wait_s"]
    sizes = np.unique(jobs["gpus"])
    means = {
        size: {name: float(np.mean(jobs[name][jobs["gpus"] == size])) for name in causes} for size in sizes
    }
    return Figure.of(
        "stacked_bar",
        "waits",
        "What jobs waited for",
        _by_cause(
            "gpus",
            {
                str(size): {name.removeprefix("wait_"): mean_s for name, mean_s in of.items()}
                for size, of in means.items()
            },
        ),
        x=Axis("gpus", "GPUs requested"),
        y=Axis("mean_s", "mean wait", "s"),
        series="cause",
        caption="Mean wait of the jobs of each size, by cause.",
    )


def _by_cause(x: str, means: Mapping[str, Mapping[str, Any]]) -> dict[str, Any]:
    """Columns of stacked bars. means: by bar and by cause, in seconds; causes that never come are left out."""
    causes = [cause for cause in next(iter(means.values())) if cause.endswith("_s")]
    shown = [cause for cause in causes if any(of[cause] for of in means.values())] or causes[:1]
    rows = [
        (bar, cause.removesuffix("_s").replace("_", " "), of[cause])
        for bar, of in means.items()
        for cause in shown
    ]
    return dict(zip((x, "cause", "mean_s"), zip(*rows, strict=True), strict=True))


def _tracks(allocations: Table, gpus: int) -> Figure:
    """The jobs on each GPU, for the first 64 GPUs."""
    rows: list[tuple[int, float, float, str, int]] = []
    named = (allocations[name].tolist() for name in ("gpu_numbers", "from_s", "to_s", "job", "gpus"))
    for numbers, from_s, to_s, job, count in zip(*named, strict=True):
        for run in numbers.split():
            first, _, last = run.partition("-")
            rows += [(gpu, from_s, to_s, job, count) for gpu in range(int(first), int(last or first) + 1)]
    rows = sorted(row for row in rows if row[0] < MOST_TRACKS)
    gpu, start_s, end_s, _, sizes = map(np.array, zip(*rows, strict=True) if rows else ((),) * 5)
    left_out = (
        f" The first {MOST_TRACKS} of {gpus} GPUs; the timeline file has all." if gpus > MOST_TRACKS else ""
    )
    return Figure.of(
        "gantt",
        "gpus-by-job",
        "Each GPU's jobs",
        {
            "gpu": np.array([f"GPU {number}" for number in gpu]),
            "from_s": start_s,
            "to_s": end_s,
            "gpus": _sizes(sizes),
        },
        x=Axis("from_s", "time", "s"),
        x2="to_s",
        y="gpu",
        series="gpus",
        order=_sizes(sorted(set(sizes))),
        caption=f"The jobs on each GPU, coloured by the number of GPUs of the job.{left_out}",
    )


def _gantt(allocations: Table) -> Figure:
    sizes = allocations["gpus"].tolist()
    return Figure.of(
        "gantt",
        "jobs-over-time",
        "Jobs over time",
        {**allocations.columns, "gpus": _sizes(sizes)},
        x=Axis("from_s", "time", "s"),
        x2="to_s",
        y="job",
        series="gpus",
        order=_sizes(sorted(set(sizes))),
        caption="Each job's stretches of constant allocation, coloured by its number of GPUs.",
    )


def _sizes(counts: Iterable[int]) -> list[str]:
    return [f"{count} GPU" if count == 1 else f"{count} GPUs" for count in counts]


def plan_figures(plan: Mapping[str, Any]) -> tuple[Figure, ...]:
    """Deadlines met by number of nodes: by the policy, by some schedule, and at most by any.

    Parameters
    ----------
    plan : the content of a plan file.
    """
    names = {"met": "the policy", "reached": "some schedule", "bound": "no scheduler more"}
    simulated = max(row["nodes"] for row in plan["counts"] if row["met"] is not None)
    rows = [row for row in plan["counts"] if row["bound"] is not None and row["nodes"] <= simulated]
    curves = {
        name: {
            "nodes": [row["nodes"] for row in rows if row[key] is not None],
            "deadlines": [row[key] for row in rows if row[key] is not None],
        }
        for key, name in names.items()
    }
    summary = plan["summary"]
    # No rule: its label would lie on the policy's last points, which are near it.
    curves["wanted"] = {
        "nodes": [rows[0]["nodes"], rows[-1]["nodes"]],
        "deadlines": [summary["deadlines_wanted"]] * 2,
    }
    return (
        Figure.of(
            "line",
            "deadlines-by-nodes",
            "Deadlines met by number of nodes",
            by_series("by", curves),
            x=Axis("nodes", "nodes"),
            y=Axis("deadlines", "deadlines met"),
            series="by",
            series_label="met by",
            order=tuple(curves),
            rules=[Rule(summary["nodes"], "chosen", "x")],
            caption=(
                f"Deadlines met of {summary['deadlines']}. The best possible is between some schedule and the line "
                "that no scheduler exceeds; the policy was simulated on each count from the bound on."
            ),
        ),
    )
