"""forerun's own trace files, as `forerun trace import` and `forerun trace generate` write them."""

from __future__ import annotations

from pathlib import Path

from forerun.core.trace.files import MARK, load_trace
from forerun.core.trace.reader import OWN, Head, TraceReader
from forerun.core.trace.repair import RepairLog
from forerun.core.trace.table import Trace


class ForerunFile(TraceReader, tag=OWN, frozen=True, kw_only=True):
    """Parquet or CSV with units and provenance inside; comes back as it was saved."""

    about = "forerun's own trace files (Parquet, or CSV with a described first line)"
    makes = "any"

    @classmethod
    def recognises(cls, head: Head) -> bool:
        return head.parquet or (bool(head.lines) and head.lines[0].startswith(MARK))

    def read(self, path: Path, repairs: RepairLog) -> Trace:
        return load_trace(path, repairs)
