"""Live beside simulated: paced jobs as real processes on eight slots, each job against the forecast made before the run.

Run as `python benchmarks/live/against_simulation.py [--seeds N] [--json]`; a seed takes some five minutes. Every job takes
60 s or more on the slots that it asks for; every forecast has at least two rejections and ten changes of slots. A run of
the same kind before them measures what changes cost here, and is not judged; these costs are those of the forecasts.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import sys
import tempfile
from pathlib import Path
from typing import Any, Final

import numpy as np

import forerun
from forerun.live.runs import compare_run, run_scenario

JOBS: Final = 10
SLOTS: Final = 8
#: iterations a second by model on 1, 2, 4 and 8 slots
RATES: Final = {"wide": (4.0, 7.6, 14.0, 25.0), "narrow": (4.0, 6.4, 9.6, 13.0)}
#: what section "live against simulated" allows, on a quiet machine
MOST: Final = {"makespan": 0.02, "mean_jct": 0.03, "worst_jct": 0.08}
#: what a forecast must have for a run to be worth comparing
LEAST_REFUSED: Final = 2
LEAST_CHANGES: Final = 10
#: seconds that changes are taken to cost before they are measured
ASSUMED: Final = {"*": {"start": 0.1, "drain": 0.1, "restart": 1.0, "migrate": 1.0, "1->2": 1.0, "2->1": 1.0}}


def written(folder: Path, seed: int, costs: dict[str, dict[str, float]]) -> Path:
    """The scenario of a seed: its job log, its throughput tables and the costs of changes."""
    draw = np.random.default_rng(seed)
    folder.mkdir(parents=True, exist_ok=True)
    for model, rates in RATES.items():
        row = ",".join(map(str, rates))
        (folder / f"{model}.csv").write_text(f"global_batch_size,1,2,4,8\n64,{row}\n", encoding="utf-8")
    lines = ["job_id,submit_time,iteration,model_name,ddl,batch_size,num_gpu,duration"]
    at_s = 0
    for job in range(JOBS):
        model = list(RATES)[int(draw.integers(2))]
        slots = int(draw.choice([1, 2, 4]))
        rate = RATES[model][(1, 2, 4, 8).index(slots)]
        seconds = int(draw.integers(60, 150))
        due_s = at_s + int(seconds * draw.uniform(0.7, 1.9)) + 10
        lines.append(f"j{job},{at_s},{round(seconds * rate)},{model},{due_s},64,{slots},{seconds}")
        at_s += int(draw.exponential(14))
    (folder / "jobs.csv").write_text("\n".join(lines) + "\n", encoding="utf-8")
    scenario = {
        "domain": "cluster",
        "seed": seed,
        "trace": {"file": "jobs.csv"},
        "machines": {"nodes": [{"name": "box", "count": 1, "gpus": SLOTS}]},
        "profile": [{"tables": [f"{model}.csv" for model in RATES]}],
        "policy": "ef-accessctrl",
        "slot_s": 1,
        "costs": {"models": costs},
        "live": {"checkpoint_s": 20},
    }
    path = folder / "scenario.json"
    path.write_text(json.dumps(scenario), encoding="utf-8")
    return path


def worth(path: Path) -> bool:
    """Whether the forecast of a scenario has enough refusals and changes."""
    result = forerun.simulate(forerun.load(path))
    changes = len(result.tables["allocations"]) - result.summary["finished_jobs"]
    return bool(result.summary["refused_jobs"] >= LEAST_REFUSED and changes >= LEAST_CHANGES)


def seeds(count: int, first: int, folder: Path, costs: dict[str, dict[str, float]]) -> list[int]:
    """The first seeds, from one on, whose forecasts are worth a run."""
    chosen: list[int] = []
    seed = first
    while len(chosen) < count:
        if worth(written(folder / f"try-{seed}", seed, costs)):
            chosen.append(seed)
        seed += 1
    return chosen


def played(path: Path, run: Path) -> dict[str, Any]:
    """Run a scenario live and lay it beside its simulations."""
    load = os.getloadavg()[0]
    run_scenario(forerun.load(path), run)
    compared = compare_run(run).data()
    loads = [round(load, 1), round(os.getloadavg()[0], 1)]
    return {**{name: compared[name] for name in compared if name != "notes"}, "load_average": loads}


def measured_costs(folder: Path) -> tuple[int, dict[str, dict[str, float]]]:
    """The seed of a run that is not judged, and what changes cost in it: for all models, and for each."""
    (seed,) = seeds(1, 0, folder, ASSUMED)
    run = played(written(folder / "calibration", seed, ASSUMED), folder / "calibrated")
    measured = run["measured_costs"]
    names = ("start", "drain", "restart", "migrate", "1->2", "2->1")
    spent = {name: [model[name] for model in measured.values() if name in model] for name in names}
    any_s = statistics.median(seconds for some in spent.values() for seconds in some)
    any_model = {name: statistics.median(some) if some else any_s for name, some in spent.items()}
    return seed, {"*": any_model} | {model: any_model | own for model, own in measured.items()}


def main() -> int:
    """Run, print and judge; 1 if an error is above what is allowed."""
    parser = argparse.ArgumentParser(prog="against_simulation", description=__doc__.splitlines()[0])
    parser.add_argument("--seeds", type=int, default=3, help="runs that are judged (default: 3)")
    parser.add_argument("--json", action="store_true", help="print the figures as JSON")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        calibrating, costs = measured_costs(folder)
        runs = {}
        for seed in seeds(given.seeds, calibrating + 1, folder, costs):
            runs[seed] = played(written(folder / f"seed-{seed}", seed, costs), folder / f"run-{seed}")
            if not given.json:
                print(f"seed {seed}, load {runs[seed]['load_average']}: {shown(runs[seed])}", flush=True)
    if given.json:
        print(json.dumps({"costs": costs, "runs": runs}, indent=1))
    forecasts = [run["forecast"] for run in runs.values()]
    held = all(abs(one[name]) <= most for one in forecasts for name, most in MOST.items())
    return int(not held or not all(run["same_admissions"] and run["same_deadlines"] for run in runs.values()))


def shown(run: dict[str, Any]) -> str:
    """A run in a line."""
    errors = {name: run[name] for name in ("forecast", "explanation")}
    words = [
        f"{name}: makespan {one['makespan']:+.1%}, mean JCT {one['mean_jct']:+.1%}, worst {one['worst_jct']:.1%}"
        for name, one in errors.items()
    ]
    return f"{'; '.join(words)}; same admissions {run['same_admissions']}, deadlines {run['same_deadlines']}"


if __name__ == "__main__":
    sys.exit(main())
