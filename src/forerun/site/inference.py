"""What a log says of its machine: pools, outages, latencies and limits, each with its evidence.

Two policies say what of a log may be looked at. A replay takes `WholeLog`, with outages as they were; a forecast of waits
takes `KnownAt` the instant of its question, with maintenance that is to come. Nothing here looks at when a job that is
scored started, other than in sums over many jobs.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Collection
from dataclasses import dataclass
from typing import Final

import msgspec
import numpy as np

from forerun.cluster.inputs.setting import Window
from forerun.cluster.summary.spans import Spans
from forerun.site.cases import Case, case_of
from forerun.site.history import History
from forerun.site.machine import Declared, Finding, Outage, Pool, System, first_of, pool_of
from forerun.site.order import recorded_order
from forerun.site.shown import (
    ABOVE,
    RUNS_ON,
    ceiling,
    in_use,
    named_outages,
    named_pools,
    outages_of,
    own_partitions,
    small_pool,
    waiting_at,
)

_HOUR_S: Final = 3600.0
_DAY_S: Final = 24 * _HOUR_S
#: a start sooner after a submission or an end than this has not waited for anything else
_AT_ONCE_S: Final = 600.0
#: jobs that show a latency, at least
_SHOWN: Final = 30
#: users who reach a limit, at least, and how often they do while more of their jobs wait
_USERS: Final = 2
_REACHED: Final = 20
#: at an instant a pool has the nodes that were in use in the last weeks
FULL_S: Final = 28 * _DAY_S
#: maintenance: an outage of so long that comes back after whole days, this precisely
OUTAGE_S: Final = 3 * _HOUR_S
REGULAR_S: Final = 4 * _HOUR_S


class Inference(ABC):
    """A policy of what may be inferred from a log."""

    @abstractmethod
    def seen(self, log: History) -> History:
        """What of a log may be looked at."""

    def named(self, log: History) -> tuple[tuple[Pool, Finding], ...]:
        """The pools of nodes that a log names (default: names do not count). log: as `seen`."""
        return ()

    @abstractmethod
    def gpus(self, jobs: History) -> tuple[int, float]:
        """The GPUs of a pool, and the share of time in which exactly so many were in use. 0: nothing ever ran.

        jobs: of the pool, as `seen`.
        """

    @abstractmethod
    def windows(self, jobs: History, gpus: int) -> tuple[Window, ...]:
        """The outages of a pool of so many GPUs, on the clock of its jobs; `gpus` are those out, 0: all."""

    def pools(self, log: History) -> tuple[tuple[Pool, ...], tuple[Finding, ...]]:
        """Those whose nodes the log names, else those that partitions or sizes tell apart, and one of all other jobs.

        Returns them with what shows that. log: as `seen`.
        """
        found = self.named(log) or own_partitions(log)
        if not found:
            found = tuple(one for one in (small_pool(log),) if one is not None)
        pools, findings = tuple(pool for pool, _ in found), tuple(finding for _, finding in found)
        rest = log.of(first_of([pool.takes(log) for pool in pools]) < 0) if pools else log
        if pools and not rest.started.any():
            return pools, findings
        gpus, share = self.gpus(rest)
        pool = Pool(name="main" if pools else "all", nodes=max(gpus, 1))
        beyond = int((rest.gpus > gpus).sum())
        finding = Finding(
            about="pools",
            what=f"pool {pool.name}: {gpus} {log.unit}",
            evidence=f"exactly {gpus} in use for {100 * share:.2f} % of the time, more for at most {100 * ABOVE:g} %"
            + (f"; {beyond} jobs on more set aside, as of the whole machine" if beyond else ""),
        )
        return (*pools, pool), (*findings, finding) if gpus else findings


class WholeLog(Inference):
    """What the whole log shows: the machine as it was."""

    def seen(self, log: History) -> History:
        """All of it."""
        return log

    def named(self, log: History) -> tuple[tuple[Pool, Finding], ...]:
        """Those of nearly all jobs."""
        return named_pools(log)

    def gpus(self, jobs: History) -> tuple[int, float]:
        """As many as were in use since the log is complete."""
        return ceiling(*in_use(jobs, jobs.complete_from_s, jobs.last_s))

    def windows(self, jobs: History, nodes: int) -> tuple[Window, ...]:
        """Every outage that there was."""
        return outages_of(jobs, nodes, int(RUNS_ON * nodes))


@dataclass(frozen=True, slots=True)
class KnownAt(Inference):
    """What is known at an instant.

    Parameters
    ----------
    at_s : the instant, on the log's clock.
    """

    at_s: float

    def seen(self, log: History) -> History:
        """What had happened by then."""
        return log.as_of(self.at_s)

    def gpus(self, jobs: History) -> tuple[int, float]:
        """As many as were in use lately, and no fewer than a job of that time had."""
        since_s = self.at_s - FULL_S
        ran = jobs.of(jobs.started & ~(jobs.end_s <= since_s) & (jobs.start_s <= self.at_s))
        nodes, share = ceiling(*in_use(ran, since_s, self.at_s))
        return max(nodes, int(ran.gpus.max(initial=0))), share

    def windows(self, jobs: History, nodes: int) -> tuple[Window, ...]:
        """The next maintenance, where the last ones came at equal distances of whole days; else none."""
        outages = [one for one in outages_of(jobs, nodes, 0) if one.to_s - one.from_s >= OUTAGE_S]
        if len(outages) < 2:
            return ()
        apart_s = outages[-1].from_s - outages[-2].from_s
        days = round(apart_s / _DAY_S)
        if days < 1 or abs(apart_s - days * _DAY_S) > REGULAR_S:
            return ()
        length_s = float(np.median([one.to_s - one.from_s for one in outages[-3:]]))
        begin_s = outages[-1].from_s + days * _DAY_S
        if self.at_s >= begin_s + length_s:  # it did not come
            return ()
        return (Window(from_s=begin_s, to_s=begin_s + length_s, gpus=0, announced_s=self.at_s),)


def infer(
    log: History, until_s: float, *, given: System | None = None, off: Collection[str] = ()
) -> tuple[System, tuple[Finding, ...]]:
    """The machine of a replay, and what was found out about it.

    Parameters
    ----------
    log : the history.
    until_s : latencies and limits are inferred from what happened before; outages and pools from the whole log.
    given : a machine of which only latencies, limits and windows that it leaves out are inferred, and nothing where the
        files of its site declare it (default: none is given).
    off : of `machine.INFERRED`, what is not inferred (default: everything is).
    """
    if isinstance(given, Declared):
        return (msgspec.structs.replace(given, held_after_s=0.0) if "holds" in off else given), ()
    whole = WholeLog()
    seen, known = whole.seen(log), KnownAt(until_s).seen(log)
    findings: list[Finding] = []
    if given is not None:
        system = given
    elif "pools" in off:
        system = System(pools=(Pool(name="all", nodes=max(whole.gpus(seen)[0], 1)),))
    else:
        pools, shown = whole.pools(seen)
        system, findings = System(pools=pools), [*shown]
    by_priority = None
    if given is None and "order" not in off and any(pool.parts for pool in system.pools):
        by_priority = recorded_order(known, sum(pool.nodes for pool in system.pools))
    if by_priority is not None:
        system = msgspec.structs.replace(system, order=by_priority[0])
        findings.append(by_priority[1])
    if "windows" not in off and not system.windows:
        system = msgspec.structs.replace(system, windows=_windows(seen, system, whole, findings))
    if "holds" in off:
        system = msgspec.structs.replace(system, held_after_s=0.0)
    found = []
    for number, pool in enumerate(system.pools):
        case = case_of(known, system, number)
        alike = len(pool.parts) < 2  # else who needed an end does not show in counts
        if "latencies" not in off and alike and not pool.launch_s and not pool.turnover_s:
            pool = _latencies(known, case, findings)
        if "limits" not in off and not pool.running_per_user:
            pool = _limits(known, case, pool, findings)
        found.append(pool)
    return msgspec.structs.replace(system, pools=tuple(found)), tuple(findings)


def with_outages(log: History, system: System, given: System | None, off: Collection[str] = ()) -> System:
    """A machine with the outages that there were in a log, unless some are given or they are switched off."""
    if "windows" in off or isinstance(given, Declared) or (given is not None and given.windows):
        return system
    return msgspec.structs.replace(system, windows=_windows(log, system, WholeLog(), []))


def _windows(
    log: History, system: System, inference: Inference, findings: list[Finding]
) -> tuple[Outage, ...]:
    """The outages of nodes with names, else of the last pool: of the others, too, unless some of its nodes are not out."""
    of = pool_of(log, system.pools)
    windows: list[tuple[Window, Pool]] = []
    for number, pool in enumerate(system.pools):
        if pool.parts:
            windows += [(one, pool) for one in named_outages(log.of(of == number), pool)]
    pool = system.pools[-1]
    if not pool.parts:
        windows += [(one, pool) for one in inference.windows(log.of(of == len(system.pools) - 1), pool.gpus)]
    if not windows:
        return ()
    failed = sum(one.is_failure for one, _ in windows)
    away = [one for one, _ in windows if not one.is_failure]
    hours = sum(one.to_s - one.from_s for one in away) / _HOUR_S
    drained_s = [one.from_s - one.announced_s for one in away if one.announced_s < one.from_s]
    drained = ""
    if drained_s:
        drained = f"; the scheduler drained for {np.median(drained_s) / _HOUR_S:.0f} h (median) before those"
    findings.append(
        Finding(
            about="windows",
            what=f"{len(away)} outages of {hours:.0f} h together, {len(drained_s)} of them announced"
            + (f", and {failed} failures of a node" if failed else ""),
            evidence=f"at most {100 * RUNS_ON:g} % of the nodes were in use for an hour or more although somebody waited"
            f"{drained}" + ("; a node that failed is away until a job starts on it" if failed else ""),
        )
    )
    return tuple(Outage.seen(one, pool, log.origin_s) for one, pool in windows)


def _latencies(log: History, case: Case, findings: list[Finding]) -> Pool:
    """The pool with its launch, from jobs that came when enough was free, and turnover, from those that needed an end."""
    pool = case.pool
    if len(case) < _SHOWN:
        return pool
    jobs = log.of(case.rows)
    at, busy = jobs.busy()
    free = pool.gpus - busy
    came = np.maximum(np.searchsorted(at, case.submit_s, "left") - 1, 0)
    begun = np.maximum(np.searchsorted(at, case.start_s, "left") - 1, 0)
    wait_s = case.start_s - np.maximum(case.submit_s, case.eligible_s)
    alone = waiting_at(jobs, case.submit_s) <= 1
    # an end frees nodes at the instant before the start, and there were too few before it
    fits_at_once = (free[came] >= case.gpus) & (wait_s < _AT_ONCE_S) & alone
    ended_s, enough_before = at[begun], free[np.maximum(begun - 1, 0)] >= case.gpus
    since_s = case.start_s - ended_s
    by_end = ~enough_before & (free[begun] >= case.gpus) & (since_s < _AT_ONCE_S) & (wait_s > _AT_ONCE_S)
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


def _limits(log: History, case: Case, pool: Pool, findings: list[Finding]) -> Pool:
    """The pool with its limit of running jobs a user, where several reach the same number and nobody exceeds it."""
    most: list[tuple[int, int]] = []
    for user in range(1, case.users):
        own = log.of(case.rows[case.user == user])
        if len(own) < 3:
            continue
        instants, running = Spans(own.start_s, own.end_s, np.ones(len(own), np.int64)).levels()
        top = int(running.max())
        most.append((top, int((waiting_at(own, instants[running == top]) > 0).sum())))
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
