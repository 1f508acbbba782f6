"""Files of bounds: what a bound is stored as, what a page shows of it, and its figures."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Annotated, Any, Final, Literal

import numpy as np
from msgspec import Meta

from forerun.core.documents import Document, domain_of
from forerun.core.result.bound import Bracket
from forerun.core.result.document import StoredDocument
from forerun.core.result.figures import Axis, Figure, Rule, by_series
from forerun.core.result.numbers import capital, format_number, plain
from forerun.core.result.reading import record
from forerun.core.scenario.spec import Spec, to_data
from forerun.core.units import split_name, stem
from forerun.core.version import VERSION

#: the format of the files
BOUNDS_FORMAT: Final = "forerun.bounds/1"


def content_of(brackets: Sequence[Bracket], scenario: Spec) -> dict[str, Any]:
    """Brackets of a scenario as plain data, as a file for reports has them. brackets: at least one."""
    content = {
        "format": BOUNDS_FORMAT,
        "forerun": VERSION,
        "scenario": to_data(scenario),
        "why": brackets[0].why,
        "notes": list(brackets[0].notes),
        "brackets": [one.data() for one in brackets],
    }
    data: dict[str, Any] = plain(content)
    return data


class _Piece(Spec, frozen=True, kw_only=True):
    """A piece of a schedule."""

    job: str
    start_s: float
    end_s: float
    gpus: int


class _Span(Spec, frozen=True, kw_only=True):
    """What a GPU-hour is worth in some time."""

    start_s: float
    end_s: float
    price: float


class _Bracket(Spec, frozen=True, kw_only=True):
    """A bracket, as `Bracket.data` gives it."""

    figure: str
    title: str
    better: Literal["higher", "lower"]
    gpus: int
    jobs: int
    of: int
    reached: float | None
    bound: float
    notes: tuple[str, ...]
    schedule: tuple[_Piece, ...]
    prices: tuple[_Span, ...]
    price_unit: str


class _Bounds(Spec, frozen=True, kw_only=True):
    """The content of a file of bounds."""

    format: str
    forerun: str
    scenario: dict[str, Any]
    why: str
    notes: tuple[str, ...]
    brackets: Annotated[tuple[_Bracket, ...], Meta(min_length=1)]


class BoundsDocument(Document):
    """Bounds of what any policy can reach."""

    format = BOUNDS_FORMAT

    def read(self, name: str, content: Mapping[str, Any], file: str = "") -> StoredDocument:
        """What a page shows of bounds, a row a number of GPUs."""
        where = file or name
        record(content, _Bounds, where)
        brackets = content["brackets"]
        apart = ("schedule", "prices", "price_unit", "notes", "title", "figure", "better")
        rows = [{key: value for key, value in one.items() if key not in apart} for one in brackets]
        for row in rows:
            if count := row.pop("of"):
                row["out_of"] = count
        figure = str(brackets[0]["figure"])
        unit = figure.removeprefix(stem(figure))
        return StoredDocument(
            name=name,
            file=where,
            kind="bound",
            domain=domain_of(content, where),
            version=content["forerun"],
            answer=content["why"],
            notes=tuple(content["notes"]),
            facts={
                f"{key}{unit if key in ('reached', 'bound') else ''}": value for key, value in rows[0].items()
            },
            tables={"bounds": rows} if len(rows) > 1 else {},
            scenario=content["scenario"],
            provenance={"figure": figure},
            content=content,
        )

    def figures(self, content: Mapping[str, Any]) -> tuple[Figure, ...]:
        """Prices, the GPUs that a schedule uses, and bounds by GPUs."""
        return bound_figures(content["brackets"])


DOCUMENT: Final = BoundsDocument()


def bound_figures(brackets: Sequence[Mapping[str, Any]]) -> tuple[Figure, ...]:
    """Prices above the GPUs used over time, of the first bracket, and both sides of all by GPUs; those that there are.

    Parameters
    ----------
    brackets : as plain data, at least one.
    """
    first = brackets[0]
    made = [_prices(first)] if any(span["price"] for span in first["prices"]) else []
    if first["schedule"]:
        made.append(_used(first))
    if len(brackets) > 1:
        made.append(_capacity(brackets))
    return tuple(made)


def _ends_s(bracket: Mapping[str, Any]) -> tuple[float, float]:
    """The time that both figures show."""
    spans = [*bracket["schedule"], *bracket["prices"]]
    return min(span["start_s"] for span in spans), max(span["end_s"] for span in spans)


def _prices(bracket: Mapping[str, Any]) -> Figure:
    begin_s, end_s = _ends_s(bracket)
    spans, (_, unit) = bracket["prices"], split_name(bracket["figure"])
    time_s = [begin_s, *(span["start_s"] for span in spans), spans[-1]["end_s"], end_s]
    priced_s = sum(span["end_s"] - span["start_s"] for span in spans if span["price"])
    priced, whole = (format_number(seconds / 3600) for seconds in (priced_s, end_s - begin_s))
    return Figure.of(
        "step",
        "gpu-prices",
        "What a GPU-hour is worth",
        {"time_s": time_s, "price": [0.0, *(span["price"] for span in spans), 0.0, 0.0]},
        x="time_s",
        y=Axis("price", "price", bracket["price_unit"]),
        caption=f"By how much one more GPU for an hour could move the bound at that time, at most: {bracket['title']}"
        f"{f' in {unit}' if unit else ''}. {priced} of {whole} h have a price; more GPUs in the others do not "
        "change the bound. Other prices may prove the same.",
    )


def _used(bracket: Mapping[str, Any]) -> Figure:
    pieces, ends = bracket["schedule"], _ends_s(bracket)
    at_s = np.array([*(one["start_s"] for one in pieces), *(one["end_s"] for one in pieces), *ends])
    change = np.array([*(one["gpus"] for one in pieces), *(-one["gpus"] for one in pieces), 0, 0])
    instants, inverse = np.unique(at_s, return_inverse=True)
    changes = np.zeros(len(instants), np.int64)
    np.add.at(changes, inverse, change)
    return Figure.of(
        "step",
        "schedule-gpus",
        "GPUs that the schedule uses",
        {"time_s": instants, "used": np.cumsum(changes)},
        x="time_s",
        y=Axis("used", "GPUs in use"),
        rules=[Rule(float(bracket["gpus"]), "all GPUs", "y")],
        caption=f"The best schedule of the search: {bracket['title']} {format_number(bracket['reached'])}. It knows "
        "the future and changes counts for nothing.",
    )


def _capacity(brackets: Sequence[Mapping[str, Any]]) -> Figure:
    first = brackets[0]
    beyond = "no scheduler more" if first["better"] == "higher" else "no scheduler less"
    ordered = sorted(brackets, key=lambda one: int(one["gpus"]))
    curves = {
        name: {
            "gpus": [one["gpus"] for one in ordered if one[key] is not None],
            "value": [one[key] for one in ordered if one[key] is not None],
        }
        for key, name in (("reached", "some schedule"), ("bound", beyond))
    }
    label, unit = split_name(first["figure"])
    return Figure.of(
        "line",
        "bounds-by-gpus",
        f"{capital(first['title'])} by GPUs",
        by_series("by", curves),
        x=Axis("gpus", "GPUs"),
        y=Axis("value", label, unit),
        series="by",
        series_label="reached by",
        order=tuple(curves),
        caption="The best possible is between the two lines, whatever the scheduler.",
    )
