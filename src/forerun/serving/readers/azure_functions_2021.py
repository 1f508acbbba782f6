"""The Azure Functions invocation trace of 2021."""

from __future__ import annotations

from forerun.core.trace.rows import Field
from forerun.core.trace.tabular import Rows, TableReader

READ = (
    Field(name="app", kind="text", meaning="application, by its hash"),
    Field(name="function", column="func", kind="text", meaning="function, by its hash"),
    Field(name="end_s", column="end_timestamp", unit="s", minimum=0, meaning="instant at which it ended"),
    Field(name="duration_s", column="duration", unit="s", minimum=0, meaning="how long it ran"),
)


class AzureFunctions2021(TableReader, tag="azure_functions_2021", frozen=True, kw_only=True):
    """CSV `app,func,end_timestamp,duration`, one invocation a line, sorted by its end.

    Arrival = end - duration, then sorted; ties keep file order. Invocations that began before the trace's
    zero are dropped and counted. CC-BY 4.0, Microsoft [Zhang et al., SOSP'21].
    """

    about = "Azure Functions invocations 2021 (CSV, seconds)"
    makes = "requests"
    signature = ("app", "func", "end_timestamp", "duration")
    columns = READ
    schema = (
        Field(name="arrival_s", unit="s", meaning="instant at which it began: its end less its duration"),
        *READ,
    )
    time = "arrival_s"
    order = "free"

    def settle(self, rows: Rows) -> None:
        rows["arrival_s"] = rows["end_s"] - rows["duration_s"]
        rows.drop(rows["arrival_s"] < 0, "began before the trace's zero, dropped")
