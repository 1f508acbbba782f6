"""What MosaicML's simulator says of a loader behind latency, beside this one and what the loader really took.

    FORERUN_STREAMING_PYTHON=PATH python benchmarks/loading/head_to_head.py [--json]

PATH is the interpreter of an environment of its own with `pip install 'mosaicml-streaming[simulator]'`, which is never
needed otherwise. A store of 40 ms runs in a process of its own; decoding (1 ms) and steps (100 ms) sleep; medians of three
interleaved runs. Both simulators get the same: samples a shard or block, mean bytes, threads (there: workers), batch,
step, and the bandwidth that three probes measured. The other one knows neither latency nor decoding. Exit code 1 if
ours is more than 5 % off in the mean on a quiet machine, or where the other cannot be run.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import statistics
import subprocess
import sys
from typing import Any

from reality import MEAN_BAR, packed_corpus, quiet, store, tell

from forerun.loading.engine.calibration import predict
from forerun.loading.measure.answers import Job
from forerun.loading.measure.corpus import open_corpus
from forerun.loading.measure.probing import BLOCKS, answer, measure_cell
from forerun.loading.policy import Ask, Cell, Load

LATENCY_MS = 40
SAMPLES = 1280
CELLS = (Cell(1, 1), Cell(1, 8), Cell(16, 2), Cell(16, 8))

#: run by the other interpreter: totals of one epoch, the wait for the first batch included
PEER = """
import importlib.metadata, json, os, sys
from simulation.core.create_index import create_stream_index
from simulation.core.main import simulate
from simulation.core.sim_dataset import SimulationDataset
from simulation.core.sim_time import TimeUnit, ensure_time
from streaming.base import Stream
asked, found = json.loads(sys.argv[1]), []
for block, threads in asked["cells"]:
    size = int(block * asked["sample_bytes"])
    folder = os.path.dirname(create_stream_index(asked["samples"] // block, block, size, size))
    data = SimulationDataset(
        nodes=1, devices=1, workers=threads, streams=[Stream(local=folder)], predownload=2 * asked["batch"],
        num_canonical_nodes=1, batch_size=asked["batch"], shuffle=True, shuffle_algo="py1e", shuffle_seed=17,
        shuffle_block_size=asked["samples"],
    )
    duration = ensure_time(f"{asked['samples'] // asked['batch']}ba", TimeUnit.EPOCH)
    steps, _, startup_s, _ = next(
        simulate(data, asked["step_s"] / asked["batch"], int(asked["bytes_per_s"]), max_duration=duration)
    )
    found.append(float(sum(steps)) + float(startup_s))
print(json.dumps({"version": importlib.metadata.version("mosaicml-streaming"), "totals_s": found}))
"""


def theirs(python: str, asked: dict[str, Any]) -> dict[str, Any]:
    """What the other simulator says."""
    done = subprocess.run(
        [python, "-c", PEER, json.dumps(asked)], capture_output=True, text=True, check=False
    )
    if done.returncode:
        raise SystemExit(f"mosaicml-streaming cannot be run by {python}:\n{done.stderr[-600:]}")
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return found


def compared(python: str) -> dict[str, Any]:
    """Measured, ours and theirs."""
    job = Job()
    with (
        packed_corpus() as blocks,
        store(blocks, "--latency", f"{LATENCY_MS}ms") as url,
        open_corpus(url) as corpus,
    ):
        found = answer(corpus, job, blocks=BLOCKS)
        assert found.profile is not None
        took: dict[Cell, list[float]] = {cell: [] for cell in CELLS}
        for repeat in range(3):
            for cell in CELLS:
                took[cell].append(measure_cell(corpus, job, Ask(cell, SAMPLES), repeat).total_s)
        size = corpus.mean_bytes
    load = Load(SAMPLES, size, job.batch, job.step_s, job.buffer_samples)
    ours = [predict(found.profile, load, cell) for cell in CELLS]
    shared = found.profile.shared_bytes_per_s
    other = theirs(
        python,
        {
            "cells": [(cell.block, cell.threads) for cell in CELLS], "samples": SAMPLES, "sample_bytes": size,
            "batch": job.batch, "step_s": job.step_s, "bytes_per_s": shared if math.isfinite(shared) else 1e9,
        },
    )  # fmt: skip
    measured = [statistics.median(took[cell]) for cell in CELLS]
    about = {
        "peer": f"mosaicml-streaming {other['version']}", "latency_ms": LATENCY_MS, "samples": SAMPLES,
        "mean_error": statistics.mean(abs(a / b - 1) for a, b in zip(ours, measured)),
    }  # fmt: skip
    rows = [
        {"block": cell.block, "threads": cell.threads, "measured_s": real, "ours_s": one, "theirs_s": two}
        for cell, real, one, two in zip(CELLS, measured, ours, other["totals_s"])
    ]
    return {"about": [about], "rows": rows}


def main() -> int:
    """Print what was found; 1 if the bar is missed on a quiet machine, or the other cannot be run."""
    options = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    options.add_argument("--json", action="store_true")
    given = options.parse_args()
    python = os.environ.get("FORERUN_STREAMING_PYTHON", "")
    if not python:
        print(
            "set FORERUN_STREAMING_PYTHON: an interpreter that has mosaicml-streaming[simulator]",
            file=sys.stderr,
        )
        return 1
    before = os.getloadavg()[0]
    found = compared(python)
    late = quiet(before, os.getloadavg()[0]) and found["about"][0]["mean_error"] > MEAN_BAR
    return tell({**found, "missed": ["mean error"] if late else []}, given.json)


if __name__ == "__main__":
    sys.exit(main())
