"""Pages that compare published results with reproduced ones: of one reproduction, of all."""

from __future__ import annotations

from collections.abc import Sequence

from forerun.core.report.drawn import Drawn
from forerun.core.report.markup import Content, tag
from forerun.core.report.page import page
from forerun.core.report.pieces import Bullets, Commands, DataTable, Element, Paragraph, Section, amount
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
    figures = Section("figures", "Figures", Drawn(reproduced.figures))
    again = [
        (f"forerun reproduce {entry.id}", "Do it again."),
        (f"forerun reproduce {entry.id} --json", "The numbers as data."),
    ]
    body = [
        *([figures, numbers] if len(reproduced.rows) > _LONG else [numbers, figures]),
        Section("notes", "Notes", Bullets(reproduced.notes)),
        Section("next", "What to run next", Commands(again)),
    ]
    lead = (Element("p", entry.source, "meta"), Element("p", f"{verdict(reproduced)}.", "why"))
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
    about = Element("p", "Every published table and figure that forerun regenerates", "meta")
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
            "overview", "Overview", DataTable(head, rows, label="Published results", right=(3,), wide=True)
        ),
        *(
            Section(each.entry.id, f"{each.entry.id}: {each.entry.title}", _attempt(each), each.entry.id)
            for each in attempts
        ),
        Section("next", "What to run next", Commands(again)),
    ]
    return page("Published beside ours", (about, Paragraph(f"{answer}.", "why")), body, charts=True)


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


def _attempt(each: Attempt) -> Content:
    """One reproduction on the page of all: its source, why it did not run, or its numbers and figures."""
    missing = "Missing data, and how to get them:" if each.absent else ""
    reproduced = each.reproduced
    return (
        Element("p", each.entry.source, "soft over"),
        Paragraph(each.left_out, "why over"),
        Paragraph(missing, "why over"),
        Bullets(each.absent),
        Paragraph(f"It ended with an error: {each.error}" if each.error else "", "why over"),
        (Paragraph(f"{verdict(reproduced)}.", "why over"), _numbers(reproduced), Bullets(reproduced.notes))
        if reproduced
        else None,
        Drawn(reproduced.figures, each.entry.id) if reproduced else None,
    )


def _numbers(reproduced: Reproduced) -> Content:
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
    table = DataTable(head, rows, label="Published numbers beside ours", right=right, wide=True)
    explained = (
        "Compat: in the original's arithmetic. Corrected: in ours. The tolerance is the absolute difference admitted "
        "between the published number and compat (corrected, where there is no compat)."
    ) + (
        " Measured: real processes on this machine; then the tolerance is between measured and corrected, a simulation."
        if measured
        else ""
    )
    return (Element("div", table, "published"), Paragraph(explained))


def _badge(row: Row) -> Content:
    """Whether a number is within its tolerance, as a badge."""
    words = {True: ("yes", "good"), False: ("no", "bad"), None: ("not judged", "open")}[row.ok]
    return Element("span", words[0], f"badge {words[1]}")
