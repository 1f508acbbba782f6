"""The order of a queue from the priorities that a log records: Slurm's factors, with the weights and shares that show.

A priority is recorded as it was when its job started. Two starts of one user soon after each other have the same fair share,
mostly: their differences show the weights of all other factors. What those leave are the ranks of users, and the shares are
those that give the users these ranks with what they had used.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from itertools import permutations
from typing import Any, Final

import msgspec
import numpy as np

from forerun.cluster.policies.orders.multifactor import ROOT, Account, Multifactor, Partition, Weights
from forerun.site.history import F64, I64, History, Names
from forerun.site.kernels.ranks import ranks_of
from forerun.site.machine import Finding

_DAY_S: Final = 86_400.0
#: starts whose priorities are recorded, at least
_FEW: Final = 100
#: ages from which on priorities do not grow any more, and half-lives of usage, that are tried
_MAX_AGES_S: Final = tuple(_DAY_S * days for days in (7, 1, 2, 3, 5, 10, 14, 21, 28))
_HALF_LIVES_S: Final = tuple(_DAY_S * days for days in (7, 14, 1, 2, 3, 5, 10, 30))
#: priorities are whole numbers: those that a sum explains are so close to it
_CLOSE: Final = 2.0
#: share of the starts that has to be explained
_EXPLAINED: Final = 0.8
#: how fine weights of names are
_FINE: Final = 10
#: nodes or CPUs of which a job's part is nothing
_MANY: Final = 10**9
#: starts that say the shares at most, and of which every so many rank trees before some are fitted to all
_STARTS: Final = 1000
_EVERY: Final = 5
#: by what shares are multiplied in the search for them, and how often all are gone through
_STEPS: Final = (4.0, 0.25, 2.0, 0.5, 1.25, 0.8)
_ROUNDS: Final = 4
#: how often other trees of accounts and half-lives are looked for, and how many of them are fitted whole; another one has to
#: be so much nearer
_PASSES: Final = 3
_TRIED: Final = 4
_LESS: Final = 0.85
#: ranks are explained if they are so near on average
_NEAR: Final = 0.001


@dataclass(frozen=True, slots=True)
class _Sum:
    """What of priorities does not depend on usage.

    Parameters
    ----------
    columns : float64[starts, factors]: age up to the most that counts, nodes, CPUs, then one for each partition and QOS.
    by : what a unit of each adds.
    """

    columns: F64
    by: F64

    def left(self, priority: F64) -> F64:
        """What it leaves of priorities."""
        rest: F64 = priority - self.columns @ self.by
        return rest


def recorded_order(known: History, nodes: int) -> tuple[Multifactor, Finding] | None:
    """The order that the recorded priorities show; None: the log has none, or Slurm's factors do not explain them.

    Parameters
    ----------
    known : what may be looked at.
    nodes : of the machine.
    """
    priority = known.more.get("priority")
    if priority is None:
        return None
    rows = np.flatnonzero(
        known.started & (np.nan_to_num(priority) > 0) & ~(known.start_s < known.complete_from_s)
    )
    if len(rows) < _FEW:
        return None
    jobs = known.of(rows[np.argsort(known.start_s[rows], kind="stable")])
    priority = jobs.more["priority"]
    user = _numbered(jobs.account, jobs.user)
    sums = [_sum_of(jobs, priority, user, max_age_s) for max_age_s in _MAX_AGES_S]
    close = [share for _, share in sums]
    best = int(np.argmax(np.array(close) > max(close) - 0.005))
    found, max_age_s = sums[best][0], _MAX_AGES_S[best]
    rest = found.left(priority)
    step, base = _lattice(rest)
    ranks = np.rint((rest - base) / step) if step else np.zeros(len(rest))
    found = _fitted(found.columns, priority - step * ranks, np.ones(len(rest)))
    rest = found.left(priority - step * ranks)
    explained = float(np.mean(np.abs(rest - np.median(rest)) <= _CLOSE))
    if explained < _EXPLAINED:
        return None
    ranks -= ranks.min()
    half_life_s, accounts, users = 7 * _DAY_S, dict[str, Account](), 0
    if step:
        half_life_s, accounts, users, near = _shares(known, jobs, ranks)
    order = _order_of(found.by, jobs, nodes, max_age_s)
    order = msgspec.structs.replace(
        order,
        weights=msgspec.structs.replace(order.weights, fairshare=step * users),
        half_life_s=half_life_s,
        accounts=accounts,
    )
    weights = ", ".join(
        f"{name} {value:.0f}"
        for name in ("age", "fairshare", "job_size", "partition", "qos")
        if (value := getattr(order.weights, name)) > 0
    )
    return order, Finding(
        about="order",
        what=f"Slurm's priorities with the weights {weights}",
        evidence=f"they explain {100 * explained:.0f} % of {len(jobs)} recorded priorities"
        + (f"; shares put users {near:.1f} ranks from where they were, on average" if step else ""),
    )


def _numbered(*columns: Names) -> I64:
    """int64[jobs], the number of each combination of names."""
    codes = np.stack([one.codes for one in columns])
    return np.unique(codes, axis=1, return_inverse=True)[1].reshape(-1).astype(np.int64)


def _one_hot(names: Names) -> F64:
    hot: F64 = (names.codes[:, None] == np.arange(len(names.names))).astype(np.float64)
    return hot


def _sum_of(jobs: History, priority: F64, user: I64, max_age_s: float) -> tuple[_Sum, float]:
    """The sum by the differences of successive starts of a user, and the share of those that it explains."""
    age = np.minimum((jobs.start_s - jobs.eligible_s) / max_age_s, 1.0)
    cpus = np.nan_to_num(jobs.more.get("cpus", np.zeros(len(jobs))))
    nodes = np.maximum(jobs.nodes, 1).astype(np.float64)
    columns = np.column_stack([age, nodes, cpus, _one_hot(jobs.partition), _one_hot(jobs.qos)])
    order = np.lexsort((jobs.start_s, user))
    same = np.diff(user[order]) == 0
    dx, dy = np.diff(columns[order], axis=0)[same], np.diff(priority[order])[same]
    if not same.any():
        return _Sum(columns, np.zeros(columns.shape[1])), 0.0
    apart_s = np.diff(jobs.start_s[order])[same]
    near = apart_s <= np.quantile(apart_s, 0.75)
    dx, dy = dx[near], dy[near]
    weight = np.ones(len(dy))
    for _ in range(30):  # least absolute differences, which a few jumps of ranks do not move
        found = _fitted(dx, dy, weight)
        weight = 1.0 / np.maximum(np.abs(found.left(dy)), 0.5)
    found = _fitted(dx, dy, (np.abs(found.left(dy)) <= _CLOSE).astype(np.float64))
    return _Sum(columns, found.by), float(np.mean(np.abs(found.left(dy)) <= _CLOSE))


def _fitted(columns: F64, values: F64, weight: F64) -> _Sum:
    """Least squares; of columns that say the same the smallest solution."""
    scale = np.maximum(np.abs(columns).max(axis=0), 1e-9)
    root = np.sqrt(weight)[:, None]
    by = np.linalg.lstsq(columns / scale * root, values * root[:, 0], rcond=1e-9)[0]
    return _Sum(columns, by / scale)


def _lattice(rest: F64) -> tuple[float, float]:
    """The step of numbers that lie at multiples of it from a base, and the base; a step of 0: they are all equal."""
    spread = float(np.quantile(rest, 0.98) - np.quantile(rest, 0.02))
    if spread <= 4 * _CLOSE:
        return 0.0, 0.0
    steps = np.geomspace(10 * _CLOSE, 1.2 * spread, 6000)
    some = rest[:: max(len(rest) // 400, 1)]
    turns = np.exp(2j * math.pi * some / steps[:, None]).mean(axis=1)
    together = np.abs(turns)
    at = int(np.flatnonzero(together >= 0.9 * together.max())[-1])
    while at and together[at - 1] > together[at]:
        at -= 1
    return float(steps[at]), float(np.angle(turns[at]) / (2 * math.pi) * steps[at])


def _order_of(by: F64, jobs: History, nodes: int, max_age_s: float) -> Multifactor:
    """The order with what a unit of each column adds; see `_Sum`."""
    most = (1.0, float(jobs.nodes.max()), float(np.nanmax(jobs.more.get("cpus", np.zeros(1)), initial=0.0)))
    age, node, cpu = (
        value if value * top > 1.0 else 0.0 for value, top in zip(by[:3].tolist(), most, strict=True)
    )
    first = 3 + len(jobs.partition.names)
    ranks = [_ranked(part, names) for part, names in ((by[3:first], jobs.partition), (by[first:], jobs.qos))]
    size, many_nodes, many_cpus = 0.0, nodes, 0
    if node > 0:
        size = 2 * nodes * node
        many_cpus = round(min(size / max(2 * cpu, 1e-12), _MANY))
    elif cpu > 0:
        many_nodes, many_cpus = _MANY, 100_000
        size = 2 * many_cpus * cpu
    return Multifactor(
        weights=Weights(
            age=age,
            job_size=size,
            partition=max(ranks[0], default=0) / _FINE,
            qos=max(ranks[1], default=0) / _FINE,
        ),
        max_age_s=max_age_s,
        nodes=many_nodes,
        cpus=many_cpus,
        partitions={
            name: Partition(priority=rank) for name, rank in zip(jobs.partition.names, ranks[0], strict=True)
        },
        qos=dict(zip(jobs.qos.names, ranks[1], strict=True)),
    )


def _ranked(by: F64, names: Names) -> list[int]:
    """What names add beyond the least, as whole numbers, `_FINE` for one; names that no start has are in the middle."""
    seen = np.isin(np.arange(len(names.names)), names.codes)
    if not seen.any():
        return [0] * len(by)
    beyond = np.where(seen, by, np.median(by[seen])) - by[seen].min()
    ranks: list[int] = np.rint(_FINE * beyond).astype(int).tolist()
    return ranks


@dataclass(slots=True)
class _Tree:
    """Accounts and users as nodes: the root, accounts, users.

    Parameters
    ----------
    parent, raw : of each node: what it belongs to, and its shares.
    accounts : how many nodes are accounts, with the root.
    """

    parent: I64
    raw: F64
    accounts: int

    def ranks(self, used: F64, node: I64) -> F64:
        """float64[instants]: the rank of a user at each of some instants, from 1, by what each node had used by then."""
        siblings = np.bincount(self.parent[1:], self.raw[1:], len(self.parent))
        share = np.append(1.0, self.raw[1:] / siblings[self.parent[1:]])
        is_user = np.arange(len(self.parent)) >= self.accounts
        ranks = np.empty(len(used))
        ranks_of(self.parent, share, is_user, used, node, ranks)
        return ranks


def _shares(known: History, jobs: History, ranks: F64) -> tuple[float, dict[str, Account], int, float]:
    """Half-life, accounts and number of users that give users the ranks that they had, and how far that is on average."""
    pairs = np.unique(np.stack([known.account.codes, known.user.codes]), axis=1)
    number = {pair: at for at, pair in enumerate(zip(*pairs.tolist(), strict=True))}

    def owner_of(log: History) -> I64:
        whose = zip(log.account.codes.tolist(), log.user.codes.tolist(), strict=True)
        return np.array([number[pair] for pair in whose], np.int64)

    some = np.unique(np.linspace(0, len(jobs) - 1, _STARTS).astype(np.int64))
    at_s, who, seen = jobs.start_s[some], owner_of(jobs)[some], ranks[some]
    codes = np.unique(pairs[0])
    account = np.searchsorted(codes, pairs[0]) + 1
    flat = _Tree(
        np.concatenate([np.zeros(len(codes) + 1, np.int64), account]),
        np.ones(1 + len(codes) + len(account)),
        1 + len(codes),
    )
    ran = known.of(known.started)
    owner, rate = owner_of(ran), ran.gpus.astype(np.float64)
    billing = ran.more.get("billing")
    if billing is not None and np.isfinite(billing).any():
        known_rate = np.isfinite(billing)
        rate = np.where(known_rate, billing, rate * billing[known_rate].sum() / rate[known_rate].sum())

    def used(half_life_s: float) -> F64:
        decay = math.log(2.0) / half_life_s
        from_s = at_s[:, None] - np.minimum(ran.start_s, at_s[:, None])
        to_s = at_s[:, None] - np.minimum(np.where(np.isnan(ran.end_s), np.inf, ran.end_s), at_s[:, None])
        spent = (np.exp(-decay * to_s) - np.exp(-decay * from_s)) / decay * rate
        of = np.zeros((len(owner), len(flat.parent)))
        of[np.arange(len(owner)), flat.accounts + owner] = 1.0
        of_nodes: F64 = spent @ of
        return of_nodes

    def off(tree: _Tree, spent: F64, every: int) -> float:
        differs = tree.ranks(spent, tree.accounts + who[::every]) - seen[::every]
        return float(np.abs(differs - np.rint(np.median(differs))).mean())

    def fitted(
        parent: I64, half_life_s: float, rounds: int = _ROUNDS, every: int = 1
    ) -> tuple[float, float, _Tree]:
        """From equal shares: how far ranks are from those that were, the half-life, and the tree.

        every: which starts count (default 1: all do).
        """
        tree = replace(flat, parent=parent, raw=np.ones(len(parent)))
        spent = np.ascontiguousarray(used(half_life_s)[::every])
        best = off(tree, spent, every)
        for _ in range(rounds):
            before = best
            for node in range(1, len(parent)) if best > _NEAR else ():
                for by in _STEPS:
                    old = tree.raw[node]
                    tree.raw[node] = old * by
                    if (now := off(tree, spent, every)) < best - 1e-9:
                        best = now
                    else:
                        tree.raw[node] = old
            if best > 0.98 * before:
                break
        return best, half_life_s, tree

    found = fitted(flat.parent, _HALF_LIVES_S[0])
    for _ in range(_PASSES):
        best, half_life_s, tree = found
        options = [(tree.parent, other_s) for other_s in _HALF_LIVES_S if other_s != half_life_s]
        for child, above in permutations(range(1, tree.accounts), 2):
            inner = (tree.parent[1 : tree.accounts] == child).any()
            if not (inner or tree.parent[child] or tree.parent[above]):
                moved = tree.parent.copy()
                moved[child] = above
                options.append((moved, half_life_s))
        tried = [fitted(*one, rounds=1, every=_EVERY)[0] for one in options if best > _NEAR]
        others = [fitted(*options[at]) for at in np.argsort(tried)[:_TRIED].tolist()]
        nearest = min(others, key=lambda one: one[0], default=found)
        if nearest[0] >= _LESS * best:
            break
        found = nearest
    best, half_life_s, tree = found
    names = ["", *(known.account.names[code] if code >= 0 else "" for code in codes.tolist())]
    users = ["" if code < 0 else known.user.names[code] for code in pairs[1].tolist()]
    accounts = {}
    for node in range(1, tree.accounts):
        mine = np.flatnonzero(account == node).tolist()
        shares: Any = {users[at]: float(tree.raw[tree.accounts + at]) for at in mine}
        parent = names[tree.parent[node]] or ROOT
        accounts[names[node] or ROOT] = (
            Account(shares=float(tree.raw[node]), parent=parent, users=shares)
            if names[node]
            else Account(users=shares)
        )
    return half_life_s, accounts, len(users), best
