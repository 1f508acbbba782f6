"""A study on a page: its combinations ranked, its figures, what each axis does, what failed, what it was made of."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from forerun.core.report.contents import item_title
from forerun.core.report.drawn import Drawn
from forerun.core.report.markup import Content
from forerun.core.report.pieces import (
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
)
from forerun.core.result.numbers import capital, is_number, signed
from forerun.core.study.figures import figures
from forerun.core.study.ranking import Ranking, Row, SavedStudy, ranking_of

#: reasons of failures that are listed
MOST_REASONS: Final = 20


def shown_study(study: SavedStudy, prefix: str) -> Shown:
    """What a page says of a study.

    Parameters
    ----------
    study : finished or not.
    prefix : of the names of its figures.
    """
    ranking = ranking_of(study)
    drawn = Drawn(figures(study, ranking), prefix)
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
        ranking.why,
        bool(drawn.figures),
        (
            Section("headline", "Combinations", headline(study, ranking)),
            Section("figures", "Figures", drawn),
            Section("axes", "What each axis does", axis_effects(study, ranking)),
            Section("frontier", "Best trade-offs", trade_offs(study, ranking)),
            Section("failed", "Cells that failed", failures(study) if study.failed else None, "Failed"),
            Section("next", "What to run next", Commands(next_commands(study, ranking))),
            Section("study", "The study", made_of(study, ranking)),
            Section("provenance", "Provenance", provenance(study)),
        ),
    )


def headline(study: SavedStudy, ranking: Ranking) -> Content:
    """The combinations, best first, each metric with its interval; before them the best choice at each given setting.

    Combinations whose objective reads the same share a row; a note below says how means, intervals and significance were
    made.

    Parameters
    ----------
    study : finished or not; without a simulated cell there is only a sentence.
    ranking : of it.
    """
    rows = ranking.rows
    if not rows:
        return Element("p", "No cell has been simulated yet.", "soft")
    columns = _columns(study, ranking)
    axes = ranking.axes or ["Scenario"]
    right = [
        column for column, at in enumerate(study.plan.varied) if all(map(is_number, study.plan.axes[at][1]))
    ]
    right += [at for at, (title, _) in enumerate(columns, len(axes)) if title != "Significant"]
    level = "Where the objective of several combinations reads the same, those after the first share a row."
    marks_best = study.objective is not None and bool(study.choices or not study.given)
    named = [_named(row, best=marks_best and row.points[0] is row.best) for row in rows]
    total = len(study.points)
    return (
        _best_choices(study, ranking),
        DataTable(
            [*axes, *(title for title, _ in columns)],
            [[*name, *row] for name, *row in zip(named, *(cells for _, cells in columns))],
            label="Combinations",
            right=right,
        ),
        Paragraph(_counted(total, total - ranking.left)),
        Paragraph(level if ranking.several else ""),
        Paragraph(_method(study, ranking.compared)),
    )


def _columns(study: SavedStudy, ranking: Ranking) -> list[tuple[str, Sequence[Content]]]:
    """Headings and cells behind the axes: one cell a row."""
    rows = ranking.rows
    columns: list[tuple[str, Sequence[Content]]] = []
    if ranking.several:
        columns.append(("Count", [f"{len(row.points):,}" for row in rows]))
    columns.append(("Cells" if ranking.paths else "Seeds", [f"{row.points[0].seeds:,}" for row in rows]))
    columns += [
        (capital(title), [_mean(row, name) for row in rows]) for name, title in ranking.metrics.items()
    ]
    if ranking.compared and study.objective is not None:
        key = study.objective.key
        columns += zip(("Against the best", "Significant"), zip(*(_against(row, key) for row in rows)))
    failed = [sum(point.failed for point in row.points) for row in rows]
    if any(failed):
        columns.append(("Failed", [f"{count:,}" for count in failed]))
    return columns


def _mean(row: Row, metric: str) -> Content:
    """The mean of one combination with its interval; of several, their range."""
    return Estimate(row.means.get(metric, "–"), row.intervals.get(metric))


def _named(row: Row, *, best: bool = False) -> list[Content]:
    """The axis values of a row as cells; the best one is marked in the first."""
    cells: list[Content] = [*row.values] or ["the base scenario"]
    if best:
        cells[0] = (cells[0], " ", Element("span", "best", "badge good"))
    return cells


def _against(row: Row, objective: str) -> tuple[Content, Content]:
    """How far a row is behind the best, and whether the difference is significant: two cells, empty for the best."""
    point, best = row.points[0], row.best
    if point is best or objective not in point.means:
        return "", ""
    # The interval is of the paired difference, which cells that failed on one side only have no part in.
    gap = point.means[objective] - best.means[objective] if row.interval is None else row.gap
    return row.behind or Estimate(signed(gap), row.interval), Significance(row.significant)


def _best_choices(study: SavedStudy, ranking: Ranking) -> Content:
    """The best choice at each setting of the given axes; None where no axis is given, or none is a choice."""
    head, rows = ranking.best_choices
    if not rows:
        return None
    given = " and ".join(study.plan.labels[at] for at in study.given)
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


def axis_effects(study: SavedStudy, ranking: Ranking) -> Content:
    """How far the best and the worst value of each axis are apart, on average over the others.

    None without an objective, or where no axis has an effect to show.

    Parameters
    ----------
    study : finished or not.
    ranking : of it.
    """
    moved, objective = ranking.effects, study.objective
    if not moved or objective is None:
        return None
    title = metric_title(objective.key, objective.title)
    rows: list[list[Content]] = [
        [
            effect.axis,
            effect.best,
            Estimate(effect.best_mean),
            effect.worst,
            Estimate(effect.worst_mean),
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


def trade_offs(study: SavedStudy, ranking: Ranking) -> Content:
    """The combinations that no other beats on both of two objectives, at each setting of the given axes.

    None where no setting has two objectives to trade, or every axis is given.

    Parameters
    ----------
    study : finished or not.
    ranking : of it.
    """
    trades, shown = ranking.trades, ranking.unbeaten
    if not trades or (study.given and not study.choices):
        return None
    pair = trades[0][0]
    head = [*ranking.axes, *(metric_title(one.key, one.title) for one in pair)]
    rows = [[*_named(row), *(_mean(row, one.key) for one in pair)] for row in shown]
    table = DataTable(head, rows, label="Best trade-offs", right=(len(head) - 2, len(head) - 1))
    beaten = sum(len(points) for _, _, points in trades)
    note = f"Means; {beaten:,} other combinations are beaten on both. "
    return (table, Paragraph(note + _counted(sum(len(points) for _, points, _ in trades), len(shown))))


def failures(study: SavedStudy) -> Content:
    """Reasons of failures, at most 20, with how many cells each took, and which.

    Parameters
    ----------
    study : at least one cell failed.
    """
    rows: list[list[Content]] = []
    for reason, count in list(study.reasons.items())[:MOST_REASONS]:
        cells = study.failures[reason]
        more = [f"and {count - len(cells):,} more"] if count > len(cells) else []
        rows.append([reason, f"{count:,}", [Element("div", cell) for cell in (*cells, *more)]])
    left = len(study.reasons) - len(rows)
    return (
        DataTable(("Reason", "Cells", "Which"), rows, label="Cells that failed", right=(1,)),
        Paragraph(f"{left:,} more reasons are in the table of cells." if left else ""),
        Paragraph(("They count in no mean. ", Element("code", "--retry"), " does them again.")),
    )


def made_of(study: SavedStudy, ranking: Ranking) -> Content:
    """The axes, the seeds and the base scenario."""
    rows: list[list[Content]] = []
    for path, count, text in ranking.axis_values:
        rows.append([Element("code", path), f"{count:,}", text])
    if study.plan.paths:
        rows[-1][0] = (rows[-1][0], Element("span", " paths, averaged over", "soft"))
    rows.append(["seeds", f"{len(study.plan.seeds):,}", ranking.seeds])
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


def next_commands(study: SavedStudy, ranking: Ranking) -> list[tuple[str, str]]:
    """What can be done with a study: commands, each with why.

    An unfinished study can be continued, failed cells done again, and the best combination run by itself.

    Parameters
    ----------
    study : finished or not.
    ranking : of it.
    """
    offered = []
    if study.done + study.failed < len(study.plan):
        offered.append(("forerun study STUDY.yaml", "Go on from where it is."))
    if study.failed:
        offered.append(("forerun study STUDY.yaml --retry", "Do the failed cells again."))
    values = ranking.rows[0].best.values if ranking.rows else ()
    if study.objective is not None and values:
        changes = " ".join(set_option(path, value) for (path, _), value in zip(study.plan.axes, values))
        best = "The best combination as a run."
        if study.given:
            best = f"The best choice at {ranking.settings[0].text} as a run."
        offered.append((f"forerun simulate SCENARIO.yaml {changes} -o runs/best", best))
    pictures = f"forerun report {study.path.name} --png figures --svg figures"
    return [
        *offered,
        ("forerun study STUDY.yaml -o cells.csv", "Every cell as a table."),
        (pictures, "These figures as pictures."),
    ]


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
