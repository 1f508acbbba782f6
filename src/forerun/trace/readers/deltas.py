"""Gaps between queries, one a line: the InferLine artifact's files and those of load generators."""

from __future__ import annotations

from pathlib import Path
from typing import ClassVar, Literal

import numpy as np

from forerun.errors import UsageError
from forerun.trace.reader import Head, TraceReader
from forerun.trace.repair import RepairLog
from forerun.trace.rows import Chunk, Field, gathered, parse_column, read_rows
from forerun.trace.source import Source
from forerun.trace.table import Trace

GAP = Field(name="gap", minimum=0, meaning="time from one query to the next")
ARRIVAL = Field(name="arrival_ms", unit="ms", meaning="instant of arrival")
UNIT_MS = {"ns": 1e-6, "us": 1e-3, "ms": 1.0, "s": 1e3}


class Deltas(TraceReader, tag="deltas", frozen=True, kw_only=True):
    """One gap in milliseconds a line. The first query comes at 0 and one more after each gap.

    queries: `gaps+1`, as the InferLine notebook sends, or `gaps`, as its authors' later port does (the last
    gap then leads to no query) [Crankshaw et al., InferLine, SoCC'20].
    """

    queries: Literal["gaps+1", "gaps"] = "gaps+1"

    about: ClassVar[str] = "gaps in milliseconds, one a line (.deltas, InferLine)"
    makes: ClassVar[str] = "requests"

    @classmethod
    def recognises(cls, head: Head) -> bool:
        return head.name.endswith(".deltas") and _is_number(head.lines)

    def read(self, path: Path, repairs: RepairLog) -> Trace:
        source = Source(path, repairs=repairs)
        return self.table(
            source, repairs, (ARRIVAL,), _arrivals(source, 1.0, self.queries), time="arrival_ms"
        )


class Intervals(TraceReader, tag="intervals", frozen=True, kw_only=True):
    """One gap a line, in a unit that must be named: the interval files of load generators.

    unit: `ns`, `us`, `ms` or `s`; there is no default, since files do not say. queries: as in `deltas`. Never
    recognised from content: a column of numbers may be anything.
    """

    unit: str = ""
    queries: Literal["gaps+1", "gaps"] = "gaps+1"

    about: ClassVar[str] = "load-generator intervals, one a line, unit named by the user"
    makes: ClassVar[str] = "requests"

    def read(self, path: Path, repairs: RepairLog) -> Trace:
        if self.unit not in UNIT_MS:
            found = f"{self.unit!r} is not one" if self.unit else "the file does not say"
            raise UsageError.at("options of intervals", f"unit must be one of {', '.join(UNIT_MS)}; {found}")
        source = Source(path, repairs=repairs)
        rows = _arrivals(source, UNIT_MS[self.unit], self.queries)
        return self.table(source, repairs, (ARRIVAL,), rows, time="arrival_ms")


def _arrivals(source: Source, unit_ms: float, queries: str) -> Chunk:
    gaps = gathered(read_rows(source, (GAP,), header=False))
    # Running sums in file order, so that every reader of the format finds the same instants to the last bit.
    arrival_ms = np.concatenate([[0.0], np.cumsum(gaps.columns["gap"] * unit_ms)])
    lines = np.concatenate([gaps.lines[:1], gaps.lines])
    kept = len(arrival_ms) - (queries == "gaps")
    return Chunk(lines[:kept], {"arrival_ms": arrival_ms[:kept]})


def _is_number(lines: tuple[str, ...]) -> bool:
    return bool(lines) and not parse_column(GAP, lines[:1])[1]
