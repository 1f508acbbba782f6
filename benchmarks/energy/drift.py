"""What a change of the job costs each policy: the joint one watching and not, and the published one with its windows.

    python benchmarks/energy/drift.py [--json]

Excess cost after five synthetic changes over the new optimum's, as a share of it, change by change; compat mode. The seeds
begin at 10,001: the policy's constants were chosen on smaller ones. Where the public trace is not at hand it says so and
measures nothing. Exit code 1 if watching is behind any window in the mean.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
from pathlib import Path

import numpy as np

from forerun.core.errors import ForerunError
from forerun.energy.policies.jit import Jit
from forerun.energy.policies.joint import Joint
from forerun.energy.policies.pruning_gts import PruningGts
from forerun.energy.policy import KnobSpec, Pair
from forerun.energy.policy.rules import Rules
from forerun.replication.zeus.public import public_file
from forerun.replication.zeus.reproduce import DRIFTS, drift_excess

ROOT = Path(__file__).resolve().parents[2]
os.environ.setdefault(
    "FORERUN_DATA_DIR", str(Path(os.environ.get("FORERUN_SHARED", ROOT.parent / "shared")) / "data")
)

COMPAT = Rules.of("compat")
SEEDS = range(10_001, 10_021)
WATCHING = "joint, detect_drift"
POLICIES: dict[str, KnobSpec] = {
    WATCHING: Joint(detect_drift=True),
    **{
        f"pruning-gts, window {window}": Pair(batch_size=PruningGts(window=window), limit=Jit())
        for window in (3, 10, 0)
    },
    "joint": Joint(),
}


def main() -> int:
    """Print the excess of each policy; 1 if watching is behind a window in the mean."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--json", action="store_true")
    given = parser.parse_args()
    try:
        public_file("summary_train.csv")
    except ForerunError as error:
        print(f"skipped: {error}", file=sys.stderr)
        return 0
    excess = {
        name: [float(np.mean(drift_excess(world, spec, COMPAT, SEEDS))) for world in DRIFTS]
        for name, spec in POLICIES.items()
    }
    worlds = [f"{gpu} {dataset} {exponent:+g}" for gpu, dataset, exponent, _ in DRIFTS]
    if given.json:
        print(json.dumps({"seeds": len(SEEDS), "worlds": worlds, "excess": excess}))
    else:
        for name, values in excess.items():
            each = ", ".join(f"{world} {value:.3f}" for world, value in zip(worlds, values))
            print(f"{name}: mean {np.mean(values):.3f}; {each}")
    means = {name: float(np.mean(values)) for name, values in excess.items()}
    return int(any(means[WATCHING] > mean for name, mean in means.items() if "window" in name))


if __name__ == "__main__":
    sys.exit(main())
