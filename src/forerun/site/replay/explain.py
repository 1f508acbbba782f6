"""Why one job of a replayed log waited, when it would start, and what would have changed that.

The causes follow from the free replay, as those of a simulation do from its schedule (`cluster.summary.causes`). What would
have changed it is replayed, one change at a time.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import Any, Final

import numpy as np

from forerun.cluster.engine.kernels.causes import SHAPED
from forerun.cluster.explain.ahead import Occupancy, total_ahead
from forerun.cluster.explain.job_story import MOST_AHEAD, Wait, row_of, seconds_by_cause
from forerun.cluster.inputs.arrays import NO_REQUEST_S
from forerun.cluster.inputs.reach import WHOLE_NODE, reach_of
from forerun.cluster.inputs.setting import Setting
from forerun.cluster.summary.causes import HISTORY, Caused, Waiting, causes_of, within
from forerun.cluster.summary.spans import Stretches
from forerun.core.errors import UsageError
from forerun.core.result.numbers import duration
from forerun.site.cases import Case, case_of
from forerun.site.history import F64, I64, History
from forerun.site.machine import pool_of
from forerun.site.replay.play import Played, played, policy_name, replayed
from forerun.site.replay.replay import Replay
from forerun.site.replay.scores import classes_of, scored
from forerun.site.replay.story import CAUSES, QUEUED, Alike, ClassError, JobStory, TriedStart
from forerun.site.replay.whatif import Counterfactual

#: by how much a job is submitted earlier
SHIFT_S: Final = 3600.0


def explain_job(replay: Replay, job: str, *, progress: Callable[[str], None] = lambda _: None) -> JobStory:
    """Explain one job of a replay: what it waited for, who had the nodes, and what would have changed its start.

    A job of the first part is explained in the replay of the whole log, one of the last part in that which begins anew
    from history at its beginning.

    Parameters
    ----------
    replay : as `replay_log` returns it.
    job : its id in the log.
    progress : is called with what is being done (default: nobody is).

    Raises UnknownName if the log has no such job, UsageError for one that the replay has set aside or that never started.
    """
    log = replay.log
    ids = [str(name) for name in log.job_id.tolist()]
    row = row_of(ids, job)
    if not log.started[row]:
        raise UsageError.at("--job", f"{job} never started in the log; forerun wait-time asks when it would")
    case = next((case for case in replay.cases if row in case.rows), None)
    if case is None:
        what = f"{job} is set aside: it asks for {log.gpus[row]} {log.unit}, and no pool of the replay has it"
        raise UsageError.at("--job", what)
    if log.submit_s[row] >= replay.calibrated_s:
        case = replace(case, begin_s=replay.calibrated_s)
    at = int(np.flatnonzero(case.rows == row)[0])
    if case.start_s[at] - case.pool.launch_s <= case.begin_s:
        raise UsageError.at("--job", f"{job} started before the replay begins, so it is in it as it was")
    progress(f"job {job}")
    play = played(case, replay.card.policy)
    waits = _waits(replay, case, play, at)
    promise_s = float(play.promise_s[at])
    alike = tuple(
        Alike(policy_name(policy), float(replayed(case, policy)[at])) for policy in replay.card.alike
    )
    return JobStory(
        job=job,
        user=_user(log, row),
        pool=case.pool.name,
        unit=log.unit,
        gpus=int(case.gpus[at]),
        request_s=float(case.request_s[at]),
        run_s=_run_s(log, row),
        submit_s=float(case.submit_s[at]),
        eligible_s=float(case.eligible_s[at]),
        released_s=float(case.released_s[at]) if case.held[at] else None,
        begin_s=case.begin_s,
        policy=policy_name(replay.card.policy),
        history_s=float(case.start_s[at]),
        start_s=float(play.start_s[at]),
        ready_s=max(float(play.ready_s[at]), case.begin_s),
        promised_s=promise_s if math.isfinite(promise_s) else None,
        by_cause_s=seconds_by_cause(waits, CAUSES),
        waits=waits,
        users=_users(replay, waits),
        class_error=_class_error(replay, case, play.start_s, at),
        alike=alike,
        tried=tuple(_changes(replay, case, at, waits, progress)),
        rejected="; ".join(replay.card.reasons),
    )


def _users(replay: Replay, waits: Sequence[Wait]) -> tuple[tuple[str, float], ...]:
    """The users whose jobs had GPUs while the job was in the queue, with their GPU-seconds, most first."""
    log = replay.log
    if not log.user.known:
        return ()
    row = {str(name): at for at, name in enumerate(log.job_id.tolist())}
    totals: dict[str, float] = {}
    for other, gpu_s in total_ahead([wait for wait in waits if wait.cause in QUEUED]):
        user = _user(log, row[other])
        totals[user] = totals.get(user, 0.0) + gpu_s
    return tuple(sorted(totals.items(), key=lambda item: -item[1])[:MOST_AHEAD])


def _waits(replay: Replay, case: Case, play: Played, at: int) -> tuple[Wait, ...]:
    """Its wait by cause from submission to start, with who had GPUs of its nodes. play: the free replay."""
    jobs = replace(case.setting.jobs, id=tuple(replay.log.job_id[case.rows].tolist()))
    decided_s = play.decided_s
    needed_s = np.rint(np.minimum(case.request_s + case.extra_s, NO_REQUEST_S)).astype(np.int64)
    setting = replace(case.setting, jobs=replace(jobs, requested_s=needed_s))
    came_s, end_s = np.maximum(play.ready_s, case.begin_s), decided_s + (case.run_s + case.extra_s)
    ran = np.flatnonzero(np.isfinite(decided_s))
    ran = ran[np.lexsort((ran, decided_s[ran]))]
    waited = ran[decided_s[ran] > came_s[ran]]
    waited = waited[np.lexsort((waited, came_s[waited]))]
    had = Stretches(decided_s[ran], end_s[ran], jobs.gpus[ran], ran)
    every = Waiting(
        came_s[waited], decided_s[waited], jobs.gpus[waited], waited, np.ones(len(waited), np.bool_)
    )
    seats = _seats(setting, play, ran) if case.pool.parts else None
    decided = HISTORY if seats is None else replace(HISTORY, form=SHAPED)
    causes = causes_of(setting, had, every, decided, seats=seats, named=seats is not None, focus=at)
    eligible_s = np.maximum(case.eligible_s, case.submit_s)
    edges = (case.submit_s, eligible_s, play.ready_s, came_s, decided_s, play.start_s)
    marks = [float(column[at]) for column in edges]
    beside = [
        Caused(from_s, to_s, cause, CAUSES[cause])
        for cause, from_s, to_s in zip(("not_eligible", "held", "before", "", "launch"), marks, marks[1:])
        if cause and to_s > from_s
    ]
    stretches = sorted([*beside, *causes.stretches], key=lambda one: one.from_s)
    there, total = within(had, seats, setting.cluster.node_gpus(), causes.reach)
    return tuple(Occupancy(there, total, jobs.id, play.ready_s, at).waits(stretches, marks[-1]))


def _seats(setting: Setting, play: Played, rows: I64) -> tuple[I64, I64, I64]:
    """The GPUs of some jobs in a replay on named nodes, as of `Record.seats`."""
    reach, size = reach_of(setting.jobs, setting.cluster), setting.cluster.node_gpus()
    nodes = [play.on_nodes[row] for row in rows.tolist()]
    wide = np.array([len(one) for one in nodes], np.int64)
    node = np.concatenate([*nodes, np.zeros(0, np.int64)])
    each = np.repeat(reach.each[rows], wide)
    count = np.where(each == WHOLE_NODE, size[node], np.minimum(each, size[node]))
    return np.concatenate(([0], np.cumsum(wide))), (np.cumsum(size) - size)[node], count


def _class_error(replay: Replay, case: Case, start_s: F64, at: int) -> ClassError | None:
    """By how much jobs like it are off in the replay in which it is."""
    until_s = replay.until_s if case.begin_s >= replay.calibrated_s else replay.calibrated_s
    rows = scored(case, start_s, case.begin_s, until_s)
    for name, mine in classes_of(case, rows):
        if mine[at] and (rows & mine).any():
            off_s = np.abs(start_s - case.start_s)[rows & mine]
            median_s, ninth_s = np.quantile(off_s, (0.5, 0.9)).tolist()
            return ClassError(name, len(off_s), median_s, ninth_s)
    return None


def edited(log: History, row: int, **values: float) -> tuple[History, I64]:
    """A log in which one job is otherwise, and where each of its rows stood.

    Parameters
    ----------
    log : the history.
    row : of the job.
    values : columns and what they are for it, such as `gpus=4`.
    """
    columns: dict[str, Any] = {}
    for name, value in values.items():
        columns[name] = getattr(log, name).copy()
        columns[name][row] = value
    changed = replace(log, **columns)
    order = np.argsort(changed.submit_s, kind="stable")
    return changed.of(order), order


def case_with(replay: Replay, row: int, begin_s: float, **values: float) -> tuple[Case, int]:
    """The pool of a job that is otherwise, and its position there; who is held stays as it was.

    Parameters
    ----------
    replay : as it was.
    row : of the job in its log.
    begin_s : from when on it is replayed.
    values : columns and what they are for it, such as `gpus=4`.
    """
    log, order = edited(replay.log, row, **values)
    place = int(np.flatnonzero(order == row)[0])
    number = int(pool_of(log, replay.system.pools)[place])
    case = case_of(log, replay.system, number)
    holds = {name: np.full(len(log), np.inf) for name in ("doubted_s", "held_s")}
    holds["released_s"] = np.full(len(log), -np.inf)
    for one in replay.cases:
        for name, column in holds.items():
            column[one.rows] = getattr(one, name)
    kept: dict[str, Any] = {name: column[order[case.rows]] for name, column in holds.items()}
    return replace(case, begin_s=begin_s, **kept), int(np.flatnonzero(case.rows == place)[0])


def _changes(
    replay: Replay,
    case: Case,
    at: int,
    waits: Sequence[Wait],
    progress: Callable[[str], None],
) -> Iterator[TriedStart]:
    """What would have changed its start: its request, and what it waited for."""
    policy, row = replay.card.policy, int(case.rows[at])
    gpus, request_s = int(case.gpus[at]), float(case.request_s[at])
    run_s = _run_s(replay.log, row)

    def otherwise(what: str, note: str = "", **values: float) -> TriedStart:
        progress(what)
        changed, place = case_with(replay, row, case.begin_s, **values)
        if changed.pool.name != case.pool.name:
            note = f"then it is in pool {changed.pool.name}" + (f"; {note}" if note else "")
        return TriedStart(what, float(replayed(changed, policy)[place]), note)

    def without(what: str, changed: Case) -> TriedStart:
        progress(what)
        return TriedStart(what, float(replayed(changed, policy)[at]))

    half_s = request_s / 2
    longer = f"it ran {duration(run_s)}, longer than that" if run_s is not None and run_s > half_s else ""
    yield otherwise(f"asks for half the time, {duration(half_s)}", longer, requested_s=half_s)
    if gpus > 1:
        few = gpus // 2
        yield otherwise(f"asks for half the {replay.log.unit}, {few}", gpus=few)
    shifted = {"submit_s": replay.log.submit_s[row] - SHIFT_S}
    if np.isfinite(replay.log.eligible_s[row]):
        shifted["eligible_s"] = replay.log.eligible_s[row] - SHIFT_S
    yield otherwise("submitted an hour earlier", **shifted)
    causes = {one.cause for one in waits}
    if "not_eligible" in causes:
        yield otherwise("eligible when it was submitted", eligible_s=float(replay.log.submit_s[row]))
    if "held" in causes:
        released_s = case.released_s.copy()
        released_s[at] = -np.inf
        yield without("not held", replace(case, released_s=released_s))
    if "limit" in causes and case.pool.running_per_user:
        change = Counterfactual(running_per_user=0)
        yield without(change.what, change.of(case, replay.log, replay.system))
    met = [one for one in waits if one.cause in ("maintenance", "failed_nodes")]
    for number, window in enumerate(case.windows, 1):
        if any(window.announced_s < one.to_s and one.from_s < window.to_s for one in met):
            change = Counterfactual(without_window=number)
            yield without(change.what, change.of(case, replay.log, replay.system))


def _run_s(log: History, row: int) -> float | None:
    run_s = float(log.run_s[row])
    return run_s if math.isfinite(run_s) else None


def _user(log: History, row: int) -> str:
    code = int(log.user.codes[row])
    return log.user.names[code] if code >= 0 else ""
