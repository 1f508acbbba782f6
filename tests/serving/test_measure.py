"""Pipelines run for real: the laws of what is observed, predictions beside it, and a whole measurement on this machine.

Machines are noisy: what is asserted of times is loose, or is what the measurement itself says of its disturbance.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import forerun
import forerun.report
from forerun.cli.main import run as command_line
from forerun.domains.serving.inputs.pipeline import Edge, Pipeline, Service, Stage
from forerun.domains.serving.inputs.routing import taken_edges
from forerun.domains.serving.policies.delay import Delay
from forerun.domains.serving.policies.greedy import Greedy
from forerun.domains.serving.policies.timeout import Timeout
from forerun.domains.serving.policy.batching import Batching
from forerun.domains.serving.scenario import Scenario
from forerun.errors import StoreError, UsageError
from forerun.measure.serving.fidelity import capacity_rps, judged
from forerun.measure.serving.profiling import Measured, profiled, sizes_to_measure
from forerun.measure.serving.study import Request, builtin, measure
from forerun.measure.serving.testbed import Observed, Testbed
from forerun.report.stored import open_stored
from forerun.scenarios import from_data

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
        return testbed.run(due)


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
    from dataclasses import replace

    pipeline = fork_and_join()
    stages = tuple(
        replace(s, service=Service(s.service.table_ms * (0.5 if s.name == "left" else 1.0)))
        for s in pipeline.stages
    )
    found = judged(observed, replace(pipeline, stages=stages), 0.5, 1, 80.0, 1)
    assert any(mark.startswith("left +") for mark in found.marks)


def test_profiles_hold_every_size_and_interpolate() -> None:
    pipeline = Pipeline((stage("one", Edge(-1)), stage("two", Edge(0))))
    with Testbed(pipeline, ["", ""]) as testbed:
        found = profiled(testbed, ["box", "box"], ["a", "b"], 5, 1, lambda _: None)
    for each in found:
        assert set(each.in_place_ms) == set(each.alone_ms) == {1, 2, 3}
        assert all(len(values) >= 5 for values in each.in_place_ms.values())
        for row in each.rows():
            assert row["mean_ms"] >= BASE_MS + 4 * row["batch"]
            assert row["throughput_qps"] == pytest.approx(row["batch"] * 1e3 / row["mean_ms"])
    assert sizes_to_measure(8) == tuple(range(1, 9))
    assert sizes_to_measure(20) == (1, 2, 4, 8, 16, 20)
    flat = {1: np.array([10.0, 12.0]), 4: np.array([40.0])}
    service = Measured("a", "box", flat, flat).service(4, key=1)
    assert service.table_ms.tolist() == [
        0.0,
        11.0,
        pytest.approx(11 + 29 / 3),
        pytest.approx(11 + 58 / 3),
        40.0,
    ]
    assert service.measured_ms[2].mean() == pytest.approx(service.table_ms[2])
    assert service.measured_ms[3].tolist() == [pytest.approx(service.table_ms[3])]


def test_capacity_counts_replicas_shares_and_the_best_batch() -> None:
    pipeline = fork_and_join()
    left, right, both = 3e3 / 24, 2 * 3e3 / 24 / 0.6, 4e3 / 28
    assert capacity_rps(pipeline) == pytest.approx(min(left, right, both))


def test_a_whole_measurement_of_models_writes_what_the_domain_reads(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """With a model of one's own beside a built-in one: profile, scenario and measurement; then simulated, planned, drawn."""
    (tmp_path / "mine.py").write_text(
        "import hashlib\n\n\ndef model():\n    print('noise on stdout')\n    block = bytes(2**20)\n"
        "    return lambda size: [hashlib.sha256(block).digest() for _ in range(size)]\n"
    )
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    out = tmp_path / "out"
    asked = ["measure", "serving", "--model", "hashing", "--model", "mine:model", "--max-batch", "2"]
    code = command_line(
        [*asked, "--samples", "6", "--check", "--loads", "0.4", "--seconds", "1.5", "-o", str(out), "-q"]
    )
    assert code == 0
    shown = capsys.readouterr().out
    assert "in place" in shown and "host:" in shown
    found = json.loads((out / "measured.json").read_text())
    assert found["format"] == "forerun.measurement/1"
    assert {row["model"] for row in found["batch_times"]} == {"hashing", "mine-model"}
    assert found["fidelity"][0]["queries"] >= 20
    assert (out / "profile.csv").read_text().startswith("# measured in place")
    scenario = forerun.load(out / "scenario.json")
    assert scenario.service == "mean"
    result = forerun.simulate(scenario)
    assert result.summary["latency_p50_ms"] > 0
    assert command_line(["plan", str(out / "scenario.json"), "--quiet"]) == 0
    assert command_line(["report", str(out / "measured.json"), "-o", str(out / "page.html"), "-q"]) == 0
    assert "measured and predicted" in (out / "page.html").read_text()


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--model", "matrx"], "no model named 'matrx'"),
        (["--model", "no_such_module:model"], "cannot be loaded"),
        (["--model", "hashing", "--model", "hashing"], "contains every model once"),
        (["--loads", "0.5,x"], "write numbers between commas"),
        (["--loads", "0"], "loads lie above 0"),
        (["--set", "seed=3"], "none was given"),
        (["absent.yaml"], "no such file"),
    ],
)
def test_bad_requests_are_one_line(
    words: list[str],
    message: str,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
) -> None:
    monkeypatch.chdir(tmp_path)
    assert command_line(["measure", "serving", *words, "--check"]) == 2
    told = capsys.readouterr().err
    assert message in told and "Traceback" not in told


def test_what_cannot_be_run_for_real_is_refused() -> None:
    data = builtin(["hashing", "matrix"], 2)
    scenario = from_data(data)
    with pytest.raises(UsageError, match="what does stage 'matrix' compute"):
        measure(Request(scenario, {"hashing": "hashing"}), None, lambda _: None)
    with pytest.raises(UsageError, match="no stage named 'hasing'"):
        measure(Request(scenario, {"hasing": "hashing"}), None, lambda _: None)
    tuned = from_data(data | {"tuner": {"name": "coarse"}})
    with pytest.raises(UsageError, match="keeps its replicas"):
        measure(Request(tuned), None, lambda _: None)


def test_a_model_that_breaks_is_reported_and_leaves_no_process(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "breaks.py").write_text(
        "def at_once():\n    raise RuntimeError('no weights')\n\n\n"
        "def later():\n    def serve(size):\n        if size > 1:\n            raise RuntimeError('too many')\n"
        "    return serve\n"
    )
    monkeypatch.chdir(tmp_path)
    pipeline = Pipeline((stage("only", Edge(-1)),))
    with (
        pytest.raises(UsageError, match="its model breaks:at_once did not start"),
        Testbed(pipeline, ["breaks:at_once"]),
    ):
        pass
    testbed = Testbed(pipeline, ["breaks:later"])
    with testbed, pytest.raises(StoreError, match="a replica of stage only died"):
        testbed.run(np.zeros(10))
    assert testbed.replicas == []


class TestWhatIsKeptWhenStopped:
    """What was measured before Ctrl-C is written down; a scenario only if it can be simulated."""

    @staticmethod
    def stopped(
        folder: Path,
        at: str,
        *,
        loads: tuple[float, ...] = (),
        models: tuple[str, ...] = ("matrix", "hashing"),
    ) -> tuple[dict[str, object], list[str]]:
        """A measurement that is interrupted when it says something that begins so."""
        said: list[str] = []

        def tell(message: str) -> None:
            said.append(message)
            if message.startswith(at):
                raise KeyboardInterrupt

        scenario = from_data(builtin(models, 2))
        assert isinstance(scenario, Scenario)
        asked = Request(scenario, dict(zip(models, models)), samples=6, loads=loads, seconds=1.0)
        return measure(asked, folder, tell), said

    def test_before_anything_is_measured_nothing_is_kept(self, tmp_path: Path) -> None:
        with pytest.raises(KeyboardInterrupt):
            self.stopped(tmp_path / "m", "matrix alone")
        assert not (tmp_path / "m").exists()

    def test_the_first_stage_alone(self, tmp_path: Path) -> None:
        found, said = self.stopped(tmp_path / "m", "hashing alone")
        assert "batches alone and as many together: about" in said[1], "an estimate comes first"
        assert said[2].startswith("matrix alone (1 of 3), about ") and said[2].endswith(" left")
        assert found["stopped"] == "stopped: of 4 batch sizes 2 were measured alone and 0 of them in place"
        assert found["answer"] == "0 models measured in place, 0 batch sizes"
        text = (tmp_path / "m" / "profile.csv").read_text()
        assert "stopped: of 4 batch sizes" in text and "matrix,here,1," in text and "hashing" not in text
        assert not (tmp_path / "m" / "scenario.json").exists()
        kept = json.loads((tmp_path / "m" / "measured.json").read_text())
        assert {row["in_place_over_alone"] for row in kept["batch_times"]} == {None}
        forerun.report.write_page([open_stored(tmp_path / "m" / "measured.json")], tmp_path / "page.html")

    def test_all_stages_alone_make_a_scenario(self, tmp_path: Path) -> None:
        found, _ = self.stopped(tmp_path / "m", "all stages at once")
        assert "4 were measured alone and 0 of them in place" in str(found["stopped"])
        result = forerun.simulate(forerun.load(tmp_path / "m" / "scenario.json", ["trace.queries=200"]))
        assert result.summary["queries"] == 200

    def test_runs_that_ended(self, tmp_path: Path) -> None:
        found, said = self.stopped(tmp_path / "m", "load 0.3", loads=(0.2, 0.3))
        assert found["stopped"] == "stopped after 1 of 2 runs" and len(found["fidelity"]) == 1  # type: ignore[arg-type]
        assert any(line.startswith("load 0.2") and "(1 of 2), about" in line for line in said)
        assert (tmp_path / "m" / "scenario.json").exists()

    @pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
    def test_a_process_that_is_stopped(self, tmp_path: Path, number: int) -> None:
        command = [
            sys.executable,
            "-m",
            "forerun",
            "measure",
            "serving",
            "--model",
            "matrix",
            "--model",
            "hashing",
        ]
        asked = [*command, "--max-batch", "2", "--samples", "1000", "-o", str(tmp_path / "m")]
        process = subprocess.Popen(
            asked, stderr=subprocess.PIPE, stdout=subprocess.PIPE, start_new_session=True
        )
        assert process.stderr is not None
        while not process.stderr.readline().startswith(b"hashing alone"):
            assert process.poll() is None
        # Ctrl-C reaches the whole group of a terminal, a request to end the process alone.
        (os.killpg if number == signal.SIGINT else os.kill)(process.pid, number)
        _, err = process.communicate(timeout=60)
        assert process.returncode == 130 and b"Traceback" not in err, err.decode()
        assert b"interrupted; what was measured is saved to" in err
        assert "matrix,here,1," in (tmp_path / "m" / "profile.csv").read_text()
