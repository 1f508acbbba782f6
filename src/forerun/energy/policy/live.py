"""Choosing a power limit while a job trains: a state machine driven by the starts of steps and the ends of epochs.

It touches no GPU and reads no clock: a `Device` sets limits, and opens and closes windows. The same machine runs behind
a real training and in a test.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Protocol


@dataclass(frozen=True, slots=True)
class Stage:
    """A stage of measuring one limit.

    limit: index of the limit. steps: step beginnings after which the next stage follows.
    """

    limit: int
    steps: int


class Ready(Stage):
    """Waiting to measure a limit. → Warmup."""


class Warmup(Stage):
    """The limit is set and settles. → Measuring; → Ready at an epoch's end."""


class Measuring(Stage):
    """A window is open. → Warmup of the next limit, or Done; → Ready at an epoch's end."""


@dataclass(frozen=True, slots=True)
class Done:
    """The limit is chosen [W] and stays."""

    limit_w: float


State = Ready | Warmup | Measuring | Done


@dataclass(frozen=True, slots=True)
class Window:
    """What the steps at one limit took.

    limit_w: the limit [W]. energy_j: joules of all GPUs together. time_s: seconds of the slowest.
    """

    limit_w: float
    energy_j: float
    time_s: float


class Device(Protocol):
    """What the machine needs: GPUs whose limits can be set, and a meter."""

    def set_limit(self, limit_w: float) -> None:
        """Limit all GPUs of the job [W]."""

    def open_window(self) -> None:
        """Start counting joules and seconds."""

    def close_window(self) -> tuple[float, float]:
        """Stop counting: joules over all GPUs, seconds of the slowest."""

    def cancel_window(self) -> None:
        """Forget a window that was opened."""


class LimitProfiler:
    """Measures every limit for some steps, then keeps the selector's choice. On exit as a context it sets the top limit.

    limits_w: from the top down [W]. device: sets limits and measures. select: maps the windows, in the order measured, to a
    limit [W]. wait_steps: steps before the first limit is set (default 1). warmup_steps, measure_steps: steps at each limit
    before and in its window (default 10 and 40). saved: windows of an earlier profile, which replace the measuring.
    """

    def __init__(
        self,
        limits_w: Sequence[float],
        device: Device,
        select: Callable[[Sequence[Window]], float],
        *,
        wait_steps: int = 1,
        warmup_steps: int = 10,
        measure_steps: int = 40,
        saved: Sequence[Window] = (),
    ) -> None:
        self.limits_w = tuple(limits_w)
        self.windows: list[Window] = list(saved)
        self._device, self._select = device, select
        self._warmup_steps, self._measure_steps = warmup_steps, measure_steps
        self._current_w: float | None = None
        self.state: State = Ready(0, wait_steps + 1)
        if saved:
            self._finish()

    def __enter__(self) -> LimitProfiler:
        return self

    def __exit__(self, *_failure: object) -> None:
        self._set(self.limits_w[0])

    def step_begins(self) -> None:
        """A training step is about to run."""
        match self.state:
            case Done():
                return
            case Ready() | Warmup() | Measuring() if self.state.steps > 1:
                self.state = replace(self.state, steps=self.state.steps - 1)
            case Ready(limit):
                self._warm_up(limit)
            case Warmup(limit):
                self._device.open_window()
                self.state = Measuring(limit, self._measure_steps)
            case Measuring(limit):
                energy_j, time_s = self._device.close_window()
                self.windows.append(Window(self.limits_w[limit], energy_j, time_s))
                if limit + 1 < len(self.limits_w):
                    self._warm_up(limit + 1)
                else:
                    self._finish()

    def epoch_ends(self) -> None:
        """Validation follows: the current measurement is discarded and starts again in the next epoch."""
        match self.state:
            case Warmup(limit) | Measuring(limit):
                if isinstance(self.state, Measuring):
                    self._device.cancel_window()
                self._set(self.limits_w[0])
                self.state = Ready(limit, 1)

    def _warm_up(self, limit: int) -> None:
        """Set the limit of this index and let it settle."""
        self._set(self.limits_w[limit])
        self.state = Warmup(limit, self._warmup_steps)

    def _finish(self) -> None:
        """Choose a limit from the windows and set it."""
        chosen = self._select(self.windows)
        self._set(chosen)
        self.state = Done(chosen)

    def _set(self, limit_w: float) -> None:
        """Set a limit, unless it is set already."""
        if limit_w != self._current_w:
            self._device.set_limit(limit_w)
            self._current_w = limit_w
