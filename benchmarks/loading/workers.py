"""torch's DataLoader, really run, beside the recursion: workers, prefetch and steps, from two probes.

    python benchmarks/loading/workers.py [--json]

Batches of 64 samples that take 4 ms asleep each; medians of three, interleaved. Exit code 1 if a prediction is further off
than its bar on a quiet machine; says so and exits 0 where torch is not installed.
"""

from __future__ import annotations

import argparse
import os
import sys
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
from reality import packed_corpus, quiet, tell

from forerun.loading.measure.corpus import open_corpus
from forerun.loading.measure.torch_loader import WorkerRun, fit_workers, run_workers

WORKERS_BAR = 0.05
#: numbers of workers that the recursion is fitted to
PROBED = (1, 4)


def workers(blocks: Path, repeats: int = 3) -> list[dict[str, Any]]:
    """torch's workers, batches of 0.26 s asleep, against the recursion: two probes, then workers, prefetch and steps."""
    batch, rows = 64, []
    with open_corpus(str(blocks)) as corpus:

        def run(many: int, batches: int, step_s: float, prefetch: int = 2) -> WorkerRun:
            return run_workers(
                corpus, block=1, samples=batches * batch, workers=many, batch=batch, step_s=step_s, decode_s=0.004,
                prefetch=prefetch,
            )  # fmt: skip

        fit = fit_workers([(many, run(many, 5 * many, 0.0)) for many in PROBED], batch)
        asked = [(many, prefetch, 0.05) for many in (1, 2, 4) for prefetch in (1, 2, 4)]
        asked += [(many, 2, 0.1) for many in (1, 2, 4)]
        totals: dict[tuple[int, int, float], list[float]] = {each: [] for each in asked}
        for _ in range(repeats):
            for many, prefetch, step_s in asked:
                totals[many, prefetch, step_s].append(run(many, 12 * many, step_s, prefetch).total_s)
    for (many, prefetch, step_s), seconds in totals.items():
        predicted = replace(fit, prefetch=prefetch).predict(12 * many * batch, many, step_s)
        measured = float(np.median(seconds))
        rows.append(
            {"workers": many, "prefetch": prefetch, "step_s": step_s, "build_s": fit.build_at(many),
             "measured_s": measured, "least_s": min(seconds), "most_s": max(seconds), "predicted_s": predicted,
             "error": predicted / measured - 1}
        )  # fmt: skip
    return rows


def main() -> int:
    """Print what was found; 1 if a bar is missed on a quiet machine."""
    options = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    options.add_argument("--json", action="store_true")
    given = options.parse_args()
    if find_spec("torch") is None:
        print("torch is not installed: nothing is measured", file=sys.stderr)
        return 0
    before = os.getloadavg()[0]
    with packed_corpus() as blocks:
        rows = workers(blocks)
    calm = quiet(before, os.getloadavg()[0])
    missed = [
        f"{row['workers']} workers, prefetch {row['prefetch']}, steps of {row['step_s']:g} s"
        for row in rows
        if calm and abs(row["error"]) > WORKERS_BAR
    ]
    return tell({"rows": rows, "missed": missed}, given.json)


if __name__ == "__main__":
    sys.exit(main())
