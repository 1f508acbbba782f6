"""The pieces of which every page is made, as data: sections, tables, paragraphs, tiles, estimates with their intervals."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import KW_ONLY, dataclass
from typing import Any, Final

from forerun.core.report.contents import as_yaml, flat
from forerun.core.report.markup import Content, Html, Piece, join, tag
from forerun.core.result.numbers import capital, format_number, span, whole
from forerun.core.result.stats import Interval
from forerun.core.scenario.spec import override
from forerun.core.units import split_name, titled

#: rows of a table, after which the rest is counted
MOST_ROWS: Final = 40
#: values shown large at the top of a page
_TILES: Final = 6
#: rows above which a table is folded
MOST_OPEN: Final = 14
#: characters of a value and its unit above which a tile shows them smaller
_LONG: Final = 10


@dataclass(frozen=True)
class Section:
    """A part of a page; left out where its body is empty.

    Parameters
    ----------
    name : for links; unique on the page.
    title : its heading.
    body : what is in it.
    short : the title in the list of sections (default: the title).
    """

    name: str
    title: str
    body: Content
    short: str = ""


@dataclass(frozen=True)
class Shown:
    """What a page says of an item.

    Parameters
    ----------
    kind : such as `run` or `plan`.
    title : of its page.
    facts : what identifies it; empty ones are left out.
    answer : one sentence, may be empty.
    charts : whether it has figures.
    sections : all of it.
    """

    kind: str
    title: str
    facts: Sequence[str]
    answer: str
    charts: bool
    sections: Sequence[Section]


def present(sections: Sequence[Section]) -> list[tuple[Section, Html]]:
    """The sections that have something to show, with their markup."""
    return [(section, body) for section in sections if (body := join(section.body))]


@dataclass(frozen=True)
class DataTable(Piece):
    """A table, which scrolls sideways by itself where it is too wide.

    Parameters
    ----------
    head : the headings.
    rows : cells in the order of the headings; the first of each row names it.
    label : what it is, for screen readers.
    right : numbers of the columns that are aligned right, as numbers are (default: none).
    wide : whether it may be as wide as the page (default: no).
    """

    head: Sequence[Content]
    rows: Sequence[Sequence[Content]]
    _: KW_ONLY
    label: str
    right: Sequence[int] = ()
    wide: bool = False

    def html(self) -> Html:
        """The table in a box that scrolls."""
        looks = ["n" if at in self.right else None for at in range(len(self.head))]
        header = (tag("th", text, class_=look, scope="col") for text, look in zip(self.head, looks))
        body = (
            tag(
                "tr",
                tag("th", first, class_=looks[0], scope="row"),
                (tag("td", cell, class_=look) for cell, look in zip(others, looks[1:])),
            )
            for first, *others in self.rows
        )
        table = tag(
            "table",
            tag("caption", self.label, class_="unseen"),
            tag("thead", tag("tr", header)),
            tag("tbody", body),
        )
        look = "scroll wide" if self.wide else "scroll"
        return tag("div", table, class_=look, tabindex=0, role="region", aria_label=self.label)


@dataclass(frozen=True)
class Paragraph(Piece):
    """A paragraph; nothing for an empty text.

    Parameters
    ----------
    text : what it says.
    look : its CSS classes (default: a remark under a table).
    """

    text: Content
    look: str = "soft under"

    def html(self) -> Html | None:
        """The paragraph."""
        return tag("p", self.text, class_=self.look) if self.text else None


@dataclass(frozen=True)
class Element(Piece):
    """An element with nothing but a look.

    Parameters
    ----------
    name : such as `code`, `strong` or `div`.
    content : what is in it.
    look : its CSS classes (default: none).
    """

    name: str
    content: Content
    look: str | None = None

    def html(self) -> Html:
        """The element."""
        return tag(self.name, self.content, class_=self.look)


#: where a cell begins a new line
BREAK: Final = tag("br")


@dataclass(frozen=True)
class Folded(Piece):
    """Something that opens when its title is clicked."""

    title: Content
    body: Content
    open: bool = False

    def html(self) -> Html:
        """The title, and what opens."""
        return tag("details", tag("summary", self.title), self.body, open=self.open)


@dataclass(frozen=True)
class Bullets(Piece):
    """Notes as a list; nothing if there are none."""

    notes: Sequence[Content]

    def html(self) -> Html | None:
        """The list."""
        return tag("ul", (tag("li", note) for note in self.notes), class_="notes") if self.notes else None


@dataclass(frozen=True)
class NamedLines(Piece):
    """A name and a sentence on each line."""

    lines: Sequence[tuple[Content, str]]

    def html(self) -> Html:
        """The lines."""
        pairs = (tag("div", tag("dt", name), tag("dd", text)) for name, text in self.lines)
        return tag("dl", pairs, class_="commands")


@dataclass(frozen=True)
class Commands(Piece):
    """Commands worth running next, each with why, which may be empty."""

    lines: Sequence[tuple[str, str]]

    def html(self) -> Html:
        """The lines."""
        return NamedLines([(tag("code", line), why) for line, why in self.lines]).html()


@dataclass(frozen=True)
class Headline(Piece):
    """The values that matter most, large, and a table of all, open where they are few.

    Parameters
    ----------
    tiles : label, value, unit and interval of each, the last two empty for none; only the first are shown.
    count : of all values.
    table : of them.
    """

    tiles: Sequence[tuple[str, object, str, str]]
    count: int
    table: Content

    def html(self) -> Html:
        """The tiles, then the table."""
        every = Folded(f"All {self.count:,} values", self.table, open=self.count <= MOST_OPEN)
        return join(tag("div", (_tile(*each) for each in self.tiles[:_TILES]), class_="tiles"), every)


def _tile(label: str, value: object, unit: str, interval: str) -> Html:
    """A value shown large."""
    text = amount(value)
    look = "value long" if len(text) + len(unit) > _LONG else "value"
    shown = tag("small", f"\N{NO-BREAK SPACE}{unit}") if unit else None
    return tag(
        "div",
        tag("span", label, class_="label"),
        tag("span", text, shown, class_=look),
        tag("span", interval, class_="soft") if interval else None,
        class_="tile",
    )


def amount(value: Any) -> str:
    """A value as people read it; whole numbers without a point, lists with commas."""
    if isinstance(value, (list, tuple)):
        return ", ".join(map(amount, value))
    return format_number(whole(value))


@dataclass(frozen=True)
class Estimate(Piece):
    """A value as people read it, and below it its interval.

    Parameters
    ----------
    value : in the unit that is shown, or in words.
    interval : in the original unit (default: none).
    size : how many of the original unit make one that is shown (default: 1).
    """

    value: object
    interval: Interval | None = None
    size: float = 1.0

    def html(self) -> Html:
        """The value, and its interval on a line of its own."""
        if self.interval is None:
            return join(amount(self.value))
        scaled = Interval(self.interval.low / self.size, self.interval.high / self.size)
        return join(amount(self.value), BREAK, tag("span", span(scaled), class_="soft"))


def metric_title(name: str, label: str = "") -> str:
    """The heading of a summary figure: its label and its unit.

    Parameters
    ----------
    name : of the figure; its suffix is the unit.
    label : what to call it (default: its name in words).
    """
    own, unit = split_name(name)
    return titled(capital(label or own), unit)


@dataclass(frozen=True)
class Significance(Piece):
    """Whether a difference is significant, as a badge; None where it is not known."""

    known: bool | None

    def html(self) -> Html:
        """The badge."""
        word, look = {True: ("yes", "badge open"), False: ("no", "badge bad"), None: ("–", None)}[self.known]
        return tag("span", word, class_=look)


@dataclass(frozen=True)
class Provenance(Piece):
    """Where something comes from.

    Parameters
    ----------
    rows : what and value.
    scenario : plain data; the digests of the input files that it names are added to the rows.
    """

    rows: Sequence[tuple[str, Content]]
    scenario: Mapping[str, Any]

    def html(self) -> Html:
        """A table."""
        inputs = [
            (f"input {path.rpartition('.')[0]}", str(value))
            for path, value in flat(self.scenario).items()
            if path.endswith(".sha256") and value
        ]
        return DataTable(("What", "Value"), [*self.rows, *inputs], label="Provenance").html()


@dataclass(frozen=True)
class ScenarioText(Piece):
    """A scenario as text; nothing for an empty one."""

    scenario: Mapping[str, Any]

    def html(self) -> Html | None:
        """The text."""
        return Code(as_yaml(self.scenario)).html() if self.scenario else None


@dataclass(frozen=True)
class Code(Piece):
    """Lines of a program or of a shell; nothing without them."""

    text: str

    def html(self) -> Html | None:
        """The text."""
        return tag("pre", tag("code", self.text), tabindex=0) if self.text else None


@dataclass(frozen=True)
class BaseScenario(Piece):
    """A base scenario as text, folded."""

    scenario: Mapping[str, Any]

    def html(self) -> Html:
        """The text, and its title."""
        return Folded("Base scenario, every default written out", ScenarioText(self.scenario)).html()


def set_option(path: str, value: object) -> str:
    """A change of a scenario as words of a command: `--set 'path=value'`.

    Parameters
    ----------
    path : of the value, such as `policy.name`.
    value : what it is set to.
    """
    return f"--set '{override(path, value)}'"


@dataclass(frozen=True)
class Swatch(Piece):
    """A name beside its colour."""

    name: str
    colour: str

    def html(self) -> Html:
        """The colour, then the name."""
        colour = tag("i", class_="swatch", style=f"background:{self.colour}")
        return tag("span", colour, self.name, class_="named")


@dataclass(frozen=True)
class Bar(Piece):
    """A bar of coloured parts.

    Parameters
    ----------
    widths : (width as a share of the whole bar, colour, title) of each part; what has no width is left out.
    label : what the bar shows, for screen readers.
    """

    widths: Sequence[tuple[float, str, str]]
    label: str

    def html(self) -> Html:
        """The parts side by side."""
        parts = (
            tag("span", style=f"width:{100 * share:.4f}%;background:{colour}", title=title)
            for share, colour, title in self.widths
            if share > 0
        )
        return tag("div", parts, class_="bar", role="img", aria_label=self.label)
