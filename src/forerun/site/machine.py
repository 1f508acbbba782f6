"""The machine behind a log, as far as it is given or was inferred, and what was found out about it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Final

import msgspec
import numpy as np

from forerun.cluster.inputs.arrays import Cluster, NodeGroup
from forerun.cluster.inputs.files import cluster_of
from forerun.cluster.inputs.prepare import Inputs
from forerun.cluster.inputs.setting import Window
from forerun.cluster.inputs.slurm_conf import node_names
from forerun.cluster.policies.backfilling.base import BackfillPolicy
from forerun.cluster.policies.orders.multifactor import Multifactor
from forerun.cluster.scenario import Limit
from forerun.core.errors import ScenarioError, known_names
from forerun.core.scenario.decode import decode
from forerun.core.scenario.spec import Input, Spec
from forerun.core.scenario.text import read_document
from forerun.site.history import I64, History, Mask

Positive = Annotated[int, msgspec.Meta(ge=1)]
Seconds = Annotated[float, msgspec.Meta(ge=0)]

#: more nodes in a list are an error
MOST_NODES: Final = 1_000_000
#: what can be inferred, and so switched off
INFERRED: Final = ("pools", "windows", "order", "latencies", "limits", "holds")


class Part(Spec, frozen=True, kw_only=True):
    """Equal nodes of a pool.

    name: of the nodes, as Slurm lists them: `a100-[01-04]`. nodes: how many. gpus_per_node: on each (default 1). gpu_type:
    of them (default: not said). partitions: whose jobs may use them, with commas between (default: those of the whole pool).
    """

    name: str
    nodes: Positive
    gpus_per_node: Positive = 1
    gpu_type: str = ""
    partitions: str = ""


def folded(names: Sequence[str]) -> str:
    """Names, in order, as Slurm lists them: `a100-[01-03]`."""
    parts: list[list[str]] = []
    for name in names:
        stem = name.rstrip("0123456789")
        number = name[len(stem) :]
        last = parts[-1] if parts else ["", "", ""]
        alike = last[0] == stem and number and len(last[2]) == len(number)
        if alike and int(number) == int(last[2]) + 1:
            last[2] = number
        else:
            parts.append([stem, number, number])
    return ",".join(
        f"{stem}[{first}-{last}]" if first != last else f"{stem}{first}" for stem, first, last in parts
    )


class Pool(Spec, frozen=True, kw_only=True):
    """Nodes that only some jobs use. Where jobs hold whole nodes, each node has one GPU here.

    name: for people. nodes: how many. gpus_per_node: on each (default 1). gpu_type: of them (default: not said). parts: what
    the nodes are where they differ (default: all are alike). most_gpus: jobs that ask for no more belong to it, unless a
    smaller pool has them (default 0: all). partition: jobs of this partition, or of these, with commas between, belong to
    it, whatever they ask for (default: none). most_s: what a job without a requested time asks for (default 0: the longest
    of its partition). launch_s: from the decision to the start (default 0). turnover_s: from an end until its GPUs can be
    used (default 0). running_per_user: how many jobs of a user may run at once (default 0: any number).
    """

    name: str
    nodes: Positive
    gpus_per_node: Positive = 1
    gpu_type: str = ""
    parts: tuple[Part, ...] = ()
    most_gpus: Annotated[int, msgspec.Meta(ge=0)] = 0
    partition: str = ""
    most_s: Seconds = 0.0
    launch_s: Seconds = 0.0
    turnover_s: Seconds = 0.0
    running_per_user: Annotated[int, msgspec.Meta(ge=0)] = 0

    @property
    def gpus(self) -> int:
        """GPUs in all."""
        return sum(one.nodes * one.gpus_per_node for one in self.parts) or self.nodes * self.gpus_per_node

    @property
    def names(self) -> tuple[str, ...]:
        """Of its nodes, in order; empty: they are not known."""
        return tuple(name for part in self.parts for name in node_names(part.name, MOST_NODES))

    def with_nodes(self, more: int) -> Pool:
        """With more or fewer nodes; where they differ, of the part that has most."""
        most = max(self.parts, key=lambda one: one.nodes, default=None)
        parts = tuple(
            msgspec.structs.replace(one, nodes=one.nodes + more) if one == most else one for one in self.parts
        )
        return msgspec.structs.replace(self, nodes=self.nodes + more, parts=parts)

    @property
    def cluster(self) -> Cluster:
        """Its nodes, and the partitions that they are in."""
        alike = Part(
            name=self.name, nodes=self.nodes, gpus_per_node=self.gpus_per_node, gpu_type=self.gpu_type
        )
        partitions: dict[str, tuple[int, ...]] = {}
        first = 0
        for part in self.parts or (alike,):
            mine = tuple(range(first, first + part.nodes))
            first += part.nodes
            for name in part.partitions.split(",") if part.partitions else ():
                partitions[name] = partitions.get(name, ()) + mine
        groups = (
            NodeGroup(one.name, one.nodes, one.gpus_per_node, one.gpu_type) for one in self.parts or (alike,)
        )
        return replace(cluster_of(groups), partitions=partitions)

    def takes(self, log: History) -> Mask:
        """bool[jobs]: those that may belong to it by their partition or size, however many GPUs it has."""
        if not self.partition:
            return log.gpus <= (self.most_gpus or np.inf)
        codes = [code for code, name in enumerate(log.partition.names) if name in self.partition.split(",")]
        return np.isin(log.partition.codes, codes)


def first_of(taken: Sequence[Mask]) -> I64:
    """int64[jobs]: the number of the first pool that takes each job; -1: none does."""
    return np.where(np.any(taken, axis=0), np.argmax(taken, axis=0), -1)


def pool_of(log: History, pools: Sequence[Pool]) -> I64:
    """int64[jobs]: the pool of each job; -1: it fits in none, such as a job on the whole machine."""
    return first_of([pool.takes(log) & (log.gpus <= pool.gpus) for pool in pools])


class Outage(Spec, frozen=True, kw_only=True):
    """A time in which no job runs on some GPUs. Times in seconds since 1970, on the log's clock.

    from_s, to_s: from when to when. announced_s: when the scheduler learns of it; no job starts after that whose request
    reaches into it. gpus: how many of which pool are away, by its name (default: all of all pools). nodes: that are away, as
    Slurm lists them (default: not said).
    """

    from_s: float
    to_s: float
    announced_s: float
    gpus: dict[str, Positive] = {}
    nodes: str = ""

    @classmethod
    def seen(cls, window: Window, pool: Pool, origin_s: float) -> Outage:
        """From a window of the last pool on the clock of a log: others are out as well, unless some of its GPUs are not."""
        from_s, to_s, announced_s = (
            at_s + origin_s for at_s in (window.from_s, window.to_s, window.announced_s)
        )
        gpus = {pool.name: window.gpus} if window.gpus < pool.gpus else {}
        nodes = folded([pool.names[node] for node in window.nodes])
        return cls(from_s=from_s, to_s=to_s, announced_s=announced_s, gpus=gpus, nodes=nodes)

    def of(self, pool: Pool) -> int:
        """How many GPUs of a pool are away."""
        return min(self.gpus.get(pool.name, 0), pool.gpus) if self.gpus else pool.gpus

    def window(self, pool: Pool, origin_s: float) -> Window:
        """On the clock of a log, as a window of a pool; an outage of others takes none of its GPUs."""
        from_s, to_s, announced_s = (at_s - origin_s for at_s in (self.from_s, self.to_s, self.announced_s))
        away = set(node_names(self.nodes, MOST_NODES)) if self.nodes else set[str]()
        nodes = tuple(node for node, name in enumerate(pool.names if away else ()) if name in away)
        return Window(from_s=from_s, to_s=to_s, gpus=self.of(pool), announced_s=announced_s, nodes=nodes)


class System(Spec, frozen=True, kw_only=True):
    """A machine: its pools and outages, and whose waiting counts as being held.

    pools: smallest first. windows: outages (default: none). limits: of what runs at once, as a scenario has them (default:
    none). order: of the queue, by the priorities that the log records (default: not known). held_after_s: a job is held that
    still waits so long after the policy would have started it; 0: none is (default two days).
    """

    pools: tuple[Pool, ...]
    windows: tuple[Outage, ...] = ()
    limits: tuple[Limit, ...] = ()
    order: Multifactor | None = None
    held_after_s: Seconds = 172_800.0


class Declared(System, frozen=True, kw_only=True):
    """A machine as the files of its site describe it, and the jobs of a log on it as `forerun simulate` has them.

    inputs : of a simulation of the log.
    """

    inputs: Inputs

    @property
    def files(self) -> tuple[Input, ...]:
        """Those that describe it."""
        machines = self.inputs.scenario.machines
        return (
            *((machines.file,) if machines.file else ()),
            *(machines.included or ()),
            *(machines.site or ()),
        )

    @property
    def policy(self) -> BackfillPolicy:
        """What its files say that it has."""
        assert isinstance(self.inputs.policy, BackfillPolicy)
        return self.inputs.policy

    def rows(self, log: History) -> I64:
        """int64[jobs], where the jobs of a log stand in the simulation; -1: they are not in it."""
        row = {name: at for at, name in enumerate(self.inputs.setting.jobs.id)}
        return np.array([row.get(name, -1) for name in log.job_id.tolist()], np.int64)


class Finding(Spec, frozen=True, kw_only=True):
    """Something inferred from the log, with its evidence.

    about: what can be switched off, one of `INFERRED`. what: what was found. evidence: in what it shows.
    """

    about: str
    what: str
    evidence: str


def read_system(path: Path) -> System:
    """The machine that a file describes. Raises ScenarioError with every problem of the file."""
    document = read_document(path)
    system = decode(document, System)
    if not system.pools:
        raise ScenarioError.at(document.where(("pools",)), "a machine has at least one pool")
    names = [pool.name for pool in system.pools]
    for at, pool in enumerate(system.pools):
        if pool.name in names[:at]:
            raise ScenarioError.at(document.where(("pools", at)), f"two pools are named {pool.name!r}")
    for at, window in enumerate(system.windows):
        for name in window.gpus:
            if name not in names:
                place = ("windows", at, "gpus")
                raise ScenarioError.at(
                    document.where(place), f"no pool is named {name!r}; {known_names(name, names)}"
                )
        if not window.announced_s <= window.from_s < window.to_s:
            what = "a window is announced by the time it begins, and ends after that"
            raise ScenarioError.at(document.where(("windows", at)), what)
    return system
