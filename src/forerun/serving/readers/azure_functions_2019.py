"""The Azure Functions trace of 2019: invocations of each function, counted by the minute."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from forerun.core.errors import TraceError
from forerun.core.rng import stream
from forerun.core.trace.reader import Head, TraceReader
from forerun.core.trace.repair import Complaints, RepairLog
from forerun.core.trace.rows import TEXT, Field, read_rows
from forerun.core.trace.source import Source
from forerun.core.trace.table import Trace
from forerun.core.trace.tabular import Rows

MINUTES = 1440
MINUTE_MS = 60_000.0
NAMES = (
    Field(name="owner", column="HashOwner", kind="text"),
    Field(name="app", column="HashApp", kind="text"),
    Field(name="function", column="HashFunction", kind="text"),
    Field(name="trigger", column="Trigger", kind="text"),
)
COUNTS = tuple(
    Field(name=f"m{i}", column=str(i), kind="int", minimum=0, maximum=10_000_000)
    for i in range(1, MINUTES + 1)
)
MADE = (
    Field(name="arrival_ms", unit="ms", meaning="instant of arrival, placed within its minute"),
    Field(name="app", kind="text", meaning="application, by its hash"),
    Field(name="function", kind="text", meaning="function, by its hash"),
)


class AzureFunctions2019(TraceReader, tag="azure_functions_2019", frozen=True, kw_only=True):
    """CSV `HashOwner,HashApp,HashFunction,Trigger,1..1440`: minute i covers [(i-1), i) minutes of the day.

    placement: where c invocations of a minute fall: `even`, the j-th at (j + 1/2)/c of the minute;
    `uniform`, independent uniform instants; `poisson`, a Poisson number of mean c at uniform instants.
    seed: for the last two, one stream a function. functions: hashes to keep, all if empty. most_requests:
    refuse more than these. Invocations were counted when they ended. CC-BY 4.0, Microsoft [Shahrad et al.,
    USENIX ATC'20].
    """

    placement: Literal["even", "uniform", "poisson"] = "even"
    seed: int = 0
    functions: tuple[str, ...] = ()
    most_requests: int = 20_000_000

    about = "Azure Functions invocations a minute 2019 (CSV, one row a function)"
    makes = "requests"

    @classmethod
    def recognises(cls, head: Head) -> bool:
        return head.has_columns("HashOwner", "HashApp", "HashFunction", "Trigger", "1", str(MINUTES))

    def read(self, path: Path, repairs: RepairLog) -> Trace:
        source = Source(path, repairs=repairs)
        placed: list[tuple[NDArray[np.float64], int, str, str]] = []
        total, absent = 0, set(self.functions)
        for line, (_, app, function, trigger), counts in _function_rows(source):
            if self.functions and function not in self.functions:
                continue
            absent.discard(function)
            total += int(counts.sum())
            if total > self.most_requests:
                what = f"more than {self.most_requests} invocations up to here"
                raise TraceError.at(source.at(line), f"{what}; choose functions, or raise most_requests")
            placed.append((self._instants(counts, app, function, trigger), line, app, function))
        if absent:
            raise TraceError.at(source.name, f"has no function {', '.join(sorted(absent))}")
        if not sum(len(instants) for instants, *_ in placed):
            raise TraceError.at(source.name, "contains no invocation")
        instants, lines, apps, functions = zip(*placed, strict=True)
        times = list(map(len, instants))
        columns = {
            "arrival_ms": np.concatenate(instants),
            "app": np.repeat(np.array(apps, TEXT), times),
            "function": np.repeat(np.array(functions, TEXT), times),
        }
        rows = Rows(source, Complaints(), np.repeat(lines, times), columns)
        return rows.trace(self, MADE, order="free")

    def _instants(self, counts: NDArray[np.int64], *function: str) -> NDArray[np.float64]:
        """Instants of a function's invocations, ascending."""
        if self.placement == "even":
            start_ms = np.repeat(np.arange(MINUTES) * MINUTE_MS, counts)
            number = np.arange(len(start_ms)) - np.repeat(np.cumsum(counts) - counts, counts)
            even: NDArray[np.float64] = start_ms + (number + 0.5) * MINUTE_MS / np.repeat(counts, counts)
            return even
        draws = stream(self.seed, "placement", *function)
        if self.placement == "poisson":
            counts = draws.poisson(counts)
        start_ms = np.repeat(np.arange(MINUTES) * MINUTE_MS, counts)
        return np.sort(start_ms + draws.random(len(start_ms)) * MINUTE_MS)


def _function_rows(source: Source) -> Iterator[tuple[int, tuple[str, ...], NDArray[np.int64]]]:
    """Line, names and counts of each function; TraceError for one that stands there twice."""
    seen: dict[tuple[str, ...], int] = {}
    for chunk in read_rows(source, (*NAMES, *COUNTS)):
        counts = np.stack([chunk.columns[field.name] for field in COUNTS], axis=1)
        names = zip(*(chunk.columns[field.name].tolist() for field in NAMES), strict=True)
        for line, name, row in zip(chunk.lines.tolist(), names, counts, strict=True):
            if name in seen:
                raise TraceError.at(
                    source.at(line, "HashFunction"), f"the function was already on line {seen[name]}"
                )
            seen[name] = line
            yield line, name, row
