"""The testbed's figures of the ElasticFlow paper with real processes: its schedulers decide over paced jobs.

A paced job is a process of its own whose steps take the time that the published A100 throughput gives for its GPUs, and that
starts, saves its state, leaves and goes on as any live job. The clock is fast-forward, as the published testbed's was: the
time between two decisions is skipped. What is judged is the run beside a simulation of the same scenario.
"""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Final

import numpy as np
from numpy.typing import NDArray

from forerun.cluster.scenario import Scenario
from forerun.core.domain import simulate
from forerun.core.result.figures import Axis, Figure, by_series
from forerun.core.result.run import Result
from forerun.core.result.tables import Table
from forerun.core.scenarios import from_data
from forerun.replication.elasticflow.public import public_path
from forerun.replication.elasticflow.published import LABEL, PUBLISHED, RATIO, SIX
from forerun.replication.reproduction import Progress, Reproduced, Row, from_points

Floats = NDArray[np.float64]

#: hours that figure 7 shows
HOURS: Final = 48
#: share of the jobs by which a run may differ from its simulation: one of the 25 of figure 6(a)
APART: Final = 1 / 25
#: policies whose runs may not differ at all
EXACT: Final = ("edf", "ef-accessctrl")
#: what must be said wherever figures of such runs stand
PACED: Final = "paced, fast-forward"
_NOTES: Final = (
    "measured: real processes under forerun.live on this machine, paced by the published A100 throughput, one process a job "
    "(width: declared), under the fast-forward clock",
    "a start is disturbed if it ended in another way than finished or drained, as on a machine too busy to answer in time",
    "corrected: a simulation of the same scenario; the tolerance is between it and measured",
    "published: the paper's testbed; it stands beside and is not judged, as neither its trace nor its logs were published",
)


def scenario_of(schedule: str, nodes: int, first: int = 0) -> Scenario:
    """Jobs of the 195-job trace on nodes of 8 GPUs, by the paper's rules.

    Parameters
    ----------
    schedule : name of the policy.
    nodes : how many.
    first : only so many jobs (default: 0, all).

    Raises
    ------
    DataError : public data is missing.
    """
    tables = sorted(public_path("throughputs_A100").glob("*.csv"))
    made: Scenario = from_data(
        {
            "domain": "cluster",
            "trace": {"file": str(public_path("elasticflow_traces/195job.csv")), "first": first},
            "machines": {"nodes": [{"name": "node", "count": nodes, "gpus": 8}]},
            "profile": [{"tables": [str(table) for table in tables], "gpu_type": "A100"}],
            "policy": schedule,
            "slot_s": 240,
            # Nothing here fails on purpose: on a busy machine a node that answers late is not a lost one.
            "live": {"width": "declared", "lease_s": 60, "drain_s": 120, "hang_s": 300},
        }
    )
    return made


def played(schedule: str, nodes: int, first: int = 0) -> Result:
    """A run with real processes, in a folder that is removed afterwards.

    Parameters
    ----------
    schedule, nodes, first : as of `scenario_of`.
    """
    from forerun.live.runs import run_scenario  # here: it brings compiled code

    with tempfile.TemporaryDirectory(prefix="forerun-live-") as folder:
        return run_scenario(scenario_of(schedule, nodes, first), Path(folder) / "run", clock="fast-forward")


def _results(progress: Progress, schedules: Sequence[str], nodes: int, first: int) -> dict[str, Result]:
    """A run of each policy, one after the other: each has the machine to itself."""
    results = {}
    for number, schedule in enumerate(schedules, 1):
        progress(f"{number} of {len(schedules)}: {LABEL[schedule]} live ({PACED})")
        results[schedule] = played(schedule, nodes, first)
    return results


def fig6a_live(progress: Progress, *, first: int = 25, schedules: Sequence[str] = SIX) -> Reproduced:
    """Figure 6(a) of the ElasticFlow paper with real processes: deadlines met, 25 jobs on 4 nodes of 8 A100, paced.

    Parameters
    ----------
    progress : called with a message at each run.
    first : only so many jobs (default: 25).
    schedules : which policies (default: six).

    Raises
    ------
    DataError : public data is missing.
    """
    return _deadlines(progress, figure="6a", nodes=4, first=first, schedules=schedules)


def fig6b_live(
    progress: Progress, *, first: int = 0, nodes: int = 16, schedules: Sequence[str] = SIX
) -> Reproduced:
    """Figure 6(b) of the ElasticFlow paper with real processes: deadlines met, 195 jobs on 16 nodes of 8 A100, paced.

    Parameters
    ----------
    progress : called with a message at each run.
    first : only so many jobs (default: 0, all).
    nodes : of 8 GPUs (default: 16).
    schedules : which policies (default: six).

    Raises
    ------
    DataError : public data is missing.
    """
    return _deadlines(progress, figure="6b", nodes=nodes, first=first, schedules=schedules)


def _deadlines(
    progress: Progress,
    *,
    figure: str,
    nodes: int,
    first: int,
    schedules: Sequence[str],
) -> Reproduced:
    """Deadlines met by live jobs beside simulated and published ones.

    Parameters
    ----------
    progress : called with a message at each run.
    figure : of the paper, as 6a.
    nodes : of 8 GPUs.
    first : only so many jobs; 0 for all.
    schedules : which policies.
    """
    rows = []
    for schedule, result in _results(progress, schedules, nodes, first).items():
        jobs = result.tables["predictions"]
        count, met, foretold = (
            len(jobs),
            int(sum(jobs["met"])),
            int(sum(jobs["predicted_met"])),
        )
        rows.append(
            Row(
                f"{LABEL[schedule].lower()} deadline ratio, {PACED}",
                PUBLISHED[figure][schedule],
                None,
                foretold / count,
                0.0 if schedule in EXACT else APART,
                f"{met} of {count} jobs met their deadline live, {foretold} simulated; "
                f"{len(result.tables['stays'])} starts of processes, "
                f"{np.count_nonzero(~np.isin(result.tables['stays']['why'], ('finished', 'drained')))} of them disturbed",
                met / count,
            )
        )
    return Reproduced(tuple(rows), (_bars(figure, schedules, rows),), _NOTES)


def _bars(figure: str, schedules: Sequence[str], rows: Sequence[Row]) -> Figure:
    """Published, simulated and live side by side."""
    kinds = ("published, testbed", "simulated", f"live, {PACED}")
    points = [
        (LABEL[schedule], value, kind)
        for schedule, row in zip(schedules, rows, strict=True)
        for kind, value in zip(kinds, (row.published, row.corrected, row.measured), strict=True)
    ]
    return Figure.of(
        "bar",
        f"fig{figure}-live",
        "Deadlines met by live jobs",
        from_points(("schedule", "ratio", "which"), points),
        x="schedule",
        y=RATIO,
        series="which",
        order=kinds,
        caption=f"Figure {figure[0]}({figure[1:]}): published bars, a simulation, and real processes ({PACED}).",
    )


def fig7(
    progress: Progress, *, first: int = 0, nodes: int = 16, schedules: Sequence[str] = SIX
) -> Reproduced:
    """Figure 7 of the ElasticFlow paper from our own run of 6(b): GPUs allocated over 48 h, submissions and admissions.

    The logs that the paper draws it from were never published: no number is to be met.

    Parameters
    ----------
    progress : called with a message at each run.
    first : only so many jobs (default: 0, all).
    nodes : of 8 GPUs (default: 16).
    schedules : which policies (default: six).

    Raises
    ------
    DataError : public data is missing.
    """
    rows, held = [], {}
    note = (
        f"mean over {HOURS} h from the first submission; corrected: simulated, where jobs keep their GPUs "
        "to the end of the slot in which they end"
    )
    for schedule, result in _results(progress, schedules, nodes, first).items():
        jobs, label = result.tables["predictions"], LABEL[schedule]
        begin_s = float(np.min(jobs["submit_s"]))
        live = _allocated(result.tables["stays"], "slots", begin_s)
        simulated = simulate(scenario_of(schedule, nodes, first)).tables["allocations"]
        held[label] = {"time_h": live[0], "gpus": live[1]}
        rows.append(
            Row(
                f"{label.lower()} GPUs allocated, {PACED}",
                None,
                None,
                _mean(*_allocated(simulated, "gpus", begin_s)),
                note=note,
                measured=_mean(*live),
            )
        )
        if schedule == "ef-accessctrl":
            admitted = np.sort(jobs["submit_s"][np.asarray(jobs["admitted"], bool)])
            rows += [
                Row(
                    f"{label.lower()} jobs {what}, {PACED}",
                    None,
                    None,
                    float(foretold),
                    note="in the whole run; corrected: simulated",
                    measured=float(count),
                )
                for what, count, foretold in (
                    ("submitted", len(jobs), len(jobs)),
                    ("admitted", len(admitted), int(np.sum(jobs["predicted_admitted"]))),
                )
            ]
            counts = {
                what: {"time_h": (np.sort(at_s) - begin_s) / 3600, "jobs": np.arange(1, len(at_s) + 1)}
                for what, at_s in (("submitted", jobs["submit_s"]), ("admitted", admitted))
            }
    time = Axis("time_h", "time since the first submission", "h")
    figures = [
        Figure.of(
            "step", "fig7a", "GPUs allocated over time", by_series("schedule", held),
            x=time, y=Axis("gpus", "allocated", "GPUs"), series="schedule",
            caption=f"Figure 7(a) from our own run: GPUs that live jobs had ({PACED}).",
        )
    ]  # fmt: skip
    if "ef-accessctrl" in schedules:
        figures.append(
            Figure.of(
                "step", "fig7b", "Submissions and admissions", by_series("which", counts),
                x=time, y=Axis("jobs", "jobs so far"), series="which",
                caption=f"Figure 7(b) from our own run: jobs submitted, and those that ElasticFlow took in ({PACED}).",
            )
        )  # fmt: skip
    return Reproduced(
        tuple(rows),
        tuple(figures),
        (*_NOTES[:1], "published: the paper draws figure 7 from logs that were never published"),
    )


def _allocated(table: Table, count: str, begin_s: float) -> tuple[Floats, Floats]:
    """GPUs held over time: instants [h since `begin_s`] within the figure, and how many from each on.

    Parameters
    ----------
    table : with `from_s`, `to_s` and a column of counts.
    count : name of that column.
    begin_s : of the figure.
    """
    instants = np.concatenate([table["from_s"], table["to_s"]])
    changes = np.concatenate([table[count], -np.asarray(table[count])]).astype(np.float64)
    at_s, where = np.unique(np.clip(instants - begin_s, 0, HOURS * 3600.0), return_inverse=True)
    return at_s / 3600, np.cumsum(np.bincount(where, changes))


def _mean(time_h: Floats, gpus: Floats) -> float:
    """The mean of a step function over the figure, 0 before its first instant."""
    return float(np.sum(gpus * np.diff(time_h, append=float(HOURS))) / HOURS)
