"""The figures of a comparison, as data: values, paired differences, single seeds, and where differences come from."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Final

import numpy as np

from forerun.core.result.figures import Axis, Figure, Rule, by_series
from forerun.core.result.numbers import capital, readable_scale, signed
from forerun.core.study.best import shared
from forerun.core.study.compare import LedgerDifference
from forerun.core.study.compared import Comparison, Standing
from forerun.core.units import stem, unit_of

#: maximum variants in a figure of single seeds, and maximum parts of a ledger in a figure
MOST_SERIES: Final = 8
MOST_PARTS: Final = 12


def figures(comparison: Comparison, moved: Sequence[LedgerDifference]) -> tuple[Figure, ...]:
    """What a comparison shows; those that apply.

    Parameters
    ----------
    comparison : of all variants.
    moved : `moved_parts` of it.
    """
    others = [one for one in comparison.standings if one.difference is not None]
    made = [_values(comparison)]
    if any(one.best is not None and one.best.least_share is not None for one in comparison.standings):
        made.append(_best(comparison))
    if others:
        made.append(_differences(comparison, others))
        if not comparison.exact and comparison.seeds > 1:
            made.append(_seeds(comparison, others))
    made += [_moved(comparison, entry) for entry in moved]
    return tuple(made)


def _values(comparison: Comparison) -> Figure:
    """The objective of each variant, best first."""
    label, unit = _named(comparison)
    with_interval = (
        "" if comparison.exact or comparison.seeds < 2 else f" with its {comparison.confidence:.0%} interval"
    )
    return Figure.of(
        "points",
        f"compared-{stem(comparison.objective.key)}",
        f"{capital(label)} of each variant",
        {
            "variant": [one.variant.name for one in comparison.standings],
            "value": [one.value for one in comparison.standings],
        },
        intervals=[one.interval for one in comparison.standings],
        x="variant",
        y=Axis("value", label, unit),
        rules=_ends(comparison),
        caption=f"{'Exact' if comparison.exact else f'Mean over {comparison.seeds:,} common seeds'}{with_interval}; best "
        f"first, {comparison.objective.better} is better.",
    )


def _ends(comparison: Comparison) -> list[Rule]:
    """What some schedule reaches and what none exceeds, where that is the same for all variants."""
    known = shared(comparison)
    if known is None or known.bound is None:
        return []
    if known.reached in (None, known.bound):
        return [
            Rule(
                known.bound, "the best possible" if known.reached is not None else "no scheduler beyond", "y"
            )
        ]
    assert known.reached is not None
    return [Rule(known.reached, "reached", "y"), Rule(known.bound, "no scheduler beyond", "y")]


def _best(comparison: Comparison) -> Figure:
    """The share of the best possible that each variant is, as far as it is known."""
    known = [
        (one.variant.name, 100 * one.best.least_share, 100 * one.best.most_share)
        for one in comparison.standings
        if one.best is not None and one.best.least_share is not None and one.best.most_share is not None
    ]
    names, low, high = zip(*known, strict=True)
    return Figure.of(
        "points",
        f"best-possible-{stem(comparison.objective.key)}",
        "Share of the best possible",
        {"variant": names, "share": low, "low": low, "high": high},
        x="variant",
        y=Axis("share", "of the best possible", "%"),
        rules=[Rule(100.0, "the best possible", "y")],
        caption="At least the mark, at most the other end of the line: the best possible lies between what some schedule "
        "reaches and what no scheduler exceeds, whatever it knows beforehand.",
    )


def _differences(comparison: Comparison, others: list[Standing]) -> Figure:
    """The paired difference of each variant to the reference."""
    label, unit = _named(comparison)
    intervals = [one.difference_interval for one in others]
    kind = "exact" if comparison.exact else "paired on common seeds"
    over = " over blocks of the log" if comparison.exact else ""
    with_interval = f", with its {comparison.confidence:.0%} interval{over}" if any(intervals) else ""
    return Figure.of(
        "points",
        f"difference-{stem(comparison.objective.key)}",
        f"{capital(label)} less that of {comparison.reference}",
        {
            "variant": [one.variant.name for one in others],
            "difference": [math.nan if one.difference is None else one.difference for one in others],
        },
        intervals=intervals,
        x="variant",
        y=Axis("difference", "difference", unit),
        rules=[Rule(0.0, comparison.reference, "y")],
        caption=f"Differences are {kind}{with_interval}. {_side(comparison)} of the line is better than "
        f"{comparison.reference}."
        + (" A difference whose interval contains 0 is not significant." if with_interval else ""),
    )


def _seeds(comparison: Comparison, others: list[Standing]) -> Figure:
    """The difference on each seed, ordered by the reference: what pairing has to work with."""
    label, unit = _named(comparison)
    plotted = others[:MOST_SERIES]
    reference = next(one for one in comparison.standings if one.variant.name == comparison.reference)
    against = np.array(reference.draws)
    count = len(against)
    more = f" The first {len(plotted)} of {len(others)} variants." if len(plotted) < len(others) else ""
    return Figure.of(
        "points",
        f"seeds-{stem(comparison.objective.key)}",
        f"Difference on each of {count:,} seeds",
        by_series(
            "variant",
            {
                one.variant.name: {"seed": against, "difference": np.array(one.draws) - against}
                for one in plotted
            },
        ),
        x=Axis("seed", f"{label} of {comparison.reference} on that seed", unit),
        y=Axis("difference", "difference", unit),
        series="variant",
        series_label="variant",
        rules=[Rule(0.0, comparison.reference, "y")],
        caption=f"Each mark is one variant under one seed: the same arrivals, failures and durations for all.{more}",
    )


def _moved(comparison: Comparison, entry: LedgerDifference) -> Figure:
    """Where the difference of a ledger comes from: the shift of each part."""
    plotted = entry.parts[:MOST_PARTS]
    name, unit = entry.name, entry.unit
    variants = list(entry.whole)[:MOST_SERIES]
    rows = [(part, variant, shifts[variant]) for part, shifts in plotted for variant in variants]
    intervals = [shift.interval for _, _, shift in rows]
    shown, size = moved_scale(entry)
    wholes = ", ".join(f"{variant} {signed(entry.whole[variant] / size)}" for variant in variants)
    more = (
        f" The largest {len(plotted)} of {len(entry.parts)} parts." if len(plotted) < len(entry.parts) else ""
    )
    with_interval = (
        f" Means with their paired {comparison.confidence:.0%} intervals." if any(intervals) else ""
    )
    return Figure.of(
        "bar",
        f"moved-{stem(name).replace(' ', '-')}",
        f"What moved in {name}",
        {
            "part": [part for part, _, _ in rows],
            "shift": [shift.mean for _, _, shift in rows],
            "variant": [variant for _, variant, _ in rows],
        },
        intervals=intervals,
        x="part",
        y=Axis("shift", f"against {comparison.reference}", unit),
        series="variant" if len(variants) > 1 else "",
        series_label="variant",
        caption=f"The parts sum to the difference of the whole: {wholes} {shown}.{with_interval}{more}",
    )


def moved_scale(entry: LedgerDifference) -> tuple[str, float]:
    """The unit that the axis of a ledger's differences has, and how many of the ledger's unit make one of it."""
    variants = list(entry.whole)[:MOST_SERIES]
    plotted = [shifts[variant] for _, shifts in entry.parts[:MOST_PARTS] for variant in variants]
    values = [one.mean for one in plotted]
    values += [end for one in plotted if one.interval for end in (one.interval.low, one.interval.high)]
    return readable_scale(entry.unit, max(map(abs, values), default=0.0))


def _named(comparison: Comparison) -> tuple[str, str]:
    """The objective's title without its unit, and the unit."""
    title, unit = comparison.objective.title, unit_of(comparison.objective.key) or ""
    return (title.rpartition(" in ")[0] or title if unit else title), unit


def _side(comparison: Comparison) -> str:
    return "The high side" if comparison.objective.better == "higher" else "The low side"
