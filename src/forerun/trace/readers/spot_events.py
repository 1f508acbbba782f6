"""Membership as event lines, as Parcae publishes it: `[milliseconds, kind, {nodes, ...}]`, one JSON array a line."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any, ClassVar

import numpy as np

from forerun.trace.reader import Head, TraceReader
from forerun.trace.readers.spot_membership import COLUMNS, consistent
from forerun.trace.repair import Complaints, RepairLog, shown
from forerun.trace.rows import TEXT, Chunk, Field, json_number, parse_json
from forerun.trace.source import Source
from forerun.trace.table import Trace, schema_of, sort_rows

KINDS = ("add", "remove", "no-op", "migration")
_TIME = Field(name="t_ms", kind="int", minimum=0)


class SpotEvents(TraceReader, frozen=True, kw_only=True, tag="spot_events"):
    """Additions and removals of named nodes; lines without a change of membership are passed over."""

    about: ClassVar[str] = "membership events as JSON lines (Parcae)"
    makes: ClassVar[str] = "membership"

    @classmethod
    def recognises(cls, head: Head) -> bool:
        """Lines that are arrays of a number and a word."""
        first = head.lines[0].strip() if head.lines else ""
        return first.startswith("[") and any(f'"{kind}"' in first[:60] for kind in KINDS)

    def read(self, path: Path, repairs: RepairLog) -> Trace:
        """The changes in time order, removals before additions within an instant; `until_s` is the time of the last line."""
        source, complaints = Source(path, repairs=repairs), Complaints()
        times: list[int] = []
        verbs: list[str] = []
        nodes: list[str] = []
        where: list[str] = []
        kinds: Counter[str] = Counter()
        until_ms = 0
        for number, line in source.lines():
            if not line.strip():
                continue
            try:
                t_ms, kind, names = _event(parse_json(line))
            except ValueError as error:
                complaints.add(source.at(number), str(error))
                continue
            kinds[kind] += 1
            until_ms = max(until_ms, t_ms)
            for name in names if kind in ("add", "remove") else ():
                times.append(t_ms)
                verbs.append(kind)
                nodes.append(name)
                where.append(source.at(number))
        complaints.finish()
        if not times:
            complaints.add(source.name, "holds no addition and no removal")
            complaints.finish()
        columns = {
            "t_ms": np.array(times, dtype=np.int64),
            "verb": np.array(verbs, dtype=TEXT),
            "node": np.array(nodes, dtype=TEXT),
            "row": np.arange(len(times)),
        }
        columns = sort_rows(columns, "t_ms", where.__getitem__, repairs)
        kept = consistent(Chunk(columns["row"], columns), where, repairs, complaints)
        complaints.finish()
        table = {
            "t_s": columns["t_ms"][kept] / 1000.0,
            "added": (columns["verb"][kept] == "add").astype(np.int64),
            "node": columns["node"][kept],
        }
        counted = {f"lines_{kind}": count for kind, count in sorted(kinds.items())}
        made = self.provenance(
            source, repairs, rows=sum(kinds.values()), until_s=until_ms / 1000.0, **counted
        )
        return Trace("membership", schema_of(COLUMNS), table, time="t_s", provenance=made)


def _event(value: Any) -> tuple[int, str, list[str]]:
    """Time, kind and nodes of a line; ValueError says what is wrong."""
    if not isinstance(value, list) or len(value) != 3:
        raise ValueError("is not [milliseconds, kind, details]")
    t_ms, kind, details = value
    if kind not in KINDS:
        raise ValueError(f"{shown(kind)} is not one of {', '.join(KINDS)}")
    names = details.get("nodes") if isinstance(details, dict) else None
    if not isinstance(names, list) or any(not isinstance(name, str) for name in names):
        raise ValueError("the details name no list of nodes")
    return int(json_number(_TIME, t_ms)), kind, names
