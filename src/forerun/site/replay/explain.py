"""Why one job of a replayed log waited, when it would start, and what would have changed that.

Everything is read from the free replay: at each instant at which anything changes, the first rule of the policy that keeps
the job waiting is its cause until the next one. What would have changed it is replayed, one change at a time.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, Final

import numpy as np

from forerun.cluster.explain.job_story import came, row_of, seconds_by_cause
from forerun.cluster.inputs.reach import WHOLE_NODE, reach_of
from forerun.cluster.inputs.setting import Window
from forerun.cluster.policies.backfilling.base import BackfillPolicy
from forerun.cluster.policies.orders.multifactor import Multifactor
from forerun.cluster.policies.orders.sjf import ShortestRequest
from forerun.cluster.policies.orders.wfp3 import Wfp3
from forerun.cluster.summary.spans import Spans
from forerun.core.errors import UsageError
from forerun.core.result.numbers import duration
from forerun.site.cases import Case, case_of
from forerun.site.history import F64, I64, History, Mask
from forerun.site.machine import pool_of
from forerun.site.replay.card import classes_of, scored
from forerun.site.replay.play import played, policy_name, replayed
from forerun.site.replay.replay import Replay
from forerun.site.replay.story import (
    BUSY,
    CAUSES,
    MOST_HOLDERS,
    Alike,
    ClassError,
    Holder,
    JobStory,
    Queued,
    TriedStart,
)
from forerun.site.replay.whatif import Counterfactual

#: by how much a job is submitted earlier
SHIFT_S: Final = 3600.0
#: instants that are looked at together
_CHUNK: Final = 256


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
    asked = _Waiting(replay, case, replay.card.policy, at)
    stretches = asked.stretches()
    holders, users = asked.holders(stretches)
    expected_s, promised = asked.expected()
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
        start_s=asked.start_s,
        ready_s=asked.came_s,
        expected_s=expected_s,
        promised=promised,
        by_cause_s=seconds_by_cause(stretches, CAUSES),
        stretches=stretches,
        holders=holders,
        users=users,
        class_error=_class_error(replay, case, asked.played.start_s, at),
        alike=alike,
        tried=tuple(_changes(replay, case, at, stretches, progress)),
        rejected="; ".join(replay.card.reasons),
    )


class _Waiting:
    """One job in a free replay of its pool.

    Parameters
    ----------
    replay, case, policy : what is replayed, and how.
    at : the job, a position in the case.

    Attributes
    ----------
    played : the replay.
    start_s, came_s : when the job starts, and came into the queue, or the replay began.
    begin_s, end_s : when each job gets its nodes, and they can be used again; infinite: never.
    rank : of each job, by when it came into the queue.
    total, here : GPUs of the nodes that the job may use, and those of each job there.
    windows : outages, with the GPUs that they take of these.
    """

    def __init__(self, replay: Replay, case: Case, policy: BackfillPolicy, at: int) -> None:
        self.log, self.case, self.policy, self.at = replay.log, case, policy, at
        self.played = play = played(case, policy)
        self.start_s = float(play.start_s[at])
        self.begin_s = play.decided_s
        self.end_s = self.begin_s + (case.run_s + case.extra_s)
        self.came_s = max(float(play.ready_s[at]), case.begin_s)
        self.rank = np.empty(len(case), np.int64)
        self.rank[np.argsort(play.ready_s, kind="stable")] = np.arange(len(case))
        reach, size = reach_of(case.setting.jobs, case.setting.cluster), case.setting.cluster.node_gpus()
        mine = reach.nodes[reach.kind[at]]
        self.total, self.here = int(size[mine].sum()), case.gpus
        self.shape = int(reach.count[at]), int(reach.each[at])
        self._size, self._mine, self._shares = size, mine, list[tuple[I64, I64]]()
        if case.pool.parts:
            each = reach.each.tolist()
            self._shares = [
                (nodes, size[nodes] if share == WHOLE_NODE else np.minimum(share, size[nodes]))
                for nodes, share in zip(play.on_nodes, each, strict=True)
            ]
            self.here = np.array([int(gpus[mine[nodes]].sum()) for nodes, gpus in self._shares], np.int64)
        self.windows = [
            replace(
                one,
                gpus=int(size[list(one.nodes)][mine[list(one.nodes)]].sum())
                if one.nodes
                else min(one.gpus, self.total),
            )
            for one in case.windows
        ]
        limits = case.setting.limits
        self._groups = limits.groups_of[0] if limits is not None else ((),) * len(case)

    def stretches(self) -> tuple[Queued, ...]:
        """Its wait by cause, from submission to start."""
        case, at = self.case, self.at
        submit_s, ready_s = float(case.submit_s[at]), float(self.played.ready_s[at])
        eligible_s = max(float(case.eligible_s[at]), submit_s)
        queued = list(self._queued()) if self.came_s < self.begin_s[at] else []
        parts = [
            Queued(submit_s, eligible_s, "eligible"),
            Queued(eligible_s, ready_s, "held"),
            Queued(ready_s, self.came_s, "before"),
            *queued,
            Queued(float(self.begin_s[at]), self.start_s, "launch"),
        ]
        merged: list[Queued] = []
        for one in parts:
            if one.from_s == one.to_s:
                continue
            last = merged[-1] if merged else None
            if last is not None and (last.cause, last.window) == (one.cause, one.window):
                merged[-1] = replace(last, to_s=one.to_s)
            else:
                merged.append(one)
        return tuple(merged)

    def _queued(self) -> Iterator[Queued]:
        """What kept it in the queue from each instant at which anything changed until the next."""
        case, at = self.case, self.at
        from_s, to_s = self.came_s, float(self.begin_s[at])
        need, request_s = int(case.gpus[at]), float(case.request_s[at]) + self.case.extra_s
        windows = [
            instant
            for window in self.windows
            for instant in (window.announced_s, window.from_s, window.to_s, window.from_s - request_s)
        ]
        instants = np.concatenate([self.begin_s, self.end_s, self.played.ready_s, windows])
        marks = np.unique(np.append(instants[(instants > from_s) & (instants < to_s)], from_s))
        free = self._free(marks)
        limited = self._limited(self._groups[at], need, marks)
        ahead, first = self._ahead(marks)
        ends = np.append(marks[1:], to_s)
        for k, (mark, end) in enumerate(zip(marks.tolist(), ends.tolist(), strict=True)):
            known = self._known(mark)
            away = _away(known, mark)
            left, number = int(free[k]) - away, 0
            if limited[k]:
                cause = "limit"
            elif left < need and (self.total - away < need or free[k] >= need):
                cause = "outage"
                number = next(at for at, one in known.items() if one.from_s <= mark and one.gpus)
            elif left < need:
                cause = "behind" if ahead[k] else "few"
            elif number := self._in_the_way(mark, mark + request_s, need, known):
                cause = "drain"
            else:
                cause = "hole" if self._fits(mark) else "spread"
            name = str(self.log.job_id[case.rows[first[k]]]) if ahead[k] else ""
            yield Queued(mark, end, cause, int(free[k]), int(ahead[k]), name, number)

    def _known(self, now: float) -> dict[int, Window]:
        """The outages by number that have been announced at an instant, and are not over."""
        return {at: one for at, one in enumerate(self.windows, 1) if one.announced_s <= now < one.to_s}

    def _in_the_way(self, now: float, to_s: float, need: int, known: Mapping[int, Window]) -> int:
        """The number of the first outage ahead that leaves it too few nodes, by the requests of those that run; 0: none."""
        for number, ahead in known.items():
            if not (now < ahead.from_s < to_s and ahead.gpus):
                continue
            if self._left(ahead.from_s, known, *self._believed(now)) < need:
                return number
        return 0

    def _left(self, at_s: float, known: Mapping[int, Window], runs: I64, believed_s: F64) -> int:
        """Nodes that nobody is believed to need at an instant. runs, believed_s: who runs now, and until when."""
        return self.total - _away(known, at_s) - int(self.here[runs][believed_s > at_s].sum())

    def _believed(self, now: float) -> tuple[I64, F64]:
        """The jobs that run at an instant, and when each is believed to end."""
        runs = np.flatnonzero((self.begin_s <= now) & (self.end_s > now))
        believed_s = self.begin_s[runs] + (self.case.request_s[runs] + self.case.extra_s)
        return runs, np.where(believed_s <= now, now + self.policy.grace_s, believed_s)

    def _free(self, at: F64) -> I64:
        """GPUs that no job holds, of the nodes that it may use, from each of some instants on."""
        return self.total - Spans(self.begin_s, self.end_s, self.here).at(at)

    def _fits(self, now: float) -> bool:
        """Whether the GPUs that are free at an instant are on as many nodes as it takes."""
        if not self._shares:
            return True
        free, (count, each) = self._size.copy(), self.shape
        for run in np.flatnonzero((self.begin_s <= now) & (self.end_s > now)).tolist():
            nodes, gpus = self._shares[run]
            free[nodes] -= gpus
        enough = free == self._size if each == WHOLE_NODE else free >= each
        return bool(np.count_nonzero(enough & self._mine) >= count)

    def _limited(self, groups: tuple[int, ...], need: int, at: F64) -> Mask:
        """Whether a limit keeps one more job of some groups waiting, from each of some instants on."""
        limits, reached = self.case.setting.limits, np.zeros(len(at), np.bool_)
        for group in groups:
            assert limits is not None
            mine = np.array([group in of for of in self._groups], np.bool_)
            begin_s, end_s, gpus = self.begin_s[mine], self.end_s[mine], self.case.gpus[mine]
            reached |= Spans(begin_s, end_s, np.ones_like(gpus)).at(at) >= limits.jobs[group]
            reached |= Spans(begin_s, end_s, gpus).at(at) + need > limits.gpus[group]
        return reached

    def _ahead(self, marks: F64) -> tuple[I64, I64]:
        """At each of some instants: how many jobs are before it in the queue, and the first of them."""
        case, at, ready_s = self.case, self.at, self.played.ready_s
        last_s = float(self.begin_s[at])
        others = np.flatnonzero((ready_s < last_s) & (self.begin_s > marks[0]) & np.isfinite(self.begin_s))
        others = others[others != at]
        kinds: dict[tuple[tuple[int, ...], int], int] = {}
        of = np.array(
            [
                kinds.setdefault(
                    (self._groups[one], int(case.gpus[one]) if self._groups[one] else 0), len(kinds)
                )
                for one in others.tolist()
            ],
            np.int64,
        )
        limited = np.array([self._limited(*kind, marks) for kind in kinds]).reshape(len(kinds), len(marks))
        count, first = np.zeros((2, len(marks)), np.int64)
        for begin in range(0, len(marks), _CHUNK):
            part = slice(begin, begin + _CHUNK)
            now = marks[part, np.newaxis]
            near = np.flatnonzero((ready_s[others] <= now[-1]) & (self.begin_s[others] > now[0]))
            if not len(near):
                continue
            jobs = others[near]
            key, own = self._key(jobs, now), self._key(np.array([at]), now)
            before = (ready_s[jobs] <= now) & (self.begin_s[jobs] > now) & ~limited[of[near], part].T
            before &= (key < own) | ((key == own) & (self.rank[jobs] < self.rank[at]))
            count[part] = before.sum(1)
            # of equals that which came into the queue first
            least = np.where(before, key, np.inf)
            level = np.where(least == least.min(1, keepdims=True), self.rank[jobs], len(case))
            first[part] = jobs[level.argmin(1)]
        return count, first

    def _key(self, jobs: I64, now: F64) -> F64:
        """What orders some jobs at some instants, a row each; the least is first."""
        case, request_s = self.case, self.case.request_s[jobs] + self.case.extra_s
        if isinstance(self.policy.order, Multifactor):  # whose usage is not known here: by when they start
            return np.broadcast_to(self.begin_s[jobs], (len(now), len(jobs)))
        if isinstance(self.policy.order, Wfp3):
            waits = (now - case.since_s[jobs]) / request_s
            return -(waits * waits * waits * case.gpus[jobs])
        key = request_s if isinstance(self.policy.order, ShortestRequest) else case.since_s[jobs]
        return np.broadcast_to(key, (len(now), len(jobs)))

    def expected(self) -> tuple[float, bool]:
        """The start that it was promised when it came into the queue, or else the earliest by requests; and which it is."""
        case, at, now = self.case, self.at, self.came_s
        promise_s = float(self.played.promise_s[at])
        if np.isfinite(promise_s):
            return promise_s, True
        request_s = float(case.request_s[at]) + self.case.extra_s
        runs, believed_s = self._believed(now)
        before = self.begin_s[runs] < now  # not those that start at this very instant
        runs, believed_s = runs[before], believed_s[before]
        known = self._known(now)
        windows = known.values()
        for start_s in sorted({now, *believed_s.tolist(), *(window.to_s for window in windows)}):
            steps = [start_s, *(one.from_s for one in windows if start_s < one.from_s < start_s + request_s)]
            if all(self._left(step_s, known, runs, believed_s) >= case.gpus[at] for step_s in steps):
                return start_s + case.pool.launch_s, False
        raise AssertionError("a job fits when all others have ended")

    def holders(self, stretches: Sequence[Queued]) -> tuple[tuple[Holder, ...], tuple[Holder, ...]]:
        """The jobs and the users that had most GPU-seconds while others kept it waiting."""
        case, at = self.case, self.at
        busy = [one for one in stretches if one.cause in BUSY]
        whole_s = math.fsum(one.seconds for one in busy)
        if not whole_s:
            return (), ()
        edges = np.array([instant for one in busy for instant in (one.from_s, one.to_s)])
        so_far = np.cumsum([0.0, *(part for one in busy for part in (one.seconds, 0.0))])[:-1]
        overlap_s = np.interp(self.end_s, edges, so_far) - np.interp(self.begin_s, edges, so_far)
        overlap_s = np.where(np.isfinite(self.begin_s), overlap_s, 0.0)
        gpu_s: F64 = overlap_s * self.here
        whole = whole_s * self.total
        jobs = [
            Holder(
                str(self.log.job_id[case.rows[one]]), float(gpu_s[one]), float(gpu_s[one] / whole),
                self._since(one),
            )
            for one in np.argsort(-gpu_s, kind="stable")[:MOST_HOLDERS].tolist()
            if gpu_s[one] > 0
        ]  # fmt: skip
        by_user = np.bincount(case.user, gpu_s)
        users = [
            Holder(("", *self.log.user.names)[user], float(by_user[user]), float(by_user[user] / whole))
            for user in np.argsort(-by_user, kind="stable").tolist()
            if by_user[user] > 0 and self.log.user.known
        ]
        assert not overlap_s[at]
        return tuple(jobs), tuple(users[:MOST_HOLDERS])

    def _since(self, other: int) -> str:
        """How another job came to be ahead of this one."""
        return came(
            ran=self.begin_s[other] <= self.came_s and self.rank[other] < self.rank[self.at],
            before=self.case.submit_s[other] < self.case.submit_s[self.at],
        )


def _away(known: Mapping[int, Window], at_s: float) -> int:
    """Nodes that are away at an instant, by the outages that are known."""
    return sum(one.gpus for one in known.values() if one.from_s <= at_s < one.to_s)


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
    stretches: Sequence[Queued],
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
    seconds: dict[tuple[str, int], float] = {}
    for one in stretches:
        key = (one.cause, one.window)
        seconds[key] = seconds.get(key, 0.0) + one.seconds
    causes = {cause for cause, _ in seconds}
    if "eligible" in causes:
        yield otherwise("eligible when it was submitted", eligible_s=float(replay.log.submit_s[row]))
    if "held" in causes:
        released_s = case.released_s.copy()
        released_s[at] = -np.inf
        yield without("not held", replace(case, released_s=released_s))
    if "limit" in causes:
        change = Counterfactual(running_per_user=0)
        yield without(change.what, change.of(case, replay.log, replay.system))
    for window in sorted({window for _, window in seconds if window}):
        change = Counterfactual(without_window=window)
        yield without(change.what, change.of(case, replay.log, replay.system))


def _run_s(log: History, row: int) -> float | None:
    run_s = float(log.run_s[row])
    return run_s if math.isfinite(run_s) else None


def _user(log: History, row: int) -> str:
    code = int(log.user.codes[row])
    return log.user.names[code] if code >= 0 else ""
