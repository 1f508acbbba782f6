"""The command `forerun`, and `python -m forerun`.

Importing the command line takes a few tenths of a second; an interrupt in that time ends as one later does: one line, 130.
"""

from __future__ import annotations

import _thread
import os
import signal
import sys
import threading
from typing import TYPE_CHECKING

from forerun.cli import INTERRUPTED

if TYPE_CHECKING:
    from sys import UnraisableHookArgs

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


def main() -> None:
    """Entry point of the command line."""
    _three_streams()
    sys.unraisablehook = again
    try:
        from forerun.cli.main import run

        code = run()
    except KeyboardInterrupt:
        sys.stderr.write(f"{INTERRUPTED}\n")
        code = 130
    sys.exit(code)


if __name__ == "__main__":
    main()
