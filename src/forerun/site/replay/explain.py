"""Why one job of a replayed log waited, when it would start, and what would have changed that.

Everything is read from the free replay: at each instant at which anything changes, the first rule of the policy that keeps
the job waiting is its cause until the next one. What would have changed it is replayed, one change at a time.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any, Final

import numpy as np

from forerun.cluster.inputs.setting import Window
from forerun.cluster.policies.backfilling.base import BackfillPolicy
from forerun.cluster.policies.orders.sjf import ShortestRequest
from forerun.cluster.policies.orders.wfp3 import Wfp3
from forerun.core.errors import UnknownName, UsageError
from forerun.core.result.numbers import quantity, shown_instant
from forerun.site.replay.card import classes_of, scored
from forerun.site.replay.cases import Case, case_of, pool_of
from forerun.site.replay.history import F64, I64, History, Mask
from forerun.site.replay.play import played, policy_name, replayed
from forerun.site.replay.replay import Replay
from forerun.site.replay.whatif import Change

#: what keeps a job waiting, in the order in which it is asked; the first that does counts
CAUSES: Final = {
    "eligible": "it was not eligible yet",
    "held": "it was held in history: it did not start although it could have",
    "before": "the replay had not begun",
    "limit": "its user had as many jobs running as may",
    "outage": "an outage was under way",
    "few": "too few nodes were free; nobody was before it in the queue",
    "behind": "too few nodes were free, and others were before it in the queue",
    "drain": "an announced outage was nearer than the end of its request",
    "hole": "a job before it was promised the free nodes, nearer than the end of its request",
    "launch": "it was being launched",
}
#: causes in which others have the nodes
_BUSY: Final = ("few", "behind", "hole")
#: by how much a job is submitted earlier
SHIFT_S: Final = 3600.0
#: who had the nodes: so many are named
MOST_HOLDERS: Final = 10
_HOUR_S: Final = 3600.0
#: instants that are looked at together
_CHUNK: Final = 256


@dataclass(frozen=True, slots=True)
class Stretch:
    """A stretch of waiting for one cause, with what was so when it began.

    Parameters
    ----------
    from_s, to_s : begin and end; each begins where the one before it ends.
    cause : one of `CAUSES`.
    free : nodes that no job held; None: the job was not in the queue.
    ahead : jobs before it in the queue whom no limit kept waiting; None: it was not in the queue.
    first : id of the first of them; empty: there is none.
    window : number of the outage, from 1; 0: the cause is another.
    """

    from_s: float
    to_s: float
    cause: str
    free: int | None = None
    ahead: int | None = None
    first: str = ""
    window: int = 0

    @property
    def seconds(self) -> float:
        """How long it was."""
        return self.to_s - self.from_s


@dataclass(frozen=True, slots=True)
class Holder:
    """Who had nodes while others kept the job waiting.

    Parameters
    ----------
    name : a job, or a user.
    node_s : node-seconds.
    share : of all nodes of the pool in that time.
    since : how a job came to be ahead, in words; empty for a user.
    """

    name: str
    node_s: float
    share: float
    since: str = ""


@dataclass(frozen=True, slots=True)
class ClassError:
    """By how much starts of jobs of a class are off in the replay.

    Parameters
    ----------
    name : of the class.
    jobs : how many of them are scored.
    median_s, ninth_s : half of them are off by no more, and nine of ten.
    """

    name: str
    jobs: int
    median_s: float
    ninth_s: float


@dataclass(frozen=True, slots=True)
class Tried:
    """One change, and when the job starts with it.

    Parameters
    ----------
    what : the change in words.
    start_s : the start.
    note : what else to know of it; empty: nothing.
    """

    what: str
    start_s: float
    note: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class JobStory:
    """What happened to one job in history and in the replay. Times in seconds from the log's origin.

    Parameters
    ----------
    job, user, pool : names; the user is empty where the log does not say.
    nodes, request_s, run_s : what it asks for, and how long it ran; None: it runs still.
    submit_s, eligible_s : when it came, and could start at the earliest.
    released_s : when it was last seen to be held in history, and so comes into the queue again; None: it was not held.
    begin_s : where the replay begins.
    policy : of the replay.
    history_s, start_s : when it starts in history, and in the replay.
    ready_s : when it came into the queue.
    expected_s : the start that it was promised then, or else the earliest by the requests of jobs that ran then, were
        nobody before it.
    promised : whether it is a promise.
    stretches : its wait from submission to start, without gaps.
    holders, users : who had nodes while others kept it waiting; most first, `MOST_HOLDERS` at most.
    error : by how much starts of its class are off; None: too few are scored.
    alike : policies that the log cannot tell from that of the replay, and its start under each.
    tried : single changes.
    rejected : why the replay says nothing about this log; empty if it is not rejected.
    """

    job: str
    user: str
    pool: str
    nodes: int
    request_s: float
    run_s: float | None
    submit_s: float
    eligible_s: float
    released_s: float | None
    begin_s: float
    policy: str
    history_s: float
    start_s: float
    ready_s: float
    expected_s: float
    promised: bool
    stretches: tuple[Stretch, ...]
    holders: tuple[Holder, ...]
    users: tuple[Holder, ...]
    error: ClassError | None
    alike: tuple[tuple[str, float], ...]
    tried: tuple[Tried, ...]
    rejected: str = ""

    @property
    def by_cause(self) -> dict[str, float]:
        """Seconds of its wait by cause, in the order of `CAUSES`; those that occur."""
        of = {
            cause: math.fsum(one.seconds for one in self.stretches if one.cause == cause) for cause in CAUSES
        }
        return {cause: seconds for cause, seconds in of.items() if seconds}

    @property
    def notes(self) -> tuple[str, ...]:
        """How far the starts are to be believed, and what else to know of changes."""
        parts = [] if not self.rejected else [f"the replay does not reproduce this log: {self.rejected}"]
        if self.error is not None:
            one = self.error
            parts.append(
                f"of {one.jobs} {one.name} jobs, half start in this replay within {_time(one.median_s)} of history, "
                f"and nine of ten within {_time(one.ninth_s)}"
            )
        if len(self.alike) > 1:
            starts = [start_s - self.submit_s for _, start_s in self.alike]
            parts.append(
                f"under the {len(self.alike)} policies that the log cannot tell apart this one waits {_time(min(starts))} "
                f"to {_time(max(starts))}"
            )
        parts += [f"{one.what}: {one.note}" for one in self.tried if one.note]
        return tuple(parts)

    @property
    def why(self) -> str:
        """How long it waited and for what, in a sentence."""
        waited_s, real_s = self.start_s - self.submit_s, self.history_s - self.submit_s
        beside = f"history has it wait {_time(real_s)}"
        if not self.by_cause:
            return f"job {self.job} starts at once in the replay; {beside}"
        worst = max(self.by_cause, key=lambda cause: self.by_cause[cause])
        share = 100 * self.by_cause[worst] / waited_s
        text = f"job {self.job} waits {_time(waited_s)} in the replay, {share:.0f} % of it because {CAUSES[worst]}"
        if worst in _BUSY and self.users and self.users[0].name:
            whose = "its own user" if self.users[0].name == self.user else f"user {self.users[0].name}"
            text += f"; {whose} had {100 * self.users[0].share:.0f} % of the nodes meanwhile"
        return f"{text}; {beside}"

    def shown(self, origin_s: float) -> dict[str, list[dict[str, Any]]]:
        """What a reader sees, as rows by table: `life`, `causes`, `waits`, `holders`, `users` and `changes`.

        origin_s: of the log.
        """
        whole_s = self.start_s - self.submit_s
        expected = "promised then" if self.promised else "earliest then, by requests, were it first"
        life = [
            ("submitted", self.submit_s),
            ("eligible", self.eligible_s if self.eligible_s > self.submit_s else None),
            ("last seen to be held", self.released_s),
            ("in the queue", self.ready_s),
            (f"start {expected}", self.expected_s),
            ("start in the replay", self.start_s),
            ("start in history", self.history_s),
        ]
        return {
            "life": [
                {"what": what, "when": shown_instant(at_s + origin_s), "after": _time(at_s - self.submit_s)}
                for what, at_s in life
                if at_s is not None
            ],
            "causes": [
                {
                    "cause": cause,
                    "because": CAUSES[cause],
                    "lasted": _time(seconds),
                    "share": f"{100 * seconds / whole_s:.1f} %",
                }
                for cause, seconds in self.by_cause.items()
            ],
            "waits": [
                {
                    "from": shown_instant(one.from_s + origin_s),
                    "lasted": _time(one.seconds),
                    "cause": one.cause,
                    "free": one.free,
                    "before it": one.ahead,
                    "first": one.first,
                }
                for one in self.stretches
            ],
            "holders": [
                {
                    "job": one.name,
                    "node-hours": one.node_s / 3600,
                    "of the pool": f"{100 * one.share:.1f} %",
                    "came": one.since,
                }
                for one in self.holders
            ],
            "users": [
                {
                    "user": one.name or "not recorded",
                    "node-hours": one.node_s / 3600,
                    "of the pool": f"{100 * one.share:.1f} %",
                }
                for one in self.users
            ],
            "changes": [
                {
                    "change": one.what,
                    "starts": shown_instant(one.start_s + origin_s),
                    "after": _time(one.start_s - self.submit_s),
                    "moves by": _moved(one.start_s - self.start_s),
                }
                for one in (Tried("none", self.start_s), *self.tried)
            ],
        }

    def data(self, origin_s: float) -> dict[str, Any]:
        """As plain data, times in seconds since 1970. origin_s: of the log."""

        def moved(part: dict[str, Any], *names: str) -> dict[str, Any]:
            return {
                name: value + origin_s if name in names and value is not None else value
                for name, value in part.items()
            }

        return {
            "why": self.why,
            "notes": list(self.notes),
            **moved(
                {name: getattr(self, name) for name in _FIELDS},
                *("submit_s", "eligible_s", "released_s", "begin_s", "history_s", "start_s", "ready_s", "expected_s"),
            ),
            "by_cause_s": self.by_cause,
            "stretches": [
                {**moved(asdict(one), "from_s", "to_s"), "seconds": one.seconds} for one in self.stretches
            ],
            "holders": [asdict(one) for one in self.holders],
            "users": [asdict(one) for one in self.users],
            "class_error": asdict(self.error) if self.error is not None else None,
            "alike": [{"policy": name, "start_s": start_s + origin_s} for name, start_s in self.alike],
            "tried": [moved(asdict(one), "start_s") for one in self.tried],
        }  # fmt: skip


_FIELDS: Final = (
    *("job", "user", "pool", "nodes", "request_s", "run_s", "submit_s", "eligible_s", "released_s", "begin_s", "policy"),
    *("history_s", "start_s", "ready_s", "expected_s", "promised"),
)  # fmt: skip


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
    if job not in ids:
        raise UnknownName.among("job", job, ids, where="--job")
    row = ids.index(job)
    number = int(pool_of(log, replay.system.pools)[row])
    if number < 0:
        what = f"{job} is set aside: it asks for {log.nodes[row]} nodes, and no pool of the replay has it"
        raise UsageError.at("--job", what)
    if not log.started[row]:
        raise UsageError.at("--job", f"{job} never started in the log; forerun wait-time asks when it would")
    case = next(case for case in replay.cases if row in case.rows)
    if log.submit_s[row] >= replay.calibrated_s:
        case = replace(case, begin_s=replay.calibrated_s)
    at = int(np.flatnonzero(case.rows == row)[0])
    if case.start_s[at] - case.pool.launch_s <= case.begin_s:
        raise UsageError.at("--job", f"{job} started before the replay begins, so it is in it as it was")
    progress(f"job {job}")
    asked = _Asked(replay, case, replay.card.policy, at)
    stretches = asked.stretches()
    holders, users = asked.holders(stretches)
    expected_s, promised = asked.expected()
    alike = tuple(
        (policy_name(policy), float(replayed(case, policy)[at]))
        for policy in dict.fromkeys((replay.card.policy, *replay.card.alike))
    )
    return JobStory(
        job=job,
        user=_user(log, row),
        pool=case.pool.name,
        nodes=int(case.nodes[at]),
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
        stretches=stretches,
        holders=holders,
        users=users,
        error=_class_error(replay, case, asked.played.start_s, at),
        alike=alike,
        tried=tuple(_changes(replay, case, at, stretches, progress)),
        rejected="; ".join(replay.card.reasons),
    )


class _Asked:
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
    """

    def __init__(self, replay: Replay, case: Case, policy: BackfillPolicy, at: int) -> None:
        self.log, self.case, self.policy, self.at = replay.log, case, policy, at
        self.played = play = played(case, policy)
        self.extra_s = case.pool.launch_s + case.pool.turnover_s
        self.start_s = float(play.start_s[at])
        self.begin_s = play.decided_s
        self.end_s = self.begin_s + (case.end_s - case.start_s + self.extra_s)
        self.came_s = max(float(play.ready_s[at]), case.begin_s)
        self.rank = np.empty(len(case), np.int64)
        self.rank[np.argsort(play.ready_s, kind="stable")] = np.arange(len(case))

    def stretches(self) -> tuple[Stretch, ...]:
        """Its wait by cause, from submission to start."""
        case, at = self.case, self.at
        submit_s, ready_s = float(case.submit_s[at]), float(self.played.ready_s[at])
        eligible_s = max(float(case.eligible_s[at]), submit_s)
        queued = list(self._queued()) if self.came_s < self.begin_s[at] else []
        parts = [
            Stretch(submit_s, eligible_s, "eligible"),
            Stretch(eligible_s, ready_s, "held"),
            Stretch(ready_s, self.came_s, "before"),
            *queued,
            Stretch(float(self.begin_s[at]), self.start_s, "launch"),
        ]
        merged: list[Stretch] = []
        for one in parts:
            if one.from_s == one.to_s:
                continue
            last = merged[-1] if merged else None
            if last is not None and (last.cause, last.window) == (one.cause, one.window):
                merged[-1] = replace(last, to_s=one.to_s)
            else:
                merged.append(one)
        return tuple(merged)

    def _queued(self) -> Iterator[Stretch]:
        """What kept it in the queue from each instant at which anything changed until the next."""
        case, at = self.case, self.at
        from_s, to_s = self.came_s, float(self.begin_s[at])
        need, request_s = int(case.nodes[at]), float(case.request_s[at]) + self.extra_s
        windows = [
            instant
            for window in case.windows
            for instant in (window.announced_s, window.from_s, window.to_s, window.from_s - request_s)
        ]
        instants = np.concatenate([self.begin_s, self.end_s, self.played.ready_s, windows])
        marks = np.unique(np.append(instants[(instants > from_s) & (instants < to_s)], from_s))
        free = self._free(marks)
        limited = self._limited(int(case.user[at]), marks)
        ahead, first = self._ahead(marks)
        ends = np.append(marks[1:], to_s)
        for k, (mark, end) in enumerate(zip(marks.tolist(), ends.tolist(), strict=True)):
            known = [one for one in enumerate(case.windows, 1) if one[1].announced_s <= mark < one[1].to_s]
            away = [
                (number, window.gpus) for number, window in known if window.from_s <= mark and window.gpus
            ]
            left = int(free[k]) - sum(gpus for _, gpus in away)
            total = case.pool.nodes - sum(gpus for _, gpus in away)
            number = 0
            if limited[k]:
                cause = "limit"
            elif left < need and (total < need or free[k] >= need):
                cause, number = "outage", away[0][0]
            elif left < need:
                cause = "behind" if ahead[k] else "few"
            else:
                number = self._in_the_way(mark, mark + request_s, need, known)
                cause = "drain" if number else "hole"
            name = str(self.log.job_id[case.rows[first[k]]]) if ahead[k] else ""
            yield Stretch(mark, end, cause, int(free[k]), int(ahead[k]), name, number)

    def _in_the_way(self, now: float, to_s: float, need: int, known: Sequence[tuple[int, Window]]) -> int:
        """The number of the first outage ahead that leaves it too few nodes, by the requests of those that run; 0: none."""
        for number, ahead in known:
            if now < ahead.from_s < to_s and ahead.gpus:
                runs, believed_s = self._believed(now)
                used = int(self.case.nodes[runs][believed_s > ahead.from_s].sum())
                away = sum(one.gpus for _, one in known if one.from_s <= ahead.from_s < one.to_s)
                if self.case.pool.nodes - used - away < need:
                    return number
        return 0

    def _believed(self, now: float) -> tuple[I64, F64]:
        """The jobs that run at an instant, and when each is believed to end."""
        runs = np.flatnonzero((self.begin_s <= now) & (self.end_s > now))
        believed_s = self.begin_s[runs] + (self.case.request_s[runs] + self.extra_s)
        return runs, np.where(believed_s <= now, now + self.policy.grace_s, believed_s)

    def _free(self, at: F64) -> I64:
        """Nodes that no job holds from each of some instants on."""
        case = self.case
        come, go = np.argsort(self.begin_s), np.argsort(self.end_s)
        begun = np.append(0, np.cumsum(case.nodes[come]))[np.searchsorted(self.begin_s[come], at, "right")]
        ended = np.append(0, np.cumsum(case.nodes[go]))[np.searchsorted(self.end_s[go], at, "right")]
        free: I64 = case.pool.nodes - (begun - ended)
        return free

    def _limited(self, user: int, at: F64) -> Mask:
        """Whether a user has as many jobs running as may, from each of some instants on."""
        limit = self.case.pool.running_per_user
        if not limit or not user:
            return np.zeros(len(at), np.bool_)
        mine = self.case.user == user
        begun = np.searchsorted(np.sort(self.begin_s[mine]), at, "right")
        limited: Mask = begun - np.searchsorted(np.sort(self.end_s[mine]), at, "right") >= limit
        return limited

    def _ahead(self, marks: F64) -> tuple[I64, I64]:
        """At each of some instants: how many jobs are before it in the queue, and the first of them."""
        case, at, ready_s = self.case, self.at, self.played.ready_s
        last_s = float(self.begin_s[at])
        others = np.flatnonzero((ready_s < last_s) & (self.begin_s > marks[0]) & np.isfinite(self.begin_s))
        others = others[others != at]
        users = np.unique(case.user[others])
        limited = np.array([self._limited(int(user), marks) for user in users]).reshape(
            len(users), len(marks)
        )
        of = np.searchsorted(users, case.user[others])
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
        case, request_s = self.case, self.case.request_s[jobs] + self.extra_s
        if isinstance(self.policy.order, Wfp3):
            waits = (now - case.since_s[jobs]) / request_s
            return -(waits * waits * waits * case.nodes[jobs])
        key = request_s if isinstance(self.policy.order, ShortestRequest) else case.since_s[jobs]
        return np.broadcast_to(key, (len(now), len(jobs)))

    def expected(self) -> tuple[float, bool]:
        """The start that it was promised when it came into the queue, or else the earliest by requests; and which it is."""
        case, at, now = self.case, self.at, self.came_s
        promise_s = float(self.played.promise_s[at])
        if np.isfinite(promise_s):
            return promise_s, True
        request_s = float(case.request_s[at]) + self.extra_s
        runs, believed_s = self._believed(now)
        before = self.begin_s[runs] < now  # not those that start at this very instant
        runs, believed_s = runs[before], believed_s[before]
        windows = [window for window in case.windows if window.announced_s <= now < window.to_s]

        def left(at_s: float) -> int:
            away = sum(one.gpus for one in windows if one.from_s <= at_s < one.to_s)
            return case.pool.nodes - away - int(case.nodes[runs][believed_s > at_s].sum())

        for start_s in sorted({now, *believed_s.tolist(), *(window.to_s for window in windows)}):
            steps = [start_s, *(one.from_s for one in windows if start_s < one.from_s < start_s + request_s)]
            if all(left(step_s) >= case.nodes[at] for step_s in steps):
                return start_s + case.pool.launch_s, False
        raise AssertionError("a job fits when all others have ended")

    def holders(self, stretches: Sequence[Stretch]) -> tuple[tuple[Holder, ...], tuple[Holder, ...]]:
        """The jobs and the users that had most node-seconds while others kept it waiting."""
        case, at = self.case, self.at
        busy = [one for one in stretches if one.cause in _BUSY]
        whole_s = math.fsum(one.seconds for one in busy)
        if not whole_s:
            return (), ()
        edges = np.array([instant for one in busy for instant in (one.from_s, one.to_s)])
        so_far = np.cumsum([0.0, *(part for one in busy for part in (one.seconds, 0.0))])[:-1]
        overlap_s = np.interp(self.end_s, edges, so_far) - np.interp(self.begin_s, edges, so_far)
        overlap_s = np.where(np.isfinite(self.begin_s), overlap_s, 0.0)
        node_s: F64 = overlap_s * case.nodes
        whole = whole_s * case.pool.nodes
        jobs = [
            Holder(
                str(self.log.job_id[case.rows[one]]), float(node_s[one]), float(node_s[one] / whole),
                self._since(one),
            )
            for one in np.argsort(-node_s, kind="stable")[:MOST_HOLDERS].tolist()
            if node_s[one] > 0
        ]  # fmt: skip
        by_user = np.bincount(case.user, node_s)
        users = [
            Holder(("", *self.log.user.names)[user], float(by_user[user]), float(by_user[user] / whole))
            for user in np.argsort(-by_user, kind="stable").tolist()
            if by_user[user] > 0 and self.log.user.known
        ]
        assert not overlap_s[at]
        return tuple(jobs), tuple(users[:MOST_HOLDERS])

    def _since(self, other: int) -> str:
        """How another job came to be ahead of this one."""
        if self.begin_s[other] <= self.came_s and self.rank[other] < self.rank[self.at]:
            return "ran when it came"
        return (
            "came before it" if self.case.submit_s[other] < self.case.submit_s[self.at] else "came after it"
        )


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
    values : columns and what they are for it, such as `nodes=4`.
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
    values : columns and what they are for it, such as `nodes=4`.
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
    stretches: Sequence[Stretch],
    progress: Callable[[str], None],
) -> Iterator[Tried]:
    """What would have changed its start: its request, and what it waited for."""
    policy, row = replay.card.policy, int(case.rows[at])
    nodes, request_s = int(case.nodes[at]), float(case.request_s[at])
    run_s = _run_s(replay.log, row)

    def otherwise(what: str, note: str = "", **values: float) -> Tried:
        progress(what)
        changed, place = case_with(replay, row, case.begin_s, **values)
        if changed.pool.name != case.pool.name:
            note = f"then it is in pool {changed.pool.name}" + (f"; {note}" if note else "")
        return Tried(what, float(replayed(changed, policy)[place]), note)

    def without(what: str, changed: Case) -> Tried:
        progress(what)
        return Tried(what, float(replayed(changed, policy)[at]))

    half_s = request_s / 2
    longer = f"it ran {_time(run_s)}, longer than that" if run_s is not None and run_s > half_s else ""
    yield otherwise(f"asks for half the time, {_time(half_s)}", longer, requested_s=half_s)
    if nodes > 1:
        few = nodes // 2
        yield otherwise(f"asks for half the nodes, {few}", nodes=few)
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
        change = Change(running_per_user=0)
        yield without(change.what, change.of(case))
    for window in sorted({window for _, window in seconds if window}):
        change = Change(without_window=window)
        yield without(change.what, change.of(case))


def _moved(seconds: float) -> str:
    """With its sign: `+2.5 h`."""
    return ("+" if seconds > 0 else "") + _time(seconds)


def _run_s(log: History, row: int) -> float | None:
    run_s = float(log.run_s[row])
    return run_s if math.isfinite(run_s) else None


def _user(log: History, row: int) -> str:
    code = int(log.user.codes[row])
    return log.user.names[code] if code >= 0 else ""


def _time(seconds: float) -> str:
    return quantity(seconds, "s", abs(seconds))
