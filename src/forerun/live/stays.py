"""What each start of a job came to: when it held its slots, when it worked, and what was lost, from what was observed."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Final, Literal

from forerun.live.answers import Freed
from forerun.live.engines.engine import Command, Drain, Kill, Start
from forerun.live.observation import (
    Checkpointed,
    FirstStep,
    Gone,
    LeaseExpired,
    Left,
    Progressed,
    Refused,
    Seen,
)

State = Literal["starting", "useful", "lost", "draining"]
#: what a slot does while a job has it, in the order of a stay
STATES: Final[tuple[State, ...]] = ("starting", "useful", "lost", "draining")


@dataclass(slots=True)
class Stay:
    """One start of a job, until its slots were free again. Instants are seconds of the run.

    Parameters
    ----------
    job, epoch : which start of which job.
    start_s : when the start was sent.
    slots : by node, the numbers of its slots.
    first_step_s : when it began to work (None: it never did).
    first_step, step : iterations done by then, and at last.
    saved_s, saved_step : when its last checkpoint was whole, and the iterations in it (None: it made none).
    asked_s : when it was asked to leave, or ended (None: never).
    left_s, why : when its ranks said that they leave, and why: finished, drained or failed (empty: they did not say).
    free_s : by node, when its slots were free again.
    """

    job: str
    epoch: int
    start_s: float
    slots: dict[str, tuple[int, ...]]
    first_step_s: float | None = None
    first_step: int = 0
    step: int = 0
    saved_s: float | None = None
    saved_step: int | None = None
    asked_s: float | None = None
    left_s: float | None = None
    why: str = ""
    free_s: dict[str, float] = field(default_factory=dict)

    @property
    def count(self) -> int:
        """How many slots it had."""
        return sum(map(len, self.slots.values()))

    @property
    def lost_steps(self) -> int:
        """Iterations done that no checkpoint contains: they are done again."""
        if self.why in ("finished", "drained") or self.first_step_s is None:
            return 0
        return max(0, self.step - (self.first_step if self.saved_step is None else self.saved_step))

    def end_s(self, node: str, last_s: float) -> float:
        """When its slots of a node were free again, at most `last_s`."""
        return max(self.start_s, min(self.free_s.get(node, last_s), last_s))

    def parts(self, node: str, last_s: float) -> Iterator[tuple[State, float, float]]:
        """What its slots of a node did: (state, from, to), one after the other, until `last_s` at most.

        What was done after the last checkpoint is lost, unless the ranks left in an orderly way.
        """
        end = self.end_s(node, last_s)
        begin = self.first_step_s if self.first_step_s is not None else end
        leave = self.asked_s if self.asked_s is not None else self.left_s
        leave = end if leave is None else leave
        orderly = self.why in ("finished", "drained") or node not in self.free_s
        kept = leave if orderly else self.saved_s if self.saved_s is not None else begin
        marks = [self.start_s, begin, min(kept, leave), leave, end]
        for at in range(1, len(marks)):
            marks[at] = min(max(marks[at], marks[at - 1]), end)
        for state, (from_s, to_s) in zip(STATES, pairwise(marks), strict=True):
            if to_s > from_s:
                yield state, from_s, to_s


def stays_of(seen: Iterable[Seen], answered: Iterable[tuple[int, float, Command | Freed]]) -> list[Stay]:
    """The stays of a run, in the order of their starts.

    Parameters
    ----------
    seen : everything observed, in order.
    answered : commands and ends of leases, each with the number of the last observation before it and its instant in
        seconds.
    """
    stays: dict[tuple[str, int], Stay] = {}
    events: list[tuple[int, int, float, Seen | Command | Freed]] = [
        (one.number, 0, one.at_s, one) for one in seen
    ]
    events += [(number, 1, at_s, command) for number, at_s, command in answered]
    for _, _, at_s, event in sorted(events, key=lambda event: event[:2]):
        what = event.what if isinstance(event, Seen) else event
        if isinstance(what, Start):
            slots = {node: tuple(numbers) for node, numbers in what.slots.items()}
            stays.setdefault((what.job, what.epoch), Stay(what.job, what.epoch, at_s, slots))
        elif (stay := stays.get((getattr(what, "job", ""), getattr(what, "epoch", 0)))) is not None:
            _note(stay, at_s, what)
    return list(stays.values())


def _note(stay: Stay, at_s: float, what: object) -> None:
    """Write into a stay what was observed of it or sent to it."""
    match what:
        case FirstStep(step=step) if stay.first_step_s is None:
            stay.first_step_s, stay.first_step = at_s, step
            stay.step = max(stay.step, step)
        case Progressed(step=step):
            stay.step = max(stay.step, step)
        case Checkpointed(step=step):
            stay.saved_s, stay.saved_step = at_s, step
            stay.step = max(stay.step, step)
        case Drain() | Kill() if stay.asked_s is None and stay.left_s is None:
            stay.asked_s = at_s
        case Left(why=why, step=step) if stay.left_s is None:
            stay.left_s, stay.why = at_s, why
            stay.step = max(stay.step, step)
        case Gone(node=node) | LeaseExpired(node=node) | Refused(node=node) | Freed(node=node):
            stay.free_s.setdefault(node, at_s)
        case _:
            pass
