"""On which GPUs each job ran: as placed by the policy, or packed afterwards for the drawing."""

from __future__ import annotations

import itertools
from typing import Final

import numpy as np

from forerun.cluster.engine.record import Record, runs_of
from forerun.cluster.inputs.arrays import I64
from forerun.cluster.summary.spans import Stretches
from forerun.core.result.timeline import Timeline

#: allocation rows above which nodes and GPU tracks are left out
MOST_TRACKED: Final = 60_000


def nodes_of(record: Record, stretches: Stretches) -> list[list[tuple[int, int]]] | None:
    """GPUs of each stretch, as runs (first, count); None for very long runs.

    These are the GPUs that the placement names. Schedules that name no nodes are packed here, only for the timeline: first
    free ones, in time order; a job that keeps its GPUs is not moved.
    """
    if len(stretches.row) > MOST_TRACKED:
        return None
    if record.names_gpus and record.has_seats:
        begin, first, count = (one.tolist() for one in record.seats(stretches.row, stretches.from_s))
        runs = list(zip(first, count, strict=True))
        return [runs[low:high] for low, high in itertools.pairwise(begin)]
    total = record.setting.cluster.gpus
    free = np.ones(total, np.bool_)
    opening = np.lexsort((-stretches.gpus, stretches.from_s))
    closing = np.argsort(stretches.to_s, kind="stable")
    where: list[I64] = [np.zeros(0, np.int64)] * len(stretches.row)
    at = 0
    for number in opening:
        while at < len(closing) and stretches.to_s[closing[at]] <= stretches.from_s[number]:
            free[where[closing[at]]] = True
            at += 1
        chosen = np.flatnonzero(free)[: stretches.gpus[number]]
        free[chosen] = False
        where[number] = chosen
    return [runs_of(chosen) for chosen in where]


def timeline_of(
    record: Record, stretches: Stretches, places: list[list[tuple[int, int]]] | None
) -> Timeline | None:
    """One track per GPU: the jobs on it, from when to when. Left out for very long runs.

    `places` are the GPUs of each stretch, as of `nodes_of`.
    """
    if places is None:
        return None
    cluster, jobs = record.setting.cluster, record.setting.jobs
    gpu: list[int] = []
    number: list[int] = []
    for at, runs in enumerate(places):
        for first, count in runs:
            gpu += range(first, first + count)
            number += [at] * count
    stretch = np.array(number, np.int64)
    node = np.repeat(np.arange(cluster.nodes), cluster.node_gpus())
    firsts = np.concatenate(([0], np.cumsum(cluster.node_gpus())))
    names = tuple(f"node {n} GPU {g - firsts[n]}" for g, n in enumerate(node.tolist()))
    rows = stretches.row[stretch]
    return Timeline(
        entities=names,
        states=("running",),
        entity=np.array(gpu, np.int64),
        state=np.zeros(len(stretch), np.int64),
        from_s=stretches.from_s[stretch],
        to_s=stretches.to_s[stretch],
        label=np.array([f"job {jobs.id[row]}" for row in rows], dtype=object),
        groups=tuple(f"node {n}" for n in node.tolist()),
    )
