"""Public formats, one reader a file: chosen by name, or recognised from the first lines.

A reader is a record of options (`TraceReader`) that turns one file into a `Trace`. Readers are discovered
in `forerun.core.trace.readers` and under the entry point group `forerun.trace_readers`; `read_trace` reads a
file whose format is named or can be recognised from its content, and says which.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import msgspec

from forerun.core.errors import UsageError, known_names, worded
from forerun.core.registry import Registry, member_name
from forerun.core.regular import begins
from forerun.core.scenario.spec import NamedSpec, to_data
from forerun.core.scenario.text import parse_scalar
from forerun.core.trace.repair import RepairLog
from forerun.core.trace.source import NUMPY, PARQUET, Source, document_of
from forerun.core.trace.table import Provenance, Trace

HEAD_LINES = 8
#: a string of a JSON document, or what opens, closes or parts its values
_JSON_PART = re.compile(r'"(?:[^"\\]|\\.)*"|[\[\]{}:,]')
#: the format of forerun's own trace files
OWN = "forerun"


@dataclass(frozen=True, slots=True)
class Head:
    """The beginning of a file, for recognising its format.

    Parameters
    ----------
    name : of the file, without `.gz` or `.xz`.
    lines : the first few, decoded (default: none).
    directory, parquet, numpy : whether it is a directory, a Parquet file or a NumPy array, which have no lines
        (default: none of them).
    """

    name: str
    lines: tuple[str, ...] = ()
    directory: bool = False
    parquet: bool = False
    numpy: bool = False

    @property
    def names(self) -> tuple[str, ...]:
        """The cells of the first line."""
        return tuple(cell.strip() for cell in self.lines[0].split(",")) if self.lines else ()

    def has_columns(self, *names: str) -> bool:
        """Whether the first line names all of these columns."""
        return set(names) <= set(self.names)

    def json_keys(self) -> frozenset[str]:
        """The keys of the JSON document that begins with these lines, as far as they go; empty for one that is none.

        Each stands behind the keys around it, such as `metadata.gap_seconds`; elements of a list are called `[]`, as in
        `[].event_time`. What only a text value mentions, or an object somewhere else, is no key.
        """
        return _json_keys(self.lines)


@functools.lru_cache(maxsize=4)
def _json_keys(lines: tuple[str, ...]) -> frozenset[str]:
    """As `Head.json_keys`: many readers ask about the same lines."""
    text = "\n".join(lines).lstrip("\ufeff \t\r\n")
    if not text.startswith(("{", "[")):
        return frozenset()
    found: set[str] = set()
    around: list[str] = []
    key = before = ""
    for part in _JSON_PART.findall(text):
        if part in "{[":
            around.append(key + ("[]" if part == "[" else ""))
        elif part in "}]":
            around = around[:-1]
        elif part == ":" and before.startswith('"'):
            found.add(".".join(name for name in (*around, before[1:-1]) if name))
        key = before[1:-1] if part == ":" else ""
        before = part
    return frozenset(found)


class TraceReader(NamedSpec, frozen=True, kw_only=True):
    """One public format. Subclasses give it a name (`tag`), options as fields, and the two methods below.

    Most formats need less: a delimited table is declared with `TableReader`, a JSON document with `JsonReader`, a job log
    of any layout with `JobReader`.

    about: the format in a line, with its publisher. makes: the kind of trace that it returns, such as `requests`, `jobs`,
    `membership`, `capacity` or `prices`.
    """

    about: ClassVar[str] = ""
    makes: ClassVar[str] = ""

    @classmethod
    def recognises(cls, head: Head) -> bool:
        """Whether a file that begins like this is of the format; never true for another format's files."""
        return False

    def read(self, path: Path, repairs: RepairLog) -> Trace:
        """The trace in the file or directory at `path`.

        Raises TraceError naming file, line and field. Does not call `repairs.finish`: `read_trace` does.
        """
        raise AssertionError(f"{type(self).__name__} does not say how it reads")

    @property
    def _options(self) -> dict[str, Any]:
        """Without those that are left out."""
        return {key: value for key, value in to_data(self).items() if key != "name" and value is not None}

    def taken_as(self) -> str:
        """What the file is taken for, in one line: the format, what its times count from, and the options."""
        clock = getattr(self, "clock", "")
        options = [f"{key}={value!r}" for key, value in self._options.items()]
        return "; ".join([self.about.partition(": ")[0], *([f"times: {clock}"] if clock else []), *options])

    def provenance(self, source: Source, **facts: object) -> Provenance:
        """Where a trace comes from: the format with its options, the file with its digest, and the repairs.

        Parameters
        ----------
        source : the file, read to its end.
        facts : what was learned about it, recorded beside the options.
        """
        return Provenance(
            format=member_name(type(self)),
            source=source.path.name,
            sha256=source.sha256,
            options={**self._options, **facts},
            repairs=tuple(source.repairs.rows()),
        )


@functools.cache
def readers() -> Registry[TraceReader]:
    """All trace readers, built in and announced by plugins."""
    return Registry(
        "trace format", "forerun.core.trace.readers", base=TraceReader, group="forerun.trace_readers"
    )


def format_problems(format: str, *also: str) -> list[tuple[str, str]]:
    """The problem of a scenario whose field `format` names no reader; none for an empty name or one of `also`."""
    known = (*readers().names(), *also) if format else ("",)
    if format in known:
        return []
    return [("format", f"no trace format named {format!r}; {known_names(format, known)}")]


def head_of(path: str | Path) -> Head:
    """The beginning of a file or directory; TraceError if it cannot be read as text."""
    path = Path(path)
    name = path.name.removesuffix(".gz").removesuffix(".xz")
    if path.is_dir():
        return Head(name, directory=True)
    if begins(path, PARQUET):
        return Head(name, parquet=True)
    if begins(path, NUMPY):
        return Head(name, numpy=True)
    return Head(name, Source(path, repairs=RepairLog()).head(HEAD_LINES))


def sniff(path: str | Path) -> tuple[str, ...]:
    """Names of the formats that recognise the file, best none or one.

    A file of forerun's own is nothing else, whatever its description and its columns look like.
    """
    head = head_of(path)
    known = readers()
    names = tuple(name for name in known.names() if known.get(name).recognises(head))
    return (OWN,) if OWN in names else names


def reader_for(path: str | Path, format: str = "", options: Mapping[str, Any] | None = None) -> TraceReader:
    """The reader for a file.

    Parameters
    ----------
    path : the file, looked into only if no format is named.
    format : a reader's name (default: the one that recognises the content).
    options : of that format, by name (default: its own defaults); a single text is put into a list where one is wanted.

    Raises UnknownName for a format that does not exist, UsageError for options it does not have or a file that no
    format, or more than one, recognises.
    """
    known = readers()
    if not format:
        formats = sniff(path)
        if len(formats) != 1:
            what = f"could be {' or '.join(formats)}" if formats else "is of no format that is recognised"
            if not formats and document_of(head_of(path).lines) not in ("", "JSON"):
                raise UsageError.at(str(path), f"is {document_of(head_of(path).lines)}, not a trace")
            raise UsageError.at(str(path), f"{what}; name it; {known_names('', known.names())}")
        format = formats[0]
    reader = known.get(format, where=str(path))
    try:
        return msgspec.convert({"name": format, **_listed(reader, options or {})}, reader)
    except msgspec.ValidationError as error:
        fields = [field.name for field in msgspec.structs.fields(reader)]
        has = f"it has {', '.join(fields)}" if fields else "it has none"
        raise UsageError.at(f"options of {format}", f"{worded(error)}; {has}") from None


def _listed(reader: type[TraceReader], options: Mapping[str, Any]) -> dict[str, Any]:
    """The options, with single values put into lists where the option is a list."""
    lists = {f.name for f in msgspec.structs.fields(reader) if isinstance(f.default, tuple)}
    return {
        key: [value] if key in lists and isinstance(value, str) else value for key, value in options.items()
    }


def read_trace(
    path: str | Path,
    format: str = "",
    *,
    options: Mapping[str, Any] | None = None,
    strict: bool = False,
    repairs: RepairLog | None = None,
) -> Trace:
    """The trace in a file of a public format; `trace.provenance` names the format and lists the repairs.

    Parameters
    ----------
    path : the file; for some formats a directory. A text file may be compressed with gzip or xz.
    format : a reader's name, as `forerun trace formats` lists them (default: recognised from the content).
    options : of that format, by name (default: its own defaults).
    strict : repairs are errors (default: they are made and counted).
    repairs : a log to count them in (default: a fresh one). Its own `strict` then counts.

    Raises TraceError with up to twenty problems of the file, UnknownName for a format that does not exist, UsageError for
    options that it does not have, or for a file that no format, or more than one, recognises.
    """
    log = repairs if repairs is not None else RepairLog(strict=strict)
    trace = reader_for(path, format, options).read(Path(path), log)
    log.finish()
    return trace


def options_from(texts: Iterable[str]) -> dict[str, Any]:
    """Options of a format from texts `key=value`; a value with commas is a list. UsageError for one without
    `=`.
    """
    options: dict[str, Any] = {}
    for text in texts:
        key, equals, raw = text.partition("=")
        if not equals or not key.strip():
            raise UsageError.at(f"--option {text}", "write an option as key=value")
        items = [parse_scalar(item.strip()) for item in raw.split(",")]
        options[key.strip()] = items if len(items) > 1 else items[0]
    return options


def described_formats() -> list[dict[str, str]]:
    """Every format: name, kind of trace it makes, options with their defaults, what it is."""
    known = readers()
    return [
        {
            "format": name,
            "makes": reader.makes,
            "options": " ".join(f"{f.name}={f.default}" for f in msgspec.structs.fields(reader)),
            "about": reader.about,
        }
        for name, reader in ((name, known.get(name)) for name in known.names())
    ]
