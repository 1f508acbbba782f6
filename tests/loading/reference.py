"""What tests and benchmarks measure the loading domain against: closed forms, stores of the simulator, exact regrets."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import ArrayLike

from forerun.loading.engine.calibration import StoreProfile, predict
from forerun.loading.engine.model import Reader, StoreModel, equal_blocks
from forerun.loading.engine.threads import stream
from forerun.loading.engine.tuning import Evaluate
from forerun.loading.policy import F64, Ask, Cell, Load, Probe


def equal_batches_total_s(batches: int, workers: int, build_s: float, step_s: float) -> float:
    """Total of `batches` equal batches by workers that start at once, for any prefetch of one or more.

    max over k of (floor(k / W) + 1) * build + (N - k) * step.
    """
    k = np.arange(batches)
    return float(np.max((k // workers + 1) * build_s + (batches - k) * step_s))


def pinned_hit_share(cache_share: ArrayLike) -> F64:
    """Hits of a cache that keeps what came first and never lets go, when each epoch is a fresh permutation."""
    return np.asarray(cache_share, np.float64)


def lru_hit_share(cache_share: ArrayLike) -> F64:
    """Hits of an LRU cache that holds a share x of the data, each epoch a fresh permutation: x + (1-x) ln(1-x)."""
    x = np.asarray(cache_share, np.float64)
    rest = 1 - x
    return x + np.where(rest > 0, rest * np.log(np.where(rest > 0, rest, 1.0)), 0.0)


def cached_rate(limit: float, remote: float, cache_share: float) -> float:
    """Throughput with a share of the data at hand: the remote link carries the rest [SiloD, EuroSys'23]."""
    return min(limit, remote / (1 - cache_share)) if cache_share < 1 else limit


def equal_jobs_rate(
    batch: int, step_s: float, shared_bytes_per_s: float, sample_bytes: float, jobs: int
) -> float:
    """Samples a second of each of several equal jobs on one link."""
    return min(batch / step_s if step_s else math.inf, shared_bytes_per_s / (jobs * sample_bytes))


def recorded(probes: Mapping[Cell, Probe]) -> Evaluate:
    """A surface that was measured: each cell gives what was recorded, whatever length is asked for."""
    return lambda ask: probes[ask.cell]


@dataclass(frozen=True)
class SyntheticStore:
    """A store that only the simulator knows, with noise on what is measured: where tuners are put to the test.

    latency_sigma: of the lognormal request latency. noise: relative standard deviation of a measured total.
    """

    profile: StoreProfile
    latency_sigma: float = 0.2
    noise: float = 0.01
    slots: int = 0

    def truth(self, load: Load, cells: Iterable[Cell]) -> dict[Cell, float]:
        """Seconds of each cell without noise, latencies at their mean."""
        return {cell: self._run(load, cell, None)[0] for cell in cells}

    def evaluator(self, load: Load, rng: np.random.Generator) -> Evaluate:
        """Measurements with noise."""

        def evaluate(ask: Ask) -> Probe:
            total, request, load_share = self._run(replace(load, samples=ask.samples), ask.cell, rng)
            noisy = total * (1 + self.noise * rng.standard_normal())
            return Probe(ask.cell, ask.samples, noisy, request, self.profile.decode_s, load_share)

        return evaluate

    def _run(self, load: Load, cell: Cell, rng: np.random.Generator | None) -> tuple[float, float, float]:
        blocks = equal_blocks(load.samples, cell.block, load.sample_bytes)
        reader = Reader(
            blocks, cell.threads, load.batch, load.step_s, self.profile.decode_s, buffer_samples=load.buffer_samples
        )  # fmt: skip
        store = StoreModel(self.profile.conn_bytes_per_s, self.profile.shared_bytes_per_s, self.slots)
        sigma = self.latency_sigma
        latency: float | np.ndarray[tuple[int], np.dtype[np.float64]] = self.profile.latency_s
        if rng is not None:
            latency = self.profile.latency_s * np.exp(
                sigma * rng.standard_normal(len(blocks) + 1) - sigma**2 / 2
            )
        run = stream([reader], store, latency_s=latency)
        job = run.jobs[0]
        done = np.isfinite(job.requests.done_s)
        request = float(np.mean((job.requests.done_s - job.requests.taken_s)[done]))
        return run.end_s, request, float(job.load_s[1:].sum() / job.total_s)


def expected_random_regret(totals: Iterable[float], draws: int) -> tuple[float, float]:
    """Mean and 95th percentile of the regret of the best of `draws` uniform cells, drawn with replacement: exact."""
    ordered = np.sort(np.fromiter(totals, np.float64))
    n = len(ordered)
    rank = np.arange(n)
    chance = ((n - rank) / n) ** draws - ((n - rank - 1) / n) ** draws
    at = int(np.searchsorted(np.cumsum(chance), 0.95))
    return float(chance @ ordered / ordered[0] - 1), float(ordered[at] / ordered[0] - 1)


def predicted_surface(profile: StoreProfile, load: Load, cells: Iterable[Cell]) -> dict[Cell, float]:
    """Seconds of each cell as a profile has it."""
    return {cell: predict(profile, load, cell) for cell in cells}
