"""Runs on one machine in which something breaks: nothing is lost, nobody shares a slot, nothing is left behind.

A case is a kind of fault and a seed, which draws when it strikes, whom, how and for how long. A few cases run with the
suite, all with `FORERUN_CASES=120`.
"""

from __future__ import annotations

import contextlib
import itertools
import json
import math
import os
import random
import signal
import subprocess
import sys
import threading
import time
from collections import defaultdict
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import pytest
from tests.live import stepper
from tests.live.stepper import RATES
from tests.live.test_ray_faults import judge_occupancy, of_run, send, until

import forerun
from forerun.cluster.processes import marked
from forerun.core.errors import UsageError
from forerun.live import processes
from forerun.live.job_state import Finished
from forerun.live.journal import Journal
from forerun.live.node import mark_of
from forerun.live.replay import replay
from forerun.live.run_files import controller_of, create_run
from forerun.live.service import Client, DrainNode, GetStatus, Stop, Submit
from forerun.live.spec import Checkpoints, JobSpec
from forerun.live.status import FINAL, RunStatus

from ..conftest import cases

pytestmark = pytest.mark.slow

#: wall seconds that processes have to end after their run
END_S: Final = 10.0
#: wall seconds between checkpoints
EVERY_S: Final = 2.0
LEASE_S: Final = 6.0
NODES: Final = ("box-0", "box-1")
SCENARIO: Final = f"""
domain: cluster
trace: {{file: jobs.csv}}
machines: {{nodes: [{{name: box, count: 2, gpus: 2}}]}}
profile: [{{tables: [stepper.csv]}}]
policy: ef-accessctrl
slot_s: 1
live: {{lease_s: {LEASE_S}, grace_s: 2, drain_s: 6, hang_s: 10}}
"""
#: the scenario's own trace, which `live serve` leaves out
TRACE: Final = (
    "job_id,submit_time,iteration,model_name,ddl,batch_size,num_gpu,duration\na,0,9,stepper,500,64,1,9\n"
)
#: iterations and requested slots of each job
JOBS: Final = {"wide": (45, 4), "pair": (30, 2), "one": (16, 1)}


class Run:
    """A run that is served by a controller in a process of its own.

    Parameters
    ----------
    path : an empty folder.
    seed : of what is drawn.
    fault : that the first controller brings about itself (default: none).
    """

    def __init__(self, path: Path, seed: int, fault: str = "none") -> None:
        self.draw, self.seed = random.Random(seed), seed
        self.programs = path / "programs"
        self.programs.mkdir()
        table = ",".join(map(str, RATES.values()))
        (path / "stepper.csv").write_text(f"global_batch_size,1,2,4\n64,{table}\n")
        (path / "jobs.csv").write_text(TRACE)
        (path / "scenario.yaml").write_text(SCENARIO)
        self.folder = create_run(path / "run", forerun.load(path / "scenario.yaml"), is_open=True)
        self.log_path = path / "controller.log"
        self.log = self.log_path.open("ab")
        self.lives = 0
        self.start(fault)

    def start(self, fault: str = "none") -> None:
        """Start a controller, the first or another one."""
        self.lives += 1
        command = [
            sys.executable,
            "-m",
            "tests.live.local_controller",
            str(self.folder.path),
            fault,
            str(self.seed),
        ]
        self.controller = subprocess.Popen(command, stdout=self.log, stderr=self.log)

    def kill(self, fault: str = "none") -> None:
        """Kill the controller, and start another at once or after the leases."""
        self.controller.kill()
        self.controller.wait()
        time.sleep(self.draw.choice([0.0, 2 * LEASE_S]))
        self.start(fault)

    def ask(self, request: Any) -> Any:
        """The answer of the controller; a new one is started where it has killed itself."""
        while True:
            try:
                return Client(self.folder.path).ask(request)
            except UsageError as error:
                assert any(
                    word in str(error) for word in ("no controller", "does not answer", "did not answer")
                ), error
            if self.controller.poll() is not None:
                assert self.controller.returncode == -signal.SIGKILL, self.log_path.read_text()[-3000:]
                time.sleep(self.draw.choice([0.0, 2 * LEASE_S]))
                self.start()
            time.sleep(0.2)

    def status(self) -> RunStatus:
        """What the run does."""
        return self.ask(GetStatus()).status  # type: ignore[no-any-return]

    def submit(self) -> None:
        """Submit all jobs."""
        for name, (iterations, slots) in JOBS.items():
            self.ask(Submit(spec=job(name, iterations, slots, self.programs)))

    def until_at_work(self) -> None:
        """Wait until a drawn number of checkpoints are there, or the jobs have ended."""
        wanted = self.draw.randint(1, 5)
        until(lambda: self._is_over() or len(self.checkpoints()) >= wanted)

    def checkpoints(self) -> list[Path]:
        """Those on disk, oldest first."""
        found = [path for path in self.folder.jobs.glob("*/checkpoints/*") if path.suffix == ".npz"]
        return sorted(found, key=lambda path: path.stat().st_mtime)

    def _is_over(self) -> bool:
        return all(one.state in FINAL for one in self.status().jobs)

    def sessions(self) -> list[int]:
        """The shims of all nodes."""
        known = []
        for node in NODES:
            with contextlib.suppress(OSError, ValueError):
                known += [
                    one["pid"] for one in json.loads((self.folder.path / f"{node}.sessions").read_text())
                ]
        return [pid for pid in known if processes.started_at(pid)]

    def ranks(self) -> list[int]:
        """The ranks of all nodes."""
        return [pid for shim in self.sessions() for pid in processes.in_session(shim) if pid != shim]

    def a_rank(self) -> int:
        """One of them; 0 if the jobs end before one is there."""
        return int(self.draw.choice(until(lambda: self.ranks() or (self._is_over() and [0]))))

    def node(self, name: str) -> int:
        """The process of a node."""

        def found() -> int:
            for entry in Path("/proc").iterdir():
                with contextlib.suppress(OSError):
                    words = (entry / "cmdline").read_bytes().split(b"\0") if entry.name.isdigit() else []
                    wanted = {b"forerun.live.node_process", name.encode(), str(self.folder.path).encode()}
                    if wanted <= set(words):
                        return int(entry.name)
            return 0

        return int(until(found))

    def stand_still(self, pids: list[int]) -> None:
        """Stop processes, for less or for more than a lease."""
        for pid in pids:
            send(pid, signal.SIGSTOP)
        time.sleep(self.draw.choice([2.0, 2 * LEASE_S]))
        for pid in pids:
            send(pid, signal.SIGCONT)

    def everybody(self) -> list[int]:
        """All processes of the run but the controller."""
        mine = {*marked(mark_of(self.folder)), *of_run(self.folder)}
        return sorted(mine - {self.controller.pid, os.getpid()})

    def end(self) -> None:
        """Wait until all jobs have ended, stop the run, and see that nobody is left."""
        until(self._is_over)
        self.ask(Stop())
        until(lambda: self.controller.poll() is not None)
        assert self.controller.returncode == 0, self.log_path.read_text()[-3000:]
        end_s = time.monotonic() + END_S
        while (left := self.everybody()) and time.monotonic() < end_s:
            time.sleep(0.1)
        assert not left


def job(name: str, iterations: int, slots: int, programs: Path) -> JobSpec:
    """A job of the run."""
    return JobSpec(
        name=name,
        command=(sys.executable, str(Path(stepper.__file__).absolute())),
        iterations=iterations,
        slots=slots,
        model="stepper",
        batch=64,
        deadline_s=1000.0,
        folder=str(programs),
        checkpoints=Checkpoints(every_s=EVERY_S),
        retries=20,
    )


# ------------------------------------------------------------------------------------------------------------- faults


def kill_rank(run: Run) -> None:
    """A rank is killed."""
    run.until_at_work()
    send(run.a_rank(), signal.SIGKILL)


def hang_rank(run: Run) -> None:
    """A rank stands still for ever."""
    run.until_at_work()
    send(run.a_rank(), signal.SIGSTOP)


def end_node(run: Run) -> None:
    """A node process is killed, or stands still for a while."""
    run.until_at_work()
    pid = run.node(run.draw.choice(NODES))
    if run.draw.random() < 0.5:
        send(pid, signal.SIGKILL)
    else:
        run.stand_still([pid])


def kill_controller(run: Run) -> None:
    """The controller dies before or after one of its writes, or one of its commands."""


def disturb_connections(run: Run) -> None:
    """The nodes' connections are cut, slow, or deliver everything twice."""


def fill_disk(run: Run) -> None:
    """The journal cannot be written for longer than a lease."""


def damage_checkpoint(run: Run) -> None:
    """The newest checkpoint is torn or corrupt, and the job needs it."""
    run.until_at_work()
    newest = run.checkpoints()[-1:]
    for path in newest:
        text = bytearray(path.read_bytes())
        if run.draw.random() < 0.5:
            del text[run.draw.randrange(len(text)) :]
        else:
            text[run.draw.randrange(len(text))] ^= 1 << run.draw.randrange(8)
        path.write_bytes(text)
    for pid in run.ranks():
        send(pid, signal.SIGKILL)


def step_clock(run: Run) -> None:
    """All processes sleep as with a machine, or the calendar is a day off when a controller takes the run up again."""
    run.until_at_work()
    if run.draw.random() < 0.5:
        run.stand_still([run.controller.pid, *run.everybody()])
    else:
        run.kill("calendar")


def slow_steps(run: Run) -> None:
    """Steps take three times as long, for a while."""
    run.until_at_work()
    (run.programs / "slow").touch()
    time.sleep(run.draw.uniform(4.0, 12.0))
    (run.programs / "slow").unlink()


def refuse_start(run: Run) -> None:
    """The folder of the programs is away when jobs are to start again."""
    run.until_at_work()
    away = run.programs.with_name("away")
    run.programs.rename(away)
    for pid in run.ranks():
        send(pid, signal.SIGKILL)
    time.sleep(run.draw.uniform(2.0, 8.0))
    away.rename(run.programs)


def ignore_drain(run: Run) -> None:
    """Ranks stand in a step while their node is drained."""
    run.until_at_work()
    (run.programs / "deaf").touch()
    time.sleep(1.0)
    run.ask(DrainNode(node=run.draw.choice(NODES)))
    time.sleep(run.draw.uniform(5.0, 12.0))
    (run.programs / "deaf").unlink()


def submit_twice(run: Run) -> None:
    """Jobs are submitted by two users at once, to one controller and to the next."""
    run.until_at_work()
    users = [threading.Thread(target=run.submit) for _ in range(2)]
    for user in users:
        user.start()
    for user in users:
        user.join()
    run.kill()
    run.submit()


#: what the first controller of a run does itself, one of which the seed draws
WITHIN: Final = {
    kill_controller: ("before-write", "after-write", "before-send", "after-send"),
    disturb_connections: ("cut", "delay", "duplicate"),
    fill_disk: ("full",),
}
KINDS: Final = (
    kill_rank, hang_rank, end_node, kill_controller, disturb_connections, fill_disk, damage_checkpoint, step_clock,
    slow_steps, refuse_start, ignore_drain, submit_twice,
)  # fmt: skip
SEEDS: Final = 10
ALL: Final = [(kind, seed) for seed in range(SEEDS) for kind in KINDS]
#: of the suite
USUAL: Final = [(kill_controller, 0)]
CASES: Final = ALL if cases(0) >= len(ALL) else USUAL


@pytest.mark.parametrize(("fault", "seed"), CASES, ids=lambda value: getattr(value, "__name__", str(value)))
def test_a_run_survives(fault: Callable[[Run], None], seed: int, tmp_path: Path) -> None:
    within = WITHIN.get(fault, ("none",))
    run = Run(tmp_path, seed, within[seed % len(within)])
    try:
        run.submit()
        fault(run)
        run.end()
    finally:
        run.controller.kill()
        run.controller.wait()
        run.log.close()
    judge(run, intervals=2 if fault is damage_checkpoint else 1)


# -------------------------------------------------------------------------------------------------------------- judges


def judge(run: Run, intervals: int) -> None:
    """What holds of every run that has ended, by its journal and by what its ranks wrote down themselves."""
    folder = run.folder
    assert replay(folder).difference is None
    journal = Journal(folder.journal, read_only=True)
    controller = controller_of(folder, journal.run)
    for seen in journal.seen():
        controller.receive(seen)
    assert {job.name: type(job.state) for job in controller.rows} == dict.fromkeys(JOBS, Finished)
    assert not controller.leases
    judge_occupancy(folder)
    lines = [json.loads(line) for line in (run.programs / "steps.jsonl").read_text().splitlines()]
    judge_slots(lines)
    judge_steps(lines, intervals)


def judge_slots(lines: list[dict[str, Any]]) -> None:
    """No step of two groups took place on one slot at the same time, nor did steps of one group lie between another's."""
    stays: dict[tuple[str, int], dict[tuple[str, int], tuple[float, float]]] = defaultdict(dict)
    for line in lines:
        for slot in line["slots"]:
            known = stays[line["node"], slot]
            begin_s, end_s = known.get((line["job"], line["epoch"]), (math.inf, -math.inf))
            known[line["job"], line["epoch"]] = min(begin_s, line["begin"]), max(end_s, line["end"])
    assert stays
    for place, groups in stays.items():
        for (_, end_s), (begin_s, _) in itertools.pairwise(sorted(groups.values())):
            assert end_s <= begin_s, (place, groups)


def judge_steps(lines: list[dict[str, Any]], intervals: int) -> None:
    """Every step was done, and at most those since the last checkpoint were done again."""
    for name, (iterations, _) in JOBS.items():
        own = [line for line in lines if line["job"] == name and line["rank"] == 0]
        assert {line["step"] for line in own} == set(range(iterations)), name
        done = 0
        for _, group in itertools.groupby(
            sorted(own, key=lambda line: line["epoch"]), lambda line: line["epoch"]
        ):
            steps = [line["step"] for line in group]
            assert steps == list(range(steps[0], steps[-1] + 1)), (name, steps)
            # the interval, the step in which it ended, and the step during which the group did
            again = math.ceil(intervals * EVERY_S * max(RATES.values())) + 2
            assert 0 <= done - steps[0] <= again, (name, done, steps[0])
            done = steps[-1] + 1


def test_the_judges_see_shared_slots_and_lost_steps() -> None:
    def line(job: str, epoch: int, step: int, begin: float) -> dict[str, Any]:
        of = {"job": job, "epoch": epoch, "node": "n", "slots": [0], "rank": 0}
        return of | {"step": step, "begin": begin, "end": begin + 1}

    alone = [
        line(name, 1, step, 100.0 * at + step)
        for at, name in enumerate(JOBS)
        for step in range(JOBS[name][0])
    ]
    judge_slots(alone)
    judge_steps(alone, 1)
    with pytest.raises(AssertionError):
        judge_slots([*alone, line("one", 2, 3, 10.5)])
    with pytest.raises(AssertionError):
        judge_steps([one for one in alone if one["step"] != 7], 1)
    with pytest.raises(AssertionError):
        judge_steps([*alone, *(line("wide", 2, step, 900.0 + step) for step in range(20, 45))], 1)
