"""All published results that the rooms can regenerate, by id, and all of them at once."""

from __future__ import annotations

import functools
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from forerun.domains import room_part, rooms
from forerun.errors import DataError, ForerunError, UnknownName
from forerun.result.reproduction import Progress, Reproduced, Reproduction, silent
from forerun.study.executors.apart import apart

#: minutes above which a reproduction without a quick form is left out of quick runs
QUICK_MINUTES: Final = 0.5


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


def reproduce(identifier: str, *, quick: bool = False, progress: Progress = silent) -> Attempt:
    """One reproduction; nothing is raised: what ends it is told.

    `quick`: its quick form, where it has one; left out if it has none and takes long.
    """
    entry = reproduction(identifier)
    start_s = time.perf_counter()
    if quick and entry.quick is None and entry.minutes > QUICK_MINUTES:
        why = f"takes about {entry.minutes:g} minutes: run `forerun reproduce {entry.id}`"
        return Attempt(entry, left_out=why)
    run = entry.quick if quick and entry.quick is not None else entry.run
    try:
        found = run(progress)
    except DataError as error:
        lines = tuple(str(problem) for problem in error.problems)
        return Attempt(entry, absent=lines, wall_s=time.perf_counter() - start_s)
    except ForerunError as error:
        return Attempt(entry, error=str(error), wall_s=time.perf_counter() - start_s)
    except Exception as error:
        # A defect of one reproduction must not take the others' pages with it; it is told and counts as failed.
        return Attempt(entry, error=f"{type(error).__name__}: {error}", wall_s=time.perf_counter() - start_s)
    return Attempt(entry, found, wall_s=time.perf_counter() - start_s)


def reproduce_all(
    identifiers: Sequence[str] = (),
    *,
    quick: bool = False,
    workers: int = 1,
    watch: Callable[[Attempt], None] = lambda attempt: None,
) -> tuple[Attempt, ...]:
    """Every reproduction (or those named), in their order; `watch` is told of each as it ends.

    Those said to take longest begin first. Each runs alone in its process, so what one holds or leaves behind does not
    reach the next; results do not depend on the number of workers.
    """
    entries = [reproduction(name) for name in identifiers] if identifiers else list(reproductions())
    found: dict[str, Attempt] = {}
    for attempt in _attempts([entry.id for entry in _longest_first(entries)], quick, workers):
        found[attempt.entry.id] = attempt
        watch(attempt)
    return tuple(found[entry.id] for entry in entries)


def _longest_first(entries: Sequence[Reproduction]) -> list[Reproduction]:
    return sorted(entries, key=lambda entry: -entry.minutes)


def _attempts(names: Sequence[str], quick: bool, workers: int) -> Iterator[Attempt]:
    for name, told in apart(functools.partial(_told, quick=quick), names, workers):
        entry = reproduction(name)
        if isinstance(told, Exception):
            yield Attempt(entry, error=f"its process ended: {type(told).__name__}")
        else:
            yield Attempt(entry, told.found, told.absent, told.left_out, told.error, told.wall_s)


@dataclass(frozen=True)
class _Told:
    """An attempt as it travels between processes, without the functions of its entry."""

    found: Reproduced | None
    absent: tuple[str, ...]
    left_out: str
    error: str
    wall_s: float


def _told(name: str, quick: bool) -> _Told:
    attempt = reproduce(name, quick=quick)
    return _Told(attempt.found, attempt.absent, attempt.left_out, attempt.error, attempt.wall_s)
