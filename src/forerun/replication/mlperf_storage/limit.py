"""The rate at which a submitter will stop adding accelerators, as an interval from the other results of the system.

It is the store's limit as far as results show it. Unlike an interval for a known number of accelerators it does not know
that the required utilisation was reached with this number.

The logarithm of the rate at which a submitter stopped is, in a linear model with normal effects, the sum of a common level,
one of the system, one of the workload, one of that workload on that system, the logarithm of the number of hosts times a
slope near one, and what is left. The first, the second, the third and the slope have wide priors, so that they are
estimated from whatever results there are; the spread of the last two is estimated by the likelihood. Prediction is
conditioning of a normal distribution (kriging, best linear unbiased prediction).

How many standard deviations an interval has is calibrated: so many that it would have contained nine tenths of the other
submitters' results, each predicted without itself. [Split conformal prediction: Vovk, Gammerman and Shafer, Algorithmic
Learning in a Random World, 2005.] Everything about a result's law comes from other submitters; its level comes from other
results of its system.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from forerun.replication.mlperf_storage.model import Span
from forerun.replication.mlperf_storage.results import Result, stops
from forerun.result.stats import normal_quantile

F64 = NDArray[np.float64]

#: the share of results that an interval is to contain
CONFIDENCE: Final = 0.9
#: prior standard deviations, in logarithms of MiB/s: of the common level, of systems, of workloads, of the slope
LEVEL_SD, SYSTEM_SD, WORKLOAD_SD, SLOPE_SD = 30.0, 3.0, 1.0, 0.25
#: standard deviations that the likelihood chooses among, in logarithms of MiB/s
SPREADS: Final = (0.05, 0.1, 0.15, 0.2, 0.25, 0.3, 0.35, 0.4, 0.5, 0.6)


@dataclass(frozen=True)
class Forecast:
    """The rate at which a submitter stops, before it is known.

    Parameters
    ----------
    log_mib_per_s, sd : mean and standard deviation of the logarithm of the rate.
    least_mib_per_s : delivered already to fewer accelerators in the same setting (default: 0: nothing is known).
    """

    log_mib_per_s: float
    sd: float
    least_mib_per_s: float = 0.0

    def at(self, deviations: float) -> float:
        """The rate [MiB/s] so many standard deviations above the mean, no less than what was delivered already."""
        return max(math.exp(self.log_mib_per_s + deviations * self.sd), self.least_mib_per_s)


@dataclass(frozen=True)
class Law:
    """How results of a system resemble each other, as other submitters' results say.

    Parameters
    ----------
    mixed_sd, stop_sd : standard deviation of a workload on a system, and of a result; in logarithms.
    deviations : half the length of an interval, in standard deviations of its forecast.
    """

    mixed_sd: float
    stop_sd: float
    deviations: float

    def interval(self, found: Forecast) -> Span:
        """The interval of a rate that contains it with the probability `CONFIDENCE` [MiB/s]."""
        return Span(found.at(-self.deviations), found.at(self.deviations))


def fit_law(results: Sequence[Result]) -> Law:
    """The law of some results; none of it depends on results that are not given.

    Parameters
    ----------
    results : of other submitters than the one to predict.
    """
    ends = stops(results)
    mixed_sd, stop_sd = _spreads(ends)
    needed = []
    for result in ends:
        found = forecast(result, results, mixed_sd, stop_sd)
        if found is not None:
            needed.append(abs(math.log(result.mib_per_s) - found.log_mib_per_s) / found.sd)
    return Law(mixed_sd, stop_sd, _conformal(needed))


def _conformal(needed: Sequence[float]) -> float:
    """So many standard deviations that a further result lies within with the probability `CONFIDENCE`.

    Without any result, those of the normal distribution.
    """
    if not needed:
        return normal_quantile((1 + CONFIDENCE) / 2)
    rank = math.ceil((len(needed) + 1) * CONFIDENCE)
    return sorted(needed)[min(rank, len(needed)) - 1]


def forecast(result: Result, others: Sequence[Result], mixed_sd: float, stop_sd: float) -> Forecast | None:
    """The rate of a result from others; None where none is of its system. Nothing measured of the result is used.

    Fewer accelerators in the same setting are a lower bound and nothing else: their submitter went on.

    Parameters
    ----------
    result : whose workload, accelerators and hosts are looked at.
    others : that may be used; the result itself is left out.
    mixed_sd, stop_sd : see `Law`.
    """
    fewer, rest = [], []
    for other in others:
        if other.setting == result.setting and other.accelerators < result.accelerators:
            fewer.append(other)
        elif other is not result:
            rest.append(other)
    known = stops(rest)
    if not any(other.system == result.system for other in known):
        return None
    cross = _covariance([result], known, mixed_sd)[0]
    solved = np.linalg.solve(
        _covariance(known, known, mixed_sd) + stop_sd**2 * np.eye(len(known)),
        np.column_stack([_centred(known), cross]),
    )
    variance = _covariance([result], [result], mixed_sd)[0, 0] - cross @ solved[:, 1] + stop_sd**2
    return Forecast(
        log_mib_per_s=float(cross @ solved[:, 0]) + math.log(result.hosts),
        sd=math.sqrt(variance),
        least_mib_per_s=max((other.mib_per_s for other in fewer), default=0.0),
    )


def _covariance(ones: Sequence[Result], others: Sequence[Result], mixed_sd: float) -> F64:
    """Covariance of the logarithms of rates, float64[ones, others], without what is left of each."""

    system = np.equal.outer(np.array([r.system for r in ones]), np.array([r.system for r in others]))
    workload = np.equal.outer(
        np.array([r.workload.name for r in ones]), np.array([r.workload.name for r in others])
    )
    hosts = np.multiply.outer(np.log([r.hosts for r in ones]), np.log([r.hosts for r in others]))
    covariance: F64 = (
        LEVEL_SD**2
        + SYSTEM_SD**2 * system
        + WORKLOAD_SD**2 * workload
        + SLOPE_SD**2 * hosts
        + mixed_sd**2 * (system & workload)
    )
    return covariance


def _centred(results: Sequence[Result]) -> F64:
    """Logarithms of the rates a host: the slope's mean is one."""
    return np.log([result.mib_per_s / result.hosts for result in results])


def _spreads(results: Sequence[Result]) -> tuple[float, float]:
    """The two standard deviations (see `Law`) under which these rates are most likely."""
    if len(results) < 2:
        return SPREADS[len(SPREADS) // 2], SPREADS[len(SPREADS) // 2]
    rates = _centred(results)

    def likelihood(spreads: tuple[float, float]) -> float:
        matrix = _covariance(results, results, spreads[0]) + spreads[1] ** 2 * np.eye(len(results))
        root = np.linalg.cholesky(matrix)
        scaled = np.linalg.solve(root, rates)
        return float(-scaled @ scaled / 2 - np.log(np.diag(root)).sum())

    return max(itertools.product(SPREADS, SPREADS), key=likelihood)
