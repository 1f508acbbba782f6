"""Processes of a group that is to be ended whole, whatever it has started, by a mark in their environments (Linux)."""

from __future__ import annotations

import contextlib
import os
import signal
import time
from pathlib import Path
from typing import Final

#: name of the variable that every process of a group carries; its value names the run, the job and the epoch
MARK_VARIABLE: Final = "FORERUN_LIVE_GROUP"


def pids() -> list[int]:
    """All processes."""
    return [int(entry.name) for entry in Path("/proc").iterdir() if entry.name.isdigit()]


def marked(mark: str) -> list[int]:
    """Processes that carry a mark in the environment with which they were started, also in sessions of their own.

    Parameters
    ----------
    mark : value of the variable, or its beginning.
    """
    wanted = f"{MARK_VARIABLE}={mark}".encode()
    found = []
    for pid in pids():
        with contextlib.suppress(OSError):
            variables = Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
            if any(variable.startswith(wanted) for variable in variables):
                found.append(pid)
    return found


def kill_all(pids: list[int]) -> None:
    """Kill processes, except this one; those that are gone already do not matter."""
    for pid in pids:
        if pid != os.getpid():
            with contextlib.suppress(OSError):
                os.kill(pid, signal.SIGKILL)


def end_marked(mark: str, within_s: float) -> bool:
    """Kill the processes that carry a mark until none is left; whether that was so in time.

    Parameters
    ----------
    mark : value of the variable, or its beginning.
    within_s : seconds to try at most.
    """
    until_s = time.monotonic() + within_s
    while left := [pid for pid in marked(mark) if pid != os.getpid()]:
        if time.monotonic() > until_s:
            return False
        kill_all(left)
        time.sleep(0.02)
    return True
