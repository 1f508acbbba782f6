"""Real processes on the engine of one machine: they start warm, end whole, and nobody stays on a slot."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import stat
import sys
import textwrap
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from forerun.cluster.processes import marked
from forerun.live import processes
from forerun.live.engines.engine import Checkpoint, Drain, Heartbeat, Kill, Start, Term
from forerun.live.engines.local import LocalEngine
from forerun.live.folder import RunFolder
from forerun.live.node import mark_of
from forerun.live.observation import (
    Checkpointed,
    FirstStep,
    Gone,
    Left,
    NodeDown,
    NodeUp,
    Observation,
    Refused,
    Started,
)
from forerun.live.spec import JobSpec

#: wall seconds until a test gives up; a busy machine may need a good part of it
PATIENCE_S = 240.0
NUMPY = (sys.executable, "-m", "forerun.live.programs.numpy_job")
#: the same, at steps that take time but no work
ENDLESS = (sys.executable, str(Path(__file__).parent / "idle_trainer.py"))


class Controller:
    """What tests do in place of a controller: they send commands, and renew leases while they wait."""

    def __init__(
        self, folder: RunFolder, nodes: dict[str, int], devices: dict[str, tuple[str, ...]] | None = None
    ) -> None:
        self.folder, self.engine = folder, LocalEngine(folder, nodes, devices)
        self.seen: list[Observation] = []
        self.groups: dict[str, int] = {}
        self.terms: dict[str, Term] = {}
        self.term_s = 60.0
        self.renews = True
        for name in nodes:
            self.wait(lambda one, name=name: isinstance(one, NodeUp) and one.node == name)

    def wait(self, is_it: Callable[[Observation], bool], *, new: bool = False) -> Observation:
        """The first observation of a kind, of those not looked at by an earlier wait if it must be new."""
        at = len(self.seen) if new else 0
        until_s = time.monotonic() + PATIENCE_S
        while True:
            while at < len(self.seen):
                if is_it(self.seen[at]):
                    return self.seen[at]
                at += 1
            assert time.monotonic() < until_s, f"never seen; seen: {self.seen}"
            self.look()

    def look(self) -> None:
        for one in self.engine.poll(0.2):
            if isinstance(one, NodeUp):
                self.terms[one.node] = Term(one.boot, one.stamp_s + self.term_s)
            if isinstance(one, Heartbeat):
                self.terms[one.node] = Term(one.boot, one.stamp_s + self.term_s)
                if self.renews:
                    self.engine.renew(one, self.term_s, self.groups)
            else:
                self.seen.append(one)

    def start(
        self, spec: JobSpec, epoch: int = 1, checkpoint: Checkpoint | None = None, **slots: int
    ) -> None:
        """Start a group on the first slots of nodes."""
        self.groups[spec.name] = epoch
        where = {node: tuple(range(count)) for node, count in slots.items()}
        self.engine.send(Start(spec.name, epoch, where, spec, checkpoint, terms=dict(self.terms)))

    def until(self, kind: type, job: str, epoch: int = 1) -> Observation:
        return self.wait(lambda one: isinstance(one, kind) and (one.job, one.epoch) == (job, epoch))  # type: ignore[attr-defined]

    def processes(self) -> list[int]:
        """Processes that were started by a command of this run, nodes and zygotes aside."""
        nodes = {process.pid for process in self.engine._processes.values()}
        found = []
        for pid in marked(mark_of(self.folder)):
            with contextlib.suppress(OSError):  # it has ended since
                found += [pid] if not {pid, int(processes._fields(pid)[1])} & nodes else []
        return found


def until(condition: Callable[[], bool]) -> None:
    """Wait for something that other processes bring about."""
    until_s = time.monotonic() + PATIENCE_S
    while not condition():
        assert time.monotonic() < until_s, "it never became true"
        time.sleep(0.02)


def sessions_of(controller: Controller, node: str) -> list[int]:
    """The shims of a node, as it wrote them down; their ranks may begin before it has."""
    file = controller.folder.path / f"{node}.sessions"
    until(file.exists)
    return [one["pid"] for one in json.loads(file.read_text())]


def node_pid(controller: Controller, node: str) -> int:
    return controller.engine._processes[node].pid


@pytest.fixture
def controller(tmp_path: Path) -> Iterator[Controller]:
    made = Controller(RunFolder.create(tmp_path / "run"), {"n0": 4})
    try:
        yield made
    finally:
        made.engine.close()


def script(folder: Path, text: str, name: str = "program.py", **given: object) -> JobSpec:
    """A job that runs a script of its own."""
    (folder / name).write_text(textwrap.dedent(text))
    about: dict[str, object] = {"name": "a", "iterations": 10, "folder": str(folder)} | given
    return JobSpec(command=(sys.executable, name), **about)  # type: ignore[arg-type]


def test_closing_ends_a_node_that_is_not_connected(tmp_path: Path) -> None:
    """The controller before started it: it is no child of the one that closes, and hears nothing."""
    first = Controller(RunFolder.create(tmp_path / "run"), {"n0": 1})
    left = node_pid(first, "n0")
    first.engine.leave()
    LocalEngine(first.folder, {"n0": 1}).close()
    assert first.engine._processes["n0"].wait(PATIENCE_S) == -signal.SIGKILL
    assert left not in marked(mark_of(first.folder))


def test_ranks_are_forked_from_a_process_with_one_thread(controller: Controller, tmp_path: Path) -> None:
    """A fork of a process with threads inherits locks that nobody releases; numpy would start a thread a core."""
    about = """
        import os
        status = lambda pid: dict(line.split(":", 1) for line in open(f"/proc/{pid}/status"))
        shim = status(os.getppid())
        print(shim["Threads"], status(shim["PPid"].strip())["Threads"], file=open("threads", "w"))
    """
    controller.start(script(tmp_path, about), n0=1)
    controller.until(Gone, "a")
    assert (tmp_path / "threads").read_text().split() == ["1", "1"]


def test_ranks_start_drain_and_go_on_from_the_checkpoint_on_fewer_slots(controller: Controller) -> None:
    spec = JobSpec(name="a", command=NUMPY, iterations=3000, batch=64)
    controller.start(spec, n0=4)
    first = controller.until(FirstStep, "a")
    assert isinstance(first, FirstStep) and first.step == 0
    controller.engine.send(Drain("a", 1, PATIENCE_S))
    left, saved = controller.until(Left, "a"), controller.until(Checkpointed, "a")
    assert isinstance(left, Left) and isinstance(saved, Checkpointed)
    assert left.why == "drained" and left.step == saved.step
    controller.until(Gone, "a")
    controller.start(spec, 2, Checkpoint(saved.file, saved.step, saved.sha256), n0=2)
    again = controller.until(FirstStep, "a", 2)
    assert isinstance(again, FirstStep) and again.step == saved.step
    done = controller.until(Left, "a", 2)
    assert isinstance(done, Left) and (done.why, done.step) == ("finished", 3000)
    controller.until(Gone, "a", 2)
    rows = [json.loads(line) for line in controller.folder.occupancy.read_text().splitlines()]
    assert sorted((row["epoch"], row["slot"]) for row in rows if "begin" in row) == sorted(
        (row["epoch"], row["slot"]) for row in rows if "end" in row
    ) == [(1, 0), (1, 1), (1, 2), (1, 3), (2, 0), (2, 1)]  # fmt: skip
    assert max(row["end"] for row in rows if row["epoch"] == 1 and "end" in row) <= min(
        row["begin"] for row in rows if row["epoch"] == 2 and "begin" in row
    )


def test_ranks_of_one_group_on_several_nodes_meet(tmp_path: Path) -> None:
    controller = Controller(RunFolder.create(tmp_path / "run"), {"n0": 2, "n1": 2})
    try:
        controller.start(JobSpec(name="a", command=NUMPY, iterations=20, batch=8), n0=2, n1=2)
        assert controller.until(Left, "a").why == "finished"  # type: ignore[attr-defined]
        for node in ("n0", "n1"):
            controller.wait(lambda one, node=node: isinstance(one, Gone) and one.node == node)
    finally:
        controller.engine.close()


def test_a_rank_that_fails_ends_its_group(controller: Controller, tmp_path: Path) -> None:
    program = """
        from forerun.live import job
        import numpy as np, time
        with job.attach() as me:
            me.state(x=np.zeros(1))
            for _ in me.steps():
                if me.rank == 1:
                    raise ValueError("of its own")
                time.sleep(0.01)
                me.step()
    """
    controller.start(script(tmp_path, program), n0=3)
    left = controller.until(Left, "a")
    assert isinstance(left, Left) and left.why == "failed" and "of its own" in left.detail
    controller.until(Gone, "a")
    until(lambda: controller.processes() == [])  # the shim ends a moment after it said so
    assert "ValueError: of its own" in controller.folder.log("a", 1, 1).read_text()


def test_a_rank_that_is_killed_ends_its_group(controller: Controller) -> None:
    controller.start(JobSpec(name="a", command=ENDLESS, iterations=10**9, batch=64), n0=3)
    controller.until(FirstStep, "a")
    [shim] = sessions_of(controller, "n0")
    victim = next(pid for pid in processes.in_session(shim) if pid != shim)
    os.kill(victim, signal.SIGKILL)
    left = controller.until(Left, "a")
    assert isinstance(left, Left) and left.why == "failed"
    gone = controller.until(Gone, "a")
    assert isinstance(gone, Gone) and "SIGKILL" in gone.detail
    until(lambda: processes.in_session(shim) == [])


def test_a_rank_that_is_stopped_ends_when_its_group_is_killed(controller: Controller) -> None:
    controller.start(JobSpec(name="a", command=ENDLESS, iterations=10**9, batch=64), n0=2)
    controller.until(FirstStep, "a")
    [shim] = sessions_of(controller, "n0")
    os.kill(next(pid for pid in processes.in_session(shim) if pid != shim), signal.SIGSTOP)
    controller.engine.send(Kill("a", 1))
    controller.until(Gone, "a")
    until(lambda: processes.in_session(shim) == [])


def test_each_rank_sees_its_slots_device_and_has_the_signals_of_any_python(tmp_path: Path) -> None:
    program = """
        import json, os, pathlib, signal, time
        about = json.loads(os.environ["FORERUN_LIVE_ASSIGNMENT"])
        handlers = [signal.getsignal(one) for one in (signal.SIGPIPE, signal.SIGINT, signal.SIGTERM)]
        expected = [signal.SIG_IGN, signal.default_int_handler, signal.SIG_DFL]
        read, write = os.pipe()
        os.close(read)
        try:
            os.write(write, b"to nobody")
        except BrokenPipeError:
            text = f"{os.environ['CUDA_VISIBLE_DEVICES']} {handlers == expected}"
            slot = about["slots"][0]
            pathlib.Path(f"made-{slot}").write_text(text)
            os.replace(f"made-{slot}", f"saw-{slot}")
            while len(list(pathlib.Path().glob("saw-*"))) < 3:  # the first that ends without having attached ends all
                time.sleep(0.01)
    """
    folder = RunFolder.create(tmp_path / "run")
    devices = {"n0": ("GPU-8f1b", "GPU-02cc", "GPU-77aa")}
    own = Controller(folder, {"n0": 3}, devices)
    try:
        own.start(script(tmp_path, program), n0=3)
        own.until(Gone, "a")
    finally:
        own.engine.close()
    saw = {path.name: path.read_text() for path in tmp_path.glob("saw-*")}
    assert saw == {f"saw-{slot}": f"{device} True" for slot, device in enumerate(devices["n0"])}


#: a program that does not go when it is asked to, and leaves children behind, one of them in a session of its own
STUBBORN = """
    import os, signal, subprocess, sys, time
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    subprocess.Popen(["sleep", "86400"])
    if os.fork() == 0:
        os.setsid()
        if os.fork() == 0:
            time.sleep(86400)
        os._exit(0)
    open("children", "w").close()
    time.sleep(86400)
"""


@pytest.mark.parametrize("elastic", [True, False])
def test_a_group_ends_with_all_that_it_started(controller: Controller, tmp_path: Path, elastic: bool) -> None:
    controller.start(script(tmp_path, STUBBORN, elastic=elastic), n0=1)
    until((tmp_path / "children").exists)
    [shim] = sessions_of(controller, "n0")
    until(lambda: len(_sessions(shim)) == 2)  # one child has a session of its own
    sessions = _sessions(shim)
    controller.engine.send(Drain("a", 1, 0.3))
    controller.until(Gone, "a")
    for session in sessions:  # the shim itself ends a moment after it said that all are gone
        until(lambda session=session: processes.in_session(session) == [])


def _tree(pid: int) -> list[int]:
    """A process and its descendants, for the tests alone."""
    below: list[str] = []
    with contextlib.suppress(OSError):  # it has ended
        below = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    return [pid, *(each for child in below for each in _tree(int(child)))]


def _sessions(shim: int) -> set[int]:
    """The sessions of a shim and its descendants."""
    found = set()
    for pid in _tree(shim):
        with contextlib.suppress(OSError):
            found.add(int(processes._fields(pid)[3]))
    return found


def test_a_group_ends_with_its_lease_though_its_node_is_stopped(controller: Controller) -> None:
    controller.term_s = 3.0
    until_s = processes.boot_s() + 4.0
    while processes.boot_s() < until_s:
        controller.look()  # the node's terms are short from here on
    controller.start(JobSpec(name="a", command=ENDLESS, iterations=10**9, batch=64), n0=2)
    controller.until(FirstStep, "a")
    [shim] = sessions_of(controller, "n0")
    os.kill(node_pid(controller, "n0"), signal.SIGSTOP)
    try:
        until(lambda: processes.in_session(shim) == [])
    finally:
        os.kill(node_pid(controller, "n0"), signal.SIGCONT)
    gone = controller.until(Gone, "a")
    assert isinstance(gone, Gone) and "the lease ended" in gone.detail


def test_groups_end_when_nobody_renews_their_leases(controller: Controller) -> None:
    controller.term_s, controller.renews = 3.0, False
    until_s = processes.boot_s() + 2.5
    while processes.boot_s() < until_s:
        controller.look()
    controller.start(JobSpec(name="a", command=ENDLESS, iterations=10**9, batch=64), n0=2)
    gone = controller.until(Gone, "a")
    assert isinstance(gone, Gone) and gone.why == "lease" and "the lease ended" in gone.detail
    assert not any(isinstance(one, Left) for one in controller.seen)


def test_groups_end_with_their_node_and_the_next_one_is_empty(controller: Controller) -> None:
    controller.start(JobSpec(name="a", command=ENDLESS, iterations=10**9, batch=64), n0=2)
    controller.until(FirstStep, "a")
    [shim] = sessions_of(controller, "n0")
    os.kill(node_pid(controller, "n0"), signal.SIGKILL)
    controller.wait(lambda one: isinstance(one, NodeDown))
    until(lambda: processes.in_session(shim) == [])
    controller.engine.start_node("n0")
    up = controller.wait(lambda one: isinstance(one, NodeUp), new=True)
    assert isinstance(up, NodeUp) and up.holds == {}


def _stubborn(controller: Controller, folder: Path) -> tuple[int, int, set[int]]:
    """Start a stubborn group; its zygote, its shim, and all its processes, one of them in a session of its own."""
    controller.start(script(folder, STUBBORN), n0=1)
    until((folder / "children").exists)
    [shim] = sessions_of(controller, "n0")
    until(lambda: len(_sessions(shim)) == 2)
    return int(processes._fields(shim)[1]), shim, set(_tree(shim))


@pytest.mark.parametrize("zygote_gets", [None, signal.SIGKILL, signal.SIGSTOP])
def test_nobody_is_left_when_a_group_is_gone_though_its_shim_was_killed(
    controller: Controller, tmp_path: Path, zygote_gets: signal.Signals | None
) -> None:
    """Also where the process that would adopt what the shim leaves behind is killed or stopped."""
    zygote, shim, everybody = _stubborn(controller, tmp_path)
    if zygote_gets:
        os.kill(zygote, zygote_gets)
    os.kill(shim, signal.SIGKILL)
    gone = controller.until(Gone, "a")
    assert not [pid for pid in everybody if processes.is_running(pid)]
    assert isinstance(gone, Gone) and gone.why == "failed"


def test_the_next_node_ends_what_a_killed_node_zygote_and_shim_left(
    controller: Controller, tmp_path: Path
) -> None:
    """Then nobody adopts the process in a session of its own; its environment shows whose it is."""
    zygote, shim, everybody = _stubborn(controller, tmp_path)
    for pid in (node_pid(controller, "n0"), zygote, shim):
        os.kill(pid, signal.SIGSTOP)
    for pid in (node_pid(controller, "n0"), zygote, shim):
        os.kill(pid, signal.SIGKILL)
    controller.wait(lambda one: isinstance(one, NodeDown))
    assert [pid for pid in everybody if processes.is_running(pid)]
    controller.engine.start_node("n0")
    controller.wait(lambda one: isinstance(one, NodeUp), new=True)
    assert not [pid for pid in everybody if processes.is_running(pid)]


def test_a_group_that_is_killed_has_not_failed(controller: Controller) -> None:
    controller.start(JobSpec(name="a", command=ENDLESS, iterations=10**9, batch=64), n0=2)
    controller.until(FirstStep, "a")
    controller.engine.send(Kill("a", 1))
    gone = controller.until(Gone, "a")
    assert isinstance(gone, Gone) and gone.why == "asked"
    assert not any(isinstance(one, Left) for one in controller.seen)


def test_commands_are_idempotent_and_stale_epochs_do_nothing(controller: Controller) -> None:
    spec = JobSpec(name="a", command=ENDLESS, iterations=10**9, batch=64)
    controller.start(spec, 2, n0=2)
    controller.start(spec, 2, n0=2)
    controller.until(FirstStep, "a", 2)
    controller.engine.send(Kill("a", 1))
    controller.groups["a"] = 2
    controller.engine.send(Start("a", 1, {"n0": (0,)}, spec, terms=dict(controller.terms)))
    refused = controller.until(Refused, "a", 1)
    assert isinstance(refused, Refused) and refused.why == "start 1 of a came after start 2"
    assert len([one for one in controller.seen if isinstance(one, Started)]) == 1
    assert not any(isinstance(one, Gone) for one in controller.seen)


@pytest.mark.parametrize(
    ("change", "why"),
    [
        ({"command": ("no-such-program",)}, "no-such-program: no such program"),
        ({"command": (sys.executable, "absent.py")}, "absent.py: no such script"),
        ({"folder": "/no/such/folder"}, "/no/such/folder: is no folder"),
    ],
)
def test_what_cannot_start_is_refused_in_a_line(
    controller: Controller, change: dict[str, object], why: str
) -> None:
    about: dict[str, object] = {"name": "a", "command": NUMPY, "iterations": 1} | change
    controller.start(JobSpec(**about), n0=1)  # type: ignore[arg-type]
    refused = controller.until(Refused, "a")
    assert isinstance(refused, Refused) and refused.why.endswith(why) and "\n" not in refused.why


def test_a_slot_that_is_taken_and_a_late_start_are_refused(controller: Controller) -> None:
    endless = JobSpec(name="a", command=ENDLESS, iterations=10**9, batch=64)
    controller.start(endless, n0=2)
    controller.until(Started, "a")
    controller.start(JobSpec(name="b", command=NUMPY, iterations=1, batch=64), n0=1)
    assert controller.until(Refused, "b").why == "a is still on n0, slot 0"  # type: ignore[attr-defined]
    over = Term(controller.terms["n0"].boot, processes.boot_s() - 1)
    controller.engine.send(Start("c", 1, {"n0": (3,)}, endless, terms={"n0": over}))
    assert "after its lease had ended" in controller.until(Refused, "c").why  # type: ignore[attr-defined]


def test_what_a_job_prints_is_bounded_and_one_that_never_attaches_finishes(
    controller: Controller, tmp_path: Path
) -> None:
    program = """
        import sys
        for _ in range(40):
            sys.stdout.write("x" * (1 << 20) + chr(10))
    """
    controller.start(script(tmp_path, program, elastic=False), n0=2)
    left = controller.until(Left, "a")
    assert isinstance(left, Left) and (left.why, left.step) == ("finished", 10)
    controller.until(Gone, "a")
    log = controller.folder.log("a", 1, 0).read_bytes()
    assert (16 << 20) <= len(log) < (17 << 20)
    assert log.endswith(b"16777216 bytes are kept; the rest is not]\n")


@pytest.mark.parametrize("program", ["print(1)", "import os, time\nif os.fork() == 0: time.sleep(9999)"])
def test_an_elastic_program_that_never_attaches_has_failed(
    controller: Controller, tmp_path: Path, program: str
) -> None:
    """Whatever it leaves behind; a plain command (`elastic: false`) says by its exit code that it is done."""
    controller.start(script(tmp_path, program), n0=2)
    left = controller.until(Left, "a")
    assert isinstance(left, Left) and (left.why, left.step) == ("failed", 0)
    assert left.detail.endswith("ended after 0 of 10 steps: it never attached (forerun.live.job)")
    controller.until(Gone, "a")


def test_programs_have_the_variables_that_are_listed_and_no_others(
    controller: Controller, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LISTED", "yes")
    monkeypatch.setenv("SECRET", "hidden")
    folder = RunFolder.create(tmp_path / "own")
    own = Controller(folder, {"n0": 1})
    try:
        program = (
            "import os\nprint(open('/proc/self/environ').read(), sorted(os.environ), os.environ['LISTED'])\n"
        )
        own.start(script(tmp_path, program, environment=("LISTED", "ABSENT")), n0=1)
        own.until(Gone, "a")
    finally:
        own.engine.close()
    text = folder.log("a", 1, 0).read_text()
    assert "'LISTED'" in text and text.endswith("yes\n")
    assert "SECRET" not in text and "ABSENT" not in text
    written = b"".join(path.read_bytes() for path in folder.path.rglob("*") if path.is_file())
    assert b"hidden" not in written


def test_only_the_owner_reaches_the_run(controller: Controller) -> None:
    assert stat.S_IMODE(controller.folder.path.stat().st_mode) == 0o700
    assert stat.S_IMODE(controller.folder.nodes_socket.stat().st_mode) == 0o600


def test_garbage_on_the_nodes_socket_is_closed_and_harms_nobody(controller: Controller) -> None:
    from forerun.live import wire

    controller.start(JobSpec(name="a", command=ENDLESS, iterations=10**9, batch=64), n0=1)
    controller.until(FirstStep, "a")
    deep = b'{"x":' + b"[" * 50_000 + b"]" * 50_000 + b',"kind":"gone"}'
    framed = len(deep).to_bytes(4, "big") + deep
    for junk in (b"\0\0\0\5hello", b"\xff\xff\xff\xff", b"GET / HTTP/1.1\r\n\r\n", framed):
        with wire.connected(controller.folder.nodes_socket) as stranger:
            stranger.sendall(junk)
            stranger.setblocking(False)

            def closed(stranger: object = stranger) -> bool:
                controller.look()
                try:
                    return stranger.recv(1) == b""  # type: ignore[attr-defined]
                except BlockingIOError:
                    return False
                except ConnectionResetError:
                    return True

            until(closed)
    assert not any(isinstance(one, Gone | NodeDown) for one in controller.seen)


def test_nodes_go_on_without_a_controller_and_say_to_the_next_what_they_hold(tmp_path: Path) -> None:
    folder = RunFolder.create(tmp_path / "run")
    first = Controller(folder, {"n0": 2})
    first.start(JobSpec(name="a", command=ENDLESS, iterations=10**9, batch=64), n0=2)
    first.until(FirstStep, "a")
    first.engine.leave()
    second = Controller(folder, {"n0": 2})
    try:
        up = next(one for one in second.seen if isinstance(one, NodeUp))
        assert up.holds == {"a": (1, (0, 1))}
        [first_step] = [one for one in second.seen if isinstance(one, FirstStep)]
        assert first_step.ago_s > 0  # the next controller may not have heard of it
        second.engine.send(Kill("a", 1))
        second.until(Gone, "a")
    finally:
        second.engine.close()
        node = first.engine._processes["n0"]
        node.wait(PATIENCE_S)


def test_an_end_that_no_controller_heard_is_said_to_the_next(tmp_path: Path) -> None:
    folder = RunFolder.create(tmp_path / "run")
    first = Controller(folder, {"n0": 1})
    job = script(tmp_path, "import time; open('begun', 'w'); time.sleep(2); open('done', 'w')", elastic=False)
    first.start(job, n0=1)
    until((tmp_path / "begun").exists)
    first.engine.leave()
    until(lambda: (tmp_path / "done").exists() and '"end"' in folder.occupancy.read_text())
    second = Controller(folder, {"n0": 1})
    try:
        left = second.until(Left, "a")
        assert isinstance(left, Left) and left.why == "finished"
        second.until(Gone, "a")
    finally:
        second.engine.close()
        first.engine._processes["n0"].wait(PATIENCE_S)


def test_nothing_is_left_when_the_engine_is_closed(tmp_path: Path) -> None:
    controller = Controller(RunFolder.create(tmp_path / "run"), {"n0": 2, "n1": 1})
    controller.start(script(tmp_path, STUBBORN, elastic=False), n0=1)
    until((tmp_path / "children").exists)
    nodes = [node_pid(controller, name) for name in ("n0", "n1")]
    everybody = {pid for node in nodes for pid in _tree(node)}
    controller.engine.close()
    until(lambda: not any(map(processes.is_running, everybody)))
    assert not controller.folder.nodes_socket.exists()
