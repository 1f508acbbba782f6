"""Submissions as the published simulators keep them: one batch an instant, merged when they fall within a slot."""

from __future__ import annotations

from collections import deque
from typing import Any

import numpy as np

from forerun.cluster.inputs.arrays import I64, NEVER_S


class Arrivals:
    """Batches of jobs (rows, in order of submission) by instant, consumed from the front.

    Batches less than a slot ahead are postponed to the end of that slot and become one; the last batch of all is
    never postponed. That is the published merging rule, and why a trace's end can change a run's beginning. Where more
    jobs may always come, the last one is postponed as well.
    """

    def __init__(self, submit_s: I64) -> None:
        """submit_s: when the jobs come, ascending; rows that are spare come last."""
        self.is_open = False
        self._postponed_s = (0, -1)  # what comes within this span is postponed to its end
        submit_s = submit_s[submit_s < NEVER_S]
        if not len(submit_s):
            self._batches: deque[list[Any]] = deque()
            return
        at, first = np.unique(submit_s, return_index=True)
        ends = [*first[1:].tolist(), len(submit_s)]
        self._batches = deque(
            [time_s, list(range(start, end))]
            for time_s, start, end in zip(at.tolist(), first.tolist(), ends, strict=True)
        )

    def __len__(self) -> int:
        return len(self._batches)

    @property
    def next_s(self) -> int | None:
        """When the next batch is due, None after the last."""
        return self._batches[0][0] if self._batches else None

    def take(self, now_s: int) -> list[int]:
        """The jobs due by this instant, taken away."""
        rows: list[int] = []
        if not self._batches or self._batches[0][0] > now_s:
            return rows
        while self._batches and self._batches[0][0] <= now_s:
            rows += self._batches.popleft()[1]
        return rows

    def add(self, time_s: int, row: int) -> None:
        """One more job comes, not before those that are known."""
        begin_s, end_s = self._postponed_s
        time_s = end_s if begin_s <= time_s <= end_s else time_s
        if self._batches and self._batches[-1][0] >= time_s:
            self._batches[-1][1].append(row)
        else:
            self._batches.append([time_s, [row]])

    def merge(self, now_s: int, slot_s: int) -> None:
        """Join what comes within a slot of now into one batch at its end."""
        batches = self._batches
        if self.is_open:
            self._postponed_s = (now_s, now_s + slot_s)
            rows = self.take(now_s + slot_s)
            if rows:
                batches.appendleft([now_s + slot_s, rows])
            return
        if not batches:
            return
        front = batches[0]
        next_s = front[0]
        while next_s - now_s <= slot_s and len(batches) > 1:
            front[0] = now_s + slot_s
            if batches[1][0] - now_s > slot_s:
                break
            next_s = batches[1][0]
            front[1] += batches[1][1]
            del batches[1]
