"""Spot prices as `aws ec2 describe-spot-price-history` prints them: `{"SpotPriceHistory": [...]}`.

Newest first, one entry a change, several zones and machine types in one file; prices are texts.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any, TypeAlias

from forerun.core.errors import TraceError
from forerun.core.trace.documents import JsonDocument, JsonReader
from forerun.core.trace.reader import Head
from forerun.core.trace.repair import RepairLog, shown
from forerun.core.trace.rows import Field, parse_instant
from forerun.core.trace.source import Source
from forerun.core.trace.table import Trace

COLUMNS = (
    Field(name="t_s", unit="s", meaning="time since the first change in the trace"),
    Field(name="usd_per_h", unit="usd/h", meaning="price from then on"),
    Field(name="zone", kind="text", meaning="availability zone"),
    Field(name="machine", kind="text", meaning="machine type"),
)
_BRACE = re.compile(r'"(?:[^"\\]++|\\.)*+"|[{}]', re.DOTALL)
#: nanoseconds since 1970, zone, machine type and product of a change
_Key: TypeAlias = tuple[int, str, str, str]
_PRICE = re.compile(r"[0-9]{1,6}(?:\.[0-9]{1,10})?")


class SpotPriceHistory(JsonReader, frozen=True, kw_only=True, tag="spot_price_history"):
    """Changes of spot prices. zone, machine, product: keep only these (empty: all).

    Products (Linux/UNIX, Windows, ...) have prices of their own, so only one may be left.
    """

    zone: str = ""
    machine: str = ""
    product: str = ""

    about = "spot price history of AWS, as its command line prints it"
    makes = "prices"
    schema = COLUMNS

    @classmethod
    def recognises(cls, head: Head) -> bool:
        """A JSON object with the one key of that command."""
        return "SpotPriceHistory" in head.json_keys()

    def read(self, path: Path, repairs: RepairLog) -> Trace:
        """Price changes in time order; of several pages in one file, all."""
        source = Source(path, repairs=repairs)
        pages = _pages(source, source.read(self.most_bytes))
        prices: dict[_Key, float] = {}
        for page in pages:
            page.complaints = pages[0].complaints
            _add(page, prices)
        if pages[-1].value.get("NextToken"):
            repairs.note("ends in the middle: NextToken asks for a further page", f"{source.name}:NextToken")
        pages[0].complaints.finish()
        chosen = (self.zone, self.machine, self.product)
        matches = [
            key for key in prices if all(want in ("", has) for want, has in zip(chosen, key[1:], strict=True))
        ]
        if not matches:
            raise TraceError.at(source.name, "contains no price change for this zone, machine and product")
        instants, zones, machines, products = zip(*sorted(matches, key=lambda key: key[0]), strict=True)
        if len(distinct := sorted(set(products))) > 1:
            some = ", ".join(map(shown, distinct[:4]))
            what = f"contains prices of {len(distinct)} products ({some}); choose one by product"
            raise TraceError.at(f"{source.name}:ProductDescription", what)
        columns = {
            "t_s": [(instant - instants[0]) / 1e9 for instant in instants],
            "usd_per_h": [prices[key] for key in zip(instants, zones, machines, products, strict=True)],
            "zone": zones,
            "machine": machines,
        }
        return self.trace(source, columns, {"first_ns": instants[0]})


def _add(page: JsonDocument, prices: dict[_Key, float]) -> None:
    """Add the price changes of a page; one that contradicts an earlier one is a complaint."""
    entries = page.value.get("SpotPriceHistory") if isinstance(page.value, dict) else None
    if not isinstance(entries, list):
        raise page.error("is not a list of price changes", "SpotPriceHistory")
    for i, entry in enumerate(entries):
        try:
            key, price = _change(entry)
        except ValueError as error:
            page.complaints.add(page.at("SpotPriceHistory", i), str(error))
            continue
        if key in prices:
            if (before := prices[key]) != price:
                what = f"is {price:g}, but was {before:g} at the same instant before"
                page.complaints.add(page.at("SpotPriceHistory", i), what)
            page.note("price change listed twice, dropped", "SpotPriceHistory", i)
        prices.setdefault(key, price)


def _pages(source: Source, text: str) -> list[JsonDocument]:
    """The JSON documents of a file: pages that were fetched one by one may stand in it one after another."""
    depth, ends = 0, []
    for match in _BRACE.finditer(text):
        depth += {"{": 1, "}": -1}.get(match[0], 0)
        if depth == 0 and match[0] == "}":
            ends.append(match.end())
    if not ends or text[ends[-1] :].strip():
        ends = [len(text)]  # not whole: whatever is wrong is said of all of it
    parts = [f"page {number + 1}:" if len(ends) > 1 else "" for number in range(len(ends))]
    return [
        JsonDocument(source, text[begin:end], line=text.count("\n", 0, begin) + 1, part=part)
        for begin, end, part in zip([0, *ends], ends, parts)
    ]


def _change(entry: Any) -> tuple[_Key, float]:
    """Instant, zone, machine and product of an entry, and its price; ValueError says what is wrong."""
    if not isinstance(entry, dict):
        raise ValueError("is not an object")
    texts = [entry.get(name) for name in ("Timestamp", "SpotPrice", "AvailabilityZone", "InstanceType")]
    if any(not isinstance(text, str) for text in texts):
        raise ValueError("needs Timestamp, SpotPrice, AvailabilityZone and InstanceType as texts")
    instant, price, zone, machine = (str(text) for text in texts)
    if not _PRICE.fullmatch(price):
        raise ValueError(f"{shown(price)} is not a price")
    return (parse_instant(instant), zone, machine, str(entry.get("ProductDescription", ""))), float(price)
