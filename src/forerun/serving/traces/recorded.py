"""Arrivals made from a recorded trace: played faster or slower, or resampled."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, ClassVar

import msgspec
import numpy as np

from forerun.core.errors import TraceError
from forerun.core.rng import stream
from forerun.core.scenario.numbers import Count, Positive
from forerun.core.scenario.spec import Input
from forerun.core.trace.arrivals import CHUNK, ArrivalProcess, Floats, one_of, summed
from forerun.core.trace.reader import format_problems, read_trace
from forerun.core.trace.requests import arrivals_ms


class _Recorded(ArrivalProcess, frozen=True, kw_only=True):
    """A process made from a trace file: `trace` its path, `format` and `options` as for `read_trace`."""

    trace: Input
    format: str = ""
    options: dict[str, Any] = msgspec.field(default_factory=dict)

    def problems(self) -> list[tuple[str, str]]:
        """A format that exists."""
        return format_problems(self.format)

    def recorded_ms(self) -> Floats:
        """The recorded arrivals, the first at 0; TraceError if the file is not the one the scenario was made
        with.
        """
        read = read_trace(self.trace.path, self.format, options=self.options)
        if self.trace.sha256 and read.provenance.sha256 != self.trace.sha256:
            what = f"has digest {read.provenance.sha256[:12]}..., the scenario was made with {self.trace.sha256[:12]}..."
            raise TraceError.at(self.trace.path, what)
        instants = arrivals_ms(read)
        shifted: Floats = instants - instants[0]
        return shifted


class Scale(_Recorded, tag="scale", frozen=True, kw_only=True):
    """A recorded trace in another tempo: every gap times one factor, the first arrival at 0.

    stretch: the factor (2 is half the rate). rate_rps: the mean rate to reach instead. At most one is
    given; with neither the trace is played as recorded. It ends with the trace, and the seed changes
    nothing.
    """

    stretch: Positive | None = None
    rate_rps: Positive | None = None

    paper: ClassVar[str] = "time scaling of a recorded trace"

    def problems(self) -> list[tuple[str, str]]:
        given = {"stretch": self.stretch, "rate_rps": self.rate_rps}
        wrong = one_of(given) if any(value is not None for value in given.values()) else []
        return super().problems() + wrong

    def chunks(self, seed: int) -> Iterator[Floats]:
        instants = self.recorded_ms()
        if self.rate_rps is not None:
            if not instants[-1] > 0:
                raise TraceError.at(
                    self.trace.path, "all arrivals are at one instant: there is no rate to scale"
                )
            instants = instants * ((len(instants) - 1) * 1e3 / self.rate_rps / instants[-1])
        elif self.stretch is not None:
            instants = instants * self.stretch
        yield instants


class Bootstrap(_Recorded, tag="bootstrap", frozen=True, kw_only=True):
    """A block bootstrap of a recorded trace: blocks of its gaps, sampled with replacement and concatenated.

    block_gaps: gaps in a block; longer blocks keep more of the trace's correlation. circular: blocks may
    run over the trace's end into its beginning, which gives every gap the same chance; otherwise the first
    and last are rarer.
    """

    block_gaps: Count = 50
    circular: bool = True

    paper: ClassVar[str] = "moving-block bootstrap (Künsch, 1989), circular (Politis and Romano, 1992)"

    def chunks(self, seed: int) -> Iterator[Floats]:
        gaps = np.diff(self.recorded_ms())
        if self.block_gaps > len(gaps):
            what = f"has {len(gaps)} gaps, fewer than a block of {self.block_gaps}"
            raise TraceError.at(self.trace.path, what)
        if not gaps.any():
            raise TraceError.at(self.trace.path, "all arrivals are at one instant: no time would ever pass")
        return summed(self._drawn(seed, gaps))

    def _drawn(self, seed: int, gaps: Floats) -> Iterator[Floats]:
        draws = stream(seed, "arrivals")
        starts = len(gaps) if self.circular else len(gaps) - self.block_gaps + 1
        blocks = max(1, CHUNK // self.block_gaps)
        inside = np.arange(self.block_gaps)
        while True:
            first = draws.integers(starts, size=blocks)
            yield gaps[((first[:, None] + inside) % len(gaps)).ravel()]
