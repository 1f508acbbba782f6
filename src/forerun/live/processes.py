"""Sessions of processes on Linux: a group of ranks is one, so that it can be ended whole, whatever it has started."""

from __future__ import annotations

import contextlib
import ctypes
import os
import signal
import sys
import time
from collections.abc import Collection
from pathlib import Path
from typing import Final

from forerun.cluster.processes import kill_all, marked, pids

_PR_SET_PDEATHSIG: Final = 1
_PR_SET_CHILD_SUBREAPER: Final = 36
#: of the flags in /proc/PID/stat
_PF_EXITING: Final = 4


def boot_s() -> float:
    """Seconds since the machine started, suspensions included; no adjustment of the time of day moves it."""
    return time.clock_gettime(time.CLOCK_BOOTTIME) if sys.platform == "linux" else time.monotonic()


def _prctl(option: int, value: int) -> None:
    if sys.platform == "linux":
        ctypes.CDLL(None, use_errno=True).prctl(option, value, 0, 0, 0)


def die_with_parent(parent: int) -> None:
    """Let this process be killed when its parent ends; exits if that has happened already.

    Parameters
    ----------
    parent : pid of the parent, taken before the fork.
    """
    _prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:
        os._exit(1)


def adopt_orphans() -> None:
    """Become the parent of descendants whose own parent ends."""
    _prctl(_PR_SET_CHILD_SUBREAPER, 1)


def wake_on_children() -> int:
    """A descriptor that becomes readable when a child ends."""
    read, write = os.pipe()
    os.set_blocking(read, False)
    os.set_blocking(write, False)
    signal.signal(signal.SIGCHLD, lambda number, frame: None)
    signal.set_wakeup_fd(write, warn_on_full_buffer=False)
    return read


def empty(read: int) -> None:
    """Read all that waits in such a descriptor."""
    with contextlib.suppress(BlockingIOError):
        while os.read(read, 4096):
            pass


def started_at(pid: int) -> str:
    """Ticks since boot at which a process started, which tell it from a later one of the same number; empty: none."""
    with contextlib.suppress(OSError, IndexError):
        return _fields(pid)[19]
    return ""


def _fields(pid: int) -> list[str]:
    """The fields of /proc/PID/stat after the name of the program, which may contain anything."""
    text = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace")
    return text[text.rindex(")") + 2 :].split()


def is_exiting(pid: int) -> bool:
    """Whether a process has begun to end, or has ended; its files are closed before its children are handed on."""
    try:
        fields = _fields(pid)
        return fields[0] in "ZX" or bool(int(fields[6]) & _PF_EXITING)
    except (OSError, ValueError):
        return True


def is_running(pid: int) -> bool:
    """Whether a process runs, and does not only wait for its parent to ask for it."""
    try:
        return _fields(pid)[0] not in "ZX"
    except (OSError, ValueError):
        return False


def in_session(session: int) -> list[int]:
    """Processes of a session that still run; those that only wait for their parent to ask for them are left out.

    Parameters
    ----------
    session : pid of the process that leads it. 0 is none: processes of other namespaces show it.
    """
    if session <= 1:
        return []
    return [pid for pid in pids() if _is_of(pid, session)]


def _is_of(pid: int, session: int) -> bool:
    try:
        fields = _fields(pid)
    except (OSError, ValueError):
        return False
    return fields[3] == str(session) and fields[0] not in "ZX"


def end_session(session: int, mark: str) -> bool:
    """Kill the processes of a session and those with its mark; whether none is left.

    Parameters
    ----------
    session : id of the session.
    mark : that every process of the group was started with.
    """
    left = [pid for pid in {*in_session(session), *marked(mark)} if pid != os.getpid()]
    kill_all(left)
    return not left


def end_orphans(known: Collection[int]) -> bool:
    """Kill the children of this process that it adopted; whether none is left.

    A process that is killed leaves its own children to the same parent, so that one call is seldom enough.

    Parameters
    ----------
    known : pids of the children that it started itself.
    """
    left = [pid for pid in children() if pid not in known]
    kill_all(left)
    for pid in left:
        with contextlib.suppress(ChildProcessError):
            os.waitpid(pid, os.WNOHANG)
    return not left


def children() -> list[int]:
    """The children of this process, orphans that it adopted among them."""
    listed = Path(f"/proc/self/task/{os.getpid()}/children")
    with contextlib.suppress(OSError):
        return [int(pid) for pid in listed.read_text(encoding="ascii").split()]
    return []
