"""What Slurm's own commands print of a site, as limits, time limits, shares, maintenance and nodes that were away.

`sacctmgr show qos -P`, `sacctmgr show assoc -P` (or `tree`, which shows the accounts' parents), `sacctmgr show event -P`,
`scontrol show res`, `scontrol show partition` and `scontrol show node`; which of them a file is shows in its first line.
Formats: the manual pages of sacctmgr and scontrol; which limit counts where several are set: the page "Resource Limits" of
Slurm's documentation.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

import numpy as np

from forerun.cluster.inputs.arrays import Cluster
from forerun.cluster.inputs.limits import UNLIMITED, LimitRule, RuleColumn
from forerun.cluster.inputs.site import Outage, Site, TimeLimit
from forerun.cluster.inputs.slurm_conf import MOST_BYTES, SlurmPriorities, is_away, named, node_names
from forerun.cluster.policies.backfilling.preemption import in_circle
from forerun.cluster.readers.local_clock import LocalClock
from forerun.cluster.readers.sacct import time_limit_s
from forerun.core.errors import Problem, ScenarioError
from forerun.core.regular import read_regular, unreadable
from forerun.core.trace.repair import RepairLog, shown
from forerun.core.trace.rows import parse_instant

#: values that set nothing
_UNSET: Final = ("", "-1", "(null)", "none", "unlimited", "infinite", "n/a")
_PAIR: Final = re.compile(r"([A-Za-z][A-Za-z0-9_]*)=(\S*)")
_GPU: Final = re.compile(r"gres/gpu(?::([^=,]+))?")
#: reservations that repeat, with their seconds
_REPEATS: Final[Mapping[str, int]] = {"HOURLY": 3600, "DAILY": 86_400, "WEEKLY": 7 * 86_400}
_NOT_REPEATED: Final = ("WEEKDAY", "WEEKEND")
#: repetitions of a reservation that are looked at
_MOST_REPEATS: Final = 100_000
#: columns of limits that are simulated: what they count, and the columns of a log that tell jobs apart
_OF_QOS: Final[Mapping[str, tuple[str, tuple[RuleColumn, ...]]]] = {
    "GrpTRES": ("gpus", ()),
    "GrpJobs": ("jobs", ()),
    "MaxTRESPU": ("gpus", ("user",)),
    "MaxJobsPU": ("jobs", ("user",)),
    "MaxTRESPA": ("gpus", ("account",)),
    "MaxJobsPA": ("jobs", ("account",)),
    "MaxTRES": ("job", ()),
}
_OF_ACCOUNT: Final = {"GrpTRES": ("gpus", ()), "GrpJobs": ("jobs", ())}
_OF_USER: Final[Mapping[str, tuple[str, tuple[RuleColumn, ...]]]] = {
    "GrpTRES": ("gpus", ()),
    "GrpJobs": ("jobs", ()),
    "MaxJobs": ("jobs", ("user",)),
    "MaxTRES": ("job", ()),
}
#: other names that the same columns have
_SPELLINGS: Final[Mapping[str, str]] = {
    "MaxTRESPerUser": "MaxTRESPU", "MaxTRESPerAccount": "MaxTRESPA", "MaxJobsPerUser": "MaxJobsPU",
    "MaxJobsPerAccount": "MaxJobsPA", "MaxTRESPerJob": "MaxTRES", "MaxWallDurationPerJob": "MaxWall",
    "MaxWallPerJob": "MaxWall", "ParentName": "Par Name", "Fairshare": "Share", "FairShare": "Share",
}  # fmt: skip
_PARTITION_QOS, _JOB_QOS, _ASSOCIATION = 1, 2, 3


@dataclass(frozen=True, slots=True)
class Qos:
    """A quality of service.

    Parameters
    ----------
    where : file and line.
    name : of it.
    priority : what it adds to a job's priority (default 0).
    usage_factor : by which usage counts against shares (default 1).
    flags : as Slurm prints them.
    says : every column that is set, by name.
    """

    where: str
    name: str
    priority: int
    usage_factor: float
    flags: frozenset[str]
    says: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class Association:
    """An account, or a user of one.

    Parameters
    ----------
    where : file and line.
    account, user, partition : whose it is; the user is empty for the account itself, the partition where it is for all.
    parent : the account above; empty: none, or the file does not say.
    shares : of the parent's usage, against its siblings' (default 1); 0: those of the parent.
    says : every column that is set, by name.
    """

    where: str
    account: str
    user: str
    partition: str
    parent: str
    shares: int
    says: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class Block:
    """A reservation or partition, as scontrol prints it.

    Parameters
    ----------
    where : file and line.
    name : of it.
    says : every value that is set, by name.
    """

    where: str
    name: str
    says: Mapping[str, str]


@dataclass(slots=True)
class SlurmSite:
    """What the files of a site say, record by record.

    Parameters
    ----------
    cluster : its name, whose rows count; empty: not known.
    qos, associations, reservations, partitions, nodes : by the commands that print them.
    events : when nodes were away: where it stands, and its cells.
    problems : what is wrong with the files.
    notes : what of them does not count.
    """

    cluster: str = ""
    qos: list[Qos] = field(default_factory=list)
    associations: list[Association] = field(default_factory=list)
    reservations: list[Block] = field(default_factory=list)
    partitions: list[Block] = field(default_factory=list)
    nodes: list[Block] = field(default_factory=list)
    events: list[Block] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    problems: list[Problem] = field(default_factory=list)

    def complain(self, where: str, what: str) -> None:
        """Gather a problem."""
        self.problems.append(Problem(where, what))

    def read(self, path: Path) -> None:
        """Read one file, whichever it is."""
        try:
            text = read_regular(path, most_bytes=MOST_BYTES).decode("utf-8", errors="replace")
        except OSError as error:
            self.complain(str(path), unreadable(error))
            return
        lines = [(at, line.rstrip("\r")) for at, line in enumerate(text.split("\n"), 1) if line.strip()]
        first = lines[0][1].strip() if lines else ""
        header = first.split("|")
        if "Account" in header and "User" in header:
            self._associations(path.name, self._table(path.name, lines))
        elif "TimeStart" in header and "NodeName" in header:
            rows = [(where, _set(cells)) for where, cells in self._table(path.name, lines)]
            self.events += [
                Block(where, says["NodeName"], says) for where, says in rows if "NodeName" in says
            ]
        elif "TimeStart" in header and "Name" in header:
            self.complain(
                path.name, "is what sacctmgr show reservation prints; give what scontrol show res prints"
            )
        elif "Name" in header and len(header) > 1:
            self._qualities(path.name, self._table(path.name, lines))
        elif first.startswith("ReservationName="):
            self.reservations += self._blocks(path.name, lines, "ReservationName")
        elif first.startswith("PartitionName="):
            self.partitions += self._blocks(path.name, lines, "PartitionName")
        elif first.startswith("NodeName="):
            self.nodes += self._blocks(path.name, lines, "NodeName")
        elif not first.lower().startswith("no reservations"):
            self.complain(
                path.name,
                "is not what sacctmgr show qos -P, assoc -P or event -P, or scontrol show res, partition or node prints: it "
                f"begins with {shown(first, 40)}",
            )

    def _table(self, file: str, lines: Sequence[tuple[int, str]]) -> Iterator[tuple[str, dict[str, str]]]:
        """Rows of a table that sacctmgr prints, with where they stand; leading blanks of cells stay."""
        names = [_SPELLINGS.get(name.strip(), name.strip()) for name in lines[0][1].split("|")]
        if names and not names[-1]:
            names.pop()  # -p ends each line with a bar
        if len(set(names)) < len(names):
            self.complain(f"{file}:{lines[0][0]}", "names a column twice")
        clusters: dict[str, int] = {}
        for at, line in lines[1:]:
            cells = line.split("|")
            if len(cells) == len(names) + 1 and not cells[-1]:
                cells.pop()
            if len(cells) == len(names):
                row = dict(zip(names, cells, strict=True))
                if whose := row.get("Cluster", "").strip():
                    clusters[whose] = clusters.get(whose, 0) + 1
                if not (self.cluster and whose) or whose.lower() == self.cluster.lower():
                    yield f"{file}:{at}", row
            else:
                cut = " (is the file cut short?)" if at == lines[-1][0] and len(cells) < len(names) else ""
                self.complain(f"{file}:{at}", f"has {len(cells)} fields, the header has {len(names)}{cut}")
        others = [name for name in clusters if name.lower() != self.cluster.lower()]
        named = " and ".join(f"{name!r}" for name in others)
        if not self.cluster and len(others) > 1:
            self.complain(
                file, f"has rows of clusters {named}; give slurm.conf, whose ClusterName says which counts"
            )
        elif self.cluster and others and len(others) == len(clusters):
            self.complain(file, f"is of cluster {named}; slurm.conf is of {self.cluster!r}")
        elif self.cluster and others:
            count = sum(clusters[name] for name in others)
            self.notes.append(f"{file}: {count} rows of {named} left out; slurm.conf is of {self.cluster!r}")

    def _qualities(self, file: str, rows: Iterable[tuple[str, dict[str, str]]]) -> None:
        names = {one.name: one.where for one in self.qos}
        for where, cells in rows:
            says = _set(cells)
            name = says.get("Name", "")
            if not name:
                self.complain(f"{where}:Name", "is empty")
                continue
            if name in names:
                self.complain(where, f"QOS {name!r} stands in {names[name]} already")
            names[name] = where
            self.qos.append(
                Qos(
                    where, name, self.whole(where, "Priority", says.get("Priority", "0")),
                    self.number(where, "UsageFactor", says.get("UsageFactor", "1")),
                    frozenset(says.get("Flags", "").split(",")) - {""}, says,
                )
            )  # fmt: skip

    def _associations(self, file: str, rows: Iterable[tuple[str, dict[str, str]]]) -> None:
        above: list[tuple[int, str]] = []  # accounts by indentation, as `tree` prints them
        first = len(self.associations)
        for where, cells in rows:
            depth = len(cells["Account"]) - len(cells["Account"].lstrip())
            says = _set(cells)
            account, user = says.get("Account", ""), says.get("User", "")
            if not account:
                self.complain(f"{where}:Account", "is empty")
                continue
            while above and above[-1][0] >= depth:
                above.pop()
            parent = says.get("Par Name", "") or (above[-1][1] if above and not user else "")
            if not user:
                above.append((depth, account))
            share = says.get("Share", "1")
            shares = 0 if share.lower() == "parent" else self.whole(where, "Share", share)
            self.associations.append(
                Association(where, account, user, says.get("Partition", ""), parent, shares, says)
            )
        mine = self.associations[first:]
        if len({one.account for one in mine} - {"root"}) > 1 and not any(one.parent for one in mine):
            self.notes.append(
                f"{file}: parents of accounts are not shown (sacctmgr show assoc tree shows them): all are taken for "
                "accounts of the root"
            )

    def _blocks(self, file: str, lines: Sequence[tuple[int, str]], key: str) -> list[Block]:
        blocks: list[tuple[str, dict[str, str]]] = []
        for at, line in lines:
            for name, value in _PAIR.findall(line):
                if name == key:
                    blocks.append((f"{file}:{at}", {}))
                if blocks:
                    blocks[-1][1][name] = value
        return [Block(where, says[key], _set(says)) for where, says in blocks]

    def reject_circles(self) -> None:
        """Complain of qualities of service that may preempt each other, directly or by others between them."""
        below = {one.name: set(one.says.get("Preempt", "").split(",")) - {""} for one in self.qos}
        name = in_circle(below)
        for one in self.qos if name is not None else ():
            if one.name == name:
                others = ", ".join(sorted(below[name]))
                self.complain(
                    f"{one.where}:Preempt", f"QOS {name} preempts {others}, which may preempt it in turn"
                )

    def whole(self, where: str, name: str, text: str) -> int:
        """A whole number of a cell; 0 after a complaint."""
        if not re.fullmatch(r"[0-9]{1,15}", text):
            self.complain(f"{where}:{name}", f"{shown(text)} is not a whole number")
            return 0
        return int(text)

    def number(self, where: str, name: str, text: str) -> float:
        """A number of a cell; 0 after a complaint."""
        if not re.fullmatch(r"[0-9]{1,12}(\.[0-9]{1,12})?", text):
            self.complain(f"{where}:{name}", f"{shown(text)} is not a number")
            return 0.0
        return float(text)

    def seconds(self, where: str, name: str, text: str) -> int:
        """A time limit of a cell; 0 where it is none, or after a complaint."""
        try:
            limit_s = time_limit_s(text)
        except ValueError as error:
            self.complain(f"{where}:{name}", str(error))
            return 0
        return 0 if np.isnan(limit_s) else int(limit_s)

    def maintenance(
        self, one: Block, clock: LocalClock | None, until_s: float
    ) -> list[tuple[float, float]] | None:
        """When a reservation is maintenance, in seconds since 1970; None: it is for something else.

        Parameters
        ----------
        one : the reservation; nothing after a complaint.
        clock : on which its times are written; None: they are taken as they are.
        until_s : until when it repeats; infinite: it is listed once.
        """
        flags = set(one.says.get("Flags", "").upper().split(","))
        if "MAINT" not in flags:
            return None
        begin_s, end_s = (self.instant(one, name, clock) for name in ("StartTime", "EndTime"))
        if not (np.isfinite(begin_s) and np.isfinite(end_s)):
            return []
        if end_s <= begin_s:
            self.complain(f"{one.where}:EndTime", "is not after StartTime")
            return []
        if odd := flags & set(_NOT_REPEATED):
            self.complain(f"{one.where}:Flags", f"{min(odd)} is not simulated; DAILY and WEEKLY are")
            return []
        every_s = next((seconds for flag, seconds in _REPEATS.items() if flag in flags), 0)
        times = 1
        if every_s and np.isfinite(until_s):
            times = min(max(1, 1 + int((until_s - begin_s) // every_s)), _MOST_REPEATS)
        return [(begin_s + at * every_s, end_s + at * every_s) for at in range(times)]

    def instant(self, one: Block, name: str, clock: LocalClock | None) -> float:
        """An instant of a record in seconds since 1970; infinite: not yet; nan after a complaint. clock: of its place."""
        try:
            text = one.says.get(name, "")
            if text == "Unknown":
                return np.inf
            return parse_instant(text) / 1e9 if clock is None else clock.utc_s(text, one.where)
        except ValueError as error:
            self.complain(f"{one.where}:{name}", str(error))
            return float("nan")

    def gpus(self, where: str, name: str, text: str) -> tuple[dict[str, int], list[str]]:
        """GPUs in a list of resources by type (empty: any), and the names of its other resources."""
        counts: dict[str, int] = {}
        others: list[str] = []
        for item in text.split(","):
            resource, equals, count = item.strip().partition("=")
            if not equals:
                self.complain(f"{where}:{name}", f"{shown(item)} is no resource such as gres/gpu=8")
            elif match := _GPU.fullmatch(resource):
                if count != "-1":
                    counts[match[1] or ""] = self.whole(where, name, count)
            else:
                others.append(resource)
        return counts, others


def read_slurm_site(
    paths: Sequence[Path],
    cluster: Cluster,
    node_gpus: Mapping[str, int] | None,
    *,
    timezone: str = "",
    until_s: float = np.inf,
    conf: SlurmPriorities | None = None,
) -> Site:
    """Limits, time limits, maintenance and nodes that were away from what Slurm's commands print, and its configuration.

    Parameters
    ----------
    paths : the files.
    cluster : the machines.
    node_gpus : GPUs of each node that counts, by name; None: no file names the nodes.
    timezone : where the clock of `scontrol show res` hangs (default: times are taken as they are written).
    until_s : until when reservations repeat, in seconds since 1970 (default: they are listed once).
    conf : the configuration (default: there is none).

    Raises ScenarioError with every problem of the files.
    """
    site = SlurmSite("" if conf is None else conf.cluster)
    for path in paths:
        site.read(path)
    made = _Made(site, cluster, node_gpus, frozenset() if conf is None else conf.nodes)
    site.reject_circles()
    for qos in site.qos:
        made.of_qos(qos, {"qos": frozenset({qos.name})}, _rank(qos))
    for partition in site.partitions:
        made.of_partition(partition)
    for name, (where, says) in conf.partitions.items() if conf is not None else ():
        if all(name != one.name for one in site.partitions):
            made.of_configured(
                Block(where, name, {"QoS": says.get("qos", ""), "State": says.get("state", "")})
            )
    made.of_nodes()
    for association in site.associations:
        made.of_association(association)
    clock = LocalClock(timezone, RepairLog()) if timezone else None
    for reservation in site.reservations:
        made.of_reservation(reservation, clock, until_s)
    made.of_events(clock)
    if site.problems:
        raise ScenarioError(*list(dict.fromkeys(site.problems))[:20])
    return made.site()


def nodes_of_partitions(paths: Iterable[Path]) -> dict[str, tuple[str, str]]:
    """The nodes of partitions as `scontrol show partition` prints them into some files, by name, and where."""
    site = SlurmSite()
    for path in paths:
        site.read(path)
    return {one.name: (one.where, one.says["Nodes"]) for one in site.partitions if "Nodes" in one.says}


def _rank(qos: Qos) -> int:
    return 0 if "OverPartQOS" in qos.flags else _JOB_QOS


class _Made:
    """What is made of the records of a site.

    Parameters
    ----------
    read : the records.
    cluster, node_gpus : the machines, and GPUs by node if a file names them.
    nodes : names of all nodes, those without GPUs among them; none: no file has them.
    """

    def __init__(
        self, read: SlurmSite, cluster: Cluster, node_gpus: Mapping[str, int] | None, nodes: frozenset[str]
    ) -> None:
        self.read, self.cluster, self.node_gpus, self.nodes = read, cluster, node_gpus, nodes
        self.rules: list[LimitRule] = []
        self.longest: list[TimeLimit] = []
        self.outages: list[Outage] = []
        self.failures: dict[float, set[int]] = {}
        self.ignored: dict[str, list[str]] = {}
        self.beside: list[str] = []

    def site(self) -> Site:
        """All of it."""
        notes = [
            f"not simulated: {column} of {', '.join(names[:5])}"
            + (f" and {len(names) - 5} more" if len(names) > 5 else "")
            for column, names in self.ignored.items()
        ]
        said = (*self.read.notes, *notes, *self.beside)
        failures = {at_s: tuple(sorted(self.failures[at_s])) for at_s in sorted(self.failures)}
        return Site(tuple(self.rules), {}, tuple(self.longest), tuple(self.outages), said, failures=failures)

    def of_qos(self, qos: Qos, of: Mapping[RuleColumn, frozenset[str]], rank: int) -> None:
        """The limits of a QOS over some jobs."""
        self._limits(f"QOS {qos.name}", qos.where, qos.says, _OF_QOS, of, rank)
        if "Preempt" in qos.says and not self.nodes:  # slurm.conf says whether it means anything
            self._ignore("Preempt", f"QOS {qos.name}")

    def of_association(self, one: Association) -> None:
        """The limits of an account, for it and all below it, or of a user of an account."""
        if one.user:
            of: dict[RuleColumn, frozenset[str]] = {
                "account": frozenset({one.account}),
                "user": frozenset({one.user}),
            }
            if one.partition:
                of["partition"] = frozenset({one.partition})
            self._limits(f"user {one.user} of {one.account}", one.where, one.says, _OF_USER, of, _ASSOCIATION)
        else:
            of = {"account": self._below(one.account)}
            says = {name: text for name, text in one.says.items() if not name.startswith("Max")}
            self._limits(f"account {one.account}", one.where, says, _OF_ACCOUNT, of, _ASSOCIATION)

    def _below(self, account: str) -> frozenset[str]:
        """An account and all below it."""
        below, grown = {account}, True
        while grown:
            more = {one.account for one in self.read.associations if one.parent in below} - below
            below |= more
            grown = bool(more)
        return frozenset(below)

    def of_partition(self, one: Block) -> None:
        """The GPUs and the time limit of a partition, and the limits of its QOS."""
        of: dict[RuleColumn, frozenset[str]] = {"partition": frozenset({one.name})}
        name = f"partition {one.name}"
        gpus = self._gpus_of(one, "TotalNodes")
        if one.name not in self.cluster.partitions and gpus < self.cluster.gpus:  # else its nodes limit it
            self.rules.append(LimitRule(name, of, gpus=gpus))
        if "MaxTime" in one.says and (
            limit_s := self.read.seconds(one.where, "MaxTime", one.says["MaxTime"])
        ):
            self.longest.append(TimeLimit(name, of, limit_s))
        if most := one.says.get("MaxNodes"):
            nodes = self.read.whole(one.where, "MaxNodes", most)
            self.rules.append(LimitRule(f"{name}: MaxNodes", of, job_gpus=nodes * self.cluster.gpus_per_node))
        self.of_configured(one)

    def of_configured(self, one: Block) -> None:
        """The QOS of a partition, and a note on one that is not up."""
        of: dict[RuleColumn, frozenset[str]] = {"partition": frozenset({one.name})}
        name = f"partition {one.name}"
        state = one.says.get("State", "").upper()
        if state not in ("", "UP"):
            self.beside.append(f"{one.where}: {name} is {state}; its jobs run as if it were up")
        given = one.says.get("QoS", "")
        if given:
            qos = next((each for each in self.read.qos if each.name == given), None)
            if qos is None:
                self.beside.append(f"not simulated: QOS {given} of {name}, which no file describes")
            else:
                self.of_qos(qos, of, _PARTITION_QOS)

    def of_reservation(self, one: Block, clock: LocalClock | None, until_s: float) -> None:
        """The windows of maintenance that a reservation is."""
        times = self.read.maintenance(one, clock, until_s)
        if times is None:
            whose = one.says.get("Users") or one.says.get("Accounts") or "some"
            self.beside.append(f"not simulated: reservation {one.name} for {whose}, its GPUs are everybody's")
            return
        if not times:
            return
        gpus = self._gpus_of(one, "NodeCnt")
        mine = self._nodes_of(one)
        self.outages += [
            self._outage(one.name, begin_s, end_s, gpus, mine) for begin_s, end_s in times if gpus
        ]

    def _outage(
        self, name: str, begin_s: float, end_s: float, gpus: int, mine: set[str], announced_s: float = -np.inf
    ) -> Outage:
        """Nodes that are out. mine: their names."""
        number = {name: at for at, name in enumerate(self.node_gpus or ())}
        return Outage(name, begin_s, end_s, gpus, tuple(sorted(number[one] for one in mine)), announced_s)

    def of_events(self, clock: LocalClock | None) -> None:
        """The times at which nodes were away without notice, outside of maintenance.

        Those of one node that overlap are one.
        """
        spans: dict[str, list[tuple[float, float]]] = {}
        planned: dict[str, list[tuple[float, float]]] = {}
        names_of = list(self.node_gpus or ())
        for outage in self.outages:
            for node in outage.nodes:
                planned.setdefault(names_of[node], []).append((outage.from_s, outage.to_s))
        for one in self.read.events:
            begin_s, end_s = (self.read.instant(one, name, clock) for name in ("TimeStart", "TimeEnd"))
            state = one.says.get("State", "DOWN")
            if is_away(state) and end_s > begin_s:
                for name in self._nodes_of(Block(one.where, one.name, {"Nodes": one.name})):
                    spans.setdefault(name, []).append((begin_s, end_s))
                    planned_s = planned.get(name, ())
                    if "DOWN" in state.upper() and not any(a_s <= begin_s < b_s for a_s, b_s in planned_s):
                        self.failures.setdefault(begin_s, set()).add(names_of.index(name))
        together: dict[tuple[float, float, float], set[str]] = {}
        for name, listed in spans.items():
            joined: list[tuple[float, float]] = []
            for begin_s, end_s in sorted(listed):
                if joined and begin_s <= joined[-1][1]:
                    joined[-1] = joined[-1][0], max(end_s, joined[-1][1])
                else:
                    joined.append((begin_s, end_s))
            for begin_s, end_s in joined:
                for piece in _without(begin_s, end_s, planned.get(name, ())):
                    together.setdefault((*piece, begin_s), set()).add(name)
        for (from_s, to_s, begin_s), names in sorted(together.items(), key=lambda one: one[0]):
            gpus = sum((self.node_gpus or {})[name] for name in names)
            self.outages.append(self._outage("nodes away", from_s, to_s, gpus, names, begin_s))

    def of_nodes(self) -> None:
        """A note on nodes that are away as `scontrol show node` is printed, after a complaint of another cluster's."""
        names = [one.name for one in self.read.nodes]
        if names and self.nodes and not self.nodes.intersection(names):
            what = f"is of another cluster? slurm.conf has no node {named(names)}"
            self.read.complain(self.read.nodes[0].where, what)
        away = [one.name for one in self.read.nodes if is_away(one.says.get("State", ""))]
        if away:
            self.beside.append(
                f"away as scontrol printed its nodes, and simulated as if they were not: {named(away)}"
            )

    def _gpus_of(self, one: Block, count: str) -> int:
        """The GPUs of the nodes of a reservation or partition, of those that count."""
        if one.says.get("Nodes", "").lower() == "all":
            return self.cluster.gpus
        if self.node_gpus is not None and "Nodes" in one.says:
            return sum(self.node_gpus[name] for name in self._nodes_of(one))
        if "TRES" in one.says:
            counts, _ = self.read.gpus(one.where, "TRES", one.says["TRES"])
            if counts:
                return min(counts.get("", sum(counts.values())), self.cluster.gpus)
        if len({group.gpus for group in self.cluster.groups}) > 1:
            self.read.complain(
                one.where,
                f"{one.name} has nodes, of which the machines know no names; give them as machines.file: slurm.conf",
            )
            return 0
        nodes = self.read.whole(one.where, count, one.says.get(count, "0"))
        return min(nodes * self.cluster.gpus_per_node, self.cluster.gpus)

    def _nodes_of(self, one: Block) -> set[str]:
        """The nodes of a reservation or partition, of those that count; none where no file names the nodes."""
        known = set(self.node_gpus or ())
        text = one.says.get("Nodes", "")
        if text.lower() == "all":
            return known
        try:
            names = set(node_names(text, 1_000_000))
            if names and self.nodes and not names & self.nodes:
                what = f"{one.name} is of another cluster? slurm.conf has no node {named(sorted(names))}"
                self.read.complain(one.where, what)
            return {name for name in known if name.partition(":")[0] in names}
        except ValueError as error:
            self.read.complain(f"{one.where}:Nodes", str(error))
            return set()

    def _limits(
        self,
        name: str,
        where: str,
        says: Mapping[str, str],
        known: Mapping[str, tuple[str, tuple[RuleColumn, ...]]],
        of: Mapping[RuleColumn, frozenset[str]],
        rank: int,
    ) -> None:
        """The rules that the columns of a record say; others are noted."""
        for column, text in says.items():
            called = f"{name}: {column}"
            if column == "MaxWall":
                if limit_s := self.read.seconds(where, column, text):
                    self.longest.append(TimeLimit(called, of, limit_s))
            elif column not in known:
                if column.startswith(("Grp", "Max", "Min")):
                    self._ignore(column, name)
            elif known[column][0] == "jobs":
                per, jobs = known[column][1], self.read.whole(where, column, text)
                self.rules.append(
                    LimitRule(called, of, per, jobs=jobs, kind=f"jobs of {per or 'all'}", rank=rank)
                )
            else:
                counted, per = known[column]
                counts, others = self.read.gpus(where, column, text)
                if others:
                    self._ignore(f"{column} of {', '.join(others)}", name)
                for gpu_type, gpus in counts.items():
                    kind = f"{counted} of {per or 'all'} {gpu_type}"
                    alone = counted == "job"
                    self.rules.append(
                        LimitRule(
                            called, of, per, gpu_type=gpu_type, kind=kind, rank=rank,
                            gpus=UNLIMITED if alone else gpus, job_gpus=gpus if alone else UNLIMITED,
                        )
                    )  # fmt: skip

    def _ignore(self, column: str, name: str) -> None:
        names = self.ignored.setdefault(column, [])
        if name not in names:
            names.append(name)


def _without(from_s: float, to_s: float, others: Iterable[tuple[float, float]]) -> list[tuple[float, float]]:
    """What is left of a stretch without others, so that nothing is away twice."""
    pieces = [(from_s, to_s)]
    for begin_s, end_s in others:
        cut = [((a_s, min(b_s, begin_s)), (max(a_s, end_s), b_s)) for a_s, b_s in pieces]
        pieces = [piece for both in cut for piece in both if piece[0] < piece[1]]
    return pieces


def _set(cells: Mapping[str, str]) -> dict[str, str]:
    """The cells that say something, without blanks around them."""
    return {name: text.strip() for name, text in cells.items() if text.strip().lower() not in _UNSET}
