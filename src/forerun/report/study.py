"""A study on a page: its combinations ranked, its figures, what each axis does, what failed, what it was made of."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from forerun.report import sections
from forerun.report.contents import as_yaml, flat
from forerun.report.markup import Content, Html, join, tag
from forerun.report.quantities import format_number, readable_unit, split_name, title_of
from forerun.report.sections import Section, data_table
from forerun.study.saved import SavedStudy
from forerun.study.summary import Point, is_number
from forerun.study.telling import (
    best_rows,
    effects,
    failures_by_reason,
    frontier,
    group_range,
    group_values,
    level_groups,
    values_text,
)
from forerun.study.wording import axis_unit, value_text

#: combinations shown in the headline table, and failures listed
MOST_ROWS: Final = 40
MOST_REASONS: Final = 20


def facts(study: SavedStudy) -> str:
    """Domain, id, number of cells and progress on one line."""
    total, found = len(study.plan), study.done + study.failed
    cells = f"{study.plan.combinations:,} combinations × {study.over}"
    parts = [
        study.domain,
        f"study {study.id}",
        cells,
        f"{study.done:,} cells done" if found == total else f"{study.done:,} of {total:,} cells done so far",
        f"{study.failed:,} failed" if study.failed else "",
        f"forerun {study.version}",
    ]
    return " · ".join(part for part in parts if part)


def study_sections(study: SavedStudy, drawn: Html | None) -> list[Section]:
    """The sections of a page that is about one study; `drawn` are its figures."""
    found = [
        Section("headline", "Combinations", headline(study)),
        Section("figures", "Figures", drawn) if drawn is not None else None,
        Section("axes", "What each axis does", body) if (body := axis_effects(study)) else None,
        Section("frontier", "Best trade-offs", body) if (body := trade_offs(study)) else None,
        Section("failed", "Cells that failed", failures(study), "Failed") if study.failed else None,
        Section("next", "What to run next", sections.commands(commands(study))),
        Section("study", "The study", made_of(study)),
        Section("provenance", "Provenance", provenance(study)),
    ]
    return [section for section in found if section]


def headline(study: SavedStudy) -> Html:
    """The combinations, best first, each metric with its interval; before them the best choice at each given setting."""
    groups = level_groups(study)
    if not groups:
        return tag("p", "No cell has been simulated yet.", class_="soft")
    shown = groups[:MOST_ROWS]
    objective = study.objective
    compared = objective is not None and study.draws is not None and study.plan.independent > 1
    settings = study.settings()
    compared = compared and any(len(setting.ranked) > 1 for setting in settings)
    apart: dict[int, bool | None] = {}
    bests: dict[int, Point] = {}
    for setting in settings:
        best, *others = setting.ranked
        bests |= {point.number: best for point in setting.ranked}
        known = study.told_apart(others, best) if compared and others else []
        apart |= {point.number: one for point, one in zip(others, known)}
    axes = [_titled(study.labels[at], axis_unit(study.plan.axes[at][0])) for at in study.varied]
    some_level = any(len(group) > 1 for group in groups)
    head: list[Content] = [
        *(axes or ["Scenario"]),
        *(["Count"] if some_level else []),
        "Cells" if study.plan.paths else "Seeds",
        *(_metric_title(name) for name in study.shown),
    ]
    head += ["Against the best", "Told apart"] if compared else []
    some_failed = any(point.failed for group in shown for point in group)
    head += ["Failed"] if some_failed else []
    rows = []
    for group in shown:
        point = group[0]
        best = bests[point.number]
        row = _combinations(
            study,
            group,
            best=point is best and objective is not None and bool(study.choices or not study.given),
        )
        row += [f"{len(group):,}"] if some_level else []
        alone = len(group) == 1
        row.append(f"{point.seeds:,}")
        row += [_estimate(point, name) if alone else group_range(group, name) for name in study.shown]
        known = [apart.get(one.number) for one in group]
        row += _against(study, point, best, known[0] if len(set(known)) == 1 else None) if compared else []
        rows.append(row + ([f"{sum(one.failed for one in group):,}"] if some_failed else []))
    width = max(1, len(axes))
    numeric = [
        column for column, at in enumerate(study.varied) if all(map(is_number, study.plan.axes[at][1]))
    ]
    right = [*numeric, *range(width, len(head))]
    table = data_table(
        head, rows, label="Combinations", right=[at for at in right if head[at] != "Told apart"]
    )
    left = sum(map(len, groups[MOST_ROWS:]))
    total = len(study.points)
    notes = [
        _counted(total, total - left),
        "Where the objective of several combinations reads the same, those after the first share a row."
        if some_level
        else "",
        _method(study, compared),
    ]
    return join(
        (_best_choices(study), table, *(tag("p", note, class_="soft under") for note in notes if note))
    )


def _best_choices(study: SavedStudy) -> Html | None:
    """The best choice at each setting of the given axes; None where no axis is given, or none is a choice."""
    head, rows = best_rows(study)
    if not rows:
        return None
    given = " and ".join(study.labels[at] for at in study.given)
    note = (
        f"{given[:1].upper() + given[1:]} {'is' if len(study.given) == 1 else 'are'} given, not chosen: the best choice at "
        "each. Choices that read level stand together; “told apart”: of the other choices, those told apart from the best."
    )
    table = data_table(
        [title[:1].upper() + title[1:] for title in head], rows, label="The best choice at each setting",
        right=[*range(len(study.given)), len(head) - 3],
    )  # fmt: skip
    return join((table, tag("p", note, class_="soft under")))


def axis_effects(study: SavedStudy) -> Html | None:
    """How far the best and the worst value of each axis are apart, on average over the others."""
    found, objective = effects(study), study.objective
    if not found or objective is None:
        return None
    title = _metric_title(objective.key, objective.title)
    rows: list[list[Content]] = [
        [
            effect.axis,
            value_text(effect.best),
            format_number(effect.best_mean),
            value_text(effect.worst),
            format_number(effect.worst_mean),
            f"{effect.wins:,} of {effect.settings:,}",
        ]
        for effect in found
    ]
    head = ("Axis", "Best value", title, "Worst value", title, "Best at")
    note = (
        "Means over the settings of the other axes at which every value ran; “best at” counts the settings where "
        "that value is best or level with the best."
    )
    table = data_table(head, rows, label="What each axis does", right=(2, 4, 5))
    return join((table, tag("p", note, class_="soft under")))


def trade_offs(study: SavedStudy) -> Html | None:
    """The combinations that no other beats on both of two objectives, at each setting of the given axes."""
    found = [trade for setting in study.settings() if (trade := frontier(study, setting.ranked)) is not None]
    if not found or (study.given and not study.choices):
        return None
    one, other = found[0][0]
    unbeaten = [point for _, points, _ in found for point in points]
    beaten = sum(len(points) for _, _, points in found)
    axes = [_titled(study.labels[at], axis_unit(study.plan.axes[at][0])) for at in study.varied]
    head = [*axes, _metric_title(one.key, one.title), _metric_title(other.key, other.title)]
    rows = [
        [*_combinations(study, [point]), _estimate(point, one.key), _estimate(point, other.key)]
        for point in unbeaten[:MOST_ROWS]
    ]
    table = data_table(head, rows, label="Best trade-offs", right=(len(head) - 2, len(head) - 1))
    note = f"Means; {beaten:,} other combinations are beaten on both. " + _counted(len(unbeaten), len(rows))
    return join((table, tag("p", note, class_="soft under")))


def failures(study: SavedStudy) -> Html:
    """Reasons with how many cells each took, and which."""
    found = failures_by_reason(study)
    rows: list[list[Content]] = [
        [reason, f"{count:,}", join(tag("div", cell) for cell in [*cells, *_more(count, len(cells))])]
        for reason, count, cells in found[:MOST_REASONS]
    ]
    table = data_table(("Reason", "Cells", "Which"), rows, label="Cells that failed", right=(1,))
    left = len(found) - len(rows)
    return join(
        (
            table,
            tag("p", f"{left:,} more reasons are in the table of cells.", class_="soft under")
            if left
            else None,
            tag(
                "p",
                "They count in no mean. ",
                tag("code", "--retry"),
                " does them again.",
                class_="soft under",
            ),
        )
    )


def made_of(study: SavedStudy) -> Html:
    """The axes, the seeds and the base scenario."""
    rows: list[list[Content]] = [
        [tag("code", path), f"{len(values):,}", values_text(values)] for path, values in study.plan.axes
    ]
    if study.plan.paths:
        path, values = study.plan.paths
        named = join((tag("code", path), tag("span", " paths, averaged over", class_="soft")))
        rows.append([named, f"{len(values):,}", values_text(values)])
    rows.append(["seeds", f"{len(study.plan.seeds):,}", values_text(study.plan.seeds)])
    table = data_table(("Axis", "Values", "Which"), rows, label="Axes and seeds", right=(1,))
    base = tag("pre", tag("code", as_yaml(study.plan.base)), tabindex=0)
    return join((table, tag("details", tag("summary", "Base scenario, every default written out"), base)))


def provenance(study: SavedStudy) -> Html:
    """The study's id, what wrote it, and the digests of its inputs."""
    rows: list[list[Content]] = [
        ["study id", study.id],
        ["store", study.path.name],
        ["written by", f"forerun {study.version}"],
        ["cells", f"{len(study.plan):,}"],
        ["done", f"{study.done:,}"],
        ["failed", f"{study.failed:,}"],
    ]
    rows += [
        [f"input {path.rpartition('.')[0]}", str(value)]
        for path, value in flat(study.plan.base).items()
        if path.endswith(".sha256") and value
    ]
    return data_table(("What", "Value"), rows, label="Provenance")


def commands(study: SavedStudy) -> list[tuple[str, str]]:
    """What can be done with a study."""
    found = []
    if study.done + study.failed < len(study.plan):
        found.append(("forerun study STUDY.yaml", "Go on from where it is."))
    if study.failed:
        found.append(("forerun study STUDY.yaml --retry", "Do the failed cells again."))
    ranked = study.ranked()
    if study.objective is not None and ranked and ranked[0].values:
        changes = " ".join(
            f"--set '{path}={_as_override(value)}'"
            for (path, _), value in zip(study.plan.axes, ranked[0].values)
        )
        found.append((f"forerun simulate SCENARIO.yaml {changes} -o runs/best", _best_as_run(study)))
    found.append(("forerun study STUDY.yaml -o cells.csv", "Every cell as a table."))
    found.append(
        (f"forerun report {study.path.name} --png figures --svg figures", "These figures as pictures.")
    )
    return found


def _combinations(study: SavedStudy, group: Sequence[Point], *, best: bool = False) -> list[Content]:
    """The axis values of level combinations as cells; the best one is marked in the first."""
    cells: list[Content] = [*group_values(study, group)] or ["the base scenario"]
    if best:
        cells[0] = join((cells[0], " ", tag("span", "best", class_="badge good")))
    return cells


def _estimate(point: Point, metric: str) -> Content:
    """A mean, and its interval below."""
    value, interval = point.means.get(metric), point.intervals.get(metric)
    if value is None:
        return "–"
    if interval is None:
        return format_number(value)
    return join(
        (format_number(value), tag("br"), tag("span", _span(interval.low, interval.high), class_="soft"))
    )


def _against(study: SavedStudy, point: Point, best: Point, apart: bool | None) -> list[Content]:
    """How far a combination is behind the best, and whether the difference is significant."""
    objective = study.objective
    assert objective is not None
    if point is best or objective.key not in point.means:
        return ["", ""]
    gap = point.means[objective.key] - best.means[objective.key]
    level = format_number(point.means[objective.key]) == format_number(best.means[objective.key])
    interval = None if level else study.behind(point, best)
    cells: list[Content] = ["level" if level else _signed(gap)]
    if interval is not None:
        span = _span(interval.low, interval.high)
        cells = [join((_signed(gap), tag("br"), tag("span", span, class_="soft")))]
    words = {True: ("yes", "badge open"), False: ("no", "badge bad"), None: ("–", None)}[apart]
    return [*cells, tag("span", words[0], class_=words[1])]


def _method(study: SavedStudy, compared: bool) -> str:
    if study.plan.independent < 2:
        return "One seed: no interval."
    text = f"Means over up to {study.over} with the {study.confidence:.0%} interval ({study.method})."
    if compared and study.objective is not None:
        text += (
            f" Ranked by {study.objective.title}, {study.objective.better} is better. “Against the best”: the mean "
            f"difference on common {'paths and seeds' if study.plan.paths else 'seeds'} with its paired interval; “told "
            "apart”: at most 5 % chance of any false claim, over all pairs, since the best was chosen on the same data. "
            "The best is best among these cells; near ties may fall otherwise on fresh seeds."
        )
    return text


def _counted(total: int, shown: int) -> str:
    return f"The first {shown:,} of {total:,} combinations." if shown < total else ""


def _more(count: int, told: int) -> list[str]:
    return [f"and {count - told:,} more"] if count > told else []


def _metric_title(name: str, label: str = "") -> str:
    own, unit = split_name(name)
    return _titled(title_of(label or own), unit)


def _titled(label: str, unit: str) -> str:
    shown = readable_unit(unit)
    return f"{label} ({shown})" if shown else label


def _span(low: float, high: float) -> str:
    return f"{format_number(low)} … {format_number(high)}"


def _signed(value: float) -> str:
    return ("+" if value > 0 else "") + format_number(value)


def _best_as_run(study: SavedStudy) -> str:
    if not study.given:
        return "The best combination as a run."
    return f"The best choice at {study.setting_text(study.settings()[0].values)} as a run."


def _as_override(value: object) -> str:
    from forerun.scenario.spec import canonical_json

    return value if isinstance(value, str) else canonical_json(value).decode()
