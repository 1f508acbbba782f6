"""Capacity, data and space weigh together, jobs of few workers first."""

from __future__ import annotations

from collections.abc import Sequence

from forerun.loading.policy import PlacementSpec, PlacementView, WorkerPlacement

#: lets a node where the worker fits win over one where it does not where all else is equal
_EPSILON = 1e-6


class Csp(PlacementSpec, frozen=True, kw_only=True, tag="csp"):
    """Weighs a node by free GPUs, resident data and space for what is missing; spreads the job that brings the data.

    After CNDLSys [COMSNETS'24]: the weight of a node is t1 + t2 + t3, where t1 is one where the worker fits (times the
    node's share of the cluster's free GPUs, for the job that brings the data), t2 the resident share of the worker's
    chunks, and t3 the share of them that is missing, times the node's share of the space that could take it.
    """

    def order(self, workers: Sequence[int]) -> list[int]:
        """Jobs of few workers first, stable."""
        return sorted(range(len(workers)), key=lambda job: workers[job])

    def place(self, view: PlacementView) -> WorkerPlacement | None:
        """The heaviest node that fits; missing chunks, the largest first, each to the heaviest node with space."""
        weights = [self.weight(view, number) for number in range(len(view.nodes))]
        heaviest = sorted(range(len(weights)), key=lambda number: (-weights[number], number))
        worker = view.worker
        home = next(
            (
                number
                for number in heaviest
                if view.nodes[number].free_gpus >= worker.gpus and view.nodes[number].free_cpus >= worker.cpus
            ),
            None,
        )
        if home is None:
            return None
        free = [node.free_disk for node in view.nodes]
        chunks: dict[int, int] = {}
        for chunk in worker.missing:
            size = worker.chunk_sizes[chunk]
            target = next((number for number in heaviest if free[number] >= size), None)
            if target is None:
                return None
            free[target] -= size
            chunks[chunk] = target
        return WorkerPlacement(home, chunks)

    def weight(self, view: PlacementView, number: int) -> float:
        """The weight of a node for the worker."""
        node, worker = view.nodes[number], view.worker
        fits = node.free_gpus >= worker.gpus and node.free_cpus >= worker.cpus
        capacity = 1 + _EPSILON if fits else 0.0
        if view.brings_data:
            free_gpus = sum(other.free_gpus for other in view.nodes)
            capacity *= node.free_gpus / free_gpus if free_gpus else 0.0
        if not worker.total:
            return capacity
        data = worker.resident(number) / worker.total
        missing, free_disk = worker.missing_size, sum(other.free_disk for other in view.nodes)
        space = missing / worker.total * min(node.free_disk, missing) / free_disk if free_disk else 0.0
        return capacity + data + space
