"""`Result`, which `simulate` returns, and the run directory that it can be saved to.

A run directory contains scenario.json (resolved: simulating it again gives the same bytes), summary.json (names carry
units; with intervals and ledgers), provenance.json (versions, digests of inputs, host, wall time: all that may differ
between machines) and one Parquet file per table. It is written atomically.
"""

from __future__ import annotations

import contextlib
import errno
import json
import math
import os
import platform
import shutil
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from forerun.core.atomic_write import beside, system_reason
from forerun.core.errors import Problem, StoreError, known_names
from forerun.core.result import notebook, renderer
from forerun.core.result.ledger import Ledger
from forerun.core.result.numbers import capital, format_number, plain, readable_rows
from forerun.core.result.reading import check_figures, read_document, record
from forerun.core.result.stats import Interval
from forerun.core.result.tables import Table, read_parquet
from forerun.core.result.timeline import Timeline
from forerun.core.scenario.arguments import path_of, wrong_type
from forerun.core.scenario.spec import Spec, content_id, to_data
from forerun.core.units import split_name
from forerun.core.version import VERSION

if TYPE_CHECKING:
    import polars

    from forerun.core.result.figures import Figure

RUN_FORMAT: Final = 1
#: why a directory cannot be given the name of something that is there
_EXISTS: Final = {errno.ENOTEMPTY, errno.EEXIST, errno.ENOTDIR}
TIMELINE_FILE: Final = "timeline.json.gz"


class Summary(dict[str, Any]):
    """The figures of a run by name; asking for one that there is not says which is near."""

    def __missing__(self, name: object) -> Any:
        raise KeyError(f"no figure named {name!r}; {known_names(str(name), self)}")


@dataclass(frozen=True, repr=False)
class ShownRun:
    """What a run in memory and a run read back have in common.

    scenario: the resolved scenario, a record or plain data. lead: what is said above all else: sentences by the name of the
    entry of the summary that is shown with them as a table, if there is one. The other fields are those of `Result`.
    """

    scenario: Any
    summary: Mapping[str, Any]
    tables: Mapping[str, Table] = field(default_factory=dict)
    ledgers: tuple[Ledger, ...] = ()
    why: str = ""
    notes: tuple[str, ...] = ()
    intervals: Mapping[str, Interval] = field(default_factory=dict)
    headline: tuple[str, ...] = ()
    next_steps: tuple[str, ...] = ()
    provenance: Mapping[str, Any] = field(default_factory=dict)
    lead: Mapping[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        object.__setattr__(self, "summary", Summary(self.summary))

    if TYPE_CHECKING:

        @property
        def id(self) -> str:
            """The run id: a digest of the resolved scenario and the package version."""

    def __repr__(self) -> str:
        names = self.headline or tuple(self.summary)[:5]
        figures = ", ".join(f"{name}={format_number(self.summary.get(name))}" for name in names)
        tables = ", ".join(f"{name} ({len(table)} rows)" for name, table in self.tables.items())
        return f"<{self.domain} run {self.id[:8]}: {figures}" + (f"; tables: {tables}>" if tables else ">")

    @property
    def domain(self) -> str:
        """The domain of the scenario."""
        named = isinstance(self.scenario, Mapping)
        return str(self.scenario["domain"] if named else self.scenario.domain)

    @property
    def _named(self) -> str:
        """The run in messages and headings."""
        return f"run {self.id}"

    def leading(self) -> Iterator[tuple[str, tuple[str, ...], list[tuple[Any, ...]], str]]:
        """What is said above all else: each with its title, its table's head and rows, if it has one, and its sentence."""
        for name, sentence in self.lead.items():
            yield (capital(split_name(name)[0]), *readable_rows(self.summary.get(name) or {}), sentence)

    def table(self, name: str) -> Table:
        """A table by name. Raises UnknownName with what there is."""
        if name not in self.tables:
            from forerun.core.errors import UnknownName

            raise UnknownName.among("table", name, self.tables, where=self._named)
        return self.tables[name]

    @property
    def figures(self) -> dict[str, Figure]:
        """What a page draws of this run, by id, as data; `forerun.chart(figure)` draws one in a notebook."""
        named: dict[str, Figure] = renderer.find("named_figures")(self)
        return named

    def frame(self, name: str) -> polars.DataFrame:
        """A table as a Polars frame."""
        return self.table(name).frame()

    def to_pandas(self, name: str) -> Any:
        """A table as a pandas frame (pandas must be installed)."""
        return self.frame(name).to_pandas()

    def _repr_html_(self) -> str:
        names = self.headline or tuple(self.summary)
        heading = f"{self.domain} {self._named}"
        bars = (ledger._repr_html_() for ledger in self.ledgers)
        lead = (
            notebook.answer(head, rows, (f"{title}: {text}",)) for title, head, rows, text in self.leading()
        )
        return "".join(lead) + notebook.run(
            heading, self.summary, self.intervals, names, bars, self.why, self.notes
        )


@dataclass(frozen=True, repr=False)
class Result(ShownRun):
    """The result of one run: a value in memory, not yet saved.

    scenario: the resolved scenario.
    summary: figures by name; names carry units.
    tables: by name. timeline: intervals of activity, or None.
    ledgers: where the time, energy or money went; the parts sum to the whole.
    why: one sentence, the dominant cause of the result.
    notes: what a reader must know, such as repairs and fallbacks.
    intervals: confidence intervals of those figures that have one.
    headline: names of the figures to show first.
    next_steps: commands worth trying next, with `{scenario}` for the scenario file.
    provenance: what may differ between machines, such as wall time; not part of the result itself.
    code: the classes of other packages that decided, each with a digest of its source; empty where no file has it.

    >>> result = forerun.simulate(forerun.load(forerun.demo("energy").scenario, ["trials=0"]))
    >>> result.frame("attempts").shape[0], result.ledgers[0].name, sorted(result.intervals)
    (61, 'energy', [])
    >>> saved = forerun.load_result(result.save("runs/first"))
    >>> saved.summary == result.data()["summary"]
    True
    """

    timeline: Timeline | None = None
    code: Mapping[str, str] = field(default_factory=dict)

    @property
    def id(self) -> str:
        """The run id: a digest of the resolved scenario, the package version and the code of other packages that decided.

        Where some of that has no source, the figures stand for it.
        """
        assert isinstance(self.scenario, Spec)
        stand_in = {} if all(self.code.values()) else plain(self.summary)
        return content_id(self.scenario, VERSION, self.code, stand_in)

    def check(self) -> Result:
        """Every ledger sums and the timeline is sound; returns self. Raises CheckFailed."""
        for ledger in self.ledgers:
            ledger.check()
        if self.timeline is not None:
            self.timeline.check()
        return self

    def data(self) -> dict[str, Any]:
        """The result without its tables, as plain data (`--json`)."""
        return {
            "domain": self.domain,
            "id": self.id,
            "summary": plain(self.summary),
            "intervals": {name: asdict(interval) for name, interval in self.intervals.items()},
            "headline": list(self.headline),
            **({"lead": dict(self.lead)} if self.lead else {}),
            "why": self.why,
            "notes": list(self.notes),
            "next_steps": list(self.next_steps),
            "ledgers": [_ledger_data(ledger) for ledger in self.ledgers],
            "tables": {name: len(table) for name, table in self.tables.items()},
        }

    def save(self, folder: str | os.PathLike[str], *, overwrite: bool = False) -> Path:
        """Write the run directory atomically.

        Raises StoreError if the folder is not empty (and `overwrite` is not given, or what it contains is no
        run), or cannot be written.
        """
        target = Path(folder)
        if target.exists() and not (overwrite and _is_run(target)) and not _is_empty_folder(target):
            raise _taken(target)
        try:
            target.parent.mkdir(parents=True, exist_ok=True)
            building = beside(target)
            building.mkdir()
        except OSError as error:
            raise StoreError.at(target, f"cannot be written: {error.strerror}") from error
        try:
            self._write(building)
            if overwrite and _is_run(target):
                _swap(building, target)
                return target
            with contextlib.suppress(OSError):
                target.rmdir()  # an empty folder
            building.rename(target)  # which fails where another process has put a run there meanwhile
        except Exception as error:
            if isinstance(error, OSError) and error.errno in _EXISTS:
                raise _taken(target) from error
            why = system_reason(error)
            if why is None:
                raise
            raise StoreError.at(target, f"cannot be written: {why}") from error
        finally:
            # Also on Ctrl-C: no half-written run stays behind.
            shutil.rmtree(building, ignore_errors=True)
        return target

    def _write(self, folder: Path) -> None:
        """Write every file of the run into a folder that exists."""
        _write_json(folder / "scenario.json", to_data(self.scenario))
        _write_json(
            folder / "summary.json", {key: value for key, value in self.data().items() if key != "tables"}
        )
        tables = {
            name: table.write_parquet(folder / f"{name}.parquet") for name, table in self.tables.items()
        }
        _write_json(
            folder / "provenance.json", {**host_provenance(), **dict(self.provenance), "tables": tables}
        )
        if self.timeline is not None:
            self.timeline.write_chrome_trace(folder / TIMELINE_FILE)


@dataclass(frozen=True, repr=False)
class SavedRun(ShownRun):
    """A run directory as read back: folder, id, the resolved scenario as plain data, and the fields of `Result`."""

    folder: Path = field(kw_only=True)
    id: str = field(kw_only=True)

    @property
    def _named(self) -> str:
        return f"run {self.id}, saved in {self.folder}"


def require_run(value: object, where: str) -> None:
    """Raise UsageError unless `value` is a run, in memory or saved."""
    if not isinstance(value, (Result, SavedRun)):
        raise wrong_type(
            where, value, "a run, as forerun.simulate(scenario) or forerun.load_result(folder) returns,"
        )


def load_result(folder: str | os.PathLike[str]) -> SavedRun:
    """Read a run from a directory that `Result.save` or `forerun simulate -o` wrote.

    folder: the run directory. Raises StoreError that names the missing or damaged file.

    >>> forerun.load_result("runs/none")
    Traceback (most recent call last):
    forerun.core.errors.StoreError: runs/none: no such run directory
    """
    base = path_of(folder, "load_result")
    if not base.is_dir():
        raise StoreError.at(
            base,
            "is a file, not a run directory (`forerun simulate -o` writes one)"
            if base.exists()
            else "no such run directory",
        )
    named, summary = base / "scenario.json", base / "summary.json"
    scenario = read_document(named)
    about = record(read_document(summary), _Summary, summary)
    check_figures(about.summary, summary, "$.summary")
    if not isinstance(scenario.get("domain"), str):
        raise StoreError.at(named, "does not say its domain")
    provenance = read_document(base / "provenance.json")
    for key in ("tables", "versions"):
        if not isinstance(provenance.get(key), dict):
            raise StoreError.at(f"{base / 'provenance.json'}: at $.{key}", "a section is wanted")
    return SavedRun(
        folder=base,
        scenario=scenario,
        summary=about.summary,
        intervals={name: one.interval() for name, one in about.intervals.items()},
        headline=about.headline,
        why=about.why,
        notes=about.notes,
        next_steps=about.next_steps,
        ledgers=tuple(one.ledger() for one in about.ledgers),
        provenance=provenance,
        lead=about.lead,
        tables={
            name: read_parquet(base / f"{name}.parquet", digest)
            for name, digest in sorted(provenance["tables"].items())
        },
        id=about.id,
    )


class _Interval(Spec, frozen=True, kw_only=True):
    """An interval as summary.json has it; an end that is not finite is null."""

    low: float | None
    high: float | None
    confidence: float
    method: str

    def interval(self) -> Interval:
        """The interval."""
        low, high = (
            -math.inf if self.low is None else self.low,
            math.inf if self.high is None else self.high,
        )
        return Interval(low, high, self.confidence, self.method)


class _Ledger(Spec, frozen=True, kw_only=True):
    """A ledger as summary.json has it."""

    name: str
    unit: str
    whole: float
    parts: dict[str, float]
    meanings: dict[str, str]

    def ledger(self) -> Ledger:
        """The ledger."""
        return Ledger(self.name, self.unit, self.whole, self.parts, self.meanings)


class _Summary(Spec, frozen=True, kw_only=True):
    """The content of summary.json."""

    domain: str
    id: str
    summary: dict[str, Any]
    intervals: dict[str, _Interval]
    headline: tuple[str, ...]
    why: str
    notes: tuple[str, ...]
    next_steps: tuple[str, ...]
    ledgers: tuple[_Ledger, ...]
    lead: dict[str, str] = {}


def host_provenance() -> dict[str, Any]:
    """Versions and host, for provenance.json."""
    from importlib.metadata import PackageNotFoundError, version

    versions: dict[str, str] = {"forerun": VERSION, "python": platform.python_version()}
    for name in ("numpy", "numba", "polars", "msgspec"):
        try:
            versions[name] = version(name)
        except PackageNotFoundError:
            versions[name] = "not installed"
    return {
        "run_format": RUN_FORMAT,
        "versions": versions,
        "host": {"machine": platform.machine(), "system": platform.system(), "cores": os.cpu_count()},
    }


def _ledger_data(ledger: Ledger) -> dict[str, Any]:
    """A ledger as plain data, as summary.json has it."""
    return {
        "name": ledger.name,
        "unit": ledger.unit,
        "whole": float(ledger.whole),
        "parts": {name: float(part) for name, part in ledger.parts.items()},
        "meanings": dict(ledger.meanings or {}),
    }


def _write_json(path: Path, data: Any) -> None:
    text = json.dumps(plain(data), indent=2, ensure_ascii=False, allow_nan=False) + "\n"
    path.write_text(text, encoding="utf-8")


def _taken(target: Path) -> StoreError:
    known = "a run; choose another folder" if _is_run(target) else "something that is not a run"
    return StoreError(Problem(str(target), f"already holds {known}"))


def _is_run(folder: Path) -> bool:
    return (folder / "scenario.json").is_file() and (folder / "summary.json").is_file()


def _is_empty_folder(folder: Path) -> bool:
    return folder.is_dir() and not any(folder.iterdir())


def _swap(building: Path, target: Path) -> None:
    """Put the finished directory in the target's place; the old one goes only once the new one stands."""
    old = beside(target)
    target.rename(old)
    try:
        building.rename(target)
    except OSError:
        old.rename(target)
        raise
    shutil.rmtree(old, ignore_errors=True)
