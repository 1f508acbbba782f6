"""Numbers that somebody recorded: a column of a CSV file that a scenario names."""

from __future__ import annotations

import functools
from pathlib import Path

import numpy as np

from forerun.domains.loading.model import F64
from forerun.errors import TraceError
from forerun.scenario.spec import Input
from forerun.trace.repair import RepairLog
from forerun.trace.rows import Field, gathered, read_rows
from forerun.trace.source import Source


def recorded(given: Input, column: str, least: float) -> F64:
    """The column of the file, float64, read once. Raises TraceError where a value is no number or below `least`."""
    path = Path(given.path)
    try:
        about = path.stat()
    except OSError as error:
        raise TraceError.at(path, f"cannot be read: {error.strerror}") from error
    return _read(path, column, least, about.st_mtime_ns, about.st_size)


@functools.lru_cache(maxsize=16)
def _read(path: Path, column: str, least: float, _changed_ns: int, _size: int) -> F64:
    field = Field(name=column, column=column, kind="float", minimum=least)
    found = gathered(read_rows(Source(path, repairs=RepairLog()), (field,))).columns[column]
    values = np.asarray(found, np.float64)
    if not len(values):
        raise TraceError.at(path, f"holds no {column}")
    values.setflags(write=False)
    return values
