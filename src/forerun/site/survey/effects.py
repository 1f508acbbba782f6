"""What changes of a site do to waits: paired differences on the same jobs, with intervals that carry the setting's error."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final, Literal, TypeAlias

import numpy as np

from forerun.cluster.inputs.arrays import F64
from forerun.core.domain import Units
from forerun.core.result.stats import Interval, student_quantile
from forerun.core.study.blocks import block_difference
from forerun.site.survey.changes import Change

CONFIDENCE: Final = 0.9
#: differences that are none: as a share of the mean wait, and in seconds
EQUIVALENT: Final = 0.02
EQUIVALENT_S: Final = 60.0
#: how many are shown as the cheapest
MOST_SHOWN: Final = 3

Verdict: TypeAlias = Literal["better", "worse", "equivalent", "not separated"]


#: the figure that changes are judged by
_WAIT: Final = "wait_mean_s"


def waits(submit_s: F64, start_s: F64) -> Units:
    """The waits of the scored jobs of a run, for intervals over blocks of its log."""
    return Units("jobs", submit_s, means={_WAIT: start_s - submit_s})


@dataclass(frozen=True, slots=True)
class Effect:
    """What a change does to the mean wait of the scored jobs.

    Parameters
    ----------
    change : what is otherwise.
    wait_s : the mean wait with it.
    difference_s : that less the mean wait without it.
    interval : of the difference, in seconds; None: the log is too short for one.
    verdict : what can be said.
    worst : the partition that it is worst for, and by how much its mean wait changes, in seconds.
    waits : of the scored jobs.
    tie : whether it is not worse than the change that is best.
    """

    change: Change
    wait_s: float
    difference_s: float
    interval: Interval | None
    verdict: Verdict
    worst: tuple[str, float]
    waits: Units
    tie: bool = False


def error_of(recorded_s: float, simulated_s: float) -> float:
    """By how much a setting misses the mean wait of history, relative to it."""
    return abs(simulated_s - recorded_s) / max(recorded_s, EQUIVALENT_S)


def difference(one: Units, other: Units, error: float, *, reproduced: bool) -> tuple[float, Interval | None]:
    """The mean wait of one run less that of another, with its 90 % interval.

    The interval is a block bootstrap over days of the log. A setting that reproduces history errs on a difference as it
    does on the wait itself, in proportion, and independently of which jobs come; one that does not carries its whole error
    of the wait.

    Parameters
    ----------
    one, other : of the same jobs.
    error : of the setting, relative.
    reproduced : whether the setting reproduces history.
    """
    before_s = float(other.means[_WAIT].mean())
    gap_s = float(one.means[_WAIT].mean()) - before_s
    over = block_difference(one, other, _WAIT, gap_s)
    if over is None:
        return gap_s, None
    tail = 0.5 + CONFIDENCE / 2
    half_s = (over.interval.high - over.interval.low) / 2
    half_s *= student_quantile(tail, over.blocks - 1) / student_quantile(0.975, over.blocks - 1)
    if reproduced:
        half_s = math.hypot(half_s, error * abs(gap_s))
    else:
        half_s += error * before_s
    return gap_s, Interval(gap_s - half_s, gap_s + half_s, CONFIDENCE, over.interval.method)


def verdict_of(gap_s: float, interval: Interval | None, wait_s: float) -> Verdict:
    """What can be said of a difference. wait_s: the mean wait that it is a difference from."""
    near_s = max(EQUIVALENT * wait_s, EQUIVALENT_S)
    if interval is None:
        return "equivalent" if gap_s == 0 else "not separated"
    if -near_s <= interval.low and interval.high <= near_s:
        return "equivalent"
    return "better" if interval.high < 0 else "worse" if interval.low > 0 else "not separated"


def effect_of(
    change: Change, waits: Units, base: Units, partition: Sequence[str], error: float, *, reproduced: bool
) -> Effect:
    """The effect of a change. partition: of each job; the others as for `difference`."""
    gap_s, interval = difference(waits, base, error, reproduced=reproduced)
    longer_s = waits.means[_WAIT] - base.means[_WAIT]
    names, of = np.unique(np.array(partition, dtype=str), return_inverse=True)
    jobs, sums_s = np.bincount(of), np.bincount(of, longer_s)
    large = np.flatnonzero(jobs >= 0.02 * len(of)).tolist()
    by_partition = {str(names[at]): float(sums_s[at] / jobs[at]) for at in large}
    worst = max(by_partition.items(), key=lambda one: one[1], default=("", 0.0))
    wait_s = float(base.means[_WAIT].mean())
    verdict = verdict_of(gap_s, interval, wait_s)
    return Effect(change, wait_s + gap_s, gap_s, interval, verdict, worst, waits)


def cheapest(effects: Sequence[Effect], error: float, *, reproduced: bool) -> list[Effect]:
    """The cheapest changes that are better, or, where none is, that may be: those without nodes first, then by effect.

    A change that is not worse than the one with the most effect of all is marked as a tie with it.
    """
    better = [one for one in effects if one.verdict == "better"]
    better = better or [one for one in effects if one.verdict == "not separated" and one.difference_s < 0]
    if not better:
        return []
    most = min(better, key=lambda one: one.difference_s)
    marked = []
    for one in better:
        gap_s, interval = difference(one.waits, most.waits, error, reproduced=reproduced)
        apart = verdict_of(gap_s, interval, most.wait_s) == "worse"
        marked.append(replace(one, tie=one is not most and not apart))
    return sorted(marked, key=lambda one: (one.change.nodes, one.difference_s))[:MOST_SHOWN]
