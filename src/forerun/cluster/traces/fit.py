"""Descriptions of random job traces, fitted to a log."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import NormalDist
from typing import Final

import numpy as np

from forerun.cluster.inputs.arrays import BOOL, F64, I64, NO_DEADLINE_S
from forerun.cluster.traces.generate import JobGenerator, LogNormalPart, SizeShare
from forerun.core.errors import TraceError
from forerun.core.trace.table import Trace

_DAY_S: Final = 86_400.0
_MOST_FITTED: Final = 20_000


@dataclass(frozen=True, slots=True)
class FittedJobs:
    """A description fitted to a log and how far it is from it.

    Parameters
    ----------
    spec : the description.
    duration_distance : the largest distance between the two distributions of durations (Kolmogorov-Smirnov).
    notes : what was assumed.
    slack_distance : distance of the deadlines' slack from a uniform one; None without deadlines.
    """

    spec: JobGenerator
    duration_distance: float
    notes: tuple[str, ...]
    slack_distance: float | None = None


def fit(trace: Trace, *, humps: int = 0) -> FittedJobs:
    """A `JobGenerator` like a log of jobs: gaps, hours, durations, sizes; models, slack and best effort where it has them.

    Durations: each size's geometric mean as a factor, and a mixture by expectation-maximisation from quantile starts, so
    the same log gives the same fit (of more than 20,000 jobs, on as many quantiles); `humps` 0 takes the number of one to
    four with the least Bayesian information criterion. Hours of the week are fitted from two weeks on, hours of the day
    from two days on. A log without deadlines leaves slack and coin at their defaults, as a note says.
    """
    if len(trace) < 10:
        raise TraceError.at(trace.provenance.source, f"has {len(trace)} jobs; a fit wants at least 10")
    submit_s = np.asarray(trace["submit_s"], np.float64)
    duration_s = np.asarray(trace["duration_s"], np.float64)
    gpus = np.maximum(1, np.ceil(np.asarray(trace["gpus"], np.float64) - 1e-9)).astype(np.int64)
    span_s = float(submit_s[-1] - submit_s[0])
    logs, factors = _without_sizes(np.log(np.maximum(duration_s, 1.0)), gpus)
    logs = _quantiles(logs, _MOST_FITTED)
    parts = _mixture(logs, humps) if humps else _best_mixture(logs)
    counts = np.bincount(gpus)
    rates, note = _hourly(submit_s - submit_s[0], span_s)
    templates, shares = _template_counts(trace)
    slack = _slack(trace, submit_s, duration_s)
    spec = JobGenerator(
        jobs=len(trace),
        mean_gap_s=max(span_s / max(len(trace) - 1, 1), 1e-9),
        hourly_rates=rates,
        durations=parts,
        least_duration_s=float(max(duration_s.min(), 1.0)),
        most_duration_s=float(max(duration_s.max(), 1.0)),
        sizes=tuple(
            SizeShare(gpus=size, share=float(counts[size] / len(trace)), duration_factor=factors[size])
            for size in np.flatnonzero(counts).tolist()
        ),
        templates=templates,
        template_shares=shares,
    )
    notes = [note]
    if "best_effort" in trace or len(slack):
        spec = spec.with_(best_effort_share=float(without_deadline(trace).mean()))
    slack_distance = None
    if len(slack):
        spec = spec.with_(least_slack=float(slack.min()), most_slack=float(slack.max()))
        slack_distance = _uniform_distance(slack)
    else:
        notes.append(
            "the log has no deadlines: generated jobs have some only with models, by the generator's default slack"
        )
    if not templates:
        notes.append("the log has no models: jobs are rigid unless a profile is given")
    fraction = int(np.count_nonzero(np.asarray(trace["gpus"]) % 1))
    if fraction:
        notes.append(f"{fraction} jobs with a fraction of a GPU count as whole GPUs")
    distance = _distance(_quantiles(logs, 2000), parts)
    return FittedJobs(spec, distance, tuple(notes), slack_distance)


def _quantiles(values: F64, most: int) -> F64:
    """The values in order, or `most` evenly spaced quantiles of more."""
    ordered: F64 = np.sort(values)
    if len(ordered) > most:
        ordered = np.asarray(np.quantile(ordered, (np.arange(most) + 0.5) / most), np.float64)
    return ordered


def _template_counts(trace: Trace) -> tuple[tuple[tuple[str, int], ...], tuple[float, ...]]:
    """Models and batches of a log, and the share of its jobs that each has."""
    if "model" not in trace or "batch" not in trace:
        return (), ()
    models = trace["model"].tolist()
    pairs = Counter(zip(models, map(int, trace["batch"].tolist()), strict=True))
    known = sorted((pair, count) for pair, count in pairs.items() if pair[0] and pair[1])
    return tuple(pair for pair, _ in known), tuple(count / len(trace) for _, count in known)


def without_deadline(trace: Trace) -> BOOL:
    """Which jobs of a log have no deadline: best-effort ones, and those with an empty cell."""
    none: BOOL = np.zeros(len(trace), np.bool_)
    if "best_effort" in trace:
        none |= np.asarray(trace["best_effort"]) == 1
    if "deadline_s" in trace:
        none |= ~(np.asarray(trace["deadline_s"], np.float64) < NO_DEADLINE_S)
    return none


def _slack(trace: Trace, submit_s: F64, duration_s: F64) -> F64:
    """Deadline less submission over duration of the jobs with a deadline, not below 0."""
    if "deadline_s" not in trace:
        return np.empty(0)
    effort = without_deadline(trace)
    slack = (np.asarray(trace["deadline_s"], np.float64) - submit_s) / np.maximum(duration_s, 1.0)
    known: F64 = np.maximum(slack[~effort], 0.0)
    return known


def _uniform_distance(values: F64) -> float:
    ordered = np.sort(values)
    low, high = float(ordered[0]), float(ordered[-1])
    law = (ordered - low) / (high - low) if high > low else np.ones(len(ordered))
    steps = np.arange(len(ordered) + 1) / len(ordered)
    return float(max(np.abs(law - steps[1:]).max(), np.abs(law - steps[:-1]).max()))


def _without_sizes(logs: F64, gpus: I64) -> tuple[F64, dict[int, float]]:
    """Log durations less the mean of their size's, around the mean of all; and each size's factor.

    A size with fewer than ten jobs says too little about itself: its factor is 1.
    """
    factors = {}
    rest = logs.copy()
    for size in np.unique(gpus).tolist():
        at = gpus == size
        shift = float(logs[at].mean() - logs.mean()) if np.count_nonzero(at) >= 10 else 0.0
        rest[at] -= shift
        factors[size] = math.exp(shift)
    return rest, factors


def _best_mixture(logs: F64) -> tuple[LogNormalPart, ...]:
    """The mixture of one to four humps with the least Bayesian information criterion."""
    fits = [_mixture(logs, humps) for humps in (1, 2, 3, 4)]
    costs = [math.log(len(logs)) * (3 * len(parts) - 1) - 2 * _log_likelihood(logs, parts) for parts in fits]
    return fits[int(np.argmin(costs))]


def _log_likelihood(logs: F64, parts: Sequence[LogNormalPart]) -> float:
    """Log-likelihood of log durations under a mixture."""
    total = sum(part.weight for part in parts)
    density = np.zeros(len(logs))
    for part in parts:
        spread = max(part.log_spread, 1e-3)  # a hump on one value must not win by an infinite density
        z = (logs - math.log(part.median_s)) / spread
        density += part.weight / total * np.exp(-0.5 * z * z) / (spread * math.sqrt(2 * math.pi))
    return float(np.log(density + 1e-300).sum())


def _mixture(logs: F64, humps: int) -> tuple[LogNormalPart, ...]:
    """Weights, medians and spreads of a mixture of normals in log time; humps that die are left out.

    Expectation-maximisation from evenly spaced quantiles, until no mean moves any more, at most 300 steps.
    """
    edges = np.quantile(logs, (np.arange(humps) + 0.5) / humps)
    mean, spread, weight = (
        edges.astype(np.float64),
        np.full(humps, logs.std() + 1e-6),
        np.full(humps, 1.0 / humps),
    )
    for _ in range(300):
        z = (logs[:, None] - mean) / spread
        density = weight * np.exp(-0.5 * z * z) / spread + 1e-300
        share = density / density.sum(axis=1, keepdims=True)
        total = share.sum(axis=0) + 1e-12
        new_mean = (share * logs[:, None]).sum(axis=0) / total
        spread = np.sqrt((share * (logs[:, None] - new_mean) ** 2).sum(axis=0) / total) + 1e-6
        weight = total / len(logs)
        moved = float(np.abs(new_mean - mean).max())
        mean = new_mean
        if moved < 1e-9:
            break
    return tuple(
        LogNormalPart(weight=float(w), median_s=float(np.exp(m)), log_spread=float(s))
        for w, m, s in sorted(zip(weight, mean, spread, strict=True), key=lambda part: part[1])
        if w > 1e-6
    )


def _distance(logs: F64, parts: Sequence[LogNormalPart]) -> float:
    """Kolmogorov-Smirnov distance of ascending log durations from a mixture."""
    normal = NormalDist()
    total = sum(part.weight for part in parts)
    model = np.array(
        [
            sum(
                p.weight / total * normal.cdf((x - math.log(p.median_s)) / max(p.log_spread, 1e-9))
                for p in parts
            )
            for x in logs.tolist()
        ]
    )
    steps = np.arange(len(logs) + 1) / len(logs)
    return float(max(np.abs(model - steps[1:]).max(), np.abs(model - steps[:-1]).max()))


def _hourly(submit_s: F64, span_s: float) -> tuple[tuple[float, ...], str]:
    """Relative arrivals an hour of the week or day, corrected for how often each hour was seen."""
    hours = 168 if span_s >= 14 * _DAY_S else 24 if span_s >= 2 * _DAY_S else 0
    if not hours:
        return (), "the log is shorter than two days: arrivals at a constant rate"
    slots = int(span_s // 3600) + 1
    seen = np.bincount(np.arange(slots) % hours, minlength=hours)
    counted = np.bincount((submit_s // 3600).astype(np.int64) % hours, minlength=hours)
    rates = counted / np.maximum(seen, 1)
    return tuple(
        (rates / rates.mean()).round(6).tolist()
    ), f"arrivals follow {hours} hours, counted from the first submission"
