"""Drawn runs with faults: no slot has two jobs, no job two epochs, every job ends once, and the replay is equal."""

from __future__ import annotations

import math
import os
import shutil
import tempfile
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from forerun.domains.cluster.scenario import Scenario
from forerun.live.folder import RunFolder
from forerun.live.inbox import Inbox
from forerun.live.job_state import Ended
from forerun.live.observation import Cancelled
from forerun.live.replay import replay
from forerun.live.run_files import create_run
from forerun.live.session import Session
from forerun.scenarios import from_data

from .faulty import FaultyEngine, TwoOnOne
from .virtual import VirtualClock

#: drawn runs in the suite; FORERUN_CASES asks for more
RUNS = max(15, int(os.environ.get("FORERUN_CASES", "0")))
#: journals here need not survive the machine, and a disk that others use would make these tests slow
MEMORY = Path("/dev/shm")
POLICIES = ["ef-accessctrl", "edf", "fifo", "srtf", "las"]


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[Path]:
    """A folder in memory, where the machine has one."""
    if not os.access(MEMORY, os.W_OK):
        yield tmp_path
        return
    with tempfile.TemporaryDirectory(dir=MEMORY, prefix="forerun-runs-") as made:
        yield Path(made)


def drawn(seed: int, *, grace_s: float = 2.0) -> Scenario:
    """Ten short jobs on three nodes; every job fits on one."""
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
                "sizes": [{"gpus": 1, "share": 0.5}, {"gpus": 2, "share": 0.5}],
            }
        },
        "machines": {"nodes": [{"name": "a", "count": 3, "gpus": 2}]},
        "profile": [{"analytic": "balanced", "kinds": [["vision", 64], ["language", 128]], "levels": [1, 2]}],
        "policy": str(rng.choice(POLICIES)),
        "placement": "consolidated",
        "slot_s": 5,
        "live": {"grace_s": grace_s, "retries": 5},
    }
    return from_data(data)  # type: ignore[no-any-return]


def play(folder: Path, seed: int, *, grace_s: float = 2.0, counts_from_receipt: bool = False) -> Counter[str]:
    """One run with faults, to its end; how often each kind of fault happened."""
    rng = np.random.default_rng([19, seed])
    scenario = drawn(seed, grace_s=grace_s)
    run = create_run(folder, scenario)
    clock, inbox = VirtualClock(), Inbox()
    nodes = dict.fromkeys((f"a-{number}" for number in range(3)), 2)
    engine = FaultyEngine(clock, nodes, rng, 400.0, counts_from_receipt=counts_from_receipt)
    session = Session(run, engine, clock, inbox, poll_s=math.inf)
    kills = cancels = 0
    for _ in range(200_000):
        if session.is_over:
            break
        if clock.time_s < 400 and rng.random() < 0.002:
            # the controller is killed: nothing that it has not committed is known, and what it had sent is on its way
            kills += 1
            session.journal.abandon()
            engine.reconnect()
            session = Session(run, engine, clock, inbox, poll_s=math.inf)
        if rng.random() < 0.0005:
            inbox.ask(Cancelled(job=str(rng.choice(list(session.controller.jobs)))))
            cancels += 1
        session.step()
        assert not set(session.journal.leases().values()) - {
            (lease.job, lease.epoch, lease.node) for lease in session.controller.leases.values()
        }
    controller = session.controller
    assert session.is_over, controller.status()
    assert not engine.owner or all(group.ended for group in engine.owner.values())
    for job in controller.jobs.values():
        assert isinstance(job.state, Ended), job
        spent_s = math.fsum(job.spent_s.values())
        assert spent_s == pytest.approx(job.state.since_s - controller.begin_s)
    session.close()
    replayed = replay(RunFolder(folder))
    assert replayed.difference is None, str(replayed.difference)
    return Counter(engine.faults) + Counter(restart=kills, cancel=cancels, stale=controller.stale)


def test_runs_with_faults_keep_the_laws(folder: Path) -> None:
    """Slots, epochs, terminal states, times and replay, whatever nodes, ranks, messages and the controller do."""
    happened: Counter[str] = Counter()
    qualified = 0
    for seed in range(RUNS):
        one = play(folder / str(seed), seed)
        shutil.rmtree(folder / str(seed))
        qualified += bool(one["cut"] + one["death"] + one["failure"] + one["restart"])
        happened += one
    print(f"{qualified} of {RUNS} runs were disturbed: {dict(happened)}")
    assert qualified > RUNS / 2
    assert all(happened[kind] for kind in ("cut", "death", "failure", "restart", "expired")), happened


def test_a_node_that_counts_leases_from_their_receipt_is_caught(folder: Path) -> None:
    """The laws are able to fail: with this fault, two jobs get on one slot in some run."""
    with pytest.raises(TwoOnOne):
        for seed in range(400):
            play(folder / str(seed), seed, grace_s=0.001, counts_from_receipt=True)
