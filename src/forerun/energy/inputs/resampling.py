"""Resampling the recorded paths: what other trainings of the job might have taken.

Two hundred seeds on five recorded paths give a tight and wrong interval, because the paths themselves are a small
sample. So the epochs to the target have a log-normal distribution a batch size, with the posterior of its mean and
spread under the usual non-informative prior, from which new paths are sampled.
"""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np

from forerun.energy.inputs.workload import Workload
from forerun.energy.policy.view import Floats, Ints

#: least standard deviation of log epochs: whole numbers of epochs hide smaller ones
LEAST_LOG_SD = 0.02


def resampled_workload(workload: Workload, rng: np.random.Generator, paths: int = 60) -> Workload:
    """The job with other paths: `paths` new ones a size (default 60), from a distribution sampled from its posterior.

    The share that never reaches the target is sampled too. Measured seconds and joules stay.
    """
    pooled = _pooled_log_variance(workload)
    start, count = np.zeros_like(workload.start), np.zeros_like(workload.count)
    epochs: list[Ints] = []
    rows: list[int] = []
    for s in range(len(workload.sizes)):
        new = _sampled_paths(workload.paths_of(s), workload.job.max_epochs, pooled, rng, paths)
        for p in np.flatnonzero(workload.count[s]):
            start[s, p], count[s, p] = paths * len(epochs), paths
            epochs.append(new)
            rows.append(int(workload.start[s, p]))
    return replace(
        workload,
        start=start,
        count=count,
        epochs=np.concatenate(epochs).astype(np.int64),
        epoch_s=np.repeat(workload.epoch_s[rows], paths),
        epoch_j=np.repeat(workload.epoch_j[rows], paths),
    )


def redrawn_workload(workload: Workload, rng: np.random.Generator) -> Workload:
    """The job with the recorded paths of each size drawn anew, with replacement; a size that can reach still can."""
    epochs = workload.epochs.copy()
    for size in range(len(workload.sizes)):
        recorded = workload.paths_of(size)
        reached = (recorded > 0) & (recorded <= workload.job.max_epochs)
        drawn = rng.integers(0, max(1, len(recorded)), len(recorded))
        while reached.any() and not reached[drawn].any():
            drawn = rng.integers(0, len(recorded), len(recorded))
        for start, count in zip(workload.start[size], workload.count[size]):
            epochs[start : start + count] = np.resize(recorded[drawn], count)
    return replace(workload, epochs=epochs)


def _pooled_log_variance(workload: Workload) -> float:
    """Variance of log epochs within batch sizes, pooled over them."""
    squares, freedom = 0.0, 0
    for size in range(len(workload.sizes)):
        paths = workload.paths_of(size)
        logs = np.log(paths[paths > 0])
        if len(logs) > 1:
            squares += float(((logs - logs.mean()) ** 2).sum())
            freedom += len(logs) - 1
    return max(squares / freedom if freedom else 0.0, LEAST_LOG_SD**2)


def _posterior(logs: Floats, pooled: float, rng: np.random.Generator, draws: int) -> tuple[Floats, Floats]:
    """Means and variances of log epochs from the posterior of their law, float64[draws] each.

    logs: of the runs that reached. pooled: variance of log epochs of all sizes, for a size with one run.
    """
    n = len(logs)
    variance = max(float(logs.var(ddof=1)) if n > 1 else pooled, LEAST_LOG_SD**2)
    sampled = variance * (n - 1) / rng.chisquare(n - 1, draws) if n > 1 else np.full(draws, variance)
    return rng.normal(float(logs.mean()), np.sqrt(sampled / n)), sampled


def _sampled_paths(
    recorded: np.ndarray, max_epochs: int, pooled: float, rng: np.random.Generator, paths: int
) -> np.ndarray:
    """Epochs of new runs, int64[paths]; 0 where a run never reaches.

    recorded: epochs of the recorded runs. max_epochs: of the job. pooled: variance of log epochs of all sizes, for a size
    with one run.
    """
    reached = np.log(recorded[recorded > 0])
    n = len(reached)
    if not n:
        return np.zeros(paths, np.int64)
    mean, variance = _posterior(reached, pooled, rng, 1)
    epochs = np.exp(rng.normal(mean, np.sqrt(variance), paths))
    epochs = np.maximum(1, np.round(epochs)).astype(np.int64)
    never = len(recorded) - n
    if never:
        epochs[rng.random(paths) < rng.beta(never + 0.5, n + 0.5)] = 0
    return epochs


def resampled_mean_epochs(workload: Workload, size: int, rng: np.random.Generator, draws: int) -> Floats:
    """A size's expected epochs over the recorded mean, float64[draws], from the posterior of its law; retries are counted.

    size: index of the batch size. Infinite for a size that never reaches.
    """
    recorded, cap = workload.paths_of(size), workload.job.max_epochs
    good = recorded[(recorded > 0) & (recorded <= cap)]
    n, failed = len(good), len(recorded) - len(good)
    if not n:
        return np.full(draws, math.inf)
    mean, variance = _posterior(np.log(good), _pooled_log_variance(workload), rng, draws)
    # Two or three paths leave the variance so open that some draws overflow: 50 is beyond any training already.
    epochs = np.exp(np.minimum(mean + variance / 2, 50.0))
    recorded_mean = float(good.mean())
    if failed:
        share = rng.beta(n + 0.5, failed + 0.5, draws)
        epochs = epochs + (1 - share) / share * cap
        recorded_mean += failed / n * cap
    return np.asarray(epochs / recorded_mean)
