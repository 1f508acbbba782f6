"""How long the rest of many simulations takes, from those that have ended."""

from __future__ import annotations

import time
from collections.abc import Callable


class Estimate:
    """The time left, without compilation: in every process the first simulation compiles or loads kernels.

    workers: processes that simulate. The time counts from the end of as many simulations on; until one more has ended
    there is no estimate. clock: seconds, monotonic.
    """

    def __init__(self, workers: int = 1, clock: Callable[[], float] = time.monotonic) -> None:
        self._workers, self._clock = workers, clock
        self._begun: int | None = None
        self._warm: tuple[int, float] | None = None
        self._now: tuple[int, float] | None = None

    def see(self, done: int) -> None:
        """So many have ended by now. The first call is before the first simulation: those are of earlier runs."""
        at_s = self._clock()
        if self._begun is None:
            self._begun = done
        if self._warm is None and done - self._begun >= self._workers:
            self._warm = (done, at_s)
        self._now = (done, at_s)

    @property
    def each_s(self) -> float | None:
        """Seconds from one end to the next, all processes together; None where too few have ended."""
        if self._warm is None or self._now is None or self._now[0] <= self._warm[0]:
            return None
        return (self._now[1] - self._warm[1]) / (self._now[0] - self._warm[0])

    def left(self, most: int) -> str:
        """In words, the time until `most` have ended; empty where it is not known."""
        if self.each_s is None or self._now is None:
            return ""
        return duration(self.each_s * (most - self._now[0]))


def duration(seconds: float) -> str:
    """A rough length of time: `3 s`, `4 min`, `2.5 h`."""
    if seconds < 100:
        return f"{max(seconds, 0.1):.2g} s"
    return f"{seconds / 60:.0f} min" if seconds < 6000 else f"{seconds / 3600:.2g} h"
