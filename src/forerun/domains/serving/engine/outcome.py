"""What happened in a run, before any figure or word: visits, batches, requests, and the records that gather them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from forerun.domains.serving.inputs.pipeline import Floats, Ints

if TYPE_CHECKING:
    from forerun.domains.serving.engine.tuning import Control
    from forerun.domains.serving.inputs import Inputs
    from forerun.result.tables import Table


@dataclass(frozen=True)
class Iterations:
    """The iterations of one stage in the order they began: int64[k], but for the instants."""

    start_ms: Floats
    end_ms: Floats
    replica: Ints
    prefill: Ints
    decodes: Ints
    kv: Ints
    running: Ints
    free_blocks: Ints


@dataclass(frozen=True)
class Requests:
    """What happened to each query at a stage with a language model; arrays by query, NaN and 0 where it was not served.

    first_ms: instant of its first token. longest_gap_ms: between two of its tokens. preemptions: how often it lost its
    blocks. stalled_ms: between a preemption and the readmission, in all; stalled_first_ms: before its first token.
    gaps: int64[cells], times between consecutive tokens of one request, all requests together (see `gap_quantile_ms`).
    iterations: how many there were; kept one by one only where everything is recorded.
    """

    first_ms: Floats
    longest_gap_ms: Floats
    preemptions: Ints
    stalled_ms: Floats
    stalled_first_ms: Floats
    gaps: Ints
    iterations: int
    kept: Iterations | None = None


@dataclass(frozen=True)
class Visits:
    """What happened to each query at one stage; arrays by query id, NaN, 0 and -1 where it did not come by.

    enqueue_ms, start_ms, end_ms: float64[queries]. batch: int32[queries], size of its batch. replica: int32[queries].
    """

    enqueue_ms: Floats
    start_ms: Floats
    end_ms: Floats
    batch: NDArray[np.int32]
    replica: NDArray[np.int32]


@dataclass(frozen=True)
class Batches:
    """The batches of one stage in start order: float64[k] instants, int32[k] size and replica."""

    start_ms: Floats
    end_ms: Floats
    size: NDArray[np.int32]
    replica: NDArray[np.int32]


@dataclass(frozen=True)
class Run:
    """What a simulation of the pipeline found.

    finish_ms: float64[queries], by id; empty if only misses were counted. misses: queries with latency above the SLO.
    tie_count: stage-instants at which two completions, two arrival groups, or both kinds coincide.
    visits, batches: one a stage, empty unless everything was recorded. complete: False if counting stopped early.
    Where stages serve language models: requests, what they did (None at the others; a batch is an iteration there), and
    refused, bool[queries], who was refused at one: such a query misses, whatever its latency.
    """

    arrival_ms: Floats
    finish_ms: Floats
    misses: int
    tie_count: int
    visits: tuple[Visits, ...] = ()
    batches: tuple[Batches, ...] = ()
    complete: bool = True
    requests: tuple[Requests | None, ...] = ()
    refused: NDArray[np.bool_] | None = None

    @property
    def latency_ms(self) -> Floats:
        """float64[queries]: finish minus arrival."""
        return np.subtract(self.finish_ms, self.arrival_ms)

    @property
    def served_ms(self) -> Floats:
        """float64[served]: latencies of the queries that were not refused."""
        return self.latency_ms if self.refused is None else self.latency_ms[~self.refused]

    def missed(self, slo_ms: float) -> NDArray[np.bool_]:
        """bool[queries]: refused, or later than the objective."""
        late = self.latency_ms > slo_ms
        return late if self.refused is None else late | self.refused


@dataclass(frozen=True)
class Outcome:
    """What an engine found, and what it ran.

    inputs: with the changes of replicas that a tuner decided. run: what happened. control: what the tuner did (None:
    nobody changed replicas). notes: what a reader of the result should know of how it was simulated. figures: figures of
    the simulation itself for the summary, such as `way`. tables: records of this engine alone, by name.
    """

    inputs: Inputs
    run: Run
    control: Control | None = None
    notes: tuple[str, ...] = ()
    figures: Mapping[str, object] = field(default_factory=dict)
    tables: Mapping[str, Table] = field(default_factory=dict)

    def paid(self, stage: int) -> tuple[tuple[float, int], ...]:
        """Changes of the replicas that are paid for at a stage: (instant ms, replicas from then on). Where a tuner decides
        they are paid for from the decision on, elsewhere while they are there."""
        if self.control is not None:
            return self.control.schedule.paid[stage]
        return self.inputs.pipeline.stages[stage].capacity
