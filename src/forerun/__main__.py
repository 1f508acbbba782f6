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

#: how long after an interrupt that nobody could catch it is sent again
_AGAIN_S = 0.01


def again(unraisable: UnraisableHookArgs) -> None:
    """Send an interrupt again that fell into a callback from C, where the interpreter drops what is raised.

    Compiling calls back for every function. Without this such an interrupt is printed and the run goes on to its end.
    The hook itself is such a place: the new interrupt must come after it has returned, hence from another thread.
    """
    if not isinstance(unraisable.exc_value, KeyboardInterrupt):
        sys.__unraisablehook__(unraisable)
        return
    while True:
        try:
            timer = threading.Timer(_AGAIN_S, _interrupt)
            timer.daemon = True
            timer.start()
            return
        except KeyboardInterrupt:  # on a busy machine it may come before this returns: once more
            continue


def _interrupt() -> None:
    """Interrupt the main thread, also out of a wait where the system can."""
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

    asked: gets the signal's number, so that the exit code can be the signal's own.
    """

    def end(number: int, frame: FrameType | None) -> None:
        signal.signal(number, signal.SIG_DFL)
        asked.append(number)
        raise KeyboardInterrupt

    if signal.getsignal(signal.SIGTERM) is signal.SIG_DFL:
        signal.signal(signal.SIGTERM, end)


def main() -> None:
    """Entry point of the command line."""
    _three_streams()
    _any_text()
    _named_stdout()
    sys.unraisablehook = again
    asked: list[int] = []
    _end_tidily(asked)
    try:
        from forerun.core.cli.main import run

        code = run()
    except KeyboardInterrupt:
        sys.stderr.write(f"{INTERRUPTED}\n")
        code = 130
    sys.exit(128 + asked[0] if asked and code == 130 else code)


if __name__ == "__main__":
    main()
