"""Speed of the loading domain, as ratios: compiled loops against a heap and SimPy, blocks against tar and copying.

    python benchmarks/loading/bench.py [--json]

Medians of five rounds, of processor time where the disk has no part in it. Exit code 1 if a floor is missed.
"""

from __future__ import annotations

import argparse
import heapq
import json
import math
import os
import shutil
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np

import forerun
from forerun.blocks.container.container import Blocks
from forerun.blocks.container.pack import PackSpec, pack, unpack
from forerun.blocks.container.samples import list_files
from forerun.blocks.container.tar import read_tar, write_tar
from forerun.loading.engine.calibration import StoreProfile, predict
from forerun.loading.engine.kernels.deliver import deliver
from forerun.loading.engine.model import Reader, StoreModel
from forerun.loading.engine.threads import stream
from forerun.loading.measure.corpus import make_corpus
from forerun.loading.measure.probing import PROBE_S
from forerun.loading.measure.runner import Piece, nothing, run_loader
from forerun.loading.policy import Cell, Load
from forerun.replication.cndlsys.law import FittedDelivery

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))
from tests.loading.test_laws_hold import threads_by_processes  # the slow twin of the event model, in simpy

ROUNDS = 5
#: the published experiment's loader: 8 workers, batches of 512 of 28,539 samples, 12 ms each, steps of 0.1 s
NOTEBOOK = """
domain: loading
dataset: {samples: 28539, sample_bytes: 220000}
store: {latency_s: 3.2ms}
cpu: {decode_s: 7.7ms, collate_s: 1.3s}
loader: {mode: workers, workers: 8, prefetch: 2}
step: {step_s: 100ms, overhead_s: 68ms}
run: {batch: 512, partition: contiguous}
"""


def middle(act: Callable[[], object], clock: Callable[[], float] = time.process_time) -> float:
    """Median seconds of five rounds, after one to warm up."""
    act()
    found = []
    for _ in range(ROUNDS):
        begun = clock()
        act()
        found.append(clock() - begun)
    return statistics.median(found)


def yardstick() -> float:
    """Push and pop pairs a second of a 64-entry heap of tuples."""
    entries = [(float(i), i) for i in range(64)]
    heapq.heapify(entries)

    def pairs() -> None:
        for i in range(100_000):
            heapq.heappushpop(entries, (entries[0][0] + 64.0, i))

    return 100_000 / middle(pairs)


def events(n: int) -> float:
    """Samples a second of the event model, 8 threads, blocks of n."""
    samples = 100_000
    reader = Reader([np.full(n, 5e4)] * (samples // n), 8, 64, 0.0, 0.001, buffer_samples=256)
    return samples / middle(lambda: stream([reader], StoreModel(1e9, 1e9, 6, 1e5, 10), latency_s=0.01))


def twins() -> float:
    """How many times faster the compiled event model is than its twin in simpy; blocks of 1, no shared link."""
    samples, store = 4000, StoreModel(1e9, math.inf, 6, 1e5, 10)
    reader = Reader([np.full(1, 5e4)] * samples, 8, 64, 0.0, 0.001, buffer_samples=256)
    latencies = np.full(samples + 1, 0.01)
    ours = middle(lambda: [stream([reader], store, latency_s=latencies) for _ in range(10)]) / 10
    return middle(lambda: threads_by_processes(reader, store, latencies)) / ours


def recursion() -> float:
    """Batches a second of the delivery recursion."""
    n = 200_000
    worker, build = np.arange(n) % 8, np.full(n, 1.0)
    return n / middle(lambda: deliver(worker, build, np.array([0.1]), np.zeros(8), 16))


def grids() -> tuple[float, float]:
    """Seconds of 60 cells of the notebook's recursion, and of 60 cells of the event model (20,000 samples each)."""
    cells = [FittedDelivery(34_745, build, 0.07) for build in np.linspace(1, 10, 12)]
    law = middle(
        lambda: [cell.completion_s(sleep) for cell in cells for sleep in (0.1, 0.25, 0.5, 0.75, 1.0)]
    )
    profile, load = StoreProfile(0.01, 6e8, 1e9, 0.001), Load(20_000, 53_428.0, 64, 0.1, 256)
    many = [Cell(block, threads) for block in (1, *range(20, 300, 20)) for threads in (1, 2, 4, 8)]
    return law, middle(lambda: [predict(profile, load, cell) for cell in many])


def simulated() -> float:
    """Simulated over real seconds of a whole run on the published experiment's loader."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "notebook.yaml"
        path.write_text(NOTEBOOK)
        scenario = forerun.load(path)
    run = forerun.simulate(scenario)
    return float(run.summary["total_s"]) / middle(lambda: forerun.simulate(scenario), time.perf_counter)


class Memory:
    """A store that takes no time."""

    def read(self, name: str, first: int, length: int, what: str) -> bytes:
        """So many bytes."""
        return bytes(length)

    def read_whole(self, name: str) -> bytes:
        """Nothing."""
        return b""

    def names(self) -> Iterator[tuple[str, int]]:
        """Nothing."""
        return iter(())


def loader(block: int, threads: int) -> float:
    """Seconds a sample of our own loader where store, decode and step take no time."""
    samples = 8192
    pieces = [Piece("x", 0, (64,) * block, "x")] * (samples // block)

    def load() -> None:
        run_loader(Memory(), pieces, threads=threads, batch=64, step_s=0, decode_s=0, step=nothing)

    return middle(load, time.perf_counter) / samples


def containers(folder: Path) -> dict[str, float]:
    """Parse a sample against tar; pack and unpack against copying."""
    files, count = folder / "files", 2000
    make_corpus(files, count)
    blocks = pack(files, folder / "blocks", PackSpec(64))
    write_tar(folder / "x.tar", ((entry.key, entry.path.read_bytes()) for entry in list_files(files)))
    raw = [(b, blocks.block_path(b).read_bytes()) for b in range(blocks.blocks)]
    parse = middle(lambda: [blocks.parse(b, data) for b, data in raw])
    read = middle(lambda: [Blocks.read_block(blocks, b) for b in range(blocks.blocks)])
    tar = middle(lambda: sum(1 for _ in read_tar(folder / "x.tar")))

    acts: dict[str, Callable[[Path], object]] = {
        "copy": lambda target: shutil.copytree(files, target),
        "packed": lambda target: pack(files, target, PackSpec(64)),
        "back": lambda target: unpack(folder / "blocks", target),
    }
    took: dict[str, list[float]] = {name: [] for name in acts}
    for _ in range(
        ROUNDS + 1
    ):  # interleaved: what else the disk does meanwhile is shared by all; the first warms up
        for name, act in acts.items():
            shutil.rmtree(folder / name, ignore_errors=True)
            os.sync()  # what one leaves to be written is not the next one's to wait for
            begun = time.perf_counter()
            act(folder / name)
            took[name].append(time.perf_counter() - begun)
    copied, packed, unpacked = (statistics.median(took[name][1:]) for name in acts)
    return {
        "parse, times faster than tar": tar / parse,
        "read and parse, times faster than tar": tar / read,
        "pack over copy": packed / copied,
        "unpack over copy": unpacked / copied,
    }


def main() -> int:
    """Print the table; 1 if a floor is missed."""
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--json", action="store_true")
    given = options.parse_args()
    y = yardstick()
    single, many = events(1), events(16)
    law_s, model_s = grids()
    with tempfile.TemporaryDirectory() as folder:
        found = containers(Path(folder))
    rows = [
        ("heap pairs a second (yardstick)", y, None, "at least"),
        ("event model, blocks of 1, samples/s over the yardstick", single / y, 0.05, "at least"),
        ("event model, blocks of 16, samples/s over the yardstick", many / y, 0.3, "at least"),
        ("event model, blocks of 1, samples/s", single, 2e5, "at least"),
        ("event model, blocks of 1, times faster than its twin", twins(), 10, "at least"),
        ("recursion, batches/s over the yardstick", recursion() / y, 5, "at least"),
        ("60 cells of the recursion, s", law_s, 1.0, "at most"),
        ("60 cells of the event model over one probe's seconds", model_s / PROBE_S, 1.0, "at most"),
        ("simulated over real time, the published experiment", simulated(), 100, "at least"),
        ("own loader's overhead, ms a sample, single files", 1e3 * loader(1, 1), 0.15, "at most"),
        ("own loader's overhead, ms a sample, blocks of 64, 8 threads", 1e3 * loader(64, 8), 0.15, "at most"),
        ("parse, times faster than tar", found["parse, times faster than tar"], 50, "at least"),
        ("read and parse, times faster than tar", found["read and parse, times faster than tar"], None, "at least"),
        ("pack over copy, wall time", found["pack over copy"], 2, "at most"),
        ("unpack over copy, wall time", found["unpack over copy"], 2, "at most"),
    ]  # fmt: skip
    missed = [
        name
        for name, value, floor, way in rows
        if floor is not None and (value < floor if way == "at least" else value > floor)
    ]
    if given.json:
        print(
            json.dumps(
                {
                    "rows": [dict(zip(("name", "value", "floor", "way"), row)) for row in rows],
                    "missed": missed,
                }
            )
        )
    else:
        for name, value, floor, way in rows:
            print(f"{name:<58} {value:>12.4g}   {f'{way} {floor:g}' if floor is not None else ''}")
        print(f"missed: {', '.join(missed)}" if missed else "all floors hold")
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
