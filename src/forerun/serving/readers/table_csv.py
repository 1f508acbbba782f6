"""The plainest trace: a CSV with an arrival column, and whatever else a scenario can use."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from forerun.core.errors import TraceError, known_names
from forerun.core.trace.reader import Head
from forerun.core.trace.repair import shown
from forerun.core.trace.requests import AFTER, PAUSE, arrival, output_tokens, prompt_tokens
from forerun.core.trace.rows import Field, header_of
from forerun.core.trace.source import Source
from forerun.core.trace.tabular import Rows, TableReader

#: the instant of arrival: a number, or a stamp such as 2026-11-28T09:00:00.5Z
STAMP = Field(
    name="arrival_s",
    column="arrival_time",
    kind="datetime",
    unit="s",
    meaning="instant of arrival, from the first on",
)
ARRIVALS = {"arrival_s": arrival("s"), "arrival_ms": arrival("ms"), STAMP.column: STAMP}
KNOWN = {
    "id": Field(name="id", kind="text", meaning="name of the request, occurring once"),
    "prompt_tokens": prompt_tokens(),
    "output_tokens": output_tokens(),
    "priority": Field(
        name="priority", kind="int", minimum=0, meaning="class of the request, lower ones first"
    ),
    "after": AFTER,
    "pause_s": PAUSE,
}


class TableCsv(TableReader, tag="csv", frozen=True, kw_only=True):
    """CSV whose header has `arrival_s`, `arrival_ms` or `arrival_time`, a stamp.

    It may have `id`, `prompt_tokens`, `output_tokens`, `priority`, `after` (ids of requests that one follows, with blanks in
    between) and `pause_s` (how long after their answers it comes). A column named `parent>child` contains 0 or 1: whether
    the request takes that edge of a pipeline (recorded routing). Other columns are left out and noted.

    names: what the file calls these columns, such as `[arrival_time=timestamp, prompt_tokens=input_tokens]` for the log of a
    gateway (default: the same).
    """

    about = "any CSV with arrival_s or arrival_ms (+ tokens, parent>child routing)"
    makes = "requests"

    names: tuple[str, ...] | str | None = None

    @classmethod
    def recognises(cls, head: Head) -> bool:
        gateway = head.has_columns("timestamp", "input_tokens") or head.has_columns(
            "timestamp", "prompt_tokens"
        )
        return gateway or any(head.has_columns(name) for name in ARRIVALS)

    @property
    def _theirs(self) -> dict[str, str]:
        """What the file calls a column, by our name."""
        names = (self.names,) if isinstance(self.names, str) else self.names or ()
        pairs = (text.partition("=") for text in names)
        return {ours.strip(): theirs.strip() for ours, _, theirs in pairs}

    def fields_of(self, source: Source) -> Sequence[Field]:
        """The arrival column, then the others that are known, in the order of the file."""
        line, names = header_of(source)
        known = [*ARRIVALS, *KNOWN]
        for name in self._theirs:
            if name not in known:
                raise TraceError.at(source.name, f"names: no column {name!r}; {known_names(name, known)}")
        absent = [given for given in self._theirs.values() if given not in names]
        if absent:
            what = f"the header has no {' or '.join(map(shown, absent))}; {known_names(absent[0], names)}"
            raise TraceError.at(source.at(line), what)
        ours = {self._theirs.get(name, name): name for name in (*ARRIVALS, *KNOWN)}
        times = [name for name in names if ours.get(name) in ARRIVALS]
        if len(times) != 1:
            fault = f"has {' and '.join(times)}" if times else f"has none of {', '.join(ARRIVALS)}"
            what = f"the header {fault}; one of them is needed"
            if "timestamp" in names and not self.names:
                what += "; or say what it calls them, such as names=arrival_time=timestamp,prompt_tokens=input_tokens"
            raise TraceError.at(source.at(line), what)
        read = [*times, *(name for name in names if ours.get(name) in KNOWN)]
        edges = [
            Field(name=name, kind="int", minimum=0, maximum=1, meaning="whether this edge is taken")
            for name in names
            if ">" in name and name not in read
        ]
        return [*(replace((ARRIVALS | KNOWN)[ours[name]], column=name) for name in read), *edges]

    def settle(self, rows: Rows) -> None:
        if "id" in rows:
            rows.refuse_duplicates("id", rows["id"].tolist())
        if "arrival_s" in rows and rows["arrival_s"].dtype.kind == "i":
            rows.complaints.finish()
            stamps_ns = rows["arrival_s"]
            rows["arrival_s"] = (stamps_ns - stamps_ns.min()) / 1e9
