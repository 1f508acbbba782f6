"""Real nodes on simulated machines: messages that are late, lost or overtaken, clocks that drift, processes that fail.

`live.node.Node` decides here as it does on a machine. Simulated are the network between it and the controller, its clock,
and shims with their ranks, which follow `live.shim`: they end with their lease by the node's clock, with their node, or when
they are asked to, and that takes a moment. Two groups on one slot, or two epochs of one job, are an error at once.
"""

from __future__ import annotations

import heapq
import itertools
import math
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

import msgspec
import numpy as np

from forerun.live.engines.engine import Command, Heartbeat, Start
from forerun.live.folder import RunFolder
from forerun.live.node import Node
from forerun.live.node_messages import (
    DrainRanks,
    FromShim,
    GroupLeft,
    KillRanks,
    LeaseEnd,
    Order,
    Over,
    Rendezvous,
    Renewal,
    Reported,
    Running,
    ToNode,
    ToShim,
)
from forerun.live.node_process import UNANSWERED_S
from forerun.live.observation import GoneWhy, Observation
from forerun.live.rank_messages import FirstStep, Progress, Saved

from .virtual import VirtualClock

#: seconds that processes take to end, at most; less than the grace
KILL_S = 0.4
#: wall seconds between two checkpoints, and between two reports
SAVE_S, REPORT_S = 30.0, 5.0


class TwoOnOne(AssertionError):
    """Two groups were on one slot, or two epochs of one job ran."""


class CountsFromReceipt(Node):
    """A seeded fault: leases count from the receipt of an answer."""

    def handle(self, message: ToNode) -> None:
        if isinstance(message, Renewal):
            message = msgspec.structs.replace(message, stamp_s=self.host.now_s())
        Node.handle(self, message)


class Unfenced(Node):
    """A seeded fault: a start is obeyed whenever it comes, if it has a lease at all."""

    def _why_not(self, start: Start) -> str:
        return "" if self.name in start.terms else "no lease"


@dataclass
class Group:
    """The ranks of a job under one epoch, on all its nodes."""

    start: Start
    slowness: float
    late_s: float
    shims: dict[str, SimulatedShim] = field(default_factory=dict)
    step: float = 0.0
    rate: float = 0.0
    begin_s: float = math.inf
    leaves: bool = False

    def done(self, now_s: float) -> int:
        """Iterations done so far."""
        worked_s = max(0.0, now_s - self.begin_s) if self.begin_s < math.inf else 0.0
        return min(math.floor(self.step + worked_s * self.rate + 1e-9), self.start.spec.iterations)


@dataclass
class SimulatedShim:
    """A shim with its ranks."""

    host: SimulatedHost
    order: Order
    group: Group
    end_s: float
    stuck: bool
    ended: bool = False
    dying: bool = False
    left: bool = False

    def say(self, message: ToShim) -> None:
        """What the node asks."""
        engine = self.host.engine
        match message:
            case LeaseEnd(end_s=end_s):
                self.end_s = max(self.end_s, end_s)
                self.watch()
            case KillRanks():
                self.kill("asked")
            case DrainRanks(by_s=by_s):
                engine.at(self.host.wall_s(by_s), lambda: self.kill("asked"))
                if self.order.ranks[0].assignment.rank == 0 and engine.rng.random() > 0.1:
                    engine.after(engine.rng.uniform(0, 2), lambda: engine.leave(self.group, "drained"))

    def end(self) -> bool:
        """The node kills it; whether nothing of it is left."""
        self.kill("failed")
        return self.ended

    def watch(self) -> None:
        """It ends with its lease; one that stands still is ended by its node."""
        end_s = self.end_s

        def look() -> None:
            if end_s == self.end_s and not self.ended and not (self.stuck and self.host.is_well):
                self.host.engine.happened["expired"] += 1
                self.kill("lease")

        self.host.engine.at(self.host.wall_s(end_s), look)
        self.host.engine.at(self.host.wall_s(end_s + 0.8), look)

    def kill(self, why: GoneWhy) -> None:
        """Its processes end in a moment."""
        if not self.dying:
            self.dying = self.group.leaves = True
            self.host.engine.after(self.host.engine.rng.uniform(0, KILL_S), lambda: self.over(why))

    def over(self, why: GoneWhy) -> None:
        """No process of it is left; ranks elsewhere cannot go on alone."""
        if self.ended:
            return
        self.ended = self.dying = True
        self.tell(Over(why=why, detail=""))
        for other in self.group.shims.values():
            if why != "exited" and not other.dying:
                self.host.engine.after(self.host.engine.rng.uniform(0, 2), other.fail)

    def fail(self) -> None:
        """Its ranks fail."""
        if not self.dying:
            if not self.left:
                self.left = True
                done = self.group.done(self.host.engine.clock.time_s)
                self.tell(GroupLeft(why="failed", step=done))
            self.kill("failed")

    def tell(self, message: FromShim) -> None:
        """Say something to the node."""
        job, epoch = self.order.job, self.order.epoch
        self.host.do(lambda node: node.heard(job, epoch, message))


class SimulatedHost:
    """A machine, its node, and the connection between that and the engine.

    Parameters
    ----------
    engine : that it belongs to.
    name, slots : of the node.
    kind : of the node's decisions.
    """

    def __init__(self, engine: FaultyEngine, name: str, slots: int, kind: type[Node]) -> None:
        self.engine, self.name, self.slots, self.kind = engine, name, slots, kind
        self.speed, self.offset = 1 + engine.rng.uniform(-0.004, 0.004), engine.rng.uniform(0, 1000)
        self.lives, self.connections = 0, 0
        self.answered_s = -math.inf
        self.is_dead = self.is_stopped = self.is_cut = False
        #: what waits while the node stands still
        self.backlog: list[Callable[[Node], None]] = []
        self.shims: list[SimulatedShim] = []
        self.node = self._born()

    @property
    def is_well(self) -> bool:
        """Whether the node is there and goes on."""
        return not self.is_dead and not self.is_stopped

    def now_s(self) -> float:
        """The machine's own clock."""
        return self.offset + self.speed * self.engine.clock.time_s

    def wall_s(self, own_s: float) -> float:
        """When the machine's clock shows something."""
        return (own_s - self.offset) / self.speed

    def begin(self, order: Order) -> SimulatedShim:
        """Start a shim."""
        engine = self.engine
        if engine.faults_on and engine.rng.random() < 0.05:
            raise OSError(11, "drawn")
        group = engine.group(order)
        shim = SimulatedShim(self, order, group, order.end_s, engine.rng.random() < 0.05)
        engine.occupy(shim)
        group.shims[self.name] = shim
        self.shims.append(shim)
        shim.watch()
        engine.after(0.0, lambda: shim.tell(Running(pid=1)))
        if set(group.shims) == set(group.start.slots):
            assert group.start.pace is not None
            engine.after(group.start.pace.start_s + group.late_s, lambda: engine.first_step(group))
        return shim

    def do(self, what: Callable[[Node], None]) -> None:
        """Let the node do something, now or once it goes on; one that is dead does nothing."""
        if self.is_stopped:
            self.backlog.append(what)
        elif not self.is_dead:
            what(self.node)
            self.flush()

    def flush(self) -> None:
        """Send what the node has to say; without a connection, nobody hears it."""
        said, self.node.out = self.node.out, []
        if not self.is_cut:
            for message in said:
                self.engine.to_controller(self, message)

    def connect(self) -> None:
        """Make a new connection; what was on its way over the former one is lost."""
        self.connections += 1
        self.answered_s = self.engine.clock.time_s
        if not self.is_dead:
            self.node.out.clear()
            self.do(Node.connected)

    def tick(self) -> None:
        """The node looks at the time; like `live.node_process`, it gives up a connection on which nobody answers."""
        if self.is_well:
            if not self.is_cut and self.engine.clock.time_s - self.answered_s > self.engine.patience_s:
                self.engine.happened["unanswered"] += 1
                self.connect()
            self.do(Node.tick)
        wait_s = 1.0 if not self.is_well else max(0.01, (self.node.next_s() - self.now_s()) / self.speed)
        self.engine.after(min(wait_s, 1.0), self.tick)

    # ------------------------------------------------------------------------------------------------------- faults

    def die(self) -> None:
        """The node process dies, and its shims see that its connection has ended."""
        self.is_dead = True
        for shim in self.shims:
            shim.kill("lease")
        self.engine.after(self.engine.rng.uniform(0.5, 60), self.revive)

    def revive(self) -> None:
        """The node's next life begins once nothing of the last one is left."""
        if any(not shim.ended for shim in self.shims):
            self.engine.after(0.1, self.revive)
            return
        self.shims, self.is_dead = [], False
        self.node = self._born()
        self.back()

    def stand_still(self) -> None:
        """The node process is stopped for a while."""
        self.is_stopped = True
        self.engine.after(self.engine.rng.uniform(0.5, 40), self.go_on)

    def go_on(self) -> None:
        """It goes on with what has come in the meantime."""
        self.is_stopped = False
        self.answered_s = self.engine.clock.time_s  # answers may lie there unread
        waiting, self.backlog = self.backlog, []
        for what in waiting:
            self.do(what)
        self.engine.plan_fault(self)

    def cut(self) -> None:
        """The connection ends, and cannot be made again for a while."""
        self.is_cut = True
        self.connections += 1
        self.engine.after(self.engine.rng.uniform(0.1, 40), self.back)

    def back(self) -> None:
        """The node can be reached again."""
        self.is_cut = False
        self.connect()
        self.engine.plan_fault(self)

    def _born(self) -> Node:
        self.lives += 1
        return self.kind(
            self.name,
            self.slots,
            self.engine.folder,
            self,
            boot=str(self.lives),
            heartbeat_s=self.engine.heartbeat_s,
        )


class FaultyEngine:
    """Machines with faults drawn from a seed.

    Parameters
    ----------
    clock : moved on by `poll`.
    nodes : slots by name.
    folder : of the run.
    rng : draws what happens.
    until_s : after it, no more faults.
    heartbeat_s : of the nodes (default: 1).
    kind : of the nodes' decisions (default: right ones).
    patience_s : seconds without an answer until a node gives up its connection (default: as `live.node_process`).
    """

    def __init__(
        self,
        clock: VirtualClock,
        nodes: Mapping[str, int],
        folder: RunFolder,
        rng: np.random.Generator,
        until_s: float,
        heartbeat_s: float = 1.0,
        kind: type[Node] = Node,
        patience_s: float = UNANSWERED_S,
    ) -> None:
        self.clock, self.folder, self.rng, self.until_s = clock, folder, rng, until_s
        self.heartbeat_s, self.patience_s = heartbeat_s, patience_s
        self.happened: Counter[str] = Counter()
        self.starts: dict[tuple[str, int], Start] = {}
        self.groups: dict[tuple[str, int], Group] = {}
        self.owner: dict[tuple[str, int], SimulatedShim] = {}
        self._slowness: dict[str, float] = {}
        self._numbers = itertools.count()
        self._events: list[tuple[float, int, Callable[[], None]]] = []
        self._inbox: list[Observation | Heartbeat] = []
        self._last_s: dict[str, float] = {}
        self.hosts = {name: SimulatedHost(self, name, slots, kind) for name, slots in nodes.items()}
        for host in self.hosts.values():
            host.connect()
            self.after(0.5, host.tick)
            self.plan_fault(host)

    @property
    def faults_on(self) -> bool:
        """Whether anything still breaks."""
        return self.clock.time_s < self.until_s

    # ------------------------------------------------------------------------------------------------- the engine

    def poll(self, timeout_s: float) -> Sequence[Observation | Heartbeat]:
        until_s = self.clock.after(timeout_s)
        while not self._inbox and self._events and self._events[0][0] <= until_s:
            at_s, _, happen = heapq.heappop(self._events)
            self.clock.time_s = max(self.clock.time_s, at_s)
            happen()
        if not self._inbox:
            self.clock.time_s = max(self.clock.time_s, until_s)
        received, self._inbox = self._inbox, []
        return received

    def wake(self) -> None:
        pass

    def send(self, command: Command) -> None:
        if isinstance(command, Start):
            self.starts[command.job, command.epoch] = command
        names = command.slots if isinstance(command, Start) else self.hosts
        for name in names:
            self._to_node(self.hosts[name], command)

    def renew(self, beat: Heartbeat, term_s: float, groups: Mapping[str, int]) -> None:
        renewal = Renewal(boot=beat.boot, stamp_s=beat.stamp_s, term_s=term_s, groups=dict(groups))
        self._to_node(self.hosts[beat.node], renewal)

    def close(self) -> None:
        pass

    def reconnect(self) -> None:
        """Another controller is there: what was on its way is lost, and nodes say what they run."""
        self._inbox.clear()
        for host in self.hosts.values():
            host.connect()

    # ------------------------------------------------------------------------------------------------- the network

    def _to_node(self, host: SimulatedHost, message: ToNode) -> None:
        connection = host.connections

        def arrive() -> None:
            if connection == host.connections:
                host.answered_s = self.clock.time_s
                host.do(lambda node: node.handle(message))

        self.after(self._delay_s(), arrive)

    def to_controller(self, host: SimulatedHost, message: Observation | Heartbeat | Rendezvous) -> None:
        """In order, unless the connection ends before."""
        assert not isinstance(message, Rendezvous)
        connection = host.connections

        def arrive() -> None:
            if connection == host.connections:
                self._inbox.append(message)

        self._last_s[host.name] = max(self._last_s.get(host.name, 0.0), self.clock.time_s + self._delay_s())
        self.at(self._last_s[host.name], arrive)

    def _delay_s(self) -> float:
        """Some messages to nodes come much later, behind others."""
        if not self.faults_on or (drawn := self.rng.random()) < 0.6:
            return 0.0
        longest_s = 0.3 if drawn < 0.97 else 9.0 if drawn < 0.995 else 30.0
        return longest_s * self.rng.random()

    # ---------------------------------------------------------------------------------------------------- the ranks

    def group(self, order: Order) -> Group:
        """The group of an order, a new one at its first."""
        key = order.job, order.epoch
        if key not in self.groups:
            start = self.starts[key]
            slow = float(self.rng.choice([1.0, 1.0, self.rng.uniform(0.7, 2)]))
            late_s = float(self.rng.choice([0.1, self.rng.uniform(0, 8)]))
            group = self.groups[key] = Group(start, self._slowness.setdefault(order.job, slow), late_s)
            group.step = 0.0 if start.checkpoint is None else float(start.checkpoint.step)
        return self.groups[key]

    def occupy(self, shim: SimulatedShim) -> None:
        """A shim begins. Raises TwoOnOne where another one is, or where the job has another epoch."""
        order, host, now_s = shim.order, shim.host, self.clock.time_s
        for key, group in self.groups.items():
            if key[0] == order.job and key[1] != order.epoch:
                for other in group.shims.values():
                    if not other.ended:
                        raise TwoOnOne(f"{order.job}: epochs {key[1]} and {order.epoch} at {now_s}")
        for rank in order.ranks:
            for slot in rank.assignment.slots:
                holder = self.owner.get((host.name, slot))
                if holder is not None and not holder.ended:
                    raise TwoOnOne(f"{host.name}:{slot} at {now_s}: {holder.order.job} and {order.job}")
                self.owner[host.name, slot] = shim

    def first_step(self, group: Group) -> None:
        """The ranks have met and begin."""
        start = group.start
        if group.leaves:
            return
        if group.step and self.rng.random() < 0.05:  # damaged: the one before is taken up
            group.step = float(start.older[0].step) if start.older else 0.0
            self.happened["corrupt"] += 1
        assert start.pace is not None
        group.rate, group.begin_s = start.pace.rate_per_s / group.slowness, self.clock.time_s
        self._speaker(group).tell(Reported(what=FirstStep(step=math.floor(group.step))))

        def report(every_s: float, what: Callable[[int], Progress | Saved]) -> None:
            if not group.leaves:
                self._speaker(group).tell(Reported(what=what(group.done(self.clock.time_s))))
                self.after(every_s, lambda: report(every_s, what))

        self.after(REPORT_S, lambda: report(REPORT_S, lambda step: Progress(step=step)))
        self.after(SAVE_S, lambda: report(SAVE_S, lambda step: self._saved(start.epoch, step)))
        self.after((start.spec.iterations - group.step) / group.rate, lambda: self.leave(group, "finished"))
        if self.faults_on and self.rng.random() < 0.1:
            victim = group.shims[str(self.rng.choice(list(group.shims)))]
            self.after(self.rng.exponential(120), lambda: self._break(victim))

    def _break(self, shim: SimulatedShim) -> None:
        self.happened["failure"] += not shim.dying
        shim.fail()

    def leave(self, group: Group, why: str) -> None:
        """All ranks leave together, at a step."""
        if group.leaves or group.begin_s == math.inf:
            return
        group.leaves = True
        speaker, step = self._speaker(group), group.done(self.clock.time_s)
        if why == "drained":
            speaker.tell(Reported(what=self._saved(group.start.epoch, step)))
        speaker.left = True
        speaker.tell(GroupLeft(why=why, step=step))  # type: ignore[arg-type]
        for shim in group.shims.values():
            if not shim.dying:
                self.after(self.rng.uniform(0, 1), lambda shim=shim: shim.over("exited"))  # type: ignore[misc]

    def _saved(self, epoch: int, step: int) -> Saved:
        return Saved(step=step, file=f"{epoch}-{step}", sha256="-")

    def _speaker(self, group: Group) -> SimulatedShim:
        """The shim of rank 0."""
        return group.shims[next(iter(group.start.slots))]

    # ------------------------------------------------------------------------------------------------------- faults

    def plan_fault(self, host: SimulatedHost) -> None:
        """A fault of a machine will come."""
        at_s = self.clock.time_s + self.rng.exponential(self.until_s / 3)
        name = str(self.rng.choice(["cut", "death", "stop"], p=[0.4, 0.3, 0.3]))
        strike = {"cut": host.cut, "death": host.die, "stop": host.stand_still}[name]

        def happen() -> None:
            self.happened[name] += 1
            strike()

        if at_s < self.until_s:
            self.at(at_s, happen)

    def after(self, wait_s: float, happen: Callable[[], None]) -> None:
        """Something happens after a while."""
        self.at(self.clock.time_s + wait_s, happen)

    def at(self, at_s: float, happen: Callable[[], None]) -> None:
        """Something happens at an instant."""
        heapq.heappush(self._events, (max(at_s, self.clock.time_s), next(self._numbers), happen))
