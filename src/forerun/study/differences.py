"""The figures of a comparison, as data: values, paired differences, single seeds, and where differences come from."""

from __future__ import annotations

import math
from typing import Final

import numpy as np

from forerun.result.figures import Axis, Figure, Rule, by_series, ends
from forerun.result.numbers import capital, readable_scale, signed
from forerun.study.compare import Comparison, Moved, Standing, moved_parts
from forerun.units import stem, unit_of

#: maximum variants in a figure of single seeds, and maximum parts of a ledger in a figure
MOST_SERIES: Final = 8
MOST_PARTS: Final = 12


def figures(found: Comparison) -> tuple[Figure, ...]:
    """What a comparison shows; those that apply."""
    others = [one for one in found.standings if one.difference is not None]
    made = [_values(found)]
    if others:
        made.append(_differences(found, others))
        if not found.exact and found.seeds > 1:
            made.append(_seeds(found, others))
    made += [_moved(found, entry) for entry in moved_parts(found)]
    return tuple(made)


def _values(found: Comparison) -> Figure:
    """The objective of each variant, best first."""
    label, unit = _named(found)
    held = "" if found.exact or found.seeds < 2 else f" with its {found.confidence:.0%} interval"
    return Figure.of(
        "points",
        f"compared-{stem(found.objective.key)}",
        f"{capital(label)} of each variant",
        {
            "variant": [one.variant.name for one in found.standings],
            "value": [one.value for one in found.standings],
            **ends([one.interval for one in found.standings]),
        },
        x="variant",
        y=Axis("value", label, unit),
        caption=f"{'Exact' if found.exact else f'Mean over {found.seeds:,} common seeds'}{held}; best first, "
        f"{found.objective.better} is better.",
    )


def _differences(found: Comparison, others: list[Standing]) -> Figure:
    """The paired difference of each variant to the reference."""
    label, unit = _named(found)
    intervals = [one.difference_interval for one in others]
    kind = "exact" if found.exact else "paired on common seeds"
    over = " over blocks of the log" if found.exact else ""
    held = f", with its {found.confidence:.0%} interval{over}" if any(intervals) else ""
    return Figure.of(
        "points",
        f"difference-{stem(found.objective.key)}",
        f"{capital(label)} less that of {found.reference}",
        {
            "variant": [one.variant.name for one in others],
            "difference": [math.nan if one.difference is None else one.difference for one in others],
            **ends(intervals),
        },
        x="variant",
        y=Axis("difference", "difference", unit),
        rules=[Rule(0.0, found.reference, "y")],
        caption=f"Differences are {kind}{held}. {_side(found)} of the line is better than {found.reference}."
        + (" A difference whose interval contains 0 is not significant." if held else ""),
    )


def _seeds(found: Comparison, others: list[Standing]) -> Figure:
    """The difference on each seed, ordered by the reference: what pairing has to work with."""
    label, unit = _named(found)
    kept = others[:MOST_SERIES]
    reference = next(one for one in found.standings if one.variant.name == found.reference)
    against = np.array(reference.draws)
    count = len(against)
    more = f" The first {len(kept)} of {len(others)} variants." if len(kept) < len(others) else ""
    return Figure.of(
        "points",
        f"seeds-{stem(found.objective.key)}",
        f"Difference on each of {count:,} seeds",
        by_series(
            "variant",
            {
                one.variant.name: {"seed": against, "difference": np.array(one.draws) - against}
                for one in kept
            },
        ),
        x=Axis("seed", f"{label} of {found.reference} on that seed", unit),
        y=Axis("difference", "difference", unit),
        series="variant",
        series_label="variant",
        rules=[Rule(0.0, found.reference, "y")],
        caption=f"One mark a seed and variant: the same arrivals, failures and durations for all.{more}",
    )


def _moved(found: Comparison, entry: Moved) -> Figure:
    """Where the difference of a ledger comes from: the shift of each part."""
    kept = entry.parts[:MOST_PARTS]
    name, unit = entry.name, entry.unit
    variants = list(entry.whole)[:MOST_SERIES]
    rows = [(part, variant, shifts[variant]) for part, shifts in kept for variant in variants]
    intervals = [shift.interval for _, _, shift in rows]
    shown, size = moved_scale(entry)
    wholes = ", ".join(f"{variant} {signed(entry.whole[variant] / size)}" for variant in variants)
    more = f" The largest {len(kept)} of {len(entry.parts)} parts." if len(kept) < len(entry.parts) else ""
    held = f" Means with their paired {found.confidence:.0%} intervals." if any(intervals) else ""
    return Figure.of(
        "bar",
        f"moved-{stem(name).replace(' ', '-')}",
        f"What moved in {name}",
        {
            "part": [part for part, _, _ in rows],
            "shift": [shift.mean for _, _, shift in rows],
            "variant": [variant for _, variant, _ in rows],
            **ends(intervals),
        },
        x="part",
        y=Axis("shift", f"against {found.reference}", unit),
        series="variant" if len(variants) > 1 else "",
        series_label="variant",
        caption=f"The parts sum to the difference of the whole: {wholes} {shown}.{held}{more}",
    )


def moved_scale(entry: Moved) -> tuple[str, float]:
    """The unit that the axis of a ledger's differences has, and how many of the ledger's unit make one of it."""
    variants = list(entry.whole)[:MOST_SERIES]
    kept = [shifts[variant] for _, shifts in entry.parts[:MOST_PARTS] for variant in variants]
    values = [one.mean for one in kept]
    values += [end for one in kept if one.interval for end in (one.interval.low, one.interval.high)]
    return readable_scale(entry.unit, max(map(abs, values), default=0.0))


def _named(found: Comparison) -> tuple[str, str]:
    """The objective's title without its unit, and the unit."""
    title, unit = found.objective.title, unit_of(found.objective.key) or ""
    return (title.rpartition(" in ")[0] or title if unit else title), unit


def _side(found: Comparison) -> str:
    return "The high side" if found.objective.better == "higher" else "The low side"
