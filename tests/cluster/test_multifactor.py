"""Slurm's multifactor priority: published numbers, references made from the formulas, and laws."""

from __future__ import annotations

import math
from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest

import forerun
from forerun.cluster.engine.allocator import AllocatorRules, Terms
from forerun.cluster.engine.record import Record
from forerun.cluster.engine.run import rules_for, run_rules
from forerun.cluster.inputs.arrays import F64, Cluster, JobLabels, Jobs
from forerun.cluster.inputs.setting import Setting
from forerun.cluster.policies.conservative import Conservative
from forerun.cluster.policies.easy import Easy
from forerun.cluster.policies.first_fit import FirstFit
from forerun.cluster.policies.orders.multifactor import (
    Account,
    Factors,
    Multifactor,
    MultifactorRanking,
    ShareTree,
    Usage,
    Weights,
)
from forerun.cluster.policies.priority import Fifo
from forerun.cluster.policy import View, orders
from forerun.core.cli.main import run as command_line
from forerun.core.errors import ScenarioError, UsageError
from forerun.core.scenarios import load


def test_a_line_that_slurmctld_printed() -> None:
    """Printed as 32,752.49: its factors are rounded to six digits there."""
    order = Multifactor(weights=Weights(age=16_800, fairshare=25_000, job_size=10_000, partition=30_000))
    zero = np.zeros(1)
    factors = Factors(
        age=np.array([0.251721]), fairshare=np.array([0.042337]), job_size=np.array([0.996510]),
        partition=np.array([0.666667]), qos=zero, tres_gpu=zero, site=zero, nice=np.array([2500.0]),
    )  # fmt: skip
    assert order.priority(factors)[0] == pytest.approx(32_752.45, abs=0.005)


def test_the_classic_factors_of_slurms_own_example() -> None:
    """The accounts of figure 3 in classic_fair_share.html."""
    tree = ShareTree(
        {
            "A": Account(shares=40),
            "D": Account(shares=60),
            "B": Account(shares=30, parent="A", users={"1": 1}),
            "C": Account(shares=10, parent="A", users={"2": 1, "3": 1}),
            "E": Account(shares=25, parent="D", users={"4": 1}),
            "F": Account(shares=35, parent="D", users={"5": 1}),
            "others": Account(shares=0, users={"6": 1}),
        }
    )
    users = [tree.user(*each) for each in (("B", "1"), ("C", "2"), ("C", "3"), ("E", "4"), ("F", "5"))]
    usage = np.zeros(len(tree))
    usage[users] = [0.2, 0.25, 0, 0.25, 0]
    usage[tree.user("others", "6")] = 0.3  # of the machine, of which they have no share
    assert tree.classic(usage, 1.0)[users] == pytest.approx(
        [0.408479, 0.022097, 0.125, 0.5, 0.749154], abs=5e-5
    )


# -- usage -------------------------------------------------------------------------------------------------------------


def test_usage_decays_by_half_in_a_half_life_however_often_it_is_charged() -> None:
    rng = np.random.default_rng(1)
    for half_life_s in (0.0, 3600.0):
        for _ in range(50):
            gpus = rng.integers(0, 8, 3).astype(np.float64)
            begun = rng.uniform(0, 1e5, 3)
            whole, parts = (Usage(half_life_s, begun.copy(), 0.0) for _ in range(2))
            whole.charge(5000.0, gpus)
            for at in np.sort(rng.uniform(0, 5000, 20)):
                parts.charge(float(at), gpus)
            parts.charge(5000.0, gpus)
            assert parts.gpu_s == pytest.approx(whole.gpu_s, rel=1e-12)
    idle = Usage(3600.0, np.array([8.0]), 0.0)
    idle.charge(3600.0, np.zeros(1))
    assert idle.gpu_s[0] == pytest.approx(4.0)
    # the integral of 2^(-t / half life) over a half life, by many small steps
    busy, steps = Usage(3600.0, np.zeros(1), 0.0), (np.arange(100_000) + 0.5) * 0.036
    busy.charge(3600.0, np.ones(1))
    assert busy.gpu_s[0] == pytest.approx(np.sum(2.0 ** (-steps / 3600)) * 0.036, rel=1e-8)


# -- shares ------------------------------------------------------------------------------------------------------------


def drawn(rng: np.random.Generator, scale: float = 1.0) -> tuple[ShareTree, F64]:
    """Up to four accounts in a tree, users of each and of none, with equal and with no shares, and what they have used."""
    accounts: dict[str, Account] = {}
    for name in "abcd"[: int(rng.integers(1, 5))]:
        users = {f"u{k}": scale * rng.integers(0, 3) for k in range(int(rng.integers(name == "a", 4)))}
        parent = str(rng.choice(["root", *accounts]))
        accounts[name] = Account(shares=scale * rng.integers(0, 3), parent=parent, users=users)
    tree = ShareTree(accounts)
    if scale == 1.0:  # whose shares cannot be scaled
        tree.user("", "w")
    usage = np.where(tree.is_user, rng.integers(0, 4, len(tree)), 0).astype(np.float64)
    return tree, usage


def path_of(tree: ShareTree, node: int) -> list[int]:
    """The nodes from below the root to one."""
    path = [node]
    while tree.parent[path[0]]:
        path.insert(0, tree.parent[path[0]])
    return path


def exact(tree: ShareTree, usage: F64) -> tuple[list[Fraction], list[Fraction]]:
    """Shares and usage of every node, in whole numbers and fractions."""
    siblings = [
        [k for k in range(1, len(tree)) if tree.parent[k] == tree.parent[node]] for node in range(len(tree))
    ]
    share = [Fraction(1)]
    for node in range(1, len(tree)):
        total = sum(int(tree.raw[k]) for k in siblings[node])
        share.append(Fraction(int(tree.raw[node]), total) if total else Fraction(0))
    used = [
        sum((Fraction(int(usage[k])) for k in range(1, len(tree)) if node in path_of(tree, k)), Fraction(0))
        for node in range(len(tree))
    ]
    used[0] = sum(map(Fraction, usage.astype(int).tolist()), Fraction(0))
    return share, used


def test_fair_tree_is_the_number_of_users_who_come_first() -> None:
    """By comparing every two users: at the first level at which their ancestors differ in shares over usage."""
    rng, ties = np.random.default_rng(2), 0
    for _ in range(300):
        tree, usage = drawn(rng)
        share, used = exact(tree, usage)

        def level(
            node: int, share: list[Fraction] = share, used: list[Fraction] = used, tree: ShareTree = tree
        ) -> float:
            if not share[node]:
                return 0.0
            return float(share[node] * used[tree.parent[node]] / used[node]) if used[node] else math.inf

        users = [node for node in range(len(tree)) if tree.is_user[node]]
        paths = {user: tuple(level(node) for node in path_of(tree, user)) for user in users}

        def beats(one: tuple[float, ...], two: tuple[float, ...]) -> bool:
            differ = [a > b for a, b in zip(one, two, strict=False) if a != b]
            return bool(differ) and differ[0]

        def first(one: int, two: int, paths: dict[int, tuple[float, ...]] = paths) -> bool:
            mine, other = paths[one], paths[two]
            if beats(mine, other):
                return True
            # `one` equals an account of the other: it has the rank of that account's first user
            inside = [path for path in paths.values() if path[: len(mine)] == mine and len(path) > len(mine)]
            return (
                len(other) > len(mine)
                and other[: len(mine)] == mine
                and any(beats(each, other) for each in inside)
            )

        expected = [1 - sum(first(other, user) for other in users) / len(users) for user in users]
        assert tree.fair_tree(usage)[users] == pytest.approx(expected)
        ties += len(set(expected)) < len(users)
    assert ties > 50


def test_the_classic_factor_is_that_of_the_formulas() -> None:
    rng = np.random.default_rng(3)
    for _ in range(200):
        tree, usage = drawn(rng)
        share, used = exact(tree, usage)
        damping = float(rng.choice([0.5, 1.0, 3.0]))
        factor = tree.classic(usage, damping)
        for user in (node for node in range(len(tree)) if tree.is_user[node]):
            path = path_of(tree, user)
            effective, shares = Fraction(0), Fraction(1)
            for depth, node in enumerate(path):
                actual = used[node] / used[0] if used[0] else Fraction(0)
                effective = actual + (effective - actual) * share[node] if depth else actual
                shares *= share[node]
            expected = 2.0 ** (-float(effective / shares) / damping) if shares else 0.0
            assert factor[user] == pytest.approx(expected)


def test_usage_never_raises_ones_own_factor_and_shares_have_no_unit() -> None:
    rng = np.random.default_rng(4)
    for _ in range(200):
        tree, usage = drawn(rng)
        users = [node for node in range(len(tree)) if tree.is_user[node]]
        user = int(rng.choice(users))
        more = usage.copy()
        more[user] += rng.integers(1, 5)
        assert tree.fair_tree(more)[user] <= tree.fair_tree(usage)[user]
        assert tree.classic(more, 1.0)[user] <= tree.classic(usage, 1.0)[user] + 1e-12
        assert tree.fair_tree(5 * usage).tolist() == tree.fair_tree(usage).tolist()
    for seed in range(100):
        (small, usage), (large, same) = (
            drawn(np.random.default_rng(seed), scale=scale) for scale in (2.0, 14.0)
        )
        assert usage.tolist() == same.tolist()
        assert small.fair_tree(usage).tolist() == large.fair_tree(usage).tolist()
        assert small.classic(usage, 1.0) == pytest.approx(large.classic(usage, 1.0))


# -- in a run ----------------------------------------------------------------------------------------------------------


def test_usage_in_a_run_is_that_of_its_schedule() -> None:
    """At every decision: the sum over jobs of what they had, each second counted by its age."""

    class Watched(MultifactorRanking):
        def keys(self, view: View) -> F64:
            keys = super().keys(view)
            seen.append((view.now_s, self.usage.gpu_s.copy()))
            return keys

    rng = np.random.default_rng(5)
    for policy in (Easy(), Conservative(), FirstFit()):
        order = Multifactor(weights=Weights(fairshare=1000, age=10), half_life_s=200.0)
        count, seen = 40, []
        work = rng.integers(1, 100, count)
        users = [f"u{k}" for k in rng.integers(0, 3, count)]
        accounts = [f"a{k}" for k in rng.integers(0, 2, count)]
        jobs = Jobs.of(
            np.sort(rng.integers(0, 300, count)), rng.integers(1, 5, count), work, requested_s=2 * work,
            user=users, labels=JobLabels.of(count, account=accounts),
        )  # fmt: skip
        made = Setting(jobs, Cluster.uniform(1, 1, 4), None, 60)
        record, chosen = Record(made), policy.with_(order=order)
        scheduler = chosen.build(rng)
        watched = scheduler.ranking = Watched(order)  # type: ignore[attr-defined]
        run_rules(AllocatorRules(made, record, chosen, scheduler, Terms()))
        owners = [watched.tree.user(*each) for each in zip(accounts, users, strict=True)]
        assert len(seen) > 40
        for now_s, gpu_s in seen:
            expected = np.zeros(len(gpu_s))
            for job, owner in enumerate(owners):
                if (start_s := record.first_start_s[job]) < now_s:
                    ages = now_s - np.array([start_s, min(record.end_s[job], now_s)])
                    young, old = 2.0 ** (-ages / 200.0)[::-1]
                    if owner < len(expected):
                        expected[owner] += jobs.gpus[job] * (young - old) * 200.0 / math.log(2)
            assert gpu_s == pytest.approx(expected, abs=1e-6)


SCENARIO = """\
domain: cluster
trace: jobs.csv
machines: {nodes: [{count: 1, gpus: 4}]}
policy:
  name: easy
  order:
    name: multifactor
    weights: {age: 10, fairshare: 1000}
    max_age: 1d
    half_life: 1h
"""
HEAD = "job_id,submit_s,gpus,duration_s,requested_s,user,account,vc,qos,nice,site_factor,eligible_s\n"
#: ann has the cluster until 100 s; at 1 s she submits again, at 2 s bob does
ROWS = "a,0,4,100,100,ann,x,slow,,,,\nb,1,4,10,10,ann,x,slow,,{b},,{after}\nc,2,4,10,10,bob,x,{p},{q},,{c},\n"


def starts(
    folder: Path, *settings: str, b: str = "", c: str = "", p: str = "slow", q: str = "", after: str = ""
) -> list[float]:
    (folder / "jobs.csv").write_text(HEAD + ROWS.format(b=b, c=c, p=p, q=q, after=after))
    (folder / "cluster.yaml").write_text(SCENARIO)
    result = forerun.simulate(load(folder / "cluster.yaml", settings))
    found: list[float] = result.tables["jobs"]["first_start_s"].tolist()
    return found


ANN, BOB = [0, 100, 110], [0, 110, 100]


def test_who_comes_first_by_each_factor(tmp_path: Path) -> None:
    weights = "policy.order.weights"
    plain = (f"{weights}.fairshare=0", f"{weights}.age=0")
    with pytest.raises(ScenarioError, match="multifactor without weights is the order of submission"):
        starts(tmp_path, *plain)
    assert starts(tmp_path, f"{weights}.fairshare=0", f"{weights}.age=1") == ANN, (
        "equal ones go by submission"
    )
    assert starts(tmp_path) == BOB, "ann has used the cluster"
    assert starts(tmp_path, "policy.order.fairshare=classic") == BOB
    # age: b has waited a second longer, 1 in 86,400; of weight 864,000 this is 10
    old = (f"{weights}.fairshare=0", f"{weights}.age=864000")
    assert starts(tmp_path, *old, c="9") == ANN
    assert starts(tmp_path, *old, c="11") == BOB
    assert starts(tmp_path, *plain, b="1") == BOB, "nice"
    assert starts(tmp_path, *plain, c="1") == BOB, "the site's factor"
    assert (
        starts(tmp_path, *plain, f"{weights}.qos=100", "policy.order.qos={high: 5, low: 1}", q="high") == BOB
    )
    ranks = "policy.order.partitions={fast: {priority: 3}, slow: {priority: 1}}"
    assert starts(tmp_path, *plain, f"{weights}.partition=100", ranks, p="fast") == BOB
    tiers = "policy.order.partitions={fast: {tier: 2}}"
    assert starts(tmp_path, *plain, tiers, p="fast", c="-5") == BOB, "a tier comes before any priority"
    assert starts(tmp_path, "policy.name=first-fit") == BOB
    assert starts(tmp_path, "policy.name=conservative") == ANN, "who was promised the time before bob came"


@pytest.mark.parametrize("policy", ["fifo", "easy", "las", "srtf", "slurm-backfill", "edf", "dlas-gpu"])
def test_no_job_starts_before_it_is_eligible(tmp_path: Path, policy: str) -> None:
    """One that its user holds until 900 s is not in the queue before: it starts then, and is no job's head."""
    rows = "held,0,4,10,10,ann,,,,,,900\na,5,4,100,100,bob,,,,,,\nb,6,1,10,10,bob,,,,,,6\n"
    (tmp_path / "jobs.csv").write_text(HEAD + rows)
    text = "domain: cluster\ntrace: jobs.csv\nmachines: {nodes: [{count: 1, gpus: 4}]}\nslot: 1s\n"
    (tmp_path / "cluster.yaml").write_text(f"{text}policy: {policy}\n")
    result = forerun.simulate(load(tmp_path / "cluster.yaml"))
    jobs = result.tables["jobs"]
    assert jobs["job"].tolist() == ["a", "b", "held"]
    assert jobs["submit_s"].tolist() == [5, 6, 900] and jobs["first_start_s"].min() < 900
    assert 900 <= jobs["first_start_s"][2] <= 901
    assert (
        "1 of 3 jobs arrive when they become eligible, 900 s after their submission in the mean"
        in result.notes
    )


def test_the_size_of_a_job(tmp_path: Path) -> None:
    rows = "a,0,4,100,100,ann,,,,,,\nb,1,1,10,10,ann,,,,,,\nc,2,4,10,10,bob,,,,,,\n"
    (tmp_path / "jobs.csv").write_text(HEAD + rows)
    (tmp_path / "cluster.yaml").write_text(SCENARIO)
    weights = "policy.order.weights"
    for given, expected in (
        ((f"{weights}.job_size=5000",), [0, 110, 100]),
        ((f"{weights}.tres_gpu=5000",), [0, 110, 100]),
        ((f"{weights}.job_size=5000", "policy.order.favor_small=true"), [0, 100, 110]),
    ):
        result = forerun.simulate(load(tmp_path / "cluster.yaml", given))
        assert result.tables["jobs"]["first_start_s"].tolist() == expected


def test_an_order_given_from_python_keeps_the_policy(tmp_path: Path) -> None:
    assert starts(tmp_path) == BOB
    scenario = load(tmp_path / "cluster.yaml", ["policy.order=fcfs"])
    order = Multifactor(weights=Weights(fairshare=1000.0))
    assert forerun.simulate(scenario).tables["jobs"]["first_start_s"].tolist() == ANN
    assert forerun.simulate(scenario, policy=order).tables["jobs"]["first_start_s"].tolist() == BOB
    with pytest.raises(UsageError, match="takes no order"):
        forerun.simulate(scenario.with_(policy=Fifo()), policy=order)
    assert {each.name for each in forerun.policies("cluster") if each.kind == "order"} == set(
        orders().names()
    )


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ("accounts={x: {parent: y}}", "no account 'y'"),
        ("accounts={x: {parent: y}, y: {parent: x}}", "its own ancestor"),
        ("accounts={root: {shares: 2}}", "what all accounts belong to"),
        ("weights={age: -1}", "age"),
        ("damping=0", "damping"),
    ],
)
def test_shares_that_make_no_sense_are_errors(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], given: str, said: str
) -> None:
    (tmp_path / "jobs.csv").write_text(HEAD + "a,0,4,100,100,ann,x,slow,,,,\n")
    (tmp_path / "cluster.yaml").write_text(SCENARIO)
    assert (
        command_line(["simulate", str(tmp_path / "cluster.yaml"), "--set", f"policy.order.{given}", "-q"])
        == 2
    )
    assert said in capsys.readouterr().err


def test_users_of_the_root_stand_beside_its_accounts() -> None:
    """As Slurm's own user root: who has used nothing ranks first, and every user counts."""
    order = Multifactor(accounts={"root": Account(users={"root": 1.0}), "lab": Account(users={"u": 1.0})})
    assert not order.problems()
    tree = ShareTree(order.accounts)
    usage = np.zeros(len(tree))
    usage[tree.user("lab", "u")] = 5.0
    factor = tree.fair_tree(usage)
    assert (factor[tree.user("root", "root")], factor[tree.user("lab", "u")]) == (1.0, 0.5)


@pytest.mark.parametrize("compiled", [True, False])
def test_equal_priorities_go_by_submission_and_not_by_the_time_they_became_eligible(compiled: bool) -> None:
    """When the first job ends, both others are as old as counts; the one submitted first became eligible last."""
    labels = JobLabels.of(3, eligible_after_s=[0, 0, 490])
    jobs = Jobs.of([0, 20, 500], [1, 1, 1], [1000, 10, 10], requested_s=[1000, 10, 10], labels=labels)
    setting = Setting(jobs=jobs, cluster=Cluster.uniform(1, 1, 1, ""), profile=None, slot_s=60)
    policy = Easy(order=Multifactor(weights=Weights(age=1000), max_age_s=100))
    record, terms = Record(setting), Terms(placement="first-fit")
    made = AllocatorRules(setting, record, policy, policy.build(np.random.default_rng(0)), terms)
    run_rules(rules_for(policy, setting, record, terms, 0) if compiled else made)
    assert record.first_start_s.tolist() == [0, 1010, 1000]
