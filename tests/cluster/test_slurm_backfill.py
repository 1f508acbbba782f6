"""Slurm's backfill scheduler: closed forms, laws of its runs on drawn sites, and how promises are broken."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from forerun.cluster.engine.allocator import AllocatorRules, Terms
from forerun.cluster.engine.node_queue import NodeQueueRules
from forerun.cluster.engine.record import Record
from forerun.cluster.engine.run import rules_for, run_rules
from forerun.cluster.inputs.arrays import Cluster, JobLabels, Jobs, NodeGroup
from forerun.cluster.inputs.setting import Setting, Window
from forerun.cluster.policies.conservative import Conservative
from forerun.cluster.policies.easy import Easy
from forerun.cluster.policies.orders.multifactor import Multifactor, Weights
from forerun.cluster.policies.orders.sjf import ShortestRequest
from forerun.cluster.policies.slurm_backfill import SlurmBackfill
from forerun.cluster.policy import Policy

from ..conftest import cases
from .test_backfill import drawn_windows, setting

CASES = cases(0)


def starts(made: Setting, policy: Policy) -> list[float]:
    record = Record(made)
    run_rules(rules_for(policy, made, record, Terms(), 0))
    found: list[float] = record.first_start_s.tolist()
    return found


def test_jobs_out_of_order_wait_for_the_next_plan() -> None:
    """Four GPUs: 0 has two for 100 s, 1 needs all, 2 fits beside 0 and ends before 1 is due.

    A job starts a second after it comes or another one ends, or 30 s after the last plan, which was of no jobs.
    """
    made = setting([0, 1, 2], [2, 4, 2], [100, 10, 20], [100, 10, 20], 4)
    assert starts(made, SlurmBackfill(bf_interval_s=30, bf_resolution_s=1)) == [1, 102, 31]
    assert starts(made, SlurmBackfill(bf_interval_s=0, bf_resolution_s=0)) == [0, 100, 2]


def test_instants_are_rounded_down_in_the_plan() -> None:
    """1 waits for the node from 100 on. 2 would end at 92; both count as 80, and 2 is in its way."""
    made = setting([0, 1, 2], [2, 4, 2], [100, 50, 90], [100, 50, 90], 4)
    assert starts(made, SlurmBackfill(bf_interval_s=0, bf_resolution_s=1)) == [0, 100, 2]
    assert starts(made, SlurmBackfill(bf_interval_s=0, bf_resolution_s=40)) == [0, 100, 150]


def test_how_far_and_at_how_many_jobs_a_plan_looks() -> None:
    made = setting([0, 1, 2, 3], [2, 4, 2, 2], [100, 10, 200, 50], [100, 10, 200, 50], 4)
    plain = SlurmBackfill(bf_interval_s=0, bf_resolution_s=1)
    assert starts(made, plain) == [0, 100, 110, 3]
    assert starts(made, plain.with_(bf_max_job_test=2)) == [0, 100, 110, 110]
    assert starts(made, plain.with_(bf_window_s=80)) == [0, 202, 2, 100], "2 delays 1, which is 98 s away"


def test_a_plan_made_from_nothing_breaks_what_conservative_keeps() -> None:
    """Two GPUs; 0 asks for 120 s and takes 40. At 3 s job 3 is to start at 42, when 2 ends, and 1, which needs both, at 120.

    When 0 ends, 1 comes first in a plan from nothing, at 42, and 3 at 62. Kept, 3 starts at 40 and 1 at 60.
    """
    made = setting([0, 1, 2, 3], [1, 2, 1, 1], [40, 20, 40, 20], [120, 20, 40, 60], 2)
    anew = SlurmBackfill(bf_interval_s=0, bf_resolution_s=1, bf_window_s=0)
    assert starts(made, anew) == [0, 42, 2, 62]
    assert starts(made, Conservative()) == [0, 60, 2, 40]


def drawn_site(rng: np.random.Generator) -> Setting:
    """Up to 40 jobs on up to four nodes of two sizes, in up to three partitions that share nodes; some take whole nodes."""
    groups = [NodeGroup(f"g{at}", int(rng.integers(1, 3)), int(rng.choice([2, 4]))) for at in range(2)]
    cluster = Cluster(tuple(groups))
    nodes, size = cluster.nodes, cluster.node_gpus()
    partitions = {
        name: tuple(np.flatnonzero(rng.random(nodes) < 0.7).tolist()) or (0,)
        for name in ("p", "q", "r")[: int(rng.integers(0, 4))]
    }
    cluster = replace(cluster, partitions=partitions)
    count = int(rng.integers(1, 40))
    names = tuple(rng.choice(["", *partitions], count).tolist())
    wide, gpus = np.ones(count, np.int64), np.ones(count, np.int64)
    for job, name in enumerate(names):
        mine = size[list(partitions[name])] if name else size
        wide[job] = rng.integers(1, len(mine) + 1)
        gpus[job] = wide[job] * rng.integers(1, mine.min() + 1)
    work_s = rng.integers(1, 400, count)
    request_s = np.maximum(1, np.rint(work_s * rng.choice([0.5, 1.0, 2.0, 8.0], count))).astype(np.int64)
    labels = JobLabels.of(
        count, partition=names, nodes=wide, exclusive=rng.random(count) < rng.choice([0.0, 0.2])
    )
    jobs = Jobs.of(np.sort(rng.integers(0, 900, count)), gpus, work_s, requested_s=request_s, labels=labels)
    windows = tuple(
        Window(each.from_s, each.to_s, each.gpus, each.announced_s)
        for each in drawn_windows(rng, cluster.gpus)
    )
    return Setting(jobs, cluster, None, 60, maintenance=windows)


def drawn_policy(rng: np.random.Generator) -> SlurmBackfill:
    return SlurmBackfill(
        order=ShortestRequest() if rng.random() < 0.3 else Easy().order,
        bf_interval_s=float(rng.choice([0, 11, 30])),
        bf_resolution_s=float(rng.choice([0, 7, 60])),
        bf_max_job_test=int(rng.choice([1, 3, 500])),
        bf_window_s=float(rng.choice([0, 200, 86_400])),
    )


def run(made: Setting, policy: SlurmBackfill) -> Record:
    record = Record(made)
    rules = rules_for(policy, made, record, Terms(), 0)
    assert isinstance(rules, NodeQueueRules)
    run_rules(rules)
    return record


def test_a_whole_run_decides_as_the_scheduler_does_through_a_view() -> None:
    rng = np.random.default_rng(4)
    for _ in range(max(CASES // 4, 20)):
        made, policy = drawn_site(rng), drawn_policy(rng)
        whole = run(made, policy)
        viewed = Record(made)
        scheduler = policy.build(rng)
        run_rules(AllocatorRules(made, viewed, policy, scheduler, Terms()))
        assert whole.end_s.tolist() == viewed.end_s.tolist(), (made, policy)
        assert made.jobs.labels is not None
        if not made.jobs.labels.exclusive.any():
            assert nodes(made, whole) == nodes(made, viewed)


def nodes(made: Setting, record: Record) -> dict[tuple[int, float], list[int]]:
    """The node of each GPU of each stretch; which GPUs of a node these are does not matter."""
    node_of = np.repeat(np.arange(made.cluster.nodes), made.cluster.node_gpus())
    return {
        key: sorted(int(node_of[gpu]) for first, count in runs for gpu in range(first, first + count))
        for key, runs in record.places.items()
    }


def test_an_instant_at_a_time_or_in_one_go_is_the_same_run() -> None:
    rng = np.random.default_rng(6)
    for _ in range(20):
        made, policy = drawn_site(rng), drawn_policy(rng)
        at_once, stepwise = run(made, policy), Record(made)
        run_rules(NodeQueueRules(made, stepwise, policy.terms(), policy.order), [lambda now_s: None])
        assert at_once.end_s.tolist() == stepwise.end_s.tolist()
        assert at_once.places == stepwise.places


def test_jobs_are_where_they_may_be_and_no_node_has_more_than_its_gpus() -> None:
    rng = np.random.default_rng(7)
    for _ in range(max(CASES // 4, 40)):
        made, policy = drawn_site(rng), drawn_policy(rng)
        record, labels = run(made, policy), made.jobs.labels
        assert labels is not None
        size = made.cluster.node_gpus()
        node_of = np.repeat(np.arange(len(size)), size)
        taken = np.zeros((len(made.jobs), len(size)), np.int64)
        for (row, _), runs in record.places.items():
            mine = np.concatenate([np.arange(first, first + count) for first, count in runs])
            taken[row] = np.bincount(node_of[mine], minlength=len(size))
            on = np.flatnonzero(taken[row])
            assert len(on) == labels.nodes[row]
            assert set(on.tolist()) <= set(
                made.cluster.partitions.get(labels.partition[row], range(len(size)))
            )
            assert taken[row].sum() == (size[on].sum() if labels.exclusive[row] else made.jobs.gpus[row])
        for at_s in np.unique(record.first_start_s).tolist():
            running = (record.first_start_s <= at_s) & (at_s < record.end_s)
            assert (taken[running].sum(axis=0) <= size).all()


def test_announced_maintenance_is_nobodys_time() -> None:
    """Two nodes; the second is out from 100 to 200, the first is the only one for whoever would run into it."""
    made = setting([0, 1, 2], [2, 2, 2], [90, 90, 30], [90, 120, 30], 2)
    made = replace(made, cluster=Cluster.uniform(1, 2, 2), maintenance=(Window(100, 200, 2, 0, nodes=(1,)),))
    assert starts(made, SlurmBackfill(bf_interval_s=0, bf_resolution_s=0)) == [0, 90, 2]


def test_shares_count_again_every_few_minutes() -> None:
    """One GPU; ann has used it for ever, so bob's last job passes hers, which came first."""
    made = setting([0, 1, 2, 3], [1, 1, 1, 1], [1000, 1000, 10, 10], [1000] * 4, 1)
    made = replace(made, jobs=replace(made.jobs, user=("ann", "ann", "ann", "bob")))
    fair = Multifactor(weights=Weights(fairshare=1000), half_life_s=0)
    assert starts(made, SlurmBackfill(order=fair)) == [1, 1013, 2014, 1002]
    slow = fair.with_(count_s=10_000.0)
    assert starts(made, SlurmBackfill(order=slow)) == [1, 1002, 2003, 2014]


def test_shares_count_at_multiples_of_their_period() -> None:
    """One GPU. At second 300 bob has used less than ann, when her next job and his may start he has used more."""
    made = setting([0, 1, 2, 3, 4], [1] * 5, [276, 12, 20, 10, 10], [1000] * 5, 1)
    made = replace(made, jobs=replace(made.jobs, user=("cat", "ann", "bob", "ann", "bob")))
    fair = SlurmBackfill(order=Multifactor(weights=Weights(fairshare=1000), half_life_s=0, count_s=300))
    of_ann, of_bob = starts(made, fair)[3:]
    assert of_bob < of_ann
    of_ann, of_bob = starts(replace(made, origin_s=289.0), fair)[3:]  # a multiple is at second 311
    assert of_ann < of_bob


def test_no_job_starts_into_maintenance_that_begins_behind_the_window_of_plans() -> None:
    """Two nodes; a job of three days may not start on the one that is out in two, nor another before it is over."""
    day_s = 86_400
    made = setting([0, 1], [2, 2], [10, 10], [3 * day_s, 3 * day_s], 2)
    cluster, out = Cluster.uniform(1, 2, 2), Window(2 * day_s, 2 * day_s + 100, 2, 0, nodes=(0,))
    made = replace(made, cluster=cluster, maintenance=(out,))
    assert starts(made, SlurmBackfill()) == [1, 12]
    made = replace(made, maintenance=(replace(out, gpus=4, nodes=(0, 1)),))
    assert min(starts(made, SlurmBackfill())) >= out.to_s


def test_a_run_ends_before_a_job_that_can_never_start() -> None:
    """It asks for a shape that no node has."""
    made = setting([0, 0], [3, 1], [10, 10], [10, 10], 2)
    made = replace(made, cluster=Cluster.uniform(1, 2, 2))
    labels = JobLabels.of(2, nodes=[1, 1])
    made = replace(made, jobs=replace(made.jobs, labels=labels))
    assert starts(made, SlurmBackfill()) == [-1, 1]
