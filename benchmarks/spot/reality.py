"""How far the prediction is from a training whose processes are really killed, model by model.

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
import sys
from pathlib import Path
from typing import Any

from forerun.spot.engine.membership import Membership
from forerun.spot.measure.fleet import Work
from forerun.spot.measure.profile import measure

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from validation.spot import testbed
from validation.spot.testbed import schedule

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
BATCH, SPEED, SECONDS, WORST = 32, 60, 60, 0.1


def tell(message: str) -> None:
    """Progress goes where figures do not."""
    print(message, file=sys.stderr, flush=True)


def measured(model: str, parameters: int) -> dict[str, Any]:
    """One model: its books and the prediction's, with the times they rest on."""
    rows = [(60.0 * minutes, verb == "add", node) for minutes, verb, nodes in TRACE for node in nodes]
    load = os.getloadavg()[0]
    profile = measure(Work(kind=model, parameters=parameters, batch=BATCH), progress=tell)
    changes = schedule(Membership.from_rows(rows), SPEED, SECONDS)
    run = testbed.run(profile, changes, SECONDS, tell).data()
    said = profile.data()
    del said["host"]
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
    for model, parameters in PARAMETERS.items():
        if model == "numpy" or importlib.util.find_spec(model):
            found[model] = measured(model, parameters)
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
