"""Which arrival process a recorded trace looks like, and how far the likeness goes.

Each fit is a process that can be run, and a comparison: features of the trace beside the band that the
fitted process itself produces over traces of the same length. A fit with features outside their band is a
poor stand-in, whatever its parameters look like.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import asdict, dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from forerun.core.errors import Problem, TraceError
from forerun.core.scenario.spec import to_data
from forerun.core.trace.arrivals import ArrivalProcess
from forerun.core.trace.processes.gamma import Gamma
from forerun.core.trace.processes.on_off import OnOff
from forerun.core.trace.processes.poisson import Poisson
from forerun.core.trace.stats import FEWEST_WINDOWS, counts_in_windows, dispersion, lag_one_correlation

Floats = NDArray[np.float64]
Counts = NDArray[np.int64]

FEWEST_ARRIVALS = 50
MOST_JUDGED = 50_000
WINDOWS_IN_GAPS = (10, 100, 1000)
EM_ROUNDS = 200
BINS = 20_000


@dataclass(frozen=True, slots=True)
class Feature:
    """One statistic of a trace beside the fitted process.

    Parameters
    ----------
    name : of the statistic, as reports show it.
    recorded : its value in the recorded trace.
    low, high : the 95 % band of traces that the process makes.
    """

    name: str
    recorded: float
    low: float
    high: float

    @property
    def ok(self) -> bool:
        """Whether the recorded value lies in the band."""
        return self.low <= self.recorded <= self.high


@dataclass(frozen=True, slots=True)
class Fit:
    """A process with the parameters that match a trace best, and how well it stands in for it.

    Parameters
    ----------
    ks_distance : largest distance between the distributions of the recorded gaps and of the process's (estimated from
        a long run).
    features : see `Feature`.
    note : how the parameters were estimated.
    """

    process: ArrivalProcess
    ks_distance: float
    features: tuple[Feature, ...]
    note: str

    @property
    def agreement(self) -> float:
        """Share of the features within their band."""
        return sum(feature.ok for feature in self.features) / len(self.features)

    def data(self) -> dict[str, object]:
        """As plain data, for JSON."""
        features = [asdict(feature) | {"ok": feature.ok} for feature in self.features]
        return {
            "process": to_data(self.process),
            "ks_distance": self.ks_distance,
            "agreement": self.agreement,
            "features": features,
            "note": self.note,
        }


def fit_all(instants_ms: ArrayLike, *, traces: int = 60) -> tuple[Fit, ...]:
    """Every process that can be fitted, the one with the best agreement first, the simpler of equals first.

    Parameters come from the whole trace. They are judged on its first 50,000 arrivals if it has more, as
    the note then says.

    A process that cannot look like the trace is left out; raises TraceError with the reasons if none can.

    Parameters
    ----------
    instants_ms : the recorded arrivals, ascending, in milliseconds.
    traces : as for `judge`.
    """
    instants = np.asarray(instants_ms, dtype=np.float64)
    fits: list[Fit] = []
    reasons: list[Problem] = []
    for fitted in (fit_poisson, fit_gamma, fit_on_off):
        try:
            process, note = fitted(instants)
        except TraceError as error:  # this process cannot look like this trace; the others may
            reasons.extend(problem for problem in error.problems if problem not in reasons)
            continue
        if len(instants) > MOST_JUDGED:
            note += f"; judged on the first {MOST_JUDGED:,} arrivals"
        fits.append(judge(process, instants[:MOST_JUDGED], note=note, traces=traces))
    if not fits:
        raise TraceError(*reasons)
    return tuple(sorted(fits, key=lambda fit: (-fit.agreement, round(fit.ks_distance, 2))))


def fit_poisson(instants_ms: ArrayLike) -> tuple[Poisson, str]:
    """The Poisson process of the same rate (maximum likelihood)."""
    gaps = _gaps(instants_ms)
    return Poisson(rate_rps=1e3 / float(gaps.mean())), "maximum likelihood: the mean gap"


def fit_gamma(instants_ms: ArrayLike) -> tuple[Gamma, str]:
    """Gamma gaps with the trace's mean and variance.

    Moments rather than likelihood: recorded clocks have zero gaps, whose likelihood under a smooth gamma is
    nil.
    """
    gaps = _gaps(instants_ms)
    mean, variance = float(gaps.mean()), float(gaps.var())
    if not variance > 0:
        raise TraceError.at(
            "arrivals", "all gaps are equal: a gamma process with a positive scv never does that"
        )
    return Gamma(rate_rps=1e3 / mean, scv=variance / mean**2), "moments: mean and variance of the gaps"


def fit_on_off(instants_ms: ArrayLike) -> tuple[OnOff, str]:
    """A rate that switches between two levels, by expectation maximisation on binned counts.

    Counts in bins of about five mean gaps (at most 20,000 bins) are taken for a hidden Markov chain of two
    states with Poisson counts (Rabiner, 1989). Switching faster than a bin is not seen. Raises TraceError
    if the two estimated levels are equal.
    """
    instants = np.asarray(instants_ms, dtype=np.float64)
    gaps = _gaps(instants)
    span_s = float(instants[-1] - instants[0]) / 1e3
    bin_s = max(5 * float(gaps.mean()) / 1e3, span_s / BINS)
    counts = counts_in_windows(instants, bin_s)
    if len(counts) < 20:
        raise TraceError.at("arrivals", f"only {len(counts)} bins of {bin_s:g} s: too few to see two levels")
    low, high, leave_low, leave_high, rounds = _two_levels(counts)
    if not high > 1.02 * low:
        raise TraceError.at("arrivals", "the two estimated levels are equal: nothing switches")
    process = OnOff(
        rate_rps=high / bin_s,
        off_rate_rps=low / bin_s,
        mean_on_s=-bin_s / math.log1p(-leave_high),
        mean_off_s=-bin_s / math.log1p(-leave_low),
    )
    return process, f"expectation maximisation on {len(counts)} bins of {bin_s:.4g} s, {rounds} rounds"


def judge(
    process: ArrivalProcess, instants_ms: ArrayLike, *, note: str = "", seed: int = 0, traces: int = 60
) -> Fit:
    """How well a process stands in for a recorded trace.

    Parameters
    ----------
    process : the fitted process.
    instants_ms : the recorded arrivals, ascending, in milliseconds.
    note : how the parameters were estimated.
    seed : of the first of its own traces (the others take the next ones).
    traces : how many of its own traces, each of as many arrivals, give the band of a feature (default: 60).
    """
    instants = np.asarray(instants_ms, dtype=np.float64)
    gaps = _gaps(instants)
    measures = _measures(float(gaps.mean()), len(instants))
    made = [process.arrivals_ms(seed + 1 + i, n=len(instants)) for i in range(traces)]
    features = []
    for name, measure in measures.items():
        low, high = np.quantile([measure(other) for other in made], [0.025, 0.975])
        features.append(Feature(name, measure(instants), float(low), float(high)))
    long_run = np.concatenate([np.diff(other) for other in made])
    distance = ks_distance(gaps, long_run)
    own = float(np.quantile([ks_distance(np.diff(other), long_run) for other in made[:20]], 0.95))
    features.append(Feature("gap_distribution_ks", distance, 0.0, own))
    return Fit(process, distance, tuple(features), note)


def ks_distance(first: ArrayLike, second: ArrayLike) -> float:
    """Largest distance between two empirical distribution functions (Kolmogorov-Smirnov)."""
    one, two = np.sort(np.asarray(first, dtype=np.float64)), np.sort(np.asarray(second, dtype=np.float64))
    points = np.concatenate([one, two])
    gap = np.searchsorted(one, points, side="right") / len(one) - np.searchsorted(
        two, points, side="right"
    ) / len(two)
    return float(np.abs(gap).max())


def _measures(mean_gap_ms: float, count: int) -> dict[str, Callable[[Floats], float]]:
    measures: dict[str, Callable[[Floats], float]] = {
        "rate_rps": lambda x: (len(x) - 1) * 1e3 / float(x[-1] - x[0]),
        "gap_cv": lambda x: float(np.diff(x).std() / np.diff(x).mean()),
        "gap_correlation": lambda x: lag_one_correlation(np.diff(x)) or 0.0,
    }
    for gaps in WINDOWS_IN_GAPS:
        if count >= FEWEST_WINDOWS * gaps:
            window_s = gaps * mean_gap_ms / 1e3
            measures[f"dispersion_at_{window_s:.3g}_s"] = _in_windows(_dispersion, window_s)
            measures[f"peak_to_mean_at_{window_s:.3g}_s"] = _in_windows(_peak_to_mean, window_s)
    return measures


def _in_windows(of: Callable[[Counts], float], window_s: float) -> Callable[[Floats], float]:
    """A figure of the counts in windows, as a measure of arrivals."""
    return lambda instants: of(counts_in_windows(instants, window_s))


def _dispersion(counts: Counts) -> float:
    return dispersion(counts) if len(counts) > 1 else 0.0


def _peak_to_mean(counts: Counts) -> float:
    return float(counts.max() / counts.mean()) if len(counts) else 0.0


def _gaps(instants_ms: ArrayLike) -> Floats:
    instants = np.asarray(instants_ms, dtype=np.float64)
    if len(instants) < FEWEST_ARRIVALS:
        what = f"{len(instants)} are too few to fit a process; at least {FEWEST_ARRIVALS} are needed"
        raise TraceError.at("arrivals", what)
    if not instants[-1] > instants[0]:
        raise TraceError.at("arrivals", "all are at one instant: there is no rate")
    return np.diff(instants)


def _two_levels(counts: Counts) -> tuple[float, float, float, float, int]:
    """Mean counts low and high, chances a bin of leaving low and high, and the rounds it took.

    Baum-Welch for two states with Poisson counts, started from the lower and upper half of the counts.
    """
    split = float(np.median(counts))
    low = float(counts[counts <= split].mean())
    above = counts[counts > split]
    high = float(above.mean()) if len(above) else low * 1.5 + 1.0
    leave = [0.1, 0.1]
    best = -math.inf
    for done in range(1, EM_ROUNDS + 1):
        share, moves, likelihood = _expected(counts, (max(low, 1e-9), max(high, 1e-9)), leave)
        low = float(((1 - share) * counts).sum() / max((1 - share).sum(), 1e-300))
        high = float((share * counts).sum() / max(share.sum(), 1e-300))
        leave = [min(max(move, 1e-9), 1 - 1e-9) for move in moves]
        if low > high:
            low, high, leave = high, low, leave[::-1]
        if likelihood - best < 1e-6 * abs(likelihood):
            return low, high, leave[0], leave[1], done
        best = likelihood
    return low, high, leave[0], leave[1], EM_ROUNDS


def _expected(
    counts: Counts, level: tuple[float, float], leave: list[float]
) -> tuple[Floats, list[float], float]:
    """Forward-backward: chance of the high state in each bin, expected chances of leaving, log likelihood.

    The factorial of the Poisson density is the same for both states and left out. Forward weights are scaled to 1 in
    each bin.

    Parameters
    ----------
    level : mean count while low, while high.
    """
    logs = [counts * math.log(mean) - mean for mean in level]
    shift = np.maximum(*logs)
    seen = np.exp(np.array(logs) - shift).T.tolist()
    stay_low, stay_high = 1 - leave[0], 1 - leave[1]
    start_high = leave[0] / (leave[0] + leave[1])
    ahead, likelihood = [], float(shift.sum())
    low, high = 1 - start_high, start_high
    for at_low, at_high in seen:
        low, high = low * at_low, high * at_high
        total = low + high
        likelihood += math.log(total)
        low, high = low / total, high / total
        ahead.append((low, high, total))
        low, high = low * stay_low + high * leave[1], low * leave[0] + high * stay_high
    share = np.empty(len(seen))
    left, been = [0.0, 0.0], [0.0, 0.0]
    back_low = back_high = 1.0
    for i in range(len(seen) - 1, -1, -1):
        low, high, _ = ahead[i]
        share[i] = high * back_high
        if i == 0:
            break
        at_low, at_high = seen[i]
        to_low, to_high = at_low * back_low / ahead[i][2], at_high * back_high / ahead[i][2]
        low, high, _ = ahead[i - 1]
        left[0] += low * leave[0] * to_high
        left[1] += high * leave[1] * to_low
        back_low, back_high = stay_low * to_low + leave[0] * to_high, leave[1] * to_low + stay_high * to_high
        been[0] += low * back_low
        been[1] += high * back_high
    return share, [left[0] / max(been[0], 1e-300), left[1] / max(been[1], 1e-300)], likelihood
