"""The slow reference scheduler is right by itself: exact accounts, laws on drawn worlds, each cause alone, shares."""

from __future__ import annotations

import random
from dataclasses import replace

import numpy as np
import pytest

from forerun.cluster.policies.orders import multifactor

from ...conftest import cases
from .scheduler import (
    CAUSES,
    Account,
    Attempt,
    Failure,
    Job,
    Limit,
    Maintenance,
    Node,
    Partition,
    Priorities,
    Reference,
    Rules,
    World,
    fair_tree,
    run,
)


def hostile(seed: int, *, plain: bool = False) -> tuple[World, Rules]:
    """A small world in which everything happens at once; plain: of which EASY's promise holds."""
    rng = random.Random(f"hostile {seed}")
    nodes = tuple(
        Node(f"n{at}", rng.choice([2, 4, 4]), "a" if plain else rng.choice("ab"), 32)
        for at in range(rng.randint(2, 5))
    )
    names = [node.name for node in nodes]
    partitions = [Partition("all", tuple(names), priority=rng.randint(0, 3))]
    for name in "xy"[: 0 if plain else rng.randint(0, 2)]:
        mine = tuple(one for one in names if rng.random() < 0.6) or (names[0],)
        partitions.append(Partition(name, mine, tier=rng.randint(1, 2), priority=rng.randint(0, 3)))
    jobs: list[Job] = []
    for at in range(rng.randint(5, 30)):
        asked = [one for one in partitions if rng.random() < 0.6] or [partitions[0]]
        pool = [node for node in nodes if node.name in asked[0].nodes]
        one = rng.choice(pool)
        typed = rng.random() < 0.4
        alike = [node for node in pool if not typed or node.gpu_type == one.gpu_type]
        count = rng.randint(0 if plain else 1, max(1, min(2, sum(node.gpus >= one.gpus for node in alike))))
        gpus = max(count, 1) * rng.randint(1, one.gpus)
        submit_s, run_s = rng.randint(0, 400), rng.randint(1, 300)
        job = Job(
            f"{at + 1}", rng.choice("uvw"), rng.choice(["A", "B"]), rng.choice(["normal", "high"]),
            tuple(part.name for part in asked), gpus, submit_s, run_s,
            max(1, int(run_s * rng.choice([0.7, 1, 1.5, 4]))), nodes=count,
            gpu_type=one.gpu_type if typed else "",
            exclusive=count > 0 and rng.random() < 0.15,
        )  # fmt: skip
        if not plain:
            draw = rng.random()
            if draw < 0.1:
                job = replace(job, begin_s=submit_s + rng.randint(1, 200))
            elif draw < 0.2 and jobs:
                job = replace(job, after=(rng.choice(jobs).id,))
            elif draw < 0.3:
                job = replace(job, held=(submit_s, submit_s + rng.randint(1, 300)))
            elif draw < 0.4:
                job = replace(job, array="7", array_limit=rng.randint(1, 2))
            elif draw < 0.5:
                job = replace(job, cancel_s=submit_s + rng.randint(0, 100))
        jobs.append(job)
    accounts = {
        "A": Account(3, "", {"u": 1, "v": 2, "w": 1}),
        "B": Account(1, "", {"u": 1, "v": 1, "w": 1}),
    }
    limits = [
        Limit("QOS high: MaxTRESPU", "gpus of user", 2, {"qos": frozenset(["high"])}, ("user",), gpus=8),
        Limit("account A: GrpJobs", "jobs", 3, {"account": frozenset("A")}, jobs=2),
        Limit("QOS normal: GrpTRES", "gpus", 2, {"qos": frozenset(["normal"])}, gpus=10),
    ]
    from_s = rng.randint(0, 600)
    maintenance = Maintenance(
        "day",
        tuple(one for one in names if rng.random() < 0.7),
        from_s,
        from_s + 200,
        max(0, from_s - rng.randint(0, 300)),
    )
    failures = tuple(
        Failure(rng.choice(names), at_s, at_s + rng.randint(1, 200))
        for at_s in (rng.randint(0, 800) for _ in range(rng.randint(0, 3)))
    )
    weights = Priorities(
        age=rng.choice([0, 1000]), fairshare=rng.choice([0, 1000]), job_size=rng.choice([0, 500]),
        partition=rng.choice([0, 300]), qos=rng.choice([0, 300]), max_age_s=500, half_life_s=rng.choice([0, 300]),
        of_qos={"high": 10, "normal": 1}, accounts=accounts,
    )  # fmt: skip
    rules = Rules(
        backfills=rng.random() < 0.85,
        promises=rng.choice([1, 1, 3]),
        plan_every_s=rng.choice([0, 0, 40]),
        node_order=rng.choice(["listed", "fullest"]),
        requeue_delay_s=rng.choice([0, 20]),
    )
    if plain:
        return World(nodes, tuple(partitions), tuple(jobs)), replace(
            rules, backfills=True, promises=1, plan_every_s=0
        )
    usable = tuple(job for job in jobs if job.gpus <= 8)
    known = {job.id for job in usable}
    usable = tuple(replace(job, after=tuple(one for one in job.after if one in known)) for job in usable)
    some = tuple(one for one in limits if rng.random() < 0.5)
    return World(nodes, tuple(partitions), usable, some, (maintenance,), failures, weights), rules


def overlapping(attempts: list[Attempt], at_s: int) -> list[Attempt]:
    """Those that run at an instant."""
    return [
        one
        for one in attempts
        if one.start_s is not None and one.end_s is not None and one.start_s <= at_s < one.end_s
    ]


@pytest.mark.parametrize("seed", range(cases(30)))
def test_laws_of_drawn_worlds(seed: int) -> None:
    world, rules = hostile(seed)
    attempts = run(world, rules)
    for one in attempts:
        until_s = one.end_s if one.start_s is None else one.start_s
        assert until_s is not None, f"job {one.job.id} never left the queue"
        assert sum(one.waited.values()) == until_s - one.submit_s
        assert sum(one.used_by.values()) == one.waited["nodes in use"]
        assert sum(one.limited_by.values()) == one.waited["limit"]
        assert not one.waited["order"] or not rules.backfills or rules.plan_every_s, (
            "a job that fits was passed over"
        )
        if one.start_s is None or one.end_s is None:
            assert one.state == "CANCELLED"
            continue
        job = one.job
        assert one.eligible_s is not None and job.begin_s <= one.eligible_s <= one.start_s
        assert job.held is None or not job.held[0] <= one.start_s < job.held[1]
        members = next(part.nodes for part in world.partitions if part.name == one.partition)
        assert one.partition in job.partitions and set(one.place) <= set(members)
        assert len(one.place) == job.nodes or not job.nodes
        assert all(
            node.gpu_type == job.gpu_type for node in world.nodes if job.gpu_type and node.name in one.place
        )
        for away in world.maintenance:
            if away.known_s <= one.start_s < away.to_s and one.start_s + job.request_s > away.from_s:
                assert not set(one.place) & set(away.nodes), f"job {job.id} runs into maintenance"
        for failure in world.failures:
            assert failure.node not in one.place or not (
                one.start_s < failure.to_s and one.end_s > failure.from_s
            )
    last = {one.job.id: one for one in attempts}
    assert set(last) == {job.id for job in world.jobs}
    assert all(one.state != "NODE_FAIL" for one in last.values())
    for one in attempts:
        for name in one.job.after:
            end_s = last[name].end_s
            assert one.start_s is None or (end_s is not None and one.start_s >= end_s)
    for at_s in sorted({one.start_s for one in attempts if one.start_s is not None}):
        there = overlapping(attempts, at_s)
        for node in world.nodes:
            mine = [one for one in there if node.name in one.place]
            assert sum(one.place[node.name] for one in mine) <= node.gpus
            assert len(mine) == 1 or not any(one.job.exclusive for one in mine)
        tasks = [one.job for one in there if one.job.array_limit]
        assert not tasks or len(tasks) <= max(job.array_limit for job in tasks)
        for limit in world.limits:
            column, names = next(iter(limit.of.items()))
            groups: dict[object, list[Job]] = {}
            for one in there:
                if getattr(one.job, column) in names:
                    groups.setdefault(tuple(getattr(one.job, each) for each in limit.per), []).append(one.job)
            for group in groups.values():
                assert len(group) <= limit.jobs and sum(job.gpus for job in group) <= limit.gpus


@pytest.mark.parametrize("seed", range(cases(20)))
def test_the_first_promise_of_easy_holds_whatever_comes(seed: int) -> None:
    world, rules = hostile(seed, plain=True)
    reference = Reference(world, rules)
    started = {one.job.id: one.start_s for one in reference.run()}
    first: dict[str, int] = {}
    for _, job, start_s in reference.promised:
        assert start_s <= first.setdefault(job, start_s), f"the promise of job {job} moved back"
        came_s = started[job]
        assert came_s is not None and came_s <= start_s


# -- each cause alone ------------------------------------------------------------------------------------------------------


def job(name: str, gpus: int = 4, run_s: int = 100, **more: object) -> Job:
    """A job of a world of two nodes of four GPUs."""
    given: dict[str, object] = {"submit_s": 0, "request_s": run_s, "nodes": 1, "partitions": ("all",), **more}
    return Job(name, "u", "A", "normal", gpus=gpus, run_s=run_s, **given)  # type: ignore[arg-type]


TWO = (Node("n1", 4, "a", 32), Node("n2", 4, "b", 32))
ALL = Partition("all", ("n1", "n2"))
ONE = Limit("account A: GrpJobs", "jobs", 3, {"account": frozenset("A")}, jobs=1)
ALONE: dict[str, tuple[World, Rules]] = {
    "not eligible": (World(TWO, (ALL,), (job("1", begin_s=60),)), Rules()),
    "held": (World(TWO, (ALL,), (job("1", held=(0, 60)),)), Rules()),
    "maintenance": (
        World(TWO, (ALL,), (job("1"),), maintenance=(Maintenance("m", ("n1", "n2"), 50, 60),)),
        Rules(),
    ),
    "failed nodes": (
        World(TWO, (ALL,), (job("1", gpu_type="b"),), failures=(Failure("n2", 0, 60),)),
        Rules(),
    ),
    "limit": (World(TWO, (ALL,), (job("0"), job("1")), (ONE,)), Rules()),
    "type": (World(TWO, (ALL,), (job("0"), job("1", gpu_type="a"))), Rules()),
    "nodes in use": (World(TWO, (ALL,), (job("0", 8, nodes=2), job("1"))), Rules()),
    "fragmentation": (
        World(TWO, (ALL,), (job("00", 2, gpu_type="a"), job("0", 2, gpu_type="b"), job("1"))),
        Rules(),
    ),
    "promised to others": (
        World(
            (Node("n1", 4, "a", 32), Node("n2", 4, "a", 32)),
            (ALL,),
            (job("0"), job("00", 8, nodes=2, submit_s=1), job("1", submit_s=2, cancel_s=90)),
        ),
        Rules(),
    ),
    "order": (
        World(TWO, (ALL,), (job("0", gpu_type="a"), job("00", gpu_type="a"), job("1"))),
        Rules(backfills=False),
    ),
}


def test_each_cause_has_a_world() -> None:
    assert set(ALONE) == set(CAUSES)


@pytest.mark.parametrize("cause", CAUSES)
def test_a_world_in_which_one_cause_alone_is_right(cause: str) -> None:
    world, rules = ALONE[cause]
    one = next(each for each in run(world, rules) if each.job.id == "1")
    assert {name for name, seconds in one.waited.items() if seconds} == {cause}


def test_those_who_have_the_nodes_are_named_with_their_part() -> None:
    partitions = (ALL, Partition("top", ("n1", "n2"), tier=2))
    jobs = (
        job("0", 3, partitions=("top",)),
        replace(job("00", 1), account="B"),
        replace(job("000", 4), account="B"),
    )
    one = run(World(TWO, partitions, (*jobs, job("1", submit_s=1))))[-1]
    assert dict(one.used_by) == pytest.approx(
        {("higher tier", "A"): 3 / 8 * 99, ("own partition", "B"): 5 / 8 * 99}
    )


# -- shares ----------------------------------------------------------------------------------------------------------------


def test_fair_tree_is_that_of_the_product() -> None:
    """Two programs after one page: drawn trees, with ties, users and accounts side by side, and nobody's shares."""
    rng = random.Random("trees")
    for _ in range(200):
        accounts: dict[str, Account] = {}
        for name in "abcd"[: rng.randint(1, 4)]:
            users = {f"u{at}": rng.randint(0, 3) for at in range(rng.randint(0, 3))}
            accounts[name] = Account(rng.randint(0, 3), rng.choice(["", *accounts]), users)
        tree = multifactor.ShareTree(
            {
                name: multifactor.Account(
                    shares=one.shares, parent=one.parent or multifactor.ROOT, users=dict(one.users)
                )
                for name, one in accounts.items()
            }
        )
        usage = {
            (name, user): float(rng.randint(0, 3)) for name, one in accounts.items() for user in one.users
        }
        used = np.zeros(len(tree))
        for (name, user), gpu_s in usage.items():
            used[tree.user(name, user)] = gpu_s
        factor = tree.fair_tree(used) if usage else np.zeros(len(tree))
        assert fair_tree(accounts, usage) == pytest.approx({each: factor[tree.user(*each)] for each in usage})
