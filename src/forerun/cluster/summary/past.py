"""What really happened to the jobs of a log, and how the waits of a run compare with it. No policy sees any of this.

One definition for every verb. Scored are jobs that were submitted after the first instant at which all running jobs are
known, that were not held, and that started in both. Waits under a minute are equal.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final, Literal, TypeAlias

import numpy as np

from forerun.cluster.inputs.arrays import BOOL, F64, I64, Columns, Jobs
from forerun.cluster.summary.spans import Spans

#: which jobs a log has: all that were submitted, started or ended in its period
Selection: TypeAlias = Literal["submit", "start", "end"]
#: waits below a minute are equal
ALIKE_S: Final = 60.0
#: a job is held that still waits so long after a later job of its own user, which asks for no less, has started
HELD_S: Final = 2 * 86_400.0
#: states, as Slurm writes them, of jobs that a failure ended, or that were put back into the queue
FAILED: Final = ("NODE_FAIL", "BOOT_FAIL", "REQUEUE")
#: beyond these a setting does not reproduce history: the mean wait, and that of a partition with so many of the jobs
MEAN_OFF: Final = 0.2
PARTITION_OFF: Final = 0.5
PARTITION_SHARE: Final = 0.05
#: the row of a comparison that is about all jobs
ALL: Final = "all jobs"
#: why jobs are not scored that left the queue before they ran
_LEFT: Final = "cancelled while pending"
#: a gap that explains less of the recorded waiting is not named
_NAMED: Final = 0.05
#: jobs that are looked at for what overtook them
_MOST_LOOKED_AT: Final = 4_000
_HOUR_S: Final = 3600.0
#: the first jobs whose submissions show whether the log begins all at once
_BEGINNING: Final = 0.01
#: how many times slower than later submissions may come at the beginning of a log that has all of them
_THIN: Final = 3.0
#: a machine that is so busy when its first job ends was so before the log began
_BUSY: Final = 0.5
#: runs that say how long jobs run
_FEW: Final = 30
#: a chance below this power of ten is none
_CHANCE: Final = -3.0
#: jobs that end so soon before the end of the log that others of their length are missing in it
_LATE: Final = 0.95


@dataclass(frozen=True, slots=True)
class Complete:
    """Between which instants a log has every job that held a node or GPU, as it shows.

    Parameters
    ----------
    selection : which jobs the log has.
    from_s, until_s : from when on, and until when.
    evidence : a line for each of them, for people.
    """

    selection: Selection
    from_s: float
    until_s: float
    evidence: tuple[str, ...]


def complete(spans: Spans, submit_s: F64, until_s: float | None = None) -> Complete:
    """When a log is complete.

    Parameters
    ----------
    spans : what its jobs held, in order of submission; nan: a job has not started, or not ended.
    submit_s : of each job.
    until_s : until when it is (default: inferred).
    """
    selection, why = _inferred_selection(spans, submit_s)
    evidence = [f"jobs are selected by their {selection}: {why}"]
    started = np.isfinite(spans.from_s)
    ran = started & np.isfinite(spans.to_s)
    run_s, end_s = (spans.to_s - spans.from_s)[ran], spans.to_s[ran]
    columns = (submit_s, spans.from_s, spans.to_s)
    last_s = max(float(np.nanmax(one)) for one in columns if not np.isnan(one).all())
    if selection == "end":
        begin_s = float(end_s.min()) if ran.any() else 0.0
        evidence.append("complete from the first end on")
    else:
        longest_s = float(np.quantile(run_s, 0.99)) if ran.any() else 0.0
        first_s = float(np.nanmin(spans.from_s)) if selection == "start" and started.any() else 0.0
        begin_s = min(first_s + longest_s, last_s)
        evidence.append(
            f"complete once jobs from before the log have gone: {longest_s / _HOUR_S:.1f} h, as 99 % run no longer"
        )
    if until_s is not None:
        finish_s = until_s
    elif selection == "end" and not np.isnan(spans.to_s).any() and ran.any():
        usual_s = float(np.quantile(run_s, _LATE))
        finish_s = max(begin_s, last_s - usual_s)
        evidence.append(f"complete until {usual_s / _HOUR_S:.1f} h before its end, as 95 % run no longer")
    else:
        finish_s = last_s
        evidence.append("complete until its last event")
    return Complete(selection, begin_s, finish_s, tuple(evidence))


def _inferred_selection(spans: Spans, submit_s: F64) -> tuple[Selection, str]:
    """Which jobs the log has, and why.

    A log by submission begins all at once; others begin with the few early submissions of jobs that waited or ran long. In
    one by end, what ended soon is missing, and at the first end the machine is busy; in one by start it is still filling.
    """
    if why := _all_go_on(spans):
        return "end", why
    jobs = len(submit_s)
    count = min(max(20, int(_BEGINNING * jobs)), jobs - 1)
    span_s = float(submit_s[-1] - submit_s[0])
    if count < 1 or span_s <= 0 or jobs < 100:
        return "submit", "too few jobs to tell, taken as usual"
    thin = float(submit_s[count] - submit_s[0]) / (span_s * count / jobs)
    if thin < _THIN:
        return "submit", f"the first {count} come as fast as others ({1 / max(thin, 1e-3):.2f} of their rate)"
    at, busy = spans.levels()
    started = np.isfinite(spans.from_s)
    first_s = float(np.nanmin(spans.to_s[started])) if started.any() else 0.0
    before = int(busy[max(int(np.searchsorted(at, first_s)) - 1, 0)])
    middle = float(np.median(busy))
    why = f"the first {count} come {thin:.0f} times slower than others, and {before} nodes are in use at the first end"
    return ("end" if before >= _BUSY * middle else "start"), f"{why} (middle of all: {middle:.0f})"


def _all_go_on(spans: Spans) -> str:
    """Why jobs that began before the first end cannot be all that began before it; empty: they can.

    The chance that none of so many jobs ends by then is that of running longer, for jobs that run as long as later ones.
    """
    started = np.isfinite(spans.from_s)
    ran = started & np.isfinite(spans.to_s)
    if ran.sum() < _FEW:
        return ""
    first_s = float(spans.to_s[ran].min())
    before = started & (spans.from_s < first_s)
    later = ran & (spans.from_s >= first_s)
    run_s = np.sort((spans.to_s - spans.from_s)[later if later.sum() >= _FEW else ran])
    longer = len(run_s) - np.searchsorted(run_s, first_s - spans.from_s[before], "right")
    exponent = float(np.log10((longer + 1) / (len(run_s) + 1)).sum())
    if exponent > _CHANCE:
        return ""
    return f"{int(before.sum())} jobs run at the first end, and the chance that none ends before is 1e{exponent:.0f}"


@dataclass(frozen=True, slots=True)
class Past(Columns):
    """What a log says happened to its jobs, one element a job. Times in seconds on the clock of the run.

    Parameters
    ----------
    start_s, end_s : nan: not recorded.
    state : how each ended, in the words of the log.
    unfinished : whether it still ran or waited at the log's end (default: none did).
    node_list : the nodes that it had, as Slurm folds their names (default: not recorded).
    """

    start_s: F64
    end_s: F64
    state: tuple[str, ...]
    unfinished: BOOL | None = None
    node_list: tuple[str, ...] | None = None

    @property
    def failed(self) -> BOOL:
        """Whether a failure, or a scheduler that put it back into the queue, ended a job."""
        return np.array([text.startswith(FAILED) for text in self.state], np.bool_)


@dataclass(frozen=True, slots=True)
class Recorded:
    """What a log says happened, for the jobs of a run.

    Parameters
    ----------
    jobs : by job.
    from_s : the first instant at which all running jobs are known.
    apart : jobs of the log that are no jobs of the run, by why.
    zone : of the log's calendar; empty: as written.
    """

    jobs: Past
    from_s: float
    apart: Mapping[str, int]
    zone: str = ""

    def take(self, rows: Sequence[int] | I64) -> Recorded:
        """Of some of the jobs."""
        return replace(self, jobs=self.jobs.take(rows))


@dataclass(frozen=True, slots=True)
class Known:
    """What a run's scenario says of the site (default: nothing).

    Parameters
    ----------
    partitions : whether partitions are pools of their own in it.
    fair_share : whether its policy has shares, or the site's files say that there are none.
    policy : that the site's files say it has; empty: they do not.
    nodes : the names of the nodes, in their order.
    """

    partitions: bool = False
    fair_share: bool = False
    policy: str = ""
    nodes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Beside:
    """Simulated waits beside the recorded ones, in seconds.

    Parameters
    ----------
    name : of these jobs: of a partition, or `ALL`.
    jobs : how many are scored.
    recorded_mean_s, simulated_mean_s, recorded_median_s, simulated_median_s : of their waits.
    within_factor_2 : the share of them whose simulated wait is from half to twice the recorded one.
    first_s : the first instant from which the queue differs: a job has started in one of the two, and waits in the other for
        a minute more; nan: it never differs.
    """

    name: str
    jobs: int
    recorded_mean_s: float
    simulated_mean_s: float
    recorded_median_s: float
    simulated_median_s: float
    within_factor_2: float
    first_s: float

    @classmethod
    def of(cls, name: str, submit_s: F64, recorded_s: F64, simulated_s: F64) -> Beside:
        """From submissions and starts of jobs that are scored, at least one."""
        recorded, simulated = recorded_s - submit_s, simulated_s - submit_s
        ratio = np.maximum(simulated, ALIKE_S) / np.maximum(recorded, ALIKE_S)
        differs = np.abs(simulated - recorded) >= ALIKE_S
        first_s = np.minimum(recorded_s, simulated_s)[differs].min(initial=np.inf)
        return cls(
            name,
            len(submit_s),
            float(recorded.mean()),
            float(simulated.mean()),
            float(np.median(recorded)),
            float(np.median(simulated)),
            float(np.mean((ratio >= 0.5) & (ratio <= 2.0))),
            float(first_s) if np.isfinite(first_s) else np.nan,
        )

    @property
    def off(self) -> float:
        """By how much the simulated mean is off, relative to the recorded one, which counts as a minute at least."""
        return off(self.simulated_mean_s, self.recorded_mean_s)


def off(simulated_s: float, recorded_s: float) -> float:
    """By how much a simulated mean wait is off, relative to the recorded one, which counts as a minute at least."""
    return (simulated_s - recorded_s) / max(recorded_s, ALIKE_S)


def besides(
    submit_s: F64, recorded_s: F64, simulated_s: F64, rows: BOOL, classes: Sequence[str]
) -> tuple[Beside, ...]:
    """All jobs, then each class that has any, the largest first, where there are several.

    Parameters
    ----------
    submit_s, recorded_s, simulated_s : of the jobs: submissions and starts.
    rows : which of them are scored.
    classes : of each job, such as its partition; empty: none.
    """
    if not rows.any():
        return ()
    names = np.array(classes, dtype=object)
    known, counts = np.unique(names[rows].astype(str), return_counts=True)
    chosen = [(ALL, rows)]
    if len(known) > 1:
        chosen += [
            (str(known[at]) or "none", rows & (names == known[at]))
            for at in np.argsort(-counts, kind="stable")
        ]
    return tuple(
        Beside.of(name, *(one[of] for one in (submit_s, recorded_s, simulated_s))) for name, of in chosen
    )


@dataclass(frozen=True, slots=True)
class Judged:
    """A run beside the history of its jobs.

    Parameters
    ----------
    rows : all jobs, then each partition, where there are several; none: no job is scored.
    apart : jobs that are not scored, by why.
    gap : the largest known gap between the setting and the site, in words; empty: the setting reproduces history, or no gap
        is known.
    """

    rows: tuple[Beside, ...]
    apart: Mapping[str, int]
    gap: str = ""


def reproduces(rows: Sequence[Beside]) -> bool:
    """Whether the mean wait, and that of every large partition, is near the recorded one. rows: all jobs first."""
    whole, *partitions = rows
    large = [one for one in partitions if one.jobs >= PARTITION_SHARE * whole.jobs]
    return abs(whole.off) <= MEAN_OFF and all(abs(one.off) <= PARTITION_OFF for one in large)


def judged(jobs: Jobs, recorded: Recorded, simulated_s: F64, known: Known) -> Judged:
    """A run beside the history of its jobs.

    Parameters
    ----------
    jobs, recorded : of the run.
    simulated_s : when each first started in the run; nan: it did not.
    known : what the scenario says of the site.
    """
    submit_s = jobs.submit_s.astype(np.float64)
    queue = _Queue(jobs, recorded.jobs)
    started, later = np.isfinite(queue.start_s), submit_s >= recorded.from_s
    left = jobs.censored
    over = ~left  # others count apart already
    if recorded.jobs.unfinished is not None:
        over &= ~recorded.jobs.unfinished
    started &= over
    held = later & over & np.isfinite(queue.held_from_s())
    out = {
        "submitted before all running jobs are known": over & ~later,
        "without a recorded start": later & over & ~started,
        "held": held,
        "not started in the simulation": later & started & ~held & np.isnan(simulated_s),
    }
    scored = over & ~np.logical_or.reduce(list(out.values()))
    counts = {**recorded.apart, **{why: int(those.sum()) for why, those in out.items()}}
    counts[_LEFT] = counts.get(_LEFT, 0) + int(left.sum())
    rows = besides(submit_s, queue.start_s, simulated_s, scored, queue.partition)
    gap = ""
    if rows and not reproduces(rows):
        gap = queue.gap(np.flatnonzero(scored), known, int(held.sum()))
    return Judged(rows, {why: count for why, count in counts.items() if count}, gap)


def held_from_s(jobs: Jobs, past: Past) -> F64:
    """By job of a log, from when on it was held; infinite: never."""
    return _Queue(jobs, past).held_from_s()


class _Queue:
    """The recorded queue, and what it shows of the site."""

    def __init__(self, jobs: Jobs, past: Past) -> None:
        self.jobs, self.past = jobs, past
        self.submit_s = jobs.submit_s.astype(np.float64)
        self.start_s = np.maximum(past.start_s, self.submit_s)
        labels, none = jobs.labels, ("",) * len(jobs)
        self.partition = none if labels is None else labels.partition
        self.qos = none if labels is None else labels.qos
        self.spans = Spans(self.start_s, past.end_s, jobs.gpus)
        self.at_s, self.used = self.spans.levels()
        self.away = self._away()
        #: int64[jobs], GPUs of its partition that another job could have had in its place when it started
        self.spare = jobs.gpus.copy()
        for rows in self._by_partition().values():
            instants, own = self._of(rows).levels()
            when = np.maximum(np.searchsorted(instants, self.start_s[rows], "right") - 1, 0)
            now = np.maximum(np.searchsorted(self.at_s, self.start_s[rows], "right") - 1, 0)
            if len(own):
                self.spare[rows] += np.where(self.away[now], 0, own.max() - own[when])

    def _by_partition(self) -> dict[str, I64]:
        """The rows of the jobs of each partition."""
        names = np.array(self.partition, dtype=str)
        return {name: np.flatnonzero(names == name) for name in np.unique(names).tolist()}

    def _of(self, rows: I64) -> Spans:
        """What some jobs held."""
        return Spans(self.spans.from_s[rows], self.spans.to_s[rows], self.spans.gpus[rows])

    def held_from_s(self) -> F64:
        """By job, from when on it is held: overtaken by a later job of its own user, and waiting for long after."""
        since_s = np.full(len(self.jobs), np.inf)
        long = np.flatnonzero(np.isfinite(self.start_s) & (self.start_s - self.submit_s >= HELD_S))
        overtaken_s = self.overtaken(long)[0]
        since_s[long] = np.where(self.start_s[long] - overtaken_s >= HELD_S, overtaken_s, np.inf)
        return since_s

    def overtaken(self, rows: I64) -> tuple[F64, F64]:
        """When each of some jobs is first overtaken by a later one of its own user, and of another; infinite: never.

        Only a job of the same partition and QOS counts that asks for no less time and took GPUs on which the other would
        have fitted: neither order of submission nor backfilling puts it in front.
        """
        own_s, other_s = np.full(len(rows), np.inf), np.full(len(rows), np.inf)
        groups: dict[tuple[str, str], list[int]] = {}
        for row, key in enumerate(zip(self.partition, self.qos, strict=True)) if len(rows) else ():
            groups.setdefault(key, []).append(row)
        place = {row: at for at, row in enumerate(rows.tolist())}
        users = np.unique(np.array(self.jobs.user, dtype=str), return_inverse=True)[1]
        named = np.array([bool(user) for user in self.jobs.user], np.bool_)
        for group in groups.values():
            asked = [row for row in group if row in place]
            members = np.array(group, np.int64)
            submit_s, start_s = self.submit_s[members], self.start_s[members]
            spare, request_s, user = self.spare[members], self.jobs.requested_s[members], users[members]
            firsts = np.searchsorted(submit_s, self.submit_s[asked], "right")
            lasts = np.searchsorted(submit_s, self.start_s[asked], "left")
            for row, first, last in zip(asked, firsts.tolist(), lasts.tolist(), strict=True):
                some = slice(first, last)
                passes = (start_s[some] < self.start_s[row]) & (spare[some] >= self.jobs.gpus[row])
                passes &= request_s[some] >= self.jobs.requested_s[row]
                mine = user[some] == users[row]
                at = place[row]
                if named[row]:
                    own_s[at] = start_s[some][passes & mine].min(initial=np.inf)
                    other_s[at] = start_s[some][passes & ~mine].min(initial=np.inf)
        return own_s, other_s

    def gap(self, scored: I64, known: Known, held: int) -> str:
        """The largest known gap between the setting and the site, in words; empty: none explains enough.

        Each is measured in seconds of recorded waiting: with GPUs free in the log as a whole and not in the partition; while
        the GPUs of a job that failed were not in use again; after being overtaken by the same user, or by another.

        Parameters
        ----------
        scored : rows of jobs.
        known : what the scenario says of the site.
        held : jobs that are held, and not scored.
        """
        waited = scored[(self.start_s - self.submit_s)[scored] > ALIKE_S]
        some = waited[:: max(1, len(waited) // _MOST_LOOKED_AT)]
        whole_s = float((self.start_s - self.submit_s)[some].sum())
        elsewhere_s, away_s = self._free(some)
        own_s, other_s = (np.maximum(self.start_s[some] - at, 0.0) for at in self.overtaken(some))
        several = not known.partitions and len(set(self.partition)) > 1
        left_s = np.maximum(self.start_s[some] - self.submit_s[some] - elsewhere_s - away_s, 0.0)
        ahead_s = np.where(own_s > 0, 0.0, np.minimum(other_s, left_s))
        found = {
            "partitions not given": elsewhere_s.sum() if several else 0.0,
            "failures": away_s.sum(),
            "holds": np.minimum(own_s, left_s).sum(),
            "fair share not given": 0.0 if known.fair_share else ahead_s.sum(),
        }
        name = max(found, key=lambda one: found[one])
        if found[name] > _NAMED * max(whole_s, 1.0):
            return f"{name} ({100 * found[name] / whole_s:.0f} % of the recorded waiting)"
        if several:
            return "partitions not given"
        return f"holds ({held} jobs)" if held else ""

    def _free(self, rows: I64) -> tuple[F64, F64]:
        """Seconds that each of some jobs waited with GPUs free in other partitions only, and while GPUs were away.

        There are as many GPUs as were in use at once at the most. Those of a job that failed are away until more are in use
        than the others.
        """
        at, used, away = self.at_s, self.used, self.away
        elsewhere_s, away_s = np.zeros(len(rows)), np.zeros(len(rows))
        for members in self._by_partition().values():
            own, mine = self._of(members).at(at), np.isin(rows, members)
            for gpus in np.unique(self.jobs.gpus[rows[mine]]).tolist():
                free, free_here = used.max() - used >= gpus, own.max() - own >= gpus
                those = mine & (self.jobs.gpus[rows] == gpus)
                which = rows[those]
                for total_s, when in ((elsewhere_s, free & ~free_here & ~away), (away_s, free & away)):
                    so_far = np.append(0.0, np.cumsum(np.diff(at) * when[:-1]))
                    until, since = (
                        np.interp(one[which], at, so_far) for one in (self.start_s, self.submit_s)
                    )
                    total_s[those] = until - since
        return elsewhere_s, away_s

    def _away(self) -> BOOL:
        """From which instants on GPUs of a job that failed are away."""
        away = np.zeros(len(self.at_s), np.bool_)
        for row in np.flatnonzero(self.past.failed & np.isfinite(self.past.end_s)).tolist():
            first = int(np.searchsorted(self.at_s, self.past.end_s[row]))
            back = np.flatnonzero(self.used[first:] > self.used.max() - self.jobs.gpus[row])
            away[first : first + int(back[0]) if len(back) else len(away)] = True
        return away
