"""Tuners at work: on recorded surfaces, on the simulator, or on a real store; judged by regret, probes and samples."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace

import numpy as np

from forerun.domains.loading.engine.calibration import StoreProfile, predict
from forerun.domains.loading.engine.model import Reader, StoreModel
from forerun.domains.loading.engine.threads import stream
from forerun.domains.loading.policy import Ask, Cell, Load, Probe, Tuner, TunerSpec, TunerView
from forerun.rng import stream as random_stream

Evaluate = Callable[[Ask], Probe]


@dataclass(frozen=True)
class Tuned:
    """What a tuner did: its choice, the probes it ran, samples it read."""

    cell: Cell
    probes: tuple[Probe, ...]
    samples_read: int
    tuner: Tuner

    def regret(self, truth: Mapping[Cell, float]) -> float:
        """How much longer the choice takes than the best cell, as a share."""
        return truth[self.cell] / min(truth.values()) - 1


def tune(
    spec: TunerSpec,
    evaluate: Evaluate,
    cells: Iterable[Cell],
    load: Load,
    *,
    memory_bytes: float = math.inf,
    rng: np.random.Generator | None = None,
    most_probes: int = 100,
) -> Tuned:
    """Let a tuner ask, measure and tell until it is content."""
    view = TunerView(tuple(cells), load, memory_bytes, rng if rng is not None else random_stream(0, "tuner"))
    tuner = spec.build(view)
    probes: list[Probe] = []
    while len(probes) < most_probes and (ask := tuner.ask()) is not None:
        probe = evaluate(ask)
        probes.append(probe)
        tuner.tell(probe)
    return Tuned(tuner.choice(), tuple(probes), sum(probe.samples for probe in probes), tuner)


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
        full, rest = divmod(load.samples, cell.block)
        sizes = [cell.block] * full + ([rest] if rest else [])
        reader = Reader(
            [np.full(size, load.sample_bytes) for size in sizes], cell.threads, load.batch, load.step_s,
            self.profile.decode_s, buffer_samples=load.buffer_samples,
        )  # fmt: skip
        store = StoreModel(self.profile.conn_bytes_per_s, self.profile.shared_bytes_per_s, self.slots)
        sigma = self.latency_sigma
        latency: float | np.ndarray[tuple[int], np.dtype[np.float64]] = self.profile.latency_s
        if rng is not None:
            latency = self.profile.latency_s * np.exp(
                sigma * rng.standard_normal(len(sizes) + 1) - sigma**2 / 2
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
