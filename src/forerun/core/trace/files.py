"""forerun's own trace files: Parquet, or CSV where a text file is preferred, with units and provenance inside.

Parquet keeps the description in the file's metadata under `forerun`, and a digest of the file; CSV keeps it in its first
line, after `# forerun trace`. Both give back the same trace, digest included. Files are written beside their name and
moved there whole.
"""

from __future__ import annotations

import csv
import dataclasses
import hashlib
import io
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec
import numpy as np

from forerun.core.atomic_write import write_file
from forerun.core.errors import TraceError, UsageError, worded
from forerun.core.regular import begins, read_regular
from forerun.core.trace.objects import parse_json
from forerun.core.trace.repair import RepairLog, shown
from forerun.core.trace.rows import TEXT, Chunk, Field, Kind, gathered, read_rows
from forerun.core.trace.source import PARQUET, Source
from forerun.core.trace.table import Array, Column, Provenance, Trace

MARK = "# forerun trace "
#: what stands before the digest of a Parquet file, in a gap between its data and its footer, which readers pass over
SUM = b"forerun trace, sha256 of all but this: "
VERSION = 1
ESCAPED_STARTS = ("=", "+", "-", "@", "#", "'")


class _Described(msgspec.Struct, forbid_unknown_fields=True):
    """What a trace file says about itself.

    Parameters
    ----------
    trace : version of the format.
    kind, time : of the trace.
    columns : (name, unit, meaning, type) of each; the types are `float`, `int`, `flag` and `text`.
    provenance : as plain data.
    """

    trace: int
    kind: str
    time: str
    columns: list[tuple[str, str, str, str]]
    provenance: dict[str, Any]


def save_trace(trace: Trace, path: str | Path) -> None:
    """Write a trace as Parquet or CSV, as the name ends, also in place of a trace that was written before.

    Raises UsageError for another ending, TraceError if the file cannot be written or is of another program.
    """
    target = Path(path)
    writers = {".parquet": _write_parquet, ".csv": _write_csv}
    if target.suffix not in writers:
        raise UsageError.at(str(path), f"a trace file ends in {' or '.join(writers)}, not {target.suffix!r}")
    if target.is_file() and not _is_own(target):
        raise TraceError.at(str(path), "exists, and is not a trace that forerun wrote; name another file")
    write_file(target, lambda beside: writers[target.suffix](trace, beside, str(path)), error=TraceError)


def load_trace(path: str | Path, repairs: RepairLog | None = None) -> Trace:
    """The trace in a file that `save_trace` wrote; TraceError if it is none, or is damaged."""
    target = Path(path)
    log = repairs if repairs is not None else RepairLog()
    return _read_parquet(target) if begins(target, PARQUET) else _read_csv(target, log)


def _is_own(path: Path) -> bool:
    if not begins(path, PARQUET):
        return begins(path, MARK.encode()) or not path.stat().st_size
    import polars

    try:
        return "forerun" in polars.read_parquet_metadata(path)
    except (OSError, polars.exceptions.PolarsError, polars.exceptions.PanicException):
        return False


def _description(trace: Trace) -> str:
    columns = [[c.name, c.unit, c.meaning, _kind_of(trace[c.name])] for c in trace.schema]
    made = trace.provenance.data()
    data = {"trace": VERSION, "kind": trace.kind, "time": trace.time, "columns": columns, "provenance": made}
    return json.dumps(data, ensure_ascii=True, allow_nan=False)


def _described(text: str, where: str) -> _Described:
    try:
        description = msgspec.convert(parse_json(text), _Described)
    except (ValueError, msgspec.ValidationError) as error:
        raise TraceError.at(where, f"the description of the trace is damaged: {worded(error)}") from None
    if description.trace != VERSION:
        raise TraceError.at(
            where, f"is a trace file of version {description.trace}; this forerun reads version {VERSION}"
        )
    return description


def _rebuilt(description: _Described, columns: Mapping[str, Array], where: str) -> Trace:
    unknown = set(description.provenance) - {field.name for field in dataclasses.fields(Provenance)}
    if unknown:
        what = f"the provenance of the trace is damaged: unknown key {sorted(unknown)[0]!r}"
        raise TraceError.at(where, what)
    try:
        made = msgspec.convert(description.provenance, Provenance)
    except msgspec.ValidationError as error:
        raise TraceError.at(where, f"the provenance of the trace is damaged: {worded(error)}") from None
    schema = [Column(name, unit, meaning) for name, unit, meaning, _ in description.columns]
    try:
        return Trace(description.kind, schema, columns, time=description.time, provenance=made)
    except TraceError as error:
        raise TraceError.at(where, "; ".join(problem.what for problem in error.problems)) from None


def _kind_of(values: Array) -> str:
    return {"f": "float", "i": "int", "b": "flag", "T": "text"}[values.dtype.kind]


def _write_parquet(trace: Trace, path: Path, _name: str) -> None:
    made = io.BytesIO()
    trace.to_polars().write_parquet(made, compression="zstd", metadata={"forerun": _description(trace)})
    content = made.getvalue()
    footer = len(content) - 8 - int.from_bytes(content[-8:-4], "little")
    path.write_bytes(content[:footer] + SUM + hashlib.sha256(content).digest() + content[footer:])


def _read_parquet(path: Path) -> Trace:
    import polars

    try:
        content = read_regular(path)
        data, mark, rest = content.rpartition(SUM)
        # A damaged file can end the process that decodes it.
        if mark and hashlib.sha256(data + rest[32:]).digest() != rest[:32]:
            raise TraceError.at(str(path), "is damaged: it is not the file that was saved, by its SHA-256")
        metadata = polars.read_parquet_metadata(io.BytesIO(content))
        if "forerun" not in metadata:
            raise TraceError.at(
                str(path), "is Parquet, but not a trace file of forerun; see `forerun trace import`"
            )
        description = _described(metadata["forerun"], str(path))
        frame = polars.read_parquet(io.BytesIO(content))
    except (OSError, polars.exceptions.PolarsError, polars.exceptions.PanicException) as error:
        reason = str(error).splitlines()[0] if str(error) else type(error).__name__
        raise TraceError.at(str(path), f"is not readable Parquet: {reason}") from None
    columns = {name: _numpy(frame, name, kind, str(path)) for name, _, _, kind in description.columns}
    return _rebuilt(description, columns, str(path))


def _numpy(frame: Any, name: str, kind: str, where: str) -> Array:
    import polars

    dtypes = {"float": polars.Float64, "int": polars.Int64, "flag": polars.Boolean, "text": polars.String}
    if name not in frame.columns:
        raise TraceError.at(where, f"column {name} is missing")
    series = frame[name]
    if kind not in dtypes or (
        series.dtype != dtypes[kind] and not (kind == "text" and series.dtype == polars.Null)
    ):
        raise TraceError.at(where, f"column {name} contains {series.dtype}, described as {kind}")
    if kind != "text" and series.null_count():
        raise TraceError.at(where, f"column {name} has holes")
    if kind == "text":
        return np.array(series.to_list(), dtype=object)
    values: Array = series.to_numpy()
    return values


def _write_csv(trace: Trace, path: Path, file_name: str) -> None:
    texts = [_cells(values, f"{file_name}: column {name}") for name, values in trace.columns.items()]
    with path.open("w", encoding="utf-8", newline="") as file:
        file.write(f"{MARK}{_description(trace)}\n")
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(trace.columns)
        writer.writerows(zip(*texts, strict=True))


def _cells(values: Array, where: str) -> list[str]:
    if values.dtype.kind == "T":
        return [_text_cell(text, row, where) for row, text in enumerate(values.tolist(), 1)]
    if values.dtype.kind == "b":
        return [str(int(value)) for value in values.tolist()]
    return ["" if value != value else repr(value) for value in values.tolist()]


def _text_cell(text: str, row: int, where: str) -> str:
    """A text as a cell: an apostrophe keeps spreadsheets from running it; one that is not recorded is empty."""
    if len(text.splitlines()) > 1 or text != text.strip() or "\0" in text:
        raise TraceError.at(
            where, f"{shown(text)} in row {row} does not fit a line of CSV; write Parquet instead"
        )
    return "'" + text if text.startswith(ESCAPED_STARTS) else text


def _read_csv(path: Path, repairs: RepairLog) -> Trace:
    source = Source(path, repairs=repairs)
    first = next(source.lines())[1]
    if not first.startswith(MARK):
        raise TraceError.at(source.at(1), f"a trace file of forerun begins with {MARK!r}")
    description = _described(first.removeprefix(MARK), source.at(1))
    fields = [_field(name, kind, source) for name, _, _, kind in description.columns]
    rows = gathered(read_rows(Source(path, repairs=repairs), fields, comment=MARK))
    columns = {name: _unescaped(rows, name, kind) for name, _, _, kind in description.columns}
    return _rebuilt(description, columns, source.name)


def _field(name: str, kind: str, source: Source) -> Field:
    kinds: dict[str, Kind] = {"float": "float", "int": "int", "flag": "int", "text": "text"}
    if kind not in kinds:
        raise TraceError.at(
            source.at(1), f"column {name} is described as {kind!r}; known: {', '.join(kinds)}"
        )
    missing = () if kind in ("int", "flag") else ("",)
    low, high = (0.0, 1.0) if kind == "flag" else (None, None)
    return Field(name=name, kind=kinds[kind], missing=missing, minimum=low, maximum=high, longest=1 << 20)


def _unescaped(rows: Chunk, name: str, kind: str) -> Array:
    values = rows.columns[name]
    if kind == "flag":
        return values.astype(bool)
    if kind == "text":
        return np.array([text.removeprefix("'") for text in values.tolist()], TEXT)
    return values
