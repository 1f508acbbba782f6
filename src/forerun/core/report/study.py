"""A study on a page: its combinations ranked, its figures, what each axis does, what failed, what it was made of."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from forerun.core.report.contents import item_title
from forerun.core.report.drawn import Drawn
from forerun.core.report.markup import Content
from forerun.core.report.pieces import (
    MOST_ROWS,
    BaseScenario,
    Commands,
    DataTable,
    Element,
    Estimate,
    Paragraph,
    Provenance,
    Section,
    Shown,
    Significance,
    metric_title,
    set_option,
    titled,
)
from forerun.core.result.numbers import capital, format_number, is_number, signed
from forerun.core.study.ranking import (
    SavedStudy,
    best_rows,
    effects,
    failures_by_reason,
    frontier,
    group_range,
    group_values,
    level_groups,
    values_text,
)
from forerun.core.study.summary import Point
from forerun.core.study.wording import axis_unit, value_text

#: reasons of failures that are listed
MOST_REASONS: Final = 20


def shown_study(study: SavedStudy, figures: Drawn) -> Shown:
    """What a page says of a study.

    Parameters
    ----------
    study : finished or not.
    figures : those of the study.
    """
    total, ended = len(study.plan), study.done + study.failed
    so_far = f"{study.done:,} of {total:,} cells done so far"
    return Shown(
        "study",
        item_title("study", study.domain, study.path.stem),
        (
            study.domain,
            f"study {study.id}",
            f"{study.plan.combinations:,} combinations × {study.over}",
            f"{study.done:,} cells done" if ended == total else so_far,
            f"{study.failed:,} failed" if study.failed else "",
            f"forerun {study.version}",
        ),
        study.why(),
        bool(figures.figures),
        (
            Section("headline", "Combinations", headline(study)),
            Section("figures", "Figures", figures),
            Section("axes", "What each axis does", axis_effects(study)),
            Section("frontier", "Best trade-offs", trade_offs(study)),
            Section("failed", "Cells that failed", failures(study) if study.failed else None, "Failed"),
            Section("next", "What to run next", Commands(next_commands(study))),
            Section("study", "The study", made_of(study)),
            Section("provenance", "Provenance", provenance(study)),
        ),
    )


def headline(study: SavedStudy) -> Content:
    """The combinations, best first, each metric with its interval; before them the best choice at each given setting.

    At most 40 rows. Combinations whose objective reads the same share a row; a note below says how means, intervals and
    significance were made.

    Parameters
    ----------
    study : finished or not; without a simulated cell there is only a sentence.
    """
    groups = level_groups(study)
    if not groups:
        return Element("p", "No cell has been simulated yet.", "soft")
    shown = groups[:MOST_ROWS]
    settings = study.settings()
    bests = {point.number: setting.ranked[0] for setting in settings for point in setting.ranked}
    compared = study.objective is not None and study.draws is not None and study.plan.independent > 1
    compared = compared and any(len(setting.ranked) > 1 for setting in settings)
    marks_best = study.objective is not None and bool(study.choices or not study.given)
    named = [
        _combinations(study, group, best=marks_best and group[0] is bests[group[0].number]) for group in shown
    ]
    axes = _axis_titles(study) or ["Scenario"]
    right = [column for column, at in enumerate(study.varied) if all(map(is_number, study.plan.axes[at][1]))]
    columns = _columns(study, groups, bests if compared else None)
    right += [at for at, (title, _) in enumerate(columns, len(axes)) if title != "Significant"]
    level = "Where the objective of several combinations reads the same, those after the first share a row."
    return (
        _best_choices(study),
        DataTable(
            [*axes, *(title for title, _ in columns)],
            [[*name, *row] for name, *row in zip(named, *(cells for _, cells in columns))],
            label="Combinations",
            right=right,
        ),
        Paragraph(_counted(len(study.points), sum(map(len, shown)))),
        Paragraph(level if any(len(group) > 1 for group in groups) else ""),
        Paragraph(_method(study, compared)),
    )


def _columns(
    study: SavedStudy, groups: Sequence[Sequence[Point]], bests: Mapping[int, Point] | None
) -> list[tuple[str, Sequence[Content]]]:
    """Headings and cells behind the axes: one cell a row that is shown.

    Parameters
    ----------
    groups : all level combinations, also those that are not shown.
    bests : the best of its setting by the number of a combination; None where they are not compared.
    """
    shown = groups[:MOST_ROWS]
    columns: list[tuple[str, Sequence[Content]]] = []
    if any(len(group) > 1 for group in groups):
        columns.append(("Count", [f"{len(group):,}" for group in shown]))
    columns.append(("Cells" if study.plan.paths else "Seeds", [f"{group[0].seeds:,}" for group in shown]))
    columns += [(metric_title(name), [_mean(group, name) for group in shown]) for name in study.shown]
    if bests is not None:
        claims = _claims(study)
        against = [_against(study, group, bests[group[0].number], claims) for group in shown]
        columns += zip(("Against the best", "Significant"), zip(*against))
    failed = [sum(point.failed for point in group) for group in shown]
    if any(failed):
        columns.append(("Failed", [f"{count:,}" for count in failed]))
    return columns


def _claims(study: SavedStudy) -> dict[int, bool | None]:
    """Whether each combination differs significantly from the best of its setting; None where it is not known."""
    claims: dict[int, bool | None] = {}
    for setting in study.settings():
        best, *others = setting.ranked
        if others:
            answers = study.differs_significantly(others, best)
            claims |= {one.number: answer for one, answer in zip(others, answers)}
    return claims


def _axis_titles(study: SavedStudy) -> list[str]:
    """The headings of the axes that have several values."""
    return [titled(study.labels[at], axis_unit(study.plan.axes[at][0])) for at in study.varied]


def _mean(group: Sequence[Point], metric: str) -> Content:
    """The mean of one combination with its interval; of several, their range.

    Parameters
    ----------
    group : combinations that share a row.
    metric : name of the figure.
    """
    if len(group) > 1:
        return group_range(group, metric)
    return Estimate(format_number(group[0].means.get(metric)), group[0].intervals.get(metric))


def _best_choices(study: SavedStudy) -> Content:
    """The best choice at each setting of the given axes; None where no axis is given, or none is a choice."""
    head, rows = best_rows(study)
    if not rows:
        return None
    given = " and ".join(study.labels[at] for at in study.given)
    note = (
        f"{capital(given)} {'is' if len(study.given) == 1 else 'are'} given, not chosen: the best choice at "
        "each. Choices that read level stand together; “significant”: of the other choices, those that differ "
        "significantly from the best."
    )
    table = DataTable(
        list(map(capital, head)),
        rows,
        label="The best choice at each setting",
        right=[*range(len(study.given)), len(head) - 3],
    )
    return (table, Paragraph(note))


def axis_effects(study: SavedStudy) -> Content:
    """How far the best and the worst value of each axis are apart, on average over the others.

    None without an objective, or where no axis has an effect to show.

    Parameters
    ----------
    study : finished or not.
    """
    moved, objective = effects(study), study.objective
    if not moved or objective is None:
        return None
    title = metric_title(objective.key, objective.title)
    rows: list[list[Content]] = [
        [
            effect.axis,
            value_text(effect.best),
            format_number(effect.best_mean),
            value_text(effect.worst),
            format_number(effect.worst_mean),
            f"{effect.wins:,} of {effect.settings:,}",
        ]
        for effect in moved
    ]
    head = ("Axis", "Best value", title, "Worst value", title, "Best at")
    note = (
        "Means over the settings of the other axes at which every value ran; “best at” counts the settings where "
        "that value is best or level with the best."
    )
    table = DataTable(head, rows, label="What each axis does", right=(2, 4, 5))
    return (table, Paragraph(note))


def trade_offs(study: SavedStudy) -> Content:
    """The combinations that no other beats on both of two objectives, at each setting of the given axes.

    None where no setting has two objectives to trade, or every axis is given.

    Parameters
    ----------
    study : finished or not.
    """
    trades = [trade for setting in study.settings() if (trade := frontier(study, setting.ranked)) is not None]
    if not trades or (study.given and not study.choices):
        return None
    one, other = trades[0][0]
    unbeaten = [point for _, points, _ in trades for point in points]
    beaten = sum(len(points) for _, _, points in trades)
    head = [
        *_axis_titles(study),
        metric_title(one.key, one.title),
        metric_title(other.key, other.title),
    ]
    rows = [
        [*_combinations(study, [point]), _mean([point], one.key), _mean([point], other.key)]
        for point in unbeaten[:MOST_ROWS]
    ]
    table = DataTable(head, rows, label="Best trade-offs", right=(len(head) - 2, len(head) - 1))
    note = f"Means; {beaten:,} other combinations are beaten on both. " + _counted(len(unbeaten), len(rows))
    return (table, Paragraph(note))


def failures(study: SavedStudy) -> Content:
    """Reasons of failures, at most 20, with how many cells each took, and which.

    Parameters
    ----------
    study : at least one cell failed.
    """
    reasons = failures_by_reason(study)
    rows: list[list[Content]] = []
    for reason, count, cells in reasons[:MOST_REASONS]:
        more = [f"and {count - len(cells):,} more"] if count > len(cells) else []
        rows.append([reason, f"{count:,}", [Element("div", cell) for cell in (*cells, *more)]])
    left = len(reasons) - len(rows)
    return (
        DataTable(("Reason", "Cells", "Which"), rows, label="Cells that failed", right=(1,)),
        Paragraph(f"{left:,} more reasons are in the table of cells." if left else ""),
        Paragraph(("They count in no mean. ", Element("code", "--retry"), " does them again.")),
    )


def made_of(study: SavedStudy) -> Content:
    """The axes, the seeds and the base scenario."""
    rows: list[list[Content]] = [
        [Element("code", path), f"{len(values):,}", values_text(values)] for path, values in study.plan.axes
    ]
    if study.plan.paths:
        path, values = study.plan.paths
        named = (Element("code", path), Element("span", " paths, averaged over", "soft"))
        rows.append([named, f"{len(values):,}", values_text(values)])
    rows.append(["seeds", f"{len(study.plan.seeds):,}", values_text(study.plan.seeds)])
    table = DataTable(("Axis", "Values", "Which"), rows, label="Axes and seeds", right=(1,))
    return (table, BaseScenario(study.plan.base))


def provenance(study: SavedStudy) -> Provenance:
    """The study's id, what wrote it, and the digests of its inputs."""
    rows = [
        ("study id", study.id),
        ("store", study.path.name),
        ("written by", f"forerun {study.version}"),
        ("cells", f"{len(study.plan):,}"),
        ("done", f"{study.done:,}"),
        ("failed", f"{study.failed:,}"),
    ]
    return Provenance(rows, study.plan.base)


def next_commands(study: SavedStudy) -> list[tuple[str, str]]:
    """What can be done with a study: commands, each with why.

    An unfinished study can be continued, failed cells done again, and the best combination run by itself.

    Parameters
    ----------
    study : finished or not.
    """
    offered = []
    if study.done + study.failed < len(study.plan):
        offered.append(("forerun study STUDY.yaml", "Go on from where it is."))
    if study.failed:
        offered.append(("forerun study STUDY.yaml --retry", "Do the failed cells again."))
    ranked = study.ranked()
    if study.objective is not None and ranked and ranked[0].values:
        changes = " ".join(
            set_option(path, value) for (path, _), value in zip(study.plan.axes, ranked[0].values)
        )
        best = "The best combination as a run."
        if study.given:
            best = f"The best choice at {study.setting_text(study.settings()[0].values)} as a run."
        offered.append((f"forerun simulate SCENARIO.yaml {changes} -o runs/best", best))
    pictures = f"forerun report {study.path.name} --png figures --svg figures"
    return [
        *offered,
        ("forerun study STUDY.yaml -o cells.csv", "Every cell as a table."),
        (pictures, "These figures as pictures."),
    ]


def _combinations(study: SavedStudy, group: Sequence[Point], *, best: bool = False) -> list[Content]:
    """The axis values of level combinations as cells; the best one is marked in the first."""
    cells: list[Content] = [*group_values(study, group)] or ["the base scenario"]
    if best:
        cells[0] = (cells[0], " ", Element("span", "best", "badge good"))
    return cells


def _against(
    study: SavedStudy, group: Sequence[Point], best: Point, claims: Mapping[int, bool | None]
) -> tuple[Content, Content]:
    """How far a combination is behind the best, and whether the difference is significant: two cells.

    Parameters
    ----------
    study : with an objective.
    group : combinations that share a row.
    best : the best of its setting; both cells are empty for the best itself.
    claims : as `_claims` says.
    """
    point, known = group[0], {claims.get(one.number) for one in group}
    significant = known.pop() if len(known) == 1 else None
    objective = study.objective
    assert objective is not None
    if point is best or objective.key not in point.means:
        return "", ""
    if not study.comparable(point, best):
        return study.left_out(point)[1], Significance(None)
    gap = point.means[objective.key] - best.means[objective.key]
    if format_number(point.means[objective.key]) == format_number(best.means[objective.key]):
        return "level", Significance(significant)
    return Estimate(signed(gap), study.behind(point, best)), Significance(significant)


def _method(study: SavedStudy, compared: bool) -> str:
    """How the means, intervals and claims of the ranking were made."""
    if study.plan.independent < 2:
        return "One seed: no interval."
    text = f"Means over up to {study.over}"
    if any(point.intervals for point in study.points):
        text += f" with the {study.confidence:.0%} interval ({study.method})"
    text = "".join(f"{one}." for one in (text, *(f" {capital(caution)}" for caution in study.cautions)))
    if compared and study.objective is not None:
        text += (
            f" Ranked by {study.objective.title}, {study.objective.better} is better. “Against the best”: the mean "
            f"difference on common {'paths and seeds' if study.plan.paths else 'seeds'} with its paired interval; "
            "“significant”: at most 5 % chance of any false claim, over all pairs, since the best was chosen on the same "
            "data. The best is best among these cells; near ties may fall otherwise on fresh seeds."
        )
    return text


def _counted(total: int, shown: int) -> str:
    """How many of the combinations are shown; empty if all are."""
    return f"The first {shown:,} of {total:,} combinations." if shown < total else ""
