"""What "now" is in a run, and how long to wait for an instant of it.

A run's time is in seconds on the trace's own axis. Under the wall clock a second of the run is a second; a compressed
clock goes k times as fast; a fast-forward clock stands while anything starts or leaves, and jumps to the next instant
otherwise. Leases, heartbeats, drains and hang limits are wall seconds under every clock.
"""

from __future__ import annotations

import math
import re
import time
from pathlib import Path
from typing import Final, Protocol

from forerun.core.errors import UsageError
from forerun.live.controller import Course
from forerun.live.journal import Origin

_COMPRESSED: Final = re.compile(r"compressed:(\d+(?:\.\d+)?)")
#: wall seconds that a decision may be late and still counts as made when it was due
LATE_WALL_S: Final = 0.2


class Clock(Protocol):
    """The time of a run.

    Attributes
    ----------
    course : how it goes.
    """

    course: Course

    def begin(self, now_s: float) -> None:
        """Let the time of the run go on from an instant: it begins, or is taken up again."""

    def now_s(self) -> float:
        """The present instant of the run."""

    def wall_s(self) -> float:
        """Wall seconds since some fixed instant; never set back, and going on while the machine sleeps."""

    def wait_s(self, due_s: float) -> float:
        """Wall seconds until an instant of the run; 0 once it is there."""

    def jump(self, to_s: float) -> None:
        """Go to a later instant at once, under a clock that jumps."""


def boot_s() -> float:
    """Seconds since the machine started, sleep included."""
    return time.clock_gettime(time.CLOCK_BOOTTIME)


def origin_at(now_s: float) -> Origin:
    """The present instant of the machine's clocks, at an instant of the run."""
    return Origin(now_s=now_s, boot_id=_boot_id(), boot_s=boot_s(), unix_s=time.time())


def passed_s(origin: Origin) -> float:
    """Wall seconds since an origin; by the calendar only if the machine has started again since."""
    if origin.boot_id == _boot_id():
        return max(0.0, boot_s() - origin.boot_s)
    return max(0.0, time.time() - origin.unix_s)


def _boot_id() -> str:
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    except OSError:
        return ""


class WallClock:
    """The time of the run goes with the wall's, or a factor as fast.

    Parameters
    ----------
    factor : seconds of the run in a wall second (default: 1).
    """

    def __init__(self, factor: float = 1.0) -> None:
        self.course = Course(factor, late_s=1.0 + LATE_WALL_S * factor)
        self._from_s, self._wall_s = 0.0, boot_s()

    def begin(self, now_s: float) -> None:
        """Let the time go on from an instant."""
        self._from_s, self._wall_s = now_s, boot_s()

    def now_s(self) -> float:
        """The present instant of the run."""
        return self._from_s + (boot_s() - self._wall_s) * self.course.factor

    def wall_s(self) -> float:
        """Wall seconds."""
        return boot_s()

    def wait_s(self, due_s: float) -> float:
        """Wall seconds until an instant."""
        return max(0.0, (due_s - self.now_s()) / self.course.factor)

    def jump(self, to_s: float) -> None:
        """It does not jump."""


class FastForwardClock:
    """The time of the run stands, but for jumps."""

    def __init__(self) -> None:
        self.course = Course(jumps=True)
        self._now_s = 0.0

    def begin(self, now_s: float) -> None:
        """Let the time stand at an instant."""
        self._now_s = now_s

    def now_s(self) -> float:
        """The present instant of the run."""
        return self._now_s

    def wall_s(self) -> float:
        """Wall seconds."""
        return boot_s()

    def wait_s(self, due_s: float) -> float:
        """Nothing comes by waiting."""
        return 0.0 if due_s <= self._now_s else math.inf

    def jump(self, to_s: float) -> None:
        """Go to an instant."""
        self._now_s = max(self._now_s, to_s)


def clock_of(text: str) -> Clock:
    """The clock that a name says: wall, compressed:K, or fast-forward. Raises UsageError for anything else."""
    if text == "wall":
        return WallClock()
    if text == "fast-forward":
        return FastForwardClock()
    if (match := _COMPRESSED.fullmatch(text)) and float(match[1]) >= 1:
        return WallClock(float(match[1]))
    raise UsageError.at(
        "--clock", f"no clock {text!r}; known: wall, compressed:K with K from 1, fast-forward"
    )
