"""From three short probes to a profile of store, decode and overhead, and from the profile to any cell.

Probe A reads single samples with one thread, B blocks with one thread, C blocks with many threads. Two sizes of request
tell latency from bandwidth; one thread's total tells what neither reading nor decoding explains; many threads tell what
they share. Differences near zero cannot be divided by: such a quantity is called not identifiable and bounded.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np

from forerun.domains.loading.model import F64, Cell, Load, Probe, Reader, StoreModel, StoreProfile
from forerun.domains.loading.streaming import stream
from forerun.errors import ProfileError
from forerun.result.run import Interval


def fit_profile(a: Probe, b: Probe, c: Probe, load: Load) -> StoreProfile:
    """The profile that three probes give.

    Raises ProfileError if the probes are not (1 sample, 1 thread), (n, 1) and (n, T).
    """
    if a.cell != Cell(1, 1) or b.cell.threads != 1 or b.cell.block < 2 or c.cell.block != b.cell.block:
        raise ProfileError.at(
            "probes", f"cells {a.cell}, {b.cell}, {c.cell}; (1 x 1), (n x 1) and (n x T) are wanted"
        )
    size, n = load.sample_bytes, b.cell.block
    notes = []
    if b.request_s <= a.request_s * 1.02:
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
        # Measured in the threads themselves: what goes with a sample, and what with a request, can be told apart.
        overhead = max(0.0, (b.overhead_s - a.overhead_s) / (n - 1))
        latency += max(0.0, a.overhead_s - overhead)
        weights = [probe.samples for probe in (a, b, c)]
        decode = float(np.average([probe.decode_s for probe in (a, b, c)], weights=weights))
    if c.request_s > latency:
        shared = max(conn, c.cell.threads * n * size / (c.request_s - latency))
    else:
        shared = math.inf
        notes.append("shared bandwidth is not identifiable: many threads read as fast as one")
    return StoreProfile(latency, conn, shared, max(0.0, decode + overhead), tuple(notes))


def predict(profile: StoreProfile, load: Load, cell: Cell) -> float:
    """Seconds that a cell takes: the event model with mean sizes and a fixed latency."""
    full, rest = divmod(load.samples, cell.block)
    blocks = [np.full(cell.block, load.sample_bytes)] * full
    blocks += [np.full(rest, load.sample_bytes)] if rest else []
    reader = Reader(
        blocks, cell.threads, load.batch, load.step_s, profile.decode_s, buffer_samples=load.buffer_samples
    )
    store = StoreModel(
        conn_bytes_per_s=profile.conn_bytes_per_s, shared_bytes_per_s=profile.shared_bytes_per_s
    )
    return stream([reader], store, latency_s=profile.latency_s).end_s


def with_intervals(
    probes: tuple[Probe, Probe, Probe], load: Load, rng: np.random.Generator, *, draws: int = 400
) -> StoreProfile:
    """The profile with 95 % intervals from resampling the probes' single requests.

    Raises ProfileError if the probes did not keep them.
    """
    profile = fit_profile(*probes, load)
    means = np.empty((draws, len(probes)))
    for at, probe in enumerate(probes):
        kept = probe.requests_s
        if kept is None or not len(kept):
            raise ProfileError.at("probes", "intervals need the single requests of every probe")
        means[:, at] = kept[rng.integers(len(kept), size=(draws, len(kept)))].mean(axis=1)
    names = ("latency_s", "conn_bytes_per_s", "shared_bytes_per_s", "decode_s")
    found = np.empty((draws, len(names)))
    for draw, requests in enumerate(means):
        a, b, c = (replace(probe, request_s=float(mean)) for probe, mean in zip(probes, requests))
        drawn = fit_profile(a, b, c, load)
        found[draw] = [getattr(drawn, name) for name in names]
    # Ranks, not interpolation: a bandwidth that was not identifiable is infinite.
    low, high = np.quantile(found, [0.025, 0.975], axis=0, method="inverted_cdf")
    spans = {
        name: Interval(float(low[i]), float(high[i]), method="bootstrap over requests")
        for i, name in enumerate(names)
    }
    return replace(profile, intervals=spans)


def fit_files_and_bytes(files: F64, total_bytes: F64, seconds: F64) -> tuple[float, float]:
    """Latency a file [s] and bandwidth [bytes/s] of a sweep: t = files * latency + bytes / bandwidth.

    Weighted so that relative errors count alike, both terms kept non-negative.
    """
    design = np.column_stack([files, total_bytes]) / seconds[:, None]
    found = np.linalg.lstsq(design, np.ones(len(seconds)), rcond=None)[0]
    if found[0] < 0 or found[1] <= 0:
        alone = [float(design[:, i] @ np.ones(len(seconds)) / (design[:, i] @ design[:, i])) for i in (0, 1)]
        found = np.array([0.0, alone[1]]) if found[0] < 0 else np.array([alone[0], 0.0])
    return float(found[0]), float(1 / found[1]) if found[1] > 0 else math.inf


def best_within(
    totals: Mapping[Cell, float], load: Load, *, margin: float = 0.01, memory_bytes: float = math.inf
) -> Cell:
    """Among cells within a margin of the best, the one that holds the fewest bytes in hand; under the memory budget."""
    fitting: Sequence[Cell] = [
        cell for cell in totals if cell.block * cell.threads * load.sample_bytes <= memory_bytes
    ]
    if not fitting:
        raise ProfileError.at("memory", f"no cell fits in {memory_bytes:.3g} bytes")
    best = min(totals[cell] for cell in fitting)
    near = [cell for cell in fitting if totals[cell] <= best * (1 + margin)]
    return min(near, key=lambda cell: (cell.block * cell.threads, totals[cell], cell))
