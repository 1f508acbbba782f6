"""`BlockDataset` against a plain loop over local blocks, and against what the probes predicted behind latency.

    python benchmarks/loading/reader.py [--latency 10,40] [--rounds 25] [--samples 1280] [--json]

Overhead: time of an epoch over that of a loop that reads each block's file and compares the checksums, of the processor and
of the clock; the two run in turn, and the median of the rounds' ratios counts. For blocks of 16, 64 and 256, without
threads, with one, and with as many as the probes chose behind latency, the most. Behind latency: probes choose a cell, the
corpus is packed in blocks of that size, and `BlockDataset` with that number of threads loads for steps of 100 ms that
sleep, decoding sleeps 1 ms; its throughput over what was predicted,
median of three. Exit code 1 if a bar is missed on a quiet machine. See `reality` for how the store is run.
"""

from __future__ import annotations

import argparse
import os
import statistics
import sys
import tempfile
import time
import zlib
from pathlib import Path
from typing import Any

from reality import numbers, packed_corpus, quiet, store, tell

from forerun.blocks.container.container import Blocks
from forerun.blocks.container.pack import PackSpec, pack
from forerun.blocks.reader import BlockDataset
from forerun.loading.engine.calibration import predict
from forerun.loading.measure.answers import Job
from forerun.loading.measure.corpus import make_corpus, open_corpus
from forerun.loading.measure.probing import answer

ROUNDS, SAMPLES, REPEATS = 25, 1280, 3
OVERHEAD_BAR, SHARE_BAR = 0.03, 0.95
#: samples a block
BLOCKS = (16, 64, 256)


def plain_loop(blocks: Blocks, order: list[int]) -> int:
    """What any reader does: each block's file, views of its samples, their checksums."""
    read = 0
    for block in order:
        for row, view in enumerate(blocks.read_block(block), start=int(blocks.index.first[block])):
            if zlib.crc32(view) != blocks.index.crc32[row]:
                raise AssertionError(row)
            read += len(view)
    return read


def overheads(blocks: Blocks, threads: int, rounds: int) -> dict[str, Any]:
    """Seconds of an epoch over a plain loop's, minus one; of the clock and of the processor."""
    reader = BlockDataset(blocks.folder, threads=threads, shuffle=False)
    order = list(range(blocks.blocks))
    spent: dict[str, list[tuple[float, float]]] = {"plain": [], "reader": []}
    for turn in range(rounds + 1):
        for name in spent if turn % 2 else reversed(spent):
            cpu_s, begun = time.process_time(), time.perf_counter()
            if name == "plain":
                read = plain_loop(blocks, order)
            else:
                read = sum(len(sample) for _, sample in reader)
            assert read == blocks.manifest["bytes"]
            if turn:  # the first warms up
                spent[name].append((time.perf_counter() - begun, time.process_time() - cpu_s))
    wall, cpu = (
        statistics.median(mine[at] / plain[at] - 1 for mine, plain in zip(spent["reader"], spent["plain"]))
        for at in (0, 1)
    )
    return {
        "block_samples": int(blocks.manifest["block_samples"]),
        "threads": threads,
        "overhead": wall,
        "cpu_overhead": cpu,
        "plain_s": statistics.median(wall_s for wall_s, _ in spent["plain"]),
    }


def decode(sample: Any) -> Any:
    """A millisecond of waiting, as the probes' decoding."""
    time.sleep(0.001)
    return sample


def epoch_s(reader: BlockDataset, job: Job, samples: int) -> float:
    """Seconds of a training loop over so many samples."""
    begun = time.perf_counter()
    for taken, _ in enumerate(reader, start=1):
        if taken % job.batch == 0:
            time.sleep(job.step_s)
        if taken == samples:
            break
    return time.perf_counter() - begun


def behind_latency(files: Path, latency_ms: float, samples: int) -> dict[str, Any]:
    """The chosen cell's throughput over the predicted one."""
    job, before = Job(), os.getloadavg()[0]
    with (
        packed_corpus() as probed,
        store(probed, "--latency", f"{latency_ms:g}ms") as url,
        open_corpus(url) as corpus,
    ):
        found = answer(corpus, job)
        assert found.profile is not None
        predicted_s = predict(found.profile, job.work(corpus, samples), found.cell)
    with tempfile.TemporaryDirectory() as temporary:
        folder = pack(files, Path(temporary) / "blocks", PackSpec(found.cell.block)).folder
        with store(folder, "--latency", f"{latency_ms:g}ms") as url:
            reader = BlockDataset(url, threads=found.cell.threads, decode=decode)
            seconds = [epoch_s(reader, job, samples) for _ in range(REPEATS)]
    return {
        "latency_ms": latency_ms, "cell": str(found.cell), "threads": found.cell.threads, "predicted_s": predicted_s,
        "measured_s": statistics.median(seconds), "share_of_predicted": predicted_s / statistics.median(seconds),
        "load_before": before, "load_after": os.getloadavg()[0],
    }  # fmt: skip


def main() -> int:
    """Print what was found; 1 if a bar is missed on a quiet machine."""
    options = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    options.add_argument("--latency", default="10,40")
    options.add_argument("--rounds", type=int, default=ROUNDS)
    options.add_argument("--samples", type=int, default=SAMPLES)
    options.add_argument("--json", action="store_true")
    given = options.parse_args()
    before = os.getloadavg()[0]
    with tempfile.TemporaryDirectory() as temporary:
        files = Path(temporary) / "files"
        make_corpus(files, 4096)
        remote = [behind_latency(files, latency, given.samples) for latency in numbers(given.latency)]
        planned = max((row["threads"] for row in remote), default=0)
        local = []
        for size in BLOCKS:
            blocks = pack(files, Path(temporary) / f"blocks{size}", PackSpec(size))
            local += [overheads(blocks, threads, given.rounds) for threads in sorted({0, 1, planned})]
    missed = []
    if quiet(before, os.getloadavg()[0]):
        missed += [
            f"{name} {row[name]:.3f} at {row['block_samples']} x {row['threads']}"
            for row in local
            for name in ("overhead", "cpu_overhead")
            if row[name] > OVERHEAD_BAR
        ]
        missed += [
            f"{row['share_of_predicted']:.3f} of the predicted throughput at {row['latency_ms']:g} ms"
            for row in remote
            if row["share_of_predicted"] < SHARE_BAR
        ]
    return tell({"local": local, "behind_latency": remote, "missed": missed}, given.json)


if __name__ == "__main__":
    sys.exit(main())
