"""Traces as a domain generates, fits and describes them.

A domain whose traces are more than instants of arrival (jobs of a cluster, fleets of spot instances) has an object of a
class derived from `DomainTraces` as its `traces`. `forerun trace generate DOMAIN`, `fit DOMAIN` and `stats DOMAIN` call it.
Its answers are data: nothing here prints or writes, apart from `Made.save`, which is called when the caller says where to.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

from forerun.atomic_write import write_text
from forerun.errors import TraceError, UsageError
from forerun.scenario.decode import decode
from forerun.scenario.resolve import apply_overrides, resolve
from forerun.scenario.spec import Spec
from forerun.scenario.text import Document, read_document
from forerun.trace.reader import read_trace
from forerun.trace.repair import Repair, RepairLog
from forerun.trace.table import Trace

S = TypeVar("S", bound=Spec)

DESCRIPTION_KINDS = (".yaml", ".yml", ".json", ".toml")


@dataclass(frozen=True, slots=True)
class Shown:
    """A table for people; cells are text, numbers or None. about: a line that explains its columns."""

    title: str
    columns: tuple[str, ...]
    rows: tuple[tuple[Any, ...], ...]
    about: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Told:
    """What is said of traces: plain `data` for JSON, `tables` and `notes` for people, repairs that were needed."""

    data: Mapping[str, Any]
    tables: tuple[Shown, ...] = ()
    notes: tuple[str, ...] = ()
    repairs: tuple[Repair, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Fitted:
    """A description fitted to recorded traces, and how well it stands in for them.

    description: plain data; written as YAML it is what `generate` reads.
    """

    description: Mapping[str, Any]
    told: Told


@dataclass(frozen=True, slots=True, kw_only=True)
class Made:
    """A trace that was made: `count` rows of `what` (`jobs`, `nodes` ...), written whole by `save(path)`.

    `save` raises UsageError for an ending it cannot write. `next_step` is a command with `{out}` for the file.
    """

    count: int
    what: str
    save: Callable[[Path], None]
    told: Told
    next_step: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Recorded:
    """Recorded traces to fit or describe, as files and how to read them; `log` gathers the repairs."""

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
            raise UsageError.at("FILE", f"{len(self.files)} files were given; one is wanted")
        return self.files[0]


class DomainTraces:
    """What a domain does with traces of its own kind; a verb that it does not override is rejected.

    makes: a row of its traces in a word (`jobs`). about: in a line, what can be generated.
    """

    makes: str = ""
    about: str = ""

    def generate(
        self,
        description: str,
        settings: Sequence[str],
        *,
        count: int | None,
        horizon_s: float | None,
        seed: int,
    ) -> Made:
        """A trace drawn from a description: a name the domain knows, a file that describes one, or empty (the domain's
        own default). `settings` are texts `key=value` applied to it.
        """
        raise UsageError.at(type(self).__module__, "generates no traces")

    def fit(self, recorded: Recorded, settings: Sequence[str], *, seed: int) -> Fitted:
        """The description that is most like recorded traces."""
        raise UsageError.at(type(self).__module__, "fits no traces")

    def stats(self, recorded: Recorded, settings: Sequence[str], *, seed: int) -> Told:
        """What recorded traces look like."""
        raise UsageError.at(type(self).__module__, "describes no traces")


def is_description(text: str) -> bool:
    """Whether a word on the command line names a file that describes something, rather than a thing by name."""
    return Path(text).suffix in DESCRIPTION_KINDS


def decoded(file: str, start: Mapping[str, Any], settings: Iterable[str], kind: type[S]) -> S:
    """A record decoded from a description file over `start` (from `start` alone if `file` is empty), with texts
    `key=value` applied.

    Raises ScenarioError naming every problem with its line, UsageError for a setting without `=`.
    """
    document = read_document(Path(file)) if file else Document("description", {})
    if isinstance(document.data, dict):
        document = Document(document.name, {**start, **document.data}, document.lines)
    _, document = apply_overrides(document, settings, domain="")
    base = Path(file).resolve().parent if file else Path.cwd()
    found: S = resolve(decode(document, kind), base=base, document=document)
    return found


def save_description(data: Mapping[str, Any], path: str | Path, *, comments: Iterable[str] = ()) -> None:
    """Write plain data as a YAML file that `decoded` reads, comments first; the file appears whole or not at all.

    Raises UsageError for another ending than .yaml or .yml, TraceError if it cannot be written.
    """
    import yaml

    target = Path(path)
    if target.suffix not in (".yaml", ".yml"):
        raise UsageError.at(str(path), f"a description ends in .yaml or .yml, not {target.suffix!r}")
    head = "".join(f"# {line}\n" for line in comments)
    text = head + yaml.safe_dump(dict(data), sort_keys=False, allow_unicode=True, default_flow_style=None)
    write_text(target, text, error=TraceError)
