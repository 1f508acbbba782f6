"""The engine for more than one machine: a Ray cluster brings machines, transport and authentication (extra `ray`).

Every machine of the cluster that has slots gets a detached placement group of one bundle, bound to it, and a detached
actor (`ray_agent.Agent`) in that bundle; it runs the same node process as the engine of one machine. Ray restarts
neither: an actor that died is followed by another one, which is another life of the node, and empty. A node is named
after its Ray node, so a raylet that is started again is another node. A controller that is started again takes up the
actors that it left.

Messages are numbered both ways and kept until they are confirmed, so that a connection that is cut loses none and
repeats none.
"""

from __future__ import annotations

import contextlib
import hashlib
import math
import queue
import secrets
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final

from forerun.core.version import VERSION
from forerun.live import wire
from forerun.live.engines import ray_cluster
from forerun.live.engines.engine import Command, Heartbeat
from forerun.live.engines.ray_agent import Agent, Inbox, Outbox
from forerun.live.engines.ray_cluster import NAMESPACE, Machine
from forerun.live.engines.routes import Routes
from forerun.live.folder import RunFolder
from forerun.live.node_messages import FromNode, Rendezvous, Renewal, ToNode
from forerun.live.observation import NodeDown, NodeUp, Observation

#: what the node process is
NODE_PROGRAM: Final = ("forerun.live.node_process",)
#: wall seconds between two looks at which machines the cluster has
LOOK_S: Final = 1.0
#: wall seconds for which an agent waits for news before it answers without any
TAKE_S: Final = 5.0
#: wall seconds before an agent is asked again that could not be reached
RETRY_S: Final = 0.5
#: wall seconds before an agent that died is followed by another, doubled each time that it did not come up, at most
FOLLOW_S: Final = 0.5
MOST_FOLLOW_S: Final = 60.0
#: wall seconds of a lease, until the controller tells another term; how much longer they may be by the node's clock; and
#: how much later than it ends a group is certainly gone
LEASE_S: Final = 10.0
LEASE_RATE: Final = 1.01
GRACE_S: Final = 2.0
#: wall seconds that nodes have to end all groups when the run ends
CLOSE_S: Final = 8.0


@dataclass(slots=True)
class _Member:
    """A machine of the cluster in this run, as the engine knows it.

    Parameters
    ----------
    name : of the node that it is.
    machine : which.
    group : its placement group.
    agent : the actor.
    boot : the agent's; empty until it first answered.
    life : boot of the node, from its last NodeUp; empty until it came up, and after it went down.
    inbox, given : frames from it and for it.
    told_s : instant, by the monotonic clock, at which it last got a message that a lease may begin with.
    retry_s : instant, by the monotonic clock, at which it is asked again or followed; None while a question is open.
    follow : whether another actor is due then.
    follow_s : seconds before the next agent follows one that died.
    """

    name: str
    machine: Machine
    group: Any
    agent: Any
    boot: str = ""
    life: str = ""
    inbox: Inbox = field(default_factory=Inbox)
    given: Outbox = field(default_factory=Outbox)
    told_s: float = field(default_factory=time.monotonic)
    retry_s: float | None = None
    follow: bool = False
    follow_s: float = FOLLOW_S


def run_of(folder: RunFolder) -> str:
    """What the actors of a run are called; nobody who does not see its folder can guess it."""
    return hashlib.sha256(folder.nonce.read_bytes()).hexdigest()[:12]


class RayEngine:
    """An engine over the machines of a Ray cluster.

    Parameters
    ----------
    folder : of the run. Machines that see it too, at the same path, share checkpoints and logs.
    nodes : how many slots each node has, by name. Each becomes the smallest machine that is free and has as many; one
        that is lost is replaced by another one, once the leases there are over.
    address : of the cluster (empty: that of RAY_ADDRESS, or of this machine).
    program : module that is the node process, and first arguments (default: forerun's own).

    Raises UsageError where Ray is absent or admits anybody, StoreError where no cluster answers.
    """

    def __init__(
        self,
        folder: RunFolder,
        nodes: Mapping[str, int],
        *,
        address: str = "",
        program: Sequence[str] = NODE_PROGRAM,
    ) -> None:
        self._ray = ray_cluster.connect(address)
        self._folder, self._nodes = folder, dict(nodes)
        self._program = tuple(program)
        self._run = run_of(folder)
        self._session = secrets.token_hex(8)
        self._members: dict[str, _Member] = {}
        self._looked_s = self._begin_s = -math.inf
        #: until when a node or a host must not begin anew, by the monotonic clock
        self._bars_s: dict[str, float] = {}
        self._term_s = LEASE_S
        #: open questions to agents, by what Ray answers with: who was asked, and what to do with the answer
        self._open: dict[Any, tuple[_Member, Callable[[_Member, Any], None]]] = {}
        #: those that have an answer; None: somebody wants a poll to return
        self._ready: queue.SimpleQueue[Any] = queue.SimpleQueue()
        self._seen: list[Observation | Heartbeat] = []
        self._routes = Routes()
        #: guards all of the above: commands may be sent while another thread polls
        self._lock = threading.Lock()
        self._take_up()

    # ---------------------------------------------------------------------------------------------------- the engine

    def poll(self, timeout_s: float) -> Sequence[Observation | Heartbeat]:
        """Everything received since the last call, in order; waits at most `timeout_s` wall seconds for the first."""
        end_s = time.monotonic() + timeout_s
        while True:
            with self._lock:
                now_s = time.monotonic()
                self._look(now_s)
                for member in self._members.values():
                    if member.retry_s is not None and member.retry_s <= now_s:
                        self._retry(member)
                retries = [m.retry_s for m in self._members.values() if m.retry_s is not None]
                until_s = min([end_s, self._looked_s + LOOK_S, *retries])
            answered = self._wait(max(0.0, until_s - time.monotonic()))
            with self._lock:
                for question in answered:
                    self._answer(question)
                if self._seen or None in answered or time.monotonic() >= end_s:
                    seen, self._seen = self._seen, []
                    return seen

    def wake(self) -> None:
        """Let a poll that waits return now, or the next one if none does; called by any thread."""
        self._ready.put(None)

    def send(self, command: Command) -> None:
        """Send a command to the nodes concerned, without waiting for its effect."""
        with self._lock:
            for name in self._routes.of(command, self._members):
                self._give(name, command)

    def renew(self, beat: Heartbeat, term_s: float, groups: Mapping[str, int]) -> None:
        """Answer a heartbeat: the leases of these epochs, by job, end `term_s` after the heartbeat's stamp."""
        with self._lock:
            self._give(
                beat.node, Renewal(boot=beat.boot, stamp_s=beat.stamp_s, term_s=term_s, groups=dict(groups))
            )

    def close(self) -> None:
        """End every group and every process of the run."""
        with self._lock:
            agents = [member.agent for member in self._members.values()]
            groups = [member.group for member in self._members.values()]
            stops = [agent.stop.options(concurrency_group="stop").remote() for agent in agents]
            self._members.clear()
            self._open.clear()
            if stops:
                self._ray.wait(stops, num_returns=len(stops), timeout=CLOSE_S)
            for agent in agents:
                self._ray.kill(agent, no_restart=True)
            for group in groups:
                self._ray.util.remove_placement_group(group)
            self._ray.shutdown()

    def leave(self) -> None:
        """Let the nodes go on alone, until another controller takes the run up or their leases end."""
        self._ray.shutdown()

    # ---------------------------------------------------------------------------------------------------- membership

    def _look(self, now_s: float) -> None:
        """Give up the machines that are gone, and let others be nodes that are missing."""
        if now_s - self._looked_s < LOOK_S:
            return
        self._looked_s = now_s
        machines = {machine.ray_node: machine for machine in ray_cluster.machines(self._ray.nodes())}
        for name, member in list(self._members.items()):
            if member.machine.ray_node not in machines:
                del self._members[name]
                self._down(member)
                # Its bundle would wait for the machine for ever; it cannot move to another one.
                self._ray.util.remove_placement_group(member.group)
                # What ran there may run on until its lease ends; neither the node nor the host begins anew before.
                self._bars_s[name] = self._bars_s[member.machine.host] = self._lease_ends_s(member)
        used = {member.machine.ray_node for member in self._members.values()}
        spare = [
            machine
            for machine in sorted(machines.values(), key=lambda machine: machine.slots)
            if machine.ray_node not in used and self._bars_s.get(machine.host, self._begin_s) <= now_s
        ]
        for name, slots in self._nodes.items():
            if name not in self._members and self._bars_s.get(name, self._begin_s) <= now_s:
                machine = next((machine for machine in spare if machine.slots >= slots), None)
                if machine is not None:
                    spare.remove(machine)
                    self._join(name, replace(machine, slots=slots))

    def _take_up(self) -> None:
        """Take up the agents that a controller before this one left; where there are any, others wait for leases."""
        machines = {machine.ray_node: machine for machine in ray_cluster.machines(self._ray.nodes())}
        for actor in self._ray.util.list_named_actors():
            run, _, rest = actor.partition("/")
            name, _, ray_node = rest.rpartition("/")
            if run != self._run:
                continue
            self._begin_s = time.monotonic() + LEASE_S
            if ray_node in machines:
                machine = machines[ray_node]
                self._join(name, replace(machine, slots=self._nodes.get(name, machine.slots)))

    def _join(self, name: str, machine: Machine) -> None:
        """Let a machine be a node, by an agent on it: that from before if it still lives, or a new one."""
        group = self._group(name, machine)
        member = self._members[name] = _Member(name, machine, group, self._agent(name, machine, group))
        self._take(member)

    def _group(self, name: str, machine: Machine) -> Any:
        named = f"{self._run}/{name}/{machine.ray_node}"
        with contextlib.suppress(ValueError):  # there is none
            return self._ray.util.get_placement_group(named)
        return self._ray.util.placement_group(
            [{machine.resource: machine.slots}],
            strategy="STRICT_SPREAD",
            name=named,
            lifetime="detached",
            bundle_label_selector=[{"ray.io/node-id": machine.ray_node}],
        )

    def _agent(self, name: str, machine: Machine, group: Any) -> Any:
        from ray.util.scheduling_strategies import PlacementGroupSchedulingStrategy

        gpus = machine.slots if machine.resource == "GPU" else 0
        # One thread each: what is given stays in order, and nobody who waits for news holds it up.
        kind = self._ray.remote(concurrency_groups={"give": 1, "take": 2, "stop": 1})(Agent)
        actor = kind.options(
            name=f"{self._run}/{name}/{machine.ray_node}",
            namespace=NAMESPACE,
            lifetime="detached",
            get_if_exists=True,
            max_restarts=0,
            num_cpus=0,
            num_gpus=gpus,
            resources={} if gpus else {machine.resource: machine.slots},
            scheduling_strategy=PlacementGroupSchedulingStrategy(group, placement_group_bundle_index=0),
        )
        return actor.remote(name, machine.slots, str(self._folder.path), self._run, self._program, VERSION)

    def _lease_ends_s(self, member: _Member) -> float:
        """The instant by which no group of a node can still run, whatever became of the node."""
        return member.told_s + LEASE_RATE * self._term_s + GRACE_S

    def _down(self, member: _Member) -> None:
        """Report that a node is gone, if it was there."""
        if member.life:
            self._seen.append(NodeDown(node=member.name, boot=member.life))
            member.life = ""

    def _note(self, member: _Member, error: Exception) -> None:
        """Write down why an agent died, beside what its node process said."""
        with contextlib.suppress(OSError), (self._folder.path / f"{member.name}.log").open("a") as log:
            log.write(f"{member.machine.name}: {' '.join(str(error).split())[:1000]}\n")

    def _retry(self, member: _Member) -> None:
        """Ask an agent again that could not be reached, or let another one follow it."""
        member.retry_s = None
        if member.follow:
            member.follow = False
            # An agent that nobody asked for long has freed its bundle before it ended.
            member.group = self._group(member.name, member.machine)
            member.agent = self._agent(member.name, member.machine, member.group)
        self._take(member)

    # ----------------------------------------------------------------------------------------------------- messages

    def _take(self, member: _Member) -> None:
        take = member.agent.take.options(concurrency_group="take")
        self._ask(member, take.remote(self._session, member.inbox.last, TAKE_S), self._taken)

    def _taken(self, member: _Member, answer: tuple[str, int, list[bytes]]) -> None:
        boot, first, frames = answer
        if boot != member.boot:
            # What comes before the first frame was taken by an engine before this one.
            member.boot, member.inbox, member.given = boot, Inbox(first - 1), Outbox()
        for frame in member.inbox.accept(first, frames):
            self._receive(member, frame)
        self._take(member)
        self._give_again(member)

    def _give(self, name: str, message: ToNode) -> None:
        """Send a message to a node that is up; nothing happens if it is not."""
        member = self._members.get(name)
        if member is None or not member.life:
            return
        member.told_s = time.monotonic()
        frame = wire.encode(message)
        self._give_frames(member, member.given.put(frame), [frame])

    def _give_frames(self, member: _Member, first: int, frames: list[bytes]) -> None:
        give = member.agent.give.options(concurrency_group="give")
        self._ask(member, give.remote(self._session, first, frames), self._given)

    def _given(self, member: _Member, last: int) -> None:
        member.given.confirm(last)

    def _give_again(self, member: _Member) -> None:
        """Repeat what was given and has had no answer, where no answer is to come any more."""
        first, frames = member.given.waiting()
        under_way = any(asked is member and use == self._given for asked, use in self._open.values())
        if frames and not under_way:
            self._give_frames(member, first, frames)

    def _receive(self, member: _Member, frame: bytes) -> None:
        """Use a message of a node."""
        try:
            (message,) = wire.Decoder[FromNode](FromNode).feed(frame)
        except wire.WireError:
            self._ray.kill(
                member.agent, no_restart=True
            )  # no language that is known here; another one follows
            return
        for name, onward in self._routes.onward(message, member.name, self._members):
            self._give(name, onward)
        if isinstance(message, NodeUp):
            member.life, member.follow_s = message.boot, FOLLOW_S
        if not isinstance(message, Rendezvous):
            self._seen.append(message)

    # ------------------------------------------------------------------------------------------------------ questions

    def _ask(self, member: _Member, question: Any, use: Callable[[_Member, Any], None]) -> None:
        """Note an open question to an agent, and what to do with its answer."""
        self._open[question] = (member, use)
        question.future().add_done_callback(lambda _: self._ready.put(question))

    def _wait(self, wait_s: float) -> list[Any]:
        """The questions that have an answer now, and None where somebody woke this up; waits for the first."""
        ready: list[Any] = []
        with contextlib.suppress(queue.Empty):
            ready.append(self._ready.get(timeout=wait_s))
            while True:
                ready.append(self._ready.get_nowait())
        return ready

    def _answer(self, question: Any) -> None:
        """Use an answer of an agent, or what it means that there is none."""
        member, use = self._open.pop(question, (None, None))
        if member is None or use is None or self._members.get(member.name) is not member:
            return
        errors = self._ray.exceptions
        try:
            answer = self._ray.get(question)
        except errors.ActorUnavailableError:
            if use == self._taken:
                member.retry_s = time.monotonic() + RETRY_S
        except errors.RayError as error:
            if use == self._taken:  # there is always one such question, and no other needs to be followed
                self._note(member, error)
                self._down(member)
                member.follow, member.retry_s = True, time.monotonic() + member.follow_s
                member.follow_s = min(2 * member.follow_s, MOST_FOLLOW_S)
        else:
            use(member, answer)
