"""From any public format to forerun's own trace files, and what can be said of a file without converting it."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from forerun.core.atomic_write import refuse_foreign, write_text
from forerun.core.errors import InputError, Problem, TraceError
from forerun.core.registry import member_name
from forerun.core.trace.files import save_trace
from forerun.core.trace.reader import read_trace, reader_for
from forerun.core.trace.repair import Repair, RepairLog
from forerun.core.trace.table import Trace

LOG_SUFFIX = ".repairs.json"


@dataclass(frozen=True, slots=True)
class Check:
    """Whether a file is a usable trace.

    Parameters
    ----------
    path : of the file.
    format : empty if it was not recognised.
    guessed : the format was recognised from the content.
    rows : 0 if unusable.
    repairs : what was repaired, also up to the place where reading ended.
    problems : what is wrong; at most about twenty are listed.
    taken_as : what the format is and what was assumed, in one line; empty if it was not recognised.
    """

    path: str
    format: str
    guessed: bool
    rows: int
    repairs: tuple[Repair, ...]
    problems: tuple[Problem, ...]
    taken_as: str = ""

    @property
    def ok(self) -> bool:
        """Whether there are no problems."""
        return not self.problems

    def data(self) -> dict[str, object]:
        """As plain data, for JSON."""
        return {
            "path": self.path,
            "format": self.format,
            "guessed": self.guessed,
            "taken_as": self.taken_as,
            "ok": self.ok,
            "rows": self.rows,
            "repairs": [repair.data() for repair in self.repairs],
            "problems": [asdict(problem) for problem in self.problems],
        }


@dataclass(frozen=True, slots=True)
class Imported:
    """A trace that was read and saved.

    Parameters
    ----------
    trace : as it was read.
    guessed : the format was recognised from the content.
    repairs : what was repaired.
    path, log_path : where the trace lies, and its log of repairs.
    """

    trace: Trace
    guessed: bool
    repairs: tuple[Repair, ...]
    path: Path
    log_path: Path

    def data(self) -> dict[str, object]:
        """As plain data, for JSON."""
        made = self.trace.provenance
        return {
            "path": str(self.path),
            "log": str(self.log_path),
            "format": made.format,
            "guessed": self.guessed,
            "kind": self.trace.kind,
            "rows": len(self.trace),
            "columns": [asdict(column) for column in self.trace.schema],
            "digest": self.trace.digest,
            "provenance": made.data(),
        }


def check_trace(
    path: str | Path, format: str = "", *, options: Mapping[str, Any] | None = None, strict: bool = False
) -> Check:
    """Read a file to its end and say what is wrong with it, instead of raising.

    Parameters
    ----------
    path, format, options : as for `read_trace`.
    strict : repairs are problems (default: they are only listed).
    """
    log = RepairLog(strict=strict)
    guessed, taken_as = not format, ""
    try:
        reader = reader_for(path, format, options)
        format, taken_as = member_name(type(reader)), reader.taken_as()
        trace = read_trace(path, format, options=options, repairs=log)
    except InputError as error:
        return Check(str(path), format, guessed, 0, log.repairs, error.problems, taken_as)
    if assumed := trace.provenance.options.get("assumed"):
        taken_as += f"; {assumed}"
    return Check(str(path), format, guessed, len(trace), log.repairs, (), taken_as)


def import_trace(
    path: str | Path,
    out: str | Path,
    format: str = "",
    *,
    options: Mapping[str, Any] | None = None,
    strict: bool = False,
) -> Imported:
    """Read a file of a public format and save it as forerun's own, with the log of repairs beside it.

    Parameters
    ----------
    path, format, options : as for `read_trace`.
    out : ends in `.parquet` or `.csv`; the log is `OUT.repairs.json`.
    strict : repairs are errors (default: they are made and counted).

    Raises TraceError, UsageError or UnknownName, with nothing written.
    """
    log = RepairLog(strict=strict)
    trace = read_trace(path, format, options=options, repairs=log)
    target = Path(out)
    beside = target.with_name(target.name + LOG_SUFFIX)
    refuse_foreign(beside.parent, [beside.name], marker=beside.name, sign=b'"repairs": [')
    save_trace(trace, target)
    text = json.dumps({"source": str(Path(path).name), "repairs": log.rows()}, indent=2, ensure_ascii=False)
    write_text(beside, text + "\n", error=TraceError)
    return Imported(trace, not format, log.repairs, target, beside)
