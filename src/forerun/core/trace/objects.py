"""JSON from somebody else: documents and JSON Lines, strictly decoded, values checked against fields.

No NaN or Infinity, no key twice in an object, no nesting beyond 64; a text is not a number, and a fraction
is not a count.
"""

from __future__ import annotations

import itertools
import json
import math
import re
from collections.abc import Iterator
from typing import Any, NoReturn

from forerun.core.errors import TraceError, suggestion
from forerun.core.trace.repair import Complaints, shown
from forerun.core.trace.rows import LARGEST_INT, Field, out_of_range
from forerun.core.trace.source import MOST_ROWS, Source

DEEPEST_JSON = 64


def read_objects(
    source: Source, *, complaints: Complaints | None = None
) -> Iterator[tuple[int, dict[str, Any]]]:
    """JSON Lines: one object a line, strictly decoded, with its line number; problems as in `read_rows`."""
    complaints = complaints if complaints is not None else Complaints()
    count = 0
    for number, line in source.lines():
        if not line.strip():
            source.repairs.note("blank line dropped", source.at(number))
            continue
        try:
            value = parse_json(line)
        except ValueError as error:
            complaints.add(source.at(number), str(error))
            continue
        if not isinstance(value, dict):
            complaints.add(
                source.at(number), f"an object {{...}} is expected on each line, not {_json_kind(value)}"
            )
            continue
        count += 1
        if count > MOST_ROWS:
            raise TraceError.at(source.name, f"has more than {MOST_ROWS} rows, the limit here")
        yield number, value
    complaints.finish()
    if not count:
        raise TraceError.at(source.name, "contains no rows of data")


class JsonFault(ValueError):
    """What is wrong with a text that should be JSON.

    Parameters
    ----------
    line : where; 0 if that is not known.
    what : in words.
    token : what to look for in the text, where the line is not known yet (default: nothing).
    """

    def __init__(self, line: int, what: str, token: str = "") -> None:
        super().__init__(what)
        self.line = line
        self.token = token


def parse_json(text: str, *, infinite: bool = False) -> Any:
    """Strict JSON: no repeated keys, nested at most 64 deep; ValueError says what is wrong.

    Parameters
    ----------
    text : the document.
    infinite : numbers may be NaN and Infinity, as Python writes them (default: they are errors).
    """
    too_deep = _too_deep(text)
    if too_deep is not None:
        line = text.count("\n", 0, too_deep) + 1
        raise JsonFault(line, f"the JSON is nested more than {DEEPEST_JSON} deep")
    try:
        value = json.loads(text, object_pairs_hook=_unique, parse_constant=float if infinite else _constant)
        if _HALF.search(text):
            json.dumps(value, ensure_ascii=False).encode()
        return value
    except UnicodeEncodeError as error:
        half = f"\\u{ord(error.object[error.start]):04x}"
        raise JsonFault(
            _line_of(half, text.lower()), f"has the escape {half}, which is half a character"
        ) from None
    except json.JSONDecodeError as error:
        raise JsonFault(error.lineno, f"is not JSON: {error.msg} at column {error.colno}") from None
    except JsonFault as fault:
        raise JsonFault(_line_of(fault.token, text), str(fault)) from None
    except ValueError as error:
        raise JsonFault(0, f"is not usable JSON: {error}") from None


def _line_of(token: str, text: str) -> int:
    """The line of the last place where a key or word stands, 0 unless there are one or two: then it is not known."""
    places = [match.start() for match in itertools.islice(re.finditer(re.escape(token), text), 3)]
    return text.count("\n", 0, places[-1]) + 1 if len(places) in (1, 2) else 0


_HALF = re.compile(r"\\u[dD][89a-fA-F]")
_BRACKETS = re.compile(r'"(?:[^"\\]++|\\.)*+"|[][{}]', re.DOTALL)


def _too_deep(text: str) -> int | None:
    """Where brackets nest too deep, None if nowhere; looked at first, since decoding recurses."""
    if text.count("[") + text.count("{") <= DEEPEST_JSON:
        return None
    depth = 0
    for match in _BRACKETS.finditer(text):
        mark = match.group()
        if mark in "[{":
            depth += 1
            if depth > DEEPEST_JSON:
                return match.start()
        elif mark in "]}":
            depth -= 1
    return None


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    object = dict(pairs)
    if len(object) < len(pairs):
        seen: set[str] = set()
        for key, _ in pairs:
            if key in seen:
                raise JsonFault(0, f"the key {shown(key)} stands twice in one object", json.dumps(key))
            seen.add(key)
    return object


def _constant(name: str) -> NoReturn:
    raise JsonFault(0, f"{name} is not a JSON number; a finite number is needed", name)


def _json_kind(value: Any) -> str:
    kinds = {dict: "an object", list: "a list", str: "a text", bool: "true or false", type(None): "null"}
    return kinds.get(type(value), "a number")


def optional_text(value: Any, name: str) -> str:
    """A decoded JSON text, empty for null; ValueError for something else."""
    if value is None:
        return ""
    if not isinstance(value, str):
        raise ValueError(f"{name} is {shown(value)}, a text is expected")
    return value


def json_number(field: Field, value: Any) -> float | int:
    """A decoded JSON value as the number that a field wants.

    ValueError says why it is not such a number.

    Parameters
    ----------
    field : its kind, `float` or `int`, and its range.
    value : what the decoder made of the text; an `int` may be written 12.0 if the field allows that.
    """
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise ValueError(f"{shown(value)} is {_json_kind(value)}; a number is needed")
    if field.kind == "int" and isinstance(value, float):
        if not (field.whole_decimals and value.is_integer()):
            raise ValueError(f"{value!r} is not a whole number")
        value = int(value)
    if isinstance(value, int) and abs(value) > LARGEST_INT:
        raise ValueError(f"{shown(value)} is beyond 2^53, where numbers stop being exact")
    if not math.isfinite(value):
        raise ValueError("is too large a number")
    if reason := out_of_range(field, float(value)):
        raise ValueError(reason)
    return float(value) if field.kind == "float" else value


def json_field(
    source: Source, line: int, record: dict[str, Any], field: Field, complaints: Complaints
) -> Any:
    """The number of a field in a decoded object; a complaint and None if it is absent or not as declared.

    Parameters
    ----------
    source : the file, for messages.
    line : where the object stands.
    record : the object.
    field : what is wanted; None is no complaint where it is not required.
    complaints : added to.
    """
    where = source.at(line, field.header)
    if field.header not in record:
        if field.required:
            complaints.add(where, f"is missing{_near_key(field.header, record)}")
        return None
    value = record[field.header]
    try:
        return json_number(field, value)
    except ValueError as error:
        complaints.add(where, str(error))
        return None


def _near_key(name: str, record: dict[str, Any]) -> str:
    hint = suggestion(name, list(record)[:200])
    return (
        f"; {hint.strip()}"
        if hint
        else f"; the object has {', '.join(map(shown, list(record)[:8])) or 'no keys'}"
    )
