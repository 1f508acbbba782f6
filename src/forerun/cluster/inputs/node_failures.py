"""Nodes that fail at random: how often, by a log or as given, and when each does and is back."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from forerun.cluster.inputs.arrays import Cluster
from forerun.cluster.inputs.files import JobTable
from forerun.cluster.inputs.site import Outage, Site
from forerun.cluster.scenario import Failures
from forerun.core.errors import ScenarioError
from forerun.core.rng import stream

#: runs that a failure ended so close to each other were on one node
_AT_ONCE_S = 60.0


def with_drawn_failures(site: Site, given: Failures, table: JobTable, cluster: Cluster, seed: int) -> Site:
    """The site with failures that are drawn, in place of those that its files show; its maintenance stays.

    Raises ScenarioError where neither the scenario nor the log says how often nodes fail.

    Parameters
    ----------
    site : what its files say.
    given : how often nodes fail, and for how long.
    table, cluster : the log, until whose last submission nodes fail, and the nodes.
    seed : of the scenario; each node has a stream of its own.
    """
    origin_s, until_s = table.origin_s or 0.0, float(table.jobs.submit_s.max(initial=0))
    mtbf_s = given.node_mtbf_s or own_mtbf_s(site, table, cluster)
    size = cluster.node_gpus().tolist()
    outages, failures = (
        [one for one in site.outages if one.announced_s == -np.inf],
        dict[float, tuple[int, ...]](),
    )
    for node, gpus in enumerate(size):
        rng, at_s = stream(seed, "node failures", node), 0.0
        while (at_s := at_s + float(rng.exponential(mtbf_s))) <= until_s:
            begin_s, back_s = origin_s + at_s, at_s + float(rng.exponential(given.repair_s))
            failures[begin_s] = (*failures.get(begin_s, ()), node)
            outages.append(Outage("node failure", begin_s, origin_s + back_s, gpus, (node,), begin_s))
            at_s = back_s
    return replace(site, outages=tuple(outages), failures={at_s: failures[at_s] for at_s in sorted(failures)})


def own_mtbf_s(site: Site, table: JobTable, cluster: Cluster) -> float:
    """The time between failures of a node by what its files show, else by the runs that failures ended."""
    span_s, recorded = float(np.ptp(table.jobs.submit_s)), table.recorded
    count = sum(map(len, site.failures.values()))
    if not count and recorded is not None:
        failed = [text.startswith("NODE_FAIL") for text in recorded.jobs.state]
        ends_s = np.sort(recorded.jobs.end_s[failed])
        count = int(np.count_nonzero(np.diff(ends_s, prepend=-np.inf) > _AT_ONCE_S))
    if not count or not span_s:
        raise ScenarioError.at(
            "$.failures.node_mtbf_s", f"is not given, and {table.source} shows no node that failed"
        )
    return cluster.nodes * span_s / count
