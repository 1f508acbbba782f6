"""What the jobs of a log show of the machine that they ran on: pools of nodes, and maintenance at regular times.

Everything here uses only the history that it is given: as of an instant, it is what could be known then.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np

from forerun.domains.cluster.inputs.setting import Window
from forerun.domains.cluster.replay.history import F64, I64, History, Mask

_HOUR_S: Final = 3600.0
_DAY_S: Final = 24 * _HOUR_S
#: a gap in the sizes of jobs, by which the next larger is so many times the one below, may separate pools
GAP: Final = 2.0
#: jobs on either side of the gap below which nobody can tell
LEAST_JOBS: Final = 200
#: small jobs have nodes of their own if they have as many as ever so many times, while one of them waits
CEILINGS: Final = 10
#: the pool has the nodes that are in use for at least so much of the time of the last weeks
FULL_SHARE: Final = 0.001
FULL_S: Final = 28 * _DAY_S
#: maintenance: nobody holds a node for so long, though somebody waits; one that comes back after whole days, this precisely
OUTAGE_S: Final = 3 * _HOUR_S
REGULAR_S: Final = 4 * _HOUR_S


@dataclass(frozen=True, slots=True)
class Pool:
    """Nodes that some of the jobs run on, and no others.

    Parameters
    ----------
    least, most : nodes of its smallest and largest jobs; infinite: any.
    partition : its name in the log; empty where pools differ in the size of jobs.
    """

    least: int = 1
    most: float = np.inf
    partition: str = ""

    def has(self, log: History) -> Mask:
        """bool[jobs], those that run in it."""
        if self.partition:
            code = log.partition.names.index(self.partition)
            return np.asarray(log.partition.codes == code)
        return (log.nodes >= self.least) & (log.nodes <= self.most)

    def __str__(self) -> str:
        if self.partition:
            return f"partition {self.partition}"
        if self.least <= 1 and np.isinf(self.most):
            return "all nodes"
        return (
            f"jobs of {self.least} nodes and more"
            if np.isinf(self.most)
            else f"jobs of up to {self.most:.0f} nodes"
        )


def pool_of(known: History, nodes: int, partition: str = "") -> Pool:
    """The pool that a job of so many nodes runs in.

    Parameters
    ----------
    known : as of the instant.
    nodes : of the job.
    partition : that it asks for; empty: the sizes of the jobs tell.
    """
    if partition:
        return Pool(partition=partition)
    ran = known.of(known.started & (known.submit_s >= known.complete_from_s))
    sizes = np.unique(ran.nodes)
    for below, above in zip(sizes[:-1].tolist(), sizes[1:].tolist()):
        if above > GAP * below and _own_nodes(ran, below):
            return Pool(least=above) if nodes > below else Pool(most=below)
    return Pool()


def _own_nodes(ran: History, below: int) -> bool:
    """Whether jobs of up to so many nodes have nodes of their own: many times they have as many as ever, and some wait."""
    small, large = ran.of(ran.nodes <= below), ran.of(ran.nodes > below)
    if min(len(small), len(large)) < LEAST_JOBS:
        return False
    at_s, held = small.busy()
    full = (held == held.max()) & (_waiting(small, at_s) > 0)
    return int(np.count_nonzero(full)) >= CEILINGS


def _waiting(log: History, at_s: F64) -> I64:
    """int64[instants], jobs that wait right after each; jobs of `log` have all started."""
    came = np.searchsorted(np.sort(log.submit_s), at_s, side="right")
    went = np.searchsorted(np.sort(log.start_s), at_s, side="right")
    return came - went


def nodes_of(known: History, at_s: float) -> int:
    """Nodes of a pool whose jobs these are: the most in use lately, for more than a moment. 0: nothing ever ran.

    Parameters
    ----------
    known : the pool's jobs, as of the instant.
    at_s : the instant.
    """
    ran = known.started & ~(known.end_s <= at_s - FULL_S) & (known.start_s <= at_s)
    if not ran.any():
        return 0
    instants, held = known.of(ran).busy()
    length_s = np.diff(np.maximum(instants, at_s - FULL_S), append=at_s)
    order = np.argsort(-held, kind="stable")
    above_s = np.cumsum(length_s[order])
    enough = int(np.searchsorted(above_s, FULL_SHARE * max(float(above_s[-1]), 1.0)))
    return int(max(held[order[min(enough, len(order) - 1)]], known.nodes[ran].max()))


def regular_maintenance(known: History, at_s: float) -> tuple[Window, ...]:
    """The next maintenance, where the last ones came at equal distances of whole days; else none.

    Parameters
    ----------
    known : the pool's jobs, as of the instant.
    at_s : the instant.
    """
    outages = outages_of(known, at_s)
    if len(outages) < 2:
        return ()
    (before_s, _), (last_s, _) = outages[-2:]
    days = round((last_s - before_s) / _DAY_S)
    if days < 1 or abs(last_s - before_s - days * _DAY_S) > REGULAR_S:
        return ()
    length_s = float(np.median([end_s - begin_s for begin_s, end_s in outages[-3:]]))
    begin_s = last_s + days * _DAY_S
    if at_s >= begin_s + length_s:  # it did not come
        return ()
    return (Window(from_s=begin_s, to_s=begin_s + length_s, gpus=0, announced_s=at_s),)


def outages_of(known: History, at_s: float) -> tuple[tuple[float, float], ...]:
    """Stretches, over by the instant, in which no node was in use though somebody waited: from when to when.

    Stretches with less than a day between them are one.
    """
    since = known.of(known.started & ~(known.end_s <= known.complete_from_s))
    if not len(since):
        return ()
    instants, held = since.busy()
    empty = np.flatnonzero(
        (held[:-1] == 0) & (np.diff(instants) >= OUTAGE_S) & (instants[:-1] >= known.complete_from_s)
    )
    found: list[tuple[float, float]] = []
    for begin_s, end_s in zip(instants[empty].tolist(), instants[empty + 1].tolist()):
        if end_s > at_s or not known.waiting_at(begin_s + 0.5 * OUTAGE_S).any():
            continue
        if found and begin_s - found[-1][1] < _DAY_S:
            begin_s, _ = found.pop()
        found.append((begin_s, end_s))
    return tuple(found)
