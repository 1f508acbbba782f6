"""Runs that go on without getting anywhere: every restart is cut short by the next before any work is done."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from typing import Final

from forerun.cluster.engine.record import Record

#: instants after which a run is looked at again
INSTANTS_BETWEEN: Final = 1000


class Standstill:
    """Compares what a run has done now and then; once all jobs have come, no change means that there will be none.

    A schedule that charges restarts at each of its instants can do so faster than jobs can resume.
    """

    def __init__(self, record: Record) -> None:
        self.record = record
        self.instants = 0
        self.before: Hashable = None
        self.is_reached = False

    def check(self, now_s: int, done: Callable[[], Hashable]) -> bool:
        """Whether the run is over because nothing was done since the last look; `done`: ends and work so far."""
        self.instants += 1
        if self.instants % INSTANTS_BETWEEN == 0 and not self.is_reached:
            now = done()
            self.is_reached = now == self.before
            self.before = now
            if self.is_reached:
                self.record.ended_because = (
                    f"at {now_s} s: the schedule charged restarts at {INSTANTS_BETWEEN} instants in a row before any job "
                    "got work done; those left never end"
                )
        return self.is_reached
