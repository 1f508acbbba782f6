"""Stages run one by one and remembered: a stage's output depends on its own choice and its ancestors' alone.

Two laws, both exact, tell runs that cannot differ. If the largest batch ever taken was below the limit, any limit at or
above that batch gives the same run. If some replica was never busy, any number of replicas at or above the most ever
busy gives the same run. No other order between choices is used: more replicas or larger batches may make it worse.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from forerun.serving.inputs.pipeline import SOURCE, Floats
from forerun.serving.plan.kernels import join, run_stage
from forerun.serving.plan.space import Choice, Space, Traffic

#: added to the objective where a lower bound of the remaining time is: far above rounding, far below a microsecond
SLACK_MS: Final = 1e-6

#: streams of completions cached for the stages behind; others are made again when needed
CACHED_BYTES: Final = 256 * 2**20


@dataclass(slots=True, eq=False)
class StageRun:
    """One stage under one choice, on one trace.

    Parameters
    ----------
    number : of the run.
    stage : number of the stage.
    choice : how it was run.
    parents : the runs of its parents, without the outside.
    late : a bit a query (query q at bit q): whatever follows, it misses.
    count : how many are late; more than allowed means that the run was cut short.
    largest : the largest batch taken.
    peak : the most replicas busy at once.
    """

    number: int
    stage: int
    choice: Choice
    parents: tuple[StageRun, ...]
    late: int = field(repr=False)
    count: int = 0
    largest: int = 0
    peak: int = 0

    @property
    def saturated(self) -> bool:
        """Whether more replicas change nothing."""
        return self.peak < self.choice.replicas


class StageRuns:
    """The runs of the stages of a space on one trace, each simulated once."""

    def __init__(self, space: Space, traffic: Traffic, *, cut_short: bool = True) -> None:
        """Begin with no run known.

        Parameters
        ----------
        space : what can be chosen, the objective, and the misses that are allowed.
        traffic : the trace.
        cut_short : stop a run once more queries are late than the space allows (default: yes).
        """
        self.space, self.traffic = space, traffic
        self.allowed = space.allowed if cut_short else traffic.queries
        #: stages run so far
        self.runs = 0
        self._known: dict[tuple[Any, ...], StageRun] = {}
        self._alike: dict[tuple[Any, ...], list[StageRun]] = {}
        self._cached: OrderedDict[int, tuple[Floats, NDArray[np.int32]]] = OrderedDict()
        self._cached_bytes = 0
        self._inputs: dict[tuple[Any, ...], tuple[Floats, NDArray[np.int32]]] = {}
        self._tails = tails_ms(space, traffic)
        inner = {p for parents in space.parents for p in parents}
        self._leads_on = [s in inner for s in range(len(space.names))]
        self._everyone = np.arange(traffic.queries, dtype=np.int32)

    def stage_run(self, stage: int, choice: Choice, parents: Sequence[StageRun | None]) -> StageRun:
        """The run of a stage, simulated unless it is known.

        Parameters
        ----------
        stage : its number.
        choice : how it is run.
        parents : the runs of its parents in declared order (None: the outside), none of which was cut short.
        """
        behind = tuple(parent for parent in parents if parent is not None)
        input_key = (stage, *(parent.number for parent in behind))
        key = (input_key, choice)
        run = self._known.get(key)
        if run is None:
            run = self._same_run(input_key, choice)
            if run is None:
                run = self._ran(stage, choice, behind)
                self._alike.setdefault((input_key, choice.hardware), []).append(run)
            self._known[key] = run
        return run

    def _same_run(self, input_key: tuple[Any, ...], choice: Choice) -> StageRun | None:
        """A known run that this choice would only repeat."""
        for other in self._alike.get((input_key, choice.hardware), ()):
            batch, replicas = other.choice.max_batch, other.choice.replicas
            same_batch = batch == choice.max_batch or (
                other.largest < batch and other.largest <= choice.max_batch
            )
            same_replicas = replicas == choice.replicas or (
                other.peak < replicas and other.peak <= choice.replicas
            )
            if same_batch and same_replicas:
                return other
        return None

    def _ran(self, stage: int, choice: Choice, parents: tuple[StageRun, ...]) -> StageRun:
        done_ms, done, late, lates, largest, peak = self._run(stage, choice, parents)
        bits = int.from_bytes(np.packbits(late, bitorder="little").tobytes(), "little") if lates else 0
        outcome = StageRun(self.runs, stage, choice, parents, bits, lates, largest, peak)
        if lates <= self.allowed and self._leads_on[stage]:
            self._keep(outcome.number, done_ms, done)
        return outcome

    def _run(self, stage: int, choice: Choice, parents: tuple[StageRun, ...]) -> Any:
        self.runs += 1
        enter_ms, query = self._input(stage, parents)
        offer = self.space.offer(stage, choice.hardware)
        return run_stage(
            enter_ms,
            query,
            offer.table_ms,
            choice.max_batch,
            choice.replicas,
            self.traffic.arrivals_ms,
            self._tails[stage],
            self.space.slo_ms,
            SLACK_MS,
            self.allowed,
        )

    def _keep(self, number: int, done_ms: Floats, done: NDArray[np.int32]) -> None:
        self._cached[number] = (done_ms, done)
        self._cached_bytes += done_ms.nbytes + done.nbytes
        while self._cached_bytes > CACHED_BYTES and len(self._cached) > 8:
            _, (old_ms, old) = self._cached.popitem(last=False)
            self._cached_bytes -= old_ms.nbytes + old.nbytes

    def _stream(self, outcome: StageRun) -> tuple[Floats, NDArray[np.int32]]:
        """The stage's completions: instants and queries, in order."""
        if outcome.number in self._cached:
            self._cached.move_to_end(outcome.number)
        else:
            done_ms, done, *_ = self._run(outcome.stage, outcome.choice, outcome.parents)
            self._keep(outcome.number, done_ms, done)
        return self._cached[outcome.number]

    def _input(self, stage: int, parents: tuple[StageRun, ...]) -> tuple[Floats, NDArray[np.int32]]:
        """Who enters the stage's queue, when."""
        streams, awaited = [], np.zeros(self.traffic.queries, dtype=np.int64)
        behind = iter(parents)
        for edge, parent in enumerate(self.space.parents[stage], start=self.space.edge_at[stage]):
            if parent == SOURCE:
                times, queries = self.traffic.arrivals_ms, self._everyone
            else:
                times, queries = self._stream(next(behind))
            taken = self.traffic.taken[edge]
            if taken is not None:
                takes = taken[queries]
                times, queries = times[takes], queries[takes]
            streams.append((times, queries))
        if len(streams) == 1:
            return streams[0]
        for _, queries in streams:
            awaited[queries] += 1
        parts = np.cumsum([0, *(len(queries) for _, queries in streams)])
        times = np.concatenate([times for times, _ in streams])
        return join(times, np.concatenate([queries for _, queries in streams]), parts, awaited)

    def run_through(self, configuration: Sequence[Choice]) -> list[StageRun] | None:
        """The outcomes of a whole configuration; None if a stage was cut short."""
        runs: list[StageRun] = []
        for s, choice in enumerate(configuration):
            parents = [None if p == SOURCE else runs[p] for p in self.space.parents[s]]
            runs.append(self.stage_run(s, choice, parents))
            if runs[-1].count > self.allowed:
                return None
        return runs

    def misses(self, configuration: Sequence[Choice]) -> int | None:
        """How many queries miss the objective; None if more than are allowed."""
        runs = self.run_through(configuration)
        if runs is None:
            return None
        late = 0
        for outcome in runs:
            late |= outcome.late
        return late.bit_count() if late.bit_count() <= self.allowed else None


def tails_ms(space: Space, traffic: Traffic) -> list[Floats]:
    """Per stage float64[n]: the least time that a query there still takes behind it, over all choices.

    The last is that of SOURCE: the least time that each query takes through the whole pipeline.

    Parameters
    ----------
    space : gives the shortest time that any batch takes at each stage, on any hardware.
    traffic : gives the edges that each query takes.
    """
    tails = [np.zeros(traffic.queries) for _ in (*space.names, SOURCE)]
    for s in reversed(range(len(space.names))):
        for edge, parent in enumerate(space.parents[s], start=space.edge_at[s]):
            ahead, taken = tails[s] + space.least_ms[s], traffic.taken[edge]
            least = ahead if taken is None else np.where(taken, ahead, 0.0)
            tails[parent] = np.maximum(tails[parent], least)
    return tails
