"""Values of a JSON or YAML document, checked where they are used; what a message names is the line and the keys."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final, TypeAlias

import numpy as np

from forerun.core.errors import Problem, ScenarioError, TraceError
from forerun.core.scenario.text import Document, read_document
from forerun.core.trace.documents import JsonDocument, Place
from forerun.serving.inputs.pipeline import Floats, Ints
from forerun.serving.llm.calibration.experiment import SHARES

#: ms in a unit of time
UNITS: Final = {"ns": 1e-6, "us": 1e-3, "ms": 1.0, "s": 1e3}
#: tokens of one prompt or answer, and requests of one benchmark, at most
MOST_TOKENS: Final = 10_000_000
MOST_REQUESTS: Final = 5_000_000


class YamlDocument:
    """A YAML file with measurements.

    Parameters
    ----------
    path : the file.

    Raises TraceError for what is not YAML.
    """

    def __init__(self, path: Path) -> None:
        try:
            self._document: Document = read_document(path)
        except ScenarioError as error:
            raise TraceError(*error.problems) from error

    @property
    def value(self) -> Any:
        """What it contains."""
        return self._document.data

    @property
    def name(self) -> str:
        """Of the file."""
        return self._document.name

    def error(self, what: str, *place: str | int) -> TraceError:
        """The error that ends the reading because of the value at a place."""
        return TraceError(Problem(self._document.where(place), what))


#: what values are read from: with `value`, what it contains, `name`, of the file, and `error`, which ends the reading
Described: TypeAlias = JsonDocument | YamlDocument


def section(document: Described, *place: str | int) -> Mapping[str, Any]:
    """The object at a place. Raises TraceError."""
    found = _at(document, place)
    if not isinstance(found, dict):
        raise document.error("is missing or no object {...}: cut short, or another version?", *place)
    return found


def number(document: Described, *place: str | int, least: float = 0.0, most: float = 1e12) -> float:
    """The number at a place. Raises TraceError if it is missing, no number, or out of range.

    Parameters
    ----------
    place : keys and indices.
    least, most : inclusive.
    """
    found = _at(document, place)
    if isinstance(found, bool) or not isinstance(found, (int, float)):
        shown = "is missing" if found is None else f"{found!r} is no number"
        raise document.error(f"{shown}: cut short, or another version?", *place)
    if not math.isfinite(found) or not least <= found <= most:
        raise document.error(f"{found:g} is not between {least:g} and {most:g}", *place)
    return float(found)


def maybe(document: Described, *place: str | int, least: float = 0.0) -> float | None:
    """The number at a place, or None if there is none. Raises TraceError for anything else."""
    return None if _at(document, place) is None else number(document, *place, least=least)


def count(document: Described, *place: str | int, least: int = 1, most: int = MOST_REQUESTS) -> int:
    """The whole number at a place. Raises TraceError. Parameters as those of `number`."""
    found = number(document, *place, least=least, most=most)
    if found != round(found):
        raise document.error(f"{found:g} is no whole number", *place)
    return round(found)


def whole(document: Described, numbers: Floats, what: str, *place: str | int) -> Ints:
    """Numbers of tokens, each at least 1. Raises TraceError.

    Parameters
    ----------
    numbers : float64[n].
    what : they are, for the message.
    place : of the list that they are from.
    """
    bad = np.flatnonzero(~((numbers >= 1) & (numbers <= MOST_TOKENS) & (numbers == np.round(numbers))))
    if len(bad):
        found = numbers[bad[0]]
        raise document.error(f"{found:g} {what} of request {bad[0]}; whole numbers from 1 are wanted", *place)
    return numbers.astype(np.int64)


def lengths(table: Sequence[tuple[float, float]], mean: float, n: int, seed: int) -> Ints:
    """Numbers of tokens whose distribution has these quantiles, linear between them, and about this mean.

    Parameters
    ----------
    table : (share, value) from the share 0 to 1, ascending; where there are not two, all have the mean.
    mean : of all.
    n : how many are wanted.
    seed : of their order.
    """
    if len(table) < 2:
        return np.full(n, max(1, round(mean)), dtype=np.int64)
    shares, values = zip(*table)
    drawn = np.interp((np.arange(n) + 0.5) / n, shares, values)
    drawn *= mean / drawn.mean()
    order = np.random.default_rng(seed).permutation(n)
    rounded: Ints = np.maximum(1, np.round(drawn)).astype(np.int64)
    return rounded[order]


def drawn_tokens(
    document: Described,
    n: int,
    seed: int,
    quantiles: Mapping[str, float],
    places: Iterable[Place],
    *,
    spelt: Mapping[str, Place] = MappingProxyType({}),
) -> tuple[Ints, Ints]:
    """Tokens of prompts and of answers like the quantiles and the mean of their summaries. Raises TraceError where one has
    no mean.

    Parameters
    ----------
    n : how many are wanted.
    seed : of their order.
    quantiles : shares by the names that a summary has for them.
    places : of the summaries, that of prompts first.
    spelt : where a summary has what is not under its own name (default: everything is).
    """
    made: list[Ints] = []
    for place in places:
        at = {name: (*place, *spelt.get(name, (name,))) for name in ("mean", *quantiles)}
        found = [(share, maybe(document, *at[name])) for name, share in quantiles.items()]
        table = [(share, value) for share, value in found if value is not None]
        made.append(lengths(table, number(document, *at["mean"], least=1), n, seed + len(made)))
    return made[0], made[1]


def times(
    document: Described, metric: str, unit_ms: float, *place: str | int, spelt: Mapping[str, tuple[str, ...]]
) -> dict[str, float]:
    """The mean and those quantiles of a metric that a summary has, in ms. Raises TraceError where it has no mean.

    Parameters
    ----------
    metric : as an experiment names it.
    unit_ms : ms in a unit of the summary.
    place : of the summary.
    spelt : where it has what is not under its own name.
    """
    where = {share: (*place, *spelt.get(share, (share,))) for share in ("mean", *SHARES)}
    found = {share: maybe(document, *at) for share, at in where.items()}
    found["mean"] = number(document, *where["mean"])
    return {f"{metric}_{share}_ms": value * unit_ms for share, value in found.items() if value is not None}


def unit_ms(document: Described, key: str, *place: str | int) -> float:
    """Ms in the unit that a summary states. Raises TraceError for one that is no time."""
    unit = section(document, *place).get(key)
    if not isinstance(unit, str) or unit not in UNITS:
        raise document.error(f"the unit {unit!r} is no time; known: {', '.join(UNITS)}", *place, key)
    return UNITS[unit]


def _at(document: Described, place: Sequence[str | int]) -> Any:
    """The value at a place, None if there is none."""
    found: Any = document.value
    for step in place:
        if isinstance(step, str) and isinstance(found, dict):
            found = found.get(step)
        elif isinstance(step, int) and isinstance(found, list) and step < len(found):
            found = found[step]
        else:
            return None
    return found
