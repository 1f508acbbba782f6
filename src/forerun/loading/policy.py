"""The decisions of the loading domain: placement policies and tuners, what they may see, what they return.

A placement policy puts the workers of a job, and the chunks of data that it brings, on nodes: it sees a `PlacementView` and
returns a `WorkerPlacement`. A tuner asks for probes of cells (samples a block x threads), receives the measurements, and
chooses a cell.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from typing import Final, Protocol

import numpy as np
from numpy.typing import NDArray

from forerun.core.registry import Registry
from forerun.core.scenario.spec import NamedSpec

F64 = NDArray[np.float64]
I64 = NDArray[np.int64]
#: a run that waits less than this share of its time shows no stall
HIDDEN: Final = 0.01

#: samples in a buffer that is never full
UNBOUNDED = int(np.iinfo(np.int64).max // 4)
#: where policies are looked for
_PACKAGE = "forerun.loading.policies"


@dataclass(frozen=True)
class NodeView:
    """A node as it is now. Disk is in bytes, or any unit that chunks use.

    Parameters
    ----------
    gpus, cpus, disk : that it has.
    free_gpus, free_cpus, free_disk : of these, what nobody has taken.
    """

    gpus: int
    cpus: int
    disk: float
    free_gpus: int
    free_cpus: int
    free_disk: float


@dataclass(frozen=True)
class WorkerView:
    """A worker to be placed.

    Parameters
    ----------
    gpus, cpus : that it needs.
    chunk_sizes : of its chunks.
    chunk_node : the node where each chunk lies, -1 if it must be brought.
    """

    gpus: int
    cpus: int
    chunk_sizes: tuple[float, ...]
    chunk_node: tuple[int, ...]

    @property
    def total(self) -> float:
        """Size of its chunks."""
        return sum(self.chunk_sizes)

    @property
    def missing(self) -> tuple[int, ...]:
        """Its chunks that must be brought, the largest first."""
        away = [i for i, node in enumerate(self.chunk_node) if node < 0]
        return tuple(sorted(away, key=lambda i: (-self.chunk_sizes[i], i)))

    @property
    def missing_size(self) -> float:
        """Size of the chunks that must be brought."""
        return sum(self.chunk_sizes[i] for i in self.missing)

    def resident(self, node: int) -> float:
        """Size of its chunks on a node."""
        return sum(size for size, at in zip(self.chunk_sizes, self.chunk_node) if at == node)


@dataclass(frozen=True)
class PlacementView:
    """What a placement policy may know.

    Parameters
    ----------
    nodes : as they are now, workers placed before included.
    worker : to be placed.
    brings_data : whether its job is the first of its gang, whose workers bring the gang's data.
    """

    nodes: tuple[NodeView, ...]
    worker: WorkerView
    brings_data: bool


@dataclass(frozen=True)
class WorkerPlacement:
    """Where a worker runs, and where the data that it brings lie.

    Parameters
    ----------
    node : of the worker.
    chunks : the node of each chunk that it brings, by the number of the chunk among the worker's own.
    """

    node: int
    chunks: dict[int, int]


class PlacementSpec(NamedSpec, frozen=True, kw_only=True):
    """A placement policy as a file names it. It has no state: equal views give equal placements."""

    def order(self, workers: Sequence[int]) -> list[int]:
        """The order in which a gang's jobs are placed.

        Parameters
        ----------
        workers : of each job.
        """
        return list(range(len(workers)))

    def place(self, view: PlacementView) -> WorkerPlacement | None:
        """The placement of a worker, None if it fits nowhere."""
        raise NotImplementedError


class RankingSpec(PlacementSpec, frozen=True, kw_only=True):
    """A placement policy that puts a worker and its chunks on the node of least rank among those where it fits."""

    def rank(self, view: PlacementView, node: int, fitting: Sequence[int]) -> float:
        """The rank of a node; the least is taken, of equal ranks the lower node.

        Parameters
        ----------
        view : the nodes and the worker.
        node : whose rank is asked for.
        fitting : the nodes where the worker fits.
        """
        raise NotImplementedError

    def place(self, view: PlacementView) -> WorkerPlacement | None:
        """The worker and its chunks on the fitting node of least rank."""
        worker = view.worker
        fitting = [
            number
            for number, node in enumerate(view.nodes)
            if node.free_gpus >= worker.gpus
            and node.free_cpus >= worker.cpus
            and (not view.brings_data or node.free_disk >= worker.missing_size)
        ]
        if not fitting:
            return None
        best = min(fitting, key=lambda number: (self.rank(view, number, fitting), number))
        return WorkerPlacement(best, dict.fromkeys(worker.missing, best))


def free_share(view: PlacementView, node: int, fitting: Sequence[int]) -> float:
    """Sum of a node's shares of what is free on all fitting nodes: GPUs, CPUs, and disk where data are brought.

    Parameters
    ----------
    view : the nodes and the worker.
    node : whose share is asked for.
    fitting : the nodes where the worker fits.
    """

    def free(number: int) -> tuple[float, ...]:
        one = view.nodes[number]
        return (one.free_gpus, one.free_cpus, one.free_disk)[: 3 if view.brings_data else 2]

    whole = [sum(amounts) for amounts in zip(*map(free, fitting))]
    return float(sum(mine / amount for mine, amount in zip(free(node), whole) if amount))


@dataclass(frozen=True)
class Load:
    """The work of a loader, whatever its configuration.

    Parameters
    ----------
    samples : of an epoch.
    sample_bytes : their mean size.
    batch : samples a batch.
    step_s : seconds of a step.
    buffer_samples : decoded samples that may wait for the loop (default: any number).
    """

    samples: int
    sample_bytes: float
    batch: int
    step_s: float
    buffer_samples: int = UNBOUNDED


@dataclass(frozen=True, order=True)
class Cell:
    """A configuration of a loader.

    Parameters
    ----------
    block : samples a block.
    threads : of the loader, or of each worker's pool.
    workers : worker processes (default: 0: a loader of threads).
    cache_bytes : of a cache before the store (default: 0: none).
    placement : the policy that places jobs and data (default: empty: all data are read from the store).
    sharing, cache_policy : of the caches of nodes, `cache_bytes` each (default: empty: no nodes).
    decoder : `cpu` or `gpu` (default: empty: as the scenario has it).
    """

    block: int
    threads: int
    workers: int = 0
    cache_bytes: float = 0.0
    placement: str = ""
    sharing: str = ""
    cache_policy: str = ""
    decoder: str = ""

    @property
    def merged(self) -> str:
        """Its blocks in words."""
        return "single samples" if self.block == 1 else f"blocks of {self.block}"

    @property
    def many(self) -> str:
        """Its threads in words."""
        return "1 thread" if self.threads == 1 else f"{self.threads} threads"

    def __str__(self) -> str:
        text = f"{self.block} x {self.threads}"
        text += f" x {self.workers} workers" if self.workers else ""
        text += f" + {self.cache_bytes:g} bytes of cache" if self.cache_bytes else ""
        text += f", {self.cache_policy}, sharing {self.sharing}" if self.sharing else ""
        text += f", decoded on the {self.decoder}" if self.decoder else ""
        return text + (f", placed by {self.placement}" if self.placement else "")


@dataclass(frozen=True)
class Probe:
    """A measured run of a cell.

    Parameters
    ----------
    samples : read.
    total_s : seconds, the last step included.
    request_s, decode_s : mean seconds of a request and of decoding a sample.
    load_share : waits after the first batch, as a share of the total (default: nan: unknown).
    requests_s : float64, single requests, for intervals (default: None: not recorded).
    overhead_s : a thread's own work a request, beyond reading and decoding (None: not measured).
    decode_cpu_s : the part of decode_s that needed a core (0: not measured).
    cores_used : processor seconds of the whole process a second of the run (None: not measured).
    cores_wanted : the same, and the time in which its threads waited for a processor.
    """

    cell: Cell
    samples: int
    total_s: float
    request_s: float
    decode_s: float
    load_share: float = math.nan
    requests_s: F64 | None = None
    overhead_s: float | None = None
    decode_cpu_s: float = 0.0
    cores_used: float | None = None
    cores_wanted: float = 0.0


@dataclass(frozen=True)
class Ask:
    """A probe that a tuner asks for: a cell, and the number of samples to read."""

    cell: Cell
    samples: int


class Tuner(Protocol):
    """A tuner at work in one run: asks for probes, then chooses."""

    def ask(self) -> Ask | None:
        """The next probe, None if no more are needed."""

    def tell(self, probe: Probe) -> None:
        """Receive the measurement of the last probe."""

    def choice(self) -> Cell:
        """The cell to run."""


@dataclass(frozen=True)
class TunerView:
    """What a tuner may know.

    Parameters
    ----------
    cells : to choose from.
    load : the work.
    memory_bytes : that blocks in memory may take.
    rng : the tuner's own random stream.
    """

    cells: tuple[Cell, ...]
    load: Load
    memory_bytes: float
    rng: np.random.Generator


class TunerSpec(NamedSpec, frozen=True, kw_only=True):
    """A tuner as a file names it."""

    def build(self, view: TunerView) -> Tuner:
        """A tuner for one run."""
        raise NotImplementedError


@cache
def placements() -> Registry[PlacementSpec]:
    """The placement policies."""
    return Registry("placement policy", _PACKAGE, base=PlacementSpec, group="forerun.loading.placement")


@cache
def tuners() -> Registry[TunerSpec]:
    """The tuners."""
    return Registry("tuner", _PACKAGE, base=TunerSpec, group="forerun.loading.tuner")
