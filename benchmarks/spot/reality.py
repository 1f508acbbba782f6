"""How far the prediction is from a training whose processes are really killed: `forerun measure checkpoint`, model by model.

    python benchmarks/spot/reality.py [--json]

A perceptron of 500,000 parameters in numpy and, where torch is installed, a transformer of 300,000: an hour of trace in 60
seconds, in which five active nodes of three are killed. Nothing is fitted to the run. It sleeps little and takes both cores
for four minutes; the load average before is in the record. Exit code 1 if a line of the books is out by more than a tenth.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

#: minutes, what happens, and to whom: a newcomer stands by when the next of the active two is killed
TRACE = (
    (0, "add", "abc"),
    (8, "remove", "a"),
    (11, "add", "d"),
    (19, "remove", "b"),
    (23, "add", "e"),
    (31, "remove", "c"),
    (34, "add", "f"),
    (42, "remove", "d"),
    (45, "add", "g"),
    (52, "remove", "e"),
)
PARAMETERS = {"numpy": 500_000, "torch": 300_000}
SPEED, SECONDS, WORST = 60, 60, 0.1


def measured(model: str, parameters: int, folder: Path) -> dict[str, Any]:
    """One model: its books and the prediction's, as the verb tells them, with the times they rest on."""
    trace = folder / "fleet.csv"
    rows = [f"{minutes * 60_000},{verb},{node}" for minutes, verb, nodes in TRACE for node in nodes]
    trace.write_text("\n".join(rows) + "\n")
    words = f"measure checkpoint --model {model} --parameters {parameters} --speed {SPEED} --for {SECONDS}s --json"
    load = os.getloadavg()[0]
    command = [sys.executable, "-m", "forerun", *words.split(), "--trace", str(trace)]
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True)
    said = json.loads(done.stdout)
    run, _ = said.pop("run"), said.pop("host")
    gaps = [(line["predicted_s"] - line["measured_s"]) / SECONDS for line in run["ledger"].values()]
    steps = run["counts"]["steps completed"]
    return {
        "parameters": parameters,
        "seconds": SECONDS,
        "load_average_before": round(load, 1),
        "profile": said,
        "run": run,
        "worst_line": max(map(abs, gaps)),
        "steps_over_prediction": steps["measured"] / steps["predicted"] - 1,
    }


def main() -> int:
    """Print all figures; 1 if a line is out by more than a tenth of the run."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--json", action="store_true")
    as_json = parser.parse_args().json
    found = {}
    with tempfile.TemporaryDirectory() as folder:
        for model, parameters in PARAMETERS.items():
            if model == "numpy" or importlib.util.find_spec(model):
                found[model] = measured(model, parameters, Path(folder))
    for model, one in found.items() if not as_json else ():
        print(f"{model}, {one['parameters']:,} parameters, load average {one['load_average_before']} before:")
        for line, both in one["run"]["ledger"].items():
            print(
                f"  {line:<18} {both['measured_s']:>8.2f} s measured {both['predicted_s']:>8.2f} s predicted"
            )
        print(
            f"  steps {one['steps_over_prediction']:+.1%} of the prediction, a line {one['worst_line']:.1%}"
        )
    if as_json:
        print(json.dumps(found))
    return int(any(one["worst_line"] > WORST for one in found.values()))


if __name__ == "__main__":
    sys.exit(main())
