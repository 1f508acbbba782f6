"""Runs over real raylets in which something breaks: nothing is lost, nobody shares a slot, nothing is left behind.

A case is a kind of fault and a seed, which draws when it strikes, whom, and for how long. A few cases run with the
suite, all with `FORERUN_CASES=40`.
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
import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Final

import msgspec
import pytest
from tests.live.rays import Rays, cluster

import forerun
from forerun.live import processes
from forerun.live.engines.ray import run_of
from forerun.live.engines.ray_agent import private_folder
from forerun.live.folder import RunFolder
from forerun.live.job_state import Finished
from forerun.live.journal import Journal
from forerun.live.observation import Checkpointed, FirstStep, Progressed
from forerun.live.replay import replay
from forerun.live.run_files import controller_of, create_run

from ..conftest import cases

pytestmark = pytest.mark.slow

#: nobody waits longer for anything, however busy the machine is
PATIENCE_S: Final = 400.0
#: wall seconds that processes have to end after their run
END_S: Final = 10.0
NODES: Final = ("box-0", "box-1")
#: seconds between checkpoints, at a step a second
EVERY_S: Final = 2
SCENARIO: Final = """
domain: cluster
trace: {file: jobs.csv}
machines: {nodes: [{name: box, count: 2, gpus: 2}]}
profile: [{analytic: rigid}]
policy: ef-accessctrl
costs: {models: {"*": {1->2: 1, 2->1: 1, migrate: 2, start: 2, restart: 2}}}
slot_s: 1
live: {checkpoint_s: 2, lease_s: 6, grace_s: 2, drain_s: 10, hang_s: 12, retries: 20}
"""
JOBS: Final = """job_id,submission_time,duration,num_gpu,deadline,model
pair,0,9,2,500,sleeper
four,0,8,4,500,sleeper
one,1,8,1,500,sleeper
"""


class Run:
    """A run over Ray that is under way, its controller a process of its own."""

    def __init__(self, rays: Rays, path: Path, seed: int) -> None:
        self.rays, self.draw = rays, random.Random(seed)
        (path / "jobs.csv").write_text(JOBS)
        (path / "scenario.yaml").write_text(SCENARIO)
        self.folder = create_run(path / "run", forerun.load(path / "scenario.yaml"), engine="ray")
        self.log = (path / "controller.log").open("ab")
        self.controller = self.start()

    def start(self) -> subprocess.Popen[bytes]:
        """Start a controller, the first or another one."""
        command = [
            sys.executable,
            "-m",
            "tests.live.ray_controller",
            str(self.folder.path),
            self.rays.address,
        ]
        return subprocess.Popen(command, stdout=self.log, stderr=self.log)

    def seen(self) -> list[Any]:
        """What was observed so far."""
        with contextlib.suppress(Exception):  # the journal is being made, or written
            return [seen.what for seen in Journal(self.folder.journal, read_only=True).seen()]
        return []

    def until_at_work(self) -> None:
        """Wait until a drawn number of checkpoints are there."""
        wanted = self.draw.randint(1, 4)
        until(lambda: self.controller.poll() is not None or _count(self.seen(), Checkpointed) >= wanted)

    def known(self, node: str) -> list[tuple[int, str]]:
        """Process and start time of a node's actor, and of its node process."""
        file = private_folder(run_of(self.folder), node) / "pids"
        return until(lambda: _decoded(file.read_bytes(), list[tuple[int, str]]))

    def pid(self, node: str, which: int) -> int:
        """Of a node's actor (0) or process (1)."""
        pid, started = self.known(node)[which]
        return pid if processes.started_at(pid) == started else 0

    def ranks(self) -> list[int]:
        """The ranks of all nodes."""
        ranks = []
        for node in NODES:
            file = private_folder(run_of(self.folder), node) / f"{node}.sessions"
            with contextlib.suppress(OSError, ValueError):
                for one in json.loads(file.read_bytes()):
                    ranks += [pid for pid in processes.in_session(one["pid"]) if pid != one["pid"]]
        return ranks

    def host(self, node: str) -> str:
        """The Ray node whose raylet started a node's actor."""
        parent = int(Path(f"/proc/{self.pid(node, 0)}/stat").read_text().rpartition(")")[2].split()[1])
        return next(known for known in self.rays.nodes() if self.rays.pid(known) == parent)

    def stop_for_a_while(self, pid: int) -> None:
        """Let a process stand still, for less or for more than a lease."""
        send(pid, signal.SIGSTOP)
        time.sleep(self.draw.choice([2.0, 12.0]))
        send(pid, signal.SIGCONT)


def kill_rank(run: Run) -> None:
    """A rank is killed."""
    send(run.draw.choice(until(run.ranks)), signal.SIGKILL)


def hang_rank(run: Run) -> None:
    """A rank stands still for ever."""
    send(run.draw.choice(until(run.ranks)), signal.SIGSTOP)


def kill_node(run: Run) -> None:
    """A node process is killed."""
    send(run.pid(run.draw.choice(NODES), 1), signal.SIGKILL)


def stop_node(run: Run) -> None:
    """A node process stands still for a while."""
    run.stop_for_a_while(run.pid(run.draw.choice(NODES), 1))


def kill_actor(run: Run) -> None:
    """An actor is killed."""
    send(run.pid(run.draw.choice(NODES), 0), signal.SIGKILL)


def stop_actor(run: Run) -> None:
    """An actor stands still for a while."""
    run.stop_for_a_while(run.pid(run.draw.choice(NODES), 0))


def kill_raylet(run: Run) -> None:
    """A raylet is killed; another machine joins."""
    run.rays.signal(run.host(run.draw.choice(NODES)), signal.SIGKILL)
    run.rays.add(2)


def kill_raylet_and_stop_actor(run: Run) -> None:
    """A raylet is killed while its actor cannot notice; another one starts on the machine."""
    node = run.draw.choice(NODES)
    raylet, actor = run.host(node), run.pid(node, 0)
    send(actor, signal.SIGSTOP)
    run.rays.signal(raylet, signal.SIGKILL)
    run.rays.add(2)


def kill_controller(run: Run) -> None:
    """The controller is killed, and started again at once or after the leases."""
    run.controller.kill()
    run.controller.wait()
    time.sleep(run.draw.choice([0.0, 12.0]))
    run.controller = run.start()


def stop_controller(run: Run) -> None:
    """The controller stands still: nobody hears it, nor does it hear anybody."""
    run.stop_for_a_while(run.controller.pid)


KINDS: Final = (
    kill_rank, hang_rank, kill_node, stop_node, kill_actor, stop_actor, kill_raylet, kill_raylet_and_stop_actor,
    kill_controller, stop_controller,
)  # fmt: skip
SEEDS: Final = 4
ALL: Final = [(kind, seed) for seed in range(SEEDS) for kind in KINDS]
#: of the suite
USUAL: Final = [(kill_controller, 1)]
CASES: Final = ALL if cases(0) >= len(ALL) else USUAL


@pytest.fixture(scope="module")
def rays() -> Iterator[Rays]:
    """A cluster of two machines."""
    with cluster() as known:
        for _ in NODES:
            known.add(2)
        yield known


@pytest.mark.parametrize(("fault", "seed"), CASES, ids=lambda value: getattr(value, "__name__", str(value)))
def test_a_run_survives(rays: Rays, fault: Callable[[Run], None], seed: int, tmp_path: Path) -> None:
    run = Run(rays, tmp_path, seed)
    try:
        run.until_at_work()
        fault(run)
        until(lambda: run.controller.poll() is not None)
        log = (tmp_path / "controller.log").read_text()
        assert run.controller.returncode == 0, log[-3000:]
        end_s = time.monotonic() + END_S
        while (left := of_run(run.folder)) and time.monotonic() < end_s:
            time.sleep(0.1)
        assert not left
    finally:
        run.controller.kill()
        run.controller.wait()
        run.log.close()
    judge(run.folder)


def judge(folder: RunFolder) -> None:
    """What holds of every run that has ended."""
    assert replay(folder).difference is None
    journal = Journal(folder.journal, read_only=True)
    controller = controller_of(folder, journal.run)
    steps: dict[str, int] = defaultdict(int)
    begun: set[tuple[str, int]] = set()
    for seen in journal.seen():
        controller.receive(seen)
        what = seen.what
        if isinstance(what, Progressed):
            steps[what.job] = max(steps[what.job], what.step)
        elif isinstance(what, FirstStep) and (what.job, what.epoch) not in begun:
            begun.add((what.job, what.epoch))  # once: a node that is back repeats it
            # a checkpoint was due, and one more may have been on its way
            assert steps[what.job] - what.step <= 2 * EVERY_S + 1, (what, steps)
            steps[what.job] = what.step
    assert [job.name for job in controller.rows if not isinstance(job.state, Finished)] == []
    assert not controller.leases
    judge_occupancy(folder)


def judge_occupancy(folder: RunFolder) -> None:
    """Nobody shared a slot, as written beside the ranks themselves."""
    stays: dict[tuple[str, int], dict[tuple[str, int], dict[str, float]]] = defaultdict(
        lambda: defaultdict(dict)
    )
    for text in folder.occupancy.read_text().splitlines():
        one = json.loads(text)
        stays[one["node"], one["slot"]][one["job"], one["epoch"]].update(
            {key: one[key] for key in ("begin", "end") if key in one}
        )
    assert stays
    for place, groups in stays.items():
        # a rank that was killed before it began only has an end
        known = sorted((stay for stay in groups.values() if "begin" in stay), key=lambda stay: stay["begin"])
        for stay, later in itertools.pairwise(known):
            assert stay.get("end", math.inf) <= later["begin"], (place, groups)


def of_run(folder: RunFolder) -> list[int]:
    """Processes that work in a run's folder, or were told of it; the controller's own among them."""
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit() and int(entry.name) != os.getpid():
            with contextlib.suppress(OSError):
                command = (entry / "cmdline").read_bytes()
                if str(folder.path).encode() in command or (entry / "cwd").readlink().is_relative_to(
                    folder.path
                ):
                    found.append(int(entry.name))
    return [
        pid
        for pid in found
        if (entry := Path(f"/proc/{pid}/stat")).exists() and ") Z" not in entry.read_text()
    ]


def send(pid: int, number: signal.Signals) -> None:
    """Send a signal to a process that may be gone."""
    if pid > 1:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, number)


def until(is_so: Callable[[], Any]) -> Any:
    """Wait until something is so, and return it. Fails if it never is."""
    end_s = time.monotonic() + PATIENCE_S
    while True:
        with contextlib.suppress(OSError, msgspec.MsgspecError):
            if so := is_so():
                return so
        assert time.monotonic() < end_s
        time.sleep(0.1)


def _count(seen: list[Any], kind: type) -> int:
    return sum(isinstance(what, kind) for what in seen)


def _decoded(text: bytes, kind: Any) -> Any:
    return msgspec.json.decode(text, type=kind)
