"""The machine behind a log from what its site has: a configuration of Slurm, and what Slurm's commands print.

Partitions become pools, those that share nodes one pool; reservations for maintenance become outages; a limit of running
jobs a user is taken where one holds for a whole pool. What a replay has no use for is counted in notes.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import numpy as np

from forerun.cluster.inputs.slurm_conf import MOST_BYTES, SlurmMachine, node_names, read_slurm_machine
from forerun.cluster.inputs.slurm_site import Block, SlurmSite
from forerun.cluster.readers.local_clock import LocalClock
from forerun.core.errors import ScenarioError
from forerun.core.regular import read_regular, unreadable
from forerun.core.trace.repair import RepairLog
from forerun.site.history import History
from forerun.site.machine import Outage, Pool, System, read_system

#: files that describe a machine in our own words
_OWN: Final = (".yaml", ".yml", ".json", ".toml")
#: the beginnings of what Slurm's commands print; of a partition, its totals are not in a configuration
_PRINTED: Final = re.compile(
    r"(?i:no reservations)|ReservationName=|[^\n#]*\||PartitionName=(?=.*\bTotalNodes=)", re.DOTALL
)
#: in every object of Kueue
_KUEUE: Final = "kueue.x-k8s.io/"
_UNLIMITED: Final = ("", "unlimited", "infinite")
#: names in a note
_NAMED: Final = 5


@dataclass(frozen=True, slots=True)
class _Partition:
    """A partition, as far as a replay takes it.

    Parameters
    ----------
    name : of it; where : file and line.
    nodes : names; made up where no file has them.
    most_nodes, most_s : what its jobs may ask for; 0: anything.
    qos : the QOS whose limits its jobs have; empty: none.
    """

    name: str
    where: str
    nodes: frozenset[str]
    most_nodes: int
    most_s: float
    qos: str


class Given:
    """What files say of a machine.

    Parameters
    ----------
    paths : one file of ours, or those of a Slurm site, in any order: slurm.conf and what it includes, and what `scontrol
        show partition`, `scontrol show res`, `sacctmgr show qos -P` and `sacctmgr show assoc -P` print.
    zone : IANA name of the place whose clock reservations are on.

    Raises ScenarioError with every problem of the files.
    """

    def __init__(self, paths: Sequence[Path], zone: str) -> None:
        self._own: System | None = None
        self._site, self._zone = SlurmSite(), zone
        self._conf = SlurmMachine(frozenset(), {}, ())
        self._unused: dict[str, int] = {}
        self._taken: set[str] = set()  # QOS whose limit of running jobs is used
        own: list[Path] = []
        configured: list[Path] = []
        for path in paths:
            try:
                text = read_regular(path, most_bytes=MOST_BYTES).decode("utf-8", errors="replace")
            except OSError as error:
                self._site.complain(str(path), unreadable(error))
                continue
            if _KUEUE in text:
                self._site.complain(str(path), "is of Kueue, whose quotas are GPUs; a replay has whole nodes")
            elif path.suffix.lower() in _OWN:
                own.append(path)
            elif _PRINTED.match(text.lstrip()):
                self._site.read(path)
            else:
                configured.append(path)
        if own and len(paths) > 1:
            self._site.complain(str(own[0]), "describes the whole machine; give it without other files")
        self._raise()
        if own:
            self._own = read_system(own[0])
            return
        if configured:
            self._conf = read_slurm_machine(configured)
        self._partitions = list(self._read_partitions())
        if not (self._site.problems or any(one.nodes for one in self._partitions)):
            what = "no nodes in partitions are named; give slurm.conf, or what scontrol show partition prints"
            raise ScenarioError.at(_listed(path.name for path in paths), what)
        self._raise()

    def of(self, log: History) -> tuple[System, tuple[str, ...]]:
        """The machine of a log, and what else to know: what was merged, assumed or not used.

        Raises ScenarioError for reservations with impossible times.
        """
        if self._own is not None:
            return self._own, ()
        self._unused, self._taken = {}, set()
        notes: list[str] = []
        named = log.partition.known
        groups = sorted(self._groups(), key=lambda group: len(_nodes(group)))
        pools = [self._pool(group, log, named) for group in groups]
        if not named and len(pools) > 1:
            notes.append("the log names no partitions: a job is in the smallest pool whose MaxNodes it keeps")
        notes += [_shared(group) for group in groups if len(group) > 1]
        if named:
            known = {one.name for one in self._partitions}
            others = [(name, code) for code, name in enumerate(log.partition.names) if name not in known]
            jobs = int(np.isin(log.partition.codes, [code for _, code in others]).sum())
            if jobs:
                notes.append(
                    f"no file describes partition {_listed(name for name, _ in others)}, of {jobs} jobs"
                )
        windows = self._windows(
            log, [(pool.name, _nodes(group)) for pool, group in zip(pools, groups, strict=True)]
        )
        if windows:
            notes.append(
                f"{len(windows)} outages are from reservations, which do not say when they were announced: by the longest "
                "request before"
            )
        self._raise()
        self._count(named)
        if self._unused:
            parts = ", ".join(f"{what} ({count})" for what, count in self._unused.items())
            notes.append(f"not used of the site's files: {parts}")
        return System(pools=tuple(pools), windows=windows), tuple(notes)

    def _raise(self) -> None:
        if self._site.problems:
            raise ScenarioError(*self._site.problems[:20])

    def _read_partitions(self) -> Iterator[_Partition]:
        """Those of the running system first, then those of the configuration that it does not have."""
        site, printed = self._site, {one.name for one in self._site.partitions}
        for one in site.partitions:
            yield self._partition(
                one.where, one.name, self._nodes_of(one), one.says, ("MaxNodes", "MaxTime", "QoS")
            )
        for name, (where, nodes, says) in self._conf.partitions.items():
            if name not in printed:
                yield self._partition(where, name, nodes, says, ("maxnodes", "maxtime", "qos"))
        if self._conf.nodes and not (self._conf.partitions or printed):
            yield _Partition("all", "", self._conf.nodes, 0, 0.0, "")

    def _partition(
        self,
        where: str,
        name: str,
        nodes: frozenset[str],
        says: Mapping[str, str],
        keys: tuple[str, str, str],
    ) -> _Partition:
        """A partition from what a file says under some keys."""
        most_nodes, most_s, qos = (says.get(key, "") for key in keys)
        return _Partition(
            name, where, nodes,
            0 if most_nodes.lower() in _UNLIMITED else self._site.whole(where, keys[0], most_nodes),
            0.0 if most_s.lower() in _UNLIMITED else float(self._site.seconds(where, keys[1], most_s)),
            qos,
        )  # fmt: skip

    def _nodes_of(self, one: Block) -> frozenset[str]:
        """The nodes of a reservation or a partition that run jobs; made-up names where it only counts them."""
        text = one.says.get("Nodes", "")
        if text.lower() == "all":
            return self._conf.nodes
        if not text:
            count = self._site.whole(one.where, "TotalNodes", one.says.get("TotalNodes", "0"))
            return frozenset(f"{one.name}#{at}" for at in range(min(count, 1_000_000)))
        try:
            names = frozenset(node_names(text, 1_000_000))
        except ValueError as error:
            self._site.complain(f"{one.where}:Nodes", str(error))
            return frozenset()
        return names & self._conf.nodes if self._conf.nodes else names

    def _groups(self) -> list[list[_Partition]]:
        """Partitions with nodes; those that share some together."""
        groups: list[list[_Partition]] = []
        for one in self._partitions:
            if not one.nodes:
                self._use("partition without nodes")
                continue
            mine = [group for group in groups if _nodes(group) & one.nodes]
            groups = [group for group in groups if group not in mine]
            groups.append([*(other for group in mine for other in group), one])
        return groups

    def _pool(self, group: Sequence[_Partition], log: History, named: bool) -> Pool:
        """The pool of some partitions."""
        names = [one.name for one in group]
        most_s = [one.most_s for one in group]
        most_nodes = [one.most_nodes for one in group]
        return Pool(
            name="+".join(names),
            nodes=len(_nodes(group)),
            most_nodes=0 if named or not all(most_nodes) else max(most_nodes),
            partition=",".join(names) if named else "",
            most_s=max(most_s) if all(most_s) else 0.0,
            running_per_user=self._limit(group, log) if len(group) == 1 else 0,
        )

    def _limit(self, group: Sequence[_Partition], log: History) -> int:
        """The jobs that a user may run at once in a partition: by its QOS, or by the one that all its jobs have."""
        (one,) = group
        codes = log.partition.codes
        mine = (
            codes == log.partition.names.index(one.name) if one.name in log.partition.names else codes == -2
        )
        used = np.unique(log.qos.codes[mine])
        theirs = log.qos.names[used[0]] if len(used) == 1 and used[0] >= 0 else ""
        for name in (one.qos, theirs):
            qos = next((each for each in self._site.qos if name and each.name == name), None)
            if qos is not None and "MaxJobsPU" in qos.says:
                self._taken.add(name)
                return self._site.whole(qos.where, "MaxJobsPU", qos.says["MaxJobsPU"])
        return 0

    def _windows(self, log: History, pools: Sequence[tuple[str, frozenset[str]]]) -> tuple[Outage, ...]:
        """The maintenance in the time of the log, by the nodes that it takes of each pool."""
        clock = LocalClock(self._zone, RepairLog())
        until_s = log.origin_s + log.last_s
        known_s = [
            0.0,
            *log.requested_s[np.isfinite(log.requested_s)].tolist(),
            *(one.most_s for one in self._partitions),
        ]
        windows = []
        for one in self._site.reservations:
            times = self._site.maintenance(one, clock, until_s)
            if times is None:
                self._use("reservation for jobs")
                continue
            nodes = self._nodes_of(one)
            whole = "ALL_NODES" in one.says.get("Flags", "").upper()
            away = {name: len(theirs if whole else nodes & theirs) for name, theirs in pools}
            away = {name: count for name, count in away.items() if count}
            if not away:
                self._use("maintenance of no node that a partition has")
                continue
            inside = [
                (begin_s, end_s) for begin_s, end_s in times if log.origin_s < end_s and begin_s < until_s
            ]
            if not inside:
                self._use("maintenance before or after the log")
            windows += [
                Outage(from_s=begin_s, to_s=end_s, announced_s=begin_s - max(known_s), nodes=away)
                for begin_s, end_s in inside
            ]
        return tuple(sorted(windows, key=lambda window: window.from_s))

    def _count(self, named: bool) -> None:
        """Count what the files say that a replay does not use. named: whether partitions say in which pool a job is."""
        for one in self._partitions:
            if one.most_nodes and named:
                self._use("MaxNodes of partitions")
        for qos in self._site.qos:
            for column in qos.says:
                if column.startswith(("Grp", "Max", "Min")) and not (
                    column == "MaxJobsPU" and qos.name in self._taken
                ):
                    self._use(f"{column} of QOS")
        for association in self._site.associations:
            for column in association.says:
                if column.startswith(("Grp", "Max")) or column == "Share":
                    self._use(f"{column} of accounts and users")
        if self._conf.settings:
            self._use("parameters of priorities", len(self._conf.settings))

    def _use(self, what: str, count: int = 1) -> None:
        self._unused[what] = self._unused.get(what, 0) + count


def _nodes(group: Iterable[_Partition]) -> frozenset[str]:
    return frozenset().union(*(one.nodes for one in group))


def _shared(group: Sequence[_Partition]) -> str:
    """What is made of partitions that share nodes."""
    whole = len(_nodes(group))
    fewer = [f"{one.name} {len(one.nodes)}" for one in group if len(one.nodes) < whole]
    text = f"partitions {_listed(one.name for one in group)} share nodes: they are one pool of {whole}"
    return f"{text}; alone have fewer: {_listed(fewer)}" if fewer else text


def _listed(names: Iterable[str]) -> str:
    """Some names; of many the first."""
    every = list(names)
    more = f" and {len(every) - _NAMED} more" if len(every) > _NAMED else ""
    return ", ".join(every[:_NAMED]) + more
