"""Which nodes a job may use, and how it spreads over them: by its partitions, its type of GPU, and its shape."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Final

import numpy as np

from forerun.cluster.inputs.arrays import BOOL, I64, Cluster, JobLabels, Jobs

#: what an exclusive job takes of each node: all of its GPUs
WHOLE_NODE: Final = -1


@dataclass(frozen=True, slots=True)
class Reach:
    """The nodes that jobs may use. Jobs with the same ones are of a class.

    Parameters
    ----------
    nodes : bool[classes, nodes], those of each class.
    kind : int64[jobs], the class of each job.
    said : int64[jobs], how many nodes a job asks for; 0: as few as can be.
    count, each : int64[jobs], how many nodes a job takes, and at most how many GPUs of each of them (`WHOLE_NODE`: all).
    line : int64[jobs], the number of a job's partition: one that does not fit may hold up others.
    lines : bool[lines, nodes], the nodes of each partition.
    """

    nodes: BOOL
    kind: I64
    said: I64
    count: I64
    each: I64
    line: I64
    lines: BOOL

    @property
    def is_everywhere(self) -> bool:
        """Whether all jobs may use all nodes."""
        return bool(self.nodes.all())

    def of(self, jobs: I64) -> Reach:
        """That of some jobs, by their numbers."""
        columns = {name: getattr(self, name)[jobs] for name in ("kind", "said", "count", "each", "line")}
        return replace(self, **columns)


@dataclass(frozen=True, slots=True)
class Entries:
    """What jobs ask for, once for each of their partitions, as Slurm's queue has them.

    Parameters
    ----------
    first : int64[jobs + 1], where the entries of each job begin.
    reach : of the entries, each as of a job in this partition alone.
    partition : texts[entries]; empty: none.
    """

    first: I64
    reach: Reach
    partition: tuple[str, ...]

    @property
    def job(self) -> I64:
        """int64[entries], the job of each."""
        return np.repeat(np.arange(len(self.first) - 1), np.diff(self.first))

    def of(self, jobs: I64) -> Entries:
        """Those of some jobs, by their numbers."""
        counts = np.diff(self.first)[jobs]
        first = np.concatenate(([0], np.cumsum(counts)))
        rows = np.repeat(self.first[jobs] - first[:-1], counts) + np.arange(first[-1])
        return Entries(first, self.reach.of(rows), tuple(self.partition[row] for row in rows.tolist()))

    def by_type(self, types: I64) -> Entries:
        """The same once for each GPU type of their nodes, for jobs whose GPUs are all of one type. types: of the nodes."""
        masks, numbers = list[BOOL](), list[list[int]]()
        for mine in self.reach.nodes:
            of_types = [mine & (types == number) for number in np.unique(types[mine])] or [mine]
            numbers.append(list(range(len(masks), len(masks) + len(of_types))))
            masks += of_types
        parts = [numbers[kind] for kind in self.reach.kind.tolist()]
        counts = np.array([len(one) for one in parts], np.int64)
        rows = np.repeat(np.arange(len(counts)), counts)
        kind = np.array([number for one in parts for number in one], np.int64)
        reach = replace(self.reach.of(rows), nodes=np.array(masks), kind=kind)
        first = np.concatenate(([0], np.cumsum(counts)))[self.first]
        return Entries(first, reach, tuple(self.partition[row] for row in rows.tolist()))


def entries_of(jobs: Jobs, cluster: Cluster) -> Entries:
    """Jobs once for each of their partitions."""
    partitions = ("",) * len(jobs) if jobs.labels is None else jobs.labels.partition
    named = [names.split(",") for names in partitions]
    first = np.cumsum([0, *map(len, named)]).astype(np.int64)
    apart = tuple(name for names in named for name in names)
    if len(apart) > len(jobs):
        rows = np.repeat(np.arange(len(jobs)), np.diff(first))
        several = jobs.take(rows)
        assert several.labels is not None
        jobs = replace(several, labels=replace(several.labels, partition=apart))
    return Entries(first, reach_of(jobs, cluster), apart)


def reach_of(jobs: Jobs, cluster: Cluster) -> Reach:
    """The reach of jobs by their partitions, the GPU types that they ask for, and their shapes.

    A job that does not say on how many nodes it runs takes as few as can be, and as many GPUs of each. Nodes whose type is
    not known are of any.
    """
    labels = jobs.labels or JobLabels.of(len(jobs))
    size = cluster.node_gpus()
    types = np.array([name.lower() for name in cluster.node_types()])
    numbers: dict[tuple[str, str, tuple[int, ...]], int] = {}
    lines: dict[str, int] = {}
    asked = list(zip(labels.partition, labels.gpu_type, labels.only_on, strict=True))
    kind = np.array([numbers.setdefault(one, len(numbers)) for one in asked], np.int64)
    line = np.array([lines.setdefault(name, len(lines)) for name in labels.partition], np.int64)
    nodes = np.ones((max(len(numbers), 1), len(size)), np.bool_)
    of_lines = np.ones((max(len(lines), 1), len(size)), np.bool_)
    for partition, number in lines.items():
        if names := [name for name in partition.split(",") if name in cluster.partitions]:
            of_lines[number] = False
            for name in names:
                of_lines[number, list(cluster.partitions[name])] = True
    for (partition, gpu_type, only_on), number in numbers.items():
        nodes[number] = of_lines[lines[partition]]
        if gpu_type:
            nodes[number] &= (types == gpu_type.lower()) | (types == "")
        if only_on:
            nodes[number] &= np.isin(np.arange(len(size)), only_on)
    said = np.minimum(labels.nodes, jobs.gpus)
    shapes, of = np.unique(np.stack([kind, jobs.gpus], axis=1), axis=0, return_inverse=True)
    fewest = np.array([_fewest(size[nodes[at]], gpus) for at, gpus in shapes.tolist()], np.int64)
    count = np.where(said > 0, said, fewest[of]) if len(shapes) else said
    each = -(-jobs.gpus // count)
    each[labels.exclusive] = WHOLE_NODE
    return Reach(nodes, kind, said, count, each, line, of_lines)


def _fewest(sizes: I64, gpus: int) -> int:
    """How few of some nodes, by their GPUs, have so many GPUs with as many on each; those of the largest if none have."""
    largest = np.sort(sizes)[::-1]
    count = np.arange(1, len(largest) + 1)
    does = np.flatnonzero(largest >= -(-gpus // count))
    return int(does[0]) + 1 if len(does) else -(-gpus // int(largest.max(initial=1)))


def as_far_as_known(
    jobs: Jobs, cluster: Cluster, where: Callable[[int], str], *, shaped: bool = True
) -> tuple[Jobs, tuple[str, ...]]:
    """The jobs, without types of GPUs and shapes that none of their nodes have; and a note for each.

    where: the place of a job in its file, by its row. shaped: whether shapes matter (default: yes).
    """
    notes: list[str] = []
    labels = jobs.labels
    if labels is None:
        return jobs, ()
    reach = reach_of(jobs, cluster)
    nowhere: BOOL = reach.nodes.sum(axis=1) == 0
    if len(lost := np.flatnonzero(nowhere[reach.kind])):
        names = sorted({labels.gpu_type[row] for row in lost.tolist()})
        notes.append(
            f"{where(int(lost[0]))}: GPU type {labels.gpu_type[lost[0]]!r} is on no node that the job may use; {len(lost)} "
            f"jobs that ask for {', '.join(map(repr, names[:3]))} take any type"
        )
        types = np.array(labels.gpu_type, dtype=object)
        types[lost] = ""
        labels = replace(labels, gpu_type=tuple(types.tolist()))
        jobs = replace(jobs, labels=labels)
    if not shaped:
        return jobs, tuple(notes)
    entries, size = entries_of(jobs, cluster), cluster.node_gpus()
    reach = entries.reach
    shapes, of = np.unique(
        np.stack([reach.kind, reach.count, reach.each], axis=1), axis=0, return_inverse=True
    )
    there = np.array(
        [(size[reach.nodes[kind]] >= each).sum() >= count for kind, count, each in shapes.tolist()]
    )
    somewhere = np.logical_or.reduceat(there[of], entries.first[:-1]) if len(jobs) else there
    if len(odd := np.flatnonzero(~somewhere & (labels.nodes > 0))):
        first = entries.first[odd[0]]
        count, each = int(reach.count[first]), int(reach.each[first])
        what = "whole nodes" if each == WHOLE_NODE else f"with {each} GPUs each"
        notes.append(
            f"{where(int(odd[0]))}: asks for {count} nodes, {what}, which are not among those that it may use; jobs of such "
            f"shapes take as few nodes as they can: {len(odd)}"
        )
        nodes = labels.nodes.copy()
        nodes[odd] = 0
        jobs = replace(jobs, labels=replace(labels, nodes=nodes))
    return jobs, tuple(notes)
