"""The figures of a run."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final

import numpy as np

from forerun.result.figures import Axis, Figure, Rule, by_series
from forerun.result.run import Result, SavedRun
from forerun.result.tables import Table

#: GPUs beyond which a picture of each is left to the timeline file
MOST_TRACKS: Final = 64


def figures(run: Result | SavedRun) -> tuple[Figure, ...]:
    """GPUs in use over time, queue, submissions and admissions, waits, completion times, and the jobs on the GPUs."""
    events, jobs, allocations = run.tables["events"], run.tables["jobs"], run.tables["allocations"]
    gpus = float(run.summary["gpus"])
    made = [_gpus_over_time(events, gpus), *_job_counts(events), _waits(jobs)]
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
    causes = ("admission", "capacity", "fragmentation", "policy", "quota", "reconfiguration")
    sizes = np.unique(jobs["gpus"])
    rows = [
        (str(size), cause, float(np.mean(jobs[f"wait_{cause}_s"][jobs["gpus"] == size])))
        for size in sizes
        for cause in causes
    ]
    size, cause, mean = zip(*rows, strict=True)
    return Figure.of(
        "stacked_bar",
        "waits",
        "What jobs waited for",
        {"gpus": size, "mean_s": mean, "cause": cause},
        x=Axis("gpus", "GPUs requested"),
        y=Axis("mean_s", "mean wait", "s"),
        series="cause",
        caption="Mean wait of the jobs of each size, by cause.",
    )


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
