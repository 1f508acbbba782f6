"""One value over time, piecewise constant: a price, a capacity, a carbon intensity, a rate.

The value set at `times_s[i]` is valid on [times_s[i], times_s[i+1]), the last one until `end_s`. Outside
[times_s[0], end_s) a signal has no value, and asking for one is an error: extending it is a decision somebody
makes with `repeated`.
"""

from __future__ import annotations

from functools import cached_property

import numpy as np
from numpy.typing import ArrayLike, NDArray

from forerun.core.errors import TraceError

Floats = NDArray[np.float64]


class Signal:
    """A step function with a unit.

    Parameters
    ----------
    times_s : float64[n], strictly increasing instants in seconds, n >= 1.
    values : float64[n], finite; each holds from its instant to the next.
    unit : of the values, such as `$/h`.
    end_s : where the last value stops holding, exclusive (default: infinity: it never does).
    name : for messages (default: `signal`).

    Raises TraceError if the steps are empty, unequal in number, not finite, or not increasing.
    """

    def __init__(
        self, times_s: ArrayLike, values: ArrayLike, *, unit: str, end_s: float = np.inf, name: str = "signal"
    ) -> None:
        self.times_s: Floats = np.array(times_s, dtype=np.float64)
        self.values: Floats = np.array(values, dtype=np.float64)
        self.unit = unit
        self.end_s = float(end_s)
        self.name = name
        self._check()
        self.times_s.flags.writeable = False
        self.values.flags.writeable = False

    def _check(self) -> None:
        if self.times_s.ndim != 1 or self.times_s.shape != self.values.shape:
            raise TraceError.at(self.name, f"{self.times_s.shape} instants for {self.values.shape} values")
        if not len(self.times_s):
            raise TraceError.at(self.name, "a signal needs at least one step")
        for what, array in (("instant", self.times_s), ("value", self.values)):
            if not np.isfinite(array).all():
                raise TraceError.at(self.name, f"{what} {int(np.argmin(np.isfinite(array)))} is not finite")
        if (back := np.flatnonzero(np.diff(self.times_s) <= 0)).size:
            i = int(back[0]) + 1
            raise TraceError.at(
                self.name,
                f"instant {i}, {self.times_s[i]:g} s, is not after the previous {self.times_s[i - 1]:g} s",
            )
        if not self.end_s > self.times_s[-1]:
            raise TraceError.at(
                self.name, f"ends at {self.end_s:g} s, not after its last step ({self.times_s[-1]:g} s)"
            )

    @classmethod
    def constant(cls, value: float, *, unit: str, start_s: float = 0.0, end_s: float = np.inf) -> Signal:
        """One value from `start_s` on."""
        return cls([start_s], [value], unit=unit, end_s=end_s)

    @property
    def start_s(self) -> float:
        """The first instant with a value."""
        return float(self.times_s[0])

    def __len__(self) -> int:
        return len(self.times_s)

    def __eq__(self, other: object) -> bool:
        return (
            isinstance(other, Signal)
            and (self.unit, self.end_s) == (other.unit, other.end_s)
            and np.array_equal(self.times_s, other.times_s)
            and np.array_equal(self.values, other.values)
        )

    def __hash__(self) -> int:
        return hash((self.unit, self.end_s, self.times_s.tobytes(), self.values.tobytes()))

    def __repr__(self) -> str:
        return (
            f"<Signal {self.name} in {self.unit}: {len(self)} steps on [{self.start_s:g}, {self.end_s:g}) s>"
        )

    def at(self, time_s: float) -> float:
        """The value at an instant [s]; the new one at the instant of a step. TraceError outside the signal."""
        return float(self.sampled([time_s])[0])

    def sampled(self, times_s: ArrayLike) -> Floats:
        """The value at each of several instants, in any order."""
        instants = np.asarray(times_s, dtype=np.float64)
        self._inside(instants, instants < self.end_s)
        values: Floats = self.values[np.searchsorted(self.times_s, instants, side="right") - 1]
        return values

    def integral(self, start_s: ArrayLike, stop_s: ArrayLike) -> Floats:
        """The integral over each [start, stop], in unit-seconds; negative where stop is before start.

        Both ends must lie in [start of the signal, end]; shapes broadcast.
        """
        total: Floats = self._primitive(stop_s) - self._primitive(start_s)
        return total

    def mean(self, start_s: float, stop_s: float) -> float:
        """The time average over [start, stop), in the signal's unit; the value itself where the two are equal.

        Parameters
        ----------
        start_s, stop_s : both within the signal, else TraceError.
        """
        if start_s == stop_s:
            return self.at(float(start_s))
        return float(self.integral(start_s, stop_s)) / (stop_s - start_s)

    def window(self, start_s: float, stop_s: float) -> Signal:
        """The part on [start, stop)."""
        first = self.at(float(start_s))
        if not start_s < stop_s <= self.end_s:
            raise TraceError.at(
                self.name,
                f"[{start_s:g}, {stop_s:g}) s is not a part of [{self.start_s:g}, {self.end_s:g}) s",
            )
        inside = (self.times_s > start_s) & (self.times_s < stop_s)
        times, values = np.r_[start_s, self.times_s[inside]], np.r_[first, self.values[inside]]
        return Signal(times, values, unit=self.unit, end_s=stop_s, name=self.name)

    def repeated(self, end_s: float) -> Signal:
        """The signal played again and again until `end_s` (a day of prices for a month)."""
        period = self.end_s - self.start_s
        if not (np.isfinite(period) and np.isfinite(end_s)):
            raise TraceError.at(
                self.name, "only a signal with an end can be repeated, up to a finite instant"
            )
        if end_s <= self.end_s:
            return self.window(self.start_s, end_s)
        rounds = np.arange(int(np.ceil((end_s - self.start_s) / period)))
        times = (self.times_s[None, :] + rounds[:, None] * period).ravel()
        keep = times < end_s
        return Signal(
            times[keep], np.tile(self.values, len(rounds))[keep], unit=self.unit, end_s=end_s, name=self.name
        )

    @cached_property
    def _steps(self) -> Floats:
        """Integral from the start to each step."""
        steps: Floats = np.concatenate([[0.0], np.cumsum(self.values[:-1] * np.diff(self.times_s))])
        return steps

    def _primitive(self, time_s: ArrayLike) -> Floats:
        instants = np.asarray(time_s, dtype=np.float64)
        self._inside(instants, (instants <= self.end_s) & np.isfinite(instants))
        step = np.searchsorted(self.times_s, instants, side="right") - 1
        primitive: Floats = self._steps[step] + self.values[step] * (instants - self.times_s[step])
        return primitive

    def _inside(self, instants: Floats, before_end: NDArray[np.bool_]) -> None:
        good = (instants >= self.start_s) & before_end
        if not np.all(good):
            bad = float(np.ravel(instants)[np.argmin(np.ravel(good))])
            raise TraceError.at(
                self.name, f"has no value at {bad:g} s; it is known on [{self.start_s:g}, {self.end_s:g}) s"
            )
