"""Scheduling events gathered as they happen and handed to the record in blocks."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import numpy as np

from forerun.cluster.engine.record import Record
from forerun.cluster.engine.rules import Column, Rules

_BLOCK_EVENTS: Final = 8192


class EventLog:
    """A buffer in front of a `Record`: one event a call, with only the jobs whose GPUs changed.

    `flush` must be called when the run is over; until then the record lags by at most one block.
    """

    def __init__(self, record: Record) -> None:
        """record: where the events go."""
        self._record = record
        self._times_s: list[int] = []
        self._pending: list[int] = []
        self._first: list[int] = [0]
        self._rows: list[int] = []
        self._gpus: list[int] = []

    def add(self, now_s: int, rows: list[int], gpus: list[int], pending: int) -> None:
        """One event: jobs `rows` have `gpus` from now on, the others what they had; `pending` jobs wait."""
        self._times_s.append(now_s)
        self._pending.append(pending)
        self._rows += rows
        self._gpus += gpus
        self._first.append(len(self._rows))
        if len(self._times_s) >= _BLOCK_EVENTS:
            self.flush()

    def flush(self) -> None:
        """Hand everything gathered to the record."""
        if not self._times_s:
            return
        as_column = (
            np.array(values, np.int64)
            for values in (self._times_s, self._pending, self._first, self._rows, self._gpus)
        )
        self._record.add_events(*as_column)
        self._times_s, self._pending, self._first, self._rows, self._gpus = [], [], [0], [], []


class LoggedRules(Rules[int]):
    """Rules that write their events through a log: `record` is what they write into, `log` the buffer in front of it."""

    def __init__(self, record: Record) -> None:
        self.record, self.log = record, EventLog(record)

    def flush(self) -> None:
        """Hand the events gathered so far to the record."""
        self.log.flush()


def lengthen(columns: Sequence[Column], count: int) -> None:
    """Give lists this many elements; the new ones are set when jobs take their rows."""
    for column in columns:
        assert isinstance(column, list)
        column.extend(column[-1:] * (count - len(column)))
