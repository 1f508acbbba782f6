"""The machine of a log from what its site has: our own description, or Slurm's configuration and what its commands print.

The files of Slurm are read as `simulate` reads them; what they say becomes one pool of named nodes, with partitions, limits,
maintenance and the scheduler's order.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path
from typing import Final

import numpy as np

from forerun.cluster.inputs.slurm_conf import (
    MOST_BYTES,
    included_by,
    named,
    partition_limits,
    read_slurm_nodes,
    read_slurm_priorities,
)
from forerun.cluster.inputs.slurm_priority import with_site_priorities
from forerun.cluster.inputs.slurm_site import nodes_of_partitions, read_slurm_site
from forerun.cluster.policies.orders.multifactor import Multifactor
from forerun.core.errors import Problem, ScenarioError
from forerun.core.regular import read_regular, unreadable
from forerun.site.history import History
from forerun.site.machine import Declared, Outage, Part, Pool, System, folded, read_system

#: files that describe a machine in our own words
_OWN: Final = (".yaml", ".yml", ".json", ".toml")
#: in every object of Kueue
_KUEUE: Final = "kueue.x-k8s.io/"
#: the beginnings of what Slurm's commands print; of a partition, its totals are not in a configuration
_PRINTED: Final = re.compile(
    r"(?i:no reservations)|ReservationName=|[^\n#]*\||PartitionName=(?=.*\bTotalNodes=)", re.DOTALL
)


def read_machine(paths: Sequence[Path], zone: str, log: History) -> tuple[System, tuple[str, ...]]:
    """The machine that files describe, and what else to know of it.

    Parameters
    ----------
    paths : one file of ours, or those of a Slurm site, in any order: slurm.conf and what it includes, and what `scontrol
        show partition`, `scontrol show res`, `sacctmgr show qos -P` and `sacctmgr show assoc -P` print.
    zone : IANA name of the place whose clock reservations are on.
    log : of its jobs.

    Raises ScenarioError with every problem of the files.
    """
    own: list[Path] = []
    printed: list[Path] = []
    configured: list[Path] = []
    problems: list[Problem] = []
    for path in paths:
        try:
            text = read_regular(path, most_bytes=MOST_BYTES).decode("utf-8", errors="replace")
        except OSError as error:
            problems.append(Problem(str(path), unreadable(error)))
            continue
        if _KUEUE in text:
            problems.append(
                Problem(str(path), "is of Kueue, whose queues forerun simulate knows, and a replay does not")
            )
        kind = (
            own if path.suffix.lower() in _OWN else printed if _PRINTED.match(text.lstrip()) else configured
        )
        kind.append(path)
    if own and len(paths) > 1:
        problems.append(Problem(str(own[0]), "describes the whole machine; give it without other files"))
    inner = included_by(configured)
    outer = [path for path in configured if path.name not in inner]
    if not (own or problems) and len(outer) != 1:
        what = (
            f"{named([path.name for path in outer])} are no parts of one" if outer else "none is among them"
        )
        problems.append(Problem(named([path.name for path in paths]), f"one slurm.conf is needed; {what}"))
    if problems:
        raise ScenarioError(*problems)
    if own:
        return read_system(own[0]), ()
    return _declared(outer[0], [path for path in configured if path.name in inner], printed, zone, log)


def _declared(
    conf: Path, included: Sequence[Path], printed: Sequence[Path], zone: str, log: History
) -> tuple[Declared, tuple[str, ...]]:
    """The machine of a Slurm site."""
    cluster, node_gpus = read_slurm_nodes(
        conf, included=included, printed=nodes_of_partitions(printed), whole=log.unit == "nodes"
    )
    until_s = log.origin_s + log.last_s
    site = read_slurm_site(printed, cluster, node_gpus, timezone=zone, until_s=until_s)
    settings = read_slurm_priorities(conf, included)
    longest = (*site.longest, *partition_limits(settings))
    names, size, types = list(node_gpus), cluster.node_gpus(), cluster.node_types()
    parts: dict[tuple[int, str, str], list[str]] = {}
    for node, name in enumerate(names):
        mine = ",".join(one for one, nodes in cluster.partitions.items() if node in nodes)
        parts.setdefault((int(size[node]), types[node], mine), []).append(name)
    order = [name for alike in parts.values() for name in alike]
    partitions = [name for name, nodes in cluster.partitions.items() if nodes]
    pool = Pool(
        name="+".join(partitions) or "all",
        nodes=len(order),
        partition=",".join(partitions) if log.partition.known else "",
        parts=tuple(
            Part(name=folded(alike), nodes=len(alike), gpus_per_node=gpus, gpu_type=gpu_type, partitions=mine)
            for (gpus, gpu_type, mine), alike in parts.items()
        ),
    )
    known_s = [
        0.0,
        *log.requested_s[np.isfinite(log.requested_s)].tolist(),
        *(one.seconds for one in longest),
    ]
    place = {name: at for at, name in enumerate(order)}
    windows = tuple(
        Outage(
            from_s=one.from_s,
            to_s=one.to_s,
            announced_s=one.from_s - max(known_s),
            gpus={pool.name: one.gpus},
            nodes=tuple(place[names[node]] for node in one.nodes),
        )
        for one in site.outages
        if log.origin_s < one.to_s and one.from_s < until_s
    )
    scheduler = settings.settings.get("schedulertype", ("", ""))[1]
    priorities, more = with_site_priorities(Multifactor(), settings, printed)
    unplanned = settings.settings.get("prioritytype", ("", ""))[1] == "priority/basic"
    notes = [*cluster.notes, *site.notes, *more]
    if windows:
        notes.append(
            f"{len(windows)} outages are from reservations, which do not say when they were announced: by the longest "
            "request before"
        )
    if away := len(site.outages) - len(windows):
        notes.append(f"{away} of {len(site.outages)} windows of maintenance are outside the time of the jobs")
    others = [(name, code) for code, name in enumerate(log.partition.names) if name not in partitions]
    if others:
        jobs = int(np.isin(log.partition.codes, [code for _, code in others]).sum())
        notes.append(f"no file has nodes of partition {named([name for name, _ in others])}, of {jobs} jobs")
    return Declared(
        pools=(pool,),
        windows=windows,
        rules=tuple(rule for rule in site.rules if not rule.planned),
        shared=dict(site.pools),
        longest=longest,
        backfills=scheduler != "sched/builtin",
        priorities=None if unplanned else priorities,
    ), tuple(notes)
