"""From three short probes to a profile of store, decode and overhead, and from the profile to any cell.

Probe A reads single samples with one thread, B blocks with one thread, C blocks with many threads. Two sizes of request
separate latency from bandwidth; the total of one thread contains the time that is neither reading nor decoding; many
threads show what they share. A difference near zero cannot be a divisor: such a quantity is reported as not identifiable,
and bounded.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from forerun.core.errors import ProfileError
from forerun.core.result.stats import Interval, normal_quantile, student_quantile
from forerun.loading.engine.model import Reader, StoreModel, Streamed, equal_blocks
from forerun.loading.engine.threads import stream
from forerun.loading.policy import F64, Cell, Load, Probe

#: threads compete for cores if this share of a decode is CPU time, and if they decode this much more slowly than one
CPU_BOUND = 0.5
CONTENDED = 1.15
#: many threads are bound by processors, not by a link, if they use or wait for this many cores, or if decodes of which this
#: share is CPU time take longer than alone
BUSY_CORES = 0.8
SOME_CPU = 0.25
#: waits are this share of a run at least if loading binds, not the steps
LOADS_BIND = 0.1
#: the least relative difference at which a run contradicts a prediction
LEAST_OFF = 0.01
#: the least relative scatter of runs about the model
LEAST_SCATTER = 0.002
#: how far the model is off a cell that was not probed, as a standard deviation of the logarithm: of 39 cells on stores 0, 10
#: and 40 ms away (`benchmarks/loading/reality.py`). Three probes and a model of three numbers do not show it;
#: `benchmarks/loading/intervals.py` judges it on other stores
CELL_OFF = 0.017


@dataclass(frozen=True)
class StoreProfile:
    """A store and a loader as three probes measured them.

    Parameters
    ----------
    latency_s : of a request.
    conn_bytes_per_s : bandwidth of a connection.
    shared_bytes_per_s : of the link, at least as much.
    decode_s : of a sample, with the loader's own work.
    notes : what could not be identified.
    intervals : 95 % bootstrap intervals over single requests, where these were recorded.
    decode_cpu_s : the part of decode_s that needs one of `cores`, where decoding is contended (default: 0).
    """

    latency_s: float
    conn_bytes_per_s: float
    shared_bytes_per_s: float
    decode_s: float
    notes: tuple[str, ...] = ()
    intervals: Mapping[str, Interval] | None = None
    decode_cpu_s: float = 0.0
    cores: float = math.inf


def fit_profile(a: Probe, b: Probe, c: Probe, load: Load) -> StoreProfile:
    """Fit a profile to three probes.

    Parameters
    ----------
    a : single samples with one thread.
    b : blocks with one thread.
    c : the same blocks with many threads.
    load : the work of the loader.

    Raises ProfileError for other cells.
    """
    if a.cell != Cell(1, 1) or b.cell.threads != 1 or b.cell.block < 2 or c.cell.block != b.cell.block:
        raise ProfileError.at(
            "probes", f"cells {a.cell}, {b.cell}, {c.cell}; (1 x 1), (n x 1) and (n x T) are required"
        )
    size, n = load.sample_bytes, b.cell.block
    notes = []
    if not size:
        conn = math.inf
        notes.append("bandwidths are not identifiable: the samples are empty")
    elif b.request_s <= a.request_s * 1.02:
        conn = math.inf
        notes.append(
            f"connection bandwidth is not identifiable: {n} samples took {b.request_s:.4g} s, one {a.request_s:.4g} s"
        )
    else:
        conn = (n - 1) * size / (b.request_s - a.request_s)
    latency = a.request_s - size / conn
    if latency < 0:
        notes.append(f"latency is not identifiable: fitted {latency:.3g} s, taken as 0")
        latency = 0.0
    decode = 0.5 * (a.decode_s + b.decode_s)
    if a.overhead_s is None or b.overhead_s is None:
        overhead = (a.total_s - load.step_s) / a.samples - a.request_s - decode
    else:
        # Measured in the threads themselves, so that work a sample and work a request can be separated.
        overhead = max(0.0, (b.overhead_s - a.overhead_s) / (n - 1))
        latency += max(0.0, a.overhead_s - overhead)
        decode = _mean_a_sample(a, b, "decode_s")
    starved = _starved(b, c)
    if starved:
        shared = math.inf
        notes.append(f"{_NO_LINK}: {c.cell.threads} threads compete for processors")
    elif c.request_s > latency and size:
        shared = max(conn, c.cell.threads * n * size / (c.request_s - latency))
    else:
        shared = math.inf
        notes.append("shared bandwidth is not identifiable: many threads read as fast as one")
    decode, cpu_s, cores, more = _contended(a, b, c, decode)
    profile = StoreProfile(
        latency, conn, shared, max(0.0, decode + overhead), (*notes, *more), decode_cpu_s=cpu_s, cores=cores
    )
    return _sharing_cores(profile, c) if starved else profile


_NO_LINK = "a shared link is not identifiable"


def _starved(alone: Probe, many: Probe) -> bool:
    """Whether many threads wait for processors: then longer requests are no sign of a link.

    A link makes requests longer and leaves decodes and processors as they are.
    """
    if many.cores_used is None:
        return False
    slowed = alone.decode_cpu_s >= SOME_CPU * alone.decode_s and many.decode_s >= CONTENDED * alone.decode_s
    return max(many.cores_used, many.cores_wanted) >= BUSY_CORES or slowed


def _sharing_cores(profile: StoreProfile, many: Probe) -> StoreProfile:
    """The profile with the processor time a sample at which many threads worked, where loading was the bottleneck.

    Requests need processors too: what a sample takes of them beyond its decode is taken off its latency.
    """
    if many.load_share < LOADS_BIND or many.cores_used is None:
        return profile
    cores = max(1.0, many.cores_used)
    whole = profile.latency_s + profile.decode_s
    cpu_s = min(cores * many.total_s / many.samples, whole)
    decode = max(profile.decode_s, cpu_s)
    return replace(
        profile, latency_s=whole - decode, decode_s=decode, decode_cpu_s=cpu_s, cores=cores,
        notes=(*profile.notes, f"{cores:.2g} cores get through {many.samples / many.total_s:.3g} samples/s"),
    )  # fmt: skip


def _contended(a: Probe, b: Probe, c: Probe, decode_s: float) -> tuple[float, float, float, tuple[str, ...]]:
    """Decode time, its CPU part, the cores that decoding gets, and a note, where many threads decode more slowly.

    One thread shows how long a decode takes; many threads that take longer and use the CPU wait for each other. The
    processor time that they use a second is what there is: cores, or one interpreter.

    Parameters
    ----------
    a, b : probes with one thread.
    c : the probe with many threads.
    decode_s : what is taken where they do not wait for each other.
    """
    alone, cpu_s = (_mean_a_sample(a, b, name) for name in ("decode_s", "decode_cpu_s"))
    if cpu_s < CPU_BOUND * alone or c.decode_s < CONTENDED * alone:
        return decode_s, 0.0, math.inf, ()
    cores = max(1.0, c.samples * cpu_s / c.total_s)
    note = f"{c.cell.threads} threads decode more slowly than one: they get {cores:.2g} cores together"
    return alone, min(cpu_s, alone), cores, (note,)


def _mean_a_sample(one: Probe, other: Probe, name: str) -> float:
    """The mean of a time over the samples of both probes."""
    a, b = getattr(one, name), getattr(other, name)
    return float((a * one.samples + b * other.samples) / (one.samples + other.samples))


def fit_single_requests(a: Probe, c: Probe, sizes_bytes: F64, load: Load) -> StoreProfile:
    """The profile of single files that cannot be read in blocks: (1 x 1) with each request's bytes, and (1 x T).

    Bandwidth is what larger files took longer by (least squares). Raises ProfileError without single requests.

    Parameters
    ----------
    a : single files with one thread.
    c : single files with many threads.
    sizes_bytes : float64, bytes of each request of `a`.
    load : the work of the loader.
    """
    if a.requests_s is None or len(a.requests_s) != len(sizes_bytes):
        raise ProfileError.at(
            "probes", "the single requests of the first probe, with their sizes, are required"
        )
    slope, error = slope_of(sizes_bytes, a.requests_s)
    notes = []
    if slope <= 2 * error:
        most = max(0.0, slope) + 2 * error
        bound = f"at least {1 / most:.3g} bytes/s" if math.isfinite(most) and most > 0 else "unknown"
        notes.append(
            f"connection bandwidth is not identifiable from single files ({bound}): pack a part, measure again"
        )
        slope = 0.0
    conn = 1 / slope if slope else math.inf
    decode, cpu_s, cores, more = _contended(a, a, c, _mean_a_sample(a, c, "decode_s"))
    overhead = max(0.0, a.overhead_s or 0.0)
    latency = max(0.0, a.request_s - slope * load.sample_bytes) + overhead
    shared = math.inf
    slower_requests = c.request_s > 1.25 * a.request_s and bool(load.sample_bytes)
    starved = slower_requests and _starved(a, c)
    if starved:
        decode = a.decode_s
        notes.append(
            f"{_NO_LINK}: {c.cell.threads} threads wait longer for a file than one, and for processors"
        )
    elif slower_requests:
        shared = c.cell.threads * load.sample_bytes / (c.request_s - a.request_s)
        notes.append(f"{c.cell.threads} threads wait longer for a file than one: taken for a shared link")
    profile = StoreProfile(
        latency, conn, max(shared, conn) if math.isfinite(conn) else shared, decode, (*notes, *more),
        decode_cpu_s=cpu_s, cores=cores,
    )  # fmt: skip
    return _sharing_cores(profile, c) if starved else profile


def slope_of(x: F64, y: F64) -> tuple[float, float]:
    """The slope of y over x by least squares, and its standard error; 0 and infinity where all x are equal."""
    off = x - x.mean()
    spread = float(off @ off)
    if not spread:
        return 0.0, math.inf
    slope = float(off @ y) / spread
    left = y - y.mean() - slope * off
    return slope, math.sqrt(float(left @ left) / max(1, len(off) - 2) / spread)


def predict(profile: StoreProfile, load: Load, cell: Cell) -> float:
    """Seconds that a cell takes by a profile: the event model with mean sizes and a fixed latency.

    Parameters
    ----------
    profile, load, cell : the store as measured, the work, and the configuration.
    """
    return predicted_run(profile, load, cell).end_s


def predicted_run(profile: StoreProfile, load: Load, cell: Cell) -> Streamed:
    """What a cell does by a profile: the event model with mean sizes and a fixed latency.

    Parameters
    ----------
    profile : the store as measured.
    load : the work; its step and buffer are those of the run.
    cell : block size and threads.
    """
    blocks = equal_blocks(load.samples, cell.block, load.sample_bytes)
    waiting_s = max(0.0, profile.decode_s - profile.decode_cpu_s)
    reader = Reader(
        blocks, cell.threads, load.batch, load.step_s, waiting_s, profile.decode_cpu_s, load.buffer_samples
    )
    store = StoreModel(
        conn_bytes_per_s=profile.conn_bytes_per_s,
        shared_bytes_per_s=profile.shared_bytes_per_s,
        cores=profile.cores,
    )
    return stream([reader], store, latency_s=profile.latency_s).jobs[0]


def with_intervals(
    probes: tuple[Probe, Probe, Probe], load: Load, rng: np.random.Generator, *, draws: int = 400
) -> StoreProfile:
    """The profile with 95 % intervals from resampling the probes' single requests.

    Raises ProfileError if the probes did not record them.

    Parameters
    ----------
    probes : as for `fit_profile`, with their single requests.
    load : the work of the loader.
    rng : of the resampling.
    draws : bootstrap samples (default: 400).
    """
    return with_spans(fit_profile(*probes, load), resampled(probes, load, rng, draws))


def with_spans(profile: StoreProfile, again: Sequence[StoreProfile]) -> StoreProfile:
    """The profile with the 95 % intervals of its quantities.

    Parameters
    ----------
    profile : fitted to all requests.
    again : profiles fitted to resampled requests, whose quantiles at 2.5 % and 97.5 % are the ends.
    """
    names = ("latency_s", "conn_bytes_per_s", "shared_bytes_per_s", "decode_s")
    fitted = np.array([[getattr(each, name) for name in names] for each in again])
    # Ranks, not interpolation: a bandwidth that was not identifiable is infinite.
    low, high = np.quantile(fitted, [0.025, 0.975], axis=0, method="inverted_cdf").tolist()
    spans = zip(names, low, high)
    return replace(
        profile, intervals={name: Interval(a, b, method="bootstrap over requests") for name, a, b in spans}
    )


def resampled(
    probes: tuple[Probe, Probe, Probe], load: Load, rng: np.random.Generator, draws: int
) -> list[StoreProfile]:
    """Profiles fitted to bootstrap samples of each probe's requests.

    Raises ProfileError if the probes did not record them.

    Parameters
    ----------
    probes, load : as for `fit_profile`.
    rng : of the resampling.
    draws : how many profiles.
    """
    means = np.empty((draws, len(probes)))
    for at, probe in enumerate(probes):
        requests_s = probe.requests_s
        if requests_s is None or not len(requests_s):
            raise ProfileError.at("probes", "intervals need the single requests of every probe")
        means[:, at] = requests_s[rng.integers(len(requests_s), size=(draws, len(requests_s)))].mean(axis=1)
    profiles = []
    for requests in means:
        a, b, c = (replace(probe, request_s=float(mean)) for probe, mean in zip(probes, requests))
        profiles.append(fit_profile(a, b, c, load))
    return profiles


def total_interval(
    profiles: Sequence[StoreProfile],
    probes: Sequence[Probe],
    profile: StoreProfile,
    load: Load,
    cell: Cell,
    confidence: float = 0.95,
) -> Interval:
    """An interval of the seconds that a run of a cell will take.

    Four things are uncertain: the store as the probes measured it (`profiles`, from `resampled`), the requests
    that the run itself will meet, how far runs deviate from the model, and how far the model is off a cell that was
    not probed. The first is the spread of the predictions; the second is the same spread for as many requests as the
    run makes; the third is estimated from as many probes as there are, so its quantile is Student's of that number;
    the fourth is `CELL_OFF`. Variances of the logarithm are added.

    The interval is in seconds, and lies around the prediction by `profile`.

    Parameters
    ----------
    profiles : of resampled requests.
    probes : all that were run.
    profile : fitted to them.
    load, cell : the run that is predicted.
    confidence : the probability that the interval should contain them (default: 0.95).
    """
    middle = predict(profile, load, cell)
    spread = (
        float(np.std(np.log([predict(each, load, cell) for each in profiles]))) if len(profiles) > 1 else 0.0
    )
    near = min(probes, key=lambda probe: abs(math.log(probe.cell.block / cell.block)))
    seen = 0 if near.requests_s is None else len(near.requests_s)
    met = spread * math.sqrt(seen * cell.block / load.samples)
    off = [
        math.log(probe.total_s / predict(profile, replace(load, samples=probe.samples), probe.cell))
        for probe in probes
    ]
    runs = max(LEAST_SCATTER, math.sqrt(float(np.mean(np.square(off)))))
    level = 0.5 + 0.5 * confidence
    z, t = normal_quantile(level), student_quantile(level, len(off))
    apart = 0.0 if any(probe.cell == cell for probe in probes) else CELL_OFF
    half = math.hypot(z * spread, z * met, t * runs, z * apart)
    return Interval(
        middle * math.exp(-half),
        middle * math.exp(half),
        confidence,
        method="bootstrap over requests, and the model's error on the probes",
    )


def slower(profile: StoreProfile, share: float) -> StoreProfile:
    """The same profile with store, link and decoding slower by a share.

    Parameters
    ----------
    share : how much slower, 0.15 for 15 %: times become 1.15 times as long, bandwidths that much smaller.
    """
    by = 1 + share
    return replace(
        profile,
        latency_s=profile.latency_s * by,
        conn_bytes_per_s=profile.conn_bytes_per_s / by,
        shared_bytes_per_s=profile.shared_bytes_per_s / by,
        decode_s=profile.decode_s * by,
        decode_cpu_s=profile.decode_cpu_s * by,
    )


def best_within(
    totals: Mapping[Cell, float],
    load: Load,
    *,
    margin: float = 0.01,
    memory_bytes: float = math.inf,
    worse: Mapping[Cell, float] | None = None,
) -> Cell:
    """Among cells within a margin of the best, the one whose blocks take the fewest bytes; under the memory budget.

    Parameters
    ----------
    worse : what the cells take if the store turns out slower than believed. A cell then counts by the larger of its
        two distances from the best: one that only just hides loading is passed over for one that still does.
    totals : predicted seconds of each cell.
    load : gives the size of a sample.
    margin : share of the best time (default: 0.01).
    memory_bytes : that blocks in memory may take (default: any).

    Raises ProfileError if no cell fits.
    """
    fitting: Sequence[Cell] = [
        cell for cell in totals if cell.block * cell.threads * load.sample_bytes <= memory_bytes
    ]
    if not fitting:
        raise ProfileError.at("memory", f"no cell fits in {memory_bytes:.3g} bytes")
    cases = [totals] if worse is None else [totals, worse]
    bests = [min(case[cell] for cell in fitting) for case in cases]
    behind = {cell: max(case[cell] / best for case, best in zip(cases, bests)) for cell in fitting}
    least = min(behind.values())
    near = [cell for cell in fitting if behind[cell] <= least * (1 + margin)]
    return min(near, key=lambda cell: (cell.block * cell.threads, totals[cell], cell))
