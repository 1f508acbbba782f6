"""Checks of what callers pass to the public functions: a scenario, a path, a text."""

from __future__ import annotations

import os
import reprlib
from collections.abc import Iterable
from pathlib import Path

from forerun.core.errors import Problem, UsageError
from forerun.core.scenario.spec import Spec


def wrong_type(where: str, value: object, expected: str) -> UsageError:
    """The error for an argument of another type than `expected`, which says how to get one."""
    kind = f"the class {value.__name__}" if isinstance(value, type) else f"a {type(value).__name__}"
    shown = "" if isinstance(value, type) else f" ({reprlib.repr(value)})"
    return UsageError(Problem(where, f"{expected} is wanted, not {kind}{shown}"))


def require_scenario(value: object, where: str) -> None:
    """Raise UsageError unless `value` is a scenario: a record of a domain, as `forerun.load` returns."""
    if not (isinstance(value, Spec) and "domain" in value.__struct_fields__):
        raise wrong_type(where, value, "a scenario, as forerun.load(path) returns,")


def name_of(value: object) -> str:
    """The name that an argument gives; of anything but text its repr, which is nobody's name and shows in the error."""
    return value if isinstance(value, str) else reprlib.repr(value)


def names_of(values: object, where: str, expected: str) -> tuple[str, ...]:
    """The names that an argument lists. Raises UsageError for a single text, and for anything that is no list."""
    if isinstance(values, str) or not isinstance(values, Iterable):
        raise wrong_type(where, values, expected)
    return tuple(map(name_of, values))


def path_of(value: object, where: str) -> Path:
    """The path that an argument names. Raises UsageError for any other type than text or a path."""
    if not isinstance(value, str | bytes | os.PathLike):
        raise wrong_type(where, value, "a path, as text or pathlib.Path,")
    return Path(os.fsdecode(value))
