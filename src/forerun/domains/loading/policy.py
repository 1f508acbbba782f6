"""What is chosen in this room, and what a chooser may know.

A placement policy puts the workers of a job, and the chunks of data that it brings, on nodes: a view in, an allocation
out. A tuner asks for probes of cells (samples a block x threads), is told what was measured, and chooses a cell. A pace
policy is asked while a loader runs, and changes its threads at once, its blocks when an epoch ends.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from forerun.registry import Registry
from forerun.scenario.spec import Recipe

F64 = NDArray[np.float64]
I64 = NDArray[np.int64]

#: samples in a buffer that is never full
UNBOUNDED = int(np.iinfo(np.int64).max // 4)


@dataclass(frozen=True)
class NodeView:
    """A node: what it has and what of it is free (`disk` in bytes, or any unit that chunks use)."""

    gpus: int
    cpus: int
    disk: float
    free_gpus: int
    free_cpus: int
    free_disk: float


@dataclass(frozen=True)
class WorkerView:
    """A worker to be placed: what it needs, its chunks, and where those of them lie that are in the cluster.

    chunk_sizes: of its chunks; chunk_node: the node of each, -1 if it must be brought.
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
    """The nodes as they are now, the worker, and whether its job brings the gang's data."""

    nodes: tuple[NodeView, ...]
    worker: WorkerView
    brings_data: bool


@dataclass(frozen=True)
class WorkerPlacement:
    """Where a worker goes, and the node of each chunk that it brings (chunk: node)."""

    node: int
    chunks: dict[int, int]


class PlacementSpec(Recipe, frozen=True, kw_only=True):
    """A placement policy in a file; it keeps nothing from one decision to the next."""

    def order(self, workers: Sequence[int]) -> list[int]:
        """In which order a gang's jobs are placed, given how many workers each has."""
        return list(range(len(workers)))

    def place(self, view: PlacementView) -> WorkerPlacement | None:
        """Where the worker goes, None if it fits nowhere."""
        raise NotImplementedError


class RankingSpec(PlacementSpec, frozen=True, kw_only=True):
    """A policy that ranks the nodes on which a worker fits, and brings its chunks along to the first."""

    def rank(self, view: PlacementView, node: int, fitting: Sequence[int]) -> float:
        """The node of least rank among those that fit is taken, the lower one on ties."""
        raise NotImplementedError

    def place(self, view: PlacementView) -> WorkerPlacement | None:
        """The fitting node of least rank takes the worker and what it brings."""
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
    """What is free on a node, as shares of what is free on all that fit: GPUs, CPUs, and disk where data are brought."""
    names = ("free_gpus", "free_cpus", *(("free_disk",) if view.brings_data else ()))
    whole = {name: sum(getattr(view.nodes[number], name) for number in fitting) for name in names}
    return float(sum(getattr(view.nodes[node], name) / whole[name] for name in names if whole[name]))


@dataclass(frozen=True)
class Load:
    """What is asked of a loader, whatever its blocks and threads: samples, their mean bytes, batch, step, buffer."""

    samples: int
    sample_bytes: float
    batch: int
    step_s: float
    buffer_samples: int = UNBOUNDED


@dataclass(frozen=True, order=True)
class Cell:
    """A configuration: samples a block, threads (of a pool, where there are workers), workers (0: a loader of threads),
    bytes of a cache before the store (0: none), and the policy that places jobs and data (empty: none lie at hand)."""

    block: int
    threads: int
    workers: int = 0
    cache_bytes: float = 0.0
    placement: str = ""

    def __str__(self) -> str:
        text = f"{self.block} x {self.threads}"
        text += f" x {self.workers} workers" if self.workers else ""
        text += f" + {self.cache_bytes:g} bytes of cache" if self.cache_bytes else ""
        return text + (f", placed by {self.placement}" if self.placement else "")


@dataclass(frozen=True)
class Probe:
    """A measured run of a cell.

    total_s over `samples` samples, the last step included; mean seconds of a request and of a decode; load_share: waits
    after the first batch, as a share of the total. `requests_s` float64: single requests, for intervals. overhead_s: a
    thread's own work a request beyond reading and decoding, where it was measured. decode_cpu_s: what of a decode needed
    a core, where it was measured. cores_used: processor seconds of the whole process a second of the run, where they
    were measured; cores_wanted: the same and the time in which its threads waited for a processor.
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
    """A probe that a tuner wants: a cell, and how many samples to read."""

    cell: Cell
    samples: int


class Tuner(Protocol):
    """Asks for probes until it is content, then chooses."""

    def ask(self) -> Ask | None:
        """The next probe, None if there is no need for one."""

    def tell(self, probe: Probe) -> None:
        """What was measured."""

    def choice(self) -> Cell:
        """The cell to run."""


@dataclass(frozen=True)
class TunerView:
    """What a tuner starts from: the cells on offer, what is asked of the loader, memory it may hold, a random stream."""

    cells: tuple[Cell, ...]
    load: Load
    memory_bytes: float
    rng: np.random.Generator


class TunerSpec(Recipe, frozen=True, kw_only=True):
    """A tuner in a file."""

    def build(self, view: TunerView) -> Tuner:
        """A fresh tuner."""
        raise NotImplementedError


@dataclass(frozen=True)
class PaceView:
    """What a running loader knows of itself since it was last asked.

    Of each batch taken float64 `load_s` (the wait) and `step_s`; of each block handed over whole its bytes, samples,
    when it was asked for (since then; negative if before), and the seconds of its request and of decoding it.
    `threads` and `block_samples` are those in use, `offered_*` what may be chosen (ascending), `memory_bytes` what
    blocks in hand may take. epoch_ends: only then a block size counts; epochs_left: how many would have it;
    epoch_samples: samples of one; merge_s: what making the blocks takes.
    """

    epoch: int
    batch: int
    threads: int
    block_samples: int
    offered_threads: tuple[int, ...]
    offered_blocks: tuple[int, ...]
    batch_samples: int
    elapsed_s: float
    load_s: F64
    step_s: F64
    block_bytes: F64
    samples: F64
    asked_s: F64
    request_s: F64
    decode_s: F64
    memory_bytes: float = math.inf
    epoch_ends: bool = False
    epochs_left: int = 0
    epoch_samples: int = 0
    merge_s: float = 0.0

    @property
    def waited_share(self) -> float:
        """Waits over waits and steps."""
        whole = float(self.load_s.sum() + self.step_s.sum())
        return float(self.load_s.sum()) / whole if whole else 0.0

    @property
    def samples_per_s(self) -> float:
        """Samples a second that were taken."""
        return self.batch_samples * len(self.load_s) / self.elapsed_s if self.elapsed_s else math.inf


@dataclass(frozen=True)
class Pace:
    """How many threads may take blocks from now on, and samples a block from the next epoch on (None: as they are).

    why: in words, for the record.
    """

    threads: int
    block_samples: int | None = None
    why: str = ""


class PacePolicy(Protocol):
    """Looks at a running loader now and then."""

    def adjust(self, view: PaceView) -> Pace:
        """How it goes on."""


class PaceSpec(Recipe, frozen=True, kw_only=True):
    """A pace policy in a file; it is asked every so many batches, and when an epoch ends."""

    every_batches: int = 50

    def problems(self) -> list[tuple[str, str]]:
        """A batch at least."""
        return [("every_batches", f"{self.every_batches} is not above 0")] if self.every_batches < 1 else []

    def build(self, rng: np.random.Generator) -> PacePolicy:
        """A fresh policy for one loader."""
        raise NotImplementedError


@cache
def placements() -> Registry[PlacementSpec]:
    """The placement policies."""
    return Registry(
        "placement policy",
        package="forerun.domains.loading.policies",
        base=PlacementSpec,
        group="forerun.loading.placement",
    )


@cache
def tuners() -> Registry[TunerSpec]:
    """The tuners."""
    return Registry(
        "tuner", package="forerun.domains.loading.policies", base=TunerSpec, group="forerun.loading.tuner"
    )


@cache
def paces() -> Registry[PaceSpec]:
    """The pace policies."""
    return Registry(
        "pace policy",
        package="forerun.domains.loading.policies",
        base=PaceSpec,
        group="forerun.loading.pace",
    )
