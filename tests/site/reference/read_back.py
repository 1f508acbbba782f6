"""A site's files as the product reads them, for the reference scheduler: what is lost on the way is lost by a reader."""

from __future__ import annotations

from pathlib import Path

import forerun
from forerun.cluster.inputs.arrays import JobLabels
from forerun.cluster.inputs.limits import UNLIMITED
from forerun.cluster.inputs.prepare import Inputs, prepare, site_of
from forerun.cluster.inputs.reach import reach_of
from forerun.cluster.inputs.slurm_conf import read_slurm_nodes
from forerun.cluster.policies.backfilling.base import BackfillPolicy
from forerun.cluster.policies.orders import multifactor
from forerun.cluster.policies.orders.multifactor import Multifactor
from forerun.cluster.scenario import Scenario

from .scheduler import (
    FOREVER_S,
    Account,
    Failure,
    Job,
    Limit,
    Maintenance,
    Node,
    Partition,
    Priorities,
    World,
)  # fmt: skip


def read_back(scenario_file: Path) -> World:
    """The world of a scenario of a Slurm site under a multifactor order, as far as the product reads it."""
    scenario = forerun.load(scenario_file)
    assert isinstance(scenario, Scenario)
    inputs = prepare(scenario)
    cluster, jobs = inputs.setting.cluster, inputs.setting.jobs
    names = list(read_slurm_nodes(scenario_file.parent / "slurm.conf")[1])
    labels = jobs.labels or JobLabels.of(len(jobs))
    reach = reach_of(jobs, cluster)
    order = _order(inputs)
    every = {name: tuple(names[node] for node in nodes) for name, nodes in cluster.partitions.items()}
    ranks = {name: order.partitions.get(name, multifactor.Partition()) for name in every}
    origin_s = int(jobs.submit_s.min())
    made = [
        Job(
            str(jobs.id[row]), jobs.user[row], labels.account[row], labels.qos[row],
            tuple(labels.partition[row].split(",")), int(jobs.gpus[row]), int(jobs.submit_s[row]) - origin_s,
            int(jobs.duration_s[row]), int(jobs.requested_s[row]), int(reach.count[row]), labels.gpu_type[row],
            bool(labels.exclusive[row]), array=labels.array[row], array_limit=int(labels.array[row].partition("%")[2] or 0),
            cpus=int(labels.cpus[row]), cancel_s=int(jobs.leaves_s[row]) - origin_s if jobs.censored[row] else None,
        )
        for row in range(len(jobs))
    ]  # fmt: skip
    windows = inputs.setting.maintenance
    others, cpus = order.nodes - len(names), order.cpus - 16 * cluster.gpus
    known = [one for one in windows if one.announced_s < one.from_s]
    return World(
        tuple(
            Node(name, int(gpus), kind, 16 * int(gpus))
            for name, gpus, kind in zip(names, cluster.node_gpus().tolist(), cluster.node_types(), strict=True)
        ),
        tuple(Partition(name, nodes, ranks[name].tier, ranks[name].priority) for name, nodes in every.items()),
        tuple(made),
        _limits(inputs),
        tuple(
            Maintenance(
                f"away {at}", tuple(names[node] for node in one.nodes), int(one.from_s) - origin_s,
                int(one.to_s) - origin_s, int(max(one.announced_s - origin_s, 0)),
            )
            for at, one in enumerate(known)
        ),
        tuple(
            Failure(names[node], int(one.from_s) - origin_s, int(one.to_s) - origin_s)
            for one in windows
            if one not in known
            for node in one.nodes
        ),
        Priorities(
            *(int(getattr(order.weights, name)) for name in ("age", "fairshare", "job_size", "partition", "qos")),
            int(order.max_age_s), int(order.half_life_s), dict(order.qos),
            {
                name: Account(
                    int(one.shares), "" if one.parent == "root" else one.parent,
                    {user: int(shares) for user, shares in one.users.items()},
                )
                for name, one in order.accounts.items()
            },
        ),
        tuple(Node(f"other {at}", 0, "", cpus if at == 0 else 0) for at in range(others)),
    )  # fmt: skip


def _order(inputs: Inputs) -> Multifactor:
    assert isinstance(inputs.policy, BackfillPolicy) and isinstance(inputs.policy.order, Multifactor)
    return inputs.policy.order


def _limits(inputs: Inputs) -> tuple[Limit, ...]:
    """The limits that no nodes stand for."""
    from forerun.cluster.inputs.files import JobTable

    table = JobTable("", inputs.setting.jobs)
    rules = site_of(inputs.scenario, table, inputs.setting.cluster).rules
    return tuple(
        Limit(
            rule.name, rule.kind or rule.name, rule.rank, dict(rule.of), tuple(rule.per),
            FOREVER_S if rule.gpus >= UNLIMITED else rule.gpus, FOREVER_S if rule.jobs >= UNLIMITED else rule.jobs,
            rule.gpu_type,
        )
        for rule in rules
    )  # fmt: skip
