"""The nouns of the room: nodes that come and go, the job that trains on them, and what policies may see.

Times are seconds from the start of the run.  A node is known by its rank in the natural order of the names
(``node2`` before ``node10``), so that ties between nodes never depend on spelling or on hashing.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from functools import lru_cache
from typing import Literal, Protocol

ROUNDING_S = 1e-9
"""Two instants closer than this are the same instant when a snapshot rule compares them."""


# --------------------------------------------------------------------------- the fleet


@lru_cache(maxsize=65_536)
def natural_key(name: str) -> tuple[tuple[int, int, str], ...]:
    """Order of node names: text as text, runs of digits as numbers."""
    parts = re.findall(r"\d+|\D+", name)
    return tuple(
        (0, int(part), part) if part.isdigit() and part.isascii() else (1, 0, part) for part in parts
    )


@dataclass(frozen=True, slots=True)
class Instant:
    """All membership changes at one time: who vanished, and who was added."""

    t_s: float
    removed: tuple[int, ...]
    added: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Membership:
    """Who was in the fleet when: instants in time order, nodes as ranks into ``names``."""

    instants: tuple[Instant, ...]
    names: tuple[str, ...]

    @classmethod
    def from_rows(cls, rows: Iterable[tuple[float, bool, str]]) -> Membership:
        """Group rows (time in s, whether the node is added, name) by instant; rows of one instant in any
        order.
        """
        kept = list(rows)
        names = tuple(sorted({name for _, _, name in kept}, key=natural_key))
        rank = {name: number for number, name in enumerate(names)}
        grouped: dict[float, tuple[list[int], list[int]]] = {}
        for t_s, is_add, name in kept:
            grouped.setdefault(t_s, ([], []))[1 if is_add else 0].append(rank[name])
        instants = tuple(
            Instant(t_s, tuple(sorted(removed)), tuple(sorted(added)))
            for t_s, (removed, added) in sorted(grouped.items())
        )
        return cls(instants, names)

    def rows(self) -> Iterator[tuple[float, bool, str]]:
        """The changes as rows again, removals before additions within an instant."""
        for instant in self.instants:
            for node in instant.removed:
                yield instant.t_s, False, self.names[node]
            for node in instant.added:
                yield instant.t_s, True, self.names[node]

    @property
    def end_s(self) -> float:
        """Time of the last change; 0 for a trace without rows."""
        return self.instants[-1].t_s if self.instants else 0.0


@dataclass(frozen=True, slots=True)
class Prepping:
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


NodeState = Prepping | Standby | Active


# --------------------------------------------------------------------------- the job


@dataclass(frozen=True, slots=True)
class BackToBack:
    """Start the next snapshot at the first step end at which the last one is durable."""

    write: Literal["async", "sync"] = "async"

    def first_steps(self, step_s: float) -> int:
        """Steps of a segment before its first snapshot."""
        return 1

    def due(self, steps: int, step_s: float, since_snapshot_s: float) -> bool:
        """Whether to snapshot after step number ``steps`` of the segment, no write being outstanding."""
        return True

    def spacing_steps(self, step_s: float, stall_s: float, write_s: float) -> int:
        """Steps from one snapshot to the next."""
        return whole_steps(write_s, step_s)


@dataclass(frozen=True, slots=True)
class EverySteps:
    """Snapshot after every ``steps`` steps of a segment; one missed behind a running write is skipped."""

    steps: int
    write: Literal["async", "sync"] = "async"

    def first_steps(self, step_s: float) -> int:
        """Steps of a segment before its first snapshot."""
        return self.steps

    def due(self, steps: int, step_s: float, since_snapshot_s: float) -> bool:
        """Whether to snapshot after step number ``steps`` of the segment, no write being outstanding."""
        return steps % self.steps == 0

    def spacing_steps(self, step_s: float, stall_s: float, write_s: float) -> int:
        """Steps from one snapshot to the next."""
        return self.steps * whole_steps(write_s, self.steps * step_s)


@dataclass(frozen=True, slots=True)
class EverySeconds:
    """Snapshot at the first step end at least ``period_s`` after the step last snapshot (or the segment
    start).
    """

    period_s: float
    write: Literal["async", "sync"] = "async"

    def first_steps(self, step_s: float) -> int:
        """Steps of a segment before its first snapshot."""
        return whole_steps(self.period_s, step_s)

    def due(self, steps: int, step_s: float, since_snapshot_s: float) -> bool:
        """Whether to snapshot after step number ``steps`` of the segment, no write being outstanding."""
        return since_snapshot_s >= self.period_s - ROUNDING_S

    def spacing_steps(self, step_s: float, stall_s: float, write_s: float) -> int:
        """Steps from one snapshot to the next."""
        blocked_s = stall_s + (write_s if self.write == "sync" else 0.0)
        hidden_s = 0.0 if self.write == "sync" else write_s
        return max(whole_steps(self.period_s - blocked_s, step_s), whole_steps(hidden_s, step_s))


SnapshotRule = BackToBack | EverySteps | EverySeconds


def whole_steps(span_s: float, step_s: float) -> int:
    """Fewest steps, at least one, that last ``span_s``; a step short by rounding counts as whole."""
    return max(1, math.ceil(span_s / step_s - ROUNDING_S))


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """What trains: its shape, how long its steps and pauses last, and when it saves itself.

    ``step_s`` maps world size (nodes training, a multiple of ``depth``) to seconds a step.  A step is the
    same work at any world size.  ``reconfig_s`` includes loading the last durable snapshot (``load_s`` of
    it); ``write_s`` counts from the end of the stall; ``stall_s`` blocks training.
    """

    depth: int
    max_pipelines: int
    step_s: Mapping[int, float]
    reconfig_s: float
    prep_s: float
    write_s: float
    stall_s: float
    snapshot: SnapshotRule
    horizon_s: float
    load_s: float = 0.0
    min_pipelines: int = 1
    reconfig_rule: Literal["restart", "extend"] = "restart"
    warm_start: bool = True
    initial_saved: int = -1


@dataclass(frozen=True, slots=True, kw_only=True)
class Continuation:
    """Survivors go on without rolling back: after ``pause_s``, if at most ``tolerates`` nodes vanish at
    once.
    """

    pause_s: float
    tolerates: int = 1


@dataclass(frozen=True, slots=True)
class Write:
    """A snapshot on its way to durable storage."""

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
    last_snapshot_s: float = 0.0
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


# --------------------------------------------------------------------------- events


@dataclass(frozen=True, slots=True)
class SnapshotDurable:
    """The running write reached durable storage."""

    t_s: float


@dataclass(frozen=True, slots=True)
class StepEnd:
    """The running step completed."""

    t_s: float


@dataclass(frozen=True, slots=True)
class ReconfigEnd:
    """The pipelines stand; training goes on."""

    t_s: float


@dataclass(frozen=True, slots=True)
class FleetChange:
    """Nodes vanish, become ready, or are added: everything of one instant, followed by one re-plan."""

    t_s: float


Event = SnapshotDurable | StepEnd | ReconfigEnd | FleetChange


# --------------------------------------------------------------------------- what policies see and say


class Absorb(Enum):
    """What to do with nodes that would allow more pipelines."""

    NOW = "now"
    WAIT = "wait"
    AT_NEXT_DURABLE = "at_next_durable"


@dataclass(frozen=True, slots=True)
class GrowthView:
    """What a growth rule may know when standby nodes would allow more pipelines.

    ``would_lose_s`` is the training time thrown away by growing now; ``spent_s`` the time since the
    reconfiguration's clock last started, which growing would start again (0 unless reconfiguring);
    ``hit_rate_per_s`` the rate of removals that hit an active node, as far as it is known.
    """

    t_s: float
    state: Literal["training", "reconfiguring", "idle"]
    pipelines: int
    possible_pipelines: int
    step_s: float
    possible_step_s: float
    would_lose_s: float
    spent_s: float
    reconfig_s: float
    write_s: float
    hit_rate_per_s: float


class GrowthPolicy(Protocol):
    """Says whether returning nodes are taken up at once, later, or at the next durable snapshot."""

    def absorb(self, view: GrowthView) -> Absorb:
        """Decide for the nodes that stand ready at ``view.t_s``."""
        ...


# --------------------------------------------------------------------------- where the time went

WALL_LINES = ("useful", "stall", "lost", "reconfig", "idle", "inflight", "slowdown")
NODE_LINES = ("useful", "stall", "lost", "reconfig", "inflight", "slowdown", "standby", "prepping")

GOODPUT_NAMES: Mapping[str, str] = {
    "useful": "PRODUCTIVE_TRAINING",
    "lost": "WASTED_PROGRESS_FROM_DISRUPTION",
    "reconfig": "INFRASTRUCTURE_RECOVERY_FROM_DISRUPTION",
    "load": "UNPRODUCTIVE_CHECKPOINT_RESTORE",
    "stall": "UNPRODUCTIVE_CHECKPOINT_SAVE",
}
"""Our ledger lines under the badput categories that Google's ML goodput library uses."""


@dataclass(slots=True)
class Counts:
    """How often things happened."""

    reconfigs: int = 0
    reconfig_restarts: int = 0
    rollbacks: int = 0
    snapshots_started: int = 0
    snapshots_durable: int = 0
    snapshots_aborted: int = 0
    steps_executed: int = 0
    steps_lost: int = 0
    removed_active: int = 0
    removed_standby: int = 0
    removed_prepping: int = 0
    adds: int = 0
    idle_spells: int = 0


@dataclass(frozen=True, slots=True)
class Spell:
    """One stretch of one job state, with what became of its time.  Half-open: [start_s, end_s)."""

    state: Literal["training", "reconfiguring", "idle"]
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
    """One stretch of one node's life in one state.  Half-open: [start_s, end_s)."""

    node: int
    state: Literal["prepping", "standby", "active"]
    start_s: float
    end_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Replay:
    """What happened to the job on one fleet history."""

    end_s: float
    steps_completed: int
    steps_durable: int
    wall_s: Mapping[str, float]
    node_s: Mapping[str, float]
    counts: Counts
    final_state: Literal["training", "reconfiguring", "idle"]
    final_active: int
    final_standby: int
    final_prepping: int
    spells: Sequence[Spell]
    node_spells: Sequence[NodeSpell]
    finished_s: float | None = field(default=None)
    """When the wanted number of steps was first complete; None if never, or if none was wanted."""

    @property
    def alive_node_s(self) -> float:
        """Node-seconds paid for: the integral of the number of nodes alive."""
        return math.fsum(self.node_s.values())
