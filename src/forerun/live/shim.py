"""The process above the ranks of a group on one node: it starts them, carries what they say, and ends them.

It leads a session of its own, and every rank is killed when it ends. It ends the group when the lease ends, by
CLOCK_BOOTTIME, when its node closes the connection, or when it is asked to; so a node that is stopped or dead keeps nobody
on its slots. Processes that leave the session become its children when their parent ends, and are killed with the rest.
"""

from __future__ import annotations

import atexit
import contextlib
import json
import os
import random
import runpy
import secrets
import selectors
import signal
import socket
import sys
import threading
import traceback
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, Literal, NoReturn

import msgspec

from forerun.cluster.processes import kill_all
from forerun.live import processes, rank_messages
from forerun.live.node_messages import (
    DrainRanks,
    FromShim,
    GroupLeft,
    KillRanks,
    LeaseEnd,
    Meet,
    Order,
    Over,
    RankOrder,
    Reported,
    Running,
    SkipTo,
    ToShim,
)
from forerun.live.observation import GoneWhy
from forerun.live.rank_messages import ASSIGNMENT_VARIABLE, FD_VARIABLE, Hello, Leaving, Lines
from forerun.live.wire import Channel

#: seconds that ranks have to exit after they said that they leave
EXIT_S: Final = 10.0
#: seconds between two attempts to end what is left of a group
AGAIN_S: Final = 0.05
#: seconds between two looks at the clock: waiting does not count a suspension of the machine, leases do
LOOK_S: Final = 1.0
#: exit code of a rank whose program cannot be run
CANNOT_RUN: Final = 127


@dataclass(slots=True)
class _Rank:
    """A rank at work.

    Parameters
    ----------
    pid : its process.
    socket : the connection to it; None once it is closed.
    pipe : what it prints; None once that is closed.
    log : file descriptor of its log (-1: it cannot be written).
    unused_bytes : that the log still takes.
    greeted : whether its program has attached.
    leaving : its last word.
    code : how it ended; None while it runs.
    """

    pid: int
    socket: socket.socket | None
    pipe: int | None
    log: int
    unused_bytes: int
    lines: Lines = field(default_factory=Lines)
    greeted: bool = False
    leaving: Leaving | None = None
    code: int | None = None


class Shim:
    """The ranks of a group on one node.

    Parameters
    ----------
    connection : to the node.
    order : what to run.
    """

    def __init__(self, connection: socket.socket, order: Order) -> None:
        self.order = order
        self.node: Channel[ToShim] = Channel(connection, ToShim)
        self.ranks: dict[int, _Rank] = {}
        self.end_s = order.end_s
        self.drain_by_s: float | None = None
        self.exit_by_s: float | None = None
        self.left = False
        #: why it ends though its ranks have not left, for the node and for people
        self.ended_for: tuple[Literal["asked", "lease"], str] | None = None
        self._selector = selectors.DefaultSelector()

    def run(self) -> None:
        """Run the group until no process of it is left."""
        woken = processes.wake_on_children()
        self._selector.register(woken, selectors.EVENT_READ, lambda: processes.empty(woken))
        self._selector.register(self.node, selectors.EVENT_READ, self._hear_node)
        for one in self.order.ranks:
            self.ranks[one.assignment.rank] = self._start(one)
        self._say(Running(pid=os.getpid()))
        while not self._is_over():
            for key, _ in self._selector.select(self._wait_s()):
                key.data()
            self.node.flush()
            self._reap()
            self._look_at_the_time()
        self._end_everybody()
        occupy(self.order, "end", slots_of(self.order))
        self._say(Over(why=self._why(), detail=self._how_they_ended()))
        self.node.socket.setblocking(True)
        self.node.flush()

    # ------------------------------------------------------------------------------------------------------- ranks

    def _start(self, one: RankOrder) -> _Rank:
        """Fork a rank."""
        ours, theirs = socket.socketpair()
        read, write = os.pipe()
        parent = os.getpid()
        pid = os.fork()
        if pid == 0:
            code = CANNOT_RUN
            try:
                processes.die_with_parent(parent)
                occupy(self.order, "begin", one.assignment.slots)
                code = _be_rank(self.order, one, theirs.detach(), write)
            except BaseException:
                traceback.print_exc()
            finally:
                os._exit(code)
        theirs.close()
        os.close(write)
        os.set_blocking(read, False)
        ours.setblocking(False)
        rank = _Rank(pid, ours, read, _opened(one.log), self.order.log_bytes)
        self._selector.register(ours, selectors.EVENT_READ, lambda: self._hear_rank(one.assignment.rank))
        self._selector.register(read, selectors.EVENT_READ, lambda: self._log(rank))
        return rank

    def _hear_rank(self, number: int) -> None:
        """Carry on what a rank says."""
        rank = self.ranks[number]
        if rank.socket is None:
            return
        try:
            data = rank.socket.recv(1 << 16)
            messages = [rank_messages.from_rank(text) for text in rank.lines.feed(data)]
        except BlockingIOError:
            return
        except (OSError, ValueError, RecursionError) as error:  # msgspec's errors are ValueErrors
            messages = []
            data = b""
            if not isinstance(error, OSError):
                self._fail(f"rank {number} said something that is no message: {error}")
        for message in messages:
            match message:
                case Hello():
                    rank.greeted = True
                case rank_messages.Rendezvous(address=address, port=port):
                    self._meet(Meet(address=address, port=port))
                    self._say(Meet(address=address, port=port))
                case Leaving():
                    rank.leaving = message
                    self._leaves(number, message)
                case _:
                    self._say(Reported(what=message))
        if not data:
            self._selector.unregister(rank.socket)
            rank.socket.close()
            rank.socket = None

    def _leaves(self, number: int, said: Leaving) -> None:
        """A rank says that it leaves; rank 0 speaks for all, unless one has failed."""
        self.exit_by_s = self.exit_by_s or processes.boot_s() + EXIT_S
        if said.why == "failed":
            # It still has to print what happened; the others are of no use any more.
            self._fail(f"rank {number}: {said.detail}", said.step, spared=number)
        elif number == 0:
            self._leave(GroupLeft(why=said.why, step=said.step))

    def _leave(self, left: GroupLeft) -> None:
        if not self.left:
            self.left = True
            self._say(left)

    def _fail(self, detail: str, step: int = 0, spared: int | None = None) -> None:
        """Report that the group failed, and end it, but for one rank that ends by itself."""
        self._leave(GroupLeft(why="failed", step=step, detail=detail))
        self._kill(spared)

    def _tell(self, message: rank_messages.ToRank, ranks: list[_Rank]) -> None:
        """Say something to ranks; those that do not listen any more miss it."""
        for rank in ranks:
            if rank.socket is not None:
                with contextlib.suppress(OSError):
                    rank.socket.send(rank_messages.line(message))

    def _meet(self, where: Meet) -> None:
        """Tell the ranks but the first where it listens."""
        others = [rank for number, rank in self.ranks.items() if number != 0]
        self._tell(rank_messages.Rendezvous(address=where.address, port=where.port), others)

    def _reap(self) -> None:
        """Note which ranks have ended, and how."""
        with contextlib.suppress(ChildProcessError):
            while (ended := os.waitpid(-1, os.WNOHANG))[0]:
                for number, rank in self.ranks.items():
                    if rank.pid == ended[0]:
                        rank.code = os.waitstatus_to_exitcode(ended[1])
                        self._hear_rank(number)  # its last words
                        self._ended(number, rank)

    def _ended(self, number: int, rank: _Rank) -> None:
        # Once the group leaves, ends are no news; killing again would also end a rank that still prints why it failed.
        if self.left or self.ended_for or (rank.code == 0 and rank.leaving is not None):
            return
        if rank.code == 0 and not rank.greeted:
            if not self.order.elastic:  # a plain command says by its exit code alone that it is done
                self._leave(GroupLeft(why="finished", step=self.order.iterations))
                return
            steps = f"0 of {self.order.iterations} steps"
            self._fail(f"rank {number} ended after {steps}: it never attached (forerun.live.job)")
            return
        self._fail(f"rank {number} {_how(rank.code)}")

    # -------------------------------------------------------------------------------------------------------- node

    def _hear_node(self) -> None:
        """Do what the node asks; without a node, the group ends."""
        for message in self.node.receive():
            match message:
                case LeaseEnd(end_s=end_s):
                    self.end_s = max(self.end_s, end_s)
                case DrainRanks(by_s=by_s):
                    self._drain(by_s)
                case KillRanks():
                    self._end_for("asked", "killed")
                case SkipTo(step=step):
                    self._tell(rank_messages.Skip(step=step), [r for n, r in self.ranks.items() if n == 0])
                case Meet():
                    self._meet(message)
        if self.node.fault:
            self._selector.unregister(self.node)
            self._end_for("lease", "the node's connection ended")

    def _drain(self, by_s: float) -> None:
        """Let the ranks leave; what has not attached is killed later."""
        self.drain_by_s = by_s if self.drain_by_s is None else min(self.drain_by_s, by_s)
        self._tell(rank_messages.Drain(), list(self.ranks.values()))

    def _say(self, message: FromShim) -> None:
        self.node.send(message)

    # -------------------------------------------------------------------------------------------------------- time

    def _look_at_the_time(self) -> None:
        now_s = processes.boot_s()
        if now_s >= self.end_s:
            self._end_for("lease", "the lease ended")
        elif self.drain_by_s is not None and now_s >= self.drain_by_s:
            self._end_for("asked", "did not leave in time")
        elif self.exit_by_s is not None and now_s >= self.exit_by_s:
            self._kill()

    def _wait_s(self) -> float:
        ends = [end for end in (self.end_s, self.drain_by_s, self.exit_by_s) if end is not None]
        wait_s = max(0.0, min(ends) - processes.boot_s())
        if any(rank.code is None for rank in self.ranks.values()) and wait_s > 0:
            return min(wait_s, LOOK_S)
        return AGAIN_S

    def _end_for(self, why: Literal["asked", "lease"], detail: str) -> None:
        """End the group though its ranks have not left, which is no failure of theirs."""
        self.ended_for = self.ended_for or (why, detail)
        self._kill()

    def _kill(self, spared: int | None = None) -> None:
        """Kill the ranks but one; what they started is ended once they are gone."""
        for number, rank in self.ranks.items():
            if rank.code is None and number != spared:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(rank.pid, signal.SIGKILL)

    def _is_over(self) -> bool:
        return all(rank.code is not None for rank in self.ranks.values())

    def _end_everybody(self) -> None:
        """Kill what the ranks have started and left behind, in this session or outside it."""
        with selectors.DefaultSelector() as wait:
            while True:
                others = [pid for pid in processes.in_session(os.getpid()) if pid != os.getpid()]
                kill_all(others)
                if processes.end_orphans(()) and not others:
                    break
                wait.select(AGAIN_S)
        for rank in self.ranks.values():
            self._log(rank)

    def _how_they_ended(self) -> str:
        ends = ", ".join(f"rank {number} {_how(rank.code)}" for number, rank in self.ranks.items())
        return f"{self.ended_for[1]}; {ends}" if self.ended_for else ends

    def _why(self) -> GoneWhy:
        """Why no process is left, for the node."""
        if self.ended_for:
            return self.ended_for[0]
        return "exited" if all(rank.code == 0 for rank in self.ranks.values()) else "failed"

    # ------------------------------------------------------------------------------------------------------- files

    def _log(self, rank: _Rank) -> None:
        """Write what a rank prints to its log, as long as the log takes it."""
        while rank.pipe is not None:
            try:
                data = os.read(rank.pipe, 1 << 16)
            except BlockingIOError:
                return
            if not data:
                self._selector.unregister(rank.pipe)
                os.close(rank.pipe)
                rank.pipe = None
                return
            if rank.log < 0 or rank.unused_bytes <= 0:
                continue
            rank.unused_bytes -= len(data)
            if rank.unused_bytes <= 0:
                data = data[: rank.unused_bytes or None]
                data += f"\n[forerun: {self.order.log_bytes} bytes are kept; the rest is not]\n".encode()
            with contextlib.suppress(OSError):  # a full disk: the log has a gap, the job goes on
                os.write(rank.log, data)


def occupy(order: Order, what: Literal["begin", "end"], slots: Iterable[int]) -> None:
    """Note that slots are taken, or free again; one line a slot, in one write.

    Parameters
    ----------
    order : of the group.
    what : which of the two.
    slots : numbers on the node.
    """
    about = {"node": order.node, "job": order.job, "epoch": order.epoch, what: processes.boot_s()}
    lines = [json.dumps(about | {"slot": slot}) for slot in slots]
    with contextlib.suppress(OSError):
        file = os.open(order.occupancy, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_NOFOLLOW, 0o600)
        os.write(file, "".join(f"{text}\n" for text in lines).encode())
        os.close(file)


def slots_of(order: Order) -> list[int]:
    """The slots of a group on its node."""
    return [slot for one in order.ranks for slot in one.assignment.slots]


def _how(code: int | None) -> str:
    """How a process ended, in words."""
    if code is None:
        return "still runs"
    if code < 0:
        with contextlib.suppress(ValueError):
            return f"was ended by {signal.Signals(-code).name}"
        return f"was ended by signal {-code}"
    return f"ended with exit code {code}"


def _opened(path: str) -> int:
    """A file to append to, -1 if it cannot be written."""
    try:
        return os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_NOFOLLOW, 0o600)
    except OSError:
        return -1


# ------------------------------------------------------------------------------------------------------- in the rank


def _be_rank(order: Order, one: RankOrder, connection: int, output: int) -> int:
    """Run the program in this process, which was just forked; the exit code."""
    signal.set_wakeup_fd(-1)
    for number in (signal.SIGCHLD, signal.SIGTERM):
        signal.signal(number, signal.SIG_DFL)
    # As Python sets them at its start: writing to a rank that is gone raises an error, and does not kill this one.
    signal.signal(signal.SIGINT, signal.default_int_handler if order.is_python else signal.SIG_DFL)
    signal.signal(signal.SIGPIPE, signal.SIG_IGN if order.is_python else signal.SIG_DFL)
    nowhere = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nowhere, 0)
    os.dup2(output, 1)
    os.dup2(output, 2)
    # All that this process inherited is somebody else's, but for the three and the connection.
    os.closerange(3, connection)
    os.closerange(connection + 1, max(connection + 1, _descriptors()))
    os.set_inheritable(connection, True)
    variables = {
        **order.environment,
        FD_VARIABLE: str(connection),
        ASSIGNMENT_VARIABLE: msgspec.json.encode(one.assignment).decode(),
    }
    if one.device:
        variables["CUDA_VISIBLE_DEVICES"] = one.device
    try:
        os.chdir(order.folder)
        if not order.is_python:
            os.execve(order.command[0], order.command, variables)  # noqa: S606
    except OSError as error:
        os.write(2, f"{order.command[0]}: {error.strerror}\n".encode())
        return CANNOT_RUN
    os.environ.clear()
    os.environ.update(variables)
    return _run_python(order.command)


def _descriptors() -> int:
    """One more than the largest descriptor that this process has."""
    with contextlib.suppress(OSError):
        return max(int(name) for name in os.listdir("/proc/self/fd")) + 1  # noqa: PTH208
    return 4096


def _run_python(command: tuple[str, ...]) -> int:
    """Run a script, or a module after `-m`, as `python` would."""
    sys.stdin = open(0, closefd=False)  # noqa: SIM115
    sys.stdout = open(1, "w", buffering=1, closefd=False)  # noqa: SIM115
    sys.stderr = open(2, "w", buffering=1, closefd=False)  # noqa: SIM115
    _own_random_numbers()
    _, first, *rest = command
    run: Callable[[], object]
    if first == "-m":
        module, *rest = rest
        sys.argv = [module, *rest]
        sys.path[0] = str(Path.cwd())
        run = lambda: runpy.run_module(module, run_name="__main__", alter_sys=True)  # noqa: E731
    else:
        sys.argv = [first, *rest]
        sys.path[0] = str(Path(first).resolve().parent)
        run = lambda: runpy.run_path(first, run_name="__main__")  # noqa: E731
    code = 0
    try:
        run()
    except SystemExit as leaving:
        code = _code_of(leaving)
    except BaseException:
        traceback.print_exc()
        code = 1
    # What `python` does at its end; the shim's own ending must not follow.
    threading._shutdown()  # type: ignore[attr-defined]
    atexit._run_exitfuncs()
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(OSError, ValueError):
            stream.flush()
    return code


def _code_of(leaving: SystemExit) -> int:
    """The exit code of a SystemExit; a text is printed."""
    if leaving.code is None:
        return 0
    if isinstance(leaving.code, int):
        return leaving.code & 0xFF
    os.write(2, f"{leaving.code}\n".encode())
    return 1


def _own_random_numbers() -> None:
    """Ranks forked from one process would draw the same numbers, where each Python of its own draws others."""
    random.seed()
    if "numpy" in sys.modules:
        import numpy as np

        np.random.seed(secrets.randbits(32))
    if "torch" in sys.modules:
        import torch

        torch.manual_seed(secrets.randbits(63))


def run(connection: socket.socket, order: Order) -> NoReturn:
    """Be the shim of a group, in a process that was just forked, and exit."""
    code = 1
    try:
        os.setsid()
        processes.adopt_orphans()
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, signal.SIG_IGN)
        Shim(connection, order).run()
        code = 0
    except BaseException:
        traceback.print_exc()
    finally:
        os._exit(code)
