"""Processor time of backfilling on named nodes: `python benchmarks/cluster/named_nodes.py [--json]`.

100,000 jobs over 60 days on 1,000 nodes of eight GPUs in ten partitions, with multifactor priorities by age, size and fair
share, and at most 20 running jobs a user. Under `slurm-backfill` a load of .8 lets about 20 jobs wait, one of 1.005 about
800. Processor time of the run, kernels compiled, in one process. Exit code 1 where a bar is missed: 10 s at a queue of 20,
60 s at one of 800.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from typing import Any, Final

import numpy as np

from forerun.cluster.engine.allocator import Terms
from forerun.cluster.engine.record import Record
from forerun.cluster.engine.run import rules_for, run_rules
from forerun.cluster.inputs.arrays import Cluster, JobLabels, Jobs
from forerun.cluster.inputs.limits import LIMIT_COLUMNS, LimitRule, resolved
from forerun.cluster.inputs.setting import Setting
from forerun.cluster.policies.backfilling.base import BackfillPolicy
from forerun.cluster.policies.conservative import Conservative
from forerun.cluster.policies.easy import Easy
from forerun.cluster.policies.orders.multifactor import Multifactor, Weights
from forerun.cluster.policies.slurm_backfill import SlurmBackfill

JOBS: Final = 100_000
SPAN_S: Final = 60 * 86_400
NODES: Final = 1000
POOLS: Final = 10
#: loads, and the processor seconds in which the jobs are to be run
BARS: Final = {0.8: 10.0, 1.005: 60.0}
POLICIES: Final[dict[str, BackfillPolicy]] = {
    "slurm-backfill": SlurmBackfill(),
    "easy": Easy(),
    "conservative": Conservative(),
}


def drawn(count: int, load: float) -> Setting:
    """The jobs: half on parts of a node, the others on up to eight nodes."""
    rng = np.random.default_rng(1)
    wide = np.where(rng.random(count) < 0.8, 1, 2 ** rng.integers(1, 4, count))
    gpus = np.where(wide > 1, 8 * wide, 2 ** rng.integers(0, 4, count))
    work_s = rng.lognormal(9, 1.2, count)
    span_s = SPAN_S * count / JOBS
    work_s = np.maximum(work_s * load * NODES * 8 * span_s / (work_s * gpus).sum(), 1).astype(np.int64)
    pool = [f"p{number}" for number in rng.integers(0, POOLS, count)]
    user = [f"u{number}" for number in (100 * rng.random(count)).astype(np.int64)]
    jobs = Jobs.of(
        np.sort(rng.uniform(0, span_s, count)),
        gpus,
        work_s,
        requested_s=np.ceil(work_s * rng.uniform(1, 4, count)),
        user=user,
        labels=JobLabels.of(count, partition=pool, account=user, nodes=wide),
    )
    each = NODES // POOLS
    partitions = {f"p{at}": tuple(range(at * each, (at + 1) * each)) for at in range(POOLS)}
    cluster = Cluster(Cluster.uniform(1, NODES, 8).groups, 1, partitions)
    columns = dict.fromkeys(LIMIT_COLUMNS, user) | {"partition": pool}
    limits = resolved([LimitRule("per user", per=("user",), jobs=20)], {}, columns, ("",))
    return Setting(jobs, cluster, None, 60, limits=limits)


def timed(made: Setting, policy: BackfillPolicy) -> tuple[float, float]:
    """Processor seconds of a run, and how many jobs waited when one came."""
    record = Record(made)
    rules = rules_for(policy, made, record, Terms(), 0)
    begun = time.process_time()
    run_rules(rules)
    cpu_s = time.process_time() - begun
    submit_s, start_s = made.jobs.submit_s, np.sort(record.first_start_s)
    waiting = np.searchsorted(submit_s, submit_s, "right") - np.searchsorted(start_s, submit_s, "right")
    return cpu_s, float(waiting.mean())


def main() -> int:
    """Print one line a case."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--json", action="store_true")
    as_json = parser.parse_args().json
    order = Multifactor(weights=Weights(age=1000, job_size=500, fairshare=10_000), fairshare="tree")
    cases: list[dict[str, Any]] = []
    for name, policy in POLICIES.items():
        timed(drawn(300, 0.9), policy.with_(order=order))
        for load, bar_s in BARS.items():
            cpu_s, waiting = timed(drawn(JOBS, load), policy.with_(order=order))
            cases.append(
                {
                    "policy": name,
                    "load": load,
                    "bar_s": bar_s,
                    "cpu_s": cpu_s,
                    "jobs": JOBS,
                    "waiting": waiting,
                }
            )
            if not as_json:
                print(f"{name:16}load {load:4.2f}{waiting:8.1f} wait{cpu_s:8.1f} s, bar {bar_s:g} s")
    if as_json:
        print(json.dumps({"nodes": NODES, "pools": POOLS, "cases": cases}))
    return int(any(case["cpu_s"] > case["bar_s"] for case in cases))


if __name__ == "__main__":
    sys.exit(main())
