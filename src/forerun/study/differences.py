"""The figures of a comparison, as data: values, paired differences, single seeds, and where differences come from."""

from __future__ import annotations

import math
from typing import Final

import numpy as np

from forerun.result.figures import Axis, Figure, Rule
from forerun.result.numbers import readable_scale, signed
from forerun.result.run import Interval
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
    return Figure(
        id=f"compared-{stem(found.objective.key)}",
        title=f"{_capital(label)} of each variant",
        kind="points",
        x=Axis("variant", "variant"),
        y=Axis("value", label, unit),
        data={
            "variant": [one.variant.name for one in found.standings],
            "value": [one.value for one in found.standings],
            **_ends([one.interval for one in found.standings]),
        },
        low="low" if held else "",
        high="high" if held else "",
        order=tuple(one.variant.name for one in found.standings),
        caption=f"{'Exact' if found.exact else f'Mean over {found.seeds:,} common seeds'}{held}; best first, "
        f"{found.objective.better} is better.",
    )


def _differences(found: Comparison, others: list[Standing]) -> Figure:
    """The paired difference of each variant to the reference."""
    label, unit = _named(found)
    intervals = [one.difference_interval for one in others]
    drawn = any(intervals)
    kind = "exact" if found.exact else "paired on common seeds"
    over = " over blocks of the log" if found.exact else ""
    held = f", with its {found.confidence:.0%} interval{over}" if drawn else ""
    return Figure(
        id=f"difference-{stem(found.objective.key)}",
        title=f"{_capital(label)} less that of {found.reference}",
        kind="points",
        x=Axis("variant", "variant"),
        y=Axis("difference", "difference", unit),
        data={
            "variant": [one.variant.name for one in others],
            "difference": [math.nan if one.difference is None else one.difference for one in others],
            **_ends(intervals),
        },
        low="low" if drawn else "",
        high="high" if drawn else "",
        rules=(Rule(0.0, found.reference, "y"),),
        order=tuple(one.variant.name for one in others),
        caption=f"Differences are {kind}{held}. {_side(found)} of the line is better than {found.reference}."
        + (" A difference whose interval contains 0 is not significant." if drawn else ""),
    )


def _seeds(found: Comparison, others: list[Standing]) -> Figure:
    """The difference on each seed, ordered by the reference: what pairing has to work with."""
    label, unit = _named(found)
    kept = others[:MOST_SERIES]
    reference = next(one for one in found.standings if one.variant.name == found.reference)
    against = np.array(reference.draws)
    count = len(against)
    more = f" The first {len(kept)} of {len(others)} variants." if len(kept) < len(others) else ""
    return Figure(
        id=f"seeds-{stem(found.objective.key)}",
        title=f"Difference on each of {count:,} seeds",
        kind="points",
        x=Axis("seed", f"{label} of {found.reference} on that seed", unit),
        y=Axis("difference", "difference", unit),
        data={
            "seed": np.tile(against, len(kept)).tolist(),
            "difference": np.concatenate([np.array(one.draws) - against for one in kept]).tolist(),
            "variant": [one.variant.name for one in kept for _ in range(count)],
        },
        series="variant",
        series_label="variant",
        rules=(Rule(0.0, found.reference, "y"),),
        order=tuple(one.variant.name for one in kept),
        caption=f"One mark a seed and variant: the same arrivals, failures and durations for all.{more}",
    )


def _moved(found: Comparison, entry: Moved) -> Figure:
    """Where the difference of a ledger comes from: the shift of each part."""
    kept = entry.parts[:MOST_PARTS]
    name, unit = entry.name, entry.unit
    variants = list(entry.whole)[:MOST_SERIES]
    rows = [(part, variant, shifts[variant]) for part, shifts in kept for variant in variants]
    drawn = any(shift.interval for _, _, shift in rows)
    shown, size = moved_scale(entry)
    wholes = ", ".join(f"{variant} {signed(entry.whole[variant] / size)}" for variant in variants)
    more = f" The largest {len(kept)} of {len(entry.parts)} parts." if len(kept) < len(entry.parts) else ""
    held = f" Means with their paired {found.confidence:.0%} intervals." if drawn else ""
    return Figure(
        id=f"moved-{stem(name).replace(' ', '-')}",
        title=f"What moved in {name}",
        kind="bar",
        x=Axis("part", "part"),
        y=Axis("shift", f"against {found.reference}", unit),
        data={
            "part": [part for part, _, _ in rows],
            "shift": [shift.mean for _, _, shift in rows],
            "variant": [variant for _, variant, _ in rows],
            **_ends([shift.interval for _, _, shift in rows]),
        },
        series="variant" if len(variants) > 1 else "",
        series_label="variant",
        low="low" if drawn else "",
        high="high" if drawn else "",
        order=tuple(variants) if len(variants) > 1 else (),
        caption=f"The parts sum to the difference of the whole: {wholes} {shown}.{held}{more}",
    )


def moved_scale(entry: Moved) -> tuple[str, float]:
    """The unit that the axis of a ledger's differences has, and how many of the ledger's unit make one of it."""
    variants = list(entry.whole)[:MOST_SERIES]
    kept = [shifts[variant] for _, shifts in entry.parts[:MOST_PARTS] for variant in variants]
    ends = [end for one in kept if one.interval for end in (one.interval.low, one.interval.high)]
    return readable_scale(
        entry.unit, max((abs(value) for value in (*(one.mean for one in kept), *ends)), default=0.0)
    )


def _ends(intervals: list[Interval | None]) -> dict[str, list[float]]:
    return {
        "low": [interval.low if interval else math.nan for interval in intervals],
        "high": [interval.high if interval else math.nan for interval in intervals],
    }


def _named(found: Comparison) -> tuple[str, str]:
    """The objective's title without its unit, and the unit."""
    title, unit = found.objective.title, unit_of(found.objective.key) or ""
    return (title.rpartition(" in ")[0] or title if unit else title), unit


def _side(found: Comparison) -> str:
    return "The high side" if found.objective.better == "higher" else "The low side"


def _capital(text: str) -> str:
    return text[:1].upper() + text[1:]
