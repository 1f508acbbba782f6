"""Training on a ring with redundant stages, event by event.

Node (p, s) of p pipelines of S stages also has stage s + 1, so that its predecessor can take over a lost node's stage and
the pipeline goes on, slower, until the next rendezvous assigns the stages anew. Times are whole milliseconds.
[Thorpe et al., Bamboo: making preemptible instances resilient for affordable training, NSDI'23.] The simulator that was
published with the paper, with its known bugs, is `forerun.replication.bamboo.ring`.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal, TypeAlias

# Kinds in the order in which events of one millisecond happen.
ADD, REMOVE, GENERATE, READY, GLOBAL_TIMEOUT, LOCAL_TIMEOUT, STEP = range(1, 8)

Coordinate: TypeAlias = tuple[int, int]
Change: TypeAlias = tuple[int, bool, str]
"""A change of the fleet: (time in ms, whether the node is added, its name)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RingJob:
    """What trains on the ring.

    Parameters
    ----------
    stages : nodes of a pipeline.
    step_ms : the time of a step by the number of pipelines.
    local_ms, global_ms : the rendezvous after a step, and after a failure that no neighbour can cover (30 s).
    ready_ms : from the grant of a node until it is usable (45 s).
    checkpoint_ms : time between durable checkpoints, which a failure without cover returns to (10 min).
    warm_start : nodes added at 0 are ready at 0, and the first rendezvous takes no time (default: no).
    """

    stages: int
    step_ms: Mapping[int, int]
    local_ms: int
    global_ms: int = 30_000
    ready_ms: int = 45_000
    checkpoint_ms: int = 600_000
    warm_start: bool = False


NodeStatus: TypeAlias = Literal["creating", "waiting", "running"]
RingStatus: TypeAlias = Literal["stopped", "rendezvous", "running"]


@dataclass(slots=True)
class RingNode:
    """A node alive.

    Parameters
    ----------
    born_ms : when it was granted.
    since_ms : since when it is in its state.
    coordinates : (pipeline, stage) of the stages that it runs.
    """

    born_ms: int
    since_ms: int
    state: NodeStatus = "creating"
    coordinates: list[Coordinate] = field(default_factory=list)


@dataclass(slots=True)
class Stretch:
    """An interval of one status of the ring, with where its time went.

    Parameters
    ----------
    status : such as running or stopped.
    nodes : those with a stage.
    start_ms, end_ms : from when until when.
    steps : completed in it.
    retained : of those, the steps not rolled back, whose time is useful or slowdown.
    useful_ms, slowdown_ms : of these steps, the time at full speed, and what nodes with two stages take longer.
    """

    status: RingStatus
    nodes: int
    start_ms: int
    end_ms: int = 0
    steps: int = 0
    retained: int = 0
    useful_ms: int = 0
    slowdown_ms: int = 0


@dataclass(frozen=True, slots=True)
class NodeStretch:
    """An interval of one state of a node.

    Parameters
    ----------
    node : its name.
    state : being created, waiting for a stage, or running one.
    start_ms, end_ms : from when until when.
    """

    node: str
    state: NodeStatus
    start_ms: int
    end_ms: int


class Payload:
    """The value of an event, and its place among events of one time and kind.

    Parameters
    ----------
    value : the name of a node, or a number.
    place : events of equal places (default: 0) come in the order that the heap happens to have.
    """

    __slots__ = ("place", "value")

    def __init__(self, value: str | int, place: int = 0) -> None:
        self.value, self.place = value, place

    def __lt__(self, other: Payload) -> bool:
        return self.place < other.place


@dataclass(frozen=True, slots=True, kw_only=True)
class RingRun:
    """What happened on the ring.

    Parameters
    ----------
    steps : completed and not rolled back.
    step_end_ms : when each step was completed.
    fatal : failures that no neighbour could cover.
    versions : rendezvous that ended.
    wall_ms : where the time went.
    stretches, node_stretches : the status of the ring, and of every node, over time.
    removed, alive : nodes that vanished, and that are left, by state.
    added : nodes that were ever there.
    """

    steps: int
    step_end_ms: Sequence[int]
    fatal: int
    versions: int
    wall_ms: Mapping[str, int]
    stretches: Sequence[Stretch]
    node_stretches: Sequence[NodeStretch]
    removed: Mapping[NodeStatus, int]
    alive: Mapping[NodeStatus, int]
    added: int


class Ring:
    """The state of one run, and what each event does to it."""

    def __init__(self, job: RingJob) -> None:
        self.job = job
        self._most = max(job.step_ms)
        self.heap: list[tuple[int, Payload]] = []
        self.pushed = 0
        self.now_ms = 0
        self.nodes: dict[str, RingNode] = {}
        self.status: RingStatus = "stopped"
        self.listed: list[str] = []
        self.meeting = 0  # number of the current rendezvous
        self.waiting = 0
        self.doubled: int | None = 0  # nodes that run two stages; None where a change has to be counted again
        self.version = 0
        self.pipelines = 0
        self.step_ms = 0
        self.fallback: tuple[int, int] | None = None
        self.fallback_charged = False
        self.steps = 0
        self.step_ends: list[int] = []
        self.fatal = 0
        self.added = 0
        self.wall = dict.fromkeys(("useful", "slowdown", "lost", "reconfig", "idle", "inflight"), 0)
        self.charged_ms = 0
        self.durable_steps = 0
        self.durable_ms = 0
        #: (useful, slowdown, when) of steps not yet durable
        self.undurable: list[tuple[int, int, Stretch]] = []
        self.stretch = Stretch("stopped", 0, 0)
        self.stretches: list[Stretch] = []
        self.node_stretches: list[NodeStretch] = []
        self.removed: dict[NodeStatus, int] = {"creating": 0, "waiting": 0, "running": 0}

    def push(self, t_ms: int, kind: int, value: str | int = 0) -> None:
        """Put an event on the heap; events of one time and kind come in the order in which they were put there.

        Parameters
        ----------
        kind : such as `READY`.
        value : the name of a node, or the number of a rendezvous or assignment.
        """
        self.pushed += 1
        heapq.heappush(self.heap, (t_ms * 16 + kind, Payload(value, self.pushed)))

    def run(self, changes: Iterable[Change], stop_ms: int, goal_steps: int | None = None) -> RingRun:
        """Train on a fleet until the stop, or until `goal_steps` are complete.

        Parameters
        ----------
        changes : of the fleet, in any order.
        stop_ms : the end.
        goal_steps : steps to complete (default: no goal).
        """
        for t_ms, is_add, name in changes:
            self.push(t_ms, ADD if is_add else REMOVE, name)
        done = False
        while self.heap and self.heap[0][0] // 16 <= stop_ms and not done:
            key, payload = heapq.heappop(self.heap)
            self.now_ms, kind = divmod(key, 16)
            self.handle(kind, payload)
            done = kind == STEP and self.steps == goal_steps
        if not done:
            self.now_ms = stop_ms
        return self.finish()

    def handle(self, kind: int, payload: Payload) -> None:
        """Let one event happen."""
        match kind:
            case 7:  # STEP, by far the most
                self.step(int(payload.value))
            case 1:  # ADD
                self.add(str(payload.value))
            case 2:  # REMOVE
                self.remove(str(payload.value))
            case 4:  # READY
                self.ready(str(payload.value))
            case 5 | 6:  # the end of a rendezvous
                self.timeout(kind, int(payload.value))
            case _:
                raise AssertionError(f"no event has kind {kind}")

    # ------------------------------------------------------------------ events

    def add(self, name: str) -> None:
        """A node is granted and starts to prepare."""
        self.added += 1
        self.nodes[name] = RingNode(self.now_ms, self.now_ms)
        warm = self.job.warm_start and self.now_ms == 0
        self.push(self.now_ms + (0 if warm else self.job.ready_ms), READY, name)

    def ready(self, name: str) -> None:
        """A node is usable: it starts a rendezvous, joins one, or waits for the next."""
        if (node := self.nodes.get(name)) is None:
            return
        self._become(name, node, "waiting")
        if self.status == "stopped":
            self._meet(GLOBAL_TIMEOUT)
        elif self.status == "rendezvous":
            self.listed.append(name)
        else:
            self.waiting += 1

    def remove(self, name: str) -> None:
        """A node vanishes; its predecessor takes its stage over, or the failure is fatal."""
        if (node := self.nodes.pop(name, None)) is None:
            return
        self.doubled = None
        self.removed[node.state] += 1
        self._note(name, node)
        if node.state == "running":
            neighbour = self._predecessor(node.coordinates[0])
            if len(node.coordinates) == 2 or (neighbour is not None and len(neighbour.coordinates) == 2):
                self.fatal += 1
                self.roll_back()
                self._meet(GLOBAL_TIMEOUT)
                return
            if neighbour is not None:
                neighbour.coordinates.append(node.coordinates[0])
        elif node.state == "waiting" and self.status == "running":
            self.lose_waiting()
            return
        self.slow_down()

    def lose_waiting(self) -> None:
        """A waiting node vanishes; training does not notice."""
        self.waiting -= 1

    def slow_down(self) -> None:
        """Steps take longer from now on, as a neighbour runs two stages or may have to."""
        if self.status == "running" and self.fallback is None:
            self.fallback, self.fallback_charged = (self.steps, self.now_ms), False
            self.step_ms = int(1.5 * self.step_ms)

    def _pipelines_of(self, nodes: int) -> int:
        """As many pipelines as nodes are enough for and step times are known of; nodes beyond wait."""
        return min(nodes // self.job.stages, self._most)

    def _doubled(self) -> int:
        """How many nodes run two stages; counted again after a change only, as steps are many and changes few."""
        if self.doubled is None:
            self.doubled = sum(
                len(node.coordinates) == 2 for node in self.nodes.values() if node.state == "running"
            )
        return self.doubled

    def _predecessor(self, coordinate: Coordinate) -> RingNode | None:
        """The node that would take a stage over."""
        pipeline, stage = coordinate
        before = (pipeline, (stage - 1) % self.job.stages)
        return next((other for other in self.nodes.values() if before in other.coordinates), None)

    def _meet(self, kind: int) -> None:
        """All usable nodes agree who is there; it ends after a fixed time if none of them has gone."""
        self._charge_state()
        self._begin("rendezvous", self.stretch.nodes)
        self.meeting += 1
        self.listed = [name for name, node in self.nodes.items() if node.state != "creating"]
        takes_ms = self.job.global_ms if kind == GLOBAL_TIMEOUT else self.job.local_ms
        warm = self.job.warm_start and self.now_ms == 0
        self.push(self.now_ms + (0 if warm else takes_ms), kind, self.meeting)

    def timeout(self, kind: int, meeting: int) -> None:
        """A rendezvous ends: assign the stages in the order of the list, or meet again."""
        if meeting == self.meeting:  # else a later rendezvous replaced this one
            self.end_meeting(kind)

    def end_meeting(self, kind: int) -> None:
        """Assign the stages, or meet again where a listed node has vanished."""
        if any(name not in self.nodes for name in self.listed):
            self._meet(kind)
            return
        self._charge_state()
        self.pipelines = self._pipelines_of(len(self.listed))
        placed = self.pipelines * self.job.stages
        for i, name in enumerate(self.listed):
            node = self.nodes[name]
            self._become(name, node, "running" if i < placed else "waiting")
            node.coordinates = [divmod(i, self.job.stages)] if i < placed else []
        self.waiting = len(self.listed) - placed
        self.doubled = None
        self.listed = []
        self.fallback, self.fallback_charged = None, False
        self.version += 1
        if self.pipelines == 0:
            self._begin("stopped", 0)
            return
        self._begin("running", placed)
        self.step_ms = self.job.step_ms[self.pipelines]
        self.push(self.now_ms + self.step_ms, STEP, self.version)

    def step(self, version: int) -> None:
        """A step ends; stages that fell to a neighbour stretch it, and may call for a local rendezvous."""
        if version == self.version and self.status == "running":
            self.complete_step(version)

    def complete_step(self, version: int) -> None:
        """Count a step, or run its slower half first."""
        if self.fallback is not None and self.fallback[0] == self.steps and not self.fallback_charged:
            self.fallback_charged = True
            self.push(self.now_ms + int(0.5 * (self.now_ms - self.fallback[1])), STEP, version)
            return
        self._charge_step()
        self.steps += 1
        self.step_ends.append(self.now_ms)
        doubled = self._doubled()
        singles = self.pipelines * self.job.stages - doubled
        crowded = doubled > 0 and (self.waiting >= doubled or 2 * doubled / singles > 0.05)
        if crowded or self._pipelines_of(singles + self.waiting) > self.pipelines:
            self._meet(LOCAL_TIMEOUT)
        else:
            self.push(self.now_ms + self.step_ms, STEP, version)

    # ------------------------------------------------------------------ ledgers

    def _become(self, name: str, node: RingNode, state: NodeStatus) -> None:
        """A node changes its state."""
        if state != node.state:
            self._note(name, node)
            node.state, node.since_ms = state, self.now_ms

    def _note(self, name: str, node: RingNode) -> None:
        """Note the state that a node leaves."""
        if self.now_ms > node.since_ms:
            self.node_stretches.append(NodeStretch(name, node.state, node.since_ms, self.now_ms))

    def _begin(self, status: RingStatus, nodes: int) -> None:
        """The ring changes its status."""
        self.stretch.end_ms = self.now_ms
        self.stretches.append(self.stretch)
        self.status, self.stretch = status, Stretch(status, nodes, self.now_ms)

    def _charge_state(self) -> None:
        """Charge the time since the last charge to the state that ends now; a step cut short is lost."""
        line = {"stopped": "idle", "rendezvous": "reconfig", "running": "lost"}[self.status]
        self.wall[line] += self.now_ms - self.charged_ms
        self.charged_ms = self.now_ms

    def _charge_step(self) -> None:
        """Charge a completed step: its time on intact pipelines is useful, the rest slowdown."""
        span = self.now_ms - self.charged_ms
        plain = min(span, self.job.step_ms[self.pipelines])
        self.undurable.append((plain, span - plain, self.stretch))
        self.stretch.steps += 1
        self.charged_ms = self.now_ms
        if self.now_ms - self.durable_ms >= self.job.checkpoint_ms:
            self._keep(self.steps + 1)

    def _keep(self, steps: int) -> None:
        """All steps so far are durable: their time is useful, or slowdown."""
        for useful, slow, stretch in self.undurable:
            self.wall["useful"] += useful
            self.wall["slowdown"] += slow
            stretch.useful_ms += useful
            stretch.slowdown_ms += slow
            stretch.retained += 1
        self.undurable, self.durable_steps, self.durable_ms = [], steps, self.now_ms

    def roll_back(self) -> None:
        """A fatal failure returns to the last durable checkpoint."""
        self.wall["lost"] += sum(useful + slow for useful, slow, _ in self.undurable)
        self.undurable = []
        self.steps = self.durable_steps

    def finish(self) -> RingRun:
        """Close the ledger; what is completed but not durable counts."""
        if self.status == "running":
            self.wall["inflight"] += self.now_ms - self.charged_ms
            self.charged_ms = self.now_ms
        self._charge_state()
        self._keep(self.steps)
        self._begin(self.status, 0)
        states: dict[NodeStatus, int] = {"creating": 0, "waiting": 0, "running": 0}
        for name, node in self.nodes.items():
            states[node.state] += 1
            self._note(name, node)
        return RingRun(
            steps=self.steps,
            step_end_ms=self.step_ends,
            fatal=self.fatal,
            versions=self.version,
            wall_ms=self.wall,
            stretches=[one for one in self.stretches if one.end_ms > one.start_ms],
            node_stretches=self.node_stretches,
            removed=self.removed,
            alive=states,
            added=self.added,
        )
