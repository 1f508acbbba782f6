"""Slurm's multifactor priority as a site has configured it: weights, shares, partitions and qualities of service."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import numpy as np

from forerun.cluster.inputs.slurm_conf import SlurmPriorities
from forerun.cluster.inputs.slurm_site import SlurmSite
from forerun.cluster.policies.orders.multifactor import (
    ROOT,
    Account,
    Multifactor,
    Partition,
    Weights,
)
from forerun.cluster.readers.sacct import time_limit_s
from forerun.core.errors import ScenarioError

_WEIGHTS: Final[Mapping[str, str]] = {
    "age": "priorityweightage", "fairshare": "priorityweightfairshare", "job_size": "priorityweightjobsize",
    "partition": "priorityweightpartition", "qos": "priorityweightqos",
}  # fmt: skip


def with_site_priorities(
    order: Multifactor, conf: SlurmPriorities | None, paths: Sequence[Path]
) -> tuple[Multifactor, tuple[str, ...]]:
    """The order, with what its scenario leaves at the default as the files of a site have it; and a note.

    Raises ScenarioError with every problem of the files.

    Parameters
    ----------
    order : of the scenario, whose own values stay.
    conf : what slurm.conf says; None: there is none.
    paths : what sacctmgr and scontrol print.
    """
    site = SlurmSite()
    for path in paths:
        site.read(path)
    given: dict[str, Any] = {
        "accounts": _accounts(site),
        "qos": {one.name: one.priority for one in site.qos if one.priority},
        "partitions": {
            one.name: Partition(
                priority=site.whole(one.where, "PriorityJobFactor", one.says.get("PriorityJobFactor", "1")),
                tier=site.whole(one.where, "PriorityTier", one.says.get("PriorityTier", "1")),
            )
            for one in site.partitions
        },
    }
    if conf is not None:
        given |= _settings(site, conf)
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
    return order.with_(**filled), (note,) if filled else ()


def _accounts(site: SlurmSite) -> dict[str, Account]:
    """Accounts with their shares and those of their users; a user with the shares of the account's parent has 1."""
    accounts: dict[str, dict[str, Any]] = {}
    known = {one.account for one in site.associations}
    for one in site.associations:
        if one.account == ROOT:
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
    for field, name in (("max_age_s", "prioritymaxage"), ("half_life_s", "prioritydecayhalflife")):
        where, value = text(name)
        if value:
            given[field] = _seconds(site, where, name, value)
    if "no_fair_tree" in text("priorityflags")[1].lower():
        given["fairshare"] = "classic"
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
