"""Pages that compare published results with reproduced ones: of one reproduction, of all."""

from __future__ import annotations

from collections.abc import Sequence

from forerun.core.report.compose import drawn
from forerun.core.report.markup import Content, Html, join, tag
from forerun.core.report.page import page
from forerun.core.report.pieces import Section, amount, bullets, commands, data_table, paragraph, present
from forerun.replication.reproduction import Attempt, Reproduced, Reproduction, Row

#: a table with more rows follows the figures, which a reader would reach too late below it
_LONG = 12
_HEAD = ("What", "Published", "Compat", "Corrected", "Tolerance", "Within", "Note")
_MEASURED_HEAD = ("What", "Published", "Compat", "Corrected", "Measured", "Tolerance", "Within", "Note")


def reproduction_page(entry: Reproduction, reproduced: Reproduced) -> str:
    """The page of one reproduction. A long table of numbers comes after the figures.

    Parameters
    ----------
    entry : what was reproduced.
    reproduced : its numbers, figures and notes.
    """
    numbers = Section("numbers", "Published beside ours", _numbers(reproduced), "Numbers")
    figures = Section("figures", "Figures", drawn(reproduced.figures))
    again = [
        (f"forerun reproduce {entry.id}", "Do it again."),
        (f"forerun reproduce {entry.id} --json", "The numbers as data."),
    ]
    body = present(
        *([figures, numbers] if len(reproduced.rows) > _LONG else [numbers, figures]),
        Section("notes", "Notes", bullets(reproduced.notes)),
        Section("next", "What to run next", commands(again)),
    )
    lead = join(tag("p", entry.source, class_="meta"), tag("p", f"{verdict(reproduced)}.", class_="why"))
    return page(entry.title, lead, body, charts=bool(reproduced.figures))


def all_page(attempts: Sequence[Attempt], *, quick: bool) -> str:
    """The page of all reproductions: an overview, then each with its numbers, figures and reasons.

    Parameters
    ----------
    attempts : those that ran, failed, lack data or were left out.
    quick : whether quick forms were run; the page then says so.
    """
    judged = [
        row for each in attempts if each.reproduced for row in each.reproduced.rows if row.ok is not None
    ]
    within = sum(1 for row in judged if row.ok)
    absent = [each for each in attempts if each.absent]
    answer = (
        f"{within} of {len(judged)} judged numbers of {len(attempts)} published results are within tolerance"
    )
    if absent:
        answer += f"; {len(absent)} {'wants' if len(absent) == 1 else 'want'} data that are missing"
    if quick:
        answer += "; quick runs, with fewer seeds where it says so"
    about = tag("p", "Every published table and figure that forerun regenerates", class_="meta")
    rows: list[list[Content]] = [
        [
            tag("a", each.entry.id, href=f"#{each.entry.id}"),
            each.entry.title,
            _state(each),
            f"{each.wall_s:.1f}",
        ]
        for each in attempts
    ]
    head = ("Id", "What", "Outcome", "Seconds")
    again = [(f"forerun reproduce --all{' --quick' if quick else ''} -o reproduced.html", "Do it again.")]
    body = [
        Section(
            "overview", "Overview", data_table(head, rows, label="Published results", right=(3,), wide=True)
        ),
        *(
            Section(each.entry.id, f"{each.entry.id}: {each.entry.title}", _attempt(each), each.entry.id)
            for each in attempts
        ),
        Section("next", "What to run next", commands(again)),
    ]
    return page("Published beside ours", join(about, paragraph(f"{answer}.", "why")), body, charts=True)


def verdict(reproduced: Reproduced) -> str:
    """How many judged numbers are within their tolerance, as a sentence without a full stop.

    Parameters
    ----------
    reproduced : the numbers; a number without a published value or a tolerance is not judged.
    """
    judged = [row for row in reproduced.rows if row.ok is not None]
    within = sum(1 for row in judged if row.ok)
    rest = len(reproduced.rows) - len(judged)
    if not judged:
        return f"{rest} numbers, none judged: their notes say why"
    return f"{within} of {len(judged)} judged numbers within tolerance" + (
        f"; {rest} not judged" if rest else ""
    )


def _state(each: Attempt) -> str:
    """What became of an attempt, in a few words."""
    if each.reproduced is not None:
        return verdict(each.reproduced)
    if each.absent:
        return "data are not here"
    return "left out, as it takes long" if each.left_out else "did not run to its end"


def _attempt(each: Attempt) -> Html:
    """One reproduction on the page of all: its source, why it did not run, or its numbers and figures."""
    missing = "Missing data, and how to get them:" if each.absent else ""
    reproduced = each.reproduced
    return join(
        tag("p", each.entry.source, class_="soft over"),
        paragraph(each.left_out, "why over"),
        paragraph(missing, "why over"),
        bullets(each.absent),
        paragraph(f"It ended with an error: {each.error}" if each.error else "", "why over"),
        (paragraph(f"{verdict(reproduced)}.", "why over"), _numbers(reproduced), bullets(reproduced.notes))
        if reproduced
        else None,
        drawn(reproduced.figures, each.entry.id) if reproduced else None,
    )


def _numbers(reproduced: Reproduced) -> Html:
    """The table of published and reproduced numbers, and what its columns are."""
    measured = any(row.measured is not None for row in reproduced.rows)
    rows: list[list[Content]] = [
        [
            row.name,
            *map(amount, (row.published, row.compat, row.corrected, *((row.measured,) if measured else ()))),
            amount(row.tolerance),
            _badge(row),
            row.note,
        ]
        for row in reproduced.rows
    ]
    head, right = (_MEASURED_HEAD, (1, 2, 3, 4, 5)) if measured else (_HEAD, (1, 2, 3, 4))
    table = data_table(head, rows, label="Published numbers beside ours", right=right, wide=True)
    explained = (
        "Compat: in the original's arithmetic. Corrected: in ours. The tolerance is the absolute difference admitted "
        "between the published number and compat (corrected, where there is no compat)."
    ) + (
        " Measured: real processes on this machine; then the tolerance is between measured and corrected, a simulation."
        if measured
        else ""
    )
    return join(tag("div", table, class_="published"), paragraph(explained))


def _badge(row: Row) -> Html:
    """Whether a number is within its tolerance, as a badge."""
    words = {True: ("yes", "good"), False: ("no", "bad"), None: ("not judged", "open")}[row.ok]
    return tag("span", words[0], class_=f"badge {words[1]}")
