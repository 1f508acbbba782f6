"""The Azure Functions invocation trace of 2021."""

from __future__ import annotations

from pathlib import Path
from typing import ClassVar

import numpy as np

from forerun.trace.reader import Head, TraceReader
from forerun.trace.repair import RepairLog
from forerun.trace.rows import Chunk, Field, gathered, read_rows
from forerun.trace.source import Source
from forerun.trace.table import Trace

READ = (
    Field(name="app", kind="text", meaning="application, by its hash"),
    Field(name="function", column="func", kind="text", meaning="function, by its hash"),
    Field(name="end_s", column="end_timestamp", unit="s", minimum=0, meaning="instant at which it ended"),
    Field(name="duration_s", column="duration", unit="s", minimum=0, meaning="how long it ran"),
)
ARRIVAL = Field(name="arrival_s", unit="s", meaning="instant at which it began: its end less its duration")


class AzureFunctions2021(TraceReader, tag="azure_functions_2021", frozen=True, kw_only=True):
    """CSV `app,func,end_timestamp,duration`, one invocation a line, sorted by its end.

    Arrival = end - duration, then sorted; ties keep file order. Invocations that began before the trace's
    zero are dropped and counted. CC-BY 4.0, Microsoft [Zhang et al., SOSP'21].
    """

    about: ClassVar[str] = "Azure Functions invocations 2021 (CSV, seconds)"
    makes: ClassVar[str] = "requests"

    @classmethod
    def recognises(cls, head: Head) -> bool:
        return head.has_columns("app", "func", "end_timestamp", "duration")

    def read(self, path: Path, repairs: RepairLog) -> Trace:
        source = Source(path, repairs=repairs)
        rows = gathered(read_rows(source, READ))
        arrivals = rows.columns["end_s"] - rows.columns["duration_s"]
        early = np.flatnonzero(arrivals < 0)
        wheres = [source.at(int(rows.lines[row])) for row in early[:3]]
        repairs.note_many("began before the trace's zero, dropped", wheres, len(early))
        good = arrivals >= 0
        columns = {name: values[good] for name, values in ({"arrival_s": arrivals} | rows.columns).items()}
        return self.table(
            source,
            repairs,
            (ARRIVAL, *READ),
            Chunk(rows.lines[good], columns),
            time="arrival_s",
            order="free",
        )
