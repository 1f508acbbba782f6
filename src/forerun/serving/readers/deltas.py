"""Gaps between queries, one a line: the InferLine artifact's files and those of load generators."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

import numpy as np

from forerun.core.errors import UsageError
from forerun.core.trace.reader import Head
from forerun.core.trace.repair import RepairLog
from forerun.core.trace.rows import Field, parse_column
from forerun.core.trace.table import Trace
from forerun.core.trace.tabular import Rows, TableReader

GAP = Field(name="gap", minimum=0, meaning="time from one query to the next")
UNIT_MS = {"ns": 1e-6, "us": 1e-3, "ms": 1.0, "s": 1e3}


class _Gaps(TableReader, frozen=True, kw_only=True):
    """Gaps, one a line. The first query arrives at 0 and one more after each gap."""

    makes = "requests"
    columns = (GAP,)
    schema = (Field(name="arrival_ms", unit="ms", meaning="instant of arrival"),)
    time = "arrival_ms"
    header = False


class Deltas(_Gaps, tag="deltas", frozen=True, kw_only=True):
    """One gap in milliseconds a line. The first query comes at 0 and one more after each gap.

    queries: `gaps+1`, as the InferLine notebook sends, or `gaps`, as its authors' later port does (the last
    gap then leads to no query) [Crankshaw et al., InferLine, SoCC'20].
    """

    queries: Literal["gaps+1", "gaps"] = "gaps+1"

    about = "gaps in milliseconds, one a line (.deltas, InferLine)"

    @classmethod
    def recognises(cls, head: Head) -> bool:
        return head.name.endswith(".deltas") and bool(head.lines) and not parse_column(GAP, head.lines[:1])[1]

    def settle(self, rows: Rows) -> None:
        _add_up(rows, 1.0, self.queries)


class Intervals(_Gaps, tag="intervals", frozen=True, kw_only=True):
    """One gap a line, in a unit that must be named: the interval files of load generators.

    unit: `ns`, `us`, `ms` or `s`; there is no default, since files do not say. queries: as in `deltas`. Never
    recognised from content: a column of numbers may be anything.
    """

    unit: str = ""
    queries: Literal["gaps+1", "gaps"] = "gaps+1"

    about = "load-generator intervals, one a line, unit named by the user"

    def settle(self, rows: Rows) -> None:
        _add_up(rows, UNIT_MS[self.unit], self.queries)

    def read(self, path: Path, repairs: RepairLog) -> Trace:
        if self.unit not in UNIT_MS:
            problem = f"{self.unit!r} is not one" if self.unit else "the file does not say"
            raise UsageError.at(
                "options of intervals", f"unit must be one of {', '.join(UNIT_MS)}; {problem}"
            )
        return super().read(path, repairs)


def _add_up(rows: Rows, unit_ms: float, queries: str) -> None:
    """Gaps as instants of arrival."""
    # Running sums in file order, so that every reader of the format computes the same instants to the last bit.
    arrival_ms = np.concatenate([[0.0], np.cumsum(rows["gap"] * unit_ms)])
    rows_left = len(arrival_ms) - (queries == "gaps")
    rows.lines = np.concatenate([rows.lines[:1], rows.lines])[:rows_left]
    rows.columns = {"arrival_ms": arrival_ms[:rows_left]}
