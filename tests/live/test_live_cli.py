"""`forerun live` on real processes: a run that is killed and taken up, and what bad input says."""

from __future__ import annotations

import json
import shutil
import signal
import sqlite3
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from tests.live.commands import environment, forerun

from forerun.core.result.run import load_result

#: seconds after which something is taken to hang
PATIENCE_S = 300.0

MACHINE = """
domain: cluster
trace: {file: expected.csv}
machines: {nodes: [{name: box, count: 1, gpus: 4}]}
profile: [{tables: [toy.csv]}]
costs: {models: {toy: {1->2: 1, 2->1: 1, restart: 1, migrate: 1}}}
policy: ef-accessctrl
slot_s: 1
"""
JOBS = "job_id,submit_time,iteration,model_name,ddl,batch_size,num_gpu,duration\n1,0,100,toy,900,64,2,5\n"
TRAIN = """
import time
import numpy as np
from forerun.live import job
weights = np.zeros(4)
with job.attach(iterations=10, torch=False) as me:
    me.state(weights=weights)
    for (mine,) in me.batches((np.ones((256, 4)),), 64):
        weights += me.average(mine.mean(0))[0]
        time.sleep(0.02)
        me.step()
    if me.rank == 0:
        print("sum", weights.sum())
"""
JOB = """
name: first
command: [python, train.py]
iterations: 200
slots: 2
model: toy
batch: 64
deadline: 15min
checkpoints: {every: 1s}
"""


def live(folder: Path, *words: str) -> subprocess.CompletedProcess[str]:
    return forerun(folder, "live", *words)


def until(holds: Callable[[], bool], what: str) -> None:
    end_s = time.monotonic() + PATIENCE_S
    while not holds():
        assert time.monotonic() < end_s, what
        time.sleep(0.1)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for name, text in (
        ("machine.yaml", MACHINE), ("expected.csv", JOBS), ("train.py", TRAIN), ("job.yaml", JOB),
        ("toy.csv", "global_batch_size,1,2,4\n64,15,28,40\n"),
    ):  # fmt: skip
        (tmp_path / name).write_text(text)
    return tmp_path


@pytest.fixture
def serve(folder: Path) -> Iterator[Callable[[], subprocess.Popen[str]]]:
    """Starts a controller, and waits until it takes requests."""
    served: list[subprocess.Popen[str]] = []

    def start() -> subprocess.Popen[str]:
        words = [sys.executable, "-m", "forerun", "live", "serve", "machine.yaml"]
        one = subprocess.Popen(
            words, cwd=folder, env=environment(), stderr=subprocess.PIPE, stdout=subprocess.DEVNULL, text=True
        )
        served.append(one)
        assert one.stderr is not None
        line = one.stderr.readline()
        assert "forerun live submit" in line, line + one.stderr.read()
        return one

    yield start
    for one in served:
        one.kill()
        one.wait()


def jobs(folder: Path) -> dict[str, dict[str, object]]:
    done = live(folder, "status", "--json")
    assert done.returncode == 0, done.stderr
    return {job["job"]: job for job in json.loads(done.stdout)["jobs"]}


def test_a_controller_that_is_killed_is_taken_up_again(
    folder: Path, serve: Callable[[], subprocess.Popen[str]]
) -> None:
    """Jobs go on from their checkpoints, every decision is the same again, and nothing is left behind."""
    first = serve()
    assert live(folder, "submit", "job.yaml").returncode == 0
    late = live(folder, "submit", "job.yaml", "--set", "name=hopeless", "--set", "deadline=1s")
    assert late.returncode == 0 and "rejected" in late.stdout
    second = live(folder, "serve", "machine.yaml")
    assert second.returncode == 2 and "another controller serves this run" in second.stderr
    until(lambda: any((folder / "live-run/jobs/first/checkpoints").glob("*")), "a checkpoint")
    first.send_signal(signal.SIGKILL)
    first.wait()
    again = serve()
    same = live(folder, "submit", "job.yaml")
    assert same.returncode == 0 and "before" in same.stdout
    other = live(folder, "submit", "job.yaml", "--set", "iterations=7")
    assert other.returncode == 2 and len(other.stderr.splitlines()) == 1 and "another job" in other.stderr
    until(lambda: jobs(folder)["first"]["state"] == "finished", "the end of the job")
    logs = live(folder, "logs", "first")
    assert "sum 800.0" in logs.stdout  # 200 steps of 4 ones, however many ranks did them
    assert live(folder, "stop").returncode == 0
    assert again.wait(PATIENCE_S) == 0
    assert jobs(folder)["hopeless"]["state"] == "refused"
    played = live(folder, "replay", "live-run")
    assert played.returncode == 0, played.stderr
    compared = json.loads(live(folder, "compare", "live-run", "--json").stdout)
    assert compared["same_admissions"] and compared["forecast"]["jobs"] == 1
    result = load_result(folder / "live-run/result")
    for ledger in result.ledgers:
        ledger.check()
    mark = str(folder / "live-run").encode()
    left = [path for path in Path("/proc").glob("[0-9]*/cmdline") if mark in read(path)]
    assert left == []


def read(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError:
        return b""


def test_ctrl_c_stops_and_the_same_command_goes_on(folder: Path, caplog: pytest.LogCaptureFixture) -> None:
    """A trace of paced jobs, interrupted."""
    words = [sys.executable, "-m", "forerun", "live", "run", "machine.yaml", "-q"]
    one = subprocess.Popen(words, cwd=folder, env=environment(), stderr=subprocess.PIPE, text=True)
    until(lambda: (folder / "live-run/control.sock").exists(), "the control socket")
    one.send_signal(signal.SIGINT)
    _, said = one.communicate(timeout=PATIENCE_S)
    assert one.returncode == 130 and "the same command goes on from there" in said, said
    done = live(folder, "run", "machine.yaml", "--json")
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["summary"]["finished_jobs"] == 1
    shutil.rmtree(folder / "live-run/result")  # as if it had been killed while it wrote this
    (folder / "live-run/.forerun-0123456789ab").mkdir()
    again = live(folder, "run", "machine.yaml", "--json")
    assert not list((folder / "live-run").glob(".forerun-*"))
    assert again.returncode == 0 and "this run has ended" in caplog.text, again.stderr
    assert json.loads(again.stdout)["summary"] == json.loads(done.stdout)["summary"]
    for changes, said in (
        (("run", "machine.yaml", "--seed", "9"), "another scenario"),
        (("run", "machine.yaml", "--clock", "compressed:2"), "--clock wall"),
        (("serve", "machine.yaml"), "live run"),
    ):
        refused = live(folder, *changes)
        assert refused.returncode == 2 and said in refused.stderr, refused.stderr
        assert len(refused.stderr.splitlines()) == 1


def test_a_journal_of_another_version_is_refused_in_a_line(folder: Path) -> None:
    assert live(folder, "run", "machine.yaml", "--clock", "compressed:10", "-q").returncode == 0
    with sqlite3.connect(folder / "live-run/journal.db") as db:
        db.execute("UPDATE meta SET version = 99")
    db.close()
    for words in (("status",), ("run", "machine.yaml"), ("replay", "live-run"), ("compare", "live-run")):
        refused = live(folder, *words)
        assert refused.returncode == 2 and "version 99" in refused.stderr, refused.stderr
        assert len(refused.stderr.splitlines()) == 1


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("run", "absent.yaml"), "no such file"),
        (("run", "machine.yaml", "--clock", "sundial"), "no clock 'sundial'"),
        (("run", "machine.yaml", "--set", "policy=pollux"), "pollux"),
        (("run", "machine.yaml", "--set", "live.leas=3"), "unknown key 'leas'"),
        (("run", "machine.yaml", "--run", "train.py"), "train.py"),
        (("status",), "no such journal"),
        (("stop",), "no controller serves this run"),
        (("submit", "job.yaml"), "no controller serves this run"),
        (("submit", "job.yaml", "--set", "iterations=0"), "0 is not between 1 and"),
        (("logs", "nobody"), "no job named 'nobody'"),
        (("replay", "nowhere"), "no such journal"),
        (("status", "--metrics", "--watch"), "leave --watch and --json out"),
    ],
)  # fmt: skip
def test_bad_input_says_so_in_a_line(folder: Path, words: tuple[str, ...], said: str) -> None:
    refused = live(folder, *words)
    assert refused.returncode == 2 and said in refused.stderr, refused.stderr
    assert len(refused.stderr.splitlines()) == 1 and "Traceback" not in refused.stderr
