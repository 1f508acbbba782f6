"""The pieces of which every page is made: sections, tables, paragraphs, tiles, estimates with their intervals."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from forerun.core.report.contents import as_yaml, flat
from forerun.core.report.markup import Content, Html, join, tag
from forerun.core.result.numbers import capital, format_number, span, whole
from forerun.core.result.stats import Interval
from forerun.core.scenario.spec import override
from forerun.core.units import readable_unit, split_name

#: rows of a table, after which the rest is counted
MOST_ROWS: Final = 40
#: values shown large at the top of a page
TILES: Final = 6
#: rows above which a table is folded
MOST_OPEN: Final = 14
#: characters of a value and its unit above which a tile shows them smaller
_LONG: Final = 10


@dataclass(frozen=True)
class Section:
    """A part of a page.

    Parameters
    ----------
    name : for links; unique on the page.
    title : its heading.
    body : None or empty where there is nothing to show.
    short : the title in the list of sections (default: the title).
    """

    name: str
    title: str
    body: Html | None
    short: str = ""


def present(*sections: Section) -> list[Section]:
    """The sections that have something to show."""
    return [section for section in sections if section.body]


def data_table(
    head: Sequence[Content],
    rows: Sequence[Sequence[Content]],
    *,
    label: str,
    right: Sequence[int] = (),
    wide: bool = False,
) -> Html:
    """A table, which scrolls sideways by itself where it is too wide.

    Parameters
    ----------
    head : the headings.
    rows : cells in the order of the headings; the first of each row names it.
    label : what it is, for screen readers.
    right : numbers of the columns that are aligned right, as numbers are (default: none).
    wide : whether it may be as wide as the page (default: no).
    """

    looks = ["n" if at in right else None for at in range(len(head))]
    header = (tag("th", text, class_=look, scope="col") for text, look in zip(head, looks))
    body = (
        tag(
            "tr",
            tag("th", first, class_=looks[0], scope="row"),
            (tag("td", cell, class_=look) for cell, look in zip(others, looks[1:])),
        )
        for first, *others in rows
    )
    table = tag(
        "table",
        tag("caption", label, class_="unseen"),
        tag("thead", tag("tr", header)),
        tag("tbody", body),
    )
    look = "scroll wide" if wide else "scroll"
    return tag("div", table, class_=look, tabindex=0, role="region", aria_label=label)


def paragraph(text: Content, look: str = "soft under") -> Html | None:
    """A paragraph; None for an empty text.

    Parameters
    ----------
    text : what it says.
    look : its CSS classes (default: a remark under a table).
    """
    return tag("p", text, class_=look) if text else None


def facts_line(*facts: str) -> str:
    """What identifies an item, on one line; empty facts are left out."""
    return " · ".join(fact for fact in facts if fact)


def folded(title: str, *body: Content) -> Html:
    """Something that opens when its title is clicked."""
    return tag("details", tag("summary", title), body)


def bullets(notes: Sequence[Content]) -> Html | None:
    """Notes as a list; None if there are none."""
    return tag("ul", (tag("li", note) for note in notes), class_="notes") if notes else None


def commands(lines: Sequence[tuple[Content, str]]) -> Html:
    """Commands worth running next.

    Parameters
    ----------
    lines : each command with why, which may be empty.
    """
    return named_lines([(tag("code", line), why) for line, why in lines])


def named_lines(lines: Sequence[tuple[Content, str]]) -> Html:
    """A name and a sentence on each line."""
    return tag(
        "dl", (tag("div", tag("dt", name), tag("dd", text)) for name, text in lines), class_="commands"
    )


def tile(label: str, unit: str, amount: str, interval: str = "") -> Html:
    """A value shown large.

    Parameters
    ----------
    label : what it is.
    unit : of the value; empty for none.
    amount : the value as text.
    interval : as text (default: none).
    """
    look = "value long" if len(amount) + len(unit) > _LONG else "value"
    shown = tag("small", f"\N{NO-BREAK SPACE}{unit}") if unit else None
    return tag(
        "div",
        tag("span", label, class_="label"),
        tag("span", amount, shown, class_=look),
        tag("span", interval, class_="soft") if interval else None,
        class_="tile",
    )


def amount(value: Any) -> str:
    """A value as people read it; whole numbers without a point, lists with commas."""
    if isinstance(value, (list, tuple)):
        return ", ".join(map(amount, value))
    return format_number(whole(value))


def estimate(text: str, interval: Interval | None, size: float = 1.0) -> Content:
    """A value, and below it its interval.

    Parameters
    ----------
    text : the value, in the unit that is shown.
    interval : in the original unit; None for none.
    size : how many of the original unit make one that is shown (default: 1).
    """
    if interval is None:
        return text
    scaled = Interval(interval.low / size, interval.high / size)
    return join(text, tag("br"), tag("span", span(scaled), class_="soft"))


def titled(label: str, unit: str) -> str:
    """A heading with its unit in parentheses."""
    shown = readable_unit(unit)
    return f"{label} ({shown})" if shown else label


def metric_title(name: str, label: str = "") -> str:
    """The heading of a summary figure: its label and its unit.

    Parameters
    ----------
    name : of the figure; its suffix is the unit.
    label : what to call it (default: its name in words).
    """
    own, unit = split_name(name)
    return titled(capital(label or own), unit)


def significance(significant: bool | None) -> Html:
    """Whether a difference is significant, as a badge. significant: None where it is not known."""
    word, look = {True: ("yes", "badge open"), False: ("no", "badge bad"), None: ("–", None)}[significant]
    return tag("span", word, class_=look)


def provenance_table(rows: Sequence[tuple[str, str]], scenario: Mapping[str, Any]) -> Html:
    """Where something comes from.

    Parameters
    ----------
    rows : what and value.
    scenario : plain data; the digests of the input files that it names are added to the rows.
    """
    inputs = [
        (f"input {path.rpartition('.')[0]}", str(value))
        for path, value in flat(scenario).items()
        if path.endswith(".sha256") and value
    ]
    return data_table(("What", "Value"), [*rows, *inputs], label="Provenance")


def scenario_text(data: Any) -> Html:
    """A scenario as text."""
    return tag("pre", tag("code", as_yaml(data)), tabindex=0)


def base_scenario(data: Any) -> Html:
    """A base scenario as text, folded."""
    return folded("Base scenario, every default written out", scenario_text(data))


def set_option(path: str, value: object) -> str:
    """A change of a scenario as words of a command: `--set 'path=value'`.

    Parameters
    ----------
    path : of the value, such as `policy.name`.
    value : what it is set to.
    """
    return f"--set '{override(path, value)}'"


def swatch(name: str, colour: str) -> Html:
    """A name beside its colour."""
    return tag("span", tag("i", class_="swatch", style=f"background:{colour}"), name, class_="named")


def bar(widths: Sequence[tuple[float, str, str]], label: str) -> Html:
    """A bar of coloured parts.

    Parameters
    ----------
    widths : (width as a share of the whole bar, colour, title) of each part; what has no width is left out.
    label : what the bar shows, for screen readers.
    """
    parts = (
        tag("span", style=f"width:{100 * share:.4f}%;background:{colour}", title=title)
        for share, colour, title in widths
        if share > 0
    )
    return tag("div", parts, class_="bar", role="img", aria_label=label)
