"""A comparison on a page: variants ranked, paired differences, where they come from, why each did as it did."""

from __future__ import annotations

from forerun.core.report.markup import Content, Html, join, tag
from forerun.core.report.pieces import (
    Section,
    base_scenario,
    bullets,
    commands,
    data_table,
    estimate,
    facts_line,
    metric_title,
    named_lines,
    paragraph,
    present,
    provenance_table,
    set_option,
    significance,
    titled,
)
from forerun.core.report.stored import StoredComparison
from forerun.core.result.numbers import capital, format_number, readable_scale, signed
from forerun.core.result.objective import cost_figure
from forerun.core.study import best
from forerun.core.study.compare import LedgerDifference, moved_parts
from forerun.core.study.compared import Comparison, Shift, Standing
from forerun.core.study.differences import moved_scale
from forerun.core.study.wording import value_text
from forerun.core.units import split_name


def facts(item: StoredComparison) -> str:
    """Domain, id, and the numbers of variants and seeds, on one line."""
    comparison = item.comparison
    seeds = (
        "exact"
        if comparison.exact
        else f"{comparison.seeds:,} common {'seed' if comparison.seeds == 1 else 'seeds'}"
    )
    return facts_line(
        comparison.domain,
        f"comparison {comparison.id}",
        f"{len(comparison.standings):,} variants",
        seeds,
        f"{len(comparison.failed):,} failed" if comparison.failed else "",
        f"forerun {comparison.version}",
    )


def comparison_sections(item: StoredComparison, drawn: Html | None) -> list[Section]:
    """The sections of a page that is about one comparison; those with nothing to show are left out.

    Parameters
    ----------
    item : the comparison and its name.
    drawn : its figures; None for none.
    """
    comparison = item.comparison
    notes = [
        (tag("strong", f"{', '.join(names)}: ") if names else None, note)
        for note, names in comparison.notes()
    ]
    return present(
        Section("headline", "Variants", _ranked(comparison)),
        Section("figures", "Figures", drawn),
        Section("causes", "Where the differences come from", _causes(comparison), "Causes"),
        Section("why", "Why each did as it did", _whys(comparison), "Why"),
        Section("others", "All figures", _figures(comparison)),
        Section("notes", "Notes", bullets(notes)),
        Section("failed", "Variants that failed", _failed(comparison), "Failed"),
        Section("next", "What to run next", commands(_commands(comparison))),
        Section("scenario", "Scenario", _scenario(comparison)),
        Section("provenance", "Provenance", _provenance(comparison)),
    )


def _ranked(comparison: Comparison) -> Html:
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
            row.append(format_number(one.figures.get(cost)))
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
    table = data_table(head, rows, label="Variants", right=right)
    return join(table, *map(paragraph, lines))


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
        name += [" ", tag("span", word, class_=f"badge {'good' if sure else 'open'}")]
    if comparison.level and at == comparison.chosen:
        name += [" ", tag("span", "as good, run this" if at else "run this", class_="badge good")]
    if one.variant.name == comparison.reference:
        name += [" ", tag("span", "reference", class_="badge open")]
    changed = ", ".join(f"{path} {value_text(value)}" for path, value in one.variant.overrides)
    if changed and changed.rpartition(" ")[2] != one.variant.name:
        name += [tag("br"), tag("span", changed, class_="soft")]
    cells: list[Content] = [join(name), estimate(format_number(one.value / size), one.interval, size)]
    if one.difference is None:
        return [*cells, "", *(["", ""] if intervals else [])]
    gap = estimate(signed(one.difference / size), one.difference_interval, size)
    if one.left_out:
        gap = join(gap, tag("br"), tag("span", one.left_out, class_="soft"))
    word = "exact for this log" if one.difference_interval else "exact"
    cells.append(join(gap, tag("br"), tag("span", word, class_="soft")) if comparison.exact else gap)
    if intervals:
        p = "–" if one.p is None else "< 0.0001" if one.p < 1e-4 else f"{one.p:.4f}"
        cells += [p, significance(None if one.p is None else one.p <= 1 - comparison.confidence)]
    return cells


def _causes(comparison: Comparison) -> Html | None:
    """Each ledger that moved: its parts, and the whole that they sum to; None if none moved."""
    moved = moved_parts(comparison)
    kind = "Exact differences"
    if not comparison.exact:
        kind = "Mean differences on common seeds with their paired intervals"
    note = f"{kind} against {comparison.reference}. The parts sum to the whole; parts that did not move are left out."
    return join(map(_cause, moved), paragraph(note)) if moved else None


def _cause(entry: LedgerDifference) -> Html:
    """One ledger's differences from the reference, part by part, in the unit that suits their size."""
    variants = list(entry.whole)
    unit, size = moved_scale(entry)
    rows: list[list[Content]] = [
        [part, *(_shift(shifts[variant], size) for variant in variants)] for part, shifts in entry.parts
    ]
    wholes = (tag("strong", signed(entry.whole[name] / size)) for name in variants)
    rows.append([tag("strong", "whole"), *wholes])
    label = f"What moved in {entry.ledger}"
    table = data_table(("Part", *variants), rows, label=label, right=range(1, 1 + len(variants)))
    heading = f"{entry.name} ({unit})" if unit else entry.name
    return tag("div", tag("h3", capital(heading), class_="part"), table)


def _shift(shift: Shift, size: float) -> Content:
    """A difference with its interval, in a unit of which `size` make one."""
    return estimate(signed(shift.mean / size), shift.interval, size)


def _whys(comparison: Comparison) -> Html | None:
    """The why line of each variant's first run; None if there is none."""
    lines = [(tag("strong", one.variant.name), one.why) for one in comparison.standings if one.why]
    return (
        join(named_lines(lines), None if comparison.exact else paragraph("Of the first seed."))
        if lines
        else None
    )


def _figures(comparison: Comparison) -> Html:
    """The means of every figure that differs, then the number of those that do not."""
    names = list(dict.fromkeys(name for one in comparison.standings for name in one.figures))
    rows: list[list[Content]] = []
    for name in names:
        values = [one.figures.get(name) for one in comparison.standings]
        if len(set(values)) > 1:
            label, unit = split_name(name)
            rows.append([capital(label), unit, *map(format_number, values)])
    head = ("Quantity", "Unit", *(one.variant.name for one in comparison.standings))
    table = data_table(head, rows, label="All figures", right=range(2, 2 + len(comparison.standings)))
    same = len(names) - len(rows)
    return join(table, paragraph(f"{same:,} more figures are the same for all." if same else ""))


def _failed(comparison: Comparison) -> Html | None:
    """The variants that failed, each with its reason; None if none did."""
    rows = list(comparison.failed.items())
    return data_table(("Variant", "Reason"), rows, label="Variants that failed") if rows else None


def _commands(comparison: Comparison) -> list[tuple[str, str]]:
    """Commands worth running next, each with why."""
    changes = "".join(
        f" {set_option(path, value)}"
        for path, value in comparison.standings[comparison.chosen].variant.overrides
    )
    what = "The cheapest of the best variants as a run." if comparison.level else "The best variant as a run."
    return [(f"forerun simulate SCENARIO.yaml{changes} -o runs/best", what)]


def _scenario(comparison: Comparison) -> Html:
    """What each variant sets, and the base scenario."""
    rows: list[list[Content]] = [
        [one.variant.name, tag("code", path), value_text(value)]
        for one in comparison.standings
        for path, value in one.variant.overrides
    ]
    table = data_table(("Variant", "Scenario value", "Set to"), rows, label="What each variant changes")
    return join(table, base_scenario(comparison.scenario))


def _provenance(comparison: Comparison) -> Html:
    """The comparison's id, method and inputs."""
    rows = [
        ("comparison id", comparison.id),
        ("written by", f"forerun {comparison.version}"),
        ("objective", f"{comparison.objective.key}, {comparison.objective.better} is better"),
        ("seeds", f"{comparison.seeds:,}"),
        ("method", comparison.method),
    ]
    return provenance_table(rows, comparison.scenario)
