"""How many preemptible nodes there were: count series in three public layouts.

`timestamp,count` with a header (Bamboo's full-64, CloudWatch's `time,count` with counts written 31.0; also `time_s,nodes`
and the like), `date, time, n` without one (Bamboo's Google Cloud polls), and the step function `seconds,count` with two rows
a change (its scaling groups).  A count says nothing about which node left, and a swap between two rows cannot be seen.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from forerun.trace.reader import Head, TraceReader
from forerun.trace.repair import Complaints, RepairLog, shown
from forerun.trace.rows import Field, parse_instant
from forerun.trace.source import Source
from forerun.trace.table import Trace, schema_of, sort_rows

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


class SpotCounts(TraceReader, frozen=True, kw_only=True, tag="spot_counts"):
    """Counts of nodes over time.

    x_unit: what plain numbers of time count, s or h (unused where rows carry dates or the header names the unit).
    teardown: what to do with a last row that takes the count to 0, the operator stopping the group: `drop` or `keep`.
    """

    about = "count of preemptible nodes over time (Bamboo, CloudWatch, scaling groups)"
    makes = "capacity"

    x_unit: Literal["s", "h"] = "s"
    teardown: Literal["drop", "keep"] = "drop"

    @classmethod
    def recognises(cls, head: Head) -> bool:
        """A header of a time and a count, or rows of a date, a clock time and a count."""
        if _is_header(head.names):
            return True
        lines = [line for line in head.lines if line.strip()]
        cells = [[cell.strip() for cell in line.split(",")] for line in lines]
        return bool(cells) and all(len(row) == 3 and _DATE.fullmatch(row[0]) for row in cells)

    def read(self, path: Path, repairs: RepairLog) -> Trace:
        """The counts in time order, one row a change, the first at 0; `until_s` is the time of the last row looked at."""
        source, complaints = Source(path, repairs=repairs), Complaints()
        times, counts, lines = self._rows(source, complaints)
        complaints.finish()
        if not times:
            complaints.add(source.name, "holds no rows of data")
            complaints.finish()
        where = [source.at(line) for line in lines]
        columns = sort_rows(
            {"t_s": np.array(times), "nodes": np.array(counts)}, "t_s", where.__getitem__, repairs
        )
        instants = columns["t_s"]
        looked = {
            "rows": len(times),
            "backward_times": int((np.diff(times) < 0).sum()),
            "equal_times": int((np.diff(instants) == 0).sum()),
            "until_s": float(instants[-1]),
        }
        columns = self._changes(columns, where, repairs)
        made = self.provenance(source, **looked)
        return Trace("capacity", schema_of(COLUMNS), columns, time="t_s", provenance=made)

    def _rows(self, source: Source, complaints: Complaints) -> tuple[list[float], list[int], list[int]]:
        times: list[float] = []
        counts: list[int] = []
        lines: list[int] = []
        origin: float | None = None
        unit_s = HOUR_S if self.x_unit == "h" else 1.0
        for number, line in source.lines():
            cells = [cell.strip() for cell in line.split(",")]
            if _is_header(cells):
                unit_s = {"h": HOUR_S, "s": 1.0}.get(cells[0].rpartition("_")[2], unit_s)
                continue
            if not line.strip():
                continue
            try:
                t_s, count = self._row(cells, unit_s)
            except ValueError as error:
                complaints.add(source.at(number), str(error))
                continue
            origin = t_s if origin is None else min(origin, t_s)
            times.append(t_s)
            counts.append(count)
            lines.append(number)
        return [t_s - (origin or 0.0) for t_s in times], counts, lines

    def _row(self, cells: list[str], unit_s: float) -> tuple[float, int]:
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

    def _changes(
        self, columns: dict[str, NDArray[Any]], where: list[str], repairs: RepairLog
    ) -> dict[str, NDArray[Any]]:
        """Rows without a change are dropped; of rows at one time the last holds, the others stay in order."""
        times, counts = columns["t_s"], columns["nodes"]
        again = (times[1:] == times[:-1]) & (counts[1:] != counts[:-1])
        if again.any() and not self._steps_in_pairs(times, counts):
            repairs.note("another count at the same time, kept in order", where[0], int(again.sum()))
        if self.teardown == "drop" and len(counts) > 1 and counts[-1] == 0:
            repairs.note("last row takes the count to 0 (teardown), dropped", where[-1])
            times, counts = times[:-1], counts[:-1]
        changed = np.append(True, counts[1:] != counts[:-1])
        return {"t_s": times[changed], "nodes": counts[changed]}

    def _steps_in_pairs(self, times: NDArray[Any], counts: NDArray[Any]) -> bool:
        """Whether every change stands as two rows at one time, the count before and the count after."""
        changed = np.flatnonzero(counts[1:] != counts[:-1])
        return bool((times[changed] == times[changed + 1]).all())


def _is_header(names: Sequence[str]) -> bool:
    return len(names) == 2 and names[0] in _TIMES and names[1] in _COUNTS
