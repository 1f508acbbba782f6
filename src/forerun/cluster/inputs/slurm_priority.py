"""Slurm's scheduler as a site has configured it: weights, shares, partitions, qualities of service, and its plans."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import numpy as np

from forerun.cluster.inputs.arrays import JobLabels
from forerun.cluster.inputs.slurm_conf import SlurmPriorities
from forerun.cluster.inputs.slurm_site import SlurmSite
from forerun.cluster.policies.orders.multifactor import (
    ROOT,
    Account,
    Multifactor,
    Partition,
    Weights,
)
from forerun.cluster.policies.slurm_backfill import SlurmBackfill
from forerun.cluster.readers.sacct import time_limit_s
from forerun.core.errors import ScenarioError

_WEIGHTS: Final[Mapping[str, str]] = {
    "age": "priorityweightage", "fairshare": "priorityweightfairshare", "job_size": "priorityweightjobsize",
    "partition": "priorityweightpartition", "qos": "priorityweightqos",
}  # fmt: skip
#: parameters of priorities that are not simulated
_UNUSED: Final = (
    "PriorityWeightAssoc", "PriorityUsageResetPeriod", "PrioritySiteFactorPlugin", "PriorityParameters",
)  # fmt: skip
#: weights that slurmctld ignores without slurmdbd
_ACCOUNTED: Final[Mapping[str, str]] = {"age": "PriorityWeightAge", "fairshare": "PriorityWeightFairshare"}
#: flags of priorities that are followed, those that change nothing in which job starts next, and what others would change
_FOLLOWED: Final = ("FAIR_TREE", "NO_FAIR_TREE", "SMALL_RELATIVE_TO_TIME", "MAX_TRES", "MAX_TRES_GRES")
_OF_RUNNING: Final = ("CALCULATE_RUNNING",)
_FLAGS: Final[Mapping[str, str]] = {
    "ACCRUE_ALWAYS": "jobs grow older before they are eligible",
    "DEPTH_OBLIVIOUS": "classic fair shares of deep accounts are nearer to those of others",
    "INCR_ONLY": "priorities never fall",
    "NO_NORMAL_ALL": "factors are not divided by the highest",
    "NO_NORMAL_ASSOC": "those of accounts are not divided by the highest",
    "NO_NORMAL_PART": "those of partitions are not divided by the highest",
    "NO_NORMAL_QOS": "those of QOS are not divided by the highest",
    "NO_NORMAL_TRES": "TRES count in numbers, not in shares of the partition",
}
_SAYS_NOTHING: Final = ("", "0", "no", "none")
#: what `slurm-backfill` takes of SchedulerParameters, with the seconds of its unit
_PLANS: Final[Mapping[str, tuple[str, float]]] = {
    "bf_interval": ("bf_interval_s", 1.0), "bf_max_job_test": ("bf_max_job_test", 1.0),
    "bf_resolution": ("bf_resolution_s", 1.0), "bf_window": ("bf_window_s", 60.0),
}  # fmt: skip


def with_scheduler_parameters(
    policy: SlurmBackfill, conf: SlurmPriorities
) -> tuple[SlurmBackfill, tuple[str, ...]]:
    """The policy, with what its scenario leaves at the default as `SchedulerParameters` have it; and notes.

    Raises ScenarioError for a number that is none.
    """
    where, text = conf.settings.get("schedulerparameters", ("", ""))
    site, plain, given, others = SlurmSite(), SlurmBackfill(), dict[str, Any](), []
    for item in filter(None, map(str.strip, text.split(","))):
        name, _, value = item.partition("=")
        if name not in _PLANS:
            others.append(item)
            continue
        field, unit_s = _PLANS[name]
        number = site.whole(where, name, value) * unit_s
        if getattr(policy, field) == getattr(plain, field):
            given[field] = type(getattr(plain, field))(number)
    if site.problems:
        raise ScenarioError(*site.problems)
    notes = []
    if given:
        notes.append(
            f"slurm-backfill: {', '.join(sorted(name.removesuffix('_s') for name in given))} are those of the site's file"
        )
    if others:
        notes.append(f"not simulated of SchedulerParameters: {', '.join(others)}")
    return policy.with_(**given), tuple(notes)


def with_site_priorities(
    order: Multifactor,
    conf: SlurmPriorities | None,
    paths: Sequence[Path],
    labels: JobLabels | None = None,
) -> tuple[Multifactor, tuple[str, ...]]:
    """The order, with what its scenario leaves at the default as the files of a site have it; and notes.

    Raises ScenarioError with every problem of the files.

    Parameters
    ----------
    order : of the scenario, whose own values stay.
    conf : what slurm.conf says; None: there is none.
    paths : what sacctmgr and scontrol print.
    labels : of the jobs (default: the log has none).
    """
    site = SlurmSite("" if conf is None else conf.cluster)
    for path in paths:
        site.read(path)
    given: dict[str, Any] = {
        "accounts": _accounts(site),
        "qos": {one.name: one.priority for one in site.qos if one.priority},
        "usage_factors": {one.name: one.usage_factor for one in site.qos if one.usage_factor != 1},
        "partitions": {
            one.name: Partition(
                priority=site.whole(one.where, "PriorityJobFactor", one.says.get("PriorityJobFactor", "1")),
                tier=site.whole(one.where, "PriorityTier", one.says.get("PriorityTier", "1")),
            )
            for one in site.partitions
        },
    }
    ignored: list[str] = []
    if conf is not None:
        given |= _settings(site, conf)
        storage = conf.settings.get("accountingstoragetype", ("", ""))[1].lower()
        if storage and not storage.endswith("slurmdbd"):  # a part of a file may leave it out
            weights = given["weights"]
            ignored = [name for field, name in _ACCOUNTED.items() if getattr(weights, field)]
            given["weights"] = weights.with_(**dict.fromkeys(_ACCOUNTED, 0.0))
        for name, (where, says) in conf.partitions.items():
            given["partitions"].setdefault(
                name,
                Partition(
                    priority=site.whole(where, "PriorityJobFactor", says.get("priorityjobfactor", "1")),
                    tier=site.whole(where, "PriorityTier", says.get("prioritytier", "1")),
                ),
            )
    if site.problems:
        raise ScenarioError(*site.problems[:20])
    plain = Multifactor()
    filled = {
        name: value for name, value in given.items() if value and getattr(order, name) == getattr(plain, name)
    }
    filled = {name: value for name, value in filled.items() if value != getattr(plain, name)}
    note = f"multifactor: {', '.join(sorted(filled))} are those of the site's files"
    made = order.with_(**filled)
    notes = [note] * bool(filled)
    if ignored and made.weights == given["weights"]:
        names = ", ".join(ignored)
        notes.append(f"ignored as by slurmctld without slurmdbd (AccountingStorageType): {names}")
    return made, (*notes, *_not_simulated(site, conf, made, labels))


def _not_simulated(
    site: SlurmSite, conf: SlurmPriorities | None, order: Multifactor, labels: JobLabels | None
) -> Iterator[str]:
    """What the files say of priorities that is not simulated. order: as made; labels: of the jobs."""
    settings = {} if conf is None else {name: value for name, (_, value) in conf.settings.items()}
    left = [f"{name}={settings[name.lower()]}" for name in _UNUSED if _said(settings.get(name.lower(), ""))]
    flags = [one.strip().upper() for one in settings.get("priorityflags", "").split(",")]
    for flag in flags:
        if flag and flag not in (*_FOLLOWED, *_OF_RUNNING):
            left.append(f"PriorityFlags={flag} ({_FLAGS.get(flag, 'not known here')})")
    other = [
        one
        for one in settings.get("priorityweighttres", "").split(",")
        if one and not one.lower().startswith("gres/gpu=")
    ]
    left += [f"PriorityWeightTRES={','.join(other)}"] * bool(other)
    if left:
        yield f"not simulated of priorities: {', '.join(left)}"
    if not order.weights.fairshare or (labels is not None and np.isfinite(labels.billing).any()):
        return  # the log has what jobs are billed
    billed = {one.name for one in site.partitions if "TRESBillingWeights" in one.says}
    billed |= {
        name
        for name, (_, says) in (conf.partitions if conf is not None else {}).items()
        if "tresbillingweights" in says
    }
    if billed:
        names = ", ".join(sorted(billed))
        yield f"not simulated: TRESBillingWeights of partitions {names}; the log has no billing=, usage is GPU time"


def _said(value: str) -> bool:
    return value.lower() not in _SAYS_NOTHING


def _accounts(site: SlurmSite) -> dict[str, Account]:
    """Accounts with their shares and those of their users; a user with the shares of the account's parent has 1."""
    accounts: dict[str, dict[str, Any]] = {}
    known = {one.account for one in site.associations}
    for one in site.associations:
        if one.account == ROOT and not one.user:
            continue
        account = accounts.setdefault(one.account, {"users": {}})
        if one.user:
            account["users"][one.user] = float(one.shares or 1)
        else:
            parent = one.parent if one.parent in known else ROOT
            account |= {"shares": float(one.shares or 1), "parent": parent}
    return {name: Account(**account) for name, account in accounts.items()}


def _settings(site: SlurmSite, conf: SlurmPriorities) -> dict[str, Any]:
    """What the parameters of slurm.conf say of the order."""

    def text(name: str) -> tuple[str, str]:
        return conf.settings.get(name, ("", ""))

    weights: dict[str, float] = {}
    for field, name in _WEIGHTS.items():
        where, value = text(name)
        if value:
            weights[field] = float(site.whole(where, name, value))
    where, listed = text("priorityweighttres")
    for item in listed.split(",") if listed else ():
        resource, _, value = item.partition("=")
        if resource.strip().lower() == "gres/gpu":
            weights["tres_gpu"] = float(site.whole(where, "priorityweighttres", value))
    given: dict[str, Any] = {"weights": Weights(**weights)}
    for field, name in (
        ("max_age_s", "prioritymaxage"),
        ("half_life_s", "prioritydecayhalflife"),
        ("count_s", "prioritycalcperiod"),
    ):
        where, value = text(name)
        if value:
            given[field] = _seconds(site, where, name, value)
    if "no_fair_tree" in text("priorityflags")[1].lower():
        given["fairshare"] = "classic"
    given |= {"nodes": len(conf.nodes), "cpus": conf.cpus}
    given["size_by_time"] = "small_relative_to_time" in text("priorityflags")[1].lower()
    if text("priorityfavorsmall")[1].lower() == "yes":
        given["favor_small"] = True
    where, value = text("fairsharedampeningfactor")
    if value:
        given["damping"] = float(site.whole(where, "fairsharedampeningfactor", value))
    return given


def _seconds(site: SlurmSite, where: str, name: str, value: str) -> float:
    """A span of time; 0 for one without a number."""
    try:
        limit_s = time_limit_s(value)
    except ValueError as error:
        site.complain(f"{where}:{name}", str(error))
        return 0.0
    return 0.0 if np.isnan(limit_s) else limit_s
