"""Traffic that changes: one process after another, or a rate and burstiness that move from one to the next."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated, ClassVar

import numpy as np

from forerun.core.rng import stream, stream_key
from forerun.core.scenario.numbers import Positive
from forerun.core.scenario.spec import Spec, chosen_from
from forerun.core.trace.arrivals import CHUNK, ArrivalProcess, Floats, processes
from forerun.core.trace.processes.gamma import Gamma
from forerun.core.trace.processes.poisson import Poisson

SCV_STEPS = 1000
FEWEST_GAPS = 8


class Phase(Spec, frozen=True, kw_only=True):
    """A process and how long it lasts."""

    process: Annotated[ArrivalProcess, chosen_from(processes)]
    duration_s: Positive


class Phases(ArrivalProcess, tag="phases", frozen=True, kw_only=True):
    """One process after another.

    interpolate false: each phase starts its process afresh, with a stream of its own, and is cut at its
    end.
    interpolate true: phases are `poisson` or `gamma`; rate and scv move linearly from a phase's values at
    its start to the next phase's at its end, and stay in the last. Gaps of mean 1 are laid on a clock that
    runs with the rate, so a gap reaches across a border without a seam; their scv moves in steps of a
    thousandth of the phase's gaps, or eight gaps if that is more.
    repeat: start again after the last phase (a day, every day); interpolation then leads back to the first.
    """

    phases: tuple[Phase, ...]
    interpolate: bool = False
    repeat: bool = False

    paper: ClassVar[str] = "piecewise traces as in InferLine (Crankshaw et al., SoCC'20, section 7)"

    def problems(self) -> list[tuple[str, str]]:
        problems = [] if self.phases else [("phases", "at least one phase is needed")]
        for number, phase in enumerate(self.phases):
            inner = phase.faults() + [(f"process.{path}", what) for path, what in phase.process.faults()]
            problems.extend((f"phases.{number}.{path}".rstrip("."), what) for path, what in inner)
            if self.interpolate and not isinstance(phase.process, Poisson | Gamma):
                what = "only poisson and gamma phases have a rate and scv to interpolate"
                problems.append((f"phases.{number}.process", what))
        return problems

    def chunks(self, seed: int) -> Iterator[Floats]:
        return self._moving(seed) if self.interpolate else self._in_turn(seed)

    def _turns(self) -> Iterator[tuple[int, float, Phase]]:
        """Number, start in seconds and phase of each turn."""
        number, start_s = 0, 0.0
        while number < len(self.phases) or self.repeat:
            phase = self.phases[number % len(self.phases)]
            yield number, start_s, phase
            start_s += phase.duration_s
            number += 1

    def _in_turn(self, seed: int) -> Iterator[Floats]:
        for number, start_s, phase in self._turns():
            own_seed = stream_key(seed, "arrivals", "phase", number)
            end_ms = phase.duration_s * 1e3
            for chunk in phase.process.chunks(own_seed):
                inside = chunk[: np.searchsorted(chunk, end_ms)]
                yield inside + start_s * 1e3
                if len(inside) < len(chunk):
                    break

    def _moving(self, seed: int) -> Iterator[Floats]:
        draws = stream(seed, "arrivals")
        left: float | None = None  # what the gap that reaches into this turn still needs
        for number, start_s, phase in self._turns():
            rate, rate_end, scv, scv_end = self._slopes(number)
            clock = _Clock(rate, rate_end, phase.duration_s)
            steps = 1 if scv == scv_end else SCV_STEPS
            block = int(min(max(clock.whole / steps, FEWEST_GAPS), CHUNK))
            shown = 0.0
            while True:
                if left is None:
                    share = float(clock.instants(np.array([shown]))[0]) / phase.duration_s
                    here = scv + (scv_end - scv) * share
                    gaps = draws.standard_gamma(1 / here, block) * here
                else:
                    gaps, left = np.array([left]), None
                marks = shown + np.cumsum(gaps)
                inside = marks[: np.searchsorted(marks, clock.whole)]
                yield (start_s + clock.instants(inside)) * 1e3
                if len(inside) < len(marks):
                    left = float(marks[len(inside)]) - clock.whole
                    break
                shown = float(marks[-1])

    def _slopes(self, number: int) -> tuple[float, float, float, float]:
        """Rate at start and end, scv at start and end, of a turn."""
        last = number + 1 >= len(self.phases) and not self.repeat
        here, there = (
            self.phases[turn % len(self.phases)].process for turn in (number, number if last else number + 1)
        )
        assert isinstance(here, Poisson | Gamma) and isinstance(there, Poisson | Gamma)
        return here.rate_rps, there.rate_rps, _scv(here), _scv(there)


def _scv(process: Poisson | Gamma) -> float:
    return process.squared_cv if isinstance(process, Gamma) else 1.0


class _Clock:
    """A clock whose rate changes linearly from `rate` to `rate_end` in `length_s`.

    It shows rate*t + slope*t^2/2 at t, so gaps of mean 1 on it are gaps of mean 1/rate in time.
    """

    def __init__(self, rate: float, rate_end: float, length_s: float) -> None:
        self.rate = rate
        self.slope = (rate_end - rate) / length_s
        self.length_s = length_s
        self.whole = (rate + rate_end) / 2 * length_s

    def instants(self, shown: Floats) -> Floats:
        """When the clock shows each value: the quadratic solved in the form that does not cancel."""
        root = np.sqrt(np.maximum(0.0, self.rate**2 + 2 * self.slope * shown))
        instants: Floats = np.minimum(2 * shown / (self.rate + root), self.length_s)
        return instants
