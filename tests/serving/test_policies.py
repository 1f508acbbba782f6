"""What every registered batching policy keeps, and what each of them does in one small world."""

from __future__ import annotations

import copy
import pickle
from typing import Any

import msgspec
import numpy as np
import pytest

from forerun.core.errors import PolicyError
from forerun.core.rng import stream
from forerun.serving.domain import DOMAIN
from forerun.serving.engine.events import simulate_events
from forerun.serving.engine.stagewise import simulate_stagewise
from forerun.serving.inputs.pipeline import Edge, Pipeline, Service, Stage
from forerun.serving.policies.delay import Delay
from forerun.serving.policies.greedy import Greedy
from forerun.serving.policies.timeout import Timeout
from forerun.serving.policy.batching import (
    Batching,
    BatchingPolicy,
    Decision,
    QueueView,
    Start,
    Wait,
    Wake,
    batching_policies,
)
from forerun.serving.summary.invariants import check_run

REGISTERED = batching_policies().names()


def recipe(name: str, **given: float) -> Batching:
    """A policy by name; parameters without a default get 4 ms."""
    kind = batching_policies().get(name)
    required = {field.name: 4.0 for field in msgspec.structs.fields(kind) if field.required}
    return kind(**{**required, **given})


def one_stage(batching: Batching, replicas: int = 2, most: int = 4) -> Pipeline:
    """A stage on an integer clock."""
    table = np.array([0.0, *(5.0 + n for n in range(most))])
    return Pipeline((Stage("only", (Edge(-1),), most, replicas, Service(table), batching),))


class Alternating(Batching, frozen=True, kw_only=True, forbid_unknown_fields=True, tag="alternating"):
    """A policy from outside: starts at every second opportunity, otherwise asks again 1 ms later."""

    def build(self, rng: np.random.Generator) -> BatchingPolicy:
        return _Alternating()


class _Alternating:
    def __init__(self) -> None:
        self.asked = 0

    def decide(self, view: QueueView) -> Decision:
        if not view.queued:
            return Wait()
        self.asked += 1
        return Wait(view.now_ms + 1.0) if self.asked % 2 else Start()


class Misguided(Batching, frozen=True, kw_only=True, forbid_unknown_fields=True, tag="misguided"):
    """Decides what is impossible."""

    decision: str

    def build(self, rng: np.random.Generator) -> BatchingPolicy:
        return _Fixed({"start": Start(), "wake": Wake(0.0), "wait": Wait(), "nothing": None}[self.decision])


class _Fixed:
    def __init__(self, decision: Any) -> None:
        self.decision = decision

    def decide(self, view: QueueView) -> Any:
        return self.decision


def test_policies_are_discovered() -> None:
    assert set(REGISTERED) >= {"greedy", "timeout", "delay"}
    assert DOMAIN.policy_kinds["batching"].names() == REGISTERED


@pytest.mark.parametrize("name", REGISTERED)
class TestEveryPolicy:
    def test_serves_every_query_and_keeps_the_laws(self, name: str) -> None:
        rng = np.random.default_rng(5)
        for replicas, most in ((1, 1), (2, 4), (5, 8)):
            pipeline = one_stage(recipe(name), replicas, most)
            arrivals = np.cumsum(rng.integers(0, 6, 300)).astype(float)
            run = simulate_events(pipeline, arrivals, 30.0)
            check_run(pipeline, run, 30.0)
            assert (run.visits[0].batch > 0).all()

    def test_same_input_same_outcome_and_no_shared_state(self, name: str) -> None:
        given = recipe(name)
        arrivals = np.cumsum(np.random.default_rng(6).integers(0, 5, 200)).astype(float)
        first = simulate_events(one_stage(given), arrivals, 30.0)
        left, right = given.build(stream(0, "a")), given.build(stream(0, "a"))
        assert left is not right
        for now_ms in range(50):
            left.decide(QueueView(float(now_ms), 3, float(now_ms) - 1, 4, 1, 0))
        view = QueueView(60.0, 1, 59.0, 4, 2, 0)
        assert right.decide(view) == given.build(stream(0, "a")).decide(view)
        assert np.array_equal(first.finish_ms, simulate_events(one_stage(given), arrivals, 30.0).finish_ms)

    def test_does_not_change_its_view(self, name: str) -> None:
        view = QueueView(10.0, 3, 4.0, 4, 1, 0)
        before = copy.deepcopy(view)
        recipe(name).build(stream(0, "a")).decide(view)
        assert view == before

    def test_survives_files_and_pickling(self, name: str) -> None:
        given = recipe(name)
        assert pickle.loads(pickle.dumps(given)) == given
        assert msgspec.convert(msgspec.to_builtins(given), type(given)) == given

    def test_waits_for_nothing_on_an_empty_queue(self, name: str) -> None:
        decision = recipe(name).build(stream(0, "a")).decide(QueueView(10.0, 0, np.inf, 4, 2, 0))
        assert decision == Wait()

    def test_its_compiled_form_is_the_same_policy(self, name: str) -> None:
        if recipe(name).compiled() is None:
            pytest.skip("has no compiled form")
        arrivals = np.cumsum(np.random.default_rng(7).integers(0, 5, 300)).astype(float)
        for replicas in (1, 3):
            pipeline = one_stage(recipe(name), replicas)
            loop = simulate_events(pipeline, arrivals, 30.0)
            assert np.array_equal(loop.finish_ms, simulate_stagewise(pipeline, arrivals, 30.0).finish_ms)

    def test_names_its_source(self, name: str) -> None:
        about = batching_policies().get(name).__doc__ or ""
        assert len(about.split()) > 12


@pytest.mark.parametrize(
    ("batching", "starts", "sizes"),
    [
        (Greedy(), [0, 7, 14], [1, 2, 1]),
        (Timeout(delay_ms=3.0), [3, 10], [2, 2]),
        (Delay(delay_ms=1.0), [1, 9], [2, 2]),
    ],
)
def test_the_four_queries(batching: Batching, starts: list[float], sizes: list[int]) -> None:
    """One replica, batches of at most 2, 7 ms each; queries at 0, 1, 5 and 8 ms.

    Greedy takes the first alone, finds 1 and 5 at 7 ms, and 8 at 14. With patience the first waits until 3 ms for
    company (the batch of 0 and 1 is full at 1, see below), and so on: every policy answers differently.
    """
    service = Service(np.array([0.0, 7.0, 7.0]))
    pipeline = Pipeline((Stage("only", (Edge(-1),), 2, 1, service, batching),))
    arrivals = np.array([0.0, 1.0, 5.0, 8.0])
    if isinstance(batching, Timeout):
        starts = [1, 8]  # full at 1 ms; the next is full when the replica is free again
    run = simulate_events(pipeline, arrivals, 100.0)
    assert run.batches[0].start_ms.tolist() == starts
    assert run.batches[0].size.tolist() == sizes


def test_a_timeout_of_nothing_is_greedy() -> None:
    arrivals = np.cumsum(np.random.default_rng(8).integers(0, 4, 300)).astype(float)
    greedy = simulate_stagewise(one_stage(Greedy()), arrivals, 30.0)
    patient = simulate_stagewise(one_stage(Timeout(delay_ms=0.0)), arrivals, 30.0)
    assert np.array_equal(greedy.finish_ms, patient.finish_ms)


def test_a_policy_from_outside_runs_in_the_event_loop() -> None:
    pipeline = one_stage(Alternating(), replicas=1, most=1)
    run = simulate_events(pipeline, np.array([0.0, 20.0]), 30.0)
    check_run(pipeline, run, 30.0)
    assert run.batches[0].start_ms.tolist() == [1.0, 21.0]


@pytest.mark.parametrize(
    ("decision", "message"),
    [
        ("start", "starts a batch although no query is queued"),
        ("wake", r"wakes a replica after 0\.0 ms; more than 0 is possible"),
        ("wait", "leaves 2 queries in the queue for ever"),
        ("nothing", "answered None; Start, Wait or Wake is expected"),
    ],
)
def test_impossible_decisions_are_named(decision: str, message: str) -> None:
    with pytest.raises(PolicyError, match=message) as caught:
        simulate_events(one_stage(Misguided(decision=decision), replicas=2), np.array([0.0, 1.0]), 30.0)
    assert "stage 'only' at" in str(caught.value)
