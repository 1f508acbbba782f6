"""What runs on a node: it starts groups of ranks through their shims, keeps their leases, and reports what they do.

`Node` decides; it reads no clock and starts no process but through its `Host`. The same code serves one machine, a Ray
cluster, and a simulated host in tests. `live.node_process` is the process.
"""

from __future__ import annotations

import hashlib
import hmac
import math
import os
import secrets
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, Protocol

import msgspec

from forerun.cluster.processes import MARK_VARIABLE
from forerun.live.engines.engine import Drain, Heartbeat, Kill, Skip, Start
from forerun.live.folder import RunFolder
from forerun.live.node_messages import (
    DrainRanks,
    FromNode,
    FromShim,
    GroupLeft,
    KillRanks,
    LeaseEnd,
    Meet,
    Order,
    Over,
    RankOrder,
    Rendezvous,
    Renewal,
    Reported,
    Running,
    Shutdown,
    SkipTo,
    ToNode,
    ToShim,
)
from forerun.live.observation import (
    Checkpointed,
    FirstStep,
    Gone,
    GoneWhy,
    Left,
    NodeUp,
    Observation,
    Progressed,
    Refused,
    Started,
)
from forerun.live.rank_messages import Assignment, Progress, Saved
from forerun.live.spec import JobSpec

#: bytes of a rank's output that are kept
LOG_BYTES: Final = 16 << 20
#: seconds that a shim has to end its group after the lease, before the node does it
SHIM_S: Final = 0.5
#: variables that every program gets, from the node's own environment
BASE_ENVIRONMENT: Final = (
    "PATH", "HOME", "USER", "LOGNAME", "SHELL", "LANG", "LC_ALL", "LC_CTYPE", "TZ", "TMPDIR",
    "LD_LIBRARY_PATH", "VIRTUAL_ENV", "PYTHONPATH",
)  # fmt: skip
#: seconds between two attempts to end a group
AGAIN_S: Final = 0.05
LOOPBACK: Final = "127.0.0.1"


class Host(Protocol):
    """What a node needs of its machine."""

    def now_s(self) -> float:
        """The clock of leases, CLOCK_BOOTTIME on a real machine."""

    def begin(self, order: Order) -> Shim:
        """Start a shim. Raises OSError where it cannot be."""


class Shim(Protocol):
    """A node's hold on the shim of a group."""

    def say(self, message: ToShim) -> None:
        """Send it a message; one that is gone misses it."""

    def end(self) -> bool:
        """Kill it and every process of its group; whether none is left."""


@dataclass(slots=True)
class _Group:
    """A group, or this node's part of it.

    Parameters
    ----------
    start : the command.
    end_s : when the lease ends, by the host's clock.
    shim : None where the node holds the lease only, because one process elsewhere stands for all slots.
    first, first_s : its first step that was reported, and when by the host's clock.
    saved : the last checkpoint that was reported.
    left, gone : what was reported of its end.
    lost : the shim closed its connection without saying that the group is over.
    """

    start: Start
    end_s: float
    shim: Shim | None = None
    first: FirstStep | None = None
    first_s: float = 0.0
    saved: Checkpointed | None = None
    left: Left | None = None
    gone: Gone | None = None
    lost: bool = False


@dataclass(slots=True)
class Node:
    """A node's decisions.

    Parameters
    ----------
    name : of the node.
    slots : how many it has.
    folder : of the run.
    host : the machine.
    address : under which other nodes reach this one (default: loopback).
    devices : for CUDA_VISIBLE_DEVICES, by slot: numbers or UUIDs of GPUs (default: none).
    heartbeat_s : wall seconds between two signs of life (default: 1).
    boot : of this life of the node process.

    Attributes
    ----------
    out : what is to be sent to the engine.
    closing : whether the process ends once no group is left.
    """

    name: str
    slots: int
    folder: RunFolder
    host: Host
    address: str = LOOPBACK
    devices: Sequence[str] = ()
    heartbeat_s: float = 1.0
    boot: str = field(default_factory=lambda: secrets.token_hex(8))
    out: list[FromNode] = field(default_factory=list)
    closing: bool = False
    _groups: dict[str, _Group] = field(default_factory=dict)
    _epochs: dict[str, int] = field(default_factory=dict)
    _beat_s: float = -math.inf

    # ------------------------------------------------------------------------------------------------- to the engine

    def present(self) -> dict[str, _Group]:
        """The groups that are not gone, by job."""
        return {job: group for job, group in self._groups.items() if group.gone is None}

    def connected(self) -> None:
        """A connection to an engine was made: say that the node is there, and what it holds.

        What groups reported comes first, their ends included: nobody may have heard it, and a job that has finished must not
        start again.
        """
        now_s = self.host.now_s()
        for group in self._groups.values():
            if group.first is not None:
                self.out.append(msgspec.structs.replace(group.first, ago_s=now_s - group.first_s))
            self.out += [what for what in (group.saved, group.left, group.gone) if what is not None]
        self.out.append(
            NodeUp(
                node=self.name,
                boot=self.boot,
                slots=self.slots,
                holds={
                    job: (group.start.epoch, tuple(group.start.slots[self.name]))
                    for job, group in self.present().items()
                },
                stamp_s=self.host.now_s(),
            )
        )
        self._beat_s = self.host.now_s()

    def tick(self) -> None:
        """Give a sign of life when it is due, and end what has no lease any more."""
        now_s = self.host.now_s()
        if now_s - self._beat_s >= self.heartbeat_s:
            self._beat_s = now_s
            holds = {job: group.start.epoch for job, group in self.present().items()}
            self.out.append(Heartbeat(self.name, self.boot, now_s, holds))
        for group in list(self.present().values()):
            if group.shim is None:
                if now_s >= group.end_s:
                    self._gone(group, "lease", "the lease ended")
            elif (group.lost or now_s >= group.end_s + SHIM_S) and group.shim.end():
                if now_s < group.end_s + SHIM_S:
                    self._gone(group, "failed", "its shim was gone")
                else:
                    self._gone(group, "lease", "the lease ended")

    def next_s(self) -> float:
        """When `tick` is due next."""
        again_s = self.host.now_s() + AGAIN_S
        ends = [
            again_s if group.lost else max(again_s, group.end_s + (SHIM_S if group.shim else 0.0))
            for group in self.present().values()
        ]
        return min([self._beat_s + self.heartbeat_s, *ends])

    # ----------------------------------------------------------------------------------------------- from the engine

    def handle(self, message: ToNode) -> None:
        """Do what the engine says."""
        match message:
            case Start():
                self._start(message)
            case Renewal():
                self._renew(message)
            case Shutdown():
                self.shut_down()
            case Drain(job=job, epoch=epoch, within_s=within_s):
                self._pass_on(job, epoch, DrainRanks(by_s=self.host.now_s() + within_s))
            case Kill(job=job, epoch=epoch):
                self._pass_on(job, epoch, KillRanks())
            case Skip(job=job, epoch=epoch, step=step):
                group = self._present(job, epoch)
                if group is not None and group.shim is not None:
                    group.shim.say(SkipTo(step=step))
            case Rendezvous(job=job, epoch=epoch, address=address, port=port):
                group = self._present(job, epoch)
                if group is not None and group.shim is not None:
                    group.shim.say(Meet(address=address, port=port))

    def shut_down(self) -> None:
        """End all groups; no other is started."""
        self.closing = True
        for job, group in self.present().items():
            self._pass_on(job, group.start.epoch, KillRanks())

    def _present(self, job: str, epoch: int) -> _Group | None:
        group = self._groups.get(job)
        return group if group is not None and group.gone is None and group.start.epoch == epoch else None

    def _pass_on(self, job: str, epoch: int, message: DrainRanks | KillRanks) -> None:
        """Tell a group to leave; a part without processes has left at once."""
        group = self._present(job, epoch)
        if group is None:
            return
        if group.shim is not None:
            group.shim.say(message)
        else:
            self._gone(group, "asked", "no process of it ran here")

    def _renew(self, renewal: Renewal) -> None:
        """Leases go on, or their groups end."""
        if renewal.boot != self.boot:
            return
        end_s = renewal.stamp_s + renewal.term_s
        for job, group in self._groups.items():
            goes_on = renewal.groups.get(job) == group.start.epoch
            if group.gone is not None:
                if goes_on:  # the report was lost
                    self.out += [what for what in (group.left, group.gone) if what is not None]
            elif not goes_on:
                self._pass_on(job, group.start.epoch, KillRanks())
            elif end_s > group.end_s:
                group.end_s = end_s
                if group.shim is not None:
                    group.shim.say(LeaseEnd(end_s=end_s))

    def _start(self, start: Start) -> None:
        """Start this node's part of a group, or say why not."""
        last = self._epochs.get(start.job, 0)
        if self.name not in start.slots or start.epoch == last:
            return
        why = self._why_not(start)
        # One that was refused stays so: a copy of it that comes later, with a longer lease, would run unknown to anybody.
        self._epochs[start.job] = max(last, start.epoch)
        if not why:
            try:
                self._begin(start)
            except OSError as error:
                why = f"{error.filename or start.spec.command[0]}: {error.strerror or error}"
        if why:
            self.out.append(Refused(job=start.job, epoch=start.epoch, node=self.name, why=why))

    def _why_not(self, start: Start) -> str:
        """Why a start is refused; empty if it is not."""
        mine, term = start.slots[self.name], start.terms.get(self.name)
        if self.closing:
            return f"{self.name} ends"
        if start.epoch < self._epochs.get(start.job, 0):
            return f"start {start.epoch} of {start.job} came after start {self._epochs[start.job]}"
        if term is None or term.boot != self.boot or term.end_s <= self.host.now_s():
            return f"the start reached {self.name} after its lease had ended"
        if not all(0 <= slot < self.slots for slot in mine) or len(set(mine)) < len(mine):
            return f"{self.name} has slots 0 to {self.slots - 1}, not {', '.join(map(str, mine))}"
        for job, other in self.present().items():
            both = set(mine) & set(other.start.slots[self.name])
            if both or job == start.job:
                return f"{job} is still on {self.name}, slot {min(both or mine)}"
        if len(start.slots) > 1 and not _one_process(start) and _nonce(self.folder) is None:
            return f"{self.name} does not see the run's folder, which ranks on several nodes share"
        return ""

    def _begin(self, start: Start) -> None:
        group = _Group(start, start.terms[self.name].end_s)
        ranks = self._ranks(start)
        if ranks:
            command, is_python = command_of(start.spec)
            folder = self.folder.job(start.job)
            for part in (folder, self.folder.checkpoints(start.job), folder / "logs"):
                part.mkdir(mode=0o700, parents=True, exist_ok=True)
            group.shim = self.host.begin(
                Order(
                    job=start.job,
                    epoch=start.epoch,
                    node=self.name,
                    ranks=ranks,
                    command=command,
                    is_python=is_python,
                    folder=start.spec.folder or str(folder),
                    environment=self._environment(start),
                    iterations=start.spec.iterations,
                    elastic=start.spec.elastic,
                    end_s=group.end_s,
                    occupancy=str(self.folder.occupancy),
                    log_bytes=LOG_BYTES,
                )
            )
        self._groups[start.job] = group
        if not ranks:
            self.out.append(Started(job=start.job, epoch=start.epoch, node=self.name))

    def _ranks(self, start: Start) -> tuple[RankOrder, ...]:
        """The ranks of a group that run here: one a slot, or one for all slots on the group's first node."""
        mine = start.slots[self.name]
        if _one_process(start):
            shares = [mine] if self.name == next(iter(start.slots)) else []
            first, world_size = 0, 1
        else:
            shares = [(slot,) for slot in mine]
            before = list(start.slots)[: list(start.slots).index(self.name)]
            first = sum(len(start.slots[node]) for node in before)
            world_size = sum(len(slots) for slots in start.slots.values())
        return tuple(
            RankOrder(
                assignment=self._assignment(start, first + at, world_size, at, len(shares), tuple(share)),
                log=str(self.folder.log(start.job, start.epoch, first + at)),
                device=",".join(self.devices[slot] for slot in share) if self.devices else "",
            )
            for at, share in enumerate(shares)
        )

    def _assignment(
        self, start: Start, rank: int, world_size: int, local: int, here: int, slots: tuple[int, ...]
    ) -> Assignment:
        spec = start.spec
        return Assignment(
            epoch=start.epoch,
            rank=rank,
            world_size=world_size,
            local_rank=local,
            node_slots=self.slots,
            slots=slots,
            job_slots=sum(len(there) for there in start.slots.values()),
            iterations=spec.iterations,
            folder=str(self.folder.job(start.job)),
            secret=_proof(_nonce(self.folder) or secrets.token_bytes(32), f"{start.job}/{start.epoch}"),
            batch=spec.batch,
            address=self.address if world_size > here else LOOPBACK,
            started_s=self.host.now_s(),
            checkpoint=start.checkpoint,
            older=start.older,
            every_s=spec.checkpoints.every_s,
            failures_s=spec.checkpoints.failures_s,
            keep=spec.checkpoints.keep,
            report_s=start.report_s,
            seed=start.seed,
            hold_s=start.hold_s,
            pace=start.pace,
        )

    def _environment(self, start: Start) -> Mapping[str, str]:
        """The variables of a program: those that every program needs, and those that its job file lists."""
        variables = inherited(start.spec.environment)
        variables[MARK_VARIABLE] = mark_of(self.folder, start.job, start.epoch)
        variables["PYTHONUNBUFFERED"] = "1"
        variables.setdefault("OMP_NUM_THREADS", str(max(1, (os.cpu_count() or 1) // self.slots)))
        if len(start.slots) == 1:
            variables.setdefault("GLOO_SOCKET_IFNAME", "lo")
        return variables

    # --------------------------------------------------------------------------------------------------- from a shim

    def heard(self, job: str, epoch: int, message: FromShim) -> None:
        """Carry on what a shim says of its group."""
        group = self._present(job, epoch)
        if group is None:
            return
        match message:
            case Running():
                self.out.append(Started(job=job, epoch=epoch, node=self.name))
            case Reported(what=what):
                observed = _observed(job, epoch, what)
                if isinstance(observed, FirstStep):
                    group.first, group.first_s = observed, self.host.now_s()
                elif isinstance(observed, Checkpointed):
                    group.saved = observed
                self.out.append(observed)
            case Meet(address=address, port=port):
                if len(group.start.slots) > 1:
                    self.out.append(Rendezvous(job=job, epoch=epoch, address=address, port=port))
            case GroupLeft():
                self._left(group, message)
            case Over(why=why, detail=detail):
                self._gone(group, why, detail)

    def lost(self, job: str, epoch: int) -> None:
        """The shim of a group closed its connection; the group ends, and what is left of it is ended."""
        group = self._present(job, epoch)
        if group is not None:
            group.lost = True
            self.tick()

    def _left(self, group: _Group, said: GroupLeft) -> None:
        if group.left is None:
            start = group.start
            group.left = Left(
                job=start.job, epoch=start.epoch, why=said.why, step=said.step, detail=said.detail
            )
            self.out.append(group.left)

    def _gone(self, group: _Group, why: GoneWhy, detail: str) -> None:
        start = group.start
        group.gone = Gone(job=start.job, epoch=start.epoch, node=self.name, why=why, detail=detail)
        self.out.append(group.gone)


def _one_process(start: Start) -> bool:
    """Whether one process stands for all slots; a program that knows nothing of ranks is one."""
    return start.one_process or not start.spec.elastic


def _observed(job: str, epoch: int, what: object) -> Observation:
    """What rank 0 reports, as an observation."""
    match what:
        case Progress(step=step, rate=rate):
            return Progressed(job=job, epoch=epoch, step=step, rate=rate)
        case Saved(step=step, file=file, sha256=sha256):
            return Checkpointed(job=job, epoch=epoch, step=step, file=file, sha256=sha256)
    return FirstStep(job=job, epoch=epoch, step=what.step)  # type: ignore[attr-defined]


def command_of(spec: JobSpec) -> tuple[tuple[str, ...], bool]:
    """A job's command with the program's path, and whether a Python that is running already can run it.

    Raises FileNotFoundError where the program or the script is not there.
    """
    program, *arguments = spec.command
    folder = Path(spec.folder or ".")
    found = shutil.which(program) or (
        str(folder / program) if "/" in program and os.access(folder / program, os.X_OK) else None
    )
    if found is None:
        raise FileNotFoundError(2, "no such program", program)
    is_python = spec.elastic and Path(program).name.startswith("python") and bool(arguments)
    if is_python and arguments[0] == "-m":
        is_python = len(arguments) > 1
    elif is_python:
        is_python = not arguments[0].startswith("-")
        if is_python and not (folder / arguments[0]).is_file():
            raise FileNotFoundError(2, "no such script", str(folder / arguments[0]))
    return (str(Path(found).absolute()), *arguments), is_python


# --------------------------------------------------------------------------------------------------- the run's folder


def _nonce(folder: RunFolder) -> bytes | None:
    """The run's random bytes; None where this node does not see the folder."""
    try:
        return folder.nonce.read_bytes()
    except OSError:
        return None


def _proof(key: bytes, text: str) -> str:
    return hmac.new(key, text.encode(), hashlib.sha256).hexdigest()


def inherited(names: Sequence[str] = ()) -> dict[str, str]:
    """The variables that every program gets from this process's environment.

    Parameters
    ----------
    names : of others that it gets, too (default: none).
    """
    return {name: os.environ[name] for name in sorted({*BASE_ENVIRONMENT, *names}) if name in os.environ}


def mark_of(folder: RunFolder, *parts: str | int) -> str:
    """What the processes of a run carry in their environment, to be known again.

    Parameters
    ----------
    folder : of the run.
    parts : a job and an epoch, or `@` and a node's name (default: the beginning of all marks of the run).
    """
    run = hashlib.sha256(str(folder.path).encode()).hexdigest()[:16]
    return "".join(f"{part}/" for part in (run, *parts))
