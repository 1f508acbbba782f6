"""Every policy that decides through a view, with every placement, on sites whose partitions share nodes: laws of runs."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import numpy as np
import pytest

from forerun.cluster.engine.allocator import PLACEMENTS, Terms
from forerun.cluster.engine.record import Record
from forerun.cluster.engine.run import rules_for, run_rules
from forerun.cluster.inputs.arrays import Cluster, JobLabels, Jobs, NodeGroup
from forerun.cluster.inputs.limits import LIMIT_COLUMNS, LimitRule, resolved
from forerun.cluster.inputs.reach import WHOLE_NODE, reach_of
from forerun.cluster.inputs.setting import Setting, Window
from forerun.cluster.policies.backfilling.base import BackfillPolicy
from forerun.cluster.policies.slurm_backfill import SlurmBackfill
from forerun.cluster.policy import Allocator, Policy, PriorityPolicy, schedulers

from ..conftest import cases

WORLDS = max(1, cases(0) // 20)
NAMES = tuple(name for name in schedulers().names() if issubclass(schedulers().get(name), Allocator))


def site(draw: np.random.Generator, most: int = 25, *, late: bool = True) -> Setting:
    """Up to so many jobs on two types of nodes, in partitions that share nodes; some ask for a type, a shape, or both."""
    groups = (
        NodeGroup("a", int(draw.integers(1, 4)), int(draw.choice([2, 4])), "V100"),
        NodeGroup("b", int(draw.integers(1, 4)), 4, "H100"),
    )
    cluster = Cluster(groups)
    nodes, size, types = cluster.nodes, cluster.node_gpus(), np.array(cluster.node_types())
    names = ("p", "q", "r")[: int(draw.integers(1, 4))]
    partitions = {name: tuple(np.flatnonzero(draw.random(nodes) < 0.6).tolist()) or (0,) for name in names}
    cluster = replace(cluster, partitions=partitions)
    count = int(draw.integers(1, most))
    of, asked, said, gpus = list[str](), list[str](), np.zeros((2, count), np.int64), None
    said, gpus = said
    for job in range(count):
        of.append(",".join(draw.permutation(names)[: int(draw.choice([1, 1, 1, 2]))].tolist()))
        mine = np.array(partitions[of[-1].split(",")[0]])
        wanted = str(draw.choice(types[mine]))
        mine = mine[types[mine] == wanted]
        asked.append(wanted if draw.random() < 0.4 else "")
        said[job] = draw.integers(1, len(mine) + 1) if draw.random() < 0.6 else 0
        gpus[job] = (said[job] or 1) * draw.integers(1, size[mine].min() + 1)
    work_s = draw.integers(1, 400, count)
    factor = draw.choice([0.5, 1.0, 2.0, 8.0] if late else [1.0, 1.0, 2.0, 4.0], count)
    labels = JobLabels.of(
        count, partition=of, gpu_type=asked, nodes=said, exclusive=(said > 0) & (draw.random(count) < 0.2)
    )
    submit_s = np.sort(draw.integers(0, 900, count))
    jobs = Jobs.of(
        submit_s,
        gpus,
        work_s,
        requested_s=np.maximum(1, np.rint(work_s * factor)).astype(np.int64),
        deadline_s=submit_s + 3 * work_s,
        user=draw.choice(["ann", "bob", "eve"], count).tolist(),
        labels=labels,
    )
    windows = []
    for _ in range(int(draw.integers(0, 3))):
        from_s = float(draw.integers(100, 900))
        out = np.flatnonzero(draw.random(nodes) < 0.5)
        by_type = tuple(int(size[out[types[out] == name]].sum()) for name in ("V100", "H100"))
        told_s = from_s - float(draw.choice([0, 100, 1000]))
        if len(out):
            windows.append(
                Window(
                    from_s,
                    from_s + 150,
                    int(size[out].sum()),
                    told_s,
                    nodes=tuple(out.tolist()),
                    of_types=by_type,
                )
            )
    columns = {name: list(jobs.user) for name in LIMIT_COLUMNS} | {"partition": of}
    rule = LimitRule("per user", per=("user",), jobs=int(draw.integers(2, 6)))
    limits = resolved([rule], {}, columns, ("V100", "H100")) if draw.random() < 0.5 else None
    return Setting(jobs, cluster, None, 60, maintenance=tuple(windows), limits=limits)


def taken(made: Setting, record: Record) -> Iterator[tuple[int, float, np.ndarray]]:
    """(job, instant, GPUs by node) of every start."""
    size = made.cluster.node_gpus()
    node_of = np.repeat(np.arange(len(size)), size)
    for (row, at_s), runs in record.places.items():
        mine = np.concatenate([np.arange(first, first + count) for first, count in runs])
        yield row, at_s, np.bincount(node_of[mine], minlength=len(size))


def check(made: Setting, policy: Policy, record: Record) -> None:
    """Nobody is outside its nodes or in another shape, and no node has more than its GPUs."""
    size, types, reach = (
        made.cluster.node_gpus(),
        np.array(made.cluster.node_types()),
        reach_of(made.jobs, made.cluster),
    )
    starts = list(taken(made, record))
    for row, _, on in starts:
        there = np.flatnonzero(on)
        assert reach.nodes[reach.kind[row], there].all(), f"job {row} on {there}"
        assert len(set(types[there])) == 1 or isinstance(policy, BackfillPolicy), "which asks for no type"
        if reach.said[row]:
            assert len(there) == reach.said[row]
        whole = reach.each[row] == WHOLE_NODE
        assert on.sum() == (size[there].sum() if whole else made.jobs.gpus[row])
    if len({row for row, _, _ in starts}) < len(starts):
        return  # jobs have several stretches
    for at_s in np.unique([at_s for _, at_s, _ in starts]).tolist():
        there = [on for row, from_s, on in starts if from_s <= at_s < record.end_s[row]]
        assert (np.sum(there, axis=0) <= size).all(), f"t={at_s:g} s"
    if isinstance(policy, BackfillPolicy):
        for row, at_s, on in starts:
            for window in made.maintenance:
                by_s = 60.0 if isinstance(policy, SlurmBackfill) else 0.0  # to which its plan rounds
                inside = at_s < window.to_s and at_s + made.jobs.requested_s[row] > window.from_s + by_s
                if window.announced_s <= at_s and inside:
                    assert not on[list(window.nodes)].any(), f"job {row} runs into maintenance"


@pytest.mark.parametrize("placement", PLACEMENTS)
@pytest.mark.parametrize("name", NAMES)
def test_jobs_are_where_they_may_be(name: str, placement: str) -> None:
    draw = np.random.default_rng([7, NAMES.index(name), PLACEMENTS.index(placement)])
    policy = schedulers().get(name)()
    for _ in range(WORLDS):
        made = site(draw)
        if not isinstance(policy, BackfillPolicy):
            made = replace(made, maintenance=())
        record = Record(made)
        run_rules(rules_for(policy, made, record, Terms(placement=placement), 0))
        check(made, policy, record)
        if policy.keeps_requests:
            assert (record.end_s >= 0).all(), record.ended_because


@pytest.mark.parametrize("placement", PLACEMENTS)
@pytest.mark.parametrize("name", ["fifo", "sjf"])
def test_the_order_holds_within_a_partition(name: str, placement: str) -> None:
    """Whom no limit keeps waiting is not passed by a later one of its partition."""
    draw = np.random.default_rng([8, PLACEMENTS.index(placement)])
    policy = schedulers().get(name)()
    assert isinstance(policy, PriorityPolicy)
    for _ in range(10 * WORLDS):
        made = replace(site(draw), limits=None, maintenance=())
        record = Record(made)
        run_rules(rules_for(policy, made, record, Terms(placement=placement), 0))
        jobs = made.jobs
        key = jobs.submit_s if name == "fifo" else jobs.duration_s
        assert jobs.labels is not None
        for one in range(len(jobs)):
            for other in range(len(jobs)):
                if jobs.labels.partition[one] == jobs.labels.partition[other] and (key[one], one) < (
                    key[other],
                    other,
                ):
                    passed = jobs.submit_s[one] <= record.first_start_s[other] < record.first_start_s[one]
                    assert not passed, f"job {other} passes {one}"
