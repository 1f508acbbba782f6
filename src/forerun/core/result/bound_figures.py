"""The figures of bounds: what a GPU-hour is worth when, the GPUs that a schedule uses, and bounds by GPUs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from forerun.core.result.figures import Axis, Figure, Rule, by_series
from forerun.core.result.numbers import capital, format_number
from forerun.core.units import split_name


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
