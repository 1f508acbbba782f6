"""The answer of a few probes to whether a store is fast enough for a job, and what it was measured on."""

from __future__ import annotations

import math
import os
import platform
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from statistics import NormalDist
from typing import Any, Final

import numpy as np

from forerun.blocks.reader.clients import Client
from forerun.core.errors import UsageError
from forerun.core.result.stats import Interval
from forerun.loading.engine.calibration import StoreProfile, predict, predicted_run, total_interval
from forerun.loading.engine.laws import Explanation
from forerun.loading.measure.corpus import Corpus
from forerun.loading.measure.decoders import decoder_named
from forerun.loading.measure.runner import ACTS, Decoder, LoaderRun, Piece, nothing, run_loader
from forerun.loading.policy import Cell, Load, Probe

#: cells that are measured to check a prediction, and planned
BLOCKS: Final = (1, 4, 16, 64)
THREADS: Final = (1, 2, 4, 8)
#: batches of a run whose waits are worth a picture
SHOWN_BATCHES: Final = 8
#: quantiles of request times in the answer
QUANTILES: Final = 101


@dataclass(frozen=True)
class Job:
    """The training job.

    Parameters
    ----------
    batch : samples a step (default: 64).
    step_s, decode_s : seconds of a step, and of decoding a sample (defaults 0.1, 0.001).
    buffer_samples : decoded samples that may wait (default: 256).
    step : sleep (the default), busy, or torch (a real step of a small network).
    decode : sleep (the default), none, busy, python, or a decoder's name, which decodes in earnest.
    transform : decodes in earnest instead, a function of the user's own (default: none).
    """

    batch: int = 64
    step_s: float = 0.1
    decode_s: float = 0.001
    buffer_samples: int = 256
    step: str = "sleep"
    decode: str = "sleep"
    transform: Decoder | None = None

    @property
    def decoder(self) -> Decoder | None:
        """What decodes in earnest, if anything does. Raises UsageError for a decoder that is none or not installed."""
        if self.transform is not None:
            return self.transform
        return None if self.decode in ACTS else decoder_named(self.decode)

    def work(self, corpus: Corpus, samples: int) -> Load:
        """What the job asks of a loader: a number of samples of a corpus.

        Parameters
        ----------
        corpus : whose mean size a sample has.
        samples : of the run.
        """
        return Load(samples, corpus.mean_bytes, self.batch, self.step_s, self.buffer_samples)

    def load(self, client: Client, pieces: Sequence[Piece], threads: int) -> LoaderRun:
        """Load all pieces once with our loader, as this job decodes and steps; see `run_loader`.

        Parameters
        ----------
        client : reads the pieces.
        pieces : in the order in which threads take them.
        threads : of the loader.
        """
        return run_loader(
            client, pieces, threads=threads, batch=self.batch, step_s=self.step_s, decode_s=self.decode_s,
            buffer_samples=self.buffer_samples, step=ACTS[self.step], decode=ACTS.get(self.decode, nothing),
            decoder=self.decoder,
        )  # fmt: skip


@dataclass(frozen=True)
class Host:
    """The machine while it was measured: cores, load average before and after, whether that is quiet enough.

    Parameters
    ----------
    cores : processors of the machine.
    load_before, load_after : load averages of a minute; nan where the system does not report them.
    system : in words.
    """

    cores: int
    load_before: float
    load_after: float
    system: str

    @property
    def quiet(self) -> bool:
        """Load average within twice the cores."""
        return max(self.load_before, self.load_after) <= 2 * self.cores

    @classmethod
    def since(cls, load_before: float) -> Host:
        """This machine at the end of a measurement, before which its load average was `load_before`."""
        return cls(os.cpu_count() or 1, load_before, load_average(), platform.platform())

    def data(self) -> dict[str, Any]:
        """Plain data."""
        return {
            "cores": self.cores, "load_before": self.load_before, "load_after": self.load_after, "quiet": self.quiet
        }  # fmt: skip


def keeps_up(enough: int | None, most: int, cores: int) -> str:
    """That a number of workers is enough, and what to know of one that was not measured; an empty text for none.

    Parameters
    ----------
    enough : workers that are said to be enough.
    most : that were measured.
    cores : of the machine.
    """
    if enough is None:
        return ""
    text = "1 worker keeps up" if enough == 1 else f"{enough} workers keep up"
    if enough <= most:
        return text
    short = f" on {cores} cores, where more than {cores} may not run at once" if enough > cores else ""
    return f"{text} (extrapolated from {most}{short})"


def scenario_of(
    job: Job, samples: int, sample_bytes: float, *, store: Mapping[str, float], cpu: Mapping[str, float],
    loader: Mapping[str, Any], grid: Mapping[str, Any], block_samples: int = 1,
) -> dict[str, Any]:  # fmt: skip
    """A job that loads as it was measured, as a scenario to plan from; what has no limit is left out.

    Parameters
    ----------
    job : its batch and step.
    samples, sample_bytes : of an epoch.
    store, cpu, loader, grid, block_samples : values of the scenario's sections.
    """
    limited = [{name: value for name, value in part.items() if math.isfinite(value)} for part in (store, cpu)]
    return {
        "domain": "loading", "dataset": {"samples": max(samples, job.batch), "sample_bytes": max(sample_bytes, 1.0)},
        "layout": {"block_samples": block_samples}, "store": limited[0], "cpu": limited[1], "loader": dict(loader),
        "step": {"step_s": job.step_s}, "run": {"batch": job.batch}, "grid": dict(grid),
    }  # fmt: skip


def load_average() -> float:
    """Of the last minute; nan where the system does not report it."""
    return os.getloadavg()[0] if hasattr(os, "getloadavg") else math.nan


@dataclass(frozen=True)
class Answer:
    """The answer of a few probes to whether a store is fast enough for a job.

    Parameters
    ----------
    source, job, load : what was measured, for which job, and its work.
    probes, runs : each probe, and all that it recorded.
    profile : the store as the probes show it, None if one probe showed no stall.
    cell : the configuration to run.
    predicted_s : of the whole data in `cell`.
    interval : its 95 % interval.
    predicted : seconds of every cell.
    resampled : the store as resampled requests of the probes show it.
    law : what binds single samples and one thread, None without a profile.
    hidden : whether loading is hidden already.
    smallest : for each number of threads, the smallest block that hides loading.
    verified : the probe of the chosen cell itself, if there was one.
    host, cache, cpu_per_request_s : the machine, the state of its page cache in words, and processor seconds of a
        request.
    packed : whether blocks were really read.
    is_container : whether they are the user's own.
    """

    source: str
    job: Job
    load: Load
    probes: tuple[Probe, ...]
    runs: tuple[LoaderRun, ...]
    cell: Cell
    predicted_s: float
    interval: Interval
    profile: StoreProfile | None = None
    predicted: Mapping[Cell, float] = field(default_factory=dict)
    resampled: tuple[StoreProfile, ...] = ()
    law: Explanation | None = None
    hidden: bool = False
    smallest: Mapping[int, int] = field(default_factory=dict)
    verified: Probe | None = None
    host: Host = Host(1, math.nan, math.nan, "")
    cache: str = "unknown"
    cpu_per_request_s: float = math.nan
    packed: bool = True
    is_container: bool = False

    @property
    def samples_per_s(self) -> tuple[float, float, float]:
        """The throughput predicted for the chosen cell, and the ends of its 95 % interval."""
        samples, span = self.load.samples, self.interval
        return samples / self.predicted_s, samples / span.high, samples / span.low

    def span(self, cell: Cell, samples: int, confidence: float = 0.95) -> Interval:
        """An interval of the seconds of one run of a cell, around the prediction by the profile.

        Parameters
        ----------
        cell : block size and threads.
        samples : of the run.
        confidence : the probability that the interval should contain them (default: 0.95).

        Raises UsageError if there is no profile.
        """
        if self.profile is None:
            raise UsageError.at(self.source, "one probe was enough: there is no profile to predict from")
        load = replace(self.load, samples=samples)
        return total_interval(self.resampled, self.probes, self.profile, load, cell, confidence)

    @property
    def hides(self) -> bool:
        """Whether the chosen cell hides loading."""
        return self.hidden or any(
            threads <= self.cell.threads and block <= self.cell.block
            for threads, block in self.smallest.items()
        )

    @property
    def verified_error(self) -> float | None:
        """Model over measured, minus one, where the chosen cell was run.

        It is large where the machine did something else during the run, or where the store is not what the probes
        showed.
        """
        if self.verified is None or self.profile is None:
            return None
        load = replace(self.load, samples=self.verified.samples)
        return predict(self.profile, load, self.verified.cell) / self.verified.total_s - 1

    @property
    def sentence(self) -> str:
        """Hidden or not, what binds, and the smallest configuration that would be enough."""
        rate, low, high = self.samples_per_s
        speed = f"{rate:.4g} samples/s (95 %: {low:.4g} to {high:.4g})"
        if self.hidden:
            return f"loading is hidden already with single samples and one thread: do not merge; the step binds: {speed}"
        assert self.law is not None
        enough = "are enough" if self.hides else "are the best on offer and do not hide it"
        chosen = f"{self.cell.merged} and {self.cell.many} {enough}"
        return f"not hidden with single samples and 1 thread: {self.law.sentence}; {chosen}: {speed}"

    @property
    def next_step(self) -> str:
        """The command that a user runs now; of a container the line that reads it as chosen."""
        if self.is_container:
            given = f"threads={self.cell.threads}, batch_samples={self.job.batch}"
            return f"forerun.blocks.reader.BlockDataset({self.source!r}, {given})"
        if self.hidden or self.cell.block == 1:
            return ""
        command = f"forerun pack {self.source} OUT --block-samples {self.cell.block}"
        if self.packed:
            return command
        if "://" in self.source:
            return f"{command}; serve OUT from the same store and measure it"
        return f"{command}, OUT on the same storage; measure OUT"

    @property
    def scenario(self) -> dict[str, Any]:
        """The job with single samples and one thread, in a grid of blocks and threads."""
        first = self.probes[0]
        # Where one probe showed no stall, all that is known is how long its requests took.
        store = self.profile or StoreProfile(first.request_s, math.inf, math.inf, first.decode_s)
        return scenario_of(
            self.job, self.load.samples, self.load.sample_bytes,
            store={"latency_s": store.latency_s, "conn_bytes_per_s": store.conn_bytes_per_s,
                   "shared_bytes_per_s": store.shared_bytes_per_s},
            cpu={"decode_s": max(0.0, store.decode_s - store.decode_cpu_s), "decode_cpu_s": store.decode_cpu_s,
                 "cores": store.cores},
            loader={"threads": 1, "buffer_samples": self.job.buffer_samples},
            grid={"blocks": [size for size in BLOCKS if size <= self.load.samples], "threads": list(THREADS)},
        )  # fmt: skip

    def data(self) -> dict[str, Any]:
        """Plain data.

        The answer as a measurement file has it: numbers that are infinite or unknown are None.
        """
        rate, low, high = self.samples_per_s
        verified, law = self.verified, self.law
        return {
            "source": self.source,
            "answer": self.sentence,
            "hidden": self.hidden,
            "block_samples": self.cell.block,
            "threads": self.cell.threads,
            "chosen_hides": self.hides,
            "samples_per_s": rate,
            "samples_per_s_interval": [low, high],
            "verified_samples_per_s": verified.samples / verified.total_s if verified else None,
            "verified_error": self.verified_error,
            "smallest_hiding": [{"threads": t, "block_samples": n} for t, n in self.smallest.items()],
            "packed": self.packed,
            "bottleneck": law.bottleneck if law else "compute",
            "short_of_hiding": _number(max(1.0, law.terms["compute"] / law.samples_per_s)) if law else None,
            "laws_samples_per_s": {name: _number(value) for name, value in law.terms.items()} if law else None,
            "profile": _profile_data(self.profile) if self.profile else None,
            "requests": self._requests(),
            "waits": self._waits(),
            "probes": [
                {"block_samples": p.cell.block, "threads": p.cell.threads, "samples": p.samples, "total_s": p.total_s,
                 "request_s": p.request_s, "decode_s": p.decode_s}
                for p in self.probes
            ],
            "next": self.next_step,
            "scenario": self.scenario,
            "samples": self.load.samples,
            "sample_bytes": self.load.sample_bytes,
            "cpu_per_request_s": _number(self.cpu_per_request_s),
            "cache": self.cache,
            "host": {**self.host.data(), "system": self.host.system,
                     "versions": {"python": platform.python_version(), "numpy": np.__version__}},
        }  # fmt: skip

    def _requests(self) -> dict[str, Any]:
        """Quantiles of the first probe's requests, and of latencies with the mean and the spread fitted to them."""
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
        if self.profile is None:
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


def _profile_data(profile: StoreProfile) -> dict[str, Any]:
    """The profile; a bandwidth without limit is None."""
    names = ("latency_s", "conn_bytes_per_s", "shared_bytes_per_s", "decode_s", "decode_cpu_s", "cores")
    spans = profile.intervals or {}
    return {
        **{name: _number(getattr(profile, name)) for name in names},
        "notes": list(profile.notes),
        "intervals": {name: [_number(span.low), _number(span.high)] for name, span in spans.items()},
    }


def _number(value: float) -> float | None:
    """The number; None for one that JSON cannot have."""
    return value if math.isfinite(value) else None
