"""Limits of what groups of jobs have running at once: by user, account, quality of service, partition and GPU type.

A `LimitRule` says whom it limits in the words of a log; `resolved` makes arrays of the rules, with the groups that each job
counts against. A `Tally` counts who runs, and says whether one more job may.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Final, Literal, TypeAlias

import numpy as np

from forerun.cluster.inputs.arrays import I64

if TYPE_CHECKING:
    from forerun.cluster.inputs.arrays import Jobs

#: the columns of a log by which a scenario limits jobs
LimitColumn: TypeAlias = Literal["user", "account", "qos", "partition"]
LIMIT_COLUMNS: Final[tuple[LimitColumn, ...]] = ("user", "account", "qos", "partition")
#: those by which they are limited: some arrays say how many of their tasks may run at once
RuleColumn: TypeAlias = LimitColumn | Literal["array"]
RULE_COLUMNS: Final[tuple[RuleColumn, ...]] = (*LIMIT_COLUMNS, "array")
#: no limit; so large that no cluster reaches it, so small that sums stay in 64 bits
UNLIMITED: Final = 1 << 60
#: what may be left out of Kueue's files by name
Ignorable: TypeAlias = Literal[
    "admission-checks", "stop-policy", "admission-fair-sharing", "topology-requests", "cohort-limits", "preemption",
    "fair-sharing",
]  # fmt: skip
#: what Kueue's fair sharing compares before it preempts; see `Kueue`
ShareStrategy: TypeAlias = Literal["LessThanOrEqualToFinalShare", "LessThanInitialShare"]


@dataclass(frozen=True, slots=True)
class LimitRule:
    """What some jobs may have running at once.

    Parameters
    ----------
    name : how messages call it, such as `QOS short: MaxJobsPU`.
    of : whose jobs count, as the values that they have in columns of the log (default: all jobs).
    per : columns by whose values the jobs are grouped, each value with a limit of its own (default: one for all).
    gpus, jobs : at once (default: unlimited).
    job_gpus : of one job (default: unlimited).
    gpu_type : the GPUs that count (default: of any type).
    kind, rank : of the rules of one kind that limit a job, those with the least rank apply, all of one rank (default: a kind
        of its own).
    own_gpus, pool : GPUs beyond `own_gpus` are taken from a pool of this name, which others share (default: no pool).
    """

    name: str
    of: Mapping[RuleColumn, frozenset[str]] = field(default_factory=dict)
    per: tuple[RuleColumn, ...] = ()
    gpus: int = UNLIMITED
    jobs: int = UNLIMITED
    job_gpus: int = UNLIMITED
    gpu_type: str = ""
    kind: str = ""
    rank: int = 0
    own_gpus: int = 0
    pool: str = ""


@dataclass(frozen=True, slots=True)
class QueueTerms:
    """How a queue admits and whom it preempts, in the words of Kueue's ClusterQueues.

    Parameters
    ----------
    cohort : the root of its cohorts (default: none).
    strict : whether its first job holds up those behind (default: no).
    tries_next : whether it tries the next GPU type before it borrows (default: no).
    preempts_first : whether it preempts before it tries the next GPU type (default: no).
    within : whom it preempts in the queue itself (default: nobody).
    reclaims : whom it preempts in queues of its cohort that borrow (default: nobody).
    borrows_below : while it borrows itself, it preempts there jobs of lower priority that is below this (None: nobody).
    strategies : by which shares it preempts, in this order, where queues share fairly (default: they do not).
    weight : of its share (default: 1).
    """

    cohort: str = ""
    strict: bool = False
    tries_next: bool = False
    preempts_first: bool = False
    within: Literal["Never", "LowerPriority", "LowerOrNewerEqualPriority"] = "Never"
    reclaims: Literal["Never", "LowerPriority", "Any"] = "Never"
    borrows_below: float | None = None
    strategies: tuple[ShareStrategy, ...] = ()
    weight: float = 1.0


@dataclass(frozen=True, slots=True)
class QueueRule:
    """A queue of its own order, as ClusterQueues of Kueue are.

    Parameters
    ----------
    name : of the queue.
    partitions : names in the log's column `partition` whose jobs are in it.
    terms : how it admits.
    nominal_gpus : its own, by GPU type, in the order in which it tries them.
    """

    name: str
    partitions: frozenset[str]
    terms: QueueTerms
    nominal_gpus: Mapping[str, int]


@dataclass(frozen=True, slots=True)
class QueuesOfJobs:
    """Which queue each job is in, and how the queues admit.

    Parameters
    ----------
    of : by job, the number of its queue.
    priority : by job; larger goes first.
    terms : by queue.
    nominal_gpus : by queue, its own GPUs by the number of the GPU type, in the order in which it tries them.
    names : of the queues.
    """

    of: tuple[int, ...]
    priority: tuple[float, ...]
    terms: tuple[QueueTerms, ...]
    nominal_gpus: tuple[Mapping[int, int], ...]
    names: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Limits:
    """Rules as arrays: groups of jobs, each with a limit.

    Parameters
    ----------
    names, rules : of the groups, for messages, and of the rules that they are groups of.
    gpus, jobs : int64[groups], at once.
    job_gpus : int64[groups], of one job.
    own_gpus, pool : int64[groups], the GPUs that a group has for itself, and the number of the pool that more come from (-1:
        none).
    pool_gpus : int64[pools], GPUs in each pool.
    groups_of : by GPU type and job, the groups that the job counts against on GPUs of that type.
    queues : the queues that jobs are in (default: they have no order of their own).
    asks : int64[jobs], the GPUs by which each is admitted: who takes nodes whole has more (default: all that it has).
    """

    names: tuple[str, ...]
    gpus: I64
    jobs: I64
    job_gpus: I64
    own_gpus: I64
    pool: I64
    pool_gpus: I64
    groups_of: tuple[tuple[tuple[int, ...], ...], ...]
    queues: QueuesOfJobs | None = None
    rules: tuple[str, ...] = ()
    asks: I64 | None = None

    @property
    def by_type(self) -> bool:
        """Whether jobs have other limits on GPUs of other types."""
        return len(set(self.groups_of)) > 1

    def of(self, jobs: I64) -> Limits:
        """Those of some jobs, by their numbers."""
        groups_of = tuple(tuple(of_type[job] for job in jobs.tolist()) for of_type in self.groups_of)
        asks = None if self.asks is None else self.asks[jobs]
        return replace(self, groups_of=groups_of, asks=asks)

    def forbidding(self, jobs: Jobs) -> dict[int, str]:
        """Jobs that can never run within the limits, by row, each with what forbids it on the last GPU type.

        Parameters
        ----------
        jobs : those that the limits were resolved for.
        """
        forbidden: dict[int, str] = {}
        asked = (jobs.gpus if self.asks is None else self.asks).tolist()
        for number, groups_of in enumerate(self.groups_of):
            rows = range(len(asked)) if not number else list(forbidden)
            for row in rows:
                what = self._forbids(groups_of[row], asked[row])
                if what:
                    forbidden[row] = what
                else:
                    forbidden.pop(row, None)
        return forbidden

    def _forbids(self, groups: tuple[int, ...], gpus: int) -> str:
        """Which limit of some groups is below a request alone, in words; empty: none."""
        for group in groups:
            most = int(min(self.gpus[group], self.job_gpus[group]))
            if (pool := int(self.pool[group])) >= 0:
                most = min(most, int(self.own_gpus[group] + self.pool_gpus[pool]))
            if self.jobs[group] < 1:
                return f"{self.names[group]} allows no job"
            if gpus > most:
                return f"{self.names[group]} allows {most} GPUs"
        return ""


class Tally:
    """What the groups of some limits have running."""

    def __init__(self, limits: Limits) -> None:
        self.groups_of, self.asks = limits.groups_of, limits.asks
        self.most_gpus, self.most_jobs = limits.gpus.tolist(), limits.jobs.tolist()
        self.own_gpus, self.pool = limits.own_gpus.tolist(), limits.pool.tolist()
        self.pool_gpus = limits.pool_gpus.tolist()
        self.gpus = [0] * len(self.most_gpus)
        self.jobs = [0] * len(self.most_gpus)
        self.pooled = [0] * len(self.pool_gpus)

    def fits(self, job: int, gpu_type: int, gpus: int) -> bool:
        """Whether one more job may run.

        Parameters
        ----------
        job : its row.
        gpu_type : of the GPUs that it would have.
        gpus : how many.
        """
        gpus = gpus if self.asks is None else min(gpus, int(self.asks[job]))
        for group in self.groups_of[gpu_type][job]:
            if self.gpus[group] + gpus > self.most_gpus[group] or self.jobs[group] >= self.most_jobs[group]:
                return False
            pool = self.pool[group]
            if pool >= 0 and self.pooled[pool] + self._from_pool(group, gpus) > self.pool_gpus[pool]:
                return False
        return True

    def add(self, job: int, gpu_type: int, gpus: int) -> None:
        """One more job runs; parameters as of `fits`."""
        for group in self.groups_of[gpu_type][job]:
            if (pool := self.pool[group]) >= 0:
                self.pooled[pool] += self._from_pool(group, gpus)
            self.gpus[group] += gpus
            self.jobs[group] += 1

    def remove(self, job: int, gpu_type: int, gpus: int) -> None:
        """A job that was added runs no more; parameters as of `fits`."""
        for group in self.groups_of[gpu_type][job]:
            self.gpus[group] -= gpus
            self.jobs[group] -= 1
            if (pool := self.pool[group]) >= 0:
                self.pooled[pool] -= self._from_pool(group, gpus)

    def _from_pool(self, group: int, gpus: int) -> int:
        """How many of so many GPUs more a group would take from its pool."""
        used, own = self.gpus[group], self.own_gpus[group]
        return int(max(0, used + gpus - own) - max(0, used - own))


def array_rules(arrays: Iterable[str]) -> list[LimitRule]:
    """The limits of arrays, such as `4%2`, by how many tasks of each may run at once; empty: none."""
    return [
        LimitRule(f"array {array}", {"array": frozenset({array})}, jobs=int(array.partition("%")[2]))
        for array in arrays
        if array
    ]


def resolved(
    rules: Sequence[LimitRule],
    pools: Mapping[str, int],
    columns: Mapping[RuleColumn, Sequence[str]],
    gpu_types: Sequence[str],
) -> Limits:
    """The groups of some rules, and which of them each job counts against.

    Parameters
    ----------
    rules : the rules.
    pools : GPUs in each pool that they name.
    columns : of the jobs, one value each; those that are missing are empty.
    gpu_types : of the cluster, in the order in which they are numbered.
    """
    numbers: dict[tuple[int, tuple[str, ...]], int] = {}
    none = ("",) * len(next(iter(columns.values())))
    combined = list(zip(*(columns.get(name, none) for name in RULE_COLUMNS), strict=True))
    groups: list[dict[tuple[str, ...], tuple[int, ...]]] = []
    for gpu_type in gpu_types:
        of_type = [
            (at, rule)
            for at, rule in enumerate(rules)
            if not rule.gpu_type or rule.gpu_type.lower() == gpu_type.lower()
        ]
        groups.append(
            {values: tuple(_groups(values, of_type, numbers)) for values in dict.fromkeys(combined)}
        )
    pool_number = {name: at for at, name in enumerate(pools)}
    chosen = [rules[at] for at, _ in numbers]
    names = [
        f"{rules[at].name} ({', '.join(values)})" if values else rules[at].name for at, values in numbers
    ]
    return Limits(
        names=tuple(names),
        rules=tuple(rule.name for rule in chosen),
        gpus=np.array([rule.gpus for rule in chosen], np.int64),
        jobs=np.array([rule.jobs for rule in chosen], np.int64),
        job_gpus=np.array([rule.job_gpus for rule in chosen], np.int64),
        own_gpus=np.array([rule.own_gpus for rule in chosen], np.int64),
        pool=np.array([pool_number[rule.pool] if rule.pool else -1 for rule in chosen], np.int64),
        pool_gpus=np.array(list(pools.values()), np.int64),
        groups_of=tuple(tuple(by_values[values] for values in combined) for by_values in groups),
    )


def of_quotas(quota: I64, owner: Iterable[int], types: int, names: Sequence[str]) -> Limits:
    """Quotas as limits.

    Parameters
    ----------
    quota : int64[owners], GPUs at once.
    owner : of each job.
    types : how many GPU types there are.
    names : of the quotas, for messages.
    """
    unlimited, none = np.full(len(quota), UNLIMITED), np.full(len(quota), -1)
    groups_of = tuple((each,) for each in owner)
    return Limits(
        names=tuple(names),
        rules=tuple(names),
        gpus=quota,
        jobs=unlimited,
        job_gpus=unlimited,
        own_gpus=quota,
        pool=none,
        pool_gpus=none[:0],
        groups_of=(groups_of,) * types,
    )


def is_of(job: Mapping[RuleColumn, str], whose: Mapping[RuleColumn, frozenset[str]]) -> bool:
    """Whether what a job has in the columns of a log is what a rule is for. A job of `a,b` is of a rule for both of them."""
    return all(
        job[name] in those or (name == "partition" and those.issuperset(job[name].split(",")))
        for name, those in whose.items()
    )


def _groups(
    values: tuple[str, ...],
    rules: Iterable[tuple[int, LimitRule]],
    numbers: dict[tuple[int, tuple[str, ...]], int],
) -> list[int]:
    """The groups of jobs with some values; new ones are numbered as they come."""
    of = dict(zip(RULE_COLUMNS, values, strict=True))
    applying = [(at, rule) for at, rule in rules if is_of(of, rule.of)]
    least: dict[str, int] = {}
    for _, rule in applying:
        least[rule.kind] = min(rule.rank, least.get(rule.kind, rule.rank))
    return [
        numbers.setdefault((at, tuple(of[name] for name in rule.per)), len(numbers))
        for at, rule in applying
        if not rule.kind or rule.rank == least[rule.kind]
    ]
