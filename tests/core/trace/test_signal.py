"""Step functions: values, integrals and means against closed forms and a brute-force grid."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from forerun.core.errors import TraceError
from forerun.core.trace.signal import Signal

PRICE = Signal([0, 10, 20], [1.0, 3.0, 2.0], unit="usd_per_h", end_s=30)


@pytest.mark.parametrize(("time_s", "value"), [(0, 1), (9.999, 1), (10, 3), (19.5, 3), (20, 2), (29.999, 2)])
def test_a_step_holds_from_its_instant_on(time_s, value):
    assert PRICE.at(time_s) == value


@pytest.mark.parametrize("time_s", [-1e-9, 30, 1e9, math.nan, math.inf])
def test_there_is_no_value_outside_the_known_time(time_s):
    with pytest.raises(TraceError, match=r"has no value at .* known on \[0, 30\) s"):
        PRICE.at(time_s)


@pytest.mark.parametrize(
    ("start", "stop", "area"), [(0, 30, 60), (5, 25, 45), (10, 10, 0), (12, 13, 3), (25, 5, -45), (30, 30, 0)]
)
def test_integral_is_the_sum_of_rectangles(start, stop, area):
    assert float(PRICE.integral(start, stop)) == pytest.approx(area, abs=1e-12)


def test_integral_broadcasts_over_many_spans():
    assert PRICE.integral([0, 10], [10, 30]).tolist() == [10.0, 50.0]


def test_mean_of_a_ramp_of_n_steps_is_its_middle():
    """Values 0..n-1 on unit steps: mean (n - 1)/2."""
    n = 1001
    ramp = Signal(np.arange(n), np.arange(n), unit="nodes", end_s=n)
    assert ramp.mean(0, n) == pytest.approx((n - 1) / 2, rel=1e-14)


def test_mean_over_an_instant_is_the_value_there():
    assert PRICE.mean(15, 15) == 3.0


def test_a_constant_has_its_value_for_ever():
    assert Signal.constant(7, unit="W").at(1e9) == 7.0


def test_repeating_plays_the_day_again():
    month = PRICE.repeated(75)
    assert [month.at(t) for t in (0, 15, 30, 45, 60, 74)] == [1, 3, 1, 3, 1, 3]
    assert float(month.integral(0, 60)) == pytest.approx(2 * 60)
    assert PRICE.repeated(15) == PRICE.window(0, 15)


@pytest.mark.parametrize(
    ("times", "values", "end", "what"),
    [
        ([], [], 1, "at least one step"),
        ([0, 1], [1], 2, "instants for"),
        ([0, 0], [1, 2], 2, "not after the previous"),
        ([1, 0], [1, 2], 2, "not after the previous"),
        ([0, math.nan], [1, 2], 2, "instant 1 is not finite"),
        ([0, 1], [1, math.inf], 2, "value 1 is not finite"),
        ([0, 1], [1, 2], 1, "ends at 1 s, not after its last step"),
        ([0, 1], [1, 2], math.nan, "ends at nan s"),
    ],
)
def test_a_malformed_signal_is_refused(times, values, end, what):
    with pytest.raises(TraceError, match=what):
        Signal(times, values, unit="nodes", end_s=end)


@pytest.mark.parametrize(
    ("ask", "what"),
    [
        (lambda: PRICE.window(5, 31), "is not a part of"),
        (lambda: PRICE.window(5, 5), "is not a part of"),
        (lambda: PRICE.integral(0, math.inf), "has no value at inf s"),
        (lambda: Signal.constant(7, unit="W").repeated(100), "only a signal with an end can be repeated"),
        (lambda: PRICE.repeated(math.inf), "up to a finite instant"),
    ],
)
def test_questions_without_an_answer_are_refused(ask, what):
    with pytest.raises(TraceError, match=what):
        ask()


def test_equal_signals_are_equal():
    same = Signal([0, 10, 20], [1.0, 3.0, 2.0], unit="usd_per_h", end_s=30)
    assert same == PRICE and hash(same) == hash(PRICE)
    assert Signal([0, 10, 20], [2.0, 6.0, 4.0], unit="usd_per_h", end_s=30) != PRICE
    assert repr(PRICE) == "<Signal signal in usd_per_h: 3 steps on [0, 30) s>"


def test_a_signal_cannot_be_changed():
    with pytest.raises(ValueError, match="read-only"):
        PRICE.values[0] = 9


steps = st.lists(st.tuples(st.integers(1, 50), st.integers(-20, 20)), min_size=1, max_size=12)


@given(steps, st.integers(0, 200), st.integers(0, 200))
def test_integral_agrees_with_summing_second_by_second(parts, a, b):
    times = np.cumsum([0] + [width for width, _ in parts])
    signal = Signal(times[:-1], [value for _, value in parts], unit="nodes", end_s=float(times[-1]))
    a, b = sorted((a % (int(times[-1]) + 1), b % (int(times[-1]) + 1)))
    assert float(signal.integral(a, b)) == sum(signal.at(t) for t in range(a, b))
