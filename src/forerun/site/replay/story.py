"""The story of one job of a replay, and what a reader sees of it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any, Final

from forerun.cluster.explain.job_story import mostly
from forerun.cluster.summary.spans import Stretch
from forerun.core.result.numbers import duration, shown_instant

#: what keeps a job waiting, in the order in which it is asked; the first that does counts
CAUSES: Final = {
    "eligible": "it was not eligible yet",
    "held": "it was held in history: it did not start although it could have",
    "before": "the replay had not begun",
    "limit": "as much was running as a limit of its user, account or QOS allows",
    "outage": "an outage was under way",
    "few": "too few of its nodes or GPUs were free; no job was before it in the queue",
    "behind": "too few of its nodes or GPUs were free, and others were before it in the queue",
    "spread": "enough GPUs were free, but not on as many nodes as it takes",
    "drain": "an announced outage was nearer than the end of its request",
    "hole": "a job before it was promised the free nodes, nearer than the end of its request",
    "launch": "it was being launched",
}
#: causes in which others have the nodes
BUSY: Final = ("few", "behind", "spread", "hole")
#: who had the nodes: so many are named
MOST_HOLDERS: Final = 10
#: fields that are instants
_INSTANTS: Final = (
    *("submit_s", "eligible_s", "released_s", "begin_s", "history_s", "start_s", "ready_s", "expected_s"),
    *("from_s", "to_s"),
)


@dataclass(frozen=True, slots=True)
class Queued(Stretch):
    """A stretch of waiting for one cause, with what was so when it began.

    Parameters
    ----------
    from_s, to_s : begin and end; each begins where the one before it ends.
    cause : one of `CAUSES`.
    free : GPUs of its nodes that no job held; None: the job was not in the queue.
    ahead : jobs before it in the queue whom no limit kept waiting; None: it was not in the queue.
    first : id of the first of them; empty: there is none.
    window : number of the outage, from 1; 0: the cause is another.
    """

    free: int | None = None
    ahead: int | None = None
    first: str = ""
    window: int = 0


@dataclass(frozen=True, slots=True)
class Holder:
    """Who had GPUs while others kept the job waiting.

    Parameters
    ----------
    name : a job, or a user.
    gpu_s : GPU-seconds, on the nodes that the job may use.
    share : of all GPUs of these in that time.
    since : how a job came to be ahead, in words; empty for a user.
    """

    name: str
    gpu_s: float
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
class Alike:
    """A policy that the log cannot tell from that of the replay, and when the job starts under it."""

    policy: str
    start_s: float


@dataclass(frozen=True, slots=True)
class TriedStart:
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
    unit : what jobs hold.
    gpus, request_s, run_s : what it asks for, in that unit, and how long it ran; None: it runs still.
    submit_s, eligible_s : when it came, and could start at the earliest.
    released_s : when it was last seen to be held in history, and so comes into the queue again; None: it was not held.
    begin_s : where the replay begins.
    policy : of the replay.
    history_s, start_s : when it starts in history, and in the replay.
    ready_s : when it came into the queue.
    expected_s : the start that it was promised then, or else the earliest by the requests of jobs that ran then, were
        nobody before it.
    promised : whether it is a promise.
    by_cause_s : seconds of its wait by cause, in the order of `CAUSES`; those that occur.
    stretches : its wait from submission to start, without gaps.
    holders, users : who had GPUs while others kept it waiting; most first, `MOST_HOLDERS` at most.
    class_error : by how much starts of its class are off; None: too few are scored.
    alike : policies that the log cannot tell from that of the replay, and its start under each.
    tried : single changes.
    rejected : why the replay says nothing about this log; empty if it is not rejected.
    """

    job: str
    user: str
    pool: str
    unit: str
    gpus: int
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
    by_cause_s: Mapping[str, float]
    stretches: tuple[Queued, ...]
    holders: tuple[Holder, ...]
    users: tuple[Holder, ...]
    class_error: ClassError | None
    alike: tuple[Alike, ...]
    tried: tuple[TriedStart, ...]
    rejected: str = ""

    @property
    def notes(self) -> tuple[str, ...]:
        """How far the starts are to be believed, and what else to know of changes."""
        parts = [] if not self.rejected else [f"the replay does not reproduce this log: {self.rejected}"]
        if (one := self.class_error) is not None:
            parts.append(
                f"of {one.jobs} {one.name} jobs, half start in this replay within {duration(one.median_s)} of history, "
                f"and nine of ten within {duration(one.ninth_s)}"
            )
        if len(self.alike) > 1:
            starts = [each.start_s - self.submit_s for each in self.alike]
            parts.append(
                f"under the {len(starts)} policies that the log cannot tell apart this one waits {duration(min(starts))} "
                f"to {duration(max(starts))}"
            )
        parts += [f"{each.what}: {each.note}" for each in self.tried if each.note]
        return tuple(parts)

    @property
    def why(self) -> str:
        """How long it waited and for what, in a sentence."""
        waited_s, real_s = self.start_s - self.submit_s, self.history_s - self.submit_s
        beside = f"history has it wait {duration(real_s)}"
        if not self.by_cause_s:
            return f"job {self.job} starts at once in the replay; {beside}"
        worst, most = mostly(self.by_cause_s, CAUSES, waited_s)
        text = f"job {self.job} waits {duration(waited_s)} in the replay, {most}"
        if worst in BUSY and self.users and self.users[0].name:
            whose = "its own user" if self.users[0].name == self.user else f"user {self.users[0].name}"
            text += f"; {whose} had {100 * self.users[0].share:.0f} % of the {self.unit} meanwhile"
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
                {
                    "what": what,
                    "when": shown_instant(at_s + origin_s),
                    "after": duration(at_s - self.submit_s),
                }
                for what, at_s in life
                if at_s is not None
            ],
            "causes": [
                {
                    "cause": cause,
                    "because": CAUSES[cause],
                    "lasted": duration(seconds),
                    "share": f"{100 * seconds / whole_s:.1f} %",
                }
                for cause, seconds in self.by_cause_s.items()
            ],
            "waits": [
                {
                    "from": shown_instant(one.from_s + origin_s),
                    "lasted": duration(one.seconds),
                    "cause": one.cause,
                    "free": one.free,
                    "before it": one.ahead,
                    "first": one.first,
                }
                for one in self.stretches
            ],
            "holders": [_row("job", one, self.unit) | {"came": one.since} for one in self.holders],
            "users": [_row("user", one, self.unit) for one in self.users],
            "changes": [
                {
                    "change": one.what,
                    "starts": shown_instant(one.start_s + origin_s),
                    "after": duration(one.start_s - self.submit_s),
                    "moves by": ("+" if one.start_s > self.start_s else "")
                    + duration(one.start_s - self.start_s),
                }
                for one in (TriedStart("none", self.start_s), *self.tried)
            ],
        }

    def data(self, origin_s: float) -> dict[str, Any]:
        """As plain data, times in seconds since 1970. origin_s: of the log."""
        whole = asdict(self) | {
            "stretches": [{**asdict(one), "seconds": one.seconds} for one in self.stretches]
        }
        del whole["rejected"]
        moved: dict[str, Any] = _moved(whole, origin_s)
        return {"why": self.why, "notes": list(self.notes), **moved}


def _moved(value: Any, origin_s: float) -> Any:
    """Plain data with its instants in seconds since 1970."""
    if isinstance(value, dict):
        return {
            name: part + origin_s if name in _INSTANTS and part is not None else _moved(part, origin_s)
            for name, part in value.items()
        }
    return [_moved(part, origin_s) for part in value] if isinstance(value, (list, tuple)) else value


def _row(whose: str, one: Holder, unit: str) -> dict[str, Any]:
    """What a job or a user had, in a unit."""
    return {
        whose: one.name or "not recorded",
        f"{unit.removesuffix('s')}-hours": one.gpu_s / 3600,
        "of the pool": f"{100 * one.share:.1f} %",
    }
