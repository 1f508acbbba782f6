"""The gamma traces of the InferLine artifact, to the bit."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated, ClassVar

import msgspec
import numpy as np

from forerun.core.scenario.numbers import NotNegative, Positive
from forerun.core.trace.arrivals import CHUNK, ArrivalProcess, Floats, summed

LARGEST_LEGACY_SEED = 2**32 - 1


class LegacyGamma(ArrivalProcess, tag="legacy_gamma", frozen=True, kw_only=True):
    """Gamma gaps from NumPy's legacy generator, clipped below, first query at 0.

    scv: squared coefficient of variation before clipping (the artifact's "CV"). clip_ms: shortest gap; at
    scv 4 about a fifth of the gaps are this long. gamma_seed: of `numpy.random.RandomState`; if absent, the
    run's seed modulo 2^32. The clip raises the mean gap a little above 1/rate.
    """

    rate_rps: Positive
    scv: Positive
    clip_ms: NotNegative = 0.047
    gamma_seed: Annotated[int, msgspec.Meta(ge=0, le=LARGEST_LEGACY_SEED)] | None = None

    paper: ClassVar[str] = "trace generator of the InferLine artifact (Crankshaw et al., SoCC'20)"

    def chunks(self, seed: int) -> Iterator[Floats]:
        yield np.zeros(1)
        yield from summed(self.gaps_ms(seed))

    def gaps_ms(self, seed: int) -> Iterator[Floats]:
        """The gaps between arrivals, chunk after chunk, without end."""
        draws = np.random.RandomState(
            seed % (LARGEST_LEGACY_SEED + 1) if self.gamma_seed is None else self.gamma_seed
        )
        while True:
            gaps = draws.gamma(1 / self.scv, self.scv * 1e3 / self.rate_rps, size=CHUNK)
            yield np.maximum(gaps, self.clip_ms)
