"""What a run starts from: the scenario, the files that it names, and what its random streams give.

Every random quantity has a stream of its own, indexed by what it describes, so that one more consumer of randomness
shifts no other.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

import numpy as np

from forerun.blocks.container.container import INDEX, Index
from forerun.blocks.container.pack import edges_by_bytes
from forerun.blocks.container.samples import sample_groups
from forerun.blocks.container.shards import refuse_shards
from forerun.blocks.container.tar import tar_members
from forerun.core.errors import DataError, TraceError
from forerun.core.regular import read_regular, unreadable
from forerun.core.rng import stream as random_stream
from forerun.core.scenario.spec import Input
from forerun.core.trace.repair import RepairLog
from forerun.core.trace.rows import Field, gathered, read_rows
from forerun.core.trace.source import Source
from forerun.loading.policy import F64, I64
from forerun.loading.scenario import RandomBytes, RandomSeconds, Scenario

#: the unit of delay of the store's answers in another order of events, in s: far below any answer time of a store
TIE_S = 1e-9


@dataclass(frozen=True)
class Inputs:
    """A scenario with its files read.

    Parameters
    ----------
    scenario : as it was given.
    sizes : float64[samples], stored bytes of each sample.
    recorded : float64 seconds of each file that a time of the scenario is sampled from, by its path.
    tie_order : number of the order of events at one instant, None for the order in which the engine meets them (the
        default).
    """

    scenario: Scenario
    sizes: F64
    recorded: Mapping[str, F64] = field(default_factory=dict)
    tie_order: int | None = None

    def of(self, scenario: Scenario, sizes: F64 | None = None) -> Inputs:
        """The inputs of another scenario that names the same files, in the engine's own order of events.

        Parameters
        ----------
        sizes : float64[samples], stored bytes (default: as they are).
        """
        return Inputs(scenario, self.sizes if sizes is None else sizes, self.recorded)

    @property
    def mean_bytes(self) -> float:
        """Mean stored size of a sample."""
        return float(self.sizes.mean())

    @property
    def decoded_bytes(self) -> float:
        """Mean size of a sample in memory; before it is decoded, where the GPU does that."""
        if self.scenario.gpu_decode is not None:
            return self.mean_bytes
        return self.scenario.dataset.decoded_bytes or self.mean_bytes

    def block_edges(self) -> list[int]:
        """First sample of each block, and the number of samples."""
        n, samples = self.scenario.layout.block_samples, self.scenario.dataset.samples
        return self._edges_by_size if self.scenario.layout.block_bytes else [*range(0, samples, n), samples]

    @functools.cached_property
    def _edges_by_size(self) -> list[int]:
        return edges_by_bytes(self.sizes.tolist(), self.scenario.layout.block_bytes)

    @property
    def block_samples(self) -> int:
        """Samples a block, their mean where blocks are cut by size."""
        if not self.scenario.layout.block_bytes:
            return self.scenario.layout.block_samples
        return max(1, round(self.scenario.dataset.samples / (len(self.block_edges()) - 1)))

    @property
    def taken(self) -> int:
        """Samples that an epoch takes: all of them (a node: its part), or as many as its steps want."""
        run, samples = self.scenario.run, self.scenario.dataset.samples
        if self.scenario.nodes is not None:
            samples = round(samples / self.scenario.nodes.count)
        return min(samples, run.steps * run.batch) if run.steps else samples

    def order(self, epoch: int, job: int) -> I64:
        """The blocks in the order in which a job's, or a node's, epoch takes them, int64[blocks]."""
        count = len(self.block_edges()) - 1
        nodes = self.scenario.nodes
        if nodes is not None:
            whole = random_stream(self.scenario.seed, "shuffle", epoch).permutation(count).astype(np.int64)
            return np.array_split(whole, nodes.count)[job]
        if self.scenario.dataset.shuffle == "none":
            return np.arange(count)
        return random_stream(self.scenario.seed, "shuffle", epoch, job).permutation(count).astype(np.int64)

    def mean_s(self, value: float | RandomSeconds) -> float:
        """The mean of a time of the scenario that may be random; of the file, if it is sampled from one."""
        if not isinstance(value, RandomSeconds):
            return float(value)
        return value.mean_s if value.empirical is None else float(self._file(value.empirical).mean())

    def decodes(self, which: Literal["decode", "decode cpu"]) -> F64:
        """Seconds of decoding, without a core or (`decode cpu`) on one: one value if all are the same, else one a sample."""
        cpu, gpu = self.scenario.cpu, self.scenario.gpu_decode
        if gpu is not None:
            return np.array([gpu.host_cpu_s if which == "decode cpu" else 0.0])
        value = cpu.decode_s if which == "decode" else cpu.decode_cpu_s
        return self._times(value, self.scenario.dataset.samples, which)

    def steps(self, epoch: int, job: int) -> F64:
        """Seconds of the steps: one value if they are all the same, else one a batch."""
        batches = -(-self.scenario.dataset.samples // self.scenario.run.batch)
        steps = self._times(self.scenario.step.step_s, batches, "step", epoch, job)
        return steps * self.step_factor if self.scenario.gpu_decode is not None else steps

    @property
    def step_factor(self) -> float:
        """How many times as long a step takes as without decoding on its GPU."""
        gpu = self.scenario.gpu_decode
        return 1 / (1 - gpu.gpu_share) if gpu is not None else 1.0

    @property
    def mean_decode_s(self) -> tuple[float, float]:
        """Mean seconds of decoding a sample on the host: without a core, and on one."""
        cpu, gpu = self.scenario.cpu, self.scenario.gpu_decode
        if gpu is not None:
            return 0.0, gpu.host_cpu_s
        return self.mean_s(cpu.decode_s), self.mean_s(cpu.decode_cpu_s)

    def gpu_decode_s(self, batch_samples: I64) -> F64 | None:
        """Seconds of decoding each batch on the GPU, float64[batches]; None where samples are decoded on the CPU.

        Parameters
        ----------
        batch_samples : samples of each batch.
        """
        gpu = self.scenario.gpu_decode
        if gpu is None:
            return None
        at_once = gpu.batch_samples
        rounded = -(-batch_samples // at_once) * at_once if at_once else batch_samples
        return np.asarray(rounded / gpu.samples_per_s, np.float64)

    def latencies(self, epoch: int) -> F64:
        """Latencies [s] in the order of serving: enough for every attempt, or one value if they are all the same."""
        latencies = self._times(self.scenario.store.latency_s, self.requests(), "latency", epoch)
        if self.tie_order is None:
            return latencies
        count = self.requests() if len(latencies) == 1 else len(latencies)
        later = random_stream(self.scenario.seed, "ties", self.tie_order, epoch).integers(0, 3, size=count)
        return np.broadcast_to(latencies, count) + TIE_S * later

    def random_latencies(self, count: int, rng: np.random.Generator) -> F64 | None:
        """So many latencies [s] from a stream of one's own; None if the store's latency is not random."""
        value = self.scenario.store.latency_s
        return self._sampled(value, count, rng) if isinstance(value, RandomSeconds) else None

    def requests(self) -> int:
        """As many requests as an epoch can make, and one."""
        errors = self.scenario.store.errors
        attempts = 1 + (errors.retries if errors else 0)
        blocks = len(self.block_edges()) - 1  # that each job reads, and all nodes together
        return 1 + self.scenario.jobs * blocks * attempts

    def _times(self, value: float | RandomSeconds, count: int, *purpose: str | int) -> F64:
        if not isinstance(value, RandomSeconds):
            return np.array([float(value)])
        return self._sampled(value, count, random_stream(self.scenario.seed, *purpose))

    def _sampled(self, value: RandomSeconds, count: int, rng: np.random.Generator) -> F64:
        if value.empirical is None:
            return _random(value.mean_s, value.shape, value.sigma, count, rng)
        known = self._file(value.empirical)
        return np.resize(known, count) if value.in_order else known[rng.integers(len(known), size=count)]

    def _file(self, given: Input) -> F64:
        return self.recorded[str(given.path)]


def prepare(scenario: Scenario) -> Inputs:
    """Read the files of a scenario. Raises TraceError for one that cannot be used."""
    sizes = sample_sizes(scenario)
    times = (
        scenario.step.step_s, scenario.cpu.decode_s, scenario.cpu.decode_cpu_s, scenario.store.latency_s
    )  # fmt: skip
    recorded = {
        str(value.empirical.path): read_column(value.empirical, "seconds", 0.0)
        for value in times
        if isinstance(value, RandomSeconds) and value.empirical is not None
    }
    return Inputs(scenario, sizes, recorded)


def sample_sizes(scenario: Scenario) -> F64:
    """Stored bytes of each sample, float64[samples].

    Parameters
    ----------
    scenario : its data set gives one size for all, a distribution, or a file of sizes.

    Raises TraceError for a file that has fewer sizes than there are samples.
    """
    given, count = scenario.dataset.sample_bytes, scenario.dataset.samples
    if not isinstance(given, RandomBytes):
        return np.full(count, float(given))
    if given.empirical is not None:
        recorded = read_sizes(given.empirical)
        if len(recorded) < count:
            raise TraceError.at(
                given.empirical.path, f"has {len(recorded)} sizes, the data set {count} samples"
            )
        return recorded[:count]
    rng = random_stream(scenario.seed, "sizes")
    sizes = _random(given.mean_bytes, given.shape, given.sigma, count, rng)
    return np.clip(np.round(sizes), given.least_bytes, given.most_bytes or None)


def _random(mean: float, shape: str, sigma: float, count: int, rng: np.random.Generator) -> F64:
    """float64[count]: values of a distribution with a given mean.

    Parameters
    ----------
    mean : of the values.
    shape : `constant`, `exponential`, or anything else for lognormal.
    sigma : of the logarithm, for the lognormal.
    count : how many.
    rng : of the draws.
    """
    if shape == "constant":
        return np.full(count, mean)
    if shape == "exponential":
        return rng.exponential(mean, count)
    return mean * np.exp(sigma * rng.standard_normal(count) - sigma**2 / 2)


def read_sizes(given: Input) -> F64:
    """Stored bytes of each sample, of a CSV file, of a WebDataset tar, or of the `index.parquet` of blocks.

    Parameters
    ----------
    given : the file.

    Raises TraceError or DataError for one that cannot be read, or is of another library's format.
    """
    path = Path(given.path)
    if path.name == INDEX:
        try:
            index = Index.parse(read_regular(path), path)
        except OSError as error:
            raise DataError.at(path, unreadable(error)) from error
        sizes = np.add.reduceat(index.length, index.starts[:-1])
    elif path.suffix.lower() == ".tar":
        members = tar_members(path)
        groups = sample_groups([key for key, _ in members])
        sizes = np.array([sum(members[at][1] for at in group) for group in groups], np.int64)
    else:
        refuse_shards(path.parent, [(path.name, 0)], path.parent)
        return read_column(given, "bytes", 1.0)
    return np.maximum(sizes, 1).astype(np.float64)


def read_column(given: Input, column: str, least: float) -> F64:
    """A column of a CSV file, float64.

    A file that has not changed since is not read again, because studies prepare the same scenario many times.

    Parameters
    ----------
    given : the file.
    column : its header there.
    least : smallest value that is allowed.

    Raises TraceError where a value is no number or too small.
    """
    path = Path(given.path)
    try:
        about = path.stat()
    except OSError as error:
        raise TraceError.at(path, f"cannot be read: {error.strerror}") from error
    return _read(path, column, least, about.st_mtime_ns, about.st_size)


@functools.lru_cache(maxsize=16)
def _read(path: Path, column: str, least: float, _changed_ns: int, _size: int) -> F64:
    field = Field(name=column, column=column, kind="float", minimum=least)
    rows = gathered(read_rows(Source(path, repairs=RepairLog()), (field,))).columns[column]
    values = np.asarray(rows, np.float64)
    if not len(values):
        raise TraceError.at(path, f"contains no {column}")
    values.setflags(write=False)
    return values
