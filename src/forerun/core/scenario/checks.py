"""Checks of numbers that `problems` of many records make, one message for each kind of range."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from forerun.core.scenario.spec import Spec


def not_negative(record: Spec, *names: str, unit: str = "", below: float = math.inf) -> list[tuple[str, str]]:
    """The fields that are not finite numbers from 0 on.

    unit: shown behind the value (default: none). below: what they must not reach (default: infinity).
    """
    values = [(name, getattr(record, name)) for name in names]
    return [
        (name, f"{value}{unit} is negative or not finite") for name, value in values if not 0 <= value < below
    ]


def positive(record: Spec, *names: str, unit: str = "", below: float = math.inf) -> list[tuple[str, str]]:
    """The fields that are not finite numbers above 0. unit, below: as in `not_negative`."""
    values = [(name, getattr(record, name)) for name in names]
    return [
        (name, f"{value}{unit} is not positive and finite") for name, value in values if not 0 < value < below
    ]


def between(record: Spec, low: float, high: float, *names: str) -> list[tuple[str, str]]:
    """The fields that are not in [low, high]."""
    values = [(name, getattr(record, name)) for name in names]
    return [
        (name, f"{value} is not between {low} and {high}")
        for name, value in values
        if not low <= value <= high
    ]
