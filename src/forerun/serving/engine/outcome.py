"""What happened in a run, before any figure or word: visits, batches, requests, and the records that gather them."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from forerun.serving.inputs.clients import Sent
from forerun.serving.inputs.pipeline import SOURCE, Floats, Ints, Pipeline
from forerun.serving.policy.handover import Handover

if TYPE_CHECKING:
    from forerun.core.result.tables import Table
    from forerun.serving.inputs.inputs import Inputs

#: (instant ms, replicas from then on), ascending
Changes = tuple[tuple[float, int], ...]


@dataclass(frozen=True)
class Iterations:
    """The k iterations of one stage with a language model, in the order they began.

    Parameters
    ----------
    start_ms, end_ms : float64[k], instants.
    replica : int64[k], number of the replica within its stage.
    prefill : int64[k], tokens of prompts, or of preempted requests, that are processed.
    decodes : int64[k], requests that process their latest token.
    kv : int64[k], tokens that the decodes have in the cache.
    running : int64[k], requests admitted.
    free_blocks : int64[k], blocks of the cache that are free.
    preempted : int64[k], how often a request lost its blocks for it.
    """

    start_ms: Floats
    end_ms: Floats
    replica: Ints
    prefill: Ints
    decodes: Ints
    kv: Ints
    running: Ints
    free_blocks: Ints
    preempted: Ints


@dataclass(frozen=True)
class Transfers:
    """What happened between prefill and decode, where these have replicas of their own; NaN and -1 for queries that were not
    sent.

    Parameters
    ----------
    sent_ms : float64[queries], when the transfer to the replica that decodes ended.
    start_ms : float64[queries], begin of the first iteration there.
    replica : int64[queries], its number; those that decode are numbered behind those that prefill.
    """

    sent_ms: Floats
    start_ms: Floats
    replica: Ints


@dataclass(frozen=True)
class Guesses:
    """Tokens that drafts proposed, over all requests of a stage.

    Parameters
    ----------
    drafted : proposed and verified.
    accepted : of these, right, so that they came together with the token behind them.
    """

    drafted: int
    accepted: int


@dataclass(frozen=True)
class Requests:
    """What happened to each query at a stage with a language model; arrays by query, NaN and 0 where it was not served.

    Parameters
    ----------
    first_ms : float64[queries], instant of its first token.
    longest_gap_ms : float64[queries], longest time between two of its tokens.
    preemptions : int64[queries], how often it lost its blocks.
    stalled_ms : float64[queries], between a preemption and the readmission, in all.
    stalled_first_ms : float64[queries], the part of it before its first token.
    gaps : int64[cells], times between consecutive tokens of one request, all requests together (see
        `gap_quantile_ms`); tokens that one iteration gives together have no time between them.
    iterations : how many there were.
    hit_tokens : int64[queries], tokens that it did not process because the prefix cache had them.
    recorded : the iterations one by one, only where everything is recorded (else None).
    transfers : between prefill and decode, where these have replicas of their own (else None).
    guesses : of the drafts, where decoding is speculative (else None).
    """

    first_ms: Floats
    longest_gap_ms: Floats
    preemptions: Ints
    stalled_ms: Floats
    stalled_first_ms: Floats
    gaps: Ints
    iterations: int
    hit_tokens: Ints
    recorded: Iterations | None = None
    transfers: Transfers | None = None
    guesses: Guesses | None = None


@dataclass(frozen=True)
class Visits:
    """What happened to each query at one stage; arrays by query id.

    Parameters
    ----------
    enqueue_ms : float64[queries], when it joins the queue: its last taken parent ends. NaN where it did not come by.
    start_ms, end_ms : float64[queries], when its batch starts and ends; NaN where it did not come by.
    batch : int32[queries], size of its batch; 0 where it did not come by, or was refused.
    replica : int32[queries], number of the replica within the stage; -1 where it did not come by, or was refused.
    """

    enqueue_ms: Floats
    start_ms: Floats
    end_ms: Floats
    batch: NDArray[np.int32]
    replica: NDArray[np.int32]


@dataclass(frozen=True)
class Batches:
    """The k batches of one stage in start order.

    Parameters
    ----------
    start_ms, end_ms : float64[k], instants.
    size : int32[k], queries in the batch.
    replica : int32[k], number of the replica within the stage.
    """

    start_ms: Floats
    end_ms: Floats
    size: NDArray[np.int32]
    replica: NDArray[np.int32]


@dataclass(frozen=True)
class Run:
    """What happened in a simulation of the pipeline.

    Parameters
    ----------
    arrival_ms : float64[queries], ascending.
    finish_ms : float64[queries], by id, when its last stage ends; empty if only misses were counted.
    misses : queries with latency above the SLO, and those refused.
    tie_count : stage-instants at which two completions, two arrival groups, or both kinds coincide.
    visits : one a stage, empty unless everything was recorded.
    batches : one a stage, empty unless everything was recorded; of a language model its iterations.
    complete : False if counting stopped early.
    requests : one a stage, None where it serves no language model; empty if no stage does.
    refused : bool[queries], whom a language model refused: such a query misses, whatever its latency. None if no
        stage serves one.
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
    def horizon_ms(self) -> tuple[float, float]:
        """The time that utilisation and cost are about: from the first arrival to the last finish (NaN if only misses were
        counted)."""
        return float(self.arrival_ms[0]), float(self.finish_ms.max()) if len(self.finish_ms) else math.nan

    @property
    def latency_ms(self) -> Floats:
        """float64[queries]: finish minus arrival."""
        return np.subtract(self.finish_ms, self.arrival_ms)

    def left_ms(self, parent: int) -> Floats:
        """float64[queries]: when queries leave for a stage behind `parent`; SOURCE: when they arrive."""
        return self.arrival_ms if parent == SOURCE else self.visits[parent].end_ms

    @property
    def served_ms(self) -> Floats:
        """float64[served]: latencies of the queries that were not refused."""
        return self.latency_ms if self.refused is None else self.latency_ms[~self.refused]

    def missed(self, slo_ms: float) -> NDArray[np.bool_]:
        """bool[queries]: refused, or later than the objective."""
        late = self.latency_ms > slo_ms
        return late if self.refused is None else late | self.refused


@dataclass(frozen=True)
class Decided:
    """A decision that changed something.

    Parameters
    ----------
    at_ms : when.
    before, after : replicas paid for, by stage.
    active_ms : when more of them are active; fewer are at once.
    rate_rps : the rate that it was made for (NaN: none).
    why : in the tuner's words.
    """

    at_ms: float
    before: tuple[int, ...]
    after: tuple[int, ...]
    active_ms: float
    rate_rps: float
    why: str

    @property
    def action(self) -> str:
        """`up`, `down`, or `both` where stages differ."""
        up = any(b > a for a, b in zip(self.before, self.after))
        down = any(b < a for a, b in zip(self.before, self.after))
        return "both" if up and down else "up" if up else "down"


@dataclass(frozen=True)
class TunerDecisions:
    """What a tuner decided over a run.

    Parameters
    ----------
    decisions : those that changed something, in order.
    active : changes of the replicas at work, by stage.
    paid : changes of the replicas paid for, by stage.
    """

    decisions: tuple[Decided, ...]
    active: tuple[Changes, ...]
    paid: tuple[Changes, ...]

    def applied(self, pipeline: Pipeline) -> Pipeline:
        """The pipeline with these changes of replicas."""
        return replace(
            pipeline,
            stages=tuple(
                replace(stage, capacity=changes) for stage, changes in zip(pipeline.stages, self.active)
            ),
        )


@dataclass(frozen=True)
class Control:
    """A tuner in a run.

    Parameters
    ----------
    schedule : what it decided.
    handover : the pipeline and the sample that it was given.
    """

    schedule: TunerDecisions
    handover: Handover


@dataclass(frozen=True)
class Outcome:
    """What an engine ran, and what happened.

    Parameters
    ----------
    inputs : with the changes of replicas that a tuner decided, arriving as clients sent them.
    run : what happened.
    before : the same, before clients sent anything.
    control : what the tuner did (None: replicas are fixed).
    notes : what a reader of the result should know of how it was simulated.
    figures : figures of the simulation itself for the summary, such as `way`.
    tables : records of this engine alone, by name.
    sent : what clients sent, by the numbers of the inputs as they were prepared; those of the run are in the order in which
        they were sent (None: queries arrive when they do).
    """

    inputs: Inputs
    run: Run
    before: Inputs
    control: Control | None = None
    notes: tuple[str, ...] = ()
    figures: Mapping[str, object] = field(default_factory=dict)
    tables: Mapping[str, Table] = field(default_factory=dict)
    sent: Sent | None = None

    def paid(self, stage: int) -> tuple[tuple[float, int], ...]:
        """Changes of the replicas that are paid for at a stage: (instant ms, replicas from then on). Where a tuner decides
        they are paid for from the decision on, elsewhere while they are there. One that serves a language model is paid for
        until it has finished what it has."""
        here = self.inputs.pipeline.stages[stage]
        changes = here.capacity if self.control is None else self.control.schedule.paid[stage]
        if here.llm is None or not changes or not self.run.visits:
            return changes
        return _until_released(here.replicas, changes, self.run.visits[stage])


def _until_released(first: int, changes: Changes, visits: Visits) -> Changes:
    """Changes in which a replica that goes counts until the last query that it has taken ends, or it comes back."""
    count, steps = first, list[tuple[float, int]]()
    for number, (at_ms, then) in enumerate(changes):
        for replica in range(then, count):
            mine = visits.end_ms[(visits.replica == replica) & (visits.enqueue_ms < at_ms)]
            back_ms = next((ms for ms, later in changes[number + 1 :] if later > replica), math.inf)
            steps.append((min(float(mine.max(initial=at_ms)), back_ms), -1))
        if then > count:
            steps.append((at_ms, then - count))
        count = then
    released: dict[float, int] = {}
    for at_ms, step in sorted(steps):
        first += step
        released[at_ms] = first
    return tuple(released.items())
