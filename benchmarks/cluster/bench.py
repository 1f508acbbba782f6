"""Speed of the cluster domain: compiled queue against a pure-Python twin, a user's policy in rounds, growth to 1 M jobs.

Run as `python benchmarks/cluster/bench.py [--large] [--draw FOLDER] [--json]`; ratios matter, absolute times depend on the
machine. `--large` goes on to a million jobs; `--draw` writes the growth as a picture, light and dark.
"""

from __future__ import annotations

import argparse
import heapq
import json
import resource
import statistics
import sys
import time
from pathlib import Path
from typing import Any, Final

import numpy as np

from forerun.cluster.engine.allocator import AllocatorRules, Terms
from forerun.cluster.engine.priority import build_queue
from forerun.cluster.engine.record import Record
from forerun.cluster.engine.run import run_rules
from forerun.cluster.inputs.arrays import Cluster, Jobs
from forerun.cluster.inputs.setting import Setting
from forerun.cluster.policies.priority import EdfRigid, Srtf
from forerun.cluster.policy import Allocation, Allocator, View

#: the compiled queue over the pure-Python twin, at least (median of ROUNDS)
LEAST_RATIO: Final = 5.0
ROUNDS: Final = 5
#: the setting of the ratios and of a user's policy
JOBS: Final = 100_000
GPUS: Final = 1024
#: jobs a second of a user's Python policy in rounds of 60 s, at least; megabytes of it all, at most
LEAST_JOBS_PER_S: Final = 100_000
MOST_MB: Final = 1000
#: the share of jobs that end at the same instant in both, at least: among equal keys either may take another one first
LEAST_EQUAL: Final = 0.995


def drawn_world(count: int, gpus: int, load: float = 0.95) -> Setting:
    """Jobs of 1 to 8 GPUs, exponential work of mean 600 s, deadlines of 1 to 3 times the work."""
    rng = np.random.default_rng(1)
    size = rng.choice([1, 1, 1, 2, 4, 8], count)
    work = np.maximum(1, rng.exponential(600, count)).astype(np.int64)
    gap = float((size * work).mean()) / (gpus * load)
    submit = np.floor(np.cumsum(rng.exponential(gap, count))).astype(np.int64)
    due = submit + (work * rng.uniform(1, 3, count)).astype(np.int64)
    blank = ("",) * count
    jobs = Jobs(
        np.arange(count), tuple(range(count)), submit, due, np.zeros(count, np.int64), np.full(count, -1), blank,
        np.zeros(count, np.int64), size.astype(np.int64), work, np.zeros(count, np.bool_), blank, due,
    )  # fmt: skip
    return Setting(jobs, Cluster.uniform(1, gpus // 8, 8), None, 60)


class IndexedHeap:
    """A binary heap with a place per job, in pure Python: the fair opponent."""

    def __init__(self, size: int) -> None:
        self.order: list[int] = []
        self.place = [-1] * size
        self.key = [0.0] * size

    def push(self, job: int, key: float) -> None:
        self.key[job] = key
        self.order.append(job)
        self._rise(len(self.order) - 1, job)

    def remove(self, job: int) -> None:
        at = self.place[job]
        self.place[job] = -1
        last = self.order.pop()
        if last != job:
            key = self.key
            if at and key[last] < key[self.order[(at - 1) >> 1]]:
                self._rise(at, last)
            else:
                self._sink(at, last)

    def _rise(self, at: int, job: int) -> None:
        order, place, key = self.order, self.place, self.key
        mine = key[job]
        while at:
            above = (at - 1) >> 1
            other = order[above]
            if key[other] <= mine:
                break
            order[at] = other
            place[other] = at
            at = above
        order[at] = job
        place[job] = at

    def _sink(self, at: int, job: int) -> None:
        order, place, key = self.order, self.place, self.key
        mine, count = key[job], len(self.order)
        while True:
            below = 2 * at + 1
            if below >= count:
                break
            if below + 1 < count and key[order[below + 1]] < key[order[below]]:
                below += 1
            other = order[below]
            if mine <= key[other]:
                break
            order[at] = other
            place[other] = at
            at = below
        order[at] = job
        place[job] = at


def python_twin(setting: Setting, by_remaining: bool) -> np.ndarray:
    """The same rule in pure Python: waiting heap, worst-first heap, ends in a heap with lazy removal."""
    jobs = setting.jobs
    submit, gpus = jobs.submit_s.astype(float).tolist(), jobs.gpus.tolist()
    left, due = jobs.duration_s.astype(float).tolist(), jobs.deadline_s.astype(float).tolist()
    count, free, arrived = len(jobs), setting.cluster.gpus, 0
    waiting, worst = IndexedHeap(count), IndexedHeap(count)
    ends: list[tuple[float, int]] = []
    end_at, since, end = [-1.0] * count, [0.0] * count, [-1.0] * count
    while True:
        while ends and end_at[ends[0][1]] != ends[0][0]:
            heapq.heappop(ends)
        now = submit[arrived] if arrived < count else float("inf")
        if ends and ends[0][0] < now:
            now = ends[0][0]
        if now == float("inf"):
            return np.array(end)
        while ends and ends[0][0] <= now:
            time_s, job = heapq.heappop(ends)
            if end_at[job] == time_s:
                end_at[job] = -1.0
                end[job] = now
                worst.remove(job)
                free += gpus[job]
        while arrived < count and submit[arrived] <= now:
            waiting.push(arrived, left[arrived] if by_remaining else due[arrived])
            arrived += 1
        while waiting.order:
            job = waiting.order[0]
            while gpus[job] > free and worst.order:
                other = worst.order[0]
                if waiting.key[job] >= (end_at[other] - now if by_remaining else due[other]):
                    break
                worst.remove(other)
                left[other] -= now - since[other]
                end_at[other] = -1.0
                free += gpus[other]
                waiting.push(other, left[other] if by_remaining else due[other])
            if gpus[job] > free:
                break
            waiting.remove(job)
            since[job] = now
            end_at[job] = now + left[job]
            heapq.heappush(ends, (end_at[job], job))
            worst.push(job, -end_at[job] if by_remaining else -due[job])
            free -= gpus[job]


def compiled(setting: Setting, recipe: Srtf | EdfRigid) -> tuple[float, np.ndarray]:
    """CPU seconds of the compiled queue alone, and ends."""
    from forerun.cluster.engine.kernels import priority

    queue = build_queue(setting, int(recipe.order), 1 << 16)
    begun = time.process_time()
    while np.isfinite(priority.advance(queue, int(recipe.order), True, 0.0, np.inf)):
        queue.meta[priority.LOGGED] = queue.meta[priority.EVENTS] = 0
    return time.process_time() - begun, queue.end


def growth(counts: tuple[int, ...]) -> list[tuple[int, int, float]]:
    """Cost of an event as the heaps grow: (jobs, most jobs waiting at once, CPU microseconds an event; best of three).

    The queue is overloaded by a tenth, so that the jobs that wait grow with the trace, as in a log that lasts longer.
    """
    from forerun.cluster.engine.kernels import priority

    grown = []
    for count in counts:
        setting = drawn_world(count, GPUS, load=1.1)
        best, deepest, events = float("inf"), 0, 0
        for _ in range(3):
            queue = build_queue(setting, int(Srtf().order), 1 << 16)
            spent, deepest, events = 0.0, 0, 0
            coming_s = 0.0
            while np.isfinite(coming_s):
                begun = time.process_time()
                coming_s = priority.advance(queue, int(Srtf().order), True, 0.0, np.inf)
                spent += time.process_time() - begun
                happened = int(queue.meta[priority.EVENTS])
                deepest = max(deepest, int(queue.event_pending[:happened].max(initial=0)))
                events += happened
                queue.meta[priority.LOGGED] = queue.meta[priority.EVENTS] = 0
            best = min(best, spent)
        grown.append((count, deepest, best / events * 1e6))
    return grown


def draw_growth(grown: list[tuple[int, int, float]], folder: Path) -> None:
    """Cost of an event against jobs waiting, beside what a cost that grows with log2 of them would be."""
    from forerun.core.report.images import svg
    from forerun.core.report.palette import DARK, LIGHT
    from forerun.core.result.figures import Axis, Figure

    jobs = [float(count) for count, _, _ in grown]
    measured = [each for _, _, each in grown]
    slope = measured[0] / np.log2(grown[0][1])
    line = [float(slope * np.log2(depth)) for _, depth, _ in grown]
    figure = Figure(
        id="cluster-growth",
        title="Cost of an event as the trace grows",
        kind="line",
        x=Axis("jobs", "jobs in the trace", log=True),
        y=Axis("cost_us", "CPU time an event", "us"),
        data={
            "jobs": np.array(jobs * 2),
            "cost_us": np.array(measured + line),
            "which": np.array(
                ["measured"] * len(jobs) + ["in proportion to log2 of the jobs waiting"] * len(jobs)
            ),
        },
        series="which",
        caption="SRTF on 1,024 GPUs overloaded by a tenth, whole runs in the compiled queue.",
    )
    for name, palette in (("light", LIGHT), ("dark", DARK)):
        (folder / f"cluster-growth-{name}.svg").write_text(svg(figure, palette))


class ShortestQueueFirst(Allocator, tag="bench-user-policy", frozen=True):
    """A user's policy: least attained service, sorted in numpy every round."""

    round_s: float = 60.0

    def build(self, rng: np.random.Generator) -> ShortestQueueFirst:
        return self

    def allocate(self, view: View) -> Allocation:
        return view.take(np.argsort(view.served_gpu_s, kind="stable"))


def measure(large: bool) -> dict[str, Any]:
    """Everything: the compiled queue against its twin, the growth of an event's cost, a user's policy, memory."""
    compiled(drawn_world(1000, 64), Srtf())
    setting = drawn_world(JOBS, GPUS)
    found: dict[str, Any] = {}
    for recipe in (Srtf(), EdfRigid()):
        compiled_s, python_s = [], []
        for _ in range(ROUNDS):  # in turns, so that a busy machine slows both alike
            fast, ends = compiled(setting, recipe)
            begun = time.process_time()
            slow_ends = python_twin(setting, isinstance(recipe, Srtf))
            compiled_s.append(fast)
            python_s.append(time.process_time() - begun)
        found[type(recipe).__name__] = {
            "compiled_jobs_per_s": JOBS / statistics.median(compiled_s),
            "python_jobs_per_s": JOBS / statistics.median(python_s),
            "ratio": statistics.median(slow / fast for slow, fast in zip(python_s, compiled_s, strict=True)),
            "equal_ends_share": float(np.mean(np.isclose(ends, slow_ends))),
        }
    counts = (10_000, 30_000, 100_000, 300_000, 1_000_000) if large else (10_000, 100_000)
    found["growth"] = [
        {"jobs": jobs, "most_waiting": depth, "event_us": each_us} for jobs, depth, each_us in growth(counts)
    ]
    policy = ShortestQueueFirst()
    for count in (500, JOBS):
        setting = drawn_world(count, GPUS)
        record = Record(setting)
        begun = time.process_time()
        run_rules(AllocatorRules(setting, record, policy, policy, Terms()))
        seconds = time.process_time() - begun
    found["python_policy"] = {"jobs_per_s": JOBS / seconds, "events": len(record.events()[0])}
    found["memory_mb"] = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    return found


def misses(found: dict[str, Any]) -> list[str]:
    """What is below its floor."""
    missed = []
    for name in ("Srtf", "EdfRigid"):
        if (ratio := found[name]["ratio"]) < LEAST_RATIO:
            missed.append(f"{name}: {ratio:.2f} times the pure-Python twin, floor {LEAST_RATIO:g}")
        if (equal := found[name]["equal_ends_share"]) < LEAST_EQUAL:
            missed.append(
                f"{name}: {100 * equal:.2f} % of the ends equal the twin's, floor {100 * LEAST_EQUAL:g} %"
            )
    first, last = found["growth"][0], found["growth"][-1]
    growth_of_cost = last["event_us"] / first["event_us"]
    allowed = np.log2(last["most_waiting"]) / np.log2(first["most_waiting"])
    if growth_of_cost > allowed:
        missed.append(
            f"an event costs {growth_of_cost:.2f} times as much, at most {allowed:.2f} (log of the queue)"
        )
    if (speed := found["python_policy"]["jobs_per_s"]) < LEAST_JOBS_PER_S:
        missed.append(f"a Python policy: {speed:.0f} jobs/s, floor {LEAST_JOBS_PER_S}")
    if (memory := found["memory_mb"]) > MOST_MB:
        missed.append(f"memory: {memory:.0f} MB, at most {MOST_MB}")
    return missed


def main() -> int:
    """Print one line a measurement; 1 if the queue and its twin differ or a floor is missed."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--large", action="store_true", help="go on to a million jobs")
    parser.add_argument("--draw", type=Path, metavar="FOLDER", help="write the growth as a picture")
    parser.add_argument("--json", action="store_true")
    given = parser.parse_args()
    found = measure(given.large or given.draw is not None or given.json)
    grown = [(one["jobs"], one["most_waiting"], one["event_us"]) for one in found["growth"]]
    if given.draw is not None:
        draw_growth(grown, given.draw)
    if given.json:
        print(json.dumps(found))
    else:
        for name in ("Srtf", "EdfRigid"):
            one = found[name]
            print(
                f"{name}: {one['compiled_jobs_per_s'] / 1e6:.2f} M jobs/s compiled, "
                f"{one['python_jobs_per_s'] / 1e3:.0f} k jobs/s pure Python, ratio {one['ratio']:.1f}, "
                f"equal ends {100 * one['equal_ends_share']:.2f} %"
            )
        for count, depth, each_us in grown:
            print(f"SRTF, {count} jobs, up to {depth} waiting: {each_us:.3f} us an event")
        policy = found["python_policy"]
        print(
            f"a Python policy in 60 s rounds: {policy['jobs_per_s'] / 1e3:.0f} k jobs/s ({policy['events']} events)"
        )
        print(f"memory: {found['memory_mb']:.0f} MB")
    missed = misses(found)
    for what in missed:
        print(f"MISSED: {what}", file=sys.stderr)
    return int(bool(missed))


if __name__ == "__main__":
    sys.exit(main())
