"""A comparison on a page: variants ranked, paired differences, where they come from, why each did as it did."""

from __future__ import annotations

from collections.abc import Sequence

from forerun.core.report.contents import item_title
from forerun.core.report.drawn import Drawn
from forerun.core.report.markup import Content
from forerun.core.report.pieces import (
    BREAK,
    BaseScenario,
    Bullets,
    Commands,
    DataTable,
    Element,
    Estimate,
    NamedLines,
    Paragraph,
    Provenance,
    Section,
    Shown,
    Significance,
    metric_title,
    set_option,
)
from forerun.core.report.stored import StoredComparison
from forerun.core.result.numbers import capital, readable_scale, signed
from forerun.core.result.objective import cost_figure
from forerun.core.study import best
from forerun.core.study.compare import LedgerDifference, moved_parts
from forerun.core.study.compared import RECORDED, Comparison, Shift, Standing
from forerun.core.study.differences import figures, moved_scale
from forerun.core.study.wording import value_text
from forerun.core.units import split_name, titled


def shown_comparison(item: StoredComparison, prefix: str) -> Shown:
    """What a page says of a comparison.

    Parameters
    ----------
    item : the comparison and its name.
    prefix : of the names of its figures.
    """
    comparison = item.comparison
    moved = moved_parts(comparison)
    drawn = Drawn(figures(comparison, moved), prefix)
    common = f"{comparison.seeds:,} common {'seed' if comparison.seeds == 1 else 'seeds'}"
    notes = [
        (Element("strong", f"{', '.join(names)}: ") if names else None, note)
        for note, names in comparison.notes()
    ]
    return Shown(
        "comparison",
        item_title("comparison", comparison.domain, item.name, comparison.scenario),
        (
            comparison.domain,
            f"comparison {comparison.id}",
            f"{len(comparison.standings):,} variants",
            "exact" if comparison.exact else common,
            f"{len(comparison.failed):,} failed" if comparison.failed else "",
            f"forerun {comparison.version}",
        ),
        comparison.why,
        bool(drawn.figures),
        (
            Section("headline", "Variants", _ranked(comparison)),
            Section("figures", "Figures", drawn),
            Section("causes", "Where the differences come from", _causes(comparison, moved), "Causes"),
            Section("why", "Why each did as it did", _whys(comparison), "Why"),
            Section("others", "All figures", _figures(comparison)),
            Section("notes", "Notes", Bullets(notes)),
            Section("failed", "Variants that failed", _failed(comparison), "Failed"),
            Section("next", "What to run next", Commands(_commands(comparison))),
            Section("scenario", "Scenario", _scenario(comparison)),
            Section("provenance", "Provenance", _provenance(comparison)),
        ),
    )


def _ranked(comparison: Comparison) -> Content:
    """The variants, best first."""
    own, unit = split_name(comparison.objective.key)
    title = capital(
        comparison.objective.title.rpartition(" in ")[0] or own if unit else comparison.objective.title
    )
    intervals = any(one.difference_interval for one in comparison.standings)
    values = [one.value for one in comparison.standings]
    values += [
        end for one in comparison.standings if one.interval for end in (one.interval.low, one.interval.high)
    ]
    shown, size = readable_scale(unit, max(map(abs, values), default=0.0))
    head: list[Content] = ["Variant", titled(title, shown), f"Against {comparison.reference}"]
    head += ["p (Holm)", "Significant"] if intervals else []
    rows = [_row(comparison, one, at, intervals, size) for at, one in enumerate(comparison.standings)]
    right = [1, 2, 3] if intervals else [1, 2]
    cost = cost_figure(name for one in comparison.standings for name, value in one.figures.items() if value)
    if cost and cost != comparison.objective.key:
        right.append(len(head))
        head.append(metric_title(cost))
        for row, one in zip(rows, comparison.standings, strict=True):
            row.append(Estimate(one.figures.get(cost)))
    lines = [f"{capital(comparison.method)}."]
    if any(one.best is not None for one in comparison.standings):
        right += [len(head), len(head) + 1]
        head += [titled("Best possible", unit), "Of the best possible"]
        for row, one in zip(rows, comparison.standings, strict=True):
            row += ["–", "–"] if one.best is None else [one.best.ends, one.best.share]
        lines.append(
            "Best possible: what some schedule reaches, and what no scheduler exceeds, whatever it knows beforehand."
        )
        lines += [f"None for {', '.join(names)}: {why}." for why, names in best.notes(comparison).items()]
    if comparison.recorded is not None:
        gap = signed((comparison.recorded_difference or 0.0) / size)
        row = [RECORDED, Estimate(comparison.recorded / size), gap]
        rows.append([*row, *[""] * (len(head) - len(row))])
    table = DataTable(head, rows, label="Variants", right=right)
    return (table, *map(Paragraph, lines))


def _row(comparison: Comparison, one: Standing, at: int, intervals: bool, size: float) -> list[Content]:
    """A variant's name and change, its value, its difference from the reference, and whether that is significant.

    Parameters
    ----------
    comparison : of all variants.
    one : the variant.
    at : its place, 0 for the best.
    intervals : whether the table has columns of p and significance.
    size : how many of the objective's unit make one of the unit shown.
    """
    name: list[Content] = [one.variant.name]
    if at == 0:
        sure = not comparison.level
        word = "best" if sure else "best, not significantly"
        name += [" ", Element("span", word, f"badge {'good' if sure else 'open'}")]
    if comparison.level and at == comparison.chosen:
        name += [" ", Element("span", "as good, run this" if at else "run this", "badge good")]
    if one.variant.name == comparison.reference:
        name += [" ", Element("span", "reference", "badge open")]
    changed = ", ".join(f"{path} {value_text(value)}" for path, value in one.variant.overrides)
    if changed and changed.rpartition(" ")[2] != one.variant.name:
        name += [BREAK, Element("span", changed, "soft")]
    cells: list[Content] = [name, Estimate(one.value / size, one.interval, size)]
    if one.difference is None:
        return [*cells, "", *(["", ""] if intervals else [])]
    gap: Content = Estimate(signed(one.difference / size), one.difference_interval, size)
    if one.left_out:
        gap = (gap, BREAK, Element("span", one.left_out, "soft"))
    word = "exact for this log" if one.difference_interval else "exact"
    cells.append((gap, BREAK, Element("span", word, "soft")) if comparison.exact else gap)
    if intervals:
        p = "–" if one.p is None else "< 0.0001" if one.p < 1e-4 else f"{one.p:.4f}"
        cells += [p, Significance(None if one.p is None else one.p <= 1 - comparison.confidence)]
    return cells


def _causes(comparison: Comparison, moved: Sequence[LedgerDifference]) -> Content:
    """Each ledger that moved: its parts, and the whole that they sum to; None if none moved."""
    kind = "Exact differences"
    if not comparison.exact:
        kind = "Mean differences on common seeds with their paired intervals"
    note = f"{kind} against {comparison.reference}. The parts sum to the whole; parts that did not move are left out."
    return (*map(_cause, moved), Paragraph(note)) if moved else None


def _cause(entry: LedgerDifference) -> Element:
    """One ledger's differences from the reference, part by part, in the unit that suits their size."""
    variants = list(entry.whole)
    unit, size = moved_scale(entry)
    rows: list[list[Content]] = [
        [part, *(_shift(shifts[variant], size) for variant in variants)] for part, shifts in entry.parts
    ]
    wholes = [Element("strong", signed(entry.whole[name] / size)) for name in variants]
    rows.append([Element("strong", "whole"), *wholes])
    label = f"What moved in {entry.ledger}"
    table = DataTable(("Part", *variants), rows, label=label, right=range(1, 1 + len(variants)))
    heading = f"{entry.name} ({unit})" if unit else entry.name
    return Element("div", (Element("h3", capital(heading), "part"), table))


def _shift(shift: Shift, size: float) -> Content:
    """A difference with its interval, in a unit of which `size` make one."""
    return Estimate(signed(shift.mean / size), shift.interval, size)


def _whys(comparison: Comparison) -> Content:
    """The why line of each variant's first run; None if there is none."""
    lines = [(Element("strong", one.variant.name), one.why) for one in comparison.standings if one.why]
    of = None if comparison.exact else Paragraph("Of the first seed.")
    return (NamedLines(lines), of) if lines else None


def _figures(comparison: Comparison) -> Content:
    """The means of every figure that differs, then the number of those that do not."""
    names = list(dict.fromkeys(name for one in comparison.standings for name in one.figures))
    rows: list[list[Content]] = []
    for name in names:
        values = [one.figures.get(name) for one in comparison.standings]
        if len(set(values)) > 1:
            label, unit = split_name(name)
            rows.append([capital(label), unit, *map(Estimate, values)])
    head = ("Quantity", "Unit", *(one.variant.name for one in comparison.standings))
    table = DataTable(head, rows, label="All figures", right=range(2, 2 + len(comparison.standings)))
    same = len(names) - len(rows)
    return (table, Paragraph(f"{same:,} more figures are the same for all." if same else ""))


def _failed(comparison: Comparison) -> Content:
    """The variants that failed, each with its reason; None if none did."""
    rows = list(comparison.failed.items())
    return DataTable(("Variant", "Reason"), rows, label="Variants that failed") if rows else None


def _commands(comparison: Comparison) -> list[tuple[str, str]]:
    """Commands worth running next, each with why."""
    changes = "".join(
        f" {set_option(path, value)}"
        for path, value in comparison.standings[comparison.chosen].variant.overrides
    )
    what = "The cheapest of the best variants as a run." if comparison.level else "The best variant as a run."
    return [(f"forerun simulate SCENARIO.yaml{changes} -o runs/best", what)]


def _scenario(comparison: Comparison) -> Content:
    """What each variant sets, and the base scenario."""
    rows: list[list[Content]] = [
        [one.variant.name, Element("code", path), value_text(value)]
        for one in comparison.standings
        for path, value in one.variant.overrides
    ]
    table = DataTable(("Variant", "Scenario value", "Set to"), rows, label="What each variant changes")
    return (table, BaseScenario(comparison.scenario))


def _provenance(comparison: Comparison) -> Provenance:
    """The comparison's id, method and inputs."""
    rows = [
        ("comparison id", comparison.id),
        ("written by", f"forerun {comparison.version}"),
        ("objective", f"{comparison.objective.key}, {comparison.objective.better} is better"),
        ("seeds", f"{comparison.seeds:,}"),
        ("method", comparison.method),
    ]
    return Provenance(rows, comparison.scenario)
