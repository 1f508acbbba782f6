"""Bounds: how good any policy can be at most, proved, and certificates that a small program checks."""

from __future__ import annotations

import os
import re
from abc import ABC, abstractmethod
from collections.abc import Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Generic, Literal, TypeVar

from forerun.core.regular import open_regular
from forerun.core.result.numbers import format_number, whole
from forerun.core.scenario.spec import Spec

S = TypeVar("S", bound=Spec)

#: how a file says what it is, by the first such key: a plan may contain a certificate
_FORMAT: Final = re.compile(rb'"format"\s*:\s*"([^"]*)')
_CERTIFICATE: Final = "forerun-bound/"


@dataclass(frozen=True, slots=True)
class Bounded:
    """What is bounded of a summary figure.

    Parameters
    ----------
    objective : the name of the objective whose bracket it is.
    share : whether the figure is a share of what the bracket counts.
    """

    objective: str
    share: bool = False


@dataclass(frozen=True, slots=True)
class Bracket:
    """What the best policy reaches lies between what a schedule reaches and what no schedule can exceed.

    Parameters
    ----------
    figure : name of the figure, with its unit.
    title : the figure in words.
    impossible : what no schedule does, in words, with {} for the bound.
    better : which way is up.
    reached : what a schedule reaches, checked apart from the search that made it; None: no schedule is known.
    bound : what no schedule exceeds, whatever it knows beforehand.
    gpus, jobs : how many of each.
    of : how many there are of what the figure counts, such as deadlines; 0 where it counts nothing.
    schedule : the schedule: job, start [s], end [s], GPUs.
    certificate : the proof of the bound as plain data; None where none can be written.
    notes : what a reader must know.
    prices : from [s], to [s], and by how much a GPU-hour then could move the bound at most (default: not known).
    price_unit : of these.
    """

    figure: str
    title: str
    impossible: str
    better: Literal["higher", "lower"]
    reached: float | None
    bound: float
    gpus: int
    jobs: int
    of: int
    schedule: tuple[tuple[str, float, float, int], ...]
    certificate: Mapping[str, Any] | None
    notes: tuple[str, ...]
    prices: tuple[tuple[float, float, float], ...] = ()
    price_unit: str = ""

    @property
    def closed(self) -> bool:
        """Whether the schedule reaches the bound, so that nothing is left to find."""
        return self.reached == self.bound

    @property
    def why(self) -> str:
        """What cannot be and what can, in a sentence."""
        reached = "no schedule is known"
        if self.reached is not None:
            reached = f"a schedule reaches {format_number(whole(self.reached))}"
        cannot = self.impossible.format(format_number(whole(self.bound)))
        settled = "; nothing is left to gain" if self.closed else ""
        return f"on {self.gpus} GPUs no scheduler, whatever it knows beforehand, {cannot}; {reached}{settled}"

    def data(self) -> dict[str, Any]:
        """The bracket as plain data, without the certificate."""
        rows = [dict(zip(("job", "start_s", "end_s", "gpus"), piece)) for piece in self.schedule]
        prices = [dict(zip(("start_s", "end_s", "price"), span)) for span in self.prices]
        names = ("figure", "title", "better", "gpus", "jobs", "of", "reached", "bound")
        own = {name: getattr(self, name) for name in names}
        return {
            **own,
            "notes": list(self.notes),
            "schedule": rows,
            "prices": prices,
            "price_unit": self.price_unit,
        }


class Bounder(ABC, Generic[S]):
    """What proves how good any policy can be at most on the scenarios of a domain.

    objectives: the names of what it bounds, the default first. figures: the summary figures among them.
    """

    objectives: tuple[str, ...] = ()
    figures: Mapping[str, Bounded] = {}

    @abstractmethod
    def search(self, scenario: S, objective: str = "", gpus: int = 0) -> Iterator[Bracket]:
        """Closer and closer brackets; the last one is the best. It may be left at any time.

        Parameters
        ----------
        scenario : whose policy does not matter.
        objective : one of `objectives` (default: the first).
        gpus : on so many GPUs (default 0: those of the scenario).

        Raises
        ------
        UnknownName
            The objective does not exist.
        UsageError
            The scenario is of a kind for which no bound is known.
        """

    @abstractmethod
    def key(self, scenario: S) -> Hashable:
        """What the brackets of a scenario depend on: scenarios of equal keys have the same ones.

        Raises UsageError if the scenario is of a kind for which no bound is known.
        """

    def not_about(self, figure: str, summary: Mapping[str, Any]) -> str:
        """Why the bound of a figure does not hold for a run with this summary; empty if it does.

        Parameters
        ----------
        figure : of `figures`.
        summary : of a run, or means over several.
        """
        return ""

    @abstractmethod
    def check(self, certificate: Path, scenario: S, gpus: Sequence[int] = ()) -> str:
        """Verify the certificate in a file, and say what was verified.

        Parameters
        ----------
        certificate : its file.
        scenario : what it is about.
        gpus : say what it proves on so many GPUs, too; the scenario's own number then need not be the certificate's
            (default: none).

        Raises CheckFailed if its claim does not follow, StoreError if it is no certificate or is about another scenario.
        """


def is_certificate(path: str | os.PathLike[str], document: dict[str, Any] | None = None) -> bool:
    """Whether a file, or its content, says that it is the certificate of a bound.

    Parameters
    ----------
    path : of the file; its first bytes are read. What cannot be read is no certificate.
    document : what it contains, where it has been read (default: it has not).
    """
    if document is not None:
        return str(document.get("format")).startswith(_CERTIFICATE)
    try:
        with open_regular(path) as file:
            first = _FORMAT.search(file.read(4096))
    except OSError:
        return False
    return first is not None and first[1].startswith(_CERTIFICATE.encode())
