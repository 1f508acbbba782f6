"""Membership as event lines, as Parcae publishes it: `[milliseconds, kind, {nodes, ...}]`, one JSON array a line."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np

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
        source, complaints = Source(path, repairs=repairs), Complaints()
        changes: list[tuple[int, int, str, str]] = []
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
            if kind in ("add", "remove"):
                changes += [(number, t_ms, kind, name) for name in names]
        complaints.finish()
        if not changes:
            complaints.add(source.name, "contains no addition and no removal")
            complaints.finish()
        lines, times, verbs, nodes = zip(*changes, strict=True)
        columns = {"t_ms": np.array(times), "verb": np.array(verbs, TEXT), "node": np.array(nodes, TEXT)}
        rows = Rows(source, complaints, lines, columns)
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
