"""The measurements of one job, joined and laid out as arrays.

The join is done once. A simulation then looks up (batch size, limit) by index and draws one of its recorded paths;
no table is filtered while simulating.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Final, TypeAlias

import numpy as np

from forerun.core.errors import Problem, TraceError
from forerun.energy.policy.failures import NoBatchSizes, TargetNotInTrace
from forerun.energy.policy.rules import Rules
from forerun.energy.policy.view import Expected, Floats, Ints, Job, MeasuredLimits
from forerun.energy.readers.energy_tables import PowerTrace, TrainTrace

#: rows of the power trace by (dataset, network, optimizer) and batch size
Rows: TypeAlias = dict[tuple[tuple[str, str, str], int], list[int]]
#: epochs that no job is given: a size that drifts beyond does not reach
MOST_EPOCHS: Final = 2**40


@dataclass(frozen=True, slots=True)
class Submission:
    """One submission of a group.

    start_s, end_s: when it starts and ends in the trace [s]. runtime_ratio: its length over the mean job's (default 1).
    """

    start_s: float
    end_s: float
    runtime_ratio: float = 1.0


@dataclass(frozen=True)
class Workload:
    """Recorded paths and measured epochs of one job on one GPU type, S batch sizes by L limits.

    sizes: int64[S], ascending. limits_w: float64[L], descending, the union over sizes [W]. start, count: int64[S, L], the
    slice of the path arrays of a configuration (count 0: not measured). epochs: int64[rows], epochs to the target, 0
    never. epoch_s, epoch_j: float64[rows], what one epoch takes [s], [J]. power_mean_w, time_mean_s: float64[S, L],
    compensated means over the rows of a configuration (NaN: not measured). split_s, split_j: float64[S], means over all
    rows of a size: an epoch split over its limits. max_power_w: prices a second in costs [W]. top_limit_w: float64[S],
    prices it when limits are compared [W]. notes: known bugs that the data meet, as (key of `KNOWN_BUGS`, text).
    """

    job: Job
    sizes: Ints
    limits_w: Floats
    start: Ints
    count: Ints
    epochs: Ints
    epoch_s: Floats
    epoch_j: Floats
    power_mean_w: Floats
    time_mean_s: Floats
    split_s: Floats
    split_j: Floats
    max_power_w: float
    top_limit_w: Floats
    notes: tuple[tuple[str, str], ...] = ()

    def size_index(self, batch_size: int) -> int:
        """Position of a batch size in `sizes`, -1 if it is not on offer."""
        at = int(np.searchsorted(self.sizes, batch_size))
        return at if at < len(self.sizes) and self.sizes[at] == batch_size else -1

    def limit_index(self, limit_w: float) -> int:
        """Position of a power limit in `limits_w`, -1 if unknown."""
        return self._limit_places.get(limit_w, -1)

    @cached_property
    def _limit_places(self) -> dict[float, int]:
        """Position of each power limit."""
        return {limit: place for place, limit in enumerate(self.limits_w.tolist())}

    def limits_of(self, size: int) -> tuple[float, ...]:
        """Measured limits of the size at this index, highest first [W]."""
        return tuple(self.limits_w[self.count[size] > 0].tolist())

    def paths_of(self, size: int) -> Ints:
        """Recorded epochs to the target, one a run (0 = never): int64[runs].

        size: index of the batch size; without measurements there are none.
        """
        measured = np.flatnonzero(self.count[size] > 0)
        if not len(measured):
            return np.zeros(0, np.int64)
        first = self.start[size, measured[0]]
        return self.epochs[first : first + self.count[size, measured[0]]]

    def measured(self, size: int, limits_w: Iterable[float] | None = None) -> MeasuredLimits:
        """What a profile of this size measures.

        size: index of the batch size. limits_w: in the order measured [W] (default: all, highest first).
        """
        chosen = self.limits_of(size) if limits_w is None else tuple(limits_w)
        at = [self.limit_index(limit) for limit in chosen]
        return MeasuredLimits(
            batch_size=int(self.sizes[size]),
            limits_w=chosen,
            power_w=tuple(self.power_mean_w[size, at].tolist()),
            epoch_s=tuple(self.time_mean_s[size, at].tolist()),
            max_power_w=float(self.top_limit_w[size]),
        )

    def recurrences(self) -> int:
        """The customary number of recurrences: twice the batch sizes times the limits."""
        with_rows = self.count.sum(axis=1) > 0
        return 2 * int(with_rows.sum()) * int((self.count.sum(axis=0) > 0).sum())

    def drifted(self, exponent: float, pivot: float) -> Workload:
        """The job after a change: epochs(b) grow by (b / pivot) ** exponent, to at least one epoch.

        exponent: below 0, large batches gain. pivot: the batch size that does not change.
        """
        with np.errstate(over="ignore"):  # more epochs than can be counted are never reached
            factor = np.repeat((self.sizes / pivot) ** exponent, self.count.sum(axis=1))
            grown = np.round(np.maximum(1, self.epochs) * factor)
        changed = np.clip(grown, 1, MOST_EPOCHS).astype(np.int64)
        return replace(self, epochs=np.where(self.epochs > 0, changed, 0))

    def expected(self, eta: float) -> tuple[Expected, ...]:
        """Expected totals of every measured configuration, sizes ascending, limits descending.

        eta: weight of energy against time. Where some paths fail at `max_epochs`, a job is retried until it reaches:
        failures cost the full cap.
        """
        points = []
        for s, p in zip(*np.nonzero(self.count)):
            rows = slice(self.start[s, p], self.start[s, p] + self.count[s, p])
            points.append(self._expected(int(s), int(p), rows, eta))
        return tuple(points)

    def _expected(self, s: int, p: int, rows: slice, eta: float) -> Expected:
        """Expected totals of one configuration. s, p: its size and limit. rows: its paths."""
        cap = self.job.max_epochs
        epochs, epoch_s, epoch_j = self.epochs[rows], self.epoch_s[rows], self.epoch_j[rows]
        reached = (epochs > 0) & (epochs <= cap)
        share = float(reached.mean())
        time_s = energy_j = float("inf")
        if share > 0:
            again = (1 - share) / share
            time_s = float((epochs * epoch_s)[reached].mean())
            energy_j = float((epochs * epoch_j)[reached].mean())
            if share < 1:
                time_s += again * float((cap * epoch_s)[~reached].mean())
                energy_j += again * float((cap * epoch_j)[~reached].mean())
        cost = eta * energy_j + (1 - eta) * self.max_power_w * time_s if share > 0 else float("inf")
        return Expected(int(self.sizes[s]), float(self.limits_w[p]), share, time_s, energy_j, cost)


def compensated_mean(values: Iterable[float]) -> float:
    """Mean with a compensated running sum (Kahan), in the order given."""
    total = carry = 0.0
    n = 0
    for value in values:
        corrected = value - carry
        raised = total + corrected
        carry = (raised - total) - corrected
        total = raised
        n += 1
    return total / n


def join(train: TrainTrace, power: PowerTrace, job: Job, rules: Rules, max_power_w: float = 0.0) -> Workload:
    """The job's recorded paths joined with its measured epochs.

    train, power: the traces. job: which rows are meant. rules: which known bugs are fixed. max_power_w: prices a second [W]
    (default 0: the highest limit of the trace). Raises NoBatchSizes if the workload has no joined row, TargetNotInTrace
    if none has the target.
    """
    rows = _power_rows(power, rules)
    trained = set(zip(train.workload, train.batch_size.tolist()))
    joined = {key: at for key, at in rows.items() if key in trained}
    sizes = sorted(size for workload, size in joined if workload == job.workload)
    if not sizes:
        raise NoBatchSizes(Problem("$.job", _nothing_joined(train, power, job)))
    paths = _paths(train, job)
    notes = _notes(power, joined, job)
    if not any(size in paths for size in sizes) and rules.unmeasured_left_out:
        raise TargetNotInTrace(Problem("$.job", _targets_present(train, job)))
    for size in [size for size in sizes if size not in paths]:
        notes.append(("B17", f"batch size {size} has no rows for target {job.target_metric:g}"))
        if rules.unmeasured_left_out:
            sizes.remove(size)
    in_trace = (
        power.limit_w
        if rules.one_max_power
        else power.limit_w[[at for rows in joined.values() for at in rows]]
    )
    price = max_power_w or float(in_trace.max())
    return _lay_out(job, power, joined, sizes, paths, price, rules, notes)


def _power_rows(power: PowerTrace, rules: Rules) -> Rows:
    """Row numbers a (workload, batch size), in file order; duplicates dropped where the rules say so."""
    rows: Rows = defaultdict(list)
    seen: dict[tuple[object, ...], int] = {}
    for at, (workload, size, limit) in enumerate(
        zip(power.workload, power.batch_size.tolist(), power.limit_w.tolist())
    ):
        if rules.duplicates_dropped:
            first = seen.setdefault((workload, size, limit), at)
            if first != at:
                _same_or_error(power, first, at)
                continue
        rows[workload, size].append(at)
    return rows


def _same_or_error(power: PowerTrace, first: int, second: int) -> None:
    """Accept a duplicate row with equal values. Raises TraceError naming both lines for another."""
    if power.epoch_s[first] == power.epoch_s[second] and power.power_w[first] == power.power_w[second]:
        return
    of = f"{'/'.join(power.workload[first])} batch size {power.batch_size[first]}"
    what = (
        f"conflicts with line {power.line[first]}: {of} at {power.limit_w[first]:g} W has {power.epoch_s[first]:g} s, "
        f"{power.power_w[first]:g} W there and {power.epoch_s[second]:g} s, {power.power_w[second]:g} W here"
    )
    raise TraceError.at(f"{power.source}:{power.line[second]}", what)


def _paths(train: TrainTrace, job: Job) -> dict[int, list[int]]:
    """Epochs to the job's target a batch size, in file order."""
    paths: dict[int, list[int]] = defaultdict(list)
    for at in np.flatnonzero(train.target_metric == job.target_metric).tolist():
        if train.workload[at] == job.workload:
            paths[int(train.batch_size[at])].append(int(train.target_epoch[at]))
    return paths


def _lay_out(
    job: Job,
    power: PowerTrace,
    joined: Rows,
    sizes: list[int],
    paths: dict[int, list[int]],
    price: float,
    rules: Rules,
    notes: list[tuple[str, str]],
) -> Workload:
    """The arrays of a workload.

    Adds a note for each missing limit, and for each size whose highest limit is not the price.
    """
    rows_of = {size: joined[job.workload, size] for size in sizes if size in paths}
    limits = sorted({float(power.limit_w[at]) for rows in rows_of.values() for at in rows}, reverse=True)
    shape = (len(sizes), len(limits))
    start, count = np.zeros(shape, np.int64), np.zeros(shape, np.int64)
    power_mean, time_mean = np.full(shape, np.nan), np.full(shape, np.nan)
    split_s, split_j, top = np.full((3, len(sizes)), np.nan)
    epochs: list[int] = []
    measured: list[int] = []  # the power row of each path
    epoch_j = power.epoch_s * power.power_w
    for s, size in enumerate(sizes):
        rows = rows_of.get(size, [])
        order = [(path, at) for path in paths.get(size, ()) for at in rows]
        if not order:
            continue
        split_s[s] = np.mean([power.epoch_s[at] for _, at in order])
        split_j[s] = np.mean([epoch_j[at] for _, at in order])
        top[s] = max(power.limit_w[at] for at in rows)
        for p, limit in enumerate(limits):
            here = [(path, at) for path, at in order if power.limit_w[at] == limit]
            start[s, p], count[s, p] = len(epochs), len(here)
            if here:
                epochs += [path for path, _ in here]
                measured += [at for _, at in here]
                power_mean[s, p] = compensated_mean(float(power.power_w[at]) for _, at in here)
                time_mean[s, p] = compensated_mean(float(power.epoch_s[at]) for _, at in here)
        absent = [f"{limit:g}" for limit, paths_here in zip(limits, count[s]) if not paths_here]
        if absent:
            notes.append(("holes", f"batch size {size} was not measured at {', '.join(absent)} W"))
    for size, limit in zip(sizes, top):
        if limit != price and not np.isnan(limit):
            what = f"batch size {size} was measured up to {limit:g} W, time is priced at {price:g} W"
            notes.append(("B6", what))
    return Workload(
        job=job,
        sizes=np.array(sizes, np.int64),
        limits_w=np.array(limits),
        start=start,
        count=count,
        epochs=np.array(epochs, np.int64),
        epoch_s=power.epoch_s[measured],
        epoch_j=epoch_j[measured],
        power_mean_w=power_mean,
        time_mean_s=time_mean,
        split_s=split_s,
        split_j=split_j,
        max_power_w=price,
        top_limit_w=np.full(len(sizes), price) if rules.one_max_power else top,
        notes=tuple(notes),
    )


def _notes(power: PowerTrace, joined: Rows, job: Job) -> list[tuple[str, str]]:
    """Notes on duplicate rows and on draws above their limit."""
    notes = []
    for (workload, size), rows in joined.items():
        if workload != job.workload:
            continue
        limits = power.limit_w[rows]
        if len(set(limits.tolist())) < len(rows):
            notes.append(("B14", f"batch size {size} has duplicate power rows"))
        for at in rows:
            if power.power_w[at] > power.limit_w[at]:
                over = f"{power.power_w[at]:.1f} W on average under a limit of {power.limit_w[at]:g} W"
                notes.append(("B12", f"batch size {size}: {over}"))
    return notes


def _nothing_joined(train: TrainTrace, power: PowerTrace, job: Job) -> str:
    """The message for a job without a row in both files: what is in them."""
    trained = sorted({"/".join(workload) for workload in train.workload})
    measured = sorted({"/".join(workload) for workload in power.workload})
    return (
        f"no batch size of {'/'.join(job.workload)} is both trained and measured; "
        f"trained: {', '.join(trained)}; measured: {', '.join(measured)}"
    )


def _targets_present(train: TrainTrace, job: Job) -> str:
    """The message for a target without a row: the nearest targets recorded."""
    present = {
        float(metric)
        for workload, metric in zip(train.workload, train.target_metric)
        if workload == job.workload
    }
    nearest = sorted(present, key=lambda metric: abs(metric - job.target_metric))[:8]
    return f"target {job.target_metric:g} is not recorded; nearest: {', '.join(f'{m:g}' for m in nearest)}"
