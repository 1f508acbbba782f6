"""How results look in a notebook: small tables and bars of plain HTML, everything from users' files escaped.

Colours come from the notebook's own theme; nothing is loaded and nothing runs.
"""

from __future__ import annotations

import html
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

from forerun.core.result.numbers import format_number, is_number, summary_rows

if TYPE_CHECKING:
    from forerun.core.result.stats import Interval

#: rows of a table shown; the rest is counted
MOST_ROWS: Final = 20
#: tints that differ on light and on dark grounds
_TINTS: Final = ("#4c78a8", "#f58518", "#54a24b", "#b279a2", "#e45756", "#72b7b2", "#9d755d", "#bab0ac")


def grid(head: Sequence[str], rows: Iterable[Sequence[Any]]) -> str:
    """A table: numbers right, text left."""
    top = "".join(f"<th style='text-align:left'>{html.escape(name)}</th>" for name in head)
    body = "".join(f"<tr>{''.join(_cell(value) for value in row)}</tr>" for row in rows)
    return f"<table><thead><tr>{top}</tr></thead><tbody>{body}</tbody></table>"


def _cell(value: Any) -> str:
    if hasattr(value, "item") and not isinstance(value, (str, bytes)):
        value = value.item()
    side = "right" if is_number(value) else "left"
    return f"<td style='text-align:{side}'>{html.escape(format_number(value))}</td>"


def answer(
    head: Sequence[str], rows: Iterable[Sequence[Any]], notes: Iterable[str], *, heading: str = ""
) -> str:
    """A small table that answers something, and in sentences why."""
    above = f"<h4>{html.escape(heading)}</h4>" if heading else ""
    return above + grid(head, rows) + "".join(f"<p>{html.escape(text)}</p>" for text in notes if text)


def figures(summary: Mapping[str, Any], intervals: Mapping[str, Interval], names: Sequence[str]) -> str:
    """Summary figures with their units and intervals."""
    return grid(("figure", "value", "unit", "95 % interval"), summary_rows(summary, intervals, names))


def bar(name: str, unit: str, whole: float, parts: Mapping[str, float], shares: Mapping[str, float]) -> str:
    """A whole as one bar of its parts' shares, with the amounts beneath."""
    title = f"{name}: {format_number(float(whole))} {unit}"
    pieces, keys, left = [], [], 0.0
    for number, (name, amount) in enumerate(parts.items()):
        tint, width = _TINTS[number % len(_TINTS)], 100 * max(0.0, shares[name])
        label = f"{name}: {format_number(float(amount))} {unit}, {shares[name]:.1%}"
        pieces.append(
            f"<rect x='{left:.3f}%' width='{width:.3f}%' height='14' fill='{tint}'>"
            f"<title>{html.escape(label)}</title></rect>"
        )
        keys.append(
            f"<span style='white-space:nowrap'><b style='color:{tint}'>■</b> {html.escape(label)}</span>"
        )
        left += width
    return (
        f"<div style='margin:.5em 0'><div>{html.escape(title)}</div>"
        f"<svg width='100%' height='14' role='img' aria-label='{html.escape(title, quote=True)}'>{''.join(pieces)}</svg>"
        f"<div style='font-size:smaller'>{' &nbsp; '.join(keys)}</div></div>"
    )


def table(about: str, head: Sequence[str], rows: Iterable[Sequence[Any]], more: int) -> str:
    """The first rows of a table and what it is about; `more` rows follow."""
    rest = f"<div>and {more:,} rows more</div>" if more > 0 else ""
    return f"<div>{html.escape(about)}</div>" + grid(head, rows) + rest


def run(
    heading: str,
    summary: Mapping[str, Any],
    intervals: Mapping[str, Interval],
    names: Sequence[str],
    bars: Iterable[str],
    why: str,
    notes: Sequence[str],
) -> str:
    """A run: its headline, where it went, and why."""
    parts = (f"<h4>{html.escape(heading)}</h4>", figures(summary, intervals, names), *bars)
    return "".join((*parts, sentences(why, notes)))


def sentences(why: str, notes: Sequence[str]) -> str:
    """The reason, and the notes folded."""
    parts = [f"<p><b>why:</b> {html.escape(why)}</p>"] if why else []
    if notes:
        listed = "".join(f"<li>{html.escape(note)}</li>" for note in notes)
        parts.append(f"<details><summary>{len(notes)} notes</summary><ul>{listed}</ul></details>")
    return "".join(parts)
