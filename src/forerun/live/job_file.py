"""Read job files: what a user submits, strictly, every problem with its file and line.

A job file is read as scenario files are: YAML, TOML or JSON, unknown keys are errors, quantities may have units
(`deadline: 5min`). Its folder is where the job runs unless it names another.
"""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Iterable
from pathlib import Path
from typing import Final

import msgspec

from forerun.core.errors import Problem, ScenarioError
from forerun.core.regular import followed
from forerun.core.scenario.decode import decode
from forerun.core.scenario.resolve import apply_overrides
from forerun.core.scenario.text import Document, read_document
from forerun.live.spec import JobSpec

_VARIABLE: Final = re.compile("[A-Za-z_][A-Za-z0-9_]*")
#: words that name the interpreter whose script is the next word
_PYTHON: Final = re.compile(r"python(3(\.\d+)?)?")


def read_job(path: Path, overrides: Iterable[str] = ()) -> JobSpec:
    """The job that a file describes: its folder absolute, its program there.

    Parameters
    ----------
    path : a .yaml, .toml or .json file.
    overrides : `a.b=value` texts, applied before decoding (default: none).

    Raises
    ------
    ScenarioError : lists every problem of the file.
    """
    document = read_document(path)
    if not isinstance(document.data, dict):
        raise ScenarioError.at(document.where(()), "a job is a section of keys that begins with `name: ...`")
    _, given = apply_overrides(document, overrides, domain="")
    job = decode(given, JobSpec)
    try:
        folder = followed(path.parent / Path(job.folder).expanduser())
    except (OSError, RuntimeError) as error:
        raise ScenarioError.at(given.where(("folder",)), f"{job.folder!r} is not a path: {error}") from error
    if problems := [Problem(given.where(place), what) for place, what in _faults(job, folder, given)]:
        raise ScenarioError(*problems)
    return msgspec.structs.replace(job, folder=str(folder))


def _faults(job: JobSpec, folder: Path, given: Document) -> Iterable[tuple[tuple[str | int, ...], str]]:
    """What is wrong with a job on this machine, by the place in its file."""
    if not job.command:
        yield ("command",), "names no program; write a list such as [python, train.py]"
        return
    for at, name in enumerate(job.environment):
        if not _VARIABLE.fullmatch(name):
            place = ("environment", at)
            yield (
                place,
                f"{name!r} is no name of a variable; values are read where the job runs, not written here",
            )
    if not folder.is_dir():
        yield ("folder",), f"no such folder: {folder}"
        return
    program = job.command[0]
    if shutil.which(program if os.sep not in program else str(folder / program)) is None:
        yield ("command", 0), f"no program {program!r} {_where(program, folder)}"
    elif _PYTHON.fullmatch(Path(program).name) and len(job.command) > 1:
        script = job.command[1]
        if not script.startswith("-") and not (folder / script).is_file():
            yield ("command", 1), f"no script {script!r} in {folder}"


def _where(program: str, folder: Path) -> str:
    """Where a program was looked for."""
    return f"in {folder}" if os.sep in program else "on PATH"
