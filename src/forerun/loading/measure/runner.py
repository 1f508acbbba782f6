"""The loader under test: threads, a buffer, a training loop; the simulator's model in real time.

At the start the threads take pieces (stretches of a block) in order. Each reads its piece, then decodes and hands over
its samples one by one; the loop takes a batch, sleeps or computes a step, and asks again.
"""

from __future__ import annotations

import hashlib
import itertools
import queue
import threading
import time
import zlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Final

import numpy as np
from numpy.typing import NDArray

from forerun.blocks.container.samples import undecodable
from forerun.blocks.reader.clients import Client
from forerun.core.errors import DataError, ForerunError, StoreError
from forerun.loading.measure.torch_step import small_step

#: no sample for so long means that the loader hangs
STUCK_S: Final = 60.0

Act = Callable[[float], None]
#: decodes a sample; raises whatever its library raises
Decoder = Callable[[memoryview], object]


@dataclass(frozen=True)
class Piece:
    """A stretch of consecutive samples of one file: where, and the samples' lengths.

    Parameters
    ----------
    name : of the file.
    first : byte at which the piece begins.
    lengths : bytes of each sample.
    what : the piece in words.
    crc32 : checksums, where they are known; of each sample, or of each part where samples have several (default: none).
    keys : names likewise, by which messages name a sample that fails its checksum (default: none).
    parts : of each sample, the lengths of its parts, where samples have several (default: none has).
    """

    name: str
    first: int
    lengths: tuple[int, ...]
    what: str
    crc32: tuple[int, ...] = ()
    keys: tuple[str, ...] = ()
    parts: tuple[tuple[int, ...], ...] = ()

    @property
    def length(self) -> int:
        """Its bytes."""
        return sum(self.lengths)

    def key(self, at: int) -> str:
        """A sample in words.

        Parameters
        ----------
        at : number of the sample in the piece.
        """
        return f"sample {self.keys[self.row(at)]!r}" if self.keys else f"sample {at}"

    def row(self, at: int) -> int:
        """Where the checksums and keys of a sample begin.

        Parameters
        ----------
        at : number of the sample in the piece; of samples with several parts, several rows belong to one.
        """
        return sum(map(len, self.parts[:at])) if self.parts else at

    def cut(self, a: int, b: int) -> Piece:
        """The samples from the a-th to before the b-th.

        The whole piece is returned as it is.

        Parameters
        ----------
        a, b : numbers of samples in the piece.
        """
        if (a, b) == (0, len(self.lengths)):
            return self
        rows = slice(self.row(a), self.row(b))
        return replace(
            self, first=self.first + sum(self.lengths[:a]), lengths=self.lengths[a:b], crc32=self.crc32[rows],
            keys=self.keys[rows], parts=self.parts[a:b],
        )  # fmt: skip

    def parts_of(self, at: int, data: memoryview) -> list[memoryview]:
        """The bytes of each part of a sample."""
        if not self.parts:
            return [data]
        edges = itertools.accumulate(self.parts[at], initial=0)
        return [data[a:b] for a, b in itertools.pairwise(edges)]

    def decoded(self, at: int, data: memoryview, decoder: Decoder) -> object:
        """Decode a sample, of several parts the largest.

        Parameters
        ----------
        at : number of the sample in the piece.
        data : its bytes.
        decoder : raises whatever its library raises.

        Raises DataError, naming sample and file, for whatever the decoder's library throws.
        """
        try:
            return decoder(max(self.parts_of(at, data), key=len))
        except Exception as error:
            raise undecodable(self.name, f"{self.key(at)} ({self.what})", error) from error

    def check(self, at: int, data: memoryview) -> None:
        """Raise DataError, naming sample and file, if the sample's bytes are not what was packed.

        Pieces without checksums are not checked.

        Parameters
        ----------
        at : number of the sample in the piece.
        data : its bytes.
        """
        if not self.crc32:
            return
        for row, part in enumerate(self.parts_of(at, data), start=self.row(at)):
            if zlib.crc32(part) != self.crc32[row]:
                key = self.keys[row] if self.keys else row
                raise DataError.at(self.name, f"sample {key!r} ({self.what}) fails its checksum")


@dataclass(frozen=True)
class LoaderRun:
    """What one run measured, in seconds: the total, waits of each batch, single requests and decodes.

    Parameters
    ----------
    overhead_s : of a thread, a piece: what was neither reading, nor decoding, nor waiting for space.
    decode_cpu_s : the processor time of decoding a sample, mean.
    process_cpu_s : of the whole process, in all.
    queued_s : of its threads, in all, ready to run while every processor was taken (0 where the system does not
        report it).
    total_s : with the last step.
    load_s, step_s : float64, of each batch.
    request_s, decode_s : float64, of each piece and each sample, in the order in which threads finished.
    samples : delivered.
    """

    total_s: float
    load_s: NDArray[np.float64]
    request_s: NDArray[np.float64]
    decode_s: NDArray[np.float64]
    step_s: NDArray[np.float64]
    samples: int
    overhead_s: float
    decode_cpu_s: float = 0.0
    process_cpu_s: float = 0.0
    queued_s: float = 0.0

    @property
    def load_share(self) -> float:
        """Waits after the first batch over the total."""
        return float(self.load_s[1:].sum() / self.total_s)


def queued_s() -> float:
    """Seconds that this thread has been ready to run and waited for a processor; 0 where the system does not report it.

    Linux counts it for every thread; the sum over a run's threads shows whether they lacked processors.
    """
    try:
        with Path("/proc/thread-self/schedstat").open(
            "rb"
        ) as file:  # Linux: running, waiting [ns], times it ran
            return int(file.read().split()[1]) * 1e-9
    except (OSError, ValueError, IndexError):
        return 0.0


_WORK: Final = bytes(32 * 1024)


def busy(seconds: float) -> None:
    """Use a core for so much processor time, giving the interpreter away meanwhile, as decoders in C do."""
    end = time.thread_time() + seconds
    while time.thread_time() < end:
        hashlib.sha256(_WORK).digest()


def python(seconds: float) -> None:
    """Use the interpreter for so much processor time; other threads wait, as for a decoder written in Python."""
    end = time.thread_time() + seconds
    while time.thread_time() < end:
        pass


def nothing(_seconds: float) -> None:
    """Do nothing."""


def torch_step(seconds: float) -> None:
    """Training steps of a small network in torch, one after another, for so long."""
    end = time.perf_counter() + seconds
    step = small_step()
    while time.perf_counter() < end:
        step()


ACTS: Final[dict[str, Act]] = {
    "sleep": time.sleep,
    "busy": busy,
    "python": python,
    "none": nothing,
    "torch": torch_step,
}


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
    decoder: Decoder | None = None,
) -> LoaderRun:
    """Load all pieces once, in threads, and take the samples in batches as a training loop does.

    Parameters
    ----------
    client : reads the pieces; used by many threads at once.
    pieces : in the order in which they are taken.
    threads : that read and decode.
    batch : samples a step.
    step_s, decode_s : seconds of a step and of decoding a sample.
    buffer_samples : decoded samples that may wait (default: 256).
    step, decode : what takes that long (default: sleeping).
    decoder : decodes what is read, in place of a `decode` that takes `decode_s` (default: none).

    Raises what a reading thread raised, or StoreError if nothing arrives for a minute.
    """
    state = _State(client, iter(pieces), queue.Queue(buffer_samples), decode_s, decode, decoder)
    total = sum(len(piece.lengths) for piece in pieces)
    cpu_s, queued_before_s = time.process_time(), queued_s()
    begun = time.perf_counter()
    state.start(threads)
    loads: list[float] = []
    steps: list[float] = []
    taken = 0
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
        state.stop()
    spare_s = state.busy_s - sum(state.requests) - sum(state.decodes)
    return LoaderRun(
        total_s=ended - begun,
        load_s=np.array(loads),
        request_s=np.array(state.requests),
        decode_s=np.array(state.decodes),
        step_s=np.array(steps),
        samples=total,
        overhead_s=spare_s / len(pieces),
        decode_cpu_s=state.decode_cpu_s / max(1, len(state.decodes)),
        process_cpu_s=time.process_time() - cpu_s,
        queued_s=state.queued_s + queued_s() - queued_before_s,
    )


@dataclass
class _State:
    """What the threads share.

    Parameters
    ----------
    client : reads the pieces.
    todo : pieces that nobody has taken.
    buffer : decoded samples, or what a thread raised.
    decode_s, decode, decoder : seconds of decoding a sample, what takes them, and what decodes in earnest instead.
    lock : for `todo` and the sums; lists are appended to without it.
    requests, decodes : seconds of each piece read and of each sample decoded, in the order in which threads finished.
    busy_s : of the threads that have ended, without waiting for space in the buffer.
    decode_cpu_s : processor seconds of decoding, in the threads that have ended.
    queued_s : seconds that these threads were ready to run and waited for a processor.
    stopped : no thread takes another piece.
    threads : all that were started.
    """

    client: Client
    todo: Iterator[Piece]
    buffer: queue.Queue[memoryview | ForerunError]
    decode_s: float
    decode: Act
    decoder: Decoder | None
    lock: threading.Lock = field(default_factory=threading.Lock)
    requests: list[float] = field(default_factory=list)
    decodes: list[float] = field(default_factory=list)
    busy_s: float = 0.0
    decode_cpu_s: float = 0.0
    queued_s: float = 0.0
    stopped: bool = False
    threads: list[threading.Thread] = field(default_factory=list)

    def start(self, threads: int) -> None:
        """Let so many threads read."""
        for number in range(threads):
            thread = threading.Thread(target=self.work, name=f"loader {number}", daemon=True)
            self.threads.append(thread)
            thread.start()

    def work(self) -> None:
        """A thread: read pieces, decode their samples and hand them over, until there is nothing to do."""
        begun_s, waited_s, cpu_s = time.perf_counter(), 0.0, 0.0
        try:
            while (piece := self.next()) is not None:
                asked = time.perf_counter()
                data = memoryview(self.client.read(piece.name, piece.first, piece.length, piece.what))
                self.requests.append(time.perf_counter() - asked)
                at = 0
                for row, length in enumerate(piece.lengths):
                    sample = data[at : at + length]
                    piece.check(row, sample)
                    begun, cpu = time.perf_counter(), time.thread_time()
                    self.decoded(piece, row, sample)
                    cpu_s += time.thread_time() - cpu
                    self.decodes.append(time.perf_counter() - begun)
                    waited_s += self.put(sample)
                    at += length
        except ForerunError as error:
            self.put(error)
        with self.lock:
            self.busy_s += time.perf_counter() - begun_s - waited_s
            self.decode_cpu_s += cpu_s
            self.queued_s += queued_s()  # of a thread that ends here, and began here

    def decoded(self, piece: Piece, number: int, sample: memoryview) -> None:
        """Decode in earnest, or as long as was asked for."""
        if self.decoder is not None:
            piece.decoded(number, sample, self.decoder)
        elif self.decode_s:
            self.decode(self.decode_s)

    def next(self) -> Piece | None:
        """A thread's next piece; None where there is none."""
        with self.lock:
            return None if self.stopped else next(self.todo, None)

    def put(self, item: memoryview | ForerunError) -> float:
        """Hand over; returns the seconds waited for space.

        Gives up when the run is stopped.

        Parameters
        ----------
        item : a sample, or what a thread raised.
        """
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
        """The next sample. Raises what a thread raised, or StoreError if nothing comes for a minute."""
        try:
            item = self.buffer.get(timeout=STUCK_S)
        except queue.Empty:
            raise StoreError.at("loader", f"no sample came for {STUCK_S:g} s") from None
        if isinstance(item, ForerunError):
            raise item
        return item

    def stop(self) -> None:
        """End all threads with the sample that they have."""
        self.stopped = True
        for thread in self.threads:
            thread.join(5)
