"""Single jobs of a run left out or changed, all else of its world as it was."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from forerun.cluster.inputs.arrays import I64, NO_REQUEST_S, Cluster, Jobs, ThroughputTable
from forerun.cluster.scenario import Edit
from forerun.core.errors import Problem, ScenarioError, known_names


def edited(
    jobs: Jobs, edit: Edit, profile: ThroughputTable | None, cluster: Cluster, *, keeps: bool
) -> tuple[Jobs, I64]:
    """The jobs after an edit, in order of submission, and which row of the jobs before it each of them was.

    Jobs of one second keep the order of the log.

    Parameters
    ----------
    jobs : of the run, tied to throughput.
    edit : what changes.
    profile : throughput, by which a job's duration follows its GPUs; None: none is known.
    cluster : where they run.
    keeps : whether the policy keeps jobs on the GPUs that they ask for; other policies do not read what a job asks for.

    Raises
    ------
    ScenarioError : a job is not there, none is left, or one cannot run on the GPUs that it is to ask for.
    """
    names = [str(name) for name in jobs.id]
    row_of = {name: row for row, name in enumerate(names)}
    problems = [
        Problem(f"$.trace.edit.{key}", f"no job {name!r}; {known_names(name, names)}")
        for key, named in (
            ("without", edit.without),
            ("gpus", edit.gpus),
            ("submit_s", edit.submit_s),
            ("deadline_s", edit.deadline_s),
        )
        for name in named
        if name not in row_of
    ]
    if problems:
        raise ScenarioError(*problems[:20])
    submit_s, deadline_s, best_effort = jobs.submit_s.copy(), jobs.deadline_s.copy(), jobs.best_effort.copy()
    written_s = jobs.written_deadline_s.copy()
    for name, at_s in edit.submit_s.items():
        submit_s[row_of[name]] = at_s
    if jobs.labels is not None and any(jobs.labels.after):
        after = tuple(
            "" if str(name) in edit.submit_s else one
            for name, one in zip(jobs.id, jobs.labels.after, strict=True)
        )
        jobs = replace(jobs, labels=replace(jobs.labels, after=after))
    for name, due_s in edit.deadline_s.items():
        row = row_of[name]
        deadline_s[row] = written_s[row] = due_s
        best_effort[row] = False
    jobs = replace(
        jobs,
        submit_s=submit_s,
        deadline_s=deadline_s,
        best_effort=best_effort,
        written_deadline_s=written_s,
        leaves_s=np.where(jobs.censored, jobs.leaves_s + submit_s - jobs.submit_s, jobs.leaves_s),
    )
    for name, gpus in edit.gpus.items():
        jobs = _asking(jobs, row_of[name], gpus, profile, cluster, keeps)
    stays = np.ones(len(jobs), np.bool_)
    stays[[row_of[name] for name in edit.without]] = False
    if not stays.any():
        raise ScenarioError.at("$.trace.edit.without", "leaves no job")
    order = np.lexsort((jobs.file_row, jobs.submit_s))
    rows: I64 = order[stays[order]].astype(np.int64)
    return jobs.take(rows), rows


def _asking(
    jobs: Jobs, row: int, gpus: int, profile: ThroughputTable | None, cluster: Cluster, keeps: bool
) -> Jobs:
    """The jobs, one of which asks for other GPUs; its work stays."""
    where, kind = f"$.trace.edit.gpus.{jobs.id[row]}", int(jobs.kind[row])
    if keeps and gpus > cluster.gpus:
        raise ScenarioError.at(where, f"asks for {gpus} GPUs; the cluster has {cluster.gpus}")
    if profile is None or kind < 0:
        what = "is not known to be as fast as on the GPUs of the log: the job has no throughput"
        raise ScenarioError.at(where, f"{what} (profile: [{{analytic: balanced}}] makes a curve up)")
    rates = profile.rate_at()[kind]
    if not (gpus < len(rates) and rates[gpus] > 0):
        known = ", ".join(map(str, np.flatnonzero(rates > 0).tolist())) or "none"
        raise ScenarioError.at(
            where, f"the job has no throughput on {gpus} GPUs; counts with throughput: {known}"
        )
    asked, duration_s, requested_s = jobs.gpus.copy(), jobs.duration_s.copy(), jobs.requested_s.copy()
    before = int(asked[row])
    if before < len(rates) and rates[before] > 0:  # the log may know its pace better than the profile does
        seconds = int(duration_s[row]) * float(rates[before]) / float(rates[gpus])
    else:
        seconds = int(jobs.iterations[row]) / float(rates[gpus])
    asked[row], duration_s[row] = gpus, max(1, round(seconds))
    if requested_s[row] < NO_REQUEST_S:
        requested_s[row] = -(
            -int(requested_s[row]) * int(duration_s[row]) // max(1, int(jobs.duration_s[row]))
        )
    return replace(jobs, gpus=asked, duration_s=duration_s, requested_s=requested_s)


def levels_of(jobs: Jobs, row: int, profile: ThroughputTable | None) -> list[int]:
    """The counts of GPUs on which a job is known to run, ascending; none for a job without throughput."""
    kind = int(jobs.kind[row])
    if profile is None or kind < 0:
        return []
    levels: list[int] = profile.levels[np.nan_to_num(profile.rate[kind], nan=0.0) > 0].tolist()
    return levels
