"""Comparisons: paired on common randomness, exact where the seed changes nothing."""

from __future__ import annotations

import math
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import forerun
from forerun.core.domain import objectives_of
from forerun.core.errors import InputError, UsageError
from forerun.core.result.objective import Objective
from forerun.core.result.stats import Interval, mean_interval, paired_interval
from forerun.core.rng import stream
from forerun.core.study.cell import Done
from forerun.core.study.compare import FIRST_SEEDS, compare_variants, moved_parts, next_look, pick_objective
from forerun.core.study.compared import Shift, Standing, Variant
from forerun.core.study.expand import StudyPlan
from forerun.core.study.summary import points
from forerun.core.study.verdict import why

from ...conftest import cases

TOTAL = Objective("total_s", "lower", "total time")
PLAIN, HALF = Variant("plain", (("policy", "plain"),)), Variant("half", (("policy", "half"),))


def toy(text: str = "") -> Any:
    return forerun.loads("domain: toy\n" + text)


def test_a_replayed_world_is_compared_exactly() -> None:
    found = compare_variants(toy(), [PLAIN, HALF], TOTAL)
    assert found.exact and found.seeds == 1 and "exact" in found.method
    best = found.standings[0]
    assert (best.variant.name, best.value, best.difference, best.difference_interval) == (
        "half",
        2.0,
        -1.0,
        None,
    )
    assert best.parts == {"time (s)": {"y": Shift(-1.0), "x": Shift(0.0)}}
    assert "what half shifts most against the reference in time is y (-1 s)" in found.why


def test_progress_of_an_exact_comparison_promises_no_further_runs() -> None:
    shown: list[str] = []
    assert compare_variants(toy(), [PLAIN, HALF], TOTAL, progress=shown.append).exact
    assert shown[-1] == "4 of at most 40 runs"


def test_the_lead_has_a_unit_and_every_variant_of_a_tie_is_named() -> None:
    assert (
        "half has the best total time, 1 s ahead of plain"
        in compare_variants(toy(), [PLAIN, HALF], TOTAL).why
    )
    same = [Variant(name, (("x", 1.0),)) for name in ("a", "b", "c")]
    worse = Variant("d", (("x", 9.0),))
    assert compare_variants(toy(), [*same, worse], TOTAL).why.startswith("a, b and c tie on total time")


def test_common_random_numbers_make_small_differences_visible() -> None:
    found = compare_variants(toy("noise: 5.0"), [PLAIN, HALF], TOTAL, seeds=12)
    half = next(standing for standing in found.standings if standing.variant.name == "half")
    assert half.interval is not None and half.difference_interval is not None and half.p is not None
    paired = half.difference_interval.high - half.difference_interval.low
    alone = half.interval.high - half.interval.low
    assert paired < alone / 3
    assert half.difference_interval.low < -1.0 < half.difference_interval.high


def test_the_true_difference_is_covered() -> None:
    """The truth is -1; comparisons of 8 seeds cover it in 95 % of cases, within three standard errors of their number."""
    hits, number = 0, cases(100, 200)
    for first in range(number):
        found = compare_variants(toy(f"noise: 2.0\nseed: {first * 1000}"), [PLAIN, HALF], TOTAL, seeds=8)
        interval = next(s.difference_interval for s in found.standings if s.difference_interval)
        hits += interval.low <= -1.0 <= interval.high
    assert abs(hits / number - 0.95) < 3 * math.sqrt(0.95 * 0.05 / number)


def test_seeds_are_added_until_the_interval_is_narrow_enough() -> None:
    found = compare_variants(toy("noise: 2.0"), [PLAIN, HALF], TOTAL, precision=0.05, most_seeds=300)
    interval = next(s.difference_interval for s in found.standings if s.difference_interval)
    assert (interval.high - interval.low) / 2 <= 0.05 and 10 < found.seeds < 300
    assert "until half widths were at most 0.05" in found.method
    assert "where differences are skewed (here: " in found.method and "one interval in ten" in found.method
    assert "skewed" not in compare_variants(toy("noise: 2.0"), [PLAIN, HALF], TOTAL, seeds=5).method
    short = compare_variants(toy("noise: 2.0"), [PLAIN, HALF], TOTAL, precision=0.001, most_seeds=20)
    assert short.seeds == 20 and re.search(
        r"0\.001 were asked and are 0\.\d+ still: the seeds ran out", short.method
    )
    coarse = compare_variants(toy("noise: 2.0"), [PLAIN, HALF], TOTAL, precision=5.0)
    assert coarse.seeds == 10


@pytest.mark.parametrize("precision", [1.0, 0.5, 0.25])
def test_stopping_on_precision_leaves_coverage_near_nominal(precision: float) -> None:
    """1,000 differences of spread 1 around 0, seeds added until the half width is small enough: 93 to 97 % hold 0.

    Three standard errors of a count of 1,000 are allowed at either end.
    """
    hits = 0
    for truth in range(1000):
        draws = stream(12, "sequential", truth).normal(size=400)
        seeds = FIRST_SEEDS
        while (found := paired_interval(draws[:seeds], np.zeros(seeds))).high - found.low > 2 * precision:
            if seeds == 400:
                break
            seeds = next_look(seeds, 400)
        hits += found.low <= 0 <= found.high
    margin = 3 * math.sqrt(0.95 * 0.05 / 1000)
    assert 0.93 - margin <= hits / 1000 <= 0.97 + margin


def test_exact_differences_are_told_by_cause(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    from forerun.core.cli.main import run as command_line

    third = Variant("more", (("x", 4.0),))
    found = compare_variants(toy(), [PLAIN, HALF, third], TOTAL)
    moved = moved_parts(found)
    assert [entry.ledger for entry in moved] == ["time (s)"] and moved[0].whole == {"half": -1.0, "more": 3.0}
    assert moved[0].parts == (
        ("x", {"half": Shift(0.0), "more": Shift(3.0)}), ("y", {"half": Shift(-1.0), "more": Shift(0.0)}),
    )  # fmt: skip
    (tmp_path / "toy.yaml").write_text("domain: toy")
    arguments = ["compare", str(tmp_path / "toy.yaml"), "--policy", "plain", "--policy", "half"]
    assert command_line(arguments) == 0
    shown = capsys.readouterr().out
    assert "time (s) moved against plain" in shown and re.search(r"\ny +-1", shown) and "\nx " not in shown
    assert re.search(r"\nwhole +-1", shown)


def test_a_variant_that_fails_is_named_and_the_rest_is_compared() -> None:
    unlucky = Variant("unlucky", (("x", 9),))
    found = compare_variants(toy("unlucky_x: 9"), [PLAIN, HALF, unlucky], TOTAL)
    assert dict(found.failed) == {"unlucky": "toy: x is unlucky"} and len(found.standings) == 2


def test_no_difference_is_not_claimed() -> None:
    one, other = Variant("a", (("seed", 1),)), Variant("b", (("noise", 0.3000001),))
    found = compare_variants(toy("noise: 0.3"), [Variant("plain", ()), other], TOTAL, seeds=10)
    assert any(standing.p is not None for standing in found.standings)
    assert one.name == "a"


@pytest.mark.parametrize(
    ("variants", "message"),
    [
        ([PLAIN], "at least two"),
        ([PLAIN, PLAIN], "given twice"),
        ([PLAIN, Variant("x", (("policy", "third"),))], "known: plain, half"),
        ([PLAIN, Variant("x", (("pollicy", "half"),))], "did you mean 'policy'"),
    ],
)
def test_malformed_comparisons(variants: list[Variant], message: str) -> None:
    with pytest.raises(InputError, match=message):
        compare_variants(toy(), variants, TOTAL)


def test_intervals_stay_within_the_bounds_of_a_share() -> None:
    """Skewed shares near 1, whose t-interval passes 1, and a difference that passes -1; what holds the truth is kept."""
    met = Objective("met", "higher", "", 0.0, 1.0)
    share = mean_interval([1.0] * 9 + [0.9])
    assert share.high > 1.0
    assert met.cut(share) == replace(share, high=1.0)
    gap = paired_interval([0.0, 0.0, 0.02], [1.0, 0.98, 1.0])
    assert gap.low < -1.0 < gap.high
    assert met.cut_difference(gap) == replace(gap, low=-1.0)
    inner = mean_interval([0.4, 0.5, 0.6])
    assert met.cut(inner) is inner and met.cut_difference(inner) is inner
    assert TOTAL.cut(Interval(-1e9, 1e9)) == Interval(-1e9, 1e9), "without bounds nothing is cut"
    for seed in range(200):
        drawn = (np.random.default_rng(seed).random(6) < 0.9).astype(float)
        whole = mean_interval(drawn)
        cut = met.cut(whole)
        assert (whole.low <= 0.9 <= whole.high) == (cut.low <= 0.9 <= cut.high)


def test_comparisons_and_studies_cut_what_they_report(monkeypatch: pytest.MonkeyPatch) -> None:
    """Bounds laid inside the intervals of a noisy figure: what is reported ends there."""
    free = compare_variants(toy("noise: 5.0"), [PLAIN, HALF], TOTAL, seeds=6)
    tight = Objective("total_s", "lower", "", -2.0, 2.5)
    held = compare_variants(toy("noise: 5.0"), [PLAIN, HALF], tight, seeds=6)
    assert len(held.standings) == 2
    for one, other in zip(free.standings, held.standings, strict=True):
        assert one.interval is not None and one.interval.high > 2.5
        assert other.interval == tight.cut(one.interval) and other.interval.high == 2.5
        if one.difference_interval is not None:
            assert other.difference_interval == tight.cut_difference(one.difference_interval)
    assert objectives_of("no such domain") == ()
    monkeypatch.setattr("forerun.core.study.summary.objectives_of", lambda _: (tight,))
    plan = StudyPlan("s", {"domain": "toy"}, Path(), (("x", (1.0,)),), tuple(range(6)), ())
    draws = next(one.draws for one in free.standings if one.variant.name == "plain")
    (point,) = points(plan, [Done(number, {"total_s": drawn}) for number, drawn in enumerate(draws)])
    assert (
        point.intervals["total_s"] == tight.cut(mean_interval(draws))
        and point.intervals["total_s"].high == 2.5
    )


def test_notes_are_told_once_with_whom_they_are_about() -> None:
    found = compare_variants(toy(), [PLAIN, HALF], TOTAL)
    assert found.notes() == []
    said = {"plain": ("all", "of plain", "all"), "half": ("all", "of half")}
    noted = replace(found, standings=[replace(one, notes=said[one.variant.name]) for one in found.standings])
    assert noted.notes() == [("all", ()), ("of half", ("half",)), ("of plain", ("plain",))]


def test_objectives() -> None:
    summary = {"total_s": 1.0, "x": 2}
    assert pick_objective("toy", "", summary) == TOTAL
    assert pick_objective("toy", "x:higher", summary) == Objective("x", "higher")
    for named in ("z", "x:up"):
        with pytest.raises(UsageError, match="no figure named"):
            pick_objective("toy", named, summary)
    with pytest.raises(UsageError, match="no figure 'z'"):
        compare_variants(toy(), [PLAIN, HALF], Objective("z", "lower"))


@pytest.mark.parametrize(("precision", "seeds"), [(0.0, 12), (0.0, 2), (0.0, 1)])
def test_progress_counts_every_run_of_the_comparison(precision: float, seeds: int) -> None:
    told: list[str] = []
    compare_variants(toy("noise: 2.0"), [PLAIN, HALF], TOTAL, seeds=seeds, progress=told.append)
    most = 4 if seeds > 2 else 0  # two seeds of each may show that the seed changes nothing
    planned = [f"{'at most ' if number <= most else ''}{2 * seeds}" for number in range(1, 2 * seeds + 1)]
    assert told == [f"{number} of {runs} runs" for number, runs in enumerate(planned, 1)]


def test_progress_grows_with_the_seeds_that_precision_adds() -> None:
    told: list[str] = []
    found = compare_variants(
        toy("noise: 2.0"), [PLAIN, HALF], TOTAL, precision=0.2, most_seeds=60, progress=told.append
    )
    assert found.seeds > 10 and told[0] == "1 of 20 runs"
    assert told[-1] == f"{2 * found.seeds} of {2 * found.seeds} runs" and len(told) == 2 * found.seeds


@pytest.mark.parametrize(
    ("policies", "variants", "message"),
    [
        ([("cheap", {"x": 2})], None, "overrides go into variants"),
        ("half", None, "policies are a list of names or policies, not 'half'"),
        (3, None, "policies are a list of names"),
        (["half"], [("cheap", {"x": 2})], "variants are {'name': {'key': value}}"),
        (["half"], {"cheap": "x=2"}, "variant 'cheap' is {'key': value}, not 'x=2'"),
        (["half"], {"cheap": {2: "x"}}, "variant 'cheap' is"),
        (["half"], {3: {"x": 2}}, "variant 3 is"),
    ],
)  # fmt: skip
def test_arguments_of_another_shape_are_refused_by_name(policies: Any, variants: Any, message: str) -> None:
    with pytest.raises(UsageError, match=re.escape(message)):
        forerun.compare(toy(), policies, variants)


@pytest.mark.parametrize(
    ("best", "second", "other"),
    [
        (("a", -5.0, 0.01), ("b", -4.0, 0.2), None),
        (("a", -5.0, 0.2), ("b", -4.0, 0.01), "the reference"),
        (("reference", None, None), ("b", 4.0, 0.2), "b"),
        (("reference", None, None), ("b", 4.0, 0.01), None),
    ],
)
def test_the_why_names_what_the_best_cannot_be_distinguished_from(
    best: tuple[str, float | None, float | None], second: tuple[str, float, float], other: str | None
) -> None:
    """Where a variant leads, its own difference to the reference counts; where the reference leads, the runner-up's."""
    standings = [
        Standing(Variant(name, ()), 10.0 + place, None, difference=difference, p=p)
        for place, (name, difference, p) in enumerate((best, second))
    ]
    text = why(standings, Objective("jct_mean_s", "lower", "mean completion time in s"), exact=False)
    said = re.findall(r"does not differ significantly from (.+) \(Holm", text)
    assert said == ([other] if other else []), text
