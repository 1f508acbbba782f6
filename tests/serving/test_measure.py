"""Models measured for real: their profiles, and a whole measurement on this machine.

Machines are noisy: what is asserted of times is loose.
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
import forerun.core.report
from forerun.core.cli.main import run as command_line
from forerun.core.errors import StoreError, UsageError
from forerun.core.report.stored import open_stored
from forerun.core.scenarios import from_data
from forerun.serving.inputs.pipeline import Edge, Pipeline, Service, Stage
from forerun.serving.measure.profiling import Measured, profiled, sizes_to_measure
from forerun.serving.measure.study import Request, builtin, capacity_rps, measure
from forerun.serving.measure.testbed import Testbed
from forerun.serving.policies.greedy import Greedy
from forerun.serving.scenario import Scenario

from ..conftest import cases

#: a sleep of these lasts longer by far less than itself, even on a busy machine
BASE_MS = 12.0


def stage(name: str, *edges: Edge, most: int = 3, replicas: int = 1) -> Stage:
    """Batches of n take 12 + 4 n ms."""
    table = np.array([0.0, *(BASE_MS + 4.0 * n for n in range(1, most + 1))])
    return Stage(name, edges, most, replicas, Service(table), Greedy())


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
    """Two branches, one of them conditional with two replicas, that meet again."""
    pipeline = Pipeline(
        (
            stage("left", Edge(-1)),
            stage("right", Edge(-1, share=0.6, number=3), replicas=2),
            stage("both", Edge(0), Edge(1), most=4),
        )
    )
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
    assert command_line([*asked, "--samples", "6", "-o", str(out), "-q"]) == 0
    shown = capsys.readouterr().out
    assert "in place" in shown and "host:" in shown
    found = json.loads((out / "measured.json").read_text())
    assert found["format"] == "forerun.measurement/1"
    assert {row["model"] for row in found["batch_times"]} == {"hashing", "mine-model"}
    assert (out / "profile.csv").read_text().startswith("# measured in place")
    scenario = forerun.load(out / "scenario.json")
    assert scenario.service == "mean"
    result = forerun.simulate(scenario)
    assert result.summary["latency_p50_ms"] > 0
    assert command_line(["plan", str(out / "scenario.json"), "--quiet"]) == 0
    assert command_line(["report", str(out / "measured.json"), "-o", str(out / "page.html"), "-q"]) == 0
    assert "What a batch takes" in (out / "page.html").read_text()


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--model", "matrx"], "no model named 'matrx'"),
        (["--model", "no_such_module:model"], "cannot be loaded"),
        (["--model", "hashing", "--model", "hashing"], "contains every model once"),
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
    assert command_line(["measure", "serving", *words]) == 2
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
        measure(Request(tuned, {name: name for name in ("hashing", "matrix")}), None, lambda _: None)
    with pytest.raises(UsageError, match=r"stage 'hashing' compute.*\n.*stage 'matrix' compute"):
        measure(Request(scenario, {}), None, lambda _: None)


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
        testbed.exercise([[1, 2, 2]], [1.0])
    assert testbed.replicas == []


class TestWhatIsKeptWhenStopped:
    """What was measured before Ctrl-C is written down; a scenario only if it can be simulated."""

    @staticmethod
    def stopped(folder: Path, at: str) -> tuple[dict[str, object], list[str]]:
        """A measurement that is interrupted when it says something that begins so."""
        said: list[str] = []

        def tell(message: str) -> None:
            said.append(message)
            if message.startswith(at):
                raise KeyboardInterrupt

        models = ("matrix", "hashing")
        scenario = from_data(builtin(models, 2))
        assert isinstance(scenario, Scenario)
        asked = Request(scenario, dict(zip(models, models)), samples=6)
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
        forerun.core.report.write_page(
            [open_stored(tmp_path / "m" / "measured.json")], tmp_path / "page.html"
        )

    def test_all_stages_alone_make_a_scenario(self, tmp_path: Path) -> None:
        found, _ = self.stopped(tmp_path / "m", "all stages at once")
        assert "4 were measured alone and 0 of them in place" in str(found["stopped"])
        result = forerun.simulate(forerun.load(tmp_path / "m" / "scenario.json", ["trace.queries=200"]))
        assert result.summary["queries"] == 200

    def test_rows_of_an_older_measurement_are_shown(self, tmp_path: Path) -> None:
        """Older files contain runs at several loads beside their prediction."""
        rows = [{"load": 0.3, "p50_measured_ms": 5.0, "p50_predicted_ms": 5.1, "marks": ""}]
        content = {"format": "forerun.measurement/1", "domain": "serving", "forerun": "0", "fidelity": rows}
        (tmp_path / "old.json").write_text(json.dumps(content))
        stored = open_stored(tmp_path / "old.json")
        assert stored.tables["fidelity"] == rows
        forerun.core.report.write_page([stored], tmp_path / "page.html")

    @pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM][: cases(1, 2)])
    def test_a_process_that_is_stopped(self, tmp_path: Path, number: int) -> None:
        # The first is measured at once, the second for minutes, in which the process is stopped.
        (tmp_path / "of.py").write_text(
            "import time\n\n\ndef quick():\n    return lambda size: time.sleep(0.001)\n\n\n"
            "def slow():\n    return lambda size: time.sleep(0.3)\n"
        )
        command = [sys.executable, "-m", "forerun", "measure", "serving", "--max-batch", "2"]
        asked = [*command, "--model", "of:quick", "--model", "of:slow", "--samples", "200", "-o", "m"]
        process = subprocess.Popen(
            asked, stderr=subprocess.PIPE, stdout=subprocess.PIPE, start_new_session=True, cwd=tmp_path
        )
        assert process.stderr is not None
        while not process.stderr.readline().startswith(b"of-slow alone"):
            assert process.poll() is None
        # Ctrl-C reaches the whole group of a terminal, a request to end the process alone.
        (os.killpg if number == signal.SIGINT else os.kill)(process.pid, number)
        _, err = process.communicate(timeout=60)
        assert process.returncode == 130 and b"Traceback" not in err, err.decode()
        assert b"interrupted; what was measured is saved to" in err
        assert "of-quick,here,1," in (tmp_path / "m" / "profile.csv").read_text()
