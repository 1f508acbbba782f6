"""No request ends a controller: what cannot be done is refused, and all else goes on."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest

from forerun.cluster.policies.las import LasScheduler
from forerun.cluster.policy import Allocation, View
from forerun.core.scenarios import from_data
from forerun.live.inbox import Inbox
from forerun.live.job_state import Ended
from forerun.live.replay import replay
from forerun.live.run_files import create_run
from forerun.live.service import Cancel, GetDecision, GetStatus, Reply, Request, Stop, Submit
from forerun.live.session import Session
from forerun.live.wire import Decoder, WireError

from ..conftest import cases
from .virtual import IdealEngine, VirtualClock

#: drawn requests in the suite; FORERUN_CASES asks for as many again for each
REQUESTS = cases(60)
#: of a sequence, between the beginning of a run and its end
SEQUENCE = 40
POLICIES_DRAWN = ["ef-accessctrl", "edf", "fifo", "srtf", "las", "gavel-maxmin"]
GOOD = {"name": "good", "command": ["true"], "iterations": 20, "slots": 2, "model": "vision", "batch": 64}
HUGE = 99999999999999999999


class Served:
    """A run that is served on a virtual clock, by ideal nodes."""

    def __init__(self, folder: Path, policy: str, seed: int = 0) -> None:
        data = {
            "domain": "cluster",
            "seed": seed,
            "trace": {
                "generate": {
                    "jobs": 1,
                    "mean_gap_s": 1.0,
                    "durations": [{"weight": 1, "median_s": 9, "log_spread": 0.1}],
                }
            },
            "machines": {"nodes": [{"name": "a", "count": 3, "gpus": 4}]},
            "profile": [{"analytic": "balanced", "kinds": [["vision", 64], ["language", 128]]}],
            "policy": policy,
            "slot_s": 1,
            "live": {"lease_s": 1e12, "heartbeat_s": 1e11, "hang_s": 1e12},
        }
        self.folder = create_run(folder, from_data(data), is_open=True)
        self.clock, self.inbox = VirtualClock(), Inbox()
        engine = IdealEngine(self.clock, {f"a-{number}": 4 for number in range(3)})
        self.session = Session(self.folder, engine, self.clock, self.inbox)

    def ask(self, request: Request) -> Reply:
        """The answer to a request, as it comes with time."""
        future = self.inbox.ask(request)
        for _ in range(100):
            if future.done():
                return future.result()
            self.session.step()
        raise AssertionError(f"no answer to {request}")

    def send(self, body: str) -> Reply:
        """The answer to the JSON of a request."""
        data = body.encode()
        decoder: Decoder[Request] = Decoder(Request)
        try:
            (request,) = decoder.feed(len(data).to_bytes(4, "big") + data)
        except WireError as error:
            return Reply(problems=(str(error),))
        return self.ask(request)

    def submit(self, **changes: Any) -> Reply:
        return self.send(json.dumps({"kind": "submit", "spec": GOOD | changes}))

    def finishes(self, name: str = "good", **changes: Any) -> None:
        """A job that is as it should be runs to its end."""
        assert self.submit(name=name, **changes).said
        for _ in range(2000):
            job = self.session.controller.jobs[name]
            if isinstance(job.state, Ended):
                break
            self.session.step()
        assert job.state.name == "finished", job


BAD: list[dict[str, Any]] = [
    *({"iterations": value} for value in (HUGE, 2**63, 2**63 - 1, 10**15 + 1, 0, -1, 1.5, "1e300", None)),
    *({"slots": value} for value in (HUGE, 2**63, 2**31, 2**31 - 1, 2**17 + 1, 0, -2)),
    *({"batch": value} for value in (HUGE, 2**63, -1)),
    *({"deadline_s": value} for value in (1e300, 9.3e18, 1e11, 0, -5)),
    *({"duration_s": value} for value in (1e300, 9.3e18, 1e11, 0)),
    *({"name": value} for value in ("a\n", "", "../a", "a\0", "x" * 101, 7)),
    *({"command": value} for value in ([], ["tr\0ue"], ["true", "\0"], ["x" * (1 << 20)], "true")),
    *({"checkpoints": value} for value in ({"every_s": 1e300}, {"keep": HUGE}, {"failures_s": 0})),
    {"retries": HUGE}, {"folder": "/tmp/\0"}, {"environment": ["A\0"]}, {"user": "u" * 201}, {"model": "m" * 201},
]  # fmt: skip


def test_bad_submissions_are_refused_and_the_controller_goes_on(folder: Path) -> None:
    assert len(BAD) > 35
    served = Served(folder / "run", "ef-accessctrl")
    for number, changes in enumerate(BAD):
        answer = served.submit(**changes)
        assert len(answer.problems) == 1 and not answer.said, changes
        if number % 12 == 0:
            served.finishes(f"good-{number}", slots=1 + number % 4)
    assert served.session.refused == 0  # they are refused by their own fields, before anything is tried
    assert not served.session.controller.stops and replay(served.folder).difference is None


@pytest.mark.parametrize(
    "body",
    [
        "[" * 100_000 + "]" * 100_000,
        '{"x":' + "[" * 100_000 + "]" * 100_000 + ',"kind":"stop"}',
        '{"kind":"submit","spec":' + '{"a":' * 100_000 + "1" + "}" * 100_000 + "}",
        '{"kind":"cancel","job":"\\ud800"}',
        '{"kind":"submit","spec":{"name":"a","command":["a"],"iterations":1e999}}',
    ],
)
def test_what_is_no_request_is_refused(body: str, folder: Path) -> None:
    served = Served(folder / "run", "fifo")
    assert len(served.send(body).problems) == 1
    served.finishes()


def test_an_exception_in_a_request_is_its_refusal_and_changes_nothing(
    folder: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Even one that comes after a part of the work is done."""
    served = Served(folder / "run", "ef-accessctrl")
    served.finishes("first")
    kind = type(served.session.controller.online)
    original = kind.submit

    def fails(online: Any, job: Any, now_s: float) -> int:
        row = original(online, job, now_s)
        if job.id[0] == "bad":
            raise OverflowError("too large")
        return row

    monkeypatch.setattr(kind, "submit", fails)
    answer = served.submit(name="bad")
    assert answer.problems == ("the controller cannot do this: OverflowError: too large",)
    assert served.session.refused == 1 and "bad" not in served.session.controller.jobs
    assert "refused: submit: OverflowError: too large" in caplog.text
    status = served.ask(GetStatus()).status
    assert (
        status is not None and status.refused_requests == 1 and [job.job for job in status.jobs] == ["first"]
    )
    served.finishes("second")
    assert replay(served.folder).difference is None


def test_a_full_disk_is_said_to_who_asks_and_logged_and_heals(
    folder: Path, caplog: pytest.LogCaptureFixture
) -> None:
    served = Served(folder / "run", "fifo")
    served.finishes("first")
    database = served.session.journal._db
    (pages,) = database.execute("PRAGMA page_count").fetchone()
    database.execute(f"PRAGMA max_page_count = {pages}")
    answers = [served.submit(name=f"more-{number}", command=["x" * 9000]) for number in range(3)]
    for answer in answers:
        (problem,) = answer.problems
        assert "database or disk is full; nothing is started" in problem
    status = served.ask(GetStatus()).status
    assert status is not None and "disk is full" in status.fault
    assert caplog.text.count("disk is full") == 1
    database.execute("PRAGMA max_page_count = 1000000")
    served.finishes("last")
    status = served.ask(GetStatus()).status
    assert status is not None and not status.fault and "can be written again" in caplog.text
    assert replay(served.folder).difference is None


def test_a_job_that_the_policy_cannot_decide_on_is_refused_and_the_others_run(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A policy of a user's own may raise where it sees a job that nobody thought of."""
    allocate = LasScheduler.allocate

    def picky(scheduler: LasScheduler, view: View) -> Allocation:
        if 3 in view.gpus:
            raise KeyError(3)
        return allocate(scheduler, view)

    monkeypatch.setattr(LasScheduler, "allocate", picky)
    served = Served(folder / "run", "las")
    served.finishes("first")
    assert served.submit(name="other", model="", batch=0, slots=1, duration_s=50).said
    assert served.submit(name="bad", model="", batch=0, slots=3).said
    while served.session.controller.jobs["bad"].state.name == "submitted":
        served.session.step()
    served.finishes("last")
    said = served.ask(GetDecision(job="bad")).said
    assert said.startswith("rejected: the policy raised before it decided on this job: PolicyError"), said
    assert "KeyError" in said and served.session.refused == 1
    assert served.session.controller.jobs["other"].state.name in ("running", "finished")
    assert replay(served.folder).difference is None


def drawn_spec(rng: np.random.Generator, name: str) -> dict[str, Any]:
    """A job, of which some fields are out of the ordinary."""
    spec: dict[str, Any] = {
        "name": name,
        "command": ["true"],
        "iterations": int(rng.choice([1, 20, 500, 10**6, 10**15])),
        "slots": int(rng.choice([1, 2, 3, 4, 12, 13, 1 << 17])),
        "retries": int(rng.integers(0, 3)),
        "elastic": bool(rng.random() < 0.8),
    }
    if rng.random() < 0.7:
        spec |= {
            "model": str(rng.choice(["vision", "language", "nobody"])),
            "batch": int(rng.choice([64, 128, 10**15])),
        }
    if rng.random() < 0.5:
        spec["deadline_s"] = float(rng.choice([1e-9, 1.0, 100.0, 1e6, 1e10]))
    if rng.random() < 0.5:
        spec["duration_s"] = float(rng.choice([1e-9, 1.0, 100.0, 1e6, 1e10]))
    if rng.random() < 0.15:
        spec |= dict(rng.choice(BAD))  # type: ignore[call-overload]
    return spec


def drawn_request(rng: np.random.Generator, served: Served, number: int) -> str:
    """The JSON of a request, about what is there and what is not."""
    jobs = [*served.session.controller.jobs, "nobody"]
    job = str(rng.choice(jobs))
    shares = {
        "submit": 0.5,
        "again": 0.05,
        "cancel": 0.2,
        "drain": 0.05,
        "decision": 0.1,
        "status": 0.05,
        "junk": 0.05,
    }
    kind = rng.choice(list(shares), p=list(shares.values()))
    match kind:
        case "submit":
            return json.dumps({"kind": "submit", "spec": drawn_spec(rng, f"j{number}")})
        case "again" if job in served.session.controller.jobs:
            return msgspec.json.encode(Submit(spec=served.session.controller.jobs[job].spec)).decode()
        case "cancel":
            return json.dumps({"kind": "cancel", "job": job})
        case "drain":
            return json.dumps({"kind": "drainnode", "node": str(rng.choice(["a-0", "a-1", "a-9"]))})
        case "decision":
            return json.dumps({"kind": "getdecision", "job": job})
        case "status":
            return '{"kind":"getstatus"}'
    text = json.dumps({"kind": "submit", "spec": GOOD})
    at = int(rng.integers(0, len(text)))
    return text[:at] + str(rng.choice(["", "9" * 30, "[", "\\u0000", "null", "}"])) + text[at + 1 :]


def test_no_sequence_of_requests_ends_a_controller(folder: Path) -> None:
    """Drawn submissions, cancellations, drained nodes and junk; then every job ends, and the replay is equal."""
    answered = refused = 0
    for seed in range(REQUESTS // SEQUENCE):
        rng = np.random.default_rng([31, seed])
        served = Served(folder / str(seed), POLICIES_DRAWN[seed % len(POLICIES_DRAWN)], seed)
        session = served.session
        for number in range(SEQUENCE):
            body = drawn_request(rng, served, number)
            answer = served.send(body)
            assert bool(answer.problems) != bool(answer.said or answer.status), (seed, body, answer)
            answered, refused = answered + 1, refused + bool(answer.problems)
            for _ in range(int(rng.integers(0, 20))):
                session.step()
        for name in session.controller.jobs:
            assert served.ask(Cancel(job=name)).said
        served.finishes("last")
        assert served.ask(Stop()).said
        session.run()
        assert session.refused == 0, seed
        assert all(isinstance(job.state, Ended) for job in session.controller.jobs.values())
        session.close()
        assert replay(served.folder).difference is None
    print(f"{answered} requests, {refused} of them refused")
    assert refused > answered / 10
