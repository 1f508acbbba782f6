"""The joint policy against the published one on the 24 public workloads: mean cost over the oracle's, paired by seed.

    python benchmarks/energy/joint.py [--json]

Four GPU types, six jobs, compat mode. The seeds begin at 10,001: the policy's constants were chosen on smaller ones. Where
the public trace is not at hand it says so and measures nothing. Exit code 1 if the joint policy is not ahead in the mean.
"""

from __future__ import annotations

import argparse
import json
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

ROOT = Path(__file__).resolve().parents[2]
os.environ.setdefault(
    "FORERUN_DATA_DIR", str(Path(os.environ.get("FORERUN_SHARED", ROOT.parent / "shared")) / "data")
)

COMPAT = Rules.of("compat")
FIRST_SEED = 10_001
#: (eta, beta, seeds)
SETTINGS = ((0.5, 2.0, 60), (0.0, 2.0, 20), (1.0, 2.0, 20), (0.5, 1.5, 20), (0.5, 3.0, 20))
RECIPES: dict[str, Any] = {"joint": Joint(), "pruning_gts": Pair(batch_size=PruningGts(), limit=Jit())}


def over_oracle(spec: Any, gpu: str, dataset: str, eta: float, beta: float, seeds: int) -> float:
    """Mean cost over the oracle's of one policy on one workload."""
    workload = public_workload(gpu, dataset, COMPAT)
    against, n = reference(workload, eta), workload.recurrences()
    chosen = range(FIRST_SEED, FIRST_SEED + seeds)
    logs = run_many(Work(workload, spec, eta=eta, beta=beta, rules=COMPAT, recurrences=n), chosen)
    return float(np.mean([of_attempts(log, n, against).cost_ratio for log in logs]))


def measure(eta: float, beta: float, seeds: int) -> dict[str, float]:
    """One row: means over workloads, on how many the joint policy is cheaper, and its worst against the published."""
    found = {
        name: np.array(
            [over_oracle(spec, gpu, dataset, eta, beta, seeds) for gpu in GPUS for dataset in JOBS]
        )
        for name, spec in RECIPES.items()
    }
    joint, published = found["joint"], found["pruning_gts"]
    return {
        "eta": eta,
        "beta": beta,
        "seeds": seeds,
        "joint": float(joint.mean()),
        "pruning_gts": float(published.mean()),
        "better_on": int(np.count_nonzero(joint < published)),
        "workloads": len(joint),
        "worst": float((joint / published).max()),
    }


def main() -> int:
    """Print the rows; 1 if the published policy is ahead anywhere in the mean."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--json", action="store_true")
    given = parser.parse_args()
    try:
        public_file("summary_train.csv")
    except ForerunError as error:
        print(f"skipped: {error}", file=sys.stderr)
        return 0
    rows = []
    for setting in SETTINGS:
        rows.append(measure(*setting))
        if not given.json:
            print(" ".join(f"{name} {value:.4g}" for name, value in rows[-1].items()), flush=True)
    if given.json:
        print(json.dumps(rows))
    return int(any(row["joint"] >= row["pruning_gts"] for row in rows))


if __name__ == "__main__":
    sys.exit(main())
