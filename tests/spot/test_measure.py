"""A real training on processes that are killed: its profile, and that nothing of it is lost but time."""

from __future__ import annotations

import importlib.util
import json
import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from forerun.core.cli.main import run
from forerun.core.scenarios import loads
from forerun.spot.measure import profile as profiles
from forerun.spot.measure.fleet import Fleet, Work
from forerun.spot.measure.profile import train
from forerun.spot.measure.trainees import KINDS, trainee
from forerun.spot.scenario.job import JobSpec

SMALL = Work(kind="numpy", parameters=2_000, batch=16, max_pipelines=1, bytes_per_s=200_000)


def kinds() -> list[str]:
    return [kind for kind in KINDS if kind == "numpy" or importlib.util.find_spec("torch")]


@pytest.mark.parametrize("kind", kinds())
def test_shares_make_the_whole_and_a_copy_makes_the_same(kind: str, tmp_path: Path) -> None:
    """Gradients of two ranks sum to that of one; from a written copy training goes on as from the model itself."""
    model, other = trainee(kind, 5_000, 10), trainee(kind, 5_000, 10)
    for step in range(3):
        loss, whole = model.gradient(step, 0, 1)
        parts = [model.gradient(step, rank, 2) for rank in (0, 1)]
        gradient = np.frombuffer(whole, dtype=np.float32)
        halves = sum(np.frombuffer(part, dtype=np.float32) for _, part in parts)
        assert loss == pytest.approx(sum(part for part, _ in parts), rel=1e-5)
        assert np.allclose(gradient, halves, atol=1e-6)
        model.apply(gradient)
    copy = model.snapshot()
    model.apply(gradient)  # the copy does not follow the model
    model.write(copy, tmp_path / "state", 0.0)
    other.load(tmp_path / "state")
    other.apply(gradient)
    assert model.gradient(9, 0, 1) == other.gradient(9, 0, 1)
    assert not list(tmp_path.glob("*.partial"))


def test_it_learns() -> None:
    model = trainee("numpy", 5_000, 64)
    losses = []
    for step in range(150):
        loss, gradient = model.gradient(step, 0, 1)
        model.apply(np.frombuffer(gradient, dtype=np.float32))
        losses.append(loss)
    assert np.mean(losses[-20:]) < 0.5 * np.mean(losses[:20])


def test_killed_processes_cost_time_and_nothing_else(tmp_path: Path) -> None:
    """Steps done again after a kill are the same steps to the last digit; no process stays behind."""
    with Fleet(SMALL, tmp_path) as fleet:
        for name in ("a", "b"):
            fleet.add(name)
        fleet.await_ready()
        fleet.start()
        for _ in range(2):
            train(fleet, 8, until_saved=True)
            fleet.settle(lost=fleet.remove(fleet.active[0]))
            fleet.add(f"node{fleet.shape}")
            fleet.await_ready()
        train(fleet, 8, until_saved=False)
        log = fleet.finish(fleet.now_s)
        pids = [node.process.pid for node in fleet.nodes.values()]
    for pid in pids:
        with pytest.raises(ProcessLookupError):
            os.kill(pid, 0)
    by_step: dict[int, set[float]] = {}
    for segment in log.segments:
        for step in segment.steps:
            by_step.setdefault(step.number, set()).add(step.loss)
    assert all(len(losses) == 1 for losses in by_step.values())
    assert sorted(by_step) == list(range(max(by_step) + 1))
    first, *others = log.segments
    assert first.cause == "loss" and others and others[0].first_step > 0
    again = [n for n in by_step if sum(n in {s.number for s in seg.steps} for seg in log.segments) > 1]
    assert again, "what was not durable is done again"


def test_the_verb_writes_a_job(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A profile that a scenario takes."""
    out = tmp_path / "job.yaml"
    words = "measure checkpoint --model numpy --set parameters=2000 --set pipelines=1 --set steps=5 --set restarts=1"
    assert run([*words.split(), "--json", "-o", str(out)]) == 0
    assert json.loads(capsys.readouterr().out)["job"]["step_s"]["1"] > 0
    text = (
        out.read_text()
        + "domain: spot\nhorizon: 1h\nfleet: {name: poisson, removals_per_min: 0, adds_per_min: 0}\n"
    )
    job = loads(text).job
    assert isinstance(job, JobSpec) and job.reconfig_s > job.load_s and job.step_s[1] > 0


def test_bad_calls_are_refused(capsys: pytest.CaptureFixture[str]) -> None:
    """By name, before any process is started."""
    cases = [
        (["--model", "numpy", "--set", "batch=1"], "cannot be shared"),
        (["--model", "numpy", "-o", "profile.txt"], ".yaml"),
        (["--model", "numpy", "--set", "write_rate=fast"], "fast"),
    ]
    if importlib.util.find_spec("torch") is None:
        cases.append((["--model", "torch"], "pip install 'forerun[torch]'"))
    for arguments, said in cases:
        code = run(["measure", "checkpoint", *arguments])
        told = capsys.readouterr()
        assert code == 2 and said in told.err and "Traceback" not in told.err, (arguments, told.err)


def test_what_was_measured_before_an_interrupt_is_a_job(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Numbers of processes that were through are kept; before the first there is nothing."""
    out = tmp_path / "job.yaml"
    words = "measure checkpoint --model numpy --set parameters=2000 --set pipelines=2 --set steps=5 --set restarts=1"
    with pytest.MonkeyPatch.context() as patch:
        began: list[int] = []
        calm = profiles.calm

        def interrupted(work: Any, folder: Path, size: int, *others: int) -> Any:
            began.append(size)
            if len(began) == 2:
                raise KeyboardInterrupt
            return calm(work, folder, size, *others)

        patch.setattr(profiles, "calm", interrupted)
        assert run([*words.split(), "-o", str(out)]) == 130
    told = capsys.readouterr()
    assert "training on 1 of 2 processes (1 of 2)" in told.err and "(2 of 2), about" in told.err
    assert (
        "interrupted: stopped: trained on 1 of 2 numbers of processes; what was measured is saved" in told.err
    )
    fleet = "domain: spot\nhorizon: 1h\nfleet: {name: poisson, removals_per_min: 0, adds_per_min: 0}\n"
    job = loads(out.read_text() + fleet).job
    assert job.max_pipelines == 1 and job.step_s[1] > 0
    assert "# stopped: trained on 1 of 2" in out.read_text()

    def at_once(*_: Any) -> Any:
        raise KeyboardInterrupt

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(profiles, "calm", at_once)
        assert run([*words.split(), "-o", str(tmp_path / "none.yaml")]) == 130
    assert not (tmp_path / "none.yaml").exists()
