"""Throughput that was not measured: between levels, or from a model of a training step.

Between measured GPU counts throughput is interpolated monotonically in log-log; how well that works is measured by leaving
out one level at a time. Beyond the measured range it is refused unless asked for, and then marked. A cell that is nan
or empty was not measured and may be filled; a 0 says the job cannot run there and is never bridged. Users without
measurements take a model with invented parameters, labelled so.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Final

import numpy as np

from forerun.cluster.inputs.arrays import F64, I64, Cluster, ThroughputTable
from forerun.cluster.inputs.step_model import StepModel
from forerun.core.errors import Problem, ProfileError, UnknownName

#: invented step models of jobs whose step is mostly computing, both, or mostly exchange
PRESETS: Final = {
    "compute_bound": StepModel(0.01, 0.004, 0.02, 0.0002, 0.005, 0.0001, 3.0),
    "balanced": StepModel(0.02, 0.002, 0.06, 0.002, 0.015, 0.001, 2.0),
    "network_bound": StepModel(0.02, 0.0008, 0.25, 0.01, 0.04, 0.004, 1.3),
}
_DEFAULT_LEVELS: Final = (1, 2, 4, 8, 16, 32, 64)


@dataclass(frozen=True, slots=True)
class Curve:
    """Throughput over GPU counts for one kind of job, through its measured points.

    Parameters
    ----------
    gpus, rate : the points as measured, counts ascending, rates positive.
    blocked : counts measured as 0: there is no curve across them.
    error : the largest relative error made when one inner level is left out; nan with fewer than three levels.
    typical_error : the median of these errors.
    """

    gpus: F64
    rate: F64
    blocked: tuple[int, ...]
    error: float
    typical_error: float

    @property
    def valid(self) -> tuple[int, int]:
        """The measured range, both ends included."""
        return int(self.gpus[0]), int(self.gpus[-1])

    def at(self, gpus: int, *, extrapolate: bool = False) -> float:
        """Iterations per second on `gpus` GPUs; 0 where the job cannot run.

        Raises ProfileError outside the measured range (unless `extrapolate`: the end slopes go on, at most linearly)
        and between levels on both sides of a count that cannot run.
        """
        if gpus in self.blocked:
            return 0.0
        low, high = self.valid
        if not low <= gpus <= high and not extrapolate:
            raise ProfileError.at(f"{gpus} GPUs", f"lies outside the measured range, {low} to {high}")
        if any(low < hole < gpus or gpus < hole < high for hole in self.blocked if low < hole < high):
            below = max((g for g in self.gpus if g <= gpus), default=low)
            above = min((g for g in self.gpus if g >= gpus), default=high)
            if any(below < hole < above for hole in self.blocked):
                raise ProfileError.at(f"{gpus} GPUs", "lies next to a count on which the job cannot run")
        return float(math.exp(_interpolated(np.log(self.gpus), np.log(self.rate), math.log(gpus))))


def curve(gpus: Sequence[int] | I64, rate: Sequence[float] | F64) -> Curve:
    """The curve through measured points; nan is not measured, 0 cannot run.

    Raises ProfileError for negative or infinite rates, counts that do not rise, or nothing measured.
    """
    counts, values = np.asarray(gpus, np.float64), np.asarray(rate, np.float64)
    problems = [
        Problem(f"{int(count)} GPUs", f"throughput is {value}, a finite number not below 0 is expected")
        for count, value in zip(counts, values, strict=True)
        if value < 0 or math.isinf(value)
    ]
    if len(counts) and (counts[0] < 1 or (np.diff(counts) <= 0).any()):
        problems.append(Problem("GPU counts", "must rise from at least 1"))
    known = np.nan_to_num(values, nan=0.0) > 0
    if not known.any():
        problems.append(Problem("throughput", "nothing is measured"))
    if problems:
        raise ProfileError(*problems)
    blocked = tuple(int(count) for count in counts[values == 0.0])
    points, rates = counts[known], values[known]
    errors = leave_one_out(points, rates)
    worst = float(np.max(errors)) if len(errors) else math.nan
    typical = float(np.median(errors)) if len(errors) else math.nan
    return Curve(points, rates, blocked, worst, typical)


def leave_one_out(gpus: F64, rate: F64) -> F64:
    """Relative error at each inner level when it is predicted from the others."""
    x, y = np.log(gpus), np.log(rate)
    errors = []
    for at in range(1, len(gpus) - 1):
        others = np.arange(len(gpus)) != at
        errors.append(abs(math.exp(_interpolated(x[others], y[others], float(x[at])) - y[at]) - 1.0))
    return np.array(errors)


def _interpolated(x: F64, y: F64, at: float) -> float:
    """The monotone piecewise cubic of Fritsch and Carlson through (x, y); straight beyond the ends.

    Between two points it never leaves their range, so throughput does not overshoot. Beyond the ends the slope stays
    between 0 and 1 (no gain, linear gain).
    """
    if len(x) == 1:
        return float(y[0])
    slopes = _slopes(x, y)
    if at <= x[0] or at >= x[-1]:
        end = 0 if at <= x[0] else -1
        slope = min(max(float(slopes[end]), 0.0), 1.0)
        return float(y[end] + slope * (at - x[end]))
    k = int(np.searchsorted(x, at, side="right")) - 1
    width = float(x[k + 1] - x[k])
    t = (at - float(x[k])) / width
    return float(
        (2 * t**3 - 3 * t**2 + 1) * y[k]
        + (t**3 - 2 * t**2 + t) * width * slopes[k]
        + (3 * t**2 - 2 * t**3) * y[k + 1]
        + (t**3 - t**2) * width * slopes[k + 1]
    )


def _slopes(x: F64, y: F64) -> F64:
    """Slopes at the points: a weighted harmonic mean of the neighbouring chords, 0 at a turn."""
    h, chord = np.diff(x), np.diff(y) / np.diff(x)
    slopes = np.zeros(len(x))
    slopes[0], slopes[-1] = chord[0], chord[-1]
    for k in range(1, len(x) - 1):
        if chord[k - 1] * chord[k] > 0:
            before, after = 2 * h[k] + h[k - 1], h[k] + 2 * h[k - 1]
            slopes[k] = (before + after) / (before / chord[k - 1] + after / chord[k])
    return slopes


def filled(profile: ThroughputTable, gpus: Iterable[int], *, extrapolate: bool = False) -> ThroughputTable:
    """The profile with more legal GPU counts, filled between its levels; measured cells stay as they are.

    Cells beyond a kind's measured range stay unmeasured, or are marked extrapolations. Notes say how far the
    interpolation can be trusted.
    """
    levels = np.array(sorted({*profile.levels.tolist(), *gpus}), np.int64)
    rate = np.full((len(profile.kinds), len(levels)), np.nan)
    notes = list(profile.notes)
    for row, (model, batch) in enumerate(profile.kinds):
        rate[row, np.searchsorted(levels, profile.levels)] = profile.rate[row]
        if not (np.nan_to_num(profile.rate[row]) > 0).any():
            continue
        drawn = curve(profile.levels, profile.rate[row])
        low, high = drawn.valid
        beyond = []
        for at in np.flatnonzero(np.isnan(rate[row])):
            count = int(levels[at])
            if batch < count or (not low <= count <= high and not extrapolate):
                continue
            try:
                rate[row, at] = drawn.at(count, extrapolate=extrapolate)
            except ProfileError:
                continue
            if not low <= count <= high:
                beyond.append(count)
        if not math.isnan(drawn.error):
            notes.append(
                f"{model} batch {batch}: between levels, off by {100 * drawn.typical_error:.0f} % typically and "
                f"{100 * drawn.error:.0f} % at most where a measured level is left out; measured {low} to {high} GPUs"
            )
        if beyond:
            notes.append(
                f"{model} batch {batch}: extrapolated, not measured, at {', '.join(map(str, beyond))} GPUs"
            )
    return replace(profile, levels=levels, rate=rate, notes=tuple(notes))


def analytic(
    kinds: Sequence[tuple[str, int]],
    model: StepModel | str = "balanced",
    *,
    gpus_per_node: int = 8,
    levels: Sequence[int] = _DEFAULT_LEVELS,
    gpu_type: str = "analytic",
) -> ThroughputTable:
    """A profile from a step model: 1 / T at a local batch of global batch over GPUs, GPUs packed into nodes.

    `model` is a fitted model or the name of a preset. Counts above the batch cannot run. Raises UnknownName.
    """
    if isinstance(model, str):
        if model not in PRESETS:
            raise UnknownName.among("analytic profile", model, [*PRESETS, "rigid"], "$.profile")
        source, step = f"analytic: {model} (parameters invented, nobody measured them)", PRESETS[model]
    else:
        source, step = "analytic: step model with the parameters given", model
    counts = np.array(sorted(set(levels)), np.int64)
    rate = np.zeros((len(kinds), len(counts)))
    for row, (_, batch) in enumerate(kinds):
        for at, count in enumerate(counts.tolist()):
            if count <= batch:
                rate[row, at] = 1.0 / step.step_s(-(-count // gpus_per_node), count, batch / count)
    top = np.array(
        [max((c for c in counts.tolist() if c <= batch), default=0) for _, batch in kinds], np.int64
    )
    return ThroughputTable(
        gpu_type=gpu_type,
        kinds=tuple(kinds),
        levels=counts,
        rate=rate,
        largest_column=np.minimum(top, 64),
        source=source,
        notes=(source,),
    )


def anchored(
    asked: Sequence[int], preset: str, levels: Sequence[int], *, gpus_per_node: int, gpu_type: str
) -> ThroughputTable:
    """Scaling for jobs of which only a duration on `asked` GPUs is known: one kind for each count, 1 iteration/s there.

    The curve is the preset's, at 64 samples a GPU on the asked count. Raises UnknownName.
    """
    counts = sorted(set(asked))
    kinds = [("", 64 * count) for count in counts]
    every = sorted({*levels, *counts})
    made = analytic(kinds, preset, gpus_per_node=gpus_per_node, levels=every, gpu_type=gpu_type)
    at_asked = made.rate[np.arange(len(counts)), np.searchsorted(every, counts)]
    places = np.searchsorted(every, sorted(set(levels)))
    return replace(
        made,
        levels=made.levels[places],
        rate=(made.rate / at_asked[:, None])[:, places],
        largest_column=np.minimum(made.largest_column, int(made.levels[places[-1]])),
    )


def rigid(asked: Sequence[int], cluster: Cluster, gpu_type: str) -> ThroughputTable:
    """Throughput of jobs that run on the GPUs they ask for or not at all: one kind for each count, 1 iteration/s there.

    Elastic schedules place jobs in halves of nodes: a job holds the next power of two within a node, whole nodes beyond
    (`held_rigid`).
    """
    counts = sorted(set(asked))
    placed = [held_rigid(count, cluster) for count in counts]
    levels = np.array(sorted(set(placed)), np.int64)
    rate = np.full((len(counts), len(levels)), np.nan)
    rate[np.arange(len(counts)), np.searchsorted(levels, placed)] = 1.0
    return ThroughputTable(
        gpu_type=gpu_type,
        kinds=tuple(("", count) for count in counts),
        levels=levels,
        rate=rate,
        largest_column=np.array(placed, np.int64),
        source="none: jobs run rigid",
    )


def held_rigid(count: int, cluster: Cluster) -> int:
    """The GPUs that a job of `count` holds where nodes are halved for placement; never more than the cluster has."""
    node = cluster.gpus_per_node
    whole = 1 << (count - 1).bit_length() if count < node else -(-count // node) * node
    return min(whole, node) if count <= node else max(count, min(whole, cluster.gpus))


def joined(profile: ThroughputTable, more: ThroughputTable) -> ThroughputTable:
    """One profile with the kinds of both, those of the second after those of the first."""
    levels = np.array(sorted({*profile.levels.tolist(), *more.levels.tolist()}), np.int64)
    rate = np.full((len(profile.kinds) + len(more.kinds), len(levels)), np.nan)
    rate[: len(profile.kinds), np.searchsorted(levels, profile.levels)] = profile.rate
    rate[len(profile.kinds) :, np.searchsorted(levels, more.levels)] = more.rate
    return replace(
        profile,
        kinds=(*profile.kinds, *more.kinds),
        levels=levels,
        rate=rate,
        largest_column=np.concatenate((profile.largest_column, more.largest_column)),
    )
