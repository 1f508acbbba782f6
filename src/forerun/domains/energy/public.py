"""The public trace of recurring jobs (Zeus, NSDI 2023) and its six jobs, for reproductions and examples."""

from __future__ import annotations

import importlib
import os
from functools import cache
from pathlib import Path
from typing import Final

from forerun.domains.energy.model import Job, Rules
from forerun.domains.energy.workload import Workload, join
from forerun.errors import DataError, Problem
from forerun.trace.readers.energy_power import PowerTrace, read_power
from forerun.trace.readers.energy_train import TrainTrace, read_train

GPUS: Final = ("v100", "a40", "rtx6000", "p100")
#: the six jobs with their customary targets; the default batch size is clipped to what a GPU can hold
JOBS: Final = {
    "cifar100": Job(
        dataset="cifar100",
        network="shufflenetv2",
        optimizer="adadelta",
        target_metric=0.6,
        max_epochs=100,
        default_batch_size=1024,
    ),
    "imagenet": Job(
        dataset="imagenet",
        network="resnet50",
        optimizer="adadelta",
        target_metric=0.65,
        max_epochs=100,
        default_batch_size=256,
    ),
    "squad": Job(
        dataset="squad",
        network="bert_base_uncased",
        optimizer="adamw",
        target_metric=84.0,
        max_epochs=6,
        default_batch_size=32,
    ),
    "librispeech": Job(
        dataset="librispeech",
        network="deepspeech2",
        optimizer="adamw",
        target_metric=40.0,
        max_epochs=16,
        default_batch_size=256,
    ),
    "movielens-1m": Job(
        dataset="movielens-1m",
        network="ncf",
        optimizer="adam",
        target_metric=0.41,
        max_epochs=100,
        default_batch_size=1024,
    ),
    "sentiment140": Job(
        dataset="sentiment140",
        network="bert_base_uncased",
        optimizer="adamw",
        target_metric=0.84,
        max_epochs=10,
        default_batch_size=128,
    ),
}
#: names in the registry of public data
DATASETS: Final = ("zeus-train", *(f"zeus-power-{gpu}" for gpu in GPUS))


def public_file(dataset: str, name: str) -> Path:
    """A file of the public trace: in `$FORERUN_DATA_DIR/energy`, else from the registry of public data.

    Raises DataError if it is in neither place.
    """
    named = os.environ.get("FORERUN_DATA_DIR")
    if named and (Path(named) / "energy" / name).is_file():
        return Path(named) / "energy" / name
    try:
        found: Path = importlib.import_module("forerun.data").dataset(dataset)
    except ModuleNotFoundError as error:
        what = f"is not in $FORERUN_DATA_DIR/energy ({named or 'not set'}), and there is no registry of public data"
        raise DataError(Problem(name, what)) from error
    return found


@cache
def public_train() -> TrainTrace:
    """The public trainings."""
    return read_train(public_file("zeus-train", "summary_train.csv"))


@cache
def public_power(gpu: str) -> PowerTrace:
    """The public measured epochs of a GPU type."""
    return read_power(public_file(f"zeus-power-{gpu}", f"summary_power_{gpu}.csv"))


def public_job(gpu: str, dataset: str) -> Job:
    """One of the six jobs, its default batch size clipped to the largest measured on this GPU."""
    job, power = JOBS[dataset], public_power(gpu)
    largest = max(size for size, key in zip(power.batch_size.tolist(), power.workload) if key == job.workload)
    return job.with_(default_batch_size=min(job.default_batch_size, largest))


def public_workload(gpu: str, dataset: str, rules: Rules) -> Workload:
    """One of the 24 public workloads."""
    return join(public_train(), public_power(gpu), public_job(gpu, dataset), rules)
