"""What a run leaves behind, written as it goes: outcomes a job, allocation changes, scheduling events.

Rules write, results read. Times are whole seconds; -1 stands for "never" in integer columns.
"""

from __future__ import annotations

import numpy as np

from forerun.domains.cluster.model import BOOL, F64, I8, I64, World


class Record:
    """The growing record of one run.

    Outcome columns have one element a job, in the order of `world.jobs`. `snapshot` notes one scheduling event and
    the GPUs of the jobs it names; `block` notes many at once, for kernels. `useful_gpu_s` is the GPU time in which work
    was done (nan: all that was held, less `overhead_s`), `worked_s` the seconds of it (nan: the same share of the seconds
    held); `fragmentation_s` and `quota_s` are waiting seconds so caused;
    `judged_s` is when a schedule took a job in or refused it (nan: at its submission). `places` holds the GPUs, as runs
    of (first, count), of each stretch by (row, start), where a placement names them; `moves` are stretches that begin
    without a change of their count: (instant, row, GPUs). `spread_gpu_s` is the GPU time held by jobs on more nodes than
    they need, `spread_rows` which jobs these are, `most_nodes` the most nodes that one of them was on. `overrun_rows` are
    the jobs that fell so far behind their plans that no plan was in time any more.
    """

    def __init__(self, world: World) -> None:
        count = len(world.jobs)
        self.world = world
        self.admitted: I8 = np.full(count, -1, np.int8)
        self.first_start_s: F64 = np.full(count, -1.0)
        self.start_s: F64 = np.full(count, -1.0)
        self.end_s: F64 = np.full(count, -1.0)
        self.logged_s: F64 = np.full(count, -1.0)
        self.real_end_s: F64 = np.full(count, np.nan)
        self.declined: BOOL = np.zeros(count, np.bool_)
        self.accepted = 0
        self.useful_gpu_s: F64 = np.full(count, np.nan)
        self.worked_s: F64 = np.full(count, np.nan)
        self.overhead_s: F64 = np.zeros(count)
        self.judged_s: F64 = np.full(count, np.nan)
        self.places: dict[tuple[int, float], list[tuple[int, int]]] = {}
        self.moves: list[tuple[float, int, int]] = []
        self.fragmentation_s: F64 = np.zeros(count)
        self.quota_s: F64 = np.zeros(count)
        self.fragmented_gpu_s = 0.0
        self.spread_gpu_s = 0.0
        self.spread_rows: set[int] = set()
        self.most_nodes = 0
        self.overrun_rows: set[int] = set()
        self.executed_s: F64 = np.zeros(count)
        self.preempts: I64 = np.zeros(count, np.int64)
        self.resumes: I64 = np.zeros(count, np.int64)
        self.restarts: I64 = np.zeros(count, np.int64)
        self.refusals: dict[int, str] = {}
        #: whether to seek what would have admitted a refused job: trials that only explanations need
        self.seeks_remedies = True
        self.completed: list[int] = []
        self.ended_because = ""
        self.notes: list[str] = []
        self.held: I64 = np.zeros(count, np.int64)
        self._share = _efficiency_table(world)
        self._changes: list[tuple[F64, I64, I64]] = []
        self._events: list[tuple[F64, I64, I64, I64, F64]] = []

    @property
    def declined_count(self) -> int:
        """Jobs with a deadline that were refused or late, by the schedule's own rule."""
        return int(np.count_nonzero(self.declined))

    @property
    def met_reference(self) -> BOOL:
        """Jobs that ended and were not declared late."""
        return (self.end_s >= 0) & ~self.declined

    def snapshot(self, now_s: float, rows: I64, gpus: I64, pending: int) -> None:
        """One scheduling event: `rows` hold `gpus` from now on; jobs not named keep what they had.

        Efficiency is the sum over running jobs of throughput over one-GPU throughput, per GPU of the cluster.
        """
        before = self.held[rows]
        changed = before != gpus
        if changed.any():
            at = rows[changed]
            self._changes.append((np.full(len(at), now_s, np.float64), at, gpus[changed].astype(np.int64)))
            self._started(now_s, at, before[changed], gpus[changed])
            self.held[rows] = gpus
        running = np.flatnonzero(self.held) if len(rows) == 0 else rows[gpus > 0]
        self._append_event(now_s, pending, running)

    def block(self, times_s: I64 | F64, pending: I64, first: I64, rows: I64, gpus: I64) -> None:
        """Many events at once: event i gives `gpus[first[i]:first[i + 1]]` to those `rows`; others keep theirs."""
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
        kept = np.flatnonzero(before != after)
        kept = kept[np.argsort(order[kept], kind="stable")]
        at, event, before, after = by_row[kept], event[order][kept], before[kept], after[kept]
        self._changes.append((times_s[event], at, after))
        self._started_at(times_s[event], at, before, after)
        kind = self.world.jobs.kind[at]
        shares = self._share_of(kind, after) - self._share_of(kind, before)
        running = np.bincount(event, (after > 0).astype(np.int64) - (before > 0), count).astype(np.int64)
        used = np.bincount(event, after - before, count).astype(np.int64)
        was_running, was_used, before_sum = self._totals
        # Added up from what was before, one after another: the sums do not depend on how events fall into blocks.
        sums = np.cumsum(np.append(before_sum, np.bincount(event, shares, count)))[1:]
        running, used = np.cumsum(running) + was_running, np.cumsum(used) + was_used
        share = np.where(running > 0, sums / self.world.cluster.gpus, 0.0)
        if count:
            self._totals = int(running[-1]), int(used[-1]), float(sums[-1])
        self._events.append((times_s, pending.copy(), running, self.world.cluster.gpus - used, share))

    _totals: tuple[int, int, float] = (0, 0, 0.0)

    def finish(self, row: int, end_s: float, *, declined: bool, log_time_s: float | None = None) -> None:
        """A job ended; `declined`: late by the schedule's own rule. `log_time_s`: when the schedule noticed."""
        self.end_s[row] = end_s
        self.logged_s[row] = end_s if log_time_s is None else log_time_s
        self.declined[row] |= declined
        self.completed.append(row)

    def finish_all(self, rows: I64, end_s: F64, declined: BOOL) -> None:
        """Jobs ended, in this order."""
        self.end_s[rows] = self.logged_s[rows] = end_s
        self.declined[rows] |= declined
        self.completed += rows.tolist()

    def admit(self, row: int, now_s: float) -> None:
        """A job was taken in."""
        self.admitted[row] = 1
        self.judged_s[row] = now_s

    def refuse(self, row: int, because: str, now_s: float) -> None:
        """A job was turned away; `because` names the constraint that binds."""
        self.admitted[row] = 0
        self.judged_s[row] = now_s
        self.declined[row] = True
        self.refusals[row] = because

    def changes(self) -> tuple[F64, I64, I64]:
        """All allocation changes: (time_s, row, gpus after), in order."""
        if not self._changes:
            empty = np.zeros(0, np.int64)
            return np.zeros(0), empty, empty.copy()
        times, rows, gpus = zip(*self._changes, strict=True)
        return np.concatenate(times), np.concatenate(rows), np.concatenate(gpus)

    def events(self) -> tuple[F64, I64, I64, I64, F64]:
        """All scheduling events: (time_s, pending, running, free GPUs, efficiency), in order."""
        if not self._events:
            empty = np.zeros(0, np.int64)
            return np.zeros(0), empty, empty.copy(), empty.copy(), np.zeros(0)
        times, pending, running, free, efficiency = zip(*self._events, strict=True)
        return (
            np.concatenate(times),
            np.concatenate(pending),
            np.concatenate(running),
            np.concatenate(free),
            np.concatenate(efficiency),
        )

    def _append_event(self, now_s: float, pending: int, running: I64) -> None:
        count, used, shares = self._totals = self._totals_of(running)
        waiting, running_now, free = (
            np.array([value], np.int64) for value in (pending, count, self.world.cluster.gpus - used)
        )
        self._events.append(
            (
                np.array([now_s], np.float64),
                waiting,
                running_now,
                free,
                np.array([shares / self.world.cluster.gpus]),
            )
        )

    def _totals_of(self, running: I64) -> tuple[int, int, float]:
        gpus = self.held[running]
        shares = self._share_of(self.world.jobs.kind[running], gpus)
        return len(running), int(gpus.sum()), float(shares.sum())

    def _share_of(self, kind: I64, gpus: I64) -> F64:
        row = kind if self.world.profile is not None else np.zeros_like(kind)
        shares: F64 = self._share[row, np.minimum(gpus, self._share.shape[1] - 1)]
        return shares

    def _started(self, now_s: float, rows: I64, before: I64, after: I64) -> None:
        self._started_at(np.full(len(rows), now_s, np.float64), rows, before, after)

    def _started_at(self, times_s: F64, rows: I64, before: I64, after: I64) -> None:
        fresh = (before == 0) & (after > 0)
        rows, times_s = rows[fresh], times_s[fresh]
        self.start_s[rows] = times_s  # in time order: the last one stays
        never = self.first_start_s[rows] < 0
        first_rows, at = np.unique(rows[never], return_index=True)
        self.first_start_s[first_rows] = times_s[never][at]


def _efficiency_table(world: World) -> F64:
    """Throughput over one-GPU throughput, by (kind, GPUs); the last row (kind -1) counts GPUs themselves."""
    if world.profile is None:
        top = int(world.jobs.gpus.max(initial=1))
        return np.arange(top + 1, dtype=np.float64)[None, :]
    rate = world.profile.rate_at()
    top = max(rate.shape[1], int(world.jobs.gpus.max(initial=1)) + 1)
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
