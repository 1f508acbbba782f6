"""Pipelines run for real: the laws of what is observed, and predictions beside it.

Machines are noisy: what is asserted of times is loose, or is what the measurement itself says of its disturbance.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import forerun
from forerun.core.errors import StoreError
from forerun.core.scenarios import from_data
from forerun.serving.inputs.pipeline import Edge, Pipeline, Service, Stage
from forerun.serving.inputs.routing import taken_edges
from forerun.serving.measure.study import builtin
from forerun.serving.measure.testbed import Testbed
from forerun.serving.policies.delay import Delay
from forerun.serving.policies.greedy import Greedy
from forerun.serving.policies.timeout import Timeout
from forerun.serving.policy.batching import Batching
from validation.serving.fidelity import judged
from validation.serving.loop import Observed, run
from validation.serving.study import Request, measure

#: a sleep of these lasts longer by far less than itself, even on a busy machine
BASE_MS = 12.0


def stage(
    name: str, *edges: Edge, most: int = 3, replicas: int = 1, batching: Batching | None = None
) -> Stage:
    """Batches of n take 12 + 4 n ms."""
    table = np.array([0.0, *(BASE_MS + 4.0 * n for n in range(1, most + 1))])
    return Stage(name, edges, most, replicas, Service(table), batching or Greedy())


def fork_and_join() -> Pipeline:
    """Two branches, one of them conditional with two replicas, that meet again."""
    return Pipeline(
        (
            stage("left", Edge(-1), batching=Timeout(delay_ms=6.0)),
            stage("right", Edge(-1, share=0.6, number=3), replicas=2),
            stage("both", Edge(0), Edge(1), most=4, batching=Delay(delay_ms=3.0)),
        ),
        seed=5,
    )


@pytest.fixture(scope="module")
def observed() -> Observed:
    due = np.cumsum(np.random.default_rng(1).exponential(16.0, 120))
    with Testbed(fork_and_join(), ["", "", ""]) as testbed:
        return run(testbed, due)


class TestWhatIsObserved:
    def test_queries_go_where_they_are_routed_and_in_order(self, observed: Observed) -> None:
        pipeline, run = fork_and_join(), observed.run
        columns = iter(taken_edges(pipeline, 120))
        for placed, visits in zip(pipeline.stages, run.visits):
            came = np.logical_or.reduce([next(columns) for _ in placed.edges])
            assert np.array_equal(came, visits.batch > 0)
            assert (visits.start_ms[came] >= visits.enqueue_ms[came]).all()
            assert visits.batch[came].max() <= placed.max_batch
            assert visits.replica[came].max() < placed.replicas
            order = np.argsort(visits.enqueue_ms[came], kind="stable")
            assert (np.diff(visits.start_ms[came][order]) >= 0).all()
        last = np.fmax.reduce([visits.end_ms for visits in run.visits])
        assert np.array_equal(run.finish_ms, last)
        entered = np.fmax(run.visits[0].end_ms, run.visits[1].end_ms)
        assert np.array_equal(run.visits[2].enqueue_ms, entered)
        assert run.arrival_ms[0] == 0.0 and (np.diff(run.arrival_ms) >= 0).all()

    def test_batches_are_the_visits_and_never_shorter_than_their_time(self, observed: Observed) -> None:
        for placed, visits, batches in zip(fork_and_join().stages, observed.run.visits, observed.run.batches):
            assert int(batches.size.sum()) == int((visits.batch > 0).sum())
            took = batches.end_ms - batches.start_ms
            assert (took >= placed.service.table_ms[batches.size] - 0.01).all()
            for replica in range(placed.replicas):
                mine = batches.replica == replica
                assert (batches.start_ms[mine][1:] >= batches.end_ms[mine][:-1]).all()

    def test_the_batching_policies_decide(self, observed: Observed) -> None:
        """A timeout holds a batch that is not full; a delay lets no query start at once."""
        left, both = observed.run.visits[0], observed.run.visits[2]
        waited = left.start_ms - left.enqueue_ms
        assert waited[left.batch < 3].max() >= 6.0 - 0.01
        first = np.unique(both.start_ms, return_index=True)[1]
        assert (both.start_ms - both.enqueue_ms)[first].max() >= 3.0 - 0.01

    def test_the_simulator_is_near_or_the_run_is_marked(self, observed: Observed) -> None:
        pipeline = fork_and_join()
        found = judged(observed, pipeline, 0.5, 1, 80.0, 1)
        assert found.marks or abs(found.error("p50")) < 0.3
        late = float(np.quantile(observed.lag_ms, 0.99))
        assert (late > 1.0) == any("late" in mark for mark in found.marks)
        for name, served in zip(pipeline.names, observed.served):
            drift = found.drift[name]
            wanted = pipeline.stages[pipeline.names.index(name)].service.table_ms[served[:, 0].astype(int)]
            assert drift == pytest.approx(served[:, 1].sum() / wanted.sum() - 1)
            assert (abs(drift) > 0.1) == any(mark.startswith(name) for mark in found.marks)
        low, high = found.interval["p50"]
        assert low <= high


def test_a_wrong_parameter_of_the_model_is_marked(observed: Observed) -> None:
    """As a profile would be that was taken elsewhere: batches that took half as long."""
    pipeline = fork_and_join()
    stages = tuple(
        replace(s, service=Service(s.service.table_ms * (0.5 if s.name == "left" else 1.0)))
        for s in pipeline.stages
    )
    found = judged(observed, replace(pipeline, stages=stages), 0.5, 1, 80.0, 1)
    assert any(mark.startswith("left +") for mark in found.marks)


def test_a_model_that_breaks_under_load_is_reported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "breaks.py").write_text(
        "def later():\n    def serve(size):\n        if size > 1:\n            raise RuntimeError('too many')\n"
        "    return serve\n"
    )
    monkeypatch.chdir(tmp_path)
    testbed = Testbed(Pipeline((stage("only", Edge(-1)),)), ["breaks:later"])
    with testbed, pytest.raises(StoreError, match="a replica of stage only died"):
        run(testbed, np.zeros(10))
    assert testbed.replicas == []


def test_the_demonstration_is_predicted() -> None:
    """Replicas that sleep: of runs that nothing disturbed, P50 is predicted within 5 %."""
    demo = Path(forerun.__file__).parent / "serving" / "demo.yaml"
    found = measure(Request(forerun.load(demo), loads=(0.3, 0.7), seconds=5.0), lambda _: None)
    assert len(found["fidelity"]) == found["runs"] == 2
    assert found.get("p50_error_worst", 0.0) <= 0.05


def test_models_are_profiled_and_run() -> None:
    scenario = from_data(builtin(("hashing", "matrix"), 2))
    models = {"hashing": "hashing", "matrix": "matrix"}
    found = measure(Request(scenario, models, samples=6, loads=(0.4,), seconds=1.5), lambda _: None)
    assert {row["model"] for row in found["batch_times"]} == set(models)
    assert found["fidelity"][0]["queries"] >= 20
