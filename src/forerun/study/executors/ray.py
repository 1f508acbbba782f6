"""Cells on a Ray cluster that the user already has (extra `[ray]`).

Chunks of about a second each; the same outcomes as everywhere else. The address is always explicit: `local` starts a
Ray of its own on this machine, anything else joins the cluster that listens there.
"""

from __future__ import annotations

import os
import socket
import time
from collections.abc import Iterable, Iterator
from itertools import islice
from typing import Any, Final

from forerun.errors import StoreError, UsageError
from forerun.study.cell import Outcome, run_cell
from forerun.study.expand import Cell, Plan

#: seconds of work in a chunk, aimed at: Ray costs about a millisecond a chunk
CHUNK_S: Final = 1.0
MAX_CHUNK: Final = 4096


class OnRay:
    """Runs cells on the Ray cluster at `address`, at most `workers` chunks at once (0: as many as it has cores)."""

    def __init__(self, address: str, *, workers: int = 0) -> None:
        if not address:
            raise UsageError.at(
                "--address", "name the Ray cluster's address, or 'local' to start one on this machine"
            )
        self.address = address
        self.workers = workers

    def run(self, plan: Plan, cells: Iterable[Cell]) -> Iterator[Outcome]:
        """The outcomes, as they come. Raises UsageError where Ray is absent or cannot be reached."""
        ray = self._connect()
        try:
            remote = ray.remote(num_cpus=1, max_retries=2)(_run_chunk)
            shared = ray.put(plan)
            most = self.workers or max(1, int(ray.cluster_resources().get("CPU", 1)))
            source = iter(cells)
            running: dict[Any, tuple[int, float]] = {}
            pace_s = 0.0
            while True:
                while len(running) < most:
                    size = 1 if pace_s == 0 else max(1, min(MAX_CHUNK, int(CHUNK_S / pace_s)))
                    chunk = list(islice(source, size))
                    if not chunk:
                        break
                    running[remote.remote(shared, chunk)] = (len(chunk), time.monotonic())
                if not running:
                    return
                ready, _ = ray.wait(list(running), num_returns=1)
                for reference in ready:
                    count, since_s = running.pop(reference)
                    yield from ray.get(reference)
                    pace_s = (time.monotonic() - since_s) / count
        finally:
            ray.shutdown()

    def _connect(self) -> Any:
        try:
            import ray
        except ImportError as error:
            raise UsageError.at(
                "--executor ray", "Ray is not installed; pip install 'forerun[ray]'"
            ) from error
        except (
            Exception
        ) as error:  # Ray looks for accelerators while it is imported, and may break on what it finds
            what = (
                f"Ray cannot be imported here: {type(error).__name__}: {' '.join(str(error).split())[:300]}"
            )
            raise UsageError.at("--executor ray", what) from error
        _answers(self.address)
        # Under `uv run` Ray would rebuild the environment for every worker, and hang.
        os.environ.setdefault("RAY_ENABLE_UV_RUN_RUNTIME_ENV", "0")
        options: dict[str, Any] = {"address": self.address, "log_to_driver": False, "logging_level": "ERROR"}
        if self.address == "local":
            options |= {"include_dashboard": False, "_node_ip_address": "127.0.0.1"}
            if self.workers:
                options["num_cpus"] = self.workers
        try:
            ray.init(**options)
        except (ConnectionError, RuntimeError, ValueError, OSError) as error:
            what = f"no Ray cluster can be reached: {' '.join(str(error).split())[:300]}"
            raise StoreError.at(f"--address {self.address}", what) from error
        return ray


def _answers(address: str) -> None:
    """Whether anything listens at `host:port`: Ray itself would try for minutes."""
    host, colon, port = address.removeprefix("ray://").rpartition(":")
    if not colon or not port.isdigit():
        return
    try:
        socket.create_connection((host, int(port)), timeout=5).close()
    except OSError as error:
        raise StoreError.at(
            f"--address {address}", f"no Ray cluster can be reached: {error.strerror or error}"
        ) from error


def _run_chunk(plan: Plan, cells: list[Cell]) -> list[Outcome]:
    return [run_cell(plan, cell) for cell in cells]
