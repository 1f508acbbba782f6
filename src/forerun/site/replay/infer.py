"""What a log says of its machine: pools, outages, latencies and limits, each with its evidence.

Nothing here looks at when a job that is scored started, other than in sums over many jobs.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from typing import Final

import msgspec
import numpy as np

from forerun.site.replay.cases import case_of, pool_of
from forerun.site.replay.history import History
from forerun.site.replay.machine import ABOVE, ceiling, in_use, outages_of, small_pool, waiting_at
from forerun.site.replay.system import Finding, Outage, Pool, System

_HOUR_S: Final = 3600.0
#: a start sooner after a submission or an end than this has not waited for anything else
_AT_ONCE_S: Final = 600.0
#: share of the nodes that may still be in use in an outage
_RUNS_ON: Final = 0.1
#: jobs that show a latency, at least
_SHOWN: Final = 30
#: users who reach a limit, at least, and how often they do while more of their jobs wait
_USERS: Final = 2
_REACHED: Final = 20


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
        system = msgspec.structs.replace(system, held_after_s=0.0)
    pools = list(system.pools)
    for number, pool in enumerate(pools):
        known = log.as_of(until_s)
        if "latencies" not in off and not pool.launch_s and not pool.turnover_s:
            pool = _latencies(known, system, number, findings)
        if "limits" not in off and not pool.running_per_user:
            pool = _limits(known, system, number, pool, findings)
        pools[number] = pool
    system = msgspec.structs.replace(system, pools=tuple(pools))
    return Inferred(system, tuple(findings))


def _pools(log: History, off: Collection[str], findings: list[Finding]) -> tuple[Pool, ...]:
    """A pool of small jobs, if there is one, and one of all others."""
    found = small_pool(log) if "pools" not in off else None
    most = 0
    if found is not None:
        most = found[0].most_nodes
        findings.append(found[1])
    rest = log.of(log.nodes > most)
    nodes, share = ceiling(*in_use(rest, log.complete_from_s, log.last_s))
    pool = Pool(name="main" if most else "all", nodes=max(nodes, 1))
    if "pools" in off or not nodes:
        return (pool,)
    beyond = int((rest.nodes > nodes).sum())
    findings.append(
        Finding(
            about="pools",
            what=f"pool {pool.name}: {nodes} nodes",
            evidence=f"exactly {nodes} in use for {100 * share:.2f} % of the time, more for at most {100 * ABOVE:g} %"
            + (f"; {beyond} jobs on more nodes set aside, as of the whole machine" if beyond else ""),
        )
    )
    return (pool,) if found is None else (found[0], pool)


def _windows(log: History, system: System, findings: list[Finding]) -> tuple[Outage, ...]:
    """The outages of the last pool; the others are out as well, unless some of its nodes are not."""
    pool = system.pools[-1]
    jobs = log.of(pool_of(log, system.pools) == len(system.pools) - 1)
    windows = outages_of(jobs, pool.nodes, int(_RUNS_ON * pool.nodes))
    if not windows:
        return ()
    hours = sum(window.to_s - window.from_s for window in windows) / _HOUR_S
    drained_s = [
        window.from_s - window.announced_s for window in windows if window.announced_s < window.from_s
    ]
    drained = f"; the scheduler drained for {np.median(drained_s) / _HOUR_S:.0f} h (median) before those"
    findings.append(
        Finding(
            about="windows",
            what=f"{len(windows)} outages of {hours:.0f} h together, {len(drained_s)} of them announced",
            evidence=f"at most {100 * _RUNS_ON:g} % of the nodes were in use for an hour or more although somebody waited"
            f"{drained if drained_s else ''}",
        )
    )
    return tuple(
        Outage(
            from_s=window.from_s + log.origin_s,
            to_s=window.to_s + log.origin_s,
            announced_s=window.announced_s + log.origin_s,
            nodes={pool.name: window.gpus} if window.gpus < pool.nodes else {},
        )
        for window in windows
    )


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
    alone = waiting_at(jobs, case.submit_s) <= 1
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
        most.append((top, int((waiting_at(own, reached) > 0).sum())))
    if not most:
        return pool
    limit = max(top for top, _ in most)
    at_limit = [times for top, times in most if top == limit and times > 0]
    if limit < 2 or len(at_limit) < _USERS or sum(at_limit) < _REACHED:
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
