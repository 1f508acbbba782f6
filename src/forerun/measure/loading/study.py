"""Probes, a profile, a choice and its check on a real store; predicted against measured, cell by cell."""

from __future__ import annotations

import math
import os
import platform
import statistics
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final

from forerun.domains.loading.calibrate import predict, with_intervals
from forerun.domains.loading.laws import Explanation, Setting, explain
from forerun.domains.loading.model import Cell, Load, Probe, StoreProfile
from forerun.domains.loading.policy import Ask
from forerun.domains.loading.tuners.three_probes import ModelTuner, ThreeProbes
from forerun.domains.loading.tuning import tune
from forerun.errors import UsageError
from forerun.measure.loading.corpus import Corpus
from forerun.measure.loading.runner import ACTS, run_loader
from forerun.rng import stream

BLOCKS: Final = (1, 4, 16, 64)
THREADS: Final = (1, 2, 4, 8)
#: repeats that differ more than this from their median are noisy
NOISY: Final = 0.15
Progress = Callable[[str], None]


@dataclass(frozen=True)
class Job:
    """The training job: batch, step, decode of a sample, how both are done, buffer."""

    batch: int = 64
    step_s: float = 0.1
    decode_s: float = 0.001
    buffer_samples: int = 256
    step: str = "sleep"
    decode: str = "sleep"


@dataclass(frozen=True)
class Host:
    """The machine while it was measured: cores, load average before and after, whether that is quiet enough."""

    cores: int
    load_before: float
    load_after: float
    system: str

    @property
    def quiet(self) -> bool:
        """Load average within twice the cores."""
        return max(self.load_before, self.load_after) <= 2 * self.cores


@dataclass(frozen=True)
class Answer:
    """What the probes say of a store and a job."""

    source: str
    job: Job
    load: Load
    probes: tuple[Probe, ...]
    profile: StoreProfile | None
    cell: Cell
    predicted_s: float
    predicted: dict[Cell, float]
    law: Explanation | None
    hidden: bool
    host: Host
    cache: str

    @property
    def sentence(self) -> str:
        """Hidden or not, what binds, and the smallest cure."""
        if self.hidden:
            return "loading is hidden already with single samples and one thread: do not merge"
        assert self.law is not None
        rate = self.load.samples / self.predicted_s
        merged = "single samples" if self.cell.block == 1 else f"blocks of {self.cell.block}"
        threads = "1 thread" if self.cell.threads == 1 else f"{self.cell.threads} threads"
        return f"now {self.law.sentence}; of the cells on offer {merged} and {threads} are enough: {rate:.4g} samples/s"

    def data(self) -> dict[str, Any]:
        """Plain data."""
        profile = self.profile
        return {
            "source": self.source,
            "answer": self.sentence,
            "hidden": self.hidden,
            "block_samples": self.cell.block,
            "threads": self.cell.threads,
            "samples_per_s": self.load.samples / self.predicted_s,
            "bottleneck": self.law.bottleneck if self.law else "compute",
            "profile": None
            if profile is None
            else {
                "latency_s": profile.latency_s,
                "conn_bytes_per_s": _number(profile.conn_bytes_per_s),
                "shared_bytes_per_s": _number(profile.shared_bytes_per_s),
                "decode_s": profile.decode_s,
                "notes": list(profile.notes),
                "intervals": {
                    name: [_number(span.low), _number(span.high)] for name, span in (profile.intervals or {}).items()
                },
            },
            "probes": [
                {"block_samples": p.cell.block, "threads": p.cell.threads, "samples": p.samples, "total_s": p.total_s,
                 "request_s": p.request_s, "decode_s": p.decode_s}
                for p in self.probes
            ],
            "cache": self.cache,
            "host": {"cores": self.host.cores, "load_before": self.host.load_before,
                     "load_after": self.host.load_after, "quiet": self.host.quiet},
        }  # fmt: skip


def _number(value: float) -> float | None:
    return value if math.isfinite(value) else None


def measure_cell(corpus: Corpus, job: Job, ask: Ask, start: int = 0) -> Probe:
    """One run of a cell."""
    pieces = corpus.pieces(ask.cell.block, ask.samples, start)
    run = run_loader(
        corpus.client_for(ask.cell.block), pieces, threads=ask.cell.threads, batch=job.batch, step_s=job.step_s,
        decode_s=job.decode_s, buffer_samples=job.buffer_samples, step=ACTS[job.step], decode=ACTS[job.decode],
    )  # fmt: skip
    request_s, decode_s = float(run.request_s.mean()), float(run.decode_s.mean())
    return Probe(
        ask.cell, ask.samples, run.total_s, request_s, decode_s, run.load_share, run.request_s, run.overhead_s
    )


def answer(
    corpus: Corpus,
    job: Job,
    *,
    blocks: Sequence[int] = BLOCKS,
    threads: Sequence[int] = THREADS,
    progress: Progress = lambda _: None,
    cache: str = "unknown",
) -> Answer:
    """Three probes, a fit, a choice and its check. Raises UsageError for a grid the corpus cannot serve."""  # fmt: skip
    largest = corpus.largest_piece
    cells = [Cell(block, number) for block in blocks for number in threads if block <= largest]
    if not any(cell.block > 1 for cell in cells) or not any(cell.threads > 1 for cell in cells):
        raise UsageError.at(
            corpus.name, f"blocks hold at most {largest} samples: no grid of blocks and threads to probe"
        )
    load = Load(
        max(corpus.samples, 64 * job.batch), corpus.mean_bytes, job.batch, job.step_s, job.buffer_samples
    )
    before = os.getloadavg()[0] if hasattr(os, "getloadavg") else math.nan

    def evaluate(ask: Ask) -> Probe:
        progress(f"probing blocks of {ask.cell.block}, {ask.cell.threads} threads, {ask.samples} samples")
        return measure_cell(corpus, job, ask)

    tuned = tune(ThreeProbes(), evaluate, cells, load)
    after = os.getloadavg()[0] if hasattr(os, "getloadavg") else math.nan
    host = Host(os.cpu_count() or 1, before, after, platform.platform())
    tuner = tuned.tuner
    assert isinstance(tuner, ModelTuner)
    if tuner.profile is None:
        total = tuned.probes[0].total_s * load.samples / tuned.probes[0].samples
        return Answer(
            corpus.name, job, load, tuned.probes, None, tuned.cell, total, {}, None, True, host, cache
        )
    profile = with_intervals(
        (tuned.probes[0], tuned.probes[1], tuned.probes[2]), load, stream(0, "bootstrap")
    )
    return Answer(
        corpus.name, job, load, tuned.probes, profile, tuned.cell, tuner.predicted[tuned.cell], tuner.predicted,
        law_of(profile, load, Cell(1, 1)), False, host, cache,
    )  # fmt: skip


def law_of(profile: StoreProfile, load: Load, cell: Cell) -> Explanation:
    """What binds in a cell, by a profile."""
    return explain(
        Setting(
            cell.threads, cell.block, load.sample_bytes, profile.latency_s, profile.decode_s, load.step_s, load.batch,
            profile.conn_bytes_per_s, profile.shared_bytes_per_s,
        ),
        samples=load.samples,
    )  # fmt: skip


@dataclass(frozen=True)
class Checked:
    """A cell measured repeatedly and predicted: medians, the least and the most, the error as a share."""

    cell: Cell
    measured_s: float
    least_s: float
    most_s: float
    predicted_s: float
    probe: bool

    @property
    def error(self) -> float:
        """Predicted over measured, minus one."""
        return self.predicted_s / self.measured_s - 1

    @property
    def noisy(self) -> bool:
        """Whether a repeat is far from the median."""
        return max(self.most_s / self.measured_s - 1, 1 - self.least_s / self.measured_s) > NOISY


def check(
    corpus: Corpus,
    job: Job,
    found: Answer,
    cells: Sequence[Cell],
    samples: int,
    *,
    repeats: int = 3,
    progress: Progress = lambda _: None,
) -> tuple[Checked, ...]:
    """Measure cells, interleaved, and set the profile's predictions beside the medians."""  # fmt: skip
    if found.profile is None:
        raise UsageError.at(corpus.name, "one probe was enough: there is no profile to check")
    totals: dict[Cell, list[float]] = {cell: [] for cell in cells}
    for repeat in range(repeats):
        for cell in cells:
            progress(f"repeat {repeat + 1} of {repeats}: blocks of {cell.block}, {cell.threads} threads")
            totals[cell].append(measure_cell(corpus, job, Ask(cell, samples), repeat).total_s)
    load = Load(samples, corpus.mean_bytes, job.batch, job.step_s, job.buffer_samples)
    probed = {probe.cell for probe in found.probes[:3]}
    return tuple(
        Checked(
            cell,
            statistics.median(seconds),
            min(seconds),
            max(seconds),
            predict(found.profile, load, cell),
            cell in probed,
        )
        for cell, seconds in totals.items()
    )
