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
from forerun.trace.rows import TEXT, Field, parse_instant, parse_json
from forerun.trace.source import Source
from forerun.trace.table import Trace, schema_of, sort_rows

COLUMNS = (
    Field(name="t_s", unit="s", meaning="time since the first change kept"),
    Field(name="usd_per_h", unit="usd/h", meaning="price from then on"),
    Field(name="zone", kind="text", meaning="availability zone"),
    Field(name="machine", kind="text", meaning="machine type"),
)
_BRACE = re.compile(r'"(?:[^"\\]++|\\.)*+"|[{}]', re.DOTALL)
_MOST_BYTES = 256 << 20
_PRICE = re.compile(r"[0-9]{1,6}(?:\.[0-9]{1,10})?")


class SpotPriceHistory(TraceReader, frozen=True, kw_only=True, tag="spot_price_history"):
    """Changes of spot prices. zone, machine, product: keep only these (empty: all).

    Products (Linux/UNIX, Windows, ...) have prices of their own, so only one may be left.
    """

    about: ClassVar[str] = "spot price history of AWS, as its command line prints it"
    makes: ClassVar[str] = "prices"

    zone: str = ""
    machine: str = ""
    product: str = ""

    @classmethod
    def recognises(cls, head: Head) -> bool:
        """A JSON object with the one key of that command."""
        return '"SpotPriceHistory"' in "".join(head.lines)[:200]

    def read(self, path: Path, repairs: RepairLog) -> Trace:
        """Price changes in time order; of several pages in one file, all."""
        source, complaints = Source(path, repairs=repairs), Complaints()
        pages = _pages(source)
        listed: dict[tuple[int, str, str, str], tuple[int, float, str, str]] = {}
        for number, page in enumerate(pages):
            at = "SpotPriceHistory" if len(pages) == 1 else f"page {number + 1}:SpotPriceHistory"
            entries = page.get("SpotPriceHistory") if isinstance(page, dict) else None
            if not isinstance(entries, list):
                raise TraceError.at(f"{source.name}:{at}", "is not a list of price changes")
            for i, entry in enumerate(entries):
                place = f"{source.name}:{at}[{i}]"
                try:
                    row = _change(entry)
                except ValueError as error:
                    complaints.add(place, str(error))
                    continue
                key = (row[0], row[2], row[3], str(entry.get("ProductDescription", "")))
                if (before := listed.setdefault(key, row)) is not row:
                    if before != row:
                        complaints.add(
                            place, f"is {row[1]:g}, but was {before[1]:g} at the same instant before"
                        )
                    repairs.note("price change listed twice, dropped", place)
        if pages[-1].get("NextToken"):
            repairs.note("ends in the middle: NextToken asks for a further page", f"{source.name}:NextToken")
        wanted = (self.zone, self.machine, self.product)
        kept = [
            (key, row)
            for key, row in listed.items()
            if all(want in ("", has) for want, has in zip(wanted, key[1:], strict=True))
        ]
        rows = [row for _, row in kept]
        products = sorted({key[3] for key, _ in kept})
        complaints.finish()
        if not rows:
            raise TraceError.at(source.name, "holds no price change for this zone, machine and product")
        if len(products) > 1:
            what = f"holds prices of {len(products)} products ({', '.join(map(shown, products[:4]))}); choose one by product"
            raise TraceError.at(f"{source.name}:ProductDescription", what)
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


def _pages(source: Source) -> list[Any]:
    """The JSON documents of a file: pages that were fetched one by one may stand in it one after another."""
    text = source.read(_MOST_BYTES)
    depth, begin, ends = 0, 0, []
    for match in _BRACE.finditer(text):
        depth += {"{": 1, "}": -1}.get(match[0], 0)
        if depth == 0 and match[0] == "}":
            ends.append(match.end())
    if not ends or text[ends[-1] :].strip():
        ends = [len(text)]  # not whole: whatever is wrong is said of all of it
    pages = []
    for end in ends:
        before = text.count("\n", 0, begin)
        try:
            pages.append(parse_json(text[begin:end]))
        except ValueError as error:
            raise TraceError.at(source.at(before + getattr(error, "line", 1)), str(error)) from None
        begin = end
    return pages


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
