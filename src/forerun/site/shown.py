"""What the jobs of a log show of their machine: pools of nodes, and outages.

Only the history that is given is looked at: as of an instant, it is what could be known then.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final

import numpy as np

from forerun.cluster.inputs.setting import Window
from forerun.cluster.inputs.slurm_conf import node_names
from forerun.cluster.summary.past import FAILED
from forerun.cluster.summary.spans import Spans
from forerun.site.history import F64, I64, History
from forerun.site.machine import MOST_NODES, Finding, Part, Pool, folded

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
#: a partition has GPUs of its own if it was full in so many of the cases in which a job waited beside enough free ones
OWN: Final = 0.5
#: an outage is so long at least, and somebody waits for so long in it; two are one if they are closer together
SHORTEST_S: Final = 3600.0
#: of nodes with names, so long at least
LONG_S: Final = 3 * 3600.0
#: when one of nodes with names is over, jobs that waited for it have such a share of them so soon
AGAIN: Final = 0.5
_AGAIN_S: Final = 600.0
#: share of the nodes that may still be in use in an outage
RUNS_ON: Final = 0.1


def in_use(jobs: History, from_s: float, until_s: float) -> tuple[I64, F64]:
    """The nodes that jobs use between two instants, and for how many seconds so many, from one change to the next.

    Parameters
    ----------
    jobs : whose nodes.
    from_s, until_s : the instants, on the history's clock.
    """
    return _spent(Spans(jobs.start_s, jobs.end_s, jobs.gpus), from_s, until_s)


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
    sizes, jobs = np.unique(known.gpus, return_counts=True)
    upto = np.cumsum(jobs)
    between = upto[np.searchsorted(sizes, GAP * sizes, "right") - 1] - upto
    at_all, busy_all = known.busy()
    most, _ = ceiling(*in_use(known, begin_s, known.last_s)) if len(known) else (0, 0.0)
    for size in sizes[between <= STRAYS * len(known)].tolist():
        small, large = known.of(known.gpus <= size), known.of(known.gpus > size)
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
                return Pool(name="small", nodes=nodes, most_gpus=size), Finding(
                    about="pools",
                    what=f"pool small: {nodes} {known.unit}, for jobs of up to {size}",
                    evidence=f"exactly {nodes} in use for {100 * share:.1f} % of the time; full {times} times while one of "
                    f"its jobs waited and {size} others were free",
                )
    return None


def named_pools(known: History) -> tuple[tuple[Pool, Finding], ...]:
    """The pools whose nodes a log names; none where it does not name those of nearly all jobs.

    A node has as many GPUs as were ever in use on it or on one whose name differs in numbers only. A partition has the nodes
    that its jobs had; partitions that share some are one pool.

    Parameters
    ----------
    known : all jobs.
    """
    ran = known.of(known.started)
    if not len(ran) or np.mean(ran.on_nodes.codes < 0) > STRAYS:
        return ()
    jobs = ran.of(ran.on_nodes.codes >= 0)
    used, code = np.unique(jobs.on_nodes.codes, return_inverse=True)
    lists = [node_names(jobs.on_nodes.names[one], MOST_NODES) for one in used.tolist()]
    names, of = np.unique([name for one in lists for name in one], return_inverse=True)
    first = np.cumsum([0, *map(len, lists)])
    row = np.repeat(np.arange(len(jobs)), np.diff(first)[code])
    node = np.concatenate([of[first[one] : first[one + 1]] for one in code.tolist()])
    kinds, kind = np.unique([re.sub("[0-9]+", "#", name) for name in names.tolist()], return_inverse=True)
    each = -(-jobs.gpus // np.bincount(row, minlength=len(jobs)))
    gpus, partitions = np.ones(len(kinds), np.int64), [set[int]() for _ in names]
    types = [set[str]() for _ in kinds]
    order = np.argsort(node, kind="stable")
    for at, mine in enumerate(np.split(row[order], np.searchsorted(node[order], np.arange(1, len(names))))):
        had = Spans(jobs.start_s[mine], jobs.end_s[mine], each[mine])
        gpus[kind[at]] = max(gpus[kind[at]], ceiling(*_spent(had, known.complete_from_s, known.last_s))[0])
        partitions[at] = set(jobs.partition.codes[mine].tolist())
        asked = np.unique(jobs.gpu_type.codes[mine]).tolist()
        types[kind[at]] |= {jobs.gpu_type.names[one] for one in asked if one >= 0}
    nodes = _Nodes(names.tolist(), kind, gpus, partitions, types)
    return tuple(_named(one, nodes, known) for one in _apart(partitions))


def _apart(partitions: Sequence[set[int]]) -> list[list[int]]:
    """Nodes by pool, the smallest first: those that share partitions, directly or by others between them, are of one."""
    pools: list[tuple[set[int], list[int]]] = []
    for node, mine in enumerate(partitions):
        sharing = [one for one in pools if one[0] & mine]
        pools = [one for one in pools if not one[0] & mine]
        nodes = sorted([node, *(other for _, others in sharing for other in others)])
        pools.append((mine.union(*(one for one, _ in sharing)), nodes))
    return sorted((nodes for _, nodes in pools), key=len)


@dataclass(frozen=True, slots=True)
class _Nodes:
    """Nodes that a log names.

    Parameters
    ----------
    names : ascending; kind : of each, a number.
    gpus, types : of each kind: GPUs of a node, and the types that jobs asked for there.
    partitions : of each node, the numbers of those whose jobs had it.
    """

    names: Sequence[str]
    kind: I64
    gpus: I64
    partitions: Sequence[set[int]]
    types: Sequence[set[str]]


def _named(mine: Sequence[int], nodes: _Nodes, known: History) -> tuple[Pool, Finding]:
    """The pool of some nodes."""
    named = ("", *known.partition.names)
    alike: dict[tuple[int, tuple[str, ...]], list[str]] = {}
    for node in mine:
        whose = tuple(sorted(named[code + 1] for code in nodes.partitions[node]))
        alike.setdefault((int(nodes.kind[node]), whose), []).append(nodes.names[node])
    parts = tuple(
        Part(
            name=folded(names),
            nodes=len(names),
            gpus_per_node=int(nodes.gpus[of]),
            gpu_type=min(nodes.types[of]) if len(nodes.types[of]) == 1 else "",
            partitions=",".join(whose),
        )
        for (of, whose), names in alike.items()
    )
    partitions = ",".join(sorted({name for _, whose in alike for name in whose if name}))
    pool = Pool(
        name=partitions.replace(",", "+") or "all", nodes=len(mine), parts=parts, partition=partitions
    )
    held = "" if known.unit == "nodes" else f" with {pool.gpus} GPUs"
    return pool, Finding(
        about="pools",
        what=f"pool {pool.name}: {len(mine)} nodes{held}",
        evidence="the log names them; each has what was in use at once on nodes like it: "
        + ", ".join(f"{one.name} {one.gpus_per_node}" for one in parts),
    )


def own_partitions(known: History) -> tuple[tuple[Pool, Finding], ...]:
    """The partitions with GPUs of their own: full while others' were free, nearly whenever a job waited beside free ones.

    Parameters
    ----------
    known : all jobs.
    """
    if len(known.partition.names) < 2:
        return ()
    at_all, busy_all = known.busy()
    most, _ = ceiling(*in_use(known, known.complete_from_s, known.last_s))
    found = []
    for code, name in enumerate(known.partition.names):
        mine = known.of(known.partition.codes == code)
        at, busy = mine.busy()
        own, share = ceiling(*in_use(mine, known.complete_from_s, known.last_s))
        waited = (mine.start_s > mine.submit_s + SHORTEST_S / 60) & (mine.submit_s >= known.complete_from_s)
        if not own or own == most or not waited.any():
            continue
        came_s, need = mine.submit_s[waited], mine.gpus[waited]
        free = most - np.append(0, busy_all)[np.searchsorted(at_all, came_s, "right")]
        here = own - np.append(0, busy)[np.searchsorted(at, came_s, "right")]
        beside, full = free - here >= need, here < need
        times = int((beside & full).sum())
        if times >= TIMES_FULL and times >= OWN * int((free >= need).sum()):
            finding = Finding(
                about="pools",
                what=f"pool {name}: {own} {known.unit}",
                evidence=f"exactly {own} in use for {100 * share:.2f} % of the time; {times} times a job came when too few "
                "of them were free, and enough others were",
            )
            found.append((Pool(name=name, nodes=own, partition=name), finding))
    return tuple(sorted(found, key=lambda one: one[0].nodes))


def _spent(used: Spans, from_s: float, until_s: float) -> tuple[I64, F64]:
    """How many are in use between two instants, and for how many seconds so many, from one change to the next."""
    at, busy = used.levels()
    return busy, np.diff(np.clip(at, from_s, until_s), append=until_s)


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
    waited = waiting_at(jobs.of(jobs.gpus <= nodes - runs_on), latest_s) > 0
    ran = jobs.of(jobs.started)
    request_s = np.where(np.isnan(ran.requested_s), 0.0, ran.requested_s)
    longest_s = float(request_s.max(initial=0.0))
    believed_s = ran.start_s + request_s
    windows = []
    for (begin_s, end_s), somebody in zip(stretches, waited.tolist(), strict=True):
        part = slice(*np.searchsorted(at, (begin_s, end_s)).tolist())
        used = int(busy[part][hardly[part]].max())
        after = (ran.start_s >= end_s) & (ran.start_s < end_s + SHORTEST_S)
        if not somebody or ran.gpus[after].max(initial=0) > nodes - used:
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


def named_outages(jobs: History, pool: Pool) -> tuple[Window, ...]:
    """The outages of a pool whose nodes have names: of all, of all of a kind, and of nodes that failed under a job.

    A node that failed is away until a job starts on it.

    Parameters
    ----------
    jobs : of the pool.
    pool : its nodes.
    """
    names, size = pool.names, pool.cluster.node_gpus()
    number = {name: at for at, name in enumerate(names)}
    lists = [
        [number[name] for name in node_names(text, MOST_NODES) if name in number]
        for text in jobs.on_nodes.names
    ]
    on = [lists[code] if code >= 0 else [] for code in jobs.on_nodes.codes.tolist()]
    kinds: dict[str, list[int]] = {}
    for node, name in enumerate(names):
        kinds.setdefault(re.sub("[0-9]+", "#", name), []).append(node)
    found: list[Window] = []
    for mine in (range(len(names)), *(kinds.values() if len(kinds) > 1 else ())):
        share = np.array([len(set(mine).intersection(nodes)) / max(len(nodes), 1) for nodes in on])
        here = jobs.of(share > 0)
        here = replace(here, gpus=np.rint(here.gpus * share[share > 0]).astype(np.int64))
        total = int(size[list(mine)].sum())
        waited = here.started & (here.wait_s >= SHORTEST_S)
        for window in outages_of(here, total, 0):
            again = waited & (here.start_s >= window.to_s) & (here.start_s <= window.to_s + _AGAIN_S)
            if here.gpus[again].sum() < AGAIN * total:
                continue  # nobody was waiting for its end
            apart = all(
                window.from_s >= one.to_s or window.to_s <= one.from_s for one in found if one.gpus > total
            )
            if window.to_s - window.from_s >= LONG_S and apart:
                found.append(replace(window, gpus=total, nodes=tuple(mine)))
    failed: dict[float, set[int]] = {}
    for row in np.flatnonzero([text.startswith(FAILED) for text in jobs.state.texts]).tolist():
        at_s = float(jobs.end_s[row])
        if on[row] and np.isfinite(at_s):
            failed[at_s] = failed.get(at_s, set(on[row])).intersection(on[row])
    starts: list[list[float]] = [[] for _ in names]
    for nodes, start_s in zip(on, jobs.start_s.tolist(), strict=True):
        for node in nodes:
            starts[node].append(start_s)
    for at_s, nodes_of in failed.items():
        back_s = {
            node: min((one for one in starts[node] if one >= at_s), default=jobs.last_s) for node in nodes_of
        }
        node, to_s = max(back_s.items(), key=lambda each: each[1], default=(0, at_s))
        if to_s > at_s:
            found.append(
                Window(from_s=at_s, to_s=to_s, gpus=int(size[node]), announced_s=at_s, nodes=(node,))
            )
    return tuple(sorted(found, key=lambda one: one.from_s))
