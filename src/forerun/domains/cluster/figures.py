"""What a run of this room is drawn as."""

from __future__ import annotations

from typing import Any, Final

import numpy as np

from forerun.result.figures import Axis, Figure, Rule

#: GPUs beyond which a picture of each is left to the timeline file
MOST_TRACKS: Final = 64


def columns(**named: Any) -> dict[str, Any]:
    """The columns of a figure, by name."""
    return named


def figures(run: Any) -> tuple[Figure, ...]:
    """The pictures of a run: GPUs over time, queue, submissions and admissions, completion times, waits, jobs held."""
    events, jobs, allocations = run.tables["events"], run.tables["jobs"], run.tables["allocations"]
    gpus = float(run.summary["gpus"])
    drawn = [_gpus_over_time(events, gpus), _queue(events), _admissions(events), _waits(jobs)]
    if np.isfinite(jobs["end_s"]).any():
        drawn.append(_completion(jobs))
    if len(allocations):
        drawn.append(_gantt(allocations))
        if any(allocations["gpu_numbers"].tolist()):
            drawn.append(_tracks(allocations, int(gpus)))
    return tuple(drawn)


def _gpus_over_time(events: Any, gpus: float) -> Figure:
    time_s = events["time_s"]
    return Figure(
        id="gpus-over-time",
        title="GPUs in use",
        kind="step",
        x=Axis("time_s", "time", "s"),
        y=Axis("used", "GPUs held"),
        data=columns(time_s=time_s, used=gpus - events["free"]),
        caption="GPUs that jobs hold over time; the line on top is the cluster's size.",
        rules=(Rule(gpus, "all GPUs", "y"),),
    )


def _queue(events: Any) -> Figure:
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
        caption="Jobs that wait and jobs that hold GPUs, after each scheduling event.",
        order=("waiting", "running"),
    )


def _admissions(events: Any) -> Figure:
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
        caption="Jobs submitted so far, and those of them that were taken in.",
        order=("submitted", "admitted"),
    )


def _completion(jobs: Any) -> Figure:
    jct = np.sort((jobs["end_s"] - jobs["submit_s"])[np.isfinite(jobs["end_s"])])
    return Figure(
        id="completion-times",
        title="Completion times",
        kind="cdf",
        x=Axis("jct_s", "end less submission", "s", log=True),
        y=Axis("share", "share of jobs"),
        data=columns(jct_s=np.maximum(jct, 1.0), share=np.arange(1, len(jct) + 1) / len(jct)),
        caption="Share of the finished jobs that took no longer than this from submission to end.",
    )


def _waits(jobs: Any) -> Figure:
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


def _tracks(allocations: Any, gpus: int) -> Figure:
    """One track a GPU, the first 64 of them: which job held it."""
    rows: list[tuple[int, float, float, str, int]] = []
    columns_of = (allocations[name].tolist() for name in ("gpu_numbers", "from_s", "to_s", "job", "gpus"))
    for numbers, from_s, to_s, job, held in zip(*columns_of, strict=True):
        for run in numbers.split():
            first, _, last = run.partition("-")
            rows += [(gpu, from_s, to_s, job, held) for gpu in range(int(first), int(last or first) + 1)]
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
        caption=f"What each GPU did: jobs on it, coloured by how many GPUs they held.{left_out}",
    )


def _size(count: int) -> str:
    return f"{count} GPU" if count == 1 else f"{count} GPUs"


def _sizes(counts: Any) -> tuple[str, ...]:
    return tuple(_size(count) for count in sorted(set(counts)))


def _gantt(allocations: Any) -> Figure:
    return Figure(
        id="jobs-over-time",
        title="Who held GPUs when",
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
        caption="Each job's stretches of constant allocation, coloured by how many GPUs it held.",
    )
