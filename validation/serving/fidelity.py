"""Predicted against measured: one pipeline for real at several loads, and the model on the same send times.

The model is not judged by a disturbed run: one whose queries were sent late, or whose batches took a tenth more or less
than the model expects. Simulating once more with the times of the run gives the share of the error that is due to the
latter.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

import numpy as np

from forerun.core.measure.progress import StepProgress, Tell
from forerun.core.rng import stream
from forerun.serving.engine.stagewise import simulate_stagewise
from forerun.serving.inputs.pipeline import Floats, Law, Pipeline, Service
from forerun.serving.measure.profiling import TOLERANCE
from forerun.serving.measure.study import capacity_rps
from forerun.serving.measure.testbed import Testbed
from validation.serving.loop import Observed, run

#: quantiles compared
QUANTILES: Final = {"p50": 0.5, "p95": 0.95, "p99": 0.99}

#: queries sent later than this at the 99th percentile disturb a run
MOST_LAG_MS: Final = 1.0

RESAMPLES: Final = 200


@dataclass(frozen=True)
class Judged:
    """One run beside its prediction.

    Parameters
    ----------
    load : share of what the busiest stage carries.
    repeat : number of the run at this load, from 1.
    rate_rps : queries a second, as sent.
    queries : how many were sent.
    measured_ms, predicted_ms : quantiles of the latency, by name.
    explained_ms : predicted once more with the service times of the run itself.
    interval : 95 % intervals of the errors, by quantile.
    attainment, attainment_predicted : share of queries within the objective.
    lag_p99_ms : how late queries were sent, 99th percentile.
    drift : by stage, how much longer its batches took than believed, as a share.
    query_error_ms : the median over queries of how far the prediction of a query's latency is off.
    marks : what disturbed the run, so that the model is not judged by it; empty if it is.
    """

    load: float
    repeat: int
    rate_rps: float
    queries: int
    measured_ms: dict[str, float]
    predicted_ms: dict[str, float]
    explained_ms: dict[str, float]
    interval: dict[str, tuple[float, float]]
    attainment: float
    attainment_predicted: float
    lag_p99_ms: float
    drift: dict[str, float]
    query_error_ms: float
    marks: tuple[str, ...]

    def error(self, quantile: str) -> float:
        """Predicted over measured, minus one."""
        return self.predicted_ms[quantile] / self.measured_ms[quantile] - 1

    def record(self) -> dict[str, Any]:
        """As a flat record."""
        flat: dict[str, Any] = {
            "load": self.load,
            "repeat": self.repeat,
            "rate_rps": self.rate_rps,
            "queries": self.queries,
        }
        for name in QUANTILES:
            low, high = self.interval[name]
            flat |= {
                f"{name}_measured_ms": self.measured_ms[name],
                f"{name}_predicted_ms": self.predicted_ms[name],
                f"{name}_error": self.error(name),
                f"{name}_error_low": low,
                f"{name}_error_high": high,
                f"{name}_error_with_run_service": self.explained_ms[name] / self.measured_ms[name] - 1,
            }
        return flat | {
            "attainment_measured": self.attainment,
            "attainment_predicted": self.attainment_predicted,
            "query_error_median_ms": self.query_error_ms,
            "lag_p99_ms": self.lag_p99_ms,
            "service_drift": max(self.drift.values(), key=abs),
            "marks": "; ".join(self.marks),
        }


def judge(
    testbed: Testbed,
    believed: Pipeline,
    unit_gaps_ms: Floats,
    loads: Sequence[float],
    repeats: int,
    seconds: float,
    slo_ms: float,
    seed: int,
    tell: Tell,
) -> list[Judged]:
    """Run the testbed at several loads, and simulate the pipeline with the measured profile on the same send times.

    Parameters
    ----------
    testbed : its replicas, running.
    believed : the testbed's pipeline with the service times that the model is given.
    unit_gaps_ms : float64[n], gaps of a trace of one query a second; each run takes the next ones, from the first
        again when they end.
    loads : shares of what the busiest stage can carry.
    repeats : runs of each load.
    seconds : length of a run; it has 20 queries at least.
    slo_ms : latency above which a query misses.
    seed : of the intervals.
    tell : is given the progress in words.
    """
    capacity = capacity_rps(believed)
    runs: list[Judged] = []
    at = 0
    expected_s = [max(20, round(load * capacity * seconds)) / (load * capacity) for load in loads]
    steps = StepProgress(tell, [each_s for each_s in expected_s for _ in range(repeats)])
    for load in loads:
        for repeat in range(1, repeats + 1):
            rate = load * capacity
            count = max(20, round(rate * seconds))
            gaps = np.take(unit_gaps_ms, np.arange(at, at + count), mode="wrap")
            at = (at + count) % len(unit_gaps_ms)
            steps.begin(f"load {load:g}, {rate:.3g} queries/s, {count / rate:.0f} s")
            observed = run(testbed, np.cumsum(gaps) / rate)
            runs.append(judged(observed, believed, load, repeat, slo_ms, seed))
    return runs


def judged(
    observed: Observed, believed: Pipeline, load: float, repeat: int, slo_ms: float, seed: int
) -> Judged:
    """One observed run beside what the model says of the same send times.

    Parameters
    ----------
    observed : the run for real.
    believed : the pipeline with the service times that the model is given.
    load : share of what the busiest stage can carry, for the record.
    repeat : number of the run at this load, which names the random stream of its intervals.
    slo_ms : latency above which a query misses.
    seed : of the intervals.
    """
    sent, real = observed.run.arrival_ms, observed.run.latency_ms
    model = simulate_stagewise(believed, sent, slo_ms).latency_ms
    drift = _drift(observed, believed)
    as_served = simulate_stagewise(_as_served(observed, believed), sent, slo_ms).latency_ms
    lag = float(np.quantile(observed.lag_ms, 0.99))
    marks = [f"sent {lag:.1f} ms late"] if lag > MOST_LAG_MS else []
    marks += [f"{name} {change:+.0%}" for name, change in drift.items() if abs(change) > TOLERANCE]
    span_ms = float(sent[-1] - sent[0])
    return Judged(
        load,
        repeat,
        (len(sent) - 1) * 1e3 / span_ms,
        len(sent),
        _quantiles(real),
        _quantiles(model),
        _quantiles(as_served),
        _bootstrapped(real, model, stream(seed, "bootstrap", repeat)),
        float((real <= slo_ms).mean()),
        float((model <= slo_ms).mean()),
        lag,
        drift,
        float(np.median(np.abs(model - real))),
        tuple(marks),
    )


def _quantiles(latency_ms: Floats) -> dict[str, float]:
    return {name: float(np.quantile(latency_ms, share)) for name, share in QUANTILES.items()}


def _bootstrapped(real: Floats, model: Floats, rng: np.random.Generator) -> dict[str, tuple[float, float]]:
    """95 % intervals of the errors: blocks of queries drawn with replacement, both latencies of a query together."""
    n = len(real)
    block = max(1, round(n ** (2 / 3)))
    errors: dict[str, list[float]] = {name: [] for name in QUANTILES}
    for _ in range(RESAMPLES):
        starts = rng.integers(0, n, size=-(-n // block))
        rows = ((starts[:, None] + np.arange(block)) % n).ravel()[:n]
        for name, share in QUANTILES.items():
            errors[name].append(float(np.quantile(model[rows], share) / np.quantile(real[rows], share) - 1))
    return {
        name: (float(np.quantile(values, 0.025)), float(np.quantile(values, 0.975)))
        for name, values in errors.items()
    }


def _drift(observed: Observed, believed: Pipeline) -> dict[str, float]:
    """By stage, how much longer the run's batches took than believed, batch sizes alike."""
    drift = {}
    for stage, served in zip(believed.stages, observed.served):
        expected_ms = stage.service.table_ms[served[:, 0].astype(np.int64)]
        drift[stage.name] = float(served[:, 1].sum() / expected_ms.sum() - 1) if len(served) else 0.0
    return drift


def _as_served(observed: Observed, believed: Pipeline) -> Pipeline:
    """The pipeline with service times drawn from those of the run itself; sizes that never came keep what was believed."""
    stages = []
    for s, (stage, served) in enumerate(zip(believed.stages, observed.served)):
        values, table = [np.zeros(1)], stage.service.table_ms.copy()
        for size in range(1, stage.max_batch + 1):
            own = served[served[:, 0] == size, 1]
            values.append(own if len(own) else table[size : size + 1])
            table[size] = float(values[-1].mean())
        service = Service(table, Law.MEASURED, measured_ms=tuple(values), key=1000 + s)
        stages.append(replace(stage, service=service))
    return replace(believed, stages=tuple(stages))
