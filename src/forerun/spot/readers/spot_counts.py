"""How many preemptible nodes there were: count series in three public layouts.

`timestamp,count` with a header (Bamboo's full-64, CloudWatch's `time,count` with counts written 31.0; also `time_s,nodes`
and the like), `date, time, n` without one (Bamboo's Google Cloud polls), and the step function `seconds,count` with two rows
a change (its scaling groups).  A count says nothing about which node left, and a swap between two rows cannot be seen.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from forerun.core.errors import TraceError
from forerun.core.trace.reader import Head, TraceReader
from forerun.core.trace.repair import Complaints, RepairLog, shown
from forerun.core.trace.rows import Field, parse_instant
from forerun.core.trace.source import Source
from forerun.core.trace.table import Trace
from forerun.core.trace.tabular import Rows, changes

COLUMNS = (
    Field(name="t_s", unit="s", meaning="time since the first row"),
    Field(name="nodes", kind="int", meaning="nodes from then on"),
)
_NUMBER = re.compile(r"[0-9]{1,15}(?:\.[0-9]{1,15})?")
_COUNT = re.compile(r"([0-9]{1,9})(?:\.0*)?")
_DATE = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}")
_CLOCK = re.compile(r"[0-9]{2}:[0-9]{2}:[0-9]{2}(?:\.[0-9]{1,9})?")
HOUR_S = 3600.0
#: first and second names of a header
_TIMES = {"timestamp", "time", "time_s", "t_s", "time_h", "t_h"}
_COUNTS = {"count", "nodes"}
_NO_UNIT = "have fractions and no unit, and may be hours or seconds: name it (--option x_unit=h)"
#: the header of terminations, which are no counts
_TERMINATIONS = ("timestamp", "number")
_NO_COUNTS = (
    "says how many nodes were terminated, not how many there were: give it after the file of counts, "
    "as in forerun trace stats spot COUNTS TERMINATIONS"
)


class SpotCounts(TraceReader, frozen=True, kw_only=True, tag="spot_counts"):
    """Counts of nodes over time.

    x_unit: what plain numbers of time count, s or h (unused where rows carry dates or the header names the unit; default: s,
        and no default where there is no header and times have fractions, as in Bamboo's files of hours).
    teardown: what to do with a last row that takes the count to 0, the operator stopping the group: `drop` or `keep`.
    """

    about = "count of preemptible nodes over time (Bamboo, CloudWatch, scaling groups)"
    makes = "capacity"

    x_unit: Literal["s", "h"] | None = None
    teardown: Literal["drop", "keep"] = "drop"

    @classmethod
    def recognises(cls, head: Head) -> bool:
        """A header of a time and a count, rows of a date, a clock time and a count, or two rows a change.

        Terminations, which Bamboo publishes beside its counts, are recognised to say what they are for.
        """
        if _is_header(head.names) or head.names == _TERMINATIONS:
            return True
        lines = [line for line in head.lines if line.strip()]
        cells = [[cell.strip() for cell in line.split(",")] for line in lines]
        return bool(cells) and (
            all(len(row) == 3 and _DATE.fullmatch(row[0]) for row in cells) or _steps(cells)
        )

    def read(self, path: Path, repairs: RepairLog) -> Trace:
        """The counts in time order, one row a change, the first at 0; `until_s` is the time of the last row looked at."""
        source, unit_s = Source(path, repairs=repairs), HOUR_S if self.x_unit == "h" else 1.0
        if Head(path.name, source.head(1)).names == _TERMINATIONS:
            raise TraceError.at(source.name, _NO_COUNTS)
        ambiguous = not self.x_unit

        def row(line: str) -> tuple[float, int] | None:
            nonlocal unit_s, ambiguous
            cells = [cell.strip() for cell in line.split(",")]
            if not _is_header(cells):
                if ambiguous and "." in cells[0] and _NUMBER.fullmatch(cells[0]):
                    raise TraceError.at(source.name, f"its times, such as {cells[0]}, {_NO_UNIT}")
                return _row(cells, unit_s)
            unit_s, ambiguous = {"h": HOUR_S, "s": 1.0}.get(cells[0].rpartition("_")[2], unit_s), False
            return None

        read = [(number, *values) for number, values in source.parsed(row)]
        if not read:
            raise TraceError.at(source.name, "contains no rows of data")
        lines, times, counts = (np.array(column) for column in zip(*read, strict=True))
        rows = Rows(source, Complaints(), lines, {"t_s": times - times.min(), "nodes": counts})
        backward = int((np.diff(rows["t_s"]) < 0).sum())
        rows.sort("t_s")
        rows.facts.update(
            rows=len(rows),
            backward_times=backward,
            equal_times=int((np.diff(rows["t_s"]) == 0).sum()),
            until_s=float(rows["t_s"][-1]),
        )
        self._keep_changes(rows)
        return rows.trace(self, COLUMNS)

    def _keep_changes(self, rows: Rows) -> None:
        """Drop rows without a change; of rows at one time the last counts, the others stay in order."""
        times, counts = rows["t_s"], rows["nodes"]
        again = (times[1:] == times[:-1]) & (counts[1:] != counts[:-1])
        if again.any() and not _steps_in_pairs(times, counts):
            rows.source.repairs.note(
                "another count at the same time, in file order", rows.at(0), int(again.sum())
            )
        if self.teardown == "drop" and len(counts) > 1 and counts[-1] == 0:
            last = np.arange(len(counts)) == len(counts) - 1
            rows.drop(last, "last row takes the count to 0 (teardown), dropped")
        rows.keep(changes(rows["nodes"]))


def _row(cells: list[str], unit_s: float) -> tuple[float, int]:
    """Seconds and count of a row; ValueError says what is wrong."""
    if len(cells) == 3 and _DATE.fullmatch(cells[0]) and _CLOCK.fullmatch(cells[1]):
        t_s = parse_instant(f"{cells[0]}T{cells[1]}") / 1e9
    elif len(cells) == 2 and _NUMBER.fullmatch(cells[0]):
        t_s = float(cells[0]) * unit_s
    elif len(cells) == 2:
        t_s = parse_instant(cells[0]) / 1e9
    else:
        raise ValueError(f"{shown(','.join(cells))} is not a time and a count")
    if (count := _COUNT.fullmatch(cells[-1])) is None:
        raise ValueError(f"{shown(cells[-1])} is not a count of nodes")
    return t_s, int(count[1])


def _steps(cells: list[list[str]]) -> bool:
    """Whether rows are a time and a count each, from 0 on, and of two that follow the count is the same, then the time."""
    if len(cells) < 3 or not all(
        len(row) == 2 and _NUMBER.fullmatch(row[0]) and _COUNT.fullmatch(row[1]) for row in cells
    ):
        return False
    same = [[one == other for one, other in zip(*rows, strict=True)] for rows in itertools.pairwise(cells)]
    return float(cells[0][0]) == 0 and all(row == [n % 2 == 1, n % 2 == 0] for n, row in enumerate(same))


def _steps_in_pairs(times: NDArray[Any], counts: NDArray[Any]) -> bool:
    """Whether every change stands as two rows at one time, the count before and the count after."""
    changed = np.flatnonzero(counts[1:] != counts[:-1])
    return bool((times[changed] == times[changed + 1]).all())


def _is_header(names: Sequence[str]) -> bool:
    return len(names) == 2 and names[0] in _TIMES and names[1] in _COUNTS
