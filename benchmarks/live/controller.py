"""What the controller of live runs costs: decisions, recovery from a journal, its share of a core, and submissions.

Run as `python benchmarks/live/controller.py [decisions] [recovery] [share] [submissions] [--json]`. Nodes are those of the
tests, on a virtual clock; all figures are CPU seconds, without imports and without compiling. Submissions alone are of the
wall: one client sends them one after the other over the control socket, each acknowledged once it is in the journal. The
exit code is 1 where a bar is missed.
"""

from __future__ import annotations

import argparse
import atexit
import json
import math
import os
import shutil
import sys
import tempfile
import threading
import time
from pathlib import Path
from typing import Final

import numpy as np

sys.path.insert(0, str(Path(__file__).parents[2]))

from tests.live.faulty import FaultyEngine
from tests.live.virtual import IdealEngine, VirtualClock

from forerun.core.scenarios import from_data
from forerun.live.clock import clock_of
from forerun.live.engines.local import LocalEngine
from forerun.live.inbox import Inbox
from forerun.live.observation import Timer
from forerun.live.run_files import create_run, inputs_of
from forerun.live.service import Client, GetDecision, Service, Stop, Submit
from forerun.live.session import Session
from forerun.live.spec import JobSpec


def scenario(jobs: int, nodes: int, gap_s: float, terms: dict[str, float]) -> object:
    """Jobs of about an hour on nodes of eight GPUs."""
    return from_data(
        {
            "domain": "cluster",
            "seed": 1,
            "trace": {
                "generate": {
                    "jobs": jobs,
                    "mean_gap_s": gap_s,
                    "durations": [{"weight": 1, "median_s": 3600, "log_spread": 0.7}],
                    "least_slack": 1.0,
                    "most_slack": 3.0,
                    "best_effort_share": 0.3,
                }
            },
            "machines": {"nodes": [{"name": "a", "count": nodes, "gpus": 8}]},
            "profile": [{"analytic": "balanced", "kinds": [["vision", 64], ["language", 128]]}],
            "policy": "ef-accessctrl",
            "slot_s": 60,
            "live": terms,
        }
    )


def folder() -> Path:
    """Where the journal goes: in memory, so that other users of the disk do not count."""
    memory = Path("/dev/shm")
    place = memory if os.access(memory, os.W_OK) else None
    made = Path(tempfile.mkdtemp(dir=place, prefix="forerun-bench-"))
    atexit.register(shutil.rmtree, made, ignore_errors=True)
    return made / "run"


def session_of(jobs: int, nodes: int, gap_s: float, *, beats: bool) -> Session:
    """A run that begins."""
    terms = {} if beats else {"lease_s": 1e12, "heartbeat_s": 1e11, "hang_s": 1e12}
    run = create_run(folder(), scenario(jobs, nodes, gap_s, terms))  # type: ignore[arg-type]
    clock = VirtualClock()
    clock.time_s = float(inputs_of(run).setting.jobs.submit_s[0])
    names = dict.fromkeys((f"a-{number}" for number in range(nodes)), 8)
    engine = (
        FaultyEngine(clock, names, run, np.random.default_rng(0), 0.0) if beats else IdealEngine(clock, names)
    )
    return Session(run, engine, clock, poll_s=1.0 if beats else math.inf)


#: most seconds of a decision and of a recovery from 10,000 observations, percent of a core, and milliseconds a submission
BARS: Final = {"most_s": 1.0, "of_10000_s": 2.0, "core_percent": 1.0, "acknowledged_ms": 5.0}


def decisions() -> dict[str, float]:
    """128 nodes of 8 GPUs, 500 jobs that come within some minutes."""
    session = session_of(500, 128, 0.6, beats=False)
    controller = session.controller
    receive, spent, active = controller.receive, [], []

    def timed(seen):  # type: ignore[no-untyped-def]
        before, begin_s = controller.decisions, time.process_time()
        answers = receive(seen)
        if isinstance(seen.what, Timer) and controller.decisions > before:
            spent.append(time.process_time() - begin_s)
            active.append(
                sum(job.group is not None or job.state.name == "waiting" for job in controller.rows)
            )
        return answers

    controller.receive = timed  # type: ignore[method-assign]
    begin_s = time.process_time()
    while not session.is_over and time.process_time() - begin_s < 15:
        session.step()
    busy = [seconds for seconds, jobs in zip(spent[1:], active[1:]) if jobs >= 200] or spent[1:]
    return {
        "slots": 1024,
        "decisions": len(spent),
        "most_active_jobs": max(active),
        "with_200_jobs": len(busy),
        "median_s": round(float(np.median(busy)), 3),
        "most_s": round(max(busy), 3),
    }


def recovery() -> dict[str, float]:
    """A journal of some 10,000 observations, read by another controller."""
    session = session_of(300, 16, 120.0, beats=False)
    while not session.is_over and session.controller.number < 10_000:
        session.step()
    session._flush(all=True)
    number = session.controller.number
    session.journal.abandon()
    begin_s = time.process_time()
    again = Session(session.folder, session.engine, session.clock, poll_s=math.inf)
    spent_s = time.process_time() - begin_s
    return {
        "observations": number,
        "decisions": again.controller.decisions,
        "seconds": round(spent_s, 3),
        "of_10000_s": round(10_000 * spent_s / number, 3),
    }


def share() -> dict[str, float]:
    """16 nodes of 8 slots with heartbeats every second, progress of every job every five."""
    session = session_of(128, 16, 1.0, beats=True)
    engine, inside = session.engine, [0.0]
    poll = engine.poll

    def timed(timeout_s):  # type: ignore[no-untyped-def]
        begin_s = time.process_time()
        received = poll(timeout_s)
        inside[0] += time.process_time() - begin_s
        return received

    engine.poll = timed  # type: ignore[method-assign]
    begin_s, from_s, before = session.clock.wall_s(), time.process_time(), session.controller.decisions
    while session.clock.wall_s() - begin_s < 600:
        session.step()
    spent_s, wall_s = time.process_time() - from_s - inside[0], session.clock.wall_s() - begin_s
    return {
        "slots": 128,
        "seconds": round(wall_s),
        "decisions": session.controller.decisions - before,
        "observations": session.controller.number,
        "core_percent": round(100 * spent_s / wall_s, 3),
    }


def submissions() -> dict[str, float]:
    """500 jobs, one after the other, to a node whose slots are taken: they are journalled, decided on, and wait."""
    durations = [{"weight": 1, "median_s": 9, "log_spread": 0.1}]
    data = {
        "domain": "cluster",
        "trace": {"generate": {"jobs": 1, "mean_gap_s": 1.0, "durations": durations}},  # is left out
        "machines": {"nodes": [{"name": "a", "count": 1, "gpus": 8}]},
        "policy": "fifo",
        "slot_s": 1,
    }
    run = create_run(folder(), from_data(data), is_open=True)
    inbox = Inbox()
    engine = LocalEngine(run, {"a": 8})
    session = Session(run, engine, clock_of("wall"), inbox)
    ends: list[float] = []

    def client() -> None:
        def job(name: str, **given: object) -> Submit:
            return Submit(
                spec=JobSpec(name=name, command=("sleep", "600"), iterations=1, elastic=False, **given)
            )  # type: ignore[arg-type]

        one = Client(run.path)
        one.ask(job("first", slots=8, duration_s=600.0))
        one.ask(GetDecision(job="first"))
        ends.extend(
            time.perf_counter() for number in range(501) if one.ask(job(f"job-{number}", duration_s=60.0))
        )
        one.ask(Stop())

    with Service(run.path, inbox.answer):
        users = threading.Thread(target=client)
        users.start()
        session.run()
        users.join()
    session.close()
    engine.close()
    took_s = np.diff(ends)
    return {
        "jobs": len(took_s),
        "per_s": round(1 / float(np.mean(took_s))),
        "acknowledged_ms": round(1000 * float(np.mean(took_s)), 2),
        "slowest_ms": round(1000 * float(np.max(took_s)), 2),
    }


def main() -> int:
    """Run from the command line; 1 above a bar."""
    parts = {"decisions": decisions, "recovery": recovery, "share": share, "submissions": submissions}
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("parts", nargs="*", choices=[*parts, []], metavar="PART")
    parser.add_argument("--json", action="store_true")
    given = parser.parse_args()
    figures = {name: parts[name]() for name in given.parts or parts}
    if given.json:
        print(json.dumps(figures))
    else:
        for name, one in figures.items():
            print(f"{name}: {', '.join(f'{key} {value:g}' for key, value in one.items())}")
    return int(any(one.get(name, 0) > most for one in figures.values() for name, most in BARS.items()))


if __name__ == "__main__":
    sys.exit(main())
