"""The plainest trace: a CSV with an arrival column, and whatever else a scenario can use."""

from __future__ import annotations

from pathlib import Path
from typing import ClassVar

from forerun.errors import TraceError
from forerun.trace.reader import Head, TraceReader, refuse_duplicates
from forerun.trace.repair import RepairLog
from forerun.trace.requests import arrival, output_tokens, prompt_tokens
from forerun.trace.rows import Field, gathered, read_rows
from forerun.trace.source import Source
from forerun.trace.table import Trace

ARRIVALS = {"arrival_s": arrival("s"), "arrival_ms": arrival("ms")}
KNOWN = {
    "id": Field(name="id", kind="text", meaning="name of the request, occurring once"),
    "prompt_tokens": prompt_tokens(),
    "output_tokens": output_tokens(),
}


class TableCsv(TraceReader, tag="csv", frozen=True, kw_only=True):
    """CSV whose header has `arrival_s` or `arrival_ms`.

    It may have `id`, `prompt_tokens` and `output_tokens`. A column named `parent>child` holds 0 or 1:
    whether the request takes that edge of a pipeline (recorded routing). Other columns are left out and
    noted.
    """

    about: ClassVar[str] = "any CSV with arrival_s or arrival_ms (+ tokens, parent>child routing)"
    makes: ClassVar[str] = "requests"

    @classmethod
    def recognises(cls, head: Head) -> bool:
        return head.has_columns("arrival_s") or head.has_columns("arrival_ms")

    def read(self, path: Path, repairs: RepairLog) -> Trace:
        names = _names(Source(path, repairs=RepairLog()))
        times = [name for name in names if name in ARRIVALS]
        if len(times) != 1:
            found = "has both arrival_s and arrival_ms" if times else "has neither arrival_s nor arrival_ms"
            raise TraceError.at(f"{path}:1", f"the header {found}; one of them is needed")
        fields = (ARRIVALS[times[0]], *(field for field in map(_field, names) if field))
        source = Source(path, repairs=repairs)
        rows = gathered(read_rows(source, fields))
        if "id" in rows.columns:
            refuse_duplicates(rows.columns["id"].tolist(), rows.lines.tolist(), source, "id")
        return self.table(source, repairs, fields, rows, time=times[0])


def _names(source: Source) -> list[str]:
    for _, line in source.lines():
        if line.strip():
            return [cell.strip() for cell in line.replace('"', "").split(",")]
    raise TraceError.at(source.name, "holds no rows of data")


def _field(name: str) -> Field | None:
    if ">" in name:
        return Field(name=name, kind="int", minimum=0, maximum=1, meaning="whether this edge is taken")
    return KNOWN.get(name)
