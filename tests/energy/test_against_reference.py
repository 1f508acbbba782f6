"""Our loops against the public reference simulator itself, where its package is installed (zeus-ml, Apache-2.0)."""

from __future__ import annotations

import importlib.util
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from forerun.energy.engine.loops import group, sequence
from forerun.energy.engine.simulation import Simulation
from forerun.energy.inputs.workload import Submission, Workload
from forerun.energy.policies.jit import Jit
from forerun.energy.policies.pruning_gts import PruningGts
from forerun.energy.policy import Pair
from forerun.energy.policy.rules import Rules
from forerun.energy.policy.view import Job
from forerun.replication.zeus.groups import group_rows

from .conftest import started

pytestmark = [
    pytest.mark.filterwarnings("ignore:The 'float_precision' argument"),
    pytest.mark.skipif(
        importlib.util.find_spec("zeus") is None, reason="the package zeus-ml is not installed"
    ),
    pytest.mark.skipif(
        importlib.util.find_spec("bottleneck") is not None,
        reason="the reference fails beside the package bottleneck",
    ),
]


@pytest.fixture(scope="module")
def reference(data: Path) -> Callable[..., Any]:
    """One run of the reference: its history."""
    import pandas
    from zeus._legacy.job import Job as TheirJob
    from zeus._legacy.policy.optimizer import JITPowerLimitOptimizer, PruningGTSBatchSizeOptimizer
    from zeus._legacy.simulate import Simulator

    # The package's own reading loses last bits; a parser that rounds to the nearest double does not.
    train = pandas.read_csv(data / "summary_train.csv", float_precision="round_trip")

    def run(gpu: str, job: Job, *, seed: int, beta: float, eta: float, n: int = 0, rows: Any = ()) -> Any:
        power = pandas.read_csv(data / f"summary_power_{gpu}.csv", float_precision="round_trip")
        chooser = PruningGTSBatchSizeOptimizer(seed=seed, verbose=False, concurrency=bool(rows))
        simulator = Simulator(
            train, power, chooser, JITPowerLimitOptimizer(verbose=False), seed=seed, verbose=False
        )
        theirs = TheirJob(
            *job.workload[:2], job.optimizer, job.target_metric, job.max_epochs, job.default_batch_size
        )
        if not rows:
            return simulator.simulate_one_job(theirs, n, beta, eta)
        frame = pandas.DataFrame(
            {
                "group": "g",
                "dataset": job.dataset,
                "start_time": [row.start_s for row in rows],
                "end_time": [row.end_s for row in rows],
                "runtime_ratio": [row.runtime_ratio for row in rows],
            }
        )
        return simulator.simulate_one_alibaba_group(theirs, frame, beta, eta)

    return run


@pytest.mark.parametrize(
    ("gpu", "dataset", "seed", "eta", "beta"),
    [
        ("v100", "squad", 9, 0.5, 2.0),
        ("a40", "cifar100", 4, 0.8, 1.5),
        ("p100", "librispeech", 77, 0.25, 2.0),
    ],
)
def test_sequences(
    reference: Any,
    public: Callable[..., Workload],
    gpu: str,
    dataset: str,
    seed: int,
    eta: float,
    beta: float,
) -> None:
    workload = public(gpu, dataset)
    theirs = reference(gpu, workload.job, seed=seed, beta=beta, eta=eta, n=30)
    simulation = Simulation(
        workload,
        Pair(batch_size=PruningGts(), limit=Jit()),
        eta=eta,
        beta=beta,
        rules=Rules.of("compat"),
        seed=seed,
    )
    _same(theirs, started(sequence(simulation, 30)))


@pytest.mark.parametrize(
    ("dataset", "seed", "load", "burst"), [("squad", 3, 2.0, 1), ("sentiment140", 8, 3.0, 4)]
)
def test_groups(
    reference: Any, public: Callable[..., Workload], dataset: str, seed: int, load: float, burst: int
) -> None:
    workload = public("v100", dataset)
    rows = group_rows(24, 5000.0, seed=seed, load=load, burst=burst)
    rows = [Submission(round(row.start_s, 3), round(row.end_s, 3), row.runtime_ratio) for row in rows]
    theirs = reference("v100", workload.job, seed=seed, beta=2.0, eta=0.5, rows=rows)
    simulation = Simulation(
        workload,
        Pair(batch_size=PruningGts(concurrency=True), limit=Jit()),
        eta=0.5,
        beta=2.0,
        rules=Rules.of("compat"),
        seed=seed,
    )
    _same(theirs, started(group(simulation, rows)))


def _same(theirs: Any, ours: Any) -> None:
    assert [entry.bs for entry in theirs] == [line.outcome.batch_size for line in ours]
    assert [entry.pl for entry in theirs] == [line.outcome.limit_w for line in ours]
    assert [bool(entry.reached) for entry in theirs] == [line.outcome.reached for line in ours]
    assert [entry.energy for entry in theirs] == [line.outcome.energy_j * line.ratio for line in ours]
    assert [entry.time for entry in theirs] == [line.outcome.time_s * line.ratio for line in ours]
