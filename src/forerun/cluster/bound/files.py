"""The files that a certificate is about: a job log and tables of throughput, as they are on disk."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from forerun.cluster.inputs.prepare import cluster_from
from forerun.cluster.scenario import Scenario
from forerun.core.errors import StoreError, UsageError
from forerun.core.regular import read_regular, unreadable


@dataclass(frozen=True, slots=True)
class Files:
    """What the jobs of a scenario and their speeds come from.

    Parameters
    ----------
    trace : content of the job log.
    tables : content of the throughput tables, by model.
    gpus : GPUs of the cluster.
    first : only this many jobs; 0: all.
    """

    trace: bytes
    tables: Mapping[str, bytes]
    gpus: int
    first: int


def not_from_files(scenario: Scenario) -> str:
    """Why the jobs and speeds of a scenario are not just those of its files; empty if they are."""
    trace, profiles = scenario.trace, scenario.profile
    reasons = {
        "its jobs are not those of a job log alone": trace.file is None or trace.draw_models,
        "its job log is in another format than forerun's own": trace.format not in ("", "native"),
        "some of its deadlines are random": bool(trace.slack),
        "it leaves out jobs that are too large": trace.larger == "drop",
        "its throughput is not that of tables alone": len(profiles) != 1
        or any(not each.tables or each.levels for each in profiles),
        "data or power limits slow its jobs down": bool(scenario.loading)
        or (scenario.bill is not None and bool(scenario.bill.power)),
    }
    return next((why for why, holds in reasons.items() if holds), "")


def files_of(scenario: Scenario) -> Files:
    """The files of a scenario.

    Raises
    ------
    UsageError
        Its jobs or speeds are more than what its files say, so that no certificate can be about them.
    StoreError
        A file cannot be read.
    """
    why = not_from_files(scenario)
    if why or scenario.trace.file is None:
        raise UsageError.at(
            "scenario", f"{why}; certificates are about scenarios of a job log and measured tables"
        )
    tables = {path.stem: _content(path) for path in (Path(one.path) for one in scenario.profile[0].tables)}
    trace = _content(Path(scenario.trace.file.path))
    return Files(trace, tables, cluster_from(scenario).gpus, scenario.trace.first)


def _content(path: Path) -> bytes:
    try:
        return read_regular(path)
    except OSError as error:
        raise StoreError.at(path, unreadable(error)) from error
