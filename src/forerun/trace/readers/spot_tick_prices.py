"""Spot prices tick by tick, as SkyNomad publishes them: `{prices: [], gap_seconds, price_info}`.

The ticks of prices need not be as long as those of the availability they go with, so the length is read from the file
itself: `gap_seconds` at the top or in `metadata`.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, ClassVar

import numpy as np

from forerun.errors import TraceError
from forerun.trace.reader import Head, TraceReader
from forerun.trace.readers.spot_price_history import COLUMNS
from forerun.trace.repair import Complaints, RepairLog, shown
from forerun.trace.rows import TEXT, Field, json_number, read_json
from forerun.trace.source import Source
from forerun.trace.table import Trace, schema_of

_PRICE = Field(name="price", minimum=0, maximum=1e6)
_HOUR_UNITS = ("h", "hour", "Hrs")


class SpotTickPrices(TraceReader, frozen=True, kw_only=True, tag="spot_tick_prices"):
    """Prices in ticks, one row a change.  zone: a name for where they hold (empty: the file's, if it says)."""

    about: ClassVar[str] = "spot prices in ticks (SkyNomad)"
    makes: ClassVar[str] = "prices"

    zone: str = ""

    @classmethod
    def recognises(cls, head: Head) -> bool:
        """A JSON object that begins with its prices."""
        return head.name.endswith(".json") and "".join(head.lines)[:40].replace(" ", "").startswith(
            '{"prices":['
        )

    def read(self, path: Path, repairs: RepairLog) -> Trace:
        """Price changes in time order, the first at 0."""
        source, complaints = Source(path, repairs=repairs), Complaints()
        document = read_json(source)
        if not isinstance(document, dict) or not isinstance(document.get("prices"), list):
            raise TraceError.at(f"{source.name}:prices", "is not a list of prices")
        told = document.get("metadata")
        metadata: dict[str, Any] = told if isinstance(told, dict) else {}
        gap_s = _gap(document, metadata, source.name)
        machine = _machine(document, metadata, source.name)
        prices: list[float] = []
        for i, value in enumerate(document["prices"]):
            try:
                prices.append(float(json_number(_PRICE, value)))
            except ValueError as error:
                complaints.add(f"{source.name}:prices[{i}]", str(error))
        complaints.finish()
        if not prices:
            raise TraceError.at(f"{source.name}:prices", "is empty")
        values = np.array(prices)
        changed = np.append(True, values[1:] != values[:-1])
        rows = int(changed.sum())
        zone = self.zone or str(metadata.get("zone", ""))[:256]
        table = {
            "t_s": np.flatnonzero(changed) * gap_s,
            "usd_per_h": values[changed],
            "zone": np.array([zone] * rows, dtype=TEXT),
            "machine": np.array([machine] * rows, dtype=TEXT),
        }
        made = self.provenance(source, repairs, gap_s=gap_s, ticks=len(prices), until_s=len(prices) * gap_s)
        return Trace("prices", schema_of(COLUMNS), table, time="t_s", provenance=made)


def _gap(document: dict[str, Any], metadata: dict[str, Any], name: str) -> float:
    gap = document.get("gap_seconds", metadata.get("gap_seconds"))
    if isinstance(gap, bool) or not isinstance(gap, int | float) or not 0 < gap < 1e9:
        raise TraceError.at(f"{name}:gap_seconds", f"{shown(gap)} is not a length of ticks in seconds")
    return float(gap)


def _machine(document: dict[str, Any], metadata: dict[str, Any], name: str) -> str:
    """The machine the prices are of; other currencies and units than dollars an hour are refused."""
    told = document.get("price_info", metadata.get("price_info"))
    info: dict[str, Any] = told if isinstance(told, dict) else {}
    if (currency := info.get("currency", "USD")) != "USD":
        raise TraceError.at(f"{name}:price_info.currency", f"{shown(currency)} is not USD")
    for key in ("price_unit", "on_demand_price_unit"):
        if (unit := info.get(key, "h")) not in _HOUR_UNITS:
            raise TraceError.at(f"{name}:price_info.{key}", f"{shown(unit)} is not h, an hour")
    return str(info.get("instance_type", info.get("machine_type", "")))[:256]
