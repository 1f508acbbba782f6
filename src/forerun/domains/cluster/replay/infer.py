"""What a log says of its machine: pools, outages, latencies and limits, each with its evidence.

Nothing here looks at when a job that is scored started, other than in sums over many jobs.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from typing import Final

import msgspec
import numpy as np

from forerun.domains.cluster.replay.cases import case_of, pool_of
from forerun.domains.cluster.replay.history import F64, I64, History, Mask
from forerun.domains.cluster.replay.system import Finding, Outage, Pool, System

_HOUR_S: Final = 3600.0
_DAY_S: Final = 86_400.0
#: the nodes in use are above the ceiling of a pool for no longer than this share of the time: rows that overlap
_ABOVE: Final = 0.001
#: a pool of small jobs is one if it was full so many times while others waited for it
_TIMES_FULL: Final = 20
#: two sizes of jobs are so many times apart where one pool ends
_APART: Final = 2.0
#: an outage is so long at least; two are one if they are closer together
_SHORTEST_S: Final = _HOUR_S
#: a start sooner after a submission or an end than this has not waited for anything else
_AT_ONCE_S: Final = 600.0
#: jobs that show a latency, at least
_SHOWN: Final = 30
#: users who reach a limit, at least
_USERS: Final = 2


@dataclass(frozen=True, slots=True)
class Inferred:
    """A machine and how it was found out.

    Parameters
    ----------
    system : the machine.
    findings : what was inferred.
    """

    system: System
    findings: tuple[Finding, ...]


def infer(
    log: History, until_s: float, *, given: System | None = None, off: Collection[str] = ()
) -> Inferred:
    """The machine of a log.

    Parameters
    ----------
    log : the history.
    until_s : latencies and limits are inferred from what happened before; outages and pools from the whole log.
    given : a machine of which only latencies, limits and windows that it leaves out are inferred (default: none is given).
    off : of `system.INFERRED`, what is not inferred (default: everything is).
    """
    findings: list[Finding] = []
    system = given if given is not None else System(pools=_pools(log, off, findings))
    if "windows" not in off and not system.windows:
        windows = _windows(log, system, findings)
        system = msgspec.structs.replace(system, windows=windows)
    if "holds" in off:
        system = msgspec.structs.replace(system, held_after=0)
    pools = list(system.pools)
    for number, pool in enumerate(pools):
        known = log.as_of(until_s)
        if "latencies" not in off and not pool.launch_s and not pool.turnover_s:
            pool = _latencies(known, system, number, findings)
        if "limits" not in off and not pool.running_per_user:
            pool = _limits(known, system, number, pool, findings)
        pools[number] = pool
    system = msgspec.structs.replace(system, pools=tuple(pools))
    if system.held_after:
        _holds(log, system, findings)
    return Inferred(system, tuple(findings))


def ceiling(at: F64, busy: I64) -> tuple[int, float]:
    """The nodes in use that are exceeded for hardly any time, and the share of time that exactly so many are."""
    seconds = np.diff(at, append=at[-1])
    levels, place = np.unique(busy, return_inverse=True)
    share = np.bincount(place, seconds) / max(float(seconds.sum()), 1.0)
    above = 1.0 - np.cumsum(share)
    first = int(np.argmax(above <= _ABOVE))
    return int(levels[first]), float(share[first])


def _pools(log: History, off: Collection[str], findings: list[Finding]) -> tuple[Pool, ...]:
    """Where partitions are named, one each; else a pool of small jobs, if there is one, and one of all others."""
    if "pools" in off or not log.started.any():
        at, busy = log.busy()
        return (Pool(name="all", nodes=max(ceiling(at, busy)[0], 1)),)
    small = _small(log, findings)
    rest = log.of(log.nodes > small.most_nodes) if small is not None else log
    nodes, share = ceiling(*rest.busy())
    name = "main" if small is not None else "all"
    beyond = int((rest.nodes > nodes).sum())
    findings.append(
        Finding(
            about="pools",
            what=f"pool {name}: {nodes} nodes",
            evidence=f"exactly {nodes} in use for {100 * share:.2f} % of the time, more for at most {100 * _ABOVE:g} %"
            + (f"; {beyond} jobs on more nodes set aside, as of the whole machine" if beyond else ""),
        )
    )
    main = Pool(name=name, nodes=nodes)
    return (main,) if small is None else (small, main)


def _small(log: History, findings: list[Finding]) -> Pool | None:
    """The pool of small jobs, if there is one: full again and again, with its jobs waiting, while other nodes are free."""
    sizes = np.unique(log.nodes)
    everywhere, used = log.busy()
    most, _ = ceiling(everywhere, used)
    for size in sizes[:-1][sizes[1:] >= _APART * sizes[:-1]].tolist():
        mine, others = log.of(log.nodes <= size), log.of(log.nodes > size)
        if min(mine.started.sum(), others.started.sum()) < 0.02 * len(log):
            continue
        at, busy = mine.busy()
        nodes = int(busy.max())
        seconds = np.diff(at, append=at[-1])
        share = float(seconds[busy == nodes].sum() / max(seconds.sum(), 1.0))
        full = np.flatnonzero(busy == nodes)
        place = np.searchsorted(everywhere, at[full], "right") - 1
        free = most - used[place]
        waiting = _waiting_at(mine, at[full])
        times = int(((waiting > 0) & (free >= size)).sum())
        if times >= _TIMES_FULL:
            findings.append(
                Finding(
                    about="pools",
                    what=f"pool small: {nodes} nodes, for jobs of up to {size} nodes",
                    evidence=f"exactly {nodes} in use for {100 * share:.1f} % of the time; full {times} times "
                    "while one of its "
                    "jobs "
                    f"waited and {size} other nodes were free",
                )
            )
            return Pool(name="small", nodes=nodes, most_nodes=size)
    return None


def _waiting_at(log: History, at: F64) -> I64:
    """How many jobs wait at some instants."""
    gone_s = np.fmin(log.start_s, log.end_s)
    gone_s = np.sort(np.where(np.isnan(gone_s), np.inf, gone_s))
    came = np.searchsorted(np.sort(log.submit_s), at, "right")
    counts: I64 = came - np.searchsorted(gone_s, at, "right")
    return counts


def _windows(log: History, system: System, findings: list[Finding]) -> tuple[Outage, ...]:
    """Stretches of an hour and more in which nothing runs although somebody waits.

    One was announced if no job started before it whose request reached beyond its end, for the length of the longest request
    at most. It then begins when the last of those requests ends.
    """
    jobs = log.of((pool_of(log, system.pools) == len(system.pools) - 1) & log.started)
    at, busy = jobs.busy()
    idle = np.flatnonzero((busy[:-1] == 0) & (at[:-1] >= log.complete_from_s))
    idle = idle[_waiting_at(log.of(log.started), at[idle] + 1.0) > 0]
    stretches: list[list[float]] = []
    for begin_s, end_s in zip(at[idle].tolist(), at[idle + 1].tolist(), strict=True):
        if stretches and begin_s - stretches[-1][1] < _SHORTEST_S:
            stretches[-1][1] = end_s
        else:
            stretches.append([begin_s, end_s])
    request_s = np.where(np.isnan(jobs.requested_s), 0.0, jobs.requested_s)
    longest_s = float(request_s.max(initial=0.0))
    believed_s = jobs.start_s + request_s
    windows, announced, drained_h = [], 0, []
    for begin_s, end_s in stretches:
        if end_s - begin_s < _SHORTEST_S:
            continue
        before = jobs.start_s < begin_s
        last_s = max(
            float(jobs.start_s[before & (believed_s > end_s)].max(initial=-np.inf)), begin_s - longest_s
        )
        known_s = begin_s
        if begin_s - last_s >= _SHORTEST_S:
            announced += 1
            drained_h.append((begin_s - last_s) / _HOUR_S)
            known_s = last_s
            ends = believed_s[(jobs.start_s > last_s) & before & (believed_s <= end_s)]
            begin_s = max(begin_s, float(ends.max(initial=begin_s)))
        if begin_s < end_s:
            windows.append(
                Outage(
                    from_s=begin_s + log.origin_s,
                    to_s=end_s + log.origin_s,
                    announced_s=known_s + log.origin_s,
                )
            )
    if windows:
        hours = sum(window.to_s - window.from_s for window in windows) / _HOUR_S
        drained = (
            f"; the scheduler drained for {np.median(drained_h):.0f} h (median) before those"
            if announced
            else ""
        )
        findings.append(
            Finding(
                about="windows",
                what=f"{len(windows)} outages of {hours:.0f} h together, {announced} of them announced",
                evidence=f"nothing ran for an hour or more although somebody waited{drained}",
            )
        )
    return tuple(windows)


def _latencies(log: History, system: System, number: int, findings: list[Finding]) -> Pool:
    """The pool with its launch, from jobs that came when enough was free, and turnover, from those that needed an end."""
    pool, case = system.pools[number], case_of(log, system, number)
    if len(case) < _SHOWN:
        return pool
    jobs = log.of(case.rows)
    at, busy = jobs.busy()
    free = pool.nodes - busy
    came = np.maximum(np.searchsorted(at, case.submit_s, "left") - 1, 0)
    begun = np.maximum(np.searchsorted(at, case.start_s, "left") - 1, 0)
    wait_s = case.start_s - np.maximum(case.submit_s, case.eligible_s)
    alone = _waiting_at(jobs, case.submit_s) <= 1
    # an end frees nodes at the instant before the start, and there were too few before it
    fits_at_once = (free[came] >= case.nodes) & (wait_s < _AT_ONCE_S) & alone
    ended_s, enough_before = at[begun], free[np.maximum(begun - 1, 0)] >= case.nodes
    since_s = case.start_s - ended_s
    by_end = ~enough_before & (free[begun] >= case.nodes) & (since_s < _AT_ONCE_S) & (wait_s > _AT_ONCE_S)
    launch_s = float(np.median(wait_s[fits_at_once])) if fits_at_once.sum() >= _SHOWN else 0.0
    turnover_s = 0.0
    if by_end.sum() >= _SHOWN:
        turnover_s = max(0.0, float(np.median(since_s[by_end])) - launch_s)
    if launch_s == 0 and turnover_s == 0:
        return pool
    findings.append(
        Finding(
            about="latencies",
            what=f"pool {pool.name}: launch {launch_s:.0f} s, turnover {turnover_s:.0f} s",
            evidence=f"median of {int(fits_at_once.sum())} jobs that came alone when enough nodes were free, and of "
            f"{int(by_end.sum())} that started after an end that they needed",
        )
    )
    return msgspec.structs.replace(pool, launch_s=launch_s, turnover_s=turnover_s)


def _limits(log: History, system: System, number: int, pool: Pool, findings: list[Finding]) -> Pool:
    """The pool with its limit of running jobs a user, where several reach the same number and nobody exceeds it."""
    case = case_of(log, system, number)
    jobs = log.of(case.rows)
    most: list[tuple[int, int]] = []
    for user in range(1, case.users):
        mine = np.flatnonzero(case.user == user)
        if len(mine) < 3:
            continue
        own = jobs.of(mine)
        instants = np.concatenate([own.start_s, own.end_s[np.isfinite(own.end_s)]])
        change = np.concatenate(
            [np.ones(len(own), np.int64), -np.ones(int(np.isfinite(own.end_s).sum()), np.int64)]
        )
        order = np.lexsort((change, instants))
        running = np.cumsum(change[order])
        top = int(running.max())
        reached = instants[order][running == top]
        most.append((top, int((_waiting_at(own, reached) > 0).sum())))
    if not most:
        return pool
    limit = max(top for top, _ in most)
    at_limit = [times for top, times in most if top == limit and times > 0]
    if limit < 2 or len(at_limit) < _USERS or sum(at_limit) < _TIMES_FULL:
        return pool
    findings.append(
        Finding(
            about="limits",
            what=f"pool {pool.name}: at most {limit} running jobs a user",
            evidence=f"{len(at_limit)} users reach {limit}, {sum(at_limit)} times with more of their "
            "jobs waiting; nobody exceeds it",
        )
    )
    return msgspec.structs.replace(pool, running_per_user=limit)


def _holds(log: History, system: System, findings: list[Finding]) -> None:
    """Say how many jobs are held, and how much of all waiting is theirs."""
    jobs, held, wait_s, theirs_s = 0, 0, 0.0, 0.0
    for number in range(len(system.pools)):
        case = case_of(log, system, number)
        mine: Mask = case.submit_s >= log.complete_from_s
        waited = (case.start_s - case.submit_s)[mine]
        jobs, held = jobs + int(mine.sum()), held + int(case.held[mine].sum())
        wait_s, theirs_s = wait_s + float(waited.sum()), theirs_s + float(waited[case.held[mine]].sum())
    findings.append(
        Finding(
            about="holds",
            what=f"{held} of {jobs} jobs held ({100 * held / max(jobs, 1):.0f} %), "
            f"with {100 * theirs_s / max(wait_s, 1):.0f} % of all waiting",
            evidence=f"{system.held_after} or more later jobs that needed as many nodes for as long started "
            "before each of them",
        )
    )
