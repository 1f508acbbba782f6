"""Requests as a benchmark's client sends them: at a rate, with a burstiness, ramped up if it says so."""

from __future__ import annotations

from collections.abc import Iterator
from typing import ClassVar, Literal

import numpy as np

from forerun.core.errors import ScenarioError
from forerun.core.rng import stream
from forerun.core.scenario.numbers import Positive
from forerun.core.trace.arrivals import ArrivalProcess, Floats


class RequestRate(ArrivalProcess, tag="request-rate", frozen=True, kw_only=True):
    """As `vllm bench serve` sends so many requests; the options are spelt as there.

    request_rate_rps: requests a second; give this or a ramp. burstiness: shape of the gamma law of the gaps (1: Poisson
    arrivals, less is burstier). ramp_up_strategy: the rate changes with the number of requests, `linear` or `exponential`,
    from ramp_up_start_rps to ramp_up_end_rps. The last request comes when it should on average.
    """

    request_rate_rps: Positive | None = None
    burstiness: Positive = 1.0
    ramp_up_strategy: Literal["linear", "exponential"] | None = None
    ramp_up_start_rps: Positive | None = None
    ramp_up_end_rps: Positive | None = None

    paper: ClassVar[str] = "the client `vllm bench serve`"

    def problems(self) -> list[tuple[str, str]]:
        ramp = (self.ramp_up_strategy, self.ramp_up_start_rps, self.ramp_up_end_rps)
        given = sum(value is not None for value in ramp)
        if given == (3 if self.request_rate_rps is None else 0):
            return []
        return [("", "give request_rate, or all of ramp_up_strategy, ramp_up_start_rps and ramp_up_end_rps")]

    def chunks(self, seed: int) -> Iterator[Floats]:
        raise ScenarioError.at("horizon_s", "a benchmark sends a number of requests; give queries")

    def _first(self, seed: int, n: int) -> Floats:
        rates_rps: float | Floats
        if self.request_rate_rps is not None:
            rates_rps = self.request_rate_rps
        else:
            assert self.ramp_up_strategy and self.ramp_up_start_rps and self.ramp_up_end_rps
            rates_rps = ramp_rps(self.ramp_up_strategy, self.ramp_up_start_rps, self.ramp_up_end_rps, n)
        return sent_ms(n, rates_rps, self.burstiness, stream(seed, "arrivals"))


def ramp_rps(strategy: Literal["linear", "exponential"], start_rps: float, end_rps: float, n: int) -> Floats:
    """float64[n]: the rate before each request."""
    between = np.linspace if strategy == "linear" else np.geomspace
    return np.asarray(between(start_rps, end_rps, n))


def sent_ms(n: int, rate_rps: float | Floats, burstiness: float, draws: int | np.random.Generator) -> Floats:
    """When requests are sent, from 0: gaps follow a gamma law, and the last comes on time.

    Parameters
    ----------
    n : how many.
    rate_rps : requests a second, of all or before each; inf: all at once.
    burstiness : shape of the law: 1 are Poisson arrivals, inf constant gaps.
    draws : random numbers, or their seed.
    """
    means_ms = np.broadcast_to(1e3 / np.asarray(rate_rps), n)[1:]
    gaps_ms = means_ms.copy()
    if burstiness <= 1e6:
        gaps_ms *= np.random.default_rng(draws).gamma(burstiness, 1.0, n)[1:]
        total_ms = float(gaps_ms.sum())
        gaps_ms *= float(means_ms.sum()) / total_ms if total_ms > 0 else 0.0
    return np.concatenate([[0.0], np.cumsum(gaps_ms)])
