"""What a controller knows of a job: its state, a type for each, and the group of ranks that runs it.

A job is submitted, then refused, or admitted and waiting. From there it is starting, running and draining, and waits again,
until it is finished, failed or cancelled. It is lost while a node of its group is silent, until the group's leases end.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar, Literal

from forerun.live.engines.engine import Checkpoint
from forerun.live.observation import Left
from forerun.live.spec import JobSpec
from forerun.live.status import JobState


@dataclass(frozen=True, slots=True)
class _State:
    """What a job does since an instant, in seconds of the run."""

    name: ClassVar[JobState]
    since_s: float


class Submitted(_State):
    """The policy has not decided on it."""

    name = "submitted"


@dataclass(frozen=True, slots=True)
class Waiting(_State):
    """It is admitted and has no group.

    Parameters
    ----------
    not_before_s : when it may start again after a failure.
    failure : what that was, where it is known.
    """

    name = "waiting"
    not_before_s: float = 0.0
    failure: str = ""


class Starting(_State):
    """Its group was offered slots and has not begun its first step."""

    name = "starting"


class Running(_State):
    """Its group works."""

    name = "running"


class Draining(_State):
    """Its group was asked to leave, or leaves."""

    name = "draining"


class Lost(_State):
    """A node of its group is silent."""

    name = "lost"


class Finished(_State):
    """Its ranks said that all iterations are done."""

    name = "finished"


@dataclass(frozen=True, slots=True)
class Failed(_State):
    """It failed more often than it may."""

    name = "failed"
    why: str = ""


class Cancelled(_State):
    """A user took it back."""

    name = "cancelled"


@dataclass(frozen=True, slots=True)
class Refused(_State):
    """The policy did not admit it."""

    name = "refused"
    why: str = ""


State = Submitted | Waiting | Starting | Running | Draining | Lost | Finished | Failed | Cancelled | Refused
#: states with no way out
Ended = Finished | Failed | Cancelled | Refused


@dataclass(slots=True)
class Group:
    """The ranks of one start of a job.

    Parameters
    ----------
    epoch : number of the start.
    slots : numbers through the cluster.
    nodes : by node, the numbers of its slots there.
    step : iterations done, as last heard; with part of one under a clock that jumps.
    step_s : when that was so; None: before the first step.
    rate_per_s : iterations a second that the profile says.
    first_by_s : when the first step was planned for.
    present : nodes on which the group has leases.
    boots : by node, the life of its process when the start was sent.
    started : nodes that said that their part runs.
    reports : progress reports since the first step.
    first_step, first_s : iterations done at the first step, and when that was.
    asked_s : when it was asked to leave (None: it was not).
    killed : whether it was ended on purpose before its first step.
    ending : whether it was sent to its last step, under a fast-forward clock.
    left : what its ranks said when they left.
    troubles : why it ended otherwise: lost, hung, refused, or a line of its own.
    """

    epoch: int
    slots: tuple[int, ...]
    nodes: dict[str, tuple[int, ...]]
    step: float
    rate_per_s: float
    first_by_s: float
    present: set[str]
    boots: dict[str, str]
    started: set[str] = field(default_factory=set)
    step_s: float | None = None
    reports: int = 0
    first_step: int = 0
    first_s: float = 0.0
    asked_s: float | None = None
    killed: bool = False
    ending: bool = False
    left: Left | None = None
    trouble: Literal["", "lost", "hung", "refused", "failed"] = ""
    detail: str = ""

    def done(self, now_s: float, slowness: float) -> float:
        """Iterations done by an instant, if it went on as it did.

        Parameters
        ----------
        now_s : the instant.
        slowness : how many times as long as its profile says an iteration takes.
        """
        if self.step_s is None or self.left is not None:
            return float(self.step)
        worked_s = max(0.0, (now_s if self.asked_s is None else min(now_s, self.asked_s)) - self.step_s)
        return self.step + worked_s * self.rate_per_s / slowness


@dataclass(slots=True)
class Job:
    """A job of a run.

    Parameters
    ----------
    row : in the policy's setting; None: the policy was never asked.
    spec : what it runs.
    submit_s : when it was, or will be, submitted.
    state : what it does.
    epoch : number of its last start.
    group : the ranks that still have leases.
    step : iterations from which it would go on.
    part : of the step after that, done as well: under a clock that jumps ranks leave at the instant, in a step.
    saved : its checkpoints, newest first.
    slowness : how many times as long as its profile says an iteration takes, as measured.
    failures, refusals : failures of its own, and refused starts in a row.
    lost_steps : iterations that had to be done again.
    costs_again : whether its next start pays for itself, since no decision planned it.
    end_s : its end.
    spent_s : seconds in each state that it has left.
    """

    row: int | None
    spec: JobSpec
    submit_s: float
    state: State
    epoch: int = 0
    group: Group | None = None
    step: int = 0
    part: float = 0.0
    saved: tuple[Checkpoint, ...] = ()
    slowness: float = 1.0
    failures: int = 0
    refusals: int = 0
    lost_steps: int = 0
    costs_again: bool = False
    end_s: float | None = None
    spent_s: dict[JobState, float] = field(default_factory=dict)

    @property
    def name(self) -> str:
        """As its file says."""
        return self.spec.name

    def enter(self, state: State) -> None:
        """Leave the present state for another."""
        assert not isinstance(self.state, Ended), (self.name, self.state, state)
        before = self.state
        self.spent_s[before.name] = self.spent_s.get(before.name, 0.0) + state.since_s - before.since_s
        self.state = state
