"""Ordinary GPU sites, drawn from a seed: machines, partitions, users with habits, a month of jobs, and what goes wrong.

A site is a `World` of the reference scheduler, the clock that hangs on its wall, and the part of it that an export shows.
"""

from __future__ import annotations

import math
import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from zoneinfo import ZoneInfo

from .scheduler import (
    ROOT,
    Account,
    Attempt,
    Failure,
    Job,
    Limit,
    Maintenance,
    Node,
    Partition,
    Priorities,
    Rules,
    World,
    run,
)

HOUR_S, DAY_S = 3600, 86_400
#: types of GPUs, and how many a node has
_KINDS = (("v100", 4), ("a100", 8), ("h100", 8), ("l40s", 4), ("a40", 8), ("rtx6000", 4))
#: a node without them
_OTHER = Node("cpu01", 0, "", 64)
_ZONES = ("UTC", "Europe/Berlin", "America/New_York", "Asia/Tokyo")
_ACCOUNTS = ("vision", "nlp", "physics", "bio", "robots")
_PEOPLE = (
    "ann",
    "bob",
    "cho",
    "dee",
    "eli",
    "fay",
    "gus",
    "hal",
    "ida",
    "jon",
    "kim",
    "lea",
    "max",
    "nia",
    "oli",
    "pam",
)


@dataclass(frozen=True, slots=True)
class Limits:
    """What the site's files say of limits: GPUs or jobs by QOS and column, and by account and column."""

    qos: Mapping[str, Mapping[str, int]] = field(default_factory=dict)
    accounts: Mapping[str, Mapping[str, int]] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Site:
    """A drawn site.

    Parameters
    ----------
    seed : it is drawn from.
    zone, origin_s : the zone of its clock, and second 0 of the world in seconds since 1970.
    world, limits : what happens there, and its limits as its files say them.
    from_s, as_of_s : the export has what was there from one instant to the other, at which it is made.
    """

    seed: int
    zone: str
    origin_s: int
    world: World
    limits: Limits
    from_s: int
    as_of_s: int

    def attempts(self, rules: Rules | None = None) -> list[Attempt]:
        """What the reference scheduler does."""
        return run(self.world, rules)

    def scored(self, attempts: Sequence[Attempt]) -> dict[str, Attempt]:
        """First attempts of jobs that came when all running jobs were known and had ended when the export was made."""
        first: dict[str, Attempt] = {}
        for one in attempts:
            first.setdefault(one.job.id, one)
        return {
            name: one
            for name, one in first.items()
            if one.start_s is not None
            and one.end_s is not None
            and one.submit_s >= self.from_s
            and one.end_s <= self.as_of_s
        }


@dataclass(frozen=True, slots=True)
class _User:
    """A user's habits.

    Parameters
    ----------
    name, account, pool : who, and where most of the work goes.
    weight : how much this user submits, against others.
    sizes : of jobs, in GPUs.
    median_s, spread : of the time that jobs run, log-normal.
    asks : how the requested time is chosen.
    arrays, types : how often a job is an array, and names its type of GPU.
    """

    name: str
    account: str
    pool: int
    weight: float
    sizes: tuple[int, ...]
    median_s: float
    spread: float
    asks: str
    arrays: float
    types: float


def draw(seed: int, jobs: int = 900, days: int = 30, *, hides: bool = False) -> Site:
    """A site of about so many jobs in so many days; the same for the same arguments on any machine.

    hides: whether its files leave out what real ones do: limits of arrays, further partitions of a job, the first days.
    """
    rng = random.Random(f"site {seed} {jobs} {days}")
    zone = rng.choice(_ZONES)
    monday = datetime(2025, rng.choice([1, 3, 6, 10]), 1, tzinfo=ZoneInfo(zone))
    monday = monday.replace(day=1 + (7 - monday.weekday()) % 7)
    span_s = days * DAY_S
    pools = rng.sample(_KINDS, rng.randint(2, 3))
    nodes: list[Node] = []
    of_pool: list[tuple[str, ...]] = []
    for kind, gpus in pools:
        names = [f"{kind}-{at:02d}" for at in range(1, rng.randint(3, 5) + 1)]
        nodes += [Node(name, gpus, kind, 16 * gpus) for name in names]
        of_pool.append(tuple(names))
    partitions = _partitions(rng, [kind for kind, _ in pools], of_pool)
    accounts, users = _people(rng, len(pools))
    world = World(tuple(nodes), partitions, ())
    asked = _jobs(rng, world, [kind for kind, _ in pools], of_pool, users, jobs, span_s, hides)
    limits, rules = _limits(rng, world, accounts)
    start_s = (int(span_s * 0.6) // DAY_S) * DAY_S + 8 * HOUR_S
    whole = of_pool if rng.random() < 0.5 else [rng.choice(of_pool)]
    # a day without any node is most of the waiting of a week
    away = tuple(name for names in whole for name in (names if days >= 14 else names[:2]))
    maintenance = (Maintenance("maint_day", away, start_s, start_s + 10 * HOUR_S, start_s - 14 * DAY_S),)
    failures = []
    for node in nodes:
        if rng.random() < 0.25 * days / 30:
            at_s = rng.randrange(span_s)
            failures.append(Failure(node.name, at_s, at_s + rng.randint(2, 40) * HOUR_S))
    weights = Priorities(
        age=1000, fairshare=rng.choice([0, 2000, 5000]), job_size=rng.choice([0, 500]),
        partition=rng.choice([0, 1000]), qos=1000, max_age_s=7 * DAY_S, half_life_s=rng.choice([7, 14]) * DAY_S,
        of_qos={"high": 100, "normal": 10}, accounts=accounts,
    )  # fmt: skip
    world = World(tuple(nodes), partitions, asked, rules, maintenance, tuple(failures), weights, (_OTHER,))
    return Site(seed, zone, int(monday.timestamp()), world, limits, 2 * DAY_S if hides else 0, span_s)


def _partitions(
    rng: random.Random, kinds: Sequence[str], of_pool: Sequence[tuple[str, ...]]
) -> tuple[Partition, ...]:
    """One partition for each pool, or one for the first two; a short one of a higher tier and a long one beside them."""
    day = 24 * HOUR_S
    made = []
    if rng.random() < 0.5:
        made.append(Partition("gpu", of_pool[0] + of_pool[1], 1, 10, 3 * day, default=True))
        rest = list(range(2, len(kinds)))
    else:
        made.append(Partition(kinds[0], of_pool[0], 1, 10, 3 * day, default=True))
        rest = list(range(1, len(kinds)))
    made += [
        Partition(kinds[at], of_pool[at], 1, rng.choice([5, 10]), rng.choice([2, 3]) * day) for at in rest
    ]
    some = tuple(names[0] for names in of_pool)
    made.append(Partition("short", some, 2, 20, 4 * HOUR_S, qos="p_short"))
    if rng.random() < 0.6:
        made.append(Partition("long", of_pool[-1][1:], 1, 1, 7 * day))
    return tuple(made)


def _people(rng: random.Random, pools: int) -> tuple[dict[str, Account], list[_User]]:
    names = list(_ACCOUNTS[: rng.randint(3, 5)])
    people = list(_PEOPLE[: rng.randint(8, 16)])
    members: dict[str, dict[str, int]] = {name: {} for name in names}
    members[f"{names[0]}-lab"] = {}
    users = []
    for name in people:
        account = rng.choice(list(members))
        members[account][name] = rng.choice([1, 1, 1, 5])
        users.append(
            _User(
                name, account, rng.randrange(pools), min(rng.paretovariate(1.3), 4.0),
                rng.choice([(1,), (1, 1, 2), (1, 2, 4), (4, 8), (8, 16), (2, 4, 4)]),
                rng.choice([0.5, 2, 6, 12]) * HOUR_S, rng.choice([0.6, 1.0, 1.4]),
                rng.choice(["most", "rounded", "rounded", "tight", "none"]), rng.choice([0, 0, 0.15, 0.4]),
                rng.choice([0.0, 0.5, 1.0]),
            )
        )  # fmt: skip
    accounts = {
        name: Account(rng.choice([10, 20, 30, 50]), names[0] if name.endswith("-lab") else "", users_of)
        for name, users_of in members.items()
    }
    accounts[ROOT] = Account(1, "", {"root": 1})
    return accounts, users


def _limits(
    rng: random.Random, world: World, accounts: Mapping[str, Account]
) -> tuple[Limits, tuple[Limit, ...]]:
    """Some of the limits that sites have, as their files say them and as the scheduler knows them."""
    total = sum(node.gpus for node in world.nodes)
    qos: dict[str, dict[str, int]] = {"normal": {}, "high": {}, "p_short": {}}
    of_accounts: dict[str, dict[str, int]] = {}
    rules = []
    if rng.random() < 0.7:
        gpus = max(16, total // rng.choice([2, 3]))
        qos["normal"]["MaxTRESPU"] = gpus
        rules.append(
            Limit("QOS normal: MaxTRESPU", "gpus of user", 2, {"qos": frozenset(["normal"])}, ("user",), gpus)
        )
    if rng.random() < 0.7:
        most = rng.randint(2, 4)
        qos["high"]["MaxJobsPU"] = most
        rules.append(
            Limit(
                "QOS high: MaxJobsPU", "jobs of user", 2, {"qos": frozenset(["high"])}, ("user",), jobs=most
            )
        )
    if rng.random() < 0.5:
        qos["p_short"]["MaxTRESPU"] = 8
        rules.append(
            Limit(
                "QOS p_short: MaxTRESPU", "gpus of user", 1, {"partition": frozenset(["short"])}, ("user",), 8
            )
        )
    if rng.random() < 0.6:
        account, gpus = (
            rng.choice([name for name in accounts if name != ROOT]),
            max(16, total // rng.choice([2, 3])),
        )
        below = {account} | {name for name, one in accounts.items() if one.parent == account}
        of_accounts[account] = {"GrpTRES": gpus}
        rules.append(
            Limit(f"account {account}: GrpTRES", "gpus of all", 4, {"account": frozenset(below)}, gpus=gpus)
        )
    return Limits(qos, of_accounts), tuple(rules)


def _submitted_s(rng: random.Random, span_s: int) -> int:
    """An instant by the rhythm of days and weeks, by rejection."""
    while True:
        at_s = rng.randrange(span_s)
        hour, weekday = at_s % DAY_S // HOUR_S, at_s // DAY_S % 7
        weight = 1.0 if 9 <= hour < 19 else 0.5 if 19 <= hour < 24 else 0.15
        if rng.random() < weight * (0.35 if weekday >= 5 else 1.0):
            return at_s


def _jobs(
    rng: random.Random,
    world: World,
    kinds: Sequence[str],
    of_pool: Sequence[tuple[str, ...]],
    users: Sequence[_User],
    count: int,
    span_s: int,
    hides: bool,
) -> tuple[Job, ...]:
    """The jobs, so many hours long that each pool is in use for most of the time."""
    size = {node.name: node.gpus for node in world.nodes}
    drafts: list[tuple[_User, int, int, float, int]] = []  # user, pool, GPUs, time, when
    while len(drafts) < count:
        user = rng.choices(users, [each.weight for each in users])[0]
        pool = user.pool if rng.random() < 0.75 else rng.randrange(len(kinds))
        most = size[of_pool[pool][0]] * (len(of_pool[pool]) // 2)
        gpus = min(rng.choice(user.sizes), most)
        tasks = rng.randint(3, 12) if gpus <= 4 and rng.random() < user.arrays else 1
        at_s = _submitted_s(rng, span_s)
        run_s = [user.median_s * rng.lognormvariate(0, user.spread) for _ in range(tasks)]
        drafts += [(user, pool, gpus, each_s, at_s) for each_s in run_s]
    wanted = [rng.uniform(0.6, 0.9) for _ in kinds]
    factor = []
    for pool, names in enumerate(of_pool):
        work = sum(gpus * min(each_s, 2 * DAY_S) for _, at, gpus, each_s, _ in drafts if at == pool)
        factor.append(wanted[pool] * span_s * sum(size[name] for name in names) / max(work, 1.0))
    jobs: list[Job] = []
    number, at = 40_000 + rng.randrange(10_000), 0
    drafts.sort(key=lambda draft: draft[4])
    while at < len(drafts):
        user, pool, gpus, _, submit_s = drafts[at]
        same = [one for one in drafts[at:] if one[:3] == drafts[at][:3] and one[4] == submit_s]
        at += len(same)
        lengths = [max(60, int(min(each_s * factor[pool], 2 * DAY_S))) for _, _, _, each_s, _ in same]
        number += rng.randint(1, 30)
        jobs += _submission(
            rng, world, kinds[pool], of_pool[pool], user, gpus, lengths, submit_s, number, jobs, hides
        )
    return tuple(jobs)


def _submission(
    rng: random.Random,
    world: World,
    kind: str,
    pool: Sequence[str],
    user: _User,
    gpus: int,
    lengths: Sequence[int],
    submit_s: int,
    number: int,
    before: Sequence[Job],
    hides: bool,
) -> list[Job]:
    """What one sbatch makes: a job or the tasks of an array."""
    longest_s = max(lengths)
    offers = [
        one
        for one in world.partitions
        if set(one.nodes) & set(pool)
        and one.max_s >= longest_s
        and (one.name != "short" or longest_s < 2 * HOUR_S)
    ]
    weights = [{"short": 0.5, "long": 3.0 if longest_s > DAY_S else 0.1}.get(one.name, 1.0) for one in offers]
    partition = rng.choices(offers, weights)[0]
    mine = [node for node in world.nodes if node.name in partition.nodes]
    alike = [node for node in mine if node.gpu_type == kind]
    gpus = min(gpus, alike[0].gpus * len(alike))
    nodes = -(-gpus // alike[0].gpus)
    gpus = nodes * (gpus // nodes)
    partitions: tuple[str, ...] = (partition.name,)
    may_both = longest_s < 2 * HOUR_S and nodes == 1 and alike[0].name in _of(world, "short")
    if partition.name != "short" and may_both and rng.random() < 0.1 and hides:
        partitions = (partition.name, "short")
    most_s = min(one.max_s for one in world.partitions if one.name in partitions)
    request_s = {
        "most": most_s,
        "none": most_s,
        "rounded": -(-int(longest_s * rng.uniform(1.1, 4)) // HOUR_S) * HOUR_S,
        "tight": -(-int(longest_s * rng.uniform(0.95, 1.3)) // 600) * 600,
    }[user.asks]
    several = len({node.gpu_type for node in mine}) > 1
    typed = several and (rng.random() < user.types or any(node.gpus * nodes < gpus for node in mine))
    exclusive = rng.random() < 0.04
    job = Job(
        str(number), user.name, user.account, "high" if rng.random() < 0.1 else "normal", partitions, gpus, submit_s,
        lengths[0], max(600, min(request_s, most_s)), nodes, kind if typed or (several and exclusive) else "", exclusive,
        cpus=gpus * rng.choice([4, 8, 16]),
    )  # fmt: skip
    if len(lengths) > 1:
        limit = rng.randint(2, 4) if rng.random() < 0.3 and hides else 0
        return [
            replace(job, id=f"{number}_{at}", run_s=run_s, array=str(number), array_limit=limit)
            for at, run_s in enumerate(lengths)
        ]
    draw = rng.random()
    if draw < 0.03:
        job = replace(job, begin_s=submit_s + rng.randint(1, 24) * HOUR_S)
    elif draw < 0.06 and (
        mine_before := [one for one in before[-40:] if one.user == user.name and not one.array]
    ):
        job = replace(job, after=(mine_before[-1].id,))
    elif draw < 0.08:
        job = replace(job, held=(submit_s, submit_s + int(HOUR_S * math.exp(rng.uniform(0, 3)))))
    elif draw < 0.12:
        job = replace(job, cancel_s=submit_s + int(600 * math.exp(rng.uniform(0, 4))))
    return [job]


def _of(world: World, partition: str) -> tuple[str, ...]:
    return next(one.nodes for one in world.partitions if one.name == partition)
