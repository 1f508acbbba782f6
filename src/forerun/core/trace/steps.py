"""A value over time as people write it in a scenario, and the signal it stands for."""

from __future__ import annotations

import itertools
from typing import Final

from forerun.core.scenario.spec import Spec
from forerun.core.trace.signal import Signal

#: how often a repeated stretch is played: a day of prices lasts eleven years
REPEATS: Final = 4096


class Steps(Spec, frozen=True, kw_only=True):
    """A value over time: `steps` of [from second, value], repeated every `repeat_s` (0: the last value stays)."""

    steps: tuple[tuple[float, float], ...]
    repeat_s: float = 0.0

    def problems(self) -> list[tuple[str, str]]:
        """Steps begin at 0 and increase; a period ends after the last of them."""
        if not self.steps:
            return [("steps", "is empty; write [[0, value], ...]")]
        problems = []
        times = [time for time, _ in self.steps]
        if times[0] != 0:
            problems.append(("steps", f"begins at {times[0]:g} s; the first step is at 0"))
        if any(later <= earlier for earlier, later in itertools.pairwise(times)):
            problems.append(("steps", "times do not increase"))
        if any(value < 0 for _, value in self.steps):
            problems.append(("steps", "a value is negative"))
        if self.repeat_s and self.repeat_s <= times[-1]:
            problems.append(("repeat_s", f"{self.repeat_s:g} s ends before the last step at {times[-1]:g} s"))
        return problems


def signal(steps: Steps | None, *, unit: str, name: str) -> Signal | None:
    """A scenario's steps as a signal: repeated 4096 times, or with the last value for ever.

    Parameters
    ----------
    steps : as the scenario gives them (None: None is returned).
    unit : of the values.
    name : of the field, for messages.
    """
    if steps is None:
        return None
    times, values = zip(*steps.steps)
    if not steps.repeat_s:
        return Signal(times, values, unit=unit, name=name)
    one = Signal(times, values, unit=unit, end_s=steps.repeat_s, name=name)
    return one.repeated(steps.repeat_s * REPEATS)
