"""The plainest trace: a CSV with an arrival column, and whatever else a scenario can use."""

from __future__ import annotations

from collections.abc import Sequence

from forerun.core.errors import TraceError
from forerun.core.trace.reader import Head
from forerun.core.trace.requests import arrival, output_tokens, prompt_tokens
from forerun.core.trace.rows import Field, header_of
from forerun.core.trace.source import Source
from forerun.core.trace.tabular import Rows, TableReader

ARRIVALS = {"arrival_s": arrival("s"), "arrival_ms": arrival("ms")}
KNOWN = {
    "id": Field(name="id", kind="text", meaning="name of the request, occurring once"),
    "prompt_tokens": prompt_tokens(),
    "output_tokens": output_tokens(),
    "priority": Field(
        name="priority", kind="int", minimum=0, meaning="class of the request, lower ones first"
    ),
}


class TableCsv(TableReader, tag="csv", frozen=True, kw_only=True):
    """CSV whose header has `arrival_s` or `arrival_ms`.

    It may have `id`, `prompt_tokens`, `output_tokens` and `priority`. A column named `parent>child` contains 0 or 1:
    whether the request takes that edge of a pipeline (recorded routing). Other columns are left out and
    noted.
    """

    about = "any CSV with arrival_s or arrival_ms (+ tokens, parent>child routing)"
    makes = "requests"

    @classmethod
    def recognises(cls, head: Head) -> bool:
        return head.has_columns("arrival_s") or head.has_columns("arrival_ms")

    def fields_of(self, source: Source) -> Sequence[Field]:
        """The arrival column, then the others that are known, in the order of the file."""
        line, names = header_of(source)
        times = [name for name in names if name in ARRIVALS]
        if len(times) != 1:
            fault = "has both arrival_s and arrival_ms" if times else "has neither arrival_s nor arrival_ms"
            raise TraceError.at(source.at(line), f"the header {fault}; one of them is needed")
        return [ARRIVALS[times[0]], *(_field(name) for name in names if ">" in name or name in KNOWN)]

    def settle(self, rows: Rows) -> None:
        if "id" in rows:
            rows.refuse_duplicates("id", rows["id"].tolist())


def _field(name: str) -> Field:
    if ">" in name:
        return Field(name=name, kind="int", minimum=0, maximum=1, meaning="whether this edge is taken")
    return KNOWN[name]
