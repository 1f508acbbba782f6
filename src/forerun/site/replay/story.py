"""The story of one job of a replay, and what a reader sees of it."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any, Final

from forerun.cluster.explain.job_story import Wait, ahead_rows, mostly, wait_row
from forerun.cluster.summary.causes import CAUSES as OF_WAITING
from forerun.core.result.numbers import duration, shown_instant

#: why a job waits: while it is in the queue, and before and after that
QUEUED: Final = {
    cause: meaning for cause, (_, meaning) in OF_WAITING.items() if cause not in ("not_eligible", "held")
}
CAUSES: Final = {
    "not_eligible": OF_WAITING["not_eligible"][1],
    "held": "it was held in history: it did not start although it could have",
    "before": "the replay had not begun",
    **QUEUED,
    "launch": "it was being launched",
}
#: fields that are instants
_INSTANTS: Final = (
    *("submit_s", "eligible_s", "released_s", "begin_s", "history_s", "start_s", "ready_s", "promised_s"),
    *("from_s", "to_s"),
)


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
    promised_s : the first start that it was promised; None: the policy promises none.
    by_cause_s : seconds of its wait by cause, in the order of `CAUSES`; those that occur.
    waits : its wait from submission to start, without gaps.
    users : who had GPUs of its nodes while it was in the queue, in GPU-seconds, most first; empty: not known.
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
    promised_s: float | None
    by_cause_s: Mapping[str, float]
    waits: tuple[Wait, ...]
    users: tuple[tuple[str, float], ...]
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
    def _queued(self) -> tuple[Wait, ...]:
        """Its wait while it was in the queue."""
        return tuple(one for one in self.waits if one.cause in QUEUED)

    @property
    def _whole_gpu_s(self) -> float:
        """GPU-seconds of all nodes that it may use, while it was in the queue."""
        return math.fsum(one.in_use_gpu_s + one.free_gpu_s for one in self._queued)

    @property
    def why(self) -> str:
        """How long it waited and for what, in a sentence."""
        waited_s, real_s = self.start_s - self.submit_s, self.history_s - self.submit_s
        beside = f"history has it wait {duration(real_s)}"
        if not self.by_cause_s:
            return f"job {self.job} starts at once in the replay; {beside}"
        worst, most = mostly(self.by_cause_s, CAUSES, waited_s)
        text = f"job {self.job} waits {duration(waited_s)} in the replay, {most}"
        if worst in QUEUED and self.users and self.users[0][0]:
            user, gpu_s = self.users[0]
            whose = "its own user" if user == self.user else f"user {user}"
            text += f"; {whose} had {100 * gpu_s / self._whole_gpu_s:.0f} % of the {self.unit} meanwhile"
        return f"{text}; {beside}"

    def shown(self, origin_s: float) -> dict[str, list[dict[str, Any]]]:
        """What a reader sees, as rows by table: `life`, `causes`, `waits`, `ahead`, `users` and `changes`.

        origin_s: of the log.
        """
        whole_s = self.start_s - self.submit_s
        life = [
            ("submitted", self.submit_s),
            ("eligible", self.eligible_s if self.eligible_s > self.submit_s else None),
            ("last seen to be held", self.released_s),
            ("in the queue", self.ready_s),
            ("start promised first", self.promised_s),
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
                {"from": shown_instant(one.from_s + origin_s), "lasted": duration(one.seconds)}
                | {name: cell for name, cell in wait_row(one).items() if name not in ("from_s", "lasts_s")}
                for one in self.waits
            ],
            "ahead": list(ahead_rows(self._queued)),
            "users": [
                {
                    "user": user or "not recorded",
                    f"{self.unit.removesuffix('s')}-hours": gpu_s / 3600,
                    "of its nodes": f"{100 * gpu_s / self._whole_gpu_s:.1f} %",
                }
                for user, gpu_s in self.users
            ],
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
        whole = asdict(self) | {"waits": [{**asdict(one), "seconds": one.seconds} for one in self.waits]}
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
