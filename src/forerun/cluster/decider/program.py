"""Another program as a process: a line goes out, a line comes back, within limits, and nothing of it outlives the run."""

from __future__ import annotations

import contextlib
import os
import selectors
import signal
import subprocess
import sys
import time
import uuid
import weakref
from collections.abc import Sequence
from typing import Final

from forerun.cluster import processes
from forerun.core.trace.repair import shown

#: the longest answer, in bytes
MOST_ANSWER_BYTES: Final = 1 << 24
#: address space of the program, in bytes, where the system limits that of others (Linux)
MOST_MEMORY_BYTES: Final = 1 << 33
#: variables of the environment that the program inherits; all others are withheld
INHERITED: Final = ("PATH", "LANG")
#: seconds that a program has to leave after its input has ended; then it is killed
_LEAVES_IN_S: Final = 1.0
#: bytes of standard error that are kept
_KEPT_BYTES: Final = 4096
_PIECE: Final = 1 << 16


class Fault(Exception):
    """What a program did that ends the run."""


class Process:
    """A program at work, in a session of its own.

    Parameters
    ----------
    argv : the program and its arguments.
    executable : the file that is run.
    answer_s : seconds of the wall clock that an answer may take.
    """

    def __init__(self, argv: Sequence[str], executable: str, answer_s: float) -> None:
        self.answer_s = answer_s
        mark = f"decider/{os.getpid()}/{uuid.uuid4().hex}"
        variables = {name: os.environ[name] for name in INHERITED if name in os.environ}
        pipe = subprocess.PIPE
        try:
            self._process = subprocess.Popen(
                argv, executable=executable, stdin=pipe, stdout=pipe, stderr=pipe, bufsize=0, start_new_session=True,
                env=variables | {processes.MARK_VARIABLE: mark},
            )  # fmt: skip
        except OSError as error:
            raise Fault(f"cannot be started: {error.strerror or error}") from None
        #: ends everything that was started; also called where this is not closed
        self._end = weakref.finalize(self, _end, self._process, mark)
        if sys.platform == "linux":
            import resource

            with contextlib.suppress(OSError):  # it has ended already, which its first answer shows
                resource.prlimit(self._process.pid, resource.RLIMIT_AS, (MOST_MEMORY_BYTES,) * 2)
        given, heard, said = self._process.stdin, self._process.stdout, self._process.stderr
        assert given is not None and heard is not None and said is not None
        self._given, self._heard, self._said = given.fileno(), heard.fileno(), said.fileno()
        for file in (self._given, self._heard, self._said):
            os.set_blocking(file, False)
        self._answer, self._errors = bytearray(), b""

    def ask(self, line: bytes) -> bytes:
        """The line that the program answers to a line. Raises Fault if none comes in time, or none that may be read."""
        until_s = time.monotonic() + self.answer_s
        left = memoryview(line)
        end = -1
        with selectors.DefaultSelector() as selector:
            selector.register(self._given, selectors.EVENT_WRITE)
            for file in (self._heard, self._said):
                selector.register(file, selectors.EVENT_READ)
            while left or end < 0:
                if (wait_s := until_s - time.monotonic()) <= 0:
                    raise Fault(f"did not answer within {self.answer_s:g} s{self._last_words()}")
                ready = {key.fd for key, _ in selector.select(min(wait_s, 0.5))}
                if not ready and self._process.poll() is not None:
                    raise self._gone()
                if self._given in ready:
                    try:
                        left = left[os.write(self._given, left[:_PIECE]) :]
                    except BrokenPipeError:
                        raise self._gone() from None
                    if not left:
                        selector.unregister(self._given)
                if self._said in ready and not self._hear_errors():
                    selector.unregister(self._said)
                if self._heard in ready:
                    if not (piece := os.read(self._heard, _PIECE)):
                        raise self._gone()
                    found = piece.find(b"\n")
                    end = len(self._answer) + found if end < 0 <= found else end
                    self._answer += piece
                    if len(self._answer) > MOST_ANSWER_BYTES:
                        raise Fault(f"answered a line of more than {MOST_ANSWER_BYTES >> 20} MiB")
        answer = bytes(self._answer[:end])
        del self._answer[: end + 1]
        return answer

    def close(self) -> None:
        """Let the program leave, then end what is left of it and of all that it started."""
        process = self._process
        if process.stdin is not None:
            process.stdin.close()
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(_LEAVES_IN_S)
        self._end()

    def _hear_errors(self) -> bool:
        """Take what is on standard error; whether more may come."""
        with contextlib.suppress(BlockingIOError):
            piece = os.read(self._said, _PIECE)
            self._errors = (self._errors + piece)[-_KEPT_BYTES:]
            return bool(piece)
        return False

    def _gone(self) -> Fault:
        """That the program ended, or closed a pipe."""
        try:
            code = self._process.wait(_LEAVES_IN_S)
        except subprocess.TimeoutExpired:
            return Fault(f"closed its standard input or output{self._last_words()}")
        how = f"ended with exit code {code}" if code >= 0 else f"was ended by signal {-code}"
        return Fault(f"{how} before it answered{self._last_words()}")

    def _last_words(self) -> str:
        """The last line on standard error, quoted and escaped; empty if there is none."""
        for _ in range(_KEPT_BYTES):  # a program may never stop writing
            if not self._hear_errors():
                break
        lines = self._errors.decode("utf-8", "replace").split("\n")
        last = next((line.strip() for line in reversed(lines) if line.strip()), "")
        return f"; its last line on standard error: {shown(last, 200)}" if last else ""


def _end(process: subprocess.Popen[bytes], mark: str) -> None:
    """Kill a process, its group, and on Linux whatever it started elsewhere."""
    with contextlib.suppress(OSError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()
    if sys.platform == "linux":
        processes.end_marked(mark, within_s=10.0)
    for pipe in (process.stdin, process.stdout, process.stderr):
        if pipe is not None:
            pipe.close()
