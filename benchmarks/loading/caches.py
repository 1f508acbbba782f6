"""Caches of four nodes, really run, beside the prediction: bytes from the store and from other nodes, and seconds.

    python benchmarks/loading/caches.py [--json]

Four processes train on one store of 20 MB/s, in blocks of one size, with caches of a sixth of the data each: their own,
partitioned or replicated, pinned or LRU; once more without. Three epochs from empty caches, three interleaved runs; the last
epoch counts, its median seconds and its mean bytes. Exit code 1 where bytes under pinned caches that are partitioned are
not the predicted ones, other bytes are off by more than a share of the data, or seconds on a quiet machine by more than
their bar. See `reality` for how the store is run.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

import numpy as np
from reality import quiet, store, tell

from forerun.blocks.container.pack import PackSpec, pack
from forerun.loading.engine.calibration import StoreProfile
from forerun.loading.engine.model import StoreModel
from forerun.loading.engine.sharing import hit_shares
from forerun.loading.measure.answers import Job
from forerun.loading.measure.corpus import open_corpus
from forerun.loading.policy import Cell
from forerun.loading.scenario import Nodes

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from validation.loading.nodes import NodesEpoch, predict_nodes, run_nodes

#: which blocks are cached, or leave, rests on which node was a moment earlier
SECONDS_BAR, BYTES_BAR = 0.10, 0.05
NODES: Final = 4
LINK_BYTES_PER_S: Final = 2e7
LATENCY_S: Final = 0.005
#: samples of one size, in blocks of four; each node takes 64 blocks an epoch
SAMPLES, SAMPLE_BYTES, BLOCK = 1024, 50_000, 4
EPOCHS, REPEATS = 3, 3
CACHE_BLOCKS: Final = 40
#: of reading from another node: as of a network, above what loopback takes
PEER_S, PEER_BYTES_PER_S = 0.002, 2e8
JOB: Final = Job(batch=16, step_s=0.02, decode_s=0.0)


@contextmanager
def equal_blocks() -> Iterator[Path]:
    """A container of samples of one size."""
    with tempfile.TemporaryDirectory() as temporary:
        files = Path(temporary) / "files"
        files.mkdir()
        for number in range(SAMPLES):
            (files / f"{number:05}.bin").write_bytes(np.random.default_rng(number).bytes(SAMPLE_BYTES))
        yield pack(files, Path(temporary) / "blocks", PackSpec(BLOCK)).folder


def cases() -> list[Nodes]:
    """Without caches, and every sharing with every policy."""
    bare = Nodes(count=NODES, link_latency_s=PEER_S, link_bytes_per_s=PEER_BYTES_PER_S)
    size = float(CACHE_BLOCKS * BLOCK * SAMPLE_BYTES)
    return [
        bare,
        *(
            bare.with_(cache_bytes=size, policy=policy, sharing=sharing)
            for sharing in ("none", "partitioned", "replicated")
            for policy in ("pinned", "lru")
        ),
    ]


def caches(blocks: Path) -> list[dict[str, Any]]:
    """A row a case: its last epoch, measured and predicted."""
    runs: list[list[tuple[NodesEpoch, ...]]] = []
    options = ("--latency", f"{LATENCY_S}s", "--sigma", "0", "--shared", f"{LINK_BYTES_PER_S / 1e6:g}MB/s")
    with store(blocks, *options) as url, open_corpus(url) as corpus:
        known = StoreModel(shared_bytes_per_s=LINK_BYTES_PER_S)
        profile = StoreProfile(LATENCY_S, LINK_BYTES_PER_S, LINK_BYTES_PER_S, 0.0)
        cell, load = Cell(BLOCK, 2), JOB.work(corpus, SAMPLES)
        for repeat in range(REPEATS):
            runs.append(
                [
                    run_nodes(corpus, JOB, cell, SAMPLES, nodes, epochs=EPOCHS, seed=repeat)
                    for nodes in cases()
                ]
            )
        models = [
            [
                predict_nodes(corpus, profile, load, cell, nodes, epochs=EPOCHS, seed=repeat, store=known)
                for nodes in cases()
            ]
            for repeat in range(REPEATS)
        ]
    rows = []
    whole = float(SAMPLES * SAMPLE_BYTES)
    bare_s = float(np.median([run[0][-1].total_s for run in runs]))
    for number, nodes in enumerate(cases()):
        real, model = ([each[number] for each in side] for side in (runs, models))
        law = hit_shares(nodes, whole, EPOCHS - 1)
        last_s, predicted_s = (float(np.median([run[-1].total_s for run in side])) for side in (real, model))
        store_bytes = float(np.mean([run[-1].store_bytes for run in real]))
        rows.append(
            {
                "sharing": nodes.sharing if nodes.cache_bytes else "no cache",
                "policy": nodes.policy if nodes.cache_bytes else "",
                "store_bytes": store_bytes,
                "predicted_store_bytes": float(np.mean([run[-1].store_bytes for run in model])),
                "peer_bytes": float(np.mean([run[-1].peer_bytes for run in real])),
                "predicted_peer_bytes": float(np.mean([run[-1].peer_bytes for run in model])),
                "law_store_bytes": None if law is None else law.store * whole,
                "whole_bytes": whole,
                "bytes_add_up": all(
                    one.store_bytes + one.local_bytes + one.peer_bytes == whole for run in real for one in run
                ),
                "last_epoch_s": last_s,
                "predicted_s": predicted_s,
                "error": predicted_s / last_s - 1,
                "saved_s": bare_s - last_s,
            }
        )
    return rows


def missed_of(rows: list[dict[str, Any]], *, calm: bool) -> list[str]:
    """What misses its bar: bytes always, seconds on a quiet machine."""
    missed = []
    for row in rows:
        name = f"{row['sharing']} {row['policy']}".strip()
        if not row["bytes_add_up"]:
            missed.append(f"the bytes of {name} do not add up")
        off = abs(row["store_bytes"] - row["predicted_store_bytes"])
        exact = (row["sharing"], row["policy"]) in (("partitioned", "pinned"), ("no cache", ""))
        if off > (0.0 if exact else BYTES_BAR * row["whole_bytes"]):
            missed.append(f"store bytes of {name}")
        if calm and abs(row["error"]) > SECONDS_BAR:
            missed.append(f"seconds of {name}")
    return missed


def main() -> int:
    """Print what was found; 1 if a bar is missed."""
    options = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    options.add_argument("--json", action="store_true")
    given = options.parse_args()
    before = os.getloadavg()[0]
    with equal_blocks() as blocks:
        rows = caches(blocks)
    calm = quiet(before, os.getloadavg()[0])
    return tell({"rows": rows, "missed": missed_of(rows, calm=calm)}, given.json)


if __name__ == "__main__":
    # Nodes are processes that import this script anew.
    sys.exit(main())
