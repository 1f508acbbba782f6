"""A pipeline with its files read and its names resolved: stages, edges, and what a batch costs.

Stages are numbered in a topological order; `SOURCE` stands for the outside world. Time is float64 milliseconds.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from enum import IntEnum
from itertools import pairwise
from typing import TYPE_CHECKING, Final

import numpy as np
from numpy.typing import NDArray

from forerun.core.errors import Problem, ScenarioError

if TYPE_CHECKING:
    from forerun.serving.llm.inputs.model import LanguageModel
    from forerun.serving.policy.batching import Batching

#: the parent index that stands for the outside world
SOURCE: Final = -1

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
Bools = NDArray[np.bool_]


class Law(IntEnum):
    """How the service time of a batch comes about."""

    TABLE = 0  # s[n], always
    EXPONENTIAL = 1  # s[n] times an exponential variate of mean 1
    LOGNORMAL = 2  # s[n] times a log-normal variate of mean 1 and given coefficient of variation
    MEASURED = 3  # one of the values measured for n, each as likely as the others


@dataclass(frozen=True)
class Service:
    """What a batch of n costs at one stage.

    Parameters
    ----------
    table_ms : float64[B + 1], ms for a batch of n at index n, table_ms[0] = 0.
    law : how the time of a batch comes about (default: as in the table).
    cv : coefficient of variation of the log-normal law.
    measured_ms : per batch size n the measured values, for the law MEASURED.
    key : names the stage's stream of draws; the k-th batch to start at the stage takes draw k.
    """

    table_ms: Floats
    law: Law = Law.TABLE
    cv: float = 0.0
    measured_ms: tuple[Floats, ...] = ()
    key: int = 0

    @property
    def least_ms(self) -> float:
        """A lower bound of every batch's service time."""
        match self.law:
            case Law.TABLE:
                return float(self.table_ms[1:].min())
            case Law.MEASURED:
                return float(min(values.min() for values in self.measured_ms[1:]))
            case Law.EXPONENTIAL | Law.LOGNORMAL:
                return 0.0


@dataclass(frozen=True)
class Edge:
    """An edge into a stage. It is taken always, or as recorded, or with a probability.

    At most one of `share` and `recorded` is set.

    Parameters
    ----------
    parent : number of a stage, or SOURCE.
    share : the probability, drawn from (seed, number, query) alone (None: it is not drawn).
    recorded : bool[queries], who takes it (None: it is not recorded).
    number : of the edge's draws.
    """

    parent: int
    share: float | None = None
    recorded: NDArray[np.bool_] | None = field(default=None, compare=False)
    number: int = 0

    @property
    def always(self) -> bool:
        """Whether every query at the parent takes this edge."""
        return self.share is None and self.recorded is None


@dataclass(frozen=True)
class Stage:
    """One queue and identical replicas.

    Parameters
    ----------
    name : of the stage.
    edges : its parents in declared order.
    max_batch : queries in the largest batch.
    replicas : at the start.
    service : what a batch takes.
    batching : when a batch starts.
    capacity : changes of the replicas: (instant ms, replicas from then on), ascending.
    llm : what the replicas run if they serve a language model; then batching and largest batch say nothing, and the
        service only how short an iteration can be.
    """

    name: str
    edges: tuple[Edge, ...]
    max_batch: int
    replicas: int
    service: Service
    batching: Batching
    capacity: tuple[tuple[float, int], ...] = ()
    llm: LanguageModel | None = None

    @property
    def most_replicas(self) -> int:
        """The largest number of replicas the stage ever has."""
        return max(self.replicas, *(count for _, count in self.capacity), 1)


@dataclass(frozen=True)
class Pipeline:
    """A feed-forward graph of stages.

    Parameters
    ----------
    stages : in topological order: every parent comes before its children.
    seed : fixes the drawn edges (default: 0).

    Raises ScenarioError for a stage without an earlier parent.
    """

    stages: tuple[Stage, ...]
    seed: int = 0

    def __post_init__(self) -> None:
        faults = [
            Problem(
                f"$.stages[{number}]",
                f"{stage.name!r} has no earlier parent; stages are listed after their parents",
            )
            for number, stage in enumerate(self.stages)
            if not stage.edges or any(edge.parent >= number for edge in stage.edges)
        ]
        if faults:
            raise ScenarioError(*faults)

    @property
    def names(self) -> tuple[str, ...]:
        """The stages' names."""
        return tuple(stage.name for stage in self.stages)

    @property
    def edges(self) -> tuple[Edge, ...]:
        """All edges, stage by stage, each stage's in declared order."""
        return tuple(edge for stage in self.stages for edge in stage.edges)

    @property
    def serves_models(self) -> bool:
        """Whether a stage serves a language model."""
        return any(stage.llm is not None for stage in self.stages)

    def rows(self, chosen: Ints) -> Pipeline:
        """The pipeline with other queries: of the rows chosen, in that order, with their tokens and recorded edges."""
        stages = []
        for stage in self.stages:
            edges = tuple(
                edge if edge.recorded is None else replace(edge, recorded=edge.recorded[chosen])
                for edge in stage.edges
            )
            stages.append(replace(stage, edges=edges, llm=stage.llm and stage.llm.rows(chosen)))
        return replace(self, stages=tuple(stages))

    def may_end(self, stage: int) -> bool:
        """Whether a query's last visited stage can be this one: no edge that is always taken leads on."""
        return not any(edge.parent == stage and edge.always for other in self.stages for edge in other.edges)


def stretches(
    begin_ms: float, end_ms: float, *schedules: tuple[int, Sequence[tuple[float, int]]]
) -> list[tuple[float, float, tuple[int, ...]]]:
    """(from, to, replicas by schedule) within [begin, end], where none changes.

    Parameters
    ----------
    begin_ms, end_ms : the time that is cut into stretches; empty ones are left out.
    schedules : replicas at first, and changes: (instant ms, replicas from then on), ascending.
    """
    cuts = sorted({at for _, changes in schedules for at, _ in changes if begin_ms < at < end_ms})
    return [
        (at, to, tuple((first, *(n for ms, n in changes if ms <= at))[-1] for first, changes in schedules))
        for at, to in pairwise([begin_ms, *cuts, end_ms])
        if to > at
    ]


def topological(parents: Sequence[Sequence[int]]) -> list[int]:
    """An order of the stages in which parents come first, else as listed.

    Parameters
    ----------
    parents : per stage the numbers of its parent stages.

    Raises ScenarioError naming a cycle's members.
    """
    order: list[int] = []
    placed: set[int] = set()
    waiting = list(range(len(parents)))
    while waiting:
        ready = [s for s in waiting if all(p == SOURCE or p in placed for p in parents[s])]
        if not ready:
            raise ScenarioError(
                *(Problem(f"$.stages[{s}]", "is part of, or behind, a cycle of parents") for s in waiting)
            )
        order.extend(ready)
        placed.update(ready)
        waiting = [s for s in waiting if s not in placed]
    return order
