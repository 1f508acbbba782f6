"""Why one job of a run waited, when it started, and what would have changed that: the data of `forerun explain RUN --job`.

`explained_job` has the job's story told from an exact repetition of the run, and searches made: each asks for the run again
with changes, one run after another, and says in the end what they did to the job and to the others. Nothing is
estimated: whatever stands here was simulated.
"""

from __future__ import annotations

import math
from collections.abc import Generator, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, Final, TypeAlias

from forerun.cluster.summary.causes import Caused
from forerun.cluster.summary.spans import Stretch
from forerun.core.errors import UnknownName
from forerun.core.result.figures import Figure
from forerun.core.result.ledger import Ledger
from forerun.core.result.numbers import format_number, signed
from forerun.core.result.tables import Table

#: rows of jobs ahead that a reader sees, the last one for all others
MOST_AHEAD: Final = 12


@dataclass(frozen=True, slots=True)
class Moment:
    """Something that happened to the job.

    Parameters
    ----------
    at_s : when.
    what : in words.
    gpus, nodes : GPUs that it has from then on, and where (node:GPUs); 0 and empty: none.
    when : the instant by the calendar of the log; empty: it has none.
    """

    at_s: float
    what: str
    gpus: int = 0
    nodes: str = ""
    when: str = ""


@dataclass(frozen=True, slots=True)
class Ahead:
    """A job that had GPUs while the one that is explained waited.

    Parameters
    ----------
    job : its name.
    gpu_s : its GPU-seconds in that stretch.
    most_gpus : the most GPUs that it had in it.
    since : how it came to be ahead, in words.
    """

    job: str
    gpu_s: float
    most_gpus: int
    since: str


def seconds_by_cause(stretches: Sequence[Stretch], causes: Mapping[str, str]) -> dict[str, float]:
    """Seconds of waiting by cause, in the order of all causes; those that occur."""
    of = {cause: math.fsum(one.seconds for one in stretches if one.cause == cause) for cause in causes}
    return {cause: seconds for cause, seconds in of.items() if seconds}


def mostly(by_cause_s: Mapping[str, float], causes: Mapping[str, str], whole_s: float) -> tuple[str, str]:
    """The cause of most of the waiting, and in words how much of it that is. causes: in words."""
    worst = max(by_cause_s, key=lambda cause: by_cause_s[cause])
    return worst, f"{100 * by_cause_s[worst] / whole_s:.0f} % of it because {causes[worst]}"


def row_of(names: Sequence[str], job: str) -> int:
    """Where a job stands. Raises UnknownName, which says what was meant."""
    if job not in names:
        raise UnknownName.among("job", job, names, where="--job")
    return names.index(job)


@dataclass(frozen=True, slots=True)
class Wait(Caused):
    """A stretch in which the job waited for one cause.

    Parameters
    ----------
    from_s, to_s, cause, because : as of `Caused`; a cause may be `admission`, too.
    in_use_gpu_s, free_gpu_s : GPU-seconds that all jobs had, and that were free.
    ahead : the jobs that had them, most GPU-seconds first; these sum to `in_use_gpu_s`.
    queued_before : jobs that waited, too, when it began, and got GPUs before this one did: the first of them.
    """

    in_use_gpu_s: float
    free_gpu_s: float
    ahead: tuple[Ahead, ...]
    queued_before: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Fate:
    """What became of the job in a run.

    Parameters
    ----------
    start_s : when it first had GPUs; None: never.
    end_s : when it ended; None: never.
    deadline_s : when it was due; None: it has no deadline.
    refused : why the policy refused it; empty: it did not.
    """

    start_s: float | None
    end_s: float | None
    deadline_s: float | None
    refused: str = ""

    @property
    def met(self) -> bool | None:
        """Whether it ended by its deadline; None: it has none."""
        return None if self.deadline_s is None else self.end_s is not None and self.end_s <= self.deadline_s

    @property
    def early_s(self) -> float | None:
        """By how much it ended before its deadline, negative: after it; None where it has none, or no end."""
        return None if self.end_s is None or self.deadline_s is None else self.deadline_s - self.end_s


@dataclass(frozen=True, slots=True)
class Others:
    """What became of the other jobs, in a changed run beside the run as it was.

    Parameters
    ----------
    met : deadlines that they met.
    met_change : that less those of the run as it was, over the same jobs.
    mean_s : mean completion time of those that ended in both runs; None: none did.
    mean_change_s : that less theirs in the run as it was.
    """

    met: int
    met_change: int
    mean_s: float | None
    mean_change_s: float | None


#: changes of a scenario: (path, value)
Changes: TypeAlias = tuple[tuple[str, Any], ...]


@dataclass(frozen=True, slots=True)
class TriedChange:
    """One change, and what it did.

    Parameters
    ----------
    what : the change in words.
    changes : of the scenario; a plain simulation with them gives the same. Empty where there was nothing to simulate.
    fate : of the job then; None: it was not simulated.
    others : the other jobs then; None: not simulated.
    why_not : why it was not simulated, or what was sought and not found; empty if it was.
    """

    what: str
    changes: Changes = ()
    fate: Fate | None = None
    others: Others | None = None
    why_not: str = ""


#: a search: yields the changes to simulate next, is sent the tables of that run or why there is none, returns what it tried
Search: TypeAlias = Generator[Changes, Mapping[str, Table] | str, tuple[TriedChange, ...]]


@dataclass(frozen=True)
class Story:
    """What happened to one job of a run.

    Parameters
    ----------
    job : its name.
    why : in one sentence: how long it waited and for what.
    fate : its start, end and deadline.
    moments : its life.
    waits : every stretch in which it waited without GPUs, in order.
    ledger : its whole time by what it did with it.
    others : the other jobs in this run.
    figure : of the time in which it waited; None: it did not.
    recorded_s : how long it really waited, and when it really started, by the log; None: that is not recorded.
    recorded : the stretches in which it really waited.
    """

    job: str
    why: str
    fate: Fate
    moments: tuple[Moment, ...]
    waits: tuple[Wait, ...]
    ledger: Ledger
    others: Others
    figure: Figure | None = field(default=None, repr=False, compare=False)
    recorded_s: tuple[float, float] | None = None
    recorded: tuple[Caused, ...] = ()


@dataclass(frozen=True)
class JobExplanation:
    """The story of one job, and what would have changed it.

    Parameters
    ----------
    run : id of the run.
    domain, scenario : of the run; the scenario as plain data.
    story : what happened.
    tried : single changes, each simulated.
    """

    run: str
    domain: str
    scenario: Mapping[str, Any] = field(repr=False)
    story: Story
    tried: tuple[TriedChange, ...]

    @property
    def best(self) -> TriedChange | None:
        """The first change with which the job ends in time (has it no deadline: the one with the first end); None: none.

        None, too, where the job was in time as it was.
        """
        simulated = [one for one in self.tried if one.fate is not None and one.fate.end_s is not None]
        if self.story.fate.deadline_s is not None:
            late = self.story.fate.met is False
            return next((one for one in simulated if late and one.fate is not None and one.fate.met), None)
        ends = [
            (one.fate.end_s, one) for one in simulated if one.fate is not None and one.fate.end_s is not None
        ]
        as_it_was = self.story.fate.end_s
        sooner = [(end_s, one) for end_s, one in ends if as_it_was is None or end_s < as_it_was]
        return min(sooner, key=lambda item: item[0])[1] if sooner else None

    def shown(self) -> dict[str, list[dict[str, Any]]]:
        """What a reader sees, as rows by table; names of columns carry units."""
        story = self.story
        placed, dated = (any(getattr(one, name) for one in story.moments) for name in ("nodes", "when"))
        return {
            "life": [
                ({"when": one.when} if dated else {})
                | {"at_s": one.at_s, "what": one.what, "GPUs": one.gpus}
                | ({"nodes": one.nodes} if placed else {})
                for one in story.moments
            ],
            "waits": [wait_row(one) for one in story.waits],
            "recorded": [
                {"from_s": one.from_s, "lasts_s": one.seconds, "because": one.because}
                for one in story.recorded
            ],
            "ahead": list(ahead_rows(story.waits)),
            "time": [
                {"part": name, "took_s": seconds, "share": f"{100 * story.ledger.shares()[name]:.1f} %"}
                for name, seconds in story.ledger.parts.items()
                if seconds
            ],
            "changes": [
                _change_row("as it was", story.fate, story.others),
                *(
                    _change_row(one.what, one.fate, one.others)
                    for one in self.tried
                    if one.fate is not None and one.others is not None
                ),
            ],
        }

    def data(self) -> dict[str, Any]:
        """As plain data, without the figure."""
        story = self.story
        return {
            "run": self.run,
            "job": story.job,
            "why": story.why,
            **_fate_data(story.fate),
            **(
                {
                    "recorded": {
                        **dict(zip(("wait_s", "start_s"), recorded)),
                        "waits": [asdict(one) for one in story.recorded],
                    }
                }
                if (recorded := story.recorded_s)
                else {}
            ),
            "others": {"met": story.others.met, "mean_s": story.others.mean_s},
            "moments": [asdict(one) for one in story.moments],
            "waits": [{**asdict(one), "seconds": one.seconds} for one in story.waits],
            "ledger": {
                "name": story.ledger.name,
                "unit": story.ledger.unit,
                "whole": story.ledger.whole,
                "parts": dict(story.ledger.parts),
            },
            "tried": [
                {
                    "what": one.what,
                    "changes": dict(one.changes),
                    "why_not": one.why_not,
                    **(_fate_data(one.fate) if one.fate is not None else {}),
                    **({"others": asdict(one.others)} if one.others is not None else {}),
                }
                for one in self.tried
            ],
        }


def wait_row(wait: Wait) -> dict[str, Any]:
    """A stretch of waiting as a row."""
    seconds = wait.seconds
    return {
        "from_s": wait.from_s,
        "lasts_s": seconds,
        "because": wait.because,
        "in use": wait.in_use_gpu_s / seconds,
        "free": wait.free_gpu_s / seconds,
        "most of it": ", ".join(one.job for one in wait.ahead[:3]),
        "waited and went first": ", ".join(wait.queued_before[:3]),
    }


def ahead_rows(waits: Sequence[Wait]) -> Iterator[dict[str, Any]]:
    """The jobs that had GPUs while it waited, over all its waits, most GPU-seconds first; the small ones together."""
    totals: dict[str, list[Ahead]] = {}
    for wait in waits:
        for one in wait.ahead:
            totals.setdefault(one.job, []).append(one)
    whole = math.fsum(wait.in_use_gpu_s for wait in waits)
    sums = {job: math.fsum(one.gpu_s for one in parts) for job, parts in totals.items()}
    ordered = sorted(totals, key=lambda name: -sums[name])
    named = ordered if len(ordered) <= MOST_AHEAD else ordered[: MOST_AHEAD - 1]
    for job in named:
        yield {
            "job": job,
            "had_gpu_s": sums[job],
            "share": f"{100 * sums[job] / whole:.1f} %",
            "most GPUs": max(one.most_gpus for one in totals[job]),
            "came": totals[job][0].since,
        }
    if len(named) < len(ordered):
        rest = math.fsum(sums[job] for job in ordered[len(named) :])
        yield {
            "job": f"{len(ordered) - len(named)} others",
            "had_gpu_s": rest,
            "share": f"{100 * rest / whole:.1f} %",
            "most GPUs": None,
            "came": "",
        }


def _change_row(what: str, fate: Fate, others: Others) -> dict[str, Any]:
    """A change as a row."""
    refused = "refused" if fate.refused else None
    early_s = fate.early_s
    return {
        "what": what,
        "start_s": refused if refused and fate.start_s is None else fate.start_s,
        "end_s": fate.end_s,
        "before deadline_s": None if early_s is None else signed(early_s),
        "others: deadlines met": f"{others.met}{_moved(others.met_change)}",
        "others: mean_s": f"{format_number(others.mean_s)}{_moved(others.mean_change_s)}",
    }


def _moved(change: float | None) -> str:
    """A difference to the run as it was; nothing where there is none."""
    return f" ({signed(change)})" if change else ""


def _fate_data(fate: Fate) -> dict[str, Any]:
    return {**asdict(fate), "met": fate.met, "early_s": fate.early_s}
