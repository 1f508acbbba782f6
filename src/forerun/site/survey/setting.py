"""From the files of a site to a scenario and the files that it names."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

import numpy as np
import yaml

from forerun.cluster.inputs.slurm_conf import read_slurm_nodes
from forerun.core.atomic_write import WRITTEN
from forerun.core.errors import ForerunError, InputError, UsageError
from forerun.core.registry import member_name
from forerun.core.trace.files import save_trace
from forerun.core.trace.reader import read_trace, readers
from forerun.core.trace.repair import RepairLog
from forerun.core.trace.table import Trace
from forerun.site.files import slurm_policy
from forerun.site.survey.copies import copy_of, log_copy, names_in
from forerun.site.survey.files import SITE_KINDS, Kind, SiteFile, of_this_site
from forerun.site.survey.identify import identified
from forerun.site.survey.pseudonyms import Pseudonyms, gather

#: names of what is written
SCENARIO: Final = "site.yaml"
JOBS: Final = "jobs.csv"
_INFERRED: Final = "inferred.conf"
_OWN: Final = (SCENARIO, JOBS, _INFERRED, "site.html", "site.json", "names.key")


@dataclass(frozen=True, slots=True)
class Setting:
    """A scenario in a folder, and what it is made of.

    Parameters
    ----------
    files : what was given, and what became of each.
    notes : what was assumed.
    policy : how the policy is known, in words.
    """

    files: tuple[SiteFile, ...]
    notes: tuple[str, ...]
    policy: str


def write_setting(
    files: Sequence[SiteFile], folder: Path, of: Pseudonyms, zone: str, say: Callable[[str], None]
) -> Setting:
    """Write a scenario, and copies of the files that it names, into an empty folder.

    Parameters
    ----------
    files : of the site, recognised.
    folder : for the scenario.
    of : what users and accounts are called.
    zone : IANA name of the place of times without a zone; empty: as written.
    say : is called with what is being done.

    Raises InputError with every problem of a file, and where there is no log of jobs that started; messages name users and
    accounts by their pseudonyms.
    """
    found = of_this_site(files)
    log = _log(found)
    for one in found:
        names_in(one, of)
    try:
        return _written(found, log, folder, of, zone, say)
    except ForerunError as error:
        raise of.masked(error) from None


def _log(files: Sequence[SiteFile]) -> SiteFile:
    """The largest log. Raises UsageError where there is none."""
    logs = [one for one in files if one.kind is Kind.LOG]
    if not logs:
        what = "no log of jobs is among the files; forerun site --collect prints the commands that make one"
        names = ", ".join(one.name for one in files[:5]) + (f" and {len(files) - 5} more" * (len(files) > 5))
        raise UsageError.at(names or "nothing", what)
    return max(logs, key=lambda one: one.path.stat().st_size)


def _written(
    files: Sequence[SiteFile],
    log: SiteFile,
    folder: Path,
    of: Pseudonyms,
    zone: str,
    say: Callable[[str], None],
) -> Setting:
    say(f"reading {log.name}")
    repairs = RepairLog()
    options: dict[str, Any] = {"timezone": zone} if zone and log.format == "sacct" else {}
    if "unfinished" in readers().get(log.format).__struct_fields__:
        # jobs that run or wait at the log's end, and those that left the queue before they ran
        options |= {"unfinished": True, "cancelled": True}
    read = read_trace(log.path, log.format, options=options, repairs=repairs)
    if "start_s" not in read or not np.isfinite(read["start_s"]).any():
        raise InputError.at(
            log.name,
            "has no job with a start, so there is no history to compare with; sacct prints Start and End",
        )
    for name, accounts in (("user", False), ("account", True)):
        gather(set(read[name].tolist()) if name in read else (), of, accounts=accounts)
    copied = log_copy(read, of)
    save_trace(copied, folder / JOBS)
    dropped = "; ".join(f"{one.rule}: {one.count:,}" for one in repairs.repairs)
    done = {log.path: replace(log, gave=_about(copied), unused=dropped)}
    written = {JOBS}
    conf = _main([one for one in files if one.kind is Kind.CONF])
    kueue = [one for one in files if one.kind is Kind.KUEUE]
    slurm = [one for one in files if one.kind in SITE_KINDS]
    named: dict[Path, str] = {}
    for one in files:
        if one.kind in (Kind.CONF, Kind.KUEUE) or one in slurm:
            suffix = {Kind.CONF: ".conf", Kind.KUEUE: ".json"}.get(one.kind, one.path.suffix or ".txt")
            named[one.path] = _free(one.path.stem + suffix if one is not conf else "slurm.conf", written)
            if one.kind is Kind.CONF and one is not conf:
                named[one.path] = one.name  # as it is included
            (folder / named[one.path]).write_text(copy_of(one, of), encoding="utf-8")
            done[one.path] = replace(one, gave=_counted(one))
    notes: list[str] = []
    machines: dict[str, Any] = {}
    if conf is not None:
        included = [named[one.path] for one in files if one.kind is Kind.CONF and one is not conf]
        machines = {
            "file": named[conf.path],
            "included": included,
            "site": [named[one.path] for one in slurm],
        }
        declared, how = slurm_policy(folder / named[conf.path], [folder / name for name in included])
        order = {"name": member_name(type(declared.order))}
        policy: Mapping[str, Any] = {"name": member_name(type(declared)), "order": order}
        cluster, _ = read_slurm_nodes(
            folder / named[conf.path], included=[folder / name for name in included]
        )
        gave = (
            f"{cluster.nodes} nodes with {cluster.gpus:,} GPUs in {len(cluster.partitions)} partitions; {how}"
        )
        done[conf.path] = replace(done[conf.path], gave=gave)
        placement = "first-fit"
    elif kueue:
        first, *rest = (named[one.path] for one in kueue)
        machines = {"file": first, "site": rest}
        policy, how, placement = (
            {"name": "kueue"},
            "its files are of Kueue, so the policy is kueue",
            "anywhere",
        )
    else:
        say("identifying the machine and the policy from history")
        found = identified(log.path, log.format, zone, copied)
        policy, how, notes = found.policy, found.how, list(found.notes)
        machines, placement = (
            ({"file": _INFERRED}, "first-fit") if found.conf else ({"nodes": found.nodes}, "anywhere")
        )
        if found.conf:
            (folder / _INFERRED).write_text(found.conf, encoding="utf-8")
        if slurm:
            notes.append(
                f"without slurm.conf these say too little, and are not used: {', '.join(one.name for one in slurm)}"
            )
    scenario = {
        "domain": "cluster",
        "title": f"{log.path.stem} as it is",
        "trace": {"file": JOBS, "format": "forerun", "larger": "drop"},
        "machines": {key: value for key, value in machines.items() if value},
        "placement": placement,
        "policy": policy,
    }
    _write_scenario(folder, scenario)
    others = {
        one.path: replace(one, unused=one.unused or _why_not(one, log))
        for one in files
        if one.path not in done
    }
    return Setting(tuple((done | others)[one.path] for one in files), tuple(notes), how)


def _write_scenario(folder: Path, scenario: Mapping[str, Any]) -> None:
    text = yaml.safe_dump(scenario, sort_keys=False, allow_unicode=True, width=100)
    about = f"# The site as its files have it. Change it and run it: forerun simulate {SCENARIO}\n"
    (folder / SCENARIO).write_text(WRITTEN + about + text, encoding="utf-8")


def with_policy(setting: Setting, folder: Path, name: str, how: str) -> Setting:
    """The setting with another policy in its scenario, in the same order. how: it is known, in words."""
    scenario = yaml.safe_load((folder / SCENARIO).read_text(encoding="utf-8"))
    scenario["policy"]["name"] = name
    _write_scenario(folder, scenario)
    return replace(setting, policy=how)


def _main(confs: Sequence[SiteFile]) -> SiteFile | None:
    """The configuration that includes the others, if there is one."""
    included = {
        Path(name).name for one in confs for name in re.findall(r"(?im)^\s*Include\s+(\S+)", one.text)
    }
    return next((one for one in confs if one.name not in included), None)


def _free(name: str, taken: set[str]) -> str:
    """A name that no other file in the folder has."""
    stem, dot, suffix = name.rpartition(".")
    number, free = 1, name
    while free in taken or free in _OWN:
        number += 1
        free = f"{stem}-{number}{dot}{suffix}"
    taken.add(free)
    return free


def _about(log: Trace) -> str:
    """What a log gave."""
    users, partitions = (len({text for text in log[name].tolist() if text}) for name in ("user", "vc"))
    whose = f" of {users} users" * (users > 0) + f" in {partitions} partitions" * (partitions > 1)
    origin_s = log.provenance.options.get("origin_s")
    when = ""
    if isinstance(origin_s, float) and origin_s > 0:
        first, last = (
            datetime.fromtimestamp(origin_s + float(at), UTC).strftime("%Y-%m-%d")
            for at in (log["submit_s"].min(), log["submit_s"].max())
        )
        when = f", submitted from {first} to {last}"
    return f"{len(log):,} jobs{whose}{when}"


def _counted(file: SiteFile) -> str:
    """What a file of a site gave."""
    patterns: Mapping[Kind, tuple[str, str]] = {
        Kind.PARTITIONS: (r"(?m)^PartitionName=", "partitions"),
        Kind.RESERVATIONS: (r"(?m)^ReservationName=", "reservations"),
        Kind.NODES: (r"(?m)^NodeName=", "nodes"),
        Kind.KUEUE: (r"kind[\"']?\s*:\s*[\"']?ClusterQueue\b", "ClusterQueues"),
        Kind.CONF: (r"(?im)^\s*(?:NodeName|PartitionName)=", "lines of nodes and partitions"),
    }
    if file.kind in patterns:
        pattern, what = patterns[file.kind]
        return f"{len(re.findall(pattern, file.text))} {what}"
    rows = max(len([line for line in file.text.splitlines() if line.strip()]) - 1, 0)
    return f"{rows} rows"


def _why_not(file: SiteFile, log: SiteFile) -> str:
    if file.kind is Kind.LOG:
        return f"one log is simulated, and {log.name} is the larger"
    return {
        Kind.QUEUE: "the queue as it is now is not simulated: forerun wait-time answers from it",
    }.get(file.kind, "what it says is not simulated")


def unknown(files: Iterable[SiteFile]) -> list[str]:
    """A line for each file that is not used at all."""
    return [f"{one.name}: {one.unused}" for one in files if one.kind is Kind.UNKNOWN]
