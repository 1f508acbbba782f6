"""The files that an operator has of a site, in the words of Slurm's commands and with the dirt of real exports."""

from __future__ import annotations

import random
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from pathlib import Path
from zoneinfo import ZoneInfo

from .scheduler import FOREVER_S, ROOT, Account, Attempt, Node, Partition
from .sites import Site

COLUMNS = (
    "JobID", "JobIDRaw", "User", "Partition", "Submit", "Start", "End", "State", "ElapsedRaw", "AllocTRES", "ReqTRES",
    "Timelimit", "Account", "QOS", "Eligible", "NNodes", "Priority", "Reservation", "ExitCode", "NodeList", "Reason",
    "JobName",
)  # fmt: skip
QOS_COLUMNS = (
    "Name", "Priority", "GraceTime", "Preempt", "PreemptExemptTime", "PreemptMode", "Flags", "UsageThres", "UsageFactor",
    "GrpTRES", "GrpTRESMins", "GrpTRESRunMins", "GrpJobs", "GrpSubmit", "GrpWall", "MaxTRES", "MaxTRESPerNode",
    "MaxTRESMins", "MaxWall", "MaxTRESPU", "MaxJobsPU", "MaxSubmitPU", "MaxTRESPA", "MaxTRESRunMinsPA",
    "MaxTRESRunMinsPU", "MaxJobsPA", "MaxSubmitPA", "MinTRES",
)  # fmt: skip
ASSOC_COLUMNS = (
    "Cluster", "Account", "User", "Partition", "Share", "Priority", "GrpJobs", "GrpTRES", "GrpSubmit", "GrpWall",
    "GrpTRESMins", "MaxJobs", "MaxTRES", "MaxTRESPerNode", "MaxSubmit", "MaxWall", "MaxTRESMins", "QOS", "Def QOS",
    "GrpTRESRunMins",
)  # fmt: skip
#: columns of limits that count GPUs
_TRES = ("GrpTRES", "MaxTRESPU", "MaxTRESPA", "MaxTRES")


def write(site: Site, attempts: Sequence[Attempt], folder: Path, *, dirt: bool = True) -> dict[str, Path]:
    """The files of a site, by what they are.

    Parameters
    ----------
    attempts : what happened.
    folder : where they go.
    dirt : whether the log has steps, rows that never ran and odd names; no: only runs that have ended.
    """
    texts = {
        "sacct.txt": sacct(site, attempts, dirt=dirt),
        "slurm.conf": slurm_conf(site),
        "qos.txt": qos(site),
        "assoc.txt": associations(site),
        "partitions.txt": partitions(site),
        "res.txt": reservations(site),
        "events.txt": events(site),
    }
    folder.mkdir(parents=True, exist_ok=True)
    for name, text in texts.items():
        (folder / name).write_text(text, encoding="utf-8")
    return {name: folder / name for name in texts}


# -- clocks, names and resources ----------------------------------------------------------------------------------------


def stamp(site: Site, at_s: int | None) -> str:
    """An instant on the site's clock, as Slurm prints it."""
    if at_s is None:
        return "Unknown"
    return datetime.fromtimestamp(site.origin_s + at_s, ZoneInfo(site.zone)).strftime("%Y-%m-%dT%H:%M:%S")


def span(seconds: int) -> str:
    """A time limit."""
    if seconds >= FOREVER_S:
        return "UNLIMITED"
    days, rest = divmod(seconds, 86_400)
    text = f"{rest // 3600:02d}:{rest % 3600 // 60:02d}:{rest % 60:02d}"
    return f"{days}-{text}" if days else text


def node_list(names: Iterable[str]) -> str:
    """Names as Slurm folds them: `a100-[01-03,05]`."""
    folded: dict[str, list[str]] = {}
    for name in names:
        stem, dash, number = name.rpartition("-")
        folded.setdefault(stem + dash, []).append(number)
    parts = []
    for stem, numbers in folded.items():
        ranges: list[list[str]] = []
        for number in sorted(numbers):
            if (
                ranges
                and number.isdecimal()
                and ranges[-1][-1].isdecimal()
                and int(ranges[-1][-1]) + 1 == int(number)
            ):
                ranges[-1] = [ranges[-1][0], number]
            else:
                ranges.append([number])
        text = ",".join("-".join(each) for each in ranges)
        parts.append(f"{stem}[{text}]" if len(numbers) > 1 else f"{stem}{text}")
    return ",".join(parts)


def tres(cpus: int, nodes: int, gpus: int, kinds: Mapping[str, int]) -> str:
    """A list of resources with the total of GPUs beside their types, memory and billing among them."""
    gres = [f"gres/gpu:{kind}={count}" for kind, count in sorted(kinds.items())]
    return ",".join(
        [
            f"billing={cpus}",
            f"cpu={cpus}",
            *gres,
            *([f"gres/gpu={gpus}"] if gpus else []),
            f"mem={4 * cpus}G",
            f"node={nodes}",
        ]
    )


# -- the log -------------------------------------------------------------------------------------------------------------


def sacct(site: Site, attempts: Sequence[Attempt], *, dirt: bool = True) -> str:
    """What `sacct -P -a -D` prints of everything that was there between the two instants of the site's export."""
    rng = random.Random(f"export {site.seed}")
    rows = ["|".join(COLUMNS)]
    raw = {job.id: str(900_000 + at) for at, job in enumerate(site.world.jobs)}
    pending: dict[tuple[str, int], list[Attempt]] = {}
    for one in attempts:
        if one.submit_s > site.as_of_s or (one.end_s is not None and one.end_s < site.from_s):
            continue
        started = one.start_s is not None and one.start_s <= site.as_of_s
        if not started and not (one.end_s is not None and one.end_s <= site.as_of_s):
            if one.job.array:
                pending.setdefault((one.job.array, one.submit_s), []).append(one)
            elif dirt:
                rows.append(_row(site, one, raw, rng, one.job.id))
            continue
        ended = one.end_s is not None and one.end_s <= site.as_of_s
        if (started and ended) or dirt:
            rows.append(_row(site, one, raw, rng, one.job.id))
        if started and dirt:
            rows += _steps(site, one, raw, ended=ended)
        if dirt and rng.random() < 0.04:
            rows.append(_without_gpus(site, one, rng))
    for (array, _), several in pending.items():
        tasks = ",".join(one.job.id.partition("_")[2] for one in several)
        most = f"%{several[0].job.array_limit}" if several[0].job.array_limit else ""
        if dirt:
            rows.append(_row(site, several[0], raw, rng, f"{array}_[{tasks}{most}]"))
    return "\n".join(rows) + "\n"


def _row(site: Site, one: Attempt, raw: Mapping[str, str], rng: random.Random, name: str) -> str:
    job = one.job
    start_s = one.start_s if one.start_s is not None and one.start_s <= site.as_of_s else None
    end_s = one.end_s if one.end_s is not None and one.end_s <= site.as_of_s else None
    state, code = _state(one, start_s, end_s, rng)
    node = {node.name: node for node in site.world.nodes}
    asked = tres(job.cpus, max(job.nodes, 1), job.gpus, {job.gpu_type: job.gpus} if job.gpu_type else {})
    allocated = ""
    if start_s is not None:
        kinds: dict[str, int] = {}
        for where, gpus in one.place.items():
            kinds[node[where].gpu_type] = kinds.get(node[where].gpu_type, 0) + gpus
        allocated = tres(job.cpus, len(one.place), sum(one.place.values()), kinds)
    longest_s = max(part.max_s for part in site.world.partitions if part.name in job.partitions)
    limit = span(job.request_s)
    if job.request_s == longest_s and start_s is None:
        limit = "Partition_Limit"
    eligible_s = one.eligible_s if one.eligible_s is not None and one.eligible_s <= site.as_of_s else None
    running_s = (site.as_of_s if end_s is None else end_s) - start_s if start_s is not None else 0
    cells = {
        "JobID": name, "JobIDRaw": raw[job.id], "User": job.user,
        "Partition": one.partition if start_s is not None else ",".join(job.partitions),
        "Submit": stamp(site, one.submit_s), "Start": stamp(site, start_s) if start_s is not None else "Unknown",
        "End": stamp(site, end_s), "State": state, "ElapsedRaw": str(running_s), "AllocTRES": allocated,
        "ReqTRES": asked, "Timelimit": limit, "Account": job.account, "QOS": job.qos, "Eligible": stamp(site, eligible_s),
        "NNodes": str(len(one.place) or max(job.nodes, 1)), "Priority": str(one.priority), "ExitCode": code,
        "NodeList": node_list(one.place) if start_s is not None else "None assigned",
        "Reason": "None" if start_s is not None else "Priority",
        "JobName": rng.choice(["train", "sweep|lr=0.1", "test run", "näher", "bash", ""]),
    }  # fmt: skip
    if state.startswith("CANCELLED") and start_s is None:
        cells["Start"] = rng.choice(["None", cells["End"]])
    return "|".join(cells.get(column, "") for column in COLUMNS)


def _state(one: Attempt, start_s: int | None, end_s: int | None, rng: random.Random) -> tuple[str, str]:
    uid = rng.randint(1000, 1100)
    if end_s is None:
        return ("PENDING" if start_s is None else "RUNNING"), "0:0"
    if one.state == "CANCELLED":
        return f"CANCELLED by {uid}", "0:0"
    if one.state != "COMPLETED":
        return one.state, "0:1"
    draw = rng.random()
    if draw < 0.12:
        return "FAILED", "1:0"
    if draw < 0.18:
        return f"CANCELLED by {uid}", "0:15"
    return ("OUT_OF_MEMORY", "0:125") if draw < 0.2 else ("COMPLETED", "0:0")


def _steps(site: Site, one: Attempt, raw: Mapping[str, str], *, ended: bool) -> list[str]:
    """The rows of the batch script and of what Slurm counts outside of it."""
    rows = []
    for name in ("batch", "extern", *(("0",) if one.job.nodes > 1 else ())):
        cells = {
            "JobID": f"{one.job.id}.{name}", "JobIDRaw": f"{raw[one.job.id]}.{name}", "Submit": stamp(site, one.start_s),
            "Start": stamp(site, one.start_s), "End": stamp(site, one.end_s if ended else None),
            "State": one.state if ended else "RUNNING", "Account": one.job.account, "ExitCode": "0:0",
            "AllocTRES": f"cpu={one.job.cpus},gres/gpu={one.job.gpus},mem=8G,node={len(one.place)}",
            "NNodes": str(len(one.place)), "NodeList": node_list(one.place), "JobName": name,
        }  # fmt: skip
        rows.append("|".join(cells.get(column, "") for column in COLUMNS))
    return rows


def _without_gpus(site: Site, one: Attempt, rng: random.Random) -> str:
    """A job of the partition without GPUs."""
    run_s = rng.randint(10, 7200)
    from_s = max(0, min(one.submit_s, site.as_of_s - run_s))
    cells = {
        "JobID": f"{rng.randint(10_000, 30_000)}", "User": one.job.user, "Partition": "cpu", "Account": one.job.account,
        "Submit": stamp(site, from_s), "Start": stamp(site, from_s), "End": stamp(site, from_s + run_s),
        "State": "COMPLETED", "ElapsedRaw": str(run_s), "AllocTRES": "billing=4,cpu=4,mem=16G,node=1",
        "ReqTRES": "billing=4,cpu=4,mem=16G,node=1", "Timelimit": "1-00:00:00", "QOS": "normal", "NNodes": "1",
        "Eligible": stamp(site, from_s), "ExitCode": "0:0", "NodeList": "cpu01", "JobName": "prep",
    }  # fmt: skip
    return "|".join(cells.get(column, "") for column in COLUMNS)


# -- the configuration ---------------------------------------------------------------------------------------------------


def slurm_conf(site: Site) -> str:
    """The configuration: nodes, partitions, weights, and what every such file has besides."""
    weights = site.world.priorities
    lines = [
        "# slurm.conf of an invented site",
        "ClusterName=site", "SlurmctldHost=ctl", "AuthType=auth/munge", "SelectType=select/cons_tres",
        "SelectTypeParameters=CR_Core_Memory", "SchedulerType=sched/backfill",
        "SchedulerParameters=bf_interval=30,bf_window=10080", "GresTypes=gpu",
        "AccountingStorageType=accounting_storage/slurmdbd", "AccountingStorageEnforce=associations,limits,qos",
        "AccountingStorageTRES=gres/gpu," + ",".join(f"gres/gpu:{kind}" for kind in _kinds(site)),
        "PriorityType=priority/multifactor", f"PriorityMaxAge={span(weights.max_age_s)}",
        f"PriorityDecayHalfLife={span(weights.half_life_s)}", f"PriorityWeightAge={weights.age}",
        f"PriorityWeightFairshare={weights.fairshare}", f"PriorityWeightJobSize={weights.job_size}",
        f"PriorityWeightPartition={weights.partition}", f"PriorityWeightQOS={weights.qos}",
        "PriorityFavorSmall=NO", "", "NodeName=DEFAULT Sockets=2 ThreadsPerCore=1 State=UNKNOWN",
    ]  # fmt: skip
    for alike in _alike(site):
        node = alike[0]
        names = node_list(each.name for each in alike)
        lines += [
            f"NodeName={names} CPUs={node.cpus} RealMemory={8000 * node.cpus} \\",
            f"    Gres=gpu:{node.gpu_type}:{node.gpus}  # racks 1 and 2",
        ]
    lines += [
        *(f"NodeName={one.name} CPUs={one.cpus} RealMemory={4000 * one.cpus}" for one in site.world.others),
        "",
        "PartitionName=DEFAULT State=UP OverSubscribe=NO",
    ]
    for part in site.world.partitions:
        more = " Default=YES" if part.default else ""
        more += f" QOS={part.qos}" if part.qos else ""
        lines.append(
            f"PartitionName={part.name} Nodes={node_list(part.nodes)} MaxTime={span(part.max_s)} PriorityTier={part.tier} "
            f"PriorityJobFactor={part.priority}{more}"
        )
    for part in _without(site):
        lines.append(
            f"PartitionName={part.name} Nodes={node_list(part.nodes)} MaxTime=7-00:00:00 PriorityTier=1 PriorityJobFactor=1"
        )
    return "\n".join(lines) + "\n"


def _kinds(site: Site) -> list[str]:
    return list(dict.fromkeys(node.gpu_type for node in site.world.nodes))


def _alike(site: Site) -> list[list[Node]]:
    """Nodes that one line describes."""
    groups: list[list[Node]] = []
    for node in site.world.nodes:
        if groups and (node.gpu_type, node.gpus, node.cpus) == (
            groups[-1][0].gpu_type,
            groups[-1][0].gpus,
            groups[-1][0].cpus,
        ):
            groups[-1].append(node)
        else:
            groups.append([node])
    return groups


def qos(site: Site) -> str:
    """`sacctmgr show qos -P`."""
    rows = ["|".join(QOS_COLUMNS)]
    for name, limits in site.limits.qos.items():
        cells = {
            "Name": name, "Priority": str(site.world.priorities.of_qos.get(name, 0)), "GraceTime": "00:00:00",
            "PreemptMode": "cluster", "UsageFactor": "1.000000", **_limit_cells(limits),
        }  # fmt: skip
        rows.append("|".join(cells.get(column, "") for column in QOS_COLUMNS))
    return "\n".join(rows) + "\n"


def associations(site: Site) -> str:
    """`sacctmgr show assoc tree -P`: accounts are indented by their depth."""
    accounts = {ROOT: Account(1, "", {}), **site.world.priorities.accounts}
    rows = ["|".join(ASSOC_COLUMNS)]

    def add(name: str, depth: int) -> None:
        one = accounts[name]
        rows.append(_association(" " * depth + name, "", one.shares, site.limits.accounts.get(name, {})))
        users = one.users.items()
        rows.extend(_association(" " * (depth + 1) + name, user, shares, {}) for user, shares in users)
        above = "" if name == ROOT else name
        for child in (child for child, each in accounts.items() if each.parent == above and child != ROOT):
            add(child, depth + 1)

    add(ROOT, 0)
    return "\n".join(rows) + "\n"


def _association(account: str, user: str, shares: int, limits: Mapping[str, int]) -> str:
    cells = {"Cluster": "site", "Account": account, "User": user, "Share": str(shares), "QOS": "high,normal"}
    cells |= _limit_cells(limits)
    return "|".join(cells.get(column, "") for column in ASSOC_COLUMNS)


def _limit_cells(limits: Mapping[str, int]) -> dict[str, str]:
    return {name: f"gres/gpu={count}" if name in _TRES else str(count) for name, count in limits.items()}


def _without(site: Site) -> tuple[Partition, ...]:
    """The partition of the nodes without GPUs, if there are any."""
    names = tuple(one.name for one in site.world.others)
    return (Partition("cpu", names, max_s=7 * 86_400),) if names else ()


def partitions(site: Site) -> str:
    """`scontrol show partition`."""
    node = {node.name: node for node in site.world.nodes}
    blocks = []
    for part in (*site.world.partitions, *_without(site)):
        mine = [node[name] for name in part.nodes if name in node]
        cpus = sum(each.cpus for each in mine) or 64
        gpus = sum(each.gpus for each in mine)
        kinds: dict[str, int] = {}
        for each in mine:
            kinds[each.gpu_type] = kinds.get(each.gpu_type, 0) + each.gpus
        blocks.append(
            f"PartitionName={part.name}\n"
            "   AllowGroups=ALL AllowAccounts=ALL AllowQos=ALL\n"
            f"   AllocNodes=ALL Default={'YES' if part.default else 'NO'} QoS={part.qos or 'N/A'}\n"
            "   DefaultTime=NONE DisableRootJobs=NO ExclusiveUser=NO GraceTime=0 Hidden=NO\n"
            f"   MaxNodes=UNLIMITED MaxTime={span(part.max_s)} MinNodes=0 LLN=NO MaxCPUsPerNode=UNLIMITED\n"
            f"   Nodes={node_list(part.nodes)}\n"
            f"   PriorityJobFactor={part.priority} PriorityTier={part.tier} RootOnly=NO ReqResv=NO OverSubscribe=NO\n"
            "   OverTimeLimit=NONE PreemptMode=OFF\n"
            f"   State=UP TotalCPUs={cpus} TotalNodes={len(part.nodes)} SelectTypeParameters=NONE\n"
            "   JobDefaults=(null)\n"
            "   DefMemPerNode=UNLIMITED MaxMemPerNode=UNLIMITED\n"
            f"   TRES={tres(cpus, len(part.nodes), gpus, kinds)}\n"
        )
    return "\n".join(blocks)


def reservations(site: Site) -> str:
    """`scontrol show res`, as it was printed before the first of them."""
    blocks = []
    for one in site.world.maintenance:
        minutes = (one.to_s - one.from_s) // 60
        blocks.append(
            f"ReservationName={one.name} StartTime={stamp(site, one.from_s)} EndTime={stamp(site, one.to_s)} "
            f"Duration={minutes // 60:02d}:{minutes % 60:02d}:00\n"
            f"   Nodes={node_list(one.nodes)} NodeCnt={len(one.nodes)} CoreCnt={64 * len(one.nodes)} Features=(null) "
            "PartitionName=(null) Flags=MAINT,IGNORE_JOBS,SPEC_NODES\n"
            "   TRES=(null)\n"
            "   Users=root Groups=(null) Accounts=(null) Licenses=(null) State=INACTIVE BurstBuffer=(null) Watts=n/a\n"
            "   MaxStartDelay=(null)\n"
        )
    return "\n".join(blocks) if blocks else "No reservations in the system\n"


def events(site: Site) -> str:
    """`sacctmgr show event -P`: when nodes were away."""
    rows = ["Cluster|NodeName|TimeStart|TimeEnd|State|Reason|User"]
    for failure in sorted(site.world.failures, key=lambda one: one.from_s):
        if failure.from_s < site.as_of_s:
            end = stamp(site, failure.to_s) if failure.to_s <= site.as_of_s else "Unknown"
            rows.append(
                f"site|{failure.node}|{stamp(site, failure.from_s)}|{end}|DOWN|Not responding|slurm(64030)"
            )
    return "\n".join(rows) + "\n"
