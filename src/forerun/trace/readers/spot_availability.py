"""Availability of one preemptible machine over time: CSV `date,availability`, ticks as they come.

Nothing in such a file says whether a 1 means that the machine is there or that it was taken away, so the reader must be
told.  Ticks need not be equally long: what was seen holds until the next row.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, ClassVar, Literal

import numpy as np

from forerun.errors import TraceError
from forerun.trace.reader import Head, TraceReader
from forerun.trace.repair import Complaints, RepairLog
from forerun.trace.rows import Field, gathered, read_rows
from forerun.trace.source import Source
from forerun.trace.table import Trace, schema_of, sort_rows

COLUMNS = (
    Field(name="t_s", unit="s", meaning="time since the first row"),
    Field(name="nodes", kind="int", meaning="machines available from then on"),
)
FIELDS = (
    Field(name="at_ns", column="date", kind="datetime", unit="ns", meaning="when it was looked"),
    Field(name="seen", column="availability", kind="int", whole_decimals=True, minimum=0, maximum=1_000_000),
)


class SpotAvailability(TraceReader, frozen=True, kw_only=True, tag="spot_availability"):
    """Rows of a date and an availability.

    polarity: what a number means, `available` (a count of machines), `preempted` (1 is not there) or `up` (1 is
    there); it has no default.  machines: how many a 0 or 1 stands for.
    """

    about: ClassVar[str] = "availability of preemptible machines, CSV date,availability"
    makes: ClassVar[str] = "capacity"

    polarity: Literal["", "available", "preempted", "up"] = ""
    machines: int = 1

    @classmethod
    def recognises(cls, head: Head) -> bool:
        """A header of these two names."""
        return head.has_columns("date", "availability")

    def read(self, path: Path, repairs: RepairLog) -> Trace:
        """Machines available, one row a change, the first at 0."""
        source, complaints = Source(path, repairs=repairs), Complaints()
        if not self.polarity:
            what = "does not say what its numbers mean; set polarity to available, preempted or up"
            raise TraceError.at(f"{source.name}:availability", what)
        rows = gathered(read_rows(source, FIELDS, complaints=complaints))
        columns: dict[str, Any] = dict(rows.columns)
        if self.polarity != "available":
            for line in rows.lines[columns["seen"] > 1]:
                complaints.add(
                    f"{source.at(int(line))}:availability",
                    f"is neither 0 nor 1, which {self.polarity!r} needs",
                )
        complaints.finish()
        where = [source.at(int(line)) for line in rows.lines]
        columns = sort_rows(columns, "at_ns", where.__getitem__, repairs)
        seen = columns["seen"]
        counts = (
            seen
            if self.polarity == "available"
            else self.machines * (seen if self.polarity == "up" else 1 - seen)
        )
        instants = (columns["at_ns"] - columns["at_ns"][0]) / 1e9
        changed = np.append(True, counts[1:] != counts[:-1])
        table = {"t_s": instants[changed], "nodes": counts[changed].astype(np.int64)}
        made = self.provenance(source, repairs, ticks=len(counts), until_s=float(instants[-1]))
        return Trace("capacity", schema_of(COLUMNS), table, time="t_s", provenance=made)
