"""Published results of MLPerf Storage v1.0, and the benchmark's workloads.

A result is one storage system under one workload: how many emulated accelerators it fed, on how many hosts, at which
throughput. The benchmark prints MB and divides by 1024²: throughputs here are in MiB/s. Its utilisation leaves out the first
step of each epoch; the throughput does not.
"""

from __future__ import annotations

import csv
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Final

from forerun.domains.loading.traces import workloads as dlio
from forerun.errors import DataError

MIB: Final = 2**20
#: system, workload, accelerator and hosts
Setting = tuple[str, str, str, int]


@dataclass(frozen=True)
class Workload:
    """What one emulated accelerator does.

    Parameters
    ----------
    name : such as `unet3d`.
    accelerator : `a100` or `h100`.
    torch : whether worker processes make whole batches (PyTorch), or threads read into one pipeline (TensorFlow).
    record_bytes, record_sd_bytes : configured mean and standard deviation of a record; what is drawn varies less.
    batch : records a step.
    computation_s : seconds of a step, asleep.
    threads : of reading, an accelerator, where a result does not say.
    required : utilisation that a result needs to count, as a share.
    """

    name: str
    accelerator: str
    torch: bool
    record_bytes: float
    record_sd_bytes: float
    batch: int
    computation_s: float
    threads: int
    required: float

    @property
    def drawn_spread(self) -> float:
        """Standard deviation of the records that are drawn, over the mean: DLIO's law, see the importer of the domain."""
        drawn = dlio.Workload(
            self.name,
            self.batch,
            self.record_bytes,
            self.computation_s,
            record_stdev_bytes=self.record_sd_bytes,
        )
        return drawn.drawn_stdev_bytes / self.record_bytes

    @property
    def ideal_mib_per_s(self) -> float:
        """What an accelerator takes that never waits [MiB/s]."""
        return self.batch * self.record_bytes / MIB / self.computation_s


@dataclass(frozen=True)
class Result:
    """A published result: means over its runs.

    Parameters
    ----------
    system : the storage system.
    submitter : who measured it; several systems of one are alike.
    workload : of the benchmark.
    accelerators, hosts : how many.
    mib_per_s : throughput [MiB/s].
    utilisation : reported, as a share, without the first step of each epoch.
    records : of the data set.
    threads : of reading, an accelerator.
    prefetch : batches ahead: of each worker, or of the pipeline (0: not set).
    samples_per_s : the throughput again, in records (default: 0: not given).
    busy_share : what the table says of `busy` (default: 0: not given).
    """

    system: str
    submitter: str
    workload: Workload
    accelerators: int
    hosts: int
    mib_per_s: float
    utilisation: float
    records: int
    threads: int
    prefetch: int
    samples_per_s: float = 0.0
    busy_share: float = 0.0

    @property
    def setting(self) -> Setting:
        """What two results have in common that differ in the number of accelerators alone."""
        return (self.system, self.workload.name, self.workload.accelerator, self.hosts)

    @property
    def steps(self) -> float:
        """Steps of an epoch."""
        return self.records / (self.accelerators * self.workload.batch)

    @property
    def first_step_s(self) -> float:
        """How long the first step of an epoch takes, computation included: what the two shares of time leave for it."""
        step_s = self.workload.computation_s
        return self.steps * step_s / self.busy - (self.steps - 1) * step_s / self.utilisation

    @property
    def label(self) -> str:
        """The result in words."""
        hosts = f"{self.hosts} host{'s' if self.hosts > 1 else ''}"
        return (
            f"{self.system}, {self.workload.name}, {self.accelerators} {self.workload.accelerator}, {hosts}"
        )

    @cached_property
    def ideal_mib_per_s(self) -> float:
        """What its accelerators would take if they never waited [MiB/s]."""
        return self.accelerators * self.workload.ideal_mib_per_s

    @property
    def busy(self) -> float:
        """The share of the whole time in which accelerators compute, first steps included."""
        return self.mib_per_s / self.ideal_mib_per_s


def read_workloads(path: Path) -> dict[tuple[str, str], Workload]:
    """The workloads of v1.0 by name and accelerator; others of the file are left out.

    Parameters
    ----------
    path : of a CSV file.

    Raises DataError for a file that is not such a table.
    """
    found = {}
    for line, row in _rows(path):
        try:
            if not row["set"].startswith("MLPerf Storage"):
                continue
            workload = Workload(
                row["workload"], row["accelerator"], row["framework"] == "pytorch", float(row["record_length_bytes"]),
                float(row["record_length_sd_bytes"] or 0), int(row["batch_size"]), float(row["computation_time_s"]),
                int(row["default_read_threads"]), float(row["au_required"]),
            )  # fmt: skip
        except (KeyError, ValueError, TypeError, AttributeError) as error:
            raise DataError.at(
                f"{path}:{line}", f"is no workload: {type(error).__name__}: {error}"
            ) from error
        found[workload.name, workload.accelerator] = workload
    return found


def read_results(path: Path, workloads: dict[tuple[str, str], Workload]) -> tuple[Result, ...]:
    """The results in the order of the file.

    Parameters
    ----------
    path : of a CSV file, a row a result.
    workloads : by name and accelerator.

    Raises DataError for a file that is not such a table.
    """
    found = []
    for line, row in _rows(path):
        try:
            workload = workloads[row["workload"], row["accelerator"]]
            result = Result(
                row["system_id"], row["submitter"], workload,
                int(row["accelerators"]), int(row["hosts"]), float(row["mib_per_s"]), float(row["au_percent"]) / 100,
                int(row["num_files"]) * int(row["samples_per_file"]), int(row["read_threads"] or workload.threads),
                int(row["prefetch_size"] or 0), float(row["samples_per_s"]), float(row["busy_share_percent"]) / 100,
            )  # fmt: skip
            if (
                min(result.accelerators, result.hosts, result.records, result.threads) < 1
                or result.mib_per_s <= 0
            ):
                raise ValueError("a number is not above 0")
        except (KeyError, ValueError, TypeError) as error:
            raise DataError.at(f"{path}:{line}", f"is no result: {type(error).__name__}: {error}") from error
        found.append(result)
    if not found:
        raise DataError.at(path, "contains no results")
    return tuple(found)


def stops(results: Iterable[Result]) -> list[Result]:
    """Of each setting the result with the highest rate: where its submitter stopped adding accelerators."""
    best: dict[Setting, Result] = {}
    for result in results:
        known = best.get(result.setting)
        if known is None or result.mib_per_s > known.mib_per_s:
            best[result.setting] = result
    return list(best.values())


def _rows(path: Path) -> list[tuple[int, dict[str, str]]]:
    """Rows with the number of their line. Raises DataError for a file that cannot be read."""
    try:
        with path.open(encoding="utf-8", newline="") as file:
            return list(enumerate(csv.DictReader(file), start=2))
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise DataError.at(path, f"cannot be read: {error}") from error
