"""Published schedules beside the same papers' algorithms on the view, on ElasticFlow's traces.

Run as `FORERUN_DATA_DIR=... python benchmarks/cluster/allocators.py [--json]`; some minutes. The published schedules run
corrected, and both sides pay the same for changes of GPUs.
"""

from __future__ import annotations

import json
import sys
from typing import Any, Final

import forerun
from forerun.core.scenarios import loads
from forerun.replication.elasticflow.public import public_path

#: trace, cluster, slot, GPU type
TRACES: Final = {
    "figure 6(b), 128 A100": ("elasticflow_traces/195job.csv", "n16g8", 240, "A100"),
    "figure 8(a), 64 T4": ("elasticVpollux_e.csv", "n16g4", 60, "T4"),
    "cluster 10, 256 A100": ("elasticflow_traces/cluster10.csv", "n32g8", 60, "A100"),
    "Philly, 32 A100": ("philly_103959.csv", "n4g8", 60, "A100"),
    "figure 9, 128 A100": ("generated/fig9_1000job_1500lam_gseed9.csv", "n16g8", 240, "A100"),
}
#: published schedule, and the allocator of the same paper
PAIRS: Final = {
    "dlas-gpu": "tiresias",
    "gandiva": "gandiva-turns",
    "themis": "themis-auction",
    "edf": "edf-elastic",
    "edf-accessctrl": "edf-admission",
}

#: seconds that a change of GPUs takes
CHANGE_S: Final = {"1->2": 2, "2->1": 2, "migrate": 2}

#: limits of queues that suit the jobs of Philly better than the published ones
HIGH_LIMITS: Final = {"queue_limits_gpu_s": [10_000, 100_000]}


def measure(
    policy: str | dict[str, Any], trace: str, cluster: str, slot_s: int, gpu_type: str
) -> dict[str, float]:
    """Jobs with deadlines, deadlines met, and the mean completion time, of one run."""
    tables = sorted(public_path(f"throughputs_{gpu_type}").glob("*.csv"))
    content: dict[str, Any] = {
        "domain": "cluster",
        "trace": {"file": str(public_path(trace))},
        "machines": {"file": str(public_path(f"cluster_specs/{cluster}.csv"))},
        "profile": [{"tables": [str(table) for table in tables], "gpu_type": gpu_type}],
        "policy": policy,
        "mode": "corrected",
        "slot_s": slot_s,
        "costs": {"models": {"*": CHANGE_S}},
    }
    found = forerun.simulate(loads(json.dumps(content))).check()
    jobs = found.tables["jobs"]
    has_deadline = jobs["deadline_s"] >= 0
    return {
        "deadlines": int(has_deadline.sum()),
        "met": int(jobs["met"][has_deadline].sum()),
        "refused": int(found.summary["refused_jobs"]),
        "jct_mean_s": float(found.summary["jct_mean_s"]),
    }


def main() -> None:
    """Print a line a trace and pair, or all as JSON."""
    as_json = "--json" in sys.argv[1:]
    rows: list[dict[str, Any]] = []
    trace, cluster, _, gpu_type = TRACES["figure 6(b), 128 A100"]
    asides = {
        "short slots": measure("edf-accessctrl", trace, cluster, 1, gpu_type),
        "high limits": measure({"name": PAIRS["dlas-gpu"], **HIGH_LIMITS}, *TRACES["Philly, 32 A100"]),
    }
    for trace, setting in TRACES.items():
        for published, allocator in PAIRS.items():
            one, other = (measure(name, *setting) for name in (published, allocator))
            rows.append(
                {
                    "trace": trace,
                    "schedule": published,
                    "allocator": allocator,
                    "published": one,
                    "view": other,
                }
            )
            if not as_json:
                print(
                    f"{trace:24} {published:15} {one['met']:4} of {one['deadlines']}, {one['jct_mean_s']:8,.0f} s | "
                    f"{allocator:15} {other['met']:4}, {other['jct_mean_s']:8,.0f} s, {other['refused']} refused",
                    flush=True,
                )
    print(json.dumps({"rows": rows, "asides": asides}) if as_json else asides)


if __name__ == "__main__":
    main()
