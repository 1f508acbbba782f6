"""Bursts: a rate that switches between two levels at random instants."""

from __future__ import annotations

from collections.abc import Iterator
from typing import ClassVar, Final

import numpy as np

from forerun.core.rng import stream
from forerun.core.scenario.numbers import NotNegative, Positive
from forerun.core.trace.arrivals import CHUNK, ArrivalProcess, Floats

#: mean arrivals of a cycle: with fewer, cycles are drawn without end for one; those of a cycle are drawn at once
LEAST_IN_A_CYCLE: Final = 1e-6
MOST_IN_A_CYCLE: Final = 10_000_000


class OnOff(ArrivalProcess, tag="on_off", frozen=True, kw_only=True):
    """Poisson arrivals whose rate is `rate_rps` while on and `off_rate_rps` while off.

    mean_on_s, mean_off_s: means of the exponential times in either state. It starts in a state drawn from
    the long-run shares, so it is stationary: a Markov-modulated Poisson process of two states, an
    interrupted Poisson process if the off-rate is 0.
    """

    rate_rps: Positive
    mean_on_s: Positive
    mean_off_s: Positive
    off_rate_rps: NotNegative = 0.0

    paper: ClassVar[str] = "Fischer and Meier-Hellstern, The MMPP cookbook, 1993; Kuczura, BSTJ 1973"

    def problems(self) -> list[tuple[str, str]]:
        pair = self.rate_rps * self.mean_on_s + self.off_rate_rps * self.mean_off_s
        if LEAST_IN_A_CYCLE <= pair <= MOST_IN_A_CYCLE:
            return []
        bounds = f"{LEAST_IN_A_CYCLE:g} to {MOST_IN_A_CYCLE:,} are drawn"
        return [("mean_on_s", f"{pair:.3g} arrivals come in a cycle of on and off; {bounds}")]

    def chunks(self, seed: int) -> Iterator[Floats]:
        states, counts, places = (stream(seed, "arrivals", part) for part in ("states", "counts", "places"))
        on = bool(states.random() < self.mean_on_s / (self.mean_on_s + self.mean_off_s))
        start_ms = 0.0
        pair = self.rate_rps * self.mean_on_s + self.off_rate_rps * self.mean_off_s
        sojourns = 2 * int(min(max(CHUNK / 8 / pair, 1), CHUNK))
        while True:
            is_on = np.arange(sojourns) % 2 == (0 if on else 1)
            lengths = states.standard_exponential(sojourns) * np.where(is_on, self.mean_on_s, self.mean_off_s)
            ends_ms = np.cumsum(np.concatenate([[start_ms], lengths * 1e3]))
            number = counts.poisson(lengths * np.where(is_on, self.rate_rps, self.off_rate_rps))
            # Given how many fall into a sojourn, Poisson arrivals are independent and uniform within it.
            begin, width = np.repeat(ends_ms[:-1], number), np.repeat(lengths * 1e3, number)
            yield np.sort(begin + places.random(len(begin)) * width)
            start_ms = float(ends_ms[-1])
