"""Speed of the loading room, as ratios: compiled loops against a heap and Python twins, blocks against tar.

    python benchmarks/loading/bench.py [--json]

Least of five rounds of processor time. Exit code 1 if a floor is missed.
"""

from __future__ import annotations

import argparse
import heapq
import json
import shutil
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np

from forerun.domains.loading.blocks.container import Blocks
from forerun.domains.loading.blocks.pack import PackSpec, pack, unpack
from forerun.domains.loading.blocks.samples import list_files
from forerun.domains.loading.blocks.tar import read_tar, write_tar
from forerun.domains.loading.delivery_law import FittedDelivery
from forerun.domains.loading.kernels.deliver import deliver
from forerun.domains.loading.model import Reader, StoreModel
from forerun.domains.loading.streaming import stream
from forerun.measure.loading.corpus import make_corpus

ROUNDS = 5


def least(act: Callable[[], object], clock: Callable[[], float] = time.process_time) -> float:
    """Least seconds of several rounds, after one to warm up."""
    act()
    found = []
    for _ in range(ROUNDS):
        begun = clock()
        act()
        found.append(clock() - begun)
    return min(found)


def yardstick() -> float:
    """Push and pop pairs a second of a 64-entry heap of tuples."""
    entries = [(float(i), i) for i in range(64)]
    heapq.heapify(entries)

    def pairs() -> None:
        for i in range(100_000):
            heapq.heappushpop(entries, (entries[0][0] + 64.0, i))

    return 100_000 / least(pairs)


def events(n: int) -> float:
    """Samples a second of the event model, 8 threads, blocks of n."""
    samples = 100_000
    reader = Reader([np.full(n, 5e4)] * (samples // n), 8, 64, 0.0, 0.001, buffer_samples=256)
    return samples / least(lambda: stream([reader], StoreModel(1e9, 1e9, 6, 1e5, 10), latency_s=0.01))


def recursion() -> float:
    """Batches a second of the delivery recursion."""
    n = 200_000
    worker, build = np.arange(n) % 8, np.full(n, 1.0)
    return n / least(lambda: deliver(worker, build, np.array([0.1]), np.zeros(8), 16))


def grid() -> float:
    """Seconds of 60 cells of the notebook's recursion."""
    cells = [FittedDelivery(34_745, build, 0.07) for build in np.linspace(1, 10, 12)]
    return least(
        lambda: [cell.completion_s(sleep) for cell in cells for sleep in (0.1, 0.25, 0.5, 0.75, 1.0)]
    )


def containers(folder: Path) -> dict[str, float]:
    """Parse a sample against tar; pack and unpack against copying."""
    files, count = folder / "files", 2000
    make_corpus(files, count)
    blocks = pack(files, folder / "blocks", PackSpec(64))
    write_tar(folder / "x.tar", ((entry.key, entry.path.read_bytes()) for entry in list_files(files)))
    raw = [(b, blocks.block_path(b).read_bytes()) for b in range(blocks.blocks)]
    parse = least(lambda: [blocks.parse(b, data) for b, data in raw])
    read = least(lambda: [Blocks.read_block(blocks, b) for b in range(blocks.blocks)])
    tar = least(lambda: sum(1 for _ in read_tar(folder / "x.tar")))

    def fresh(name: str, act: Callable[[Path], object]) -> float:
        found = []
        for _ in range(3):
            shutil.rmtree(folder / name, ignore_errors=True)
            begun = time.perf_counter()
            act(folder / name)
            found.append(time.perf_counter() - begun)
        return min(found)

    copied = fresh("copy", lambda target: shutil.copytree(files, target))
    packed = fresh("packed", lambda target: pack(files, target, PackSpec(64)))
    unpacked = fresh("back", lambda target: unpack(folder / "blocks", target))
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
    single, many, batches = events(1), events(16), recursion()
    with tempfile.TemporaryDirectory() as folder:
        found = containers(Path(folder))
    rows = [
        ("heap pairs a second (yardstick)", y, None, "at least"),
        ("event model, blocks of 1, samples/s over the yardstick", single / y, 0.05, "at least"),
        ("event model, blocks of 16, samples/s over the yardstick", many / y, 0.3, "at least"),
        ("event model, blocks of 1, samples/s", single, 2e5, "at least"),
        ("recursion, batches/s over the yardstick", batches / y, 5, "at least"),
        ("60 cells of the recursion, s", grid(), 1.0, "at most"),
        ("parse, times faster than tar", found["parse, times faster than tar"], 50, "at least"),
        (
            "read and parse, times faster than tar",
            found["read and parse, times faster than tar"],
            None,
            "at least",
        ),
        ("pack over copy, wall time", found["pack over copy"], 2, "at most"),
        ("unpack over copy, wall time", found["unpack over copy"], 2, "at most"),
    ]
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
