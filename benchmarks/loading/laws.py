"""How far predictions from one recorded system or run are off others of it, and how often their intervals contain these.

    python benchmarks/loading/laws.py [--json]

*Logs*: `forerun trace fit loading` on each published run whose loop stalls (CNDLSys: LibriSpeech and ImageNet, read from
disk and over NFS, merged into blocks and not), and the recursion with the mean step of every other run of the same setting.
*Stores*: how many accelerators `forerun trace stats loading` says a link feeds, the link being the bandwidth in one result
of MLPerf Storage v1.0, beside the accelerators in the result of the same system, workload and hosts for the other
accelerator; it has no interval. The data are in FORERUN_DATA_DIR, or in ../shared/data beside the project. Groups are
settings of the one system, and storage systems. Nothing was fitted to them; there is no floor.
"""

from __future__ import annotations

import csv
import json
import math
import os
import sys
from collections import defaultdict
from collections.abc import Iterator, Sequence
from itertools import permutations
from pathlib import Path
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from forerun.core.errors import TraceError
from forerun.loading.traces.logs import FittedLog, fit_log
from forerun.loading.traces.workloads import Workload
from forerun.replication.cndlsys.runs import read_experiment

LEVELS: Final = (0.5, 0.8, 0.9, 0.95)
MIB: Final = 1024.0**2
#: ids that share their drives or servers are one system
ONE_SYSTEM: Final = {
    "iei-as13000-amd-hosts": "iei-as13000",
    "iei-as13000-intel-hosts": "iei-as13000",
    "mangoboost-intel-dpu": "mangoboost-intel",
    "mangoboost-intel-sw": "mangoboost-intel",
}
Series = NDArray[np.float64]


def folder() -> Path:
    """Where the recorded runs and results are."""
    shared = Path(os.environ.get("FORERUN_SHARED", Path(__file__).parents[3] / "shared"))
    return Path(os.environ.get("FORERUN_DATA_DIR", shared / "data")) / "loading"


def logs() -> Iterator[tuple[str, tuple[str, ...], Series, Series]]:
    """The setting and the configuration of every recorded run with its series: waits, and steps, which may lack the last."""
    for run in read_experiment(folder() / "exp1"):
        config = (str(run.threads), str(run.block), str(run.merged))
        yield f"{run.dataset}, {run.place}", config, run.load_s, run.compute_s
    configs = {}
    with (folder() / "cndlsys_runs.csv").open(encoding="utf-8", newline="") as file:
        for row in csv.DictReader(file):
            name = (row["kind"], row["dataset"], row["mode"], row["run"], float(row["sim_compute_time"]))
            block = row["block_recorded"] if row["kind"] == "baseline2" else ""
            configs[name, block] = (row["threads_recorded"], row["block_recorded"], str(row["merged"] == "1"))
    series: dict[str, list[tuple[float, float]]] = defaultdict(list)
    with (folder() / "cndlsys_batch_series_imagenet.csv").open(encoding="utf-8", newline="") as file:
        for row in csv.DictReader(file):
            series[row["run_id"]].append((float(row["load_s"]), float(row["compute_s"] or "nan")))
    for run_id, rows in series.items():
        kind, data, place, number, sleep, *block_of = run_id.split("/")
        config = configs[(kind, data, place, number, float(sleep)), "".join(block_of)]
        load_s, step_s = np.array(rows).T
        yield f"{data}, {place}", config, load_s, step_s[np.isfinite(step_s)]


def of_logs() -> dict[str, Any]:
    """By setting: errors and coverage of the total of one run from another of the same configuration."""
    runs: dict[tuple[str, tuple[str, ...]], list[tuple[Series, Series]]] = defaultdict(list)
    for setting, config, load_s, step_s in logs():
        runs[f"{setting}, {'merged' if config[2] == 'True' else 'single files'}", config].append(
            (load_s, step_s)
        )
    found: dict[str, list[dict[float, tuple[float, float, float]]]] = defaultdict(list)
    for (setting, _), alike in runs.items():
        for one, other in permutations(alike, 2):
            try:
                fitted = fit_log(*one)
            except TraceError:
                continue
            found[setting].append(predicted(fitted, *other))
    return {setting: figures(rows) for setting, rows in found.items()}


def predicted(fitted: FittedLog, load_s: Series, step_s: Series) -> dict[float, tuple[float, float, float]]:
    """By level: the logarithm of predicted over measured, and of the ends of the interval over measured."""
    batches, step = len(load_s), float(step_s.mean())
    took_s = float(load_s.sum()) + step * batches
    middle_s = fitted.predicted_s(step, batches)
    found = {}
    for level in LEVELS:
        ends = (fitted.predicted_s(step, batches, build_s) for build_s in fitted.build_span_s(level))
        low_s, high_s = ends
        found[level] = (
            math.log(middle_s / took_s),
            math.log(low_s / took_s),
            math.log(high_s / took_s),
        )
    return found


def figures(rows: Sequence[dict[float, tuple[float, float, float]]]) -> dict[str, Any]:
    """Of a group: predictions, their errors, and by level the share inside and the mean width."""
    off = np.array([row[LEVELS[0]][0] for row in rows])
    return {
        "predictions": len(rows),
        "mean_error": float(np.abs(off).mean()),
        "worst_error": float(np.abs(off).max()),
        **{
            str(level): {
                "inside": float(np.mean([row[level][1] <= 0.0 <= row[level][2] for row in rows])),
                "width": float(np.mean([row[level][2] - row[level][1] for row in rows])),
            }
            for level in LEVELS
        },
    }


def of_stores() -> dict[str, Any]:
    """By storage system: the accelerators fed, predicted from the result for the other accelerator, over those there."""
    with (folder() / "mlperf" / "storage_v1_0.csv").open(encoding="utf-8", newline="") as file:
        results = list(csv.DictReader(file))
    found: dict[str, list[float]] = defaultdict(list)
    for one, other in permutations(results, 2):
        same = all(one[name] == other[name] for name in ("system_id", "workload", "hosts"))
        if same and one["accelerator"] != other["accelerator"]:
            record = MIB * float(other["mib_per_s"]) / float(other["samples_per_s"])
            work = Workload(
                other["workload"],
                int(other["batch_size"]),
                record,
                float(other["computation_time_s"]),
                float(other["au_required"]) / 100,
            )
            fed = work.fed_by(MIB * float(one["mib_per_s"]))
            name = ONE_SYSTEM.get(one["system_id"], one["system_id"])
            found[name].append(fed / int(other["accelerators"]))
    return {name: {"predictions": len(rows), "over": sorted(rows)} for name, rows in sorted(found.items())}


def main() -> int:
    """Print what was found."""
    if not folder().exists():
        print(f"no recorded runs at {folder()}", file=sys.stderr)
        return 2
    data = {"logs": of_logs(), "stores": of_stores()}
    if "--json" in sys.argv[1:]:
        print(json.dumps(data))
    else:
        for name, rows in data.items():
            for group, row in rows.items():
                print(name, group, row)
    return 0


if __name__ == "__main__":
    sys.exit(main())
