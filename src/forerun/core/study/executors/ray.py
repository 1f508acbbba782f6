"""Cells on a Ray cluster that the user already has (extra `[ray]`).

Chunks of about a second each; the same outcomes as everywhere else. The address is always explicit: `local` starts a
Ray of its own on this machine, anything else joins the cluster that listens there.

A chunk runs in a worker of Ray's. Where that worker dies of a cell (killed, out of memory), or where a cell has a limit
of time, the chunk runs *apart*: the worker starts a process of its own for it, exactly as the local pool does, so a cell
that hangs or dies is blamed alone and in the same words as on one machine.
"""

from __future__ import annotations

import os
import socket
import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import islice
from typing import Any, Final

from forerun.core.errors import StoreError, UsageError
from forerun.core.study.cell import Failed, Outcome, run_cell
from forerun.core.study.executors.processes import Processes
from forerun.core.study.expand import Cell, StudyPlan
from forerun.core.units import whole_number

#: seconds of work in a chunk, aimed at: Ray costs about a millisecond a chunk, a process apart a second
CHUNK_S: Final = 1.0
APART_CHUNK_S: Final = 20.0
MAX_CHUNK: Final = 4096
#: times that Ray may start a chunk again whose machine was lost
RETRIES: Final = 2


@dataclass(frozen=True, slots=True)
class _Sent:
    """A chunk on its way: its cells, when it was sent, and whether it runs in a process apart."""

    cells: list[Cell]
    since_s: float
    apart: bool


class OnRay:
    """Runs cells on the Ray cluster at `address`, at most `workers` chunks at once (0: as many as it has cores).

    Each cell may take `limit_s` seconds (0: no limit).
    """

    def __init__(self, address: str, *, workers: int = 0, limit_s: float = 0.0) -> None:
        if not address:
            raise UsageError.at(
                "--address", "name the Ray cluster's address, or 'local' to start one on this machine"
            )
        self.address = address
        self.workers = workers
        self.limit_s = limit_s

    def run(self, plan: StudyPlan, cells: Iterable[Cell]) -> Iterator[Outcome]:
        """The outcomes, as they come. Raises UsageError where Ray is absent or cannot be reached."""
        ray = self._connect()
        try:
            here = ray.remote(num_cpus=1, max_retries=0)(_run_here)
            apart = ray.remote(num_cpus=1, max_retries=RETRIES)(_run_apart)
            shared = ray.put(plan)
            most = self.workers or max(1, int(ray.cluster_resources().get("CPU", 1)))
            source = iter(cells)
            # Chunks whose worker died: nobody knows of which cell, so each is done again apart.
            suspects: list[list[Cell]] = []
            running: dict[Any, _Sent] = {}
            pace_s = 0.0
            while True:
                while len(running) < most:
                    again = suspects.pop() if suspects else None
                    alone = again is not None or self.limit_s > 0
                    chunk = again or list(islice(source, self._size(pace_s)))
                    if not chunk:
                        break
                    sent = apart.remote(shared, chunk, self.limit_s) if alone else here.remote(shared, chunk)
                    running[sent] = _Sent(chunk, time.monotonic(), alone)
                if not running:
                    return
                ready, _ = ray.wait(list(running), num_returns=1)
                for reference in ready:
                    sent_chunk = running.pop(reference)
                    try:
                        outcomes = ray.get(reference)
                    except ray.exceptions.RayError as error:
                        if not sent_chunk.apart:
                            suspects.append(sent_chunk.cells)
                        elif len(sent_chunk.cells) > 1:
                            suspects += [[cell] for cell in sent_chunk.cells]
                        else:
                            reason = f"could not be run on the Ray cluster: {type(error).__name__}"
                            yield Failed(sent_chunk.cells[0].number, reason)
                        continue
                    yield from outcomes
                    pace_s = (time.monotonic() - sent_chunk.since_s) / len(sent_chunk.cells)
        finally:
            ray.shutdown()

    def _size(self, pace_s: float) -> int:
        """Cells in the next chunk: one until their pace is known."""
        aim_s = APART_CHUNK_S if self.limit_s else CHUNK_S
        return 1 if pace_s == 0 else max(1, min(MAX_CHUNK, int(aim_s / pace_s)))

    def _connect(self) -> Any:
        """Ray, connected to the address. Raises UsageError where it cannot be imported, StoreError where no cluster
        answers.
        """
        ray = import_ray("--executor ray")
        answers(self.address, f"--address {self.address}")
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
            raise StoreError.at(f"--address {self.address}", unreachable(error)) from error
        return ray


def import_ray(where: str) -> Any:
    """The package ray. Raises UsageError, at `where`, where it cannot be imported."""
    try:
        import ray
    except ImportError as error:
        raise UsageError.at(where, "Ray is not installed; pip install 'forerun[ray]'") from error
    except (
        Exception
    ) as error:  # Ray looks for accelerators while it is imported, and may break on what it finds
        what = f"Ray cannot be imported here: {type(error).__name__}: {' '.join(str(error).split())[:300]}"
        raise UsageError.at(where, what) from error
    return ray


def unreachable(error: Exception) -> str:
    """What to say where Ray could not connect, with a hint if a token may be missing."""
    said = " ".join(str(error).split())[:300] or type(error).__name__
    what = f"no Ray cluster can be reached: {said}"
    if os.environ.get("RAY_AUTH_MODE") != "token":
        what += "; if it asks for a token, set RAY_AUTH_MODE=token and RAY_AUTH_TOKEN here as on its machines"
    return what


def answers(address: str, where: str) -> None:
    """Whether anything listens at `host:port`: Ray itself would try for minutes. Raises StoreError, at `where`, if not."""
    host, colon, port = address.removeprefix("ray://").rpartition(":")
    number = whole_number(port)
    if not colon or number is None or number > 65535:
        return
    try:
        socket.create_connection((host, number), timeout=5).close()
    except OSError as error:
        raise StoreError.at(where, f"no Ray cluster can be reached: {error.strerror or error}") from error


def _run_here(plan: StudyPlan, cells: list[Cell]) -> list[Outcome]:
    return [run_cell(plan, cell) for cell in cells]


def _run_apart(plan: StudyPlan, cells: list[Cell], limit_s: float) -> list[Outcome]:
    return list(Processes(1, limit_s=limit_s).run(plan, cells))
