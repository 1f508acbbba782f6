"""Checks between fields, as a table: what is wrong if it holds, where, and what to say."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TypeAlias

Checks: TypeAlias = list[tuple[bool, str, str]]


def failing(checks: Iterable[tuple[bool, str, str]]) -> list[tuple[str, str]]:
    """Where and what, of the checks (wrong, where, what) that fail."""
    return [(where, what) for wrong, where, what in checks if wrong]
