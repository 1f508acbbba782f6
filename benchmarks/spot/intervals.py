"""How often the range of trials contains what really came: public recordings of fleets, each predicted from its own past.

    python benchmarks/spot/intervals.py [--json]

`forerun trace fit spot` sees a recording up to an instant, and `simulate` with trials what the fleet and a small training on
it do in the eighth of the recording that follows: from the middle on, four times. A recording is one group, whatever the
number of its windows; copies and scaled copies of others (Oobleck's, Parcae's) are left out, as are recordings with one row.
Nothing is fitted to a window or before it is over. The same process with its rates taken as known is beside it. The
recordings are in FORERUN_DATA_DIR, or in ../shared/data beside the project; without them the exit code is 2.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

import forerun
from forerun.core.errors import TraceError
from forerun.core.scenarios import loads
from forerun.core.trace.domain_traces import Recorded
from forerun.core.trace.files import save_trace
from forerun.core.trace.reader import read_trace
from forerun.core.trace.table import Provenance
from forerun.spot.engine.membership import Membership
from forerun.spot.engine.run import run_history
from forerun.spot.inputs import prepare
from forerun.spot.inputs.recorded import fleet_of, looked_until_s
from forerun.spot.traces.statistics import fleet_statistics
from forerun.spot.traces.traces import TRACES, trace_of

SHARED: Final = Path(os.environ.get("FORERUN_SHARED", Path(__file__).parents[3] / "shared"))
DATA: Final = Path(os.environ.get("FORERUN_DATA_DIR", SHARED / "data")) / "spot"
COUNTS: Final = "bamboo/asg-counts/aws-spot-instances"
#: (group, file, format, options)
RECORDINGS: Final = (
    ("AWS p3, Bamboo", "bamboo/traces/p3-trace.csv", "", {}),
    ("AWS g4dn, Bamboo", "bamboo/traces/g4dn-trace.csv", "", {}),
    ("GCP A100, Bamboo", "bamboo/traces/gcloud/a100x1-east1b.txt", "", {}),
    ("GCP V100, Bamboo", "bamboo/traces/gcloud/v100x1-east1c.txt", "", {}),
    ("AWS, 64 nodes, Bamboo", "bamboo/full-64/full-64-node-trace.csv", "", {}),
    ("AWS, run 86, Bamboo", "bamboo/run-86/GroupInServiceInstances.csv", "", {}),
    (
        "AWS g4dn, November 2020, Bamboo",
        f"{COUNTS}-g4dn-xlarge-us-east-1c-2020-11-20-1930-to-2020-11-21-2200.csv",
        "spot_counts",
        {"x_unit": "s"},
    ),
    (
        "AWS p2, November 2020, Bamboo",
        f"{COUNTS}-p2-xlarge-2020-11-20-to-2020-11-23.csv",
        "spot_counts",
        {"x_unit": "h"},
    ),
    (
        "GCP H100, us-central1-a, SkyNomad",
        "skynomad/h100-16-us-central1-a.json",
        "",
        {"polarity": "preempted"},
    ),
    ("GCP H100, us-west1-b, SkyNomad", "skynomad/h100-16-us-west1-b.json", "", {"polarity": "preempted"}),
    ("AWS V100, 16 nodes, SkyNomad", "skynomad/v100-16node-us-west-2c.json", "", {"polarity": "available"}),
    ("AWS V100, 4 nodes, SkyNomad", "skynomad/v100-4node-us-east-1f.json", "", {"polarity": "available"}),
    ("400 servers, InfiniteHBD", "infinitehbd/fault_trace.json", "", {}),
)
#: a recording is cut into so many parts; those from FIRST on are predicted
PARTS: Final = 8
FIRST: Final = 4
TRIALS: Final = 400
#: fleets by which a fit is judged
TRACES_OF_A_FIT: Final = 40
LEVELS: Final = ("0.5", "0.8", "0.9")
#: what is judged; widths are shares of the complete fleet, of the removals that the past would bring (at least one), of
#: the time, and of the steps of a complete fleet that stays
FIGURES: Final = ("mean_nodes", "removals", "useful_share", "steps_completed")


def part(fleet: Membership, from_s: float, to_s: float) -> Membership:
    """What a fleet does in a window, from 0 on, with the nodes that are there at its beginning."""
    there: dict[str, None] = {}
    rows = []
    for t_s, added, node in fleet.rows():
        if t_s >= to_s:
            break
        if t_s >= from_s > 0:
            rows.append((t_s - from_s, added, node))
        elif from_s == 0:
            rows.append((t_s, added, node))
        elif added:
            there[node] = None
        else:
            del there[node]
    return Membership.from_rows([*((0.0, True, node) for node in there), *rows])


def scenario(fleet: Mapping[str, Any], most: int, horizon_s: float) -> dict[str, Any]:
    """A training that fills the fleet with up to eight pipelines, for a window.

    Parameters
    ----------
    fleet : the fitted process.
    most : nodes of the fleet when complete.
    horizon_s : length of the window.
    """
    pipelines = min(8, most)
    depth = most // pipelines
    return {
        "domain": "spot",
        "seed": 1,
        "fleet": dict(fleet),
        "job": {
            "depth": depth,
            "max_pipelines": pipelines,
            "step_s": {str(depth * n): 10 + 50 / n for n in range(1, pipelines + 1)},
            "samples_per_step": 256,
            "reconfig": "60s",
            "prep": "2min",
            "write": "40s",
            "stall": "3s",
        },
        "horizon_s": horizon_s,
        "trials": TRIALS,
    }


def window(fleet: Membership, from_s: float, to_s: float, folder: Path) -> dict[str, Any]:
    """What came in a window, and the ranges that were predicted before it, with rates that differ and with known ones.

    Raises TraceError where nothing can be fitted to what is before it.
    """
    ahead_s, past = to_s - from_s, folder / "past.csv"
    before = part(fleet, 0.0, from_s)
    save_trace(trace_of(before, Provenance(format="part", options={"until_s": from_s})), past)
    settings = [f"traces={TRACES_OF_A_FIT}", f"ahead={ahead_s}s"]
    fitted = dict(TRACES.fit(Recorded(files=(past,)), settings, seed=0).description["fleet"])
    most = int(fitted.get("cap") or fitted["slots"])
    came = part(fleet, from_s, to_s)
    whole = loads(json.dumps(scenario(fitted, most, ahead_s)))
    inputs = prepare(whole)
    replay = run_history(replace(inputs, markets=(replace(inputs.home, recorded=came),))).replay
    seen = fleet_statistics(came, ahead_s)
    measured = {
        "mean_nodes": seen.mean_nodes,
        "removals": float(seen.removes),
        "useful_share": replay.wall_s["useful"] / replay.end_s,
        "steps_completed": float(replay.steps_completed),
    }
    scale = {
        "mean_nodes": most,
        "removals": max(1.0, fleet_statistics(before, from_s).removes * ahead_s / from_s),
        "useful_share": 1.0,
        "steps_completed": ahead_s / min(inputs.job.step_s.values()),
    }
    ranges = {
        "range": ranged(whole),
        "known": ranged(loads(json.dumps(scenario({**fitted, "stretches": None}, most, ahead_s)))),
    }
    return {
        "from_h": from_s / 3600.0,
        "process": fitted["name"],
        "figures": [
            {
                "figure": name,
                "measured": measured[name],
                "scale": scale[name],
                **{key: of[name] for key, of in ranges.items()},
            }
            for name in FIGURES
        ],
    }


def ranged(asked: Any) -> dict[str, dict[str, list[float]]]:
    """The ends of the middle of the trials by figure and level."""
    rows = {row["figure"]: row for row in forerun.simulate(asked).tables["outcomes"].records()}
    ends = ("low", "high")
    return {
        name: {level: [rows[name][f"{end}{100 * float(level):.0f}"] for end in ends] for level in LEVELS}
        for name in FIGURES
    }


def judged(rows: Sequence[Mapping[str, Any]], key: str = "range") -> dict[str, Any]:
    """Share of figures inside, mean width and interval score, both as shares of what is possible, by level."""
    found: dict[str, Any] = {"figures": len(rows)}
    for level in LEVELS:
        inside, widths, scores = [], [], []
        for row in rows:
            low, high = row[key][level]
            beyond = max(low - row["measured"], row["measured"] - high, 0.0)
            inside.append(beyond == 0.0)
            widths.append((high - low) / row["scale"])
            scores.append(widths[-1] + 2 / (1 - float(level)) * beyond / row["scale"])
        found[level] = {
            name: statistics.fmean(of)
            for name, of in (("inside", inside), ("width", widths), ("score", scores))
        }
    return found


def shown(one: Mapping[str, Any]) -> dict[str, Any]:
    """A window as the record has it: without the ranges of known rates."""
    rows = [{name: value for name, value in row.items() if name != "known"} for row in one["figures"]]
    return {**one, "figures": rows}


def predicted(folder: Path) -> Iterator[tuple[str, list[dict[str, Any]], list[str]]]:
    """(group, its windows, why windows are missing)."""
    for group, file, format_, options in RECORDINGS:
        trace = read_trace(DATA / file, format_, options=options)
        fleet, end_s = fleet_of(trace, "lifo", 0, file), looked_until_s(trace)
        windows, missing = [], []
        for number in range(FIRST, PARTS):
            try:
                windows.append(window(fleet, end_s * number / PARTS, end_s * (number + 1) / PARTS, folder))
            except TraceError as error:
                missing.append(f"part {number}: {error.problems[0].what}")
        print(f"{group}: {len(windows)} windows", file=sys.stderr, flush=True)
        yield group, windows, missing


def main() -> int:
    """Print how often ranges contain what came, by group and figure."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--json", action="store_true")
    as_json = parser.parse_args().json
    if not DATA.is_dir():
        print(f"no recordings at {DATA}; set FORERUN_DATA_DIR", file=sys.stderr)
        return 2
    with tempfile.TemporaryDirectory() as place:
        done = list(predicted(Path(place)))
    by_group = {group: [row for one in windows for row in one["figures"]] for group, windows, _ in done}
    every = [row for rows in by_group.values() for row in rows]
    found = {
        "groups": {
            group: judged(by_group[group]) | {"windows": [shown(one) for one in windows], "missing": missing}
            for group, windows, missing in done
        },
        "figures": {name: judged([row for row in every if row["figure"] == name]) for name in FIGURES},
        "pooled": judged(every),
        "known_rates": judged(every, "known"),
    }
    if as_json:
        print(json.dumps(found))
        return 0
    rows = [
        *found["groups"].items(),
        *found["figures"].items(),
        ("all", found["pooled"]),
        ("rates known", found["known_rates"]),
    ]
    for name, one in rows:
        shares = ", ".join(
            f"{level}: {one[level]['inside']:.2f} ({one[level]['width']:.2f})" for level in LEVELS
        )
        print(f"{name:<36} {one['figures']:>4} figures  {shares}  score {one['0.9']['score']:.3f}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
