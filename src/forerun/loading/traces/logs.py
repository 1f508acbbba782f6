"""A scenario from a training log: waits and steps of each batch, recorded by anyone."""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Final

import numpy as np
from numpy.typing import ArrayLike

from forerun.core.errors import TraceError
from forerun.core.result.stats import standard_error, student_quantile
from forerun.core.trace.domain_traces import Fitted, ReportTable, TraceReport
from forerun.core.trace.repair import RepairLog
from forerun.core.trace.rows import Field, gathered, read_rows
from forerun.core.trace.source import Source
from forerun.loading.engine.kernels.deliver import deliver
from forerun.loading.engine.workers import bisect
from forerun.loading.policy import F64
from forerun.loading.scenario import Cpu, Dataset, Loader, Run, Scenario, Step
from forerun.loading.traces.workloads import data_of

#: the least share of its time that a log must wait: below it, waits do not show the workers behind it
LEAST_STALL: Final = 0.17


@dataclass(frozen=True)
class FittedLog:
    """A loader of workers fitted to a log: workers by the period of the waits, build time of a batch by how long it took.

    Parameters
    ----------
    workers : how many the log shows.
    build_s : seconds of a worker for a batch.
    start_s : seconds until the workers are up.
    step_s : mean seconds of a step.
    batches : of the log.
    total_s : seconds of the log.
    waves : rounds of all workers that show how builds scatter.
    scatter : standard error of their mean, as a share of it; nan: fewer than two.
    prefetch : batches that each worker makes ahead.
    """

    workers: int
    build_s: float
    start_s: float
    step_s: float
    batches: int
    total_s: float
    waves: int
    scatter: float
    prefetch: int

    def predicted_s(self, step_s: ArrayLike, batches: int, build_s: float | None = None) -> float:
        """Seconds of a run of the same loader.

        Parameters
        ----------
        step_s : of its steps, one for all or one each.
        batches : how many.
        build_s : seconds of a worker for a batch (default: as fitted).
        """
        build_s = self.build_s if build_s is None else build_s
        workers, steps = self.workers, np.atleast_1d(np.asarray(step_s, np.float64))
        return _delivered_s(batches, workers, self.prefetch, steps, build_s, self.start_s)

    def build_span_s(self, confidence: float = 0.95) -> tuple[float, float]:
        """Ends of an interval of the build time that another run of the same loader shows.

        Both runs scatter as the waves of this one do. What differs between runs, such as other work on the machine, is not
        in a log. With fewer than two waves the interval has no ends.

        Parameters
        ----------
        confidence : the probability that it should contain that time (default: 0.95).
        """
        if self.waves < 2:
            return 0.0, math.inf
        half = student_quantile(0.5 + 0.5 * confidence, self.waves - 1) * math.sqrt(2.0) * self.scatter
        return self.build_s * math.exp(-half), self.build_s * math.exp(half)


def fit_log(load_s: F64, step_s: F64, prefetch: int = 2) -> FittedLog:
    """Fit the delivery recursion to any log of a loader: find the build time with which it takes as long as the log did.

    Raises TraceError for a log whose loop hardly waits, which leaves the build time unknown.

    Parameters
    ----------
    load_s, step_s : float64, wait for each batch and the step after it; the last step may be missing.
    prefetch : batches that each worker makes ahead (default: 2).
    """
    n = len(load_s)
    steps = step_s if len(step_s) == n else np.append(step_s, step_s.mean())
    steps = steps.astype(np.float64)
    total_s = float(load_s.sum() + steps.sum())
    stalled = float(load_s[1:].sum()) / total_s if total_s else 0.0
    if n < 16 or stalled < LEAST_STALL:
        raise TraceError.at(
            "log",
            f"{n} batches that wait {stalled:.0%} of their time; at least 16 and {LEAST_STALL:.0%} are required",
        )
    workers, first_s = stall_lag(load_s), float(load_s[0])
    build_s = bisect(
        lambda build: _delivered_s(n, workers, prefetch, steps, build, max(0.0, first_s - build)),
        total_s,
        0.0,
        total_s,
    )
    steady = (load_s + steps)[workers:]
    waves = len(steady) // workers
    each_s = steady[: waves * workers].reshape(waves, workers).mean(axis=1)
    scatter = standard_error(each_s) / float(each_s.mean()) if waves > 1 else math.nan
    start_s = max(0.0, first_s - build_s)
    return FittedLog(workers, build_s, start_s, float(steps.mean()), n, total_s, waves, scatter, prefetch)


def _delivered_s(
    batches: int, workers: int, prefetch: int, step_s: F64, build_s: float, start_s: float
) -> float:
    """Seconds of a run by the recursion, whose workers take turns."""
    delivery = deliver(
        np.arange(batches) % workers,
        np.full(batches, build_s),
        step_s,
        np.full(workers, start_s),
        workers * prefetch,
    )
    return float(delivery.total_s)


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
    low_s, high_s = log.build_span_s()
    data = {**asdict(log), "build_low_s": low_s, "build_high_s": high_s}
    known = {name: value for name, value in data.items() if math.isfinite(value)}
    rows = tuple(known.items())
    report = TraceReport(
        data=known,
        tables=(ReportTable("what the log says", ("figure", "value"), rows, "one figure a row, in the unit beside it"),),
        notes=(
            f"a batch takes a worker {log.build_s:.4g} s"
            + (f" (95 %: {low_s:.4g} to {high_s:.4g}, from {log.waves} rounds of the workers)" if log.waves > 1 else "")
            + "; another run may differ by more than rounds of one",
        ),
    )  # fmt: skip
    return Fitted(description=data_of(scenario), report=report)
