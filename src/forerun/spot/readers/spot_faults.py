"""Faults of nodes as InfiniteHBD publishes them: a JSON list of starts and ends, times in days.

A fault is a node that is away until its repair: the trace is the membership of the fleet of all nodes.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from forerun.core.errors import TraceError
from forerun.core.trace.documents import JsonDocument, JsonReader
from forerun.core.trace.objects import json_number
from forerun.core.trace.reader import Head
from forerun.core.trace.repair import RepairLog, shown
from forerun.core.trace.rows import Field
from forerun.spot.readers.spot_membership import COLUMNS

DAY_S = 86_400.0
_DAYS = Field(name="event_time", minimum=0, maximum=1e6)


@dataclass(frozen=True, slots=True)
class _Event:
    """A fault of some kind starts at a node, or ends.

    Parameters
    ----------
    t_s : when, in seconds from the beginning of the recording.
    node : its name.
    starts : whether the fault starts, or ends.
    kind : of the fault; faults of several kinds may overlap at one node.
    """

    t_s: float
    node: str
    starts: bool
    kind: str


class SpotFaults(JsonReader, frozen=True, kw_only=True, tag="spot_faults"):
    """Node faults as removals, repairs as additions. nodes: how many there are in all, those without a fault
    included; they start alive."""

    nodes: int = 400

    about = "node faults and repairs in days (InfiniteHBD)"
    makes = "membership"
    schema = COLUMNS

    @classmethod
    def recognises(cls, head: Head) -> bool:
        """A JSON list of events of nodes."""
        return {"[].event_time", "[].node_id"} <= head.json_keys()

    def columns(self, document: JsonDocument) -> Mapping[str, Any]:
        """Who was up when."""
        if not isinstance(document.value, list) or not document.value:
            raise TraceError.at(document.source.name, "is not a list of fault events")
        events = document.parsed(_event, document.value)
        document.complaints.finish()
        rows, repaired_s = self._membership(events, document.source.name, document.source.repairs)
        t_s, added, nodes = zip(*rows, strict=True)
        days = np.array(repaired_s) / DAY_S
        document.facts.update(
            rows=len(events),
            faults=sum(event.starts for event in events),
            faulty_nodes=len({event.node for event in events if event.starts}),
            first_event_day=min(event.t_s for event in events) / DAY_S,
            repair_mean_days=float(days.mean()) if days.size else None,
            repair_median_days=float(np.median(days)) if days.size else None,
            until_s=max(event.t_s for event in events),
        )
        return {"t_s": t_s, "added": np.array(added, np.int64), "node": nodes}

    def _membership(
        self, events: list[_Event], name: str, repairs: RepairLog
    ) -> tuple[list[tuple[float, bool, str]], list[float]]:
        """Rows (time, is it an addition, node), away from the first start until no fault is left; and how long each
        repair took, those of length 0 included.
        """
        repaired_s: list[float] = []
        spans: dict[str, list[tuple[float, float]]] = {}
        down: dict[str, list[_Event]] = {}  # by node: its faults that are not repaired yet
        for event in sorted(events, key=lambda event: (event.t_s, event.node, not event.starts)):
            node, faults = event.node, down.setdefault(event.node, [])
            if event.starts:
                if faults:
                    repairs.note("fault of a node that is down already, merged", f"{name}:node {node}")
                faults.append(event)
            elif faults:
                # The fault of the same kind, where the file says the kind; else the one that began first.
                mended = next((fault for fault in faults if fault.kind == event.kind), faults[0])
                faults.remove(mended)
                repaired_s.append(event.t_s - mended.t_s)
                if event.t_s == mended.t_s:
                    repairs.note("fault of length 0, dropped", f"{name}:node {node}")
                else:
                    spans.setdefault(node, []).append((mended.t_s, event.t_s))
            else:
                repairs.note("repair of a node that is not down, ignored", f"{name}:node {node}")
        for node, faults in down.items():
            spans.setdefault(node, []).extend((fault.t_s, np.inf) for fault in faults)
        names = sorted({event.node for event in events})
        if len(names) > self.nodes:
            what = f"names {len(names)} nodes, more than the {self.nodes} of the fleet; set the option nodes"
            raise TraceError.at(name, what)
        names += [f"never-failed-{i}" for i in range(self.nodes - len(names))]
        rows = [(0.0, True, node) for node in names]
        for node, away in spans.items():
            for down_s, up_s in _merged(away):
                rows.append((down_s, False, node))
                if np.isfinite(up_s):
                    rows.append((up_s, True, node))
        return sorted(rows), repaired_s


def _merged(spans: list[tuple[float, float]]) -> list[tuple[float, float]]:
    """Spans in order, overlapping or touching ones as one."""
    merged: list[tuple[float, float]] = []
    for start, end in sorted(spans):
        if merged and start <= merged[-1][1]:
            merged[-1] = (merged[-1][0], max(merged[-1][1], end))
        else:
            merged.append((start, end))
    return merged


def _event(entry: Any) -> _Event:
    """An entry; ValueError says what is wrong."""
    if not isinstance(entry, dict):
        raise ValueError("is not an object")
    days, node = json_number(_DAYS, entry.get("event_time")), entry.get("node_id")
    if not isinstance(node, str | int) or isinstance(node, bool) or not 0 < len(str(node)) <= 256:
        raise ValueError(f"node_id {shown(node)} is not a name")
    kind = str(entry.get("event_type", "")).lower()
    if "start" not in kind and "end" not in kind:
        raise ValueError(f"event_type {shown(entry.get('event_type'))} is neither a start nor an end")
    fault = json.dumps(entry.get("fault_type"), sort_keys=True, default=str)
    return _Event(float(days) * DAY_S, str(node), "start" in kind, fault)
