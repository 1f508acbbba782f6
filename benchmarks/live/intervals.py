"""How often intervals from earlier runs contain the next one: paced jobs as real processes, a run after the other.

    python benchmarks/live/intervals.py [--runs DIR] [--seeds N] [--json]

The runs are those of `against_simulation`, of other seeds, some five minutes each; a run is a group. Each is judged by
`forerun live forecast`'s interval from the runs before it alone, at every level for which these are enough. (To leave one
out of all would show nothing: of any n + 1 numbers, just the promised share lies below such a rank of the others.) Then
from the runs that `against_simulation` has in its record, of another day. With `--runs` they stay in a folder, and a
benchmark that was interrupted goes on there. The load of the machine before and after each run is in the record.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from benchmarks.live.against_simulation import measured_costs, played, seeds, written

from forerun.core.errors import UsageError
from forerun.live.forecast import FIGURES, half_width, offs_of
from forerun.live.runs import compare_run

LEVELS: Final = (0.5, 0.8, 0.9)
RECORD: Final = Path(__file__).parents[1] / "results" / "live-against_simulation.json"


def judged(before: Sequence[Sequence[dict[str, float]]], offs: Sequence[dict[str, float]]) -> dict[str, Any]:
    """Shares of runs inside and mean width (of the whole interval, over the forecast), by figure and level.

    Parameters
    ----------
    before : for each run the errors of those that it is predicted from.
    offs : its own errors.
    """
    found: dict[str, Any] = {name: {} for name in FIGURES}
    for name in FIGURES:
        for level in LEVELS:
            inside, widths = [], []
            for earlier, own in zip(before, offs, strict=True):
                try:
                    half = half_width([one[name] for one in earlier], level)
                except UsageError:
                    continue
                inside.append(own[name] <= half)
                widths.append(2 * half)
            if inside:
                found[name][f"{level:g}"] = {
                    "runs": len(inside),
                    "inside": statistics.fmean(inside),
                    "width": statistics.fmean(widths),
                }
    return found


def run_all(folder: Path, count: int) -> dict[str, dict[str, Any]]:
    """Errors of the forecast and loads of the machine, by seed, in the order in which they ran."""
    noted = folder / "loads.json"
    loads: dict[str, list[float]] = json.loads(noted.read_text("utf-8")) if noted.is_file() else {}
    calibrating, costs = measured_costs(folder)
    found = {}
    for seed in seeds(count, calibrating + 1, folder, costs):
        run = folder / f"run-{seed}"
        one = played(written(folder / f"seed-{seed}", seed, costs), run)
        load = loads.setdefault(f"{seed}", one["load_average"])
        noted.write_text(json.dumps(loads), encoding="utf-8")
        found[f"{seed}"] = {"offs": offs_of(compare_run(run)), "load_average": load}
        print(f"seed {seed}, load {load}: {found[f'{seed}']['offs']}", file=sys.stderr, flush=True)
    return found


def main() -> int:
    """Print how often intervals contain what came."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--runs", type=Path, help="a folder for the runs (default: one that is deleted)")
    parser.add_argument("--seeds", type=int, default=10, help="runs (default: 10)")
    parser.add_argument("--json", action="store_true")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as place:
        runs = run_all(given.runs or Path(place), given.seeds)
    offs = [one["offs"] for one in runs.values()]
    record = json.loads(RECORD.read_text("utf-8"))
    other_day = [
        {name: abs(run["forecast"][name]) for name in FIGURES} for run in record["figures"]["runs"].values()
    ]
    found = {
        "runs": runs,
        "from_runs_before": judged([offs[:i] for i in range(len(offs))], offs),
        "from_another_day": judged([other_day] * len(offs), offs),
        "other_day": record["date"],
        "other_day_runs": len(other_day),
    }
    if given.json:
        print(json.dumps(found))
        return 0
    for how in ("from_runs_before", "from_another_day"):
        for name, levels in found[how].items():
            for level, one in levels.items():
                print(
                    f"{how} {name} {level}: {one['inside']:.2f} of {one['runs']} runs, width {one['width']:.3f}"
                )
    return 0


if __name__ == "__main__":
    sys.exit(main())
