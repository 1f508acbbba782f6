"""Race against the public reference simulator (zeus-ml 0.11.0.post1), and our own speed marks.

    python benchmarks/energy/bench.py [FOLDER OF THE PUBLIC TRACE]

One process, one core; times are CPU seconds. The reference runs a few recurrences, ours many seeds; what is compared
is CPU time per attempt. Frontiers of a pipeline race the package `lowtime`. What is not installed is left out.
Exits 1 if a floor is missed; says so and exits 0 where the public trace is not at hand.
"""

from __future__ import annotations

import functools
import importlib.util
import json
import logging
import os
import sys
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from forerun.core.errors import ForerunError
from forerun.energy.engine.batch import Work, run_many
from forerun.energy.inputs.workload import Submission, Workload
from forerun.energy.plan.frontier import Program
from forerun.energy.policies.jit import Jit
from forerun.energy.policies.joint import Joint
from forerun.energy.policies.pruning_gts import PruningGts
from forerun.energy.policy import KnobSpec, Pair
from forerun.energy.policy.rules import Rules
from forerun.replication.zeus.groups import group_rows
from forerun.replication.zeus.pipelines import synthetic
from forerun.replication.zeus.public import GPUS, public_file, public_workload
from forerun.replication.zeus.published import JOBS

ROOT = Path(__file__).resolve().parents[2]
FOLDERS = [word for word in sys.argv[1:] if word != "--json"]
if FOLDERS:
    os.environ["FORERUN_DATA_DIR"] = str(Path(FOLDERS[0]).resolve().parent)
elif "FORERUN_DATA_DIR" not in os.environ:
    os.environ["FORERUN_DATA_DIR"] = str(
        Path(os.environ.get("FORERUN_SHARED", ROOT.parent / "shared")) / "data"
    )

COMPAT = Rules.of("compat")
SHAPES: dict[str, dict[str, Any]] = {
    "one after another": {"load": 0.5, "overlap": False},
    "overlapping": {"load": 2.0},
    "bursts of eight": {"load": 2.0, "burst": 8},
}
CASES = (("v100", "librispeech"), ("v100", "cifar100"), ("a40", "sentiment140"))


def timed(work: Callable[[], Any]) -> tuple[float, Any]:
    start = time.process_time()
    result = work()
    return time.process_time() - start, result


def reference_run(gpu: str, dataset: str, n: int, rows: list[Submission]) -> tuple[float, int]:
    """CPU seconds and attempts of one run of the reference, reading excluded."""
    import pandas
    from zeus._legacy.job import Job
    from zeus._legacy.policy.optimizer import JITPowerLimitOptimizer, PruningGTSBatchSizeOptimizer
    from zeus._legacy.simulate import Simulator

    train = pandas.read_csv(public_file("summary_train.csv"), float_precision="round_trip")
    power = pandas.read_csv(public_file(f"summary_power_{gpu}.csv"), float_precision="round_trip")
    ours = public_workload(gpu, dataset, COMPAT).job
    chooser = PruningGTSBatchSizeOptimizer(seed=1, verbose=False, concurrency=bool(rows))
    simulator = Simulator(train, power, chooser, JITPowerLimitOptimizer(verbose=False), seed=1, verbose=False)
    job = Job(*ours.workload, ours.target_metric, ours.max_epochs, ours.default_batch_size)
    if not rows:
        seconds, history = timed(lambda: simulator.simulate_one_job(job, n, 2.0, 0.5))
    else:
        frame = pandas.DataFrame(
            {
                "group": "g",
                "dataset": ours.dataset,
                "start_time": [row.start_s for row in rows],
                "end_time": [row.end_s for row in rows],
                "runtime_ratio": [row.runtime_ratio for row in rows],
            }
        )
        seconds, history = timed(lambda: simulator.simulate_one_alibaba_group(job, frame, 2.0, 0.5))
    return seconds, len(history)


def ours_run(gpu: str, dataset: str, n: int, rows: list[Submission], seeds: int, compile_above: int) -> float:
    """CPU seconds per attempt."""
    workload = public_workload(gpu, dataset, COMPAT)
    spec = Pair(batch_size=PruningGts(concurrency=bool(rows)), limit=Jit())

    def work(count: int) -> list[Any]:
        return run_many(
            Work(workload, spec, eta=0.5, beta=2.0, rules=COMPAT, recurrences=n, rows=rows),
            range(1, count + 1),
            compile_above=compile_above,
        )

    work(1)  # compiles, or reads compiled code from its cache
    seconds, logs = timed(lambda: work(seeds))
    return float(seconds / sum(len(log) for log in logs))


def race() -> list[dict[str, Any]]:
    found = []
    overlapping = group_rows(60, 9000.0, seed=2, load=2.0)
    for gpu, dataset, rows in (*((*case, []) for case in CASES), ("v100", "librispeech", overlapping)):
        n = public_workload(gpu, dataset, COMPAT).recurrences()
        seconds, attempts = reference_run(gpu, dataset, min(n, 60), rows)
        theirs = seconds / attempts
        compiled = ours_run(gpu, dataset, n, rows, 200, 0)
        readable = ours_run(gpu, dataset, n, rows, 3, 10**9)
        found.append(
            {
                "case": f"{gpu} {dataset}" + (" overlapping group" if rows else ""),
                "reference_ms_per_attempt": round(1e3 * theirs, 3),
                "compiled_us_per_attempt": round(1e6 * compiled, 3),
                "compiled_ratio": round(theirs / compiled),
                "readable_us_per_attempt": round(1e6 * readable, 1),
                "readable_ratio": round(theirs / readable),
            }
        )
    return found


def marks() -> dict[str, float]:
    workload = public_workload("v100", "librispeech", COMPAT)
    published = Pair(batch_size=PruningGts(), limit=Jit())

    def take_s(workload: Workload, spec: KnobSpec, rules: Rules, seeds: int = 1000) -> float:
        work = Work(workload, spec, eta=0.5, beta=2.0, rules=rules, recurrences=100)
        return timed(lambda: run_many(work, range(seeds)))[0]

    take_s(workload, published, COMPAT)  # compiles
    take_s(workload, Joint(), COMPAT, 2)
    found = {}
    found["1,000 seeds x 100 recurrences, compat, s"] = take_s(workload, published, COMPAT)
    corrected = public_workload("v100", "librispeech", Rules())
    found["1,000 seeds x 100 recurrences, corrected, s"] = take_s(corrected, published, Rules())
    found["1,000 seeds x 100 recurrences, joint, s"] = take_s(workload, Joint(), COMPAT)
    found["24 workloads x 200 seeds, s"], _ = timed(_sweep)
    return {name: round(seconds, 3) for name, seconds in found.items()}


def scaling() -> dict[str, dict[str, float]]:
    """Seconds of groups of 10,000 and 100,000 submissions; one line a shape."""
    workload = public_workload("v100", "librispeech", COMPAT)
    spec = Pair(batch_size=PruningGts(concurrency=True), limit=Jit())
    found = {}
    for name, shape in SHAPES.items():
        took = []
        for n in (10_000, 100_000):
            rows = group_rows(n, 9000.0, seed=5, **shape)
            work = Work(workload, spec, eta=0.5, beta=2.0, rules=COMPAT, rows=rows)
            run = functools.partial(run_many, work, [1], compile_above=0)
            took.append(min(timed(run)[0] for _ in range(3)))
        found[name] = {
            "10,000 rows, s": took[0],
            "100,000 rows, s": took[1],
            "ratio": round(took[1] / took[0], 1),
        }
    return found


def _sweep() -> None:
    for gpu in GPUS:
        for dataset in JOBS:
            workload = public_workload(gpu, dataset, COMPAT)
            run_many(
                Work(
                    workload,
                    Pair(batch_size=PruningGts(), limit=Jit()),
                    eta=0.5,
                    beta=2.0,
                    rules=COMPAT,
                    recurrences=workload.recurrences(),
                ),
                range(200),
                compile_above=0,
            )


def pipelines() -> dict[str, float]:
    """Our frontier of a pipeline of 4 stages and 8 microbatches against the package `lowtime` at 1 ms.

    Its frequencies are run by us: `worst_energy_ratio` is the largest of ours over its energy at any of its times.
    """
    import networkx
    from lowtime.cost_model import ExponentialModel
    from lowtime.operation import (
        CandidateExecutionOptions,
        DummyOperation,
        ExecutionOption,
        Operation,
        OperationSpec,
    )
    from lowtime.solver import PhillipsDessouky

    pipeline = synthetic((1.0, 1.05, 1.05, 1.25), 8, tuple(range(600, 1411, 30)))
    count = len(pipeline.operations)

    def theirs() -> list[list[int]]:
        specs = {}
        for op in pipeline.operations:
            choices = pipeline.choices[op.stage][op.kind]
            columns = (choices.frequency_mhz, choices.time_s, choices.energy_j)
            options = CandidateExecutionOptions(
                options=[
                    ExecutionOption(
                        real_time=t, unit_time=0.001, cost=e - pipeline.blocked_power_w * t, knob=int(f)
                    )
                    for f, t, e in zip(*columns)
                ]
            )
            if (op.stage, op.kind) not in specs:
                specs[op.stage, op.kind] = OperationSpec(
                    options=options, cost_model=ExponentialModel(options)
                )
        operations = [Operation(specs[op.stage, op.kind]) for op in pipeline.operations]
        graph = networkx.DiGraph(source_node=0, sink_node=count + 1)
        for at, operation in enumerate((DummyOperation(), *operations, DummyOperation())):
            graph.add_node(at, op=operation)
        last = set(range(count)) - {other for before in pipeline.waits_for for other in before}
        for at, before in enumerate(pipeline.waits_for):
            graph.add_edges_from((other + 1, at + 1) for other in before or (-1,))
        graph.add_edges_from((at + 1, count + 1) for at in last)
        found = []
        for _ in PhillipsDessouky(graph).run():
            clocks = [pipeline.of(at).frequency_mhz.tolist() for at in range(count)]
            found.append([clocks[at].index(float(op.assigned_knob)) for at, op in enumerate(operations)])
        return found

    logging.disable(logging.CRITICAL)
    their_s, plans = timed(theirs)
    our_s, mine = timed(lambda: Program(pipeline).frontier())
    worst = 0.0
    for at in plans:
        done = pipeline.run(at)
        inside = [point.energy_j for point in mine if point.makespan_s <= done.makespan_s * (1 + 1e-9)]
        worst = max(worst, min(inside) / done.energy_j) if inside else worst
    return {
        "lowtime_s": round(their_s, 3),
        "ours_s": round(our_s, 3),
        "times_as_fast": round(their_s / our_s, 1),
        "worst_energy_ratio": round(worst, 5),
    }


def missed(report: dict[str, Any]) -> list[str]:
    """The floors that do not hold."""
    found = [
        f"{entry['case']}: {entry['compiled_ratio']} times the reference, 1,000 is the floor"
        for entry in report.get("race", ())
        if entry["compiled_ratio"] < 1000
    ]
    race_of_pipelines = report.get("pipelines")
    if race_of_pipelines and race_of_pipelines["times_as_fast"] < 20:
        found.append(
            f"pipelines: {race_of_pipelines['times_as_fast']} times as fast as lowtime, 20 is the floor"
        )
    if race_of_pipelines and race_of_pipelines["worst_energy_ratio"] > 1.01:
        found.append(
            f"pipelines: {race_of_pipelines['worst_energy_ratio']} of lowtime's energy, 1.01 is the ceiling"
        )
    found += [
        f"groups, {name}: ten times the rows take {entry['ratio']} times as long, 15 is the ceiling"
        for name, entry in report["scaling"].items()
        if entry["ratio"] > 15
    ]
    took = report["marks"]["1,000 seeds x 100 recurrences, compat, s"]
    if took > 10:
        found.append(f"1,000 seeds x 100 recurrences took {took} s, 10 is the ceiling")
    return found


def main() -> int:
    try:
        public_file("summary_train.csv")
    except ForerunError as error:
        print(f"skipped: {error}", file=sys.stderr)
        return 0
    report: dict[str, Any] = {"numpy": np.__version__, "marks": marks(), "scaling": scaling()}
    if importlib.util.find_spec("zeus") is not None:
        warnings.simplefilter("ignore")
        report["race"] = race()
    if importlib.util.find_spec("lowtime") is not None:
        report["pipelines"] = pipelines()
    print(json.dumps(report, indent=1))
    for line in missed(report):
        print(f"MISSED: {line}", file=sys.stderr)
    return 1 if missed(report) else 0


if __name__ == "__main__":
    sys.exit(main())
