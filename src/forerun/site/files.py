"""The machine of a log from what its site has: our own description, or Slurm's configuration and what its commands print.

The files of Slurm, with the log, are the inputs of a simulation; the machine is one pool of its nodes.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Final

from forerun.cluster.inputs.prepare import prepare
from forerun.cluster.inputs.slurm_conf import MOST_BYTES, included_by, named, read_slurm_priorities
from forerun.cluster.policies.orders.fcfs import Fcfs
from forerun.cluster.policies.orders.multifactor import Multifactor
from forerun.cluster.policies.slurm_backfill import SlurmBackfill
from forerun.cluster.policies.slurm_builtin import SlurmBuiltin
from forerun.cluster.scenario import Machines, Scenario, TraceSpec
from forerun.core.errors import Problem, ScenarioError
from forerun.core.registry import member_name
from forerun.core.regular import read_regular, unreadable
from forerun.core.scenario.spec import Input
from forerun.site.history import History
from forerun.site.machine import Declared, Part, Pool, System, read_system

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
    problems += [
        Problem(path.name, "rename it: a Slurm configuration is named *.conf")
        for path in outer
        if path.suffix != ".conf"
    ]
    if problems:
        raise ScenarioError(*problems)
    if own:
        return read_system(own[0]), ()
    return _declared(outer[0], [path for path in configured if path.name in inner], printed, zone, log)


def _declared(
    conf: Path, included: Sequence[Path], printed: Sequence[Path], zone: str, log: History
) -> tuple[Declared, tuple[str, ...]]:
    """The machine of a Slurm site. Raises ScenarioError and TraceError with what is wrong with its files and the log."""
    file, parts, site = ([pinned(path) for path in some] for some in ((conf,), included, printed))
    scenario = Scenario(
        trace=TraceSpec(file=Input(path=log.source), larger="drop", options={"timezone": zone}),
        machines=Machines(file=file[0], included=tuple(parts), site=tuple(site), unit=log.unit),
        policy=slurm_policy(conf, included)[0],
        placement="first-fit",
    )
    machine = declared(scenario, log)
    return machine, machine.inputs.notes


def declared(scenario: Scenario, log: History) -> Declared:
    """The machine of a scenario of a Slurm site. log: its jobs."""
    inputs = prepare(scenario, log.table())
    # jobs that a failure or preemption ended come again when they did
    inputs = replace(inputs, setting=replace(inputs.setting, failures=()))
    cluster = inputs.setting.cluster
    partitions = {name: frozenset(nodes) for name, nodes in cluster.partitions.items() if nodes}
    parts, first = [], 0
    for group in cluster.groups:
        mine = range(first, first + group.count)
        theirs = ",".join(name for name, nodes in partitions.items() if nodes.intersection(mine))
        first += group.count
        parts.append(
            Part(
                name=group.name,
                nodes=group.count,
                gpus_per_node=group.gpus,
                gpu_type=group.gpu_type,
                partitions=theirs,
            )
        )
    pool = Pool(
        name="+".join(partitions) or "all",
        nodes=cluster.nodes,
        partition=",".join(partitions) if log.partition.known else "",
        parts=tuple(parts),
    )
    return Declared(pools=(pool,), inputs=inputs)


def pinned(path: Path) -> Input:
    """A file with the digest of its content."""
    return Input(path=str(path.resolve()), sha256=hashlib.sha256(read_regular(path)).hexdigest())


def slurm_policy(conf: Path, included: Sequence[Path]) -> tuple[SlurmBackfill, str]:
    """The policy that a configuration names, its weights left to its files, and in words.

    Parameters
    ----------
    conf, included : the configuration, and copies of the files that it includes.
    """
    read = read_slurm_priorities(conf, included)
    says = {name: value for name, (_, value) in read.settings.items()}
    weighs = any(name.startswith("priorityweight") and value not in ("", "0") for name, value in says.items())
    tiers = len({partition.get("prioritytier", "1") for _, partition in read.partitions.values()}) > 1
    basic = says.get("prioritytype", "") == "priority/basic"
    plugin = says.get("schedulertype", "sched/backfill")
    kind = SlurmBuiltin if plugin == "sched/builtin" else SlurmBackfill
    policy = kind(order=Multifactor() if (weighs and not basic) or tiers else Fcfs())
    name, order = member_name(kind), member_name(type(policy.order))
    return policy, f"SchedulerType says {plugin}, so the policy is {name}, order {order}"
