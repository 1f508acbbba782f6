"""Simulating stage by stage: from a pipeline to the kernels' arrays and back.

A feed-forward pipeline whose stages decide from local state needs no global list of events: each stage turns a sorted
stream of arrivals into a stream of batches. The result equals the event loop's bit for bit. Arrivals are taken in
slices that fit the processor's cache; `Stagewise` can also be driven slice by slice from outside.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from forerun.core.errors import Problem, ScenarioError
from forerun.core.kernels.records import Rows, records
from forerun.serving.engine.kernels import layout
from forerun.serving.engine.kernels.advance import NO_ROOM, advance, route
from forerun.serving.engine.kernels.layout import KernelPlan, Record, State
from forerun.serving.engine.kernels.serve import serve_woken
from forerun.serving.engine.outcome import Batches, Run, Visits
from forerun.serving.inputs.pipeline import SOURCE, Edge, Floats, Law, Pipeline, Stage
from forerun.serving.inputs.routing import edge_key, mix

#: queries per slice: times, stops and ids of a few streams stay in the processor's second-level cache
SLICE: Final = 8192
#: queries that the kernels are given at once: the edges that they take are computed together
PIECE: Final = 16 * SLICE
#: more misses than any run has
MANY: Final = 2**62


def reasons_against(pipeline: Pipeline) -> list[str]:
    """Why a pipeline must be simulated by the event loop instead; empty if it need not."""
    return [
        f"stage {stage.name!r}: batching policy {type(stage.batching).__name__} has no compiled form"
        for stage in pipeline.stages
        if stage.llm is None and stage.batching.compiled() is None
    ]


class Stagewise:
    """A run under way. `advance` feeds arrivals and handles every instant before a given one."""

    def __init__(
        self,
        pipeline: Pipeline,
        slo_ms: float,
        *,
        record: str = "latency",
        expected: int = 0,
        most_replicas: int = 0,
        slice_size: int = SLICE,
    ) -> None:
        """Begin at instant 0 with nothing fed.

        Parameters
        ----------
        pipeline : stages whose batching policies have a compiled form.
        slo_ms : latency above which a query misses.
        record : `counts` of misses only, `latency` of every query (default), or `full`: every visit and every batch.
        expected : queries to allocate for (default: 0; grows as needed).
        most_replicas : what `reschedule` may give a stage (default: 0: it is not called).
        slice_size : queries that are taken through all stages before the next; it changes no result.
        """
        self.pipeline = pipeline
        self._plan = plan_of(pipeline, slo_ms, most_replicas)
        self._keep(_state_of(self._plan, pipeline, 2 * SLICE, most_replicas))
        self._changes = [list(stage.capacity) for stage in pipeline.stages]
        self._kind, self._slice_size = record, slice_size
        capacity = 0 if record == "counts" else max(expected, 1)
        self._record = _record_of(len(pipeline.stages), capacity, record, routed=self._plan.routed)
        self._recorded = _recorded_of(pipeline)
        self._all_edges = np.empty((len(pipeline.edges), 0), dtype=np.uint8)

    @property
    def fed(self) -> int:
        """Queries fed so far."""
        return int(self._counts[0])

    @property
    def finished(self) -> int:
        """Queries 0..finished-1 have all ended."""
        return int(self._open[0])

    @property
    def misses(self) -> int:
        """Queries among the finished whose latency was above the SLO."""
        return int(self._missed[0])

    @property
    def tie_count(self) -> int:
        """Stage-instants at which events coincided."""
        return int(self._state.whole["ties"][0])

    @property
    def finish_ms(self) -> Floats:
        """float64[finished]: when each query ended."""
        return self._record.finish_ms[: self.finished]

    def advance(self, arrivals_ms: Floats, until_ms: float = math.inf, *, most_misses: int = MANY) -> None:
        """Feed more arrivals and handle every instant before `until_ms`.

        Parameters
        ----------
        arrivals_ms : float64[n], ascending; with them all that arrive before `until_ms` have been fed.
        until_ms : end of the slice of time, itself excluded (default: the end of the run).
        most_misses : stop soon after more queries than that have missed (default: never).
        """
        # One memory layout, whatever was given: another would compile every kernel again.
        arrivals_ms = np.require(arrivals_ms, np.float64, ["C", "W"])
        self._reserve(self.fed + len(arrivals_ms))
        for at in range(0, max(1, len(arrivals_ms)), PIECE):
            later_ms = arrivals_ms[at + PIECE : at + PIECE + 1]
            soon_ms = min(until_ms, float(later_ms[0])) if len(later_ms) else until_ms
            self._advance(arrivals_ms[at : at + PIECE], soon_ms, most_misses)
            if self.misses > most_misses:
                break

    def _advance(self, arrivals_ms: Floats, until_ms: float, most_misses: int) -> None:
        """Arrivals few enough to hold all the edges that they take."""
        first, step, stages = self.fed, 0, len(self.pipeline.stages)
        taken, size = self._routes(first, len(arrivals_ms)), self._slice_size
        while True:
            plan, state, record = self._plan, self._state, self._record
            done = advance(plan, state, record, arrivals_ms, first, taken, until_ms, step, size, most_misses)
            if done == stages:
                return
            if done == NO_ROOM:
                needed = self.fed - self.finished + size
                self._keep(_grown(state, max(4 * needed, 2 * len(state.firsts))))
                step = 0
            else:
                later_ms = arrivals_ms[self.fed - first : self.fed - first + 1]
                slice_ms = min(until_ms, float(later_ms[0])) if len(later_ms) else until_ms
                serve_woken(done, plan, state, record, slice_ms)
                step = done + 1

    def _keep(self, state: State) -> None:
        """Go on with a state; short slices ask for these of its columns so often that making them anew would count."""
        self._state = state
        self._counts, self._open, self._missed = (
            state.streams["count"],
            state.whole["open"],
            state.whole["misses"],
        )

    def _routes(self, first: int, queries: int) -> NDArray[np.uint8]:
        """uint8[E, queries]: whether the queries from number `first` on take each edge; uint8[E, 0] if all take all."""
        if not self._plan.routed:
            return self._all_edges
        taken = np.empty((len(self._plan.edges), queries), dtype=np.uint8)
        route(self._plan, np.ascontiguousarray(self._recorded[:, first : first + queries]), first, taken)
        return taken

    def reschedule(self, capacity: Sequence[Sequence[tuple[float, int]]]) -> None:
        """Replace the changes of replicas that have not been handled yet.

        Parameters
        ----------
        capacity : by stage (instant ms, replicas from then on), ascending, none before the instant last advanced to.
        """
        before = self._plan.stages
        handled = self._state.stages["change"] - before["change_first"]
        for changes, count, later in zip(self._changes, handled.tolist(), capacity):
            changes[count:] = later
        stages, rows = _with_changes(before, self._changes)
        self._plan = self._plan._replace(stages=stages, changes=rows)
        self._state.stages["change"] = stages["change_first"] + handled

    @property
    def ongoing(self) -> tuple[int, ...]:
        """By stage, queries queued or in service."""
        count, into = self._state.streams["count"], self._plan.stages["input"]
        return tuple((count[into] - count[1 : len(into) + 1]).tolist())

    @property
    def working(self) -> tuple[int, ...]:
        """By stage, replicas that serve a batch."""
        return tuple(self._state.stages["busy"].tolist())

    def forget(self) -> Floats:
        """Hand over the finish instants recorded since the last call, and drop them."""
        done = self.finished - self._record.base
        finish_ms = self._record.finish_ms[:done].copy()
        self._record.finish_ms[: len(self._record.finish_ms) - done] = self._record.finish_ms[done:]
        self._record = self._record._replace(base=self.finished)
        return finish_ms

    def run(self, arrivals_ms: Floats) -> Run:
        """The result, once everything has been handled."""
        latency = self._record.finish_ms[: self.fed] if self._kind != "counts" else np.empty(0)
        visits: tuple[Visits, ...] = ()
        batches: tuple[Batches, ...] = ()
        if self._kind == "full":
            came_ms = np.asarray(arrivals_ms, dtype=np.float64)[: self.fed]
            visits = _recorded_visits(self.pipeline, self._record, came_ms, self._plan)
            started = zip(self._record.batches, self._state.stages["started"].tolist())
            batches = tuple(
                Batches(rows["start_ms"], rows["end_ms"], rows["queries"], rows["replica"])
                for rows in (every[:count] for every, count in started)
            )
        return Run(
            arrivals_ms,
            latency,
            self.misses,
            self.tie_count,
            visits,
            batches,
            complete=self.finished == len(arrivals_ms),
        )

    def _reserve(self, queries: int) -> None:
        capacity, needed = self._record.finish_ms.shape[0], queries - self._record.base
        if self._kind == "counts" or needed <= capacity:
            return
        stages, wider = len(self.pipeline.stages), max(needed, 2 * capacity)
        larger = _record_of(stages, wider, self._kind, routed=self._plan.routed)
        grown = {
            name: _enlarged(getattr(self._record, name), getattr(larger, name)) for name in Record._fields[1:]
        }
        self._record = larger._replace(base=self._record.base, **grown)


def simulate_stagewise(
    pipeline: Pipeline,
    arrivals_ms: Floats,
    slo_ms: float,
    *,
    record: str = "latency",
    most_misses: int | None = None,
    slice_size: int = SLICE,
) -> Run:
    """Simulate a whole trace.

    Parameters
    ----------
    pipeline : stages whose batching policies have a compiled form (see `reasons_against`).
    arrivals_ms : float64[queries], ascending.
    slo_ms : latency above which a query misses.
    record : `counts` of misses only, `latency` (default), or `full`: every visit and every batch.
    most_misses : with `counts`, stop soon after more queries than that have missed (default: never).
    slice_size : queries that are taken through all stages before the next; it changes no result.
    """
    state = Stagewise(pipeline, slo_ms, record=record, expected=len(arrivals_ms), slice_size=slice_size)
    state.advance(arrivals_ms, most_misses=MANY if most_misses is None else most_misses)
    return state.run(arrivals_ms)


def plan_of(pipeline: Pipeline, slo_ms: float, most_replicas: int = 0) -> KernelPlan:
    """The pipeline as the kernels' arrays.

    Parameters
    ----------
    pipeline : stages whose batching policies have a compiled form.
    slo_ms : latency above which a query misses.
    most_replicas : what any stage may get later (default: 0: nothing changes).

    Raises ScenarioError for stages that serve language models, which other kernels run.
    """
    if pipeline.serves_models:
        served = [stage.name for stage in pipeline.stages if stage.llm is not None]
        raise ScenarioError(
            *(Problem("pipeline", f"stage {name!r} serves a language model") for name in served)
        )
    stages, edges = pipeline.stages, pipeline.edges
    input_of, input_kind, _ = _wiring(pipeline, most_replicas)
    ends = [s for s in range(len(stages)) if pipeline.may_end(s)]
    edge_at = np.cumsum([0, *(len(stage.edges) for stage in stages)])
    widest = max((stage.max_batch for stage in stages), default=1) + 1
    measured_at, measured_ms = _measured(stages, widest)
    service_ms = np.full((len(stages), widest), np.nan)
    facts = records(len(stages), layout.STAGE)
    for s, stage in enumerate(stages):
        own, service = facts[s], stage.service
        batching, own.delay_ms = stage.batching.compiled() or ("", 0.0)
        own.wakes = batching == "wake"
        own.steady = not stage.capacity and not most_replicas and batching == "hold" and own.delay_ms == 0.0
        own.one = own.steady and stage.replicas == 1
        own.input, own.kind, own.most = input_of[s], input_kind[s], stage.max_batch
        own.law, own.key, own.spread = (
            service.law,
            _word(mix(service.key)),
            math.sqrt(math.log1p(service.cv**2)),
        )
        own.edge_first, own.edge_stop = edge_at[s : s + 2]
        own.end = ends.index(s) if s in ends else -1
        own.leads_on = any(edge.parent == s for edge in edges)
        service_ms[s, : stage.max_batch + 1] = service.table_ms[: stage.max_batch + 1]
    rows = records(len(edges), layout.EDGE)
    for row, edge in zip(rows, edges):
        share = 1.0 if edge.share is None else edge.share
        row.parent, row.kind, row.share = edge.parent + 1, _edge_kind(edge), share
        row.key = _word(edge_key(pipeline.seed, edge.number))
    facts, changes = _with_changes(facts, [stage.capacity for stage in stages])
    routed = not all(edge.always for edge in edges)
    return KernelPlan(facts, rows, service_ms, measured_at, measured_ms, changes, routed, float(slo_ms))


def _word(bits: int) -> int:
    """The 64 bits of a word without sign as a number that a signed one can take."""
    return bits - 2**64 if bits >= 2**63 else bits


def _with_changes(stages: Rows, capacity: Sequence[Sequence[tuple[float, int]]]) -> tuple[Rows, Rows]:
    """Stages whose replicas change as given, as the kernels' arrays: STAGE[S], and CHANGE[n], stage behind stage."""
    at = np.cumsum([0, *(len(changes) for changes in capacity)])
    changed = stages.copy()
    changed["change_first"], changed["change_stop"] = at[:-1], at[1:]
    rows = records(int(at[-1]), layout.CHANGE)
    for row, (at_ms, replicas) in zip(rows, (change for changes in capacity for change in changes)):
        row.at_ms, row.to = at_ms, replicas
    return changed, rows


def _wiring(pipeline: Pipeline, most_replicas: int) -> tuple[list[int], list[int], list[bool]]:
    """Per stage the stream it consumes and how that comes about; per stream whether it is ordered."""
    stages = pipeline.stages
    ordered = [True] + [False] * len(stages)
    input_of: list[int] = []
    input_kind: list[int] = []
    for s, stage in enumerate(stages):
        from_ordered = all(edge.always and ordered[edge.parent + 1] for edge in stage.edges)
        if len(stage.edges) == 1 and stage.edges[0].always:
            input_kind.append(layout.DIRECT)
            input_of.append(stage.edges[0].parent + 1)
        else:
            input_kind.append(layout.ZIPPED if from_ordered else layout.MERGED)
            input_of.append(len(ordered))
            ordered.append(from_ordered)
        ordered[s + 1] = from_ordered and _keeps_order(stage, most_replicas)
    return input_of, input_kind, ordered


def _keeps_order(stage: Stage, most_replicas: int) -> bool:
    """Whether no batch of the stage can overtake another."""
    table = stage.service.table_ms
    return max(stage.most_replicas, most_replicas) == 1 or (
        stage.service.law is Law.TABLE and bool((table[1 : stage.max_batch + 1] == table[1]).all())
    )


def _edge_kind(edge: Edge) -> int:
    if edge.recorded is not None:
        return 1
    return 0 if edge.share is None else 2


def _recorded_of(pipeline: Pipeline) -> NDArray[np.bool_]:
    """bool[E, n]: the recorded routing, a row an edge; n = 0 if nothing is recorded."""
    columns = [edge.recorded for edge in pipeline.edges if edge.recorded is not None]
    recorded = np.zeros((len(pipeline.edges), len(columns[0]) if columns else 0), dtype=np.bool_)
    for e, edge in enumerate(pipeline.edges):
        if edge.recorded is not None:
            recorded[e] = edge.recorded
    return recorded


def _measured(stages: Sequence[Stage], widest: int) -> tuple[NDArray[np.int64], Floats]:
    at = np.zeros((len(stages), widest + 1), dtype=np.int64)
    values: list[Floats] = []
    total = 0
    for s, stage in enumerate(stages):
        for size in range(widest):
            at[s, size] = total
            if stage.service.law is Law.MEASURED and 0 < size <= stage.max_batch:
                values.append(stage.service.measured_ms[size])
                total += len(values[-1])
        at[s, widest] = total
    return at, np.concatenate(values) if values else np.zeros(1)


def _state_of(plan: KernelPlan, pipeline: Pipeline, capacity: int, most_replicas: int) -> State:
    """What a run carries from slice to slice, as it is at the beginning.

    Parameters
    ----------
    plan : the pipeline as arrays.
    pipeline : the same as objects.
    capacity : open queries, and runs of a stream, that there is space for; more are made when they are needed.
    most_replicas : what any stage may get later (0: nothing changes).
    """
    *_, ordered = _wiring(pipeline, most_replicas)
    stages, streams, edges = len(pipeline.stages), len(ordered), len(pipeline.edges)
    most = max(most_replicas, *(stage.most_replicas for stage in pipeline.stages))
    places = 1 << (most - 1).bit_length()
    counted = plan.routed or bool((plan.stages["kind"] == layout.MERGED).any())
    state = State(
        times=np.empty((streams, capacity + 1)),
        stops=np.zeros((streams, capacity + 1), dtype=np.int64),
        ids=np.empty((streams, capacity), dtype=np.int32),
        streams=records(streams, layout.STREAM),
        whole=records(1, layout.WHOLE),
        ended_ms=np.empty((plan.stages["end"].max() + 1, capacity + layout.SPILL)),
        joining=np.zeros((stages, capacity if counted else 0), dtype=np.int32),
        taken=np.zeros((edges, capacity if plan.routed else 0), dtype=np.uint8),
        stages=records(stages, layout.STAGE_STATE),
        ends_ms=np.zeros((stages, places)),
        ring=records((stages, places), layout.PLACE),
        wakes=records((stages, places), layout.WAKE),
        edge_run=np.zeros(edges, dtype=np.int64),
        firsts=np.empty(capacity, dtype=np.int64),
    )
    for s, stage in enumerate(pipeline.stages):
        state.stages["replicas"][s] = stage.replicas
        state.ring["standing"][s, : stage.replicas] = layout.IDLE
    state.streams["ordered"] = ordered
    state.stages["change"] = plan.stages["change_first"]
    return state


def _grown(state: State, capacity: int) -> State:
    """The same state with a larger capacity for open queries."""
    spare = {"times": 1, "stops": 1, "ended_ms": layout.SPILL}
    grown = {}
    for name in ("times", "stops", "ids", "ended_ms", "joining", "taken", "firsts"):
        old = getattr(state, name)
        if old.shape[-1]:
            larger = np.zeros((*old.shape[:-1], capacity + spare.get(name, 0)), dtype=old.dtype)
            grown[name] = _enlarged(old, larger)
    return state._replace(**grown)


def _record_of(stages: int, queries: int, kind: str, *, routed: bool = True) -> Record:
    """Arrays for the kernels to write results to.

    Parameters
    ----------
    stages, queries : how many of each.
    kind : `counts`, `latency` or `full`; visits and batches have space with `full` only.
    routed : some queries do not come by some stages, so visits begin as none (default: yes).
    """
    full = queries + layout.SPILL if kind == "full" else 0
    visits_ms = np.empty((stages, 3, full))
    visits = np.empty((stages, 2, full), dtype=np.int32)
    if routed:
        visits_ms.fill(np.nan)
        visits[:, 0], visits[:, 1] = 0, -1
    return Record(
        base=0,
        finish_ms=np.empty(queries),
        visits_ms=visits_ms,
        visits=visits,
        batches=np.empty((stages, full), layout.BATCH).view(np.recarray),
    )


def _enlarged(old: NDArray[Any], new: NDArray[Any]) -> NDArray[Any]:
    """`new` with the contents of `old` in its first corner."""
    if old.size:
        # Records are copied as bytes: field by field takes twenty times as long.
        source, target = (old.view(np.uint8), new.view(np.uint8)) if old.dtype.names else (old, new)
        target[tuple(slice(0, n) for n in source.shape)] = source
    return new


def _recorded_visits(
    pipeline: Pipeline, record: Record, arrivals_ms: Floats, plan: KernelPlan
) -> tuple[Visits, ...]:
    """Per stage what its kernel recorded of each query.

    The kernels leave out what is known: queries that an only parent always sends on enter as they end there, and an only
    replica is number 0.
    """
    visits: list[Visits] = []
    queries = len(arrivals_ms)
    for s, stage in enumerate(pipeline.stages):
        entered_ms, start_ms, end_ms = record.visits_ms[s, :, :queries]
        sizes, replicas = record.visits[s, :, :queries]
        if plan.stages[s].kind == layout.DIRECT:
            parent = stage.edges[0].parent
            entered_ms = arrivals_ms if parent == SOURCE else visits[parent].end_ms
        if plan.stages[s].one and not plan.routed:
            replicas = np.zeros(queries, dtype=np.int32)
        visits.append(Visits(entered_ms, start_ms, end_ms, sizes, replicas))
    return tuple(visits)
