"""Replay: a run's observations go through the same controller again, and its answers are compared with the journal's."""

from __future__ import annotations

import contextlib
import itertools
from dataclasses import dataclass

import msgspec

from forerun.core.errors import PolicyError
from forerun.live.controller import Controller
from forerun.live.folder import RunFolder
from forerun.live.journal import Journal
from forerun.live.run_files import controller_of


@dataclass(frozen=True, slots=True)
class Difference:
    """The first answer that differs.

    Parameters
    ----------
    number : of the observation that it answers.
    at_s : the instant, in seconds of the run.
    journal, replay : the answer in the journal and the replayed one, as JSON; empty: there is none.
    """

    number: int
    at_s: float
    journal: str
    replay: str

    def __str__(self) -> str:
        return (
            f"observation {self.number} at {self.at_s:g} s: the journal has {self.journal or 'no answer'}, "
            f"the replay {self.replay or 'none'}"
        )


@dataclass(frozen=True, slots=True)
class Replay:
    """What a replay compared.

    Parameters
    ----------
    observations, answers, decisions : how many of each.
    difference : the first one; None if all answers are equal, byte for byte.
    """

    observations: int
    answers: int
    decisions: int
    difference: Difference | None


def replay(folder: RunFolder) -> Replay:
    """Play a run again from its folder alone: scenario, files and observations; its answers are withheld until compared.

    Raises StoreError if the folder has no journal that this program reads.
    """
    journal = Journal(folder.journal, read_only=True)
    with contextlib.closing(controller_of(folder, journal.run)) as controller:
        return _played(journal, controller)


def _played(journal: Journal, controller: Controller) -> Replay:
    """The comparison, by a controller that has observed nothing yet."""
    written = itertools.groupby(journal.answer_texts(), key=lambda row: row[0])
    expected = {number: [text for _, text in rows] for number, rows in written}
    observations = answers = 0
    for seen in journal.seen():
        observations += 1
        try:
            given = [msgspec.json.encode(answer).decode() for answer in controller.receive(seen)]
        except PolicyError as error:
            given = [f"PolicyError: {error}"]
        for there, here in itertools.zip_longest(expected.get(seen.number, ()), given, fillvalue=""):
            if there != here:
                difference = Difference(seen.number, seen.at_s, there, here)
                return Replay(observations, answers, controller.decisions, difference)
            answers += 1
    return Replay(observations, answers, controller.decisions, None)
