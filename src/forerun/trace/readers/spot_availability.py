"""Availability of one preemptible machine over time: CSV `date,availability`, ticks as they come.

Nothing in such a file says whether a 1 means that the machine is there or that it was taken away, so the reader must be
told.  Ticks need not be equally long: what was seen holds until the next row.
"""

from __future__ import annotations

from pathlib import Path
from typing import Literal

import numpy as np

from forerun.errors import TraceError
from forerun.trace.repair import RepairLog
from forerun.trace.rows import Field
from forerun.trace.table import Trace
from forerun.trace.tabular import Rows, TableReader

COLUMNS = (
    Field(name="t_s", unit="s", meaning="time since the first row"),
    Field(name="nodes", kind="int", meaning="machines available from then on"),
)
FIELDS = (
    Field(name="at_ns", column="date", kind="datetime", unit="ns", meaning="when it was looked"),
    Field(name="seen", column="availability", kind="int", whole_decimals=True, minimum=0, maximum=1_000_000),
)


class SpotAvailability(TableReader, frozen=True, kw_only=True, tag="spot_availability"):
    """Rows of a date and an availability.

    polarity: what a number means, `available` (a count of machines), `preempted` (1 is not there) or `up` (1 is
    there); it has no default.  machines: how many a 0 or 1 stands for.
    """

    about = "availability of preemptible machines, CSV date,availability"
    makes = "capacity"
    signature = ("date", "availability")
    columns = FIELDS
    schema = COLUMNS
    time = "t_s"

    polarity: Literal["", "available", "preempted", "up"] = ""
    machines: int = 1

    def read(self, path: Path, repairs: RepairLog) -> Trace:
        """Machines available, one row a change, the first at 0."""
        if not self.polarity:
            what = "does not say what its numbers mean; set polarity to available, preempted or up"
            raise TraceError.at(f"{path}:availability", what)
        return super().read(path, repairs)

    def settle(self, rows: Rows) -> None:
        if self.polarity != "available":
            what = f"is neither 0 nor 1, which {self.polarity!r} needs"
            rows.reject(rows["seen"] > 1, "availability", what)
        rows.complaints.finish()
        rows.sort("at_ns")
        seen = rows["seen"]
        up = {"available": seen, "up": self.machines * seen, "preempted": self.machines * (1 - seen)}
        counts = rows["nodes"] = up[self.polarity].astype(np.int64)
        rows["t_s"] = (rows["at_ns"] - rows["at_ns"][0]) / 1e9
        rows.facts.update(ticks=len(counts), until_s=float(rows["t_s"][-1]))
        rows.keep(np.append(True, counts[1:] != counts[:-1]))
