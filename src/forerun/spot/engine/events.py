"""States of nodes and of the job, and the events that change them."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum, auto
from typing import ClassVar, Literal

JobStateName = Literal["training", "reconfiguring", "idle"]
NodeState = Literal["prepping", "standby", "active"]
"""A node is being prepared and not yet usable; usable, in no pipeline; or in a pipeline, perhaps in one being built."""


class Event(Enum):
    """What changes the state of a run, in the order in which events of one instant happen.

    Parameters
    ----------
    CHECKPOINT_DURABLE : the running write reached durable storage.
    STEP_END : the running step completed.
    RECONFIG_END : the pipelines are built, and training continues.
    FLEET_CHANGE : nodes vanish, become ready or are added; all of one instant, followed by one re-plan.
    """

    CHECKPOINT_DURABLE = auto()
    STEP_END = auto()
    RECONFIG_END = auto()
    FLEET_CHANGE = auto()


@dataclass(slots=True)
class Node:
    """A node alive.

    Parameters
    ----------
    state : `prepping` until `ready_s`, then `standby`; `active` from a re-plan that uses it to one that does not.
    ready_s : when it is, or was, usable.
    since_s : when its present state began.
    """

    state: NodeState
    ready_s: float
    since_s: float


@dataclass(frozen=True, slots=True)
class Write:
    """A checkpoint being written to durable storage.

    Parameters
    ----------
    step : the last step in it.
    steps_done : steps of the segment that it contains.
    blocked_until_s : end of the stall.
    durable_s : end of the write.
    """

    step: int
    steps_done: int
    blocked_until_s: float
    durable_s: float


@dataclass(slots=True)
class Training:
    """Running steps on `world_size` nodes, until a loss, or growth.

    Step instants are counted from `origin_s` (the segment start, or the end of the last stall) as
    `origin_s + j * step_s`, never by adding up, so that a thousand steps carry one rounding. This is the
    one state that is updated in place: a new value a step would double the cost of a replay.

    Parameters
    ----------
    world_size : nodes in pipelines.
    step_s : seconds of a step.
    start_s, first_step : instant and step at which the segment began.
    origin_s : where step instants are counted from.
    origin_steps, steps_done : steps of the segment complete at `origin_s`, and now.
    last_checkpoint_s : when the last checkpoint began, or the segment.
    write : the current one (default: none).
    durable_steps, durable_stall_s : steps of the segment that are durable, and the stalls among them.
    undurable_from_s : from when on work would be lost.
    regrow_when_durable : whether to grow when the running write is durable (default: no).
    """

    world_size: int
    step_s: float
    start_s: float
    first_step: int
    origin_s: float
    origin_steps: int = 0
    steps_done: int = 0
    last_checkpoint_s: float = 0.0
    write: Write | None = None
    durable_steps: int = 0
    durable_stall_s: float = 0.0
    undurable_from_s: float = 0.0
    regrow_when_durable: bool = False
    name: ClassVar[JobStateName] = "training"

    @property
    def step_start_s(self) -> float:
        """When the step now running began, or will begin after a stall."""
        return self.origin_s + (self.steps_done - self.origin_steps) * self.step_s

    @property
    def step_end_s(self) -> float:
        """When the step now running (or blocked behind a stall) ends."""
        return self.origin_s + (self.steps_done - self.origin_steps + 1) * self.step_s

    @property
    def last_end_s(self) -> float:
        """When the last step ended, or the segment began."""
        return self.last_checkpoint_s if self.steps_done == self.origin_steps else self.step_start_s

    @property
    def next_step(self) -> int:
        """Index of the step now running."""
        return self.first_step + self.steps_done


@dataclass(frozen=True, slots=True)
class Reconfiguring:
    """Building pipelines.

    Parameters
    ----------
    world_size : nodes in them.
    start_s : when the pause began, for the last time if it was restarted.
    until_s : when it ends.
    doomed_s : time at its start in which survivors finish a step that cannot commit (default: none).
    """

    world_size: int
    start_s: float
    until_s: float
    doomed_s: float = 0.0
    name: ClassVar[JobStateName] = "reconfiguring"


@dataclass(frozen=True, slots=True)
class Idle:
    """Fewer usable nodes than one pipeline needs.

    Parameters
    ----------
    start_s : since when.
    """

    start_s: float
    name: ClassVar[JobStateName] = "idle"
    world_size: ClassVar[int] = 0


JobState = Training | Reconfiguring | Idle
