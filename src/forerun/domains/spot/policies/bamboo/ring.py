"""Training on a ring with redundant stages, as in Bamboo's own simulator, and with its defects mended.

Node (p, s) of p pipelines of S stages also holds stage s + 1, so that its predecessor can take over a lost
node's stage and the pipeline goes on, slower, until the next rendezvous deals out the stages anew.  Times are
whole milliseconds.  `Defects()` is the published simulator, event for event; `MENDED` is what it was meant to
be. [Thorpe et al., Bamboo: making preemptible instances resilient for affordable training, NSDI'23.]
"""

from __future__ import annotations

import heapq
import math
import statistics
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from random import Random
from typing import Literal, TypeAlias

HOUR_MS = 3_600_000

# Kinds in the order in which events of one millisecond happen.
ADD, REMOVE, GENERATE, READY, GLOBAL_TIMEOUT, LOCAL_TIMEOUT, STEP = range(1, 8)

Coordinate: TypeAlias = tuple[int, int]
Change: TypeAlias = tuple[int, bool, str]


@dataclass(frozen=True, slots=True, kw_only=True)
class RingJob:
    """What trains on the ring.  `step_ms` by the number of pipelines; `stages` nodes make one pipeline."""

    stages: int
    step_ms: Mapping[int, int]
    samples_per_step: int
    capacity: int
    local_ms: int
    global_ms: int = 30_000
    ready_ms: int = 45_000
    checkpoint_ms: int = 600_000
    """Time between durable checkpoints, which a fatal failure returns to (the published simulator has none)."""
    warm_start: bool = False
    """Nodes added at 0 are ready at 0, and the first rendezvous takes no time (never so as published)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Defects:
    """What is wrong with the published simulator; the defaults are the simulator as published.

    no_rollback: a fatal failure loses no step.  steps_in_pause: steps complete during a global rendezvous.
    ghost_timeouts: the timeout of a rendezvous that a later one replaced still acts, on an empty list.
    stale_waiting: waiting nodes that vanish are still counted.  heap_ties: events of one instant and kind fall as the
    heap lies, which hangs on what is yet to come; mended, in the order of the trace.
    """

    no_rollback: bool = True
    steps_in_pause: bool = True
    ghost_timeouts: bool = True
    stale_waiting: bool = True
    heap_ties: bool = True


MENDED = Defects(
    no_rollback=False, steps_in_pause=False, ghost_timeouts=False, stale_waiting=False, heap_ties=False
)


@dataclass(frozen=True, slots=True, kw_only=True)
class HourlyFleet:
    """A fleet whose nodes vanish, and whose free slots fill, with given probabilities in each hour of the
    day.

    remove: 24 probabilities that a node vanishes within the hour.  add: the same for free slots; None draws
    them.
    """

    remove: Sequence[float]
    add: Sequence[float] | None = None
    start_hour: int = 0
    seed: int = 0


NodeStatus: TypeAlias = Literal["creating", "waiting", "running"]
RingStatus: TypeAlias = Literal["stopped", "rendezvous", "running"]


@dataclass(slots=True)
class _Node:
    """A node alive: since when, in what state and since when in that, and which stages it runs."""

    born_ms: int
    since_ms: int
    state: NodeStatus = "creating"
    coordinates: list[Coordinate] = field(default_factory=list)


@dataclass(slots=True)
class Stretch:
    """A stretch of one status of the ring, with what became of its time.

    nodes: those that were dealt stages.  steps: those completed in it, kept: those of them not rolled back, whose
    time is useful or slowdown.
    """

    status: RingStatus
    nodes: int
    start_ms: int
    end_ms: int = 0
    steps: int = 0
    kept: int = 0
    useful_ms: int = 0
    slowdown_ms: int = 0


@dataclass(frozen=True, slots=True)
class NodeStretch:
    """A stretch of one state of a node."""

    node: str
    state: NodeStatus
    start_ms: int
    end_ms: int


class Payload:
    """What an event carries, and its place among events of one time and kind; of equal places, ties fall as the
    heap lies.
    """

    __slots__ = ("place", "value")

    def __init__(self, value: str | int, place: int = 0) -> None:
        self.value, self.place = value, place

    def __lt__(self, other: Payload) -> bool:
        return self.place < other.place


@dataclass(frozen=True, slots=True, kw_only=True)
class RingRun:
    """What the ring did.

    step_end_ms: when each step completed.  changes: (ms, nodes) whenever the number of nodes changed.
    wall_ms: where the time went, and stretches: what the ring did when, only with the defects mended (as
    published, it cannot be said).  removed: nodes that vanished by the state they were in.
    """

    job: RingJob
    steps: int
    step_end_ms: Sequence[int]
    first_running_ms: int | None
    changes: Sequence[tuple[int, int]]
    removals_ms: Sequence[int]
    lifetimes_ms: Sequence[int]
    fatal: int
    versions: int
    wall_ms: Mapping[str, int]
    stretches: Sequence[Stretch]
    node_stretches: Sequence[NodeStretch]
    removed: Mapping[NodeStatus, int]
    alive: Mapping[NodeStatus, int]

    @property
    def end_ms(self) -> int:
        """Time of the last step; 0 without steps."""
        return self.step_end_ms[-1] if self.step_end_ms else 0

    @property
    def samples_per_s(self) -> float:
        """Throughput from the end of the first rendezvous to the last step; 0 without steps."""
        if self.first_running_ms is None or not self.step_end_ms:
            return 0.0
        return self.job.samples_per_step * self.steps / ((self.end_ms - self.first_running_ms) / 1000)

    @property
    def mean_nodes(self) -> float:
        """Mean number of nodes until the last step."""
        return self._node_ms_until([self.end_ms])[0] / self.end_ms if self.end_ms else 0.0

    @property
    def mean_nodes_as_printed(self) -> float:
        """The same as the published simulator computes it: changes after the last step count too,
        backwards.
        """
        if not self.end_ms:
            return 0.0
        inside = sum(n * (t2 - t1) for (t1, n), (t2, _) in zip(self.changes, self.changes[1:]))
        last_ms, nodes = self.changes[-1]
        return (inside + nodes * (self.end_ms - last_ms)) / self.end_ms

    def value(self, usd_per_node_h: float) -> float:
        """Samples a second per dollar an hour, averaged over the time of the steps."""
        if not self.step_end_ms or self.first_running_ms is None:
            return 0.0
        instants = [self.first_running_ms, *self.step_end_ms]
        paid = self._node_ms_until(instants)
        spans = zip(instants, instants[1:], paid, paid[1:])
        # (B / span) / (nodes x price) x span, with nodes = (paid2 - paid1) / span.
        weighted = [(t2 - t1) / (paid2 - paid1) for t1, t2, paid1, paid2 in spans]
        rate = self.job.samples_per_step * 1000 / usd_per_node_h
        return rate * math.fsum(weighted) / (self.end_ms - self.first_running_ms)

    def _node_ms_until(self, instants_ms: Sequence[int]) -> list[int]:
        """Integral of the number of nodes from 0 to each of some ascending instants."""
        totals, total, at, i = [], 0, 0, 0
        for t_ms in instants_ms:
            while i + 1 < len(self.changes) and self.changes[i + 1][0] <= t_ms:
                total += self.changes[i][1] * (self.changes[i + 1][0] - at)
                at = self.changes[i + 1][0]
                i += 1
            total += self.changes[i][1] * (t_ms - at) if self.changes else 0
            at = t_ms
            totals.append(total)
        return totals

    def summary(self, usd_per_node_h: float) -> dict[str, float]:
        """The figures that the published simulator prints, under its names."""
        gaps = [(b - a) / HOUR_MS for a, b in zip(self.removals_ms, self.removals_ms[1:])]
        lives = [life / HOUR_MS for life in self.lifetimes_ms]
        return {
            "num_preemptions": len(self.removals_ms),
            "preemption_mean": statistics.mean(gaps) if gaps else 0.0,
            "preemption_stdev": statistics.stdev(gaps) if len(gaps) > 1 else 0.0,
            "lifetime_mean": statistics.mean(lives) if lives else 0.0,
            "lifetime_median": statistics.median(lives) if lives else 0.0,
            "lifetime_stdev": statistics.stdev(lives) if len(lives) > 1 else 0.0,
            "num_fatal_failures": self.fatal,
            "num_steps_complete": self.steps,
            "average_instances": self.mean_nodes_as_printed,
            "average_performance": self.samples_per_s,
            "average_cost": self.mean_nodes_as_printed * usd_per_node_h,
            "average_value": self.value(usd_per_node_h),
        }


def run_ring(
    job: RingJob,
    fleet: HourlyFleet | Iterable[Change],
    *,
    defects: Defects | None = None,
    goal_steps: int | None = None,
    stop_ms: int | None = None,
) -> RingRun:
    """Train on a generated fleet, or on a list of (ms, is it an addition, node), until the goal or the stop.

    Nodes alive at the stop have lived until then, as in the published simulator.
    """
    ring = Ring(job, defects or Defects())
    if isinstance(fleet, HourlyFleet):
        ring.start_generated(fleet)
    else:
        for t_ms, is_add, node in fleet:
            ring.push(t_ms, ADD if is_add else REMOVE, node)
    done = False
    while ring.heap and not done:
        key, payload = heapq.heappop(ring.heap)
        t_ms, kind = divmod(key, 16)
        if stop_ms is not None and t_ms > stop_ms:
            ring.now_ms = stop_ms
            break
        ring.now_ms = t_ms
        match kind:
            case 1:  # ADD
                ring.add(str(payload.value))
            case 2:  # REMOVE
                ring.remove(str(payload.value))
            case 3:  # GENERATE
                ring.generate()
            case 4:  # READY
                ring.ready(str(payload.value))
            case 5 | 6:  # a rendezvous' timeout
                ring.timeout(kind, int(payload.value))
            case 7:  # STEP
                ring.step(int(payload.value))
                done = ring.steps == goal_steps
            case _:
                raise AssertionError(f"no event has kind {kind}")
        if not done and (not ring.heap or ring.heap[0][0] // 16 != t_ms):
            ring.record_count()
    if stop_ms is not None and not done and not ring.defects.steps_in_pause:
        ring.now_ms = stop_ms  # with nothing left to happen, the published simulator ends at its last event
    return ring.finish()


class Ring:
    """The state of one run, and what each event does to it."""

    def __init__(self, job: RingJob, defects: Defects) -> None:
        self.job, self.defects = job, defects
        self._most = max(job.step_ms)
        self.heap: list[tuple[int, Payload]] = []
        self.pushed = 0  # stays 0 where ties fall as the heap lies
        self.now_ms = 0
        self.nodes: dict[str, _Node] = {}
        self.status: RingStatus = "stopped"
        self.listed: list[str] = []
        self.meeting = 0  # number of the current rendezvous
        self.meeting_kind = GLOBAL_TIMEOUT
        self.waiting = 0
        self.doubled: int | None = 0  # nodes that run two stages; None where a change has to be counted again
        self.version = 0
        self.pipelines = 0
        self.step_ms = 0
        self.fallback: tuple[int, int] | None = None
        self.fallback_charged = False
        self.steps = 0
        self.step_ends: list[int] = []
        self.first_running_ms: int | None = None
        self.fatal = 0
        self.removals: list[int] = []
        self.lives: list[int] = []
        self.changes: list[tuple[int, int]] = []
        self.fleet: HourlyFleet | None = None
        self.random = Random(0)
        self.add_chance: Sequence[float] = ()
        self.born = 0
        # Ledger, kept when the defects are mended.
        self.wall = dict.fromkeys(("useful", "slowdown", "lost", "reconfig", "idle", "inflight"), 0)
        self.charged_ms = 0
        self.durable_steps = 0
        self.durable_ms = 0
        self.undurable: list[
            tuple[int, int, Stretch]
        ] = []  # (useful, slowdown, when) of steps not yet durable
        self.stretch = Stretch("stopped", 0, 0)
        self.stretches: list[Stretch] = []
        self.node_stretches: list[NodeStretch] = []
        self.removed: dict[NodeStatus, int] = {"creating": 0, "waiting": 0, "running": 0}

    def push(self, t_ms: int, kind: int, value: str | int = 0) -> None:
        """Put an event on the heap."""
        if not self.defects.heap_ties:
            self.pushed += 1
        heapq.heappush(self.heap, (t_ms * 16 + kind, Payload(value, self.pushed)))

    # ------------------------------------------------------------------ the generated fleet

    def start_generated(self, fleet: HourlyFleet) -> None:
        """Draw the hourly chances of additions, then fill each slot with that of the start hour."""
        self.fleet, self.random = fleet, Random(fleet.seed)
        drawn = [self.random.random() for _ in range(24)]
        self.add_chance = drawn if fleet.add is None else fleet.add
        for _ in range(self.job.capacity):
            if self.add_chance[fleet.start_hour] > self.random.random():
                self.push(0, ADD, self._new_name())
        self.push(0, GENERATE)

    def _new_name(self) -> str:
        self.born += 1
        return f"node{self.born - 1}"

    def _draw(self, chance: float) -> int | None:
        """When within this hour something of that chance happens, if it does."""
        if chance > self.random.random():
            return self.now_ms + self.random.randrange(0, 3600) * 1000
        return None

    def generate(self) -> None:
        """Lay out the coming hour: removals of nodes alive, additions to free slots, in the order of their
        times.
        """
        assert self.fleet is not None
        self.push(self.now_ms + HOUR_MS, GENERATE)
        hour = (self.fleet.start_hour + self.now_ms // HOUR_MS) % 24
        removals: list[tuple[int, str]] = []
        for node in self.nodes:
            if (t_ms := self._draw(self.fleet.remove[hour])) is not None:
                heapq.heappush(removals, (t_ms, node))
        adds: list[int] = []
        for _ in range(self.job.capacity - len(self.nodes) + len(removals)):
            if (t_ms := self._draw(self.add_chance[hour])) is not None:
                heapq.heappush(adds, t_ms)
        alive = len(self.nodes)
        while removals or adds:
            if removals and (not adds or removals[0][0] < adds[0]):
                t_ms, node = heapq.heappop(removals)
                self.push(t_ms, REMOVE, node)
                alive -= 1
                continue
            added_ms = heapq.heappop(adds)
            if alive < self.job.capacity:
                alive += 1
                node = self._new_name()
                self.push(added_ms, ADD, node)
                t = self._draw(self.fleet.remove[hour])
                if t is not None and t >= added_ms:
                    heapq.heappush(removals, (t, node))

    # ------------------------------------------------------------------ events

    def add(self, name: str) -> None:
        """A node is granted and starts to prepare."""
        self.nodes[name] = _Node(self.now_ms, self.now_ms)
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
        self.removals.append(self.now_ms)
        self.lives.append(self.now_ms - node.born_ms)
        self.removed[node.state] += 1
        self._note(name, node)
        if node.state == "running":
            neighbour = self._predecessor(node.coordinates[0])
            if len(node.coordinates) == 2 or (neighbour is not None and len(neighbour.coordinates) == 2):
                self.fatal += 1
                self._roll_back()
                self._meet(GLOBAL_TIMEOUT)
                return
            if neighbour is not None:
                neighbour.coordinates.append(node.coordinates[0])
        elif node.state == "waiting" and not self.defects.stale_waiting and self.status == "running":
            self.waiting -= 1
            return
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

    def _predecessor(self, coordinate: Coordinate) -> _Node | None:
        """Who would take a stage over.

        As published, a ring that a ghost timeout stopped while its nodes held their stages is not closed: its first
        stage has no predecessor.
        """
        pipeline, stage = coordinate
        if stage == 0 and self.status == "stopped":
            return None
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
        """A rendezvous ends: deal out the stages in the order of the list, or meet again."""
        if meeting != self.meeting and not self.defects.ghost_timeouts:
            return
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
        self.first_running_ms = self.now_ms if self.first_running_ms is None else self.first_running_ms
        self.step_ms = self.job.step_ms[self.pipelines]
        self.push(self.now_ms + self.step_ms, STEP, self.version)

    def step(self, version: int) -> None:
        """A step ends; stages that fell to a neighbour stretch it, and may call for a local rendezvous."""
        if version != self.version or (self.status != "running" and not self.defects.steps_in_pause):
            return
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

    # ------------------------------------------------------------------ books

    def record_count(self) -> None:
        """Note the number of nodes when a millisecond is over; the first note is dated 0."""
        if self.now_ms == 0:
            return
        if not self.changes:
            self.changes.append((0, len(self.nodes)))
        elif self.changes[-1][1] != len(self.nodes):
            self.changes.append((self.now_ms, len(self.nodes)))

    def _become(self, name: str, node: _Node, state: NodeStatus) -> None:
        """A node changes its state."""
        if state != node.state:
            self._note(name, node)
            node.state, node.since_ms = state, self.now_ms

    def _note(self, name: str, node: _Node) -> None:
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
        for useful, slow, stretch in self.undurable:
            self.wall["useful"] += useful
            self.wall["slowdown"] += slow
            stretch.useful_ms += useful
            stretch.slowdown_ms += slow
            stretch.kept += 1
        self.undurable, self.durable_steps, self.durable_ms = [], steps, self.now_ms

    def _roll_back(self) -> None:
        """A fatal failure returns to the last durable checkpoint."""
        if self.defects.no_rollback:
            return
        self.wall["lost"] += sum(useful + slow for useful, slow, _ in self.undurable)
        self.undurable = []
        self.steps = self.durable_steps

    def finish(self) -> RingRun:
        """Close the books; what completed but is not durable counts."""
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
        alive = [self.now_ms - node.born_ms for node in self.nodes.values()]
        mended = not (self.defects.steps_in_pause or self.defects.ghost_timeouts or self.defects.no_rollback)
        return RingRun(
            job=self.job,
            steps=self.steps,
            step_end_ms=self.step_ends,
            first_running_ms=self.first_running_ms,
            changes=self.changes,
            removals_ms=self.removals,
            lifetimes_ms=[*self.lives, *alive],
            fatal=self.fatal,
            versions=self.version,
            wall_ms=self.wall if mended else {},
            stretches=[s for s in self.stretches if s.end_ms > s.start_ms] if mended else [],
            node_stretches=self.node_stretches,
            removed=self.removed,
            alive=states,
        )
