"""A comparison on a page: variants ranked, paired differences, where they come from, why each did as it did."""

from __future__ import annotations

from forerun.report import sections
from forerun.report.contents import as_yaml, flat
from forerun.report.markup import Content, Html, join, tag
from forerun.report.quantities import format_number, readable_scale, readable_unit, split_name, title_of
from forerun.report.sections import Section, data_table
from forerun.report.stored import StoredComparison
from forerun.result.numbers import signed
from forerun.result.objective import cost_figure
from forerun.result.run import Interval
from forerun.scenario.spec import canonical_json
from forerun.study.compare import Comparison, Moved, Shift, Standing, moved_parts
from forerun.study.differences import moved_scale
from forerun.study.wording import value_text


def facts(item: StoredComparison) -> str:
    """Domain, id, and the numbers of variants and seeds, on one line."""
    found = item.comparison
    seeds = "exact" if found.exact else f"{found.seeds:,} common {'seed' if found.seeds == 1 else 'seeds'}"
    parts = [
        found.domain,
        f"comparison {found.id}",
        f"{len(found.standings):,} variants",
        seeds,
        f"{len(found.failed):,} failed" if found.failed else "",
        f"forerun {found.version}",
    ]
    return " · ".join(part for part in parts if part)


def comparison_sections(item: StoredComparison, drawn: Html | None) -> list[Section]:
    """The sections of a page that is about one comparison; `drawn` are its figures."""
    found = item.comparison
    moved = moved_parts(found)
    parts = [
        Section("headline", "Variants", _ranked(found)),
        Section("figures", "Figures", drawn) if drawn is not None else None,
        Section("causes", "Where the differences come from", _causes(found, moved), "Causes")
        if moved
        else None,
        Section("why", "Why each did as it did", _whys(found), "Why")
        if any(one.why for one in found.standings)
        else None,
        Section("others", "All figures", _figures(found)),
        Section("notes", "Notes", _notes(found)) if found.notes() else None,
        Section("failed", "Variants that failed", _failed(found), "Failed") if found.failed else None,
        Section("next", "What to run next", sections.commands(_commands(found))),
        Section("scenario", "Scenario", _scenario(found)),
        Section("provenance", "Provenance", _provenance(item)),
    ]
    return [part for part in parts if part]


def _ranked(found: Comparison) -> Html:
    """The variants, best first."""
    own, unit = split_name(found.objective.key)
    title = title_of(found.objective.title.rpartition(" in ")[0] or own if unit else found.objective.title)
    intervals = any(one.difference_interval for one in found.standings)
    ends = [end for one in found.standings if one.interval for end in (one.interval.low, one.interval.high)]
    shown, size = readable_scale(
        unit, max(map(abs, (*(one.value for one in found.standings), *ends)), default=0.0)
    )
    head: list[Content] = ["Variant", f"{title} ({shown})" if shown else title, f"Against {found.reference}"]
    head += ["p (Holm)", "Told apart"] if intervals else []
    rows = [_row(found, one, at, intervals, size) for at, one in enumerate(found.standings)]
    right = [1, 2, 3] if intervals else [1, 2]
    cost = cost_figure(name for one in found.standings for name, value in one.figures.items() if value)
    if cost and cost != found.objective.key:
        label, money = split_name(cost)
        right.append(len(head))
        head.append(f"{title_of(label)} ({readable_unit(money)})")
        for row, one in zip(rows, found.standings, strict=True):
            value = one.figures.get(cost)
            row.append("–" if value is None else format_number(value))
    table = data_table(head, rows, label="Variants", right=right)
    return join((table, tag("p", f"{title_of(found.method)}.", class_="soft under")))


def _row(found: Comparison, one: Standing, at: int, intervals: bool, size: float) -> list[Content]:
    name: list[Content] = [one.variant.name]
    if at == 0:
        name += [" ", tag("span", "best", class_="badge good")]
    if one.variant.name == found.reference:
        name += [" ", tag("span", "reference", class_="badge open")]
    changed = ", ".join(f"{path} {value_text(value)}" for path, value in one.variant.overrides)
    if changed and changed.rpartition(" ")[2] != one.variant.name:
        name += [tag("br"), tag("span", changed, class_="soft")]
    cells: list[Content] = [join(name), _with_span(format_number(one.value / size), one.interval, size)]
    if one.difference is None:
        return [*cells, "", *(["", ""] if intervals else [])]
    word = "exact for this log" if one.difference_interval else "exact"
    exact = tag("span", word, class_="soft") if found.exact else None
    gap = _with_span(signed(one.difference / size), one.difference_interval, size)
    cells.append(join((gap, tag("br"), exact)) if exact else gap)
    if intervals:
        known = None if one.p is None else one.p <= 1 - found.confidence
        words = {True: ("yes", "badge open"), False: ("no", "badge bad"), None: ("–", None)}[known]
        cells += [_p_text(one.p), tag("span", words[0], class_=words[1])]
    return cells


def _causes(found: Comparison, moved: tuple[Moved, ...]) -> Html:
    """Each ledger that moved: its parts, and the whole that they sum to."""
    kind = (
        "Exact differences" if found.exact else "Mean differences on common seeds with their paired intervals"
    )
    note = (
        f"{kind} against {found.reference}. The parts sum to the whole; parts that did not move are left out."
    )
    return join((*(_cause(found, entry) for entry in moved), tag("p", note, class_="soft under")))


def _cause(found: Comparison, entry: Moved) -> Html:
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
    return tag("div", tag("h3", title_of(heading), class_="part"), table)


def _shift(shift: Shift, size: float) -> Content:
    return _with_span(signed(shift.mean / size), shift.interval, size)


def _whys(found: Comparison) -> Html:
    """The why line of each variant's first run."""
    rows = (
        tag("div", tag("dt", tag("strong", one.variant.name)), tag("dd", one.why))
        for one in found.standings
        if one.why
    )
    note = "" if found.exact else tag("p", "Of the first seed.", class_="soft under")
    return join((tag("dl", rows, class_="commands"), note))


def _notes(found: Comparison) -> Html:
    """What the results say of themselves, with the variants it is about where it is not about all."""
    lines = (
        tag("li", tag("strong", f"{', '.join(names)}: "), note) if names else tag("li", note)
        for note, names in found.notes()
    )
    return tag("ul", lines, class_="notes")


def _figures(found: Comparison) -> Html:
    """The means of every figure that differs, then the number of those that do not."""
    names = list(dict.fromkeys(name for one in found.standings for name in one.figures))
    different = [name for name in names if len({one.figures.get(name) for one in found.standings}) > 1]
    rows: list[list[Content]] = []
    for name in different:
        label, unit = split_name(name)
        rows.append(
            [
                title_of(label),
                readable_unit(unit),
                *(
                    "–" if one.figures.get(name) is None else format_number(one.figures[name])
                    for one in found.standings
                ),
            ]
        )
    head = ("Quantity", "Unit", *(one.variant.name for one in found.standings))
    table = data_table(head, rows, label="All figures", right=range(2, 2 + len(found.standings)))
    same = len(names) - len(different)
    note = tag("p", f"{same:,} more figures are the same for all.", class_="soft under") if same else None
    return join((table, note))


def _failed(found: Comparison) -> Html:
    rows: list[list[Content]] = [[name, reason] for name, reason in found.failed.items()]
    return data_table(("Variant", "Reason"), rows, label="Variants that failed")


def _commands(found: Comparison) -> list[tuple[str, str]]:
    best = found.standings[0].variant
    changes = "".join(f" --set '{path}={_override(value)}'" for path, value in best.overrides)
    return [(f"forerun simulate SCENARIO.yaml{changes} -o runs/best", "The best variant as a run.")]


def _scenario(found: Comparison) -> Html:
    rows: list[list[Content]] = [
        [one.variant.name, tag("code", path), value_text(value)]
        for one in found.standings
        for path, value in one.variant.overrides
    ]
    table = data_table(("Variant", "Scenario value", "Set to"), rows, label="What each variant changes")
    base = tag("pre", tag("code", as_yaml(found.scenario)), tabindex=0)
    return join((table, tag("details", tag("summary", "Base scenario, every default written out"), base)))


def _provenance(item: StoredComparison) -> Html:
    found = item.comparison
    rows: list[list[Content]] = [
        ["comparison id", found.id],
        ["written by", f"forerun {found.version}"],
        ["objective", f"{found.objective.key}, {found.objective.better} is better"],
        ["seeds", f"{found.seeds:,}"],
        ["method", found.method],
    ]
    rows += [
        [f"input {path.rpartition('.')[0]}", str(value)]
        for path, value in flat(found.scenario).items()
        if path.endswith(".sha256") and value
    ]
    return data_table(("What", "Value"), rows, label="Provenance")


def _with_span(text: str, interval: Interval | None, size: float) -> Content:
    if interval is None:
        return text
    span = f"{format_number(interval.low / size)} … {format_number(interval.high / size)}"
    return join((text, tag("br"), tag("span", span, class_="soft")))


def _p_text(p: float | None) -> str:
    return "–" if p is None else "< 0.0001" if p < 1e-4 else f"{p:.4f}"


def _override(value: object) -> str:
    return value if isinstance(value, str) else canonical_json(value).decode()
