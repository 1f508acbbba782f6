"""How often intervals of `forerun measure loading` contain what a run takes, on stores of several kinds on this machine.

    python benchmarks/loading/intervals.py [--stores "40 ms,4 slots"] [--rounds 2] [--json]

Every store is a process of its own on the loopback interface; decoding and steps sleep. In each round the store is probed
anew, as `measure loading` does, and then each cell that was not probed is run once: one prediction and one run. Nothing is
fitted to these runs. A store is a group: all its rounds share what the model does not have of it, such as its slots and its
limit of requests. What is found has no floor; it is written down as it is. It sleeps for most of its ten minutes: run it
at a raised priority where others use the machine too.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from benchmarks.loading.reality import SAMPLES, packed_corpus, store

from forerun.core.rng import stream
from forerun.loading.engine.calibration import predict, resampled, with_intervals
from forerun.loading.measure.answers import Answer, Job
from forerun.loading.measure.corpus import Corpus, open_corpus
from forerun.loading.measure.probing import BLOCKS, DRAWS, THREADS, answer, measure_cell
from forerun.loading.policy import Ask, Cell

#: stores by name, and the options of `forerun store`
STORES: Final[Mapping[str, Sequence[str]]] = {
    "no latency": (),
    "2 ms": ("--latency", "2ms"),
    "10 ms": ("--latency", "10ms"),
    "40 ms": ("--latency", "40ms"),
    "10 ms, spread of 0.8": ("--latency", "10ms", "--sigma", "0.8"),
    "10 ms, 20 MB/s a connection": ("--latency", "10ms", "--bandwidth", "20MB/s"),
    "10 ms, 60 MB/s in all": ("--latency", "10ms", "--shared", "60MB/s"),
    "10 ms, 4 slots": ("--latency", "10ms", "--slots", "4"),
    "10 ms, 200 requests/s": ("--latency", "10ms", "--requests-per-s", "200"),
}
#: those on which the least width of an interval was chosen, by other runs
CHOSEN_ON: Final = ("no latency", "10 ms", "40 ms")
#: what intervals promise
LEVELS: Final = (0.5, 0.8, 0.9, 0.95)


@dataclass(frozen=True)
class Ran:
    """A run beside its prediction.

    Parameters
    ----------
    cell : block size and threads.
    took_s, predicted_s : seconds.
    spans_s : the ends of its intervals, by what they promise.
    """

    cell: Cell
    took_s: float
    predicted_s: float
    spans_s: Mapping[float, tuple[float, float]]

    def inside(self, level: float) -> bool:
        """Whether an interval contained what the run took."""
        low_s, high_s = self.spans_s[level]
        return low_s <= self.took_s <= high_s

    def width(self, level: float) -> float:
        """Of the logarithm."""
        low_s, high_s = self.spans_s[level]
        return math.log(high_s / low_s)


def probed(corpus: Corpus, job: Job) -> Answer:
    """The answer of the probes; of three where one showed no stall, so that there is a model to judge."""
    found = answer(corpus, job, blocks=BLOCKS)
    if found.profile is not None:
        return found
    asks = (Ask(Cell(1, 1), 640), Ask(Cell(64, 1), 1280), Ask(Cell(64, 8), 2048))
    a, b, c = (measure_cell(corpus, job, ask) for ask in asks)
    again = tuple(resampled((a, b, c), found.load, stream(0, "interval"), DRAWS))
    profile = with_intervals((a, b, c), found.load, stream(0, "bootstrap"))
    return replace(found, probes=(a, b, c), profile=profile, resampled=again)


def ran(corpus: Corpus, job: Job, start: int) -> list[Ran]:
    """A round at a store: probes, then every cell that they did not have. start: of the runs' samples."""
    found = probed(corpus, job)
    assert found.profile is not None
    load, known = job.work(corpus, SAMPLES), {probe.cell for probe in found.probes}
    runs = []
    for cell in (Cell(block, many) for block in BLOCKS for many in THREADS):
        if cell not in known:
            spans = {level: found.span(cell, SAMPLES, level) for level in LEVELS}
            took_s = measure_cell(corpus, job, Ask(cell, SAMPLES), start).total_s
            ends = {level: (span.low, span.high) for level, span in spans.items()}
            runs.append(Ran(cell, took_s, predict(found.profile, load, cell), ends))
    return runs


def group(runs: Sequence[Ran]) -> dict[str, Any]:
    """How many runs, how far predictions were off, and by level the share inside and the mean width."""
    off = [math.log(run.predicted_s / run.took_s) for run in runs]
    return {
        "runs": len(runs),
        "mean_error": float(np.mean(np.abs(off))),
        "worst_error": float(np.max(np.abs(off))),
        **{
            str(level): {
                "inside": float(np.mean([run.inside(level) for run in runs])),
                "width": float(np.mean([run.width(level) for run in runs])),
            }
            for level in LEVELS
        },
    }


def main() -> int:
    """Print what was found."""
    options = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    options.add_argument("--stores", default=",".join(STORES))
    options.add_argument("--rounds", type=int, default=2)
    options.add_argument("--json", action="store_true")
    given = options.parse_args()
    chosen = {name: set_up for name, set_up in STORES.items() if name in given.stores}
    of: dict[str, list[Ran]] = {}
    with packed_corpus() as blocks:
        for name, set_up in chosen.items():
            with store(blocks, *set_up) as url, open_corpus(url) as corpus:
                rounds = [ran(corpus, Job(), number) for number in range(given.rounds)]
            of[name] = [run for runs in rounds for run in runs]
            print(name, group(of[name]), file=sys.stderr, flush=True)
    figures = {
        "stores": {name: {"chosen": name in CHOSEN_ON, **group(runs)} for name, runs in of.items()},
        "all": group([run for runs in of.values() for run in runs]),
        "others": group([run for name, runs in of.items() if name not in CHOSEN_ON for run in runs]),
        "rounds": given.rounds,
        "load_after": os.getloadavg()[0],
    }
    if given.json:
        details = {
            name: [
                {"cell": str(run.cell), "took_s": run.took_s, "predicted_s": run.predicted_s} for run in runs
            ]
            for name, runs in of.items()
        }
        print(json.dumps({**figures, "runs": details}))
    return 0


if __name__ == "__main__":
    sys.exit(main())
