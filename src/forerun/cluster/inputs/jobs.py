"""The jobs of a run: read or generated, tied to throughput, and checked against the cluster."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from forerun.cluster.inputs.arrays import (
    BOOL,
    I64,
    NEVER_S,
    NO_DEADLINE_S,
    NO_REQUEST_S,
    Cluster,
    Jobs,
    ThroughputTable,
)
from forerun.cluster.inputs.files import LABELS, JobTable, labels_of, read_jobs
from forerun.cluster.inputs.reach import reach_of
from forerun.cluster.inputs.throughput import anchored, filled, held_rigid, joined, rigid
from forerun.cluster.scenario import Scenario, TraceSpec
from forerun.cluster.summary.past import Past, Recorded, complete
from forerun.cluster.summary.spans import Spans
from forerun.cluster.traces.generate import generate
from forerun.cluster.traces.job_logs import JobReader, demand, left_unstarted
from forerun.cluster.traces.published import from_log, published
from forerun.cluster.traces.resample import resampled
from forerun.core.errors import Problem, ScenarioError, TraceError
from forerun.core.rng import stream
from forerun.core.scenario.spec import Input
from forerun.core.trace.reader import head_of, read_trace, readers
from forerun.core.trace.repair import RepairLog
from forerun.core.trace.table import Trace

#: seconds since 1970 before which no log of jobs begins; those without a calendar count from 0
_YEAR_1990_S = 20 * 365.25 * 86_400


def table_from(trace: TraceSpec, profile: ThroughputTable | None, seed: int, repairs: RepairLog) -> JobTable:
    """The jobs of a scenario's trace, before they meet the profile."""
    return sampled(whole_table_from(trace, profile, seed, repairs), trace, seed)


def sampled(whole: JobTable, trace: TraceSpec, seed: int) -> JobTable:
    """The jobs that a scenario's trace takes from its log: blocks drawn from it, or all."""
    if (again := trace.resample) is None:
        return whole
    return resampled(whole, block_s=again.block_s, blocks=again.blocks, seed=seed)


def whole_table_from(
    trace: TraceSpec, profile: ThroughputTable | None, seed: int, repairs: RepairLog
) -> JobTable:
    """The whole log of a scenario's trace, before blocks are drawn from it."""
    if trace.generate is not None:
        return JobTable("generated", generate(trace.generate, profile, seed))
    if trace.published is not None:
        return JobTable("generated", published(trace.published, _needed(profile), seed))
    if trace.resample is not None:
        again = trace.resample
        return table_of_file(Path(again.file.path), again.format, repairs, unfinished=False)
    assert isinstance(trace.file, Input)
    path = Path(trace.file.path)
    if trace.draw_models:
        name = "cluster_jobs" if trace.format == "native" else trace.format
        log = read_trace(path, name, options=trace.options, repairs=repairs)
        return JobTable(path.name, from_log(log, _needed(profile), seed=seed, repairs=repairs))
    return table_of_file(path, trace.format, repairs, trace.options)


def table_of_file(
    path: Path,
    format: str,
    repairs: RepairLog,
    options: Mapping[str, Any] | None = None,
    *,
    unfinished: bool = True,
) -> JobTable:
    """The jobs of a file.

    Parameters
    ----------
    format : `native` for our own headers, else a reader's name; empty: recognised from the content.
    options : of the format (default: its own).
    unfinished : whether jobs that still run or wait at the log's end are among them (default: yes).

    A file that no reader recognises is read as `native`, so that problems name its header.
    """
    if not format:
        head, known = head_of(path), readers()
        readable_by = [name for name in known.names() if known.get(name).recognises(head)]
        format = readable_by[0] if len(readable_by) == 1 and readable_by[0] != "cluster_jobs" else "native"
    if format == "native":
        return read_jobs(path, repairs)
    reader = readers().get(format, where=str(path))
    if unfinished and issubclass(reader, JobReader):
        options = {"unfinished": True, "cancelled": True, **(options or {})}
    return table_of_log(read_trace(path, format, options=options, repairs=repairs), path.name, repairs)


def table_of_log(log: Trace, source: str, repairs: RepairLog) -> JobTable:
    """A foreign job log as rigid jobs without deadlines: whole seconds, whole GPUs (fractions rounded up, counted).

    Raises TraceError for a log of another kind and for counts and times that are no exact integers.
    """
    if log.kind != "jobs":
        raise TraceError.at(source, f"contains {log.kind}; a job log is expected")
    for column in ("gpus", "submit_s", "duration_s"):
        values = np.asarray(log[column], np.float64)
        if len(rows := np.flatnonzero(~(np.abs(values) <= 2**53))):
            place = f"{source}:{log.lines[rows[0]]}" if log.lines is not None else source
            raise TraceError.at(f"{place}:{column}", f"{values[rows[0]]:g} is more than {2**53:g}")
    gpus = np.asarray(log["gpus"], np.float64)
    whole = np.ceil(gpus - 1e-9).astype(np.int64)
    fractions = np.flatnonzero(whole != gpus)
    places = [f"{source}:{log.lines[row]}" if log.lines is not None else source for row in fractions[:3]]
    repairs.note_many("fraction of a GPU rounded up", places, len(fractions))
    submit = np.floor(np.asarray(log["submit_s"], np.float64)).astype(np.int64)
    duration = np.maximum(1, np.rint(np.asarray(log["duration_s"], np.float64))).astype(np.int64)
    count = len(submit)
    vcs, users = (tuple(log[name].tolist()) if name in log else ("",) * count for name in ("vc", "user"))
    ids = tuple(str(name) for name in log["job_id"])
    limit_s = _requested_s(log, count)
    columns = {name: log[name] for name in LABELS if name in log}
    return JobTable(
        source,
        Jobs.of(
            submit,
            whole,
            duration,
            id=ids,
            user=users if any(users) else vcs,
            requested_s=limit_s,
            labels=labels_of(columns, vcs),
            leaves_s=_leaves_s(log, count),
        ),
        vc=vcs,
        priority=tuple(log["priority"].tolist()) if "priority" in log else (),
        line=(0,) * count if log.lines is None else tuple(log.lines.tolist()),
        read_as=str(log.provenance.format),
        most_held=float(demand(log)[1].max(initial=0.0)) if "start_s" in log else 0.0,
        origin_s=_calendar_origin_s(log),
        recorded=_recorded(log, whole),
    )


def _leaves_s(log: Trace, count: int) -> I64:
    """When jobs that never ran left the queue."""
    if "end_s" not in log:
        return np.full(count, NEVER_S, np.int64)
    start_s, end_s = (np.asarray(log[name], np.float64) for name in ("start_s", "end_s"))
    left = left_unstarted(log["state"].tolist(), start_s, end_s) & np.isfinite(end_s)
    return np.where(left, np.ceil(np.where(left, end_s, 0.0)), NEVER_S).astype(np.int64)


def _recorded(log: Trace, gpus: I64) -> Recorded | None:
    """What happened to the jobs of a log; None if it has no starts. gpus: of each."""
    if "start_s" not in log or np.isnan(log["start_s"]).all():
        return None
    submit_s, start_s, end_s = (
        np.asarray(log[name], np.float64) for name in ("submit_s", "start_s", "end_s")
    )
    unfinished = np.isnan(end_s) & np.isin(log["state"], ["RUNNING", "PENDING"])
    said = log.provenance.options
    clock = str(said.get("clock", ""))
    return Recorded(
        Past(
            start_s,
            end_s,
            tuple(map(str, log["state"].tolist())),
            unfinished,
            tuple(log["node_list"].tolist()) if "node_list" in log else None,
        ),
        complete(Spans(start_s, end_s, gpus), submit_s).from_s,
        dict(said.get("apart", {})),  # type: ignore[call-overload]
        clock if "/" in clock or clock == "UTC" else "",
    )


def _calendar_origin_s(log: Trace) -> float | None:
    """When the times of a log begin, in seconds since 1970; None if it has no calendar."""
    origin_s = log.provenance.options.get("origin_s")
    return float(origin_s) if isinstance(origin_s, float) and origin_s > _YEAR_1990_S else None


def _requested_s(log: Trace, count: int) -> I64:
    """Requested times of a log in whole seconds, NO_REQUEST_S where there is none or it has no end."""
    if "requested_s" not in log:
        return np.full(count, NO_REQUEST_S, np.int64)
    limit_s = np.asarray(log["requested_s"], np.float64)
    finite = limit_s < 2**53
    return np.where(finite, np.ceil(np.where(finite, limit_s, 0.0)), NO_REQUEST_S).astype(np.int64)


def with_requests(jobs: Jobs, overestimate: float, seed: int) -> Jobs:
    """The jobs, each without a requested time with one from its duration to so many times it, uniformly [the f model of
    Feitelson and Mu'alem, IPPS'98].
    """
    factor = 1.0 + stream(seed, "requested time").random(len(jobs)) * (overestimate - 1.0)
    made_s = np.ceil(jobs.duration_s * factor).astype(np.int64)
    return replace(jobs, requested_s=np.where(jobs.requested_s < NO_REQUEST_S, jobs.requested_s, made_s))


def _needed(profile: ThroughputTable | None) -> ThroughputTable:
    if profile is None:
        raise ScenarioError.at(
            "profile", "drawing jobs with models needs throughput: give tables or analytic: balanced"
        )
    return profile


def with_iterations(jobs: Jobs, profile: ThroughputTable, table: JobTable) -> tuple[Jobs, tuple[str, ...]]:
    """The jobs, those with a model and without iterations with what their duration comes to on the GPUs they ask for.

    Raises TraceError where no throughput is known there.
    """
    lacking = np.flatnonzero((jobs.kind >= 0) & (jobs.iterations < 1))
    if not len(lacking):
        return jobs, ()
    rate = filled(profile, set(jobs.gpus[lacking].tolist())).rate_at()
    rates = rate[jobs.kind[lacking], jobs.gpus[lacking]]
    problems = [
        Problem(
            f"{table.place(int(jobs.file_row[row]))}: job {jobs.id[row]}",
            f"has no iterations, and {jobs.model[row]} no throughput on {jobs.gpus[row]} GPUs to tell them by",
        )
        for row in lacking[~(rates > 0)][:20].tolist()
    ]
    if problems:
        raise TraceError(*problems)
    iterations = jobs.iterations.copy()
    iterations[lacking] = np.maximum(1, np.rint(jobs.duration_s[lacking] * rates)).astype(np.int64)
    note = f"iterations of {len(lacking)} of {len(jobs)} jobs are what their duration comes to on the GPUs they ask for"
    return replace(jobs, iterations=iterations), (note,)


def require_requests(jobs: Jobs, table: JobTable, policy: str) -> None:
    """Raise TraceError if a job has no requested time. policy: the name of the one that plans by it."""
    lacking = np.flatnonzero(jobs.requested_s >= NO_REQUEST_S)
    if len(lacking):
        raise TraceError.at(
            table.source,
            f"{len(lacking)} of {len(jobs)} jobs have no requested time, by which {policy} plans (the first is job "
            f"{jobs.id[lacking[0]]}); requested_s of a CSV, Timelimit of sacct and column 9 of SWF have them, "
            "trace.overestimate makes them up",
        )


def with_deadlines(jobs: Jobs, trace: TraceSpec, seed: int) -> Jobs:
    """The jobs, each without a written deadline due this many durations after its submission."""
    without = jobs.written_deadline_s >= NO_DEADLINE_S
    draws = stream(seed, "deadline slack").random(len(jobs))
    slack = trace.slack + draws * (max(trace.most_slack, trace.slack) - trace.slack)
    due = jobs.submit_s + np.ceil(slack * jobs.duration_s).astype(np.int64)
    deadline_s = np.where(without, due, jobs.deadline_s)
    return replace(
        jobs,
        deadline_s=deadline_s,
        best_effort=jobs.best_effort & ~without,
        written_deadline_s=np.where(without, due, jobs.written_deadline_s),
    )


def scaled_from_durations(
    jobs: Jobs, preset: str, cluster: Cluster, *, keeps: bool
) -> tuple[Jobs, ThroughputTable, tuple[str, ...]]:
    """The jobs with an invented scaling: each takes its recorded duration on the GPUs it asks for, other counts by a curve.

    Elastic schedules scale by powers of two; others (`keeps`) also know the counts asked for.
    """
    powers = [1 << at for at in range(max(cluster.gpus.bit_length(), 1)) if 1 << at <= max(cluster.gpus, 1)]
    asked = sorted(set(jobs.gpus.tolist()))
    profile = anchored(
        asked,
        preset,
        [*powers, *asked] if keeps else powers,
        gpus_per_node=cluster.gpus_per_node,
        gpu_type=cluster.node_types()[0] or "",
    )
    kind = np.searchsorted(asked, jobs.gpus).astype(np.int64)
    note = (
        f"no throughput is known: jobs take their recorded duration on the GPUs they ask for, and scale to other counts by "
        f"an invented model (analytic: {preset}; nobody measured it)"
    )
    return replace(jobs, kind=kind, iterations=jobs.duration_s.copy(), batch=64 * jobs.gpus), profile, (note,)


def on_what_they_ask_for(
    jobs: Jobs, profile: ThroughputTable | None, cluster: Cluster
) -> tuple[Jobs, ThroughputTable, tuple[str, ...]]:
    """The jobs for an elastic schedule, those without a model with a single count on which they take their duration."""
    alone = np.flatnonzero(jobs.kind < 0)
    asked = sorted(set(jobs.gpus[alone].tolist()))
    made = rigid(asked, cluster, cluster.node_types()[0] or "")
    kind, iterations, batch = jobs.kind.copy(), jobs.iterations.copy(), jobs.batch.copy()
    known = 0 if profile is None else len(profile.kinds)
    kind[alone] = known + np.searchsorted(asked, jobs.gpus[alone])
    iterations[alone], batch[alone] = jobs.duration_s[alone], jobs.gpus[alone]
    notes = [rigid_note(len(alone), len(jobs))]
    more = {count: placed for count in asked if (placed := held_rigid(count, cluster)) > count}
    if more:
        instead = ", ".join(f"{placed} for {count}" for count, placed in more.items())
        notes.append(
            f"elastic schedules place jobs in halves of nodes and in whole nodes: jobs hold {instead} GPUs"
        )
    jobs = replace(jobs, kind=kind, iterations=iterations, batch=batch)
    return jobs, made if profile is None else joined(profile, made), tuple(notes)


def rigid_note(rigid: int, jobs: int) -> str:
    return f"{rigid} of {jobs} jobs have no model: they run rigid, at their recorded duration"


def fitting(
    jobs: Jobs,
    table: JobTable,
    profiles: tuple[ThroughputTable, ...],
    cluster: Cluster,
    scenario: Scenario,
    repairs: RepairLog,
) -> Jobs:
    """The jobs that can run at all. Raises TraceError naming line and job for those that cannot.

    Under policies that keep to requests that is: not more GPUs than the cluster has of one type, and throughput there;
    under elastic ones: throughput on some count.

    Parameters
    ----------
    jobs, table : the jobs, and the log they come from.
    profiles : throughput by GPU type; none: jobs run rigid.
    cluster, scenario : where they run, and the policy and rules for jobs that are too large.
    repairs : counts the jobs that are left out.
    """
    keeps = scenario.policy.keeps_requests
    types = cluster.node_types()
    sizes = np.bincount([list(dict.fromkeys(types)).index(name) for name in types], cluster.node_gpus())
    most = int(sizes.max())
    larger = jobs.gpus > most if keeps else _rigid_beyond(jobs, profiles, most)
    within = np.full(len(jobs), most)
    if keeps and jobs.labels is not None:
        within = np.minimum(within, _within_reach(jobs, cluster))
        larger |= jobs.gpus > within

    def where(row: int) -> str:
        at = int(jobs.file_row[row])
        written = scenario.trace.file is not None and not scenario.trace.draw_models
        written = written and bool(table.line) and table.line[at] > 0
        return f"{table.place(at) if written else table.source}: job {jobs.id[row]}"

    rows = np.flatnonzero(larger).tolist()
    if rows and scenario.trace.larger == "drop":
        rule = f"job that asks for more than {most} GPUs left out"
        repairs.note_many(rule, [where(row) for row in rows[:3]], len(rows))
        jobs = jobs.take(np.flatnonzero(~larger))
        larger, rows = np.zeros(len(jobs), np.bool_), []
    there = f"the cluster has {cluster.gpus}" + (f", at most {most} of one type" if len(sizes) > 1 else "")
    problems = [
        Problem(
            where(row),
            f"asks for {jobs.gpus[row]} GPUs, "
            f"{there if jobs.gpus[row] > most else f'the nodes that it may use have {within[row]} of one type'} "
            "(trace.larger: drop leaves such jobs out)",
        )
        for row in rows
    ]
    if profiles:
        can = _counts_that_run(profiles, int(jobs.gpus.max(initial=1)), most)
        fit = can[jobs.kind, jobs.gpus] if keeps else larger | can[jobs.kind, 1 : most + 1].any(axis=1)
        for row in np.flatnonzero((jobs.kind >= 0) & ~fit & (jobs.gpus <= most if keeps else True)).tolist():
            required = f"{jobs.gpus[row]} GPUs, which it asks for" if keeps else f"up to {most} GPUs"
            known = ", ".join(map(str, np.flatnonzero(can[jobs.kind[row]]).tolist())) or "none"
            what = f"{jobs.model[row]} with batch {jobs.batch[row]} has no throughput on {required}"
            problems.append(Problem(where(row), f"{what}; counts with throughput: {known}"))
    if problems:
        more = [Problem("", f"and {len(problems) - 20} jobs more")] if len(problems) > 20 else []
        raise TraceError(*problems[:20], *more)
    if not len(jobs):
        file = scenario.machines.file
        on = f" on the machines of {Path(file.path).name}" if file is not None else ""
        raise TraceError.at(table.source, f"no job is left{on}; " + "; ".join(repairs.lines()))
    return jobs


def _within_reach(jobs: Jobs, cluster: Cluster) -> I64:
    """The GPUs of one type on the nodes that each job may use, of the type of which there are most."""
    reach, size = reach_of(jobs, cluster), cluster.node_gpus()
    types = np.array(cluster.node_types())
    of_types = [(reach.nodes & np.isin(types, (name, ""))) @ size for name in dict.fromkeys(types.tolist())]
    most: I64 = np.max(of_types, axis=0)
    return most[reach.kind]


def _rigid_beyond(jobs: Jobs, profiles: tuple[ThroughputTable, ...], most: int) -> BOOL:
    """Which jobs without a model run on more GPUs than there are, or not at all."""
    least = profiles[0].levels[np.argmax(np.nan_to_num(profiles[0].rate, nan=0.0) > 0, axis=1)]
    beyond: BOOL = (least[jobs.kind] > most) & np.array([not model for model in jobs.model], np.bool_)
    return beyond


def _counts_that_run(profiles: tuple[ThroughputTable, ...], asked: int, most: int) -> BOOL:
    """Whether a kind has throughput on a count, on any GPU type: bool[kinds, counts]."""
    rates = [profile.rate_at() for profile in profiles]
    can = np.zeros((len(rates[0]), max(asked, most, *(rate.shape[1] for rate in rates)) + 1), np.bool_)
    for rate in rates:
        can[:, : rate.shape[1]] |= rate > 0
    return can
