"""Figures on a page: each with its title, legend, chart, caption and data."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from forerun.core.report.drawing import Drawing, draw
from forerun.core.report.images import stems
from forerun.core.report.marks import Legend
from forerun.core.report.markup import Html, Piece, join, script_json, tag
from forerun.core.report.palette import VARIABLES
from forerun.core.report.pieces import MOST_ROWS, DataTable, amount
from forerun.core.result.figures import Figure

_SHAPES: Final = {
    "square": "M1 2h10v8h-10z",
    "circle": "M6 1.5a4.5 4.5 0 1 0 .01 0z",
    "triangle-up": "M6 1.5l5 9h-10z",
    "triangle-down": "M6 10.5l5-9h-10z",
    "diamond": "M6 .8l4.6 5.2-4.6 5.2-4.6-5.2z",
    "cross": "M4.3 1h3.4v3.3h3.3v3.4h-3.3v3.3h-3.4v-3.3h-3.3v-3.4h3.3z",
}


@dataclass(frozen=True)
class Drawn(Piece):
    """Figures side by side where they fit; nothing if there are none.

    Parameters
    ----------
    figures : in this order.
    prefix : what their names on the page begin with, which keeps them apart from other figures' (default: `figure`).
    """

    figures: Sequence[Figure]
    prefix: str = "figure"

    def html(self) -> Html | None:
        """The figures."""
        if not self.figures:
            return None
        names = [f"{self.prefix}-{stem}" for stem in stems(self.figures)]
        return tag(
            "div", map(_figure, [draw(one, VARIABLES) for one in self.figures], names), class_="figures"
        )


def _figure(drawing: Drawing, name: str) -> Html:
    """A figure: title, legend, chart, caption, notes and its data.

    Parameters
    ----------
    drawing : one without rows gets a sentence in place of the chart.
    name : unique on the page.
    """
    about = drawing.figure
    title = tag("h3", about.title, id=f"{name}-title")
    caption = tag(
        "figcaption", about.caption, (tag("span", " ", note, class_="soft") for note in drawing.notes)
    )
    if drawing.rows:
        label = f"{about.title}. {about.caption}"
        chart = tag("div", class_="chart", id=f"{name}-chart", role="img", aria_label=label)
        payload = {
            "spec": drawing.spec,
            "columns": drawing.columns,
            "titles": drawing.titles,
            "followed": drawing.followed,
            "step": about.kind in ("step", "stacked_bar", "histogram"),
            "name": name,
        }
        data = tag("script", script_json(payload), type="application/json", class_="figure-data")
        values = join(_data(drawing), data)
    else:
        chart = tag("p", "There is nothing to draw: the run has no such data.", class_="soft empty")
        values = Html("")
    return tag(
        "figure",
        title,
        _legend(drawing.legend, about.series_label),
        chart,
        caption,
        values,
        class_="card wide" if drawing.wide else "card",
        id=name,
        aria_labelledby=f"{name}-title",
    )


def _legend(entries: Sequence[Legend], label: str) -> Html | None:
    """The legend beside a chart; None if it has no entries.

    Parameters
    ----------
    entries : of the series, in order.
    label : what the series are; empty to say nothing.
    """
    if not entries:
        return None
    name = tag("li", f"{label}:", class_="soft") if label else None
    series = (tag("li", _symbol(entry), tag("span", entry.name)) for entry in entries)
    return tag("ul", name, series, class_="legend")


def _symbol(entry: Legend) -> Html:
    """How a series looks: a piece of its line, or its mark."""
    width = 22 if entry.shape == "line" else 12
    if entry.shape == "line":
        dash = ",".join(map(str, entry.dash)) or None
        look = {"stroke": entry.colour, "stroke_width": "2.4", "stroke_dasharray": dash, "fill": "none"}
        symbol = tag("path", d="M0 6h22", **look)
    else:
        symbol = tag("path", d=_SHAPES[entry.shape], fill=entry.colour)
    return tag("svg", symbol, width=width, height=12, aria_hidden="true")


def _data(drawing: Drawing) -> Html:
    """The figure's values as a table: all, or evenly chosen ones."""
    first = ("series", "y", "x", "x2")
    if "series" not in drawing.titles and drawing.figure.kind != "gantt":
        first = ("series", "x", "x2", "y")
    named = (*first, "z", "low", "high")
    names = [name for name in named if name in drawing.titles]
    columns = [drawing.columns[name] for name in names]
    total = len(drawing.columns["x"])
    chosen: Sequence[int] = range(total)
    if total > MOST_ROWS:
        chosen = [round(at * (total - 1) / (MOST_ROWS - 1)) for at in range(MOST_ROWS)]
    rows = [[amount(values[at]) for values in columns] for at in chosen]
    right = [at for at, values in enumerate(columns) if not any(isinstance(one, str) for one in values)]
    shown = f"{total:,}" if total <= MOST_ROWS else f"{MOST_ROWS} of {total:,}"
    titles = [drawing.titles[name] for name in names]
    table = DataTable(titles, rows, label=f"Data of {drawing.figure.title}", right=right)
    return tag("details", tag("summary", f"Data ({shown} rows)"), table, class_="data")
