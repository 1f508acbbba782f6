"""Several jobs on one link, and threads on few slots, really run, beside their laws.

    python benchmarks/loading/sharing.py [--json]

Exit code 1 if a law is further off than its bar on a quiet machine. See `reality` for how the store is run.
"""

from __future__ import annotations

import argparse
import os
import sys
from pathlib import Path
from typing import Any

import numpy as np
from reality import packed_corpus, quiet, store, tell

from forerun.loading.measure.answers import Job
from forerun.loading.measure.corpus import open_corpus
from forerun.loading.measure.probing import measure_cell
from forerun.loading.policy import Ask, Cell

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from validation.loading.jobs import run_jobs

LAW_BAR = 0.08


def sharing(blocks: Path) -> list[dict[str, Any]]:
    """Jobs on one link, and threads on few slots, against their laws; threads' runs are medians of three."""
    rows: list[dict[str, Any]] = []
    link = 2e7
    with store(blocks, "--shared", "20MB/s") as url, open_corpus(url) as corpus:
        for jobs in (1, 2, 3, 4):
            found = run_jobs(corpus, Job(decode_s=0.0), Cell(64, 2), 1280, jobs=jobs)
            law = min(64 / 0.1, link / (jobs * corpus.mean_bytes))
            rate = float(np.mean([row.samples_per_s for row in found]))
            rows.append({"law": "link", "at": f"{jobs} jobs", "measured": rate, "predicted": law})
    for slots in (1, 2, 4):
        options = ("--latency", "20ms", "--sigma", "0", "--slots", str(slots))
        with store(blocks, *options) as url, open_corpus(url) as corpus:
            ask = Ask(Cell(1, 8), 60 * slots)
            probes = [measure_cell(corpus, Job(step_s=0.0, decode_s=0.0), ask) for _ in range(3)]
        rate = float(np.median([probe.samples / probe.total_s for probe in probes]))
        rows.append({"law": "slots", "at": f"{slots} slots", "measured": rate, "predicted": slots / 0.02})
    for row in rows:
        row["error"] = row["predicted"] / row["measured"] - 1
    return rows


def main() -> int:
    """Print what was found; 1 if a bar is missed on a quiet machine."""
    options = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    options.add_argument("--json", action="store_true")
    given = options.parse_args()
    before = os.getloadavg()[0]
    with packed_corpus() as blocks:
        rows = sharing(blocks)
    calm = quiet(before, os.getloadavg()[0])
    missed = [f"{row['law']} at {row['at']}" for row in rows if calm and abs(row["error"]) > LAW_BAR]
    return tell({"rows": rows, "missed": missed}, given.json)


if __name__ == "__main__":
    # Jobs are processes that import this script anew.
    sys.exit(main())
