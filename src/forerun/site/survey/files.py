"""The files of a site: what each is, by its content."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from enum import Enum
from pathlib import Path
from typing import Final

from forerun.cluster.inputs.slurm_conf import node_names
from forerun.core.errors import InputError, UsageError
from forerun.core.regular import read_regular, unreadable
from forerun.core.trace.reader import readers, sniff

#: text of a file that is no log
MOST_BYTES: Final = 64 * 2**20
_MOST_FILES: Final = 1000


class Kind(Enum):
    """What a file is; the value is what it is called."""

    LOG = "log of jobs"
    CONF = "Slurm configuration"
    PARTITIONS = "partitions, as scontrol show partition prints them"
    RESERVATIONS = "reservations, as scontrol show res prints them"
    NODES = "nodes, as scontrol show node prints them"
    QOS = "qualities of service, as sacctmgr show qos prints them"
    ASSOCIATIONS = "accounts and users, as sacctmgr show assoc prints them"
    EVENTS = "events of nodes, as sacctmgr show event prints them"
    QUEUE = "queue, as squeue prints it"
    KUEUE = "queues of Kueue"
    UNKNOWN = "not recognised"


#: what goes into a scenario beside the log and the configuration
SITE_KINDS: Final = (
    Kind.PARTITIONS, Kind.RESERVATIONS, Kind.NODES, Kind.QOS, Kind.ASSOCIATIONS, Kind.EVENTS,
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class SiteFile:
    """A file of a site.

    Parameters
    ----------
    path : where it is.
    kind : what it is.
    format : of a log: the reader that reads it; empty: none.
    text : its content, unless it is a log.
    gave : what was taken from it, in words (default: nothing yet).
    unused : what of it is not used, and why (default: nothing).
    """

    path: Path
    kind: Kind
    format: str = ""
    text: str = field(default="", repr=False)
    gave: str = ""
    unused: str = ""

    @property
    def name(self) -> str:
        """The name of the file."""
        return self.path.name

    def row(self) -> dict[str, str]:
        """As a row of a table."""
        what = self.kind.value + (f" ({self.format})" if self.format else "")
        return {"file": self.name, "is": what, "gave": self.gave or "–", "not used": self.unused or "–"}


def listed(paths: Sequence[Path]) -> tuple[Path, ...]:
    """The files that are named, and those in folders that are named, each once. Raises UsageError for what is not there."""
    found: dict[Path, None] = {}
    for path in paths:
        if path.is_dir():
            inside = (one for one in sorted(path.iterdir()) if one.is_file() and one.name[0] != ".")
            found |= dict.fromkeys(inside)
        elif path.exists():
            found[path] = None
        else:
            raise UsageError.at(path, "no such file or folder")
    if len(found) > _MOST_FILES:
        raise UsageError.at(paths[0], f"holds {len(found):,} files; at most {_MOST_FILES:,} are looked into")
    return tuple(found)


def recognised(path: Path) -> SiteFile:
    """What a file is, by its content; a file that cannot be read is not recognised, and says why."""
    try:
        formats = [name for name in sniff(path) if readers().get(name).makes in ("jobs", "any")]
    except InputError as error:
        return SiteFile(path, Kind.UNKNOWN, unused=error.problems[0].what)
    if len(formats) == 1:
        return SiteFile(path, Kind.LOG, formats[0])
    try:
        text = read_regular(path, most_bytes=MOST_BYTES).decode("utf-8", errors="replace")
    except OSError as error:
        return SiteFile(path, Kind.UNKNOWN, unused=unreadable(error))
    kind = next((kind for kind, fits in _KINDS if fits(text.lstrip())), Kind.UNKNOWN)
    why = "no known format of a log or of a site's files" if kind is Kind.UNKNOWN else ""
    return SiteFile(path, kind, text=text, unused=why)


def _header(*names: str) -> Callable[[str], bool]:
    """Whether the first line of a text is a header of columns with these among them."""
    return lambda text: set(names) <= {one.strip() for one in text.partition("\n")[0].split("|")}


def _begins(pattern: str) -> Callable[[str], bool]:
    found = re.compile(pattern, re.DOTALL)
    return lambda text: found.match(text) is not None


#: the first that fits; `scontrol` prints of a partition or node what no configuration has
_KINDS: Final[tuple[tuple[Kind, Callable[[str], bool]], ...]] = (
    (Kind.RESERVATIONS, _begins(r"ReservationName=|(?i:no reservations)")),
    (Kind.PARTITIONS, _begins(r"PartitionName=(?=.*\bTotalNodes=)")),
    (Kind.NODES, _begins(r"NodeName=\S+\s(?=.*\b(?:CPUTot|CfgTRES|Partitions)=)")),
    (Kind.QUEUE, _header("JOBID", "STATE")),
    (Kind.EVENTS, _header("NodeName", "TimeStart")),
    (Kind.ASSOCIATIONS, _header("Account", "User")),
    (Kind.QOS, _header("Name", "Priority")),
    (Kind.KUEUE, lambda text: "kueue.x-k8s.io/" in text),
    (
        Kind.CONF,
        lambda text: (
            re.search(r"(?im)^\s*(?:ClusterName|NodeName|PartitionName|NodeSet|Include)\s*[= ]", text)
            is not None
            and re.search(r"(?im)\bName=gpu\b", text) is None
        ),
    ),
)


def of_this_site(files: Iterable[SiteFile]) -> list[SiteFile]:
    """The files, those of another cluster than the configuration's set aside and named."""
    found = list(files)
    confs = [one.text for one in found if one.kind is Kind.CONF]
    named = {name.lower() for text in confs for name in re.findall(r"(?im)^\s*ClusterName=(\S+)", text)}
    nodes = {
        node
        for text in confs
        for names in re.findall(r"(?im)^\s*NodeName=(\S+)", text)
        for node in _nodes(names)
    }
    return [_of_cluster(one, named, nodes) for one in found]


def _of_cluster(file: SiteFile, clusters: set[str], nodes: set[str]) -> SiteFile:
    """A file, or that it is of another cluster. clusters, nodes: of the configuration, the former in lower case."""
    if file.kind in (Kind.ASSOCIATIONS, Kind.EVENTS) and clusters:
        theirs = {name for name in _column(file.text, "Cluster") if name}
        if theirs and not {name.lower() for name in theirs} & clusters:
            other, own = (", ".join(sorted(names)) for names in (theirs, clusters))
            return replace(file, kind=Kind.UNKNOWN, unused=f"is of cluster {other}; slurm.conf is of {own}")
    if file.kind in (Kind.PARTITIONS, Kind.RESERVATIONS, Kind.NODES) and nodes:
        key = "NodeName" if file.kind is Kind.NODES else "Nodes"
        lists = [
            one for one in re.findall(rf"(?m)(?:^|\s){key}=(\S+)", file.text) if one not in ("ALL", "(null)")
        ]
        theirs = {node for names in lists for node in _nodes(names)}
        if theirs and not theirs & nodes:
            what = f"is of another cluster: slurm.conf has no node {min(theirs)} nor any other of it"
            return replace(file, kind=Kind.UNKNOWN, unused=what)
    return file


def _nodes(names: str) -> list[str]:
    """The nodes of a list; none for one that is wrong, which whoever reads the file says."""
    try:
        return node_names(names, 1_000_000)
    except ValueError:
        return []


def _column(text: str, name: str) -> list[str]:
    """The cells of a column of a table with bars."""
    head, *lines = text.splitlines()
    names = head.split("|")
    at = names.index(name) if name in names else len(names)
    return [cells[at].strip() for line in lines if at < len(cells := line.split("|"))]
