"""Machines from a Slurm configuration: nodes with their GPUs, whole or those of a partition.

Format: the manual page of slurm.conf. Parameter names are case-insensitive, `#` begins a comment, a backslash at the end
of a line continues it, a line `NodeName=DEFAULT` sets what later lines leave out, and `gpu[01-16,20]` is seventeen names.
Nodes that are DOWN, drained, failing or reserved for the FUTURE, and nodes without GPUs, are left out.
"""

from __future__ import annotations

import itertools
import math
import re
import shlex
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Final

from forerun.cluster.inputs.arrays import Cluster, NodeGroup
from forerun.cluster.inputs.files import cluster_of
from forerun.cluster.inputs.site import TimeLimit
from forerun.cluster.readers.sacct import time_limit_s
from forerun.core.errors import Problem, ScenarioError, known_names
from forerun.core.regular import read_regular, unreadable

#: a configuration is text that people write; more is another file
MOST_BYTES: Final = 16 * 1024 * 1024
#: Include within Include
MOST_DEPTH: Final = 8
#: initial states of nodes that run no jobs
_AWAY: Final = ("down", "drain", "fail", "future")
#: marks of states, between several or at the end of one
_MARKS: Final = re.compile(r"[+*~#!%$@^-]")
_COMMENT: Final = re.compile(r"(?<!\\)#.*")
#: parameters of job priorities; with the cluster and its scheduler
_RANKING: Final = ("priority", "fairsharedampeningfactor")
_SETTINGS: Final = (*_RANKING, "scheduler", "preempt", "clustername", "accountingstoragetype")
_RANGES: Final = re.compile(r"\[([^\[\]]*)\]")


@dataclass(frozen=True, slots=True)
class _Line:
    """What a line says, by parameter in lower case, and where it stands."""

    where: str
    says: Mapping[str, str]


@dataclass(slots=True)
class _Read:
    """The parts of a configuration that describe machines.

    Parameters
    ----------
    included : files that `Include` may name, by file name.
    most_nodes : more are an error.
    advice : what to do about a file that is not among them.
    """

    included: Mapping[str, Path]
    most_nodes: int
    advice: str = "give its copy, too (machines.included)"
    nodes: list[_Line] = field(default_factory=list)
    partitions: dict[str, _Line] = field(default_factory=dict)
    sets: dict[str, _Line] = field(default_factory=dict)
    settings: dict[str, _Line] = field(default_factory=dict)
    problems: list[Problem] = field(default_factory=list)
    _defaults: dict[str, dict[str, str]] = field(default_factory=dict)

    def read(self, path: Path, depth: int = 0) -> None:
        """Read a file and those that it includes."""
        for number, text in self._lines(path):
            where = f"{path.name}:{number}"
            if (words := text.split(None, 1))[0].lower() == "include":
                self._include(where, words[1].strip() if len(words) > 1 else "", depth)
                continue
            try:
                pairs = [word.partition("=") for word in shlex.split(text)]
            except ValueError as error:
                self.problems.append(Problem(where, f"cannot be split into words: {error}"))
                continue
            kind = pairs[0][0].lower()
            if kind in ("nodename", "partitionname", "nodeset"):
                self._take(kind, _Line(where, {name.lower(): value for name, _, value in pairs}))
            elif kind.startswith(_SETTINGS):
                self.settings[kind] = _Line(where, {kind: pairs[0][2]})

    def _lines(self, path: Path) -> Iterator[tuple[int, str]]:
        """Lines that say something, with the number at which each begins, comments cut and continued lines joined."""
        try:
            text = read_regular(path, most_bytes=MOST_BYTES).decode("utf-8", errors="replace")
        except OSError as error:
            self.problems.append(Problem(str(path), unreadable(error)))
            return
        begin, so_far = 0, ""
        printed = (
            text.startswith("NodeName=") and "\n   " in text
        )  # by scontrol show node, which indents what goes on
        for number, line in enumerate(text.splitlines(), 1):
            said = _COMMENT.sub("", line).rstrip()
            if printed:
                if said and not said.startswith(" ") and so_far:
                    yield begin, so_far.strip()
                    so_far = ""
                begin = begin if so_far else number
                so_far += said + " "
                continue
            begin = begin if so_far else number
            if said.endswith("\\"):
                so_far += said[:-1] + " "
                continue
            if whole := (so_far + said).strip():
                yield begin, whole
            so_far = ""
        if so_far.strip():
            yield begin, so_far.strip()

    def includes(self, path: Path) -> set[str]:
        """The names of files that a file includes itself, without their folders."""
        words = [text.split(None, 1) for _, text in self._lines(path)]
        return {Path(one[1].strip()).name for one in words if one[0].lower() == "include" and len(one) > 1}

    def _include(self, where: str, name: str, depth: int) -> None:
        path = self.included.get(Path(name).name)
        if path is None:
            what = f"includes {name or 'nothing'}; {self.advice}, or write its lines into this file"
            self.problems.append(Problem(where, what))
        elif depth == MOST_DEPTH:
            self.problems.append(Problem(where, f"is the {MOST_DEPTH + 1}th Include within another"))
        else:
            self.read(path, depth + 1)

    def _take(self, kind: str, line: _Line) -> None:
        name = line.says[kind]
        if name.lower() == "default":
            self._defaults[kind] = {**self._defaults.get(kind, {}), **line.says}
            return
        whole = _Line(line.where, {**self._defaults.get(kind, {}), **line.says})
        if kind == "nodename":
            self.nodes.append(whole)
        else:
            (self.partitions if kind == "partitionname" else self.sets)[name.lower()] = whole

    def names(self, where: str, text: str) -> list[str]:
        """The names that a list like `gpu[01-03],login` stands for; none after a complaint."""
        try:
            return node_names(text, self.most_nodes)
        except ValueError as error:
            self.problems.append(Problem(where, str(error)))
            return []

    def members(self, file: str, partition: str) -> set[str] | None:
        """The names of the nodes of a partition of a file; None for all nodes there are."""
        line = self.partitions.get(partition.lower())
        if line is None:
            known = known_names(partition, [one.says["partitionname"] for one in self.partitions.values()])
            self.problems.append(Problem(file, f"has no partition {partition!r}; {known}"))
            return set()
        members: set[str] = set()
        for item in re.split(r",(?![^\[]*\])", line.says.get("nodes", "")):
            if item.lower() == "all":
                return None
            members |= self._of_set(self.sets[item.lower()]) if item.lower() in self.sets else set(
                self.names(line.where, item)
            )  # fmt: skip
        return members

    def _of_set(self, line: _Line) -> set[str]:
        members = set(self.names(line.where, line.says.get("nodes", "")))
        feature = line.says.get("feature", "").lower()
        for node in self.nodes if feature else ():
            said = node.says.get("features", node.says.get("feature", ""))
            if feature in said.lower().split(","):
                members |= set(self.names(node.where, node.says["nodename"]))
        return members

    def whole(self, line: _Line, name: str, default: int = 0) -> int:
        """A whole number of a line; the default if it is not there, and after a complaint if it is none."""
        text = line.says.get(name, "")
        if text and not re.fullmatch(r"[0-9]{1,12}", text):
            self.problems.append(Problem(line.where, f"{name} is {text}, a whole number is expected"))
        return int(text) if re.fullmatch(r"[0-9]{1,12}", text) else default

    def cpus(self, line: _Line) -> int:
        """The CPUs of each node of a line; 0: it does not say."""
        if cpus := next((name for name in ("cpus", "cputot", "procs") if name in line.says), ""):
            return self.whole(line, cpus)
        parts = ("boards", "socketsperboard", "sockets", "corespersocket", "threadspercore")
        return (
            math.prod(self.whole(line, name, 1) for name in parts) if {*parts[1:]} & line.says.keys() else 0
        )

    def gpus(self, line: _Line) -> dict[str, int]:
        """How many GPUs each node of a line has, by their type; empty: the file does not say it."""
        types: dict[str, int] = {}
        for item in re.sub(r"\([^)]*\)", "", line.says.get("gres", "")).split(","):
            name, *more = item.strip().split(":")
            if name.lower() != "gpu":
                continue
            counted = bool(more) and more[-1].isdecimal()
            of = more[0] if len(more) > counted else ""
            types[of] = types.get(of, 0) + (int(more[-1]) if counted else 1)
        return types


def node_names(text: str, most_nodes: int) -> list[str]:
    """The names that a list like `gpu[01-03],login` stands for. ValueError says what is wrong.

    Parameters
    ----------
    text : the list.
    most_nodes : more are an error.
    """
    names: list[str] = []
    for item in re.split(r",(?![^\[]*\])", text):
        parts: list[Sequence[str]] = []
        for at, part in enumerate(_RANGES.split(item.strip())):
            parts.append(_numbers(part, most_nodes) if at % 2 else (part,))
        if math.prod(map(len, parts)) + len(names) > most_nodes:
            raise ValueError(f"names more than {most_nodes:,} nodes")
        names += map("".join, itertools.product(*parts))
    return [name for name in names if name]


def is_away(state: str) -> bool:
    """Whether a node in a state such as `IDLE+DRAIN` or `DOWN*` runs no new jobs."""
    return any(part.startswith(_AWAY) for part in _MARKS.split(state.lower()))


def named(names: Sequence[str]) -> str:
    """The first names of a list, and how many there are more."""
    more = f" and {len(names) - 3} more" if len(names) > 3 else ""
    return ", ".join(names[:3]) + more


def _numbers(text: str, most_nodes: int) -> Sequence[str]:
    """`01-03,7` as 01, 02, 03, 7."""
    numbers: list[str] = []
    for part in text.split(","):
        first, _, last = part.partition("-")
        last = last or first
        if not (first.isdecimal() and last.isdecimal() and int(first) <= int(last)):
            raise ValueError(f"[{text}] is no list of ranges such as [01-16,20]")
        if int(last) - int(first) >= most_nodes:
            raise ValueError(f"names more than {most_nodes:,} nodes")
        numbers += (f"{number:0{len(first)}d}" for number in range(int(first), int(last) + 1))
    return numbers


@dataclass(frozen=True, slots=True)
class SlurmPriorities:
    """What a Slurm configuration says of priorities.

    Parameters
    ----------
    settings : `SchedulerType` and parameters such as `PriorityWeightAge`, in lower case, each with where it stands.
    partitions : by name, parameters in lower case, with where they stand.
    nodes : names of all nodes, those without GPUs and those that are away among them.
    cpus : that they have in all; 0: it is not said of each.
    """

    settings: Mapping[str, tuple[str, str]]
    partitions: Mapping[str, tuple[str, Mapping[str, str]]]
    nodes: frozenset[str]
    cpus: int

    @property
    def cluster(self) -> str:
        """The cluster's name; empty: not said."""
        return self.settings.get("clustername", ("", ""))[1]


def read_slurm_priorities(path: Path, included: Sequence[Path] = ()) -> SlurmPriorities:
    """What a Slurm configuration says of priorities. Raises ScenarioError if it cannot be read.

    Parameters
    ----------
    path : the configuration.
    included : copies of the files that it includes (default: none).
    """
    read = _Read({one.name: one for one in included}, 1_000_000)
    read.read(path)
    if read.problems:
        raise ScenarioError(*dict.fromkeys(read.problems))
    names = [read.names(line.where, line.says["nodename"]) for line in read.nodes]
    cpus = [read.cpus(line) for line in read.nodes]
    return SlurmPriorities(
        {name: (line.where, line.says[name]) for name, line in read.settings.items()},
        {line.says["partitionname"]: (line.where, line.says) for line in read.partitions.values()},
        frozenset(name for listed in names for name in listed),
        sum(len(listed) * each for listed, each in zip(names, cpus, strict=True)) if all(cpus) else 0,
    )


def included_by(paths: Sequence[Path]) -> set[str]:
    """The names of the files that some files include, without their folders."""
    read = _Read({}, 0)
    return {name for path in paths for name in read.includes(path)}


def partition_limits(conf: SlurmPriorities) -> tuple[TimeLimit, ...]:
    """The time limits of the partitions of a configuration. Raises ScenarioError for one that is none."""
    limits = []
    for name, (where, says) in conf.partitions.items():
        try:
            most_s = time_limit_s(says.get("maxtime", "UNLIMITED"))
        except ValueError as error:
            raise ScenarioError.at(where, f"MaxTime: {error}") from None
        if most_s > 0:
            limits.append(TimeLimit(f"partition {name}", {"partition": frozenset({name})}, int(most_s)))
    return tuple(limits)


def read_slurm_nodes(
    path: Path,
    gpu_type: str = "",
    *,
    partition: str = "",
    included: Sequence[Path] = (),
    printed: Mapping[str, tuple[str, str]] | None = None,
    most_gpus: int = 1_000_000,
    whole: bool = False,
) -> tuple[Cluster, dict[str, int]]:
    """The machines of a Slurm configuration, a group a line of nodes, and the GPUs of each node by its name.

    They are in the order of their names, in which Slurm fills them, whatever the order of the lines.

    A node with GPUs of several types is a node for each of them, as `n1` and `n1:a30`.

    Parameters
    ----------
    path : the configuration, or what `scontrol show node` prints.
    gpu_type : of GPUs whose type the file does not say, and the spelling of one that differs in case only (default: none).
    partition : whose nodes count (default: all).
    included : copies of the files that it includes (default: none).
    printed : what `scontrol show partition` prints as the nodes of partitions, and where; it counts (default: nothing).
    most_gpus : more are an error (default: a million).
    whole : whether every node counts as one GPU, whatever it has, as where jobs hold whole nodes (default: no).

    Raises ScenarioError with every problem, each with its line.
    """
    read = _Read({one.name: one for one in included}, most_gpus)
    read.read(path)
    for name, (where, nodes) in (printed or {}).items():
        says = (
            read.partitions[name.lower()].says if name.lower() in read.partitions else {"partitionname": name}
        )
        read.partitions[name.lower()] = _Line(where, {**says, "nodes": nodes})
    found = _Nodes(read, gpu_type, read.members(path.name, partition) if partition else None, whole)
    for line in sorted(read.nodes, key=_by_name):
        if not found.add(line):
            break
    found.check(path.name, partition)
    partitions = found.partitions(path.name)
    if read.problems:
        raise ScenarioError(*dict.fromkeys(read.problems))
    notes = found.notes(path.name, {} if partition else partitions)
    away_gpus = sum(found.away.values())
    cluster = replace(cluster_of(found.groups), partitions=partitions, notes=notes, away_gpus=away_gpus)
    return cluster, found.node_gpus


def _by_name(line: _Line) -> tuple[tuple[str, int], ...]:
    """By text, and by number where names have numbers: n2 goes before n10."""
    parts = re.findall(r"(\D*)(\d*)", re.sub(r"[\[\]]", "", line.says["nodename"]))
    return tuple((text, int(number or 0)) for text, number in parts)


@dataclass(slots=True)
class _Nodes:
    """The nodes of a configuration that count, line by line.

    Parameters
    ----------
    read, gpu_type, whole : as of `read_slurm_nodes`.
    members : names of the nodes that count; None: all.

    Attributes
    ----------
    groups, node_gpus : a group a line and type, and GPUs by name.
    known : where each node stands, those that do not count among them.
    away : GPUs of nodes that are left out, by name.
    mixed : names of nodes with GPUs of several types.
    """

    read: _Read
    gpu_type: str
    members: set[str] | None
    whole: bool
    groups: list[NodeGroup] = field(default_factory=list)
    node_gpus: dict[str, int] = field(default_factory=dict)
    known: dict[str, str] = field(default_factory=dict)
    away: dict[str, int] = field(default_factory=dict)
    mixed: list[str] = field(default_factory=list)

    def add(self, line: _Line) -> bool:
        """Take the nodes of a line; whether there may be more."""
        read, known = self.read, self.known
        names = read.names(line.where, line.says["nodename"])
        if twice := next((name for name in names if name in known), ""):
            read.problems.append(Problem(line.where, f"node {twice!r} stands in {known[twice]} already"))
        known |= dict.fromkeys(names, line.where)
        if len(known) > read.most_nodes:
            what = f"is the line with which there are more than {read.most_nodes:,} nodes"
            read.problems.append(Problem(line.where, what))
            return False
        mine = [name for name in names if self.members is None or name in self.members]
        types = {"": 1} if self.whole else {kind: gpus for kind, gpus in read.gpus(line).items() if gpus}
        total = sum(types.values())
        if is_away(line.says.get("state", "")) and "arch" not in line.says:  # else it is away only now
            self.away |= dict.fromkeys(mine, total) if types else {}
            return True
        cpus, memory_bytes = read.cpus(line), read.whole(line, "realmemory") * 2**20
        for at, (given, gpus) in enumerate(types.items() if mine else ()):
            same = not given or given.lower() == self.gpu_type.lower()
            beside = f":{given}" if at else ""
            self.groups.append(
                NodeGroup(
                    line.says["nodename"] + beside,
                    len(mine),
                    gpus,
                    self.gpu_type if same else given,
                    cpus=cpus * gpus // total,
                    memory_bytes=memory_bytes * gpus // total,
                )
            )
            self.node_gpus |= dict.fromkeys((name + beside for name in mine), gpus)
        self.mixed += mine if len(types) > 1 else []
        return True

    def check(self, file: str, partition: str) -> None:
        """Complain of more GPUs than are simulated, and of none."""
        total = sum(group.count * group.gpus for group in self.groups)
        if total > self.read.most_nodes:
            what = f"has {total:,} GPUs; at most {self.read.most_nodes:,} are simulated"
            self.read.problems.append(Problem(file, what))
        if not (self.groups or self.read.problems):
            whose = f"partition {partition!r}" if partition else "the file"
            what = f"{whose} has no node with GPUs; a line such as NodeName=gpu[01-16] Gres=gpu:a100:8 is expected"
            self.read.problems.append(Problem(file, what))

    def partitions(self, file: str) -> dict[str, tuple[int, ...]]:
        """The numbers of the nodes of each partition, by its name, after a complaint of nodes that there are not."""
        read = self.read
        number = {name: at for at, name in enumerate(self.node_gpus)}
        found: dict[str, tuple[int, ...]] = {}
        for line in read.nodes if not read.partitions else ():  # as scontrol shows them
            mine = read.names(line.where, line.says["nodename"]) if "partitions" in line.says else []
            for name in line.says.get("partitions", "").split(",") if mine else ():
                some = [at for node, at in number.items() if node.partition(":")[0] in mine]
                found[name] = (*found.get(name, ()), *some)
        for line in read.partitions.values():
            name = line.says["partitionname"]
            there = read.members(file, name)
            theirs = [node for node in number if there is None or node.partition(":")[0] in there]
            found[name] = tuple(sorted(number[node] for node in theirs))
            if there and (unknown := sorted(there - self.known.keys())):
                what = f"partition {name} names nodes that no NodeName line has: {named(unknown)}"
                read.problems.append(Problem(line.where, what))
        return found

    def notes(self, file: str, partitions: Mapping[str, tuple[int, ...]]) -> tuple[str, ...]:
        """What to know of nodes. partitions: of all of them; empty: there are none."""
        inside = set[int]().union(*partitions.values())
        alone = sorted(name for at, name in enumerate(self.node_gpus) if at not in inside)
        said = {
            "left out, as they are down, drained, failing or of the future": list(self.away),
            "with GPUs of several types, each type taken for a node of its own": self.mixed,
            "in no partition, and only for jobs without one": alone if partitions else [],
        }
        return tuple(f"{file}: {what}: {named(names)}" for what, names in said.items() if names)
