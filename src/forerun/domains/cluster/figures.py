"""The figures of a run."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final

import numpy as np

from forerun.result.figures import Axis, Figure, Rule
from forerun.result.run import Result, SavedRun
from forerun.result.tables import Table

#: GPUs beyond which a picture of each is left to the timeline file
MOST_TRACKS: Final = 64


def columns(**named: Any) -> dict[str, Any]:
    """The columns of a figure, by name."""
    return named


def figures(run: Result | SavedRun) -> tuple[Figure, ...]:
    """GPUs in use over time, queue, submissions and admissions, waits, completion times, and the jobs on the GPUs."""
    events, jobs, allocations = run.tables["events"], run.tables["jobs"], run.tables["allocations"]
    gpus = float(run.summary["gpus"])
    made = [_gpus_over_time(events, gpus), _queue(events), _admissions(events), _waits(jobs)]
    if np.isfinite(jobs["end_s"]).any():
        made.append(_completion(jobs))
    if len(allocations):
        made.append(_gantt(allocations))
        if any(allocations["gpu_numbers"].tolist()):
            made.append(_tracks(allocations, int(gpus)))
    return tuple(made)


def _gpus_over_time(events: Table, gpus: float) -> Figure:
    time_s = events["time_s"]
    return Figure(
        id="gpus-over-time",
        title="GPUs in use",
        kind="step",
        x=Axis("time_s", "time", "s"),
        y=Axis("used", "GPUs in use"),
        data=columns(time_s=time_s, used=gpus - events["free"]),
        caption="GPUs in use over time. The line on top is the size of the cluster.",
        rules=(Rule(gpus, "all GPUs", "y"),),
    )


def _queue(events: Table) -> Figure:
    count = len(events["time_s"])
    return Figure(
        id="queue",
        title="Jobs waiting and running",
        kind="step",
        x=Axis("time_s", "time", "s"),
        y=Axis("jobs", "jobs"),
        data=columns(
            time_s=np.concatenate((events["time_s"], events["time_s"])),
            jobs=np.concatenate((events["pending"], events["running"])),
            state=np.array(["waiting"] * count + ["running"] * count, dtype=object),
        ),
        series="state",
        caption="Jobs waiting and jobs running after each scheduling event.",
        order=("waiting", "running"),
    )


def _admissions(events: Table) -> Figure:
    count = len(events["time_s"])
    return Figure(
        id="admissions",
        title="Submitted and admitted",
        kind="step",
        x=Axis("time_s", "time", "s"),
        y=Axis("jobs", "jobs so far"),
        data=columns(
            time_s=np.concatenate((events["time_s"], events["time_s"])),
            jobs=np.concatenate((events["submitted"], events["admitted"])),
            which=np.array(["submitted"] * count + ["admitted"] * count, dtype=object),
        ),
        series="which",
        caption="Jobs submitted so far, and those of them that were admitted.",
        order=("submitted", "admitted"),
    )


def _completion(jobs: Table) -> Figure:
    jct = np.sort((jobs["end_s"] - jobs["submit_s"])[np.isfinite(jobs["end_s"])])
    return Figure(
        id="completion-times",
        title="Completion times",
        kind="cdf",
        x=Axis("jct_s", "end less submission", "s", log=True),
        y=Axis("share", "share of jobs"),
        data=columns(jct_s=np.maximum(jct, 1.0), share=np.arange(1, len(jct) + 1) / len(jct)),
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
    return Figure(
        id="waits",
        title="What jobs waited for",
        kind="stacked_bar",
        x=Axis("gpus", "GPUs requested"),
        y=Axis("mean_s", "mean wait", "s"),
        data=columns(
            gpus=np.array(size, dtype=object), mean_s=np.array(mean), cause=np.array(cause, dtype=object)
        ),
        series="cause",
        caption="Mean wait of the jobs of each size, by cause.",
        order=causes,
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
    gpu, start_s, end_s, jobs, sizes = zip(*rows, strict=True) if rows else ((),) * 5
    left_out = (
        f" The first {MOST_TRACKS} of {gpus} GPUs; the timeline file has all." if gpus > MOST_TRACKS else ""
    )
    return Figure(
        id="gpus-by-job",
        title="Each GPU's jobs",
        kind="gantt",
        x=Axis("from_s", "time", "s"),
        y=Axis("gpu", "GPU"),
        data=columns(
            gpu=np.array([f"GPU {number}" for number in gpu], dtype=object),
            from_s=np.array(start_s, np.float64),
            to_s=np.array(end_s, np.float64),
            job=np.array(jobs, dtype=object),
            gpus=np.array([_size(count) for count in sizes], dtype=object),
        ),
        x2="to_s",
        series="gpus",
        order=_sizes(sizes),
        caption=f"The jobs on each GPU, coloured by the number of GPUs of the job.{left_out}",
    )


def _size(count: int) -> str:
    return f"{count} GPU" if count == 1 else f"{count} GPUs"


def _sizes(counts: Iterable[int]) -> tuple[str, ...]:
    return tuple(_size(count) for count in sorted(set(counts)))


def _gantt(allocations: Table) -> Figure:
    return Figure(
        id="jobs-over-time",
        title="Jobs over time",
        kind="gantt",
        x=Axis("from_s", "time", "s"),
        y=Axis("job", "job"),
        data=columns(
            job=allocations["job"],
            from_s=allocations["from_s"],
            to_s=allocations["to_s"],
            gpus=np.array([_size(count) for count in allocations["gpus"].tolist()], dtype=object),
        ),
        x2="to_s",
        series="gpus",
        order=_sizes(allocations["gpus"].tolist()),
        caption="Each job's stretches of constant allocation, coloured by its number of GPUs.",
    )
