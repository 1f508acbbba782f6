"""Generating, fitting and describing traces of a domain's own kind.

A domain whose traces are more than arrival times (cluster jobs, fleets of spot instances) has an instance of a subclass
of `DomainTraces` as its `traces`, which `forerun trace generate DOMAIN`, `fit DOMAIN` and `stats DOMAIN` call. It returns
data: nothing here prints, and only `GeneratedTrace.save` writes a file.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

from forerun.core.atomic_write import WRITTEN, write_text
from forerun.core.errors import TraceError, UsageError
from forerun.core.scenario.decode import decode
from forerun.core.scenario.resolve import apply_overrides, resolve
from forerun.core.scenario.spec import Spec
from forerun.core.scenario.text import Document, read_document
from forerun.core.trace.reader import read_trace
from forerun.core.trace.repair import Repair, RepairLog
from forerun.core.trace.table import Trace

S = TypeVar("S", bound=Spec)

DESCRIPTION_KINDS = (".yaml", ".yml", ".json", ".toml")


@dataclass(frozen=True, slots=True)
class ReportTable:
    """A table to print.

    Parameters
    ----------
    title : its heading.
    columns : headings of the columns.
    rows : cells are text, numbers or None.
    about : one line that explains the columns.
    """

    title: str
    columns: tuple[str, ...]
    rows: tuple[tuple[Any, ...], ...]
    about: str


@dataclass(frozen=True, slots=True, kw_only=True)
class TraceReport:
    """A description of traces.

    Parameters
    ----------
    data : everything in it, as plain data for JSON.
    tables, notes : to print (default: none).
    repairs : what was repaired while the traces were read (default: nothing).
    """

    data: Mapping[str, Any]
    tables: tuple[ReportTable, ...] = ()
    notes: tuple[str, ...] = ()
    repairs: tuple[Repair, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Fitted:
    """A description fitted to recorded traces.

    Parameters
    ----------
    description : plain data; `generate` reads it from a YAML file.
    report : how well it fits.
    """

    description: Mapping[str, Any]
    report: TraceReport


@dataclass(frozen=True, slots=True, kw_only=True)
class Wanted:
    """What is to be generated.

    Parameters
    ----------
    description : a name that the domain knows, a description file, or empty for the domain's default.
    settings : `key=value` texts that override it.
    count, horizon_s : how many rows, or until when [s] (default: as described).
    seed : of all random numbers (default: 0).
    """

    description: str = ""
    settings: Sequence[str] = ()
    count: int | None = None
    horizon_s: float | None = None
    seed: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class GeneratedTrace:
    """A generated trace.

    Parameters
    ----------
    count : how many rows it has.
    what : what these are, such as `jobs` or `nodes`.
    save : writes it to a path, whole or not at all; raises UsageError for an ending that it cannot write.
    report : what it looks like.
    next_step : a command to go on with, in which `{out}` stands for the file (default: none).
    """

    count: int
    what: str
    save: Callable[[Path], None]
    report: TraceReport
    next_step: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Recorded:
    """Recorded traces to fit or describe, and how to read them.

    Parameters
    ----------
    files : one or more; what several mean is the domain's to say.
    format, options : as for `read_trace` (default: recognised from the content).
    log : gathers the repairs (default: a fresh one).
    """

    files: tuple[Path, ...]
    format: str = ""
    options: Mapping[str, Any] = field(default_factory=dict)
    log: RepairLog = field(default_factory=RepairLog)

    def trace(self) -> Trace:
        """The only file, read as one of the public formats. Raises UsageError if there are more."""
        return read_trace(self.only(), self.format, options=self.options, repairs=self.log)

    def only(self) -> Path:
        """The only file. Raises UsageError if there are none or more."""
        if len(self.files) != 1:
            raise UsageError.at("FILE", f"{len(self.files)} files were given; one is expected")
        return self.files[0]


class DomainTraces:
    """Base class: override the methods that the domain supports; the others raise UsageError.

    Parameters
    ----------
    makes : what one row of its traces is, such as `jobs`.
    about : one line that says what can be generated.
    """

    makes: str = ""
    about: str = ""

    def generate(self, wanted: Wanted) -> GeneratedTrace:
        """Generate a trace from a description."""
        raise UsageError.at(type(self).__module__, "generates no traces")

    def fit(self, recorded: Recorded, settings: Sequence[str], *, seed: int) -> Fitted:
        """The description that fits recorded traces best.

        Parameters
        ----------
        recorded : the traces.
        settings : `key=value` texts that say how to fit.
        seed : of draws that intervals and bands rest on.
        """
        raise UsageError.at(type(self).__module__, "fits no traces")

    def stats(self, recorded: Recorded, settings: Sequence[str], *, seed: int) -> TraceReport:
        """Statistics of recorded traces.

        Parameters
        ----------
        recorded : the traces.
        settings : `key=value` texts that say how to read them.
        seed : of draws that intervals and tests rest on.
        """
        raise UsageError.at(type(self).__module__, "describes no traces")


def is_description(text: str) -> bool:
    """Whether a command-line argument names a description file, by its suffix."""
    return Path(text).suffix in DESCRIPTION_KINDS


def decoded(
    file: str, start: Mapping[str, Any], settings: Iterable[str], kind: type[S], *, name: str = "description"
) -> S:
    """A record, decoded from what is given; later sources win.

    Parameters
    ----------
    file : a description file (empty: none).
    start : plain data that the file may override.
    settings : `key=value` texts that override both.
    kind : the record's type.
    name : of what is decoded, for messages, where there is no file.

    Raises ScenarioError that lists every problem with its line, UsageError for a setting without `=`.
    """
    document = read_document(Path(file)) if file else Document(name, {})
    if isinstance(document.data, dict):
        document = Document(document.name, {**start, **document.data}, document.lines)
    _, document = apply_overrides(document, settings, domain="")
    base = Path(file).resolve().parent if file else Path.cwd()
    record: S = resolve(decode(document, kind), base=base, document=document)
    return record


def save_description(data: Mapping[str, Any], path: str | Path, *, comments: Iterable[str] = ()) -> None:
    """Write plain data as a YAML file that `decoded` reads, whole or not at all.

    Parameters
    ----------
    data : the description.
    path : ends in .yaml or .yml.
    comments : lines that come first (default: none).

    Raises UsageError for another suffix, TraceError if the file cannot be written.
    """
    import yaml

    target = Path(path)
    if target.suffix not in (".yaml", ".yml"):
        raise UsageError.at(str(path), f"a description ends in .yaml or .yml, not {target.suffix!r}")
    head = WRITTEN + "".join(f"# {line}\n" for line in comments)
    text = head + yaml.safe_dump(dict(data), sort_keys=False, allow_unicode=True, default_flow_style=None)
    write_text(target, text, error=TraceError)
