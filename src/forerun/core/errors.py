"""All exceptions that forerun raises deliberately.

    ForerunError                     (exit code 1)
    ├── InputError                   (2) something the user gave is not usable
    │   ├── UsageError                   a command or call that makes no sense
    │   ├── ScenarioError                a scenario file or override
    │   ├── TraceError                   a trace file or table
    │   ├── ProfileError                 a measured profile
    │   ├── UnknownName                  a policy, domain, reader, dataset ... that does not exist
    │   ├── DataError                    public data that is absent or not what was promised
    │   └── StoreError                   a run directory or study store
    ├── PolicyError                  (2) a policy decided something impossible
    ├── Infeasible                   (3) the question has the answer "there is none"
    └── CheckFailed                  (4) a law, certificate or published figure is violated

Each carries `problems`: one `Problem` a fault, each with *where* (file and line, a path in a scenario,
a job and an instant) and *what* (what was found and what is known). `str(error)` is one line a problem.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Self

_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f]")


_LONGEST_WORD = 400
_LONG_WORD = re.compile(rf"\S{{{_LONGEST_WORD},}}")


def _cut(match: re.Match[str]) -> str:
    """The beginning of a word that is too long to read: a cell of somebody else's file, repeated in a message."""
    return f"{match[0][:80]}... ({len(match[0])} characters)"


def _spelt(match: re.Match[str]) -> str:
    return match[0].encode("unicode_escape").decode()


@dataclass(frozen=True, slots=True)
class Problem:
    """One fault: `where` names file:line, scenario path or entity; `what` says what was found and what is known."""

    where: str
    what: str

    def __str__(self) -> str:
        what = self.what if len(self.what) <= _LONGEST_WORD else _LONG_WORD.sub(_cut, self.what)
        text = f"{self.where}: {what}" if self.where else what
        # Names come from users' files: keep each problem on one line, and print no control characters.
        return text if text.isprintable() else _CONTROL.sub(_spelt, " ".join(text.splitlines()))


class ForerunError(Exception):
    """Base class of all exceptions that forerun raises deliberately; its text is one line per problem.

    >>> try:
    ...     forerun.load("nowhere.yaml")
    ... except forerun.ForerunError as error:
    ...     [(problem.where, problem.what) for problem in error.problems], error.exit_code
    ([('nowhere.yaml', 'no such file')], 2)
    """

    exit_code: ClassVar[int] = 1

    def __init__(self, *problems: Problem) -> None:
        if not problems:
            raise ValueError("an error needs at least one problem")
        super().__init__(*problems)
        self.problems: tuple[Problem, ...] = problems

    @classmethod
    def at(cls, where: object, what: str) -> Self:
        """The error with a single problem."""
        return cls(Problem(str(where), what))

    def __str__(self) -> str:
        return "\n".join(str(problem) for problem in self.problems)

    def lines(self) -> list[str]:
        """One line a cause: of problems that say the same, the first, with how many more places there are."""
        places: dict[str, list[Problem]] = {}
        for problem in self.problems:
            places.setdefault(problem.what, []).append(problem)
        return [
            str(same[0])
            + (f" (and at {more} more place{'s' * (more > 1)})" if (more := len(same) - 1) else "")
            for same in places.values()
        ]


class InputError(ForerunError):
    """Something the user gave is not usable."""

    exit_code = 2


class UsageError(InputError):
    """A command or call that makes no sense."""


class ScenarioError(InputError):
    """A scenario file or an override is wrong."""


class TraceError(InputError):
    """A trace file or table is wrong."""


class ProfileError(InputError):
    """A measured profile is wrong or does not reach where it is asked."""


class DataError(InputError):
    """Public data are absent, or not what the registry promises."""


class StoreError(InputError):
    """A run directory or study store cannot be read or written."""


class UnknownName(InputError):
    """A name that nothing answers to."""

    @classmethod
    def among(cls, kind: str, name: str, known: Iterable[str], where: str = "") -> UnknownName:
        """The error for `name`, listing what is known and the nearest match."""
        return cls(Problem(where, f"no {kind} named {name!r}; {known_names(name, known)}"))


class PolicyError(ForerunError):
    """A policy made an impossible decision; the problem names the entity, the time and what was impossible.

    so_far: the result of the run until then, if the domain provides one.
    """

    exit_code = 2
    so_far: Any = None


class Infeasible(ForerunError):
    """No answer exists; the problem names the constraint that binds."""

    exit_code = 3


class CheckFailed(ForerunError):
    """A law, certificate or published figure is violated."""

    exit_code = 4


def known_names(name: str, known: Iterable[str]) -> str:
    """`did you mean 'x'? known: a, b, x` for messages about unknown names."""
    names = sorted(known)
    hint = suggestion(name, names)
    shown = ", ".join(names[:30]) + (f", and {len(names) - 30} more" if len(names) > 30 else "")
    return f"{hint}known: {shown}" if names else f"{hint}none are known"


def suggestion(name: str, known: Sequence[str]) -> str:
    """`did you mean 'x'? ` if something known resembles `name`, else an empty string."""
    close = difflib.get_close_matches(str(name), known, n=1, cutoff=0.6)
    return f"did you mean {close[0]!r}? " if close else ""


def worded(error: Exception) -> str:
    """What reading data ran into, in words of ours: `no key cost`, or the place and then what msgspec says of it."""
    if isinstance(error, KeyError):
        return f"no key {error.args[0] if error.args else ''}"
    text = str(error)
    wrong_kind = isinstance(error, TypeError | AttributeError | IndexError | OverflowError)
    # What Python says of text that is no number.
    if wrong_kind or not text or text.startswith(("invalid literal", "could not convert")):
        return "a value is of the wrong kind"
    text = text.replace("Expected", "expected").replace("Object missing required field", "no key")
    what, _, place = text.replace("`", "").partition(" - at ")
    return f"at {place}: {what}" if place else what
