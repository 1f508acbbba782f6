"""Memory of many trials: the peak of a process that runs 200,000 of them, and of one that runs two million.

    python benchmarks/spot/memory.py [--json]

Each count runs in a process of its own. Exit code 1 if ten times the trials need more than a tenth more memory.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys

COUNTS = (200_000, 2_000_000)
MOST = 1.1
SCENARIO = (
    "domain: spot\nhorizon: 355min\n"
    "fleet: {name: poisson, removals_per_min: 0.25, adds_per_min: 0.25, add_burst: {probability: 0.058}}\n"
    "job: {depth: 16, max_pipelines: 4, step_s: {16: 18, 32: 11, 48: 9, 64: 8}, samples_per_step: 288,\n"
    "      reconfig: 88s, prep: 3min, write: 89s}\n"
)
#: peak resident memory, in MiB (Linux tells KiB)
PROGRAM = """
import resource, sys
from forerun import simulate
from forerun.core.scenarios import loads
simulate(loads(sys.argv[1]).with_(trials=int(sys.argv[2]))).check()
print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024)
"""


def peak_mib(trials: int) -> float:
    """Peak resident memory of a process that runs so many trials, interpreter and compiled kernels included."""
    command = [sys.executable, "-c", PROGRAM, SCENARIO, str(trials)]
    return float(subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True).stdout)


def main() -> int:
    """Print the peaks; 1 if memory grows with the trials."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--json", action="store_true")
    as_json = parser.parse_args().json
    peak_mib(1000)  # compiles, where nothing is compiled yet
    found = {f"MiB of {trials} trials": peak_mib(trials) for trials in COUNTS}
    print(json.dumps(found) if as_json else "\n".join(f"{name:<30} {mib:.0f}" for name, mib in found.items()))
    least, most = found.values()
    return int(most > MOST * least)


if __name__ == "__main__":
    sys.exit(main())
