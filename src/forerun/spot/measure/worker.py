"""One node: a process that trains its share of every step, copies its state on request, and restarts for every shape.

It speaks with the fleet over one inherited socket: frames of a JSON line and raw bytes, nothing is unpickled.  To change
the shape of the job the process replaces itself by a fresh one, as a real launcher would: interpreter, imports, model,
load.  `python -m forerun.spot.measure.worker SETTINGS` with settings as JSON.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import threading
import time
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import numpy as np

from forerun.spot.measure.trainees import Trainee, trainee


def framed(head: dict[str, Any], payload: bytes | memoryview = b"") -> bytes:
    """A message: a line of JSON, then bytes.

    Parameters
    ----------
    head : plain data.
    payload : what follows it (default: nothing).
    """
    return json.dumps(head).encode() + b"\n" + bytes(payload)


def unframed(message: bytes) -> tuple[dict[str, Any], memoryview]:
    """The two parts of a message."""
    line, _, _ = message.partition(b"\n")
    return json.loads(line), memoryview(message)[len(line) + 1 :]


class Worker:
    """A node in its current shape.

    Parameters
    ----------
    settings : its socket, the model, and its rank, as the fleet sent them.
    """

    def __init__(self, settings: dict[str, Any]) -> None:
        self.settings = settings
        self.socket: Connection = Connection(settings["socket"])
        self.speaking = threading.Lock()  # the writer's thread speaks too
        self.model: Trainee = trainee(settings["kind"], settings["parameters"], settings["batch"])

    def say(self, head: dict[str, Any], payload: bytes = b"") -> None:
        """Send a message to the fleet, with the shape that it is about."""
        with self.speaking:
            self.socket.send_bytes(framed({"shape": self.settings["shape"], **head}, payload))

    def run(self) -> None:
        """Report ready, then execute commands until the fleet says stop.

        A node with a checkpoint to load reports how long that took.
        """
        load_s = 0.0
        if self.settings["load"]:
            start = time.perf_counter()
            self.model.load(Path(self.settings["load"]))
            load_s = time.perf_counter() - start
        self.say({"event": "ready", "load_s": load_s})
        while True:
            command, payload = unframed(self.socket.recv_bytes())
            match command["do"]:
                case "step":
                    self._step(int(command["step"]))
                case "apply":
                    self.model.apply(np.frombuffer(payload, dtype=np.float32))
                    self.say({"event": "applied"})
                case "snapshot":
                    self._snapshot(int(command["step"]), Path(command["path"]), float(command["bytes_per_s"]))
                case "shape":
                    self._start_anew(command["settings"])
                case "stop":
                    return

    def _step(self, step: int) -> None:
        """Send loss and gradient of this rank's share of a step's batch."""
        loss, gradient = self.model.gradient(step, self.settings["rank"], self.settings["world"])
        self.say({"event": "gradient", "step": step, "loss": loss}, gradient)

    def _snapshot(self, step: int, path: Path, bytes_per_s: float) -> None:
        """Take a checkpoint: copy now, which blocks training, and write beside it.

        Parameters
        ----------
        step : whose state it is.
        path : of the file.
        bytes_per_s : at most so fast (0: as fast as it goes).
        """
        copy = self.model.snapshot()
        self.say({"event": "copied", "step": step})

        def write() -> None:
            self.model.write(copy, path, bytes_per_s)
            self.say({"event": "durable", "step": step})

        threading.Thread(target=write, daemon=True).start()

    def _start_anew(self, settings: dict[str, Any]) -> None:
        """Replace this process by one of a new shape, with the same socket."""
        os.set_inheritable(self.settings["socket"], True)
        arguments = json.dumps(self.settings | settings)
        command = [sys.executable, "-m", "forerun.spot.measure.worker", arguments]
        os.execv(sys.executable, command)  # noqa: S606


if __name__ == "__main__":
    # Ctrl-C reaches every process of a terminal; the fleet decides when this one ends.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        Worker(json.loads(sys.argv[1])).run()
    except (EOFError, OSError):
        sys.exit(0)  # the fleet is gone
