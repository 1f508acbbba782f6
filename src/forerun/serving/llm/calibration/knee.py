"""Errors grow towards saturation: a figure is as many times as far off as it grows faster than the time of an iteration, and
where iterations that take a little longer or shorter change it by half it says nothing. What a client and its network take
outside of iterations, where that was measured with another one, is less sure than iterations are."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Final

from forerun.core.result.stats import normal_quantile
from forerun.serving.llm.scenario.language_model import FitRecord

#: how much longer and shorter iterations are tried
STEP: Final = 0.05
#: a figure that this changes by more, up or down, is near saturation
KNEE: Final = 0.5
#: how many times as unsure as an iteration another client's time is: it may be half or twice, an iteration by a server that
#: was never measured is off by so much (`bottom_up.UNSEEN`)
CLIENT: Final = math.log(2) / 0.15
#: what the names of figures begin with that contain it
OUTSIDE: Final = ("ttft", "e2e")
#: share of unseen figures that an interval should cover
COVERED: Final = 0.9
#: standard deviations in half such an interval
DEVIATIONS: Final = normal_quantile(0.5 + COVERED / 2)


def saturating(value: float, above: float, below: float) -> bool:
    """Whether a figure is so near saturation that its value says nothing.

    Parameters
    ----------
    value, above, below : of the figure, with iterations as they are, longer and shorter by `STEP`.
    """
    return value > 0 and (above / value - 1 > KNEE or 1 - below / value > KNEE)


def growth(value: float, above: float, below: float) -> float:
    """How many times as fast as iterations a figure grows, 1 at the least. Parameters as those of `saturating`."""
    if not 0 < below <= value <= above < math.inf:
        return 1.0
    return max(1.0, math.log(above / value) / math.log1p(STEP), math.log(below / value) / math.log1p(-STEP))


def unsure(name: str, value: float, grows: float, client_ms: float) -> float:
    """How many times as unsure as an iteration a figure is.

    Parameters
    ----------
    name, value : of the figure.
    grows : as `growth` says.
    client_ms : of the value, what another client took outside of iterations; 0 for one that was measured.
    """
    return grows + (CLIENT * client_ms / value if name.startswith(OUTSIDE) else 0.0)


def interval(
    name: str,
    at: Callable[[float], Mapping[str, float]],
    record: FitRecord,
    *,
    error: str = "",
    growing: bool = False,
) -> tuple[float, float, bool]:
    """Where a measurement should lie, and whether the figure is near saturation.

    Parameters
    ----------
    name : of the figure.
    at : figures with iterations so many times as long.
    record : what the fit knows of its errors.
    error : the figure whose error counts (default: its own).
    growing : it grows with the length of the trace (default: not).
    """
    value, above, below = (at(factor)[name] for factor in (1.0, 1 + STEP, 1 - STEP))
    if not 0 < value < math.inf:
        return value, value, False
    own, step = record.errors.get(error or name, record.step_error), record.step_error
    if growing or saturating(value, above, below):
        # What a small change does says nothing of a larger one there, so that is simulated.
        least, most = value * math.exp(-own), value * math.exp(own)
        return min(least, at(math.exp(-step))[name]), max(most, at(math.exp(step))[name]), True
    half = own * unsure(error or name, value, growth(value, above, below), record.client_ms)
    return value * math.exp(-half), value * math.exp(half), False
