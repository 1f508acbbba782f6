"""How close bounds and schedules come, and what both cost: on the published traces, at sizes up to 3,000 jobs.

    python benchmarks/cluster/bounds.py [--json]

The traces are those of ElasticFlow, in FORERUN_DATA_DIR, or in ../shared/data beside the project. Processor
time of a whole search in a process of its own, with what it imports and the files it reads; every certificate is then
verified, and timed apart. Exit code 1 if a certificate is not verified or a limit is missed: 5 s for 195 jobs where the
bound is reached, 20 s for 1,000 and 60 s for 3,000, 10 s for a verification, and a gap of 2, 5 and 6 % on 32, 16 and
8 GPUs of figure 8(a).
"""

from __future__ import annotations

import json
import os
import resource
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any, Final, NamedTuple


class Case(NamedTuple):
    """A cluster and its jobs.

    log, first : the job log, and how many of its jobs (0: all).
    gpu_type : whose throughput tables count.
    nodes, gpus : of the cluster, and of a node.
    cpu_s : limit of the processor time (0: none).
    gap : limit of the gap as a share of the bound (1: none).
    """

    log: str
    first: int
    gpu_type: str
    nodes: int
    gpus: int
    cpu_s: float = 0
    gap: float = 1


TESTBED, TWIN, LONG = (
    "elasticflow_traces/195job.csv",
    "elasticVpollux_e.csv",
    "elasticflow_traces/cluster03.csv",
)
CASES: Final = {
    "figure 6(a), 32 GPUs": Case(TESTBED, 25, "A100", 4, 8, 5, 0),
    "figure 6(b), 128 GPUs": Case(TESTBED, 0, "A100", 16, 8, 5, 0),
    "figure 8(a), 64 GPUs": Case(TWIN, 0, "T4", 16, 4, 5, 0),
    "figure 8(a), 32 GPUs": Case(TWIN, 0, "T4", 8, 4, gap=0.02),
    "figure 8(a), 16 GPUs": Case(TWIN, 0, "T4", 4, 4, gap=0.05),
    "figure 8(a), 8 GPUs": Case(TWIN, 0, "T4", 2, 4, gap=0.06),
    "1,000 jobs, 128 GPUs": Case(LONG, 1000, "A100", 16, 8, 20),
    "3,000 jobs, 128 GPUs": Case(LONG, 3000, "A100", 16, 8, 60),
}
VERIFYING_S: Final = 10.0


def data() -> Path:
    """The folder of the traces."""
    shared = Path(os.environ.get("FORERUN_SHARED", Path(__file__).parents[3] / "shared"))
    return Path(os.environ.get("FORERUN_DATA_DIR", shared / "data")) / "cluster"


def timed(*arguments: str | Path) -> tuple[float, subprocess.CompletedProcess[str]]:
    """Processor seconds of a forerun command, and what it did."""

    def used_s() -> float:
        use = resource.getrusage(resource.RUSAGE_CHILDREN)
        return use.ru_utime + use.ru_stime

    before_s = used_s()
    command = [sys.executable, "-m", "forerun", *map(str, arguments)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    return used_s() - before_s, done


def measured(case: Case, folder: Path) -> dict[str, Any]:
    """Both sides of a case, and the seconds of the search and of the verification."""
    scenario, certificate = folder / "scenario.json", folder / "certificate.json"
    tables = sorted((data() / f"throughputs_{case.gpu_type}").glob("*.csv"))
    content = {
        "domain": "cluster",
        "trace": {"file": str(data() / case.log), "first": case.first},
        "machines": {"nodes": [{"count": case.nodes, "gpus": case.gpus}]},
        "profile": [{"tables": list(map(str, tables))}],
    }
    scenario.write_text(json.dumps(content), encoding="utf-8")
    search_s, done = timed("bound", "-q", "--json", "--certificate", certificate, scenario)
    if done.returncode:
        raise SystemExit(done.stderr)
    (bracket,) = json.loads(done.stdout)["brackets"]
    verifying_s, checked = timed("check", "-q", certificate, "--scenario", scenario)
    return {
        "jobs": bracket["jobs"],
        "reached": bracket["reached"],
        "bound": bracket["bound"],
        "gap": 1 - bracket["reached"] / bracket["bound"],
        "search_s": search_s,
        "verifying_s": verifying_s,
        "verified": checked.returncode == 0,
    }


def main() -> int:
    """Print every case; 1 if one misses a limit."""
    as_json = "--json" in sys.argv[1:]
    if not (data() / TESTBED).exists():
        print(f"no traces in {data()}", file=sys.stderr)
        return 2
    rows: dict[str, dict[str, Any]] = {}
    missed = []
    with tempfile.TemporaryDirectory() as folder:
        measured(CASES["figure 6(a), 32 GPUs"], Path(folder))  # compiles
        for name, case in CASES.items():
            row = rows[name] = measured(case, Path(folder))
            late = (case.cpu_s and row["search_s"] > case.cpu_s) or row["verifying_s"] > VERIFYING_S
            if late or row["gap"] > case.gap or not row["verified"]:
                missed.append(name)
            if not as_json:
                print(
                    f"{name}: {row['reached']:.0f} of at most {row['bound']:.0f}, gap {row['gap']:.1%}, search "
                    f"{row['search_s']:.1f} s, verification {row['verifying_s']:.1f} s",
                    flush=True,
                )
    if as_json:
        print(json.dumps({"cases": rows}))
    print(f"missed: {', '.join(missed)}" if missed else "no limit is missed", file=sys.stderr)
    return int(bool(missed))


if __name__ == "__main__":
    sys.exit(main())
