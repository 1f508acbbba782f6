"""Comparisons: how each variant did, and files of them, one JSON document each, checked when it is read."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import msgspec

from forerun.core.atomic_write import write_text
from forerun.core.errors import StoreError, worded
from forerun.core.regular import read_regular
from forerun.core.result import notebook
from forerun.core.result.numbers import format_number, span
from forerun.core.result.objective import Objective
from forerun.core.result.reading import check_figures
from forerun.core.result.stats import Interval
from forerun.core.scenario.spec import canonical_json, to_data
from forerun.core.version import VERSION

#: what a comparison file says it is
COMPARISON_FORMAT: Final = "forerun.comparison/1"

#: the row of what really happened among variants
RECORDED: Final = "recorded history"
#: keys that a comparison's file has only where they say something
_SPARE: Final = ("code", "recorded", "caution")


@dataclass(frozen=True, slots=True)
class Best:
    """The best possible value of the objective, as far as it is known: means over the seeds.

    Parameters
    ----------
    reached : what some schedule reaches; None: none is known.
    bound : what none exceeds.
    least_share, most_share : of the best possible, that the variant is; None where it is not known.
    gpus, jobs : of the scenario, on the first seed.
    why_not : why nothing is known; empty if something is.
    """

    reached: float | None = None
    bound: float | None = None
    least_share: float | None = None
    most_share: float | None = None
    gpus: int = 0
    jobs: int = 0
    why_not: str = ""

    @property
    def share(self) -> str:
        """The share of the best possible in percent, as an interval; a dash where it is not known."""
        if self.least_share is None or self.most_share is None:
            return "–"
        ends = dict.fromkeys(f"{100 * end:.1f}" for end in (self.least_share, self.most_share))
        return " … ".join(ends) + " %"

    @property
    def ends(self) -> str:
        """What is reached and the bound, the lower number first."""
        known = sorted(end for end in (self.reached, self.bound) if end is not None)
        return " … ".join(dict.fromkeys(map(format_number, known))) or "–"


@dataclass(frozen=True, slots=True)
class Variant:
    """One candidate: a name and the overrides that make it."""

    name: str
    overrides: tuple[tuple[str, Any], ...]


@dataclass(frozen=True)
class Shift:
    """A mean difference, and its paired interval where there is randomness."""

    mean: float
    interval: Interval | None = None


@dataclass(frozen=True)
class Standing:
    """How a variant did. Differences are against the reference variant (None for the reference itself).

    value: mean of the objective over the seeds, with `interval`. difference: paired; `exact` ones need no interval.
    p: Holm-adjusted. parts: by "ledger (unit)", the mean difference of each part, largest first; they sum to the
    difference of the whole. draws: the objective on each seed, in the order of the seeds. figures: means of all. notes: of
    the first seed's result. best: the best possible beside it, where it was asked for. left_out: which of the work the
    objective is not about, in words; empty if it is about all. Such variants rank behind, and are not tested.
    """

    variant: Variant
    value: float
    interval: Interval | None
    difference: float | None = None
    difference_interval: Interval | None = None
    p: float | None = None
    parts: Mapping[str, Mapping[str, Shift]] = field(default_factory=dict)
    why: str = ""
    figures: Mapping[str, float] = field(default_factory=dict)
    draws: tuple[float, ...] = ()
    notes: tuple[str, ...] = ()
    best: Best | None = None
    left_out: str = ""


@dataclass(frozen=True)
class Comparison:
    """Variants ranked best first by an objective. exact: the seed changes nothing here. seeds: how many were run.

    scenario: the base, resolved, as plain data. version: of the forerun that compared. code: as of a `Result`. level: the
    variants that do not differ significantly from the best. recommended: the one to run, the cheapest of these (default:
    the best). recorded: the objective as it really was, where the runs know it; it has no rank. caution: that the base does
    not reproduce what was recorded, as its run says (default: nothing).
    """

    objective: Objective
    standings: tuple[Standing, ...]
    reference: str
    seeds: int
    exact: bool
    method: str
    why: str
    failed: Mapping[str, str] = field(default_factory=dict)
    scenario: Mapping[str, Any] = field(default_factory=dict)
    confidence: float = 0.95
    version: str = VERSION
    code: Mapping[str, str] = field(default_factory=dict)
    level: tuple[str, ...] = ()
    recommended: str = ""
    recorded: float | None = None
    caution: str = ""

    @property
    def chosen(self) -> int:
        """The place of the variant to run in the ranking."""
        names = [one.variant.name for one in self.standings]
        return names.index(self.recommended) if self.recommended in names else 0

    @property
    def domain(self) -> str:
        """The domain of the variants."""
        return str(self.scenario.get("domain", ""))

    def notes(self) -> list[tuple[str, tuple[str, ...]]]:
        """What a reader must know of the results, each with the variants it is about; none of them if it is about all."""
        about: dict[str, list[str]] = {}
        for one in self.standings:
            for note in dict.fromkeys(one.notes):
                about.setdefault(note, []).append(one.variant.name)
        return [
            (note, () if len(names) == len(self.standings) else tuple(names)) for note, names in about.items()
        ]

    def rows(self) -> tuple[tuple[str, ...], list[tuple[Any, ...]]]:
        """The ranking as a table: its head, and a row a variant, best first."""
        interval = f"{100 * self.confidence:g} % interval"
        head: tuple[str, ...] = (
            "variant",
            self.objective.title,
            interval,
            "difference",
            f"its {interval}",
            "p (Holm)",
        )
        if any(one.best is not None for one in self.standings):
            head = (*head, "best possible", "of the best possible")
        rows: list[tuple[Any, ...]] = [
            (
                one.variant.name + (" (reference)" if one.variant.name == self.reference else ""),
                one.value,
                span(one.interval),
                one.difference,
                span(one.difference_interval)
                or one.left_out
                or ("exact" if self.exact and one.difference is not None else ""),
                one.p,
                *(() if one.best is None else (one.best.ends, one.best.share)),
            )
            for one in self.standings
        ]
        if self.recorded is not None:
            row = (RECORDED, self.recorded, "", self.recorded_difference, "", None)
            rows.append((*row, *[""] * (len(head) - len(row))))
        return head, rows

    @property
    def recorded_difference(self) -> float | None:
        """By how much the recorded objective differs from the reference's; None: it is not known."""
        base = next(one.value for one in self.standings if one.variant.name == self.reference)
        return None if self.recorded is None else self.recorded - base

    def _repr_html_(self) -> str:
        return notebook.answer(*self.rows(), (self.why, self.method))

    @property
    def id(self) -> str:
        """What the comparison depends on, as a digest."""
        variants = [(one.variant.name, one.variant.overrides) for one in self.standings]
        what = [self.scenario, sorted(variants), self.reference, self.objective.key, self.seeds, self.version]
        if self.code:
            what.append(self.code if all(self.code.values()) else [one.figures for one in self.standings])
        return hashlib.sha256(canonical_json(what)).hexdigest()[:16]


def save_comparison(comparison: Comparison, path: str | os.PathLike[str]) -> Path:
    """Write a comparison; it appears whole or not at all.

    Raises StoreError if the path contains something other than a comparison, or cannot be written.
    """
    target = Path(path)
    if target.exists() and not _is_comparison(target):
        raise StoreError.at(target, "already contains something that is not a comparison; name another file")
    data = {key: value for key, value in to_data(comparison).items() if key not in _SPARE or value}
    text = json.dumps({"format": COMPARISON_FORMAT, **data}, indent=1, ensure_ascii=False, allow_nan=False)
    return write_text(target, text + "\n")


def comparison_of(data: Mapping[str, Any], name: str) -> Comparison:
    """The comparison in a document. Raises StoreError saying what is damaged."""
    check_figures(data.get("standings"), name, "$.standings")
    try:
        rest = {key: value for key, value in data.items() if key != "format"}
        made = msgspec.convert(rest, Comparison)
    except (msgspec.ValidationError, TypeError) as error:
        raise StoreError.at(name, f"is no comparison: {worded(error)}") from error
    if made.reference not in [one.variant.name for one in made.standings]:
        raise StoreError.at(f"{name}: at $.reference", f"no variant is named {made.reference!r}")
    if len({len(one.draws) for one in made.standings}) > 1:
        raise StoreError.at(f"{name}: at $.standings", "the variants have different numbers of draws")
    return made


def _is_comparison(path: Path) -> bool:
    try:
        document = json.loads(read_regular(path).decode("utf-8"))
    except (OSError, ValueError):
        return False
    return isinstance(document, dict) and document.get("format") == COMPARISON_FORMAT
