"""Independent gamma-distributed gaps: smoother or burstier than Poisson."""

from __future__ import annotations

from collections.abc import Iterator
from typing import ClassVar

from forerun.core.rng import stream
from forerun.core.scenario.numbers import Positive
from forerun.core.trace.arrivals import CHUNK, ArrivalProcess, Floats, one_of, summed


class Gamma(ArrivalProcess, tag="gamma", frozen=True, kw_only=True):
    """A renewal process with gamma gaps: shape 1/scv, mean 1/rate.

    cv: standard deviation of the gaps over their mean. scv: its square. Exactly one is given, because
    papers call either of them "CV": a file named `100_4.0` in the InferLine artifact has scv 4, so cv 2.
    """

    rate_rps: Positive
    cv: Positive | None = None
    scv: Positive | None = None

    paper: ClassVar[str] = "gamma renewal arrivals as in InferLine (Crankshaw et al., SoCC'20, section 7)"

    def problems(self) -> list[tuple[str, str]]:
        return one_of({"cv": self.cv, "scv": self.scv})

    @property
    def squared_cv(self) -> float:
        """The squared coefficient of variation of the gaps, however it was given."""
        if self.scv is not None:
            return self.scv
        assert self.cv is not None, "problems() was not asked"
        return self.cv**2

    def chunks(self, seed: int) -> Iterator[Floats]:
        return summed(self._gaps(seed))

    def _gaps(self, seed: int) -> Iterator[Floats]:
        draws = stream(seed, "arrivals")
        scv = self.squared_cv
        while True:
            yield draws.standard_gamma(1 / scv, CHUNK) * (scv * 1e3 / self.rate_rps)
