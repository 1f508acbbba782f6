"""Stored JSON, read back as strictly as a scenario: whatever is damaged is named with its file and key."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final, TypeVar

from forerun.core.errors import ForerunError, StoreError
from forerun.core.regular import read_regular, unreadable
from forerun.core.scenario.decode import decode
from forerun.core.scenario.spec import Spec
from forerun.core.scenario.text import Document
from forerun.core.trace.objects import JsonFault, parse_json
from forerun.core.units import unit_of

S = TypeVar("S", bound=Spec)

#: larger files are not read
MOST_BYTES: Final = 256 * 2**20


def read_document(path: str | os.PathLike[str]) -> dict[str, Any]:
    """A JSON object from a file. Raises StoreError with the line of what is wrong."""
    source = Path(path)
    # Of a file whose name does not say that it is JSON, say what else it may be.
    other = "" if source.suffix.lower() == ".json" else "; a scenario ends in .yaml, .yml, .toml or .json"
    try:
        data = parse_json(read_regular(source, most_bytes=MOST_BYTES).decode("utf-8"))
    except OSError as error:
        raise StoreError.at(source, unreadable(error)) from error
    except UnicodeDecodeError as error:
        line = error.object.count(b"\n", 0, error.start) + 1
        what = f"is not JSON: byte {error.start} is not UTF-8{other}"
        raise StoreError.at(f"{source}:{line}", what) from error
    except JsonFault as fault:
        raise StoreError.at(f"{source}:{fault.line}" if fault.line else source, f"{fault}{other}") from fault
    if not isinstance(data, dict):
        what = f"contains a {type(data).__name__}; plans, scenarios and measurements are JSON objects"
        raise StoreError.at(source, what)
    return data


def record(data: Any, kind: type[S], name: str | os.PathLike[str]) -> S:
    """Plain data as a record. Raises StoreError with the key of every value that is not what it should be.

    Parameters
    ----------
    data : from a file.
    kind : of the record; its keys are those of the data.
    name : of the file, for messages.
    """
    try:
        return decode(Document(os.fspath(name), data), kind)
    except ForerunError as error:
        raise StoreError(*error.problems) from error


def check_figures(data: Any, name: str | os.PathLike[str], key: str = "$") -> None:
    """Raise StoreError where a figure whose name has a unit is a text, at any depth.

    Parameters
    ----------
    data : from a file.
    name, key : of the file, and where in it the data are, for messages (default: the whole).
    """
    if isinstance(data, list):
        for number, item in enumerate(data):
            check_figures(item, name, f"{key}[{number}]")
    elif isinstance(data, Mapping):
        for figure, value in data.items():
            if isinstance(value, (str, bool)) and unit_of(str(figure)):
                raise StoreError.at(f"{os.fspath(name)}: at {key}.{figure}", f"{value!r} is not a number")
            check_figures(value, name, f"{key}.{figure}")
