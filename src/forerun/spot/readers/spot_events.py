"""Membership as event lines, as Parcae publishes it: `[milliseconds, kind, {nodes, ...}]`, one JSON array a line."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np

from forerun.core.errors import TraceError
from forerun.core.trace.objects import json_number, parse_json
from forerun.core.trace.reader import Head, TraceReader
from forerun.core.trace.repair import Complaints, RepairLog, shown
from forerun.core.trace.rows import TEXT, Field
from forerun.core.trace.source import Source
from forerun.core.trace.table import Trace
from forerun.core.trace.tabular import Rows
from forerun.spot.readers.spot_membership import COLUMNS, settle_membership

KINDS = ("add", "remove", "no-op", "migration")
_TIME = Field(name="t_ms", kind="int", minimum=0)


class SpotEvents(TraceReader, frozen=True, kw_only=True, tag="spot_events"):
    """Additions and removals of named nodes; lines without a change of membership are passed over."""

    about = "membership events as JSON lines (Parcae)"
    makes = "membership"

    @classmethod
    def recognises(cls, head: Head) -> bool:
        """Lines that are arrays of a number and a word."""
        first = head.lines[0].strip() if head.lines else ""
        return first.startswith("[") and any(f'"{kind}"' in first[:60] for kind in KINDS)

    def read(self, path: Path, repairs: RepairLog) -> Trace:
        """The changes in time order, removals before additions within an instant; `until_s` is the time of the last line."""
        source = Source(path, repairs=repairs)
        read = list(source.parsed(lambda line: _event(parse_json(line))))
        changes = [
            (number, t_ms, kind, name)
            for number, (t_ms, kind, names) in read
            if kind in ("add", "remove")
            for name in names
        ]
        if not changes:
            raise TraceError.at(source.name, "contains no addition and no removal")
        kinds = Counter(kind for _, (_, kind, _) in read)
        until_ms = max(t_ms for _, (t_ms, _, _) in read)
        lines, times, verbs, nodes = zip(*changes, strict=True)
        columns = {"t_ms": np.array(times), "verb": np.array(verbs, TEXT), "node": np.array(nodes, TEXT)}
        rows = Rows(source, Complaints(), lines, columns)
        settle_membership(rows)
        counted = {f"lines_{kind}": count for kind, count in sorted(kinds.items())}
        rows.facts.update(rows=kinds.total(), until_s=until_ms / 1000.0, **counted)
        return rows.trace(self, COLUMNS)


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
