"""How well `forerun replay` reproduces queues out of time: every part of every log, none chosen.

    python benchmarks/cluster/replay.py [--json]

Machine, policy and refusal come from before each part; refused parts are scored, too. The logs are those of real machines in
FORERUN_DATA_DIR, or in ../shared/data beside the project, by calendar months, and of drawn sites, by fortnights: once with
the files of the site and the policy that made its log, and once from the log alone. Exit code 1 if fewer than 70 % of the
parts are answered for, fewer than 85 % of those are within the limits, or refused ones are off by less in the middle.
"""

from __future__ import annotations

import json
import os
import statistics
import sys
import tempfile
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import Any, Final

ROOT: Final = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT))

from tests.site.reference.export import write  # noqa: E402
from tests.site.reference.sites import draw  # noqa: E402

from forerun.cluster.policies.easy import Easy  # noqa: E402
from forerun.site.files import read_machine  # noqa: E402
from forerun.site.history import read_history  # noqa: E402
from forerun.site.machine import Declared  # noqa: E402
from forerun.site.replay.backtest import BackTest, back_test  # noqa: E402

#: real logs: file, and columns that deviate
LOGS: Final = {
    "Theta, 2022, large jobs": ("theta_2022_main.csv.gz", ()),
    "Theta, early 2023": ("theta_2023a_first60.csv.gz", ()),
    "MetaCentrum, early 2013": ("wagap_2013.csv.gz", ("gpus=cpus", "partition=queue")),
}
SITES: Final = range(100, 110)
JOBS, DAYS = 2000, 60
FORTNIGHT_S: Final = 14 * 86_400.0
ANSWERED, NEAR = 0.70, 0.85


def folder() -> Path:
    """Where the real logs are."""
    shared = Path(os.environ.get("FORERUN_SHARED", ROOT.parent / "shared"))
    return Path(os.environ.get("FORERUN_DATA_DIR", shared / "data")) / "replay"


def of_log(name: str) -> list[dict[str, Any]]:
    """The parts of a real log."""
    file, columns = LOGS[name]
    return list(rows("real logs", name, back_test(read_history(folder() / file, columns=columns))))


def of_site(seed: int) -> list[dict[str, Any]]:
    """Those of a drawn site, with its files and without."""
    site = draw(seed, JOBS, DAYS)
    with tempfile.TemporaryDirectory() as made:
        files = write(site, site.attempts(), Path(made))
        log = read_history(files.pop("sacct.txt"), zone=site.zone)
        system, _ = read_machine(list(files.values()), site.zone, log)
    assert isinstance(system, Declared)
    policy = Easy(order=system.policy.order)
    declared = back_test(log, system=system, candidates=(policy,), every_s=FORTNIGHT_S)
    alone = back_test(log, every_s=FORTNIGHT_S)
    return [
        *rows("drawn sites with their files", f"site {seed}", declared),
        *rows("drawn sites, log alone", f"site {seed}", alone),
    ]


def rows(kind: str, log: str, found: BackTest) -> Iterator[dict[str, Any]]:
    """Every part that can be scored."""
    for one in found.splits:
        if one.rows:
            yield {
                "kind": kind,
                "log": log,
                "part": one.name,
                "jobs": one.rows[0].jobs,
                "policy": one.policy,
                "recorded_h": one.rows[0].recorded_mean_s / 3600,
                "off": one.rows[0].off,
                "worst": one.worst,
                "near": one.near,
                "refused": ", ".join(refusal.reason for refusal in one.refusals),
            }


def missed(kind: str, parts: list[dict[str, Any]]) -> Iterator[str]:
    """The limits that a kind of logs misses, in words."""
    answered, refused = ([one for one in parts if bool(one["refused"]) is no] for no in (False, True))
    if len(answered) < ANSWERED * len(parts):
        yield f"{kind}: {len(answered)} of {len(parts)} parts are answered for"
    near = sum(one["near"] for one in answered)
    if near < NEAR * len(answered):
        yield f"{kind}: {near} of {len(answered)} answers are within the limits"
    if answered and refused:
        middles = [statistics.median(abs(one["off"]) for one in some) for some in (answered, refused)]
        if middles[1] <= middles[0]:
            yield f"{kind}: refused parts are off by {middles[1]:.2f}, answered ones by {middles[0]:.2f} (median)"


def main() -> int:
    """Replay; 1 if a limit is missed."""
    if not folder().exists():
        print(f"no logs at {folder()}", file=sys.stderr)
        return 2
    with ProcessPoolExecutor() as pool:
        logs, sites = pool.map(of_log, LOGS), pool.map(of_site, SITES)
        parts = [part for some in (*logs, *sites) for part in some]
    kinds = dict.fromkeys(one["kind"] for one in parts)
    late = [what for kind in kinds for what in missed(kind, [one for one in parts if one["kind"] == kind])]
    if "--json" in sys.argv[1:]:
        print(json.dumps({"parts": parts, "missed": late}))
    else:
        for one in parts:
            print(
                f"{one['log']}, {one['part']}: {one['jobs']} jobs, {one['policy']}, mean {one['off']:+.0%}, worst class "
                f"{one['worst']:.0%}, {one['refused'] or 'answered'}"
            )
    print(f"missed: {'; '.join(late)}" if late else "no limit is missed", file=sys.stderr)
    return int(bool(late))


if __name__ == "__main__":
    sys.exit(main())
