"""A fleet of real processes and the elastic job on it: started, killed, re-planned and logged by the clock.

The rules are those of the spot domain: a lost active node, or enough ready ones for another pipeline, starts a re-plan; all
nodes of the new shape start anew from the last durable checkpoint; steps after it are lost.  Everything that happens is
logged with the time at which it happened.
"""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import time
from dataclasses import dataclass, field
from multiprocessing.connection import Connection, wait
from pathlib import Path
from typing import Any, Literal

import numpy as np

from forerun.core.errors import ForerunError
from forerun.spot.engine.membership import natural_key
from forerun.spot.measure.worker import framed, unframed

SILENCE_S = 120.0
"""So long may a process take to answer before the run is given up."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Work:
    """What is trained and how: samples a step, pipelines of `depth` processes, checkpoints back to back.

    Parameters
    ----------
    kind : of model: `numpy` or `torch`, as `trainee` names them.
    parameters : about how many weights it has.
    batch : samples of a step, all processes together.
    depth : processes of a pipeline (default: 1).
    max_pipelines : pipelines that train at most; further ready nodes stand by (default: 2).
    bytes_per_s : slows the writes of checkpoints down as a slow store would (default: 0: as fast as it goes).
    """

    kind: str
    parameters: int
    batch: int
    depth: int = 1
    max_pipelines: int = 2
    bytes_per_s: float = 0.0


@dataclass(frozen=True, slots=True)
class CompletedStep:
    """A completed step.

    Parameters
    ----------
    number : its index.
    start_s, end_s : since the start of the run.
    loss : of its batch.
    """

    number: int
    start_s: float
    end_s: float
    loss: float


@dataclass(frozen=True, slots=True)
class CheckpointWrite:
    """A checkpoint of the state after a step.

    Parameters
    ----------
    step : its index.
    start_s, copied_s : between them training was blocked.
    durable_s : when it was on disk; infinite if it never was.
    """

    step: int
    start_s: float
    copied_s: float
    durable_s: float


@dataclass(slots=True)
class Segment:
    """Training in one shape, and the re-plan before it.

    Parameters
    ----------
    replan_s, ready_s : when the re-plan began, and when its pipelines were built.
    world : processes that train.
    first_step : index of the first.
    load_s : time to load the checkpoint.
    steps, checkpoints : what was completed, and what was written.
    end_s, cause : when and why it ended.
    """

    replan_s: float
    ready_s: float
    world: int
    first_step: int
    load_s: float
    steps: list[CompletedStep] = field(default_factory=list)
    checkpoints: list[CheckpointWrite] = field(default_factory=list)
    end_s: float = 0.0
    cause: str = ""


@dataclass(frozen=True, slots=True)
class FleetLog:
    """What happened.

    Parameters
    ----------
    segments : in order.
    prep_s : how long each node took to get ready.
    idle : (from, to) without a pipeline.
    end_s : of the run.
    """

    segments: tuple[Segment, ...]
    prep_s: tuple[float, ...]
    idle: tuple[tuple[float, float], ...]
    end_s: float


@dataclass(slots=True)
class _Node:
    """A process of the fleet.

    Parameters
    ----------
    process : of the operating system, which replaces itself by a fresh one for every shape.
    link : the socket that it speaks through; it survives the replacement.
    started_s, ready_s : when it was started and when it could train, on the fleet's clock (None: not yet).
    rank : in the present shape (None: it stands by, or is not ready).
    """

    process: subprocess.Popen[bytes]
    link: Connection
    started_s: float
    ready_s: float | None = None
    rank: int | None = None


class Fleet:
    """Processes by name, and the job on them.  A context manager: at its end no process is left."""

    def __init__(self, work: Work, folder: Path) -> None:
        self.work, self.folder = work, folder
        self.nodes: dict[str, _Node] = {}
        self.origin = time.monotonic()
        self.state: Literal["idle", "replanning", "training"] = "idle"
        self.phase: Literal["gradients", "applying", "copying"] = "gradients"
        self.shape = self.saved = 0
        self.segment: Segment | None = None
        self.segments: list[Segment] = []
        self.prep_s: list[float] = []
        self.idle: list[tuple[float, float]] = []
        self.idle_since_s = self.step_start_s = self.heard_s = 0.0
        self.awaited: set[str] = set()
        self.gradient: Any = None
        self.loss = 0.0
        self.writing: CheckpointWrite | None = None

    def __enter__(self) -> Fleet:
        return self

    def __exit__(self, *_: object) -> None:
        for node in self.nodes.values():
            node.process.kill()
            node.process.wait()
            node.link.close()

    @property
    def now_s(self) -> float:
        """Seconds since the start."""
        return time.monotonic() - self.origin

    @property
    def active(self) -> list[str]:
        """Nodes in the current shape, by rank."""
        ranked = [(node.rank, name) for name, node in self.nodes.items() if node.rank is not None]
        return [name for _, name in sorted(ranked)]

    # ------------------------------------------------------------------ nodes

    def add(self, name: str) -> None:
        """Start a process."""
        ours, theirs = socket.socketpair()
        os.set_inheritable(theirs.fileno(), True)
        settings = {
            "socket": theirs.fileno(),
            "kind": self.work.kind,
            "parameters": self.work.parameters,
            "batch": self.work.batch,
            "shape": 0,
            "rank": 0,
            "world": 1,
            "load": "",
        }
        command = [sys.executable, "-m", "forerun.spot.measure.worker", json.dumps(settings)]
        one_thread = dict.fromkeys(("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS"), "1")
        process = subprocess.Popen(
            command, pass_fds=(theirs.fileno(),), env=os.environ | one_thread, stdin=subprocess.DEVNULL
        )
        theirs.close()
        self.nodes[name] = _Node(process, Connection(ours.detach()), self.now_s)

    def remove(self, name: str) -> bool:
        """Kill a process, whatever it does.

        Returns whether it was in a pipeline.
        """
        node = self.nodes.pop(name)
        node.process.send_signal(signal.SIGKILL)
        node.process.wait()
        node.link.close()
        return node.rank is not None

    def await_ready(self) -> None:
        """Wait until every node started so far is ready."""
        while any(node.ready_s is None for node in self.nodes.values()):
            self.listen(self.now_s + 1.0)

    # ------------------------------------------------------------------ the run

    def start(self) -> None:
        """The first shape, from scratch; the clock starts when it trains, with all nodes ready since then."""
        for node in self.nodes.values():
            node.ready_s = 0.0
        self._replan("start")
        while self.state == "replanning":
            self.listen(self.now_s + 1.0)
        assert self.segment is not None
        self.origin = time.monotonic()
        self.step_start_s = self.heard_s = self.segment.replan_s = self.segment.ready_s = 0.0

    def settle(self, lost: bool) -> None:
        """Re-plan if an active node was lost, or if ready nodes make more pipelines."""
        if lost:
            self._replan("loss")
        elif self._pipelines() * self.work.depth > len(self.active):
            self._replan("growth")

    def finish(self, end_s: float) -> FleetLog:
        """Close the log at the end of the run."""
        self._close(end_s, "end")
        if self.state == "idle":
            self.idle.append((self.idle_since_s, end_s))
        return FleetLog(tuple(self.segments), tuple(self.prep_s), tuple(self.idle), end_s)

    def _pipelines(self) -> int:
        """How many pipelines the nodes that are ready make, at most `max_pipelines`."""
        ready = sum(node.ready_s is not None for node in self.nodes.values())
        return min(self.work.max_pipelines, ready // self.work.depth)

    def _replan(self, cause: str) -> None:
        """Start all nodes of the new shape anew, from the last durable checkpoint; idle if there is no pipeline."""
        now_s = self.now_s
        if self.state == "training":
            self._close(now_s, cause)
        if self.state == "idle" and self.shape:
            self.idle.append((self.idle_since_s, now_s))
        begun_s = self.segment.replan_s if self.state == "replanning" and self.segment else now_s
        self.shape += 1
        self.writing = None
        world = self._pipelines() * self.work.depth
        ready = [name for name, node in self.nodes.items() if node.ready_s is not None]
        # Those in the pipelines stay, then the longest ready, the lowest name of equals.
        ready.sort(
            key=lambda name: (self.nodes[name].rank is None, self.nodes[name].ready_s, natural_key(name))
        )
        for node in self.nodes.values():
            node.rank = None
        if world == 0:
            self.state, self.idle_since_s, self.segment, self.awaited = "idle", now_s, None, set()
            return
        self.state, self.awaited = "replanning", set(ready[:world])
        self.segment = Segment(begun_s, 0.0, world, self.saved, 0.0)
        load = str(self.folder / f"step-{self.saved}") if self.saved else ""
        for rank, name in enumerate(ready[:world]):
            self.nodes[name].rank = rank
            shape = {"shape": self.shape, "rank": rank, "world": world, "load": load}
            self._tell(name, {"do": "shape", "settings": shape})

    def _close(self, now_s: float, cause: str) -> None:
        """End the current segment; a running write never becomes durable."""
        if self.segment is None or self.state != "training":
            return
        self.segment.end_s, self.segment.cause = now_s, cause
        if self.writing is not None:
            self.segment.checkpoints.append(self.writing)
        self.segments.append(self.segment)

    # ------------------------------------------------------------------ messages

    def _tell(self, name: str, head: dict[str, Any], payload: bytes = b"") -> None:
        """Send a message to a node. Raises ForerunError if it has ended by itself."""
        try:
            self.nodes[name].link.send_bytes(framed(head, payload))
        except OSError as error:
            raise ForerunError.at(f"node {name}", f"went away by itself: {error}") from None

    def listen(self, until_s: float) -> None:
        """Handle what nodes say, at the latest until a time."""
        by_link = {node.link: name for name, node in self.nodes.items()}
        heard = wait(list(by_link), timeout=max(0.0, min(until_s - self.now_s, 1.0)))
        if self.now_s - self.heard_s > SILENCE_S and self.awaited:
            raise ForerunError.at(
                "fleet", f"nothing heard of {', '.join(sorted(self.awaited))} for {SILENCE_S:g} s"
            )
        for link in heard:
            name = by_link[link]  # type: ignore[index]
            if name not in self.nodes:
                continue
            try:
                head, payload = unframed(self.nodes[name].link.recv_bytes())
            except (EOFError, OSError):
                code = self.nodes[name].process.wait()
                raise ForerunError.at(
                    f"node {name}", f"ended by itself with code {code}; see above"
                ) from None
            self.heard_s = self.now_s
            self._hear(name, head, payload)

    def _hear(self, name: str, head: dict[str, Any], payload: memoryview) -> None:
        """Handle one message of a node; messages about a shape that is no more are dropped.

        Parameters
        ----------
        name : of the node.
        head : its fields: the shape, the event, and what belongs to it.
        payload : the bytes behind it, a gradient or nothing.
        """
        now_s = self.now_s
        if head["shape"] == 0 and head["event"] == "ready":
            node = self.nodes[name]
            node.ready_s = now_s
            self.prep_s.append(now_s - node.started_s)
            return
        if head["shape"] != self.shape:
            return  # about a shape that is no more
        match head["event"]:
            case "ready":
                self._joined(name, float(head["load_s"]), now_s)
            case "gradient":
                self._add_gradient(name, float(head["loss"]), payload)
            case "applied":
                self.awaited.discard(name)
                if not self.awaited:
                    self._step_done(now_s)
            case "copied":
                assert self.segment is not None
                self.writing = CheckpointWrite(int(head["step"]), self.step_start_s, now_s, float("inf"))
                self._begin_step(now_s)
            case "durable":
                self._durable(int(head["step"]), now_s)

    def _joined(self, name: str, load_s: float, now_s: float) -> None:
        """A node of the new shape has loaded the checkpoint; with the last of them a segment begins."""
        assert self.segment is not None
        self.awaited.discard(name)
        self.segment.load_s = max(self.segment.load_s, load_s)
        if not self.awaited:
            self.segment.ready_s, self.state = now_s, "training"
            self._begin_step(now_s)

    def _begin_step(self, now_s: float) -> None:
        """Ask all nodes of the shape for their share of the gradient."""
        assert self.segment is not None
        number = self.segment.first_step + len(self.segment.steps)
        self.step_start_s, self.phase = now_s, "gradients"
        self.awaited, self.gradient, self.loss = set(self.active), None, 0.0
        for name in self.active:
            self._tell(name, {"do": "step", "step": number})

    def _add_gradient(self, name: str, loss: float, payload: memoryview) -> None:
        """Add a node's share of the gradient; with the last share the sum is sent to all, who apply it."""
        share = np.frombuffer(payload, dtype=np.float32)
        self.gradient = share.copy() if self.gradient is None else self.gradient + share
        self.loss += loss
        self.awaited.discard(name)
        if self.awaited:
            return
        self.phase, self.awaited = "applying", set(self.active)
        whole = self.gradient.tobytes()
        for one in self.active:
            self._tell(one, {"do": "apply"}, whole)

    def _step_done(self, now_s: float) -> None:
        """All nodes have applied the gradient: the step is complete.

        If no checkpoint is being written, the first node copies the state for one; the next step begins after that.
        """
        assert self.segment is not None
        number = self.segment.first_step + len(self.segment.steps)
        self.segment.steps.append(CompletedStep(number, self.step_start_s, now_s, self.loss))
        if self.writing is not None:
            self._begin_step(now_s)
            return
        self.phase, self.step_start_s = "copying", now_s
        path = str(self.folder / f"step-{number + 1}")
        first = self.active[0]
        self._tell(
            first, {"do": "snapshot", "step": number, "path": path, "bytes_per_s": self.work.bytes_per_s}
        )

    def _durable(self, step: int, now_s: float) -> None:
        """A checkpoint is on disk: its step can no longer be lost."""
        assert self.segment is not None and self.writing is not None
        written = CheckpointWrite(step, self.writing.start_s, self.writing.copied_s, now_s)
        self.segment.checkpoints.append(written)
        self.writing = None
        if self.saved:
            (self.folder / f"step-{self.saved}").unlink(missing_ok=True)
        self.saved = step + 1
