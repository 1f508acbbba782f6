"""Speed of the spot domain: `python benchmarks/spot/bench.py`.

Ratios on one core of this machine: the kernel against a lean tick machine (the notebook's, without its log),
the exact replay against the same, Bamboo's mended and compatible ring; and the time of 20 000 trials a level.
"""

from __future__ import annotations

import argparse
import json
import math
import sys
import time
from collections.abc import Callable
from dataclasses import replace

import numba

from forerun.replication.bamboo.published import BAMBOO_JOBS
from forerun.replication.bamboo.reproduce import NOTEBOOK_JOB
from forerun.replication.bamboo.ring import HourlyFleet, run_ring
from forerun.replication.bamboo.tick_machine import CORRECTED, run_ticks
from forerun.spot.engine import trials
from forerun.spot.engine.job import TrainingJob
from forerun.spot.engine.membership import Membership
from forerun.spot.engine.outlook import Observed
from forerun.spot.engine.replay import replay
from forerun.spot.policies.immediate import Immediate
from forerun.spot.scenario.batches import Burst
from forerun.spot.scenario.processes import Poisson, Tick, generate

MENDED = replace(CORRECTED, tick_s=5.0)
JOB = NOTEBOOK_JOB


def lean_tick_machine(fleet: Membership, job: TrainingJob, tick_s: float = 5.0) -> int:
    """The notebook's loop with its defects mended and without its log: local names, sets, no rows kept."""
    events = [
        (instant.t_s, is_add, node)
        for instant in fleet.instants
        for is_add, nodes in ((False, instant.removed), (True, instant.added))
        for node in nodes
    ]
    active = {node for t_s, is_add, node in events if t_s == 0 and is_add}
    standby: set[int] = set()
    prepping: dict[int, float] = {}
    depth, step_s, reconfig_s, prep_s, write_s = (
        job.depth,
        job.step_s,
        job.reconfig_s,
        job.prep_s,
        job.write_s,
    )
    at, count = len(active), len(events)
    step, saved, write_end, write_step = 0, -1, -1.0, -1
    start_s, pause_end, now_s = 0.0, -1.0, step_s.get(len(active), 0.0)
    for tick in range(int(job.horizon_s / tick_s)):
        t_s = tick * tick_s
        lost = False
        while at < count and events[at][0] <= t_s:
            _, is_add, node = events[at]
            at += 1
            if is_add:
                prepping[node] = t_s
            elif node in active:
                active.remove(node)
                lost = True
            else:
                standby.discard(node)
                prepping.pop(node, None)
        if prepping:
            ready = [node for node, since_s in prepping.items() if t_s - since_s >= prep_s]
            for node in ready:
                del prepping[node]
                standby.add(node)
        new = len(standby) >= depth
        if 0 <= write_end <= t_s:
            saved, write_end = write_step, -1.0
        if pause_end >= 0:
            if lost or new:
                pause_end = t_s + reconfig_s
            if t_s >= pause_end:
                step, start_s, pause_end = saved + 1, pause_end, -1.0
        elif now_s and t_s >= start_s + now_s:
            start_s += now_s
            if write_end < 0:
                write_end, write_step = start_s + write_s, step
            step += 1
        if lost or new:
            everyone = sorted(active) + sorted(standby)
            kept = min(job.max_pipelines, len(everyone) // depth) * depth
            active, standby = set(everyone[:kept]), set(everyone[kept:])
            pause_end, write_end = t_s + reconfig_s, -1.0
            now_s = step_s.get(kept, 0.0)
    return step


def seconds(work: Callable[[], object]) -> float:
    """CPU seconds of this process for `work`."""
    start = time.process_time()
    work()
    return time.process_time() - start


def level(p_per_min: float) -> Poisson:
    """The notebook's levels of preemption."""
    return Poisson(removals_per_min=p_per_min, adds_per_min=p_per_min, add_burst=Burst(probability=0.058))


CEILINGS = {
    "CPU seconds of 20000 trials at 2.0": 2.0,
    "CPU seconds of the sweep of 12 levels": 15.0,
}
FLOORS = {
    "kernel over lean ticks at 0.25": 200.0,
    "kernel over lean ticks at 0.5": 100.0,
    "replay over the notebook's ticks at 0.25": 1.5,
}


def ratios() -> dict[str, float]:
    """How many times faster than the tick machines, by level, on one thread."""
    numba.set_num_threads(1)
    found: dict[str, float] = {}
    trials.run(JOB, level(0.1), Immediate(), trials=2)
    for p_per_min in (0.05, 0.25, 0.5):
        process = Tick(removals_per_min=p_per_min, adds_per_min=p_per_min)
        fleets = [generate(process, seed=seed, horizon_s=JOB.horizon_s) for seed in range(8)]
        for fleet in fleets:
            exact, ticks = replay(fleet, JOB, Immediate(), Observed()), lean_tick_machine(fleet, JOB)
            assert abs(exact.steps_completed - ticks) <= 0.2 * exact.steps_completed + 40, (
                "not the same model"
            )
        works: dict[str, Callable[[], object]] = {
            "lean": lambda fleets=fleets: [lean_tick_machine(fleet, JOB) for fleet in fleets],
            "notebook": lambda fleets=fleets: [run_ticks(fleet, JOB.horizon_s, MENDED) for fleet in fleets],
            "replay": lambda fleets=fleets: [replay(fleet, JOB, Immediate(), Observed()) for fleet in fleets],
            "kernel": lambda p=p_per_min: trials.run(JOB, level(p), Immediate(), trials=2000),
        }
        # In turns, so that a busy machine slows all of them alike.
        best = dict.fromkeys(works, math.inf)
        for _ in range(6):
            for name, work in works.items():
                best[name] = min(best[name], seconds(work) / (2000 if name == "kernel" else len(fleets)))
        found[f"kernel over lean ticks at {p_per_min}"] = best["lean"] / best["kernel"]
        found[f"kernel over the notebook's ticks at {p_per_min}"] = best["notebook"] / best["kernel"]
        found[f"replay over the notebook's ticks at {p_per_min}"] = best["notebook"] / best["replay"]
        found[f"kernel microseconds a trial at {p_per_min}"] = best["kernel"] * 1e6
    ring = HourlyFleet(remove=[0.25] * 24, seed=1)
    done = run_ring(BAMBOO_JOBS["BERT"], ring, goal_steps=22_194)
    ring_s = seconds(lambda: run_ring(BAMBOO_JOBS["BERT"], ring, goal_steps=22_194)) / (done.end_ms / 3.6e6)
    kernel_s = found["kernel microseconds a trial at 0.25"] * 1e-6 / (JOB.horizon_s / 3600)
    return found | {"kernel over our Bamboo ring, per simulated hour, at 0.25": ring_s / kernel_s}


def sweep() -> dict[str, float]:
    """CPU seconds of 20 000 trials of 355 minutes at twelve levels, all threads together: wall time on one core."""
    numba.set_num_threads(numba.config.NUMBA_NUM_THREADS)
    found = {}
    for p_per_min in (0.01, 0.02, 0.05, 0.1, 0.163, 0.2, 0.25, 0.35, 0.5, 0.75, 1.0, 2.0):
        found[f"CPU seconds of 20000 trials at {p_per_min}"] = seconds(
            lambda p=p_per_min: trials.run(JOB, level(p), Immediate(), trials=20_000)
        )
    return found | {"CPU seconds of the sweep of 12 levels": sum(found.values())}


def main() -> int:
    """Print all figures; 1 if a floor is missed."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--json", action="store_true")
    as_json = parser.parse_args().json
    lines, missed = ["ratios on one thread; all times are CPU times"], 0
    figures = ratios() | sweep()
    for name, value in figures.items():
        floor, ceiling = FLOORS.get(name), CEILINGS.get(name)
        short = (floor is not None and value < floor) or (ceiling is not None and value > ceiling)
        missed += short
        bound = (
            f"floor {floor:g}" if floor is not None else f"at most {ceiling:g}" if ceiling is not None else ""
        )
        mark = f"  ({bound}{': MISSED' if short else ''})" if bound else ""
        lines.append(f"{name:60s} {value:10.4g}{mark}")
    print(json.dumps(figures) if as_json else "\n".join(lines))
    return int(missed > 0)


if __name__ == "__main__":
    sys.exit(main())
