"""The public trace of recurring jobs [You, Chung, Chowdhury: Zeus, NSDI 2023]."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Final

from forerun.core.data.fetch import dataset
from forerun.energy.inputs.workload import Workload, join
from forerun.energy.policy.rules import Rules
from forerun.energy.policy.view import Job
from forerun.energy.readers.energy_tables import PowerTrace, TrainTrace, read_power, read_train
from forerun.replication.zeus.published import JOBS

GPUS: Final = ("v100", "a40", "rtx6000", "p100")
#: the source in the registry of public data, and that of windows measured while jobs trained
SOURCE: Final = "zeus"
WINDOWS_SOURCE: Final = "zeus_power_profiles"


def public_file(name: str) -> Path:
    """A file of the public trace, verified.

    Parameters
    ----------
    name : of the file, such as `summary_train.csv`.

    Raises
    ------
    DataError : it is missing; the message says where it could come from.
    """
    return dataset(f"energy/{name}")


@cache
def public_train() -> TrainTrace:
    """The public trainings, read once."""
    return read_train(public_file("summary_train.csv"))


@cache
def public_power(gpu: str) -> PowerTrace:
    """The public measured epochs of a GPU type, read once.

    Parameters
    ----------
    gpu : one of `GPUS`.
    """
    return read_power(public_file(f"summary_power_{gpu}.csv"))


def public_job(gpu: str, dataset: str) -> Job:
    """One of the six jobs, its default batch size clipped to the largest measured on this GPU.

    Parameters
    ----------
    gpu : one of `GPUS`.
    dataset : a key of `JOBS`.
    """
    job, power = JOBS[dataset], public_power(gpu)
    largest = max(size for size, key in zip(power.batch_size.tolist(), power.workload) if key == job.workload)
    return job.with_(default_batch_size=min(job.default_batch_size, largest))


def public_workload(gpu: str, dataset: str, rules: Rules) -> Workload:
    """One of the 24 public workloads: a job with its trainings and measured epochs.

    Parameters
    ----------
    gpu : one of `GPUS`.
    dataset : a key of `JOBS`.
    rules : known bugs of the published simulator that apply.
    """
    return join(public_train(), public_power(gpu), public_job(gpu, dataset), rules)
