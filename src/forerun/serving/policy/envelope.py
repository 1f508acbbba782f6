"""Traffic envelopes: the most arrivals that any window of a length has seen.

A window begins at an arrival a and covers a..a + W, both ends included. The envelope of a trace over windows of several
lengths says how bursty it is at every time scale at once [network calculus; InferLine, Crankshaw et al., SoCC'20].
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Sequence
from typing import Final

import numpy as np
from numpy.typing import NDArray

from forerun.serving.inputs.pipeline import Floats

#: the longest window, and how far a live envelope looks back
MINUTE_MS: Final = 60_000.0


def mean_rate_rps(arrivals: Floats) -> float:
    """Arrivals a second: the number of gaps over the time that they span; NaN if that is no time at all."""
    span_ms = float(arrivals[-1] - arrivals[0])
    return (len(arrivals) - 1) * 1e3 / span_ms if span_ms > 0 else math.nan


def doubling_windows_ms(shortest_ms: float, longest_ms: float = MINUTE_MS) -> tuple[float, ...]:
    """`shortest_ms`, twice that, four times ... as long as below `longest_ms`, then `longest_ms`.

    Parameters
    ----------
    shortest_ms : the first length; 0 gives the longest alone.
    longest_ms : the last length (default: a minute).
    """
    windows = []
    window_ms = shortest_ms
    while 0 < window_ms < longest_ms:
        windows.append(window_ms)
        window_ms *= 2
    return (*windows, longest_ms)


def envelope(
    arrivals_ms: Floats, windows_ms: Sequence[float], *, half_open: bool = False
) -> NDArray[np.int64]:
    """int64[windows]: the most arrivals in any window that begins at an arrival.

    Parameters
    ----------
    arrivals_ms : float64[n], ascending.
    windows_ms : lengths of windows.
    half_open : a window a..a + W leaves out its end (default: it does not).
    """
    most = np.zeros(len(windows_ms), dtype=np.int64)
    if not len(arrivals_ms):
        return most
    begins = np.arange(len(arrivals_ms))
    for i, window_ms in enumerate(windows_ms):
        ends = np.searchsorted(arrivals_ms, arrivals_ms + window_ms, side="left" if half_open else "right")
        most[i] = int((ends - begins).max())
    return most


class LiveEnvelope:
    """The envelope of the arrivals within `history_ms` before now, kept up to date as time passes.

    At `now` it equals `envelope` of the arrivals in (now - history, now]. A window's count is settled once its end has
    passed; of the settled ones only those stay that no later window exceeds, so an arrival is handled once a window
    length, whatever the history.
    """

    def __init__(self, windows_ms: Sequence[float], history_ms: float = MINUTE_MS) -> None:
        """Begin with no arrival seen.

        Parameters
        ----------
        windows_ms : lengths of windows.
        history_ms : how far back arrivals count (default: a minute).
        """
        self.windows_ms = tuple(windows_ms)
        self.history_ms = history_ms
        #: per window length the first arrival whose window has not ended, and (arrival, count) of settled ones
        self._open = [0] * len(self.windows_ms)
        self._settled: list[deque[tuple[int, int]]] = [deque() for _ in self.windows_ms]

    def at(self, now_ms: float, arrivals_ms: Floats) -> NDArray[np.int64]:
        """int64[windows] at `now_ms`, no earlier than at the last call.

        Parameters
        ----------
        arrivals_ms : every arrival up to `now_ms`, those of the last call first.
        """
        known = len(arrivals_ms)
        oldest = int(np.searchsorted(arrivals_ms, now_ms - self.history_ms, side="right"))
        most = np.zeros(len(self.windows_ms), dtype=np.int64)
        for i, window_ms in enumerate(self.windows_ms):
            settled = self._settled[i]
            first = self._open[i]
            # A window that ends at now counts as open: the same, and no question of rounding (a + W, not now - W).
            near = int(np.searchsorted(arrivals_ms, now_ms - window_ms + 1.0, side="right"))
            fresh = arrivals_ms[first : max(first, near)]
            ended = int(np.searchsorted(fresh + window_ms, now_ms, side="left"))
            if ended:
                stops = np.searchsorted(arrivals_ms, fresh[:ended] + window_ms, side="right")
                self._settle(settled, first, stops - np.arange(first, first + ended))
                self._open[i] = first + ended
            while settled and settled[0][0] < oldest:
                settled.popleft()
            # Of windows that have not ended the one that began first has the most.
            still = known - max(self._open[i], oldest)
            most[i] = max(settled[0][1] if settled else 0, still)
        return most

    @staticmethod
    def _settle(settled: deque[tuple[int, int]], first: int, counts: NDArray[np.int64]) -> None:
        """Add counts of consecutive windows; earlier ones that are not above all later ones are dropped."""
        most_after = np.maximum.accumulate(counts[::-1])[::-1]
        exceeding = np.flatnonzero(counts > np.append(most_after[1:], -1))
        while settled and settled[-1][1] <= most_after[0]:
            settled.pop()
        settled.extend((first + int(at), int(counts[at])) for at in exceeding)
