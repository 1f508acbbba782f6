"""Independent arrivals at a constant rate."""

from __future__ import annotations

from collections.abc import Iterator
from typing import ClassVar

from forerun.core.rng import stream
from forerun.core.scenario.numbers import Positive
from forerun.core.trace.arrivals import CHUNK, ArrivalProcess, Floats, summed


class Poisson(ArrivalProcess, tag="poisson", frozen=True, kw_only=True):
    """A Poisson process: exponential gaps of mean 1/rate, squared coefficient of variation 1."""

    rate_rps: Positive

    paper: ClassVar[str] = "Poisson process (Kingman, Poisson Processes, 1993)"

    def chunks(self, seed: int) -> Iterator[Floats]:
        return summed(self._gaps(seed))

    def _gaps(self, seed: int) -> Iterator[Floats]:
        draws = stream(seed, "arrivals")
        while True:
            yield draws.standard_exponential(CHUNK) * (1e3 / self.rate_rps)
