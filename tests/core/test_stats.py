"""Intervals cover what they claim, against closed forms and by counting over synthetic truths."""

from __future__ import annotations

import ast
import functools
import math
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from forerun.core.result.stats import (
    chosen_best_p,
    holm,
    mean_interval,
    normal_quantile,
    paired_interval,
    paired_p,
    proportion_interval,
    skewness,
    standard_error,
    student_quantile,
    student_tail,
    two_level_interval,
)
from forerun.core.rng import stream

from ..conftest import cases


@functools.cache
def scipy_stats() -> Any:
    """Imported when first needed: every process that collects tests would pay for it."""
    return pytest.importorskip("scipy.stats")


TRUTHS = cases(300, 1000)
#: 95 % of 1,000 truths, give or take three standard errors of a binomial count
ACCEPTED = (0.95 - 3 * (0.95 * 0.05 / TRUTHS) ** 0.5, 0.95 + 3 * (0.95 * 0.05 / TRUTHS) ** 0.5)


DEGREES = st.one_of(st.integers(1, 500), st.floats(1, 2000), st.floats(3, 12).map(lambda power: 10**power))


@given(st.floats(0.0001, 0.9999), DEGREES)
@example(0.975, 1e9)
@example(0.975, 9)
def test_student_quantiles_agree_with_scipy(share: float, degrees: float) -> None:
    assert student_quantile(share, degrees) == pytest.approx(
        scipy_stats().t.ppf(share, degrees), rel=1e-10, abs=1e-12
    )


@given(st.floats(-50, 50), DEGREES)
@example(1e-6, 2.0)
@example(-1e-200, 3.0)
@example(1.96, 1e9)
def test_student_distribution_agrees_with_scipy(t: float, degrees: float) -> None:
    # scipy rounds what lies next to the middle to a half.
    near = abs(t) if abs(t) < 1e-7 else 1e-12
    assert 1 - student_tail(t, degrees) == pytest.approx(scipy_stats().t.cdf(t, degrees), abs=near)


@given(st.floats(0.0, 12.0), DEGREES)
def test_tails_agree_with_scipy_far_out(t: float, degrees: float) -> None:
    assert student_tail(t, degrees) == pytest.approx(scipy_stats().t.sf(t, degrees), rel=1e-8)


@given(st.floats(0.0001, 0.9999))
@example(0.975)
def test_normal_quantiles_agree_with_scipy(share: float) -> None:
    assert normal_quantile(share) == pytest.approx(scipy_stats().norm.ppf(share), rel=1e-11, abs=1e-13)


def test_the_two_quantiles_in_use_to_the_last_digit() -> None:
    assert normal_quantile(0.975) == 1.959963984540054
    assert student_quantile(0.975, 9) == pytest.approx(2.262157162798205, rel=1e-15, abs=0)


#: 95 and 99 % points of the normal distribution and of Student's t, as they are written from memory or a table
COPIED = {
    1.64,
    1.645,
    1.96,
    2.576,
    12.706,
    4.303,
    3.182,
    2.776,
    2.571,
    2.447,
    2.365,
    2.306,
    2.262,
    2.2622,
    2.228,
}


@pytest.mark.parametrize("folder", ["src", "benchmarks", "examples", "docs"])
def test_quantiles_are_computed_and_not_copied(folder: str) -> None:
    """One module knows the quantiles: no other file writes one as a number, from a table or from memory."""
    root = Path(__file__).parents[2] / folder
    copied = [
        f"{path}:{node.lineno}: {node.value}"
        for path in root.rglob("*.py")
        if re.search(r"\d\.\d{3}", path.read_text("utf-8"))
        for node in ast.walk(ast.parse(path.read_text("utf-8")))
        if isinstance(node, ast.Constant)
        and isinstance(node.value, float)
        and (node.value in COPIED or abs(node.value - 1.959964) < 1e-5)
    ]
    assert copied == []


def covered(interval_of, draw) -> float:  # type: ignore[no-untyped-def]
    """Share of synthetic truths (all 0) that lie in their intervals."""
    hits = 0
    for truth in range(TRUTHS):
        interval = interval_of(draw(stream(5, "truth", truth)))
        hits += interval.low <= 0 <= interval.high
    return hits / TRUTHS


def test_mean_intervals_cover() -> None:
    share = covered(mean_interval, lambda rng: rng.normal(size=8))
    assert ACCEPTED[0] <= share <= ACCEPTED[1]


def test_paired_intervals_cover_and_are_narrow_where_randomness_is_common() -> None:
    def pair(rng):  # type: ignore[no-untyped-def]
        common = rng.normal(size=10) * 10
        return common + rng.normal(size=10), common + rng.normal(size=10)

    share = covered(lambda both: paired_interval(*both), pair)
    assert ACCEPTED[0] <= share <= ACCEPTED[1]
    one, other = pair(stream(1, "pair"))
    paired = paired_interval(one, other)
    alone = mean_interval(one)
    assert (paired.high - paired.low) < 0.5 * (alone.high - alone.low)


def test_two_level_intervals_cover() -> None:
    """Paths with a spread of 1, seeds within a path with a spread of 3: treating all values alike would not cover."""

    def table(rng):  # type: ignore[no-untyped-def]
        return rng.normal(size=(6, 1)) + 0.3 * rng.normal(size=(6, 20))

    assert ACCEPTED[0] <= covered(two_level_interval, table) <= ACCEPTED[1]
    assert covered(lambda values: mean_interval(values.ravel()), table) < 0.7


@given(st.integers(1, 200).flatmap(lambda n: st.tuples(st.integers(0, n), st.just(n))))
def test_proportions_agree_with_scipy(case: tuple[int, int]) -> None:
    """Wilson's interval, and the exact bound where there is no success or nothing else."""
    successes, trials = case
    ours = proportion_interval(successes, trials)
    edge = successes in (0, trials)
    theirs = scipy_stats().binomtest(successes, trials).proportion_ci(method="exact" if edge else "wilson")
    assert (ours.low, ours.high) == pytest.approx((theirs.low, theirs.high), abs=1e-12)
    assert ("exact" in ours.method) is edge


@given(st.lists(st.floats(-5, 5), min_size=3, max_size=12), st.integers(0, 10))
def test_paired_p_agrees_with_scipy(values: list[float], seed: int) -> None:
    one = np.array(values)
    other = one + stream(seed, "other").normal(size=len(one))
    assert paired_p(one, other) == pytest.approx(scipy_stats().ttest_rel(one, other).pvalue, abs=1e-9)


def test_paired_p_of_equal_and_of_shifted_values() -> None:
    assert paired_p([1, 2, 3], [1, 2, 3]) == 1.0
    assert paired_p([2, 3, 4], [1, 2, 3]) == 0.0


def test_standard_errors_are_of_means() -> None:
    assert standard_error([2, 4, 4, 6]) == pytest.approx(math.sqrt(8 / 3 / 4), rel=1e-15)
    assert standard_error([7]) == math.inf


def test_holm_by_hand() -> None:
    assert holm([0.01, 0.04, 0.03]) == [0.03, 0.06, 0.06]
    assert holm([0.5, 0.9]) == [1.0, 1.0]
    assert holm([]) == []


def test_holm_keeps_false_claims_rare() -> None:
    """Five comparisons without any true difference: at most 5 % of families claim one (plus three standard errors)."""
    claims = 0
    for family in range(TRUTHS):
        rng = stream(9, "family", family)
        p_values = [paired_p(rng.normal(size=10), rng.normal(size=10)) for _ in range(5)]
        claims += min(holm(p_values)) < 0.05
    assert claims / TRUTHS < 0.05 + 3 * (0.05 * 0.95 / TRUTHS) ** 0.5


@pytest.mark.parametrize(("combinations", "spread"), [(2, 1), (10, 1), (10, 30)])
def test_the_best_chosen_on_the_same_seeds_does_not_differ_from_its_equals(
    combinations: int, spread: float
) -> None:
    """Equal combinations on ten common seeds: at most 5 % of studies claim anything (plus three standard errors), where
    Holm's correction, made for a best that was known before, claims something in more than 10 % of ten."""
    claims = after_holm = 0
    for study in range(TRUTHS):
        rng = stream(9, "study", study)
        draws = rng.normal(size=(10, combinations)) * np.geomspace(1, spread, combinations)
        draws += 5 * rng.normal(size=(10, 1))
        best = int(draws.mean(axis=0).argmin())
        p = [paired_p(draws[:, at], draws[:, best]) for at in range(combinations) if at != best]
        claims += min(chosen_best_p(p, combinations)) <= 0.05
        after_holm += min(holm(p)) <= 0.05
    assert claims / TRUTHS <= 0.05 + 3 * (0.05 * 0.95 / TRUTHS) ** 0.5
    if (combinations, spread) == (10, 1):
        assert after_holm / TRUTHS > 0.1


@given(st.lists(st.floats(-5, 5), min_size=3, max_size=12).filter(lambda values: np.ptp(values) > 1e-3))
def test_skewness_agrees_with_scipy(values: list[float]) -> None:
    assert skewness(values) == pytest.approx(scipy_stats().skew(values, bias=False), rel=1e-6, abs=1e-9)


def test_values_without_spread_have_no_skewness() -> None:
    assert skewness([1.0, 2.0]) == skewness([3.0, 3.0, 3.0]) == 0.0


@pytest.mark.parametrize("call", [
    lambda: mean_interval([1.0]), lambda: paired_interval([1.0, 2.0], [1.0]), lambda: proportion_interval(3, 2),
    lambda: student_quantile(0, 3), lambda: student_quantile(0.5, 0),
])  # fmt: skip
def test_what_cannot_have_an_interval_says_so(call) -> None:  # type: ignore[no-untyped-def]
    with pytest.raises(ValueError, match=r"\d"):
        call()
