"""All published results that forerun can regenerate, by id, and all of them at once."""

from __future__ import annotations

import functools
import importlib
import math
from collections.abc import Callable, Sequence
from typing import Final

from forerun.core.errors import DataError, ForerunError, UnknownName
from forerun.core.scenario.arguments import name_of, names_of
from forerun.core.study.executors.apart import apart
from forerun.replication.reproduction import Attempt, Progress, Reproduced, Reproduction, silent

#: the systems whose results are regenerated: by domain, in the order of the domains' names
SYSTEMS: Final = (
    "elasticflow",
    "zeus",
    "cndlsys",
    "inferline",
    "bamboo",
    "oobleck",
    "cant_be_late",
    "reliability",
)
#: minutes above which a reproduction without a quick form is left out of quick runs
QUICK_MINUTES: Final = 0.8
#: minutes above which a reproduction is left out where all are run: it is run by its own id
MOST_MINUTES: Final = 2.0


def reproductions() -> tuple[Reproduction, ...]:
    """Every reproduction of every system, in the order of the systems' domains.

    Imports the module `reproduce` of each system in `SYSTEMS`, so the first call takes longer than later ones.
    """
    modules = (importlib.import_module(f"{__package__}.{system}.reproduce") for system in SYSTEMS)
    return tuple(entry for module in modules for entry in module.REPRODUCTIONS)


def reproduction(identifier: str) -> Reproduction:
    """The reproduction with an id.

    Parameters
    ----------
    identifier : as `forerun reproduce --list` shows it.

    Raises
    ------
    UnknownName : no reproduction has this id; the message lists what is known.
    """
    known = {entry.id: entry for entry in reproductions()}
    identifier = name_of(identifier)
    if identifier not in known:
        raise UnknownName.among("reproduction", identifier, known)
    return known[identifier]


def reproduce(identifier: str, *, quick: bool = False, progress: Progress = silent) -> Reproduced:
    """Reproduce one published result and compare the numbers.

    Parameters
    ----------
    identifier : as `forerun reproduce --list` shows it.
    quick : use fewer seeds and traces, if the reproduction has such a form (default: False).
    progress : called with a message at each step (default: silent).

    Raises
    ------
    UnknownName : no reproduction has this id.
    DataError : public data is missing; the message names it.
    ForerunError : whatever else the simulations raise.

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
    progress: Callable[[Attempt], None] = lambda attempt: None,
) -> tuple[Attempt, ...]:
    """Run several reproductions, in parallel; returns one attempt each, in order.

    Without identifiers, those of more than `MOST_MINUTES` are left out, and their attempts say so.

    An error in one reproduction is recorded in its attempt and does not stop the others. The slowest start first.

    Parameters
    ----------
    identifiers : as for `reproduce` (default: all).
    quick : use quick forms, and skip slow reproductions without one (default: False).
    workers : number of processes (default: 1); the results do not depend on it.
    progress : called with each attempt when it is done (default: silent).

    Raises
    ------
    UnknownName : an id is not known. This is checked before anything runs.

    >>> [attempt.entry.id for attempt in forerun.reproduce_all(["blocks-early-stop"])]
    ['blocks-early-stop']
    """
    identifiers = names_of(identifiers, "reproduce_all", "a list of reproduction ids")
    entries = [reproduction(name) for name in identifiers] if identifiers else list(reproductions())
    found: dict[str, Attempt] = {}

    def keep(attempt: Attempt) -> None:
        found[attempt.entry.id] = attempt
        progress(attempt)

    for entry in entries:
        most = QUICK_MINUTES if quick else math.inf if identifiers else MOST_MINUTES
        if entry.minutes > most and not (quick and entry.quick is not None):
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
    """The attempt that a result or an exception stands for.

    A `DataError` means that data is absent; any other exception counts as a failure.

    Parameters
    ----------
    entry : the reproduction that ran.
    result : what it returned or raised.
    wall_s : how long it took [s].
    """
    if isinstance(result, DataError):
        return Attempt(entry, absent=tuple(str(problem) for problem in result.problems), wall_s=wall_s)
    if isinstance(result, ForerunError):
        return Attempt(entry, error=str(result), wall_s=wall_s)
    if isinstance(result, Exception):
        # A defect of one must not take the others' pages with it; it is reported and counts as failed.
        return Attempt(entry, error=f"{type(result).__name__}: {result}", wall_s=wall_s)
    return Attempt(entry, result, wall_s=wall_s)
