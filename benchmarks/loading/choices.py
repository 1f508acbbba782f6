"""The tuner at work on a real store, five times at each latency, its choices measured beside all that might be better.

    python benchmarks/loading/choices.py [--latency 10,40] [--rounds 5] [--repeats 6] [--samples 1280] [--json]

Exit code 1 if the regret of a choice is above its bar on a quiet machine. See `reality` for how the store is run.
"""

from __future__ import annotations

import argparse
import os
import sys
from pathlib import Path
from typing import Any

import numpy as np
from reality import REGRET_BAR, numbers, packed_corpus, quiet, store, tell

from forerun.loading.measure.answers import Job
from forerun.loading.measure.corpus import open_corpus
from forerun.loading.measure.probing import BLOCKS, answer, measure_cell
from forerun.loading.policy import Ask, Cell

ROUNDS = 5
REPEATS = 6
SAMPLES = 1280


def choices(blocks: Path, latency_ms: float, rounds: int, repeats: int, samples: int) -> dict[str, Any]:
    """The tuner at work `rounds` times, its choices measured beside all that might be better.

    regret: the choice's median over the least median, which noise makes too large; halves: the best cell of one half of
    the repeats compared with the choice in the other half, both ways, which it does not.
    """
    job, before = Job(), os.getloadavg()[0]
    with store(blocks, "--latency", f"{latency_ms:g}ms") as url, open_corpus(url) as corpus:
        found = [answer(corpus, job, blocks=BLOCKS) for _ in range(rounds)]
        near = sorted({each.cell for each in found} | {
            cell for each in found for cell, s in each.predicted.items() if s <= 1.1 * min(each.predicted.values())
        })  # fmt: skip
        totals: dict[Cell, list[float]] = {cell: [] for cell in near}
        for repeat in range(repeats):
            for cell in near:
                totals[cell].append(measure_cell(corpus, job, Ask(cell, samples), repeat).total_s)
    middle = {cell: float(np.median(seconds)) for cell, seconds in totals.items()}
    halves = [{cell: float(np.median(s[at::2])) for cell, s in totals.items()} for at in (0, 1)]
    least = [min(half, key=lambda cell: half[cell]) for half in halves]
    return {
        "latency_ms": latency_ms,
        "load_before": before,
        "load_after": os.getloadavg()[0],
        "rounds": [
            {
                "cell": str(each.cell),
                "probes": len(each.probes),
                "regret": middle[each.cell] / min(middle.values()) - 1,
                "halves": 0.5
                * (
                    halves[1][each.cell] / halves[1][least[0]]
                    + halves[0][each.cell] / halves[0][least[1]]
                    - 2
                ),
            }
            for each in found
        ],
        "cells": [
            {"cell": str(cell), "median_s": middle[cell], "least_s": min(s), "most_s": max(s)}
            for cell, s in totals.items()
        ],
    }


def main() -> int:
    """Print what was found; 1 if a bar is missed on a quiet machine."""
    options = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    options.add_argument("--latency", default="10,40")
    options.add_argument("--rounds", type=int, default=ROUNDS)
    options.add_argument("--repeats", type=int, default=REPEATS)
    options.add_argument("--samples", type=int, default=SAMPLES)
    options.add_argument("--json", action="store_true")
    given = options.parse_args()
    with packed_corpus() as blocks:
        found = [
            choices(blocks, latency, given.rounds, given.repeats, given.samples)
            for latency in numbers(given.latency)
        ]
    missed = [
        f"regret {row['regret']:.3f} of {row['cell']} at {each['latency_ms']:g} ms"
        for each in found
        if quiet(each["load_before"], each["load_after"])
        for row in each["rounds"]
        if row["regret"] > REGRET_BAR
    ]
    return tell({"choices": found, "missed": missed}, given.json)


if __name__ == "__main__":
    sys.exit(main())
