"""Confidence intervals of the headline: from further runs on fresh seeds, or from batches of the one run."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import numpy as np

from forerun.core.result.stats import Interval, proportion_interval, student_quantile
from forerun.serving.inputs.pipeline import Floats

#: consecutive parts that a replayed trace is cut into
BATCHES = 20


def headline(latency_ms: Floats, slo_ms: float) -> dict[str, float]:
    """The figures that get an interval.

    Parameters
    ----------
    latency_ms : float64[queries], at least one.
    slo_ms : latency above which a query misses.
    """
    return {
        "latency_mean_ms": float(latency_ms.mean()),
        "latency_p50_ms": float(np.quantile(latency_ms, 0.5)),
        "latency_p99_ms": float(np.quantile(latency_ms, 0.99)),
        "attainment": float(np.count_nonzero(latency_ms <= slo_ms) / len(latency_ms)),
    }


def from_replications(
    runs: Sequence[Mapping[str, float]], queries: int, confidence: float
) -> dict[str, Interval]:
    """Where one more run of this length, on fresh arrivals, would fall: Student's t prediction interval.

    Parameters
    ----------
    runs : figures of each run, by name; a figure that not every run has gets no interval.
    queries : of a run.
    confidence : of the interval, such as 0.95.
    """
    n = len(runs)
    half = student_quantile(0.5 + confidence / 2, n - 1) * math.sqrt(1 + 1 / n)
    method = f"t prediction interval for one run of this length, from {n} runs on fresh arrivals"
    common = [name for name in runs[0] if all(name in run for run in runs)]
    return {
        name: _bounded(name, *_span([run[name] for run in runs], half), queries, confidence, method)
        for name in common
    }


def from_batches(latency_ms: Floats, slo_ms: float, confidence: float) -> dict[str, Interval]:
    """Sectioning: the figures of the whole trace, with the spread that consecutive parts have around them, Student's t.

    Empty where there are fewer than two queries a part.

    Parameters
    ----------
    latency_ms : float64[queries], in order of arrival.
    slo_ms : latency above which a query misses.
    confidence : of the interval, such as 0.95.
    """
    if len(latency_ms) < 2 * BATCHES:
        return {}
    parts = [headline(part, slo_ms) for part in np.array_split(latency_ms, BATCHES)]
    return from_parts(parts, headline(latency_ms, slo_ms), len(latency_ms), confidence)


def from_parts(
    parts: Sequence[Mapping[str, float]], whole: Mapping[str, float], queries: int, confidence: float
) -> dict[str, Interval]:
    """The same from the figures of `BATCHES` consecutive parts and of the whole trace.

    A quantile of a part is biased, because the part is short; the whole trace's is not, so it is the centre [Asmussen
    and Glynn, Stochastic Simulation, 2007].

    Parameters
    ----------
    parts : figures of each part, by name; a figure that not every part has gets no interval.
    whole : figures of the whole trace.
    queries : of the whole trace.
    confidence : of the interval, such as 0.95.
    """
    half = student_quantile(0.5 + confidence / 2, BATCHES - 1) / math.sqrt(BATCHES)
    method = f"batch means over {BATCHES} consecutive parts of the replayed trace, around its own figure, Student's t"
    intervals = {}
    for name, centre in whole.items():
        if not all(name in part for part in parts):
            continue
        spread = math.sqrt(sum((part[name] - centre) ** 2 for part in parts) / (BATCHES - 1))
        ends = centre - half * spread, centre + half * spread
        intervals[name] = _bounded(name, *ends, queries, confidence, method)
    return intervals


def _span(values: list[float], half: float) -> tuple[float, float]:
    mean, spread = float(np.mean(values)), float(np.std(values, ddof=1))
    return mean - half * spread, mean + half * spread


def _bounded(name: str, low: float, high: float, queries: int, confidence: float, method: str) -> Interval:
    """An interval of a figure within its bounds. Where all runs or parts have no query in time or nothing else, they have
    no spread: the end is then what the queries of one run can show, each a trial."""
    share = name.endswith(("attainment", "share"))
    if share and low == high and low in (0.0, 1.0):
        return proportion_interval(round(low) * queries, queries, confidence)
    return Interval(max(0.0, low), min(1.0 if share else math.inf, high), confidence, method)
