"""Availability of preemptible machines tick by tick, as SkyNomad publishes it: `{metadata: {gap_seconds}, data: []}`.

The same layout is used with two meanings: a number of machines available, or 1 for preempted. Nothing in the file
says which, so the reader must be told.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, ClassVar, Literal

import numpy as np

from forerun.errors import TraceError
from forerun.trace.reader import Head, TraceReader
from forerun.trace.repair import Complaints, RepairLog, shown
from forerun.trace.rows import Field, json_number, read_json
from forerun.trace.source import Source
from forerun.trace.table import Trace, schema_of

COLUMNS = (
    Field(name="t_s", unit="s", meaning="time since the first tick"),
    Field(name="nodes", kind="int", meaning="machines available from then on"),
)
_TICK = Field(name="tick", kind="int", whole_decimals=True, minimum=0, maximum=1_000_000)


class SpotTicks(TraceReader, frozen=True, kw_only=True, tag="spot_ticks"):
    """Ticks of availability.

    polarity: what a number means, `available` (a count of machines), `preempted` (1 is not there) or `up` (1 is
    there); it has no default. machines: how many a 0 or 1 stands for. filled: whether ticks that the publisher
    invented to fill a gap are kept (they are counted either way).
    """

    about: ClassVar[str] = "availability of preemptible machines in ticks (SkyNomad)"
    makes: ClassVar[str] = "capacity"

    polarity: Literal["", "available", "preempted", "up"] = ""
    machines: int = 1
    filled: Literal["keep", "refuse"] = "keep"

    @classmethod
    def recognises(cls, head: Head) -> bool:
        """A JSON object that begins with its metadata."""
        start = "".join(head.lines).replace(" ", "")[:40]
        return head.name.endswith(".json") and start.startswith('{"metadata":{')

    def read(self, path: Path, repairs: RepairLog) -> Trace:
        """Machines available, one row a change."""
        source = Source(path, repairs=repairs)
        document, complaints = read_json(source), Complaints()
        if not self.polarity:
            what = "does not say what its numbers mean; set polarity to available, preempted or up"
            raise TraceError.at(f"{source.name}:data", what)
        gap_s = self._gap(document, source.name)
        nodes: list[int] = []
        for i, value in enumerate(document["data"]):
            try:
                nodes.append(self._machines(int(json_number(_TICK, value))))
            except ValueError as error:
                complaints.add(f"{source.name}:data[{i}]", str(error))
        complaints.finish()
        self._note_filled(document["metadata"], source.name, repairs)
        counts = np.array(nodes, dtype=np.int64)
        changed = np.append(True, counts[1:] != counts[:-1])
        table = {"t_s": np.flatnonzero(changed) * gap_s, "nodes": counts[changed]}
        made = self.provenance(source, repairs, gap_s=gap_s, ticks=len(nodes), until_s=len(nodes) * gap_s)
        return Trace("capacity", schema_of(COLUMNS), table, time="t_s", provenance=made)

    def _gap(self, document: Any, name: str) -> float:
        metadata = document.get("metadata") if isinstance(document, dict) else None
        gap = metadata.get("gap_seconds") if isinstance(metadata, dict) else None
        if isinstance(gap, bool) or not isinstance(gap, int | float) or not 0 < gap < 1e9:
            raise TraceError.at(
                f"{name}:metadata.gap_seconds", f"{shown(gap)} is not a length of ticks in seconds"
            )
        if not isinstance(document.get("data"), list) or not document["data"]:
            raise TraceError.at(f"{name}:data", "is not a list of ticks")
        return float(gap)

    def _machines(self, value: int) -> int:
        if self.polarity == "available":
            return value
        if value not in (0, 1):
            raise ValueError(f"{value} is neither 0 nor 1, which {self.polarity!r} needs")
        return self.machines * (value if self.polarity == "up" else 1 - value)

    def _note_filled(self, metadata: Any, name: str, repairs: RepairLog) -> None:
        filled = metadata.get("gap_filled")
        if isinstance(filled, dict):
            points = filled.get("gap_points")
            count = points if isinstance(points, int) and points > 0 else 1
            if self.filled == "refuse":
                raise TraceError.at(
                    f"{name}:metadata.gap_filled", f"{count} ticks were invented by the publisher"
                )
            repairs.note(
                "ticks invented by the publisher to fill a gap, kept", f"{name}:metadata.gap_filled", count
            )
