"""Quantities as people write them."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from forerun.core.units import _SCALE, SUFFIX_UNIT, parse_quantity, unit_of


@pytest.mark.parametrize(
    ("text", "unit", "value"),
    [
        ("30min", "s", 1800.0),
        ("0.35 s", "ms", 350.0),
        ("350ms", "ms", 350.0),
        ("1ms", "s", 0.001),
        ("250us", "ms", 0.25),
        ("10Gbps", "bytes_per_s", 1.25e9),
        ("$2.4/h", "usd_per_h", 2.4),
        ("2.4 usd/h", "usd_per_h", 2.4),
        ("250W", "w", 250.0),
        ("1.5kWh", "j", 5.4e6),
        ("16MiB", "bytes", 16 * 1024**2),
        ("100/min", "rps", 100 / 60),
        ("1_000 rps", "rps", 1000.0),
        ("-3s", "s", -3.0),
        ("1e3ms", "s", 1.0),
        ("5%", "share", 0.05),
        ("$12", "usd", 12.0),
    ],
)
def test_values_with_units(text: str, unit: str, value: float) -> None:
    assert parse_quantity(text, unit) == value


@pytest.mark.parametrize(
    ("text", "unit", "message"),
    [
        ("30", "s", "has no unit"),
        ("30 parsecs", "s", "unknown unit 'parsecs'"),
        ("30W", "s", "is a power, a time is wanted"),
        ("fast", "s", "unknown unit|not a quantity"),
        ("", "s", "not a quantity"),
        ("1e999s", "s", "not finite"),
        ("1,5s", "s", "not a quantity"),
        ("--1s", "s", "not a quantity"),
        ("nan s", "s", "not a quantity"),
    ],
)
def test_what_is_no_quantity_says_what_is_known(text: str, unit: str, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        parse_quantity(text, unit)


@given(st.floats(min_value=1e-6, max_value=1e9), st.sampled_from(sorted(_SCALE)))
def test_a_value_in_its_own_unit_is_itself(value: float, unit: str) -> None:
    if unit.isascii() and unit != "share":
        assert parse_quantity(f"{value!r} {unit}", unit) == value


@given(st.floats(min_value=1e-3, max_value=1e6))
def test_there_and_back(value: float) -> None:
    for small, large in (("ms", "s"), ("s", "h"), ("w", "kW"), ("bytes", "GiB")):
        there = parse_quantity(f"{value!r} {large}", small)
        assert math.isclose(parse_quantity(f"{there!r} {small}", large), value, rel_tol=1e-12)


def test_every_suffix_names_a_known_unit_and_longer_suffixes_win() -> None:
    assert all(unit in _SCALE for unit in SUFFIX_UNIT.values())
    assert unit_of("price_usd_per_h") == "usd_per_h"
    assert unit_of("useful_gpu_s") == "gpu_s"
    assert unit_of("replicas") is None


def test_whole_numbers_are_ascii_digits() -> None:
    from forerun.core.units import whole_number

    assert [whole_number(text) for text in ("0", "42", "9" * 18)] == [0, 42, 10**18 - 1]
    assert [whole_number(text) for text in ("", "²", "٣", "-1", "1.0", "9" * 19)] == [None] * 6
    assert whole_number("9" * 19, most_digits=4000) == 10**19 - 1
