"""Limits of what users, accounts, qualities of service and partitions have running at once."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import forerun
from forerun.cluster.engine.allocator import Terms
from forerun.cluster.engine.record import Record
from forerun.cluster.engine.run import rules_for, run_rules
from forerun.cluster.inputs.arrays import Cluster, JobLabels, Jobs, NodeGroup
from forerun.cluster.inputs.limits import UNLIMITED, LimitColumn, LimitRule, Tally, resolved
from forerun.cluster.inputs.setting import Setting
from forerun.cluster.policies.backfilling.base import BackfillPolicy
from forerun.cluster.policies.conservative import Conservative
from forerun.cluster.policies.easy import Easy
from forerun.cluster.policies.first_fit import FirstFit
from forerun.cluster.policies.las import Las
from forerun.cluster.policies.orders.fcfs import Fcfs
from forerun.cluster.policies.priority import Fifo, FifoBackfill, Srtf
from forerun.cluster.policies.slurm_backfill import SlurmBackfill
from forerun.cluster.policy import Policy
from forerun.core.errors import ForerunError, ScenarioError, TraceError
from forerun.core.scenario.spec import content_id
from forerun.core.scenarios import load

from ..conftest import cases
from .conftest import waited

Columns = Mapping[LimitColumn, Sequence[str]]
POLICIES: tuple[Policy, ...] = (
    Fifo(), FifoBackfill(), Srtf(), Las(round_s=7.0), Easy(), Easy(promises=3), Conservative(), FirstFit(order=Fcfs()),
)  # fmt: skip


def drawn(number: int, *, types: int = 1) -> tuple[Setting, Columns, tuple[LimitRule, ...]]:
    """A small setting with limits, the columns of its jobs, and the rules. number: makes it again."""
    rng = np.random.default_rng(number)
    count, size = int(rng.integers(1, 25)), int(rng.integers(4, 12))
    duration = rng.integers(1, 40, count)
    jobs = Jobs.of(
        np.sort(rng.integers(0, 60, count)),
        rng.integers(1, 5, count),
        duration,
        requested_s=np.ceil(duration * rng.uniform(1, 3, count)).astype(np.int64),
    )
    columns: Columns = {
        "user": rng.choice(["ann", "bob", "cat"], count).tolist(),
        "account": rng.choice(["lab", "sub"], count).tolist(),
        "qos": rng.choice(["short", "long", ""], count).tolist(),
        "partition": rng.choice(["gpu", "big"], count).tolist(),
    }
    rules = [LimitRule("per user", per=("user",), jobs=int(rng.integers(1, 4)))]
    if rng.random() < 0.7:
        rules.append(LimitRule("short", {"qos": frozenset({"short"})}, gpus=int(rng.integers(4, 8))))
    if rng.random() < 0.5:
        rules.append(
            LimitRule("sub", {"account": frozenset({"sub"})}, ("user", "qos"), gpus=int(rng.integers(4, 9)))
        )
    groups = [NodeGroup(f"g{at}", 1, size, "" if types == 1 else f"t{at}") for at in range(types)]
    names = tuple(group.gpu_type for group in groups)
    if types > 1:
        rules.append(LimitRule("of t1", per=("partition",), gpus=4, gpu_type="T1"))
    limits = resolved(rules, {}, columns, names)
    setting = Setting(jobs=jobs, cluster=Cluster(tuple(groups)), profile=None, slot_s=60, limits=limits)
    return setting, columns, tuple(rules)


def played(setting: Setting, policy: Policy) -> tuple[Record, list[tuple[float, tuple[int, ...]]]]:
    """The record of a run, and the GPUs that each job has after each of its instants."""
    record = Record(setting)
    held: list[tuple[float, tuple[int, ...]]] = []
    run_rules(
        rules_for(policy, setting, record, Terms(), 0),
        [lambda now_s: held.append((now_s, tuple(record.held.tolist())))],
    )
    return record, held


def over(held: Sequence[int], columns: Columns, rules: Sequence[LimitRule]) -> bool:
    """Whether what jobs hold is beyond any rule, counted from the rules and not from `Limits`."""
    for rule in rules:
        counted: dict[tuple[str, ...], list[int]] = {}
        for row, gpus in enumerate(held):
            if gpus and all(columns[name][row] in those for name, those in rule.of.items()):
                counted.setdefault(tuple(columns[name][row] for name in rule.per), []).append(gpus)
        if any(sum(gpus) > rule.gpus or len(gpus) > rule.jobs for gpus in counted.values()):
            return True
    return False


def reference(
    setting: Setting, columns: Columns, rules: Sequence[LimitRule], *, strict: bool
) -> dict[int, float]:
    """Starts under list scheduling by submission: whoever fits the free GPUs and the rules starts.

    Built from the rules alone, by asking at each instant for each waiting job whether all that would then run is within
    them. strict: the first job that only lacks GPUs ends the pass.
    """
    jobs = setting.jobs
    starts: dict[int, float] = {}
    ends: dict[int, float] = {}
    moments = {float(at_s) for at_s in jobs.submit_s}
    while moments:
        now_s = min(moments)
        moments.discard(now_s)
        held = [int(jobs.gpus[row]) if ends.get(row, -1.0) > now_s else 0 for row in range(len(jobs))]
        for row in range(len(jobs)):
            if row in starts or jobs.submit_s[row] > now_s:
                continue
            beside = [*held]
            beside[row] = int(jobs.gpus[row])
            if over(beside, columns, rules):
                continue
            if sum(beside) > setting.cluster.gpus:
                if strict:
                    break
                continue
            held, starts[row] = beside, now_s
            ends[row] = now_s + float(jobs.duration_s[row])
            moments.add(ends[row])
    return starts


@pytest.mark.parametrize("number", range(cases(20)))
def test_list_scheduling_is_that_of_the_reference(number: int) -> None:
    setting, columns, rules = drawn(number)
    for policy, strict in ((FifoBackfill(), False), (FirstFit(order=Fcfs()), False), (Fifo(), True)):
        record, _ = played(setting, policy)
        assert dict(enumerate(record.first_start_s.tolist())) == reference(
            setting, columns, rules, strict=strict
        ), policy


@pytest.mark.parametrize("policy", POLICIES, ids=repr)
def test_never_more_than_the_limit_runs_and_everybody_ends(policy: Policy) -> None:
    for number in range(100, 125):
        setting, columns, rules = drawn(number)
        record, held = played(setting, policy)
        assert len(record.completed) == len(setting.jobs)
        assert not any(over(now, columns, rules) for _, now in held), number


@pytest.mark.parametrize(
    "policy", [Easy(), Easy(promises=3), FirstFit(order=Fcfs()), FifoBackfill()], ids=repr
)
def test_nobody_waits_whom_limits_and_free_gpus_would_let_start_alone(policy: Policy) -> None:
    """Work conservation: where nobody else within the limits waits, a job that fits runs."""
    for number in range(200, 230):
        setting, columns, rules = drawn(number)
        _, held = played(setting, policy)
        jobs, ended = setting.jobs, set[int]()
        before = (0,) * len(jobs)
        for now_s, now in held:
            ended |= {row for row, gpus in enumerate(before) if gpus and not now[row]}
            before = now
            could = [
                row
                for row in range(len(jobs))
                if not now[row]
                and row not in ended
                and jobs.submit_s[row] <= now_s
                and not over([*now[:row], int(jobs.gpus[row]), *now[row + 1 :]], columns, rules)
            ]
            if len(could) == 1:
                assert sum(now) + int(jobs.gpus[could[0]]) > setting.cluster.gpus, (number, now_s)


@pytest.mark.parametrize("policy", [Easy(), Conservative(), FirstFit(), Fifo(), FifoBackfill()], ids=repr)
def test_limits_without_force_change_nothing(policy: Policy) -> None:
    for number in range(300, 320):
        setting, columns, _ = drawn(number)
        loose = resolved([LimitRule("loose", per=("user",), gpus=10**6, jobs=10**6)], {}, columns, ("",))
        one, _ = played(replace(setting, limits=None), policy)
        other, _ = played(replace(setting, limits=loose), policy)
        assert one.first_start_s.tolist() == pytest.approx(other.first_start_s.tolist())


def test_who_has_no_place_counts_against_no_limit() -> None:
    """Jobs of 3 leave 1 GPU on each of two nodes of 4; there is no place for the job of 2, whose user may have 2 in all."""
    jobs = Jobs.of([0, 0, 10, 20], [3, 3, 2, 1], [100, 200, 50, 30], user=["v", "w", "u", "u"])
    columns: Columns = {name: [""] * 4 for name in ("account", "qos", "partition")}
    limits = resolved(
        [LimitRule("u", {"user": frozenset({"u"})}, gpus=2)], {}, {**columns, "user": jobs.user}, ("",)
    )
    setting = Setting(jobs, Cluster((NodeGroup("x", 2, 4),)), None, 60, limits=limits)
    record = Record(setting)
    run_rules(rules_for(FifoBackfill(round_s=1.0), setting, record, Terms(placement="first-fit"), 0))
    assert record.first_start_s.tolist() == [0, 0, 100, 20]


@pytest.mark.parametrize("policy", [Easy(), Conservative(), FifoBackfill()], ids=repr)
def test_a_limit_of_one_gpu_type_leaves_the_other(policy: Policy) -> None:
    for number in range(400, 415):
        setting, columns, rules = drawn(number, types=2)
        record, held = played(setting, policy)
        assert len(record.completed) == len(setting.jobs)
        plain = [rule for rule in rules if not rule.gpu_type]
        assert not any(over(now, columns, plain) for _, now in held)
    limits = resolved(
        [LimitRule("t", gpus=0, gpu_type="a")], {}, {name: ["x"] for name in ("user", "account", "qos", "partition")},
        ("a", "b"),
    )  # fmt: skip
    tally = Tally(limits)
    assert not tally.fits(0, 0, 1)
    assert tally.fits(0, 1, 1)


def test_of_rules_of_a_kind_those_of_the_least_rank_count() -> None:
    rules = [
        LimitRule("account", {"account": frozenset({"lab"})}, gpus=4, kind="group GPUs", rank=2),
        LimitRule("parent", {"account": frozenset({"lab", "top"})}, gpus=8, kind="group GPUs", rank=2),
        LimitRule("qos", {"qos": frozenset({"high"})}, gpus=32, kind="group GPUs", rank=1),
        LimitRule("jobs", per=("user",), jobs=2),
    ]
    columns: Columns = {
        "user": ["ann", "ann"], "account": ["lab", "lab"], "qos": ["high", "low"], "partition": ["", ""],
    }  # fmt: skip
    limits = resolved(rules, {}, columns, ("",))
    named = [{limits.names[group] for group in groups} for groups in limits.groups_of[0]]
    assert named == [{"qos", "jobs (ann)"}, {"account", "parent", "jobs (ann)"}]


@pytest.mark.parametrize("number", range(40))
def test_pools_lend_what_a_brute_force_can_lend(number: int) -> None:
    """A queue is within the quotas if somebody can lend it what it has beyond its own, each within what it lends."""
    rng = np.random.default_rng(number)
    queues = int(rng.integers(2, 4))
    nominal = rng.integers(0, 6, queues)
    lends = np.minimum(rng.integers(0, 6, queues), nominal)
    borrows = rng.integers(0, 6, queues)
    names = [f"q{at}" for at in range(queues)]
    rules = [
        LimitRule(
            name, {"partition": frozenset({name})}, gpus=int(nominal[at] + borrows[at]),
            own_gpus=int(nominal[at] - lends[at]), pool="all",
        )
        for at, name in enumerate(names)
    ]  # fmt: skip
    asks = rng.integers(1, 5, 30)
    whose = rng.integers(0, queues, 30)
    columns: Columns = {
        "user": [""] * 30, "account": [""] * 30, "qos": [""] * 30, "partition": [names[at] for at in whose],
    }  # fmt: skip
    tally = Tally(resolved(rules, {"all": int(lends.sum())}, columns, ("",)))
    used, running = np.zeros(queues, np.int64), list[int]()
    for job in range(30):
        then = used.copy()
        then[whose[job]] += asks[job]
        fits = tally.fits(job, 0, int(asks[job]))
        assert fits == can_be_lent(then, nominal, lends, borrows)
        if fits:
            tally.add(job, 0, int(asks[job]))
            running.append(job)
            used = then
        if running and rng.random() < 0.3:
            gone = running.pop(int(rng.integers(len(running))))
            tally.remove(gone, 0, int(asks[gone]))
            used[whose[gone]] -= asks[gone]


def can_be_lent(used: np.ndarray, nominal: np.ndarray, lends: np.ndarray, borrows: np.ndarray) -> bool:
    """By trying every amount that each queue could lend."""
    beyond = np.maximum(0, used - nominal)
    if (beyond > borrows).any():
        return False
    spare = [range(int(min(lends[at], max(0, nominal[at] - used[at]))) + 1) for at in range(len(used))]
    return any(sum(lent) >= beyond.sum() for lent in itertools.product(*spare))


@pytest.mark.parametrize(
    "policy", [Easy(promises=10**6), Conservative(), FirstFit(order=Fcfs()), FirstFit()], ids=repr
)
def test_partitions_of_their_own_nodes_are_clusters_of_their_own(policy: Policy) -> None:
    """Each partition runs as if it were alone."""
    for number in range(500, 520):
        setting, columns, _ = drawn(number)
        sizes = {"gpu": 5, "big": 7}
        labels = JobLabels.of(len(setting.jobs), partition=tuple(columns["partition"]))
        whole = Cluster(
            tuple(NodeGroup(name, 1, size) for name, size in sizes.items()),
            partitions={name: (at,) for at, name in enumerate(sizes)},
        )
        jobs = replace(setting.jobs, labels=labels)
        record, _ = played(replace(setting, jobs=jobs, cluster=whole, limits=None), policy)
        for name, size in sizes.items():
            rows = [row for row, of in enumerate(columns["partition"]) if of == name]
            if not rows:
                continue
            alone = replace(
                setting,
                jobs=setting.jobs.take(rows),
                cluster=Cluster((NodeGroup(name, 1, size),)),
                limits=None,
            )
            expected, _ = played(alone, policy)
            assert record.first_start_s[rows].tolist() == expected.first_start_s.tolist(), (number, name)


def test_a_wide_job_of_a_partition_is_promised_its_start() -> None:
    """Job 1 asks for the whole partition and is promised 100 s; the third may not pass it, a job of no partition may."""
    jobs = Jobs.of([0, 1, 2, 3], [3, 4, 1, 1], [100, 50, 200, 200], requested_s=[100, 50, 200, 200])
    columns: Columns = {
        "user": [""] * 4, "account": [""] * 4, "qos": [""] * 4, "partition": ["p", "p", "p", ""],
    }  # fmt: skip
    named = replace(jobs, labels=JobLabels.of(4, partition=columns["partition"]))
    nodes = Cluster((NodeGroup("p", 1, 4), NodeGroup("q", 1, 4)), partitions={"p": (0,)})
    rule = LimitRule("p", {"partition": frozenset({"p"})}, gpus=4)
    limits = resolved([rule], {}, columns, ("",))
    # the nodes of a partition are in use; a number of GPUs is a limit, which promises nothing
    for setting, starts, cause in (
        (Setting(named, nodes, None, 60), [0, 100, 150, 3], "nodes_in_use"),
        (Setting(jobs, Cluster((NodeGroup("all", 1, 8),)), None, 60, limits=limits), [0, 202, 2, 3], "limit"),
    ):
        for policy in (Easy(), Conservative()):
            record, _ = played(setting, policy)
            assert record.first_start_s.tolist() == starts, (policy, cause)
            assert waited(record, policy)[cause][1] == starts[1] - 1


LOG = "job_id,submit_s,gpus,duration_s,requested_s,user,account,qos,vc\n" + "".join(
    f"{at},{at},{gpus},100,200,{user},{account},{qos},gpu\n"
    for at, (gpus, user, account, qos) in enumerate(
        [(4, "ann", "lab", "short"), (4, "ann", "lab", "long"), (4, "bob", "sub", "short")]
    )
)


def scenario(folder: Path, limits: str, policy: str = "easy") -> Path:
    (folder / "jobs.csv").write_text(LOG)
    path = folder / "cluster.yaml"
    path.write_text(
        "domain: cluster\ntrace: jobs.csv\nmachines: {nodes: [{count: 2, gpus: 8}]}\n"
        f"policy: {policy}\n{limits}"
    )
    return path


@pytest.mark.parametrize("policy", ["easy", "conservative", "first-fit", "fifo", "srtf"])
def test_a_scenario_limits_users(tmp_path: Path, policy: str) -> None:
    result = forerun.simulate(load(scenario(tmp_path, "limits: [{per: [user], jobs: 1}]\n", policy)))
    assert result.tables["jobs"]["first_start_s"].tolist() == [0, 100, 2]
    assert result.tables["jobs"]["wait_limit_s"].tolist() == [0, 99, 0]
    result = forerun.simulate(load(scenario(tmp_path, "limits: [{qos: [short], gpus: 4}]\n", policy)))
    assert result.tables["jobs"]["first_start_s"].tolist() == [0, 1, 100]


def test_an_id_without_limits_is_as_before(tmp_path: Path) -> None:
    assert content_id(load(scenario(tmp_path, "")), "1") == content_id(
        load(scenario(tmp_path, "limits: null\n")), "1"
    )


@pytest.mark.parametrize(
    ("limits", "error", "says"),
    [
        ("limits: [{per: [user]}]\n", ScenarioError, "limits nothing"),
        ("limits: [{user: [eve], jobs: 1}]\n", ScenarioError, r"limits\[0\].user: no user 'eve' in jobs.csv"),
        ("limits: [{jobs: 1}]\nquota: {gpus: {ann: 4}}\n", ScenarioError, "give one of them"),
        ("limits: [{jobs: 1}]\nlive: {}\n", ScenarioError, "are simulated only"),
        ("limits: [{account: [sub], gpus: 2}]\n", TraceError,
         r"jobs.csv:4: job 2: asks for 4 GPUs; limits\[0\] allows 2 GPUs"),
        ("limits: [{qos: [long], jobs: 0}]\n", TraceError, "allows no job"),
    ],
)  # fmt: skip
def test_what_limits_cannot_be(tmp_path: Path, limits: str, error: type[ForerunError], says: str) -> None:
    with pytest.raises(error, match=says):
        forerun.simulate(load(scenario(tmp_path, limits)))


def test_jobs_beyond_a_limit_can_be_left_out(tmp_path: Path) -> None:
    path = scenario(tmp_path, "limits: [{account: [sub], gpus: 2}]\n")
    result = forerun.simulate(load(path, ["trace.larger=drop"]))
    assert len(result.tables["jobs"]["first_start_s"]) == 2
    assert any(
        "job that a limit never lets run left out: 1 (jobs.csv:4: job 2)" in note for note in result.notes
    )


def test_published_schedules_say_that_they_know_no_limits(tmp_path: Path) -> None:
    path = scenario(tmp_path, "limits: [{per: [user], jobs: 1}]\n", "dlas-gpu")
    assert any("know no limits" in note for note in forerun.simulate(load(path)).notes)


def test_unlimited_is_beyond_every_cluster() -> None:
    assert UNLIMITED > 1 << 53
    assert BackfillPolicy.keeps_promises is False


@pytest.mark.parametrize(
    "policy", [Easy(), Conservative(), FirstFit(order=Fcfs()), SlurmBackfill(), Fifo()], ids=str
)
def test_who_takes_a_node_whole_is_admitted_by_what_it_asks_for(policy: Policy) -> None:
    """At most 8 GPUs: 4 run, and a job comes that asks for 4 and has a node of 8; nobody comes after it."""
    jobs = Jobs.of(
        [0, 10, 20], [4, 8, 1], [1000, 1000, 1000], requested_s=[1000, 1000, 1000],
        labels=JobLabels.of(3, nodes=1, exclusive=[False, True, False], asked_gpus=[0, 4, 0]),
    )  # fmt: skip
    columns: Columns = {"user": ["ann"] * 3}
    limits = replace(
        resolved([LimitRule("user", per=("user",), gpus=8)], {}, columns, [""]), asks=np.array([4, 4, 1])
    )
    setting = Setting(
        jobs=jobs, cluster=Cluster((NodeGroup("g", 3, 8, ""),)), profile=None, slot_s=60, limits=limits
    )
    record = Record(setting)
    run_rules(rules_for(policy, setting, record, Terms(placement="first-fit"), 0))
    first, second, third = np.floor(record.first_start_s)
    assert (first, second) in ((0, 10), (1, 11)), "Slurm plans a second after"
    assert third >= 1010
