"""Where a latency says nothing: near saturation, where iterations that take a little longer or shorter change it by half."""

from __future__ import annotations

from typing import Final

#: how much longer and shorter iterations are tried
STEP: Final = 0.05
#: a figure that this changes by more, up or down, is near saturation
KNEE: Final = 0.5


def saturating(value: float, above: float, below: float) -> bool:
    """Whether a figure is so near saturation that its value says nothing.

    Parameters
    ----------
    value, above, below : of the figure, with iterations as they are, longer and shorter by `STEP`.
    """
    return value > 0 and (above / value - 1 > KNEE or 1 - below / value > KNEE)
