"""Pages that compare published results with reproduced ones: of one reproduction, of all."""

from __future__ import annotations

from collections.abc import Sequence

from forerun.report import sections
from forerun.report.compose import drawn
from forerun.report.markup import Content, Html, join, tag
from forerun.report.page import page
from forerun.report.quantities import format_number
from forerun.report.sections import Section
from forerun.result.reproduction import Attempt, Reproduced, Reproduction, Row

#: a table with more rows follows the figures, which would be found too late below it
_LONG = 12
_HEAD = ("What", "Published", "Compat", "Corrected", "Tolerance", "Within", "Note")


def reproduction_page(entry: Reproduction, found: Reproduced) -> str:
    """The page of one reproduction."""
    body = [Section("numbers", "Published beside ours", _numbers(found), "Numbers")]
    if found.figures:
        at = 0 if len(found.rows) > _LONG else 1
        body.insert(at, Section("figures", "Figures", drawn(found.figures)))
    if found.notes:
        body.append(Section("notes", "Notes", _notes(found)))
    again = [
        (f"forerun reproduce {entry.id}", "Do it again."),
        (f"forerun reproduce {entry.id} --json", "The numbers as data."),
    ]
    body.append(Section("next", "What to run next", sections.commands(again)))
    lead = join((tag("p", entry.source, class_="meta"), tag("p", f"{verdict(found)}.", class_="why")))
    return page(entry.title, lead, body, charts=bool(found.figures))


def all_page(attempts: Sequence[Attempt], *, quick: bool) -> str:
    """The page of all reproductions: an overview, then each with its numbers, figures and reasons."""
    judged = [row for each in attempts if each.found for row in each.found.rows if row.ok is not None]
    holds = sum(1 for row in judged if row.ok)
    absent = [each for each in attempts if each.absent]
    told = (
        f"{holds} of {len(judged)} judged numbers of {len(attempts)} published results are within tolerance"
    )
    if absent:
        told += f"; {len(absent)} {'wants' if len(absent) == 1 else 'want'} data that are missing"
    lead = join(
        (
            tag("p", "Every published table and figure that forerun regenerates", class_="meta"),
            tag(
                "p",
                f"{told}{'; quick runs, with fewer seeds where it says so' if quick else ''}.",
                class_="why",
            ),
        )
    )
    rows: list[list[Content]] = [
        [
            tag("a", each.entry.id, href=f"#{each.entry.id}"),
            each.entry.title,
            _state(each),
            f"{each.wall_s:.1f}",
        ]
        for each in attempts
    ]
    table = sections.data_table(
        ("Id", "What", "Outcome", "Seconds"), rows, label="Published results", right=(3,), wide=True
    )
    body = [Section("overview", "Overview", table)]
    body += [
        Section(each.entry.id, f"{each.entry.id}: {each.entry.title}", _attempt(each), each.entry.id)
        for each in attempts
    ]
    flag = " --quick" if quick else ""
    again = [(f"forerun reproduce --all{flag} -o reproduced.html", "Do it again.")]
    body.append(Section("next", "What to run next", sections.commands(again)))
    return page("Published beside ours", lead, body, charts=True)


def verdict(found: Reproduced) -> str:
    """How many judged numbers are within their tolerance."""
    judged = [row for row in found.rows if row.ok is not None]
    holds = sum(1 for row in judged if row.ok)
    rest = len(found.rows) - len(judged)
    if not judged:
        return f"{rest} numbers, none judged: their notes say why"
    return f"{holds} of {len(judged)} judged numbers within tolerance" + (
        f"; {rest} not judged" if rest else ""
    )


def _state(each: Attempt) -> str:
    if each.found is not None:
        return verdict(each.found)
    if each.absent:
        return "data are not here"
    return "left out of quick runs" if each.left_out else "did not run to its end"


def _attempt(each: Attempt) -> Html:
    parts: list[Content] = [tag("p", each.entry.source, class_="soft over")]
    if each.left_out:
        parts.append(tag("p", each.left_out, class_="why over"))
    if each.absent:
        parts.append(tag("p", "Missing data, and how to get them:", class_="why over"))
        parts.append(tag("ul", (tag("li", line) for line in each.absent), class_="notes"))
    if each.error:
        parts.append(tag("p", f"It ended with an error: {each.error}", class_="why over"))
    if each.found is not None:
        parts.append(tag("p", f"{verdict(each.found)}.", class_="why over"))
        parts.append(_numbers(each.found))
        if each.found.notes:
            parts.append(_notes(each.found))
        if each.found.figures:
            parts.append(drawn(each.found.figures, each.entry.id))
    return join(tuple(parts))


def _numbers(found: Reproduced) -> Html:
    rows: list[list[Content]] = [
        [
            row.name,
            *(_number(value) for value in (row.published, row.compat, row.corrected, row.tolerance)),
            _badge(row),
            row.note,
        ]
        for row in found.rows
    ]
    table = sections.data_table(
        _HEAD, rows, label="Published numbers beside ours", right=(1, 2, 3, 4), wide=True
    )
    explained = tag(
        "p",
        "Compat: in the original's arithmetic. Corrected: in ours. The tolerance is the absolute difference admitted "
        "between the published number and compat (corrected, where there is no compat).",
        class_="soft under",
    )
    return join((tag("div", table, class_="published"), explained))


def _notes(found: Reproduced) -> Html:
    return tag("ul", (tag("li", note) for note in found.notes), class_="notes")


def _number(value: float | None) -> str:
    return (
        "–"
        if value is None
        else format_number(int(value) if float(value).is_integer() and abs(value) < 1e15 else value)
    )


def _badge(row: Row) -> Html:
    words = {True: ("yes", "good"), False: ("no", "bad"), None: ("not judged", "open")}[row.ok]
    return tag("span", words[0], class_=f"badge {words[1]}")
