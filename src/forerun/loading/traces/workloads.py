"""Workloads of the DLIO benchmark: what an accelerator demands of a store, and how many of them a store can feed.

Source: workload files of argonne-lcf/dlio_benchmark (Apache-2.0). Of such a file only sizes and their standard deviation,
batch, computation time, read threads, the data loader and the utilisation that counts as enough are read. An accelerator
that never waits reads batch * record / computation bytes a second. Its `read_threads` are threads of TensorFlow's loader
and worker processes of PyTorch's.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from forerun.core.errors import Problem, TraceError
from forerun.core.scenario.spec import to_data
from forerun.core.scenario.text import Document, read_document
from forerun.core.trace.domain_traces import Fitted, ReportTable, TraceReport
from forerun.core.trace.repair import RepairLog
from forerun.core.trace.rows import Field, gathered, read_rows
from forerun.core.trace.source import Source
from forerun.loading.scenario import (
    Cpu,
    Dataset,
    Layout,
    Loader,
    RandomBytes,
    Run,
    Scenario,
    Step,
    Store,
)

#: the share of its time that an accelerator must compute to count as fed, where a workload gives none
TARGET = 0.9


@dataclass(frozen=True)
class Workload:
    """A training job as DLIO has it.

    Parameters
    ----------
    name : of the workload.
    batch : samples a step.
    record_bytes : mean bytes of a sample.
    computation_s : seconds of a step.
    utilisation_target : share of its time that an accelerator must compute to count as fed (default: 0.9).
    samples : of an epoch (default: 0: not given; 64 steps are taken).
    samples_per_file : which are read with one request (default: 1).
    read_threads : readers of an accelerator (default: 1).
    epochs : how many (default: 1).
    record_stdev_bytes : standard deviation of a sample's bytes as the file has it (default: 0: all are of one size).
        DLIO draws less, see `drawn_stdev_bytes`.
    processes : whether its readers are worker processes (PyTorch's loader), not threads (default: no).
    """

    name: str
    batch: int
    record_bytes: float
    computation_s: float
    utilisation_target: float = TARGET
    samples: int = 0
    samples_per_file: int = 1
    read_threads: int = 1
    epochs: int = 1
    record_stdev_bytes: float = 0.0
    processes: bool = False

    @property
    def demand_bytes_per_s(self) -> float:
        """What one accelerator reads a second if it never waits."""
        return self.batch * self.record_bytes / self.computation_s

    @property
    def drawn_stdev_bytes(self) -> float:
        """The standard deviation of the records that DLIO writes, which is about 0.7 of the configured one.

        A record has two sides, drawn independently from a normal distribution with mean sqrt(L) and standard deviation
        S / (2 sqrt(L)); its size is their product. [Source: DLIO's generator of data, argonne-lcf/dlio_benchmark.]
        """
        side_share = self.record_stdev_bytes / (2 * self.record_bytes)
        return self.record_bytes * math.sqrt(2 * side_share**2 + side_share**4)

    def fed_by(self, shared_bytes_per_s: float) -> int:
        """Accelerators that a link feeds: each computes for the target share of its time at least.

        Parameters
        ----------
        shared_bytes_per_s : bandwidth of the link that all share.
        """
        fed = shared_bytes_per_s / (self.utilisation_target * self.demand_bytes_per_s)
        return math.floor(fed * (1 + 1e-12)) if math.isfinite(fed) else 2**31

    def scenario(self, store: Store, *, jobs: int = 1, samples: int = 0) -> Scenario:
        """The same as a scenario; a file's samples are a block, epochs as long as `samples` or as given.

        Sizes that vary are lognormal with the mean and the standard deviation of DLIO's records. Worker processes are
        threads where there are several jobs: only these share a store in the model.

        Parameters
        ----------
        store : that is read.
        jobs : accelerators that share it (default: 1).
        samples : of an epoch (default: 0: as given).
        """
        readers = max(1, self.read_threads)
        size: float | RandomBytes = self.record_bytes
        if self.record_stdev_bytes:
            sigma = math.sqrt(math.log1p((self.drawn_stdev_bytes / self.record_bytes) ** 2))
            size = RandomBytes(mean_bytes=self.record_bytes, sigma=sigma)
        count = samples or self.samples or 64 * self.batch
        block = max(1, min(self.samples_per_file, count))
        return Scenario(
            title=f"{self.name}, DLIO",
            dataset=Dataset(samples=count, sample_bytes=size),
            layout=Layout(block_samples=block),
            store=store,
            cpu=Cpu(),
            loader=Loader(mode="workers", workers=readers)
            if self.processes and jobs == 1
            else Loader(threads=readers, buffer_samples=2 * self.batch * readers),
            step=Step(step_s=self.computation_s),
            run=Run(batch=min(self.batch, count), epochs=self.epochs),
            jobs=jobs,
        )


def read_workload(path: Path) -> Workload:
    """A workload file. Raises TraceError naming what is missing or out of range, ScenarioError for what is no YAML.

    Threads, epochs and files default to 1, 1 and none; the target utilisation to 0.9.

    Parameters
    ----------
    path : of a DLIO workload.
    """
    document = read_document(path)
    if not isinstance(document.data, Mapping):
        raise TraceError.at(
            path, "is not a DLIO workload: a mapping of model, dataset, reader and train is expected"
        )
    if "domain" in document.data:
        raise TraceError.at(path, "is a scenario of forerun, not a DLIO workload")
    reader = _Reader(document)
    name = str(reader.section("model").get("name") or path.stem)
    record = reader.number(("dataset", "record_length_bytes"), ("dataset", "record_length"))
    batch = reader.number(("reader", "batch_size"))
    computation = reader.number(("train", "computation_time"))
    target = reader.number(("metric", "au"), default=TARGET)
    files = reader.number(("dataset", "num_files_train"), default=0.0)
    each = reader.number(("dataset", "num_samples_per_file"), default=1.0)
    threads = reader.number(("reader", "read_threads"), default=1.0)
    epochs = reader.number(("train", "epochs"), default=1.0)
    stdev = reader.number(
        ("dataset", "record_length_bytes_stdev"), ("dataset", "record_length_stdev"), default=0.0
    )
    loader = reader.section("reader").get("data_loader") or document.data.get("framework")
    if not 0 < target <= 1:
        reader.problems.append(Problem(document.where(("metric", "au")), f"{target:g} is not in (0, 1]"))
    if reader.problems:
        raise TraceError(*reader.problems)
    return Workload(
        name,
        int(batch),
        record,
        computation,
        target,
        int(files * each),
        int(each),
        max(1, int(threads)),
        int(epochs),
        stdev,
        str(loader).lower() == "pytorch",
    )


class _Reader:
    """Numbers of a document, and what is wrong with them."""

    def __init__(self, document: Document) -> None:
        self.document = document
        self.problems: list[Problem] = []

    def section(self, name: str) -> Mapping[str, Any]:
        """A section of the document; an empty one if it is absent or none."""
        data = self.document.data.get(name, {})
        return data if isinstance(data, Mapping) else {}

    def number(self, *places: tuple[str, str], default: float | None = None) -> float:
        """The first of these that is there, above zero; a distribution counts by its mean."""
        for section, key in places:
            value = self.section(section).get(key)
            if isinstance(value, Mapping):
                value = value.get("mean")
            if value is None:
                continue
            good = isinstance(value, (int, float)) and not isinstance(value, bool) and math.isfinite(value)
            if good and (value > 0 or (value == 0 and default == 0)):
                return float(value)
            self.problems.append(
                Problem(self.document.where((section, key)), f"is {value!r}; a number above 0 is expected")
            )
            return 1.0
        if default is None:
            places_named = " or ".join(f"{section}.{key}" for section, key in places)
            self.problems.append(Problem(self.document.name, f"lacks {places_named}"))
            return 1.0
        return default


def read_demands(path: Path) -> tuple[Workload, ...]:
    """A table of workloads: columns workload, batch, record_bytes, computation_s, utilisation_target.

    A column demand_bytes_per_s is compared with the demand that follows from the others. Raises TraceError where they
    differ by more than a rounding.
    """
    fields = (
        Field(name="workload", column="workload", kind="text"),
        Field(name="batch", column="batch", kind="int", minimum=1),
        Field(name="record_bytes", column="record_bytes", kind="float", minimum=1),
        Field(name="computation_s", column="computation_s", kind="float", minimum=1e-9),
        Field(name="target", column="utilisation_target", kind="float", minimum=1e-9),
        Field(name="demand", column="demand_bytes_per_s", kind="float", minimum=0),
    )
    columns = gathered(read_rows(Source(path, repairs=RepairLog()), fields)).columns
    workloads = []
    for row, values in enumerate(zip(*(columns[field.name] for field in fields)), start=2):
        name, batch, record, computation, target, demand = values
        workload = Workload(str(name), int(batch), float(record), float(computation), float(target))
        if abs(demand / workload.demand_bytes_per_s - 1) > 1e-4:
            raise TraceError.at(
                f"{path}:{row}",
                f"demand {demand:g} is not batch * record / computation = {workload.demand_bytes_per_s:g}",
            )
        workloads.append(workload)
    return tuple(workloads)


def workloads_of(path: Path) -> tuple[Workload, ...]:
    """The workload of a YAML file, or those of a table.

    Parameters
    ----------
    path : YAML is read as a DLIO workload, anything else as a table (see `read_demands`).
    """
    return (read_workload(path),) if path.suffix in (".yaml", ".yml") else read_demands(path)


def demands(workloads: Sequence[Workload], link_bytes_per_s: float) -> TraceReport:
    """What an accelerator of each workload reads a second, and how many a link feeds.

    Parameters
    ----------
    workloads : of any number.
    link_bytes_per_s : bandwidth of the link (0: unknown).
    """
    rows = [
        {
            **asdict(work),
            "demand_bytes_per_s": work.demand_bytes_per_s,
            "accelerators_fed": work.fed_by(link_bytes_per_s) if link_bytes_per_s else None,
        }
        for work in workloads
    ]
    shown = {
        "workload": "name",
        "batch": "batch",
        "record bytes": "record_bytes",
        "computation s": "computation_s",
        "target": "utilisation_target",
        "demand bytes/s": "demand_bytes_per_s",
        "accelerators fed": "accelerators_fed",
    }
    table = ReportTable(
        "what one accelerator demands",
        tuple(shown),
        tuple(tuple(row[name] for name in shown.values()) for row in rows),
        "batch: in records; target: utilisation of the accelerator to reach; accelerators fed: by the store's bandwidth",
    )
    unknown = "accelerators fed: give the store's bandwidth, --set link_bytes_per_s=2GB/s"
    return TraceReport(
        data={"workloads": rows}, tables=(table,), notes=() if link_bytes_per_s else (unknown,)
    )


def fitted_to_workload(path: Path, latency_s: float, link_bytes_per_s: float, *, jobs: int) -> Fitted:
    """A scenario from a workload file.

    Parameters
    ----------
    latency_s, link_bytes_per_s : of the store.
    jobs : accelerators that share it.
    path : of a DLIO workload; an epoch is cut to 64 steps.

    Raises TraceError without a bandwidth.
    """
    work = read_workload(path)
    if not link_bytes_per_s:
        # Without its bandwidth the store would be unlimited, and any demand met.
        raise TraceError.at(
            path, "says nothing of the store: give its bandwidth, such as --set link_bytes_per_s=2GB/s"
        )
    store = Store(latency_s=latency_s, shared_bytes_per_s=link_bytes_per_s)
    scenario = work.scenario(store, jobs=jobs, samples=min(work.samples, 64 * work.batch))
    report = demands([work], link_bytes_per_s)
    notes = []
    if work.record_stdev_bytes:
        notes.append(
            f"sizes: lognormal with a standard deviation of {work.drawn_stdev_bytes / work.record_bytes:.0%} of the mean, "
            f"as DLIO draws them; the file says {work.record_stdev_bytes / work.record_bytes:.0%}"
        )
    if work.processes and jobs > 1:
        notes.append(
            "reader.read_threads: PyTorch's worker processes, as threads, since several jobs share the store"
        )
    return Fitted(description=data_of(scenario), report=replace(report, notes=(*report.notes, *notes)))


def data_of(scenario: Scenario) -> dict[str, Any]:
    """A scenario as plain data."""
    data = to_data(scenario)
    assert isinstance(data, dict)
    return data
