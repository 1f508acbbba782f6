"""Drawn runs with faults: no slot has two jobs, no job two epochs, every job ends once, and the replay is equal."""

from __future__ import annotations

import itertools
import math
import os
import shutil
from collections import Counter, defaultdict
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

from forerun.cluster.domain import DOMAIN
from forerun.cluster.scenario import Scenario
from forerun.core.scenarios import from_data
from forerun.live.answers import Sent
from forerun.live.engines.engine import Start
from forerun.live.folder import RunFolder
from forerun.live.inbox import Inbox
from forerun.live.job_state import Ended
from forerun.live.journal import Journal
from forerun.live.lease import LeaseKeeper
from forerun.live.node import Node
from forerun.live.node_process import UNANSWERED_S
from forerun.live.observation import Checkpointed, FirstStep
from forerun.live.replay import replay
from forerun.live.run_files import controller_of, create_run, job_specs
from forerun.live.service import Cancel, DrainNode, Stop, Submit
from forerun.live.session import Session
from forerun.live.spec import JobSpec

from ..conftest import cases
from .faulty import CountsFromReceipt, FaultyEngine, TwoOnOne, Unfenced
from .virtual import VirtualClock

#: drawn runs in the suite; FORERUN_CASES asks for more
RUNS = cases(5)
#: the first of them
FIRST = int(os.environ.get("FORERUN_FIRST_CASE", "0"))
POLICIES = ["ef-accessctrl", "edf", "fifo", "srtf", "las"]
#: seconds of the run in which things break
UNTIL_S = 400.0


def drawn(seed: int) -> Scenario:
    """Ten short jobs on three nodes; some need two of these."""
    rng = np.random.default_rng([17, seed])
    data = {
        "domain": "cluster",
        "seed": seed,
        "trace": {
            "generate": {
                "jobs": 10,
                "mean_gap_s": float(rng.choice([5, 30])),
                "durations": [{"weight": 1, "median_s": 120, "log_spread": 0.6}],
                "least_duration_s": 20,
                "most_duration_s": 400,
                "least_slack": 1.5,
                "most_slack": 4.0,
                "best_effort_share": 0.5,
                "sizes": [{"gpus": 1, "share": 0.4}, {"gpus": 2, "share": 0.4}, {"gpus": 4, "share": 0.2}],
            }
        },
        "machines": {"nodes": [{"name": "a", "count": 3, "gpus": 2}]},
        "profile": [
            {"analytic": "balanced", "kinds": [["vision", 64], ["language", 128]], "levels": [1, 2, 4]}
        ],
        "policy": str(rng.choice(POLICIES)),
        "placement": "consolidated",
        "slot_s": 5,
        "live": {"retries": 5, "heartbeat_s": float(rng.choice([1.0, 3.0]))},
    }
    return from_data(data)  # type: ignore[no-any-return]


class Users:
    """Who submit, cancel and drain; those of a trace that is all there is cancel and drain only.

    Parameters
    ----------
    specs : what is submitted one after the other, some of it twice; then the run is stopped.
    rng : draws when.
    """

    def __init__(self, specs: list[JobSpec], rng: np.random.Generator) -> None:
        gaps_s = rng.exponential(15, len(specs))
        self._due = [
            (float(at_s), spec)
            for at_s, spec in zip(np.cumsum(gaps_s), specs, strict=True)
            for _ in range(1 + (rng.random() < 0.2))
        ]
        self._rng, self._stops = rng, bool(specs)
        self.happened: Counter[str] = Counter()

    def act(self, session: Session, inbox: Inbox, now_s: float) -> None:
        """Do what is due; a submission is repeated until a controller has it in its journal."""
        jobs, rng = session.controller.jobs, self._rng
        while self._due and self._due[0][0] <= now_s:
            inbox.ask(Submit(spec=self._due.pop(0)[1]))
            self.happened["submitted"] += 1
        if jobs and rng.random() < 0.0005:
            inbox.ask(Cancel(job=str(rng.choice(list(jobs)))))
            self.happened["cancelled"] += 1
        if not self.happened["drained"] and rng.random() < 0.00005:
            inbox.ask(DrainNode(node="a-1"))
            self.happened["drained"] += 1
        if self._stops and not self._due and all(isinstance(job.state, Ended) for job in jobs.values()):
            self._stops = False
            inbox.ask(Stop())

    def again(self, session: Session, specs: list[JobSpec]) -> None:
        """A controller was killed: what it had not written down yet is submitted once more."""
        later = {spec.name for _, spec in self._due}
        missing = [
            spec for spec in specs if spec.name not in session.controller.jobs and spec.name not in later
        ]
        self._due = [(0.0, spec) for spec in missing] + self._due


def play(folder: Path, seed: int, kind: type[Node] = Node) -> Counter[str]:
    """One run with faults, to its end; how often each kind of fault happened."""
    rng = np.random.default_rng([19, seed])
    scenario = drawn(seed)
    is_open = seed % 2 == 1
    specs = list(job_specs(DOMAIN.prepare(scenario), folder.parent)) if is_open else []
    run = create_run(folder, scenario, is_open=is_open)
    clock, inbox, users = VirtualClock(), Inbox(), Users(specs, rng)
    nodes = dict.fromkeys((f"a-{number}" for number in range(3)), 2)
    assert scenario.live is not None
    patience_s = float(rng.choice([UNANSWERED_S, 8 * UNANSWERED_S]))
    engine = FaultyEngine(clock, nodes, run, rng, UNTIL_S, scenario.live.heartbeat_s, kind, patience_s)
    session = Session(run, engine, clock, inbox, poll_s=1.0 if is_open else math.inf)
    kills = 0
    for _ in range(200_000):
        if session.is_over:
            break
        if clock.time_s < UNTIL_S and rng.random() < 0.002:
            # the controller is killed: nothing that it has not committed is known, and what it had sent is on its way
            kills += 1
            session.journal.abandon()
            inbox.take()
            engine.reconnect()
            session = Session(run, engine, clock, inbox, poll_s=1.0 if is_open else math.inf)
            users.again(session, specs)
        users.act(session, inbox, clock.time_s)
        session.step()
        assert not set(session.journal.leases().values()) - {
            (lease.job, lease.epoch, lease.node) for lease in session.controller.leases.values()
        }
    controller = session.controller
    assert session.is_over and session.refused == 0, controller.status()
    assert all(shim.ended for shim in engine.owner.values())
    # a node that was taken for gone is there again, if it had the time: deaths last a minute, and reports may be late
    assert clock.time_s < UNTIL_S + 100 or all(node.boot for node in controller.nodes.values())
    assert not is_open or {spec.name for spec in specs} == set(controller.jobs)
    for job in controller.jobs.values():
        assert isinstance(job.state, Ended), job
        begin_s = job.submit_s if is_open else controller.begin_s
        assert math.fsum(job.spent_s.values()) == pytest.approx(job.state.since_s - begin_s)
    session.close()
    judge_steps(session.folder)
    replayed = replay(RunFolder(folder))
    assert replayed.difference is None, str(replayed.difference)
    return engine.happened + users.happened + Counter(restart=kills, stale=controller.stale)


def judge_steps(run: RunFolder) -> None:
    """Every start goes on from the last checkpoint that was reported, unless its ranks said that it is damaged."""
    journal = Journal(run.journal, read_only=True)
    sent: dict[int, list[Start]] = defaultdict(list)
    for number, answer in journal.answers():
        if isinstance(answer, Sent) and isinstance(answer.command, Start):
            sent[number].append(answer.command)
    controller = controller_of(run, journal.run)
    known: dict[str, list[Checkpointed]] = defaultdict(list)
    for seen in journal.seen():
        what = seen.what
        if (
            isinstance(what, Checkpointed | FirstStep)
            and (job := controller.jobs[what.job]).epoch == what.epoch
        ):
            saved = known[what.job]
            if isinstance(what, Checkpointed):
                if what.file not in {one.file for one in saved}:
                    saved.append(what)
            elif job.group is not None and job.group.step_s is None:
                saved[:] = [one for one in saved if one.step <= what.step]
                assert what.step == (saved[-1].step if saved else 0) or what.ago_s, (what, saved)
        controller.receive(seen)
        for start in sent[seen.number]:
            last = known[start.job][-1].file if known[start.job] else None
            assert last == (start.checkpoint.file if start.checkpoint else None), (start, known)


def test_runs_with_faults_keep_the_laws(folder: Path) -> None:
    """Slots, epochs, terminal states, times and replay, whatever nodes, ranks, messages and the controller do."""
    happened: Counter[str] = Counter()
    qualified = 0
    for seed in range(FIRST, FIRST + RUNS):
        try:
            one = play(folder / str(seed), seed)
        except Exception as error:
            raise AssertionError(f"run {seed}: {error}") from error
        shutil.rmtree(folder / str(seed))
        qualified += bool(one["cut"] + one["death"] + one["stop"] + one["failure"] + one["restart"])
        happened += one
    print(f"{qualified} of {RUNS} runs were disturbed: {dict(happened)}")
    assert qualified > RUNS / 2
    usual = ("cut", "death", "stop", "failure", "restart", "expired", "submitted")
    assert all(happened[kind] for kind in usual), happened


def until_two_on_one(folder: Path, first: int, kind: type[Node] = Node) -> None:
    """Play runs until two groups are on one slot, from one on that is near."""
    for seed in itertools.count(first):
        assert seed < 400, "no run shows the fault"
        try:
            play(folder / str(seed), seed, kind)
        except TwoOnOne:
            return
        shutil.rmtree(folder / str(seed))


@pytest.mark.parametrize(("kind", "first"), [(CountsFromReceipt, 127), (Unfenced, 61)])
def test_a_node_that_breaks_the_protocol_is_caught(kind: type[Node], first: int, folder: Path) -> None:
    """The laws are able to fail: with these faults, two jobs get on one slot in some run."""
    until_two_on_one(folder, first, kind)


def test_a_controller_that_gives_no_grace_is_caught(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Processes need a moment to end, and clocks differ."""
    monkeypatch.setattr(LeaseKeeper, "safe_s", property(lambda keeper: keeper.terms.lease_s))
    until_two_on_one(folder, 2)


class Killed(Exception):
    """The controller is killed here."""


class Killer:
    """Counts what a controller writes and sends, and kills it before or after one of these.

    Parameters
    ----------
    at : number of the write or command, from 1 (default: it lives).
    what : write or send.
    before : whether nothing of it happens.
    """

    def __init__(self, at: int = 0, what: str = "write", *, before: bool = False) -> None:
        self.at, self.what, self.before = at, what, before
        self.count: Counter[str] = Counter()

    def watch(self, session: Session) -> None:
        """Stand between a session and its journal and engine."""
        session.journal.commit = self._either("write", session.journal.commit)  # type: ignore[method-assign]
        engine = session.engine
        session.engine = SimpleNamespace(  # type: ignore[assignment]
            poll=engine.poll,
            wake=engine.wake,
            renew=engine.renew,
            close=engine.close,
            send=self._either("send", engine.send),
        )

    def _either(self, what: str, call: Callable[..., None]) -> Callable[..., None]:
        def either(*given: object) -> None:
            self.count[what] += 1
            is_it = what == self.what and self.count[what] == self.at
            if is_it and self.before:
                raise Killed
            call(*given)
            if is_it:
                raise Killed

        return either


def played_with(folder: Path, killer: Killer) -> None:
    """A run in which nothing breaks but the controller, once."""
    run = create_run(folder, drawn(0))
    clock, rng = VirtualClock(), np.random.default_rng(0)
    engine = FaultyEngine(clock, dict.fromkeys(("a-0", "a-1", "a-2"), 2), run, rng, until_s=0.0)
    session = Session(run, engine, clock, poll_s=math.inf)
    killer.watch(session)
    while not session.is_over:
        try:
            session.step()
        except Killed:
            session.journal.abandon()
            engine.reconnect()
            session = Session(run, engine, clock, poll_s=math.inf)
    session.close()
    assert {job.state.name for job in session.controller.jobs.values()} <= {"finished", "refused"}
    judge_steps(run)
    assert replay(run).difference is None


def test_a_controller_may_be_killed_at_any_write_and_at_any_command(folder: Path) -> None:
    """Before it and after it; all of them with FORERUN_CASES, some in the suite."""
    whole = Killer()
    played_with(folder / "whole", whole)
    assert whole.count["send"] > 10 and whole.count["write"] > 50
    points = [
        (at, what, before)
        for what in ("write", "send")
        for at in range(1, whole.count[what] + 1)
        for before in (True, False)
    ]
    for at, what, before in points if len(points) < RUNS else points[:: len(points) // 10]:
        played_with(folder / f"{what}-{at}-{before}", Killer(at, what, before=before))
        shutil.rmtree(folder / f"{what}-{at}-{before}")
