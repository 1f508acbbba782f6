"""Faults of nodes as InfiniteHBD publishes them: a JSON list of starts and ends, times in days.

A fault is a node that is away until its repair: the trace is the membership of the fleet of all nodes.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, ClassVar

import numpy as np

from forerun.errors import TraceError
from forerun.trace.reader import Head, TraceReader
from forerun.trace.readers.spot_membership import COLUMNS
from forerun.trace.repair import Complaints, RepairLog, shown
from forerun.trace.rows import TEXT, Field, json_number, read_json
from forerun.trace.source import Source
from forerun.trace.table import Trace, schema_of

DAY_S = 86_400.0
_DAYS = Field(name="event_time", minimum=0, maximum=1e6)


class SpotFaults(TraceReader, frozen=True, kw_only=True, tag="spot_faults"):
    """Node faults as removals, repairs as additions. nodes: how many there are in all, those without a fault
    included; they start alive."""

    about: ClassVar[str] = "node faults and repairs in days (InfiniteHBD)"
    makes: ClassVar[str] = "membership"

    nodes: int = 400

    @classmethod
    def recognises(cls, head: Head) -> bool:
        """A JSON list of events of nodes."""
        start = "".join(head.lines)[:400]
        return start.lstrip().startswith("[") and '"event_time"' in start and '"node_id"' in start

    def read(self, path: Path, repairs: RepairLog) -> Trace:
        """Who was up when."""
        source, complaints = Source(path, repairs=repairs), Complaints()
        entries = read_json(source)
        if not isinstance(entries, list) or not entries:
            raise TraceError.at(source.name, "is not a list of fault events")
        events: list[tuple[float, str, bool]] = []
        for i, entry in enumerate(entries):
            try:
                events.append(_event(entry))
            except ValueError as error:
                complaints.add(f"{source.name}:[{i}]", str(error))
        complaints.finish()
        rows = self._membership(events, source.name, repairs)
        table = {
            "t_s": np.array([row[0] for row in rows]),
            "added": np.array([int(row[1]) for row in rows], dtype=np.int64),
            "node": np.array([row[2] for row in rows], dtype=TEXT),
        }
        made = self.provenance(source, repairs)
        return Trace("membership", schema_of(COLUMNS), table, time="t_s", provenance=made)

    def _membership(
        self, events: list[tuple[float, str, bool]], name: str, repairs: RepairLog
    ) -> list[tuple[float, bool, str]]:
        """Rows (time, is it an addition, node): away from the first start until no fault is left."""
        spans: dict[str, list[tuple[float, float]]] = {}
        open_s: dict[str, list[float]] = {}
        for t_s, node, starts in sorted(events, key=lambda event: (event[0], event[1], not event[2])):
            if starts:
                if open_s.get(node):
                    repairs.note("fault of a node that is down already, merged", f"{name}:node {node}")
                open_s.setdefault(node, []).append(t_s)
            elif open_s.get(node):
                first = open_s[node].pop(0)
                if t_s == first:
                    repairs.note("fault of length 0, dropped", f"{name}:node {node}")
                else:
                    spans.setdefault(node, []).append((first, t_s))
            else:
                repairs.note("repair of a node that is not down, ignored", f"{name}:node {node}")
        for node, starts_s in open_s.items():
            spans.setdefault(node, []).extend((t_s, np.inf) for t_s in starts_s)
        names = sorted({node for _, node, _ in events})
        if len(names) > self.nodes:
            what = f"names {len(names)} nodes, more than the {self.nodes} of the fleet; set the option nodes"
            raise TraceError.at(name, what)
        names += [f"never-failed-{i}" for i in range(self.nodes - len(names))]
        rows = [(0.0, True, node) for node in names]
        for node, faults in spans.items():
            for down_s, up_s in _merged(faults):
                rows.append((down_s, False, node))
                if np.isfinite(up_s):
                    rows.append((up_s, True, node))
        return sorted(rows, key=lambda row: (row[0], row[1], row[2]))


def _merged(spans: list[tuple[float, float]]) -> list[tuple[float, float]]:
    """Spans in order, overlapping or touching ones as one."""
    found: list[tuple[float, float]] = []
    for start, end in sorted(spans):
        if found and start <= found[-1][1]:
            found[-1] = (found[-1][0], max(found[-1][1], end))
        else:
            found.append((start, end))
    return found


def _event(entry: Any) -> tuple[float, str, bool]:
    """Seconds, node and whether a fault starts; ValueError says what is wrong."""
    if not isinstance(entry, dict):
        raise ValueError("is not an object")
    days, node = json_number(_DAYS, entry.get("event_time")), entry.get("node_id")
    if not isinstance(node, str | int) or isinstance(node, bool) or not 0 < len(str(node)) <= 256:
        raise ValueError(f"node_id {shown(node)} is not a name")
    kind = str(entry.get("event_type", "")).lower()
    if "start" not in kind and "end" not in kind:
        raise ValueError(f"event_type {shown(entry.get('event_type'))} is neither a start nor an end")
    return float(days) * DAY_S, str(node), "start" in kind
