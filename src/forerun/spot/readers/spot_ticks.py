"""Preemptible machines of one kind, looked at tick by tick: SkyNomad's availability and prices, and CSV `date,availability`.

Availability is written with two meanings: a number of machines available, or 1 for preempted. Nothing in a file says
which, so the reader needs an option. SkyNomad's ticks of prices need not be as long as those of the availability they go
with, so their length is read from each file.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal, TypeAlias

import numpy as np
from numpy.typing import NDArray

from forerun.core.errors import TraceError
from forerun.core.trace.documents import JsonDocument, JsonReader
from forerun.core.trace.objects import json_number
from forerun.core.trace.reader import Head
from forerun.core.trace.repair import RepairLog, shown
from forerun.core.trace.rows import Field
from forerun.core.trace.table import Trace
from forerun.core.trace.tabular import Rows, TableReader, changes
from forerun.spot.readers.spot_price_history import COLUMNS as PRICE_COLUMNS

#: what a number means: a count of machines, 1 for one that is not there, or 1 for one that is there
Polarity: TypeAlias = Literal["", "available", "preempted", "up"]

COLUMNS = (
    Field(name="t_s", unit="s", meaning="time since the first tick"),
    Field(name="nodes", kind="int", meaning="machines available from then on"),
)
_TICK = Field(name="tick", kind="int", whole_decimals=True, minimum=0, maximum=1_000_000)
_PRICE = Field(name="price", minimum=0, maximum=1e6)
_HOUR_UNITS = ("h", "hour", "Hrs")
_NO_POLARITY = "does not say what its numbers mean; set polarity to available, preempted or up"


def _nodes(seen: NDArray[np.int64], polarity: Polarity, machines: int) -> NDArray[np.int64]:
    """Machines that are there, by tick.

    Parameters
    ----------
    seen : values of the file.
    polarity : what they say: how many are available, whether all are up, or whether all were taken away.
    machines : how many a 0 or 1 stands for.
    """
    up = {"available": seen, "up": machines * seen, "preempted": machines * (1 - seen)}
    return up[polarity].astype(np.int64)


def _in_ticks(
    document: JsonDocument, values: NDArray[Any], gap_s: float
) -> tuple[NDArray[np.bool_], NDArray[Any]]:
    """Which ticks differ from the one before, and the instants of those."""
    document.facts.update(gap_s=gap_s, ticks=len(values), until_s=len(values) * gap_s)
    changed = changes(values)
    return changed, np.flatnonzero(changed) * gap_s


def _gap_s(document: JsonDocument, gap: Any, *place: str) -> float:
    if isinstance(gap, bool) or not isinstance(gap, int | float) or not 0 < gap < 1e9:
        raise document.error(f"{shown(gap)} is not a length of ticks in seconds", *place)
    return float(gap)


def _object(value: Any) -> Mapping[str, Any]:
    """The value if it is an object, else an empty one."""
    return value if isinstance(value, dict) else {}


class SpotTicks(JsonReader, frozen=True, kw_only=True, tag="spot_ticks"):
    """Ticks of availability as SkyNomad publishes them: `{metadata: {gap_seconds}, data: []}`.

    polarity: what a number means, `available` (a count of machines), `preempted` (1 is not there) or `up` (1 is
    there); it has no default. machines: how many a 0 or 1 stands for. filled: whether ticks that the publisher
    invented to fill a gap are kept (they are counted in both cases).
    """

    polarity: Polarity = ""
    machines: int = 1
    filled: Literal["keep", "refuse"] = "keep"

    about = "availability of preemptible machines in ticks (SkyNomad)"
    makes = "capacity"
    schema = COLUMNS

    @classmethod
    def recognises(cls, head: Head) -> bool:
        """A JSON object that begins with its metadata, the length of a tick among them."""
        start = "".join(head.lines)[:40].replace(" ", "")
        begins = head.name.endswith(".json") and start.startswith('{"metadata":{')
        return begins and "metadata.gap_seconds" in head.json_keys()

    def columns(self, document: JsonDocument) -> Mapping[str, Any]:
        """Machines available, one row a change."""
        if not self.polarity:
            raise document.error(_NO_POLARITY, "data")
        content = _object(document.value)
        metadata = _object(content.get("metadata"))
        gap_s = _gap_s(document, metadata.get("gap_seconds"), "metadata", "gap_seconds")
        data = content.get("data")
        if not isinstance(data, list) or not data:
            raise document.error("is not a list of ticks", "data")
        seen = document.parsed(self._tick, data, "data")
        document.complaints.finish()
        self._note_filled(document, metadata.get("gap_filled"))
        nodes = _nodes(np.array(seen), self.polarity, self.machines)
        changed, t_s = _in_ticks(document, nodes, gap_s)
        return {"t_s": t_s, "nodes": nodes[changed]}

    def _tick(self, value: Any) -> int:
        tick = int(json_number(_TICK, value))
        if self.polarity != "available" and tick > 1:
            raise ValueError(f"{tick} is neither 0 nor 1, which {self.polarity!r} needs")
        return tick

    def _note_filled(self, document: JsonDocument, filled: Any) -> None:
        if isinstance(filled, dict):
            points = filled.get("gap_points")
            count = points if isinstance(points, int) and points > 0 else 1
            place = ("metadata", "gap_filled")
            if self.filled == "refuse":
                raise document.error(f"{count} ticks were invented by the publisher", *place)
            document.note("ticks invented by the publisher to fill a gap, kept", *place, count=count)


class SpotTickPrices(JsonReader, frozen=True, kw_only=True, tag="spot_tick_prices"):
    """Prices in ticks as SkyNomad publishes them, `{prices: [], gap_seconds, price_info}`: one row a change.

    `gap_seconds` and `price_info` may stand in `metadata`. zone: a name for where they hold (empty: the file's, if it says).
    """

    zone: str = ""

    about = "spot prices in ticks (SkyNomad)"
    makes = "prices"
    schema = PRICE_COLUMNS

    @classmethod
    def recognises(cls, head: Head) -> bool:
        """A JSON object that begins with its prices."""
        start = "".join(head.lines)[:40].replace(" ", "")
        return head.name.endswith(".json") and start.startswith('{"prices":[')

    def columns(self, document: JsonDocument) -> Mapping[str, Any]:
        """Price changes in time order, the first at 0."""
        content = _object(document.value)
        prices = content.get("prices")
        if not isinstance(prices, list):
            raise document.error("is not a list of prices", "prices")
        about = {**_object(content.get("metadata")), **content}
        gap_s = _gap_s(document, about.get("gap_seconds"), "gap_seconds")
        machine = _machine(document, _object(about.get("price_info")))
        values = np.array(document.parsed(lambda value: json_number(_PRICE, value), prices, "prices"))
        document.complaints.finish()
        if not prices:
            raise document.error("is empty", "prices")
        changed, t_s = _in_ticks(document, values, gap_s)
        zone = self.zone or str(_object(content.get("metadata")).get("zone", ""))[:256]
        rows = len(t_s)
        return {"t_s": t_s, "usd_per_h": values[changed], "zone": [zone] * rows, "machine": [machine] * rows}


def _machine(document: JsonDocument, info: Mapping[str, Any]) -> str:
    """The machine the prices are of; other currencies and units than dollars an hour are refused."""
    if (currency := info.get("currency", "USD")) != "USD":
        raise document.error(f"{shown(currency)} is not USD", "price_info", "currency")
    for key in ("price_unit", "on_demand_price_unit"):
        if (unit := info.get(key, "h")) not in _HOUR_UNITS:
            raise document.error(f"{shown(unit)} is not h, an hour", "price_info", key)
    return str(info.get("instance_type", info.get("machine_type", "")))[:256]


class SpotAvailability(TableReader, frozen=True, kw_only=True, tag="spot_availability"):
    """CSV of a date and an availability. Ticks need not be equally long: a row is valid until the next one.

    polarity, machines: as for `spot_ticks`.
    """

    polarity: Polarity = ""
    machines: int = 1

    about = "availability of preemptible machines, CSV date,availability"
    makes = "capacity"
    signature = ("date", "availability")
    columns = (
        Field(name="at_ns", column="date", kind="datetime", unit="ns", meaning="when it was looked"),
        Field(
            name="seen", column="availability", kind="int", whole_decimals=True, minimum=0, maximum=1_000_000
        ),
    )
    schema = (Field(name="t_s", unit="s", meaning="time since the first row"), COLUMNS[1])

    def read(self, path: Path, repairs: RepairLog) -> Trace:
        """Machines available, one row a change, the first at 0."""
        if not self.polarity:
            raise TraceError.at(f"{path}:availability", _NO_POLARITY)
        return super().read(path, repairs)

    def settle(self, rows: Rows) -> None:
        if self.polarity != "available":
            what = f"is neither 0 nor 1, which {self.polarity!r} needs"
            rows.reject(rows["seen"] > 1, "availability", what)
        rows.complaints.finish()
        rows.sort("at_ns")
        rows["nodes"] = _nodes(rows["seen"], self.polarity, self.machines)
        rows["t_s"] = (rows["at_ns"] - rows["at_ns"][0]) / 1e9
        rows.facts.update(ticks=len(rows), until_s=float(rows["t_s"][-1]))
        rows.keep(changes(rows["nodes"]))
