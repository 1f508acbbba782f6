"""A scenario from a training log: waits and steps of each batch, recorded by anyone."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Final

import numpy as np

from forerun.core.errors import TraceError
from forerun.core.trace.domain_traces import Fitted, ReportTable, TraceReport
from forerun.core.trace.repair import RepairLog
from forerun.core.trace.rows import Field, gathered, read_rows
from forerun.core.trace.source import Source
from forerun.loading.engine.kernels.deliver import deliver
from forerun.loading.policy import F64
from forerun.loading.scenario import Cpu, Dataset, Loader, Run, Scenario, Step
from forerun.loading.traces.workloads import data_of

#: the least share of its time that a log must wait: below it, waits do not show the workers behind it
LEAST_STALL: Final = 0.17


@dataclass(frozen=True)
class FittedLog:
    """A loader of workers fitted to a log: workers by the period of the waits, build time of a batch by their height.

    Parameters
    ----------
    workers : how many the log shows.
    build_s : seconds of a worker for a batch.
    start_s : seconds until the workers are up.
    step_s : mean seconds of a step.
    batches : of the log.
    total_s, predicted_s : seconds of the log, and of the recursion with these numbers.
    """

    workers: int
    build_s: float
    start_s: float
    step_s: float
    batches: int
    total_s: float
    predicted_s: float


def fit_log(load_s: F64, step_s: F64, prefetch: int = 2) -> FittedLog:
    """Fit the delivery recursion to a log nobody made for it.

    Where the loop waits, it takes as many batches in a build as there are workers. Raises TraceError for a log whose
    loop hardly waits, which leaves the build time unknown.

    Parameters
    ----------
    load_s, step_s : float64, wait for each batch and the step after it; the last step may be missing.
    prefetch : batches that each worker makes ahead (default: 2).
    """
    n = len(load_s)
    steps = step_s if len(step_s) == n else np.append(step_s, step_s.mean())
    total = float(load_s.sum() + steps.sum())
    stalled = float(load_s[1:].sum()) / total if total else 0.0
    if n < 16 or stalled < LEAST_STALL:
        raise TraceError.at(
            "log",
            f"{n} batches that wait {stalled:.0%} of their time; at least 16 and {LEAST_STALL:.0%} are required",
        )
    workers = stall_lag(load_s)
    steady = (load_s + steps)[workers:]
    whole = len(steady) - len(steady) % workers
    build = (
        float(steady[:whole].reshape(-1, workers).sum(axis=1).mean())
        if whole
        else float(steady.mean()) * workers
    )
    start = max(0.0, float(load_s[0]) - build)
    delivery = deliver(
        np.arange(n) % workers,
        np.full(n, build),
        steps.astype(np.float64),
        np.full(workers, start),
        workers * prefetch,
    )
    return FittedLog(workers, build, start, float(steps.mean()), n, total, float(delivery.total_s))


def stall_lag(load_s: F64) -> int:
    """The lag at which the waits resemble themselves most: the number of workers, where loading stalls.

    Of the autocorrelation of the z-scored waits at lags from 1 to N-1.

    Parameters
    ----------
    load_s : float64, the wait for each batch.
    """
    centred = load_s - load_s.mean()
    spectrum = np.correlate(centred, centred, mode="full")[len(centred) :]
    return int(np.argmax(spectrum)) + 1


def fitted_to_log(path: Path, batch: int, prefetch: int) -> Fitted:
    """A scenario from a CSV file with columns load_s and step_s.

    The scenario has one decode time that stands for all work on a sample, which the log cannot tell apart.

    Parameters
    ----------
    batch : samples a batch.
    prefetch : batches that each worker makes ahead.
    path : of the log.

    Raises TraceError (see `fit_log`).
    """
    fields = (
        Field(name="load_s", column="load_s", kind="float", minimum=0),
        Field(name="step_s", column="step_s", kind="float", minimum=0),
    )
    columns = gathered(read_rows(Source(path, repairs=RepairLog()), fields)).columns
    log = fit_log(np.asarray(columns["load_s"], float), np.asarray(columns["step_s"], float), prefetch)
    scenario = Scenario(
        title=f"fitted to {path.name}",
        dataset=Dataset(samples=log.batches * batch, sample_bytes=1.0),
        cpu=Cpu(decode_s=log.build_s / batch),
        loader=Loader(
            mode="workers", workers=log.workers, prefetch=prefetch, start_s=(log.start_s,) * log.workers
        ),
        step=Step(step_s=log.step_s),
        run=Run(batch=batch),
    )
    rows = tuple((name, value) for name, value in asdict(log).items())
    report = TraceReport(
        data=asdict(log),
        tables=(ReportTable("what the log says", ("figure", "value"), rows, "one figure a row, in the unit beside it"),),
        notes=(f"the recursion gives {log.predicted_s:.4g} s for the log's {log.total_s:.4g} s",),
    )  # fmt: skip
    return Fitted(description=data_of(scenario), report=report)
