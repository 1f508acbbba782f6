"""Nodes, limits and quotas of a site that are otherwise than its files say."""

from __future__ import annotations

import pytest

from forerun.cluster.inputs.arrays import Cluster, NodeGroup
from forerun.cluster.inputs.kueue import ClusterQueue, Queues, Quota
from forerun.cluster.inputs.limits import LimitRule, QueueTerms
from forerun.cluster.inputs.otherwise import with_other_nodes, with_other_quotas, without_limits
from forerun.cluster.inputs.site import Site
from forerun.cluster.scenario import Otherwise
from forerun.core.errors import ScenarioError

CLUSTER = Cluster(
    (NodeGroup("a", 3, 4, "v100"), NodeGroup("b", 2, 8, "h100")),
    partitions={"gpu": (0, 1, 2), "big": (3, 4), "short": (2, 3), "cpu": ()},
)
SITE = Site((LimitRule("QOS a: MaxJobsPU", jobs=1), LimitRule("QOS b: GrpTRES", gpus=12)))


def test_a_node_more_is_like_the_last_one_and_the_others_keep_their_numbers() -> None:
    made = with_other_nodes(CLUSTER, Otherwise(more_nodes={"big": 2}))
    assert made.node_gpus().tolist() == [4, 4, 4, 8, 8, 8, 8]
    assert made.node_types()[-2:] == ("h100", "h100")
    assert made.partitions == {**CLUSTER.partitions, "big": (3, 4, 5, 6)}


def test_nodes_of_no_third_partition_move_first() -> None:
    made = with_other_nodes(CLUSTER, Otherwise(moved_nodes={"gpu": {"big": 1}}, more_nodes={"gpu": 1}))
    assert made.partitions == {"gpu": (0, 2, 5), "big": (1, 3, 4), "short": (2, 3), "cpu": ()}
    assert made.gpus == CLUSTER.gpus + 4
    assert with_other_nodes(CLUSTER, None) is CLUSTER


@pytest.mark.parametrize(
    ("otherwise", "says"),
    [
        (Otherwise(more_nodes={"gpus": 1}), "did you mean 'gpu'"),
        (Otherwise(more_nodes={"cpu": 1}), "no partition 'cpu' has nodes"),
        (Otherwise(moved_nodes={"gpu": {"bog": 1}}), "no partition 'bog'"),
        (Otherwise(moved_nodes={"gpu": {"short": 3}}), "gpu has 2 nodes that short has not"),
    ],
)
def test_what_there_is_not_is_named(otherwise: Otherwise, says: str) -> None:
    with pytest.raises(ScenarioError, match=says):
        with_other_nodes(CLUSTER, otherwise)


def test_a_limit_goes_by_its_name_and_a_partition_is_none() -> None:
    assert without_limits(SITE, Otherwise(without_limits=("QOS a: MaxJobsPU",))).rules == SITE.rules[1:]
    with pytest.raises(ScenarioError, match="no limit 'partition gpu'; known: QOS a: MaxJobsPU"):
        without_limits(SITE, Otherwise(without_limits=("partition gpu",)))


# -- quotas of Kueue -----------------------------------------------------------------------------------------------------


def queues(**quotas: dict[str, int]) -> Queues:
    return Queues(
        tuple(
            ClusterQueue(name, QueueTerms(), tuple(Quota(flavor, gpus, 0, gpus) for flavor, gpus in of.items()))
            for name, of in quotas.items()
        ),
        {}, (), {}, {},
    )  # fmt: skip


def nominal(of: Queues) -> dict[str, dict[str, int]]:
    return {queue.name: {one.flavor: one.nominal for one in queue.quotas} for queue in of.queues}


def test_quota_moves_in_flavors_that_both_have_and_then_grows_in_the_first() -> None:
    given = queues(a={"x": 4, "y": 8}, b={"y": 2, "z": 1})
    made = with_other_quotas(given, Otherwise(moved_quota={"a": {"b": 5}}, more_quota={"b": 3, "a": 1}))
    assert nominal(made) == {"a": {"x": 5, "y": 3}, "b": {"y": 10, "z": 1}}
    assert all(one.lends == one.nominal for queue in made.queues for one in queue.quotas), (
        "it lends all, as before"
    )
    assert with_other_quotas(given, Otherwise()) is given


def test_quotas_that_there_are_not_are_named() -> None:
    given = queues(a={"x": 4}, b={"x": 2})
    for otherwise, says in (
        (Otherwise(more_quota={"c": 1}), "no ClusterQueue 'c'; known: a, b"),
        (Otherwise(moved_quota={"a": {"c": 1}}), "moved_quota: no ClusterQueue 'c'"),
        (Otherwise(moved_quota={"b": {"a": 3}}), "b has 2 GPUs in flavors that a has, too"),
    ):
        with pytest.raises(ScenarioError, match=says):
            with_other_quotas(given, otherwise)
