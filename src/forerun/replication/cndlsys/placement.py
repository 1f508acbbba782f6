"""Jobs and their data on nodes, as CNDLSys [COMSNETS'24] places them, and the baselines it is set beside.

Gangs of jobs share a data set of chunks and come first, served first: a job starts only when all its workers fit, and while
the head of the line waits, everybody does. The gang's first job brings the chunks, which never move and leave when its last
job ends. Worker i of w owns the i-th of w contiguous groups of chunks, longer groups first.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

import numpy as np

from forerun.core.errors import Infeasible

#: lets a node where the worker fits win over one where it does not where all else is equal
_EPSILON: Final = 1e-6


@dataclass(frozen=True)
class Node:
    """What is free on a node: GPUs, CPUs, and disk in the unit of chunks."""

    gpus: int
    cpus: int
    disk: float


@dataclass(frozen=True)
class Job:
    """A job of a gang: its workers, the GPUs and CPUs that each needs, and how long it runs."""

    workers: int
    gpus: int
    cpus: int
    run_s: float


@dataclass(frozen=True)
class Gang:
    """Jobs that share a data set, the sizes of its chunks, and when they arrive."""

    arrive_s: float
    chunks: Sequence[float]
    jobs: Sequence[Job]


@dataclass(frozen=True)
class Worker:
    """A worker to be placed.

    Parameters
    ----------
    gpus, cpus : that it needs.
    sizes, at : of its chunks, and the node where each lies, -1 where it must be brought.
    brings : whether its job is the first of its gang, which brings the data.
    """

    gpus: int
    cpus: int
    sizes: Sequence[float]
    at: Sequence[int]
    brings: bool

    @property
    def missing(self) -> list[int]:
        """Its chunks that must be brought, the largest first."""
        return sorted((i for i, node in enumerate(self.at) if node < 0), key=lambda i: (-self.sizes[i], i))

    def fits(self, node: Node) -> bool:
        """Whether a node has the GPUs and CPUs."""
        return node.gpus >= self.gpus and node.cpus >= self.cpus

    def resident(self, number: int) -> float:
        """Size of its chunks on a node."""
        return sum(size for size, at in zip(self.sizes, self.at) if at == number)


#: where a worker runs, and the node of each chunk that it brings
Place = tuple[int, dict[int, int]]
#: the place of a worker on nodes with so much free, None if it fits nowhere
Policy = Callable[[Sequence[Node], Worker], Place | None]


def csp(nodes: Sequence[Node], worker: Worker) -> Place | None:
    """The heaviest node where the worker fits; its missing chunks, the largest first, each on the heaviest with space.

    A node weighs t1 + t2 + t3: one where the worker fits (times its share of all free GPUs, for a job that brings data);
    the resident share of the worker's chunks; their missing share times the node's share of the space that could take it.
    """
    whole, missing_size = sum(worker.sizes), sum(worker.sizes[i] for i in worker.missing)
    free_gpus, free_disk = sum(node.gpus for node in nodes), sum(node.disk for node in nodes)

    def weight(number: int) -> float:
        node = nodes[number]
        fits = 1 + _EPSILON if worker.fits(node) else 0.0
        if worker.brings:
            fits *= node.gpus / free_gpus if free_gpus else 0.0
        if not whole:
            return fits
        space = missing_size / whole * min(node.disk, missing_size) / free_disk if free_disk else 0.0
        return fits + worker.resident(number) / whole + space

    heaviest = sorted(range(len(nodes)), key=lambda number: (-weight(number), number))
    home = next((number for number in heaviest if worker.fits(nodes[number])), None)
    if home is None:
        return None
    free, chunks = [node.disk for node in nodes], {}
    for chunk in worker.missing:
        target = next((number for number in heaviest if free[number] >= worker.sizes[chunk]), None)
        if target is None:
            return None
        free[target] -= worker.sizes[chunk]
        chunks[chunk] = target
    return home, chunks


def _least(rank: Callable[[Sequence[Node], Worker, int, Sequence[int]], float]) -> Policy:
    """The worker and its chunks on the node of least rank among those where both fit, of equal ones the first."""

    def place(nodes: Sequence[Node], worker: Worker) -> Place | None:
        size = sum(worker.sizes[i] for i in worker.missing) if worker.brings else 0.0
        fitting = [n for n, node in enumerate(nodes) if worker.fits(node) and (not size or node.disk >= size)]
        if not fitting:
            return None
        home = min(fitting, key=lambda number: (rank(nodes, worker, number, fitting), number))
        return home, dict.fromkeys(worker.missing, home)

    return place


def _free_share(nodes: Sequence[Node], worker: Worker, number: int, fitting: Sequence[int]) -> float:
    """Sum of a node's shares of what is free on all fitting nodes: GPUs, CPUs, and disk where data are brought."""
    names = ("gpus", "cpus", "disk") if worker.brings else ("gpus", "cpus")
    whole = {name: sum(getattr(nodes[other], name) for other in fitting) for name in names}
    return float(sum(getattr(nodes[number], name) / whole[name] for name in names if whole[name]))


POLICIES: Final[Mapping[str, Policy]] = {
    "best_fit": _least(_free_share),
    "csp": csp,
    "first_fit": _least(lambda nodes, worker, number, fitting: 0.0),
    "most_resident": _least(lambda nodes, worker, number, fitting: -worker.resident(number)),
    "worst_fit": _least(lambda *given: -_free_share(*given)),
}


@dataclass(frozen=True)
class Placed:
    """Where a worker ran and from when on, how many of its chunks lay there, and of how many."""

    gang: int
    job: int
    worker: int
    node: int
    start_s: float
    local_chunks: int
    chunks: int


def local_hit_pct(placed: Sequence[Placed]) -> float:
    """Mean over workers with chunks of the share of its chunks on its node, in percent."""
    return 100 * float(np.mean([w.local_chunks / w.chunks for w in placed if w.chunks]))


def place_gangs(nodes: Sequence[Node], gangs: Sequence[Gang], name: str) -> list[Placed]:
    """Place a stream of gangs by the policy of that name. Raises Infeasible for a job that does not fit empty nodes.

    `csp` places a gang's jobs of few workers first; gangs of one instant are served by number.
    """
    free, placed, now = list(nodes), list[Placed](), 0.0
    at = [[-1] * len(gang.chunks) for gang in gangs]
    left = [len(gang.jobs) for gang in gangs]
    running: list[tuple[float, int, int, Job, list[int]]] = []

    def take(number: int, *, gpus: int = 0, cpus: int = 0, disk: float = 0.0) -> None:
        node = free[number]
        free[number] = replace(node, gpus=node.gpus - gpus, cpus=node.cpus - cpus, disk=node.disk - disk)

    def end_jobs() -> None:
        while running and running[0][0] <= now:
            _, _, gang, job, homes = heapq.heappop(running)
            for home in homes:
                take(home, gpus=-job.gpus, cpus=-job.cpus)
            left[gang] -= 1
            if not left[gang]:
                for size, number in zip(gangs[gang].chunks, at[gang]):
                    take(number, disk=-size)

    def try_job(gang: int, job: Job, groups: Sequence[Sequence[int]]) -> list[int] | None:
        """The node of each worker, or nothing changed."""
        before, chunks, mine, homes = list(free), gangs[gang].chunks, list(at[gang]), []
        brings = bool(chunks) and mine[0] < 0
        for group in groups:
            worker = Worker(
                job.gpus, job.cpus, [chunks[c] for c in group], [at[gang][c] for c in group], brings
            )
            found = POLICIES[name](free, worker)
            if found is None:
                free[:], at[gang] = before, mine
                return None
            home, brought = found
            take(home, gpus=job.gpus, cpus=job.cpus)
            for chunk, number in brought.items():
                take(number, disk=worker.sizes[chunk])
                at[gang][group[chunk]] = number
            homes.append(home)
        return homes

    for gang in sorted(range(len(gangs)), key=lambda number: (gangs[number].arrive_s, number)):
        jobs = list(enumerate(gangs[gang].jobs))
        for number, job in sorted(jobs, key=lambda one: one[1].workers) if name == "csp" else jobs:
            now = max(now, gangs[gang].arrive_s)
            end_jobs()
            groups = [
                part.tolist() for part in np.array_split(np.arange(len(gangs[gang].chunks)), job.workers)
            ]
            while (homes := try_job(gang, job, groups)) is None:
                if not running:
                    raise Infeasible.at(f"gang {gang}, job {number}", "does not fit an empty cluster")
                now = running[0][0]
                end_jobs()
            for worker, (home, group) in enumerate(zip(homes, groups)):
                here = sum(at[gang][chunk] == home for chunk in group)
                placed.append(Placed(gang, number, worker, home, now, here, len(group)))
            heapq.heappush(running, (now + job.run_s, len(placed), gang, job, homes))
    return placed
