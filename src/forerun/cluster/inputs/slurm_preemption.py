"""Slurm's preemption as a site has configured it: `PreemptType` and `PreemptMode`, partitions and qualities of service."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from forerun.cluster.inputs.arrays import JobLabels
from forerun.cluster.inputs.slurm_conf import SlurmPriorities
from forerun.cluster.inputs.slurm_site import SlurmSite
from forerun.cluster.policies.backfilling.preemption import Preemption
from forerun.core.errors import ScenarioError


def preemption_of(
    conf: SlurmPriorities, paths: Sequence[Path], labels: JobLabels | None
) -> tuple[Preemption | None, tuple[str, ...]]:
    """Which jobs stop which others (None: preemption is off), and notes on what is not simulated of it.

    Raises ScenarioError with every problem of the files.

    Parameters
    ----------
    conf : what slurm.conf says.
    paths : what sacctmgr and scontrol print.
    labels : of the jobs, for notes; None: not recorded.
    """
    kind = conf.settings.get("preempttype", ("", ""))[1].lower().removeprefix("preempt/")
    if kind not in ("partition_prio", "qos"):
        return None, ()
    site = SlurmSite(conf.cluster)
    for path in paths:
        site.read(path)
    by_partition = kind == "partition_prio"
    if by_partition:
        says = {
            **{name: (where, values) for name, (where, values) in conf.partitions.items()},
            **{
                one.name: (one.where, {key.lower(): text for key, text in one.says.items()})
                for one in site.partitions
            },
        }
        tier = {
            name: site.whole(where, "PriorityTier", values.get("prioritytier", "1"))
            for name, (where, values) in says.items()
        }
        over = {name: [other for other in tier if tier[other] < tier[name]] for name in tier}
    else:
        says = {
            one.name: (one.where, {key.lower(): text for key, text in one.says.items()}) for one in site.qos
        }
        tier = {one.name: one.priority for one in site.qos}
        over = {name: values.get("preempt", "").split(",") for name, (_, values) in says.items()}
    usual = conf.settings.get("preemptmode", ("", "OFF"))[1]
    mode = {name: _mode(values.get("preemptmode", ""), usual) for name, (_, values) in says.items()}
    grace_s = {
        name: _grace_s(site, where, values.get("gracetime", "0")) for name, (where, values) in says.items()
    }
    where, exempt = conf.settings.get("preemptexempttime", ("", "0"))
    exempt_s = 0 if exempt.startswith("-") else site.seconds(where, "PreemptExemptTime", exempt)
    site.reject_circles()
    if site.problems:
        raise ScenarioError(*site.problems[:20])
    stopped = ("REQUEUE", "CANCEL")
    chosen = {
        name: tuple(
            sorted((one for one in those if mode.get(one) in stopped), key=lambda one: (tier[one], one))
        )
        for name, those in over.items()
    }
    rule = Preemption(
        by="partition" if by_partition else "qos",
        over={name: those for name, those in chosen.items() if those},
        cancels=tuple(name for name in mode if mode[name] == "CANCEL"),
        grace_s={
            name: float(seconds) for name, seconds in grace_s.items() if seconds and mode[name] in stopped
        },
        exempt_s=float(exempt_s),
    )
    reached = {name for those in over.values() for name in those}
    suspended = tuple(name for name in mode if mode[name] == "SUSPEND" and name in reached)
    notes = [_suspends(rule, suspended, labels)] if suspended else []
    if rule.over:
        notes.append(f"preemption by {rule.by} as the site's files have it: {_listed(rule.over)}")
    return (rule if rule.over else None), tuple(notes)


def _grace_s(site: SlurmSite, where: str, text: str) -> int:
    """`GraceTime`: a number of seconds, or a time as sacctmgr prints it."""
    return int(text) if text.isdecimal() else site.seconds(where, "GraceTime", text)


def _mode(own: str, usual: str) -> str:
    """What becomes of jobs that are stopped, as `REQUEUE`; `OFF`: they are not."""
    text = usual if own.upper() in ("", "CLUSTER") else own
    words = [word.strip() for word in text.upper().split(",")]
    return next((word for word in words if word in ("REQUEUE", "CANCEL", "SUSPEND")), "OFF")


def _suspends(rule: Preemption, names: Sequence[str], labels: JobLabels | None) -> str:
    columns = [] if labels is None else getattr(labels, rule.by)
    jobs = sum(bool(set(names) & set(column.split(","))) for column in columns)
    return (
        f"not simulated: PreemptMode SUSPEND of {rule.by} {', '.join(names)}, of {jobs} of {len(columns)} jobs, "
        "which others do not stop here"
    )


def _listed(over: Mapping[str, tuple[str, ...]]) -> str:
    return "; ".join(f"{name} stops {', '.join(those)}" for name, those in over.items())
