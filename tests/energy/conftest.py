"""Shared data of the energy tests: the public traces, read once, and the recorded histories."""

from __future__ import annotations

import gzip
import json
from collections.abc import Callable, Iterator, Sequence
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from forerun.energy.engine.loops import group, sequence
from forerun.energy.engine.simulation import Attempt, History, OneStream, Simulation
from forerun.energy.inputs.workload import Submission, Workload, join
from forerun.energy.policies.gts import Gts
from forerun.energy.policies.jit import Jit
from forerun.energy.policies.pruning_gts import PruningGts
from forerun.energy.policy import Pair, failures
from forerun.energy.policy.rules import Rules
from forerun.energy.policy.view import Job
from forerun.energy.readers.energy_tables import PowerTrace, TrainTrace, read_power, read_train
from forerun.replication.zeus import public as public_files

from ..conftest import shared_path

#: the named failures of a recurring job
FAILURES = tuple(member for member in vars(failures).values() if hasattr(member, "kind"))


def started(run: History) -> list[Attempt]:
    """The attempts that ran at least one epoch."""
    return [attempt for attempt in run.attempts if attempt.outcome.ended_by != "never_ran"]


GPUS = ("v100", "a40", "rtx6000", "p100")
#: dataset: network, optimizer, target, max epochs, default batch size
JOBS = {
    "cifar100": ("shufflenetv2", "adadelta", 0.6, 100, 1024),
    "imagenet": ("resnet50", "adadelta", 0.65, 100, 256),
    "squad": ("bert_base_uncased", "adamw", 84.0, 6, 32),
    "librispeech": ("deepspeech2", "adamw", 40.0, 16, 256),
    "movielens-1m": ("ncf", "adam", 0.41, 100, 1024),
    "sentiment140": ("bert_base_uncased", "adamw", 0.84, 10, 128),
}


@pytest.fixture(scope="session")
def data() -> Path:
    """The folder of the public traces."""
    return shared_path("data", "energy")


@pytest.fixture(scope="module")
def public_data(data: Path) -> Iterator[None]:
    """The published results read the public traces in this folder, once a module."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("FORERUN_DATA_DIR", str(data.parent))
        yield
    public_files.public_train.cache_clear()
    public_files.public_power.cache_clear()


@pytest.fixture(scope="session")
def golden() -> Callable[[str], Any]:
    """A recorded file by name."""

    def load(name: str) -> Any:
        path = shared_path("golden", "energy", name)
        text = gzip.decompress(path.read_bytes()) if path.suffix == ".gz" else path.read_bytes()
        return json.loads(text)

    return load


@pytest.fixture(scope="session")
def train(data: Path) -> TrainTrace:
    """The public trainings."""
    return read_train(data / "summary_train.csv")


@pytest.fixture(scope="session")
def powers(data: Path) -> dict[str, PowerTrace]:
    """The public measured epochs by GPU."""
    return {gpu: read_power(data / f"summary_power_{gpu}.csv") for gpu in GPUS}


def toy_traces(
    train_rows: Sequence[dict[str, Any]], power_rows: Sequence[dict[str, Any]]
) -> tuple[TrainTrace, PowerTrace]:
    """Traces from rows of plain data; `target_epoch` None is never."""

    def keys(rows: Sequence[dict[str, Any]]) -> tuple[tuple[str, str, str], ...]:
        return tuple((row["dataset"], row["network"], row["optimizer"]) for row in rows)

    def column(rows: Sequence[dict[str, Any]], name: str, kind: type) -> Any:
        return np.array([kind(row[name] or 0) for row in rows])

    return (
        TrainTrace(
            workload=keys(train_rows),
            batch_size=column(train_rows, "batch_size", int),
            target_metric=column(train_rows, "target_metric", float),
            target_epoch=column(train_rows, "target_epoch", int),
            line=np.arange(2, 2 + len(train_rows)),
            source="train.csv",
        ),
        PowerTrace(
            workload=keys(power_rows),
            batch_size=column(power_rows, "batch_size", int),
            limit_w=column(power_rows, "power_limit", float),
            epoch_s=column(power_rows, "time_per_epoch", float),
            power_w=column(power_rows, "average_power", float),
            line=np.arange(2, 2 + len(power_rows)),
            source="power.csv",
        ),
    )


def toy(
    paths: dict[int, Sequence[int | None]],
    epochs: dict[int, dict[float, tuple[float, float]]],
    *,
    default: int = 0,
    max_epochs: int = 50,
    rules: Rules | None = None,
    target: float = 0.9,
) -> Workload:
    """A small world: epochs to target a batch size, and (seconds, watts) a batch size and limit."""
    key = {"dataset": "toy", "network": "net", "optimizer": "adam"}
    rows = [
        {**key, "batch_size": size, "target_metric": target, "target_epoch": epoch}
        for size, runs in paths.items()
        for epoch in runs
    ]
    power = [
        {**key, "batch_size": size, "power_limit": limit, "time_per_epoch": seconds, "average_power": watts}
        for size, limits in epochs.items()
        for limit, (seconds, watts) in limits.items()
    ]
    train, measured = toy_traces(rows, power)
    job = Job(**key, target_metric=target, max_epochs=max_epochs, default_batch_size=default)
    return join(train, measured, job, rules or Rules())


@pytest.fixture(scope="session")
def make_toy() -> Callable[..., Workload]:
    """`toy`, for tests in other files."""
    return toy


@pytest.fixture(scope="session")
def make_traces() -> Callable[..., tuple[TrainTrace, PowerTrace]]:
    """`toy_traces`, for tests in other files."""
    return toy_traces


@pytest.fixture(scope="session")
def public(train: TrainTrace, powers: dict[str, PowerTrace]) -> Callable[..., Workload]:
    """A public workload by GPU and data set, its default batch size clipped to what was measured."""

    @cache
    def load(gpu: str, dataset: str, rules: Rules | None = None) -> Workload:
        network, optimizer, target, max_epochs, default = JOBS[dataset]
        key, power = (dataset, network, optimizer), powers[gpu]
        largest = max(size for size, row in zip(power.batch_size.tolist(), power.workload) if row == key)
        job = Job(
            dataset=dataset,
            network=network,
            optimizer=optimizer,
            target_metric=target,
            max_epochs=max_epochs,
            default_batch_size=min(default, largest),
        )
        return join(train, power, job, rules or Rules.of("compat"))

    return load


@pytest.fixture(scope="session")
def recorded(
    golden: Callable[[str], Any], train: TrainTrace, powers: dict[str, PowerTrace]
) -> Callable[[str], tuple[dict[str, Any], Workload, Pair]]:
    """A recorded case by name: its file, its workload, its pair of policies."""

    def load(name: str) -> tuple[dict[str, Any], Workload, Pair]:
        case = golden(f"{name}.json")
        config = case["config"]
        traces = (train, powers.get(config["gpu"]))
        if "train_rows" in config:
            traces = toy_traces(config["train_rows"], config["power_rows"])
        job = dict(config["job"])
        job["default_batch_size"] = job.pop("default_bs") or 0
        workload = join(*traces, Job(**job), Rules.of("compat"))
        return case, workload, pair(config.get("bso") or {})

    return load


def pair(options: dict[str, Any]) -> Pair:
    """The pair of policies that a recorded case names."""
    known = {name: value for name, value in options.items() if name not in ("kind", "seed", "window_size")}
    if options.get("kind", "pruning_gts") == "gts":
        return Pair(batch_size=Gts(**known), limit=Jit())
    return Pair(batch_size=PruningGts(**known, window=options.get("window_size", 0)), limit=Jit())


@pytest.fixture(scope="session")
def play() -> Callable[..., tuple[History, Simulation]]:
    """Run a recorded case's configuration through the readable loops."""

    def run(config: dict[str, Any], workload: Workload, spec: Pair) -> tuple[History, Simulation]:
        simulation = Simulation(
            workload,
            spec,
            eta=config["eta"],
            beta=float(config["beta"]),
            rules=Rules.of("compat"),
            seed=(config.get("bso") or {}).get("seed", config["seed"]),
        )
        simulation.paths = OneStream(config["seed"])
        if config["mode"] == "one_job":
            return sequence(simulation, config.get("num_recurrence") or workload.recurrences()), simulation
        rows = [
            Submission(row["start_time"], row["end_time"], row["runtime_ratio"]) for row in config["group"]
        ]
        return group(simulation, rows), simulation

    return run
