"""Jobs a second under backfilling, with a queue that stays as long: `python benchmarks/cluster/backfill.py [--json]`.

256 GPUs, jobs of 1 to 64 of them (powers of two), lognormal durations (median 18 minutes), requests of one to four times
these. As many jobs are submitted at once as are to wait, and one more a second after each start, so that the queue stays
as long as it is; where that would be is found by a first run, which is not timed. Processor time of the run that follows,
kernels compiled, in one process. Exit code 1 where a bar is missed: 200,000 jobs a second of processor time at a queue of
20, 100,000 jobs in 3 s at a queue of 800, and 10,000 jobs in 1 s where each of twenty users may run six at once.
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

from forerun.cluster.engine.allocator import Terms
from forerun.cluster.engine.kernels import node_queue as nq
from forerun.cluster.engine.kernels import queue_state as qs
from forerun.cluster.engine.node_queue import NodeQueueRules
from forerun.cluster.engine.record import Record
from forerun.cluster.engine.run import rules_for, run_rules
from forerun.cluster.inputs.arrays import Cluster, Jobs
from forerun.cluster.inputs.limits import LIMIT_COLUMNS, LimitRule, resolved
from forerun.cluster.inputs.setting import Setting
from forerun.cluster.policies.backfilling.base import BackfillPolicy
from forerun.cluster.policies.conservative import Conservative
from forerun.cluster.policies.easy import Easy
from forerun.cluster.policies.orders.fcfs import Fcfs
from forerun.cluster.policies.orders.wfp3 import Wfp3

GPUS: Final = 256
JOBS: Final = 100_000
#: jobs that wait, and the processor seconds in which 100,000 jobs are to be run
BARS: Final = {20: 0.5, 800: 3.0}
#: under limits: jobs that are run, and the seconds for 100,000
LIMITED: Final = 10_000
LIMITED_BAR_S: Final = 10.0
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
    rules = NodeQueueRules(made, Record(made), policy.terms(), policy.order)
    queue, terms = rules.queue, rules.terms
    queue.submit[waiting:] = queue.ranks.since[waiting:] = np.inf
    submitted, now_s = waiting, 0.0
    while (now_s := nq.advance(queue, terms, math.nextafter(now_s, math.inf))) < math.inf:
        started = int(queue.meta[qs.ARRIVED] - queue.meta[qs.WAITING])
        if (due := min(count, started + waiting)) > submitted:
            queue.submit[submitted:due] = np.floor(queue.event_time[queue.meta[qs.EVENTS] - 1]) + 1
            queue.ranks.since[submitted:due] = queue.submit[submitted:due]
            now_s = min(now_s, queue.submit[due - 1])
            submitted = due
        queue.meta[qs.EVENTS] = queue.meta[qs.LOGGED] = queue.meta[qs.SEATED] = 0
    return replace(made, jobs=replace(made.jobs, submit_s=queue.submit.astype(np.int64)))


def limited(made: Setting) -> Setting:
    """The same jobs, of twenty users with at most six running jobs each."""
    users = [f"u{user}" for user in np.random.default_rng(2).integers(0, 20, len(made.jobs))]
    rule = LimitRule("per user", per=("user",), jobs=6)
    columns = dict.fromkeys(LIMIT_COLUMNS, users)
    return replace(made, limits=resolved([rule], {}, columns, made.cluster.node_types()))


def timed(made: Setting, policy: BackfillPolicy) -> dict[str, Any]:
    """One run: its processor seconds, and how many jobs waited when one came."""
    record = Record(made)
    rules = rules_for(policy, made, record, Terms(), 0)
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
    made, few, fewer = drawn(JOBS), drawn(200), drawn(LIMITED)
    plan = [
        (policy.with_(order=order), waiting, bar_s, False)
        for waiting, bar_s in BARS.items()
        for policy in POLICIES
        for order in (Fcfs(), Wfp3())
    ]
    plan += [(policy.with_(order=Fcfs()), 20, LIMITED_BAR_S, True) for policy in POLICIES]
    for policy, waiting, bar_s, limits in plan:
        case: dict[str, Any] = {
            "policy": type(policy).__name__.lower(),
            "order": type(policy.order).__name__.lower(),
            "limits": limits,
            "bar_s": bar_s,
        }
        for jobs, wait in ((few, 20), (fewer if limits else made, waiting)):  # the first compiles
            setting = steady(jobs, policy, wait)
            case |= timed(limited(setting) if limits else setting, policy)
        cases.append(case)
        if not as_json:
            about = f"{case['policy']:14}{case['order']:6}{'limits' if limits else '':8}{case['waiting']:7.1f} wait"
            print(f"{about}{case['cpu_s'] / case['jobs'] * JOBS:8.2f} s, bar {bar_s:g} s")
    if as_json:
        print(json.dumps({"gpus": GPUS, "cases": cases}))
    return int(any(case["cpu_s"] / case["jobs"] * JOBS > case["bar_s"] for case in cases))


if __name__ == "__main__":
    sys.exit(main())
