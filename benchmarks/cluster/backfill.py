"""Jobs a second under backfilling, with a queue that stays as long: `python benchmarks/cluster/backfill.py [--json]`.

256 GPUs, jobs of 1 to 64 of them (powers of two), lognormal durations (median 18 minutes), requests of one to four times
these. As many jobs are submitted at once as are to wait, and one more a second after each start, so that the queue stays
as long as it is; where that would be is found by a first run, which is not timed. Processor time of the run that follows,
kernels compiled, in one process. Exit code 1 where a bar is missed: 200,000 jobs a second of processor time at a queue of
20, and 100,000 jobs in 3 s at a queue of 800.
"""

from __future__ import annotations

import argparse
import json
import math
import sys
import time
from dataclasses import replace
from typing import Any, Final

import numpy as np

from forerun.domains.cluster.engine.backfill import BackfillRules, build_backfill
from forerun.domains.cluster.engine.kernels import backfill as bk
from forerun.domains.cluster.engine.kernels import priority as qk
from forerun.domains.cluster.engine.record import Record
from forerun.domains.cluster.engine.run import run_rules
from forerun.domains.cluster.inputs.setting import Cluster, Jobs, Setting
from forerun.domains.cluster.policies.backfilling.base import BackfillPolicy
from forerun.domains.cluster.policies.conservative import Conservative
from forerun.domains.cluster.policies.easy import Easy
from forerun.domains.cluster.policies.orders.fcfs import Fcfs
from forerun.domains.cluster.policies.orders.wfp3 import Wfp3

GPUS: Final = 256
JOBS: Final = 100_000
#: jobs that wait, and the processor seconds in which 100,000 jobs are to be run
BARS: Final = {20: 0.5, 800: 3.0}
POLICIES: Final[tuple[BackfillPolicy, ...]] = (Easy(), Conservative())


def drawn(count: int) -> Setting:
    """The jobs, all submitted at once."""
    rng = np.random.default_rng(1)
    gpus = 2 ** rng.integers(0, 7, count)
    work = np.ceil(rng.lognormal(7, 1.3, count)).astype(np.int64)
    request = np.ceil(work * rng.uniform(1, 4, count)).astype(np.int64)
    jobs = Jobs.of(np.zeros(count), gpus, work, requested_s=request)
    return Setting(jobs, Cluster.uniform(1, 1, GPUS), None, 60)


def steady(made: Setting, policy: BackfillPolicy, waiting: int) -> Setting:
    """The same jobs, submitted so that as many wait at any time."""
    count = len(made.jobs)
    queue = build_backfill(made, 1 << 12)
    queue.submit[waiting:] = np.inf
    submitted, now_s = waiting, 0.0
    given = (policy.order.number, policy.keeps_promises, policy.promises, count, np.inf, policy.grace_s)
    while (now_s := bk.advance(queue, *given, math.nextafter(now_s, math.inf))) < math.inf:
        started = int(queue.meta[qk.ARRIVED] - queue.meta[qk.WAITING])
        if (due := min(count, started + waiting)) > submitted:
            queue.submit[submitted:due] = np.floor(queue.event_time[queue.meta[qk.EVENTS] - 1]) + 1
            now_s = min(now_s, queue.submit[due - 1])
            submitted = due
        queue.meta[qk.EVENTS] = queue.meta[qk.LOGGED] = 0
    return replace(made, jobs=replace(made.jobs, submit_s=queue.submit.astype(np.int64)))


def timed(made: Setting, policy: BackfillPolicy) -> dict[str, Any]:
    """One run: its processor seconds, and how many jobs waited when one came."""
    record = Record(made)
    rules = BackfillRules(made, record, policy)
    begun = time.process_time()
    run_rules(rules)
    cpu_s = time.process_time() - begun
    submit_s, start_s = made.jobs.submit_s, np.sort(record.first_start_s)
    waiting = np.searchsorted(submit_s, submit_s, "right") - np.searchsorted(start_s, submit_s, "right")
    return {"cpu_s": cpu_s, "jobs": len(made.jobs), "waiting": float(waiting.mean())}


def main() -> int:
    """Print one line a case."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--json", action="store_true")
    as_json = parser.parse_args().json
    cases: list[dict[str, Any]] = []
    made, few = drawn(JOBS), drawn(200)
    for waiting, bar_s in BARS.items():
        for policy in (each.with_(order=order) for each in POLICIES for order in (Fcfs(), Wfp3())):
            timed(steady(few, policy, 20), policy)  # compiles
            name, order = type(policy).__name__.lower(), type(policy.order).__name__.lower()
            case: dict[str, Any] = {"policy": name, "order": order, "bar_s": bar_s}
            cases.append(case | timed(steady(made, policy, waiting), policy))
            if not as_json:
                print(
                    f"{name:14}{order:6}{cases[-1]['waiting']:7.1f} wait{cases[-1]['cpu_s']:8.2f} s, bar {bar_s:g} s"
                )
    if as_json:
        print(json.dumps({"gpus": GPUS, "cases": cases}))
    return int(any(case["cpu_s"] > case["bar_s"] for case in cases))


if __name__ == "__main__":
    sys.exit(main())
