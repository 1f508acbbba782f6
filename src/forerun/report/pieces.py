"""The pieces of which every page is made: sections, tables, paragraphs, tiles, estimates with their intervals."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from forerun.report.contents import as_yaml, flat
from forerun.report.markup import Content, Html, join, tag
from forerun.report.quantities import capital, format_number, readable_unit, split_name, whole
from forerun.result.numbers import span
from forerun.result.run import Interval
from forerun.scenario.spec import override

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

    name: for links. title: its heading. body: None or empty where there is nothing to show. short: the title in the list of
    sections (default: the title).
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

    label: what it is, for screen readers. right: the columns of numbers. wide: whether it may be as wide as the page.
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
    """A paragraph of some look (default: a remark under a table); None for an empty text."""
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
    """Commands worth running next, with why."""
    return named_lines([(tag("code", line), why) for line, why in lines])


def named_lines(lines: Sequence[tuple[Content, str]]) -> Html:
    """A name and a sentence on each line."""
    return tag(
        "dl", (tag("div", tag("dt", name), tag("dd", text)) for name, text in lines), class_="commands"
    )


def tile(label: str, unit: str, amount: str, interval: str = "") -> Html:
    """A value shown large."""
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
    """A value, and below it its interval, in a unit of which `size` make one."""
    if interval is None:
        return text
    scaled = Interval(interval.low / size, interval.high / size)
    return join(text, tag("br"), tag("span", span(scaled), class_="soft"))


def titled(label: str, unit: str) -> str:
    """A heading with its unit in parentheses."""
    shown = readable_unit(unit)
    return f"{label} ({shown})" if shown else label


def metric_title(name: str, label: str = "") -> str:
    """The heading of a summary figure: its label, else its name in words, and its unit."""
    own, unit = split_name(name)
    return titled(capital(label or own), unit)


def significance(significant: bool | None) -> Html:
    """Whether a difference is significant, as a badge; None: not known."""
    word, look = {True: ("yes", "badge open"), False: ("no", "badge bad"), None: ("–", None)}[significant]
    return tag("span", word, class_=look)


def provenance_table(rows: Sequence[tuple[str, str]], scenario: Mapping[str, Any]) -> Html:
    """Where something comes from: some rows, and the digests of the input files that its scenario names."""
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
    """A change of a scenario as words of a command."""
    return f"--set '{override(path, value)}'"


def swatch(name: str, colour: str) -> Html:
    """A name beside its colour."""
    return tag("span", tag("i", class_="swatch", style=f"background:{colour}"), name, class_="named")


def bar(widths: Sequence[tuple[float, str, str]], label: str) -> Html:
    """A bar of (width as a share, colour, title) of each part; what has no width is left out."""
    parts = (
        tag("span", style=f"width:{100 * share:.4f}%;background:{colour}", title=title)
        for share, colour, title in widths
        if share > 0
    )
    return tag("div", parts, class_="bar", role="img", aria_label=label)
