"""The limits and tiers of a site, from the decisions that its policy does not explain without them.

A policy that knows the machine and the order and still would have started jobs that did not start lacks a rule that held
them up. A limit can be one if nothing ever exceeded it and these jobs would have; a tier, if its jobs come first. Whatever
makes the decisions of the past come out better stays, the best first.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import Final

import msgspec
import numpy as np

from forerun.cluster.inputs.limits import LIMIT_COLUMNS, LimitColumn
from forerun.cluster.policies.backfilling.base import BackfillPolicy
from forerun.cluster.policies.orders.fcfs import Fcfs
from forerun.cluster.policies.orders.multifactor import Multifactor, Partition
from forerun.cluster.scenario import Limit
from forerun.cluster.summary.spans import Spans
from forerun.site.cases import Case, case_of
from forerun.site.history import F64, I64, History
from forerun.site.machine import Finding, Pool, System
from forerun.site.replay.play import OneStep, one_step

#: jobs that a limit held up, at least
_HELD_UP: Final = 4
#: by how much F1 is better with a rule, at least
_BETTER: Final = 0.001
#: limits that are tried at once, and rules that are looked for
_TRIED: Final = 4
_RULES: Final = 8


@dataclass(frozen=True, slots=True)
class _Likely:
    """A limit that nothing exceeded, and how many jobs it would have held up that a policy would have started."""

    limit: Limit
    jobs: int


def ruled(
    known: History, system: System, pool: Pool, policy: BackfillPolicy, from_s: float, until_s: float
) -> tuple[System, BackfillPolicy, tuple[Finding, ...]]:
    """The machine with limits, and the policy with tiers, that make the decisions of the past come out best.

    Parameters
    ----------
    known : the history.
    system, pool : the machine, and which of its pools.
    policy : that decides.
    from_s, until_s : of the decisions, in seconds from the log's origin.
    """
    findings: list[Finding] = []
    number = system.pools.index(pool)

    def asked(one: System, other: BackfillPolicy) -> OneStep:
        return one_step(case_of(known, one, number), other, from_s, until_s)

    best = asked(system, policy)
    for _ in range(_RULES):
        case = case_of(known, system, number)
        options: list[tuple[System, BackfillPolicy, str, str]] = [
            (system, other, f"jobs of partition {name} come first", "")
            for name, other in _tiers(policy, case)
        ]
        likely = sorted(_limits(known, case, best.passed_over, system.limits), key=lambda one: -one.jobs)[
            :_TRIED
        ]
        options += [
            (
                msgspec.structs.replace(system, limits=(*system.limits, one.limit)),
                policy,
                _worded(one.limit),
                f"nothing exceeded it, and it holds up {one.jobs} jobs that would have started; ",
            )
            for one in likely
        ]
        steps = [asked(one, other) for one, other, _, _ in options]
        at = max(range(len(steps)), key=lambda at: steps[at].f1, default=-1)
        if at < 0 or steps[at].f1 < best.f1 + _BETTER:
            break
        system, policy, what, why = options[at]
        findings.append(
            Finding(
                about="limits",
                what=what,
                evidence=f"{why}with it F1 is {steps[at].f1:.3f}, and {best.f1:.3f} without",
            )
        )
        best = steps[at]
    return system, policy, tuple(findings)


def _tiers(policy: BackfillPolicy, case: Case) -> Iterator[tuple[str, BackfillPolicy]]:
    """The policy with one partition more in a tier above all others."""
    order = Multifactor() if isinstance(policy.order, Fcfs) else policy.order
    nodes = case.setting.cluster.partitions
    if not isinstance(order, Multifactor):
        return
    for name, mine in nodes.items():
        ranked = order.partitions.get(name, Partition())
        shares = any(other != name and set(mine) & set(theirs) for other, theirs in nodes.items())
        if ranked.tier == 1 and shares:
            above = msgspec.structs.replace(ranked, tier=2)
            partitions = {**order.partitions, name: above}
            tiered = msgspec.structs.replace(order, partitions=partitions)
            yield name, msgspec.structs.replace(policy, order=tiered)


def _worded(limit: Limit) -> str:
    whose = " and ".join(
        f"{column} {' or '.join(names)}" for column in LIMIT_COLUMNS if (names := getattr(limit, column))
    )
    each = f" for each {limit.per[0]}" if limit.per else ""
    most = f"{limit.gpus} GPUs" if limit.gpus is not None else f"{limit.jobs} jobs"
    return f"at most {most} at once{each}" + (f" of {whose}" if whose else "")


def _limits(
    known: History, case: Case, passed_over: Sequence[tuple[int, float]], have: Sequence[Limit]
) -> Iterator[_Likely]:
    """Limits that nothing exceeded and that hold up enough of the jobs that were passed over."""
    jobs = known.of(case.rows)
    names = {column: getattr(jobs, column) for column in LIMIT_COLUMNS}
    rows = np.array([row for row, _ in passed_over], np.int64)
    at_s = np.array([one for _, one in passed_over], np.float64)
    for of, per in _whose(jobs):
        mine = np.ones(len(jobs), np.bool_)
        for column, values in of.items():
            mine &= np.isin(names[column].codes, [names[column].names.index(value) for value in values])
        group = np.where(mine, names[per].codes if per else 0, -1)
        for count in ("gpus", "jobs"):
            if any(
                getattr(one, count) is not None
                and one.per == ((per,) if per else ())
                and all(getattr(one, column) == of.get(column, ()) for column in LIMIT_COLUMNS)
                for one in have
            ):
                continue
            asks = case.asked if count == "gpus" else np.ones(len(jobs), np.int64)
            extra = case.gpus - asks if count == "gpus" else np.zeros(len(jobs), np.int64)
            most, wants = _reached(case, group, asks, extra, rows, at_s)
            over = wants > most
            held_up = len(np.unique(rows[over]))
            if held_up < _HELD_UP:
                continue
            most = max(most, int(wants[over].min()) - 1)
            where = {column: tuple(values) for column, values in of.items()}
            yield _Likely(Limit(**where, per=(per,) if per else (), **{count: most}), held_up)  # type: ignore[arg-type]


def _whose(jobs: History) -> Iterator[tuple[dict[LimitColumn, tuple[str, ...]], LimitColumn | None]]:
    """Whose jobs a limit may count, and by what it counts them apart."""
    users: tuple[LimitColumn | None, ...] = ("user",) if jobs.user.known else ()
    accounts: tuple[LimitColumn | None, ...] = ("account",) if jobs.account.known else ()
    for per in (*users, *accounts):
        yield {}, per
    for column in ("qos", "partition"):
        for name in getattr(jobs, column).names:
            for per in (*users, *accounts, None):
                yield {column: (name,)}, per
    names = jobs.account.names
    for some in (*((name,) for name in names), *combinations(names, 2)):
        yield {"account": some}, None


def _reached(case: Case, group: I64, amount: I64, extra: I64, rows: I64, at_s: F64) -> tuple[int, F64]:
    """What a start made of its group at most, and what each of some jobs would have made of it; 0 for jobs of no group.

    Parameters
    ----------
    group, amount, extra : of each job: its group (-1: none), what it asks for, and has beyond that.
    rows, at_s : the jobs that did not start, and when they would have.
    """
    most, wants = 0, np.zeros(len(rows))
    for number in np.unique(group[group >= 0]).tolist():
        mine = np.flatnonzero((group == number) & case.started)
        begin_s, end_s = case.start_s[mine], case.end_s[mine]
        had, beyond = (Spans(begin_s, end_s, one[mine]) for one in (amount, extra))
        # of those that start together, the ones that have more than they ask for come last
        last = np.zeros(len(mine), np.int64)
        if extra[mine].any():
            last = np.array([extra[mine][begin_s == one].sum() for one in begin_s.tolist()])
        most = max(most, int((had.at(begin_s) + beyond.at(begin_s) - last).max(initial=0)))
        asks = group[rows] == number
        wants[asks] = had.at(at_s[asks]) + beyond.at(at_s[asks]) + amount[rows[asks]]
    return most, wants
