"""What the files of a site say besides its nodes: limits, time limits, maintenance, and what is not simulated of it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from forerun.cluster.inputs.arrays import NO_REQUEST_S, Jobs
from forerun.cluster.inputs.limits import RULE_COLUMNS, LimitRule, QueueRule, RuleColumn, is_of


@dataclass(frozen=True, slots=True)
class TimeLimit:
    """How long some jobs may run at most.

    Parameters
    ----------
    name : how messages call it.
    of : whose jobs, as the values that they have in columns of the log.
    seconds : at most.
    """

    name: str
    of: Mapping[RuleColumn, frozenset[str]]
    seconds: int


@dataclass(frozen=True, slots=True)
class Outage:
    """GPUs that are out for maintenance, by the calendar of the site.

    Parameters
    ----------
    name : of the reservation.
    from_s, to_s : seconds since 1970, on the clock of the file.
    gpus : how many.
    nodes : the numbers of the nodes that are out (default: no file names them).
    announced_s : from when on it is known (default: all along).
    """

    name: str
    from_s: float
    to_s: float
    gpus: int
    nodes: tuple[int, ...] = ()
    announced_s: float = -np.inf


@dataclass(frozen=True, slots=True)
class Site:
    """What a site's files say.

    Parameters
    ----------
    rules, pools : limits of what runs at once.
    longest : time limits, which jobs without a requested time have.
    outages : maintenance, and nodes that were away.
    failures : when which nodes failed, in seconds since 1970: the numbers of the nodes.
    notes : what the files say that is not simulated.
    queues : queues with an order of their own; every job is in one of them (default: there are none).
    """

    rules: tuple[LimitRule, ...] = ()
    pools: Mapping[str, int] = field(default_factory=dict)
    longest: tuple[TimeLimit, ...] = ()
    outages: tuple[Outage, ...] = ()
    notes: tuple[str, ...] = ()
    queues: tuple[QueueRule, ...] = ()
    failures: Mapping[float, tuple[int, ...]] = field(default_factory=dict)


def with_time_limits(
    jobs: Jobs, longest: Sequence[TimeLimit], columns: Mapping[RuleColumn, Sequence[str]]
) -> tuple[Jobs, tuple[str, ...]]:
    """The jobs, those without a requested time with the least limit that they run under; and a note.

    Where no job of a log has a requested time, the log does not have them, and none is filled in.

    Parameters
    ----------
    jobs : of the run.
    longest : the limits.
    columns : of the jobs, one value each.
    """
    lacking = np.flatnonzero(jobs.requested_s >= NO_REQUEST_S)
    if not longest or not len(lacking) or len(lacking) == len(jobs):
        return jobs, ()
    combined = list(zip(*(columns[name] for name in RULE_COLUMNS), strict=True))
    least: dict[tuple[str, ...], int] = {}
    for values in dict.fromkeys(combined[row] for row in lacking.tolist()):
        of = dict(zip(RULE_COLUMNS, values, strict=True))
        least[values] = max(
            min(
                (one.seconds for one in longest if is_of({**of, "partition": name}, one.of)),
                default=NO_REQUEST_S,
            )
            for name in of["partition"].split(",")
        )
    requested_s = jobs.requested_s.copy()
    requested_s[lacking] = [least[combined[row]] for row in lacking.tolist()]
    count = int(np.count_nonzero(requested_s[lacking] < NO_REQUEST_S))
    note = f"{count} of {len(jobs)} jobs without a requested time have the limit of their partition, QOS or account"
    return replace(jobs, requested_s=requested_s), (note,) if count else ()


def with_greatest_request(jobs: Jobs) -> tuple[Jobs, tuple[str, ...]]:
    """The jobs, those that ask for no time with the greatest that any asks for, if one does; and a note."""
    lacking = jobs.requested_s >= NO_REQUEST_S
    if not lacking.any() or lacking.all():
        return jobs, ()
    most_s = int(jobs.requested_s[~lacking].max())
    note = f"{int(lacking.sum())} of {len(jobs)} jobs without a requested time take the greatest one, {most_s:,} s"
    return replace(jobs, requested_s=np.where(lacking, most_s, jobs.requested_s)), (note,)
