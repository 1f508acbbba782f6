"""What one history of a job is: its ledgers, its intervals of time in each state, and counts of what happened."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from forerun.spot.engine.events import JobStateName, NodeState

WALL_LINES = ("useful", "stall", "lost", "reconfig", "idle", "inflight", "slowdown")
NODE_LINES = ("useful", "stall", "lost", "reconfig", "inflight", "slowdown", "standby", "prepping")


@dataclass(slots=True)
class Counts:
    """How often things happened.

    Parameters
    ----------
    reconfigs, reconfig_restarts : pauses, and those that began again before they ended.
    rollbacks : losses of work.
    checkpoints_started, checkpoints_durable, checkpoints_aborted : checkpoints that began, that became durable, and
        whose write was cut short.
    steps_executed, steps_lost : with the rolled back.
    removed_active, removed_standby, removed_provisioning : nodes that vanished, by state.
    adds : nodes that came.
    idle_spells : how often the last pipeline was lost; an idle start is not among them.
    """

    reconfigs: int = 0
    reconfig_restarts: int = 0
    rollbacks: int = 0
    checkpoints_started: int = 0
    checkpoints_durable: int = 0
    checkpoints_aborted: int = 0
    steps_executed: int = 0
    steps_lost: int = 0
    removed_active: int = 0
    removed_standby: int = 0
    removed_provisioning: int = 0
    adds: int = 0
    idle_spells: int = 0

    def remove(self, state: NodeState) -> None:
        """A node vanished in this state."""
        self.removed_active += state == "active"
        self.removed_standby += state == "standby"
        self.removed_provisioning += state == "prepping"

    @property
    def removed(self) -> int:
        """Nodes that vanished, in any state."""
        return self.removed_active + self.removed_standby + self.removed_provisioning


@dataclass(frozen=True, slots=True)
class Spell:
    """An interval of time in which the job is in one state, with where the time went: [start_s, end_s).

    Parameters
    ----------
    state : of the job.
    world_size : nodes in pipelines.
    cause : why it began.
    parts_s : seconds by ledger line.
    first_step : index of its first step.
    steps_executed, steps_retained : steps completed in it, and those of them not rolled back.
    """

    state: JobStateName
    world_size: int
    start_s: float
    end_s: float
    cause: str
    parts_s: Mapping[str, float]
    first_step: int = 0
    steps_executed: int = 0
    steps_retained: int = 0


@dataclass(frozen=True, slots=True)
class NodeSpell:
    """An interval of time in which a node is in one state: [start_s, end_s).

    Parameters
    ----------
    node : its rank in the fleet.
    state : `prepping`, `standby` or `active`.
    """

    node: int
    state: NodeState
    start_s: float
    end_s: float


@dataclass(slots=True)
class Record:
    """What has happened in a run so far.

    Parameters
    ----------
    wall_s, node_s : the ledgers of wall and node time.
    counts : of events.
    spells, node_spells : intervals of the job and of the nodes, without those of no length.
    """

    wall_s: dict[str, float] = field(default_factory=lambda: dict.fromkeys(WALL_LINES, 0.0))
    node_s: dict[str, float] = field(default_factory=lambda: dict.fromkeys(NODE_LINES, 0.0))
    counts: Counts = field(default_factory=Counts)
    spells: list[Spell] = field(default_factory=list)
    node_spells: list[NodeSpell] = field(default_factory=list)

    def add(self, spell: Spell) -> None:
        """An interval of the job ended: charge the time of the job and of its nodes."""
        for line, seconds in spell.parts_s.items():
            self.wall_s[line] += seconds
            if line != "idle":
                self.node_s[line] += seconds * spell.world_size
        if spell.end_s > spell.start_s:
            self.spells.append(spell)

    def add_node(self, spell: NodeSpell) -> None:
        """An interval of a node ended. Its time is charged by whoever counts nodes."""
        if spell.end_s > spell.start_s:
            self.node_spells.append(spell)


@dataclass(frozen=True, slots=True, kw_only=True)
class Replay:
    """What happened to the job on one history of a fleet.

    Parameters
    ----------
    end_s : end of the run.
    steps_completed, steps_durable : at the end.
    wall_s, node_s : the ledgers of wall and node time.
    counts : of events.
    final_state, final_active, final_standby, final_provisioning : state of the job, and nodes in each state, at the
        end.
    spells, node_spells : intervals of the job and of the nodes.
    finished_s : when the goal's number of steps was first complete; None (default) if never, or without a goal.
    """

    end_s: float
    steps_completed: int
    steps_durable: int
    wall_s: Mapping[str, float]
    node_s: Mapping[str, float]
    counts: Counts
    final_state: JobStateName
    final_active: int
    final_standby: int
    final_provisioning: int
    spells: Sequence[Spell]
    node_spells: Sequence[NodeSpell]
    finished_s: float | None = None

    @property
    def alive_node_s(self) -> float:
        """Node-seconds paid for: the integral of the number of nodes alive."""
        return math.fsum(self.node_s.values())
