"""Ctrl-C reaches every process of a terminal at once: processes that work for another one end without a word."""

from __future__ import annotations

import contextlib
import os
import signal
import threading
from collections.abc import Iterator
from types import FrameType
from typing import Final

#: whether the system can block signals (not on Windows)
_MASKS: Final = hasattr(signal, "pthread_sigmask")


@contextlib.contextmanager
def blocked() -> Iterator[None]:
    """Block interrupts while processes are started; the new processes start with interrupts blocked, so without a traceback.

    A process that calls `end_quietly`, or ignores interrupts, then says what one means to it.
    """
    came: list[int] = []
    here = threading.current_thread() is threading.main_thread()
    # The system blocks them for the new processes; they are noted here, since any thread of this process may receive one.
    handler = signal.signal(signal.SIGINT, lambda number, frame: came.append(number)) if here else None
    mask = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT}) if _MASKS else set()
    try:
        yield
    finally:
        if _MASKS:
            signal.pthread_sigmask(signal.SIG_SETMASK, mask)
        if here:
            signal.signal(signal.SIGINT, signal.SIG_DFL if handler is None else handler)
        if came:
            signal.raise_signal(signal.SIGINT)


class Terminated(KeyboardInterrupt):
    """The process was asked to end (SIGTERM): everything that an interrupt does is done, and the exit code is its own."""


@contextlib.contextmanager
def terminable() -> Iterator[None]:
    """Inside, a request to end (SIGTERM) raises Terminated; a second one ends the process at once."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.signal(signal.SIGTERM, _terminate)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, signal.SIG_DFL if before is None else before)


def _terminate(number: int, frame: FrameType | None) -> None:
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    raise Terminated


def end_quietly() -> None:
    """In a process that was started under `blocked`: an interrupt, even a pending one, ends it at once."""
    signal.signal(signal.SIGTERM, signal.SIG_DFL)  # a forked process has our handler
    signal.signal(signal.SIGINT, _end)
    if _MASKS:
        signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT})


def _end(number: int, frame: FrameType | None) -> None:
    os._exit(128 + number)
