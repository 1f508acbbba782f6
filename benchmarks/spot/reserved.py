"""Reserved clusters: processor time of 200 trials on 12,500 nodes, and memory of a trial on 100,000.

    python benchmarks/spot/reserved.py [--json]

Each runs in a process of its own, after one that compiles. The 200 trials last 54 days, with failures of nodes, of groups
and of processes, repairs and spares; plain, and with failures that cause others and two tiers of checkpoints. Exit code 1
if 200 trials need more than 5 s of processor time, or 100,000 nodes more than 1 GB.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys

MOST_CPU_S = 5.0
MOST_MB = 1000.0
#: prints the processor time of the trials [s] and peak resident memory [MB] (Linux tells KiB)
PROGRAM = """
import json, resource, sys, time
from forerun.spot.reserved.cluster import run_cluster
from forerun.spot.engine.job import Checkpoints, Tier, TrainingJob
from forerun.spot.policies.immediate import Immediate
from forerun.spot.reserved.scenario import Cluster, Exponential, Failures, Hawkes

nodes, spares, days, trials, extras = json.loads(sys.argv[1])
failures = (
    Failures(
        name="node", per_1000_node_days=5.0, repair=Exponential(mean_s=86_400.0),
        arrivals=Hawkes(branching=0.4, decay_s=21_600.0) if extras else None,
    ),
    Failures(name="switch", takes="group", group_nodes=16, group_mtbf_s=5e7, repair=Exponential(mean_s=21_600.0)),
    Failures(name="hang", takes="process", per_1000_node_days=1.0, detection_s=600.0),
)
tiers = (
    Tier(name="disk", every_s=120.0, survives="process", stall_s=1.0, write_s=20.0, load_s=15.0),
    Tier(name="memory", every_s=300.0, survives="node", stall_s=1.0, write_s=30.0, load_s=20.0),
)
job = TrainingJob(
    depth=nodes - spares, max_pipelines=1, step_s={nodes - spares: 10.0}, reconfig_s=300.0, prep_s=0.0,
    write_s=60.0, stall_s=5.0, horizon_s=days * 86_400.0, tiers=tiers if extras else (),
    checkpoint=Checkpoints(rule="every_seconds", period_s=1200.0),
)
cluster = Cluster(gpus=(nodes - spares) * 8, spares=spares, failures=failures)
began = time.process_time()
done = run_cluster(job, cluster, Immediate(), (100.0, 100.0, 50.0, 50.0), trials=trials)
cpu_s = time.process_time() - began
assert done.count == trials and 0 < done.ettr.mean < 1
print(json.dumps([cpu_s, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024 / 1e6]))
"""


def measured(nodes: int, spares: int, days: int, trials: int, *, extras: bool) -> tuple[float, float]:
    """Processor time of the trials [s], and the peak memory of their process [MB], interpreter and kernels included."""
    given = json.dumps([nodes, spares, days, trials, extras])
    command = [sys.executable, "-c", PROGRAM, given]
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True)
    cpu_s, peak_mb = json.loads(done.stdout)
    return cpu_s, peak_mb


def main() -> int:
    """Print the figures; 1 if one is above its bar."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--json", action="store_true")
    as_json = parser.parse_args().json
    measured(100, 4, 2, 2, extras=False)  # compiles, where nothing is compiled yet
    plain_s, _ = measured(12_500, 200, 54, 200, extras=False)
    extras_s, _ = measured(12_500, 200, 54, 200, extras=True)
    _, peak_mb = measured(100_000, 2_000, 54, 2, extras=False)
    found = {
        "CPU s of 200 trials, 12500 nodes": plain_s,
        "CPU s of 200 trials, 12500 nodes, Hawkes and tiers": extras_s,
        "MB of 100000 nodes": peak_mb,
    }
    print(
        json.dumps(found)
        if as_json
        else "\n".join(f"{name:<52} {value:.3g}" for name, value in found.items())
    )
    return int(max(plain_s, extras_s) > MOST_CPU_S or peak_mb > MOST_MB)


if __name__ == "__main__":
    sys.exit(main())
