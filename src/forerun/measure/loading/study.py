"""Probes, a profile, a choice and its check on a real store; predicted against measured, cell by cell."""

from __future__ import annotations

import math
import os
import platform
import statistics
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from statistics import NormalDist
from typing import Any, Final

import numpy as np

from forerun.domains.loading.engine.calibration import (
    LEAST_OFF,
    StoreProfile,
    best_within,
    fit_single_requests,
    predict,
    predicted_run,
    resampled,
    slower,
    total_interval,
    with_intervals,
)
from forerun.domains.loading.engine.laws import Explanation, Setting, explain
from forerun.domains.loading.engine.tuning import tune
from forerun.domains.loading.policies.three_probes import ModelTuner, ThreeProbes
from forerun.domains.loading.policy import Ask, Cell, Load, Probe
from forerun.errors import UsageError
from forerun.measure.loading.corpus import Corpus
from forerun.measure.loading.decoders import decoder_named
from forerun.measure.loading.runner import ACTS, LoaderRun, run_loader
from forerun.measure.progress import Steps
from forerun.result.run import Interval
from forerun.result.stats import normal_quantile, standard_error
from forerun.rng import stream

BLOCKS: Final = (1, 4, 16, 64)
THREADS: Final = (1, 2, 4, 8)
#: block sizes that an answer chooses from
OFFERED: Final = (1, 2, 4, 8, 16, 32, 64, 128, 256)
#: a probe is over after so many seconds, or requests
PROBE_S: Final = 4.0
PROBE_REQUESTS: Final = 300
#: batches that a probe takes at least, be they smaller ones
LEAST_BATCHES: Final = 4
#: requests that open connections and give the length of a probe
FIRST_REQUESTS: Final = 8
#: bootstrap profiles behind the interval of a prediction, and samples of the runs that they predict
DRAWS: Final = 40
DRAWN_SAMPLES: Final = 3200
#: batches of a run whose waits are worth a picture
SHOWN_BATCHES: Final = 8
#: quantiles of request times in the answer
QUANTILES: Final = 101
#: repeats that differ more than this from their median are noisy
NOISY: Final = 0.15
#: local files count as cold where less than this share of their pages stayed in memory
COLD: Final = 0.02
#: a cell hides loading if it is within this share of what the step admits
HIDES: Final = 0.02
Progress = Callable[[str], None]


@dataclass(frozen=True)
class Job:
    """The training job: batch, step, decode of a sample, how both are done, buffer.

    step: sleep, busy, or torch (a real step of a small network); decode: none, sleep, busy, or a decoder's name.
    """

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
    """The answer of a few probes to whether a store is fast enough for a job.

    predicted_s of the whole data in `cell`, with its 95 % interval; `predicted` seconds of every cell. verified: the
    probe of the chosen cell itself, if there was one. smallest: for each number of threads, the smallest block that
    hides loading. packed: whether blocks were really read.
    """

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
    interval: Interval | None = None
    verified: Probe | None = None
    smallest: Mapping[int, int] = field(default_factory=dict)
    packed: bool = True
    cpu_per_request_s: float = math.nan
    is_container: bool = False
    runs: tuple[LoaderRun, ...] = ()

    @property
    def hides(self) -> bool:
        """Whether the chosen cell hides loading."""
        return self.hidden or any(
            threads <= self.cell.threads and block <= self.cell.block
            for threads, block in self.smallest.items()
        )

    @property
    def verified_error(self) -> float | None:
        """Model over measured, minus one, where the chosen cell was run."""
        if self.verified is None or self.profile is None:
            return None
        load = replace(self.load, samples=self.verified.samples)
        return predict(self.profile, load, self.verified.cell) / self.verified.total_s - 1

    @property
    def sentence(self) -> str:
        """Hidden or not, what binds, and the smallest cure."""
        assert self.interval is not None
        rate = self.load.samples / self.predicted_s
        low, high = (self.load.samples / end for end in (self.interval.high, self.interval.low))
        speed = f"{rate:.4g} samples/s (95 %: {low:.4g} to {high:.4g})"
        if self.hidden:
            return f"loading is hidden already with single samples and one thread: do not merge; the step binds: {speed}"
        assert self.law is not None
        merged = "single samples" if self.cell.block == 1 else f"blocks of {self.cell.block}"
        threads = "1 thread" if self.cell.threads == 1 else f"{self.cell.threads} threads"
        enough = "are enough" if self.hides else "are the best on offer and do not hide it"
        return f"not hidden with single samples and 1 thread: {self.law.sentence}; {merged} and {threads} {enough}: {speed}"

    @property
    def next_step(self) -> str:
        """The command that a user runs now."""
        if self.hidden or self.cell.block == 1:
            return ""
        if "://" in self.source and not self.packed:
            return (
                f"forerun pack {self.source} OUT --block-samples {self.cell.block}; serve OUT from the same store and "
                "measure it"
            )
        if not self.packed:
            return f"forerun pack {self.source} OUT --block-samples {self.cell.block}, OUT on the same storage; measure OUT"
        return (
            f"forerun pack {self.source} OUT --block-samples {self.cell.block}"
            if not self.is_container
            else ""
        )

    def data(self) -> dict[str, Any]:
        """Plain data."""
        profile, rate = self.profile, self.load.samples / self.predicted_s
        spans = self.interval
        return {
            "source": self.source,
            "answer": self.sentence,
            "hidden": self.hidden,
            "block_samples": self.cell.block,
            "threads": self.cell.threads,
            "chosen_hides": self.hides,
            "samples_per_s": rate,
            "samples_per_s_interval": None
            if spans is None
            else [self.load.samples / spans.high, self.load.samples / spans.low],
            "verified_samples_per_s": None
            if self.verified is None
            else self.verified.samples / self.verified.total_s,
            "verified_error": self.verified_error,
            "smallest_hiding": [{"threads": t, "block_samples": n} for t, n in self.smallest.items()],
            "packed": self.packed,
            "bottleneck": self.law.bottleneck if self.law else "compute",
            "short_of_hiding": None
            if self.law is None
            else _number(max(1.0, self.law.terms["compute"] / self.law.samples_per_s)),
            "laws_samples_per_s": None
            if self.law is None
            else {name: _number(value) for name, value in self.law.terms.items()},
            "profile": None
            if profile is None
            else {
                "latency_s": profile.latency_s,
                "conn_bytes_per_s": _number(profile.conn_bytes_per_s),
                "shared_bytes_per_s": _number(profile.shared_bytes_per_s),
                "decode_s": profile.decode_s,
                "decode_cpu_s": profile.decode_cpu_s,
                "cores": _number(profile.cores),
                "notes": list(profile.notes),
                "intervals": {
                    name: [_number(span.low), _number(span.high)] for name, span in (profile.intervals or {}).items()
                },
            },
            "requests": self._requests(),
            "waits": self._waits(),
            "probes": [
                {"block_samples": p.cell.block, "threads": p.cell.threads, "samples": p.samples, "total_s": p.total_s,
                 "request_s": p.request_s, "decode_s": p.decode_s}
                for p in self.probes
            ],
            "next": self.next_step,
            "samples": self.load.samples,
            "sample_bytes": self.load.sample_bytes,
            "cpu_per_request_s": _number(self.cpu_per_request_s),
            "cache": self.cache,
            "host": {"cores": self.host.cores, "load_before": self.host.load_before,
                     "load_after": self.host.load_after, "quiet": self.host.quiet, "system": self.host.system,
                     "versions": {"python": platform.python_version(), "numpy": np.__version__}},
        }  # fmt: skip

    def _requests(self) -> dict[str, Any]:
        """Quantiles of the first probe's requests, and of latencies with the mean and the spread fitted to them."""
        if not self.runs:
            return {}
        seen = self.runs[0].request_s
        shares = np.linspace(0, 1, QUANTILES)
        shown: dict[str, Any] = {"requests": len(seen), "measured_s": np.quantile(seen, shares).tolist()}
        profile = self.profile
        if profile is None or not profile.latency_s > 0:
            return shown
        sent = self.load.sample_bytes / profile.conn_bytes_per_s
        latency = np.maximum(seen - sent, 1e-3 * profile.latency_s)
        sigma = float(np.std(np.log(latency)))
        normal = NormalDist()
        # The ends of a distribution are nowhere; as many requests reach about so far.
        reach = np.clip(shares, 0.5 / len(seen), 1 - 0.5 / len(seen))
        latencies = [math.exp(sigma * normal.inv_cdf(share) - sigma**2 / 2) for share in reach.tolist()]
        mean = max(float(seen.mean()) - sent, 0.0)
        return shown | {"sigma": sigma, "model_s": [sent + mean * each for each in latencies]}

    def _waits(self) -> dict[str, Any]:
        """Waits of the probe that waited most, of those of some batches, and the simulation's."""
        if not self.runs or self.profile is None:
            return {}
        long = [each for each in zip(self.runs, self.probes) if len(each[0].load_s) >= SHOWN_BATCHES]
        run, probe = max(long or list(zip(self.runs, self.probes)), key=lambda each: each[0].load_share)
        load = replace(self.load, samples=probe.samples, batch=probe.samples // len(run.load_s))
        load = replace(load, step_s=float(run.step_s.mean()))
        simulated = predicted_run(self.profile, load, probe.cell)
        return {
            "block_samples": probe.cell.block, "threads": probe.cell.threads, "measured_s": run.load_s.tolist(),
            "simulated_s": simulated.load_s.tolist(),
        }  # fmt: skip


def _number(value: float) -> float | None:
    return value if math.isfinite(value) else None


def run_cell(corpus: Corpus, job: Job, ask: Ask, start: int = 0) -> LoaderRun:
    """One run of a cell, with everything that was measured."""
    pieces = corpus.pieces(ask.cell.block, ask.samples, start)
    decoder = None if job.decode in ACTS else decoder_named(job.decode)
    return run_loader(
        corpus.client_for(ask.cell.block), pieces, threads=ask.cell.threads, batch=job.batch, step_s=job.step_s,
        decode_s=job.decode_s, buffer_samples=job.buffer_samples, step=ACTS[job.step],
        decode=ACTS[job.decode if decoder is None else "none"], decoder=decoder,
    )  # fmt: skip


def measure_cell(corpus: Corpus, job: Job, ask: Ask, start: int = 0) -> Probe:
    """One run of a cell, as a probe."""
    return _probe(ask, run_cell(corpus, job, ask, start))


def _probe(ask: Ask, run: LoaderRun) -> Probe:
    return Probe(
        ask.cell, run.samples, run.total_s, float(run.request_s.mean()), float(run.decode_s.mean()), run.load_share,
        run.request_s, run.overhead_s, run.decode_cpu_s, run.process_cpu_s / run.total_s,
        (run.process_cpu_s + run.queued_s) / run.total_s,
    )  # fmt: skip


class _Prober:
    """Runs probes, each as long as it must be."""

    def __init__(self, corpus: Corpus, job: Job, probe_s: float, progress: Progress) -> None:
        self.corpus, self.job, self.probe_s, self.progress = corpus, job, probe_s, progress
        self.runs: list[LoaderRun] = []
        progress("opening connections")
        # Not a probe: what opens a connection, or fills a cache for the first time, is not what a store always takes.
        first = run_cell(corpus, replace(job, step_s=0.0), Ask(Cell(1, 1), FIRST_REQUESTS))
        self.request_s = float(np.median(first.request_s))
        self.decode_s = float(np.median(first.decode_s))

    def samples(self, cell: Cell) -> int:
        """As many as fit into `probe_s`, at most `PROBE_REQUESTS` requests; a batch and a block a thread at least."""
        alone_s = (self.request_s / cell.block + self.decode_s) / cell.threads
        each_s = max(alone_s, self.job.step_s / self.job.batch)
        least = max(self.job.batch, cell.block * cell.threads) if cell.block > 1 else cell.threads * 16
        return max(least, min(PROBE_REQUESTS * cell.block, round(self.probe_s / each_s)))

    def evaluate(self, ask: Ask) -> Probe:
        """A probe of the cell that is asked for."""
        job, samples = self.job, self.samples(ask.cell)
        batch = job.batch
        if samples < LEAST_BATCHES * batch:
            # A slow store fills no batch in time: smaller ones, with shorter steps, separate stalled from hidden too.
            batch = max(1, samples // LEAST_BATCHES)
            job = replace(job, batch=batch, step_s=job.step_s * batch / job.batch)
        # Whole batches: the step on a part of one takes as long as on all of it, and few batches are a rate's measure.
        ask = Ask(ask.cell, samples // batch * batch)
        self.progress(
            f"probing blocks of {ask.cell.block}, {ask.cell.threads} threads, {ask.samples} samples"
        )
        self.runs.append(run_cell(self.corpus, job, ask))
        return _probe(ask, self.runs[-1])


def load_average() -> float:
    """Of the last minute; nan where the system does not report it."""
    return os.getloadavg()[0] if hasattr(os, "getloadavg") else math.nan


def answer(
    corpus: Corpus,
    job: Job,
    *,
    blocks: Sequence[int] = OFFERED,
    threads: Sequence[int] = THREADS,
    memory_bytes: float = math.inf,
    probe_s: float = PROBE_S,
    progress: Progress = lambda _: None,
    cache: str = "unknown",
) -> Answer:
    """Three probes of about `probe_s` seconds each, a fit, a choice and its check.

    Where there are only single files to read, two probes, and larger blocks are predicted unseen. Raises UsageError
    for a grid that the corpus cannot serve.
    """  # fmt: skip
    largest = corpus.largest_piece
    packed = largest > 1
    cells = [Cell(block, number) for block in blocks for number in threads if block <= largest or not packed]
    if len({cell.block for cell in cells}) < 2 or len({cell.threads for cell in cells}) < 2:
        raise UsageError.at(
            corpus.name, f"blocks hold at most {largest} samples: no grid of blocks and threads to probe"
        )
    load = Load(
        max(corpus.samples, 64 * job.batch), corpus.mean_bytes, job.batch, job.step_s, job.buffer_samples
    )
    before = load_average()
    prober = _Prober(corpus, job, probe_s, progress)
    answered_by = _packed if packed else _single_files
    chosen = answered_by(corpus, prober, cells, load, memory_bytes)
    host = Host(os.cpu_count() or 1, before, load_average(), platform.platform())
    first = prober.runs[0]
    return replace(
        chosen,
        host=host,
        cache=cache,
        cpu_per_request_s=first.process_cpu_s / len(first.request_s),
        runs=tuple(prober.runs),
        packed=packed,
        is_container=packed and corpus.files is None,
    )


_NOWHERE: Final = Host(1, math.nan, math.nan, "")


def _packed(corpus: Corpus, prober: _Prober, cells: list[Cell], load: Load, memory_bytes: float) -> Answer:
    """From (1 x 1), (n x 1), (n x T) and a run of the choice."""
    tuned = tune(ThreeProbes(), prober.evaluate, cells, load, memory_bytes=memory_bytes)
    tuner = tuned.tuner
    assert isinstance(tuner, ModelTuner)
    if tuner.profile is None:
        return _hidden(corpus, prober, load, tuned.probes)
    abc = (tuned.probes[0], tuned.probes[1], tuned.probes[2])
    profile = with_intervals(abc, load, stream(0, "bootstrap"))
    verified = next((probe for probe in reversed(tuned.probes) if probe.cell == tuned.cell), None)
    total_s = tuner.predicted[tuned.cell]
    samples = resampled(abc, load, stream(0, "interval"), DRAWS)
    short = replace(load, samples=min(load.samples, DRAWN_SAMPLES))
    spans = total_interval(samples, tuned.probes, profile, short, tuned.cell)
    # What the refit moved the prediction by, and what the interval's shorter runs are short of the whole.
    scale = total_s / predict(profile, short, tuned.cell)
    return Answer(
        corpus.name, prober.job, load, tuned.probes, profile, tuned.cell, total_s, tuner.predicted,
        law_of(profile, load, Cell(1, 1)), False, _NOWHERE, "",
        Interval(spans.low * scale, spans.high * scale, method=spans.method), verified, _smallest(tuner.predicted, load),
    )  # fmt: skip


def _single_files(
    corpus: Corpus, prober: _Prober, cells: list[Cell], load: Load, memory_bytes: float
) -> Answer:
    """From (1 x 1) and (1 x T): what larger blocks would do is predicted and cannot be verified here."""
    most = Cell(1, max(cell.threads for cell in cells))
    a = prober.evaluate(Ask(Cell(1, 1), 0))
    if a.load_share < HIDES / 2:
        return _hidden(corpus, prober, load, (a,))
    c = prober.evaluate(Ask(most, 0))
    asked = corpus.pieces(1, a.samples)
    sizes = np.array([float(piece.length) for piece in asked])
    fitted = fit_single_requests(a, c, sizes, load)
    predicted = {cell: predict(fitted, load, cell) for cell in cells}
    slow = slower(fitted, ThreeProbes().slack)
    worse = {cell: predict(slow, load, cell) for cell in cells}
    chosen = best_within(predicted, load, memory_bytes=memory_bytes, worse=worse)
    assert a.requests_s is not None
    samples = []
    rng = stream(0, "interval")
    for _ in range(DRAWS):
        rows = rng.integers(len(sizes), size=len(sizes))
        again = replace(a, requests_s=a.requests_s[rows], request_s=float(a.requests_s[rows].mean()))
        samples.append(fit_single_requests(again, c, sizes[rows], load))
    spans = {
        name: Interval(
            *np.quantile(
                [getattr(each, name) for each in samples], [0.025, 0.975], method="inverted_cdf"
            ).tolist()
        )
        for name in ("latency_s", "conn_bytes_per_s", "shared_bytes_per_s", "decode_s")
    }
    profile = replace(fitted, intervals=spans)
    short = replace(load, samples=min(load.samples, DRAWN_SAMPLES))
    span = total_interval(samples, (a, c), profile, short, chosen)
    scale = predicted[chosen] / predict(profile, short, chosen)
    return Answer(
        corpus.name, prober.job, load, (a, c), profile, chosen, predicted[chosen], predicted,
        law_of(profile, load, Cell(1, 1)), False, _NOWHERE, "",
        Interval(span.low * scale, span.high * scale, method=span.method), None, _smallest(predicted, load),
    )  # fmt: skip


def _hidden(corpus: Corpus, prober: _Prober, load: Load, probes: tuple[Probe, ...]) -> Answer:
    """One probe was enough; the times of its batches give the interval."""
    run = prober.runs[0]
    # The wait for the first batch is start-up and is waited once.
    batches = run.load_s[1:] + run.step_s[1:]
    first_s = float(run.load_s[0] + run.step_s[0])
    mean_s = float(batches.mean()) if len(batches) else first_s
    count = load.samples / (run.samples / len(run.load_s))
    total_s = first_s + mean_s * (count - 1)
    off = standard_error(batches) / mean_s if len(batches) > 1 else 0.1
    half = normal_quantile(0.975) * max(LEAST_OFF, off)
    span = Interval(
        total_s * math.exp(-half), total_s * math.exp(half), method="times of the probe's batches"
    )
    return Answer(
        corpus.name, prober.job, load, probes, None, Cell(1, 1), total_s, {}, None, True, _NOWHERE, "", span
    )


def _smallest(predicted: Mapping[Cell, float], load: Load) -> dict[int, int]:
    """For each number of threads the smallest block that keeps within `HIDES` of the steps alone."""
    steps_s = -(-load.samples // load.batch) * load.step_s
    hides = [cell for cell, total_s in predicted.items() if steps_s >= (1 - HIDES) * total_s]
    return {
        threads: min(cell.block for cell in hides if cell.threads == threads)
        for threads in sorted({cell.threads for cell in hides})
    }


def law_of(profile: StoreProfile, load: Load, cell: Cell) -> Explanation:
    """What binds in a cell, by a profile."""
    return explain(
        Setting(
            cell.threads, cell.block, load.sample_bytes, profile.latency_s, profile.decode_s, load.step_s, load.batch,
            profile.conn_bytes_per_s, profile.shared_bytes_per_s, profile.decode_cpu_s, profile.cores,
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
    spread: float = 0.0

    @property
    def error(self) -> float:
        """Predicted over measured, minus one."""
        return self.predicted_s / self.measured_s - 1

    @property
    def noisy(self) -> bool:
        """Whether a repeat is far from the median."""
        return self.spread > NOISY


def check(
    corpus: Corpus,
    job: Job,
    answered: Answer,
    cells: Sequence[Cell],
    samples: int,
    *,
    repeats: int = 3,
    progress: Progress = lambda _: None,
) -> tuple[Checked, ...]:
    """Measure cells, interleaved, and set the profile's predictions beside the medians.

    Cells whose repeats differ by more than `NOISY` are measured as often again; those that still do are marked.
    """  # fmt: skip
    if answered.profile is None:
        raise UsageError.at(corpus.name, "one probe was enough: there is no profile to check")
    totals: dict[Cell, list[float]] = {cell: [] for cell in cells}
    again: Sequence[Cell] = cells
    for turn in range(2):
        steps = Steps(progress, [0.0] * (repeats * len(again)))
        for repeat in range(repeats if again else 0):
            for cell in again:
                steps.begin(
                    f"repeat {repeat + 1} of {repeats}{' again' if turn else ''}: "
                    f"blocks of {cell.block}, {cell.threads} threads"
                )
                start = turn * repeats + repeat
                totals[cell].append(measure_cell(corpus, job, Ask(cell, samples), start).total_s)
        again = [cell for cell in cells if spread(totals[cell]) > NOISY]
    load = Load(samples, corpus.mean_bytes, job.batch, job.step_s, job.buffer_samples)
    probed = {probe.cell for probe in answered.probes[:3]}
    return tuple(
        Checked(
            cell,
            statistics.median(seconds),
            min(seconds),
            max(seconds),
            predict(answered.profile, load, cell),
            cell in probed,
            spread(seconds),
        )
        for cell, seconds in totals.items()
    )


def spread(seconds: Sequence[float]) -> float:
    """How far the middle half of repeats is from their median (of few repeats all of them), as a share."""
    middle = statistics.median(seconds)
    inner = sorted(seconds)[len(seconds) // 4 : len(seconds) - len(seconds) // 4]
    return max(abs(value / middle - 1) for value in inner)
