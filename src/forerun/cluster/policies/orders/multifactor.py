"""Slurm's multifactor priority, with its two fair-share algorithms."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Annotated, ClassVar, Final, Literal

import msgspec
import numpy as np

from forerun.cluster.inputs.arrays import F64, I64, Cluster, JobLabels, Jobs
from forerun.cluster.inputs.reach import Entries, entries_of
from forerun.cluster.policy import Order, Ranking, View
from forerun.core.scenario.spec import Spec

NotNegative = Annotated[float, msgspec.Meta(ge=0)]
Whole = Annotated[int, msgspec.Meta(ge=0)]
DAY_S: Final = 86_400.0
#: an account that is not the child of another
ROOT: Final = "root"


class Weights(Spec, frozen=True, kw_only=True):
    """How much each factor counts, as `PriorityWeight...` of slurm.conf; each factor is between 0 and 1. Default 0 each.

    age: the time since the job came, up to `max_age_s`. fairshare: how little the user has used of what is theirs.
    job_size: the mean of the job's shares of the nodes and CPUs of the site. partition, qos: as the scenario ranks them.
    tres_gpu: the job's share of the GPUs of its partition, as `PriorityWeightTRES=gres/gpu=...`.
    """

    age: NotNegative = 0.0
    fairshare: NotNegative = 0.0
    job_size: NotNegative = 0.0
    partition: NotNegative = 0.0
    qos: NotNegative = 0.0
    tres_gpu: NotNegative = 0.0


class Account(Spec, frozen=True, kw_only=True):
    """An account to which jobs are charged.

    shares: its part beside its siblings (default 1). parent: the account that it belongs to (default: none). users: shares
    of its users (a user who is not named has 1).
    """

    shares: NotNegative = 1.0
    parent: str = ROOT
    users: dict[str, NotNegative] = {}


class Partition(Spec, frozen=True, kw_only=True):
    """What a partition counts for.

    priority: `PriorityJobFactor` of slurm.conf (default 1). tier: `PriorityTier`; jobs of a higher tier come before all
    others (default 1).
    """

    priority: Whole = 1
    tier: Whole = 1


class Multifactor(Order, tag="multifactor", frozen=True, kw_only=True):
    """By partition tier, then by Slurm's priority: a weighted sum of age, fair share, size, partition and QOS, less `nice`.

    Slurm's documentation, Multifactor Priority Plugin (priority_multifactor.html), Classic Fairshare Algorithm
    (classic_fair_share.html) and Fair Tree Fairshare Algorithm (fair_tree.html), version 25.05; no source was read.

    Equal priorities, which are whole numbers as Slurm has them, go by submission, then by place in the log. Usage is what
    the log says that jobs are billed, else GPU time, and decays continuously, where Slurm decays it every few minutes.
    There is no preemption, and there are no reservations, which would come first of all. Accounts, users, partitions, QOS,
    `nice` and `site_factor` are those of the trace; jobs without an account are their user's alone.

    Under `slurm-backfill` priorities are counted at multiples of `count_s` on the log's clock, as `PriorityCalcPeriod` of
    slurm.conf says, though Slurm counts from the start of its daemon; in other whole runs at the first decision after so
    long, and by policies that decide through a view at every one.

    weights: default: all 0. count_s: default 5 minutes. max_age_s: the wait from which on `age` is 1 (default 7 days).
    half_life_s: of usage (default 7 days; 0: it never decays). fairshare: `tree` (default, as Slurm's) or `classic`.
    damping: of `classic` (default 1). favor_small: whether small jobs have the larger size factor (default: no).
    nodes, cpus: of the whole site, of which `job_size` is a share (default 0: the nodes of the machines, and GPUs stand for
    CPUs, as for jobs whose CPUs the log does not say). size_by_time: whether `job_size` is the share of the nodes for each
    minute of the time limit, as `SMALL_RELATIVE_TO_TIME` (default: no). usage_factors: by QOS, what its usage counts (one
    that is not named: 1).
    accounts, partitions: by name, see their types (one that is not named has their defaults). qos: priorities by name
    (one that is not named: 0).
    """

    paper: ClassVar[str] = "Slurm's documentation, 25.05"
    added_later: ClassVar[tuple[str, ...]] = ("count_s", "nodes", "cpus", "size_by_time", "usage_factors")

    weights: Weights = Weights()
    max_age_s: Annotated[float, msgspec.Meta(gt=0)] = 7 * DAY_S
    count_s: Annotated[float, msgspec.Meta(gt=0)] | None = None
    half_life_s: NotNegative = 7 * DAY_S
    fairshare: Literal["tree", "classic"] = "tree"
    damping: Annotated[float, msgspec.Meta(gt=0)] = 1.0
    favor_small: bool = False
    size_by_time: bool = False
    nodes: Whole = 0
    cpus: Whole = 0
    accounts: dict[str, Account] = {}
    partitions: dict[str, Partition] = {}
    qos: dict[str, Whole] = {}
    usage_factors: dict[str, NotNegative] = {}

    def problems(self) -> list[tuple[str, str]]:
        """Every account has a parent, and none is its own ancestor."""
        problems = []
        for name, account in self.accounts.items():
            if name == ROOT:
                if account != Account(users=account.users):
                    what = "is what all accounts belong to; it has users, and neither shares nor a parent"
                    problems.append((f"accounts.{ROOT}", what))
            elif account.parent != ROOT and account.parent not in self.accounts:
                problems.append((f"accounts.{name}.parent", f"no account {account.parent!r}"))
            elif name in _ancestors(name, self.accounts):
                problems.append((f"accounts.{name}.parent", "the account is its own ancestor"))
        return problems

    def ranks(self, labels: JobLabels | None) -> bool:
        """Whether anything here, or in what a log says of its jobs, tells jobs apart but their submission."""
        tiers = any(one.tier != 1 for one in self.partitions.values())
        said = labels is not None and (labels.nice.any() or labels.site_factor.any())
        return bool(tiers or said) or self.weights != Weights()

    def keys(self, view: View) -> F64:
        """The order of the jobs of a view before which nobody has used anything."""
        return self.build().keys(view)

    def build(self) -> Ranking:
        """A ranking that remembers who has used what."""
        return MultifactorRanking(self)

    def best_standing(self, jobs: Jobs, cluster: Cluster) -> tuple[I64, F64]:
        """As `standing` in all partitions, of jobs that wait once: each by its best."""
        entries = entries_of(jobs, cluster)
        tier, fixed = self.standing(jobs, cluster, entries)
        first = entries.first[:-1]
        return np.maximum.reduceat(tier, first), np.maximum.reduceat(fixed, first)

    def standing(self, jobs: Jobs, cluster: Cluster, entries: Entries) -> tuple[I64, F64]:
        """The tiers of jobs in each of their partitions, and what does not change of their priorities there."""
        rows = entries.job
        labels, gpus = (jobs.labels or JobLabels.of(len(jobs))).take(rows), jobs.gpus[rows]
        in_partition = np.maximum(entries.reach.lines @ cluster.node_gpus(), 1)
        ranked = [self.partitions.get(name, Partition()) for name in entries.partition]
        most_partition = max([1, *(each.priority for each in self.partitions.values())])
        zero = np.zeros(len(rows))
        factors = Factors(
            age=zero,
            fairshare=zero,
            job_size=self.size(
                self.share_of_cpus(gpus / cluster.gpus, labels.cpus),
                entries.reach.count / (self.nodes or cluster.nodes),
                jobs.request_s[rows],
            ),
            partition=np.array([each.priority for each in ranked]) / most_partition,
            qos=np.array([self.qos.get(name, 0) for name in labels.qos]) / max([1, *self.qos.values()]),
            tres_gpu=gpus / in_partition[entries.reach.line],
            site=labels.site_factor,
            nice=labels.nice,
        )
        return np.array([each.tier for each in ranked], np.int64), self.priority(factors)

    def share_of_cpus(self, gpus: F64, cpus: I64) -> F64:
        """The shares of jobs of the site's CPUs, or of its GPUs for jobs that do not say their CPUs (0)."""
        return np.where(cpus > 0, cpus / self.cpus, gpus) if self.cpus else gpus

    def size(self, cpus: F64, nodes: F64, request_s: F64) -> F64:
        """The size factors of jobs by their shares of CPUs and nodes, and their time limits."""
        share: F64 = nodes / (request_s / 60.0) if self.size_by_time else (cpus + nodes) / 2
        return 1.0 - share if self.favor_small else share

    def charges(self, gpus: I64, labels: JobLabels) -> F64:
        """What a second of each GPU of jobs counts as usage of their users."""
        factor = np.array([self.usage_factors.get(name, 1.0) for name in labels.qos])
        each: F64 = np.where(np.isnan(labels.billing), 1.0, labels.billing / gpus) * factor
        return each

    def priority(self, factors: Factors) -> F64:
        """The priorities of jobs by their factors, not rounded."""
        weights = self.weights
        priority: F64 = (
            factors.site
            + weights.age * factors.age
            + weights.fairshare * factors.fairshare
            + weights.job_size * factors.job_size
            + weights.partition * factors.partition
            + weights.qos * factors.qos
            + weights.tres_gpu * factors.tres_gpu
            - factors.nice
        )
        return priority


def _ancestors(name: str, accounts: Mapping[str, Account]) -> set[str]:
    """The accounts above one; itself among them if it is its own ancestor."""
    above: set[str] = set()
    while (name := accounts[name].parent) in accounts and name not in above:
        above.add(name)
    return above


@dataclass(frozen=True, slots=True)
class Factors:
    """What the priorities of jobs are made of, one element a job: factors between 0 and 1; `site` and `nice` as they are."""

    age: F64
    fairshare: F64
    job_size: F64
    partition: F64
    qos: F64
    tres_gpu: F64
    site: F64
    nice: F64


@dataclass(slots=True)
class Usage:
    """GPU time of everybody, which decays by half in `half_life_s`; 0: never.

    Parameters
    ----------
    half_life_s : of the usage.
    gpu_s : float64[owners], the usage as of `as_of_s`.
    """

    half_life_s: float
    gpu_s: F64 = field(default_factory=lambda: np.zeros(0))
    as_of_s: float = -math.inf

    def charge(self, now_s: float, gpus: F64) -> None:
        """Time passes until now, all along which everybody had so many GPUs: the integral in closed form."""
        seconds = now_s - self.as_of_s
        self.as_of_s = now_s
        if not 0 < seconds < math.inf:
            return
        if not self.half_life_s:
            self.gpu_s += gpus * seconds
            return
        rate = math.log(2.0) / self.half_life_s
        lost = -math.expm1(-rate * seconds)  # of what was there
        self.gpu_s += gpus * (lost / rate) - self.gpu_s * lost


class ShareTree:
    """Accounts and their users, as nodes by number; 0 is the root. Accounts stand before what belongs to them.

    Parameters
    ----------
    accounts : of the scenario; accounts and users of jobs are added as they come.

    Attributes
    ----------
    parent, raw, is_user : of each node: its account, its shares as given, and whether it is a user.
    share : its part of the shares of its siblings and its own.
    """

    def __init__(self, accounts: Mapping[str, Account]) -> None:
        self.accounts = accounts
        self.parent: list[int] = [0]
        self.raw: list[float] = [1.0]
        self.is_user: list[bool] = [False]
        self.children: list[list[int]] = [[]]
        self.share: F64 = np.ones(1)
        self._node: dict[tuple[str, str | None], int] = {(ROOT, None): 0, ("", None): 0}
        for name, account in accounts.items():
            self._account(name)
            for user in account.users:
                self.user(name, user)

    def __len__(self) -> int:
        return len(self.parent)

    def user(self, account: str, user: str) -> int:
        """The node of a user of an account."""
        if (node := self._node.get((account, user))) is not None:
            return node
        known = self.accounts.get(account)
        shares = 1.0 if known is None else known.users.get(user, 1.0)
        return self._add((account, user), self._account(account), shares)

    def _account(self, name: str) -> int:
        if (node := self._node.get((name, None))) is not None:
            return node
        known = self.accounts.get(name, Account())
        return self._add((name, None), self._account(known.parent), known.shares)

    def _add(self, name: tuple[str, str | None], parent: int, shares: float) -> int:
        node = self._node[name] = len(self.parent)
        self.parent.append(parent)
        self.raw.append(shares)
        self.is_user.append(name[1] is not None)
        self.children.append([])
        self.children[parent].append(node)
        siblings = self.children[parent]
        total = math.fsum(self.raw[each] for each in siblings)
        self.share = np.append(self.share, 0.0)
        for each in siblings:
            self.share[each] = self.raw[each] / total if total else 0.0
        return node

    def classic(self, gpu_s: F64, damping: float) -> F64:
        """The classic fair-share factor of every node, by its usage; see `kernels.share_tree`."""
        from forerun.cluster.engine.kernels import share_tree

        return share_tree.classic(np.array(self.parent), self.share, gpu_s, damping)

    def fair_tree(self, gpu_s: F64) -> F64:
        """The Fair Tree factor of every user, by its usage; see `kernels.share_tree`."""
        from forerun.cluster.engine.kernels import share_tree

        return share_tree.fair_tree(np.array(self.parent), self.share, np.array(self.is_user), gpu_s)


class MultifactorRanking:
    """The order at work in one run: it sees who has GPUs from one decision to the next.

    Parameters
    ----------
    order : weights, shares and ranks.
    """

    def __init__(self, order: Multifactor) -> None:
        self.order = order
        self.tree = ShareTree(order.accounts)
        self.usage = Usage(order.half_life_s, np.zeros(len(self.tree)))
        #: by job number: its tier, and what does not change of its priority
        self.standing: tuple[I64, F64] = np.zeros(0, np.int64), np.zeros(0)
        #: by job number: the node that its GPU time is charged to (-1: not seen yet), what a second of each of its GPUs is
        #: charged, and when it was submitted
        self.owner: I64 = np.zeros(0, np.int64)
        self.rate, self.since_s = np.zeros(0), np.zeros(0)
        #: jobs of the last decision and their GPUs, asked for
        self.last: dict[int, int] = {}

    def keys(self, view: View) -> F64:
        """The place of each job in the order."""
        self._learn(view)
        self._charge(view)
        order, jobs = self.order, view.job
        age = np.minimum((view.unchanged_s + view.waited_s) / order.max_age_s, 1.0)  # since it came
        priority = self.standing[1][jobs] + order.weights.age * age
        if order.weights.fairshare:
            gpu_s, tree = self.usage.gpu_s, self.tree
            fair = tree.fair_tree(gpu_s) if order.fairshare == "tree" else tree.classic(gpu_s, order.damping)
            priority += order.weights.fairshare * fair[self.owner[jobs]]
        priority = np.floor(np.round(priority, 6))
        ranked = np.lexsort((self.since_s[jobs], -priority, -self.standing[0][jobs]))
        keys = np.empty(len(jobs))
        keys[ranked] = np.arange(len(jobs))
        return keys

    def _learn(self, view: View) -> None:
        """Remember what does not change of jobs that were not there before."""
        if int(view.job.max(initial=-1)) >= len(self.owner):
            self.standing = view.standing(self.order)
            more = len(self.standing[0]) - len(self.owner)
            self.owner = np.append(self.owner, np.full(more, -1))
            self.rate, self.since_s = (np.append(each, np.zeros(more)) for each in (self.rate, self.since_s))
        if not len(new := np.flatnonzero(self.owner[view.job] < 0)):
            return
        jobs = view.job[new]
        labels = JobLabels.of(len(jobs)) if view.labels is None else view.labels.take(jobs)
        self.owner[jobs] = [
            self.tree.user(account, view.users[job])
            for account, job in zip(labels.account, jobs.tolist(), strict=True)
        ]
        self.rate[jobs] = self.order.charges(view.gpus[new], labels)
        self.since_s[jobs] = view.now_s - view.unchanged_s[new] - labels.eligible_after_s
        self.usage.gpu_s = np.append(self.usage.gpu_s, np.zeros(len(self.tree) - len(self.usage.gpu_s)))

    def _charge(self, view: View) -> None:
        """Charge the time since the last decision to those who had GPUs in it: jobs that run, and jobs that are gone."""
        there = dict(zip(view.job.tolist(), view.gpus.tolist(), strict=True))
        gpus = np.zeros(len(self.tree))
        running = np.flatnonzero(view.held > 0)
        np.add.at(gpus, self.owner[view.job[running]], view.held[running] * self.rate[view.job[running]])
        for job, asked in self.last.items():
            if job not in there:
                gpus[self.owner[job]] += asked * self.rate[job]
        self.usage.charge(view.now_s, gpus)
        self.last = there
