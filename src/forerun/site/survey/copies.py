"""Copies of a site's files with what a simulation reads of them: users and accounts by their pseudonyms, and no free text.

A copy has the lines of its file, so that messages name the right ones.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import numpy as np

from forerun.cluster.readers.kubernetes import read_objects
from forerun.core.trace.repair import RepairLog
from forerun.core.trace.rows import TEXT
from forerun.core.trace.source import Source
from forerun.core.trace.table import Provenance, Trace
from forerun.site.survey.collect import QUEUE, QUEUE_KINDS, projected
from forerun.site.survey.files import Kind, SiteFile
from forerun.site.survey.pseudonyms import Pseudonyms, gather, listed

#: columns of tables, by what is in them
_USERS: Final = frozenset({"User"})
_ACCOUNTS: Final = frozenset({"Account", "Par Name", "ParentName", "Def Acct"})
_LABELS: Final = frozenset({"QOS", "Def QOS", "Name", "Preempt"})
_FREE: Final = frozenset({
    "Reason", "Descr", "Description", "Org", "Organization", "Coordinators", "Comment", "Admin",
})  # fmt: skip
#: what a configuration says that is read; the rest, passwords and paths among it, stays where it is
_CONF: Final = re.compile(
    r"(?i)\s*(?:NodeName|PartitionName|NodeSet|ClusterName|Scheduler|Priority|Preempt|FairShare|SelectType|"
    r"EnforcePartLimits|MaxArraySize|OverTimeLimit|KillWait|AccountingStorage(?:Type|TRES|Enforce)|DefMem|GresTypes)\w*\s*="
    r"|\s*Include\s"
)
_COMMENT: Final = re.compile(r"(?<!\\)#.*")
_PAIR: Final = re.compile(r"(?P<key>[A-Za-z_]+)=(?P<value>\S*)")
#: keys of blocks and of lines of a configuration whose values are names, and those that are free text to the line's end
_KEYS: Final[Mapping[str, bool]] = {
    "users": False, "accounts": True, "allowaccounts": True, "denyaccounts": True,
}  # fmt: skip
_LABEL_KEYS: Final = frozenset({"reservationname", "qos", "allowqos", "denyqos"})
_DROPPED_KEYS: Final = frozenset({"groups", "allowgroups", "denygroups", "owner"})
_FREE_TO_END: Final = re.compile(r"\b(?:Reason|Comment|Extra|OS)=.*")


def names_in(file: SiteFile, of: Pseudonyms) -> None:
    """Make the users and accounts of a table known, whatever else is wrong with it."""
    text = file.text or _beginning(file.path)
    head, *lines = text.splitlines() or [""]
    mark = next((one for one in "|\t," if one in head), "|")
    columns = [name.strip().lower() for name in head.split(mark)]
    for accounts, known in ((False, ("user", "user_id", "username")), (True, ("account", "group"))):
        for at in (at for at, name in enumerate(columns) if name in known):
            cells = (cells[at].strip() for line in lines if at < len(cells := line.split(mark)))
            gather(cells, of, accounts=accounts)


def _beginning(path: Path) -> str:
    try:
        with path.open("rb") as file:
            return file.read(64 * 2**20).decode("utf-8", errors="replace")
    except OSError:
        return ""


def log_copy(log: Trace, of: Pseudonyms) -> Trace:
    """A log of jobs with pseudonyms for its users and accounts, and for ids that may be names."""
    changed: dict[str, Any] = {}
    for name, call in (("user", of.user), ("account", of.account), ("job_id", of.job)):
        if name in log:
            changed[name] = [call(text) for text in log[name].tolist()]
    if "vc" in log:  # of Kueue: a namespace and a LocalQueue, where the ClusterQueue is not known
        changed["vc"] = [_queue(text, of) if "/" in text else text for text in log["vc"].tolist()]
    for name in ("qos", "reservation"):
        if name in log:
            of_label = {text: of.label(text) for text in set(log[name].tolist())}
            changed[name] = [of_label[text] for text in log[name].tolist()]
    columns = {**log.columns, **{name: np.array(texts, TEXT) for name, texts in changed.items()}}
    made = log.provenance
    kept = Provenance(format=made.format, source=made.source, sha256=made.sha256, options=made.options)
    return Trace(log.kind, log.schema, columns, time=log.time, provenance=kept)


def _queue(name: str, of: Pseudonyms) -> str:
    namespace, _, local = name.partition("/")
    return f"{of.user(namespace)}/{of.account(local)}"


def copy_of(file: SiteFile, of: Pseudonyms) -> str:
    """The text of a file's copy. Raises TraceError for objects that cannot be read."""
    if file.kind is Kind.KUEUE:
        return _objects(file, of)
    if file.kind is Kind.CONF:
        return "\n".join(_configured(file.text, of)) + "\n"
    if file.kind in (Kind.QOS, Kind.ASSOCIATIONS, Kind.EVENTS):
        return "\n".join(_table(file, of)) + "\n"
    lines = (_FREE_TO_END.sub("", line) for line in file.text.splitlines())
    return "\n".join(_PAIR.sub(lambda pair: _pair(pair, of), line) for line in lines) + "\n"


def _table(file: SiteFile, of: Pseudonyms) -> list[str]:
    """The lines of a table that sacctmgr prints; blanks before an account show its depth."""
    head, *lines = file.text.splitlines()
    names = [name.strip() for name in head.split("|")]
    made = [head]
    for line in lines:
        cells = line.split("|")
        for at, name in enumerate(names[: len(cells)]):
            cell = cells[at].strip()
            if name in _FREE or (name == "User" and file.kind is Kind.EVENTS):
                cells[at] = ""
            elif name in _USERS or name in _ACCOUNTS:
                called = (of.user if name in _USERS else of.account)(cell)
                cells[at] = cells[at][: len(cells[at]) - len(cells[at].lstrip())] + called
            elif name in _LABELS:
                cells[at] = of.label(cells[at])
        made.append("|".join(cells) if len(cells) <= len(names) + 1 else of.label(line))
    return made


def _configured(text: str, of: Pseudonyms) -> list[str]:
    """The lines of a configuration that are read; what follows a backslash is of the same line."""
    made, wanted, goes_on = list[str](), False, False
    for line in text.splitlines():
        said = _COMMENT.sub("", line).rstrip()
        wanted = wanted if goes_on else _CONF.match(said) is not None
        goes_on = said.endswith("\\")
        made.append(_PAIR.sub(lambda pair: _pair(pair, of), said) if wanted else "")
    return made


def _pair(pair: re.Match[str], of: Pseudonyms) -> str:
    """A `Key=Value` of a block or line."""
    key, value = pair["key"].lower(), pair["value"]
    if key in _KEYS:
        value = listed(value, of, accounts=_KEYS[key])
    elif key in _LABEL_KEYS:
        value = of.label(value)
    elif key in _DROPPED_KEYS:
        value = "(null)"
    return f"{pair['key']}={value}"


def _objects(file: SiteFile, of: Pseudonyms) -> str:
    """The queues, cohorts and flavors of a file as JSON, with what is read of them."""
    items = []
    for one in read_objects(Source(file.path, repairs=RepairLog())):
        if one.kind in QUEUE_KINDS:
            made = projected(one.data, QUEUE)
            if one.kind == "LocalQueue":
                about = made["metadata"]
                about["namespace"] = of.user(str(about.get("namespace", "")))
                about["name"] = of.account(str(about.get("name", "")))
            items.append(made)
        elif one.kind in ("Configuration", "ConfigMap"):
            items.append(one.data)
    return json.dumps({"apiVersion": "v1", "kind": "List", "items": items}, indent=1) + "\n"
