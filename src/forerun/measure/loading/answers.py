"""The answer of a few probes to whether a store is fast enough for a job, and what it was measured on."""

from __future__ import annotations

import math
import os
import platform
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from statistics import NormalDist
from typing import Any, Final

import numpy as np

from forerun.domains.loading.engine.calibration import (
    StoreProfile,
    predict,
    predicted_run,
)
from forerun.domains.loading.engine.laws import Explanation
from forerun.domains.loading.policy import Cell, Load, Probe
from forerun.measure.loading.runner import LoaderRun
from forerun.result.run import Interval

#: batches of a run whose waits are worth a picture
SHOWN_BATCHES: Final = 8
#: quantiles of request times in the answer
QUANTILES: Final = 101


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


def load_average() -> float:
    """Of the last minute; nan where the system does not report it."""
    return os.getloadavg()[0] if hasattr(os, "getloadavg") else math.nan


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
