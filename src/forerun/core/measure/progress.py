"""How far a measurement is, in words: an estimate first, then every step with the time that is left."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Final

from forerun.core.study.estimate import duration

#: what shows a person how far things are
Tell = Callable[[str], None]

#: seconds between two words about one step
EVERY_S: Final = 5.0


class StepProgress:
    """The steps of a measurement.

    Parameters
    ----------
    tell : gets the lines.
    expected_s : how long each may take, by estimate; 0 where it is not known: then it is taken to last as long as
        those before it on average.
    clock : seconds (default: the monotonic clock).
    """

    def __init__(
        self, tell: Tell, expected_s: Sequence[float], clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._tell, self._expected_s, self._clock = tell, list(expected_s), clock
        self._number = 0
        self._begun_s = self._step_s = self._reported_s = clock()

    def begin(self, name: str) -> None:
        """The next step begins."""
        self._step_s = self._reported_s = self._clock()
        self._number += 1
        self._tell(f"{name} ({self._number} of {len(self._expected_s)}){self._left(0.0)}")

    def at(self, share: float, what: str) -> None:
        """Report how far the step is, at most every few seconds.

        Parameters
        ----------
        share : of the step that is done, 0 to 1; the time left is estimated from it.
        what : the same in words.
        """
        if self._clock() - self._reported_s >= EVERY_S:
            self._reported_s = self._clock()
            self._tell(f"  {what}{self._left(share)}")

    def _left(self, share: float) -> str:
        """The time left, where it can be known: of this step by what it has taken, of the others as expected."""
        now_s, done = self._clock(), self._number - 1
        average_s = (self._step_s - self._begun_s) / done if done else 0.0
        this_s, *others_s = [one or average_s for one in self._expected_s[done:]]
        if share > 0:
            this_s = (now_s - self._step_s) / share
        if not this_s:
            return ""
        left_s = max(0.0, this_s * (1 - share)) + sum(others_s)
        return f", about {duration(left_s)} left"
