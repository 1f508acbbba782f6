"""The queue on named nodes: whole runs beside a slow reference, and states that it is set to."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from forerun.cluster.engine.allocator import AllocatorRules, Terms
from forerun.cluster.engine.kernels import node_profile as pf
from forerun.cluster.engine.kernels import node_promises as pr
from forerun.cluster.engine.node_queue import NodeQueueRules
from forerun.cluster.engine.record import Record
from forerun.cluster.engine.run import rules_for, run_rules
from forerun.cluster.inputs.arrays import NEVER_S, Cluster, JobLabels, Jobs
from forerun.cluster.inputs.setting import Setting
from forerun.cluster.policies.backfilling.base import BackfillPolicy
from forerun.cluster.policies.conservative import Conservative
from forerun.cluster.policies.easy import Easy
from forerun.cluster.policies.first_fit import FirstFit
from forerun.cluster.policies.orders.fcfs import Fcfs
from forerun.cluster.policies.orders.sjf import ShortestRequest
from forerun.cluster.policies.orders.wfp3 import Wfp3

from ..conftest import cases
from .backfill_reference import Reference
from .test_reach_of_policies import check, site, taken

CASES = cases(0)


def test_the_profile_of_free_gpus() -> None:
    profile = pf.Profile(
        np.zeros(1, np.int64), np.zeros(9), *np.zeros((2, 9), np.int64), np.zeros(2, np.int64)
    )
    pf.start_over(profile, np.array([4]))
    pf.take(profile, 0, 10.0, 50.0, 3)
    pf.take(profile, 0, 30.0, 40.0, 1)
    assert pf.least(profile, 0, 10.0, 30.0) == 1 and pf.least(profile, 0, 10.0, 31.0) == 0
    assert pf.earliest(profile, 0, 10.0, 20.0, 1) == 10.0, "a hole as long as the request"
    assert pf.earliest(profile, 0, 10.0, 21.0, 1) == 40.0
    assert pf.earliest(profile, 0, 10.0, 1.0, 4) == 50.0
    assert pf.earliest(profile, 0, 10.0, 1.0, 5) == np.inf
    assert pf.next_rise(profile, 0, 10.0) == 40.0
    pf.take(profile, 0, 30.0, 40.0, -1)
    pf.take(profile, 0, 10.0, 50.0, -3)
    assert profile.after[profile.head[0]] == pf.NONE, "what is given back leaves no step"


EASY_AND_KIN = (
    FirstFit(),
    Easy(),
    Easy(promises=2),
    Easy(promises=3, examined=4),
    Conservative(),
    Conservative(examined=2),
)
ORDERS = (Fcfs(), ShortestRequest(), Wfp3())


def drawn_case(draw: np.random.Generator) -> tuple[Setting, BackfillPolicy, str]:
    policy = EASY_AND_KIN[draw.integers(len(EASY_AND_KIN))].with_(order=ORDERS[draw.integers(len(ORDERS))])
    made = site(draw, late=bool(draw.random() < 0.7))
    if draw.random() < 0.3:
        jobs = made.jobs
        leaves_s = jobs.submit_s + draw.choice([0, 30, 200, NEVER_S // 2], len(jobs))
        made = replace(
            made, jobs=replace(jobs, leaves_s=np.where(leaves_s > NEVER_S // 2, NEVER_S, leaves_s))
        )
    return made, policy, str(draw.choice(["first-fit", "best-fit"]))


def seats(record: Record, made: Setting) -> dict[int, list[tuple[int, int]]]:
    """GPUs by node of each job."""
    return {
        row: [(node, int(on[node])) for node in np.flatnonzero(on).tolist()]
        for row, _, on in taken(made, record)
    }


def test_whole_runs_are_those_of_the_slow_reference_and_of_decisions_through_a_view() -> None:
    draw = np.random.default_rng(10)
    for number in range(max(CASES, 60)):
        made, policy, placement = drawn_case(draw)
        record = Record(made)
        rules = rules_for(policy, made, record, Terms(placement=placement), 0)
        assert isinstance(rules, NodeQueueRules)
        run_rules(rules)
        check(made, policy, record)
        slow = Reference(made, policy, placement).run()
        about = (number, policy, placement)
        start_s = np.where(record.first_start_s < 0, np.inf, record.first_start_s)
        assert start_s.tolist() == slow.start_s, about
        assert seats(record, made) == {row: sorted(on) for row, on in enumerate(slow.on) if on}, about
        types = np.array(made.cluster.node_types())
        if number % 4 == 0 and all(len(set(types[list(dict(on))])) < 2 for on in slow.on):
            # a view has all GPUs of a job on one type
            viewed = Record(made)
            run_rules(AllocatorRules(made, viewed, policy, policy.build(draw), Terms(placement=placement)))
            assert record.first_start_s.tolist() == viewed.first_start_s.tolist(), about
            assert record.places == viewed.places, about


def test_an_instant_at_a_time_or_in_one_go_is_the_same_run() -> None:
    draw = np.random.default_rng(11)
    for _ in range(15):
        made, policy, placement = drawn_case(draw)
        one, other = Record(made), Record(made)
        run_rules(rules_for(policy, made, one, Terms(placement=placement), 0))
        run_rules(rules_for(policy, made, other, Terms(placement=placement), 0), [lambda now_s: None])
        assert one.end_s.tolist() == other.end_s.tolist() and one.places == other.places


def test_a_job_that_outlives_its_request_by_far_takes_no_more_steps() -> None:
    """At each arrival it is believed to go on for a second, long after it was believed to have ended."""
    count = 200
    jobs = Jobs.of(10 * np.arange(count), 1, [10_000] + [1] * (count - 1), requested_s=[1] * count)
    made = Setting(jobs, Cluster.uniform(1, 1, 2), None, 60)
    for policy in (Easy(grace_s=1.0), Conservative(grace_s=1.0)):
        rules = rules_for(policy, made, Record(made), Terms(placement="first-fit"), 0)
        assert isinstance(rules, NodeQueueRules)
        run_rules(rules)
        profile = rules.queue.promises.profile
        assert profile.meta[pf.USED] <= len(profile.time)


def test_promises_of_whole_nodes_have_entries_for_all_of_their_gpus() -> None:
    """Each GPU is a unit of its own under the buddy placement; an exclusive job takes more of them than it asks for."""
    labels = JobLabels.of(4, nodes=[1, 1, 1, 1], exclusive=[True] * 4)
    jobs = Jobs.of(range(4), 1, 100, requested_s=[100] * 4, labels=labels)
    made = Setting(jobs, Cluster.uniform(1, 1, 8), None, 60)
    for policy in (Easy(), Conservative()):
        rules = rules_for(policy, made, Record(made), Terms(placement="buddy"), 0)
        assert isinstance(rules, NodeQueueRules)
        run_rules(rules)
        promises = rules.queue.promises
        assert promises.meta[pr.USED] <= len(promises.unit)
