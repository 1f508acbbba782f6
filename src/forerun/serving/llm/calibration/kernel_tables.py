"""Tables of kernels' times as AIConfigurator ships them: one kind of kernel a file, Parquet or CSV.

A file's kind is recognised by its columns; times are in ms, of one accelerator. Files of one folder that name one program
and version belong together. Rows without a size or with a time of zero were not measured: they are skipped and counted.
"""

from __future__ import annotations

import io
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from forerun.core.errors import TraceError
from forerun.core.regular import begins, read_regular
from forerun.core.trace.repair import RepairLog
from forerun.core.trace.rows import Field, gathered, read_rows
from forerun.core.trace.source import PARQUET, Source

Columns = Mapping[str, NDArray[Any]]
PRODUCTS, ATTENTION, EXPERTS, EXCHANGES = "products of matrices", "attention", "experts", "all-reduce"
#: what finds the scale of 8-bit values before a product, and what applies it
SCALES: Final = "scales"


def _counts(*names: str, minimum: int = 0) -> tuple[Field, ...]:
    return tuple(Field(name=name, kind="int", minimum=minimum) for name in names)


def _texts(*names: str) -> tuple[Field, ...]:
    return tuple(Field(name=name, kind="text") for name in names)


_LATENCY: Final = Field(name="latency", unit="ms", minimum=0)
_ANY: Final = (
    *_texts("device"),
    Field(name="framework", kind="text", required=False),
    Field(name="version", kind="text", required=False),
    _LATENCY,
)
#: the layouts, by the columns that make them known
LAYOUTS: Final[Mapping[str, tuple[Field, ...]]] = {
    PRODUCTS: (*_counts("m"), *_counts("n", "k", minimum=1), *_texts("gemm_dtype"), *_ANY),
    ATTENTION: (
        *_counts("batch_size", "isl", "num_heads", minimum=1),
        *_counts("num_key_value_heads", "head_dim", "step"),
        *_texts("op_name", "attn_dtype", "kv_cache_dtype"),
        Field(name="window_size", kind="int", required=False),
        *_ANY,
    ),
    EXPERTS: (
        *_counts(
            "num_tokens", "hidden_size", "inter_size", "topk", "num_experts", "moe_tp_size", "moe_ep_size",
            minimum=1,
        ),
        *_texts("moe_dtype", "distribution"),
        *_ANY,
    ),
    EXCHANGES: (
        *_counts("num_gpus", "message_size", minimum=1),
        *_texts("allreduce_dtype"),
        Field(name="backend", kind="text", spellings=("implementation",)),
        *_ANY,
    ),
    SCALES: (*_counts("m"), *_counts("k", minimum=1), *_texts("op_name", "quant_dtype"), *_ANY),
}  # fmt: skip
KNOWN: Final = "known: " + "; ".join(
    f"{kind} ({', '.join(one.name for one in fields if one.required)})" for kind, fields in LAYOUTS.items()
)
#: sizes that are zero where a row was not measured
_SIZES: Final = ("m", "latency")
_STAGES: Final = ("dev", "a", "alpha", "b", "beta", "rc", "", "post")


@dataclass(frozen=True)
class KernelTables:
    """What was measured with one version of one program on one accelerator.

    Parameters
    ----------
    program, version : as the tables name them, the program in lower case; empty where they do not.
    device : the accelerator's name.
    kinds : columns by the kind of kernel, in the order of the files.
    notes : what was skipped.
    """

    program: str
    version: str
    device: str
    kinds: Mapping[str, Columns] = field(repr=False)
    notes: tuple[str, ...] = ()

    @property
    def title(self) -> str:
        """Program and version, as far as they are known."""
        return f"{self.program or 'an unnamed program'} {self.version}".rstrip()


def version_key(version: str) -> tuple[tuple[int, ...], int, tuple[int, ...]]:
    """What versions are ordered by: numbers, then development, pre-releases, the release, and what comes after it.

    Parameters
    ----------
    version : such as `0.14.0`, `1.2.0rc5` or `0.5.6.post2`; what follows a plus is passed over.
    """
    found = re.match(
        r"v?(\d+(?:\.\d+)*)[._-]?([a-z]*)[._-]?(\d*)[._-]?(?:[a-z]*)(\d*)", version.split("+")[0]
    )
    if found is None:
        return ((), 0, ())
    numbers, stage, number, more = found.groups()
    place = _STAGES.index(stage) if stage in _STAGES else _STAGES.index("")
    release = tuple(int(one) for one in numbers.split("."))
    return (release, place, tuple(int(one or 0) for one in (number, more)))


def nearest(tables: Sequence[KernelTables], program: str, version: str) -> KernelTables:
    """The tables of the nearest version that is not newer than the one asked for, else of the nearest newer one.

    Parameters
    ----------
    tables : at least one.
    program : in lower case.
    version : as `version_key` reads it.

    Raises TraceError with what is known if there is none of the program.
    """
    own = sorted((one for one in tables if one.program == program), key=lambda one: version_key(one.version))
    if not own:
        known = ", ".join(one.title for one in tables)
        raise TraceError.at(f"{program}-{version}", f"no tables of {program}; known: {known}")
    older = [one for one in own if version_key(one.version) <= version_key(version)]
    return older[-1] if older else own[0]


def read_tables(paths: Sequence[Path], gpu: str = "") -> list[KernelTables]:
    """The tables in files and folders, together by folder, program and version, ascending by version.

    Parameters
    ----------
    paths : files, each with one kind of kernel; or folders, of which the files of other kinds are passed over.
    gpu : what the name of the device contains; tables of others are passed over (default: anything).

    Raises TraceError for what is not known, for several devices, and where no products of matrices or attention are found.
    """
    shown = ", ".join(map(str, paths))
    read = [one for path in paths for one in (_of_folder(path) if path.is_dir() else [_read(path)])]
    devices = {device: str(file) for file, _, columns, _ in read for device in columns["device"].tolist()}
    if own := {device: file for device, file in devices.items() if gpu in device}:
        devices, read = own, [one for one in read if own.keys() & one[2]["device"].tolist()]
    elif devices:
        raise TraceError.at(shown, f"are of {', '.join(map(repr, devices))}; the server has {gpu}")
    if len(devices) > 1:
        what = "; ".join(f"{file}: {device}" for device, file in devices.items())
        raise TraceError.at(shown, f"are tables of several devices: {what}")
    groups: dict[tuple[Path, str, str], list[tuple[str, Columns, str]]] = {}
    for file, kind, columns, note in read:
        names = (str(columns[name][0]) if name in columns else "" for name in ("framework", "version"))
        program, version = names
        groups.setdefault((file.parent, program.lower(), version), []).append((kind, columns, note))
    made = []
    for (folder, program, version), part in groups.items():
        kinds = {kind for kind, _, _ in part}
        if PRODUCTS not in kinds:
            continue
        # What was measured with another program's library belongs to all beside it that lack it.
        others = [
            one for key, rest in groups.items() if key[0] == folder and rest is not part for one in rest
            if one[0] not in kinds
        ]  # fmt: skip
        joined: dict[str, Columns] = {}
        for kind, columns, _ in (*part, *others):
            first = joined.get(kind, columns)
            parts = (columns,) if first is columns else (first, columns)
            # Columns that one of the files lacks are left out.
            joined[kind] = {
                key: np.concatenate([one[key] for one in parts]) for key in first if key in columns
            }
        notes = tuple(note for _, _, note in (*part, *others) if note)
        made.append(KernelTables(program, version, next(iter(devices)), joined, notes))
    missing = [kind for kind in (PRODUCTS, ATTENTION) if not any(kind in one.kinds for one in made)]
    if missing:
        raise TraceError.at(shown, f"have no {' and no '.join(missing)}; {KNOWN}")
    return sorted(made, key=lambda one: (one.program, version_key(one.version)))


def _of_folder(folder: Path) -> list[tuple[Path, str, Columns, str]]:
    """The tables in a folder and those below it, in the order of their names."""
    files = sorted(path for path in folder.rglob("*") if re.search(r"\.(parquet|csv(\.gz)?)$", path.name))
    read = [_read(path) for path in files if _layout(path) is not None]
    if not read:
        raise TraceError.at(str(folder), f"has no table of kernels that is known; {KNOWN}")
    return read


def _names(file: Path) -> list[str]:
    """The columns of a file."""
    if begins(file, PARQUET):
        return list(_of_polars(file, names=True))
    head = Source(file, repairs=RepairLog()).head(1)
    return [name.strip().strip('"') for name in (head[0] if head else "").split(",")]


def _layout(file: Path) -> tuple[str, list[Field]] | None:
    """The kind of a file's kernels, and its fields by the names that they have there."""
    names = _names(file)
    for kind, fields in LAYOUTS.items():
        spelled = [next((name for name in one.headers if name in names), "") for one in fields]
        if all(name or not one.required for one, name in zip(fields, spelled)):
            return kind, [replace(one, column=name) for one, name in zip(fields, spelled) if name]
    return None


def _read(file: Path) -> tuple[Path, str, Columns, str]:
    """A file, the kind of its kernels, its columns without rows that were not measured, and a note of these."""
    found = _layout(file)
    if found is None:
        shown = ", ".join(sorted(_names(file))[:8])
        raise TraceError.at(
            str(file), f"is no table of kernels that is known: its columns are {shown}; {KNOWN}"
        )
    kind, fields = found
    if begins(file, PARQUET):
        columns = _of_parquet(file, fields)
    else:
        columns = gathered(read_rows(Source(file, repairs=RepairLog()), fields)).columns
    measured = np.ones(len(columns["latency"]), dtype=np.bool_)
    for name in _SIZES:
        if name in columns:
            measured &= columns[name] > 0
    if not measured.any():
        raise TraceError.at(str(file), f"has no {kind} with sizes and times above 0")
    skipped = int(len(measured) - measured.sum())
    note = f"{file.name}: {skipped} rows without a size or with a time of 0 are skipped" if skipped else ""
    return file, kind, {name: values[measured] for name, values in columns.items()}, note


def _of_parquet(file: Path, fields: Sequence[Field]) -> Columns:
    """The columns of a Parquet file. Raises TraceError for holes, for other types, and for numbers out of range."""
    frame, columns = _of_polars(file), {}
    for one in fields:
        values, where = frame[one.header], f"{file}:{one.header}"
        if values.null_count():
            raise TraceError.at(where, f"{values.null_count()} rows have no value")
        made = values.to_numpy()
        if {"text": "O", "int": "iu", "float": "f"}[one.kind].count(made.dtype.kind) == 0:
            raise TraceError.at(where, f"contains {values.dtype}; {one.kind} is needed")
        if one.kind != "text":
            least = -np.inf if one.minimum is None else one.minimum
            bad = np.flatnonzero(~np.isfinite(made) | (made < least))
            if len(bad):
                raise TraceError.at(
                    where, f"row {bad[0] + 1} has {made[bad[0]]:g}; at least {least:g} is needed"
                )
        columns[one.name] = made
    return columns


def _of_polars(file: Path, *, names: bool = False) -> Any:
    """A Parquet file's content, or its columns' names alone. Raises TraceError where it cannot be read."""
    import polars

    try:
        content = io.BytesIO(read_regular(file))
        return polars.read_parquet_schema(content) if names else polars.read_parquet(content)
    except (OSError, polars.exceptions.PolarsError, polars.exceptions.PanicException) as error:
        reason = str(error).splitlines()[0] if str(error) else type(error).__name__
        raise TraceError.at(str(file), f"is not readable Parquet: {reason}") from None
