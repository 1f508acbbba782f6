"""A policy that says on which nodes its jobs go: what it may say, what becomes of it, and how it is refused."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from forerun.cluster.engine.allocator import AllocatorRules, Terms
from forerun.cluster.engine.record import Record
from forerun.cluster.engine.run import run_rules
from forerun.cluster.inputs.arrays import Cluster, Jobs, NodeGroup, ThroughputTable
from forerun.cluster.inputs.setting import Setting
from forerun.cluster.policy import Allocation, Allocator, View
from forerun.cluster.testing import Scene, SchedulerContract, Witness, drawn_world
from forerun.core.errors import PolicyError

from .test_allocators import PROFILE, cluster_of, jobs


def world_of(those: Jobs, cluster: Cluster, profile: ThroughputTable | None = None) -> Setting:
    return Setting(those, cluster, profile, 60)


class Spread(Allocator, tag="spread-in-a-test", frozen=True):
    """Every job over as many nodes as it can be, fullest nodes last; jobs that run stay where they are."""

    places = True

    def build(self, rng: np.random.Generator) -> Any:
        return self

    def allocate(self, view: View) -> Allocation:
        free = view.node_free.copy()
        given: dict[int, Any] = {}
        for at in np.argsort(view.held == 0, kind="stable").tolist():
            if view.held[at]:
                given[int(view.job[at])] = view.on_nodes(at)
                continue
            nodes: dict[int, int] = {}
            room = np.where(view.node_type == view.node_type[int(np.argmax(free))], free, 0)
            if room.sum() < view.gpus[at]:
                continue
            for _ in range(int(view.gpus[at])):
                node = int(np.argmax(room))
                room[node] -= 1
                free[node] -= 1
                nodes[node] = nodes.get(node, 0) + 1
            given[int(view.job[at])] = nodes
        return view.give(given)


class TestSpread(SchedulerContract):
    """The laws that every policy must hold to, for one that names nodes."""

    policy = Spread()


def played(answer: Any, setting: Any, terms: Terms | None = None, *, places: bool = True) -> Record:
    """A run under `answer(view)`, watched by a witness of all laws."""

    class Asked(Allocator, tag="asked-for-nodes", frozen=True):
        """Asks the test."""

        def build(self, rng: np.random.Generator) -> Any:
            return self

        def allocate(self, view: View) -> Allocation:
            return answer(view)

    Asked.places = places
    terms = terms or Terms()
    record = Record(setting)
    rules = AllocatorRules(setting, record, Asked(), Asked().build(np.random.default_rng(0)), terms)
    witness = Witness(Scene(0, setting, rules.terms), rules, record)
    run_rules(rules, [lambda now_s: witness.instant(now_s, record)])
    witness.close()
    return record


def test_jobs_sit_where_they_were_put() -> None:
    """Two jobs of four on two nodes of four: crosswise by name, though each would fit on one."""
    setting = world_of(jobs([0, 0], [100, 100], [4, 4]), cluster_of(2, 4))
    record = played(
        lambda view: view.give({int(job): {0: 2, 1: 2} for job in view.job}),
        setting,
        Terms(placement="first-fit"),
    )
    assert record.end_s.tolist() == [100.0, 100.0]
    assert record.places[0, 0.0] == [(0, 2), (4, 2)] and record.places[1, 0.0] == [(2, 2), (6, 2)]


def test_nodes_cost_what_the_profile_says_of_spreading() -> None:
    """Half speed on two nodes."""
    setting = world_of(jobs([0], [100], [4]), cluster_of(2, 4))
    terms = Terms(penalty=(1.0, 1.0, 0.5))
    assert played(lambda view: view.give({0: {0: 2, 1: 2}}), setting, terms).end_s.tolist() == [200.0]
    assert played(lambda view: view.give({0: {1: 4}}), setting, terms).end_s.tolist() == [100.0]


def test_moving_is_charged_and_staying_is_not() -> None:
    """At 50 s a job comes; the first one moves to the other node, for the seconds of a restart."""
    setting = world_of(jobs([0, 50], [100, 10], [2, 1]), cluster_of(2, 4))
    terms = Terms(restart_s=7.0)

    def moves(view: View) -> Allocation:
        node = 0 if view.now_s < 50 else 1
        return view.give({0: {node: 2}, **({1: 1} if 1 in view.job else {})})

    record = played(moves, setting, terms)
    assert record.end_s.tolist() == [107.0, 60.0]
    assert record.places[0, 50.0] == [(4, 2)] and record.places[1, 50.0] == [(0, 1)]
    stays = played(
        lambda view: view.give({int(job): {0: int(gpus)} for job, gpus in zip(view.job, view.gpus)}),
        setting,
        terms,
    )
    assert stays.end_s.tolist() == [100.0, 60.0]


def test_jobs_without_names_go_where_the_placement_says_after_those_with() -> None:
    setting = world_of(jobs([0, 0, 0], [100, 100, 100], [2, 2, 4]), cluster_of(2, 4))
    record = played(lambda view: view.give({0: 2, 1: {0: 2}, 2: {1: 4}} if view.count == 3 else {}), setting)
    assert [record.places[row, 0.0] for row in range(3)] == [[(2, 2)], [(0, 2)], [(4, 4)]]


def test_two_jobs_can_swap_nodes() -> None:
    setting = world_of(jobs([0, 0, 30], [100, 100, 10], [4, 4, 1]), cluster_of(3, 4))
    at = lambda view, node, other: {0: {node: 4}, 1: {other: 4}, **({2: {2: 1}} if 2 in view.job else {})}  # noqa: E731

    def swaps(view: View) -> Allocation:
        wanted = at(view, 1, 0) if view.now_s >= 30 else at(view, 0, 1)
        return view.give({job: nodes for job, nodes in wanted.items() if job in view.job})

    record = played(swaps, setting)
    assert record.places[0, 30.0] == [(4, 4)] and record.places[1, 30.0] == [(0, 4)]


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({0: {2: 2}}, "job 0: was given GPUs of node 2; nodes are numbered 0 to 1"),
        ({0: {-1: 2}}, "job 0: was given GPUs of node -1; nodes are numbered 0 to 1"),
        ({0: {"a": 2}}, "job 0: was given GPUs of node a; nodes are numbered 0 to 1"),
        ({0: {0: 5}}, "job 0: was given 5 GPUs of node 0, which has 4"),
        (
            {0: {0: 2}, 1: {0: 4}},
            "job 1: was given 4 GPUs of node 0, which has 4 and 2 left beside those that others keep",
        ),
        ({0: {0: -1, 1: 3}}, "job 0: was given -1 GPUs of node 0; a count is expected"),
        ({0: {0: 1, 1: 0.5}}, "job 0: was given 0.5 GPUs of node 1"),
        ({0: {0: 2, 1: 1}}, "job 0: was given 3 GPUs of the cluster, a count it cannot run on"),
    ],
)
def test_nodes_that_cannot_be_end_the_run_by_name(given: Any, said: str) -> None:
    setting = world_of(jobs([0, 0], [100, 100], [2, 4], kind=[0, 0]), cluster_of(2, 4), PROFILE)
    with pytest.raises(PolicyError) as found:
        played(lambda view: view.give(given), setting)
    assert "t=0 s" in str(found.value) and said in str(found.value)


def test_a_node_that_others_keep_is_not_free() -> None:
    setting = world_of(jobs([0, 10], [100, 100], [2, 4]), cluster_of(2, 4))

    def crowds(view: View) -> Allocation:
        return view.give({0: 2, 1: {0: 4}} if view.now_s >= 10 else {0: {0: 2}})

    with pytest.raises(
        PolicyError, match="t=10 s, job 1: was given 4 GPUs of node 0, which has 4 and 2 left"
    ):
        played(crowds, setting)


@pytest.mark.parametrize(
    ("answer", "said"),
    [
        (
            lambda view: Allocation(np.array([2, 0]), nodes={0: {0: 1}}),
            "job 0: was given 2 GPUs, but 1 on its nodes",
        ),
        (
            lambda view: Allocation(np.array([2, 0]), nodes={5: {0: 2}}),
            "nodes are named for position 5; the view has 2",
        ),
        (
            lambda view: Allocation(np.array([2, 0]), nodes={0: [0, 0]}),
            "no mapping of positions to {node: GPUs}",
        ),
        (lambda view: Allocation(np.array([2, 0]), nodes=[1]), "no mapping of positions to {node: GPUs}"),
    ],
)
def test_names_that_do_not_fit_the_counts(answer: Any, said: str) -> None:
    with pytest.raises(PolicyError) as found:
        played(answer, world_of(jobs([0, 0], [100, 100], [2, 4]), cluster_of(2, 4)))
    assert said in str(found.value)


def test_a_policy_that_names_untracked_nodes_is_an_error_with_a_hint() -> None:
    setting = world_of(jobs([0], [100], [2]), cluster_of(2, 4))
    with pytest.raises(PolicyError, match="set `places = True` in its class, or a placement in the scenario"):
        played(lambda view: view.give({0: {0: 2}}), setting, places=False)


def test_nodes_of_two_types_do_not_mix_and_set_the_type() -> None:
    from dataclasses import replace

    made = next(s for s in (drawn_world(n) for n in range(50)) if s.setting.profiles)
    setting = replace(
        made.setting,
        jobs=made.setting.jobs.take(
            [int(np.argmax((made.setting.jobs.kind >= 0) & (made.setting.jobs.gpus == 2)))]
        ),
        cluster=Cluster((NodeGroup("x", 1, 4, "slow"), NodeGroup("y", 1, 4, "fast"))),
    )
    with pytest.raises(PolicyError, match="was given nodes 0, 1, of several GPU types"):
        played(lambda view: view.give({0: {0: 1, 1: 1}}), setting)
    ends = [played(lambda view, node=node: view.give({0: {node: 2}}), setting).end_s[0] for node in (0, 1)]
    submit_s = setting.jobs.submit_s[0]
    assert (ends[0] - submit_s) / (ends[1] - submit_s) == pytest.approx(2.5)
