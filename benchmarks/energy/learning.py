"""The joint policy where a job changes, where it does not, and where another GPU's cost curve is known.

    python benchmarks/energy/learning.py [--json]

Cost after five synthetic changes against the published policy's, cost late in a run without a change against the oracle's on
the 24 public workloads, and what the curve of V100 is worth on the 18 workloads of the other GPU types; compat mode. The
seeds begin at 10,001: the policy's constants were chosen on smaller ones. Where the public trace is not at hand it says so
and measures nothing. Exit code 1 if the policy is behind the published one after the changes in the mean, or if it costs
more than a hundredth over the oracle in the mean where nothing changes.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import sys
from pathlib import Path
from typing import Any

import numpy as np

from forerun.core.errors import ForerunError
from forerun.energy.engine.batch import Work, run_many
from forerun.energy.policies.jit import Jit
from forerun.energy.policies.joint import Joint
from forerun.energy.policies.pruning_gts import PruningGts
from forerun.energy.policy import Pair
from forerun.energy.policy.rules import Rules
from forerun.energy.summary.savings import of_attempts, reference
from forerun.replication.zeus.public import GPUS, public_file, public_workload
from forerun.replication.zeus.published import JOBS
from forerun.replication.zeus.reproduce import DRIFT_AT, DRIFT_RECURRENCES, DRIFTS, drift_excess

ROOT = Path(__file__).resolve().parents[2]
os.environ.setdefault(
    "FORERUN_DATA_DIR", str(Path(os.environ.get("FORERUN_SHARED", ROOT.parent / "shared")) / "data")
)

COMPAT = Rules.of("compat")
SEEDS = range(10_001, 10_021)
PUBLISHED = Pair(batch_size=PruningGts(), limit=Jit())


def after_a_change() -> list[float]:
    """Excess cost over the new optimum's, as a share of the published policy's, change by change."""
    watching = Joint(detect_drift=True)
    return [
        float(
            np.mean(drift_excess(world, watching, COMPAT, SEEDS))
            / np.mean(drift_excess(world, PUBLISHED, COMPAT, SEEDS))
        )
        for world in DRIFTS
    ]


def without_a_change() -> dict[str, list[float]]:
    """Cost of the second half of a run over the oracle's, minus one, workload by workload, watching for changes and not."""
    found: dict[str, list[float]] = {"watching": [], "not watching": []}
    for gpu in GPUS:
        for dataset in JOBS:
            workload = public_workload(gpu, dataset, COMPAT)
            oracle = reference(workload, 0.5).oracle
            assert oracle is not None
            for name, costs in found.items():
                logs = run(workload, Joint(detect_drift=name == "watching"), DRIFT_RECURRENCES)
                late = [log.per_recurrence(log.cost_j, DRIFT_RECURRENCES)[DRIFT_AT:].mean() for log in logs]
                costs.append(float(np.mean(late)) / oracle.cost_j - 1)
    return found


def known_curve() -> dict[str, float]:
    """Mean cost over the oracle's on the other GPU types, from nothing and from V100's curve."""
    found: dict[str, list[float]] = {"cold": [], "known": []}
    for dataset in JOBS:
        best: dict[int, float] = {}
        for point in public_workload("v100", dataset, COMPAT).expected(0.5):
            if point.reach == 1:
                best[point.batch_size] = min(best.get(point.batch_size, math.inf), point.cost_j)
        for gpu in GPUS[1:]:
            workload = public_workload(gpu, dataset, COMPAT)
            against, n = reference(workload, 0.5), workload.recurrences()
            for name, spec in (("cold", Joint()), ("known", Joint(known_curve=tuple(best.items())))):
                ratios = [of_attempts(log, n, against).cost_ratio for log in run(workload, spec, n)]
                found[name].append(float(np.mean(ratios)))
    return {name: float(np.mean(ratios)) for name, ratios in found.items()} | {
        "workloads": len(found["cold"])
    }


def run(workload: Any, spec: Any, recurrences: int) -> Any:
    return run_many(Work(workload, spec, eta=0.5, beta=2.0, rules=COMPAT, recurrences=recurrences), SEEDS)


def main() -> int:
    """Print the figures; 1 if one is behind."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--json", action="store_true")
    given = parser.parse_args()
    try:
        public_file("summary_train.csv")
    except ForerunError as error:
        print(f"skipped: {error}", file=sys.stderr)
        return 0
    found = {
        "seeds": len(SEEDS),
        "after a change, of the published policy's excess": after_a_change(),
        "without a change, over the oracle": without_a_change(),
        "cost over the oracle's on other GPU types": known_curve(),
    }
    print(json.dumps(found) if given.json else "\n".join(f"{name}: {one}" for name, one in found.items()))
    after, without, _ = list(found.values())[1:]
    return int(np.mean(after) >= 1 or np.mean(without["watching"]) > 0.01)


if __name__ == "__main__":
    sys.exit(main())
