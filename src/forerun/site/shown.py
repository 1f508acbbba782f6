"""What the jobs of a log show of their machine: pools of nodes, and outages.

Only the history that is given is looked at: as of an instant, it is what could be known then.
"""

from __future__ import annotations

from typing import Final

import numpy as np

from forerun.cluster.inputs.setting import Window
from forerun.cluster.summary.spans import Spans
from forerun.site.history import F64, I64, History
from forerun.site.machine import Finding, Pool

#: the nodes in use are above the ceiling of a pool for no longer than this share of the time: rows that overlap
ABOVE: Final = 0.001
#: sizes between which one is more than so many times the other may belong to pools of their own
GAP: Final = 2.0
#: share of the jobs that may have a size in between
STRAYS: Final = 0.001
#: fewer jobs than these on either side of the gap show nothing
LEAST_JOBS: Final = 200
#: small jobs have nodes of their own if these were full so many times while one of them waited and others were free
TIMES_FULL: Final = 10
#: an outage is so long at least, and somebody waits for so long in it; two are one if they are closer together
SHORTEST_S: Final = 3600.0


def in_use(jobs: History, from_s: float, until_s: float) -> tuple[I64, F64]:
    """The nodes that jobs use between two instants, and for how many seconds so many, from one change to the next.

    Parameters
    ----------
    jobs : whose nodes.
    from_s, until_s : the instants, on the history's clock.
    """
    at, busy = jobs.busy()
    return busy, np.diff(np.clip(at, from_s, until_s), append=until_s)


def ceiling(busy: I64, seconds: F64) -> tuple[int, float]:
    """The nodes in use that are exceeded for hardly any time, and the share of time that exactly so many are.

    Parameters
    ----------
    busy, seconds : as `in_use` says; empty: nothing ever ran, which makes no nodes.
    """
    if not len(busy):
        return 0, 0.0
    levels, place = np.unique(busy, return_inverse=True)
    share = np.bincount(place, seconds) / max(float(seconds.sum()), 1.0)
    first = int(np.argmax(1.0 - np.cumsum(share) <= ABOVE))
    return int(levels[first]), float(share[first])


def waiting_at(jobs: History, at_s: F64) -> I64:
    """int64[instants], how many jobs wait right after each."""
    return Spans(jobs.submit_s, np.fmin(jobs.start_s, jobs.end_s), np.ones(len(jobs), np.int64)).at(at_s)


def small_pool(known: History) -> tuple[Pool, Finding] | None:
    """The pool of small jobs with its evidence, if there is one: full again and again, while others' nodes are free.

    Parameters
    ----------
    known : all jobs.
    """
    begin_s = known.complete_from_s
    sizes, jobs = np.unique(known.nodes, return_counts=True)
    upto = np.cumsum(jobs)
    between = upto[np.searchsorted(sizes, GAP * sizes, "right") - 1] - upto
    at_all, busy_all = known.busy()
    most, _ = ceiling(*in_use(known, begin_s, known.last_s)) if len(known) else (0, 0.0)
    for size in sizes[between <= STRAYS * len(known)].tolist():
        small, large = known.of(known.nodes <= size), known.of(known.nodes > size)
        if min(int(small.started.sum()), int(large.started.sum())) < LEAST_JOBS:
            continue
        at, busy = small.busy()
        seconds = in_use(small, begin_s, known.last_s)[1]
        # strays may run elsewhere: the nodes are those of the most, or are exceeded for hardly any time
        for nodes in sorted({int(busy.max()), ceiling(busy, seconds)[0]}, reverse=True):
            full_s = at[(busy == nodes) & (at >= begin_s)]
            free = most - busy_all[np.searchsorted(at_all, full_s, "right") - 1]
            times = int(((waiting_at(small, full_s) > 0) & (free >= size)).sum())
            if times >= TIMES_FULL:
                share = float(seconds[busy == nodes].sum() / max(seconds.sum(), 1.0))
                return Pool(name="small", nodes=nodes, most_nodes=size), Finding(
                    about="pools",
                    what=f"pool small: {nodes} nodes, for jobs of up to {size} nodes",
                    evidence=f"exactly {nodes} in use for {100 * share:.1f} % of the time; full {times} times while one of "
                    f"its jobs waited and {size} other nodes were free",
                )
    return None


def outages_of(jobs: History, nodes: int, runs_on: int) -> tuple[Window, ...]:
    """Stretches in which hardly a node is in use although somebody waits who would fit, once they are over.

    One was announced if no job started before it whose request reached beyond its end, for the length of the longest request
    at most. It then begins when the last of those requests ends. Times are on the history's clock; `gpus` are the nodes out.

    Parameters
    ----------
    jobs : of one pool.
    nodes : of the pool.
    runs_on : how many of them may still be in use; 0: none.
    """
    at, busy = jobs.busy()
    hardly = busy <= runs_on
    idle = np.flatnonzero(hardly[:-1] & (at[:-1] >= jobs.complete_from_s))
    stretches: list[list[float]] = []
    for begin_s, end_s in zip(at[idle].tolist(), at[idle + 1].tolist(), strict=True):
        if stretches and begin_s - stretches[-1][1] < SHORTEST_S:
            stretches[-1][1] = end_s
        else:
            stretches.append([begin_s, end_s])
    stretches = [[begin_s, end_s] for begin_s, end_s in stretches if end_s - begin_s >= SHORTEST_S]
    latest_s = np.array([end_s for _, end_s in stretches]) - SHORTEST_S
    waited = waiting_at(jobs.of(jobs.nodes <= nodes - runs_on), latest_s) > 0
    ran = jobs.of(jobs.started)
    request_s = np.where(np.isnan(ran.requested_s), 0.0, ran.requested_s)
    longest_s = float(request_s.max(initial=0.0))
    believed_s = ran.start_s + request_s
    windows = []
    for (begin_s, end_s), somebody in zip(stretches, waited.tolist(), strict=True):
        part = slice(*np.searchsorted(at, (begin_s, end_s)).tolist())
        used = int(busy[part][hardly[part]].max())
        after = (ran.start_s >= end_s) & (ran.start_s < end_s + SHORTEST_S)
        if not somebody or ran.nodes[after].max(initial=0) > nodes - used:
            continue  # nobody waited, or for a wide job, and that for those that ran on
        before = (ran.start_s < begin_s) & ~(ran.end_s >= end_s)
        last_s = max(
            float(ran.start_s[before & (believed_s > end_s)].max(initial=-np.inf)), begin_s - longest_s
        )
        known_s = begin_s
        if begin_s - last_s >= SHORTEST_S:
            known_s = last_s
            ends = believed_s[(ran.start_s > last_s) & before & (believed_s <= end_s)]
            begin_s = max(begin_s, float(ends.max(initial=begin_s)))
        if begin_s < end_s:
            windows.append(Window(from_s=begin_s, to_s=end_s, gpus=nodes - used, announced_s=known_s))
    return tuple(windows)
