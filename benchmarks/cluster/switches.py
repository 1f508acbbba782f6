"""What each accident of the published simulators is worth: every switch alone, and all together.

Run as `FORERUN_DATA_DIR=... python benchmarks/cluster/switches.py [--json]`. Prints a Markdown table: jobs accepted by the
schedule's own rule, deadlines met by the logged end, and mean completion time, as published and with the switch, on the
195-job testbed trace (16 x 8 A100) and its T4 twin of figure 8(a) (16 x 4).
"""

from __future__ import annotations

import json
import sys

import numpy as np

from forerun.cluster.engine.allocator import Terms
from forerun.cluster.engine.record import Record
from forerun.cluster.engine.run import run_rules
from forerun.cluster.policy import schedulers
from forerun.replication.elasticflow.engine import Compat
from forerun.replication.elasticflow.known_bugs import SWITCHES
from forerun.replication.elasticflow.public import public_setting

SCENES = (
    ("elasticflow_traces/195job.csv", "n16g8", 240, "A100"),
    ("elasticVpollux_e.csv", "n16g4", 60, "T4"),
)


def measure(
    schedule: str, scene: tuple[str, str, int, str], corrected: frozenset[str]
) -> tuple[int, int, float]:
    """Accepted by the schedule's own rule, met by the logged end, mean completion time in seconds."""
    trace, cluster, slot_s, gpu_type = scene
    setting = public_setting(trace, cluster, slot_s, gpu_type)
    record = Record(setting)
    recipe = schedulers().get(schedule)()
    engine = Compat(dict.fromkeys(corrected, "corrected"))
    run_rules(engine.rules(recipe, setting, record, Terms(), 0))
    jobs = setting.jobs
    ended = record.end_s >= 0
    met = np.count_nonzero(ended & jobs.has_deadline & (record.end_s <= jobs.deadline_s))
    return record.accepted, int(met), float((record.end_s - jobs.submit_s)[ended].mean())


def main() -> None:
    """Print the table, or its cells as JSON."""
    as_json = "--json" in sys.argv[1:]
    kept: dict[str, dict[str, list[dict[str, float]]]] = {}
    if not as_json:
        print("| schedule | switch | accepted | met by logged end | mean JCT, s |\n|---|---|---|---|---|")
    for schedule in (
        "ef-accessctrl",
        "ef",
        "edf",
        "edf-accessctrl",
        "gandiva",
        "dlas-gpu",
        "themis",
        "chronus",
    ):
        base = [measure(schedule, scene, frozenset()) for scene in SCENES]
        mine = [name for name, switch in SWITCHES.items() if schedule in switch.touches]
        sets = {name: frozenset({name}) for name in mine}
        if {"admission", "late_incumbent"} <= set(mine):
            sets["admission + late_incumbent"] = frozenset({"admission", "late_incumbent"})
        sets["all"] = frozenset(mine)
        for name, flipped in sets.items():
            found = [measure(schedule, scene, flipped) for scene in SCENES]
            names = ("accepted", "met", "mean_s")
            kept.setdefault(schedule, {"published": [dict(zip(names, one, strict=True)) for one in base]})
            kept[schedule][name] = [dict(zip(names, one, strict=True)) for one in found]
            if as_json:
                continue
            cells = [
                " / ".join(f"{was[at]:.0f}→{now[at]:.0f}" for was, now in zip(base, found, strict=True))
                for at in range(3)
            ]
            print(f"| {schedule} | {name} | {' | '.join(cells)} |", flush=True)
    if as_json:
        print(json.dumps(kept))


if __name__ == "__main__":
    main()
