"""The loader under test: threads, a buffer, a training loop; the simulator's model in real time.

At the start the threads take pieces (stretches of a block) in order. Each reads its piece, then decodes and hands over
its samples one by one; the loop takes a batch, sleeps or computes a step, and asks again.
"""

from __future__ import annotations

import queue
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from forerun.errors import ForerunError, StoreError
from forerun.measure.loading.clients import Client

#: no sample for so long means that the loader hangs
STUCK_S: Final = 60.0

Act = Callable[[float], None]


@dataclass(frozen=True)
class Piece:
    """A stretch of consecutive samples of one file: where, and the samples' lengths."""

    name: str
    first: int
    lengths: tuple[int, ...]
    what: str

    @property
    def length(self) -> int:
        """Its bytes."""
        return sum(self.lengths)


@dataclass(frozen=True)
class LoaderRun:
    """What one run measured, in seconds: the total, waits of each batch, single requests and decodes.

    overhead_s: of a thread, a piece: what was neither reading, nor decoding, nor waiting for room.
    """

    total_s: float
    load_s: NDArray[np.float64]
    request_s: NDArray[np.float64]
    decode_s: NDArray[np.float64]
    step_s: NDArray[np.float64]
    samples: int
    overhead_s: float

    @property
    def load_share(self) -> float:
        """Waits after the first batch over the total."""
        return float(self.load_s[1:].sum() / self.total_s)


def busy(seconds: float) -> None:
    """Compute for a while instead of sleeping."""
    end = time.perf_counter() + seconds
    while time.perf_counter() < end:
        pass


ACTS: Final[dict[str, Act]] = {"sleep": time.sleep, "busy": busy}


def run_loader(
    client: Client,
    pieces: Sequence[Piece],
    *,
    threads: int,
    batch: int,
    step_s: float,
    decode_s: float,
    buffer_samples: int = 256,
    step: Act = time.sleep,
    decode: Act = time.sleep,
) -> LoaderRun:
    """Load all pieces once. Raises what a reading thread raised, or StoreError if nothing comes for a minute."""
    state = _State(client, pieces, decode_s, decode, buffer_samples)
    total = sum(len(piece.lengths) for piece in pieces)
    begun = time.perf_counter()
    crew = [threading.Thread(target=state.work, name=f"loader {i}", daemon=True) for i in range(threads)]
    for thread in crew:
        thread.start()
    loads, steps, taken = [], [], 0
    try:
        while taken < total:
            asked = time.perf_counter()
            for _ in range(min(batch, total - taken)):
                state.take()
                taken += 1
            got = time.perf_counter()
            loads.append(got - asked)
            step(step_s)
            steps.append(time.perf_counter() - got)
        ended = time.perf_counter()
    finally:
        state.stop(crew)
    spare_s = state.busy_s - sum(state.requests) - sum(state.decodes)
    return LoaderRun(
        total_s=ended - begun,
        load_s=np.array(loads),
        request_s=np.array(state.requests),
        decode_s=np.array(state.decodes),
        step_s=np.array(steps),
        samples=total,
        overhead_s=spare_s / len(pieces),
    )


class _State:
    """What the threads share."""

    def __init__(
        self, client: Client, pieces: Sequence[Piece], decode_s: float, decode: Act, buffer_samples: int
    ) -> None:
        self.client, self.decode_s, self.decode = client, decode_s, decode
        self.todo = iter(pieces)
        self.lock = threading.Lock()
        self.buffer: queue.Queue[memoryview | ForerunError] = queue.Queue(buffer_samples)
        self.requests: list[float] = []
        self.decodes: list[float] = []
        self.busy_s = 0.0
        self.stopped = False

    def work(self) -> None:
        begun_s, waited_s = time.perf_counter(), 0.0
        try:
            while (piece := self.next()) is not None:
                asked = time.perf_counter()
                data = memoryview(self.client.read(piece.name, piece.first, piece.length, piece.what))
                self.requests.append(time.perf_counter() - asked)
                at = 0
                for length in piece.lengths:
                    begun = time.perf_counter()
                    if self.decode_s:
                        self.decode(self.decode_s)
                    self.decodes.append(time.perf_counter() - begun)
                    waited_s += self.put(data[at : at + length])
                    at += length
        except ForerunError as error:
            self.put(error)
        with self.lock:
            self.busy_s += time.perf_counter() - begun_s - waited_s

    def next(self) -> Piece | None:
        with self.lock:
            return None if self.stopped else next(self.todo, None)

    def put(self, item: memoryview | ForerunError) -> float:
        """Hand over; returns the seconds waited for room."""
        try:
            self.buffer.put_nowait(item)
            return 0.0
        except queue.Full:
            begun_s = time.perf_counter()
        while not self.stopped:
            try:
                self.buffer.put(item, timeout=0.5)
                break
            except queue.Full:
                continue
        return time.perf_counter() - begun_s

    def take(self) -> memoryview:
        try:
            item = self.buffer.get(timeout=STUCK_S)
        except queue.Empty:
            raise StoreError.at("loader", f"no sample came for {STUCK_S:g} s") from None
        if isinstance(item, ForerunError):
            raise item
        return item

    def stop(self, crew: Sequence[threading.Thread]) -> None:
        self.stopped = True
        for thread in crew:
            thread.join(5)
