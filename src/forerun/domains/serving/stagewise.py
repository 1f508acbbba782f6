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

from forerun.domains.serving.kernels import layout
from forerun.domains.serving.kernels.advance import advance
from forerun.domains.serving.kernels.layout import Plan, Record, State
from forerun.domains.serving.model import Batches, Edge, Floats, Law, Pipeline, Run, Stage, Visits
from forerun.domains.serving.routing import edge_key, mix
from forerun.errors import Problem, ScenarioError

#: queries per slice: times, stops and ids of a few streams stay in the processor's second-level cache
SLICE: Final = 8192


def reasons_against(pipeline: Pipeline) -> list[str]:
    """Why a pipeline must be simulated by the event loop instead; empty if it need not."""
    reasons = [
        f"stage {stage.name!r} serves a language model" for stage in pipeline.stages if stage.llm is not None
    ]
    reasons += [
        f"stage {stage.name!r}: batching policy {type(stage.batching).__name__} has no compiled form"
        for stage in pipeline.stages
        if stage.batching.compiled() is None
    ]
    if not all(edge.always for edge in pipeline.edges):
        if len(pipeline.edges) > 64:
            reasons.append(f"{len(pipeline.edges)} edges, some conditional; at most 64 are compiled")
        if len(pipeline.stages) > 64:
            reasons.append(f"{len(pipeline.stages)} stages with conditional edges; at most 64 are compiled")
    return reasons


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
    ) -> None:
        """record: `counts`, `latency` or `full`. expected: queries to make room for (grows as needed). most_replicas: what
        `reschedule` may give a stage (0: it is not called)."""
        self.pipeline = pipeline
        self._plan = plan_of(pipeline, slo_ms, most_replicas)
        self._state = _state_of(self._plan, pipeline, 2 * SLICE, most_replicas)
        self._changes = [list(stage.capacity) for stage in pipeline.stages]
        self._kind = record
        room = 0 if record == "counts" else max(expected, 1)
        self._record = record_of(len(pipeline.stages), room, record, routed=self._plan.routed)
        self._recorded = _recorded_of(pipeline)

    @property
    def fed(self) -> int:
        """Queries fed so far."""
        return int(self._state.window[layout.FED])

    @property
    def finished(self) -> int:
        """Queries 0..finished-1 have all ended."""
        return int(self._state.window[layout.OPEN])

    @property
    def misses(self) -> int:
        """Queries among the finished whose latency was above the SLO."""
        return int(self._state.window[layout.MISSES])

    @property
    def tie_count(self) -> int:
        """Stage-instants at which events coincided."""
        return int(self._state.window[layout.TIES])

    @property
    def finish_ms(self) -> Floats:
        """float64[finished]: when each query ended."""
        return self._record.finish_ms[: self.finished]

    def advance(self, arrivals_ms: Floats, until_ms: float = math.inf) -> None:
        """Feed more arrivals (ascending, all those before `until_ms`) and handle every instant before `until_ms`."""
        fed = self.fed
        self._make_room_to_record(fed + len(arrivals_ms))
        # One memory layout, whatever was given: another would compile every kernel again.
        arrivals_ms = np.require(arrivals_ms, np.float64, ["C", "W"])
        taken = np.ascontiguousarray(self._recorded[:, fed : fed + len(arrivals_ms)])
        while not advance(self._plan, self._state, self._record, arrivals_ms, taken, until_ms):
            open_queries = fed - self.finished + len(arrivals_ms)
            self._state = _grown(self._state, max(4 * open_queries, 2 * self._state.arrival_ms.shape[0]))

    def reschedule(self, capacity: Sequence[Sequence[tuple[float, int]]]) -> None:
        """Replace the changes of replicas that have not been handled yet.

        capacity: by stage (instant ms, replicas from then on), ascending, none before the instant last advanced to.
        """
        at = self._plan.change_at
        done = [int(self._state.stages[s, layout.CHANGE] - at[s]) for s in range(len(self.pipeline.stages))]
        for changes, count, later in zip(self._changes, done, capacity):
            changes[count:] = later
        self._plan = self._plan._replace(**_changes_of(self._changes))
        self._state.stages[:, layout.CHANGE] = self._plan.change_at[:-1] + done

    @property
    def ongoing(self) -> tuple[int, ...]:
        """By stage, queries queued or in service."""
        streams = self._state.streams[:, layout.COUNT]
        return tuple((streams[self._plan.input_of] - streams[1 : len(self.pipeline.stages) + 1]).tolist())

    @property
    def working(self) -> tuple[int, ...]:
        """By stage, replicas that serve a batch."""
        return tuple(self._state.stages[:, layout.BUSY].tolist())

    def forget(self) -> Floats:
        """Hand over the finish instants found since the last call, and keep them no longer."""
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
            stages = range(len(self.pipeline.stages))
            visits = tuple(recorded_visits(self._record, s, self.fed) for s in stages)
            batches = tuple(
                recorded_batches(self._record, int(self._state.stages[s, layout.STARTED]), s) for s in stages
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

    def _make_room_to_record(self, queries: int) -> None:
        room, wanted = self._record.finish_ms.shape[0], queries - self._record.base
        if self._kind == "counts" or wanted <= room:
            return
        stages, wider = len(self.pipeline.stages), max(wanted, 2 * room)
        larger = record_of(stages, wider, self._kind, routed=self._plan.routed)
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
    """The whole trace. With `record="counts"` and `most_misses`, stops once more queries than that have missed."""
    state = Stagewise(pipeline, slo_ms, record=record, expected=len(arrivals_ms))
    for first in range(0, len(arrivals_ms), slice_size):
        last = first + slice_size >= len(arrivals_ms)
        until_ms = math.inf if last else float(arrivals_ms[first + slice_size])
        state.advance(arrivals_ms[first : first + slice_size], until_ms)
        if most_misses is not None and state.misses > most_misses:
            break
    return state.run(arrivals_ms)


def plan_of(pipeline: Pipeline, slo_ms: float, most_replicas: int = 0) -> Plan:
    """The pipeline as the kernels' arrays. most_replicas: what any stage may get later, 0 if nothing changes.

    Raises ScenarioError for stages that serve language models, which other kernels run.
    """
    if pipeline.serves_models:
        raise ScenarioError(*(Problem("pipeline", what) for what in reasons_against(pipeline)))
    stages, edges = pipeline.stages, pipeline.edges
    compiled = [stage.batching.compiled() or ("", 0.0) for stage in stages]
    input_of, input_kind, ordered = _wiring(pipeline, most_replicas)
    may_end = [pipeline.may_end(s) for s in range(len(stages))]
    routed = not all(edge.always for edge in edges)
    constant = [not stage.capacity and not most_replicas for stage in stages]
    steady = [still and way == ("hold", 0.0) for still, way in zip(constant, compiled)]
    widest = max((stage.max_batch for stage in stages), default=1) + 1
    measured_at, measured_ms = _measured(stages, widest)
    return Plan(
        input_of=_ints(input_of),
        input_kind=_ints(input_kind),
        max_batch=_ints([stage.max_batch for stage in stages]),
        batching=_ints([layout.WAKE if way == "wake" else layout.HOLD for way, _ in compiled]),
        delay_ms=np.array([delay_ms for _, delay_ms in compiled], dtype=np.float64),
        service_ms=_padded([stage.service.table_ms[: stage.max_batch + 1] for stage in stages], widest),
        law=_ints([stage.service.law for stage in stages]),
        spread=np.array([math.sqrt(math.log1p(stage.service.cv**2)) for stage in stages], dtype=np.float64),
        draw_key=np.array([mix(stage.service.key) for stage in stages], dtype=np.uint64),
        measured_at=measured_at,
        measured_ms=measured_ms,
        **_changes_of([stage.capacity for stage in stages]),
        steady=np.array(steady, dtype=np.bool_),
        one=np.array([even and stage.replicas == 1 for even, stage in zip(steady, stages)], dtype=np.bool_),
        edge_at=_offsets([len(stage.edges) for stage in stages]),
        edge_from=_ints([edge.parent + 1 for edge in edges]),
        edge_kind=_ints([_edge_kind(edge) for edge in edges]),
        edge_key=np.array([edge_key(pipeline.seed, edge.number) for edge in edges], dtype=np.uint64),
        edge_share=np.array([1.0 if edge.share is None else edge.share for edge in edges], dtype=np.float64),
        ordered=np.array(ordered, dtype=np.bool_),
        may_end=np.array(may_end, dtype=np.bool_),
        ends=np.flatnonzero(may_end).astype(np.int64),
        sink_ordered=not routed and all(ordered[s + 1] for s in range(len(stages)) if may_end[s]),
        routed=routed,
        slo_ms=float(slo_ms),
    )


def _changes_of(capacity: Sequence[Sequence[tuple[float, int]]]) -> dict[str, Any]:
    """Changes of replicas, by stage, as the plan's arrays."""
    return {
        "change_at": _offsets([len(changes) for changes in capacity]),
        "change_ms": np.array([at for changes in capacity for at, _ in changes], dtype=np.float64),
        "change_to": _ints([count for changes in capacity for _, count in changes]),
    }


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


def _state_of(plan: Plan, pipeline: Pipeline, room: int, most_replicas: int) -> State:
    stages, streams, edges = len(pipeline.stages), len(plan.ordered), len(pipeline.edges)
    most = max(most_replicas, *(stage.most_replicas for stage in pipeline.stages))
    places = 1 << (most - 1).bit_length()
    state = State(
        times=np.empty((streams, room + 1)),
        stops=np.zeros((streams, room + 1), dtype=np.int64),
        ids=np.empty((streams, room), dtype=np.int32),
        streams=np.zeros((streams, layout.STREAM_FIELDS), dtype=np.int64),
        stages=np.zeros((stages, layout.STAGE_FIELDS), dtype=np.int64),
        now_ms=np.full(stages, -np.inf),
        ring_ms=np.zeros((stages, places)),
        ring=np.zeros((stages, places, 3), dtype=np.int64),
        due_ms=np.zeros((stages, places)),
        due=np.zeros((stages, places), dtype=np.int64),
        numbers=np.zeros((stages, places), dtype=np.uint8),
        edge_run=np.zeros(edges, dtype=np.int64),
        sink_run=np.zeros(stages, dtype=np.int64),
        window=np.zeros(layout.WINDOW_FIELDS, dtype=np.int64),
        arrival_ms=np.empty(room),
        finish_ms=np.empty(room),
        left=np.zeros(room, dtype=np.int32),
        joining=np.zeros((stages, room), dtype=np.int32),
        taken=np.zeros(room, dtype=np.uint64),
        firsts=np.empty(room, dtype=np.int64),
    )
    state.stages[:, layout.CHANGE] = plan.change_at[:-1]
    for s, stage in enumerate(pipeline.stages):
        state.stages[s, layout.REPLICAS] = stage.replicas
        state.numbers[s, : stage.replicas] = 1
    return state


def _grown(state: State, room: int) -> State:
    """The same state with room for more open queries."""
    wide = {
        "times": 1,
        "stops": 1,
        "ids": 0,
        "joining": 0,
        "arrival_ms": 0,
        "finish_ms": 0,
        "left": 0,
        "taken": 0,
    }
    grown = {}
    for name, extra in {**wide, "firsts": 0}.items():
        old = getattr(state, name)
        new = np.zeros((*old.shape[:-1], room + extra), dtype=old.dtype)
        new[..., : old.shape[-1]] = old
        grown[name] = new
    return state._replace(**grown)


def record_of(stages: int, queries: int, kind: str, *, routed: bool = True) -> Record:
    """Arrays for the kernels to write results to. `routed`: some queries do not come by some stages."""
    full = queries if kind == "full" else 0
    visits_ms = np.empty((stages, full, 3))
    visits = np.empty((stages, full, 2), dtype=np.int32)
    if routed:
        visits_ms.fill(np.nan)
        visits[..., 0], visits[..., 1] = 0, -1
    return Record(
        base=0,
        finish_ms=np.empty(queries),
        visits_ms=visits_ms,
        visits=visits,
        batches_ms=np.empty((stages, full, 2)),
        batches=np.empty((stages, full, 2), dtype=np.int32),
    )


def _enlarged(old: NDArray[Any], new: NDArray[Any]) -> NDArray[Any]:
    """`new` with what `old` holds in its first corner."""
    if old.size:
        new[tuple(slice(0, n) for n in old.shape)] = old
    return new


def recorded_visits(record: Record, stage: int, queries: int) -> Visits:
    """What a stage's kernel recorded of each query."""
    times, counts = record.visits_ms[stage, :queries], record.visits[stage, :queries]
    return Visits(times[:, 0], times[:, 1], times[:, 2], counts[:, 0], counts[:, 1])


def recorded_batches(record: Record, count: int, stage: int) -> Batches:
    """The `count` batches that a stage's kernel recorded."""
    times, sizes = record.batches_ms[stage, :count], record.batches[stage, :count]
    return Batches(times[:, 0], times[:, 1], sizes[:, 0], sizes[:, 1])


def _padded(tables: Sequence[Floats], width: int) -> Floats:
    padded = np.full((len(tables), width), np.nan)
    for row, table in zip(padded, tables):
        row[: len(table)] = table
    return padded


def _offsets(lengths: Sequence[int]) -> NDArray[np.int64]:
    return np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64)


def _ints(values: Sequence[int]) -> NDArray[np.int64]:
    return np.array(values, dtype=np.int64)
