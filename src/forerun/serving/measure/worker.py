"""One replica: a process that serves a batch at a time. Started as `python -m forerun.serving.measure.worker`.

It reads requests of fixed size from its standard input. A request is the batch size and the instant of the machine's
monotonic clock at which the batch is to end; where that instant is NaN the model computes. It writes one byte to its
standard output when it is ready, and one when a batch has ended.
"""

from __future__ import annotations

import contextlib
import gc
import math
import os
import signal
import struct
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Final

#: batch size, instant to end at in s of the monotonic clock
REQUEST: Final = struct.Struct("<qd")
#: what a replica says when it can serve, and when a batch has ended
READY: Final = b"r"
ENDED: Final = b"e"


def main(arguments: Sequence[str]) -> int:
    """Serve until the input ends; returns the exit status.

    Parameters
    ----------
    arguments : the model's name (empty: none, it sleeps), and the processor to stay on (-1: any).
    """
    # Ctrl-C reaches every process of a terminal. Who asked for batches decides when this one ends: its input ends then.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    name, processor = arguments[0], int(arguments[1])
    if processor >= 0:
        # Not every system allows a process to be pinned to one processor; if not, the replica runs unpinned.
        with contextlib.suppress(OSError, AttributeError):
            os.sched_setaffinity(0, {processor})
    # Whatever a model prints must not come between the answers.
    answers = os.dup(1)
    os.dup2(2, 1)
    serve = None
    if name:
        sys.path.insert(0, str(Path.cwd()))
        from forerun.serving.measure.models import model_named

        serve = model_named(name)()
        serve(1)
    gc.collect()
    gc.freeze()
    os.write(answers, READY)
    while True:
        request = _read(0, REQUEST.size)
        if request is None:
            return 0
        size, until_s = REQUEST.unpack(request)
        if math.isnan(until_s):
            assert serve is not None
            serve(size)
        else:
            while (left_s := until_s - time.monotonic()) > 0:
                time.sleep(left_s)
        os.write(answers, ENDED)


def _read(file: int, size: int) -> bytes | None:
    """Exactly `size` bytes, or None at the end of the input."""
    received = b""
    while len(received) < size:
        part = os.read(file, size - len(received))
        if not part:
            return None
        received += part
    return received


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
