"""All published results that the rooms can regenerate, by id, and all of them at once."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

from forerun.domains import room_part, rooms
from forerun.errors import DataError, ForerunError, UnknownName
from forerun.result.reproduction import Progress, Reproduced, Reproduction, silent
from forerun.study.executors.apart import apart

#: minutes above which a reproduction without a quick form is left out of quick runs
QUICK_MINUTES: Final = 0.8


@dataclass(frozen=True)
class Attempt:
    """One reproduction tried: what it found, or why there is nothing.

    absent: lines that name missing public data and how to get them. left_out: why a quick run did not try. error: what
    ended it.
    """

    entry: Reproduction
    found: Reproduced | None = None
    absent: tuple[str, ...] = ()
    left_out: str = ""
    error: str = ""
    wall_s: float = 0.0

    @property
    def failed(self) -> bool:
        """Whether it ended with an error, or with a number outside its tolerance."""
        return bool(self.error) or (self.found is not None and bool(self.found.failed))


def reproductions() -> tuple[Reproduction, ...]:
    """Every reproduction of every room, in the rooms' order."""
    parts = (room_part(name, "reproduce") for name in rooms())
    return tuple(entry for part in parts if part is not None for entry in part.REPRODUCTIONS)


def reproduction(identifier: str) -> Reproduction:
    """The reproduction of an id. Raises UnknownName with what is known."""
    known = {entry.id: entry for entry in reproductions()}
    if identifier not in known:
        raise UnknownName.among("reproduction", identifier, known)
    return known[identifier]


def reproduce(identifier: str, *, quick: bool = False, progress: Progress = silent) -> Reproduced:
    """One published result beside ours; `quick`: its quick form, where it has one.

    Raises UnknownName, DataError naming the public data that are not here, and what the rooms raise.

    >>> found = forerun.reproduce("blocks-early-stop")
    >>> [row.what for row in found.rows if row.ok is False]
    []
    """
    entry = reproduction(identifier)
    return (entry.quick if quick and entry.quick is not None else entry.run)(progress)


def reproduce_all(
    identifiers: Sequence[str] = (),
    *,
    quick: bool = False,
    workers: int = 1,
    watch: Callable[[Attempt], None] = lambda attempt: None,
) -> tuple[Attempt, ...]:
    """Every reproduction (or those named), in their order; `watch` is told of each as it ends.

    Nothing that ends one is raised: it is told in its place. Those said to take longest begin first. A quick run takes
    quick forms, and leaves out what has none and takes long. Results do not depend on the number of workers.

    >>> [attempt.entry.id for attempt in forerun.reproduce_all(["blocks-early-stop"])]
    ['blocks-early-stop']
    """
    entries = [reproduction(name) for name in identifiers] if identifiers else list(reproductions())
    found: dict[str, Attempt] = {}

    def keep(attempt: Attempt) -> None:
        found[attempt.entry.id] = attempt
        watch(attempt)

    for entry in entries:
        if quick and entry.quick is None and entry.minutes > QUICK_MINUTES:
            why = f"takes about {entry.minutes:g} minutes: run `forerun reproduce {entry.id}`"
            keep(Attempt(entry, left_out=why))
    todo = sorted(
        (entry for entry in entries if entry.id not in found),
        key=lambda entry: 0.0 if quick and entry.quick is not None else -entry.minutes,
    )
    for piece in apart(functools.partial(reproduce, quick=quick), [entry.id for entry in todo], workers):
        keep(_attempt(reproduction(piece.item), piece.result, piece.wall_s))
    return tuple(found[entry.id] for entry in entries)


def _attempt(entry: Reproduction, result: Reproduced | Exception, wall_s: float) -> Attempt:
    if isinstance(result, DataError):
        return Attempt(entry, absent=tuple(str(problem) for problem in result.problems), wall_s=wall_s)
    if isinstance(result, ForerunError):
        return Attempt(entry, error=str(result), wall_s=wall_s)
    if isinstance(result, Exception):
        # A defect of one must not take the others' pages with it; it is told and counts as failed.
        return Attempt(entry, error=f"{type(result).__name__}: {result}", wall_s=wall_s)
    return Attempt(entry, result, wall_s=wall_s)
