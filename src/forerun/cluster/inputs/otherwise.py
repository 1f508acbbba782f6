"""Nodes, quotas and limits of a site that are otherwise than its files say."""

from __future__ import annotations

from dataclasses import replace

from forerun.cluster.inputs.arrays import Cluster
from forerun.cluster.inputs.kueue import Queues, Quota
from forerun.cluster.inputs.site import Site
from forerun.cluster.scenario import Otherwise
from forerun.core.errors import ScenarioError, known_names


def with_other_nodes(cluster: Cluster, otherwise: Otherwise | None) -> Cluster:
    """The machines, with nodes moved between partitions first, and then with more of them.

    New nodes have the last numbers, so that the others keep theirs. Raises ScenarioError for a partition that there is not,
    and for nodes that it has not.
    """
    if otherwise is None or not (otherwise.more_nodes or otherwise.moved_nodes):
        return cluster
    partitions = {name: list(nodes) for name, nodes in cluster.partitions.items()}
    there = [name for name, nodes in partitions.items() if nodes]
    named = [*otherwise.moved_nodes, *(to for those in otherwise.moved_nodes.values() for to in those)]
    for key, names in (("moved_nodes", named), ("more_nodes", list(otherwise.more_nodes))):
        for name in names:
            if name not in there:
                what = f"no partition {name!r} has nodes; {known_names(name, there)}"
                raise ScenarioError.at(f"$.machines.otherwise.{key}", what)
    for name, targets in otherwise.moved_nodes.items():
        for to, count in targets.items():
            _move(partitions, name, to, count)
    groups, first = list(cluster.groups), cluster.nodes
    of_node = [group for group in cluster.groups for _ in range(group.count)]
    for name, count in otherwise.more_nodes.items():
        like = of_node[cluster.partitions[name][-1]]
        groups.append(replace(like, name=f"more of {name}", count=count, rack=like.rack or like.name))
        partitions[name] += range(first, first + count)
        first += count
    return replace(
        cluster,
        groups=tuple(groups),
        partitions={name: tuple(sorted(nodes)) for name, nodes in partitions.items()},
    )


def _move(partitions: dict[str, list[int]], name: str, to: str, count: int) -> None:
    """Move the last nodes of a partition that another has not, those first that no third one has."""
    others = {node for one, nodes in partitions.items() if one not in (name, to) for node in nodes}
    mine = [node for node in partitions[name] if node not in partitions[to]]
    if len(mine) < count:
        what = f"{name} has {len(mine)} nodes that {to} has not"
        raise ScenarioError.at(f"$.machines.otherwise.moved_nodes.{name}.{to}", what)
    for node in sorted(mine, key=lambda one: (one in others, -one))[:count]:
        partitions[name].remove(node)
        partitions[to].append(node)


def with_other_quotas(queues: Queues, otherwise: Otherwise | None) -> Queues:
    """The queues, with quotas moved between them first, and then with larger ones.

    Raises ScenarioError for a queue that there is not, and for GPUs that it has not.
    """
    if otherwise is None or not (otherwise.more_quota or otherwise.moved_quota):
        return queues
    quotas = {queue.name: {one.flavor: one for one in queue.quotas} for queue in queues.queues}
    moved = [(name, to, n) for name, those in otherwise.moved_quota.items() for to, n in those.items()]
    named = [("moved_quota", name) for name, to, _ in moved for name in (name, to)]
    for key, name in (*named, *(("more_quota", name) for name in otherwise.more_quota)):
        if name not in quotas:
            what = f"no ClusterQueue {name!r}; {known_names(name, quotas)}"
            raise ScenarioError.at(f"$.machines.otherwise.{key}", what)
    for name, to, gpus in moved:
        left = gpus
        for flavor in [one for one in quotas[name] if one in quotas[to]]:
            taken = min(left, quotas[name][flavor].nominal)
            for queue, more in ((name, -taken), (to, taken)):
                quotas[queue][flavor] = _larger(quotas[queue][flavor], more)
            left -= taken
        if left:
            what = f"{name} has {gpus - left} GPUs in flavors that {to} has, too"
            raise ScenarioError.at(f"$.machines.otherwise.moved_quota.{name}.{to}", what)
    for name, gpus in otherwise.more_quota.items():
        flavor = next(iter(quotas[name]))
        quotas[name][flavor] = _larger(quotas[name][flavor], gpus)
    made = (replace(queue, quotas=tuple(quotas[queue.name].values())) for queue in queues.queues)
    return replace(queues, queues=tuple(made))


def _larger(quota: Quota, gpus: int) -> Quota:
    """A quota of so many GPUs more; it lends all where it did, else no more than before."""
    nominal = quota.nominal + gpus
    lends = nominal if quota.lends == quota.nominal else min(quota.lends, nominal)
    return replace(quota, nominal=nominal, lends=lends)


def without_limits(site: Site, otherwise: Otherwise | None) -> Site:
    """The site without limits that do not hold. Raises ScenarioError for a name that no limit has."""
    if otherwise is None or not otherwise.without_limits:
        return site
    names = {rule.name for rule in site.rules}
    for name in otherwise.without_limits:
        if name not in names:
            raise ScenarioError.at(
                "$.machines.otherwise.without_limits", f"no limit {name!r}; {known_names(name, names)}"
            )
    return replace(site, rules=tuple(one for one in site.rules if one.name not in otherwise.without_limits))
