"""Processes fitted to recorded fleets, and how well they represent them.

A fit is judged by fleets that it generates: their figures make a 95 % band in which the recorded figure should lie.
Every generated fleet first draws its own parameters from what the recording leaves open (rates from their gamma
posteriors, batch sizes and lifetimes by Bayesian bootstrap [Rubin, 1981]), so a short recording gives wide bands.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from statistics import fmean
from typing import Any, Literal, TypeAlias

import numpy as np
from numpy.typing import NDArray

from forerun.core.errors import TraceError
from forerun.core.rng import stream
from forerun.core.trace.fit import Feature
from forerun.spot.scenario.batches import BatchSizes, Burst, Empirical, Geometric, Marks
from forerun.spot.scenario.processes import Lifetimes, PerNode, Poisson, generate
from forerun.spot.scenario.rates import Stretches
from forerun.spot.traces.statistics import (
    CountTraces,
    FleetStatistics,
    as_the_notebook,
    fleet_statistics,
)

Floats = NDArray[np.float64]
Fitted: TypeAlias = Poisson | PerNode | Lifetimes
ModelName = Literal["poisson", "per_node", "lifetimes"]
BatchName = Literal["empirical", "geometric", "marks"]

MODELS: tuple[ModelName, ...] = ("poisson", "per_node", "lifetimes")
FEW_TRACES = 200
"""Fleets by which models are compared before the best of them is judged."""


@dataclass(frozen=True, slots=True)
class Rate:
    """A fitted parameter.

    Parameters
    ----------
    name : as the process calls it.
    unit : of its value, such as `1/min`; empty for a pure number.
    value : the estimate.
    low, high : its 95 % interval.
    """

    name: str
    unit: str
    value: float
    low: float
    high: float


@dataclass(frozen=True, slots=True)
class Test:
    """A question to the recording alone.

    Parameters
    ----------
    question : in words.
    statistic : the larger, the more it speaks against a yes.
    p_value : chance of one as large if the answer is yes.
    """

    question: str
    statistic: float
    p_value: float

    @property
    def ok(self) -> bool:
        """Whether the recording does not speak against it at 5 %."""
        return self.p_value >= 0.05


@dataclass(frozen=True, slots=True)
class Fit:
    """A process fitted to a recorded fleet.

    Parameters
    ----------
    process : the best parameters, ready to be generated from.
    rates : its parameters, with intervals.
    features : figures of the recording in the bands of generated fleets.
    traces : number of those fleets.
    compared : agreement of the models that were tried before the best was taken (default: none were).
    """

    process: Fitted
    rates: tuple[Rate, ...]
    features: tuple[Feature, ...]
    traces: int
    compared: tuple[tuple[str, float], ...] = ()

    @property
    def ok(self) -> bool:
        """Whether all features lie in their bands."""
        return all(feature.ok for feature in self.features)

    @property
    def agreement(self) -> float:
        """Share of features in their bands."""
        return sum(feature.ok for feature in self.features) / len(self.features)


@dataclass(frozen=True, slots=True)
class _Model:
    """A model fitted to a recording.

    Parameters
    ----------
    process : the best parameters.
    rates : these with their intervals.
    draw : gives another process that is as plausible given the recording.
    """

    process: Fitted
    rates: tuple[Rate, ...]
    draw: Callable[[np.random.Generator], Fitted]


def fit(
    seen: FleetStatistics,
    *,
    model: ModelName | Literal["best"] = "poisson",
    batches: BatchName = "empirical",
    cap: int = 0,
    traces: int = 1000,
    seed: int = 0,
) -> Fit:
    """Fit a process to what was seen of a fleet, and check it by generated fleets.

    The nodes of the first instant are the start, not an addition.

    Parameters
    ----------
    seen : figures of the recording.
    model : events of the whole fleet (`poisson`, default), hazards of single nodes (`per_node`), Weibull lifetimes
        (`lifetimes`), or the `best`: most features in their bands, the first of equals.
    batches : law of the sizes of events (default: as counted).
    cap : the fleet's size when complete (default: 0: the most nodes seen).
    traces : generated fleets (default: 1000).
    seed : of the draws (default: 0).

    Raises TraceError without removals or additions, for a fleet that is complete all the time, and for lifetimes of one
    that is known by its counts only.
    """
    if not seen.removal_batches or not seen.add_batches or seen.duration_h == 0:
        raise TraceError.at("fleet", "has no removal or no addition to fit")
    cap = max(cap, seen.max_nodes)
    (removal_h,), (add_h,) = _chances_h(seen, cap, 1, per_node=False)
    if not (removal_h > 0 and add_h > 0):
        what = f"is complete all the time, {cap} of {cap} nodes: each that leaves is replaced at once, and that has no rate"
        raise TraceError.at("fleet", what)
    if model != "best":
        return _judged(_model(model, seen, batches, cap), seen, traces, seed)
    known: tuple[ModelName, ...] = MODELS if seen.lifetimes_h else MODELS[:2]
    tried = {name: _judged(_model(name, seen, batches, cap), seen, FEW_TRACES, seed) for name in known}
    best = max(known, key=lambda name: (tried[name].agreement, -known.index(name)))
    fitted = _judged(_model(best, seen, batches, cap), seen, traces, seed)
    return replace(fitted, compared=tuple((name, tried[name].agreement) for name in known))


def _model(name: ModelName, seen: FleetStatistics, batches: BatchName, cap: int) -> _Model:
    """The named model, fitted. Raises TraceError for lifetimes of a fleet that is known by its counts only."""
    if name == "poisson":
        return _events(seen, batches, cap)
    if name == "per_node":
        return _hazards(seen, cap)
    if not seen.lifetimes_h:
        raise TraceError.at("fleet", "is known by its counts only: lifetimes need the names of nodes")
    return _lives(seen, cap)


# --------------------------------------------------------------------------- the models


def _events(seen: FleetStatistics, batches: BatchName, cap: int) -> _Model:
    """Poisson events of the whole fleet, in batches."""
    # A complete fleet takes no addition in, and an empty one loses nothing: these hours say nothing of the rates.
    removal_min, add_min = (60 * hours[0] for hours in _chances_h(seen, cap, 1, per_node=False))
    removals, adds = len(seen.removal_batches), len(seen.add_batches)
    process = Poisson(
        removals_per_min=removals / removal_min,
        adds_per_min=adds / add_min,
        removal_batch=_sizes(seen.removal_batches, batches),
        add_batch=_sizes(seen.add_batches, batches),
        start=min(seen.start, cap),
        cap=cap,
    )

    def draw(random: np.random.Generator) -> Poisson:
        return process.with_(
            removals_per_min=float(random.gamma(removals + 0.5)) / removal_min,
            adds_per_min=float(random.gamma(adds + 0.5)) / add_min,
            removal_batch=_sizes(seen.removal_batches, batches, random),
            add_batch=_sizes(seen.add_batches, batches, random),
        )

    rates = (
        _poisson_rate("removals_per_min", "1/min", removals, removal_min),
        _poisson_rate("adds_per_min", "1/min", adds, add_min),
    )
    return _Model(process, rates, draw)


def _sizes(sizes: Sequence[int], batches: BatchName, random: np.random.Generator | None = None) -> BatchSizes:
    """Batch sizes as counted, geometric or the notebook's.

    Parameters
    ----------
    sizes : of the recorded events, 1 or more each.
    batches : which law.
    random : draws others that the counts allow as well (default: none: the best fit).
    """
    counted = np.asarray(sizes)
    if batches == "marks":
        sampled = counted if random is None else random.choice(counted, counted.size)
        return Marks(mean=float(sampled.mean()), std=float(sampled.std(ddof=1)) if sampled.size > 1 else 0.0)
    if batches == "geometric":
        n, more = counted.size, int(counted.sum()) - counted.size
        return Geometric(p=n / (n + more) if random is None else float(random.beta(n + 0.5, more + 0.5)))
    sizes_seen = Empirical(counts=tuple(np.bincount(counted)[1:].astype(float).tolist()))
    return sizes_seen if random is None else sizes_seen.resampled(random)


def _chances_h(
    seen: FleetStatistics, cap: int, stretches: int, *, per_node: bool
) -> tuple[tuple[float, ...], tuple[float, ...]]:
    """Hours in which a removal could come, and those in which an addition could, in each of equal stretches.

    Parameters
    ----------
    cap : the fleet's size when complete.
    stretches : how many the recording is cut into.
    per_node : whether each node there, and each one missing, has a chance of its own; else the fleet has one.
    """
    edges_s = np.linspace(0.0, seen.duration_h * 3600.0, stretches + 1).tolist()
    nodes_h, span_h = seen.node_h(cap, edges_s), seen.duration_h / stretches
    if per_node:
        return nodes_h, tuple(max(0.0, cap * span_h - one) for one in nodes_h)
    below_h = seen.node_h(cap - 1, edges_s)
    incomplete_h = tuple(
        max(0.0, span_h - all_h + most_h) for all_h, most_h in zip(nodes_h, below_h, strict=True)
    )
    return seen.node_h(1, edges_s), incomplete_h


def in_stretches(seen: FleetStatistics, process: Fitted, stretches: int) -> Stretches:
    """What a recording had in equal stretches, for the process that was fitted to it.

    Parameters
    ----------
    process : with the fleet's size when complete; it says whether events or nodes are counted.
    stretches : how many.
    """
    per_node = not isinstance(process, Poisson)
    cap = process.slots if isinstance(process, Lifetimes) else process.cap
    removal_h, add_h = (
        tuple(round(hours, 6) for hours in each)
        for each in _chances_h(seen, cap, stretches, per_node=per_node)
    )

    def counted(at_s: Sequence[float], sizes: Sequence[int], hours: Sequence[float]) -> tuple[int, ...]:
        # What comes where two stretches meet could come in the first of them: behind it the fleet may be empty, or complete.
        places = np.ceil(np.array(at_s) / (seen.duration_h * 3600.0) * stretches * (1 - 1e-12)) - 1
        totals = np.zeros(stretches, dtype=np.int64)
        np.add.at(totals, np.clip(places, 0, stretches - 1).astype(int), np.array(sizes) if per_node else 1)
        # A node that comes at the instant at which another leaves may come to a complete fleet.
        return tuple(int(n) if h > 0 else 0 for n, h in zip(totals, hours, strict=True))

    return Stretches(
        removals=counted(seen.removal_s, seen.removal_batches, removal_h),
        adds=counted(seen.add_s, seen.add_batches, add_h),
        removal_h=removal_h,
        add_h=add_h,
    )


def _hazards(seen: FleetStatistics, cap: int) -> _Model:
    """Each node fails, and each missing one returns, on its own; survivors count with the time they lived."""
    missing_h = max(cap * seen.duration_h - seen.node_hours, 1e-9)
    added = sum(seen.add_batches)
    process = PerNode(
        removal_per_node_h=seen.removes / seen.node_hours,
        return_per_node_h=added / missing_h,
        start=min(seen.start, cap),
        cap=cap,
    )

    def draw(random: np.random.Generator) -> PerNode:
        return process.with_(
            removal_per_node_h=float(random.gamma(seen.removes + 0.5)) / seen.node_hours,
            return_per_node_h=float(random.gamma(added + 0.5)) / missing_h,
        )

    rates = (
        _poisson_rate("removal_per_node_h", "1/h", seen.removes, seen.node_hours),
        _poisson_rate("return_per_node_h", "1/h", added, missing_h),
    )
    return _Model(process, rates, draw)


def _lives(seen: FleetStatistics, cap: int) -> _Model:
    """Weibull lifetimes, those of nodes alive at the end cut off; empty slots are filled after exponential times."""
    missing_h = max(cap * seen.duration_h - seen.node_hours, 1e-9)
    added = sum(seen.add_batches)
    lived, over = lives(seen)
    shape, scale_h = weibull(lived, over)
    process = _weibull_process(shape, scale_h, missing_h / added, cap)

    def draw(random: np.random.Generator) -> Lifetimes:
        again = random.integers(lived.size, size=lived.size)
        if not over[again].any():
            return process
        return _weibull_process(
            *weibull(lived[again], over[again]), missing_h / float(random.gamma(added + 0.5)), cap
        )

    random = stream(0, "weibull intervals")
    sampled = np.array([(one.shape, one.mean_life_h) for one in (draw(random) for _ in range(FEW_TRACES))])
    low, high = np.percentile(sampled, [2.5, 97.5], axis=0)
    rates = (
        Rate("shape", "", process.shape, float(low[0]), float(high[0])),
        Rate("mean_life_h", "h", process.mean_life_h, float(low[1]), float(high[1])),
    )
    return _Model(process, rates, draw)


def _weibull_process(shape: float, scale_h: float, mean_return_h: float, cap: int) -> Lifetimes:
    return Lifetimes(
        mean_life_h=scale_h * math.gamma(1 + 1 / shape), mean_return_h=mean_return_h, shape=shape, slots=cap
    )


def lives(seen: FleetStatistics) -> tuple[Floats, NDArray[np.bool_]]:
    """Hours lived by every node, and whether that was its whole life (False: alive at the end)."""
    lived = np.array([*seen.lifetimes_h, *seen.ages_h], dtype=np.float64)
    over = np.arange(lived.size) < len(seen.lifetimes_h)
    return np.maximum(lived, 1e-6), over


def weibull(lived_h: Floats, over: NDArray[np.bool_]) -> tuple[float, float]:
    """Shape and scale (h) of a Weibull lifetime by maximum likelihood.

    The score in the shape k, sum(t^k ln t)/sum(t^k) - 1/k - mean(ln t of those over), increases with k.

    Parameters
    ----------
    lived_h : hours that each node lived.
    over : whether that was its whole life; else it is cut off.
    """
    logs = np.log(lived_h / lived_h.max())
    ended = float(logs[over].mean())
    low, high = 0.05, 50.0
    for _ in range(50):
        shape = math.sqrt(low * high)
        powers = np.exp(shape * logs)
        score = float((powers * logs).sum() / powers.sum()) - 1 / shape - ended
        low, high = (shape, high) if score < 0 else (low, shape)
    scale = float((np.exp(shape * logs).sum() / over.sum()) ** (1 / shape) * lived_h.max())
    return shape, scale


# --------------------------------------------------------------------------- judging a fit


FEATURES = ("removals per hour", "nodes per removal", "CV of removal gaps", "mean nodes", "spread of nodes")


def _judged(model: _Model, seen: FleetStatistics, traces: int, seed: int) -> Fit:
    """Figures of the recorded fleet, as far as it has them, against their 95 % bands over generated ones.

    Parameters
    ----------
    model : gives another plausible process for each generated fleet.
    seen : figures of the recording; generated fleets are as long.
    traces : how many are generated.
    seed : of parameters and fleets.
    """
    horizon_s = seen.duration_h * 3600
    sampled = np.empty((traces, len(FEATURES)))
    for trial in range(traces):
        process = model.draw(stream(seed, "fitted parameters", trial))
        made = generate(process, seed=seed, horizon_s=horizon_s, trial=trial)
        sampled[trial] = _figures(fleet_statistics(made, horizon_s))
    features = []
    for name, value, made_values in zip(FEATURES, _figures(seen), sampled.T, strict=True):
        # A fleet with few removals has no spread of the gaps between them, recorded or generated.
        values = made_values[~np.isnan(made_values)]
        if not math.isnan(value) and len(values):
            low, high = np.percentile(values, [2.5, 97.5]).tolist()
            features.append(Feature(name, value, low, high))
    return Fit(model.process, model.rates, tuple(features), traces)


def _figures(one: FleetStatistics) -> tuple[float, float, float, float, float]:
    """The figures by which a fit is judged, in the order of `FEATURES`; NaN for those that a fleet does not have."""
    batch = fmean(one.removal_batches) if one.removal_batches else math.nan
    return one.removes / one.duration_h, batch, one.gap_cv, one.mean_nodes, one.nodes_std


def poisson_interval(events: int, confidence: float = 0.95) -> tuple[float, float]:
    """Exact (Garwood) interval of a Poisson mean, by bisection on its distribution function.

    Parameters
    ----------
    events : the count.
    confidence : of the interval (default: 0.95).
    """
    tail = (1 - confidence) / 2

    def at_most(k: int, mean: float) -> float:
        return math.fsum(math.exp(i * math.log(mean) - mean - math.lgamma(i + 1)) for i in range(k + 1))

    def solve(k: int, share: float) -> float:
        low, high = 1e-12, 2.0 * k + 40.0
        for _ in range(60):
            middle = (low + high) / 2
            low, high = (middle, high) if at_most(k, middle) > share else (low, middle)
        return (low + high) / 2

    return (0.0 if events == 0 else solve(events - 1, 1 - tail)), solve(events, tail)


def _poisson_rate(name: str, unit: str, events: int, exposure: float) -> Rate:
    """A rate from a count of events, with its exact interval.

    Parameters
    ----------
    name, unit : of the rate.
    events : the count.
    exposure : time, or node time, in which they happened, in the unit's own time.
    """
    low, high = poisson_interval(events)
    return Rate(name, unit, events / exposure, low / exposure, high / exposure)


# --------------------------------------------------------------------------- goodness of fit


DRAWS = 2000
MINUTE_S = 60.0


def tests(seen: FleetStatistics, seed: int = 0) -> tuple[Test, ...]:
    """Whether the recording's gaps are exponential, its batches geometric or the notebook's, its lives exponential.

    p-values by drawing recordings of the same size from the fitted law and fitting those again (a parametric
    bootstrap), for the lives from the likelihood ratio to a Weibull law.
    """
    results = []
    gaps = np.diff(seen.removal_s)
    if gaps.size >= 5:
        results.append(_gaps_are_exponential(gaps, stream(seed, "gaps")))
    sizes = np.asarray(seen.removal_batches)
    if sizes.size >= 5:
        for name in ("geometric", "marks"):
            results.append(_batches_are(name, sizes, stream(seed, f"batches {name}")))
    if len(seen.lifetimes_h) >= 5:
        results.append(_lives_are_exponential(seen))
    return tuple(results)


def _gaps_are_exponential(gaps: Floats, random: np.random.Generator) -> Test:
    """The largest distance between the distributions of the gaps and of the exponential of their mean."""

    def distance(rows: Floats) -> Floats:
        ordered = np.sort(rows, axis=-1)
        fitted = -np.expm1(-ordered / ordered.mean(axis=-1, keepdims=True))
        steps = np.arange(rows.shape[-1] + 1) / rows.shape[-1]
        return np.asarray(np.maximum((steps[1:] - fitted).max(axis=-1), (fitted - steps[:-1]).max(axis=-1)))

    seen, sampled = float(distance(gaps)), random.exponential(gaps.mean(), size=(DRAWS, gaps.size))
    if (
        gaps % MINUTE_S == 0
    ).all():  # a recording in whole minutes is compared with random gaps in whole minutes
        sampled = np.maximum(np.round(sampled / MINUTE_S), 1.0) * MINUTE_S
    sampled = distance(sampled)
    return Test("gaps between removals are exponential", seen, float((sampled >= seen).mean()))


def _batches_are(
    name: Literal["geometric", "marks"], sizes: NDArray[Any], random: np.random.Generator
) -> Test:
    """Pearson's chi-square of the counted sizes against those expected of the law fitted to them."""

    def distance(counted: NDArray[Any]) -> float:
        shares = _sizes(counted.tolist(), name).probabilities()
        top = max(shares.size, int(counted.max()))
        expected = np.zeros(top)
        expected[: shares.size] = shares * counted.size
        beyond = np.bincount(counted, minlength=top + 1)[1:] - expected
        return float((beyond**2 / np.maximum(expected, 1e-3)).sum())

    law = _sizes(sizes.tolist(), name).probabilities()
    seen, edges = distance(sizes), np.cumsum(law)[:-1]
    sampled = [
        distance(np.searchsorted(edges, random.random(sizes.size), side="right") + 1)
        for _ in range(DRAWS // 4)
    ]
    what = {"geometric": "geometric", "marks": "the notebook's rounded normals"}[name]
    return Test(f"sizes of removals are {what}", seen, float((np.array(sampled) >= seen).mean()))


def _lives_are_exponential(seen: FleetStatistics) -> Test:
    """Twice the log-likelihood that a Weibull law gains over an exponential one; chi-square with one degree."""
    lived, over = lives(seen)
    shape, scale = weibull(lived, over)
    rate = over.sum() / lived.sum()
    plain = over.sum() * math.log(rate) - rate * lived.sum()
    terms = math.log(shape / scale) + (shape - 1) * np.log(lived[over] / scale)
    gained = float(2 * (terms.sum() - ((lived / scale) ** shape).sum() - plain))
    return Test(
        f"lives are exponential (a Weibull law would have shape {shape:.2f})",
        gained,
        math.erfc(math.sqrt(max(0.0, gained) / 2)),
    )


def survival(seen: FleetStatistics, at_h: Sequence[float]) -> list[float]:
    """Share of nodes that live longer than each of `at_h` hours.

    Nodes alive at the end are cut off there [Kaplan and Meier, 1958].
    """
    lived, over = lives(seen)
    order = np.lexsort((~over, lived))
    lived, over = lived[order], over[order]
    at_risk = np.arange(lived.size, 0, -1)
    curve = np.cumprod(np.where(over, 1 - 1 / at_risk, 1.0))
    return [float(curve[i - 1]) if (i := int(np.searchsorted(lived, t, side="right"))) else 1.0 for t in at_h]


# --------------------------------------------------------------------------- as the notebook


def notebook_process(traces: CountTraces, *, geometric: bool = False) -> Poisson:
    """The process that the notebook fits: marks from normals (or geometric batches, which keep the mean)."""
    values = as_the_notebook(traces)
    return Poisson(
        removals_per_min=values["chance_preempt_this_minute"],
        adds_per_min=values["chance_add_this_minute"],
        removal_batch=Geometric(p=1 / values["preempt_count_mean"])
        if geometric
        else Marks(mean=values["preempt_count_mean"], std=values["preempt_count_std"]),
        add_batch=Geometric(p=1 / values["regular_add_mean"])
        if geometric
        else Marks(mean=values["regular_add_mean"], std=values["regular_add_std"]),
        add_burst=Burst(probability=values["probability_big_add"]),
    )
