"""Probes of a real store, a profile fitted to them, a choice and its check."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Final

import numpy as np

from forerun.core.errors import UsageError
from forerun.core.result.stats import Interval, normal_quantile, standard_error
from forerun.core.rng import stream
from forerun.loading.engine.calibration import (
    LEAST_OFF,
    StoreProfile,
    best_within,
    fit_single_requests,
    predict,
    resampled,
    slower,
    total_interval,
    with_intervals,
    with_spans,
)
from forerun.loading.engine.laws import Explanation, Setting, explain
from forerun.loading.engine.tuning import tune
from forerun.loading.measure.answers import BLOCKS as BLOCKS
from forerun.loading.measure.answers import THREADS as THREADS
from forerun.loading.measure.answers import Answer, Host, Job, load_average
from forerun.loading.measure.corpus import Corpus
from forerun.loading.measure.runner import LoaderRun
from forerun.loading.policies.three_probes import ModelTuner, ThreeProbes
from forerun.loading.policy import Ask, Cell, Load, Probe

#: block sizes that an answer chooses from
OFFERED: Final = (1, 2, 4, 8, 16, 32, 64, 128, 256)
#: a probe is over after this many seconds, or requests
PROBE_S: Final = 4.0
PROBE_REQUESTS: Final = 300
#: batches that a probe takes at least, be they smaller ones
LEAST_BATCHES: Final = 4
#: requests that open connections and give the length of a probe
FIRST_REQUESTS: Final = 8
#: bootstrap profiles behind the interval of a prediction, and samples of the runs that they predict
DRAWS: Final = 40
DRAWN_SAMPLES: Final = 3200
#: local files count as cold where less than this share of their pages stayed in memory
COLD: Final = 0.02
#: a cell hides loading if it is within this share of what the step admits
HIDES: Final = 0.02
Progress = Callable[[str], None]


def run_cell(corpus: Corpus, job: Job, ask: Ask, start: int = 0) -> LoaderRun:
    """One run of a cell, with everything that was measured.

    Parameters
    ----------
    ask : the cell, and how many samples.
    start : number of the first piece (default: 0).
    """
    block = ask.cell.block
    return job.load(corpus.client_for(block), corpus.pieces(block, ask.samples, start), ask.cell.threads)


def measure_cell(corpus: Corpus, job: Job, ask: Ask, start: int = 0) -> Probe:
    """One run of a cell, as a probe.

    Parameters
    ----------
    ask : the cell, and how many samples.
    start : number of the first piece (default: 0).
    """
    return _probe(ask, run_cell(corpus, job, ask, start))


def _probe(ask: Ask, run: LoaderRun) -> Probe:
    """A run as a tuner sees it."""
    return Probe(
        ask.cell, run.samples, run.total_s, float(run.request_s.mean()), float(run.decode_s.mean()), run.load_share,
        run.request_s, run.overhead_s, run.decode_cpu_s, run.process_cpu_s / run.total_s,
        (run.process_cpu_s + run.queued_s) / run.total_s,
    )  # fmt: skip


class _Prober:
    """Runs probes, each as long as it must be. Making one opens the connections with a few requests that are not a probe.

    Parameters
    ----------
    corpus, job : what is read, and by what training job.
    probe_s : seconds of a probe, about.
    progress : called with a line about each.

    Attributes
    ----------
    runs : all that the probes recorded.
    request_s, decode_s : medians of the first requests, which the lengths of probes are estimated from.
    """

    def __init__(self, corpus: Corpus, job: Job, probe_s: float, progress: Progress) -> None:
        self.corpus, self.job, self.probe_s, self.progress = corpus, job, probe_s, progress
        self.runs: list[LoaderRun] = []
        progress("opening connections")
        # Not a probe: what opens a connection, or fills a cache for the first time, is not what a store always takes.
        first = run_cell(corpus, replace(job, step_s=0.0), Ask(Cell(1, 1), FIRST_REQUESTS))
        self.request_s = float(np.median(first.request_s))
        self.decode_s = float(np.median(first.decode_s))

    def samples(self, cell: Cell) -> int:
        """As many as fit into `probe_s`, at most `PROBE_REQUESTS` requests; a batch and a block a thread at least.

        Parameters
        ----------
        cell : that is to be probed. Its time is estimated from the requests that opened the connections.
        """
        alone_s = (self.request_s / cell.block + self.decode_s) / cell.threads
        each_s = max(alone_s, self.job.step_s / self.job.batch)
        least = max(self.job.batch, cell.block * cell.threads) if cell.block > 1 else cell.threads * 16
        return max(least, min(PROBE_REQUESTS * cell.block, round(self.probe_s / each_s)))

    def evaluate(self, ask: Ask) -> Probe:
        """A probe of the cell that is asked for.

        Parameters
        ----------
        ask : its number of samples is replaced by what fits the time.
        """
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

    Parameters
    ----------
    corpus, job : what is read, and by what training job.
    blocks, threads : to choose from.
    memory_bytes : that blocks in hand may take (default: any).
    probe_s : seconds of a probe.
    progress : called with a line about each probe.
    cache : the state of the page cache in words.
    """  # fmt: skip
    largest = corpus.largest_piece
    packed = largest > 1
    cells = [Cell(block, number) for block in blocks for number in threads if block <= largest or not packed]
    if len({cell.block for cell in cells}) < 2 or len({cell.threads for cell in cells}) < 2:
        raise UsageError.at(
            corpus.name, f"blocks hold at most {largest} samples: no grid of blocks and threads to probe"
        )
    load = job.work(corpus, max(corpus.samples, 64 * job.batch))
    before = load_average()
    prober = _Prober(corpus, job, probe_s, progress)
    answered_by = _packed if packed else _single_files
    chosen = answered_by(corpus, prober, cells, load, memory_bytes)
    first = prober.runs[0]
    return replace(
        chosen,
        host=Host.since(before),
        cache=cache,
        cpu_per_request_s=first.process_cpu_s / len(first.request_s),
        packed=packed,
        is_container=packed and corpus.files is None,
    )


def _packed(corpus: Corpus, prober: _Prober, cells: list[Cell], load: Load, memory_bytes: float) -> Answer:
    """From (1 x 1), (n x 1), (n x T) and a run of the choice.

    Parameters
    ----------
    corpus : blocks of more than one sample.
    cells : to choose from.
    memory_bytes : that blocks in memory may take.
    """
    tuned = tune(ThreeProbes(), prober.evaluate, cells, load, memory_bytes=memory_bytes)
    tuner = tuned.tuner
    assert isinstance(tuner, ModelTuner)
    if tuner.profile is None:
        return _hidden(corpus, prober, load, tuned.probes)
    abc = (tuned.probes[0], tuned.probes[1], tuned.probes[2])
    profile = with_intervals(abc, load, stream(0, "bootstrap"))
    verified = next((probe for probe in reversed(tuned.probes) if probe.cell == tuned.cell), None)
    again = resampled(abc, load, stream(0, "interval"), DRAWS)
    chosen = _chosen(corpus, prober, load, tuned.probes, profile, again, tuner.predicted, tuned.cell)
    return replace(chosen, verified=verified)


def _single_files(
    corpus: Corpus, prober: _Prober, cells: list[Cell], load: Load, memory_bytes: float
) -> Answer:
    """From (1 x 1) and (1 x T): what larger blocks would do is predicted and cannot be verified here.

    Parameters
    ----------
    corpus : files, one a request.
    cells : to choose from.
    memory_bytes : that blocks in memory may take.
    """
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
    again = []
    rng = stream(0, "interval")
    for _ in range(DRAWS):
        rows = rng.integers(len(sizes), size=len(sizes))
        seen = replace(a, requests_s=a.requests_s[rows], request_s=float(a.requests_s[rows].mean()))
        again.append(fit_single_requests(seen, c, sizes[rows], load))
    return _chosen(corpus, prober, load, (a, c), with_spans(fitted, again), again, predicted, chosen)


def _chosen(
    corpus: Corpus, prober: _Prober, load: Load, probes: tuple[Probe, ...], profile: StoreProfile,
    again: Sequence[StoreProfile], predicted: Mapping[Cell, float], cell: Cell,
) -> Answer:  # fmt: skip
    """The answer that takes a cell.

    Parameters
    ----------
    corpus, prober : what was read, and the probes' records.
    load : the work that is predicted.
    probes : as a tuner sees them.
    profile : the store as the probes show it.
    again : profiles of the resampled probes, for the interval of the prediction.
    predicted : seconds of every cell.
    cell : the choice.
    """
    short = replace(load, samples=min(load.samples, DRAWN_SAMPLES))
    span = total_interval(again, probes, profile, short, cell)
    # What a refit moved the prediction by, and what the interval's shorter runs are short of the whole.
    scale = predicted[cell] / predict(profile, short, cell)
    return Answer(
        corpus.name, prober.job, load, probes, tuple(prober.runs), cell, predicted[cell],
        replace(span, low=span.low * scale, high=span.high * scale), profile, predicted, tuple(again),
        law=law_of(profile, load, Cell(1, 1)), smallest=_smallest(predicted, load),
    )  # fmt: skip


def _hidden(corpus: Corpus, prober: _Prober, load: Load, probes: tuple[Probe, ...]) -> Answer:
    """One probe was enough; the times of its batches give the interval.

    Parameters
    ----------
    probes : the only one. The prediction is its rate, with the first batch counted once.
    """
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
        corpus.name, prober.job, load, probes, tuple(prober.runs), Cell(1, 1), total_s, span, hidden=True
    )


def _smallest(predicted: Mapping[Cell, float], load: Load) -> dict[int, int]:
    """For each number of threads the smallest block that stays within `HIDES` of the steps alone.

    Parameters
    ----------
    predicted : seconds of every cell.
    load : with the steps to keep busy.
    """
    steps_s = -(-load.samples // load.batch) * load.step_s
    hides = [cell for cell, total_s in predicted.items() if steps_s >= (1 - HIDES) * total_s]
    return {
        threads: min(cell.block for cell in hides if cell.threads == threads)
        for threads in sorted({cell.threads for cell in hides})
    }


def law_of(profile: StoreProfile, load: Load, cell: Cell) -> Explanation:
    """What binds in a cell, by a profile.

    Parameters
    ----------
    profile : the store.
    load : the work.
    cell : block size and threads.
    """
    return explain(
        Setting(
            cell.threads, cell.block, load.sample_bytes, profile.latency_s, profile.decode_s, load.step_s, load.batch,
            profile.conn_bytes_per_s, profile.shared_bytes_per_s, profile.decode_cpu_s, profile.cores,
        ),
        samples=load.samples,
    )  # fmt: skip
