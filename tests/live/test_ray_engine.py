"""Nodes on real raylets: they come, go, are lost and replaced, and messages survive what happens in between.

The node process is one of the tests, without jobs, but for the last test.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, TypeVar

import pytest
from tests.live.rays import Rays, cluster

from forerun.live import processes
from forerun.live.engines.engine import Checkpoint, Drain, Heartbeat, Kill, Start, Term
from forerun.live.engines.ray import GRACE_S, LEASE_RATE, LEASE_S, RayEngine, run_of
from forerun.live.engines.ray_agent import private_folder
from forerun.live.folder import RunFolder
from forerun.live.observation import (
    Checkpointed,
    FirstStep,
    Gone,
    NodeDown,
    NodeUp,
    Observation,
    Progressed,
    Started,
)
from forerun.live.spec import JobSpec

pytestmark = pytest.mark.slow

#: nobody waits longer for anything, however busy the machine is
PATIENCE_S = 240.0
NODES = {"a": 2, "b": 1}
SPEC = JobSpec(name="job", command=("true",), iterations=1)
T = TypeVar("T")


class Watched:
    """An engine, and all that it reported; heartbeats are answered."""

    def __init__(
        self, folder: RunFolder, rays: Rays, program: str = "tests.live.ray_node", lease_s: float = LEASE_S
    ) -> None:
        self.lease_s = lease_s
        self.engine = RayEngine(folder, NODES, address=rays.address, program=(program,))
        #: epochs by job of the groups whose leases go on, and the terms of the next
        self.groups: dict[str, int] = {}
        self.terms: dict[str, Term] = {}
        self.seen: list[Observation] = []
        #: when the last heartbeat of a life was answered
        self.told_s: dict[str, float] = {}

    def until(self, is_so: Callable[[list[Observation]], T]) -> T:
        """Poll until something is so of what was reported, and return it. Fails if it never is."""
        end_s = time.monotonic() + PATIENCE_S
        while not (so := is_so(self.seen)):
            assert time.monotonic() < end_s, self.seen
            for item in self.engine.poll(0.5):
                if isinstance(item, NodeUp | Heartbeat):
                    self.terms[item.node] = Term(item.boot, item.stamp_s + self.lease_s)
                if isinstance(item, Heartbeat):
                    self.told_s[item.boot] = time.monotonic()
                    self.engine.renew(item, self.lease_s, self.groups)
                else:
                    self.seen.append(item)
        return so

    def boot(self, node: str) -> str:
        """Of the life of a node that was last reported."""
        return self.until(
            lambda seen: [up.boot for up in seen if isinstance(up, NodeUp) and up.node == node]
        )[-1]

    def followed(self, node: str, boot: str) -> NodeUp:
        """Wait until a node is down, and up again in another life."""

        def is_back(seen: list[Observation]) -> NodeUp | None:
            down = NodeDown(node=node, boot=boot)
            later = seen[seen.index(down) :] if down in seen else []
            return next((up for up in later if isinstance(up, NodeUp) and up.node == node), None)

        up = self.until(is_back)
        assert up is not None and up.boot != boot
        return up

    def pids(self, node: str) -> tuple[int, int]:
        """Of a node's actor and process."""
        import ray

        member = self.engine._members[node]
        pids = ray.get(member.agent.pids.options(concurrency_group="stop").remote(), timeout=PATIENCE_S)
        return int(pids[0]), int(pids[1])


def is_gone(pid: int) -> bool:
    """Whether a process has ended, or only waits to be noticed by its parent."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z"
    except OSError:
        return True


@pytest.fixture(scope="module")
def rays() -> Iterator[Rays]:
    """A cluster of two machines."""
    with cluster() as known:
        for slots in NODES.values():
            known.add(slots)
        yield known


def test_nodes_on_raylets_that_are_lost_and_replaced(rays: Rays, tmp_path: Path) -> None:
    import ray

    folder = RunFolder.create(tmp_path / "run")
    watched = Watched(folder, rays)
    boots = {node: watched.boot(node) for node in NODES}

    # Every node of a group starts it, and the others are told where its first rank listens.
    watched.engine.send(Start(job="job", epoch=1, slots={"a": (0, 1), "b": (0,)}, spec=SPEC))
    watched.until(lambda seen: Progressed(job="job", epoch=1, step=1234) in seen)
    assert [one.node for one in watched.seen if isinstance(one, Started)] in (["a", "b"], ["b", "a"])
    assert sum(isinstance(one, Progressed) for one in watched.seen) == 1

    # What is sent to an actor that stands still arrives once it goes on, once and in order.
    actor, _ = watched.pids("a")
    os.kill(actor, signal.SIGSTOP)
    for epoch in range(2, 7):
        watched.engine.send(Kill("job", epoch))
    os.kill(actor, signal.SIGCONT)
    watched.until(lambda seen: Gone(job="job", epoch=6, node="a") in seen)
    gone = [one.epoch for one in watched.seen if isinstance(one, Gone) and one.node == "a"]
    assert gone == [2, 3, 4, 5, 6]

    # A controller that is started again takes up the nodes, and hears what they run.
    watched.engine.send(Start(job="job", epoch=7, slots={"b": (0,)}, spec=SPEC))
    watched.until(lambda seen: Started(job="job", epoch=7, node="b") in seen)
    watched.engine.leave()
    watched = Watched(folder, rays)
    ups = watched.until(
        lambda seen: {up.node: up for up in seen if isinstance(up, NodeUp)} if len(seen) > 1 else None
    )
    assert {node: up.boot for node, up in ups.items()} == boots
    assert ups["b"].holds == {"job": (7, (0,))} and ups["a"].holds == {}

    # A node process that dies ends its actor, and an actor that dies its node process; another life follows.
    actor, process = watched.pids("a")
    os.kill(process, signal.SIGKILL)
    boot = watched.followed("a", boots["a"]).boot
    actor, process = watched.pids("a")
    os.kill(actor, signal.SIGKILL)
    boot = watched.followed("a", boot).boot
    assert is_gone(process)

    # Processes of Ray outlive a raylet that is killed; the node does not. Another machine takes its place once the
    # lease is over.
    processes = watched.pids("a")
    told_s = watched.until(lambda _: watched.told_s.get(boot))
    rays.signal(ray_node(watched, "a"), signal.SIGKILL)
    watched.until(lambda _: all(map(is_gone, processes)))
    watched.until(lambda seen: NodeDown(node="a", boot=boot) in seen)
    rays.add(2)
    watched.followed("a", boot)
    assert time.monotonic() - told_s > LEASE_RATE * LEASE_S + GRACE_S

    # At the end nothing is left on the cluster.
    processes = *watched.pids("a"), *watched.pids("b")
    watched.engine.close()
    until(lambda: all(map(is_gone, processes)))
    ray.init(address=rays.address, namespace="forerun-live", logging_level="ERROR")
    assert ray.util.list_named_actors() == []
    assert {group["state"] for group in ray.util.placement_group_table().values()} == {"REMOVED"}
    ray.shutdown()


def test_ranks_on_two_machines_leave_go_on_and_end_with_their_raylet(rays: Rays, tmp_path: Path) -> None:
    folder = RunFolder.create(tmp_path / "run")
    watched = Watched(folder, rays, "forerun.live.node_process", lease_s=10 * PATIENCE_S)
    for node in NODES:
        watched.boot(node)
    command = (sys.executable, "-m", "forerun.live.programs.numpy_job")
    spec = JobSpec(name="job", command=command, iterations=10**7, batch=64)

    def start(epoch: int, slots: dict[str, tuple[int, ...]], checkpoint: Checkpoint | None) -> int:
        watched.groups["job"] = epoch
        terms = {node: watched.terms[node] for node in slots}
        watched.engine.send(Start("job", epoch, slots, spec, checkpoint, terms=terms))
        first = watched.until(
            lambda seen: [one for one in seen if isinstance(one, FirstStep) and one.epoch == epoch]
        )
        return first[0].step

    # Three ranks on two machines meet, and leave together with a checkpoint.
    assert start(1, {"a": (0, 1), "b": (0,)}, None) == 0
    watched.engine.send(Drain("job", 1, PATIENCE_S))
    watched.until(lambda seen: NODES.keys() <= {one.node for one in seen if isinstance(one, Gone)})
    assert all(one.why == "exited" for one in watched.seen if isinstance(one, Gone))
    saved = next(one for one in watched.seen if isinstance(one, Checkpointed))

    # It goes on from there on the other machine, which sees the same folder.
    step = start(2, {"b": (0,)}, Checkpoint(saved.file, saved.step, saved.sha256))
    assert step == saved.step > 0

    # The ranks end with their raylet, long before their lease, though no process of theirs is its child.
    sessions = private_folder(run_of(folder), "b") / "b.sessions"
    (shim,) = {one["pid"] for one in json.loads(sessions.read_bytes())}
    ranks = processes.in_session(shim)
    assert len(ranks) > 1
    rays.signal(ray_node(watched, "b"), signal.SIGKILL)
    until(lambda: all(map(is_gone, ranks)))
    watched.until(lambda seen: any(isinstance(one, NodeDown) and one.node == "b" for one in seen))
    watched.engine.close()


def ray_node(watched: Watched, node: str) -> str:
    """The Ray node on which a node is."""
    return watched.engine._members[node].machine.ray_node


def until(is_so: Callable[[], Any]) -> None:
    """Wait until something is so. Fails if it never is."""
    end_s = time.monotonic() + PATIENCE_S
    while not is_so():
        assert time.monotonic() < end_s
        time.sleep(0.05)
