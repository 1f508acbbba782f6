"""Published results compared with reproduced ones: one row per number; `ok` is always computed."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

from forerun.core.result.figures import Figure


@dataclass(frozen=True)
class Row:
    """One published number and its reproduction.

    name says what it is and carries a unit. published: as printed (None: not published). compat: in the original's
    arithmetic; corrected: in ours. tolerance: absolute difference admitted between published and compat (or corrected,
    where there is no compat); None: nothing is judged. note: why it differs, what was not public, how it was derived.
    measured: what real processes on this machine did (None: nothing ran). Then the tolerance is between it and corrected,
    a simulation of the same; a published number of another machine stands beside and is not judged.
    """

    name: str
    published: float | None
    compat: float | None
    corrected: float | None
    tolerance: float | None = None
    note: str = ""
    measured: float | None = None

    @classmethod
    def unpublished(
        cls, name: str, compat: float | None = None, corrected: float | None = None, note: str = ""
    ) -> Row:
        """A number of ours beside which none is published."""
        return cls(name, None, compat, corrected, None, note)

    @property
    def ok(self) -> bool | None:
        """Whether it is within the tolerance of what it is judged by; None if it cannot be judged."""
        ours = self.compat if self.compat is not None else self.corrected
        wanted = self.published
        if self.measured is not None:
            ours, wanted = self.measured, self.corrected
        if wanted is None or self.tolerance is None:
            return None
        if ours is None or math.isnan(ours):
            return False
        # A last-bit allowance, so that 0.30 against 0.31 within 0.01 is not refused by binary rounding.
        return abs(ours - wanted) <= self.tolerance + 1e-12 * max(1.0, abs(wanted))

    def data(self) -> dict[str, Any]:
        """As plain data, for `--json`; a value that does not exist is null."""
        return {
            "name": self.name,
            "published": _number(self.published),
            "compat": _number(self.compat),
            "corrected": _number(self.corrected),
            "measured": _number(self.measured),
            "tolerance": _number(self.tolerance),
            "ok": self.ok,
            "note": self.note,
        }


@dataclass(frozen=True)
class Reproduced:
    """The outcome of a reproduction: its rows, figures like the original's, and notes."""

    rows: tuple[Row, ...]
    figures: tuple[Figure, ...] = ()
    notes: tuple[str, ...] = ()

    @property
    def failed(self) -> tuple[Row, ...]:
        """The rows outside their tolerance."""
        return tuple(row for row in self.rows if row.ok is False)

    def _repr_html_(self) -> str:
        from forerun.core.result import notebook

        head = ("what", "published", "compat", "corrected", "measured", "tolerance", "within", "note")
        return notebook.grid(head, (tuple(row.data().values()) for row in self.rows))


Progress = Callable[[str], None]


def silent(_message: str) -> None:
    """Progress that nobody watches."""


@dataclass(frozen=True)
class Reproduction:
    """A published table or figure that can be regenerated.

    id as on the command line; source: the paper and the place in it; run(progress) does the work. datasets: names in
    the registry of public data that it needs. minutes: rough time on two cores. quick(progress), if it takes long: the
    same with fewer seeds or traces, which its notes say.
    """

    id: str
    title: str
    source: str
    run: Callable[[Progress], Reproduced]
    datasets: Sequence[str] = field(default_factory=tuple)
    minutes: float = 0.1
    quick: Callable[[Progress], Reproduced] | None = None


def _number(value: float | None) -> float | None:
    return None if value is None or not math.isfinite(value) else float(value)


@dataclass(frozen=True)
class Attempt:
    """One attempt at a reproduction: its outcome, or why there is none.

    absent: lines that name missing public data and how to get them. left_out: why a run of all did not try. error: what
    ended it.
    """

    entry: Reproduction
    reproduced: Reproduced | None = None
    absent: tuple[str, ...] = ()
    left_out: str = ""
    error: str = ""
    wall_s: float = 0.0

    @property
    def failed(self) -> bool:
        """Whether it ended with an error, or with a number outside its tolerance."""
        return bool(self.error) or (self.reproduced is not None and bool(self.reproduced.failed))


def from_points(names: Sequence[str], points: Iterable[Sequence[Any]]) -> dict[str, list[Any]]:
    """The columns of points that were gathered one by one; each has a value for every name.

    >>> from_points(("x", "y"), [(1, 2.5), (2, 3.5)])
    {'x': [1, 2], 'y': [2.5, 3.5]}
    """
    columns: dict[str, list[Any]] = {name: [] for name in names}
    for point in points:
        for name, value in zip(names, point, strict=True):
            columns[name].append(value)
    return columns
