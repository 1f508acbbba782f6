"""Membership of a fleet of preemptible nodes: `milliseconds,add|remove,name`, no header, as Bamboo publishes it."""

from __future__ import annotations

import numpy as np

from forerun.core.trace.reader import Head
from forerun.core.trace.repair import shown
from forerun.core.trace.rows import Field
from forerun.core.trace.tabular import Rows, TableReader

VERBS = ("add", "remove")
FIELDS = (
    Field(name="t_ms", kind="int", minimum=0, unit="ms", meaning="milliseconds since the start"),
    Field(name="verb", kind="text", choices=VERBS, meaning="add or remove"),
    Field(name="node", kind="text", longest=256, meaning="name of the node"),
)
COLUMNS = (
    Field(name="t_s", unit="s", meaning="time since the start"),
    Field(name="added", kind="int", meaning="1 if the node is added, 0 if it is removed"),
    Field(name="node", kind="text", meaning="name of the node"),
)


class SpotMembership(TableReader, frozen=True, kw_only=True, tag="spot_membership"):
    """Who joined and who left when: nodes by name, times in milliseconds."""

    about = "membership of a preemptible fleet, ms,add|remove,name (Bamboo, Oobleck)"
    makes = "membership"
    columns = FIELDS
    schema = COLUMNS
    time = "t_s"
    header = False

    @classmethod
    def recognises(cls, head: Head) -> bool:
        """Three cells, the second of which is a verb, in at least half of the rows: the reader names the others."""
        rows = [line.split(",") for line in head.lines if line.strip()]
        fitting = sum(len(cells) == 3 and cells[1].strip() in VERBS for cells in rows)
        return fitting > 0 and 2 * fitting >= len(rows)

    def settle(self, rows: Rows) -> None:
        """The changes in time order, removals before additions within an instant."""
        settle_membership(rows)


def settle_membership(rows: Rows) -> None:
    """Sort additions and removals, and keep those that make sense; the others are repairs or complaints.

    Within an instant nodes that were alive are removed first, then nodes are added; a node that is added and
    removed in one instant never lived.
    """
    rows.sort("t_ms")
    rows.keep(_consistent(rows))
    rows.complaints.finish()
    rows["t_s"] = rows["t_ms"] / 1000.0
    rows["added"] = (rows["verb"] == "add").astype(np.int64)


def _consistent(rows: Rows) -> list[int]:
    """Positions of the rows that make sense, in time order."""
    repairs = rows.source.repairs
    times, verbs, nodes = (rows[name].tolist() for name in ("t_ms", "verb", "node"))
    alive: set[str] = set()
    positions: list[int] = []
    first = 0
    while first < len(times):
        last = first
        while last < len(times) and times[last] == times[first]:
            last += 1
        instant = range(first, last)
        removed = [i for i in instant if verbs[i] == "remove"]
        added = [i for i in instant if verbs[i] == "add"]
        gone = {nodes[i]: i for i in removed if nodes[i] in alive}
        alive.difference_update(gone)
        positions += sorted(gone.values())
        left = {nodes[i]: i for i in removed if nodes[i] not in gone}
        for i in added:
            if nodes[i] in alive:
                rows.complaints.add(rows.at(i, "node"), f"{shown(nodes[i])} is added while it is alive")
            elif left.pop(nodes[i], None) is not None:
                repairs.note("node added and removed in one instant, dropped", rows.at(i))
            else:
                alive.add(nodes[i])
                positions.append(i)
        for i in left.values():
            repairs.note("removal of a node that is not alive, ignored", rows.at(i))
        first = last
    return positions
