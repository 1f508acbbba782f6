"""How often spot machines are interrupted, as AWS's spot advisor says: `{ranges: [], spot_advisor: {region: ...}}`.

A machine's `r` is an index into ranges of the share interrupted within a month: a coarse prior, not a trace.  The
hazard given is the constant one that the middle of the range would need.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from forerun.core.errors import TraceError
from forerun.core.trace.documents import JsonDocument, JsonReader
from forerun.core.trace.objects import json_number
from forerun.core.trace.reader import Head
from forerun.core.trace.rows import Field

MONTH_H = 730.0
_INDEX = Field(name="r", kind="int", minimum=0, maximum=1000)
_PERCENT = Field(name="s", minimum=0, maximum=100)


class SpotAdvisor(JsonReader, frozen=True, kw_only=True, tag="spot_advisor"):
    """Ranges of monthly interruption. region, os, machine: keep only these (empty: all)."""

    region: str = ""
    os: str = ""
    machine: str = ""

    about = "monthly interruption of spot machines (AWS spot advisor), a prior only"
    makes = "interruptions"
    schema = (
        Field(name="t_s", unit="s", meaning="always 0: the current values"),
        Field(name="region", kind="text", meaning="region"),
        Field(name="os", kind="text", meaning="operating system"),
        Field(name="machine", kind="text", meaning="machine type"),
        Field(name="monthly_low", unit="share", meaning="share interrupted within a month, at least"),
        Field(name="monthly_high", unit="share", meaning="share interrupted within a month, at most"),
        Field(name="per_node_h", unit="1/h", meaning="constant hazard of a node for the middle of the range"),
        Field(name="saved", unit="share", meaning="share saved against on-demand"),
    )

    @classmethod
    def recognises(cls, head: Head) -> bool:
        """A JSON object with that one key."""
        return "spot_advisor" in head.json_keys()

    def columns(self, document: JsonDocument) -> Mapping[str, Any]:
        """One row a machine type, in the file's order."""
        ranges = _ranges(document)
        names: list[Sequence[str]] = []
        shares: list[tuple[float, float, float]] = []
        chosen = (self.region, self.os, self.machine)
        for name, entry in _entries(document, document.value.get("spot_advisor")):
            if any(want not in ("", is_) for want, is_ in zip(chosen, name, strict=True)):
                continue
            try:
                shares.append(_shares(entry, ranges))
                names.append(name)
            except ValueError as error:
                document.complaints.add(document.at("spot_advisor", *name), str(error))
        document.complaints.finish()
        if not names:
            raise TraceError.at(document.source.name, "contains no machine of this region and system")
        low, high, saved = np.array(shares).T
        return {
            "t_s": np.zeros(len(names)),
            **dict(zip(("region", "os", "machine"), zip(*names, strict=True), strict=True)),
            "monthly_low": low,
            "monthly_high": high,
            "per_node_h": -np.log1p(-(low + high) / 2) / MONTH_H,
            "saved": saved,
        }


def _ranges(document: JsonDocument) -> list[tuple[float, float]]:
    """Lower and upper share of each range: a range begins where the one before ends."""
    listed = document.value.get("ranges") if isinstance(document.value, dict) else None
    if not isinstance(listed, list) or not listed:
        raise document.error("is not a list of ranges", "ranges")
    tops: dict[int, float] = {}
    for i, entry in enumerate(listed):
        if not isinstance(entry, dict):
            raise document.error("is not an object", "ranges", i)
        try:
            index = int(json_number(_INDEX, entry.get("index")))
            tops[index] = float(json_number(_PERCENT, entry.get("max"))) / 100
        except ValueError as error:
            raise document.error(str(error), "ranges", i) from None
    if sorted(tops) != list(range(len(listed))):
        raise document.error(f"indices {sorted(tops)} are not 0 to {len(listed) - 1}", "ranges")
    highs = [tops[i] for i in range(len(listed))]
    lows = [0.0, *highs[:-1]]
    if any(high <= low for low, high in zip(lows, highs, strict=True)):
        raise document.error("upper ends do not rise", "ranges")
    return list(zip(lows, highs, strict=True))


def _entries(document: JsonDocument, value: Any, *names: str) -> Iterator[tuple[Sequence[str], Any]]:
    """Region, system and machine, and the entry of each, as they stand in the file.

    Parameters
    ----------
    document : for messages.
    value : the object at the place that `names` lead to.
    names : of those around `value`, the outermost first.
    """
    if len(names) == 3:
        yield names, value
        return
    if not isinstance(value, dict):
        what = ("regions", "systems", "machines")[len(names)]
        raise document.error(f"is not an object of {what}", "spot_advisor", *names)
    for name, inner in value.items():
        yield from _entries(document, inner, *names, name)


def _shares(entry: Any, ranges: list[tuple[float, float]]) -> tuple[float, float, float]:
    """Lower and upper monthly share, and the share saved; ValueError says what is wrong."""
    if not isinstance(entry, dict):
        raise ValueError("is not an object with r and s")
    index = int(json_number(_INDEX, entry.get("r")))
    if index >= len(ranges):
        raise ValueError(f"r is {index}, but the ranges end at {len(ranges) - 1}")
    return *ranges[index], float(json_number(_PERCENT, entry.get("s"))) / 100
