"""How far predictions are from real runs: probes, held-out cells, merging; on this machine.

    python benchmarks/loading/reality.py [--latency 0,10,40] [--samples 640] [--rounds 3] [--json]

A store of chosen latency runs in a process of its own on the loopback interface. Decoding and steps sleep; repeats are
interleaved and medians of three count. Load averages are recorded, and a round in which more than a fifth of the cells
were too noisy, or a bar was missed, is measured again. Exit code 1 if a bar is missed in the last round and that was quiet.
See `choices`, `sharing` and `workers` beside this script for the tuner, several jobs and torch's loader. Run it at a raised
priority where others use the machine too: it sleeps for most of its six minutes.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from forerun.blocks.container.pack import PackSpec, pack
from forerun.loading.engine.calibration import best_within, fit_profile, predict, slower
from forerun.loading.measure.answers import Job
from forerun.loading.measure.checking import check
from forerun.loading.measure.corpus import make_corpus, open_corpus
from forerun.loading.measure.probing import BLOCKS, THREADS, answer, measure_cell
from forerun.loading.policies.three_probes import ThreeProbes
from forerun.loading.policy import Ask, Cell

SAMPLES = 640
MEAN_BAR, WORST_BAR, GAIN_BAR, REGRET_BAR, MERGING_BAR = 0.05, 0.10, 10.0, 0.03, 0.10


@contextmanager
def packed_corpus() -> Iterator[Path]:
    """4,096 files of 53 KB on average, packed into blocks of 256."""
    with tempfile.TemporaryDirectory() as temporary:
        make_corpus(Path(temporary) / "files", 4096)
        yield pack(Path(temporary) / "files", Path(temporary) / "blocks", PackSpec(256)).folder


@contextmanager
def store(folder: Path, *options: str) -> Iterator[str]:
    """The URL of a store process."""
    command = [sys.executable, "-m", "forerun", "store", str(folder), "--for", "20min", *options]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True) as process:
        assert process.stdout is not None
        try:
            yield process.stdout.readline().strip()
        finally:
            process.terminate()


def accuracy(blocks: Path, latency_ms: float, samples: int) -> dict[str, Any]:
    """One round at a latency."""
    job = Job()
    with store(blocks, "--latency", f"{latency_ms:g}ms") as url, open_corpus(url) as corpus:
        found = answer(corpus, job, blocks=BLOCKS)
        result: dict[str, Any] = {
            "latency_ms": latency_ms, "probes": len(found.probes), "hidden": found.hidden, "chosen": str(found.cell),
            "answer": found.sentence, "load_before": found.host.load_before,
        }  # fmt: skip
        if found.profile is None:
            # Nothing is to gain and one probe showed it; the model is judged all the same, by the three probes it needs.
            cells = ((Cell(1, 1), 640), (Cell(64, 1), 1280), (Cell(64, 8), 2048))
            a, b, c = (measure_cell(corpus, job, Ask(cell, count)) for cell, count in cells)
            found = replace(found, probes=(a, b, c), profile=fit_profile(a, b, c, found.load))
            assert found.profile is not None
        rows = check(corpus, job, found, [Cell(b, t) for b in BLOCKS for t in THREADS], samples)
        single = measure_cell(corpus, Job(step_s=0.0, decode_s=0.0), Ask(Cell(1, 1), 128)).total_s / 128
        merged = measure_cell(corpus, Job(step_s=0.0, decode_s=0.0), Ask(Cell(256, 1), 2048)).total_s / 2048
    held = [row for row in rows if not row.probe and not row.noisy]
    measured = {row.cell: row.measured_s for row in rows}
    errors = [abs(row.error) for row in held]
    # The answer chooses for the whole data; a run of few samples is judged by the choice for as few.
    few, slow = replace(found.load, samples=samples), slower(found.profile, ThreeProbes().slack)
    worse = {row.cell: predict(slow, few, row.cell) for row in rows}
    choice = best_within({row.cell: row.predicted_s for row in rows}, few, worse=worse)
    apart = [abs(measured[Cell(b, t)] / measured[Cell(1, t)] - 1) for b in BLOCKS for t in THREADS if t > 1]
    return {
        **result,
        "mean_error": float(np.mean(errors)),
        "worst_error": max(errors),
        "worst_cell": str(max(held, key=lambda row: abs(row.error)).cell),
        "held_out": len(held),
        "noisy": sum(row.noisy for row in rows),
        "gain_of_256": single / merged,
        "regret": measured[choice] / min(measured.values()) - 1,
        "chosen_for_these_samples": str(choice),
        "merging_changes": max(apart),
        "load_after": os.getloadavg()[0],
        "cells": [
            {"cell": str(r.cell), "measured_s": r.measured_s, "least_s": min(r.seconds), "most_s": max(r.seconds),
             "predicted_s": r.predicted_s, "error": r.error, "probe": r.probe, "noisy": r.noisy}
            for r in rows
        ],
    }  # fmt: skip


def numbers(text: str) -> list[float]:
    """A list of numbers, as options give it."""
    return [float(part) for part in text.split(",") if part]


def quiet(*load_averages: float) -> bool:
    """Whether the machine was calm, or this ran before everything else (`chrt -f`)."""
    first = hasattr(os, "sched_getscheduler") and os.sched_getscheduler(0) in (os.SCHED_FIFO, os.SCHED_RR)
    return first or max(load_averages) <= 2 * (os.cpu_count() or 1)


def tell(data: dict[str, Any], as_json: bool) -> int:
    """Print what was found, lists as rows; 1 if a bar was missed."""

    def short(value: object) -> object:
        return round(value, 4) if isinstance(value, float) else value

    if as_json:
        print(json.dumps(data, indent=1))
        return 1 if data["missed"] else 0
    for name, rows in data.items():
        for row in rows if name != "missed" else ():
            print({key: short(value) for key, value in row.items() if not isinstance(value, list)})
            for part in (part for value in row.values() if isinstance(value, list) for part in value):
                print("   ", {key: short(value) for key, value in part.items()})
    print(f"missed: {', '.join(data['missed'])}" if data["missed"] else "no bar missed in a quiet round")
    return 1 if data["missed"] else 0


def missed(result: dict[str, Any]) -> list[str]:
    """Which bars a round misses."""
    found: list[str] = []
    if not result["latency_ms"] and result["merging_changes"] > MERGING_BAR:
        found.append(f"merging changes {result['merging_changes']:.3f} at no latency")
    for name, bar in (("mean_error", MEAN_BAR), ("worst_error", WORST_BAR), ("regret", REGRET_BAR)):
        if result[name] > bar:
            found.append(f"{name} {result[name]:.3f} at {result['latency_ms']:g} ms")
    if result["latency_ms"] >= 40 and result["gain_of_256"] < GAIN_BAR:
        found.append(f"gain of blocks of 256 {result['gain_of_256']:.1f}")
    return found


def main() -> int:
    """Print what was found; 1 if a bar is missed in a quiet round."""
    options = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    options.add_argument("--latency", default="0,10,40")
    options.add_argument("--samples", type=int, default=SAMPLES)
    options.add_argument("--rounds", type=int, default=3)
    options.add_argument("--json", action="store_true")
    given = options.parse_args()
    said: list[dict[str, Any]] = []
    failed: list[str] = []
    with packed_corpus() as blocks:
        for latency in numbers(given.latency):
            for _ in range(given.rounds):
                result = accuracy(blocks, latency, given.samples)
                result["quiet"] = quiet(result["load_before"], result["load_after"]) and result["noisy"] <= 3
                said.append(result)
                if not missed(result):
                    break
            if result["quiet"]:
                failed += missed(result)
    return tell({"rounds": said, "missed": failed}, given.json)


if __name__ == "__main__":
    sys.exit(main())
