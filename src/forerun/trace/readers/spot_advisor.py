"""How often spot machines are interrupted, as AWS's spot advisor says: `{ranges: [], spot_advisor: {region: ...}}`.

A machine's `r` is an index into ranges of the share interrupted within a month: a coarse prior, not a trace.  The
hazard given is the constant one that the middle of the range would need.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any, ClassVar

import numpy as np

from forerun.errors import TraceError
from forerun.trace.reader import Head, TraceReader
from forerun.trace.repair import Complaints, RepairLog
from forerun.trace.rows import TEXT, Field, json_number, read_json
from forerun.trace.source import Source
from forerun.trace.table import Trace, schema_of

MONTH_H = 730.0
COLUMNS = (
    Field(name="t_s", unit="s", meaning="always 0: what holds now"),
    Field(name="region", kind="text", meaning="region"),
    Field(name="os", kind="text", meaning="operating system"),
    Field(name="machine", kind="text", meaning="machine type"),
    Field(name="monthly_low", unit="share", meaning="share interrupted within a month, at least"),
    Field(name="monthly_high", unit="share", meaning="share interrupted within a month, at most"),
    Field(name="per_node_h", unit="1/h", meaning="constant hazard of a node for the middle of the range"),
    Field(name="saved", unit="share", meaning="share saved against on-demand"),
)
_INDEX = Field(name="r", kind="int", minimum=0, maximum=1000)
_PERCENT = Field(name="s", minimum=0, maximum=100)


class SpotAdvisor(TraceReader, frozen=True, kw_only=True, tag="spot_advisor"):
    """Ranges of monthly interruption. region, os, machine: keep only these (empty: all)."""

    about: ClassVar[str] = "monthly interruption of spot machines (AWS spot advisor), a prior only"
    makes: ClassVar[str] = "interruptions"

    region: str = ""
    os: str = ""
    machine: str = ""

    @classmethod
    def recognises(cls, head: Head) -> bool:
        """A JSON object with that one key."""
        return '"spot_advisor"' in "".join(head.lines)[:4000]

    def read(self, path: Path, repairs: RepairLog) -> Trace:
        """One row a machine type, in the file's order."""
        source, complaints = Source(path, repairs=repairs), Complaints()
        document = read_json(source)
        ranges = _ranges(document, source.name)
        rows: list[tuple[str, str, str, float, float, float]] = []
        for region, system, machine, entry in _entries(document, source.name):
            wanted = zip((self.region, self.os, self.machine), (region, system, machine))
            if any(want not in ("", is_) for want, is_ in wanted):
                continue
            try:
                rows.append((region, system, machine, *_shares(entry, ranges)))
            except ValueError as error:
                complaints.add(f"{source.name}:spot_advisor.{region}.{system}.{machine}", str(error))
        complaints.finish()
        if not rows:
            raise TraceError.at(source.name, "holds no machine of this region and system")
        columns = list(zip(*rows, strict=True))
        low, high, saved = (np.array(column, dtype=np.float64) for column in columns[3:])
        table = {
            "t_s": np.zeros(len(rows)),
            **{name: np.array(columns[i], dtype=TEXT) for i, name in enumerate(("region", "os", "machine"))},
            "monthly_low": low,
            "monthly_high": high,
            "per_node_h": -np.log1p(-(low + high) / 2) / MONTH_H,
            "saved": saved,
        }
        made = self.provenance(source, repairs)
        return Trace("interruptions", schema_of(COLUMNS), table, time="t_s", provenance=made)


def _ranges(document: Any, name: str) -> list[tuple[float, float]]:
    """Lower and upper share of each range: a range begins where the one before ends."""
    listed = document.get("ranges") if isinstance(document, dict) else None
    if not isinstance(listed, list) or not listed:
        raise TraceError.at(f"{name}:ranges", "is not a list of ranges")
    tops: dict[int, float] = {}
    for i, entry in enumerate(listed):
        place = f"{name}:ranges[{i}]"
        if not isinstance(entry, dict):
            raise TraceError.at(place, "is not an object")
        try:
            index = int(json_number(_INDEX, entry.get("index")))
            tops[index] = float(json_number(_PERCENT, entry.get("max"))) / 100
        except ValueError as error:
            raise TraceError.at(place, str(error)) from None
    if sorted(tops) != list(range(len(listed))):
        raise TraceError.at(f"{name}:ranges", f"indices {sorted(tops)} are not 0 to {len(listed) - 1}")
    highs = [tops[i] for i in range(len(listed))]
    if any(after <= before for before, after in zip([0.0, *highs], highs)):
        raise TraceError.at(f"{name}:ranges", "upper ends do not rise")
    return list(zip([0.0, *highs], highs))


def _entries(document: Any, name: str) -> Iterator[tuple[str, str, str, Any]]:
    """Region, system, machine and entry, as they stand in the file."""
    regions = document.get("spot_advisor")
    if not isinstance(regions, dict):
        raise TraceError.at(f"{name}:spot_advisor", "is not an object of regions")
    for region, systems in regions.items():
        if not isinstance(systems, dict):
            raise TraceError.at(f"{name}:spot_advisor.{region}", "is not an object of systems")
        for system, machines in systems.items():
            if not isinstance(machines, dict):
                raise TraceError.at(f"{name}:spot_advisor.{region}.{system}", "is not an object of machines")
            for machine, entry in machines.items():
                yield region, system, machine, entry


def _shares(entry: Any, ranges: list[tuple[float, float]]) -> tuple[float, float, float]:
    """Lower and upper monthly share, and the share saved; ValueError says what is wrong."""
    if not isinstance(entry, dict):
        raise ValueError("is not an object with r and s")
    index = int(json_number(_INDEX, entry.get("r")))
    if index >= len(ranges):
        raise ValueError(f"r is {index}, but the ranges end at {len(ranges) - 1}")
    return *ranges[index], float(json_number(_PERCENT, entry.get("s"))) / 100
