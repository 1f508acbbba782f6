"""Jobs and data on nodes: gangs of jobs that share a data set of chunks, first come first served.

A gang's jobs are placed one after another, in the policy's order; a job starts only when all its workers fit, and while
the head of the line waits, everybody does. What ended by now is freed first. Chunks are brought by the gang's first
job, never move, and leave when its last job ends. Worker i of w owns the i-th of w contiguous groups of chunks, longer
groups first; it hits where its chunks lie on its node.
"""

from __future__ import annotations

import heapq
import itertools
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from forerun.core.errors import Infeasible, PolicyError
from forerun.loading.policy import NodeView, PlacementSpec, PlacementView, WorkerPlacement, WorkerView
from forerun.loading.scenario import Gang, Node


@dataclass(frozen=True)
class PlacedWorker:
    """Where a worker ran.

    Parameters
    ----------
    gang, job, worker : which.
    node : where.
    start_s : when.
    local_chunks, chunks : its own chunks on its node, and all of them.
    local_size, size : their sizes.
    """

    gang: int
    job: int
    worker: int
    node: int
    start_s: float
    local_chunks: int
    chunks: int
    local_size: float
    size: float


@dataclass(frozen=True)
class Placed:
    """All gangs, placed.

    Parameters
    ----------
    workers : in the order in which they were placed.
    waits : (gang, job, seconds from the gang's arrival to the job's start).
    """

    workers: tuple[PlacedWorker, ...]
    waits: tuple[tuple[int, int, float], ...]

    @property
    def local_hit_pct(self) -> float:
        """Mean over workers with chunks of the share of its chunks on its node, in percent."""
        return 100 * float(np.mean([w.local_chunks / w.chunks for w in self.workers if w.chunks]))

    @property
    def local_bytes_pct(self) -> float:
        """Size of all workers' chunks that lay on their nodes, over the size of all, in percent."""
        return 100 * sum(w.local_size for w in self.workers) / sum(w.size for w in self.workers)

    @property
    def mean_wait_s(self) -> float:
        """Mean over jobs of start minus the gang's arrival."""
        return float(np.mean([wait for _, _, wait in self.waits]))


def owned(chunks: int, workers: int) -> list[range]:
    """The chunks of each worker: contiguous groups, longer ones first.

    Parameters
    ----------
    chunks : of the data set, numbered from 0.
    workers : of the job; the longest and the shortest group differ by one chunk at most.
    """
    edges = np.concatenate(
        ([0], np.cumsum([chunks // workers + (i < chunks % workers) for i in range(workers)]))
    )
    return [range(int(a), int(b)) for a, b in itertools.pairwise(edges)]


def place_gangs(nodes: Sequence[Node], gangs: Sequence[Gang], policy: PlacementSpec) -> Placed:
    """Place a stream of gangs.

    Raises Infeasible, naming the job, if one does not fit an empty cluster; PolicyError if a policy places a worker
    or a chunk where it does not fit.

    Parameters
    ----------
    nodes : of the cluster, all free at first.
    gangs : in any order; they are served by arrival, those of one instant by number.
    policy : gives the order of a gang's jobs and places each worker.
    """
    return _Line(nodes, gangs, policy).run()


class _Line:
    """The line of jobs and what runs."""

    def __init__(self, nodes: Sequence[Node], gangs: Sequence[Gang], policy: PlacementSpec) -> None:
        self.nodes = [NodeView(n.gpus, n.cpus, n.disk, n.gpus, n.cpus, n.disk) for n in nodes]
        self.gangs = gangs
        self.policy = policy
        self.chunk_node = [[-1] * len(gang.chunks) for gang in gangs]
        self.left = [len(gang.jobs) for gang in gangs]
        self.running: list[tuple[float, int, int, int, tuple[int, ...]]] = []
        self.workers: list[PlacedWorker] = []
        self.waits: list[tuple[int, int, float]] = []

    def run(self) -> Placed:
        """Place every job, in the order of the line."""
        order = sorted(range(len(self.gangs)), key=lambda number: (self.gangs[number].arrive_s, number))
        line = [
            (number, job)
            for number in order
            for job in self.policy.order([job.workers for job in self.gangs[number].jobs])
        ]
        now = 0.0
        for number, job in line:
            now = max(now, self.gangs[number].arrive_s)
            self.free_ended(now)
            while (placed := self.try_job(number, job)) is None:
                if not self.running:
                    raise Infeasible.at(f"gang {number}, job {job}", "does not fit an empty cluster")
                now = self.running[0][0]
                self.free_ended(now)
            self.start(number, job, now, placed)
        return Placed(tuple(self.workers), tuple(self.waits))

    def take(self, number: int, *, gpus: int = 0, cpus: int = 0, disk: float = 0.0) -> None:
        """Take so much of what is free on a node; negative amounts are given back."""
        node = self.nodes[number]
        self.nodes[number] = replace(
            node, free_gpus=node.free_gpus - gpus, free_cpus=node.free_cpus - cpus, free_disk=node.free_disk - disk
        )  # fmt: skip

    def free_ended(self, now: float) -> None:
        """Give back what jobs that have ended by now used; the last of a gang frees its chunks as well."""
        while self.running and self.running[0][0] <= now:
            _, _, number, job, homes = heapq.heappop(self.running)
            shape = self.gangs[number].jobs[job]
            for node in homes:
                self.take(node, gpus=-shape.gpus, cpus=-shape.cpus)
            self.left[number] -= 1
            if not self.left[number]:
                for size, node in zip(self.gangs[number].chunks, self.chunk_node[number]):
                    self.take(node, disk=-size)

    def try_job(self, number: int, job: int) -> list[WorkerPlacement] | None:
        """All workers of the job placed, or nothing changed."""
        gang = self.gangs[number]
        shape = gang.jobs[job]
        before, chunks_before = list(self.nodes), list(self.chunk_node[number])
        brings = bool(gang.chunks) and chunks_before[0] < 0
        placed = []
        for mine in owned(len(gang.chunks), shape.workers):
            worker = WorkerView(
                shape.gpus,
                shape.cpus,
                tuple(gang.chunks[chunk] for chunk in mine),
                tuple(self.chunk_node[number][chunk] for chunk in mine),
            )
            placement = self.policy.place(PlacementView(tuple(self.nodes), worker, brings))
            if placement is None:
                self.nodes, self.chunk_node[number] = before, chunks_before
                return None
            self.carry_out(number, job, mine, worker, placement)
            placed.append(placement)
        return placed

    def carry_out(
        self, number: int, job: int, mine: range, worker: WorkerView, placement: WorkerPlacement
    ) -> None:
        """Put one worker and its chunks where the policy wants them.

        Parameters
        ----------
        number, job : of the gang, and of the job in it.
        mine : the worker's chunks, by their numbers in the gang's data.
        worker : what the policy saw of it.
        placement : what the policy wants; its chunks are numbered within `mine`.

        Raises PolicyError where they do not fit, or where other chunks were placed than those that are missing.
        """
        where, home = f"gang {number}, job {job}", placement.node
        if self.nodes[home].free_gpus < worker.gpus or self.nodes[home].free_cpus < worker.cpus:
            raise PolicyError.at(where, f"a worker was placed on node {home}, where it does not fit")
        self.take(home, gpus=worker.gpus, cpus=worker.cpus)
        if set(placement.chunks) != set(worker.missing):
            raise PolicyError.at(where, "chunks that are missing were not placed, or others were")
        for chunk, node in placement.chunks.items():
            size = worker.chunk_sizes[chunk]
            if self.nodes[node].free_disk < size:
                what = f"a chunk of {size:g} was placed on node {node}, where it does not fit"
                raise PolicyError.at(where, what)
            self.take(node, disk=size)
            self.chunk_node[number][mine[chunk]] = node

    def start(self, number: int, job: int, now: float, placed: Sequence[WorkerPlacement]) -> None:
        """Record the workers and the wait of a job that is placed, and when it will end.

        Parameters
        ----------
        number, job : of the gang, and of the job in it.
        now : in seconds.
        placed : by worker, where it runs.
        """
        gang = self.gangs[number]
        for i, (mine, placement) in enumerate(zip(owned(len(gang.chunks), len(placed)), placed)):
            here = [chunk for chunk in mine if self.chunk_node[number][chunk] == placement.node]
            self.workers.append(
                PlacedWorker(
                    number, job, i, placement.node, now, len(here), len(mine),
                    sum(gang.chunks[chunk] for chunk in here), sum(gang.chunks[chunk] for chunk in mine),
                )
            )  # fmt: skip
        self.waits.append((number, job, now - gang.arrive_s))
        homes = tuple(placement.node for placement in placed)
        heapq.heappush(self.running, (now + gang.jobs[job].run_s, len(self.waits), number, job, homes))
