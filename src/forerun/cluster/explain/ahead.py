"""Who had the GPUs that a job waited for, and who went first."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import Final

import numpy as np

from forerun.cluster.explain.job_story import Ahead, Wait
from forerun.cluster.inputs.arrays import F64, I64
from forerun.cluster.summary.causes import Caused
from forerun.cluster.summary.spans import Stretches

#: jobs that waited and went first that a stretch names
MOST_QUEUED: Final = 10


class Occupancy:
    """Who has GPUs of the nodes that a job may use, over time.

    Parameters
    ----------
    stretches : of the GPUs that jobs have there.
    total : how many GPUs there are.
    names : of the jobs.
    came_s : float64[jobs], when each came into the queue.
    row : of the job.
    """

    def __init__(
        self, stretches: Stretches, total: int, names: Sequence[int | str], came_s: F64, row: int
    ) -> None:
        self.stretches, self.total, self.row = stretches, total, row
        self._names, self._came_s = names, came_s
        self._by_begin: I64 = np.lexsort((stretches.row, stretches.from_s)).astype(np.int64)
        self._begins_s = stretches.from_s[self._by_begin]
        self._first_s = np.full(len(came_s), np.inf)
        np.minimum.at(self._first_s, stretches.row, stretches.from_s)
        #: of the stretches that began before the last instant asked about, those that had not ended; and how many began
        self._active: I64 = np.zeros(0, np.int64)
        self._begun = 0

    def waits(self, stretches: Sequence[Caused], end_s: float) -> Iterator[Wait]:
        """Stretches of the job's waiting, in order, with who had GPUs in each. end_s: when the last of it is over."""
        own_s = self.stretches.from_s[self.stretches.row == self.row]
        for one in stretches:
            starts = own_s[own_s >= one.to_s]
            yield self._wait(one, float(starts[0]) if len(starts) else end_s)

    def _wait(self, stretch: Caused, starts_s: float) -> Wait:
        """A stretch of waiting, after those before it. starts_s: when its waiting for whatever cause is over."""
        from_s, to_s = stretch.from_s, stretch.to_s
        of, present = self.stretches, self._present(from_s, to_s)
        seconds = np.minimum(of.to_s[present], to_s) - np.maximum(of.from_s[present], from_s)
        rows, group = np.unique(of.row[present], return_inverse=True)
        gpu_s = np.bincount(group, seconds * of.gpus[present], len(rows))
        most = np.zeros(len(rows), np.int64)
        np.maximum.at(most, group, of.gpus[present])
        in_use = math.fsum(gpu_s)
        return Wait(
            from_s=from_s,
            to_s=to_s,
            cause=stretch.cause,
            because=stretch.because,
            in_use_gpu_s=in_use,
            free_gpu_s=self.total * (to_s - from_s) - in_use,
            ahead=tuple(
                Ahead(str(self._names[rows[at]]), float(gpu_s[at]), int(most[at]), self._since(int(rows[at])))
                for at in np.argsort(-gpu_s, kind="stable").tolist()
            ),
            queued_before=self._queued_before(
                from_s, starts_s, of.row[present[of.from_s[present] <= from_s]]
            ),
        )

    def _present(self, from_s: float, to_s: float) -> I64:
        """The stretches of GPUs that overlap a stretch of time, which begins no earlier than the one asked about before."""
        of, last = self.stretches, int(np.searchsorted(self._begins_s, to_s))
        candidates = np.concatenate((self._active, self._by_begin[self._begun : last]))
        self._begun = max(self._begun, last)
        self._active = candidates[of.to_s[candidates] > from_s]
        return self._active[of.from_s[self._active] < to_s]

    def _queued_before(self, at_s: float, starts_s: float, holding: I64) -> tuple[str, ...]:
        """Who waited at an instant and got GPUs before this job did, the first of them first. holding: who did not wait."""
        first, last = (
            np.searchsorted(self._begins_s, at_s, side="right"),
            np.searchsorted(self._begins_s, starts_s),
        )
        passed: dict[int, None] = {}
        for row in self.stretches.row[self._by_begin[first:last]].tolist():
            if self._came_s[row] <= at_s and row not in passed and row not in holding:
                passed[row] = None
                if len(passed) == MOST_QUEUED:
                    break
        return tuple(str(self._names[row]) for row in passed)

    def _since(self, other: int) -> str:
        """How another job came to be ahead of this one."""
        came_s = self._came_s
        if self._first_s[other] <= came_s[self.row] and came_s[other] < came_s[self.row]:
            return "ran when it came"
        before = (came_s[other], other) < (came_s[self.row], self.row)
        return "came before it" if before else "came after it"


def total_ahead(waits: Sequence[Wait]) -> list[tuple[str, float]]:
    """The jobs that had GPUs in some stretches, with their GPU-seconds there, most first."""
    totals: dict[str, float] = {}
    for one in (one for wait in waits for one in wait.ahead):
        totals[one.job] = totals.get(one.job, 0.0) + one.gpu_s
    return sorted(totals.items(), key=lambda item: -item[1])
