"""The command `forerun`, and `python -m forerun`.

Importing the command line takes a few tenths of a second; an interrupt in that time ends as one later does: one line, 130.
"""

from __future__ import annotations

import _thread
import codecs
import io
import os
import signal
import sys
import threading
from typing import TYPE_CHECKING, Any

from forerun.core.cli import INTERRUPTED

if TYPE_CHECKING:
    from sys import UnraisableHookArgs
    from types import FrameType

#: how long after an interrupt was lost it is sent again
_AGAIN_S = 0.05


class _Interrupt(KeyboardInterrupt):
    """An interrupt that comes again if no code in Python could see it.

    C code that calls Python back often drops what that raises: looking up a key whose hash is written in Python, say, or
    compiling. The run would go on to its end. An interrupt dropped that way is freed while the last frame that it went
    through is gone; one that was caught is freed in the frame that caught it.
    """

    def __del__(self) -> None:
        last = self.__traceback__.tb_frame if self.__traceback__ else None
        frame: FrameType | None = sys._getframe()
        while frame is not None and frame is not last:
            frame = frame.f_back
        if frame is None and not _ending:
            _send_again()


#: not empty once the command has ended, so that no interrupt comes again
_ending: list[bool] = []


def _send_again() -> None:
    """Interrupt the main thread soon: here the new interrupt could be lost as well, hence from another thread."""
    while True:
        try:
            timer = threading.Timer(_AGAIN_S, _interrupt)
            timer.daemon = True
            timer.start()
            return
        except KeyboardInterrupt:  # on a busy machine it may come before this returns: once more
            continue


def _say_nothing_of_interrupts(unraisable: UnraisableHookArgs) -> None:
    """Print what the interpreter must drop, but for interrupts, which come again."""
    if not isinstance(unraisable.exc_value, KeyboardInterrupt):
        sys.__unraisablehook__(unraisable)


def _interrupt() -> None:
    """Interrupt the main thread, also out of a wait where the system can; not once the command has ended."""
    if _ending:
        return
    main = threading.main_thread().ident
    if sys.platform == "win32" or main is None:
        _thread.interrupt_main()
    else:
        signal.pthread_kill(main, signal.SIGINT)


def _three_streams() -> None:
    """Stand-ins for standard streams that are closed (`forerun ... >&-`): no file of ours may take their numbers."""
    for number, name in enumerate(("stdin", "stdout", "stderr")):
        if getattr(sys, name) is None:
            nowhere = os.open(os.devnull, os.O_RDWR)
            setattr(sys, name, os.fdopen(nowhere, "r" if number == 0 else "w"))


def _any_text() -> None:
    """Have stdout and stderr take any text: a run that is saved must not end in an error because of its units.

    A locale without letters beyond ASCII (`LC_ALL=POSIX` with `PYTHONUTF8=0`) gets UTF-8, as Python does by default; in
    others, and for names of files that are no text, what cannot be written is written as an escape.
    """
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            ascii_only = codecs.lookup(stream.encoding).name == "ascii"
            stream.reconfigure(encoding="utf-8" if ascii_only else stream.encoding, errors="backslashreplace")


class _Stdout(io.FileIO):
    """Standard output whose failures say that it is standard output which cannot be written."""

    def __init__(self, given: io.TextIOWrapper) -> None:
        super().__init__(given.fileno(), "w", closefd=False)
        self.given = given  # which would close the file if it were forgotten

    def write(self, data: Any) -> int:
        """As usual; an OSError carries a name."""
        try:
            return super().write(data)
        except OSError as error:
            raise OSError(error.errno, error.strerror, "standard output") from error


def _named_stdout() -> None:
    """Put `_Stdout` below stdout, where stdout is a file of the system's."""
    given = sys.stdout
    if isinstance(given, io.TextIOWrapper) and isinstance(
        getattr(given.buffer, "raw", given.buffer), io.FileIO
    ):
        sys.stdout = io.TextIOWrapper(
            io.BufferedWriter(_Stdout(given)),
            encoding=given.encoding,
            errors=given.errors,
            line_buffering=given.line_buffering or given.write_through,
        )


def _end_tidily(asked: list[int]) -> None:
    """Have a request to end (SIGTERM) do what an interrupt does: nothing half-written stays. A second one ends at once.

    Neither is lost, whatever runs when it comes. asked: gets the number of SIGTERM, so that the exit code can be its own.
    """

    def end(number: int, frame: FrameType | None) -> None:
        signal.signal(number, signal.SIG_DFL)
        asked.append(number)
        raise _Interrupt

    def interrupt(number: int, frame: FrameType | None) -> None:
        raise _Interrupt

    if signal.getsignal(signal.SIGTERM) is signal.SIG_DFL:
        signal.signal(signal.SIGTERM, end)
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        signal.signal(signal.SIGINT, interrupt)


def main() -> None:
    """Entry point of the command line."""
    _three_streams()
    _any_text()
    _named_stdout()
    sys.unraisablehook = _say_nothing_of_interrupts
    asked: list[int] = []
    _end_tidily(asked)
    try:
        from forerun.core.cli.main import run

        code = run()
        _ending.append(True)
    except KeyboardInterrupt:
        _ending.append(True)
        sys.stderr.write(f"{INTERRUPTED}\n")
        code = 130
    sys.exit(128 + asked[0] if asked and code == 130 else code)


if __name__ == "__main__":
    main()
