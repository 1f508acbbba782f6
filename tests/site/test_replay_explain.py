"""One job of a replay explained: the parts of its wait, who had the nodes, and changes that are replays of edited logs."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import numpy.typing as npt
import pytest

from forerun.cluster.engine.kernels import queue_state as qs
from forerun.cluster.explain.ahead import total_ahead
from forerun.cluster.policies.backfilling.base import BackfillPolicy
from forerun.core.cli.main import run
from forerun.core.errors import UnknownName, UsageError
from forerun.site.cases import Case, case_of
from forerun.site.history import History, read_history
from forerun.site.machine import Outage, Pool, System
from forerun.site.replay.explain import explain_job
from forerun.site.replay.play import CANDIDATES, policy_name, replayed
from forerun.site.replay.queues import Queue
from forerun.site.replay.replay import Replay, replay_log
from forerun.site.replay.story import QUEUED, JobStory

from ..conftest import cases
from .test_replay import BUSY, DAY_S, NODES, OFF, OUTAGES, drawn, earlier, machine, made_by, written

ANNOUNCED = tuple(msgspec.structs.replace(one, announced_s=one.from_s - 2 * DAY_S) for one in OUTAGES)


def replay_of(log: History, system: System, policy: BackfillPolicy) -> Replay:
    """The replay of a log, under a given policy."""
    until_s = log.origin_s + 30 * DAY_S
    made = replay_log(log, system=system, off=OFF, calibrate_until_s=until_s, identify=False)
    return replace(made, card=replace(made.card, past=replace(made.card.past, policy=policy)))


def by_the_engine(case: Case, policy: BackfillPolicy, windows: tuple[Outage, ...]) -> list[dict[str, float]]:
    """The seconds of each job's wait by cause, from the queue of the engine after each of its decisions.

    windows: of the machine, on the log's clock. Asks of each waiting job in turn, as slowly as it gets.
    """
    pool, count = case.pool, len(case)
    ready_s = np.maximum(case.submit_s, case.eligible_s)
    order = np.argsort(ready_s, kind="stable")
    playing = Queue(case, policy, order, ready_s)
    queue = playing.rules.queue = playing.queue._replace(event_time=playing.queue.event_time[:2])
    user, most = case.user[order], pool.running_per_user or count + 1
    found: list[dict[str, float]] = [{} for _ in range(count)]

    def note(job: int, cause: str, seconds: float) -> None:
        if seconds:
            mine = found[order[job]]
            mine[cause] = mine.get(cause, 0.0) + seconds

    def cause(job: int, now: float, free: int, runs: npt.NDArray[np.bool_]) -> str:
        need, ends_s = int(queue.gpus[job]), now + queue.nodes.request[job]
        near = [one for one in windows if one.announced_s <= now < one.to_s and one.from_s < ends_s]
        away = sum(one.of(pool) for one in near)
        if pool.gpus - away < need:
            return "maintenance"
        if user[job] and np.count_nonzero(runs & (user == user[job])) >= most:
            return "limit"
        return "nodes_in_use" if free - away < need else "free"

    last: dict[int, str] = {}
    known = [at for one in windows for at in (one.announced_s, one.from_s, one.to_s)]

    def charge(from_s: float, to_s: float, waiting: list[int], changed: bool, state: tuple[Any, ...]) -> None:
        """What kept jobs waiting from one event to the next; an outage also comes near between them."""
        for job in waiting:
            marks = [*known, *(one.from_s - queue.nodes.request[job] for one in windows)]
            inner = sorted({at for at in marks if from_s < at < to_s})
            for begin_s, end_s in zip([from_s, *inner], [*inner, to_s], strict=True):
                if changed or begin_s in marks:
                    last[job] = cause(job, begin_s, *state)
                note(job, last[job], end_s - begin_s)

    before: tuple[Any, ...] = ()
    while True:
        came = int(queue.meta[qs.ARRIVED])
        playing.play(np.inf)
        if not queue.meta[qs.EVENTS]:
            break
        now = float(queue.event_time[0])
        if before:
            charge(before[0], now, *before[1:])
        # where a promised start passes without one nothing has changed
        changed = came < queue.meta[qs.ARRIVED] or queue.meta[qs.LOGGED] > 0
        runs = (queue.first_start >= 0) & (queue.end < 0)
        waiting = sorted(queue.waiting[: queue.meta[qs.WAITING]].tolist())
        before = now, waiting, changed, (int(queue.nodes.free[0]), runs)
    assert not before[1]
    for job in range(count):
        note(job, "launch", pool.launch_s)
        note(job, "not_eligible", float(ready_s[order[job]] - case.submit_s[order[job]]))
    return found


def explained(replay: Replay, case: Case, policy: BackfillPolicy, row: int) -> JobStory:
    """The story of a job in a replay of the whole log."""
    whole = replace(
        replay, calibrated_s=np.inf, cases=(case,), card=replace(replay.card, past=replace(replay.card.past, policy=policy))
    )  # fmt: skip
    return explain_job(whole, str(replay.log.job_id[case.rows[row]]))


#: every policy, by turns on either pool and with outages of all or some nodes; all of them where FORERUN_CASES is set
WAITING = [
    pytest.param(policy, pool, some, id=f"{policy_name(policy)}-{name}-{'some' if some else 'all'} nodes")
    for number, policy in enumerate(CANDIDATES)
    for at, (name, pool) in enumerate((("plain", machine().pools[0]), ("busy", BUSY)))
    for some in (False, True)
    if cases(0) or (number % 2, number // 2 % 2) == (at, some)
]


def asked_about(expected: list[dict[str, float]]) -> list[int]:
    """The first jobs that each cause kept waiting, and some of the others; every job where FORERUN_CASES is set."""
    if cases(0):
        return list(range(len(expected)))
    names = dict.fromkeys(name for parts in expected for name in parts)
    by_cause = {name: [row for row, parts in enumerate(expected) if name in parts] for name in names}
    return sorted({row for rows in by_cause.values() for row in rows[:12]} | set(range(0, len(expected), 7)))


@pytest.mark.parametrize(("policy", "pool", "some"), WAITING)
def test_the_parts_of_each_wait_are_those_of_the_engine(
    policy: BackfillPolicy, pool: Pool, some: bool
) -> None:
    jobs = drawn(21, days=20, jobs=260)
    outages = earlier(ANNOUNCED, 12)
    pool = msgspec.structs.replace(pool, running_per_user=min(pool.running_per_user, 2))
    if some:
        outages = tuple(msgspec.structs.replace(one, gpus={"all": 60}) for one in outages)
    system = machine(pool, outages, held_after_s=0)
    log = made_by(policy, jobs, system)
    late = np.arange(len(log)) % 9 == 0
    log = replace(log, eligible_s=np.where(late, np.minimum(log.submit_s + 1800, log.start_s), log.submit_s))
    made = replay_log(log, system=system, off=OFF, identify=False)
    case = replace(case_of(log, system, 0), begin_s=-1.0)
    windows = tuple(
        Outage(
            from_s=one.from_s - log.origin_s,
            to_s=one.to_s - log.origin_s,
            announced_s=one.announced_s - log.origin_s,
            gpus=one.gpus,
        )
        for one in outages
    )
    expected = by_the_engine(case, policy, windows)
    seen: set[str] = set()
    for row in asked_about(expected):
        story = explained(made, case, policy, row)
        parts = dict(story.by_cause_s)
        # whether these GPUs are promised, or it is the policy's order, follows from who starts on them
        if free_s := parts.pop("promised", 0.0) + parts.pop("order", 0.0):
            parts["free"] = free_s
        assert parts == expected[row]
        edges = [story.submit_s, *(one.to_s for one in story.waits)]
        assert [one.from_s for one in story.waits] == edges[:-1]
        assert edges[-1] == story.start_s
        assert math.fsum(story.by_cause_s.values()) == story.start_s - story.submit_s
        seen |= set(story.by_cause_s)
    wanted = {"not_eligible", "nodes_in_use"} | ({"limit", "launch"} if pool.launch_s else set())
    wanted |= set() if "first-fit" in policy_name(policy) else {"promised"}
    assert wanted <= seen <= wanted | {"order", "maintenance"}
    assert some or "maintenance" in seen


def test_nodes_that_others_had_are_those_of_their_runs() -> None:
    system, policy = machine(BUSY, ANNOUNCED), CANDIDATES[2]
    made = replay_of(made_by(policy, drawn(22), system), system, policy)
    case = replace(made.cases[0], begin_s=made.calibrated_s)
    starts = replayed(case, policy)
    waited = np.flatnonzero((case.submit_s > made.calibrated_s) & (starts - case.submit_s > 6 * 3600))
    for row in waited[:: max(len(waited) // 8, 1)]:
        story = explain_job(made, str(made.log.job_id[case.rows[row]]))
        queued = [one for one in story.waits if one.cause in QUEUED]
        node_s = {}
        for other in np.flatnonzero(np.isfinite(starts)).tolist():
            begin_s = starts[other] - BUSY.launch_s
            end_s = starts[other] + (case.end_s - case.start_s)[other] + BUSY.turnover_s
            had_s = sum(max(0.0, min(one.to_s, end_s) - max(one.from_s, begin_s)) for one in queued)
            if had_s > 0:
                node_s[str(made.log.job_id[case.rows[other]])] = had_s * float(case.gpus[other])
        ahead = dict(total_ahead([wait for wait in story.waits if wait.cause in QUEUED]))
        assert ahead == pytest.approx(node_s)
        assert sum(gpu_s for _, gpu_s in story.users) == pytest.approx(sum(node_s.values()))


def test_causes_of_a_small_machine() -> None:
    """On 10 nodes: 6 until 1000 by request (they end at 400), 4 until 3000; an outage from 4000 to 5000."""
    hour = 3600.0
    pool = Pool(name="all", nodes=10)
    count = 260  # a replay needs many; all but the first come much later
    later = 1e6 + 1e4 * np.arange(count - 4)
    jobs = {
        "submit_s": np.concatenate([[0.0, 0, 10, 20], later]),
        "nodes": np.concatenate([[6.0, 4, 6, 9], np.ones(count - 4)]),
        "run_s": np.concatenate([[400.0, 2900, 100, 100], np.full(count - 4, hour)]),
        "requested_s": np.concatenate([[1000.0, 3000, 500, 2000], np.full(count - 4, hour)]),
    }
    outage = Outage(from_s=1.6e9 + 4000, to_s=1.6e9 + 5000, announced_s=1.6e9)
    system = machine(pool, (outage,), held_after_s=0)
    policy = CANDIDATES[0]
    log = made_by(policy, jobs, system)
    made = replay_log(log, system=system, off=OFF, identify=False)
    case = replace(case_of(log, system, 0), begin_s=-1.0)
    first, wide = explained(made, case, policy, 2), explained(made, case, policy, 3)
    assert (first.start_s, first.promised_s) == (400.0, None)
    assert first.by_cause_s == {"nodes_in_use": 390.0}
    # when the last of the others ends its request runs into the outage
    assert (wide.start_s, wide.promised_s) == (5000.0, None)
    assert [(one.cause, one.from_s, one.to_s) for one in wide.waits] == [
        ("nodes_in_use", 20.0, 2900.0),
        ("maintenance", 2900.0, 5000.0),
    ]
    kept = explained(made, case, CANDIDATES[3], 3)
    assert kept.promised_s == 5000.0
    assert "without outage 1" in [one.what for one in wide.tried]


def test_changes_are_replays_of_edited_logs(tmp_path: Path) -> None:
    """Each change is written into the log's file, which is read and replayed again."""
    small = Pool(name="small", nodes=20, most_gpus=8)
    main = Pool(name="main", nodes=NODES, running_per_user=3)
    system = System(pools=(small, main), held_after_s=0)
    policy = CANDIDATES[2]
    jobs = drawn(23)
    jobs["nodes"] = np.where(jobs["nodes"] == 8, 12, jobs["nodes"])
    log = made_by(policy, jobs, machine(Pool(name="all", nodes=NODES), held_after_s=0))
    made = replay_of(log, system, policy)
    checked = moved = 0
    for row in np.flatnonzero(log.submit_s > made.calibrated_s)[::37].tolist():
        try:
            story = explain_job(made, str(row))
        except UsageError:
            continue
        edits: dict[str, dict[str, Any]] = {
            "asks for half the time": {"requested_s": log.requested_s[row] / 2},
            "asks for half the nodes": {"gpus": log.gpus[row] // 2},
            "submitted an hour earlier": {"submit_s": log.submit_s[row] - 3600},
        }
        for what, change in edits.items():
            (tried,) = (one for one in story.tried if one.what.startswith(what))
            columns = {name: getattr(log, name).copy() for name in change}
            for name, value in change.items():
                columns[name][row] = value
            path = written(replace(log, **columns), tmp_path / "edited.csv")
            again = read_history(path)
            again = replace(again, complete_from_s=log.origin_s - again.origin_s)
            place = again.job_id.tolist().index(str(row))
            cases = [case_of(again, system, number) for number in range(2)]
            (case,) = (one for one in cases if place in one.rows)
            shift_s = log.origin_s - again.origin_s
            start_s = replayed(replace(case, begin_s=made.calibrated_s + shift_s), policy)
            assert float(start_s[case.rows == place][0]) - shift_s == pytest.approx(tried.start_s, abs=0.01)
            checked += 1
            moved += bool(tried.note.startswith("then it is in pool small"))
        if "limit" in story.by_cause_s:
            (free,) = (one for one in story.tried if one.what.startswith("no limit"))
            other = System(pools=(small, msgspec.structs.replace(main, running_per_user=0)), held_after_s=0)
            case = replace(case_of(log, other, 1), begin_s=made.calibrated_s)
            assert float(replayed(case, policy)[case.rows == row][0]) == free.start_s
            checked += 1
    assert checked > 30
    assert moved > 0


def test_held_jobs_and_those_of_either_part() -> None:
    policy, system = CANDIDATES[0], machine()
    log = made_by(policy, drawn(5), system)
    late = np.flatnonzero((log.submit_s < 40 * DAY_S) & (log.gpus <= 8))[::40]
    start_s = log.start_s.copy()
    start_s[late] += 10 * DAY_S
    made = replay_of(replace(log, start_s=start_s, end_s=start_s + log.run_s), system, policy)
    case = made.cases[0]
    for row in late.tolist():
        if not case.held[row]:
            continue
        story = explain_job(made, str(row))
        whole = log.submit_s[row] < made.calibrated_s
        assert story.begin_s == (made.log.complete_from_s if whole else made.calibrated_s)
        assert story.released_s is not None
        assert story.by_cause_s["held"] == story.released_s - story.submit_s
        (free,) = (one for one in story.tried if one.what == "not held")
        assert free.start_s < story.start_s
        assert "it was held" in story.why
    plain = explain_job(made, str(np.flatnonzero(~case.held & (case.submit_s > 35 * DAY_S))[0]))
    assert plain.class_error is not None
    assert plain.class_error.median_s <= plain.class_error.ninth_s
    assert {one.policy: one.start_s for one in plain.alike}[policy_name(policy)] == plain.start_s


def test_the_command(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    jobs = drawn(24, jobs=400)
    jobs["nodes"][200] = 96.0
    log = made_by(CANDIDATES[2], jobs, machine(windows=OUTAGES))
    path = written(log, tmp_path / "log.csv")
    rows = path.read_text().splitlines()
    waits = rows[5].split(",")
    path.write_text("\n".join([*rows, f"waiting,{log.origin_s + 59 * DAY_S},,,4,{waits[5]},u1"]) + "\n")
    kept, page = tmp_path / "kept.json", tmp_path / "job.html"
    system = tmp_path / "system.yaml"
    system.write_text("pools: [{name: all, nodes: 95}]\n")
    assert run(["replay", str(path), "-o", str(kept), "--system", str(system), "-q"]) == 0
    capsys.readouterr()
    job = str(int(np.argmax(np.where(log.submit_s > 40 * DAY_S, log.wait_s * (log.gpus <= 64), 0))))
    assert run(["explain", str(kept), "--job", job, "--report", str(page)]) == 0
    shown = capsys.readouterr().out
    for text in (
        "why: job",
        "What it waited for in the replay",
        "Who had the nodes while it was in the queue",
        "asks for half the time",
    ):
        assert text in shown
    assert "what it waited for in the replay" in page.read_text()
    assert run(["explain", str(kept), "--job", job, "--json"]) == 0
    data = json.loads(capsys.readouterr().out)
    assert math.fsum(data["by_cause_s"].values()) == data["start_s"] - data["submit_s"]
    assert data["history_s"] == pytest.approx(log.start_s[int(job)] + log.origin_s)
    for words, what in (
        (["--job", "nobody"], "no job named 'nobody'"),
        (["--job", "200"], "200 is set aside: it asks for 96 nodes"),
        (["--job", "waiting"], "waiting never started in the log"),
        ([], "give a run directory, or --job ID"),
        (["--job", job, "--ties", "2"], "leave --ties"),
    ):
        assert run(["explain", str(kept), *words]) == 2, words
        error = capsys.readouterr().err
        assert what in error, (words, error)
        assert error.count("\n") == 1
    assert run(["explain", str(path), "--job", job]) == 2
    assert "log.csv" in capsys.readouterr().err


def test_what_cannot_be_explained() -> None:
    log = made_by(CANDIDATES[0], drawn(25), machine())
    made = replay_of(log, machine(), CANDIDATES[0])
    with pytest.raises(UnknownName, match="no job named 'x'"):
        explain_job(made, "x")
    early = replace(made, cases=tuple(replace(one, begin_s=10 * DAY_S) for one in made.cases))
    with pytest.raises(UsageError, match="3 started before the replay begins"):
        explain_job(early, "3")
