"""States of nodes and of the job, and the events that change them."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Provisioning:
    """Granted, not yet usable.  -> Standby at ``ready_s``; -> gone when removed."""

    ready_s: float


@dataclass(frozen=True, slots=True)
class Standby:
    """Usable, not in a pipeline.  -> Active at a re-plan; -> gone when removed."""

    ready_s: float


@dataclass(frozen=True, slots=True)
class Active:
    """In a pipeline, or in one being built.  -> Standby at a re-plan; -> gone when removed."""

    ready_s: float


NodeState = Provisioning | Standby | Active


@dataclass(frozen=True, slots=True)
class Write:
    """A checkpoint on its way to durable storage."""

    step: int
    steps_done: int
    blocked_until_s: float
    durable_s: float


@dataclass(slots=True)
class Training:
    """Running steps on ``world_size`` nodes.  -> Reconfiguring or Idle at a loss; -> Reconfiguring to grow.

    Step instants are counted from ``origin_s`` (the segment start, or the end of the last stall) as
    ``origin_s + j * step_s``, never by adding up, so that a thousand steps carry one rounding.  This is the
    one state that is updated in place: a new value a step would double the cost of a replay.
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

    @property
    def step_end_s(self) -> float:
        """When the step now running (or blocked behind a stall) ends."""
        return self.origin_s + (self.steps_done - self.origin_steps + 1) * self.step_s

    @property
    def next_step(self) -> int:
        """Index of the step now running."""
        return self.first_step + self.steps_done


@dataclass(frozen=True, slots=True)
class Reconfiguring:
    """Building pipelines of ``world_size`` nodes since ``start_s``, the last start of its clock.  -> Training
    at ``until_s``; restarts at a loss; -> Idle.
    """

    world_size: int
    start_s: float
    until_s: float


@dataclass(frozen=True, slots=True)
class Idle:
    """Fewer usable nodes than one pipeline needs.  -> Reconfiguring when there are enough."""

    start_s: float


JobState = Training | Reconfiguring | Idle


@dataclass(frozen=True, slots=True)
class CheckpointDurable:
    """The running write reached durable storage."""

    t_s: float


@dataclass(frozen=True, slots=True)
class StepEnd:
    """The running step completed."""

    t_s: float


@dataclass(frozen=True, slots=True)
class ReconfigEnd:
    """The pipelines are built; training continues."""

    t_s: float


@dataclass(frozen=True, slots=True)
class FleetChange:
    """Nodes vanish, become ready, or are added: everything of one instant, followed by one re-plan."""

    t_s: float


Event = CheckpointDurable | StepEnd | ReconfigEnd | FleetChange
