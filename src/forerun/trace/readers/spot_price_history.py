"""Spot prices as `aws ec2 describe-spot-price-history` prints them: `{"SpotPriceHistory": [...]}`.

Newest first, one entry a change, several zones and machine types in one file; prices are texts.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any, ClassVar

import numpy as np

from forerun.errors import TraceError
from forerun.trace.reader import Head, TraceReader
from forerun.trace.repair import Complaints, RepairLog, shown
from forerun.trace.rows import TEXT, Field, parse_instant, read_json
from forerun.trace.source import Source
from forerun.trace.table import Trace, schema_of, sort_rows

COLUMNS = (
    Field(name="t_s", unit="s", meaning="time since the first change kept"),
    Field(name="usd_per_h", unit="usd/h", meaning="price from then on"),
    Field(name="zone", kind="text", meaning="availability zone"),
    Field(name="machine", kind="text", meaning="machine type"),
)
_PRICE = re.compile(r"[0-9]{1,6}(?:\.[0-9]{1,10})?")


class SpotPriceHistory(TraceReader, frozen=True, kw_only=True, tag="spot_price_history"):
    """Changes of spot prices. zone, machine: keep only these (empty: all)."""

    about: ClassVar[str] = "spot price history of AWS, as its command line prints it"
    makes: ClassVar[str] = "prices"

    zone: str = ""
    machine: str = ""

    @classmethod
    def recognises(cls, head: Head) -> bool:
        """A JSON object with the one key of that command."""
        return '"SpotPriceHistory"' in "".join(head.lines)[:200]

    def read(self, path: Path, repairs: RepairLog) -> Trace:
        """Price changes in time order."""
        source, complaints = Source(path, repairs=repairs), Complaints()
        document = read_json(source)
        entries = document.get("SpotPriceHistory") if isinstance(document, dict) else None
        if not isinstance(entries, list):
            raise TraceError.at(f"{source.name}:SpotPriceHistory", "is not a list of price changes")
        rows: list[tuple[int, float, str, str]] = []
        for i, entry in enumerate(entries):
            try:
                row = _change(entry)
            except ValueError as error:
                complaints.add(f"{source.name}:SpotPriceHistory[{i}]", str(error))
                continue
            if self.zone in ("", row[2]) and self.machine in ("", row[3]):
                rows.append(row)
        complaints.finish()
        if not rows:
            raise TraceError.at(source.name, "holds no price change for this zone and machine")
        first = min(row[0] for row in rows)
        table = {
            "t_s": np.array([(row[0] - first) / 1e9 for row in rows]),
            "usd_per_h": np.array([row[1] for row in rows]),
            "zone": np.array([row[2] for row in rows], dtype=TEXT),
            "machine": np.array([row[3] for row in rows], dtype=TEXT),
        }
        made = self.provenance(source, repairs, first_ns=first)
        columns = sort_rows(table, "t_s", None, repairs)
        return Trace("prices", schema_of(COLUMNS), columns, time="t_s", provenance=made)


def _change(entry: Any) -> tuple[int, float, str, str]:
    """Instant, price, zone and machine of an entry; ValueError says what is wrong."""
    if not isinstance(entry, dict):
        raise ValueError("is not an object")
    texts = [entry.get(name) for name in ("Timestamp", "SpotPrice", "AvailabilityZone", "InstanceType")]
    if any(not isinstance(text, str) for text in texts):
        raise ValueError("needs Timestamp, SpotPrice, AvailabilityZone and InstanceType as texts")
    instant, price, zone, machine = (str(text) for text in texts)
    if not _PRICE.fullmatch(price):
        raise ValueError(f"{shown(price)} is not a price")
    return parse_instant(instant), float(price), zone, machine
