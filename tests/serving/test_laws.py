"""Acceptance 7: invariants after every event and every run, and relations between runs, on generated pipelines."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

import numpy as np
import pytest

from forerun.core.errors import CheckFailed
from forerun.serving.engine.events import simulate_events
from forerun.serving.engine.outcome import Batches, Run, Visits
from forerun.serving.engine.stage_state import StageState
from forerun.serving.engine.stagewise import simulate_stagewise
from forerun.serving.inputs.pipeline import SOURCE, Edge, Pipeline, Service, Stage
from forerun.serving.policies.delay import Delay
from forerun.serving.policies.greedy import Greedy
from forerun.serving.policies.timeout import Timeout
from forerun.serving.summary.invariants import check_run

from ..conftest import cases
from .random_pipelines import random_pipeline

SLO_MS = 20.0
WORLDS = cases(25, 100)


def simulate(pipeline: Pipeline, arrivals: np.ndarray) -> Run:
    """Everything recorded."""
    return simulate_stagewise(pipeline, arrivals, SLO_MS, record="full")


class EveryInstant:
    """Looks on: queries are conserved, replicas neither vanish nor appear, greedy stages never idle beside a queue."""

    def __init__(self) -> None:
        self.last_ms = -np.inf
        self.seen = 0

    def instant(self, now_ms: float, stages: Sequence[StageState]) -> None:
        assert now_ms >= self.last_ms
        self.last_ms, self.seen = now_ms, self.seen + 1
        for state in stages:
            at_work = sum(len(queries) for _, _, _, queries in state.serving)
            assert state.entered == state.left + len(state.queue) + at_work
            numbers = [replica for _, _, replica, _ in state.serving] + [
                replica for _, replica in state.woken
            ]
            assert len(set(numbers) | set(state.idle)) == len(numbers) + len(state.idle)
            assert len(state.idle) == max(0, state.replicas - state.working)
            assert all(1 <= len(queries) <= state.stage.max_batch for _, _, _, queries in state.serving)
            assert all(end >= now_ms for end, _, _, _ in state.serving)
            if isinstance(state.stage.batching, Greedy):
                assert not (state.idle and state.queue)


def test_invariants_hold_after_every_event() -> None:
    for seed in range(2000, 2000 + WORLDS):
        pipeline, arrivals = random_pipeline(seed, queries=80)
        watcher = EveryInstant()
        simulate_events(pipeline, arrivals, SLO_MS, observers=(watcher,))
        assert watcher.seen > 0


def test_invariants_hold_after_every_run() -> None:
    for seed in range(2000, 2000 + 2 * WORLDS):
        pipeline, arrivals = random_pipeline(seed)
        run = simulate(pipeline, arrivals)
        check_run(pipeline, run, SLO_MS)
        assert (run.latency_ms >= _shortest_paths(pipeline, run) - 1e-9).all()


def _shortest_paths(pipeline: Pipeline, run: Run) -> np.ndarray:
    """Per query the longest path of smallest services over the stages it visits."""
    ends: list[np.ndarray] = []
    for stage, visits in zip(pipeline.stages, run.visits):
        came = visits.batch > 0
        before = np.zeros(len(came))
        for edge in stage.edges:
            if edge.parent != SOURCE and edge.always:
                before = np.maximum(before, ends[edge.parent])
        ends.append(np.where(came, before + stage.service.least_ms, 0.0))
    return np.max(ends, axis=0)


BREAKS: dict[str, Callable[[Run], Run]] = {
    "ends before it arrives": lambda run: replace(run, finish_ms=run.arrival_ms - 1.0),
    "misses were counted": lambda run: replace(run, misses=run.misses + 1),
    "does not end at start": lambda run: _batch(run, end_ms=np.nextafter(run.batches[0].end_ms, np.inf)),
    "above the limit": lambda run: _batch(run, size=run.batches[0].size + 100),
    "go back in time": lambda run: _batch(run, start_ms=run.batches[0].start_ms[::-1]),
    "different numbers of queries": lambda run: _batch(run, size=run.batches[0].size * 2),
    "more replicas work": lambda run: _batch(run, end_ms=run.batches[0].end_ms + 1e9),
    "not first in, first out": lambda run: _visit(run, start_ms=run.visits[0].start_ms[::-1]),
    "starts before it comes": lambda run: _visit(run, start_ms=run.visits[0].start_ms - 1e9),
    "another instant than its last taken parent": lambda run: _visit(
        run, enqueue_ms=run.visits[0].enqueue_ms - 1
    ),
    "replica idles": lambda run: _visit(run, start_ms=run.visits[0].start_ms + 0.125),
    "another instant than its last stage": lambda run: replace(run, finish_ms=run.finish_ms + 1.0),
}


def _batch(run: Run, **changes: np.ndarray) -> Run:
    return replace(run, batches=(Batches(**{**vars(run.batches[0]), **changes}), *run.batches[1:]))


def _visit(run: Run, **changes: np.ndarray) -> Run:
    return replace(run, visits=(Visits(**{**vars(run.visits[0]), **changes}), *run.visits[1:]))


@pytest.mark.parametrize("law", BREAKS)
def test_a_broken_law_is_noticed(law: str) -> None:
    """A check that cannot fail proves nothing: each law is broken by hand once."""
    table = np.array([0.0, 8.0, 9.0, 10.0])
    pipeline = Pipeline((Stage("a", (Edge(SOURCE),), 3, 2, Service(table), Greedy()),))
    arrivals = np.cumsum(np.random.default_rng(1).integers(1, 4, 60)).astype(float)
    run = simulate(pipeline, arrivals)
    check_run(pipeline, run, SLO_MS)
    with pytest.raises(CheckFailed, match=law):
        check_run(pipeline, BREAKS[law](run), SLO_MS)


def relation(count: int, first: int, **world: bool) -> pytest.MarkDecorator:
    """Run a relation on `count` pipelines."""
    pipelines = [random_pipeline(seed, **world) for seed in range(first, first + count)]  # type: ignore[arg-type]
    return pytest.mark.parametrize("pipelines", [pipelines], ids=[f"{count} pipelines"])


Pipelines = list[tuple[Pipeline, np.ndarray]]


@relation(WORLDS, 3000, simple=True)
def test_shifting_an_integer_clock_shifts_everything(pipelines: Pipelines) -> None:
    for pipeline, arrivals in pipelines:
        whole = np.round(arrivals)
        tables = tuple(
            replace(stage, service=Service(np.ceil(stage.service.table_ms))) for stage in pipeline.stages
        )
        moved = simulate(Pipeline(tables, pipeline.seed), whole + 4096.0)
        assert np.array_equal(
            moved.finish_ms, simulate(Pipeline(tables, pipeline.seed), whole).finish_ms + 4096.0
        )


@relation(WORLDS, 3100)
def test_a_power_of_two_scales_exactly(pipelines: Pipelines) -> None:
    for pipeline, arrivals in pipelines:
        scaled = simulate(
            Pipeline(tuple(_slower(s, 4.0) for s in pipeline.stages), pipeline.seed), arrivals * 4.0
        )
        assert np.array_equal(scaled.finish_ms, simulate(pipeline, arrivals).finish_ms * 4.0)


@relation(WORLDS, 3200)
def test_the_order_of_independent_stages_is_nothing(pipelines: Pipelines) -> None:
    for pipeline, arrivals in pipelines:
        order = _other_order(pipeline)
        new = {old: number for number, old in enumerate(order)} | {SOURCE: SOURCE}
        stages = tuple(
            replace(
                pipeline.stages[old],
                edges=tuple(replace(edge, parent=new[edge.parent]) for edge in pipeline.stages[old].edges),
            )
            for old in order
        )
        before, after = simulate(pipeline, arrivals), simulate(Pipeline(stages, pipeline.seed), arrivals)
        assert np.array_equal(before.finish_ms, after.finish_ms)
        for number, old in enumerate(order):
            assert np.array_equal(before.visits[old].start_ms, after.visits[number].start_ms, equal_nan=True)


@relation(WORLDS, 3300)
def test_a_stage_off_the_path_changes_no_other(pipelines: Pipelines) -> None:
    for pipeline, arrivals in pipelines:
        extra = Stage("extra", (Edge(SOURCE),), 1, 1, Service(np.array([0.0, 1.0])), Greedy())
        before = simulate(pipeline, arrivals)
        after = simulate(Pipeline((*pipeline.stages, extra), pipeline.seed), arrivals)
        for a, b in zip(before.visits, after.visits):
            assert np.array_equal(a.end_ms, b.end_ms, equal_nan=True)


@relation(50, 3400)
def test_two_pipelines_side_by_side_do_not_meet(pipelines: Pipelines) -> None:
    for pipeline, arrivals in pipelines:
        count = len(pipeline.stages)
        twins = tuple(
            replace(
                stage,
                name=stage.name + "'",
                edges=tuple(
                    replace(edge, parent=edge.parent + count if edge.parent != SOURCE else SOURCE)
                    for edge in stage.edges
                ),
            )
            for stage in pipeline.stages
        )
        both = simulate(Pipeline((*pipeline.stages, *twins), pipeline.seed), arrivals)
        alone = simulate(pipeline, arrivals)
        assert np.array_equal(both.finish_ms, alone.finish_ms)
        assert both.tie_count == 2 * alone.tie_count


@relation(WORLDS, 3500)
def test_a_batch_limit_never_reached_is_nothing(pipelines: Pipelines) -> None:
    for pipeline, arrivals in pipelines:
        before = simulate(pipeline, arrivals)
        stages = []
        for stage, batches in zip(pipeline.stages, before.batches):
            largest = int(batches.size.max(initial=1))
            if largest < stage.max_batch and not isinstance(stage.batching, Delay):
                stage = replace(stage, max_batch=largest + 1)
            stages.append(stage)
        assert np.array_equal(
            simulate(Pipeline(tuple(stages), pipeline.seed), arrivals).finish_ms, before.finish_ms
        )


@relation(WORLDS, 3600, simple=True)
def test_replicas_beyond_the_busiest_moment_are_nothing(pipelines: Pipelines) -> None:
    for pipeline, arrivals in pipelines:
        rich = Pipeline(tuple(replace(s, replicas=100) for s in pipeline.stages), pipeline.seed)
        before = simulate(rich, arrivals)
        most = [int(batches.replica.max(initial=0)) + 1 for batches in before.batches]
        enough = tuple(replace(s, replicas=count) for s, count in zip(pipeline.stages, most))
        assert np.array_equal(simulate(Pipeline(enough, pipeline.seed), arrivals).finish_ms, before.finish_ms)


@relation(50, 3700)
def test_a_looser_objective_is_missed_no_more(pipelines: Pipelines) -> None:
    for pipeline, arrivals in pipelines:
        misses = [
            simulate_stagewise(pipeline, arrivals, slo, record="counts").misses
            for slo in (0.0, 5.0, 20.0, 80.0)
        ]
        assert misses == sorted(misses, reverse=True)


@relation(WORLDS, 3800)
def test_share_one_is_always_and_share_zero_never(pipelines: Pipelines) -> None:
    for pipeline, arrivals in pipelines:
        plain = tuple(replace(s, edges=tuple(Edge(e.parent) for e in s.edges)) for s in pipeline.stages)
        one = tuple(
            replace(s, edges=tuple(Edge(e.parent, share=1.0, number=i) for i, e in enumerate(s.edges)))
            for s in pipeline.stages
        )
        always = simulate(Pipeline(plain, pipeline.seed), arrivals)
        assert np.array_equal(simulate(Pipeline(one, pipeline.seed), arrivals).finish_ms, always.finish_ms)
        never = Stage(
            "never", (Edge(SOURCE, share=0.0),), 1, 1, Service(np.array([0.0, 5.0])), Timeout(delay_ms=1.0)
        )
        with_never = simulate(Pipeline((*plain, never), pipeline.seed), arrivals)
        assert np.array_equal(with_never.finish_ms, always.finish_ms)
        assert not with_never.visits[-1].batch.any()


def test_more_replicas_may_hurt() -> None:
    """No monotonicity: somewhere among the pipelines one more replica makes some query later, so nothing may prune by it."""
    worse = 0
    for seed in range(cases(40, 200)):
        pipeline, arrivals = random_pipeline(seed, simple=True)
        more = (replace(pipeline.stages[0], replicas=pipeline.stages[0].replicas + 1), *pipeline.stages[1:])
        before, after = simulate(pipeline, arrivals), simulate(Pipeline(more, pipeline.seed), arrivals)
        worse += bool((after.finish_ms > before.finish_ms).any())
    assert worse > 0


def _slower(stage: Stage, factor: float) -> Stage:
    service = stage.service
    batching = stage.batching
    if isinstance(batching, (Timeout, Delay)):
        batching = type(batching)(delay_ms=batching.delay_ms * factor)
    return replace(
        stage,
        service=replace(
            service,
            table_ms=service.table_ms * factor,
            measured_ms=tuple(values * factor for values in service.measured_ms),
        ),
        batching=batching,
        capacity=tuple((at * factor, count) for at, count in stage.capacity),
    )


def _other_order(pipeline: Pipeline) -> list[int]:
    """Another topological order: always the last stage that is ready."""
    order: list[int] = []
    while len(order) < len(pipeline.stages):
        ready = [
            s
            for s, stage in enumerate(pipeline.stages)
            if s not in order and all(e.parent == SOURCE or e.parent in order for e in stage.edges)
        ]
        order.append(ready[-1])
    return order
