"""What a reader changed in a file to make it usable, and what it could not accept.

A `RepairLog` counts repairs by rule and keeps where the first three happened. With `strict` the same repairs
are errors. A `Complaints` gathers what cannot be repaired, so that one reading names many problems.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass, field

from forerun.core.errors import Problem, TraceError

SHOWN_PER_RULE = 3
MOST_COMPLAINTS = 20


@dataclass(frozen=True, slots=True)
class Repair:
    """One rule that was applied.

    Parameters
    ----------
    rule : what was done, in words.
    count : how often.
    first : where first, as `file:line`; at most three places.
    """

    rule: str
    count: int
    first: tuple[str, ...]

    def data(self) -> dict[str, object]:
        """As plain data, for files."""
        return {**asdict(self), "first": list(self.first)}

    def __str__(self) -> str:
        more = f" and {self.count - len(self.first)} more" if self.count > len(self.first) else ""
        return f"{self.rule}: {self.count} ({', '.join(self.first)}{more})"


class RepairLog:
    """Repairs made while reading one or more files, by rule in order of first use.

    `note` is called by readers as they repair; `finish` is called once when the reading is complete and
    raises `TraceError` if the log is strict and anything was repaired.
    """

    def __init__(self, *, strict: bool = False) -> None:
        self.strict = strict
        self._count: dict[str, int] = {}
        self._first: dict[str, list[str]] = {}

    def note(self, rule: str, where: str, count: int = 1) -> None:
        """Count a repair.

        Parameters
        ----------
        rule : what was done, in words; equal words are one rule.
        where : the first place, as `file:line`.
        count : how often (default: once).
        """
        self.note_many(rule, [where], count)

    def note_many(self, rule: str, wheres: Sequence[str], count: int | None = None) -> None:
        """Count repairs by one rule.

        Parameters
        ----------
        rule : what was done, in words.
        wheres : places, as `file:line`; the first three of a rule are remembered.
        count : how often, if `wheres` are the first of them only (default: once at each place).
        """
        added = len(wheres) if count is None else count
        if added == 0:
            return
        self._count[rule] = self._count.get(rule, 0) + added
        first = self._first.setdefault(rule, [])
        first.extend(wheres[: SHOWN_PER_RULE - len(first)])

    @property
    def repairs(self) -> tuple[Repair, ...]:
        """Everything noted so far."""
        return tuple(Repair(rule, n, tuple(self._first[rule])) for rule, n in self._count.items())

    def __len__(self) -> int:
        return sum(self._count.values())

    def lines(self) -> list[str]:
        """One line a rule, for people."""
        return [str(repair) for repair in self.repairs]

    def rows(self) -> list[dict[str, object]]:
        """The log as plain data, for files beside an imported trace."""
        return [repair.data() for repair in self.repairs]

    def finish(self) -> None:
        """Raise `TraceError` if repairs are not allowed and there were some."""
        if self.strict and self._count:
            raise TraceError(
                *(Problem(r.first[0], f"needs a repair, refused by strict: {r}") for r in self.repairs)
            )


@dataclass(slots=True)
class Complaints:
    """Problems of a file, gathered so that one reading names many of them.

    Parameters
    ----------
    limit : how many are raised at once, before the file is read to its end (default: 20).
    problems : those so far.
    """

    limit: int = MOST_COMPLAINTS
    problems: list[Problem] = field(default_factory=list)

    def add(self, where: str, what: str) -> None:
        """Remember one problem; raise all of them when there are enough."""
        self.problems.append(Problem(where, what))
        if len(self.problems) >= self.limit:
            self.problems.append(Problem(where, f"stopped reading after {self.limit} problems"))
            self.finish()

    def finish(self) -> None:
        """Raise `TraceError` with everything gathered, if anything was."""
        if self.problems:
            raise TraceError(*self.problems)


def shown(text: object, limit: int = 60) -> str:
    """A value from a file as it may stand in a message: quoted, escaped, shortened."""
    quoted = repr(text if len(str(text)) <= limit else str(text)[:limit])
    return quoted if len(str(text)) <= limit else f"{quoted}... ({len(str(text))} characters)"
