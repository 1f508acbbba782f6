"""The record of a run: outcomes of jobs, changes of allocation, scheduling events.

Rules write it while they run; the summary reads it.
"""

from __future__ import annotations

import numpy as np

from forerun.cluster.inputs.arrays import BOOL, F64, I8, I64, NO_DEADLINE_S
from forerun.cluster.inputs.setting import Setting


class Record:
    """What happens in one run, written as it goes. Times are in seconds; -1 in a column of times means never.

    Columns have one element per job, in the order of `setting.jobs`.

    Parameters
    ----------
    setting : what is run.

    Attributes
    ----------
    admitted : 1, 0 (refused), -1 (not decided).
    moved_s : when each came, of jobs that come after the end of others; infinite: it did not; nan: at its submission.
    first_start_s, start_s : first and last time at which the job got its first GPUs.
    end_s, logged_s : its end, and when the schedule noticed it.
    real_end_s : the end by ElasticFlow's plan (nan: no plan).
    declined : refused or late by the schedule's own rule.
    judged_s : when it was admitted or refused (nan: at its submission).
    useful_gpu_s : GPU time in which it worked (nan: all its GPU time less that of `overhead_s`).
    worked_s : seconds in which it worked (nan: the same share of the seconds on GPUs).
    lost_gpu_s : GPU time of work that was lost as the job was put back into the queue.
    away : when jobs that were put back could not start: (row, from, to).
    overhead_s : seconds on GPUs in which it did not.
    preempts, resumes, restarts : how often.
    accepted : jobs in time by the schedule's own rule.
    names_gpus : whether `seats` has the very GPUs of jobs; else only their type, as the first GPU that is of it.
    moves : stretches that begin without a change of the count: (instant, row, GPUs).
    spread_gpu_s, spread_rows, most_nodes : GPU time of jobs on more nodes than they need, these jobs, and the most nodes of
        one of them.
    overrun_rows : jobs so far behind their plans that no plan was in time any more.
    refusals : why, by row.
    cancelled : when a job was taken back, by row.
    seeks_remedies : whether to seek what would have admitted a refused job: trials that only explanations need.
    completed : rows in the order of their ends.
    ended_because : why the run ended early.
    notes : what the result should mention.
    held : GPUs that each job has now.
    """

    def __init__(self, setting: Setting) -> None:
        count = len(setting.jobs)
        self.setting = setting
        self.admitted: I8 = np.full(count, -1, np.int8)
        self.moved_s: F64 = np.full(count, np.nan)
        self.first_start_s: F64 = np.full(count, -1.0)
        self.start_s: F64 = np.full(count, -1.0)
        self.end_s: F64 = np.full(count, -1.0)
        self.logged_s: F64 = np.full(count, -1.0)
        self.real_end_s: F64 = np.full(count, np.nan)
        self.declined: BOOL = np.zeros(count, np.bool_)
        self.accepted = 0
        self.useful_gpu_s: F64 = np.full(count, np.nan)
        self.worked_s: F64 = np.full(count, np.nan)
        self.lost_gpu_s: F64 = np.zeros(count)
        self.away: list[tuple[int, float, float]] = []
        self.overhead_s: F64 = np.zeros(count)
        self.judged_s: F64 = np.full(count, np.nan)
        self.names_gpus = False
        self.moves: list[tuple[float, int, int]] = []
        self.spread_gpu_s = 0.0
        self.spread_rows: set[int] = set()
        self.most_nodes = 0
        self.overrun_rows: set[int] = set()
        self.executed_s: F64 = np.zeros(count)
        self.preempts: I64 = np.zeros(count, np.int64)
        self.resumes: I64 = np.zeros(count, np.int64)
        self.restarts: I64 = np.zeros(count, np.int64)
        self.refusals: dict[int, str] = {}
        left = np.flatnonzero(setting.jobs.censored)
        self.cancelled: dict[int, float] = dict(
            zip(left.tolist(), setting.jobs.leaves_s[left].tolist(), strict=True)
        )
        self.seeks_remedies = True
        self.completed: list[int] = []
        self.ended_because = ""
        self.notes: list[str] = []
        self.held: I64 = np.zeros(count, np.int64)
        self._share = _efficiency_table(setting)
        self._changes: list[tuple[F64, I64, I64]] = []
        self._events: list[tuple[F64, I64, I64, I64, F64]] = []
        self._seats: list[tuple[F64, I64, I64, I64]] = []

    def grow(self, setting: Setting) -> None:
        """Grow the columns to the jobs of a setting that begins with those of the present one."""
        count, fresh = len(self.admitted), Record(setting)
        for name, column in vars(fresh).items():
            if isinstance(column, np.ndarray) and column.ndim == 1:
                column[:count] = vars(self)[name]
                vars(self)[name] = column
        self.setting, self._share = setting, fresh._share

    def cancel(self, row: int, now_s: float) -> None:
        """A job was taken back: whatever ends it afterwards is no end of its work."""
        self.cancelled.setdefault(row, now_s)

    @property
    def came_s(self) -> I64 | F64:
        """When each job came: at its submission, or a while after the end of the job before it; infinite: it did not."""
        submit_s = self.setting.jobs.submit_s
        moved = ~np.isnan(self.moved_s)
        return np.where(moved, self.moved_s, submit_s) if moved.any() else submit_s

    @property
    def declined_count(self) -> int:
        """Jobs with a deadline that were refused or late, by the schedule's own rule."""
        return int(np.count_nonzero(self.declined))

    @property
    def met_reference(self) -> BOOL:
        """Jobs that ended and were not declared late."""
        return (self.end_s >= 0) & ~self.declined

    def add_event(self, now_s: float, rows: I64, gpus: I64, pending: int) -> None:
        """One scheduling event: `rows` have `gpus` from now on; jobs not named keep what they had.

        Efficiency is the sum over running jobs of throughput over one-GPU throughput, per GPU of the cluster.

        Parameters
        ----------
        now_s : when.
        rows, gpus : the jobs with GPUs, and those that lost theirs, and how many each has.
        pending : jobs that wait from now on.
        """
        before = self.held[rows]
        changed = before != gpus
        if changed.any():
            at = rows[changed]
            times_s = np.full(len(at), now_s, np.float64)
            self._changes.append((times_s, at, gpus[changed].astype(np.int64)))
            self._started_at(times_s, at, before[changed], gpus[changed])
            self.held[rows] = gpus
        running = np.flatnonzero(self.held) if len(rows) == 0 else rows[gpus > 0]
        self._append_event(now_s, pending, running)

    def add_events(self, times_s: I64 | F64, pending: I64, first: I64, rows: I64, gpus: I64) -> None:
        """Many events at once: event i gives `gpus[first[i]:first[i + 1]]` to those `rows`; others keep theirs.

        Parameters
        ----------
        times_s, pending : instant of each event, and the jobs that wait after it.
        first : the first change of each event, and the number of changes in all.
        rows, gpus : the changes.
        """
        times_s = times_s.astype(np.float64)
        count = len(times_s)
        event = np.repeat(np.arange(count), np.diff(first))
        order = np.lexsort((event, rows))
        by_row, after = rows[order], gpus[order]
        before = np.concatenate((after[:1], after[:-1]))
        fresh = np.concatenate(([True], by_row[1:] != by_row[:-1])) if len(by_row) else np.zeros(0, np.bool_)
        before[fresh] = self.held[by_row[fresh]]
        last = np.concatenate((fresh[1:], [True])) if len(by_row) else fresh
        self.held[by_row[last]] = after[last]
        changed = np.flatnonzero(before != after)
        changed = changed[np.argsort(order[changed], kind="stable")]
        at, event, before, after = by_row[changed], event[order][changed], before[changed], after[changed]
        self._changes.append((times_s[event], at, after))
        self._started_at(times_s[event], at, before, after)
        kind = self.setting.jobs.kind[at]
        shares = self._share_of(kind, after) - self._share_of(kind, before)
        running = np.bincount(event, (after > 0).astype(np.int64) - (before > 0), count).astype(np.int64)
        used = np.bincount(event, after - before, count).astype(np.int64)
        was_running, was_used, before_sum = self._totals
        # Added up from what was before, one after another: the sums do not depend on how events fall into blocks.
        sums = np.cumsum(np.append(before_sum, np.bincount(event, shares, count)))[1:]
        running, used = np.cumsum(running) + was_running, np.cumsum(used) + was_used
        share = np.where(running > 0, sums / self.setting.cluster.gpus, 0.0)
        if count:
            self._totals = int(running[-1]), int(used[-1]), float(sums[-1])
        self._events.append((times_s, pending.copy(), running, self.setting.cluster.gpus - used, share))

    _totals: tuple[int, int, float] = (0, 0, 0.0)

    def finish(self, row: int, end_s: float, *, declined: bool, log_time_s: float | None = None) -> None:
        """A job ended.

        Parameters
        ----------
        declined : whether it was late by the schedule's own rule.
        log_time_s : when the schedule noticed (default: at the end).
        """
        if row in self.cancelled:
            return
        self.end_s[row] = end_s
        self.logged_s[row] = end_s if log_time_s is None else log_time_s
        self.declined[row] |= declined
        self.completed.append(row)

    def end(self, row: int, end_s: float, *, log_time_s: float | None = None) -> None:
        """A job ended; its deadline says whether it was in time. log_time_s: when the schedule noticed (default: then)."""
        deadline_s = self.setting.jobs.deadline_s[row]
        late = bool(end_s > deadline_s)
        self.finish(row, end_s, declined=late, log_time_s=log_time_s)
        self.accepted += bool(deadline_s < NO_DEADLINE_S) and not late and row not in self.cancelled

    def end_all(self, rows: I64, end_s: F64) -> None:
        """Jobs ended, in this order; their deadlines say which were in time."""
        if self.cancelled:
            done = ~np.isin(rows, list(self.cancelled))
            rows, end_s = rows[done], end_s[done]
        deadline_s = self.setting.jobs.deadline_s[rows]
        timed = deadline_s < NO_DEADLINE_S
        late = timed & (end_s > deadline_s)
        self.end_s[rows] = self.logged_s[rows] = end_s
        self.declined[rows] |= late
        self.completed += rows.tolist()
        self.accepted += int(np.count_nonzero(timed & ~late))

    def admit(self, row: int, now_s: float) -> None:
        """A job was admitted."""
        self.admitted[row] = 1
        self.judged_s[row] = now_s

    def refuse(self, row: int, because: str, now_s: float) -> None:
        """A job was refused; `because` names the constraint that binds."""
        self.admitted[row] = 0
        self.judged_s[row] = now_s
        self.declined[row] = True
        self.refusals[row] = because

    def changes(self) -> tuple[F64, I64, I64]:
        """All allocation changes: (time_s, row, gpus after), in order."""
        if not self._changes:
            empty = np.zeros(0, np.int64)
            return np.zeros(0), empty, empty.copy()
        times, rows, gpus = map(np.concatenate, zip(*self._changes, strict=True))
        return times, rows, gpus

    def events(self) -> tuple[F64, I64, I64, I64, F64]:
        """All scheduling events: (time_s, pending, running, free GPUs, efficiency), in order."""
        if not self._events:
            empty = np.zeros(0, np.int64)
            return np.zeros(0), empty, empty.copy(), empty.copy(), np.zeros(0)
        times, pending, running, free, efficiency = map(np.concatenate, zip(*self._events, strict=True))
        return times, pending, running, free, efficiency

    def seat(self, now_s: float, row: int, gpus: I64) -> None:
        """A job has these GPUs from now on: ascending numbers through the nodes."""
        self.names_gpus = True
        begins = np.flatnonzero(np.diff(gpus, prepend=-2) != 1)
        count = np.diff(np.append(begins, len(gpus)))
        self.seat_all(np.full(len(begins), float(now_s)), np.full(len(begins), row), gpus[begins], count)

    def seat_all(self, times_s: F64, rows: I64, first: I64, count: I64) -> None:
        """Runs of GPUs that jobs have from some instants on: the first of each run, and how many."""
        self._seats.append((times_s, rows, first, count))

    @property
    def has_seats(self) -> bool:
        """Whether anything is known of the GPUs that jobs have."""
        return bool(self._seats)

    def seats(self, rows: I64, from_s: F64) -> tuple[I64, I64, I64]:
        """The GPUs of some stretches: where the runs of each begin and the last ends, the first GPU of each run, how many.

        Parameters
        ----------
        rows, from_s : the job of each stretch, and its begin.
        """
        times_s, of, first, count = map(np.concatenate, zip(*self._seats, strict=True))
        given = np.repeat(np.arange(len(self._seats)), [len(one[0]) for one in self._seats])
        key = of + 1j * times_s  # these go by row, then by time
        known, which = np.unique(key, return_inverse=True)
        latest = np.zeros(len(known), np.int64)
        np.maximum.at(latest, which, given)  # of what a job was given at one instant, the last counts
        order = np.argsort(key, kind="stable")
        order = order[given[order] == latest[which[order]]]
        wanted = rows + 1j * from_s
        low, high = (np.searchsorted(key[order], wanted, side) for side in ("left", "right"))
        begin = np.concatenate(([0], np.cumsum(high - low))).astype(np.int64)
        at = order[np.repeat(low - begin[:-1], high - low) + np.arange(begin[-1])]
        return begin, first[at], count[at]

    @property
    def places(self) -> dict[tuple[int, float], list[tuple[int, int]]]:
        """The GPUs of each job from an instant on, as runs (first, count), by (row, instant), where they are named."""
        found: dict[tuple[int, float], list[tuple[int, int]]] = {}
        for chunk in self._seats if self.names_gpus else ():
            now: dict[tuple[int, float], list[tuple[int, int]]] = {}
            for at_s, row, first, count in zip(*(column.tolist() for column in chunk), strict=True):
                now.setdefault((row, at_s), []).append((first, count))
            found |= now
        return found

    def _append_event(self, now_s: float, pending: int, running: I64) -> None:
        gpus, total = self.held[running], self.setting.cluster.gpus
        shares = float(self._share_of(self.setting.jobs.kind[running], gpus).sum())
        used = int(gpus.sum())
        self._totals = len(running), used, shares
        waiting, holding, free = np.array([[pending], [len(running)], [total - used]], np.int64)
        self._events.append((np.array([float(now_s)]), waiting, holding, free, np.array([shares / total])))

    def _share_of(self, kind: I64, gpus: I64) -> F64:
        row = kind if self.setting.profile is not None else np.zeros_like(kind)
        shares: F64 = self._share[row, np.minimum(gpus, self._share.shape[1] - 1)]
        return shares

    def _started_at(self, times_s: F64, rows: I64, before: I64, after: I64) -> None:
        fresh = (before == 0) & (after > 0)
        rows, times_s = rows[fresh], times_s[fresh]
        self.start_s[rows] = times_s  # in time order: the last one stays
        never = self.first_start_s[rows] < 0
        first_rows, at = np.unique(rows[never], return_index=True)
        self.first_start_s[first_rows] = times_s[never][at]


def _efficiency_table(setting: Setting) -> F64:
    """Throughput over one-GPU throughput, by (kind, GPUs); the last row (kind -1) counts GPUs themselves."""
    if setting.profile is None:
        top = int(setting.jobs.gpus.max(initial=1))
        return np.arange(top + 1, dtype=np.float64)[None, :]
    rate = setting.profile.rate_at()
    top = max(rate.shape[1], int(setting.jobs.gpus.max(initial=1)) + 1)
    table = np.zeros((len(rate) + 1, top))
    one = rate[:, 1] if rate.shape[1] > 1 else np.ones(len(rate))
    table[:-1, : rate.shape[1]] = rate / np.where(one > 0, one, np.inf)[:, None]
    table[-1] = np.arange(top)
    return table


def runs_of(numbers: I64) -> list[tuple[int, int]]:
    """Ascending numbers as runs of (first, count)."""
    if not len(numbers):
        return []
    cuts = np.flatnonzero(np.diff(numbers) != 1) + 1
    return [(int(part[0]), len(part)) for part in np.split(numbers, cuts)]
