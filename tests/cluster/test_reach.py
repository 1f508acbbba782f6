"""Which nodes jobs may use and how they spread: against all sets of nodes, and with what no node has left out."""

from __future__ import annotations

import random
from itertools import combinations

import numpy as np
import pytest

from forerun.cluster.inputs.arrays import Cluster, JobLabels, Jobs, NodeGroup
from forerun.cluster.inputs.reach import WHOLE_NODE, as_far_as_known, reach_of

from ..conftest import cases


@pytest.mark.parametrize("seed", range(cases(20)))
def test_a_job_without_a_shape_takes_the_fewest_nodes_that_do(seed: int) -> None:
    rng = random.Random(seed)
    size = [rng.choice([1, 2, 4, 8]) for _ in range(rng.randint(1, 6))]
    gpus = rng.randint(1, sum(size))
    cluster = Cluster(tuple(NodeGroup(f"n{at}", 1, each) for at, each in enumerate(size)))
    reach = reach_of(Jobs.of([0], [gpus], [1]), cluster)
    does = [
        count
        for count in range(1, len(size) + 1)
        if any(min(some) >= -(-gpus // count) for some in combinations(size, count))
    ]
    if does:
        assert (reach.count[0], reach.each[0]) == (does[0], -(-gpus // does[0]))
    else:  # it never fits with as many on each
        assert reach.count[0] == -(-gpus // max(size))


def test_what_no_node_has_is_left_out_and_counted() -> None:
    cluster = Cluster(
        (NodeGroup("a", 2, 4, "a100"), NodeGroup("v", 1, 8, "v100")),
        partitions={"a": (0, 1), "all": (0, 1, 2)},
    )
    labels = JobLabels.of(
        6,
        partition=["a", "a", "all", "all", "gone", "a,all"],
        gpu_type=["A100", "v100", "v100", "h100", "v100", "v100"],
        nodes=[2, 1, 2, 3, 1, 1],
        exclusive=[False, False, False, True, False, False],
    )
    jobs, notes = as_far_as_known(Jobs.of([0] * 6, [8, 4, 8, 3, 8, 8], [1] * 6, labels=labels), cluster, str)
    assert jobs.labels is not None
    assert jobs.labels.gpu_type == ("A100", "", "v100", "", "v100", "v100")
    assert jobs.labels.nodes.tolist() == [2, 1, 0, 3, 1, 1]
    reach = reach_of(jobs, cluster)
    assert [np.flatnonzero(reach.nodes[kind]).tolist() for kind in reach.kind.tolist()] == [
        [0, 1], [0, 1], [2], [0, 1, 2], [2], [2],
    ]  # fmt: skip
    assert reach.each.tolist() == [4, 4, 8, WHOLE_NODE, 8, 8]
    assert notes == (
        "1: GPU type 'v100' is on no node that the job may use; 2 jobs that ask for 'h100', 'v100' take any type",
        "2: asks for 2 nodes, with 4 GPUs each, which are not among those that it may use; jobs of such shapes take as few "
        "nodes as they can: 1",
    )
    assert as_far_as_known(jobs, cluster, str, shaped=False)[1] == ()


def test_nodes_of_an_unknown_type_are_of_any() -> None:
    cluster = Cluster((NodeGroup("a", 1, 4),))
    jobs = Jobs.of([0], [4], [1], labels=JobLabels.of(1, gpu_type=["a100"]))
    assert as_far_as_known(jobs, cluster, str) == (jobs, ())
